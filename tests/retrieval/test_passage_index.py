"""An index of passages: what is added is found, what is removed is gone, and nothing that ends a writer loses what was there."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace.errors import InputError, StoreError
from pytrace.kernels.names import NameTable
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, Origin
from pytrace.retrieval import Bm25Retriever
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.hops import HopSearch
from pytrace.retrieval.passages import IndexWriter, PassageIndex, graph, mentions, segment, writer
from pytrace.retrieval.passages import index as passage_index
from pytrace.retrieval.passages import manifest as manifest_module
from pytrace.retrieval.passages.names import passage_names
from pytrace.retrieval.word_postings import word_hashes

ENCODER = HashEncoder(dimension=32)
PLACES = ("Pellisk", "Quillhaven", "Thornwick", "Orrin Head", "Skarra Isle", "Marsh End", "Low Ferry", "Ash Point")


class CountingEncoder(HashEncoder):
    """Counts the passages that it encodes."""

    def __init__(self) -> None:
        super().__init__(dimension=32)
        self.count = 0

    def encode(self, texts: Sequence[str], *, kind: Any = "passage") -> Any:
        self.count += len(texts) * (kind == "passage")
        return super().encode(texts, kind=kind)


def document(name: str, version: int = 0, passages: int = 1) -> list[Document]:
    """Make a document of several passages that names places."""
    rng = random.Random(f"{name} {version}")
    made = []
    for number in range(passages):
        text = (
            f"{name} {version} lies near {rng.choice(PLACES)}.",
            f"Its mayor, number {rng.random()}, came from {rng.choice(PLACES)}.",
        )
        origin = Origin(name, name.title(), start=10 * number, metadata={"version": version})
        made.append(Document(f"{name}#{number}", name.title(), text, f"{name}.txt", origin))
    return made


def build(directory: Path, documents: dict[str, list[Document]], **options: Any) -> PassageIndex:
    with IndexWriter(directory, ENCODER, create=True, **options) as index:
        index.add(passage for passages in documents.values() for passage in passages)
        index.commit()
    return PassageIndex.open(directory, ENCODER)


def found(index: PassageIndex, question: str) -> list[tuple[str, float]]:
    """Return what all parts of a search find, by the passages' ids."""
    (ranking,) = HopSearch(index, ENCODER).search([question], 10)
    ids = [passage.id for passage in index.passages(ranking.rows)]
    return sorted(zip(ids, np.round(ranking.scores, 6).tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))


def contents(index: PassageIndex) -> dict[str, Document]:
    return {passage.id: passage for passage in index.passages(range(len(index)))}


