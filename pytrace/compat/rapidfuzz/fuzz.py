"""``rapidfuzz.fuzz``: scores from 0 to 100. `pytrace.kernels.fuzzy` says what each is."""

from __future__ import annotations

from typing import Any, Protocol

from pytrace import _core
from pytrace.compat.rapidfuzz.handing import rapidfuzz
from pytrace.kernels import fuzzy
from pytrace.kernels.fuzzy_scorers import NATIVE, Processor, is_missing

__all__ = [
    "QRatio",
    "WRatio",
    "partial_ratio",
    "partial_ratio_alignment",
    "partial_token_ratio",
    "partial_token_set_ratio",
    "partial_token_sort_ratio",
    "ratio",
    "token_ratio",
    "token_set_ratio",
    "token_sort_ratio",
]


class _Scorer(Protocol):
    __name__: str

    def __call__(
        self, s1: Any, s2: Any, *, processor: Processor | None = None, score_cutoff: float | None = None
    ) -> float: ...


def _scorer(kernel: Any) -> _Scorer:
    """Return a kernel's scorer that hands what is no text to RapidFuzz."""
    name, number, score = kernel.__name__, NATIVE[kernel], _core.fuzzy_score

    def scorer(s1: Any, s2: Any, *, processor: Processor | None = None, score_cutoff: float | None = None) -> float:
        if processor is not None:
            if is_missing(s1) or is_missing(s2):
                return 0.0
            s1, s2 = processor(s1), processor(s2)
        try:
            return score(number, s1, s2, score_cutoff)
        except TypeError as error:
            return float(getattr(rapidfuzz("fuzz", error), name)(s1, s2, score_cutoff=score_cutoff))

    scorer.__name__ = scorer.__qualname__ = name
    scorer.__module__ = __name__
    scorer.__doc__ = f"``rapidfuzz.fuzz.{name}``: `pytrace.kernels.fuzzy.{name}`, for sequences that are no texts, too."
    return scorer


ratio = _scorer(fuzzy.ratio)
partial_ratio = _scorer(fuzzy.partial_ratio)
token_sort_ratio = _scorer(fuzzy.token_sort_ratio)
token_set_ratio = _scorer(fuzzy.token_set_ratio)
token_ratio = _scorer(fuzzy.token_ratio)
partial_token_sort_ratio = _scorer(fuzzy.partial_token_sort_ratio)
partial_token_set_ratio = _scorer(fuzzy.partial_token_set_ratio)
partial_token_ratio = _scorer(fuzzy.partial_token_ratio)
WRatio = _scorer(fuzzy.WRatio)
QRatio = _scorer(fuzzy.QRatio)


def partial_ratio_alignment(
    s1: Any, s2: Any, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> Any:
    """``rapidfuzz.fuzz.partial_ratio_alignment``: RapidFuzz's `ScoreAlignment` where it is installed, else a like tuple."""
    try:
        alignment = fuzzy.partial_ratio_alignment(s1, s2, processor=processor, score_cutoff=score_cutoff)
    except TypeError as error:
        other = rapidfuzz("fuzz", error)
        return other.partial_ratio_alignment(s1, s2, processor=processor, score_cutoff=score_cutoff)
    if alignment is None:
        return None
    try:
        return rapidfuzz("distance").ScoreAlignment(*alignment)
    except ImportError:
        return alignment
