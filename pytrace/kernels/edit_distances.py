"""Edit distances of many texts beside many: Levenshtein, Indel, LCSseq, Jaro and Jaro-Winkler, as RapidFuzz defines them.

All compare Unicode code points and read each `str` (or `bytes`, one code point a byte) where it lies. `edit_distance` of
`pytrace.kernels.alignment` is for sequences of other symbols.

>>> from pytrace.kernels.edit_distances import cdist
>>> cdist(["kitten"], ["sitting", "mitten"])
array([[3, 1]], dtype=uint32)

Source: definitions of RapidFuzz 3.14; Hyyrö, *A Bit-Vector Algorithm for Computing Levenshtein and Damerau Edit Distances*
(Nordic Journal of Computing 10, 2003) and *Bit-Parallel LCS-length Computation Revisited* (AWOCA 2004); Winkler, *String
Comparator Metrics and Enhanced Decision Rules in the Fellegi-Sunter Model of Record Linkage* (1990).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pytrace import _core
from pytrace.kernels.fuzzy_scorers import Processor, Text, score_dtype, texts_of

__all__ = ["FORMS", "METRICS", "Form", "Metric", "cdist"]

Metric: TypeAlias = Literal["levenshtein", "indel", "lcs_seq", "jaro", "jaro_winkler"]
Form: TypeAlias = Literal["distance", "similarity", "normalized_distance", "normalized_similarity"]

# In the order of csrc/fuzzy/edit.h.
METRICS: tuple[Metric, ...] = ("levenshtein", "indel", "lcs_seq", "jaro", "jaro_winkler")
FORMS: tuple[Form, ...] = ("distance", "similarity", "normalized_distance", "normalized_similarity")

_WHOLE_METRICS = 3  # the first of METRICS, whose first forms are whole numbers
_WHOLE_FORMS = 2
_UINT32, _FLOAT32 = np.dtype(np.uint32), np.dtype(np.float32)


def is_whole(metric: Metric, form: Form) -> bool:
    """Whether results are whole numbers."""
    return METRICS.index(metric) < _WHOLE_METRICS and FORMS.index(form) < _WHOLE_FORMS


def cdist(
    queries: Iterable[Text],
    choices: Iterable[Text],
    *,
    metric: Metric = "levenshtein",
    form: Form = "distance",
    prefix_weight: float = 0.1,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_multiplier: float = 1,
    dtype: npt.DTypeLike | None = None,
    workers: int = 1,
) -> npt.NDArray[Any]:
    """Compare every query with every choice.

    Runs in native code without the GIL: O(n m / 64) a pair of texts of n and m characters, side by side for as many pairs
    as a vector register holds; by Jaro O(n + m) where both have more than 64.

    Parameters
    ----------
    queries
        n texts.
    choices
        m texts.
    metric
        ``"levenshtein"``: the least number of insertions, deletions and substitutions; at most the longer text's length.
        ``"indel"``: without substitutions; at most both lengths together. ``"lcs_seq"``: the longest common subsequence, at
        most the longer text's length. ``"jaro"``, ``"jaro_winkler"``: from 0 to 1, by the characters in common within half
        the longer text and their order; the latter favours texts that begin alike.
    form
        ``"distance"`` and ``"similarity"`` add up to the most there is, the ``"normalized_…"`` ones, divided by that, to 1.
        Of two empty texts the distance is 0 and the normalized similarity 1.
    prefix_weight
        What Jaro-Winkler gives for each of the first four characters that the texts have in common, from 0 to 1.
    processor
        Called on each text once; None leaves them as they are.
    score_cutoff
        A similarity below it becomes 0. A distance above it becomes 1, or where it is a whole number the cutoff and 1.
    score_multiplier
        Every result is multiplied by it before it is stored, for instance to keep decimals in an integer `dtype`. For
        whole results it and `score_cutoff` lose their decimals.
    dtype
        uint32 for whole results and float32 for others (the default), float64 or an integer type, to which results are
        rounded (and wrap where they do not fit).
    workers
        Threads; -1 uses `pytrace._core.num_threads()`. Results do not depend on it.

    Returns
    -------
    numpy.ndarray
        Shape (n, m). A missing text (None or NaN) is 1 away from everything and 0 alike.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing, or `dtype` is not offered.
    ValueError
        If `metric` or `form` is none of these; `workers` is 0 or below -1; `score_cutoff` is negative, or above 1 where
        results are not whole; `prefix_weight` is outside 0 to 1; `score_multiplier` is not from 0 to 2^31 where results are
        whole; a text is missing where results are whole, or has 2^30 characters or more.
    MemoryError
        If there is no room for the result.

    Examples
    --------
    >>> cdist(["Ada Foah"], ["Ada", "Accra"], metric="jaro_winkler", form="similarity").round(3)
    array([[0.854, 0.55 ]], dtype=float32)
    """
    if metric not in METRICS or form not in FORMS:
        raise ValueError(
            f"metric is {metric!r} and form {form!r}; give one of {', '.join(METRICS)} and one of {', '.join(FORMS)}"
        )
    if workers < -1 or workers == 0:
        raise ValueError(f"workers is {workers}; give the number of threads, or -1 for all")
    if not 0 <= prefix_weight <= 1:
        raise ValueError(f"prefix_weight is {prefix_weight}; it must be from 0 to 1")
    whole = is_whole(metric, form)
    most = float("inf") if whole else 1.0
    # Written so that NaN fails, too.
    if score_cutoff is not None and not 0 <= score_cutoff <= most:
        raise ValueError(f"score_cutoff is {score_cutoff}; it must be from 0" + ("" if whole else " to 1"))
    rows, columns = texts_of(queries, processor), texts_of(choices, processor)
    out = np.empty((len(rows), len(columns)), score_dtype(dtype, _UINT32 if whole else _FLOAT32))
    missing = 0.0 if form.endswith("similarity") else score_multiplier
    threads = _core.num_threads() if workers == -1 else workers
    _core.edit_cdist(
        rows, columns, METRICS.index(metric), FORMS.index(form), score_cutoff, score_multiplier, missing, threads,
        prefix_weight, out,
    )  # fmt: skip
    return out
