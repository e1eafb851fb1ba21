from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))


def test_the_page_has_a_program_for_each_framework():
    assert PROGRAMS.keys() == {"LlamaIndex", "LangChain", "Haystack", "DSPy", "Rerankers", "RapidFuzz", "faiss"}


SAID = {
    "LlamaIndex": "had a bell from the Orrin Bell Foundry.', 'The foundry cast",
    "LangChain": "orrin-bell-foundry 0.5",
    "Haystack": "orrin-bell-foundry",
    "DSPy": "Orrin Bell Foundry",
    "Rerankers": "[1, 2]",
    "RapidFuzz": "('Brackwater Ferries', ",
    "faiss": "1000",
}


@pytest.mark.models
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs_and_says_what_it_should(tiny_models, name, tmp_path):  # noqa: ARG001 (they must be pulled)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name]], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout, done.stdout
