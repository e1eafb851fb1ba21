"""Fuzzy string scores from 0 to 100, as RapidFuzz defines them, computed many at a time.

All scorers compare Unicode code points and read each `str` (or `bytes`, one code point a byte) where it lies. The
functions take RapidFuzz's arguments under RapidFuzz's names, so changing the import is enough:

>>> from pytrace.kernels.fuzzy import cdist, extract, partial_ratio
>>> partial_ratio("Ada Foah", "a fort located in Ada Foah, Ghana")
100.0

Two differences, both on purpose. `extract` and `extract_one` want their `scorer` named, because RapidFuzz's own default,
``WRatio``, is not offered here. And a score equal to `score_cutoff` is always kept, where RapidFuzz's answer depends on
the rounding of the last bit and on which of its functions is asked.

Source: definitions of RapidFuzz 3.10 (Indel similarity); methods in Hyyrö, *Bit-Parallel LCS-length Computation
Revisited* (AWOCA 2004) and Tiskin, *Semi-local String Comparison: Algorithmic Techniques and Applications* (2008).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pytrace import _core
from pytrace.kernels import devices

__all__ = [
    "ScoreAlignment",
    "cdist",
    "cpdist",
    "extract",
    "extract_one",
    "partial_ratio",
    "partial_ratio_alignment",
    "ratio",
    "token_set_ratio",
]

Text: TypeAlias = str | bytes | float | None
"""A text to compare. None, and the NaN that tables hold in empty cells, are a missing text."""

Processor: TypeAlias = Callable[[Any], Any]
Scorer: TypeAlias = Callable[..., float]

_FLOAT32 = np.dtype(np.float32)
_RATIO, _PARTIAL_RATIO, _TOKEN_SET_RATIO = range(3)
_score = _core.fuzzy_score


class ScoreAlignment(NamedTuple):
    """A score and the two parts that earned it, ``s1[src_start:src_end]`` and ``s2[dest_start:dest_end]``."""

    score: float
    src_start: int
    src_end: int
    dest_start: int
    dest_end: int


def ratio(s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None) -> float:
    """Return the normalised Indel similarity of two texts.

    It is ``100 * 2 * LCS(s1, s2) / (len(s1) + len(s2))`` with LCS the length of the longest common subsequence.

    Parameters
    ----------
    s1, s2
        The texts.
    processor
        Called on each text first, for instance ``str.lower``; None leaves them as they are.
    score_cutoff
        A score below it becomes 0.

    Returns
    -------
    float
        0 to 100; 100 if both are empty, 0 if either is missing.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing.
    ValueError
        If `score_cutoff` is NaN.

    Examples
    --------
    >>> ratio("this is a test", "this is a test!")
    96.55172413793103
    """
    if processor is not None:
        s1, s2 = _process(s1, processor), _process(s2, processor)
    return _score(_RATIO, s1, s2, score_cutoff)


def partial_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return the best `ratio` of the shorter text with any window of the longer one.

    Windows have the shorter text's length, or are a shorter prefix or suffix of the longer text. Two texts of the same
    length are tried both ways.

    Parameters
    ----------
    s1, s2
        The texts, in either order.
    processor
        Called on each text first; None leaves them as they are.
    score_cutoff
        A score below it becomes 0.

    Returns
    -------
    float
        0 to 100; 100 if both are empty, 0 if only one is or either is missing.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing.
    ValueError
        If `score_cutoff` is NaN.

    Examples
    --------
    >>> partial_ratio("this is a test", "this is a test!")
    100.0
    """
    if processor is not None:
        s1, s2 = _process(s1, processor), _process(s2, processor)
    return _score(_PARTIAL_RATIO, s1, s2, score_cutoff)


