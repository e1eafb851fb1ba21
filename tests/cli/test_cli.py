"""The command line as a user meets it: a process with arguments, two streams and an exit status."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import msgspec
import numpy as np
import pytest

from pytrace import __version__, cli
from pytrace.cli import common
from pytrace.errors import DataError, DownloadError


def pytrace(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pytrace.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTRACE_HOME": str(home), "COLUMNS": "80", **environment},
    )


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    assert result.stderr.startswith("pytrace: "), result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_version_and_help_work_and_help_names_every_command(tmp_path: Path) -> None:
    assert pytrace("--version", home=tmp_path).stdout == f"pytrace {__version__}\n"
    shown = pytrace("--help", home=tmp_path)
    assert shown.returncode == 0
    for command in cli.COMMANDS:
        assert command.name in shown.stdout


@pytest.mark.parametrize("name", [command.name for command in cli.COMMANDS])
def test_every_registered_command_exists_and_explains_itself(name: str, tmp_path: Path) -> None:
    command = cli.program.get_command(click.Context(cli.program), name)
    assert isinstance(command, click.Command)
    assert command.name in {name, None}
    assert pytrace(name, "--help", home=tmp_path).returncode == 0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "99999999999999999999"])
def test_no_option_takes_a_number_without_bounds(value: str) -> None:
    tried = 0
    found: list[tuple[str, click.Command]] = [("", cli.program)]
    while found:
        _, command = found.pop()
        context = click.Context(command)
        if isinstance(command, click.Group):
            found += [(name, command.get_command(context, name)) for name in command.list_commands(context)]  # type: ignore[misc]
        for parameter in command.params:
            if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
                tried += 1
                with pytest.raises(click.BadParameter):
                    parameter.process_value(context, [value] if parameter.multiple else value)
    assert tried > 50


def test_nothing_but_the_entry_point_imports_the_command_line() -> None:
    """What others need of the command line's work is in `pytrace.engine`, where it has no options and no terminal."""
    checkout = Path(__file__).parents[2]
    files = [
        file for folder in ("pytrace", "benches", "examples", "tools") for file in (checkout / folder).rglob("*.py")
    ]
    assert len(files) > 200
    importing = [
        str(file.relative_to(checkout))
        for file in files
        if file.parent != checkout / "pytrace" / "cli"
        and file
        not in {checkout / "pytrace" / "__main__.py", checkout / "tools" / "wheels.py"}  # which writes its manual
        and re.search(r"from pytrace import .*\bcli\b|pytrace\.cli\b", file.read_text(encoding="utf-8"))
    ]
    assert importing == []


