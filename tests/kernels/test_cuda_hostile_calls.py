"""Thousands of random calls with hostile arguments on the emulated card: none crashes, hangs or returns anything else.

.venv/bin/python -m tests.hostile_calls --card --first SEED --calls 1 --show
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import emulated_module
from tests.kernels.test_hostile_calls import hostile_calls

CALLS = int(os.environ.get("PYTRACE_HOSTILE_CARD_CALLS", "3000"))


@pytest.mark.timeout(900)
def test_no_hostile_call_on_a_card_crashes_hangs_or_returns_what_is_not_documented(tmp_path):
    emulated_module()  # skips where there is none
    result, last = hostile_calls(tmp_path, "--card", "--calls", str(CALLS))
    assert result.returncode == 0, f"status {result.returncode}, last seed {last}\n{result.stdout}\n{result.stderr}"
    counts = {name: int(count) for count, name in (part.split() for part in result.stdout.strip().split(", "))}
    assert counts["returned"] > 0.2 * CALLS
    assert counts["ValueError"] + counts["TypeError"] > 0.2 * CALLS
