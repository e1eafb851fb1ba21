"""What `deploy/` has works as it stands: the unit, the configuration, and what the container is built of."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from pytrace.cli import common, configuration, program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "pytrace.service"
TOML = DEPLOY / "pytrace.toml"
PROGRAM = "/opt/pytrace/bin/pytrace"


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def check_call(arguments: list[str]) -> None:
    """Parse a call of the program, whose options must all be there and take what they are given."""
    root = click.Context(program, info_name="pytrace")
    command = program.get_command(root, arguments[0])
    assert command is not None
    command.make_context(arguments[0], [*arguments[1:], "--index", "papers.index"], parent=root)


def unit_values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_the_units_call_is_one_that_the_program_takes_and_it_may_end_in_its_time() -> None:
    (call,) = unit_values("ExecStart")
    first, *arguments = shlex.split(call)
    assert first == PROGRAM
    assert arguments[0] == "serve"
    check_call(arguments)
    (seconds,) = unit_values("TimeoutStopSec")
    assert float(seconds) > float(option(arguments, "--grace")) + 5


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here; the other tests read the unit by themselves")
    there = tmp_path / UNIT.name
    there.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))  # which must be a program of this machine
    done = subprocess.run([analyze, "verify", str(there)], capture_output=True, text=True, timeout=60, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    if done.returncode and not said:
        pytest.skip(f"systemd-analyze cannot run here: {done.stderr.strip()[:200]}")
    assert said == []


@pytest.mark.parametrize("commented", [False, True])
def test_the_configuration_is_taken_and_so_are_the_lines_that_are_commented_out(
    commented: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TOML.read_text()
    if commented:
        text = re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE)
        assert text != TOML.read_text()
    path = tmp_path / "pytrace.toml"
    path.write_text(text.replace("/var/lib/pytrace/", f"{tmp_path}/none/"))
    monkeypatch.setenv("PYTRACE_CONFIG", str(path))
    (file,) = configuration.files()
    said = list(configuration.check(program, file))
    assert {"defaults.index", "serve.port", "index.build.docs"} <= set(said)
    if not commented:  # a card is named there
        assert common.run(program, ["search", "Who?"]) == 2
        assert f"there is no index at {tmp_path}/none/papers.index" in capsys.readouterr().err


def test_the_configuration_says_what_the_command_does_by_itself_where_it_is_the_same() -> None:
    serve = program.get_command(click.Context(program), "serve")
    assert serve is not None
    defaults = {each.opts[0].lstrip("-"): each.default for each in serve.params}
    for key, value in tomllib.loads(TOML.read_text())["serve"].items():
        assert defaults[key] == value, key


def container_lines() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in text.splitlines() if line.strip()]


def test_the_container_is_built_of_files_that_are_there_and_of_extras_that_the_package_has() -> None:
    lines = container_lines()
    copied = [each.split() for name, each in lines if name == "COPY" and "--from" not in each]
    assert copied
    for *sources, _ in copied:
        for source in sources:
            assert (ROOT / source).exists(), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name.split(",") for _, each in lines for name in re.findall(r"\[([a-z,]+)\]'", each)]
    assert len(extras) == 2
    assert extras[0] == extras[1]
    assert set(extras[0]) <= set(project["optional-dependencies"])
    # What the build backend reads is copied.
    assert {project["readme"], *project["license-files"], "CMakeLists.txt"} <= {each for row in copied for each in row}
    (pattern,) = (re.search(r"sed -n '([^']+)'", each)[1] for _, each in lines if "sed -n" in each)  # type: ignore[index]
    done = subprocess.run(
        ["sed", "-n", pattern, str(ROOT / "pyproject.toml")], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"llama-cpp-python==[\d.]+", done.stdout.splitlines()[0])


def test_the_container_runs_the_service_as_no_root_and_asks_for_its_health_where_it_listens() -> None:
    lines = container_lines()
    by_name: dict[str, list[str]] = {}
    for name, rest in lines:
        by_name.setdefault(name, []).append(rest)
    assert json.loads(by_name["ENTRYPOINT"][0]) == [PROGRAM]
    arguments = json.loads(by_name["CMD"][0])
    check_call(arguments)
    assert by_name["USER"] == ["pytrace"]
    port = option(arguments, "--port")
    assert by_name["EXPOSE"] == [port]
    assert f"http://127.0.0.1:{port}/ready" in by_name["HEALTHCHECK"][0]
    last = len(lines) - 1 - [name for name, _ in reversed(lines)].index("FROM")
    used = [rest for name, rest in lines[last:] if name == "RUN"]
    assert not any("g++" in each for each in used)  # compilers stay in the stage that builds


def test_pages_name_what_deploy_has() -> None:
    page = (ROOT / "docs" / "on-premises.md").read_text()
    for path in DEPLOY.iterdir():
        assert f"deploy/{path.name}" in page


def test_the_configuration_that_the_page_shows_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "on-premises.md").read_text()
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "pytrace.toml").write_text(shown)
    monkeypatch.setenv("PYTRACE_CONFIG", str(tmp_path / "pytrace.toml"))
    (file,) = configuration.files()
    assert "index.build.docs" in configuration.check(program, file)