@pytest.fixture
def documents() -> dict[str, list[Document]]:
    return {name: document(name.lower(), passages=1 + number % 3) for number, name in enumerate(PLACES)}


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few passages fill a batch and a segment, and a few segments be many."""
    monkeypatch.setattr(writer, "_MOST_PENDING", 3)
    monkeypatch.setattr(segment, "MOST_PASSAGES", 8)
    monkeypatch.setattr(writer, "MOST_PASSAGES", 8)
    monkeypatch.setattr(writer, "_BATCH", 3)


def test_what_is_added_is_read_back_and_found(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    index = build(tmp_path / "index", documents)
    given = {passage.id: passage for passages in documents.values() for passage in passages}
    assert contents(index) == given
    assert index.documents == len(documents)
    assert [entry.id for entry in index.entries()] == [name.lower() for name in PLACES]
    texts = list(given.values())
    vectors = ENCODER.encode([segment.encoded_text(passage) for passage in texts])
    questions = ["Which mayor came from Thornwick?", "pellisk"]
    scores, rows = index.nearest(ENCODER.encode(questions), 5)
    exact = ENCODER.encode(questions) @ vectors.T
    for question in range(2):
        assert np.allclose(scores[question], np.sort(exact[question])[::-1][:5], atol=1e-6)
        assert [texts.index(index.passage(row)) for row in rows[question]] == rows[question].tolist()
    index.verify()


@pytest.mark.parametrize(("kind", "error"), [("float16", 2e-3), ("int8", 2e-2)])
def test_narrow_vectors_are_near_the_wide_ones(
    tmp_path: Path, documents: dict[str, list[Document]], kind: Any, error: float
) -> None:
    wide, narrow = build(tmp_path / "wide", documents), build(tmp_path / "narrow", documents, vectors=kind)
    rows = np.arange(len(wide))
    assert np.abs(wide.vectors(rows) - narrow.vectors(rows)).max() < error
    query = ENCODER.encode(["Who came from Ash Point?"])
    assert np.abs(wide.nearest(query, 5)[0] - narrow.nearest(query, 5)[0]).max() < 2 * error


@pytest.mark.usefixtures("small_segments")
def test_words_rank_as_bm25_does(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    index = build(tmp_path / "index", documents)
    assert len(index.segments) > 1
    passages = index.passages(range(len(index)))
    expected = Bm25Retriever(
        [msgspec.structs.replace(each, title="", sentences=(segment.encoded_text(each),)) for each in passages],
        k1=0.9,
        b=0.4,
    ).retrieve(["mayor from Skarra Isle"], 6)[0]
    scores, _ = index.words.top(["mayor from Skarra Isle"], 6)
    assert np.allclose(scores[0], [hit.score for hit in expected], rtol=1e-4)


def test_a_changed_document_encodes_its_new_passages_alone(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    first = {name: document(name, passages=3) for name in ("one", "two", "three")}
    with IndexWriter(tmp_path / "index", encoder, create=True) as index:
        index.add(passage for passages in first.values() for passage in passages)
        assert index.commit() == writer.Changes(added=3, encoded=9)
    changed = [*document("two", passages=3)[:2], *document("two", version=1, passages=3)[2:]]
    encoder.count = 0
    with IndexWriter(tmp_path / "index", encoder) as index:
        index.add([*first["one"], *changed, *first["three"]])
        assert index.commit() == writer.Changes(replaced=1, unchanged=2, encoded=1)
    assert encoder.count == 1
    assert contents(PassageIndex(tmp_path / "index"))["two#2"] == changed[2]


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("seed", range(4))
def test_after_any_changes_searches_equal_those_of_a_clean_build(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    held: dict[str, list[Document]] = {}
    for _ in range(6):
        with IndexWriter(tmp_path / "changed", ENCODER, create=True) as index:
            for _ in range(rng.randrange(5)):
                name = rng.choice(PLACES).lower()
                held[name] = document(name, rng.randrange(3), rng.randrange(1, 4))
                index.add(held[name])
            gone = rng.sample(sorted(held), min(len(held), rng.randrange(3)))
            index.remove(gone)
            for name in gone:
                del held[name]
            index.commit()
    changed, clean = PassageIndex(tmp_path / "changed"), build(tmp_path / "clean", held)
    assert contents(changed) == contents(clean)
    changed.verify()
    for question in ("Which mayor came from Pellisk?", "Where does the mayor of the place near Low Ferry come from?"):
        assert found(changed, question) == found(clean, question)


@pytest.mark.usefixtures("small_segments")
def test_each_passage_has_the_terms_of_its_words(
    tmp_path: Path, documents: dict[str, list[Document]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that steps between terms are too far for one.
    for module in (segment, passage_index):
        monkeypatch.setattr(module, "FAR", 3)
    index = build(tmp_path / "index", documents)
    assert index.graph is not None
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(len(index)), 2))
    terms = index.terms(rows)
    for number, row in enumerate(rows.tolist()):
        expected = np.unique(word_hashes(words(segment.encoded_text(index.passage(row)))))
        ids = terms.values[terms.offsets[number] : terms.offsets[number + 1]]
        assert np.array_equal(index.graph["words"][ids], expected)


@pytest.mark.parametrize("seed", range(6))
def test_links_after_changes_are_those_of_a_clean_build(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(mentions, "_MOST_NEW", 3)
    looked: list[tuple[int, int]] = []
    find = NameTable.find

    def counting(self: NameTable, texts: Sequence[str], **options: Any) -> Any:
        texts_read.append(len(texts))
        return find(self, texts, **options)

    # Names within names: a longer one that comes hides a shorter one, and shows it when it goes.
    words = ("ash", "point", "low", "ferry")
    names = [" ".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(12)]
    held: dict[str, list[Document]] = {}
    for number in range(8):
        with IndexWriter(tmp_path / "changed", ENCODER, create=True) as index:
            for name in rng.sample(names, 12 if number == 0 else 2):
                text = f"It lies by {rng.choice(names)}, near {rng.choice(names)} and {rng.choice(names)} {rng.choice(names)}."
                held[name] = [Document(name, name.title(), (text,))]
                index.add(held[name])
            for name in rng.sample(sorted(held), 1):
                index.remove([name])
                del held[name]
            texts_read: list[int] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(NameTable, "find", counting)
                index.commit()
            looked.append((sum(texts_read), len(held)))
    clean = build(tmp_path / "clean", dict(sorted(held.items())))
    assert linked(PassageIndex(tmp_path / "changed")) == linked(clean)
    # The first time all texts are looked through, and later in some commits fewer than there are.
    assert looked[0][0] == looked[0][1]
    assert any(some < all_texts for some, all_texts in looked[1:])


@pytest.mark.parametrize("seed", range(8))
def test_links_are_those_that_names_and_their_holders_make(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_MOST_CARRIERS", 3)
    rng = random.Random(seed)
    # Several names between two passages, names of several passages, and one of too many.
    names = ["ash", "ash point", "low ferry", "ferry", "marsh end", "old", "old low ferry"]
    given = {}
    for number in range(14):
        title = "old" if number < 4 else rng.choice(names)
        text = f"{rng.choice(names)} lies by {rng.choice(names)}, near {rng.choice(names)} and {title}."
        given[f"{number}"] = [Document(f"{number}", title.title(), (text,))]
    index = build(tmp_path / "index", given)
    assert index.graph is not None
    table = index.graph.table
    passages = [passage for (passage,) in given.values()]
    held = [{table.name(name) for name in table.find([" ".join(words(each.text))]).names} for each in passages]
    carried = [{*passage_names(each)[0], *passage_names(each)[1]} for each in passages]
    expected: dict[tuple[int, int], tuple[float, str]] = {}
    for source, target in itertools.permutations(range(len(passages)), 2):
        between = []
        for name in (held[source] & carried[target]) - carried[source]:
            carriers = sum(name in each for each in carried)
            weight = np.float32(1 / carriers / np.log2(2 + sum(name in each for each in held)))
            if carriers <= 3:
                between.append(
                    (-float(weight), int(np.flatnonzero(table.hashes == NameTable.build([name])[0].hashes)[0]), name)
                )
        if between:
            weight_of_best, _, name = min(between)
            expected[source, target] = -weight_of_best, name
    links = index.graph.links(np.array([5, *range(len(passages)), 5]))
    owners = [5, *range(len(passages)), 5]
    for number, row in enumerate(owners):
        part = slice(int(links.offsets[number]), int(links.offsets[number + 1]))
        others = sorted({other for pair in expected for other in pair if row in pair} - {row})
        others = [other for other in others if (row, other) in expected or (other, row) in expected]
        assert links.rows[part].tolist() == others
        forth = [expected.get((row, other), (0.0, "")) for other in others]
        back = [expected.get((other, row), (0.0, "")) for other in others]
        assert links.forth[part].tolist() == [weight for weight, _ in forth]
        assert links.back[part].tolist() == [weight for weight, _ in back]
        told = [one or other for (_, one), (_, other) in zip(forth, back, strict=True)]
        assert [table.name(name) for name in links.names[part].tolist()] == told
        assert [index.graph.link_name(row, other) for other in others] == told
    assert any(len([pair for pair in expected if pair[0] == row]) > 1 for row in range(len(passages)))


def test_a_single_word_that_the_text_gives_is_a_name_where_few_passages_have_it(tmp_path: Path) -> None:
    def index_of(directory: str, common: int) -> PassageIndex:
        origin = Origin("rook", "scan", titled=False)
        given = {"rook": [Document("rook", "scan", ("Rook was a pilot.",), origin=origin)]}
        given |= {f"{number}": [Document(f"{number}", f"No {number}", ("He met Rook.",))] for number in range(common)}
        return build(tmp_path / directory, given)

    few, many = index_of("few", 4), index_of("many", 9)
    assert few.graph is not None
    assert many.graph is not None
    assert few.graph.links(np.array([0])).rows.tolist() == [1, 2, 3, 4]
    assert many.graph.links(np.array([0])).rows.tolist() == []
    assert len(few.graph.find(["rook"]).names) == 1
    assert len(many.graph.find(["rook"]).names) == 0
    # As more passages have the word, it is a name no more, and is one again when they go.
    with IndexWriter(tmp_path / "few", ENCODER) as index:
        for number in range(4, 9):
            index.add([Document(f"{number}", f"No {number}", ("He met Rook.",))])
        index.commit()
    assert linked(PassageIndex(tmp_path / "few")) == linked(many)
    with IndexWriter(tmp_path / "few", ENCODER) as index:
        index.remove([f"{number}" for number in range(4, 9)])
        index.commit()
    assert linked(PassageIndex(tmp_path / "few")) == linked(few)


def linked(index: PassageIndex) -> set[tuple[str, str, float, float, str]]:
    """Return all links by the ids of their passages, with both weights and the name."""
    graph = index.graph
    assert graph is not None
    ids = [passage.id for passage in index.passages(range(len(index)))]
    links = graph.links(np.arange(len(index)))
    owners = np.repeat(np.arange(len(index)), np.diff(links.offsets))
    return {
        (ids[row], ids[other], forth, back, graph.table.name(name))
        for row, other, forth, back, name in zip(owners.tolist(), *map(np.ndarray.tolist, links[1:]), strict=True)
    }


@pytest.mark.usefixtures("small_segments")
def test_merged_indexes_find_what_one_of_all_documents_finds(
    tmp_path: Path, documents: dict[str, list[Document]]
) -> None:
    names = list(documents)
    for number in range(3):
        build(tmp_path / f"{number}", {name: documents[name] for name in names[number::3]})
    encoder = CountingEncoder()
    # One document is there, older, and one is the same.
    changed, same = names[1], names[2]
    with IndexWriter(tmp_path / "merged", encoder, create=True) as writer:
        writer.add([*document(changed.lower(), version=9, passages=2), *documents[same]])
        writer.commit()
        before = encoder.count
        for number in range(3):
            writer.merge(tmp_path / f"{number}")
        changes = writer.commit()
    assert encoder.count == before
    assert (changes.added, changes.replaced, changes.unchanged) == (len(names) - 2, 1, 1)
    merged, clean = PassageIndex(tmp_path / "merged"), build(tmp_path / "clean", documents)
    merged.verify()
    assert contents(merged) == contents(clean)
    for question in ("Which mayor came from Pellisk?", "What lies near Ash Point?"):
        assert found(merged, question) == found(clean, question)


def test_a_document_larger_than_a_segment_is_merged_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_PASSAGES", 4)
    large = {"long": document("long", passages=11), "short": document("short")}
    build(tmp_path / "other", large)
    with IndexWriter(tmp_path / "merged", ENCODER, create=True) as index:
        for _ in range(2):
            index.merge(tmp_path / "other")
            index.commit()
    assert contents(PassageIndex(tmp_path / "merged")) == contents(PassageIndex(tmp_path / "other"))


def test_what_cannot_be_merged_is_told_and_changes_nothing(
    tmp_path: Path, documents: dict[str, list[Document]]
) -> None:
    before = contents(build(tmp_path / "index", documents))
    build(tmp_path / "narrow", {"a": document("a")}, vectors="int8")
    with IndexWriter(tmp_path / "wide", HashEncoder(dimension=64), create=True) as other:
        other.add(document("b"))
        other.commit()
    build(tmp_path / "damaged", {"c": document("c")})
    (path,) = (tmp_path / "damaged").glob("passages-*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        for name, told in (
            ("narrow", "keeps vectors as int8"),
            ("wide", "encoder"),
            ("damaged", "damaged"),
            ("nothing", "there is no index"),
        ):
            with pytest.raises(StoreError, match=told):
                index.merge(tmp_path / name)
        index.commit()
    assert contents(PassageIndex(tmp_path / "index")) == before


def test_a_document_larger_than_a_segment_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_PASSAGES", 4)
    large = document("long", passages=11)
    assert build(tmp_path / "index", {"long": large, "short": document("short")}).documents == 2
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        assert index.documents == 2
        index.add(large)
        index.remove_unseen()
        assert index.commit() == writer.Changes(unchanged=1, removed=1)
    changed = [*large[:10], *document("long", version=1, passages=11)[10:]]
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.add(changed)
        assert index.commit() == writer.Changes(replaced=1, encoded=1)
    assert contents(PassageIndex(tmp_path / "index")) == {passage.id: passage for passage in changed}
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.remove(["long"])
        assert index.commit() == writer.Changes(removed=1)
    assert len(PassageIndex(tmp_path / "index")) == 0


def test_documents_whose_ids_share_a_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ids of one length have one hash; texts, which are longer, have their own.
    for module in (segment, writer):
        monkeypatch.setattr(
            module,
            "hash_texts",
            lambda texts: np.array([len(text) if len(text) < 5 else hash(text) for text in texts], np.int64).view(
                np.uint64
            ),
        )
    first = {name: document(name) for name in ("a", "b", "c", "dd")}
    build(tmp_path / "index", first)
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.add([*first["b"], *document("c", version=1), *document("e")])
        index.remove(["a"])
        with pytest.raises(InputError, match="there is no document 'f'"):
            index.remove(["f"])
        assert index.commit() == writer.Changes(added=1, replaced=1, unchanged=1, removed=1, encoded=2)
    expected = {"b": first["b"], "dd": first["dd"], "c": document("c", version=1), "e": document("e")}
    held = {passage.id: passage for passages in expected.values() for passage in passages}
    assert contents(PassageIndex(tmp_path / "index")) == held
    build(tmp_path / "other", {"c": document("c", version=2), "b": first["b"], "g": document("g")})
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.merge(tmp_path / "other")
        index.commit()
    held |= {"c#0": document("c", version=2)[0], "g#0": document("g")[0]}
    assert contents(PassageIndex(tmp_path / "index")) == held


def test_what_was_given_counts_before_it_is_written(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as index:
        index.add([*document("a"), *document("b"), *document("a", version=1)])
        assert index.documents == 2
        index.remove(["b"])
        index.add(document("a", version=1))
        assert index.documents == 1
        assert index.commit() == writer.Changes(added=2, replaced=1, unchanged=1, removed=1, encoded=1)
    assert contents(PassageIndex(tmp_path / "index")) == {"a#0": document("a", version=1)[0]}


def test_sync_removes_what_is_gone(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    build(tmp_path / "index", documents)
    kept = [passage for name in PLACES[:3] for passage in documents[name]]
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.add(kept)
        index.remove_unseen()
        assert index.commit() == writer.Changes(unchanged=3, removed=5)
    assert set(contents(PassageIndex(tmp_path / "index"))) == {passage.id for passage in kept}


def test_what_is_removed_stands_nowhere_on_the_disk(tmp_path: Path) -> None:
    secret = Document("secret", "Zyzzyva", ("The zyzzyva hides below the quay.",))
    build(tmp_path / "index", {"a": document("a"), "secret": [secret]})
    (name,), _ = passage_names(secret)
    hashes = [*word_hashes(["secret"]), *word_hashes(words(segment.encoded_text(secret)))]
    traces = [name.encode(), b"secret", b"Zyzzyva", *(number.tobytes() for number in hashes)]
    traces += [NameTable.build([name])[0].hashes.tobytes()]
    kept = [number.tobytes() for number in word_hashes(words(segment.encoded_text(document("a")[0])))]

    def stored() -> bytes:
        return b"".join(path.read_bytes() for path in (tmp_path / "index").iterdir())

    assert all(trace in stored() for trace in traces)
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.remove(["secret"])
        index.commit()
    left = stored()
    assert [trace for trace in traces if trace in left and trace not in kept] == []
    index = PassageIndex(tmp_path / "index")
    assert [passage.id for passage in index.passages(range(len(index)))] == ["a#0"]


def test_an_unknown_id_removes_nothing(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    build(tmp_path / "index", documents)
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        with pytest.raises(InputError, match="there is no document 'nobody' and 1 others"):
            index.remove(["pellisk", "nobody", "nothing"])
        assert index.commit() == writer.Changes()
    assert len(contents(PassageIndex(tmp_path / "index"))) == sum(map(len, documents.values()))


def test_a_reader_keeps_what_it_opened(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    before = build(tmp_path / "index", documents)
    known = contents(before), found(before, "Which mayor came from Pellisk?")
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.remove([name.lower() for name in PLACES[1:]])
        index.commit()
    assert (contents(before), found(before, "Which mayor came from Pellisk?")) == known
    assert len(PassageIndex(tmp_path / "index")) == len(documents["Pellisk"])


@pytest.mark.usefixtures("small_segments")
def test_nothing_is_seen_before_commit(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    build(tmp_path / "index", {"a": document("a")})
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.add(passage for passages in documents.values() for passage in passages)
        assert set(contents(PassageIndex(tmp_path / "index"))) == {"a#0"}
    assert set(contents(PassageIndex(tmp_path / "index"))) == {"a#0"}


def test_a_killed_build_has_lost_a_few_seconds_of_encoding(tmp_path: Path) -> None:
    given = [passage for number in range(300) for passage in document(f"doc {number}")]
    code = """
