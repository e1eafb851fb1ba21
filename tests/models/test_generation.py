"""How one token is chosen, and when a text has begun to repeat itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.models.llama.generation import LONGEST_PERIOD, Generation, log_normalizer, runs_away
from pytrace.models.llama.runtime import LlamaRuntime

PROBABILITIES = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}


@pytest.fixture(scope="module")
def runtime(random_gguf: Path) -> Iterator[LlamaRuntime]:
    runtime = LlamaRuntime(random_gguf, cells=64, sequences=4, batch=8, threads=1)
    yield runtime
    runtime.close()


def row_of(runtime: LlamaRuntime, probabilities: dict[str, float]) -> np.ndarray:
    row = np.full(runtime.vocabulary_size, -np.inf, dtype=np.float32)
    for text, probability in probabilities.items():
        row[runtime.tokenize(text)[0]] = np.log(probability) + 3.0
    return row


def draw(runtime: LlamaRuntime, count: int, temperature: float, top_p: float) -> Counter[str]:
    random = np.random.default_rng(0)
    row = row_of(runtime, PROBABILITIES)
    drawn: Counter[str] = Counter()
    for _ in range(count):
        generation = Generation(1, (), temperature, top_p, random, None)
        generation.advance(row, runtime)
        completion = generation.completion()
        assert completion.log_probability == pytest.approx(np.log(PROBABILITIES[completion.text]), abs=1e-5)
        drawn[completion.text] += 1
    return drawn


@pytest.mark.parametrize(
    ("temperature", "top_p", "expected"),
    [
        (1.0, 1.0, PROBABILITIES),
        (1.0, 0.79, {"a": 0.5 / 0.8, "b": 0.3 / 0.8}),
        (1.0, 0.81, {"a": 0.5 / 0.95, "b": 0.3 / 0.95, "c": 0.15 / 0.95}),
        (1.0, 0.49, {"a": 1.0}),
        (0.5, 1.0, {"a": 0.25 / 0.365, "b": 0.09 / 0.365, "c": 0.0225 / 0.365, "d": 0.0025 / 0.365}),
        (1e-320, 1.0, {"a": 1.0}),
        (0.0, 0.3, {"a": 1.0}),
    ],
)
def test_tokens_are_drawn_from_the_nucleus(
    runtime: LlamaRuntime, temperature: float, top_p: float, expected: dict[str, float]
) -> None:
    count = 2000
    drawn = draw(runtime, count, temperature, top_p)
    assert set(drawn) <= set(expected)
    for text, probability in expected.items():
        assert drawn[text] / count == pytest.approx(probability, abs=0.045)  # four standard deviations


def test_log_normalizer_stays_exact_for_large_logits() -> None:
    row = np.array([1000.0, 1000.0, -1000.0], dtype=np.float32)
    assert log_normalizer(row) == pytest.approx(1000.0 + np.log(2.0))


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), min_size=1, max_size=9), st.integers(1, 30))
def test_runs_away_is_three_repeats_over_24_tokens(start: list[int], unit: list[int], times: int) -> None:
    tokens = start + unit * times
    expected = any(
        tokens[-3 * period :] == tokens[-period:] * 3
        and len(tokens) >= 24
        and all(token == tokens[-24:][at % period] for at, token in enumerate(tokens[-24:]))
        for period in range(1, len(tokens) // 3 + 1)
    )
    assert runs_away(tokens) == expected


def test_runs_away_at_its_borders() -> None:
    assert not runs_away([])
    assert not runs_away([5] * 23)
    assert runs_away([5] * 24)
    longest = list(range(LONGEST_PERIOD))
    assert runs_away(longest * 3)
    assert not runs_away((longest * 3)[1:])
    assert not runs_away(list(range(LONGEST_PERIOD + 1)) * 3)
