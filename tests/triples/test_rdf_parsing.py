"""Triples within triples are counted before the parser recurses into them, and only those."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyoxigraph as ox
import pytest

from pytrace.errors import DataError
from pytrace.kg.graph_sources import read_source
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.triples.graph import TripleStore, rdf_parsing
from pytrace.triples.graph.rdf_parsing import open_rdf

FORMATS = {".nt": ox.RdfFormat.N_TRIPLES, ".ttl": ox.RdfFormat.TURTLE}


def nested(depth: int) -> str:
    return "<urn:a> <urn:b> " + "<<( <urn:s> <urn:p> " * depth + "<urn:o>" + " )>>" * depth + " .\n"


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_would_end_the_process_is_refused_by_every_reader(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"deep{suffix}"
    path.write_text("<urn:x> <urn:y> <urn:z> .\n" + nested(20_000))

    def import_it() -> None:
        with TripleStore.open(tmp_path / "graph", mode="create") as graph:
            graph.import_(path)

    for read in (lambda: list(read_source(path).triples), lambda: KnowledgeStore.load(path), import_it):
        with pytest.raises(DataError, match="more than 100 deep within each other") as told:
            read()
        assert str(path) in str(told.value)


# None of these nests, whatever stands in strings, IRIs and comments.
FLAT = {
    ".nt": r'<urn:a> <urn:b> "<<( <<( \" <<( # \\" . # <<( " <<(',
    ".ttl": r"""@prefix e: <urn:> . # ' <<( "
e:a e:b '<<( " \' <<(', "", '', "<<(", '''<<( ' '' \''' <<( ''', QQQ<<( " "" \QQQ <<( QQQ, e:\'c , ( [ e:b e:c ] ) ; e:d << e:a e:b e:c >> .
""".replace("Q", '"'),
}  # fmt: skip


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 16, 1 << 18])
def test_signs_within_strings_iris_and_comments_are_not_counted(
    suffix: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdf_parsing, "_DEEPEST", 3)
    path = tmp_path / f"a{suffix}"
    text = "\n".join([FLAT[suffix], nested(3).strip()] * 4) + "\n"
    path.write_text(text)
    monkeypatch.setattr(rdf_parsing, "_CHUNK", chunk)
    with open_rdf(path) as stream:
        read = stream.read()
    assert read.decode() == text
    assert len(list(ox.parse(read, format=FORMATS[suffix]))) >= 8  # it is what it is meant to be
    path.write_text(text + nested(4))
    with pytest.raises(DataError, match="more than 3 deep"), open_rdf(path) as stream:
        stream.read()


def test_pipes_are_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.nt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(nested(200),))
    writer.start()
    with pytest.raises(DataError, match="deep within each other"):
        list(read_source(pipe).triples)
    writer.join()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_without_end_is_not_looked_through(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"endless{suffix}"
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=rf"endless\{suffix}:1: column 1"):
        list(read_source(path).triples)


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_error_that_quotes_a_line_break_is_one_line(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("<urn:a> <urn:\nb> <urn:c> .\n")
    for read in (
        lambda: list(read_source(path).triples),
        lambda: KnowledgeStore.load(path),
        lambda: TripleStore().import_(path),
    ):
        with pytest.raises(DataError, match="repair the line") as told:
            read()
        assert "\n" not in str(told.value)
