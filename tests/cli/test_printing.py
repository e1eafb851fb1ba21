"""What reaches a terminal is escaped by what prints it, whoever wrote it; closed and full streams end commands, told where they can be."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from rich.console import Console

import pytrace
from pytrace.cli import common
from pytrace.errors import DataError
from pytrace.storage.text import printable

# Steers a terminal: escapes, the same in one byte of C1, a bell, a return; turns text round; is seen by nobody.
HOSTILE = "a\x1b[2Jb\x9b1mc\x07d\re\u202ef\u2066g\u200eh\u061ci\ufeffj\u00adk\u2028l\U000e0041m\x7fn\ud800"
ESCAPED = r"a\x1b[2Jb\x9b1mc\x07d\re\u202ef\u2066g\u200eh\u061ci\ufeffj\xadk\u2028l\U000e0041m\x7fn\ud800"
PYTRACE = str(Path(sys.executable).with_name("pytrace"))


def test_what_steers_a_terminal_is_escaped_and_what_people_write_is_not() -> None:
    assert printable(HOSTILE) == ESCAPED
    assert printable("a\n\tb") == r"a\n\tb"
    assert printable("a\n\tb\x1b", kept="\n\t") == "a\n\tb\\x1b"
    written = "Zürich 東京\u3000می\u200cخواهم 👩\u200d🚀 5\u00a0km क्\u200dष"
    assert printable(written) == written


@pytest.mark.parametrize("terminal", [False, True])
def test_all_that_prints_escapes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr(
        common, "output", lambda: Console(file=drawn, force_terminal=terminal, width=400, no_color=True)
    )
    common.print_text(HOSTILE)
    common.print_styled(HOSTILE)
    common.print_table([HOSTILE], [[HOSTILE]], title=HOSTILE)
    common.print_records([HOSTILE], [("TEXT", str)])
    common.remark(HOSTILE)
    common.remark_first([HOSTILE], 1)
    with common.progress(HOSTILE, 2) as advance:
        monkeypatch.setattr(common, "PLAIN_INTERVAL", 0.0)
        advance()
    out, err = capsys.readouterr()
    said = out + err + drawn.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert said.count(ESCAPED) == 9
    assert not [letter for letter in said if not letter.isprintable() and letter not in "\n\t"]


def test_json_says_the_same_in_characters_that_steer_nothing() -> None:
    value = {HOSTILE[:-1]: [HOSTILE[:-1], "Zürich 東京"]}
    text = common.json_bytes(value).decode()
    assert json.loads(text) == value
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "Zürich 東京" in text


def test_errors_and_warnings_are_escaped_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)

    def fails(error: Exception) -> str:
        @click.command
        def command() -> None:
            raise error

        common.run(command, [])
        return capsys.readouterr().err

    assert fails(DataError(HOSTILE, path="a\nb")) == f"pytrace: a\\nb: {ESCAPED}\n"
    assert ESCAPED in fails(FileNotFoundError(2, "no such file", HOSTILE))
    assert ESCAPED in fails(click.UsageError(HOSTILE.replace("\r", "").replace("\u2028", ""))).replace(
        "de", r"d\re"
    ).replace("kl", r"k\u2028l")
    monkeypatch.setenv("PYTRACE_DEBUG", "1")
    said = fails(DataError(f"{HOSTILE} http://me:secret@host/"))
    assert "Traceback" in said
    assert "secret" not in said
    assert all(letter.isprintable() or letter == "\n" for letter in said)


def test_no_command_prints_by_itself() -> None:
    """All of `pytrace.cli` prints by `common`, and nothing else of the library prints at all."""
    package = Path(pytrace.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and path != package / "cli" / "common.py":
                name = ast.unparse(node.func)
                if name in {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"} or (
                    name.endswith("console.print") and path.name != "downloads.py"
                ):
                    found.append(f"{path.relative_to(package)}:{node.lineno}: {name}")
    assert found == []


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with streams that are buffered, as they are where nobody asks for others."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, env=buffered
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The Tern is a ferry. " * 20_000, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("redirections", "status", "said"),
    [
        (">&-", 1, "pytrace: standard output is closed"),
        (">/dev/full", 1, "pytrace: no space left on device while writing"),
        ("| true", 1, ""),  # who leaves wants no more, and no remark of it
        ("2>&- >/dev/null", 0, ""),
        ("2>/dev/full >/dev/null", 0, ""),
        ("<&- >/dev/null", 0, ""),
        ("<&- >&- 2>&-", 1, ""),
        (">&- 2>/dev/full", 1, ""),
    ],
)
def test_streams_that_are_closed_full_or_left(text: Path, redirections: str, status: int, said: str) -> None:
    command = f"set -o pipefail; {PYTRACE} docs show {text} --limit 1000000 {redirections}"
    done = run_in_shell(command)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == bool(said)


def test_a_failure_keeps_its_status_though_nobody_hears_of_it(tmp_path: Path) -> None:
    for redirection in ("2>&-", "2>/dev/full", "2>&- >/dev/full"):
        command = f"{PYTRACE} docs show {tmp_path / 'missing'} {redirection}"
        done = run_in_shell(command)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
