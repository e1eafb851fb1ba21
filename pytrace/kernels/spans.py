"""Answer spans: the best of many windows of tokens, from the logits of a network that reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytrace import _core


class Spans(NamedTuple):
    """The best spans of each window, the best first.

    Attributes
    ----------
    scores
        Float32 ``[windows, top]``, in nats above "no answer here"; ``-inf`` where a window has fewer than `top` spans.
    first, last
        Int32 ``[windows, top]``: the first and the last token of each, both within the span; -1 where there is none.
    """

    scores: npt.NDArray[np.float32]
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]


def top_spans(
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
    pairs: npt.ArrayLike,
    owners: npt.ArrayLike,
    offsets: npt.ArrayLike,
    *,
    top: int,
    max_tokens: int = 30,
    max_characters: int = 300,
    threads: int | None = None,
) -> Spans:
    """Find the best answer spans of each window of tokens.

    The score of a span is ``starts[first] + log P(last | first) - starts[0]``. P is a softmax of ``ends[t] + s·e[t] / sqrt(width)``
    over the tokens t of the passage from `first` on, where s is the vector of `first` as a start and e[t] that of t as an end. The
    ``4 * top`` best starts are tried, each with its `top` best ends. Results do not depend on `threads` or on the other windows.

    Parameters
    ----------
    starts, ends
        Float32 ``[windows, tokens]``: logits of each token as the first and as the last of an answer. Token 0 of a window stands for
        "no answer here". Other real types are converted.
    pairs
        Float32 ``[windows, tokens, 2 * width]``: the vector of each token as a start, then its vector as an end.
    owners
        Int32 ``[windows, tokens]``: the passage of each token. A token with a value below 0 is in no span: questions, separators and
        padding. Other whole numbers are converted if they fit.
    offsets
        Int32 ``[windows, tokens, 2]``: where each token begins and ends in its passage, in characters.
    top
        Spans per window.
    max_tokens, max_characters
        Maximum length of a span.
    threads
        Maximum number of threads; default `pytrace._core.num_threads()`.

    Returns
    -------
    Spans
        Equal scores by lower first token, then by lower last token; scores are compared before they are rounded to float32.

    Raises
    ------
    ValueError
        Shapes that do not fit, an odd last dimension of `pairs`, whole numbers beyond int32, negative `top` or `max_characters`,
        `max_tokens` or `threads` below 1, more spans than memory has room for.
    TypeError
        Arrays that do not hold real numbers, owners or offsets that are not whole.

    Notes
    -----
    NaN and infinity count as a logit of ``-inf``, as does a product that overflows float32. Such a token begins or ends no span.
    A window whose ``starts[0]`` is not finite has no spans. Offsets are not checked: a span whose last character is before its first
    counts as short. Scores beyond float32 become its largest or lowest number.

    The end of an answer is scored given its start: M. Fajcik et al., "Rethinking the Objectives of Extractive Question Answering"
    (MRQA 2021). Time is at most linear in ``4 * top`` times the tokens of passages times `width`. The search ends with the first
    start that is below the worst of `top` spans. Arrays that are contiguous and of the stated types are read without a copy. It has
    no form for cards.

    Examples
    --------
    Token 0 is the question's, tokens 1 to 3 are a passage's. The vectors say nothing:

    >>> import numpy as np
    >>> from pytrace.kernels import top_spans
    >>> offsets = [[[-1, -1], [0, 3], [4, 9], [10, 14]]]
    >>> spans = top_spans(
    ...     [[0, 3, 1, 0]], [[0, 0, 5, 0]], np.zeros((1, 4, 2)), [[-1, 0, 0, 0]], offsets, top=2, max_characters=9
    ... )
    >>> spans.first.tolist(), spans.last.tolist()
    ([[1, 2]], [[2, 2]])
    >>> spans.scores.round(2).tolist()
    [[2.990000009536743, 0.9900000095367432]]
    """
    return Spans(*_core.top_spans(starts, ends, pairs, owners, offsets, top, max_tokens, max_characters, threads))
