"""The scorers of `pytrace.kernels.fuzzy`, one pair of texts at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pytrace import _core

Text: TypeAlias = str | bytes | float | None
"""A text to compare. None, and the NaN that tables hold in empty cells, are a missing text."""

Processor: TypeAlias = Callable[[Any], Any]
Scorer: TypeAlias = Callable[..., float]

# The core's numbers of the scorers, in the order of csrc/fuzzy/fuzzy.h.
(
    _RATIO, _PARTIAL_RATIO, _TOKEN_SET_RATIO, _TOKEN_SORT_RATIO, _TOKEN_RATIO, _PARTIAL_TOKEN_SORT_RATIO,
    _PARTIAL_TOKEN_SET_RATIO, _PARTIAL_TOKEN_RATIO, _WRATIO, _QRATIO,
) = range(10)  # fmt: skip
# A score takes well under a microsecond, of which one more look-up would be felt.
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
    # The same lines stand in each scorer, because one more function would be felt in a call of 100 ns.
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_RATIO, s1, s2, score_cutoff)


def partial_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return the best `ratio` of the shorter text with any window of the longer one.

    Windows have the shorter text's length, or are a shorter prefix or suffix of the longer text. Two texts of the same
    length are tried both ways, so the order of the texts does not matter. 100 if both are empty, 0 if only one is or either
    is missing. Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> partial_ratio("this is a test", "this is a test!")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_PARTIAL_RATIO, s1, s2, score_cutoff)


def token_set_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return how alike the sets of words of two texts are, whatever the words' order and repetition.

    With the words sorted and joined by blanks, it is the best ratio among: the common words with those and the rest of
    `s1`; the common words with those and the rest of `s2`; and these two longer ones with each other. 100 if one set
    contains the other, 0 if either text has no word or is missing. Texts are split at Unicode white space; U+0085 and U+00A0
    split only a text that has a character above U+00FF, as in RapidFuzz. Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> token_set_ratio("fuzzy was a bear", "a bear fuzzy fuzzy was")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_TOKEN_SET_RATIO, s1, s2, score_cutoff)


def token_sort_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return the `ratio` of two texts' words, sorted and joined by blanks.

    Texts are split as in `token_set_ratio`. Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> token_sort_ratio("Ghana, Ada Foah", "Ada Foah Ghana,")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_TOKEN_SORT_RATIO, s1, s2, score_cutoff)


def token_ratio(s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None) -> float:
    """Return the larger of `token_sort_ratio` and `token_set_ratio`.

    Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> token_ratio("fuzzy was a bear", "a bear fuzzy fuzzy was")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_TOKEN_RATIO, s1, s2, score_cutoff)


def partial_token_sort_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return the `partial_ratio` of two texts' words, sorted and joined by blanks.

    Texts are split as in `token_set_ratio`. Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> partial_token_sort_ratio("Foah Ada", "a fort in Ada Foah")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_PARTIAL_TOKEN_SORT_RATIO, s1, s2, score_cutoff)


def partial_token_set_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return 100 for two texts that share a word, else the `partial_ratio` of their distinct words, sorted and joined.

    0 if either text has no word. Texts are split as in `token_set_ratio`. Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> partial_token_set_ratio("Ada Foah", "Ada Lovelace")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_PARTIAL_TOKEN_SET_RATIO, s1, s2, score_cutoff)


def partial_token_ratio(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> float:
    """Return the larger of `partial_token_sort_ratio` and `partial_token_set_ratio`.

    Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> partial_token_ratio("Ada Foah", "Ada Lovelace")
    100.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_PARTIAL_TOKEN_RATIO, s1, s2, score_cutoff)


def WRatio(s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None) -> float:
    """Return a weighted ratio: the best of several scorers, each by a weight that goes with the texts' lengths.

    Of texts of which the longer has less than 1.5 times the characters of the shorter, the larger of `ratio` and 0.95 times
    `token_ratio`; of others, the largest of `ratio`, `partial_ratio` by 0.9 (0.6 if the longer has more than 8 times as
    many) and `partial_token_ratio` by 0.95 of that. 0 if a text is empty or missing. Arguments and errors are those of
    `ratio`; a score below `score_cutoff` becomes 0 always, where RapidFuzz returns 85.5 or 57 for texts that share a word.

    Examples
    --------
    >>> WRatio("Ada Foah", "a fort in Ada Foah")
    90.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_WRATIO, s1, s2, score_cutoff)


