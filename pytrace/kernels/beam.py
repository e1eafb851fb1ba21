"""One step of a beam search over reasoning chains, for many questions at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytrace import _core
from pytrace.kernels import devices

_ARRAY = np.ndarray  # one look-up less in a step that takes a microsecond


class Expansion(NamedTuple):
    """The chains after a step, question by question, best first.

    Attributes
    ----------
    parents
        Int64: the chain that each one extends, as a row of `chain_scores`.
    options
        Int64: the option it took, or -1 if the chain was carried over as it was.
    scores
        Float64: accumulated log-probability.
    steps
        Float64: log-probability of the option; 0 for a chain carried over.
    finished
        Bool: the chain has ended, now or before.
    stuck
        Bool: carried over unfinished, because none of its options was possible.
    offsets
        Int64 ``[n_questions + 1]``: the chains of question g are ``offsets[g]`` to ``offsets[g + 1]``; pass it on as
        `question_offsets` of the next step.
    """

    parents: npt.NDArray[np.int64]
    options: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    steps: npt.NDArray[np.float64]
    finished: npt.NDArray[np.bool_]
    stuck: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int64]


def expand(
    chain_scores: npt.ArrayLike,
    option_logits: npt.ArrayLike,
    finished: npt.ArrayLike,
    *,
    beams: int,
    chains: int,
    min_prob: float = 0.0,
    terminate: int | None = 0,  # where TRACE's prompt has its option that no further triple is needed
    question_offsets: npt.ArrayLike | None = None,
    option_offsets: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
    length_penalty: float = 0.0,
    threads: int | None = None,
    device: str | None = None,
) -> Expansion:
    """Extend each question's chains by one step and keep the best.

    A live chain's options are scored by log softmax over its logits, and its `beams` best are tried; a finished chain is
    carried over and competes with the rest; each question keeps its `chains` best by accumulated log-probability. Equal
    scores are ordered by lower parent, then higher logit, then lower option. All in float64.

    Parameters
    ----------
    chain_scores
        Float64 ``[n_chains]``: accumulated log-probabilities, the chains of a question side by side. A search starts
        with one chain of score 0 a question.
    option_logits
        Float32 or float64: ``[n_chains, n_options]``, where ``-inf`` marks an option that is not there; or with
        `option_offsets` one flat vector. Need not be normalised.
    finished
        Bool ``[n_chains]``. The logits of a finished chain are not looked at.
    beams
        Options tried a chain, at least 1.
    chains
        Chains kept a question, at least 1.
    min_prob
        Options below this probability (0 to 1) are dropped. A chain that loses all of them is carried over as stuck.
    terminate
        The option that ends a chain (adaptive termination), or None if there is none.
    question_offsets
        Int64 ``[n_questions + 1]``: question g owns chains ``question_offsets[g]`` to ``question_offsets[g + 1]``. By
        default all chains belong to one question.
    option_offsets
        Int64 ``[n_chains + 1]``: chain c's options are ``option_logits[option_offsets[c]:option_offsets[c + 1]]``.
    lengths
        Int64 ``[n_chains]``: steps that each chain has taken; needed with `length_penalty`.
    length_penalty
        Chains are ranked by score / steps ** length_penalty; 0, the paper's, ranks by the score itself. Returned scores
        are never divided.
    threads
        Threads to use at most; default `pytrace._core.num_threads()`. Small steps run on one.
    device
        Where to compute: see `pytrace.kernels.devices`. On a card `chain_scores` must be float64 and `option_logits`
        float32 or float64; offsets and `lengths` are brought to the host and checked there.

    Returns
    -------
    Expansion
        Parents, options, scores, steps, finished, stuck and offsets; on a card if scores, logits or `finished` are there.

    Raises
    ------
    ValueError
        NaN or ``+inf`` in scores or in the logits of a live chain, counts that do not fit, offsets that go back.
    TypeError
        Arrays of the wrong kind.

    References
    ----------
    Fang et al., "TRACE the Evidence: Constructing Knowledge-Grounded Reasoning Chains for Retrieval-Augmented
    Generation", 2024, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pytrace.kernels import expand
    >>> step = expand([0.0], np.log([[0.2, 0.5, 0.3]]), [False], beams=2, chains=2)
    >>> step.options.tolist(), np.exp(step.scores).round(2).tolist(), step.finished.tolist()
    ([1, 2], [0.5, 0.3], [False, False])
    """
    # NumPy's arrays are told apart here: to ask of each where it lies would cost a tenth of a small step.
    if device is not None or not (chain_scores.__class__ is option_logits.__class__ is finished.__class__ is _ARRAY):
        arrays = (chain_scores, option_logits, finished)
        card = devices.card_of(device, *arrays)
        if card is not None:
            results = devices.cuda_module().expand(
                *arrays, beams, chains, min_prob, terminate, question_offsets, option_offsets, lengths, length_penalty,
                card,
            )  # fmt: skip
            return Expansion(*(devices.results(array, *arrays) for array in results))
    # The core makes the named tuple itself, so that nothing is unpacked here.
    return _core.expand(
        chain_scores, option_logits, finished, beams, chains, min_prob, terminate, question_offsets, option_offsets,
        lengths, length_penalty, threads, Expansion,
    )  # fmt: skip


def log_sum_exp(logits: npt.ArrayLike) -> float:
    """Return the logarithm of the sum of exponentials: log-probabilities are logits less this.

    Parameters
    ----------
    logits
        Float32 ``[n]``, such as a model's row over its vocabulary; other real numbers are converted.

    Returns
    -------
    float
        Within a millionth; ``-inf`` if no value is above ``-inf``, NaN if one is NaN or ``+inf``.

    Raises
    ------
    ValueError, TypeError
        If there is not exactly one dimension, or the values are no real numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from pytrace.kernels import log_sum_exp
    >>> logits = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    >>> [round(float(value), 3) for value in np.exp(logits - log_sum_exp(logits))]
    [0.09, 0.245, 0.665]
    """
    return _core.log_sum_exp(logits)
