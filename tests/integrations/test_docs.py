from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
PROGRAMS = dict(
    re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?(?<!-->\n)^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
)


def test_the_page_has_a_program_for_each_framework():
    assert SAID.keys() | EVALUATORS.keys() == PROGRAMS.keys()


SAID = {
    "LlamaIndex": "'It was founded by Matthias Garrow",
    "LangChain": "orrin-bell-foundry 0.7",
    "Haystack": "orrin-bell-foundry",
    "DSPy": "Orrin Bell Foundry",
    "Rerankers": "[1, 2]",
    "RapidFuzz": "('Brackwater Ferries', ",
    "faiss": "1000",
    "Tests of your own": re.search(r"^## Tests of your own.*?```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)[1],
}
# They take no models, and packages that are not beside those of the other tests (pyproject.toml).
EVALUATORS = {
    "DeepEval": "0.5 False\n1 of 2 claims is supported by the contexts:\n  contradicted (",
    "RAGAS": "[1.0, 0.5]",
}


@pytest.mark.models
@pytest.mark.parametrize("name", SAID)
def test_the_program_runs_and_says_what_it_should(tiny_models, name, tmp_path):  # noqa: ARG001 (they must be pulled)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "runs").mkdir()
    assert SAID[name] in said(name, tmp_path)


@pytest.mark.parametrize("name", EVALUATORS)
def test_the_program_for_an_evaluator_runs_and_says_what_it_should(name, tmp_path):
    if find_spec(name.lower()) is None:
        pytest.skip(f"{name.lower()} is not installed; `make evaluators-check` has it")
    assert EVALUATORS[name] in said(name, tmp_path)


def said(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name]],
        cwd=folder,
        env={**os.environ, "DEEPEVAL_TELEMETRY_OPT_OUT": "1", "RAGAS_DO_NOT_TRACK": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