def QRatio(s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None) -> float:
    """Return `ratio`, but 0 where a text is empty.

    Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> QRatio("", "")
    0.0
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    return _score(_QRATIO, s1, s2, score_cutoff)


def partial_ratio_alignment(
    s1: Text, s2: Text, *, processor: Processor | None = None, score_cutoff: float | None = None
) -> ScoreAlignment | None:
    """Return `partial_ratio` with the parts of the (processed) texts that earned it.

    Of windows that score the same, it is the one that RapidFuzz reports. None if the score is below `score_cutoff` or a text
    is missing. Arguments and errors are those of `ratio`.

    Examples
    --------
    >>> partial_ratio_alignment("a fort in Ada Foah, Ghana", "Ada Foa")
    ScoreAlignment(score=100.0, src_start=10, src_end=17, dest_start=0, dest_end=7)
    """
    if processor is not None:
        s1, s2 = process(s1, processor), process(s2, processor)
    alignment = _core.fuzzy_alignment(s1, s2, real_cutoff(score_cutoff))
    return None if alignment is None else ScoreAlignment(*alignment)


NATIVE: dict[Scorer, int] = {
    ratio: _RATIO,
    partial_ratio: _PARTIAL_RATIO,
    token_set_ratio: _TOKEN_SET_RATIO,
    token_sort_ratio: _TOKEN_SORT_RATIO,
    token_ratio: _TOKEN_RATIO,
    partial_token_sort_ratio: _PARTIAL_TOKEN_SORT_RATIO,
    partial_token_set_ratio: _PARTIAL_TOKEN_SET_RATIO,
    partial_token_ratio: _PARTIAL_TOKEN_RATIO,
    WRatio: _WRATIO,
    QRatio: _QRATIO,
}
"""The scorers that cdist and its like run in native code rather than call once a pair."""

ON_CARDS = _TOKEN_SET_RATIO
"""The last number of a scorer that a card has, too."""


def real_cutoff(score_cutoff: float | None) -> float:
    """Return a cutoff for scores as a number that is one."""
    cutoff = 0.0 if score_cutoff is None else float(score_cutoff)
    # Every comparison with NaN is false: such a cutoff would drop all scores, or none, in silence.
    if math.isnan(cutoff):
        raise ValueError("score_cutoff is not a number; give 0 to 100, or None")
    return cutoff


def is_missing(text: object) -> bool:
    """Whether a text is None or NaN."""
    return text is None or (isinstance(text, float) and math.isnan(text))


def process(text: Text, processor: Processor) -> Text:
    """Call a processor on a text that is there."""
    # RapidFuzz does not call it on missing texts either, and str.lower would fail on None.
    return text if is_missing(text) else cast("Text", processor(text))


def texts_of(texts: Iterable[Any], processor: Processor | None) -> tuple[Any, ...]:
    """Return texts, processed, as a tuple, which the core can read while others run."""
    # A string is iterable, too: its letters would be scored one by one.
    if isinstance(texts, str | bytes):
        raise TypeError("one text was given where a list of texts belongs; put it in a list")
    return tuple(texts) if processor is None else tuple(process(text, processor) for text in texts)


def score_dtype(dtype: npt.DTypeLike | None, usual: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a matrix's scores, in the machine's own byte order."""
    if dtype is None:
        return usual
    kind = np.dtype(dtype).newbyteorder("=")
    # Of real numbers NumPy has more: float16 and, where C's long double is longer, float96 or float128.
    if kind.kind not in "fiu" or kind.itemsize not in (1, 2, 4, 8) or kind == np.float16:
        raise TypeError(f"dtype is {kind}; give float32, float64 or an integer type")
    return kind
