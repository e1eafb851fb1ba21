"""The five kernels: typed fronts of the compiled core."""

from pytrace.kernels.beam import Expansion, expand
from pytrace.kernels.similarity import Metric, normalize, similarity, top_k

__all__ = ["Expansion", "Metric", "expand", "normalize", "similarity", "top_k"]
