"""An index that Ray actors search, or several processes built: it is what one process builds, and what one finds is found.

Whatever the filters and the number of processes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytrace.cli import common, program
from pytrace.engine.corpus import Corpus
from pytrace.engine.spread_index import SpreadIndex
from pytrace.errors import InputError, StoreError
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, Origin
from pytrace.retrieval.hops import HopSearch
from pytrace.retrieval.passages import IndexWriter, PassageIndex, segment, writer

pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\.")
ENCODER = HashEncoder(dimension=32)
TOWNS = ("Pellisk", "Quillhaven", "Thornwick", "Orrin Head", "Skarra Isle", "Marsh End")
QUESTIONS = ["Which mayor came from Pellisk?", "Where does the ferry of Thornwick go?", "xyzzy"]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an index of several small segments."""
    monkeypatch.setattr(segment, "MOST_PASSAGES", 16)
    monkeypatch.setattr(writer, "MOST_PASSAGES", 16)
    monkeypatch.setattr(writer, "_BATCH", 10)
    draw = random.Random(3)
    documents = [
        Document(
            f"d{number}",
            f"Mayor {number}",
            (f"Mayor {number} came from {draw.choice(TOWNS)}.", f"The ferry to {draw.choice(TOWNS)} is hers."),
            "towns.txt",
            Origin(f"d{number}", f"Mayor {number}", metadata={"year": 1900 + number}),
        )
        for number in range(60)
    ]
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as index:
        index.add(documents)
        index.commit()
    return tmp_path / "index"


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("processes", [1, 2, 9])
def test_actors_find_what_one_process_finds(directory: Path, processes: int) -> None:
    with PassageIndex(directory) as index, SpreadIndex(directory, processes=processes) as spread:
        assert len(index.segments) > 2
        for where in ((), ("year>=1930",), ("year>=3000",)):
            expected = HopSearch(index, ENCODER).search(QUESTIONS, 10, where=where)
            assert HopSearch(spread, ENCODER).search(QUESTIONS, 10, where=where) == expected
        vectors = ENCODER.encode(QUESTIONS, kind="query")
        for k in (1, 7, 100):
            for found, due in (
                (spread.nearest(vectors, k), index.nearest(vectors, k)),
                (spread.words.top(QUESTIONS, k), index.words.top(QUESTIONS, k)),
            ):
                np.testing.assert_array_equal(found[0], due[0])
                np.testing.assert_array_equal(found[1], due[1])


@pytest.mark.usefixtures("ray")
def test_a_corpus_may_be_opened_so(directory: Path) -> None:
    corpus = Corpus.open(directory, processes=2)
    assert isinstance(corpus.index, SpreadIndex)
    corpus.close()


@pytest.mark.usefixtures("ray")
def test_an_index_that_changed_meanwhile_is_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = SpreadIndex._start

    def changed_first(index: SpreadIndex, *arguments: Any) -> None:
        with IndexWriter(directory, ENCODER) as writing:
            writing.remove(["d3"])
            writing.commit()
        start(index, *arguments)

    monkeypatch.setattr(SpreadIndex, "_start", changed_first)
    with pytest.raises(StoreError, match="has changed since it was opened"):
        SpreadIndex(directory, processes=1)


@pytest.mark.usefixtures("ray")
def test_more_threads_than_ray_has_are_refused(directory: Path) -> None:
    with pytest.raises(InputError, match="Ray has 6 processors"):
        SpreadIndex(directory, processes=2, threads=4)


def test_no_processes_are_refused(directory: Path) -> None:
    with pytest.raises(InputError, match="at least 1 of each"):
        SpreadIndex(directory, processes=0)


@pytest.mark.models
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_processes_build_what_one_process_builds(
    tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if engine == "ray":
        request.getfixturevalue("ray")
    docs = tmp_path / "docs.jsonl"
    rows = ({"id": f"{town}", "title": town, "text": f"{town} is a town. Its mayor is {town[::-1]}."} for town in TOWNS)
    docs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = []
    for name, options in (("one", ()), ("two", ("--processes", "2", "--engine", engine))):
        status = common.run(
            program, ["index", "build", str(tmp_path / name), "--docs", str(docs), "--threads", "1", *options]
        )
        shown = capsys.readouterr()
        assert status == 0, shown.err
        assert "6 passages of 6 documents" in shown.out
        assert "6 passages encoded" in shown.out
        with PassageIndex(tmp_path / name) as index:
            built.append({passage.id: passage for passage in index.passages(range(len(index)))})
    assert built[0] == built[1]
    assert not (tmp_path / "two.parts").exists()
