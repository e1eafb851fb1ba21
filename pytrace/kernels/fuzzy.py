"""Fuzzy string scores from 0 to 100, as RapidFuzz defines them, computed many at a time.

All scorers compare Unicode code points and read each `str` (or `bytes`, one code point a byte) where it lies. The
functions take RapidFuzz's arguments under RapidFuzz's names, so changing the import is enough:

>>> from pytrace.kernels.fuzzy import cdist, extract, partial_ratio
>>> partial_ratio("Ada Foah", "a fort located in Ada Foah, Ghana")
100.0

One difference, on purpose: a score equal to `score_cutoff` is always kept and one below it never, where RapidFuzz's answer
depends on the rounding of the last bit and on which of its functions is asked.

Source: definitions of RapidFuzz 3.14 (Indel similarity); methods in Hyyrö, *Bit-Parallel LCS-length Computation
Revisited* (AWOCA 2004) and Tiskin, *Semi-local String Comparison: Algorithmic Techniques and Applications* (2008).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrace import _core
from pytrace.kernels import devices
from pytrace.kernels.fuzzy_scorers import (
    NATIVE,
    ON_CARDS,
    Processor,
    QRatio,
    ScoreAlignment,
    Scorer,
    Text,
    WRatio,
    is_missing,
    partial_ratio,
    partial_ratio_alignment,
    partial_token_ratio,
    partial_token_set_ratio,
    partial_token_sort_ratio,
    process,
    ratio,
    real_cutoff,
    score_dtype,
    texts_of,
    token_ratio,
    token_set_ratio,
    token_sort_ratio,
)

__all__ = [
    "QRatio",
    "ScoreAlignment",
    "WRatio",
    "cdist",
    "cpdist",
    "extract",
    "extract_one",
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

_FLOAT32 = np.dtype(np.float32)  # made once: a matrix of few texts takes two microseconds


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
        A scorer of this module, which runs in native code without the GIL; or any callable of two texts that takes
        `score_cutoff`, which is called once a pair in Python.
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
        bit, by `ratio`, `partial_ratio` and `token_set_ratio` only. See `pytrace.kernels.devices`.

    Returns
    -------
    numpy.ndarray
        Shape (n, m). A missing text scores 0 with everything.

    Raises
    ------
    TypeError
        If a text is neither `str`, `bytes` nor missing, or `dtype` is not offered.
    ValueError
        If `workers` is 0 or below -1, `score_cutoff` is outside 0 to 100, or a card does not have `scorer`.
    DeviceUnavailableError
        If there is no such card.
    MemoryError
        If the card has no room for the texts of one tile of the matrix, of at least one text a side.

    Examples
    --------
    >>> cdist(["Ada Foah"], ["Ada", "Accra"], scorer=partial_ratio)
    array([[100.,  50.]], dtype=float32)
    """
    rows, columns = texts_of(queries, processor), texts_of(choices, processor)
    return _score_pairs(
        "fuzzy_cdist", rows, columns, (len(rows), len(columns)), scorer, score_cutoff, score_multiplier, dtype,
        workers, scorer_kwargs, device,
    )  # fmt: skip


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
    beside each of its names, say; but `processor` is called once for each place, so that a repeated text becomes several.

    Arguments and errors are those of `cdist`, for n texts on each side (a `ValueError` where there are not as many of one
    as of the other). Returns shape (n,): a pair with a missing text scores 0, also by a `scorer` that is not of this module,
    which RapidFuzz would call.

    Examples
    --------
    >>> sentence = "a fort located in Ada Foah, Ghana"
    >>> cpdist([sentence, sentence], ["Ada Foah", "Accra"], scorer=partial_ratio)
    array([100.,  40.], dtype=float32)
    """
    firsts, seconds = texts_of(queries, processor), texts_of(choices, processor)
    # RapidFuzz raises here, too; zip would drop the longer side's end.
    if len(firsts) != len(seconds):
        raise ValueError(
            f"there are {len(firsts)} queries but {len(seconds)} choices; pairs need as many of one as of the other "
            "(cdist scores every query beside every choice)"
        )
    return _score_pairs(
        "fuzzy_cpdist", firsts, seconds, (len(firsts),), scorer, score_cutoff, score_multiplier, dtype,
        workers, scorer_kwargs, device,
    )  # fmt: skip


def extract(
    query: Text,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Scorer = WRatio,
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
    scorer, score_hint, scorer_kwargs
        As in `cdist`.
    processor
        Called on the query and each choice for the comparison alone; None leaves them as they are.
    limit
        How many to return at most; None for all.
    score_cutoff
        The least score to return.

    Returns
    -------
    list of tuple
        ``(choice, score, key)`` with the key of a mapping, else the index; best first, ties in the order of `choices`.
        Empty if the query is missing.

    Raises
    ------
    TypeError, ValueError
        If a text is neither `str`, `bytes` nor missing; if `limit` is negative or `score_cutoff` is NaN.

    Examples
    --------
    >>> extract("Kongenstein", ["Ada Foah", "Fort Kongenstein", "Kongsberg"], scorer=partial_ratio, limit=1)
    [('Fort Kongenstein', 100.0, 1)]
    """
    number = NATIVE.get(scorer)
    # The core reads the choices where they lie and stops early, so they are not copied into a tuple first.
    if number is not None and processor is None:
        return _core.fuzzy_extract(number, query, choices, limit, score_cutoff)
    # By its method and not by its class: a pandas Series has `items`, but is no Mapping.
    items = getattr(choices, "items", None)
    keyed = None if items is None else list(items())
    texts = texts_of(choices, None) if keyed is None else tuple(text for _, text in keyed)
    needle, processed = (query, texts) if processor is None else (process(query, processor), texts_of(texts, processor))
    if number is not None:
        rows = _core.fuzzy_extract(number, needle, processed, limit, score_cutoff)
        best = [(i, score) for _, score, i in rows]
    else:
        best = _extract_by(scorer, needle, processed, limit, score_cutoff, scorer_kwargs or {})
    # The choice is reported as it came, not as the processor left it.
    return [(texts[i], score, i if keyed is None else keyed[i][0]) for i, score in best]


