"""The five kernels: typed fronts of the compiled core."""

from pytrace.kernels.beam import Expansion, expand, log_sum_exp
from pytrace.kernels.device_vectors import KeptVectors
from pytrace.kernels.fuzzy import (
    ScoreAlignment,
    cdist,
    cpdist,
    extract,
    extract_one,
    partial_ratio,
    partial_ratio_alignment,
    ratio,
    token_set_ratio,
)
from pytrace.kernels.similarity import Metric, normalize, similarity, top_k

__all__ = [
    "Expansion",
    "KeptVectors",
    "Metric",
    "ScoreAlignment",
    "cdist",
    "cpdist",
    "expand",
    "extract",
    "extract_one",
    "log_sum_exp",
    "normalize",
    "partial_ratio",
    "partial_ratio_alignment",
    "ratio",
    "similarity",
    "token_set_ratio",
    "top_k",
]
