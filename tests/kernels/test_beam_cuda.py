"""The beam kernel on a card, emulated or real, against the naive twin and the processor's kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pytrace.kernels import expand
from pytrace.kernels.devices import to_device
from tests.beam_checks import MISUSES, check, check_finished_chains_compete, steps

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(found, expected):
    """Hold every array against the processor's, real numbers to their last bits."""
    for name in ("parents", "options", "finished", "stuck", "offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in ("scores", "steps"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12, err_msg=name)


@few
@given(step=steps())
def test_ragged_and_padded_steps_equal_the_oracle(card, step):
    chain_scores, logits, finished, question_offsets, options = step
    flat = np.array([logit for row in logits for logit in row], dtype=np.float64)
    scores, ended = np.array(chain_scores, dtype=np.float64), np.array(finished, dtype=bool)
    ragged = expand(
        scores,
        flat,
        ended,
        question_offsets=question_offsets,
        option_offsets=[0, *np.cumsum([len(row) for row in logits]).tolist()],
        device=card,
        **options,
    )
    check(ragged, chain_scores, logits, finished, question_offsets, **options)
    padded = np.full((len(logits), max((len(row) for row in logits), default=0)), -np.inf)
    for row, values in enumerate(logits):
        padded[row, : len(values)] = values
    same = expand(scores, padded, ended, question_offsets=question_offsets, device=card, **options)
    for left, right in zip(ragged, same, strict=True):
        np.testing.assert_array_equal(left, right)


def random_step(chains, options, *, seed, dtype=np.float32, kinds=None):
    random = np.random.default_rng(seed)
    logits = (
        random.standard_normal((chains, options)) if kinds is None else random.integers(0, kinds, (chains, options))
    )
    return -random.exponential(1.0, chains), logits.astype(dtype), random.random(chains) < 0.2


@pytest.mark.parametrize("options", [1, 2, 31, 32, 33, 63, 64, 65, 128, 129, 300])
@pytest.mark.parametrize(("beams", "chains"), [(1, 1), (5, 5), (32, 40), (33, 20), (40, 33), (70, 70), (500, 500)])
def test_every_number_of_options_and_of_what_is_kept_equals_the_processor(card, options, beams, chains):
    scores, logits, finished = random_step(7, options, seed=options)
    how = {"beams": beams, "chains": chains, "question_offsets": [0, 3, 3, 7], "terminate": None}
    assert_same(expand(scores, logits, finished, device=card, **how), expand(scores, logits, finished, **how))


@pytest.mark.parametrize(("beams", "chains"), [(3, 5), (32, 32), (50, 60)])
def test_ties_fall_as_on_the_processor(card, beams, chains):
    scores, logits, _ = random_step(6, 130, seed=3, dtype=np.float64, kinds=3)
    scores[:] = -1.0
    logits[4] = -0.0
    logits[5] = 0.0
    how = {"beams": beams, "chains": chains, "question_offsets": [0, 4, 6]}
    live = np.zeros(6, dtype=bool)
    assert_same(expand(scores, logits, live, device=card, **how), expand(scores, logits, live, **how))


def test_ties_fall_to_the_lower_parent_then_the_lower_option(card):
    result = expand([0.0, 0.0], np.zeros((2, 4)), [False, False], beams=3, chains=5, terminate=None, device=card)
    assert result.parents.tolist() == [0, 0, 0, 1, 1]
    assert result.options.tolist() == [0, 1, 2, 0, 1]
    assert not result.finished.any()


@pytest.mark.parametrize("chains", [5, 32, 33, 600])
def test_a_question_of_many_chains_equals_the_processor(card, chains):
    scores, logits, finished = random_step(150, 4, seed=5)
    how = {"beams": 3, "chains": chains, "question_offsets": [0, 140, 150]}
    assert_same(expand(scores, logits, finished, device=card, **how), expand(scores, logits, finished, **how))


def test_a_batch_scores_a_chain_as_it_scores_it_alone(card):
    scores, logits, finished = random_step(60, 31, seed=1)
    offsets = np.arange(0, 61, 5)
    how = {"beams": 5, "chains": 5, "min_prob": 1e-4, "device": card}
    whole = expand(scores, logits, finished, question_offsets=offsets, **how)
    for question in (0, 6, 11):
        chains = slice(5 * question, 5 * question + 5)
        alone = expand(scores[chains], logits[chains], finished[chains], **how)
        mine = slice(whole.offsets[question], whole.offsets[question + 1])
        np.testing.assert_array_equal(alone.parents + 5 * question, whole.parents[mine])
        np.testing.assert_array_equal(alone.options, whole.options[mine])
        np.testing.assert_array_equal(alone.scores, whole.scores[mine])


@pytest.mark.parametrize("memory", [1, 4_000, 20_000])
@pytest.mark.parametrize("beams", [4, 40])
def test_little_memory_means_tiles_and_the_same_step(card, monkeypatch, memory, beams):
    scores, logits, finished = random_step(23, 100, seed=8, dtype=np.float64)
    how = {"beams": beams, "chains": beams, "question_offsets": [0, 7, 20, 23]}
    whole = expand(scores, logits, finished, device=card, **how)
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", str(memory))
    ragged = {**how, "option_offsets": np.arange(24) * 100}
    for tiled in (
        expand(scores, logits, finished, device=card, **how),
        expand(scores, np.repeat(logits, 2, axis=0)[::2], finished, device=card, **how),
        expand(scores, logits.ravel(), finished, device=card, **ragged),
    ):
        for left, right in zip(tiled, whole, strict=True):
            np.testing.assert_array_equal(left, right)


def test_arrays_on_a_card_stay_there(card):
    scores, logits, finished = random_step(9, 70, seed=2)
    expected = expand(scores, logits, finished, beams=4, chains=6, question_offsets=[0, 4, 9], device=card)
    there = [to_device(array, card) for array in (scores, logits, finished)]
    offsets = to_device(np.array([0, 4, 9]), card)
    for arguments in (there, [scores, there[1], finished], [there[0], logits, there[2]]):
        found = expand(*arguments, beams=4, chains=6, question_offsets=offsets)
        assert type(found) is type(expected)
        for left, right in zip(found, expected, strict=True):
            assert type(left) is type(there[0])
            assert left.dtype == str(right.dtype)
            np.testing.assert_array_equal(left.numpy(), right)
    again = expand(found.scores, to_device(np.zeros((len(found.scores), 2)), card), found.finished, beams=1, chains=2,
                   question_offsets=found.offsets)  # fmt: skip
    assert again.offsets.numpy().tolist() == [0, 2, 4]


def test_arrays_on_a_card_of_the_wrong_type_are_refused(card):
    there = to_device(np.zeros((2, 3), dtype=np.float16), card)
    with pytest.raises(TypeError, match="option_logits on a card must hold float32 or float64, not float16"):
        expand([0.0, 0.0], there, [False, False], beams=1, chains=1)
    with pytest.raises(TypeError, match="chain_scores on a card must hold float64, not float32"):
        expand(to_device(np.zeros(2, dtype=np.float32), card), np.zeros((2, 3)), [False, False], beams=1, chains=1)


def test_finished_chains_compete_and_their_logits_are_never_read(card):
    check_finished_chains_compete(device=card)


def test_a_chain_with_no_possible_option_is_carried_over_and_flagged(card):
    how = {"beams": 2, "chains": 4, "device": card}
    result = expand([-1.0, -2.0], [[-np.inf, -np.inf], [0.0, -np.inf]], [False, False], **how)
    assert result.options.tolist() == [-1, 0]
    assert result.scores.tolist() == [-1.0, -2.0]
    assert result.finished.tolist() == [False, True]
    assert result.stuck.tolist() == [True, False]
    assert expand([-1.0], np.zeros((1, 0)), [False], **how).stuck.tolist() == [True]
    dropped = expand([-1.0], [[0.0, 0.0]], [False], min_prob=0.6, **how)
    assert (dropped.options.tolist(), dropped.stuck.tolist()) == ([-1], [True])


def test_length_normalisation_ranks_but_does_not_change_scores(card):
    arguments = ([-1.0, -1.2], [[0.0], [0.0]], [True, True])
    result = expand(*arguments, beams=1, chains=2, lengths=[1, 2], length_penalty=1.0, device=card)
    assert result.parents.tolist() == [1, 0]
    assert result.scores.tolist() == [-1.2, -1.0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, ">f4"])