import sys, time
from pathlib import Path
from tests.retrieval.test_passage_index import *

class Slow(HashEncoder):
    def encode(self, texts, *, kind="passage"):
        time.sleep(0.01 * len(texts))
        return super().encode(texts, kind=kind)

with IndexWriter(Path(sys.argv[1]), Slow(dimension=32), create=True) as index:
    index.add(passage for number in range(300) for passage in document(f"doc {number}"))
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "index"], cwd=Path(__file__).parents[2])
    while not [*(tmp_path / "index").glob("passages-*.arrays")]:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)  # the manifest that names it
    process.kill()
    process.wait()
    encoder = CountingEncoder()
    with IndexWriter(tmp_path / "index", encoder, create=True) as index:
        index.add(given)
        index.commit()
    assert encoder.count <= 300 - 128


def test_an_index_that_was_killed_before_its_first_manifest_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "passages.json.new").write_bytes(b"{")
    assert len(build(tmp_path, {"a": document("a")})) == 1


def test_a_second_writer_is_told_who_holds_the_index(tmp_path: Path) -> None:
    build(tmp_path / "index", {"a": document("a")})
    with (
        IndexWriter(tmp_path / "index", ENCODER),
        pytest.raises(StoreError, match=rf"being written by another process \(number {os.getpid()}\)"),
    ):
        IndexWriter(tmp_path / "index", ENCODER)
    IndexWriter(tmp_path / "index", ENCODER).close()


