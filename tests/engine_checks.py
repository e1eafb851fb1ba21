"""Prompts that share much, and what it means that two results are equal: for the tests of the engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLOSE = 1e-3


def random_prompts(random: np.random.Generator, count: int) -> list[str]:
    """Return prompts with shared beginnings, duplicates, prompts that begin others, and empty ones."""
    stems = ["".join(random.choice(list("ab"), random.integers(0, 60))) for _ in range(3)]
    prompts = []
    for _ in range(count):
        ending = "".join(random.choice(list("abé"), random.integers(0, 20)))
        prompts.append(stems[random.integers(3)][: random.integers(0, 80)] + (ending if random.random() < 0.7 else ""))
    return prompts


def assert_close(first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(first, second, rtol=0, atol=CLOSE)