def test_every_type_and_layout_gives_the_same_step(card, dtype):
    random = np.random.default_rng(3)
    logits = random.integers(-5, 5, (6, 9))
    scores = -random.random(6)
    finished = np.array([False, True] * 3)
    expected = expand(scores, logits.astype(np.float64), finished, beams=4, chains=9)
    typed = logits.astype(dtype)
    wide = np.zeros((12, 18), dtype)
    wide[::2, ::2] = typed
    two = np.repeat(scores, 2)[::2]
    for layout in (typed, np.asfortranarray(typed), wide[::2, ::2], typed[::-1].copy()[::-1], typed.tolist()):
        assert_same(expand(two, layout, finished.tolist(), beams=4, chains=9, device=card), expected)


def test_no_questions_and_no_chains(card):
    how = {"beams": 1, "chains": 1, "device": card}
    result = expand([], np.zeros((0, 5)), [], question_offsets=[0, 0, 0], **how)
    assert result.parents.shape == (0,)
    assert result.offsets.tolist() == [0, 0, 0]
    assert expand([], [], [], option_offsets=[0], question_offsets=[0], **how).offsets.tolist() == [0]


@pytest.mark.parametrize(("error", "message", "arguments", "options"), MISUSES)
def test_bad_input_is_refused_as_on_the_processor(card, error, message, arguments, options):
    with pytest.raises(error, match=message):
        expand(*arguments, **{"beams": 1, "chains": 1, "device": card, **options})


def test_the_first_of_many_faults_is_named(card, monkeypatch):
    scores, logits, finished = random_step(40, 200, seed=4)
    finished[:] = False
    logits[[11, 30], 150] = np.inf
    scores[20] = math.nan
    for memory in ("1000000", "1"):
        monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
        for where in (logits, to_device(logits, card)):
            with pytest.raises(ValueError, match="option_logits of chain 11, option 150, is infinite"):
                expand(scores, where, finished, beams=3, chains=3, device=card)
    with pytest.raises(ValueError, match=r"chain_scores\[20\] is NaN"):
        expand(to_device(scores, card), logits[:, :100], finished, beams=3, chains=3)
