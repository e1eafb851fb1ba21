"""Whatever one value of a server's answer becomes, there is a result or one sentence (`PYTRACE_MUTATED_ANSWERS` trials a kind)."""

from __future__ import annotations

import os

import pytest

from tests.mutated_answers import KINDS, TEXT_KINDS, endpoint_findings, findings

TRIALS = int(os.environ.get("PYTRACE_MUTATED_ANSWERS", "5"))
pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("kind", [*KINDS, *TEXT_KINDS])
def test_one_changed_value_of_an_answer_is_told_or_makes_no_difference(kind: str) -> None:
    assert list(findings(kind, TRIALS, seed=25)) == []


def test_one_changed_value_of_an_endpoints_answer_is_told_or_makes_no_difference() -> None:
    assert list(endpoint_findings(TRIALS, seed=25)) == []
