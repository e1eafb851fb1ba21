from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.service_process import build_index, served

pytestmark = pytest.mark.models
EXAMPLES = Path(__file__).parents[2] / "examples"


def said(name: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTRACE_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_are_deduplicated():
    lines = said("deduplicate_names.py", "--names", "3000").splitlines()
    assert lines[0].startswith("3,000 names, ")
    assert all(" = " in line for line in lines[1:])
    assert len(lines) == 6


def test_a_llama_index_pipeline_becomes_multi_hop(tiny_models):  # noqa: ARG001 (they must be pulled)
    _, selected = said("llama_index_multi_hop.py").split("two selected of ten: ")
    assert "Lady Addle" in selected
    assert "orrin-bell-foundry.md" in selected
    assert " -> " in selected


def test_a_langchain_chain_has_certificates(tiny_models):  # noqa: ARG001
    text = said("langchain_certificates.py")
    assert "found: Brackwater Ferries" in text
    assert "found: Marigold Tern" in text
    assert "certificate: " in text


def test_a_haystack_pipeline_asks_the_service(tiny_models, tmp_path):  # noqa: ARG001
    with served(build_index(tmp_path / "index"), log=tmp_path / "log") as service:
        text = said("haystack_service.py", service.url)
    assert text.splitlines()[0].strip()
    assert "tokens were read" in text
    assert any(line.get("route") == "/v1/chat/completions" and line["status"] == 200 for line in service.log())