def token_set_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return how alike the sets of words of two texts are, whatever the words' order and repetition.

    With the words sorted and joined by blanks, it is the best ratio among: the common words with those and the rest of
    `s1`; the common words with those and the rest of `s2`; and these two longer ones with each other. 100 if one set
    contains the other.

    Parameters
    ----------
    s1, s2
        The texts. They are split at Unicode white space; U+0085 and U+00A0 split only a text that has a character above
        U+00FF, as in RapidFuzz.
    processor
        Called on each text first; None leaves them as they are.
    score_cutoff
        A score below it becomes 0.

    Returns
    -------
    float
        0 to 100; 0 if either has no word or is missing.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing.
    ValueError
        If `score_cutoff` is NaN.

    Examples
    --------
    >>> token_set_ratio("fuzzy was a bear", "a bear fuzzy fuzzy was")
    100.0
    """
    if processor is not None:
        s1, s2 = _process(s1, processor), _process(s2, processor)
    return _score(_TOKEN_SET_RATIO, s1, s2, score_cutoff)


def partial_ratio_alignment(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> ScoreAlignment | None:
    """Return `partial_ratio` with the place where it was found.

    Of windows that score the same, it is the one that RapidFuzz reports.

    Parameters
    ----------
    s1, s2
        The texts, in either order.
    processor
        Called on each text first; the places are then in the processed texts. None leaves them as they are.
    score_cutoff
        The least score to report.

    Returns
    -------
    ScoreAlignment or None
        None if the score is below `score_cutoff` or a text is missing.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing.
    ValueError
        If `score_cutoff` is NaN.

    Examples
    --------
    >>> partial_ratio_alignment("a fort in Ada Foah, Ghana", "Ada Foa")
    ScoreAlignment(score=100.0, src_start=10, src_end=17, dest_start=0, dest_end=7)
    """
    if processor is not None:
        s1, s2 = _process(s1, processor), _process(s2, processor)
    found = _core.fuzzy_alignment(s1, s2, _cutoff(score_cutoff))
    return None if found is None else ScoreAlignment(*found)


def cdist(
    queries: Iterable[Text],
    choices: Iterable[Text],
    *,
    scorer: Scorer = ratio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,  # noqa: ARG001 (only for an unchanged call)
    score_multiplier: float = 1,
    dtype: npt.DTypeLike | None = None,
    workers: int = 1,
    scorer_kwargs: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> npt.NDArray[Any]:
    """Score every query beside every choice.

    Parameters
    ----------
    queries
        n texts.
    choices
        m texts.
    scorer
        `ratio`, `partial_ratio` or `token_set_ratio` of this module, which run in native code without the GIL; or any
        callable of two texts that takes `score_cutoff`, which is called once a pair in Python.
    processor
        Called on each text once; None leaves them as they are.
    score_cutoff
        A score below it becomes 0; the higher it is, the more pairs are dropped before they are scored.
    score_hint
        Taken for RapidFuzz's sake; no hint changes a result or the speed here.
    score_multiplier
        Every score is multiplied by it before it is stored, for instance to keep decimals in an integer `dtype`.
    dtype
        float32 (the default), float64 or an integer type, to which scores are rounded (and wrap where they do not fit).
    workers
        Threads; -1 uses `pytrace._core.num_threads()`. Results do not depend on it, and on a card it does not matter.
    scorer_kwargs
        More arguments for a `scorer` that is not of this module.
    device
        Where to compute: None or ``"cpu"``; or ``"cuda"``, ``"cuda:1"`` for a card, with the same scores to the last
        bit, by this module's scorers only. See `pytrace.kernels.devices`.

    Returns
    -------
    numpy.ndarray
        Shape (n, m). A missing text scores 0 with everything.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing, or `dtype` is not offered.
    ValueError
        If `workers` is 0 or below -1, `score_cutoff` is outside 0 to 100, or a card is to call a `scorer` that is not
        of this module.
    DeviceUnavailableError
        If there is no such card.
    MemoryError
        If the card has no room for the texts of one tile of the matrix, of at least one text a side.

    Examples
    --------
    >>> cdist(["Ada Foah"], ["Ada", "Accra"], scorer=partial_ratio)
    array([[100.,  50.]], dtype=float32)
    """
    threads = _threads(workers)
    _require_percent(score_cutoff)
    card = _card(device, scorer)
    rows, columns = _texts(queries, processor), _texts(choices, processor)
    kind = _FLOAT32 if dtype is None else _dtype(dtype)
    out = np.empty((len(rows), len(columns)), kind)
    number = _NATIVE.get(scorer)
    if card is not None:
        module = devices.cuda_module()
        module.fuzzy_cdist(rows, columns, number, score_cutoff or 0.0, score_multiplier, 0.0, out, card)
        return out
    if number is not None:
        _core.fuzzy_cdist(rows, columns, number, score_cutoff or 0.0, score_multiplier, 0.0, threads, out)
        return out
    given = dict(scorer_kwargs or {}, score_cutoff=score_cutoff)
    for i, query in enumerate(rows):
        for j, choice in enumerate(columns):
            out[i, j] = _score_by(scorer, query, choice, given, score_multiplier, kind)
    return out


def cpdist(
    queries: Iterable[Text],
    choices: Iterable[Text],
    *,
    scorer: Scorer = ratio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,  # noqa: ARG001 (only for an unchanged call)
    score_multiplier: float = 1,
    dtype: npt.DTypeLike | None = None,
    workers: int = 1,
    scorer_kwargs: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> npt.NDArray[Any]:
    """Score every query beside the choice at the same place: RapidFuzz's ``process.cpdist``.

    A text that stands in neighbouring pairs as the same object, on either side, is made ready only once: a sentence
    beside each of its names, say.

    Parameters
    ----------
    queries, choices
        n texts each.
    scorer, processor, score_cutoff, score_hint, score_multiplier, dtype, workers, scorer_kwargs, device
        As in `cdist`; `processor` is called once for each place, so that a repeated text becomes several.

    Returns
    -------
    numpy.ndarray
        Shape (n,). A pair with a missing text scores 0, also by a `scorer` that is not of this module, which RapidFuzz
        would call.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing, or `dtype` is not offered.
    ValueError
        If there are not as many queries as choices, `workers` is 0 or below -1, `score_cutoff` is outside 0 to 100, or
        a card is to call a `scorer` that is not of this module.
    DeviceUnavailableError, MemoryError
        As in `cdist`.

    Examples
    --------
    >>> sentence = "a fort located in Ada Foah, Ghana"
    >>> cpdist([sentence, sentence], ["Ada Foah", "Accra"], scorer=partial_ratio)
    array([100.,  40.], dtype=float32)
    """
    threads = _threads(workers)
    _require_percent(score_cutoff)
    card = _card(device, scorer)
    firsts, seconds = _texts(queries, processor), _texts(choices, processor)
    if len(firsts) != len(seconds):
        raise ValueError(
            f"there are {len(firsts)} queries but {len(seconds)} choices; pairs need as many of one as of the other "
            "(cdist scores every query beside every choice)"
        )
    kind = _FLOAT32 if dtype is None else _dtype(dtype)
    out = np.empty(len(firsts), kind)
    number = _NATIVE.get(scorer)
    if card is not None:
        module = devices.cuda_module()
        module.fuzzy_cpdist(firsts, seconds, number, score_cutoff or 0.0, score_multiplier, 0.0, out, card)
        return out
    if number is not None:
        _core.fuzzy_cpdist(firsts, seconds, number, score_cutoff or 0.0, score_multiplier, 0.0, threads, out)
        return out
    given = dict(scorer_kwargs or {}, score_cutoff=score_cutoff)
    for i, (query, choice) in enumerate(zip(firsts, seconds, strict=True)):
        out[i] = _score_by(scorer, query, choice, given, score_multiplier, kind)
    return out


def extract(
    query: Text,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Scorer,
    processor: Processor | None = None,
    limit: int | None = 5,
    score_cutoff: float | None = None,
    score_hint: float | None = None,  # noqa: ARG001 (only for an unchanged call)
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> list[tuple[Any, float, Any]]:
    """Find the choices most like a query.

    Choices that cannot come among the best are dropped by bounds, and nothing is read behind `limit` choices that
    score 100.

    Parameters
    ----------
    query
        The text looked for.
    choices
        The texts to look among, or a mapping (or pandas Series) whose values they are. Missing ones are skipped.
    scorer
        As in `cdist`.
    processor
        Called on the query and each choice for the comparison alone; None leaves them as they are.
    limit
        How many to return at most; None for all.
    score_cutoff
        The least score to return.
    score_hint
        Taken for RapidFuzz's sake; no hint changes a result or the speed here.
    scorer_kwargs
        More arguments for a `scorer` that is not of this module.

    Returns
    -------
    list of tuple
        ``(choice, score, key)`` with the key of a mapping, else the index; best first, ties in the order of `choices`.
        Empty if the query is missing.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing.
    ValueError
        If `limit` is negative or `score_cutoff` is NaN.

    Examples
    --------
    >>> extract("Kongenstein", ["Ada Foah", "Fort Kongenstein", "Kongsberg"], scorer=partial_ratio, limit=1)
    [('Fort Kongenstein', 100.0, 1)]
    """
    number = _NATIVE.get(scorer)
    if number is not None and processor is None:
        return _core.fuzzy_extract(number, query, choices, limit, score_cutoff)
    keys, texts = _keyed(choices)
    needle, processed = (query, texts) if processor is None else (_process(query, processor), _texts(texts, processor))
    if number is not None:
        found = _core.fuzzy_extract(number, needle, processed, limit, score_cutoff)
        best = [(i, score) for _, score, i in found]
    else:
        best = _extract_by(scorer, needle, processed, limit, score_cutoff, scorer_kwargs)
    return [(texts[i], score, i if keys is None else keys[i]) for i, score in best]


def extract_one(
    query: Text,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Scorer,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, float, Any] | None:
    """Find the choice most like a query: RapidFuzz's ``process.extractOne``.

    Parameters
    ----------
    query, choices, scorer, processor, score_cutoff, score_hint, scorer_kwargs
        As in `extract`.

    Returns
    -------
    tuple or None
        ``(choice, score, key)``, of equal ones the first; None if no choice reaches `score_cutoff`.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing.
    ValueError
        If `score_cutoff` is NaN.

    Examples
    --------
    >>> extract_one("Kongenstein", {"a": "Ada Foah", "k": "Fort Kongenstein"}, scorer=partial_ratio)
    ('Fort Kongenstein', 100.0, 'k')
    """
    best = extract(
        query,
        choices,
        scorer=scorer,
        processor=processor,
        limit=1,
        score_cutoff=score_cutoff,
        score_hint=score_hint,
        scorer_kwargs=scorer_kwargs,
    )
    return best[0] if best else None


_NATIVE: dict[Scorer, int] = {ratio: _RATIO, partial_ratio: _PARTIAL_RATIO, token_set_ratio: _TOKEN_SET_RATIO}


def _cutoff(score_cutoff: float | None) -> float:
    cutoff = 0.0 if score_cutoff is None else float(score_cutoff)
    if math.isnan(cutoff):
        raise ValueError("score_cutoff is not a number; give 0 to 100, or None")
    return cutoff


def _require_percent(score_cutoff: float | None) -> None:
    if score_cutoff is not None and not 0 <= score_cutoff <= 100:
        raise ValueError(f"score_cutoff is {score_cutoff}; it must be from 0 to 100")


def _missing(text: object) -> bool:
    return text is None or (isinstance(text, float) and math.isnan(text))


def _process(text: Text, processor: Processor) -> Text:
    return text if _missing(text) else cast("Text", processor(text))


def _texts(texts: Iterable[Any], processor: Processor | None) -> tuple[Any, ...]:
    if isinstance(texts, str | bytes):
        raise TypeError("one text was given where a list of texts belongs; put it in a list")
    return tuple(texts) if processor is None else tuple(_process(text, processor) for text in texts)


def _keyed(choices: Iterable[Any] | Mapping[Any, Any]) -> tuple[list[Any] | None, tuple[Any, ...]]:
    """Split choices into keys (None for plain indices) and texts."""
    items = getattr(choices, "items", None)
    if items is None:
        return None, _texts(choices, None)
    pairs = list(items())
    return [key for key, _ in pairs], tuple(text for _, text in pairs)


def _dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype).newbyteorder("=")
    if kind.kind not in "fiu" or kind.itemsize not in (1, 2, 4, 8) or kind == np.float16:
        raise TypeError(f"dtype is {kind}; give float32, float64 or an integer type")
    return kind


def _card(device: str | None, scorer: Scorer) -> int | None:
    """Return the card's number, None for the processor; refuse what no card can call."""
    card = devices.card_of(device)
    if card is not None and scorer not in _NATIVE:
        raise ValueError(
            f"scorer {getattr(scorer, '__name__', scorer)!r} cannot run on {device!r}; give ratio, partial_ratio or "
            "token_set_ratio of pytrace.kernels.fuzzy, or leave device out"
        )
    return card


