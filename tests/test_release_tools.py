"""What a release is made with: the checklist, and the trial of what is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytrace import __version__

TOOLS = Path(__file__).parents[1] / "tools"


def run(tool: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / tool), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_checklist_passes_the_version_that_the_code_has_and_no_other(tmp_path: Path) -> None:
    done = run("release.py", __version__, "--only", "version", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "passed   version" in done.stdout
    assert "not run  test" in done.stdout
    assert "make gpu-check" in done.stdout  # what only people can say
    done = run("release.py", "9.9.9", "--only", "version", "changelog", cwd=tmp_path)
    assert done.returncode == 1
    assert f"FAILED   version: pytrace/__init__.py says {__version__}, not 9.9.9" in done.stdout
    assert "FAILED   changelog: CHANGELOG.md has no dated section of 9.9.9" in done.stdout


def test_what_is_installed_passes_the_trial_of_wheels(tmp_path: Path) -> None:
    done = run("try_wheel.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lines of examples are right on baseline" in done.stdout or "right on neon" in done.stdout
    assert "s  pytrace certify" in done.stdout


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    if find_spec("click_man") is None:
        pytest.skip("click-man is not installed; `make wheels` has it")
    code = "import sys, pathlib, wheels; wheels.write_manual(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=TOOLS, check=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"pytrace.1", "pytrace-ask.1", "pytrace-index-build.1", "pytrace-bundle.1"} <= names
    assert "\\-\\-explain" in (tmp_path / "pytrace-ask.1").read_text(encoding="utf-8")
