"""What the tests of the service share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.service_process import ServiceProcess, build_index, served

KEY = "a-key-of-the-tests"


@pytest.fixture(scope="session")
def examples_index(tiny_models: dict[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of the examples, which nobody changes."""
    assert tiny_models
    return build_index(tmp_path_factory.mktemp("examples") / "index")


@pytest.fixture(scope="session")
def keyed_service(examples_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Serve the examples to who has `KEY`, with short answers."""
    options = ("--method", "standard", "--read-only")
    log = tmp_path_factory.mktemp("keyed") / "log"
    with served(examples_index, *options, log=log, environment={"PYTRACE_API_KEY": KEY}) as service:
        yield service
