"""``rapidfuzz.process``: one text, or many, beside many others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytrace import _core
from pytrace.compat.rapidfuzz import edits, fuzz
from pytrace.compat.rapidfuzz.handing import rapidfuzz
from pytrace.kernels import fuzzy
from pytrace.kernels.fuzzy_scorers import NATIVE, Processor, Scorer

__all__ = ["cdist", "cpdist", "extract", "extractOne", "extract_iter"]

# What a call of microseconds would feel if it were looked up each time.
_core_extract, _core_matrix, _core_vector = _core.fuzzy_extract, _core.fuzzy_matrix, _core.fuzzy_vector
_core_edits, _known_edits = _core.edit_matrix, edits.KNOWN

# Our scorers, here and in `pytrace.kernels.fuzzy`, by what the kernels call them.
_KERNELS: dict[Any, Scorer] = {scorer: scorer for scorer in NATIVE}
_KERNELS.update({getattr(fuzz, scorer.__name__): scorer for scorer in NATIVE})
_NUMBERS = {scorer: NATIVE[kernel] for scorer, kernel in _KERNELS.items()}
# RapidFuzz's, which are known by name: it need not be installed, and has several modules of them.
_NAMED: dict[str, Scorer] = {scorer.__name__: scorer for scorer in NATIVE}


# Choices that the core reads where they lie.
_READ_AT_ONCE = frozenset((list, tuple, dict))


def _kernel_of(scorer: Any, scorer_kwargs: Mapping[str, Any] | None) -> Scorer | None:
    """Return the kernels' scorer for one of either library; None if there is none."""
    if scorer_kwargs:
        return None
    kernel = _KERNELS.get(scorer)
    if kernel is None and getattr(scorer, "__module__", "").startswith("rapidfuzz.fuzz"):
        kernel = _NAMED.get(getattr(scorer, "__name__", ""))
    return kernel


def _known_to_rapidfuzz(scorer: Any) -> Any:
    """Return RapidFuzz's own scorer in place of ours, which it would call as it calls any Python function."""
    kernel = _KERNELS.get(scorer)
    return scorer if kernel is None else getattr(rapidfuzz("fuzz"), kernel.__name__)


def _collection(choices: Iterable[Any] | Mapping[Any, Any]) -> Any:
    """Return choices that may be read twice."""
    # The first test is for speed: the second asks an abstract class.
    return list(choices) if type(choices) not in _READ_AT_ONCE and isinstance(choices, Iterator) else choices


