"""Top-k on the emulated card: the same keys as plain loops on the host, bit for bit."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conftest import emulation_program


def check(program: str, *arguments: str, seed: int) -> None:
    """Run a driver of `tests/native`; what it finds wrong is the test's message."""
    environment = os.environ | {"PYTRACE_EMULATION_SEED": str(seed)}
    command = [emulation_program(program), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(" 0 faults\n")


@pytest.mark.parametrize(
    ("part", "seed"),
    [("random", 1), ("random", 2), ("structured", 1), ("passes", 1), ("hits", 1)],
)
def test_the_product_path_gives_the_keys_of_plain_loops(part, seed):
    check("cuda_product", part, seed=seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_merged_lists_are_those_of_a_sort(seed):
    check("cuda_merge", seed=seed)
