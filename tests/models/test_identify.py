"""A model is known by its content, whatever it is called and wherever it lies."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytrace.engine.loading import Engine
from pytrace.methods.catalog import default_settings
from pytrace.models import registry
from pytrace.models.registry import identify, model_files

CONTENT = b"GGUF of a town"


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PYTRACE_HOME whose catalog pins one language model."""
    home = tmp_path / "home"
    home.mkdir()
    file = {
        "path": "town.gguf", "sources": [{"uri": str(tmp_path / "source.gguf")}], "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }  # fmt: skip
    model = {"name": "town", "role": "language-model", "description": "A town.", "license": "MIT", "files": [file]}
    (home / "catalog.json").write_text(json.dumps({"models": [model]}), encoding="utf-8")
    monkeypatch.setenv("PYTRACE_HOME", str(home))
    return tmp_path


def test_a_file_with_the_pinned_content_is_the_model(catalog: Path) -> None:
    path = catalog / "anything.gguf"
    path.write_bytes(CONTENT)
    assert identify(path) == "town"
    assert identify(str(path)) == "town"
    path.write_bytes(CONTENT[::-1])
    assert identify(path) is None


def test_only_files_of_a_known_size_are_read_and_each_once(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    sha256_of = model_files.sha256_of

    def counted(path: Path) -> str:
        hashed.append(path)
        return sha256_of(path)

    monkeypatch.setattr(model_files, "sha256_of", counted)
    other, same = catalog / "other.gguf", catalog / "same.gguf"
    other.write_bytes(CONTENT + b"!")
    same.write_bytes(CONTENT)
    assert (identify(other), hashed) == (None, [])
    assert [identify(same), identify(same)] == ["town", "town"]
    assert hashed == [same]


def test_what_is_no_file_is_no_model(catalog: Path) -> None:
    assert identify(catalog / "missing.gguf") is None
    assert identify(catalog) is None


def test_a_damaged_record_of_hashes_costs_only_time(catalog: Path) -> None:
    path = catalog / "same.gguf"
    path.write_bytes(CONTENT)
    (catalog / "home" / "hashes.json").write_bytes(b"\xff{")
    assert identify(path) == "town"


@pytest.mark.models
def test_the_tiny_model_has_its_settings_by_name_by_path_and_by_folder(tmp_path: Path) -> None:
    link = tmp_path / "model.gguf"
    link.symlink_to(registry.resolve("tiny", "language-model"))
    by_name = Engine()
    for by_path in (Engine(llm=str(link)), Engine(llm=str(tmp_path))):
        for method in ("trace", "ks-llm", "scope-coe", "rag"):
            assert default_settings(method, by_path.abilities) == default_settings(method, by_name.abilities)
        assert by_path.method("trace").settings == by_name.method("trace").settings  # type: ignore[attr-defined]
