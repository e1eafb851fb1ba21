"""Options that are repeated stand in `pytrace.toml` and in `PYTRACE_*`; the command line wins, then the environment, then the file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import click
import pytest

from pytrace.cli import common, configuration, program
from pytrace.cli.commands import Command, Output, click_group, option

Run = Callable[..., dict[str, Any]]
Fail = Callable[..., str]


class Find(Command):
    """Find."""

    index: Path = option("Where.", metavar="DIR")
    docs: Path | None = option("Documents.")
    out: Path | None = option("What is written.")
    llm: str = option("Model.", metavar="NAME|FILE|URL", default="tiny")
    vector_cache: str | None = option("Vectors.", metavar="DIR", envvar="PYTRACE_VECTOR_CACHE")
    settings: tuple[str, ...] = option("Settings.", "--set", metavar="NAME=VALUE|@FILE")
    paths: tuple[Path, ...] = option("Paths.", "--path")
    limit: int = option("How many.", ge=1, le=100, default=10)
    share: float = option("Of all.", gt=0, default=0.5)
    kind: Literal["a", "b"] = option("Which.", default="a")
    ocr: str = option("A command.", metavar="COMMAND", default="")
    quick: bool = option("Quickly.")
    rows: bool = option("Rows.", "--rows/--no-rows", default=True)

    def run(self) -> Output:
        return Output({name: value for name, value in vars(self).items() if name != "as_json"}, "")


class Other(Command):
    """Another one, which has no option of the first but for one."""

    llm: str = option("Model.", metavar="NAME|FILE|URL", default="tiny")

    def run(self) -> Output:
        return Output({"llm": self.llm}, "")


class Check(Command):
    """A command of its own, and a group."""

    limit: int = option("How many.", default=1)

    def run(self) -> Output | None:
        if click.get_current_context().invoked_subcommand is not None:
            return None
        return Output({"limit": self.limit}, "")


def root() -> click.Group:
    group = click_group("Commands.", Find, Other)
    group.add_command(click_group("More.", Find, Other), "more")
    group.add_command(click_group(Check, Find), "check")
    return group


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, with no configuration in sight."""
    for name in [name for name in os.environ if name.startswith("PYTRACE_")]:
        monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    return work


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> dict[str, Any]:
        status = common.run(root(), [*map(str, arguments), "--json"])
        shown = capsys.readouterr()
        assert status == 0, shown.err
        found: dict[str, Any] = json.loads(shown.out)
        return found

    return call


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Fail:
    def call(*arguments: object, command: click.Group | None = None) -> str:
        assert common.run(command or root(), [*map(str, arguments)]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("pytrace: ")
        assert shown.err.count("\n") == 1
        return shown.err

    return call


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / "pytrace.toml"
    path.write_text(text)
    return path


def own(tmp_path: Path) -> Path:
    return tmp_path / "own" / "pytrace"


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "[find]\nindex = 'i'\nlimit = 3\nshare = 1\nquick = true\nrows = false\nkind = 'b'\n")
    found = run("find")
    assert (found["limit"], found["share"], found["quick"], found["rows"], found["kind"]) == (3, 1.0, True, False, "b")
    monkeypatch.setenv("PYTRACE_FIND_LIMIT", "4")
    monkeypatch.setenv("PYTRACE_FIND_QUICK", "0")
    found = run("find")
    assert (found["limit"], found["quick"]) == (4, False)
    assert run("find", "--limit", "5", "--rows")["limit"] == 5
    assert run("find", "--rows")["rows"] is True
    monkeypatch.setenv("PYTRACE_FIND_LIMIT", "")  # as good as not set
    assert run("find")["limit"] == 3


