"""The features of pairs beside their naive twin, for any batch, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytrace import _core
from tests import oracles

DIMENSION, WORDS, PASSAGES = 20, 40, 25


def lists(parts: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets, and all the numbers one behind the other."""
    flat = [number for part in parts for number in part]
    return np.cumsum([0, *map(len, parts)], dtype=np.int64), np.array(flat, dtype=np.int32)


class Batch:
    """Drawn questions with their candidates and pairs."""

    def __init__(self, seed: int, questions: int) -> None:
        draw = np.random.default_rng(seed)
        self.frequencies = draw.integers(1, PASSAGES, WORDS).astype(np.int32)
        self.links = {
            (row, int(other)): tuple(draw.random(2).astype(np.float32).tolist())
            for row in range(PASSAGES)
            for other in draw.choice(PASSAGES, draw.integers(0, 6), replace=False)
        }
        self.vectors = draw.normal(size=(questions, DIMENSION)).astype(np.float32)
        self.asked = [sorted(self._words(draw, 0, 7)) for _ in range(questions)]
        self.totals = np.array([sum(self.weight(word) ** 2 for word in each) for each in self.asked]) + draw.random(
            questions
        )
        self.candidates: list[list[dict[str, Any]]] = [
            [
                {
                    "row": row,
                    "vector": draw.normal(size=DIMENSION).astype(np.float32),
                    "words": set(self._words(draw, 0, 15)),
                    "names": [
                        self._words(draw, 1, 4) + [-1] * int(draw.integers(0, 2)) for _ in range(draw.integers(0, 3))
                    ],
                    "scores": draw.random(4).tolist(),
                }
                for row in sorted(draw.choice(PASSAGES, draw.integers(1, 9), replace=False).tolist())
            ]
            for _ in range(questions)
        ]
        self.pairs = [
            [
                (first, second)
                for first in range(min(3, len(own)))
                for second in range(len(own))
                if second != first and draw.random() < 0.8
            ]
            for own in self.candidates
        ]

    @staticmethod
    def _words(draw: np.random.Generator, least: int, most: int) -> list[int]:
        return draw.choice(WORDS, draw.integers(least, most), replace=False).tolist()  # type: ignore[no-any-return]

    def weight(self, word: int) -> float:
        frequency = int(self.frequencies[word]) if word >= 0 else 0
        return math.log(1 + (PASSAGES - frequency + 0.5) / (frequency + 0.5))

    def weights(self, number: int, pair: tuple[int, int]) -> tuple[float, float]:
        """Return what the links of a question's pair weigh."""
        first, second = (self.candidates[number][place]["row"] for place in pair)
        return self.links.get((first, second), (0.0, 0.0))

    def arguments(self, numbers: list[int], threads: int | None = None) -> list[Any]:
        """Return what the core is given for some of the questions."""
        own = [passage for number in numbers for passage in self.candidates[number]]
        pairs = [pair for number in numbers for pair in self.pairs[number]]
        names = [name for passage in own for name in passage["names"]]
        return [
            self.frequencies,
            PASSAGES,
            self.vectors[numbers],
            *lists([self.asked[number] for number in numbers]),
            self.totals[numbers],
            np.cumsum([0, *(len(self.candidates[number]) for number in numbers)]),
            np.array([passage["vector"] for passage in own], dtype=np.float32).reshape(-1, DIMENSION),
            np.array([passage["scores"] for passage in own]).reshape(-1, 4),
            *lists([sorted(passage["words"]) for passage in own]),
            np.cumsum([0, *(len(passage["names"]) for passage in own)]),
            *lists(names),
            np.cumsum([0, *(len(self.pairs[number]) for number in numbers)]),
            np.array([first for first, _ in pairs], dtype=np.int64),
            np.array([second for _, second in pairs], dtype=np.int64),
            *np.array([self.weights(number, pair) for number in numbers for pair in self.pairs[number]], np.float32)
            .reshape(-1, 2)
            .T,
            threads,
        ]

    def expected(self, number: int) -> list[list[float]]:
        question = (self.vectors[number].tolist(), set(self.asked[number]), float(self.totals[number]))
        own = self.candidates[number]
        return [
            oracles.pair_features(self.weight, question, self.links, own[first], own[second])
            for first, second in self.pairs[number]
        ]


@pytest.mark.parametrize("seed", range(30))
def test_features_are_those_of_the_naive_twin(seed: int) -> None:
    batch = Batch(seed, 4)
    found = _core.pair_features(*batch.arguments([0, 1, 2, 3], threads=2))
    expected = [row for number in range(4) for row in batch.expected(number)]
    assert found.shape == (len(expected), 24)
    assert len(expected) > 4
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_question_alone_has_the_features_that_it_has_among_others() -> None:
    batch = Batch(7, 9)
    for threads in (1, 2, 8):
        together = _core.pair_features(*batch.arguments(list(range(9)), threads=threads))
        alone = [_core.pair_features(*batch.arguments([number])) for number in range(9)]
        assert np.array_equal(together, np.concatenate(alone))


def test_no_question_has_no_pair() -> None:
    assert _core.pair_features(*Batch(1, 2).arguments([])).shape == (0, 24)


def test_words_that_are_none_count_as_nothing() -> None:
    arguments = Batch(3, 2).arguments([0, 1])
    arguments[10] = arguments[10] + np.int32(1_000_000)
    assert np.isfinite(_core.pair_features(*arguments)).all()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (15, -1, r"pair 0 is of places -1 and \d+, and its question has \d+ candidates"),
        (16, 99, r"pair 0 is of places \d+ and 99, and its question has \d+ candidates"),
        (6, 5, r"offsets\[0\] is 5, not 0"),
        (9, 5, r"words' offsets\[0\] is 5, not 0"),
        (14, 1, r"pair_offsets\[0\] is 1, not 0"),
    ],
)
def test_what_does_not_hold_together_is_refused(place: int, value: int, message: str) -> None:
    arguments = Batch(5, 2).arguments([0, 1])
    arguments[place] = arguments[place].copy()
    arguments[place][0] = value
    with pytest.raises(ValueError, match=message):
        _core.pair_features(*arguments)


def test_vectors_of_other_lengths_are_refused() -> None:
    arguments = Batch(5, 2).arguments([0, 1])
    arguments[7] = arguments[7][:, :7]
    with pytest.raises(ValueError, match="passages have vectors of 7 numbers, questions of 20"):
        _core.pair_features(*arguments)
    arguments = Batch(5, 2).arguments([0, 1])
    arguments[17] = arguments[17][:-1]
    with pytest.raises(ValueError, match=r"forth has \d+ values; \d+ are due"):
        _core.pair_features(*arguments)