def cdist(
    queries: Iterable[Any],
    choices: Iterable[Any],
    *,
    scorer: Any = fuzz.ratio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    score_multiplier: float = 1,
    dtype: Any = None,
    workers: int = 1,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """``rapidfuzz.process.cdist``: every query beside every choice, an array of shape (n, m)."""
    queries, choices = _collection(queries), _collection(choices)
    number = _NUMBERS.get(scorer)
    # The usual call: 1 x 1 takes two microseconds, half of which the way by the kernels' typed front would be.
    if workers > 0 and processor is dtype is score_cutoff is None and not scorer_kwargs:
        try:
            if number is not None:
                return _core_matrix(queries, choices, number, score_multiplier, workers)
            edit = _known_edits.get(scorer)
            if edit is not None and score_multiplier == 1 and score_hint is None and queries is not choices:
                return _core_edits(queries, choices, edit[0], edit[1], workers)
        except (TypeError, ValueError):
            pass  # no texts: the way round says so, or hands them over
    edit = None if number is not None else edits.edit_of(scorer)
    if edit is not None and score_hint is None:
        matrix = edits.cdist(
            edit, queries, choices, processor or None, score_cutoff, score_multiplier, dtype, workers, scorer_kwargs
        )
        if matrix is not None:
            return matrix
    return _many(
        "cdist", queries, choices, scorer, processor, score_cutoff, score_hint, score_multiplier, dtype, workers,
        scorer_kwargs,
    )  # fmt: skip


def cpdist(
    queries: Iterable[Any],
    choices: Iterable[Any],
    *,
    scorer: Any = fuzz.ratio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    score_multiplier: float = 1,
    dtype: Any = None,
    workers: int = 1,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """``rapidfuzz.process.cpdist``: every query beside the choice at its place, an array of shape (n,)."""
    queries, choices = _collection(queries), _collection(choices)
    number = _NUMBERS.get(scorer)
    if number is not None and workers > 0 and processor is dtype is score_cutoff is None and not scorer_kwargs:
        try:
            return _core_vector(queries, choices, number, score_multiplier, workers)
        except (TypeError, ValueError):
            pass
    return _many(
        "cpdist", queries, choices, scorer, processor, score_cutoff, score_hint, score_multiplier, dtype, workers,
        scorer_kwargs,
    )  # fmt: skip


def _many(
    function: str,
    queries: Iterable[Any],
    choices: Iterable[Any],
    scorer: Any,
    processor: Processor | None,
    score_cutoff: float | None,
    score_hint: float | None,
    score_multiplier: float,
    dtype: Any,
    workers: int,
    scorer_kwargs: Mapping[str, Any] | None,
) -> Any:
    queries, choices = _collection(queries), _collection(choices)
    kernel = _kernel_of(scorer, scorer_kwargs)
    options = {
        "processor": processor, "score_cutoff": score_cutoff, "score_multiplier": score_multiplier, "dtype": dtype,
        "workers": workers,
    }  # fmt: skip
    why: Exception | None = None
    if kernel is not None:
        try:
            return getattr(fuzzy, function)(queries, choices, scorer=kernel, **options)
        except (TypeError, ValueError) as error:
            why = error  # no texts, or arguments that only RapidFuzz takes or words its own error for
    return getattr(rapidfuzz("process", why), function)(
        queries,
        choices,
        scorer=_known_to_rapidfuzz(scorer),
        score_hint=score_hint,
        scorer_kwargs=scorer_kwargs,
        **options,
    )


def extract(
    query: Any,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Any = fuzz.WRatio,
    processor: Processor | None = None,
    limit: int | None = 5,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> list[tuple[Any, Any, Any]]:
    """``rapidfuzz.process.extract``: ``(choice, score, key or index)`` of the best choices, best first."""
    if processor is None and not scorer_kwargs and type(choices) in _READ_AT_ONCE:
        number = _NUMBERS.get(scorer)
        if number is not None:
            try:
                return _core_extract(number, query, choices, limit, score_cutoff)
            except (TypeError, ValueError):
                pass  # the way round says why, or hands them over
    kernel = _kernel_of(scorer, scorer_kwargs)
    choices = _collection(choices)
    why: Exception | None = None
    if kernel is not None:
        try:
            return fuzzy.extract(
                query, choices, scorer=kernel, processor=processor, limit=limit, score_cutoff=score_cutoff
            )
        except (TypeError, ValueError) as error:
            why = error
    found: list[tuple[Any, Any, Any]] = rapidfuzz("process", why).extract(
        query, choices, scorer=_known_to_rapidfuzz(scorer), processor=processor, limit=limit, score_cutoff=score_cutoff,
        score_hint=score_hint, scorer_kwargs=scorer_kwargs,
    )  # fmt: skip
    return found


def extractOne(
    query: Any,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Any = fuzz.WRatio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, Any, Any] | None:
    """``rapidfuzz.process.extractOne``: ``(choice, score, key or index)`` of the best choice, of equal ones the first."""
    # As in `extract`, a call more of which one choice would feel.
    if processor is None and not scorer_kwargs and type(choices) in _READ_AT_ONCE:
        number = _NUMBERS.get(scorer)
        if number is not None:
            try:
                found = _core_extract(number, query, choices, 1, score_cutoff)
            except (TypeError, ValueError):
                pass
            else:
                return found[0] if found else None
    best = extract(
        query, choices, scorer=scorer, processor=processor, limit=1, score_cutoff=score_cutoff, score_hint=score_hint,
        scorer_kwargs=scorer_kwargs,
    )  # fmt: skip
    return best[0] if best else None


def extract_iter(
    query: Any,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Any = fuzz.WRatio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Any, Any, Any]]:
    """``rapidfuzz.process.extract_iter``: ``(choice, score, key or index)`` of each choice as it comes.

    RapidFuzz's own where it is installed, which makes the query ready once for all choices.
    """
    try:
        process = rapidfuzz("process")
    except ImportError:
        if _kernel_of(scorer, scorer_kwargs) is None:
            raise
    else:
        yield from process.extract_iter(
            query, choices, scorer=_known_to_rapidfuzz(scorer), processor=processor, score_cutoff=score_cutoff,
            score_hint=score_hint, scorer_kwargs=scorer_kwargs,
        )  # fmt: skip
        return
    for key, choice in choices.items() if hasattr(choices, "items") else enumerate(choices):
        for _, score, _ in extract(query, [choice], scorer=scorer, processor=processor, score_cutoff=score_cutoff):
            yield choice, score, key
