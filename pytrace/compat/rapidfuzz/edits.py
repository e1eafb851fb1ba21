"""Matrices of ``rapidfuzz.distance``'s scorers on `pytrace.kernels.edit_distances`'s kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pytrace import _core
from pytrace.compat.rapidfuzz.handing import rapidfuzz
from pytrace.kernels.edit_distances import FORMS, METRICS, is_whole
from pytrace.kernels.fuzzy_scorers import Processor, is_missing, score_dtype, texts_of

# RapidFuzz's names of METRICS.
_CLASSES = ("Levenshtein", "Indel", "LCSseq", "Jaro", "JaroWinkler")
_LEVENSHTEIN, _JARO, _WINKLER = (METRICS.index(name) for name in ("levenshtein", "jaro", "jaro_winkler"))
_NUMBERS = (int, float, np.integer, np.floating)
_UINT32, _FLOAT32 = np.dtype(np.uint32), np.dtype(np.float32)
_MOST = 2**31  # the core's largest factor of a whole result
_NO_KWARGS: Mapping[str, Any] = {}


class Edit(NamedTuple):
    """What a scorer of RapidFuzz's is to the core."""

    metric: int
    form: int
    whole: bool
    similarity: bool


KNOWN: dict[Any, Edit] = {}
"""RapidFuzz's compiled scorers, once `edit_of` has met one: they are told by what they are, for many have one name."""


def edit_of(scorer: Any) -> Edit | None:
    """Return what one of RapidFuzz's compiled scorers is; None for anything else."""
    found = KNOWN.get(scorer)
    if found is None and not KNOWN and getattr(scorer, "__module__", "").startswith("rapidfuzz.distance.metrics_cpp"):
        distance = rapidfuzz("distance")
        for metric, name in enumerate(_CLASSES):
            for form, kind in enumerate(FORMS):
                edit = Edit(metric, form, is_whole(METRICS[metric], kind), kind.endswith("similarity"))
                KNOWN[getattr(getattr(distance, name), kind)] = edit
        found = KNOWN.get(scorer)
    return found


def cdist(
    edit: Edit,
    queries: Iterable[Any],
    choices: Iterable[Any],
    processor: Processor | None,
    score_cutoff: Any,
    score_multiplier: Any,
    dtype: Any,
    workers: int,
    scorer_kwargs: Mapping[str, Any] | None,
) -> Any:
    """Return the matrix, or None where RapidFuzz itself must be asked: what it refuses, and what the kernel does not have."""
    same = queries is choices
    weight = 0.1
    if scorer_kwargs:
        told = _prefix_weight(edit, scorer_kwargs)
        if told is None:
            return None
        weight = told
    if score_cutoff is not None:
        score_cutoff = _cutoff(edit, score_cutoff)
        if score_cutoff is None:
            return None
    if edit.whole:
        # RapidFuzz, too, drops the decimals.
        if not isinstance(score_multiplier, _NUMBERS) or not 0 <= score_multiplier <= _MOST:
            return None
        score_multiplier = int(score_multiplier)
    try:
        rows = texts_of(queries, processor)
        columns = rows if same else texts_of(choices, processor)
        # Beside itself, RapidFuzz takes a missing text of a list for an empty one in half of the matrix.
        if same and not edit.whole and any(map(is_missing, rows)):
            return None
        out = np.empty((len(rows), len(columns)), score_dtype(dtype, _UINT32 if edit.whole else _FLOAT32))
        missing = 0.0 if edit.similarity else score_multiplier
        threads = _core.num_threads() if workers == -1 else workers
        _core.edit_cdist(
            rows, columns, edit.metric, edit.form, score_cutoff, score_multiplier, missing, threads, weight, out
        )
    except (TypeError, ValueError):
        return None
    return out


def _prefix_weight(edit: Edit, scorer_kwargs: Mapping[str, Any]) -> float | None:
    """Return Jaro-Winkler's weight if the scorer's own arguments are ones that the kernel has."""
    if edit.metric == _LEVENSHTEIN and scorer_kwargs.keys() == {"weights"}:
        weights = scorer_kwargs["weights"]
        return 0.1 if isinstance(weights, tuple | list) and list(weights) == [1, 1, 1] else None
    if edit.metric == _WINKLER and scorer_kwargs.keys() == {"prefix_weight"}:
        weight = scorer_kwargs["prefix_weight"]
        return float(weight) if isinstance(weight, _NUMBERS) and 0 <= weight <= 1 else None
    return None


def _cutoff(edit: Edit, score_cutoff: Any) -> float | None:
    """Return the cutoff that RapidFuzz makes of what it is given; None where only RapidFuzz applies it."""
    if not isinstance(score_cutoff, _NUMBERS):
        return None
    if edit.whole:
        return int(score_cutoff) if 0 <= score_cutoff < 2**53 else None
    # Its Jaro distances and Jaro-Winkler turn the cutoff into one for what they are computed from, where rounding can
    # tip the scales, in some of its ways through a matrix and not in others.
    if edit.metric == _WINKLER or (edit.metric == _JARO and not edit.similarity):
        return None
    cutoff = float(np.float32(score_cutoff))
    return cutoff if 0 <= cutoff <= 1 else None