def test_a_required_option_that_the_file_or_a_variable_gives_counts_as_given(
    folder: Path, run: Run, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--index" in fail("find")
    monkeypatch.setenv("PYTRACE_INDEX", "from-variable")
    assert run("find")["index"] == "from-variable"
    monkeypatch.delenv("PYTRACE_INDEX")
    write(folder, "[defaults]\nindex = 'from-file'\n")
    assert run("find")["index"] == str(folder / "from-file")


def test_a_commands_own_table_wins_over_defaults_and_the_nearer_file_over_the_users(
    folder: Path, tmp_path: Path, run: Run
) -> None:
    write(own(tmp_path), "[defaults]\nllm = 'small'\nindex = 'far'\n[find]\nlimit = 7\nkind = 'b'\n")
    write(folder, "[defaults]\nindex = 'near'\n[find]\nlimit = 8\n[more.find]\nllm = 'medium'\n")
    found = run("find")
    assert (found["llm"], found["limit"], found["kind"]) == ("small", 8, "b")
    assert found["index"] == str(folder / "near")
    assert run("more", "find")["llm"] == "medium"
    assert run("more", "find")["limit"] == 10
    assert run("other")["llm"] == "small"


def test_a_commands_own_variable_wins_over_that_of_all_commands(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_LLM", "small")
    monkeypatch.setenv("PYTRACE_VECTOR_CACHE", "all")
    assert run("other")["llm"] == "small"
    assert run("find", "--index", "i")["vector_cache"] == "all"
    monkeypatch.setenv("PYTRACE_MORE_FIND_LLM", "medium")
    monkeypatch.setenv("PYTRACE_MORE_FIND_VECTOR_CACHE", "one")
    found = run("more", "find", "--index", "i")
    assert (found["llm"], found["vector_cache"]) == ("medium", "one")
    assert run("find", "--index", "i")["llm"] == "small"


def test_options_that_may_be_repeated_are_lists_or_one_value(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "settings.json").write_text("{}")
    write(folder, "[find]\nindex = 'i'\nset = ['a=1', '@settings.json']\npath = 'one'\n")
    found = run("find")
    assert found["settings"] == ["a=1", f"@{folder / 'settings.json'}"]
    assert found["paths"] == [str(folder / "one")]
    monkeypatch.setenv("PYTRACE_FIND_SET", "a=2 b=3")
    monkeypatch.setenv("PYTRACE_FIND_PATH", "one:two")
    found = run("find")
    assert (found["settings"], found["paths"]) == (["a=2", "b=3"], ["one", "two"])


def test_relative_paths_are_of_the_files_folder_and_names_and_addresses_stay(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    path = write(there, "[find]\nindex = 'i'\ndocs = '~/papers'\nvector-cache = 'v'\nout = '../out'\n")
    (there / "model.gguf").touch()
    monkeypatch.setenv("PYTRACE_CONFIG", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = run("find")
    assert (found["index"], found["docs"]) == (str(there / "i"), str(tmp_path / "papers"))
    assert found["vector_cache"] == str(there / "v")
    for given, taken in {
        "tiny": "tiny",
        "model.gguf": str(there / "model.gguf"),
        "missing.gguf": "missing.gguf",
        "./models": str(there / "./models"),
        "/models/m.gguf": "/models/m.gguf",
        "http://gpu-box:8000": "http://gpu-box:8000",
    }.items():
        path.write_text(f"[other]\nllm = '{given}'\n")
        assert run("other")["llm"] == taken
    assert folder != there


def test_what_is_given_nearer_to_the_call_puts_aside_what_excludes_it(folder: Path, run: Run) -> None:
    write(folder, "[defaults]\nindex = 'i'\n")
    assert run("find", "--docs", "papers")["index"] is None
    write(folder, "[defaults]\nindex = 'i'\n[find]\ndocs = 'd'\n")
    found = run("find")
    assert (found["index"], found["docs"]) == (None, str(folder / "d"))
    found = run("find", "--index", "j")
    assert (found["index"], found["docs"]) == ("j", None)


def test_a_group_that_is_a_command_takes_its_own_options_and_its_commands_theirs(folder: Path, run: Run) -> None:
    write(folder, "[check]\nlimit = 5\n[check.find]\nindex = 'i'\nlimit = 6\n")
    assert run("check")["limit"] == 5
    assert run("check", "find")["limit"] == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[find]\nlim = 3\n", "[find] lim: there is no such option; did you mean limit"),
        ("[find]\nvector_cache = 'v'\n", "did you mean vector-cache"),
        ("[fnd]\nlimit = 3\n", "[fnd]: there is no such command; did you mean find"),
        ("[more.fnd]\nlimit = 3\n", "[more.fnd]: there is no such command; did you mean find"),
        ("[more]\nlimit = 3\n", "[more] limit: options belong to one of its commands, as below [more.find]"),
        ("[more]\nfind = 3\n", "[more] find: this is a command; make it a table"),
        ("limit = 3\n", "limit: this stands outside of a table; put it below that of its command"),
        ("llm = 'tiny'\n", "put it below [defaults]"),
        ("[defaults]\nlimit = 3\n", "[defaults] limit: this is no option that commands share"),
        ("[defaults]\nthread = 3\n", "did you mean threads"),
        ("[find]\nlimit = '3'\n", "[find] limit: '3' is not a whole number; write a whole number"),
        ("[find]\nlimit = 3.0\n", "3.0 is not a whole number"),
        ("[find]\nlimit = true\n", "True is not a whole number"),
        ("[find]\nlimit = 0\n", "[find] limit: 0 is not in the range"),
        ("[find]\nlimit = 99999999999999999999\n", "[find] limit: 99999999999999999999 is not in the range"),
        ("[find]\nshare = nan\n", "[find] share: nan is not a number"),
        ("[find]\nkind = 'c'\n", "[find] kind: 'c' is not one of 'a', 'b'"),
        ("[find]\nquick = 'yes'\n", "[find] quick: 'yes' is not true or false"),
        ("[find]\nindex = 5\n", "[find] index: 5 is not a text in quotes"),
        ("[find]\nindex = ['a']\n", "is not a text in quotes"),
        ("[find]\nindex = {a = 1}\n", "is not a text in quotes"),
        ('[find]\nindex = "a\\u0000b"\n', "[find] index: the text has a NUL character"),
        ("[find]\nindex = 2020-01-01\n", "is not a text in quotes"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence_with_file_table_and_key(
    text: str, says: str, folder: Path, fail: Fail
) -> None:
    path = write(folder, text)
    words = ("more", "find") if text.startswith("[more") else ("find",)
    said = fail(*words, "--index", "i")
    assert f"{path}: " in said
    assert says in said


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[find]\nlimit = \n", 2),
        (b"[find]\nlimit = 1\n\nlimit = 2\n", 4),
        (b"[find\n", 1),
        (b"a = " + b"[" * 5000, None),
        (b"\xff\xfe", None),
        (b"# " + b"x" * (1 << 20), None),
    ],
)
def test_broken_toml_is_one_sentence_with_file_and_line(
    content: bytes, line: int | None, folder: Path, fail: Fail
) -> None:
    path = folder / "pytrace.toml"
    path.write_bytes(content)
    said = fail("other")
    assert (f"{path}:{line}: " if line else f"{path}: ") in said
    assert "PYTRACE_CONFIG" in said


def test_a_file_that_is_named_must_be_there_and_be_a_file(
    tmp_path: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, reason in ((tmp_path / "none.toml", "no such file"), (tmp_path, "is a directory")):
        monkeypatch.setenv("PYTRACE_CONFIG", str(place))
        said = fail("other")
        assert f"{place}: the configuration cannot be read ({reason}" in said


def test_a_named_file_is_the_only_one(folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(own(tmp_path), "[other]\nllm = 'a'\n")
    write(folder, "[other]\nllm = 'b'\n")
    assert run("other")["llm"] == "b"
    monkeypatch.setenv("PYTRACE_CONFIG", os.devnull)
    assert run("other")["llm"] == "tiny"


def test_a_wrong_variable_is_named(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_FIND_LIMIT", "many")
    assert "PYTRACE_FIND_LIMIT in the environment: 'many' is not a valid integer" in fail("find", "--index", "i")


@pytest.mark.parametrize("key", ["api_key", "api-key", "API_KEY", "llm-api-key", "password", "token"])
@pytest.mark.parametrize("table", ["", "[defaults]\n", "[serve]\n", "[a.b]\n"])
def test_keys_that_give_access_are_refused_in_the_file(key: str, table: str, folder: Path, fail: Fail) -> None:
    write(folder, f"{table}{key} = 'swordfish'\n")
    said = fail("other")
    assert "keys do not belong in this file; set the environment variable PYTRACE_API_KEY" in said
    assert "swordfish" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[find]\nocr = 'rm {}'\n", "this is for files that you have named"),
        ("[defaults]\nocr = 'rm {}'\n", "this is for files that you have named"),
        ("[defaults]\nllm = 'http://gpu-box:8000'\n", "the address is of another machine"),
        ("[defaults]\nllm = 'http://['\n", "the address is of another machine"),
        ("[find]\nout = '../../elsewhere'\n", "the place that is written to is outside of its folder"),
        ("[find]\nout = 'link/x'\n", "the place that is written to is outside of its folder"),
        ("[defaults]\nvector-cache = '/var/cache/x'\n", "the place that is written to is outside of its folder"),
    ],
)
def test_a_file_that_was_merely_found_leads_nowhere_else_and_one_that_is_named_does(
    text: str, says: str, folder: Path, tmp_path: Path, run: Run, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "link").symlink_to(tmp_path)
    path = write(folder, text)
    said = fail("find", "--index", "i")
    assert says in said
    assert "set PYTRACE_CONFIG to its path" in said
    monkeypatch.setenv("PYTRACE_CONFIG", str(path))
    run("find", "--index", "i")
    monkeypatch.delenv("PYTRACE_CONFIG")
    path.unlink()
    write(own(tmp_path), text)
    run("find", "--index", "i")


def test_a_file_that_was_found_may_name_what_is_beside_it_and_servers_of_this_machine(folder: Path, run: Run) -> None:
    write(folder, "[find]\nindex = '/srv/i'\nout = 'o/p'\nvector-cache = 'v'\nllm = 'http://127.0.0.1:8080'\n")
    found = run("find")
    assert found["out"] == str(folder / "o/p")
    assert found["llm"] == "http://127.0.0.1:8080"


def test_help_is_shown_whatever_the_file_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "[[[")
    for arguments in (["--help"], ["find", "--help"], ["more", "--help"], ["--version"]):
        assert common.run(program if arguments == ["--version"] else root(), arguments) == 0
    assert "Usage" in capsys.readouterr().out


# ---- the program as it is


def _commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if words:
        yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            member = command.get_command(click.Context(command), name)
            assert member is not None
            yield from _commands(member, (*words, name))


ALL = [(words, command) for words, command in _commands(program) if command.callback is not None]
OPTIONS = [(words, each) for words, command in ALL for each in command.params if isinstance(each, click.Option)]


def test_every_option_of_every_command_may_stand_in_the_file() -> None:
    assert len(OPTIONS) > 300
    for words, each in OPTIONS:
        assert isinstance(each, configuration.ConfiguredOption), (words, each.opts)


def test_shared_options_are_of_several_commands_and_exceptions_of_commands_that_have_them() -> None:
    having: dict[str, set[str]] = {}
    for words, each in OPTIONS:
        having.setdefault(each.opts[0].lstrip("-"), set()).add(" ".join(words))
    for key, exceptions in configuration.SHARED.items():
        assert len(having[key] - exceptions) > 1, key
        assert exceptions <= having[key], key


def test_variables_of_options_are_none_that_mean_something_else() -> None:
    taken = {"HOME", "API_KEY", "DEBUG", "DATA", "ISA", "CONFIG", "NUM_THREADS", "CUDA", "CUDA_MEMORY", "CUDA_SEARCH"}
    variables = {configuration._variable(*words, each.opts[0].lstrip("-")) for words, each in OPTIONS}
    variables |= {configuration._variable(key) for key in configuration.SHARED}
    assert variables.isdisjoint(f"PYTRACE_{name}" for name in taken)


def test_every_option_that_names_a_place_is_known_to_be_read_or_written() -> None:
    read = {
        "data", "demonstrations", "docs", "facts", "generator", "index", "kb", "kb-labels", "kb-predicates", "kg", "query-examples",
        "questions", "responses", "score", "triples",
    }  # fmt: skip
    places = {
        each.opts[0].lstrip("-")
        for _, each in OPTIONS
        if isinstance(each.type, click.Path) or (each.metavar or "") in {"DIR", "FILE"}
    }
    assert places == read | configuration._WRITTEN | {"find-links"}  # which a file that was merely found may not name


def test_serve_takes_its_index_and_port_from_the_file(folder: Path, fail: Fail) -> None:
    write(folder, "[defaults]\nindex = 'none.index'\n[serve]\nport = 70000\n")
    assert "[serve] port: 70000 is not in the range" in fail("serve", command=program)


def test_eval_and_bench_do_not_take_what_would_change_what_they_measure(
    folder: Path, fail: Fail, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "[defaults]\nindex = 'none.index'\nthreads = 1\ndevice = 'cuda'\n")
    said = fail("eval", "trace", "--data", "none.json", "--device", "cpu", command=program)
    assert "none.json" in said
    assert common.run(program, ["bench", "nothing"]) == 2
    assert "cuda" not in capsys.readouterr().err


def test_the_doctor_names_files_what_they_say_and_what_is_wrong_there(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(
        folder, "[defaults]\nthreads = 1\n[serve]\nport = 9000\n[index.build]\ndocs = 'd'\n[certify]\nexplain = true\n"
    )
    second = write(own(tmp_path), "[serve]\nprot = 1\n")
    monkeypatch.setenv("PYTRACE_SERVE_RATE", "10")
    monkeypatch.setenv("PYTRACE_API_KEY", "swordfish")
    assert common.run(program, ["doctor", "--json"]) == 0
    shown = capsys.readouterr().out
    assert "swordfish" not in shown
    report = json.loads(shown)
    said = {"defaults.threads", "serve.port", "index.build.docs", "certify.explain"}
    assert {path: set(keys) for path, keys in report["configuration"].items()} == {str(first): said, str(second): set()}
    assert report["environment"] == ["PYTRACE_API_KEY", "PYTRACE_SERVE_RATE"]
    assert any("did you mean port" in problem["what"] for problem in report["problems"])
    assert common.run(program, ["doctor"]) == 0
    assert f"{first}" in capsys.readouterr().out


@pytest.mark.parametrize(("key", "value"), [("source", "./evil"), ("find-links", "wheels")])
def test_a_file_that_was_merely_found_does_not_say_what_a_bundle_installs(
    key: str, value: str, folder: Path, tmp_path: Path, fail: Fail
) -> None:
    write(folder, f"[bundle]\n{key} = '{value}'\n")
    said = fail("bundle", "--out", str(tmp_path / "out"), command=program)
    assert f"[bundle] {key}" in said
    assert "this is for files that you have named" in said
    assert not (tmp_path / "out").exists()
