"""Top-k by tensor cores, and merged lists, on the emulated card: the same keys as plain loops on the host, bit for bit."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conftest import emulation_folder


@pytest.mark.parametrize(
    ("part", "seed"),
    [("random", 1), ("random", 2), ("structured", 1), ("passes", 1), ("hits", 1), ("merge", 1)],
)
def test_the_keys_are_those_of_plain_loops(part, seed):
    program = emulation_folder() / "cuda_product"
    if not program.is_file():
        pytest.skip(f"no emulated card in {emulation_folder()}; `make emulation` builds it")
    environment = os.environ | {"PYTRACE_EMULATION_SEED": str(seed)}
    result = subprocess.run([program, part], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(" 0 faults\n")
