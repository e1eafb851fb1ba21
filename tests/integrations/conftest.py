from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytrace
from pytrace.engine import Engine

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before it is imported


@pytest.fixture(scope="session")
def engine(tiny_models) -> Iterator[Engine]:  # noqa: ARG001 (it must be pulled)
    engine = pytrace.load(threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def index(engine, tmp_path_factory) -> Path:
    """An index of the example documents."""
    folder = tmp_path_factory.mktemp("index") / "examples.index"
    pytrace.Corpus.build(folder, Path(__file__).parents[2] / "examples" / "docs", engine).close()
    return folder
