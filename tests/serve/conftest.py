"""What the tests of the service share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.serve.service_process import build_index


@pytest.fixture(scope="session")
def examples_index(tiny_models: dict[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of the examples, which nobody changes."""
    assert tiny_models
    return build_index(tmp_path_factory.mktemp("examples") / "index")
