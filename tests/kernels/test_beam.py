"""The beam kernel against its naive twin, on every instruction set."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from pytrace.kernels import expand, log_sum_exp
from tests.beam_checks import MISUSES, check, check_finished_chains_compete, steps

pytestmark = pytest.mark.usefixtures("isa")


@pytest.mark.parametrize("threads", [1, 3])
@given(step=steps())
def test_ragged_and_padded_steps_equal_the_oracle(threads, step):
    chain_scores, logits, finished, question_offsets, options = step
    flat = np.array([logit for row in logits for logit in row], dtype=np.float64)
    option_offsets = [0, *np.cumsum([len(row) for row in logits]).tolist()]
    ragged = expand(
        np.array(chain_scores, dtype=np.float64),
        flat,
        np.array(finished, dtype=bool),
        question_offsets=question_offsets,
        option_offsets=option_offsets,
        threads=threads,
        **options,
    )
    check(ragged, chain_scores, logits, finished, question_offsets, **options)
    width = max((len(row) for row in logits), default=0)
    padded = np.full((len(logits), width), -np.inf)
    for row, values in enumerate(logits):
        padded[row, : len(values)] = values
    same = expand(chain_scores, padded, np.array(finished, dtype=bool), question_offsets=question_offsets, **options)
    for left, right in zip(ragged, same, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_thousand_questions_equal_the_oracle_and_one_question_at_a_time(threads):
    rng = np.random.default_rng(1)
    scores, finished = -rng.exponential(1.0, 5_000), rng.random(5_000) < 0.2
    logits = rng.standard_normal((5_000, 31)).astype(np.float32)
    offsets = np.arange(0, 5_001, 5)
    result = expand(
        scores, logits, finished, beams=5, chains=5, min_prob=1e-4, question_offsets=offsets, threads=threads
    )
    check(
        result,
        scores.tolist(),
        logits.tolist(),
        finished.tolist(),
        offsets.tolist(),
        beams=5,
        chains=5,
        min_prob=1e-4,
    )
    for question in (0, 499, 999):
        chains = slice(5 * question, 5 * question + 5)
        alone = expand(scores[chains], logits[chains], finished[chains], beams=5, chains=5, min_prob=1e-4)
        mine = slice(result.offsets[question], result.offsets[question + 1])
        np.testing.assert_array_equal(alone.parents + 5 * question, result.parents[mine])
        np.testing.assert_array_equal(alone.options, result.options[mine])
        np.testing.assert_array_equal(alone.scores, result.scores[mine])


def test_the_first_step_of_a_search():
    result = expand([0.0], np.log([[0.1, 0.5, 0.1, 0.3]]), [False], beams=3, chains=5)
    assert result.parents.tolist() == [0, 0, 0]
    assert result.options.tolist() == [1, 3, 0]
    np.testing.assert_allclose(result.scores, np.log([0.5, 0.3, 0.1]), atol=1e-15)
    np.testing.assert_array_equal(result.steps, result.scores)
    assert result.finished.tolist() == [False, False, True]
    assert result.offsets.tolist() == [0, 3]


def test_finished_chains_compete_and_their_logits_are_never_read():
    check_finished_chains_compete()


def test_a_chain_with_no_possible_option_is_carried_over_and_flagged():
    result = expand([-1.0, -2.0], [[-np.inf, -np.inf], [0.0, -np.inf]], [False, False], beams=2, chains=4)
    assert result.options.tolist() == [-1, 0]
    assert result.scores.tolist() == [-1.0, -2.0]
    assert result.finished.tolist() == [False, True]
    assert result.stuck.tolist() == [True, False]
    none = expand([-1.0], np.zeros((1, 0)), [False], beams=2, chains=4)
    assert none.stuck.tolist() == [True]
    dropped = expand([-1.0], [[0.0, 0.0]], [False], beams=2, chains=4, min_prob=0.6)
    assert (dropped.options.tolist(), dropped.stuck.tolist()) == ([-1], [True])


def test_ties_fall_to_the_lower_parent_then_the_lower_option():
    result = expand([0.0, 0.0], np.zeros((2, 4)), [False, False], beams=3, chains=5, terminate=None)
    assert result.parents.tolist() == [0, 0, 0, 1, 1]
    assert result.options.tolist() == [0, 1, 2, 0, 1]
    assert not result.finished.any()


def test_length_normalisation_ranks_but_does_not_change_scores():
    arguments = ([-1.0, -1.2], [[0.0], [0.0]], [True, True])
    assert expand(*arguments, beams=1, chains=2).parents.tolist() == [0, 1]
    result = expand(*arguments, beams=1, chains=2, lengths=[1, 2], length_penalty=1.0)
    assert result.parents.tolist() == [1, 0]
    assert result.scores.tolist() == [-1.2, -1.0]


def test_a_length_that_another_step_would_not_fit_behind_is_refused():
    longest = 2**63 - 1
    arguments = ([-1.0], [[0.0]], [False])
    assert expand(*arguments, beams=1, chains=1, lengths=[longest - 1], length_penalty=1.0).parents.tolist() == [0]
    with pytest.raises(ValueError, match=rf"lengths\[0\] is {longest}; it must be at least 0 and below"):
        expand(*arguments, beams=1, chains=1, lengths=[longest], length_penalty=1.0)


def test_probability_is_kept_over_steps_until_every_chain_has_ended():
    rng = np.random.default_rng(2)
    scores, finished, offsets = np.zeros(3), np.zeros(3, dtype=bool), np.arange(4)
    for _ in range(6):
        logits = rng.standard_normal((len(scores), 3))
        step = expand(
            scores, logits, finished, beams=3, chains=10_000, question_offsets=offsets, terminate=0, threads=2
        )
        # Nothing was pruned, so each question's probabilities still add up to one.
        for question in range(3):
            assert math.isclose(
                math.fsum(np.exp(step.scores[step.offsets[question] : step.offsets[question + 1]])), 1.0
            )
        np.testing.assert_allclose(scores[step.parents] + step.steps, step.scores, atol=1e-14)
        scores, finished, offsets = step.scores, step.finished, step.offsets


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int8, ">f4", ">f8"])
def test_every_type_and_layout_gives_the_same_step(dtype):
    rng = np.random.default_rng(3)
    logits = rng.integers(-5, 5, (6, 9))
    scores = -rng.random(6)
    finished = np.array([False, True] * 3)
    expected = expand(scores, logits.astype(np.float64), finished, beams=4, chains=9)
    typed = logits.astype(dtype)
    readonly = typed.copy()
    readonly.flags.writeable = False
    wide = np.zeros((12, 18), dtype)
    wide[::2, ::2] = typed
    two = np.repeat(scores, 2)[::2]
    for layout in (typed, np.asfortranarray(typed), readonly, wide[::2, ::2], typed[::-1].copy()[::-1], typed.tolist()):
        result = expand(two, layout, finished.tolist(), beams=4, chains=9)
        for left, right in zip(result, expected, strict=True):
            np.testing.assert_array_equal(left, right)


def test_no_questions_and_no_chains():
    result = expand([], np.zeros((0, 5)), [], beams=1, chains=1, question_offsets=[0, 0, 0])
    assert result.parents.shape == (0,)
    assert result.offsets.tolist() == [0, 0, 0]
    assert expand([], [], [], beams=1, chains=1, option_offsets=[0], question_offsets=[0]).offsets.tolist() == [0]


@pytest.mark.parametrize(("error", "message", "arguments", "options"), MISUSES)
def test_bad_input_is_refused_with_the_numbers(error, message, arguments, options):
    with pytest.raises(error, match=message):
        expand(*arguments, **{"beams": 1, "chains": 1, **options})


def test_a_team_of_no_threads_is_refused():
    with pytest.raises(ValueError, match="threads is 0"):
        expand([0.0], [[0.0]], [False], beams=1, chains=1, threads=0)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100, 511, 512, 513, 49152, 128256])
def test_log_sum_exp_is_within_a_millionth_of_float64(size):
    rng = np.random.default_rng(size)
    for scale, shift in ((1.0, 0.0), (8.0, 0.0), (30.0, -1e4), (1e-3, 50.0), (1e30, 0.0)):
        logits = (rng.normal(size=size) * scale + shift).astype(np.float32)
        logits[rng.random(size) < 0.1] = -np.inf
        logits[rng.integers(size)] = np.float32(shift)
        expected = float(np.logaddexp.reduce(logits.astype(np.float64)))
        assert log_sum_exp(logits) == pytest.approx(expected, rel=1e-12, abs=1e-6)
        assert log_sum_exp(np.repeat(logits, 2)[::2]) == log_sum_exp(logits)


def test_log_sum_exp_of_what_is_no_distribution():
    inf = float("inf")
    assert log_sum_exp([]) == -inf
    for size in (1, 16, 40, 1000):
        logits = np.full(size, -inf, dtype=np.float32)
        assert log_sum_exp(logits) == -inf
        for place in {0, size // 2, size - 1}:
            for value in (float("nan"), inf):
                bad = np.zeros(size, dtype=np.float32)
                bad[place] = value
                assert math.isnan(log_sum_exp(bad))
            logits[place] = 3.0
            assert log_sum_exp(logits) == 3.0
            logits[place] = -inf
    assert log_sum_exp([0, 0, 0, 0]) == pytest.approx(math.log(4), abs=1e-6)
    with pytest.raises(ValueError, match="2 dimensions; it must have 1"):
        log_sum_exp(np.zeros((2, 2)))
    with pytest.raises(TypeError, match="real numbers"):
        log_sum_exp(["a"])
