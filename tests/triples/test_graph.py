"""The knowledge graph keeps one extraction per content, whole documents only, and says what is wrong with a file."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.errors import DataError, InputError, StoreError
from pytrace.records import Document, Origin, TextUnit, Triple, Unit
from pytrace.triples.graph import (
    ExtractionStatistics,
    GraphStatistics,
    Recipe,
    SyncReport,
    TripleStore,
    describe_triples,
)
from pytrace.triples.graph.graph_records import row_of, unit_of
from tests.older_files import without_checksums

RECIPE = Recipe("scripted", model="m1", prompt="p1", options={"temperature": 0.0})


def make_document(number: int, sentences: int = 3) -> Document:
    texts = tuple(f"Sentence {index} of document {number}." for index in range(sentences))
    return Document(f"d{number}", f"Title {number}", texts, f"corpus.jsonl:{number + 1}")


def make_triples(document: Document, count: int = 4) -> list[Triple]:
    return [
        Triple(document.title, f"relation {index}", f"tail {index}", document.id, index % len(document.sentences), 90.5)
        for index in range(count)
    ]


def fill(graph: TripleStore, count: int = 5) -> list[Document]:
    documents = [make_document(number) for number in range(count)]
    graph.sync(documents)
    for document in documents:
        graph.add(document, make_triples(document))
    return documents


# Text that breaks stores: the characters of every format's syntax, NUL, lone surrogates, right-to-left, astral, BOM.
nasty_text = st.text(
    st.one_of(
        st.sampled_from(
            [*";<>[]\t\n\r\\\"'{}%:/#", "\0", "\x1f", "\x85", "\u2028", "\ufeff", "\ud800", "\udfff", "א", "😀"]
        ),
        st.characters(exclude_categories=()),
    ),
    max_size=8,
)


def joined(text: str) -> str:
    """Read a surrogate pair as the character that it spells, as every text format does."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@st.composite
def corpora(draw: st.DrawFn) -> list[tuple[Document, list[Unit] | None, ExtractionStatistics | None]]:
    """Documents with different ids and different words, each with triples or still waiting for them."""
    result = []
    names = draw(st.lists(nasty_text, max_size=4, unique_by=joined))
    for position, name in enumerate(names):
        title = f"{position}{draw(nasty_text)}"
        sentences = tuple(draw(st.lists(nasty_text, max_size=3)))
        document = Document(joined(name), joined(title), tuple(map(joined, sentences)), joined(draw(nasty_text)))
        if draw(st.integers(0, 4)) == 0:
            result.append((document, None, None))
            continue
        triples = draw(
            st.lists(
                st.builds(
                    unit_of,  # a sentence or a document where the relation is empty
                    nasty_text.map(joined),
                    nasty_text.map(joined),
                    nasty_text.map(joined),
                    st.just(document.id),
                    st.integers(-1, len(sentences) - 1),
                    st.floats(0, 100),
                ),
                max_size=4,
            )
        )
        statistics = draw(
            st.builds(
                ExtractionStatistics,
                st.integers(0, 9),
                st.integers(0, 9),
                st.integers(0, 9),
                st.integers(0, 9),
                st.booleans(),
                nasty_text.map(joined),
            )
        )
        result.append((document, triples, statistics))
    return result


def store(graph: TripleStore, corpus: list[tuple[Document, list[Unit] | None, ExtractionStatistics | None]]) -> None:
    graph.sync([document for document, _, _ in corpus])
    for document, triples, statistics in corpus:
        if triples is not None:
            graph.add(document, triples, statistics)


def contents(graph: TripleStore) -> list[tuple[Document, list[Unit] | None, ExtractionStatistics | None]]:
    result = []
    for document in graph.documents():
        statistics = graph.extraction(document.id)
        result.append((document, None if statistics is None else graph.triples([document.id]), statistics))
    return result


