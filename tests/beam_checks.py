"""What every beam kernel is held against, wherever it runs."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from pytrace.kernels import expand
from tests import oracles


def check(result, chain_scores, logits, finished, question_offsets, **options):
    """Hold a result against the oracle; equal scores may differ in their last bit and so in their order."""
    expected = oracles.expand(chain_scores, logits, finished, question_offsets, **options)
    assert result.offsets.tolist() == [0, *np.cumsum([len(best) for best in expected])]
    assert [array.dtype for array in result] == [np.int64, np.int64, np.float64, np.float64, bool, bool, np.int64]
    penalty, lengths = options.get("length_penalty", 0.0), options.get("lengths")
    for question, best in enumerate(expected):
        rows = range(result.offsets[question], result.offsets[question + 1])
        pairs = [(int(result.parents[row]), int(result.options[row])) for row in rows]
        assert len(set(pairs)) == len(pairs)
        ranks = []
        for row, (parent, option) in zip(rows, pairs, strict=True):
            assert question_offsets[question] <= parent < question_offsets[question + 1]
            candidates = oracles.beam_candidates(
                chain_scores[parent],
                logits[parent],
                finished[parent],
                options["beams"],
                options.get("min_prob", 0.0),
                options.get("terminate", 0),
            )
            (match,) = [candidate for candidate in candidates if candidate[0] == option]
            score = float(result.scores[row])
            assert score == match[1] or abs(score - match[1]) <= 1e-12 * max(1, abs(score))
            assert (bool(result.finished[row]), bool(result.stuck[row])) == match[2:]
            step = 0.0 if option < 0 else score - chain_scores[parent]
            assert math.isinf(score) or abs(float(result.steps[row]) - step) <= 1e-12 * max(1, abs(score))
            steps = (lengths[parent] if lengths else 0) + (option >= 0)
            ranks.append(score / max(1, steps) ** penalty)
        assert ranks == sorted(ranks, reverse=True)
        oracle_ranks = [
            score / max(1, (lengths[parent] if lengths else 0) + (option >= 0)) ** penalty
            for parent, option, score, _, _ in best
        ]
        np.testing.assert_allclose(ranks, oracle_ranks, rtol=1e-12, atol=1e-12)


def check_finished_chains_compete(**where):
    """A finished chain is carried over beside the others' extensions, and its logits, NaN here, are never read."""
    logits = np.array([[np.nan, np.inf], [0.0, 0.0]])
    result = expand([-0.5, 0.0], logits, [True, False], beams=2, chains=2, **where)
    assert result.parents.tolist() == [0, 1]
    assert result.options.tolist() == [-1, 0]
    assert result.scores.tolist() == [-0.5, -math.log(2)]
    assert result.steps.tolist() == [0.0, -math.log(2)]
    assert result.finished.tolist() == [True, True]
    assert result.stuck.tolist() == [False, False]


@st.composite
def steps(draw):
    """A batch of questions with any mix of live, finished and stuck chains."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    per_question = draw(st.lists(st.integers(0, 6), min_size=0, max_size=6))
    question_offsets = [0, *np.cumsum(per_question).tolist()]
    n_chains = question_offsets[-1]
    spread = draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    logits = []
    for _ in range(n_chains):
        row = rng.standard_normal(rng.integers(0, 12)) * spread + rng.choice([0.0, 1e6, -1e6])
        row[rng.random(len(row)) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = -np.inf
        logits.append(row.tolist())
    chain_scores = (-rng.exponential(2.0, n_chains)).tolist()
    if n_chains and draw(st.booleans()):
        chain_scores[0] = -math.inf
    finished = (rng.random(n_chains) < 0.3).tolist()
    options = {
        "beams": draw(st.integers(1, 6)),
        "chains": draw(st.integers(1, 8)),
        "min_prob": draw(st.sampled_from([0.0, 1e-4, 0.2, 0.9])),
        "terminate": draw(st.sampled_from([None, 0, 3, 50])),
    }
    if draw(st.booleans()):
        options["lengths"] = rng.integers(0, 5, n_chains).tolist()
        options["length_penalty"] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return chain_scores, logits, finished, question_offsets, options


_SCORES, _LOGITS, _LIVE = [0.0, 0.0], [[0.0, 1.0], [2.0, 3.0]], [False, False]

MISUSES = [
    (ValueError, "beams is 0", (_SCORES, _LOGITS, _LIVE), {"beams": 0}),
    (ValueError, "chains is -3", (_SCORES, _LOGITS, _LIVE), {"chains": -3}),
    (ValueError, r"min_prob is 1\.5", (_SCORES, _LOGITS, _LIVE), {"min_prob": 1.5}),
    (ValueError, "min_prob is nan", (_SCORES, _LOGITS, _LIVE), {"min_prob": math.nan}),
    (ValueError, "terminate is -1", (_SCORES, _LOGITS, _LIVE), {"terminate": -1}),
    (ValueError, "length_penalty is -1", (_SCORES, _LOGITS, _LIVE), {"length_penalty": -1.0}),
    (ValueError, "lengths has 0 values, but there are 2", (_SCORES, _LOGITS, _LIVE), {"length_penalty": 1.0}),
    (ValueError, r"lengths\[1\] is -1", (_SCORES, _LOGITS, _LIVE), {"lengths": [1, -1]}),
    (ValueError, r"chain_scores\[1\] is NaN", ([0.0, math.nan], _LOGITS, _LIVE), {}),
    (ValueError, r"chain_scores\[0\] is infinite", ([math.inf, 0.0], _LOGITS, _LIVE), {}),
    (ValueError, "chain 1, option 0, is NaN", (_SCORES, [[0.0], [math.nan]], _LIVE), {}),
    (ValueError, "chain 0, option 1, is infinite", (_SCORES, [[0.0, math.inf], [0.0, 0.0]], _LIVE), {}),
    (ValueError, "option_logits has 3 rows, but there are 2", (_SCORES, np.zeros((3, 2)), _LIVE), {}),
    (ValueError, "1 dimensions; it must have 2", (_SCORES, [0.0, 1.0], _LIVE), {}),
    (ValueError, "2 dimensions; it must have 1", (_SCORES, _LOGITS, _LIVE), {"option_offsets": [0, 1, 2]}),
    (ValueError, "finished has 1 values, but there are 2", (_SCORES, _LOGITS, [False]), {}),
    (TypeError, "it must hold booleans", (_SCORES, _LOGITS, [0, 1]), {}),
    (TypeError, "real numbers", (["a", "b"], _LOGITS, _LIVE), {}),
    (
        ValueError,
        "question_offsets ends at 1, but there are 2",
        (_SCORES, _LOGITS, _LIVE),
        {"question_offsets": [0, 1]},
    ),
    (ValueError, "goes back at 2", (_SCORES, _LOGITS, _LIVE), {"question_offsets": [0, 2, 1]}),
    (ValueError, "option_offsets has 2 values", (_SCORES, [0.0], _LIVE), {"option_offsets": [0, 1]}),
    (ValueError, "option_offsets ends at 9", (_SCORES, [0.0], _LIVE), {"option_offsets": [0, 1, 9]}),
    (ValueError, "option_offsets is empty", (_SCORES, [0.0], _LIVE), {"option_offsets": []}),
]