def test_a_long_build_keeps_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_BATCH", 4)
    monkeypatch.setattr(writer, "_MOST_PENDING", 5)
    given = {f"doc {number}": document(f"doc {number}") for number in range(100)}
    most = 0
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as index:
        for name, passages in given.items():
            index.add(passages)
            most = max(most, len(list((tmp_path / "index").glob("*.arrays"))))
            if name == "doc 50":
                index.remove(["doc 3", "doc 50"])
                index.add(given["doc 3"])
        index.commit()
    assert most <= 6
    held = contents(PassageIndex(tmp_path / "index"))
    assert set(held) == {f"{name}#0" for name in given} - {"doc 50#0"}


def test_vectors_of_another_kind_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "index", {"a": document("a")}, vectors="int8")
    with pytest.raises(StoreError, match="keeps vectors as int8, not as float16"):
        IndexWriter(tmp_path / "index", ENCODER, create=True, vectors="float16")
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as index:
        index.add(document("b"))
        index.commit()
    assert PassageIndex(tmp_path / "index").manifest.vectors == "int8"


def test_a_commit_without_changes_writes_nothing(tmp_path: Path) -> None:
    before = build(tmp_path / "index", {"a": document("a")}).manifest
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.add(document("a"))
        assert index.commit() == writer.Changes(unchanged=1)
    assert PassageIndex(tmp_path / "index").manifest == before


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "index", {"a": document("a")})
    with pytest.raises(StoreError, match="was made with encoder 'hash'"):
        PassageIndex.open(tmp_path / "index", HashEncoder(dimension=16))
    with pytest.raises(StoreError, match="was made with encoder 'hash'"):
        IndexWriter(tmp_path / "index", HashEncoder(dimension=16))


