from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "native_checks.py"


@pytest.fixture
def checks(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("native_checks", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "csrc" / "cuda").mkdir(parents=True)
    (tmp_path / "csrc" / "fuzzy").mkdir()
    (tmp_path / "tests" / "native").mkdir(parents=True)
    (tmp_path / "csrc" / "cuda" / "a.cu").write_text("int a;")
    (tmp_path / "csrc" / "fuzzy" / "b.cc").write_text("int b;")
    module.ORIGINAL = module.ROOT
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RECORD", tmp_path / "tests" / "native" / "checked.txt")
    return module


def test_a_check_is_due_until_it_passed_and_again_when_a_source_changes(checks):
    source, record = checks.ROOT / "csrc" / "cuda" / "a.cu", checks.RECORD
    assert checks.main(["changed", "cuda"]) == 0
    for check in ("cuda", "sanitize"):
        assert checks.main(["passed", check]) == 0
        assert checks.main(["changed", check]) == 1
    source.write_text("int c;")
    assert checks.main(["changed", "cuda"]) == checks.main(["changed", "sanitize"]) == 0
    assert checks.main(["passed", "sanitize"]) == 0
    assert checks.main(["changed", "cuda"]) == 0
    assert checks.main(["changed", "sanitize"]) == 1
    (checks.ROOT / "csrc" / "fuzzy" / "new.cc").write_text("")
    assert checks.main(["changed", "sanitize"]) == 0
    assert len(record.read_text().splitlines()) == 2


def test_a_renamed_source_is_a_changed_one(checks):
    assert checks.main(["passed", "sanitize"]) == 0
    (checks.ROOT / "csrc" / "fuzzy" / "b.cc").rename(checks.ROOT / "csrc" / "fuzzy" / "c.cc")
    assert checks.main(["changed", "sanitize"]) == 0


def test_every_pattern_names_files_that_there_are(checks):
    for patterns in checks.SOURCES.values():
        for pattern in patterns:
            assert list(checks.ORIGINAL.glob(pattern)), pattern


@pytest.mark.parametrize("arguments", [[], ["changed"], ["changed", "all"], ["forget", "cuda"]])
def test_wrong_usage_is_told(checks, arguments, capsys):
    assert checks.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