def extract_one(
    query: Text,
    choices: Iterable[Any] | Mapping[Any, Any],
    *,
    scorer: Scorer = WRatio,
    processor: Processor | None = None,
    score_cutoff: float | None = None,
    score_hint: float | None = None,
    scorer_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, float, Any] | None:
    """Find the choice most like a query: RapidFuzz's ``process.extractOne``.

    Arguments and errors are those of `extract`. Returns ``(choice, score, key)``, of equal ones the first, or None if no
    choice reaches `score_cutoff`.

    Examples
    --------
    >>> extract_one("Kongenstein", {"a": "Ada Foah", "k": "Fort Kongenstein"}, scorer=partial_ratio)
    ('Fort Kongenstein', 100.0, 'k')
    """
    best = extract(
        query, choices, scorer=scorer, processor=processor, limit=1, score_cutoff=score_cutoff, score_hint=score_hint,
        scorer_kwargs=scorer_kwargs,
    )  # fmt: skip
    return best[0] if best else None


def _score_pairs(
    kernel: str,
    queries: tuple[Any, ...],
    choices: tuple[Any, ...],
    shape: tuple[int, ...],
    scorer: Scorer,
    score_cutoff: float | None,
    score_multiplier: float,
    dtype: npt.DTypeLike | None,
    workers: int,
    scorer_kwargs: Mapping[str, Any] | None,
    device: str | None,
) -> npt.NDArray[Any]:
    """Fill an array by a kernel, of the core or of a card, or pair by pair by a scorer that is not of this module."""
    if workers < -1 or workers == 0:
        raise ValueError(f"workers is {workers}; give the number of threads, or -1 for all")
    # Written so that NaN fails, too.
    if score_cutoff is not None and not 0 <= score_cutoff <= 100:
        raise ValueError(f"score_cutoff is {score_cutoff}; it must be from 0 to 100")
    card = None if device is None else devices.card_of(device)  # a call less, which one row of a matrix would feel
    # A card calls no Python: what it cannot score is refused rather than scored on the processor in silence.
    number = NATIVE.get(scorer)
    if card is not None and (number is None or number > ON_CARDS):
        raise ValueError(
            f"scorer {getattr(scorer, '__name__', scorer)!r} cannot run on {device!r}; give ratio, partial_ratio or "
            "token_set_ratio of pytrace.kernels.fuzzy, or leave device out"
        )
    kind = score_dtype(dtype, _FLOAT32)
    out = np.empty(shape, kind)
    # Few short texts take microseconds, so this way stays short. The 0 is the score of a pair with a missing text.
    if card is not None:
        on_card = getattr(devices.cuda_module(), kernel)
        on_card(queries, choices, number, score_cutoff or 0.0, score_multiplier, 0.0, out, card)
    elif number is not None:
        threads = _core.num_threads() if workers == -1 else workers
        getattr(_core, kernel)(queries, choices, number, score_cutoff or 0.0, score_multiplier, 0.0, threads, out)
    else:
        # As RapidFuzz calls a scorer: with the cutoff always, be it None.
        options = dict(scorer_kwargs or {}, score_cutoff=score_cutoff)
        for cell in np.ndindex(shape):  # a row and a column of a matrix, or the number of a pair
            query, choice = queries[cell[0]], choices[cell[-1]]
            missing = is_missing(query) or is_missing(choice)
            score = 0 if missing else scorer(query, choice, **options) * score_multiplier
            # As RapidFuzz stores it: NumPy would cut the decimals off.
            out[cell] = score if kind.kind == "f" else round(score)
    return out


def _extract_by(
    scorer: Scorer,
    query: Text,
    texts: tuple[Any, ...],
    limit: int | None,
    score_cutoff: float | None,
    scorer_kwargs: Mapping[str, Any],
) -> list[tuple[int, float]]:
    """Return the best indices and their scores by a scorer that is not of this module."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit is {limit}; give 0 or more, or None for all")
    least = max(real_cutoff(score_cutoff), 0.0)
    if is_missing(query):
        return []
    options = {**scorer_kwargs, "score_cutoff": score_cutoff}
    scores = [(i, float(scorer(query, text, **options))) for i, text in enumerate(texts) if not is_missing(text)]
    # A stable sort: ties stay in the order of the choices, as in the core.
    return sorted((pair for pair in scores if pair[1] >= least), key=lambda pair: -pair[1])[:limit]