def _threads(workers: int) -> int:
    if workers < -1 or workers == 0:
        raise ValueError(f"workers is {workers}; give the number of threads, or -1 for all")
    return _core.num_threads() if workers == -1 else workers


def _score_by(
    scorer: Scorer, query: Text, choice: Text, given: Mapping[str, Any], multiplier: float, kind: np.dtype[Any]
) -> float:
    """Return what is stored of a pair's score by a scorer that is not of this module."""
    value = 0 if _missing(query) or _missing(choice) else scorer(query, choice, **given) * multiplier
    return value if kind.kind == "f" else round(value)


def _extract_by(
    scorer: Scorer,
    query: Text,
    texts: tuple[Any, ...],
    limit: int | None,
    score_cutoff: float | None,
    scorer_kwargs: Mapping[str, Any] | None,
) -> list[tuple[int, float]]:
    """Return the best indices and their scores by a scorer that is not of this module."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit is {limit}; give 0 or more, or None for all")
    least = max(_cutoff(score_cutoff), 0.0)
    if _missing(query):
        return []
    given = dict(scorer_kwargs or {}, score_cutoff=score_cutoff)
    scores = [(i, float(scorer(query, text, **given))) for i, text in enumerate(texts) if not _missing(text)]
    return sorted((found for found in scores if found[1] >= least), key=lambda found: -found[1])[:limit]
