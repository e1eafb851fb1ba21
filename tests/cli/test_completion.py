"""What a shell is told to complete, by click's own protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.cli import program


def completed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], line: str) -> set[str]:
    """Return the kind and text of each completion of a line's last word."""
    words = line.split(" ")
    monkeypatch.setenv("_PYTRACE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit) as ended:
        program.main(prog_name="pytrace")
    assert ended.value.code == 0
    return set(capfd.readouterr().out.split())


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("pytrace ind", "plain,index", "plain,ask"),
        ("pytrace index v", "plain,verify", "plain,build"),
        ("pytrace ask --expl", "plain,--explain", "plain,--docs"),
        ("pytrace ask --method tr", "plain,trace-doc", "plain,rag"),
        ("pytrace ask --llm ti", "plain,tiny", "plain,minilm-l6-int8"),
        ("pytrace search --encoder mini", "plain,minilm-l6-int8", "plain,tiny"),
        ("pytrace models pull sm", "plain,smollm2-135m", "plain,tiny"),
        ("pytrace index build --vectors fl", "plain,float16", "plain,int8"),
        ("pytrace search --index pap", "file,pap", "plain,tiny"),
    ],
)
def test_a_word_is_completed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], line: str, some: str, none: str
) -> None:
    found = completed(monkeypatch, capfd, line)
    assert some in found
    assert none not in found


def test_a_model_may_be_a_file(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert "file,./my" in completed(monkeypatch, capfd, "pytrace ask --llm ./my")


def test_an_unreadable_catalog_completes_nothing_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path))
    (tmp_path / "catalog.json").write_text("{", encoding="utf-8")
    assert "file,sm" in completed(monkeypatch, capfd, "pytrace models pull sm")
