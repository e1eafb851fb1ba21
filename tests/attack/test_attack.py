"""The short form of the attack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack import _supplies, options
from tests.attack.__main__ import PARTS, attacks


@pytest.mark.models
@pytest.mark.parametrize("part", PARTS)
def test_all_of_a_part_survive(part: str, tmp_path: Path) -> None:
    tried = attacks(part, tmp_path, 0, short=True)
    assert tried
    assert not [f"{attack.name}: {wrong}" for attack in tried if (wrong := attack.run())]


def test_the_attack_knows_every_command() -> None:
    assert {*_supplies.BEGINNINGS} == {*options._commands()}
