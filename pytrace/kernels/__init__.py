"""The ten kernels: typed fronts of the compiled core. No function hides the module of its name."""

# The matrix `similarity.similarity` stays in its module, which it would hide here.
from pytrace.kernels.alignment import align_batch, alignment_score, edit_distance, needleman_wunsch
from pytrace.kernels.bags import embedding_bag
from pytrace.kernels.beam import Expansion, expand, log_sum_exp
from pytrace.kernels.device_vectors import DeviceVectors
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
from pytrace.kernels.late_interaction import max_sim
from pytrace.kernels.names import FoundNames, NameTable
from pytrace.kernels.set_cover import greedy_cover, minimum_cover, minimum_covers, scope_cover, scope_covers
from pytrace.kernels.similarity import Metric, normalize, top_k
from pytrace.kernels.spans import Spans, top_spans
from pytrace.kernels.walk import Ranking, Reached, expand_links, personalised_pagerank

__all__ = [
    "DeviceVectors",
    "Expansion",
    "FoundNames",
    "Metric",
    "NameTable",
    "Ranking",
    "Reached",
    "ScoreAlignment",
    "Spans",
    "align_batch",
    "alignment_score",
    "cdist",
    "cpdist",
    "edit_distance",
    "embedding_bag",
    "expand",
    "expand_links",
    "extract",
    "extract_one",
    "greedy_cover",
    "log_sum_exp",
    "max_sim",
    "minimum_cover",
    "minimum_covers",
    "needleman_wunsch",
    "normalize",
    "partial_ratio",
    "partial_ratio_alignment",
    "personalised_pagerank",
    "ratio",
    "scope_cover",
    "scope_covers",
    "token_set_ratio",
    "top_k",
    "top_spans",
]