def test_help_imports_no_command_module(tmp_path: Path) -> None:
    code = "import sys, pytrace.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\nprint(sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    for heavy in ("numpy", "onnxruntime", "llama_cpp", "tokenizers", "pytrace.cli.models", "pytrace.cli.doctor"):
        assert repr(heavy) not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("frob",), "No such command 'frob'"),
        (("models", "list", "--frob"), "No such option"),
        (("models", "pull"), "Missing argument 'NAME...'"),
        (("models", "pull", "nothing-like-it"), "no model or profile named 'nothing-like-it'; the names are tiny,"),
        (("models", "path", "smollm2-135m"), "fetch it with 'pytrace models pull smollm2-135m'"),
        (("models", "path", "paper", "--role", "encoder"), "'paper' has no encoder"),
        (("models", "verify", "smollm2-135m"), "(missing)"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_status_2(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = pytrace(*arguments, home=tmp_path)
    assert result.returncode == 2
    assert said in one_sentence(result)


def test_no_command_shows_the_help_on_stderr(tmp_path: Path) -> None:
    result = pytrace(home=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: pytrace")


def test_models_list_as_text_and_as_json_agree(tmp_path: Path) -> None:
    listed = json.loads(pytrace("models", "list", "--json", home=tmp_path).stdout)
    assert listed["home"] == str(tmp_path)
    assert {model["state"] for model in listed["models"]} == {"missing"}
    text = pytrace("models", "list", home=tmp_path).stdout
    assert "\x1b" not in text
    for model in listed["models"]:
        assert model["name"] in text
        assert model["license"] in text
    tiny = next(profile for profile in listed["profiles"] if profile["name"] == "tiny")
    assert {tiny["language_model"], tiny["encoder"]} <= {model["name"] for model in listed["models"]}


def test_doctor_reports_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    result = pytrace("doctor", "--json", home=tmp_path / "new", PYTRACE_ISA="frob")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["pytrace"] == __version__
    assert report["packages"]["numpy"] == np.__version__
    assert report["memory"] > report["available_memory"] > 0
    assert 0 < report["usable_processors"] <= report["processors"]
    problems = {problem["what"]: problem["remedy"] for problem in report["problems"]}
    assert any("frob" in what for what in problems)
    features = {feature["name"]: feature for feature in report["features"]}
    assert features["certify against texts, by words"]["ready"]
    search = features["search, without a language model"]
    assert (search["ready"], search["lacks"]) == (False, "no encoder is here")
    assert search["remedy"] == "pytrace models pull tiny"
    text = pytrace("doctor", home=tmp_path / "new").stdout
    assert "do: pytrace models pull tiny" in text


def test_doctor_survives_a_broken_catalog(tmp_path: Path) -> None:
    (tmp_path / "catalog.json").write_text("{", encoding="utf-8")
    result = pytrace("doctor", "--json", home=tmp_path)
    assert result.returncode == 0
    assert any("catalog.json" in problem["what"] for problem in json.loads(result.stdout)["problems"])


def test_a_full_disk_on_stdout_is_one_sentence(tmp_path: Path) -> None:
    code = "from pytrace.cli import main; main(['models', 'list', '--json'])"
    with Path("/dev/full").open("w", encoding="ascii") as full:
        result = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTRACE_HOME": str(tmp_path)},
        )
    assert result.returncode == 1
    assert (
        result.stderr
        == "pytrace: no space left on device while writing; free some room and run the same command again\n"
    )


def test_a_reader_that_leaves_early_causes_no_noise(tmp_path: Path) -> None:
    code = "from pytrace.cli import main; main(['models', 'list', '--json'])"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-c", code],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTRACE_HOME": str(tmp_path)},
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def fails_with(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (DataError("is not JSON", path="a.jsonl", line=17), 2, "a.jsonl:17: is not JSON"),
        (DownloadError("the index cannot be reached"), 1, "the index cannot be reached"),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), 2, "x.txt: no such file"),
        (OSError(28, "No space left on device", "out"), 1, "free some room"),
        (MemoryError(), 1, "not enough memory"),
        (RuntimeError("can't start new thread"), 1, "no thread can be started; use fewer --threads"),
        (OSError(errno.EMFILE, "Too many open files", "a"), 1, "a: too many open files; raise the limit ('ulimit -n')"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("two\nlines"), 1, "unexpected ZeroDivisionError (two lines)"),
    ],
)
def test_every_failure_is_one_sentence(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    assert common.run(fails_with(error), []) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.strip().count("\n") == 0


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_DEBUG", "1")
    assert common.run(fails_with(ZeroDivisionError("x")), []) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_ends_a_pull_with_one_sentence(tmp_path: Path) -> None:
    """Ctrl-C while waiting for another process's lock."""
    import fcntl

    lock = tmp_path / "models" / "smollm2-135m" / ".lock"
    lock.parent.mkdir(parents=True)
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(
            [sys.executable, "-c", "from pytrace.cli import main; main(['models', 'pull', 'smollm2-135m'])"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTRACE_HOME": str(tmp_path)},
        ) as process:
            assert process.stderr is not None
            assert "another process is pulling smollm2-135m" in process.stderr.readline()
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert rest.strip() == "pytrace: interrupted"


def test_json_says_what_json_can_and_mends_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    class Record(msgspec.Struct):
        score: float
        text: str

    common.print_json(
        {
            "record": Record(math.nan, "broken \ud800 text"),
            "infinite": -math.inf,
            "array": np.array([1.5, np.nan], dtype=np.float32),
            "count": np.int64(3),
            "path": Path("a/b"),
        }
    )
    assert json.loads(capsys.readouterr().out) == {
        "record": {"score": None, "text": "broken \ufffd text"},
        "infinite": None,
        "array": [1.5, None],
        "count": 3,
        "path": "a/b",
    }


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_text_can_be_printed_in_any_locale(encoding: str) -> None:
    code = (
        "import click; from pytrace.cli import common\n"
        "@click.command()\n"
        "def command(): common.print_text('a \\ud800 Zo\\u00eb \\u2192 z'); common.print_table(['c'], [['\\ud800[b]']])\n"
        "raise SystemExit(common.run(command, []))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b" Zo" in result.stdout
    assert b"[b]" in result.stdout


@pytest.mark.parametrize(
    ("size", "worded"),
    [
        (None, "?"),
        (0, "0 B"),
        (999, "999 B"),
        (98_362_432, "98.4 MB"),
        (253_113_024, "253 MB"),
        (4_683_074_240, "4.7 GB"),
    ],
)
def test_sizes_are_worded_in_decimal_units(size: int | None, worded: str) -> None:
    assert common.human_size(size) == worded