@given(corpus=corpora())
def test_any_text_comes_back_from_the_file_as_it_went_in(
    corpus: list[tuple[Document, list[Unit] | None, ExtractionStatistics | None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("graph")
    with TripleStore.open(directory, recipe=RECIPE) as graph:
        store(graph, corpus)
    with TripleStore.open(directory, mode="read") as graph:
        assert contents(graph) == corpus
        assert graph.recipe == RECIPE
        all_triples = [triple for _, triples, _ in corpus for triple in triples or ()]
        assert graph.triples() == all_triples
        for triple in all_triples:
            head, relation, tail, _, _ = row_of(triple)
            assert triple in graph.triples_about(head)
            assert not relation or triple in graph.triples_about(tail)
        expected = describe_triples(all_triples)
        found = graph.statistics()
        for name in ("triples", "entities", "relations", "edges", "density"):
            assert getattr(found, name) == getattr(expected, name)
        entities = list(graph.entities())
        assert len(entities) == len(set(entities)) == found.entities
        assert len(graph.relations()) == found.relations
    shutil.rmtree(directory)


def test_surrogate_pairs_are_stored_as_the_characters_they_spell_and_found_again() -> None:
    pair = "\ud83d\ude00"
    document = Document(pair, "T", (f"a {pair}", "b"))
    with TripleStore() as graph:
        graph.sync([document])
        graph.add(document, [Triple("T", "r", pair, pair)])
        assert graph.missing([document]) == []
        assert graph.triples([document]) == graph.triples(["😀"]) == graph.triples([pair])
        assert graph.document(pair).sentences[0] == "a 😀"


def test_documents_with_the_same_words_share_one_extraction() -> None:
    first, second = Document("a", "T", ("Words.",)), Document("b", "T", ("Words.",))
    with TripleStore() as graph:
        graph.sync([first, second])
        assert [document.id for document in graph.pending()] == ["a"]
        assert graph.missing([first, second]) == [first]
        graph.add(second, [Triple("T", "r", "x", sentence=0)])
        assert list(graph.pending()) == []
        assert [triple.document_id for triple in graph.triples()] == ["a", "b"]
        assert graph.statistics() == GraphStatistics(
            documents=2, contents=1, triples=2, entities=2, relations=1, edges=1, density=0.5, lines=1, parsed=1
        )
        stranger = Document("c", "T", ("Words.",))
        assert [triple.document_id for triple in graph.triples([stranger, "a"])] == ["c", "a"]
        assert graph.replace_triples("a", []) == ["a", "b"]


def test_order_is_the_corpus_order_whatever_the_order_of_extraction() -> None:
    documents = [make_document(number) for number in range(600)]
    with TripleStore() as graph:
        graph.sync(documents)
        for document in random.Random(0).sample(documents, len(documents)):
            graph.add(document, make_triples(document, 2))
        assert list(graph.documents()) == documents
        assert graph.triples() == [triple for document in documents for triple in make_triples(document, 2)]
        assert len(graph) == 600


@given(data=st.data())
def test_sync_is_the_difference_of_two_corpora(data: st.DataObject) -> None:
    versions = st.dictionaries(st.integers(0, 6), st.integers(0, 2), max_size=7)
    before, after = data.draw(versions), data.draw(versions)

    def corpus(version: dict[int, int]) -> list[Document]:
        return [Document(f"d{name}", f"T{name}", (f"version {edition}",)) for name, edition in version.items()]

    with TripleStore() as graph:
        graph.sync(corpus(before))
        for document in corpus(before):
            graph.add(document, [Triple(document.title, "says", document.sentences[0], sentence=0)])
        report = graph.sync(corpus(after))
        added = tuple(f"d{name}" for name in after if name not in before)
        changed = tuple(f"d{name}" for name in after if name in before and before[name] != after[name])
        removed = tuple(f"d{name}" for name in before if name not in after)
        unchanged = sum(before.get(name) == edition for name, edition in after.items())
        assert report == SyncReport(len(added), len(changed), len(removed), unchanged, 0, added, changed, removed)
        assert list(graph.documents()) == corpus(after)
        waiting = [document for document in corpus(after) if document.id in (*added, *changed)]
        assert list(graph.pending()) == graph.missing(corpus(after)) == waiting
        statistics = graph.statistics()
        assert (statistics.waiting, statistics.contents) == (len(waiting), len(after))
        assert statistics.triples == len(after) - len(waiting)
        assert graph.sync(corpus(after)) == SyncReport(unchanged=len(after))


def test_sync_refuses_two_texts_under_one_id_and_changes_nothing() -> None:
    with TripleStore() as graph:
        documents = fill(graph, 2)
        with pytest.raises(InputError, match=r"id 'd0' and different words \(in corpus\.jsonl:1 and other\.txt\)"):
            graph.sync([documents[0], Document("d0", "Other", (), "other.txt")])
        new = make_document(7)
        with pytest.raises(InputError, match=r"id 'd7' and different words"):
            graph.sync([new, *documents, Document("d7", "Other", ())])
        assert list(graph.documents()) == documents
        again: list[tuple[str, str]] = []
        report = graph.sync(
            [*documents, new, documents[0], new], repeated=lambda one, place: again.append((one.id, place))
        )
        assert (report.unchanged, report.added, report.repeated, len(graph)) == (2, 1, 2, 3)
        assert again == [("d0", "corpus.jsonl:1"), ("d7", "corpus.jsonl:8")]


def test_a_sync_whose_documents_cannot_all_be_read_changes_nothing() -> None:
    def broken() -> Iterator[Document]:
        yield make_document(1, sentences=1)
        yield make_document(9)
        raise DataError("line 3 is no JSON")

    with TripleStore() as graph:
        documents = fill(graph, 3)
        with pytest.raises(DataError, match="line 3"):
            graph.sync(broken())
        assert list(graph.documents()) == documents
        assert graph.triples() == [triple for document in documents for triple in make_triples(document)]
        assert graph.sync(documents) == SyncReport(unchanged=3)


def test_a_report_names_a_thousand_of_each_kind_and_counts_the_rest() -> None:
    with TripleStore() as graph:
        first = graph.sync(make_document(number) for number in range(1500))
        assert (first.added, len(first.added_ids)) == (1500, 1000)
        second = graph.sync(make_document(number, sentences=1) for number in range(1200))
        assert (second.changed, len(second.changed_ids), second.removed) == (1200, 1000, 300)
        third = graph.sync([])
        assert (third.removed, third.removed_ids[-1]) == (1200, "d999")
        assert graph.count_pending() == len(graph) == 0


def test_what_waits_or_failed_is_counted_as_it_is_listed() -> None:
    with TripleStore() as graph:
        documents = fill(graph, 3)
        twin = msgspec_replace(documents[2], "twin")
        cut = ExtractionStatistics(truncated=True)
        graph.add(documents[1], [], ExtractionStatistics(failure="nothing"))
        graph.add(documents[2], make_triples(documents[2]), cut)
        graph.sync([*documents, twin, make_document(5), make_document(6)])
        assert [one.id for one in graph.pending()] == ["d5", "d6"]
        assert [one.id for one in graph.pending(failed=True)] == ["d1", "d5", "d6"]
        assert (graph.count_pending(), graph.count_pending(failed=True)) == (2, 3)
        assert list(graph.cut_off()) == [("d2", "Title 2"), ("twin", "Title 2")]
        # One that fails once more does not come again in the same round.
        for one in graph.pending(failed=True):
            graph.add(one, [], ExtractionStatistics(failure="again"))
        assert [name for name, _ in graph.failures()] == ["d1", "d5", "d6"]


def test_one_id_in_two_corpora_keeps_both_extractions_until_a_sync() -> None:
    """Questions of one data set may use the same id for different paragraphs."""
    first, second = Document("0", "A", ("One.",)), Document("0", "B", ("Two.",))
    with TripleStore() as graph:
        graph.add(first, [Triple("A", "is", "one")])
        graph.add(second, [Triple("B", "is", "two")])
        assert graph.missing([first, second]) == []
        assert [triple.tail for triple in graph.triples([first, second])] == ["one", "two"]
        assert [triple.tail for triple in graph.triples()] == ["two"]
        assert graph.statistics().triples == 1
        assert list(graph.entities()) == ["B", "two"]
        graph.sync([second])
        assert graph.missing([first]) == [first]


def test_removed_words_leave_the_file(tmp_path: Path) -> None:
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        secret = Document("s", "Secret", ("The password is xyzzy-4711.",))
        graph.add(secret, [Triple("Secret", "is", "xyzzy-4711")])
        fill(graph, 3)
        assert len(graph) == 3
    assert b"xyzzy-4711" not in (tmp_path / "graph.db").read_bytes()


def test_remove_and_hand_edits_are_seen_by_what_follows() -> None:
    with TripleStore() as graph:
        documents = fill(graph, 3)
        graph.remove(["d1"])
        assert [document.id for document in graph.documents()] == ["d0", "d2"]
        with pytest.raises(InputError, match="no document 'd1'"):
            graph.remove(["d0", "d1"])
        assert len(graph) == 2
        with pytest.raises(InputError, match="not one string"):
            graph.remove("d0")
        graph.replace_triples("d2", [Triple("x", "y", "z", "d2", 1, 50)])
        assert graph.triples(["d2"]) == [Triple("x", "y", "z", "d2", 1, 50)]
        assert graph.is_edited("d2")
        assert not graph.is_edited("d0")
        assert graph.missing(documents) == [documents[1]]
        assert graph.statistics().edited == 1


@pytest.mark.parametrize(
    ("triple", "fault"),
    [
        (Triple("a", "b", "c", "other"), "says it is of document 'other'"),
        (Triple("a", "b", "c", "", 3), "points at sentence 3, but there are 3"),
        (Triple("a", "b", "c", "", -2), "points at sentence -2"),
        (Triple("a", "b", "c", "", 0, float("nan")), "has support nan"),
        (Triple("a", "b", "c", "", 0, 100.5), "has support 100.5"),
        (Triple("a", None, "c"), "a part that is no text"),  # type: ignore[arg-type]
    ],
)
def test_a_triple_that_is_not_the_documents_is_refused_whole(triple: Triple, fault: str) -> None:
    with TripleStore() as graph:
        document = make_document(0)
        with pytest.raises(InputError, match=f"triple 1 of document 'd0' .*{fault}"):
            graph.add(document, [Triple("a", "b", "c"), triple])
        assert len(graph) == 0


def test_failures_are_counted_listed_and_tried_again_on_request() -> None:
    with TripleStore() as graph:
        good, bad, empty = (make_document(number) for number in range(3))
        graph.add(
            good, make_triples(good), ExtractionStatistics(lines=7, parsed=4, dropped=2, repeated=1, truncated=True)
        )
        graph.add(bad, [], ExtractionStatistics(failure="the model wrote nothing"))
        graph.add(empty, [])
        assert list(graph.failures()) == [("d1", "the model wrote nothing")]
        assert graph.missing([good, bad, empty]) == []
        assert graph.missing([good, bad, empty], failed=True) == [bad]
        found = graph.statistics()
        assert (found.lines, found.parsed, found.dropped, found.repeated, found.truncated) == (7, 4, 2, 1, 1)
        assert (found.failures, found.without_triples, found.documents) == (1, 2, 3)


def test_asking_for_what_is_not_there_says_so() -> None:
    with TripleStore() as graph:
        document = make_document(0)
        with pytest.raises(InputError, match="no document 'd0'"):
            graph.triples([document])
        with pytest.raises(InputError, match="no document 'd0'"):
            graph.document("d0")
        graph.sync([document])
        with pytest.raises(StoreError, match="'d0' in memory has not been extracted yet"):
            graph.triples(["d0"])
        with pytest.raises(InputError, match="not one string"):
            graph.triples("d0")
        assert graph.extraction("d0") is None
    with pytest.raises(StoreError, match="closed"):
        len(graph)


def test_density_is_one_when_all_entities_are_connected_and_counts_each_direction_once() -> None:
    triples = [Triple(a, r, b) for a in "xyz" for b in "xyz" if a != b for r in ("p", "q")]
    assert describe_triples(triples).density == 1.0
    assert describe_triples([Triple("x", "is", "x")]).density == 0.0
    assert describe_triples([TextUnit("Title", "A whole sentence.")]).entities == 1


def msgspec_replace(document: Document, name: str) -> Document:
    return Document(name, document.title, document.sentences, document.source)


def test_another_recipe_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        fill(graph)
    other = Recipe("scripted", model="m1", prompt="p2", options={"temperature": 0.5, "demonstrations": 3})
    for mode in ("resume", "read"):
        with pytest.raises(StoreError) as caught:
            TripleStore.open(tmp_path, recipe=other, mode=mode)
        for words in (
            "prompt is 'p1' there and 'p2' here",
            "temperature is 0.0 there and 0.5 here",
            "demonstrations is '(not set)' there and 3 here",
            "--out",
            str(tmp_path),
        ):
            assert words in str(caught.value)
    assert RECIPE.hash == Recipe("scripted", "m1", "p1", {"temperature": 0.0}).hash != other.hash


def test_modes_say_what_they_need(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    for mode in ("read", "resume"):
        with pytest.raises(StoreError, match="no knowledge graph in"):
            TripleStore.open(empty, mode=mode)
    assert not empty.exists()
    with TripleStore.open(empty, recipe=RECIPE, mode="create"):
        pass
    with TripleStore.open(empty, recipe=Recipe("other"), mode="create") as graph:
        fill(graph)
        assert graph.recipe == Recipe("other")
    with pytest.raises(StoreError, match="already holds a knowledge graph; resume it"):
        TripleStore.open(empty, recipe=RECIPE, mode="create")
    with TripleStore.open(empty, mode="read") as graph, pytest.raises(StoreError, match="opened for reading"):
        graph.remove(["d0"])
    with pytest.raises(InputError, match="mode is 'write'"):
        TripleStore.open(empty, mode="write")  # type: ignore[arg-type]
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(StoreError, match="is a file; name the directory"):
        TripleStore.open(file, mode="read")
    with pytest.raises(StoreError, match="cannot write a knowledge graph"):
        TripleStore.open(file / "inner", recipe=RECIPE)


def test_a_second_writer_is_refused_with_the_first_ones_number_and_readers_are_not(tmp_path: Path) -> None:
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        documents = fill(graph, 2)
        with pytest.raises(StoreError, match=f"process {os.getpid()} is writing"):
            TripleStore.open(tmp_path, recipe=RECIPE)
        with TripleStore.open(tmp_path, mode="read") as reader:
            assert list(reader.documents()) == documents
            more = make_document(7)
            graph.add(more, make_triples(more))
            assert list(reader.documents()) == [*documents, more]
            with reader.snapshot() as frozen:
                graph.remove(["d7"])
                assert list(frozen.documents()) == [*documents, more]
            assert list(reader.documents()) == documents
    with TripleStore.open(tmp_path, recipe=RECIPE):
        pass


@pytest.mark.parametrize("share", [0.0005, 0.05, 0.5, 0.99])
def test_a_truncated_file_is_a_store_error(tmp_path: Path, share: float) -> None:
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        fill(graph, 200)
    file = tmp_path / "graph.db"
    os.truncate(file, int(file.stat().st_size * share))
    for mode in ("read", "resume", "create"):
        with pytest.raises(StoreError, match=r"damaged|no SQLite file"):
            TripleStore.open(tmp_path, mode=mode)


@pytest.mark.parametrize("seed", range(6))
def test_overwritten_pages_give_a_store_error_or_whole_records_but_never_a_crash(tmp_path: Path, seed: int) -> None:
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        fill(graph, 200)
    file = tmp_path / "graph.db"
    rng = random.Random(seed)
    data = bytearray(file.read_bytes())
    for _ in range(40):
        place = rng.randrange(4096, len(data) - 64)
        data[place : place + 64] = rng.randbytes(64)
    file.write_bytes(data)
    reader = start(SURVEY, str(tmp_path))
    output, _ = reader.communicate(timeout=120)
    assert reader.returncode == 0
    assert output.startswith(("whole", f"refused {file}", "refused the knowledge graph is damaged"))


def test_files_of_other_programs_and_times_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "graph.db"
    file.write_bytes(b"This is no database. " * 1000)
    with pytest.raises(StoreError, match="no SQLite file"):
        TripleStore.open(tmp_path, mode="read")
    file.unlink()
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE recipes (name)")
    connection.close()
    with pytest.raises(StoreError, match="not a knowledge graph of pytrace"):
        TripleStore.open(tmp_path, recipe=RECIPE)
    file.unlink()
    with TripleStore.open(tmp_path, recipe=RECIPE):
        pass
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(
        StoreError,
        match=r"has format 99 and this version of pytrace reads format 2.* if a newer pytrace wrote it, update this one",
    ):
        TripleStore.open(tmp_path, mode="read")
    file.write_bytes(b"")
    with pytest.raises(StoreError, match="no knowledge graph"):
        TripleStore.open(tmp_path, mode="read")
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        fill(graph)


SURVEY = """
import sys
from pytrace.errors import StoreError
from pytrace.triples.graph import TripleStore
try:
    with TripleStore.open(sys.argv[1], mode="read") as graph:
        list(graph.documents()), graph.triples(), graph.statistics(), list(graph.entities())
    print("whole")
except StoreError as error:
    print("refused", error)
"""

WRITER = """
import sys
from tests.triples.test_graph import RECIPE, make_document, make_triples
from pytrace.triples.graph import TripleStore
with TripleStore.open(sys.argv[1], recipe=RECIPE) as graph:
    documents = [make_document(number) for number in range(3000)]
    graph.sync(documents)
    print("start", flush=True)
    for document in graph.missing(documents):
        graph.add(document, make_triples(document))
        print(document.id, flush=True)
print("end", flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ}
    )


def test_a_killed_writer_leaves_whole_documents_and_all_that_it_reported(tmp_path: Path) -> None:
    rng = random.Random(1)
    reported: set[str] = set()
    for attempt in range(8):
        process = start(WRITER, str(tmp_path))
        assert process.stdout is not None
        with process:
            lines = [process.stdout.readline() for _ in range(rng.randint(1, 200))]
            time.sleep(rng.uniform(0, 0.002))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines(keepends=True)
        assert lines[0] == "start\n"
        reported.update(line[:-1] for line in lines[1:] if line.endswith("\n"))
        with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
            documents = list(graph.documents())
            assert len(documents) == 3000
            waiting = {document.id for document in graph.pending()}
            assert not reported & waiting, f"lost after kill {attempt}"
            for document in documents:
                if document.id not in waiting:
                    assert graph.triples([document.id]) == make_triples(document)
        connection = sqlite3.connect(tmp_path / "graph.db")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
    assert reported
    process = start(WRITER, str(tmp_path))
    output, _ = process.communicate()
    resumed = [line for line in output.split("\n") if line.startswith("d")]
    assert not reported.intersection(resumed)
    assert len(reported) + len(resumed) <= 3000
    with TripleStore.open(tmp_path, mode="read") as graph:
        assert graph.statistics().triples == 12000


READER = """
import sys
from tests.triples.test_graph import make_triples
from pytrace.triples.graph import TripleStore
rounds = 0
with TripleStore.open(sys.argv[1], mode="read") as graph:
    while True:
        with graph.snapshot() as frozen:
            waiting = {document.id for document in frozen.pending()}
            for document in frozen.documents():
                if document.id not in waiting:
                    assert frozen.triples([document.id]) == make_triples(document)
        rounds += 1
        if not waiting:
            break
print("rounds", rounds)
"""


def test_readers_see_whole_documents_while_one_writes(tmp_path: Path) -> None:
    documents = [make_document(number) for number in range(400)]
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        graph.sync(documents)
        readers = [start(READER, str(tmp_path)) for _ in range(3)]
        for document in documents:
            graph.add(document, make_triples(document))
            time.sleep(0.002)
        for process in readers:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            assert output.startswith("rounds")


def test_threads_of_one_program_may_share_a_graph(tmp_path: Path) -> None:
    documents = [make_document(number) for number in range(300)]
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        graph.sync(documents)

        def work(part: list[Document]) -> int:
            for document in part:
                graph.add(document, make_triples(document))
                assert graph.triples([document.id]) == make_triples(document)
            return len(part)

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(work, [documents[first::4] for first in range(4)])) == 300
        assert graph.triples() == [triple for document in documents for triple in make_triples(document)]


LIMITED = """
import resource, sys
from tests.triples.test_graph import RECIPE, make_document, make_triples
from pytrace.errors import StoreError
from pytrace.triples.graph import TripleStore
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
stored = 0
try:
    with TripleStore.open(sys.argv[1], recipe=RECIPE) as graph:
        for number in range(5000):
            document = make_document(number)
            graph.add(document, make_triples(document))
            stored = number + 1
except StoreError as error:
    print(stored, error)
"""


def test_a_disk_that_takes_no_more_keeps_what_was_stored(tmp_path: Path) -> None:
    process = start(LIMITED, str(tmp_path))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    stored, message = output.split(" ", 1)
    assert str(tmp_path) in message
    assert "what was stored before is kept" in message
    assert 0 < int(stored) < 5000
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        assert len(graph) == int(stored)
        assert graph.triples() == [t for number in range(int(stored)) for t in make_triples(make_document(number))]
        more = make_document(5000)
        graph.add(more, make_triples(more))


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        fill(graph, 10)
        with graph._database.read() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        big = Document("big", "Big", ("x" * 100_000,))
        with pytest.raises(StoreError, match=r"no space left to write .*graph\.db; what was stored before is kept"):
            graph.add(big, [])
        assert len(graph) == 10
        assert graph.statistics().triples == 40


def test_memory_stays_bounded_over_twenty_thousand_documents(tmp_path: Path) -> None:
    count = 20_000
    with TripleStore.open(tmp_path, recipe=RECIPE) as graph:
        fill(graph, 1000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(count):
            document = make_document(number)
            graph.add(document, make_triples(document))
        assert sum(1 for _ in graph.documents()) == count
        assert sum(1 for _ in graph.iterate_triples()) == 4 * count
        assert graph.statistics().triples == 4 * count
        graph.export(tmp_path / "all.jsonl")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size > 20e6
    # SQLite's cache may fill (16 MiB, for the writer and for the snapshot of the export); the graph may not.
    assert grown < 40 * 1024, f"{grown} KiB"


FORMATS = {"jsonl": ".jsonl", "ntriples": ".nt", "turtle": ".ttl", "tsv": ".tsv"}


@settings(max_examples=40)
@given(corpus=corpora())
@pytest.mark.parametrize("kind", FORMATS)
def test_export_import_export_is_a_fixed_point(
    corpus: list[tuple[Document, list[Unit] | None, ExtractionStatistics | None]],
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("exchange")
    one, two = directory / f"one{FORMATS[kind]}", directory / f"two{FORMATS[kind]}"
    with TripleStore(recipe=RECIPE) as graph, TripleStore() as again:
        store(graph, corpus)
        graph.export(one)
        again.import_(one)
        again.export(two)
        assert two.read_bytes() == one.read_bytes()
        plain = [row_of(triple)[:3] for triple in graph.triples()]
        assert [row_of(triple)[:3] for triple in again.triples()] == plain
        if kind == "jsonl":
            assert contents(again) == corpus
            assert again.recipe == RECIPE
        elif kind != "tsv":
            assert [pair[:2] for pair in contents(again)] == [pair[:2] for pair in corpus]
    shutil.rmtree(directory)


@pytest.mark.parametrize("kind", ["jsonl", "ntriples", "turtle"])
def test_hand_edits_and_waiting_documents_survive_exchange(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"graph{FORMATS[kind]}"
    with TripleStore() as graph, TripleStore() as again:
        documents = fill(graph, 3)
        graph.sync([*documents, make_document(8)])
        graph.replace_triples("d1", [Triple("by", "hand", "edited", sentence=2)])
        assert graph.export(file) == 4
        assert again.import_(file) == 4
        assert [document.id for document in again.pending()] == ["d8"]
        assert [again.is_edited(document.id) for document in documents] == [False, True, False]


def test_shuffled_ntriples_give_the_same_graph(tmp_path: Path) -> None:
    file, shuffled, back = tmp_path / "a.nt", tmp_path / "b.nt", tmp_path / "c.nt"
    with TripleStore() as graph, TripleStore() as again:
        fill(graph, 20)
        graph.export(file)
        lines = file.read_text().splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        shuffled.write_text("".join(lines))
        again.import_(shuffled)
        again.export(back)
        assert back.read_bytes() == file.read_bytes()


def test_rdf_of_other_programs_is_read_as_triples_named_by_label_or_iri(tmp_path: Path) -> None:
    file = tmp_path / "facts.ttl"
    file.write_text(
        """@prefix ex: <http://example.org/things#> .
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        ex:Q1 ex:bornIn ex:Mil%C3%A1n ; ex:age 36 .
        <http://example.org/page/> a ex:Page .
        ex:Q1 rdfs:label "Ada de"@de, "Ada"@en .
        ex:bornIn rdfs:label "born in" .
        _:b1 ex:knows ex:Q1 .
        """
    )
    with TripleStore() as graph:
        assert graph.import_(file) == 1
        assert [row_of(t)[:3] for t in graph.triples()][:3] == [
            ("Ada", "born in", "Milán"),
            ("Ada", "age", "36"),
            ("page", "type", "Page"),
        ]
        assert row_of(graph.triples()[3])[1] == "knows"
        assert {t.document_id for t in graph.triples()} == {"facts.ttl"}


def test_an_export_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "out" / "graph.jsonl"
    target.parent.mkdir()
    target.write_text("old")
    with TripleStore.open(tmp_path / "store", recipe=RECIPE) as graph:
        fill(graph, 300)
        with graph.writer() as writer:
            writer.connection.execute("UPDATE contents SET sentences = '[' WHERE number = 290")
        with pytest.raises(StoreError, match="damaged"):
            graph.export(target)
    assert target.read_text() == "old"
    assert [file.name for file in target.parent.iterdir()] == ["graph.jsonl"]


def test_export_says_where_it_cannot_write(tmp_path: Path) -> None:
    with TripleStore() as graph:
        with pytest.raises(StoreError, match=r"cannot write .*No such file"):
            graph.export(tmp_path / "no" / "such.tsv")
        with pytest.raises(StoreError, match="is a directory"):
            graph.export(tmp_path, format="tsv")
        with pytest.raises(InputError, match="tells no format; name one of jsonl, ntriples, turtle, tsv"):
            graph.export(tmp_path / "graph.xml")
        with pytest.raises(InputError, match="'xml' is no format"):
            graph.export(tmp_path / "graph.xml", format="xml")


@pytest.mark.parametrize(
    ("name", "data", "place", "fault"),
    [
        ("a.tsv", b"a\tb\tc\na\tb\n", ":2:", "2 columns"),
        ("a.tsv", b"a\tb\t\xff\n", ":1:", "not UTF-8"),
        ("a.jsonl", b'{"id": "x", "title": "t"}\n{"id": 3, "title": "t"}\n', ":2:", r"Expected `str`, got `int`"),
        ("a.jsonl", b'{"id": "x"}\n', ":1:", "missing required field `title`"),
        ("a.jsonl", b'\n\n{"id": \n', ":3:", "not JSON"),
        ("a.jsonl", b'{"pytrace_graph": 2, "recipe": {"extractor": "x"}}\n', ":1:", "pytrace_graph"),
        ("a.jsonl", b"[" * 100_000, ":1:", "Expected `object`, got `array`"),
        (
            "a.jsonl",
            b'{"id": "x", "title": "t", "triples": [{"head": "h", "relation": "r", "tail": "t", "sentence": 5}]}\n',
            ":1:",
            "points at sentence 5, but there are 0",
        ),
        (
            "a.jsonl",
            (
                b'{"id": "x", "title": "t", "triples": []}\n{"id": "y", "title": "t", '
                b'"triples": [{"head": "h", "relation": "r", "tail": "t"}]}\n'
            ),
            ":2:",
            "same words as one before it, but other triples",
        ),
        ("a.nt", b"<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b> .\n", ":2:", "IRI|object|subject"),
        ("a.ttl", b"@prefix x: <urn:x> .\n\nx:a x:b y:c .\n", ":3:", "prefix"),
        (
            "a.nt",
            b'<urn:pytrace:sentence:d:0> <http://www.w3.org/1999/02/22-rdf-syntax-ns#value> "x" .\n',
            ":",
            "no document",
        ),
        ("a.nt", b'<urn:pytrace:document:d> <urn:pytrace:vocabulary:position> "0" .\n', ":", "has no title"),
        (
            "a.nt",
            (
                b'<urn:pytrace:document:d> <http://purl.org/dc/terms/title> "x" .\n'
                b'<urn:pytrace:document:d> <http://purl.org/dc/terms/title> "y" .\n'
            ),
            ":",
            "two values",
        ),
        ("a.nt", b"<urn:pytrace:entity:%FF> <urn:b> <urn:c> .\n", ":", "not percent-encoded UTF-8"),
    ],
)
def test_malformed_files_are_data_errors_that_leave_the_graph_as_it_was(
    tmp_path: Path, name: str, data: bytes, place: str, fault: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with TripleStore() as graph:
        documents = fill(graph, 2)
        before = graph.statistics()
        with pytest.raises(DataError, match=fault) as caught:
            graph.import_(file)
        assert str(caught.value).startswith(f"{file}{place}")
        assert caught.value.exit_code == 2
        assert graph.statistics() == before
        assert list(graph.documents()) == documents


def test_missing_and_unreadable_files_are_data_errors(tmp_path: Path) -> None:
    with TripleStore() as graph:
        for name in ("none.jsonl", "none.tsv", "none.nt", "none.ttl"):
            with pytest.raises(DataError, match="cannot be read: No such file"):
                graph.import_(tmp_path / name)
        with pytest.raises(DataError, match="cannot be read: Is a directory"):
            graph.import_(tmp_path, format="tsv")


def test_imports_of_another_recipe_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "graph.jsonl"
    with TripleStore(recipe=RECIPE) as graph:
        fill(graph, 1)
        graph.export(file)
    with TripleStore(recipe=Recipe("other")) as graph:
        fill(graph, 2)
        with pytest.raises(StoreError, match="extractor is 'other' there and 'scripted' here"):
            graph.import_(file)


def test_two_files_of_loose_triples_need_two_names(tmp_path: Path) -> None:
    file = tmp_path / "facts.tsv"
    file.write_bytes(b"\xef\xbb\xbfa\tb\tc\r\n\r\nd\t\te\\tf\n")
    with TripleStore() as graph:
        assert graph.import_(file) == 1
        assert [row_of(t)[:3] for t in graph.triples()] == [("a", "b", "c"), ("d", "", "e\tf")]
        with pytest.raises(InputError, match=r"already has triples of a file named facts\.tsv"):
            graph.import_(file)


@pytest.mark.data
def test_a_real_knowledge_base_comes_through_every_format(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "pathquestion" / "2H-kb.txt"
    facts = [tuple(line.split("\t")) for line in source.read_text().splitlines()]
    with TripleStore() as graph:
        graph.import_(source, format="tsv")
        assert [row_of(t)[:3] for t in graph.triples()] == facts
        for kind, suffix in FORMATS.items():
            file = tmp_path / f"kb{suffix}"
            graph.export(file)
            with TripleStore() as again:
                again.import_(file)
                assert [row_of(t)[:3] for t in again.triples()] == facts, kind


def test_a_graph_keeps_where_its_passages_stand_and_older_graphs_have_none(tmp_path: Path) -> None:
    passages = [
        Document(f"a#{number}", "A", (f"Sentence {number}.",), "a.pdf", Origin("a", "A", ("B",), number, 3, 9, (3,)))
        for number in range(3)
    ]
    whole = Document("b", "B", ("Sentence b.",), "b.txt")
    with TripleStore.open(tmp_path / "graph", recipe=RECIPE, mode="create") as graph:
        graph.sync([*passages, whole])
        assert list(graph.documents()) == [*passages, whole]
        assert graph.document("a#1") == passages[1]
        graph.remove(["a#2"])
        graph.sync([*passages[:2], whole, Document("c", "C", ("Sentence c.",))])
        assert graph.document("c").origin is None, "a number that is given again has no old origin"
        moved = msgspec.structs.replace(passages[0], origin=None)
        graph.sync([moved, *passages[1:2]])
        assert list(graph.documents()) == [moved, passages[1]]
        graph.export(tmp_path / "graph.jsonl")
    with TripleStore.open(tmp_path / "copy", mode="create") as copy:
        copy.import_(tmp_path / "graph.jsonl")
        assert list(copy.documents()) == [moved, passages[1]]


@pytest.mark.parametrize("passages", [False, True])
def test_a_graph_of_the_first_version_is_read_and_gets_checksums_when_it_is_changed(
    tmp_path: Path, passages: bool
) -> None:
    origin = Origin("a", "A", ("B",), 1, 3, 9, (3,)) if passages else None
    documents = [Document(f"a{n}", "A", (f"A lies in {n}.", "More."), "a.pdf", origin) for n in range(3)]
    with TripleStore.open(tmp_path, recipe=RECIPE, mode="create") as graph:
        graph.sync(documents)
        graph.add(documents[1], [Triple("A", "lies in", "1", sentence=0, support=90.0)])
        held = list(graph.documents()), graph.triples(["a1"])
    without_checksums(tmp_path / "graph.db", 1)
    if not passages:  # the table was made when the first passage came
        connection = sqlite3.connect(tmp_path / "graph.db")
        connection.executescript("DROP TRIGGER origins_go; DROP TABLE origins")
        connection.close()
    with TripleStore.open(tmp_path, mode="read") as graph:
        assert (list(graph.documents()), graph.triples(["a1"])) == held
        assert graph.verify() == 0
    with TripleStore.open(tmp_path) as graph:
        assert (list(graph.documents()), graph.triples(["a1"])) == held
        assert graph.recipe == RECIPE
        assert graph.verify() == (11 if passages else 8)
        graph.remove(["a0"])


def test_text_that_was_changed_in_place_is_told_and_is_no_evidence(tmp_path: Path) -> None:
    document = Document("d", "Accra", ("Accra is the capital of Ghana.",), "d.txt", Origin("d", "Accra"))
    with TripleStore.open(tmp_path, recipe=RECIPE, mode="create") as graph:
        graph.add(document, [Triple("Accra", "capital of", "Ghana", sentence=0, support=100.0)])
    content = (tmp_path / "graph.db").read_bytes()
    for words in (b"capital of Ghana.", b"capital ofGhana", b"d.txt", b'"document":"d"'):
        place = content.index(words) + len(words) // 2
        (tmp_path / "graph.db").write_bytes(content[:place] + bytes([content[place] ^ 2]) + content[place + 1 :])
        with TripleStore.open(tmp_path, mode="read") as graph:
            with pytest.raises(StoreError, match="is damaged"):
                assert [graph.document("d"), *graph.triples()]
            with pytest.raises(StoreError, match="is damaged"):
                assert [*graph.triples_about("Accra"), *graph.documents()]
            with pytest.raises(StoreError, match="is damaged"):
                graph.verify()
