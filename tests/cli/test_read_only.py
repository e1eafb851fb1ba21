"""Stores on media that cannot be written are read, and what would write there says so in one sentence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.evaluation.run.run_store import RunStore
from pytrace.kg import KnowledgeBase
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, Triple
from pytrace.retrieval.passages import IndexWriter
from pytrace.triples.graph import Recipe, TripleStore
from tests.example_runs import fill_run

Run = Callable[..., tuple[int, str, str]]


def mount(*arguments: object) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a place is mounted for reading only, which is not allowed here ({done.stderr.strip()})")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("media")
    if os.geteuid():
        pytest.skip("a place is mounted for reading only, which needs root")
    mount("-t", "tmpfs", "-o", "size=32m", "none", root)
    try:
        document = Document("d", "Accra", ("Accra is the capital of Ghana.",), "d.txt")
        with TripleStore.open(root / "graph", recipe=Recipe("letters")) as graph:
            graph.add(document, [Triple("Accra", "capital of", "Ghana", "d", 0, 90.0)])
        KnowledgeBase.build(root / "graph", root / "base", HashEncoder())
        with IndexWriter(root / "index", HashEncoder(), create=True) as index:
            index.add([document])
            index.commit()
        with RunStore(root / "run" / "run.sqlite") as store:
            fill_run(store, 2)
        mount("-o", "remount,ro", root)
        yield root
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, [*map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


@pytest.mark.parametrize(
    "arguments",
    [
        ("kg", "show", "{}/graph"), ("kg", "verify", "{}/graph"), ("kg", "verify", "{}/base"), ("index", "show", "{}/index"),
        ("kg", "export", "{}/graph", "--out", "-"), ("index", "verify", "{}/index"), ("report", "{}/run", "--verify"),
        ("report", "{}/run", "--out", "{out}"),
    ],
)  # fmt: skip
def test_what_is_there_is_read(place: Path, run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, output, errors = run(*(each.format(place, out=tmp_path) for each in arguments))
    assert (status, errors) == (0, "")
    assert output


@pytest.mark.parametrize(
    "arguments",
    [
        ("kg", "export", "{}/graph", "--out", "{}/graph.tsv"), ("kg", "remove", "{}/graph", "d"), ("report", "{}/run"),
        ("kg", "import", "{0}/graph/graph.db", "--out", "{0}/new", "--format", "tsv"), ("report", "{0}/run", "--out", "{0}/new"),
    ],
)  # fmt: skip
def test_what_would_write_there_says_so(place: Path, run: Run, arguments: tuple[str, ...]) -> None:
    status, output, errors = run(*(each.replace("{0}", "{}").replace("{}", str(place)) for each in arguments))
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert str(place) in errors
    assert "ead-only file system" in errors
    assert "PYTRACE_DEBUG" not in errors


def test_a_run_with_changes_in_its_log_says_so_where_they_cannot_be_read(place: Path, run: Run) -> None:
    mount("-o", "remount,rw", place)
    try:
        log = place / "run" / "run.sqlite-wal"
        log.write_bytes(b"something")
        mount("-o", "remount,ro", place)
        status, _, errors = run("report", place / "run", "--verify")
        assert (status, errors.count("\n")) == (2, 1)
        assert "run.sqlite has changes in its log, which SQLite cannot read where it cannot write" in errors
    finally:
        mount("-o", "remount,rw", place)
        log.unlink()
        mount("-o", "remount,ro", place)