def test_places_without_an_index_are_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no index at .*none; check the path"):
        PassageIndex(tmp_path / "none")
    with pytest.raises(StoreError, match=r"there is no index at .*none; check the path"):
        IndexWriter(tmp_path / "none", ENCODER)
    (tmp_path / "letter.txt").write_text("Dear Ada")
    with pytest.raises(StoreError, match=r"holds other files \(letter\.txt\)"):
        IndexWriter(tmp_path, ENCODER, create=True)
    assert (tmp_path / "letter.txt").read_text() == "Dear Ada"
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_index_of_nothing_finds_nothing(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", ENCODER, create=True):
        pass
    with pytest.raises(StoreError, match="has not been built to its end"):
        PassageIndex(tmp_path / "index")
    index = build(tmp_path / "index", {})
    assert len(index) == 0
    assert found(index, "Anything?") == []
    index.verify()


@pytest.mark.parametrize("name", ["line\nbreak", "tab\there", "ünïcode", "\ud800 alone", "a" * 5000, "../up", "#1"])
def test_ids_of_any_form_are_kept(tmp_path: Path, name: str) -> None:
    index = build(tmp_path / "index", {"x": [Document(name, "T", ("A text.",))], "y": document("y")})
    assert name in contents(index)
    with IndexWriter(tmp_path / "index", ENCODER) as changed:
        changed.remove([name])
        changed.commit()
    assert set(contents(PassageIndex(tmp_path / "index"))) == {"y#0"}


def test_documents_without_id_or_text_are_refused(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as index:
        with pytest.raises(InputError, match="document '' has no id"):
            index.add([Document("", "T", ("Text.",))])
        with pytest.raises(InputError, match="document 'a' has no text"):
            index.add([Document("a", "T", ())])
    with pytest.raises(InputError, match=r"the sentences of document 'a' are one text; give a tuple of them"):
        Document("a", "T", "Text.")  # type: ignore[arg-type]


def test_the_last_of_several_documents_with_one_id_stays(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as index:
        index.add([*document("a", passages=2), *document("b"), *document("a", version=1)])
        index.commit()
    held = contents(PassageIndex(tmp_path / "index"))
    assert set(held) == {"a#0", "b#0"}
    assert held["a#0"] == document("a", version=1)[0]


@pytest.mark.usefixtures("small_segments")
def test_filters_say_which_passages_may_be_found(tmp_path: Path) -> None:
    index = build(tmp_path / "index", {name: document(name, version) for version, name in enumerate("abcdefghij")})
    mask = index.mask(["version>=7"])
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == [7, 8, 9]
    _, rows = index.nearest(ENCODER.encode(["mayor"]), 5, mask=mask)
    assert sorted(rows[0].tolist()) == [-1, -1, 7, 8, 9]
    (ranking,) = HopSearch(index, ENCODER).search(["Which mayor came from Pellisk?"], 10, where=["version>=7"])
    assert set(ranking.rows) <= {7, 8, 9}
    assert ranking.rows
    (none,) = HopSearch(index, ENCODER).search(["Which mayor?"], 10, where=["version>=99"])
    assert none.rows == ()


def test_any_flipped_byte_is_found_and_none_ends_the_process(
    tmp_path: Path, documents: dict[str, list[Document]], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "index", documents)
    monkeypatch.setattr(manifest_module, "SMALL", 0)  # as large files are opened
    rng = random.Random(7)
    files = sorted(path for path in (tmp_path / "index").iterdir() if path.name != "passages.lock")
    for path in files:
        content = path.read_bytes()
        for place in rng.sample(range(len(content)), 40):
            damaged = bytearray(content)
            if place % 2:
                damaged[place] ^= 1 << rng.randrange(8)
            else:
                # A page of the disk that is gone; its last byte is another one than before in any case.
                end = min(place + 4096, len(content))
                damaged[place:end] = rng.choice([b"\xff", b"\x00"]) * (end - place)
                damaged[end - 1] = content[end - 1] ^ 1
            path.write_bytes(damaged)
            try:
                with PassageIndex(tmp_path / "index") as index:
                    # What is damaged finds something else, or is told, and never crashes.
                    with suppress(StoreError, RuntimeWarning):
                        found(index, "Which mayor came from Pellisk?")
                    with pytest.raises(StoreError):
                        index.verify()
            except StoreError:
                pass
            path.write_bytes(content)
    PassageIndex(tmp_path / "index").verify()


def test_an_id_that_was_never_there_is_told_from_one_that_is_damaged(
    tmp_path: Path, documents: dict[str, list[Document]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with build(tmp_path / "index", documents) as index:
        (entry,) = index.manifest.segments
        ids = index.segments[0].ids
    path = tmp_path / "index" / entry.name
    content = path.read_bytes()
    place = content.index(ids.tobytes())
    monkeypatch.setattr(manifest_module, "SMALL", 0)  # as large files are opened
    with (
        IndexWriter(tmp_path / "index", ENCODER) as writer,
        pytest.raises(InputError, match="there is no document 'x'"),
    ):
        writer.remove(["x"])
    path.write_bytes(content[:place] + bytes(len(ids) * 8) + content[place + len(ids) * 8 :])
    told = rf"{entry.name} is damaged in array 'ids'"
    with IndexWriter(tmp_path / "index", ENCODER) as writer, pytest.raises(StoreError, match=told):
        writer.remove([next(iter(documents))])


def test_what_is_damaged_is_not_written_anew(
    tmp_path: Path, documents: dict[str, list[Document]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index" / build(tmp_path / "index", documents).manifest.segments[0].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(manifest_module, "SMALL", 0)  # else it is told at opening
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.remove(["pellisk"])
        with pytest.raises(StoreError, match="damaged"):
            index.commit()
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_nothing_is_taken_over_from_a_damaged_graph(
    tmp_path: Path, documents: dict[str, list[Document]], damage: str
) -> None:
    entry = build(tmp_path / "index", documents).manifest.graph
    assert entry is not None
    path = tmp_path / "index" / entry.name
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 3, len(content), 5):
        content[place] ^= 1
    path.unlink()
    if damage == "flipped":
        path.write_bytes(content)
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.add(document("new"))
        index.commit()
    after, clean = PassageIndex(tmp_path / "index"), build(tmp_path / "clean", {**documents, "new": document("new")})
    after.verify()
    assert linked(after) == linked(clean)
    assert found(after, "Which mayor came from Pellisk?") == found(clean, "Which mayor came from Pellisk?")


def test_a_file_that_was_cut_off_is_told(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    index = build(tmp_path / "index", documents)
    path = tmp_path / "index" / index.manifest.segments[0].name
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreError, match="was cut off"):
        index.passage(0)
    with pytest.raises(StoreError, match="was cut off"):
        PassageIndex(tmp_path / "index")


WRITE = textwrap.dedent(
    """
    import resource, sys
    from pathlib import Path
    from pytrace.errors import StoreError
    from pytrace.retrieval.passages import IndexWriter, writer
    from tests.retrieval.test_passage_index import ENCODER, document
    writer._BATCH = 2
    directory, limit, first = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        with IndexWriter(directory, ENCODER, create=True) as index:
            for round in range(first, first + 200):
                index.add(document(f"doc {round}", passages=2))
                if round % 3 == 1 and round > first + 2:
                    index.remove([f"doc {round - 2}"])
                    print("removed", round - 2, flush=False)
                index.commit()
                print("committed", round, flush=True)
    except StoreError as error:
        print(error)
        sys.exit(3)
    """
)


def write(directory: Path, limit: int = 0, first: int = 0, within: Sequence[str] = ()) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    arguments = [*within, sys.executable, "-c", WRITE, str(directory), str(limit), str(first)]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)


def acknowledged(lines: Iterator[str]) -> tuple[set[str], set[str]]:
    """Return the documents that a writer said it had committed, and those that it may have removed since."""
    held: set[str] = set()
    waiting: set[str] = set()
    for line in lines:
        verb, _, number = line.strip().partition(" ")
        if verb == "removed":
            waiting.add(f"doc {number}")
        elif verb == "committed":
            held = (held - waiting) | {f"doc {number}"}
            waiting = set()
    return held, waiting


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path, seed: int) -> None:
    with write(tmp_path / "index", first=1000 * seed) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]  # it has begun
        time.sleep(random.Random(seed).random())
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    held, waiting = acknowledged(iter(lines))
    assert held
    index = PassageIndex(tmp_path / "index")
    index.verify()
    ids = [passage.id for passage in index.passages(range(len(index)))]
    assert len(ids) == len(set(ids))
    there = {entry.id for entry in index.entries()}
    # The document of the commit that it was in may be there or not, and so may what this commit removed.
    assert held - waiting <= there
    assert len(there - held) <= 1
    clean = {name: document(name, passages=2) for name in sorted(there, key=lambda name: int(name[4:]))}
    question = "Which mayor came from Pellisk?"
    assert found(index, question) == found(build(tmp_path / "clean", clean), question)
    # The next writer goes on, and leaves nothing of the killed one.
    with IndexWriter(tmp_path / "index", ENCODER) as next_writer:
        next_writer.commit()
    manifest = PassageIndex(tmp_path / "index").manifest
    others = {"passages.json", "passages.lock"}
    assert {path.name for path in (tmp_path / "index").iterdir()} == manifest.files | others


@pytest.mark.parametrize("limit", [1 << 12, 1 << 14, 1 << 15, 1 << 16])
def test_a_full_disk_leaves_the_index_as_it_was(tmp_path: Path, limit: int) -> None:
    build(tmp_path / "index", {"a": document("a")})
    before = contents(PassageIndex(tmp_path / "index"))
    process = write(tmp_path / "index", limit)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    last = output.splitlines()[-1]
    assert "write" in last
    assert "Traceback" not in output
    held, waiting = acknowledged(iter(output.splitlines()))
    index = PassageIndex(tmp_path / "index")
    index.verify()
    there = {entry.id for entry in index.entries()}
    assert held - waiting <= there
    assert before.items() <= contents(index).items()


@pytest.mark.parametrize("kilobytes", [16, 64, 100, 160, 256])
def test_a_disk_that_fills_leaves_what_was_committed(tmp_path: Path, kilobytes: int) -> None:
    private = ["unshare", "--mount", "--map-root-user"]
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(
            [*private, "mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount file systems of its own")
    # What is on the disk goes with the process, so that it is copied out at the end.
    script = f'mount -t tmpfs -o size={kilobytes}k none $0 || exit 9; "$@"; code=$?; cp -r $0/index $0.kept; exit $code'
    process = write(disk / "index", within=[*private, "sh", "-c", script, str(disk)])
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 3, output
    assert "No space left on device" in output.splitlines()[-1]
    assert "Traceback" not in output
    held, waiting = acknowledged(iter(output.splitlines()))
    kept = tmp_path / "disk.kept"
    if not held:  # nothing was ever committed
        with pytest.raises(StoreError, match=r"has not been built to its end|there is no index"):
            PassageIndex(kept)
        return
    index = PassageIndex(kept)
    index.verify()
    there = {entry.id for entry in index.entries()}
    assert held - waiting <= there
    assert len(there - held) <= 1
    # With room again, the next writer goes on.
    with IndexWriter(kept, ENCODER) as next_writer:
        next_writer.add(document("one more"))
        next_writer.commit()
    assert "one more" in {entry.id for entry in PassageIndex(kept).entries()}


@pytest.mark.usefixtures("small_segments")
def test_a_build_that_was_killed_goes_on_without_encoding_again(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    given = [passage for name in PLACES for passage in document(name, passages=3)]
    with IndexWriter(tmp_path / "index", encoder, create=True) as index:
        index.add(given[:12])
    assert encoder.count == 12
    with pytest.raises(StoreError, match="has not been built to its end"):
        PassageIndex(tmp_path / "index")
    with IndexWriter(tmp_path / "index", encoder, create=True) as index:
        index.add(given)
        assert index.commit().encoded == 12
    assert set(contents(PassageIndex(tmp_path / "index"))) == {passage.id for passage in given}


def test_names_are_titles_headings_and_what_the_first_sentence_tells_of() -> None:
    origin = Origin("d", "The Marigold Tern (ship)")
    passage = Document("d#1", "The Marigold Tern (ship) > Crew", ("Its captain is Ada Venn.",), origin=origin)
    assert passage_names(passage) == (["marigold tern", "crew"], [])
    untitled = Document(
        "e",
        "scan0001",
        ("Onika Tanya Maraj, known as Nicki Minaj, is a rapper.",),
        origin=Origin("e", "scan0001", titled=False),
    )
    assert passage_names(untitled) == ([], ["onika tanya maraj", "onika maraj", "nicki minaj"])
    accents = Document("g", "Akinoshū Kenji", ("Er stammt aus São Paulo.",))
    assert passage_names(accents)[0] == ["akinoshū kenji"]
    assert "akinoshu kenji" in passage_names(accents)[1]
    assert passage_names(Document("h", "東京タワー", ("高い。",)))[1] == []
    german = Document(
        "f", "Fähre", ("Ada Venn ist eine Fähre.",), origin=Origin("f", "Fähre", metadata={"language": "de"})
    )
    assert passage_names(german) == (["fähre"], ["fahre"])
    named = Origin(
        "i",
        "Marigold Tern",
        metadata={"aliases": ["The Old Tern", "MT 4"]},
        names=("Ada Venn", "Marigold Tern", "São Vale"),
    )
    assert passage_names(Document("i", "Marigold Tern", ("She sails.",), origin=named)) == (
        ["marigold tern", "old tern", "mt 4"],
        ["ada venn", "são vale", "sao vale"],
    )
    alias = Origin("j", "Tern", metadata={"aliases": "Ternie"})
    assert passage_names(Document("j", "Tern", ("She sails.",), origin=alias))[0] == ["tern", "ternie"]
