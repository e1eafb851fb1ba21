"""The sentence index against plain distances, and against kills, full disks, damage, company and broken encoders."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import read_documents
from pytrace.errors import InputError, MissingDependencyError, ModelError, StoreError
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, Sentence
from pytrace.retrieval import SentenceHit, SentenceIndex
from pytrace.retrieval import neighbour_graph as graphs
from pytrace.retrieval.neighbour_graph import NeighbourGraph

DIMENSION = 6
MANY = 4_500
"""From so many on a graph is really searched: among fewer, looking at all is cheaper than its narrowest search."""


class Points:
    """Gives each number its own vector; text that is no number gives NaN."""

    name = "points"

    def __init__(self, fingerprint: str = "points-1", dimension: int = DIMENSION) -> None:
        self.fingerprint, self.dimension = fingerprint, dimension

    def encode(self, texts: Sequence[str], *, kind: str = "passage") -> np.ndarray[Any, Any]:
        del kind
        vectors = np.full((len(texts), self.dimension), np.nan, dtype=np.float32)
        for row, text in enumerate(texts):
            if text.isdecimal():
                vectors[row] = np.random.default_rng(int(text)).standard_normal(self.dimension, dtype=np.float32)
        return vectors


def sentences(numbers: Any) -> list[Sentence]:
    return [Sentence(f"document {number // 3}", number % 3, str(number)) for number in numbers]


def texts(index: SentenceIndex) -> list[str]:
    """Read all sentences in their order, whatever is nearest."""
    (hits,) = index.search(np.zeros((1, DIMENSION), dtype=np.float32), max(len(index), 1))
    return [hit.sentence.text for hit in sorted(hits, key=lambda hit: hit.index)]


def check(directory: Path, numbers: Any) -> None:
    """The index holds exactly these numbers, with their vectors, and is undamaged."""
    with SentenceIndex.open(directory, Points()) as index:
        index.verify()
        assert texts(index) == [str(number) for number in numbers]
        for number in list(numbers)[-3:]:
            (hit,) = index.search([str(number)], 1)[0]
            assert (hit.sentence, hit.distance) == (sentences([number])[0], 0.0)


def exact(vectors: Any, queries: Any, k: int) -> list[list[int]]:
    distances = np.linalg.norm(vectors[None].astype(np.float64) - queries[:, None], axis=2)
    return [np.lexsort((np.arange(len(row)), row))[:k].tolist() for row in distances]


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python that has the helpers of this file, and the index's directory as `place`."""
    start = "import sys; from pathlib import Path; from tests.retrieval.test_sentence_index import *; place = Path(sys.argv[1]);"
    return subprocess.Popen(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def ended_well(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate()
    assert process.returncode == 0, said


@given(st.lists(st.integers(0, 9), max_size=25), st.lists(st.integers(0, 12), max_size=4), st.integers(1, 30))
def test_it_finds_what_a_plain_search_finds_and_equal_ones_by_their_place(
    numbers: list[int], queries: list[int], k: int
) -> None:
    encoder = Points()
    index = SentenceIndex(encoder)
    assert index.extend(iter(sentences(numbers[:7]))) == len(numbers[:7])
    index.extend(sentences(numbers[7:]))
    assert len(index) == len(numbers)
    asked = [str(number) for number in queries]
    found = index.search(asked, k)
    vectors, own = encoder.encode([str(number) for number in numbers]), encoder.encode(asked)
    assert [[hit.index for hit in hits] for hits in found] == exact(vectors, own, k)
    for hits, vector in zip(found, own, strict=True):
        for hit in hits:
            assert hit.sentence == sentences(numbers)[hit.index]
            assert hit.distance == pytest.approx(float(np.linalg.norm(vectors[hit.index] - vector)), abs=1e-5)
    assert index.search(own, k) == found


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    """Vectors in clusters, a fifth of them many times over, and queries that are none of them."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((60, 24))
    spread = centres[rng.integers(0, 60, 6_000)] + 0.4 * rng.standard_normal((6_000, 24))
    vectors = spread.astype(np.float32)
    vectors[1_000:1_700], vectors[1_700:2_200] = vectors[7], vectors[5_999]
    queries = (centres[rng.integers(0, 60, 50)] + 0.4 * rng.standard_normal((50, 24))).astype(np.float32)
    queries[0], queries[1] = vectors[7], vectors[5_999]
    return {"vectors": vectors, "queries": queries, "sentences": [Sentence("d", n, str(n)) for n in range(6_000)]}


class Table(Points):
    """Gives number n the n-th row of a table."""

    def __init__(self, vectors: Any) -> None:
        super().__init__("table", vectors.shape[1])
        self._vectors = vectors

    def encode(self, texts: Sequence[str], *, kind: str = "passage") -> Any:
        del kind
        return self._vectors[[int(text) for text in texts]].reshape(len(texts), -1)


def rows(found: list[list[SentenceHit]]) -> list[list[int]]:
    return [[hit.index for hit in hits] for hits in found]


@pytest.mark.parametrize("k", [1, 10, 20])
def test_the_graph_finds_what_the_exact_search_finds(
    large: dict[str, Any], k: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Table(large["vectors"])
    plain = SentenceIndex(encoder)
    plain.extend(large["sentences"])
    searched = []
    original = NeighbourGraph._search

    def search(*arguments: Any) -> Any:
        searched.append(1)
        return original(*arguments)

    monkeypatch.setattr(NeighbourGraph, "_search", search)
    # The first 5,000 stand in the graph, the others come too late for it.
    with SentenceIndex.build(tmp_path, large["sentences"][:5_000], encoder, exact_below=MANY) as built:
        built.extend(large["sentences"][5_000:])
        expected = plain.search(large["queries"], k)
        searched.clear()
        found = built.search(large["queries"], k)
        # k = 20 asks for so wide a search that all are looked at.
        assert bool(searched) == (k <= 10)
        assert built.recall >= 0.99
        same = np.mean([len(set(a) & set(b)) / k for a, b in zip(rows(found), rows(expected), strict=True)])
        assert same >= 0.99
        # Of equal vectors the first ones, though the graph has only one of them.
        assert found[:2] == expected[:2]
        for mine, theirs in zip(found, expected, strict=True):
            if rows([mine]) == rows([theirs]):
                assert mine == theirs
        assert built.search(large["queries"][3:4], k) == found[3:4]
    with SentenceIndex.open(tmp_path, encoder, exact_below=MANY) as opened:
        assert opened.search(large["queries"], k) == found
        opened.verify()
    with SentenceIndex.open(tmp_path, encoder) as opened:  # 6,000 are below the default's border
        assert opened.search(large["queries"], k) == expected


def test_crossing_the_border_builds_the_graph_and_growing_replaces_it(large: dict[str, Any], tmp_path: Path) -> None:
    encoder = Table(large["vectors"])

    def graph_files() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("index-*"))

    with SentenceIndex.build(tmp_path, large["sentences"][:1_999], encoder, exact_below=2_000) as index:
        assert graph_files() == []
        index.extend(large["sentences"][1_999:2_000])
        assert graph_files() == ["index-2000.graph", "index-2000.twins"]
        reader = SentenceIndex.open(tmp_path, encoder, exact_below=2_000)
        index.extend(large["sentences"][2_000:3_999])
        assert graph_files() == ["index-2000.graph", "index-2000.twins"]
        index.extend(large["sentences"][3_999:5_000])
        assert graph_files() == ["index-5000.graph", "index-5000.twins"]
    with SentenceIndex.open(tmp_path, encoder, exact_below=2_000) as index:
        plain = SentenceIndex(encoder)
        plain.extend(large["sentences"][:5_000])
        same = [
            set(a) == set(b)
            for a, b in zip(
                rows(index.search(large["queries"], 5)), rows(plain.search(large["queries"], 5)), strict=True
            )
        ]
        assert np.mean(same) >= 0.95
    # Whoever opened it before goes on with what there was, though its graph's file is gone.
    with reader:
        assert len(reader) == 2_000
        assert max(row for own in rows(reader.search(large["queries"], 5)) for row in own) < 2_000


def test_vectors_without_structure_are_searched_as_widely_as_it_takes() -> None:
    vectors = np.random.default_rng(0).standard_normal((6_000, 200), dtype=np.float32)
    graph = NeighbourGraph(200)
    graph.grow(vectors)
    assert graph.width > 200
    assert graph.recall >= 0.998
    queries = np.random.default_rng(1).standard_normal((20, 200), dtype=np.float32)
    assert (
        np.mean(
            [
                set(a) == set(b)
                for a, b in zip(
                    graph.nearest(queries, vectors, 10)[1].tolist(), exact(vectors, queries, 10), strict=True
                )
            ]
        )
        >= 0.9
    )


def test_a_graph_that_leads_nowhere_falls_back_to_looking_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).standard_normal((5_000, 4), dtype=np.float32)
    graph = NeighbourGraph(4)
    graph.grow(vectors)

    class Nowhere:
        def __getattr__(self, name: str) -> Any:
            def call(*_: Any, **__: Any) -> Any:
                if name == "knn_query":
                    raise RuntimeError("Cannot return the results in a contiguous 2D array")
                return 5_000

            return call

    monkeypatch.setattr(graph, "_index", Nowhere())
    assert graph.nearest(vectors[:3], vectors, 2)[1].tolist() == exact(vectors, vectors[:3], 2)


def test_it_is_saved_opened_extended_and_saved_again(tmp_path: Path) -> None:
    index = SentenceIndex(Points())
    index.save(tmp_path / "empty")
    check(tmp_path / "empty", [])
    index.extend(sentences(range(10)))
    index.save(tmp_path / "a" / "b")
    check(tmp_path / "a" / "b", range(10))
    with SentenceIndex.open(tmp_path / "a" / "b", Points(), mode="write") as opened:
        assert opened.extend(sentences([])) == 0
        assert opened.extend(sentences(range(10, 13))) == 3
        check(tmp_path / "a" / "b", range(13))
        opened.save(tmp_path / "c")
    check(tmp_path / "c", range(13))
    with pytest.raises(StoreError, match=r"already holds an index of 13 sentences; open it with mode='write'"):
        SentenceIndex.build(tmp_path / "c", [], Points())
    check(tmp_path / "c", range(13))


def test_a_graph_is_saved_with_the_rest(large: dict[str, Any], tmp_path: Path) -> None:
    encoder = Table(large["vectors"])
    index = SentenceIndex(encoder, exact_below=MANY)
    index.extend(large["sentences"])
    index.save(tmp_path)
    with SentenceIndex.open(tmp_path, encoder, exact_below=MANY) as opened:
        assert opened.search(large["queries"], 10) == index.search(large["queries"], 10)


def test_rows_are_plain_files(tmp_path: Path) -> None:
    SentenceIndex.build(tmp_path, sentences(range(5)), Points()).close()
    vectors = np.memmap(tmp_path / "index.vectors", dtype="<f4", mode="r").reshape(-1, DIMENSION)
    np.testing.assert_array_equal(vectors, Points().encode(list("01234")))
    lines = (tmp_path / "index.sentences.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[4]) == {"document_id": "document 1", "index": 1, "text": "4", "title": ""}


def test_an_iterator_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.retrieval.sentence_index.AT_ONCE", 4)
    sizes = []

    class Watched(Points):
        def encode(self, texts: Sequence[str], *, kind: str = "passage") -> Any:
            sizes.append((len(texts), read))
            return super().encode(texts, kind=kind)

    read = 0

    def reading() -> Iterator[Sentence]:
        nonlocal read
        for sentence in sentences(range(10)):
            read += 1
            yield sentence

    SentenceIndex.build(tmp_path, reading(), Watched()).close()
    assert sizes == [(4, 4), (4, 8), (2, 10)]
    check(tmp_path, range(10))


@pytest.mark.parametrize(
    "text", ["", "é 東京 \U0001f600", "\ud800 half", "line\nbreak \x00", '"quoted" \\', "x" * 100_000]
)
def test_any_text_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    wanted = Sentence(text[:50], 3, text)
    with SentenceIndex.build(tmp_path, [wanted], HashEncoder()) as index:
        assert index.search([text], 1)[0][0].sentence == wanted


def test_another_encoder_is_refused_and_both_are_named(tmp_path: Path) -> None:
    SentenceIndex.build(tmp_path, sentences(range(3)), Points()).close()
    with pytest.raises(
        StoreError, match=r"made with encoder 'points' \(fingerprint points-1, .*not with 'hash' \(fing"
    ):
        SentenceIndex.open(tmp_path, HashEncoder())
    for other in (Points("points-2"), Points(dimension=3)):
        with pytest.raises(StoreError, match="open it with that encoder"):
            SentenceIndex.open(tmp_path, other)


def test_vectors_that_are_nan_store_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.retrieval.sentence_index.AT_ONCE", 2)
    memory, disk = SentenceIndex(Points()), SentenceIndex.build(tmp_path, sentences(range(3)), Points())
    memory.extend(sentences(range(3)))
    broken = [*sentences(range(3, 8)), Sentence("d", 0, "no number")]
    with disk:
        for index in (memory, disk):
            with pytest.raises(ModelError, match=r"NaN, infinity .* first for number 1, 'no number'"):
                index.extend(broken)
            assert texts(index) == ["0", "1", "2"]
            with pytest.raises(ModelError, match="NaN"):
                index.search(["no number"], 1)
        assert (tmp_path / "index.vectors").stat().st_size == 3 * 4 * DIMENSION
        check(tmp_path, range(3))
        disk.extend(sentences([3]))
    check(tmp_path, range(4))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", "item 1 is of type str, not a pytrace.records.Sentence"),
        (None, "item 1 is of type NoneType"),
        (Sentence(5, 0, "1"), "sentence 1 has document_id, index, text and title of types int, int, str, str"),  # type: ignore[arg-type]
        (Sentence("d", 0, None), "of types str, int, NoneType"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_sentence_is_told_and_nothing_is_added(given: Any, said: str) -> None:
    index = SentenceIndex(Points())
    with pytest.raises(InputError, match=said):
        index.extend([*sentences([1]), given])
    assert len(index) == 0
    assert index.search(["1"], 3) == [[]]


def test_what_cannot_be_searched_for_is_told() -> None:
    index = SentenceIndex(Points())
    index.extend(sentences(range(3)))
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        index.search(["1"], 0)
    with pytest.raises(TypeError, match="put it in a list"):
        index.search("1", 1)
    for vectors in (np.zeros((1, 5), np.float32), np.zeros(DIMENSION, np.float32), np.array([["a"] * DIMENSION])):
        with pytest.raises(InputError, match=rf"query vectors must be numbers \[n, {DIMENSION}\], not"):
            index.search(vectors, 1)
    with pytest.raises(InputError, match="1 of 2 query vectors hold NaN or infinity"):
        index.search(np.array([[0.0] * DIMENSION, [np.inf] * DIMENSION], np.float32), 1)
    assert index.search([], 1) == []
    with pytest.raises(ValueError, match="exact_below must be at least 1, not 0"):
        SentenceIndex(Points(), exact_below=0)
    with pytest.raises(ValueError, match="mode must be 'read' or 'write', not 'rw'"):
        SentenceIndex.open("anywhere", Points(), mode="rw")  # type: ignore[arg-type]


def test_the_missing_package_is_named_before_the_work_is_done(
    large: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Table(large["vectors"])
    SentenceIndex.build(tmp_path / "graph", large["sentences"][:60], encoder, exact_below=50).close()
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    monkeypatch.setattr("pytrace.retrieval.sentence_index.AT_ONCE", 10)
    taken = []
    with (
        SentenceIndex.build(tmp_path / "new", large["sentences"][:49], encoder, exact_below=50) as index,
        pytest.raises(MissingDependencyError, match=r"pytrace-rag\[index\]"),
    ):
        index.extend(taken.append(one) or one for one in large["sentences"][49:])  # type: ignore[func-returns-value]
    assert len(taken) == 10
    with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[index\]"):
        SentenceIndex.open(tmp_path / "graph", encoder, exact_below=50)
    with SentenceIndex.open(tmp_path / "new", encoder) as index:
        assert len(index) == 49


@pytest.fixture(scope="module")
def before_and_after(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return an index of five sentences, and the same after three more."""
    before = tmp_path_factory.mktemp("before") / "index"
    SentenceIndex.build(before, sentences(range(5)), Points()).close()
    after = tmp_path_factory.mktemp("after") / "index"
    shutil.copytree(before, after)
    with SentenceIndex.open(after, Points(), mode="write") as index:
        index.extend(sentences(range(5, 8)))
    return before, after


def test_an_append_cut_off_at_any_byte_leaves_what_was_before(
    before_and_after: tuple[Path, Path], tmp_path: Path
) -> None:
    before, after = before_and_after
    names = ("index.vectors", "index.sentences.jsonl", "index.offsets")
    for step, name in enumerate(names):
        old, new = ((place / name).read_bytes() for place in (before, after))
        assert new.startswith(old)
        for size in range(len(old), len(new) + 1, 3):
            place = tmp_path / f"{name}-{size}"
            shutil.copytree(before, place)
            for other in names[:step]:  # files are written in this order
                shutil.copy(after / other, place / other)
            (place / name).write_bytes(new[:size])
            (place / "index.json.new").write_bytes((after / "index.json").read_bytes()[:size])
            (place / "index-8.graph").write_bytes(b"half a graph")
            check(place, range(5))
            with SentenceIndex.open(place, Points(), mode="write") as index:
                index.extend(sentences(range(5, 7)))
            check(place, range(7))
            shutil.rmtree(place)


def test_a_writer_killed_at_any_moment_loses_at_most_what_it_was_adding(tmp_path: Path) -> None:
    code = """
index = SentenceIndex.build(place, [], Points())
for start in range(0, 10**9, 50):
    index.extend(sentences(range(start, start + 50)))
    print(start + 50, flush=True)
"""
    for appends in (1, 4, 15):
        place = tmp_path / str(appends)
        process = child(code, place)
        assert process.stdout is not None
        for _ in range(appends):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().split("\n")[:-1]
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        said = max([50 * appends, *map(int, lines)])
        with SentenceIndex.open(place, Points()) as index:
            count = len(index)
        assert count in {said, said + 50}
        check(place, range(count))
        with SentenceIndex.open(place, Points(), mode="write") as index:
            index.extend(sentences(range(count, count + 5)))
        check(place, range(count + 5))


def test_a_build_killed_before_anything_counts_can_be_begun_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        SentenceIndex.build(
            tmp_path, (_interrupt() if n == 2 else one for n, one in enumerate(sentences(range(4)))), Points()
        )
    check(tmp_path, [])
    SentenceIndex.build(tmp_path, sentences(range(4)), Points("another")).close()
    with SentenceIndex.open(tmp_path, Points("another")) as index:
        assert len(index) == 4


def _interrupt() -> Sentence:
    raise KeyboardInterrupt


# The limit falls into the vectors of the second addition; with a graph, into the graph's file.
@pytest.mark.parametrize(("limit", "exact_below"), [(60 * 4 * DIMENSION + 10, 10_000), (300 * 4 * DIMENSION, 200)])
def test_a_full_disk_loses_nothing_that_was_there(tmp_path: Path, limit: int, exact_below: int) -> None:
    SentenceIndex.build(tmp_path, sentences(range(50)), Points()).close()
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
with SentenceIndex.open(place, Points(), mode="write", exact_below={exact_below}) as index:
    try:
        index.extend(sentences(range(50, 250)))
    except StoreError as error:
        assert "cannot be written (" in str(error) and "50 sentences, is unharmed" in str(error), error
    else:
        raise AssertionError
    assert len(index) == 50
    assert texts(index) == [str(number) for number in range(50)]
"""
    ended_well(child(code, tmp_path))
    assert not list(tmp_path.glob("index-*"))
    assert (tmp_path / "index.vectors").stat().st_size == 50 * 4 * DIMENSION
    check(tmp_path, range(50))
    with SentenceIndex.open(tmp_path, Points(), mode="write", exact_below=exact_below) as index:
        index.extend(sentences(range(50, 250)))
    check(tmp_path, range(250))


def test_a_graph_that_could_not_grow_is_as_it_was(
    large: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Table(large["vectors"])
    memory = SentenceIndex(encoder, exact_below=1_000)
    memory.extend(large["sentences"][:MANY])
    with SentenceIndex.build(tmp_path, large["sentences"][:MANY], encoder, exact_below=1_000) as disk:
        before = disk.search(large["queries"], 5)
        original = NeighbourGraph._measure

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        for index in (memory, disk):
            monkeypatch.setattr(NeighbourGraph, "_measure", interrupted)
            with pytest.raises(KeyboardInterrupt):
                index.extend(large["sentences"][MANY:])
            assert len(index) == MANY
            found = index.search(large["queries"], 5)
            assert np.mean([a == b for a, b in zip(rows(found), rows(before), strict=True)]) >= 0.95
            monkeypatch.setattr(NeighbourGraph, "_measure", original)
            index.extend(large["sentences"][MANY:])
        assert len(disk) == len(memory) == 6_000
        assert (
            np.mean(
                [
                    a == b
                    for a, b in zip(
                        rows(disk.search(large["queries"], 5)), rows(memory.search(large["queries"], 5)), strict=True
                    )
                ]
            )
            >= 0.95
        )


@pytest.mark.parametrize("name", ["index.vectors", "index.sentences.jsonl", "index.offsets"])
def test_a_file_that_was_cut_off_is_named_with_its_numbers(
    before_and_after: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    place = tmp_path / "index"
    shutil.copytree(before_and_after[1], place)
    reader = SentenceIndex.open(place, Points())
    size = (place / name).stat().st_size
    os.truncate(place / name, size - 1)
    with pytest.raises(
        StoreError, match=rf"{name} has {size - 1} bytes where 8 sentences take {size}; the file was cut"
    ):
        SentenceIndex.open(place, Points())
    with reader, pytest.raises(StoreError, match="was cut off"):  # and touching what is mapped would kill the process
        reader.search(["1"], 8)
    (place / name).unlink()
    with pytest.raises(StoreError, match=f"{name} cannot be read"):
        SentenceIndex.open(place, Points())


@given(
    name=st.sampled_from(["index.vectors", "index.sentences.jsonl", "index.offsets", "index.json"]),
    at=st.integers(0),
    flip=st.integers(1, 255),
)
def test_a_changed_byte_is_told_and_never_crashes(
    before_and_after: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, name: str, at: int, flip: int
) -> None:
    place = tmp_path_factory.mktemp("changed") / "index"
    shutil.copytree(before_and_after[1], place)
    content = bytearray((place / name).read_bytes())
    content[at % len(content)] ^= flip
    (place / name).write_bytes(content)
    told = ""
    try:
        with SentenceIndex.open(place, Points()) as index:
            try:
                hits = index.search(["1", "7"], 8)
                assert all(hit.distance < np.inf for own in hits for hit in own)
            except StoreError as error:
                told = str(error)
            if name != "index.json":
                with pytest.raises(StoreError, match="damaged"):
                    index.verify()
    except StoreError as error:
        told = str(error)
    assert not told or str(place) in told


def test_a_damaged_graph_is_never_loaded(tmp_path: Path) -> None:
    SentenceIndex.build(tmp_path, sentences(range(100)), Points(), exact_below=50).close()
    for name in ("index-100.graph", "index-100.twins"):
        content = (tmp_path / name).read_bytes()
        for changed in (content[:-1], content[:200] + b"\xff" + content[201:]):
            if changed == content or (name.endswith("twins") and not content):
                continue
            (tmp_path / name).write_bytes(changed)
            with pytest.raises(
                StoreError, match=rf"{name} is damaged: [\d,]+ of [\d,]+ bytes .* delete the index and build it again"
            ):
                SentenceIndex.open(tmp_path, Points(), exact_below=50)
        (tmp_path / name).unlink()
        with pytest.raises(StoreError, match=f"{name} is missing, and index.json names it"):
            SentenceIndex.open(tmp_path, Points(), exact_below=50)
        (tmp_path / name).write_bytes(content)
    check(tmp_path, range(100))  # below the default's border the graph is not needed


def test_there_is_one_writer_and_any_number_of_readers(tmp_path: Path) -> None:
    with SentenceIndex.build(tmp_path, sentences(range(3)), Points()) as writer:
        for attempt in (
            lambda: SentenceIndex.open(tmp_path, Points(), mode="write"),
            lambda: SentenceIndex.build(tmp_path, [], Points()),
        ):
            with pytest.raises(StoreError, match="is being written by another process; wait for it"):
                attempt()
        reader = SentenceIndex.open(tmp_path, Points())
        with pytest.raises(StoreError, match="is open for reading; open it with mode='write'"):
            reader.extend(sentences([9]))
        writer.extend(sentences(range(3, 6)))
        with reader:
            assert texts(reader) == ["0", "1", "2"]
            reader.verify()
        check(tmp_path, range(6))
    with (tmp_path / "index.lock").open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back
    writer.close()
    for call in (lambda: len(writer), lambda: writer.search(["1"], 1), lambda: writer.extend([])):
        with pytest.raises(StoreError, match="is closed; open it again"):
            call()


def test_places_without_an_index_are_told_and_other_files_left_alone(tmp_path: Path) -> None:
    for mode in ("read", "write"):
        with pytest.raises(StoreError, match=r"there is no sentence index at .*; check the path, or build one there"):
            SentenceIndex.open(tmp_path / "nowhere", Points(), mode=mode)  # type: ignore[arg-type]
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "index.vectors").write_text("somebody's", encoding="utf-8")
    with pytest.raises(StoreError, match=r"index\.vectors is there, but no index\.json; name another directory"):
        SentenceIndex.build(tmp_path, sentences(range(2)), Points())
    assert (tmp_path / "index.vectors").read_text(encoding="utf-8") == "somebody's"
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be made"):
        SentenceIndex.build(tmp_path / "file" / "below", [], Points())
    for manifest in ("", "{}", "[" * 100_000, '{"format": 2}'):
        (tmp_path / "index.json").write_text(manifest, encoding="utf-8")
        with pytest.raises(StoreError, match=r"index\.json is damaged or of another version"):
            SentenceIndex.open(tmp_path, Points())


def test_equal_rows_are_found_by_their_first() -> None:
    vectors = np.array([[1, 2], [3, 4], [1, 2], [0, 0], [3, 4], [1, 2], [-0.0, 0]], dtype=np.float32)
    assert graphs._first_equal(vectors).tolist() == [0, 1, 0, 3, 1, 0, 6]
    assert graphs._first_equal(vectors[:0]).tolist() == []


@pytest.mark.models
def test_the_tiny_encoder_finds_a_sentence_of_the_examples_again(tiny_models: dict[Any, Path], tmp_path: Path) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder

    encoder = OnnxEncoder(tiny_models["encoder"])
    documents = list(read_documents(Path(__file__).parents[2] / "examples" / "docs"))
    everything = [Sentence(one.id, number, text) for one in documents for number, text in enumerate(one.sentences)]
    with SentenceIndex.build(tmp_path, everything, encoder) as index:
        wanted = everything[len(everything) // 2]
        near, second = index.search([wanted.text], 2)[0]
        assert near.sentence.text == wanted.text
        assert near.distance <= second.distance
    with SentenceIndex.open(tmp_path, encoder) as index:
        assert index.search([wanted.text], 2)[0] == [near, second]


def test_an_index_that_was_killed_before_its_files_were_there_goes_on(tmp_path: Path) -> None:
    SentenceIndex.build(tmp_path, [], HashEncoder(dimension=8)).close()
    (tmp_path / "index.vectors").unlink()
    with SentenceIndex.open(tmp_path, HashEncoder(dimension=8), mode="write") as index:
        assert index.extend([Sentence("1", 0, "Bread is baked at dawn.")]) == 1
        index.verify()


def test_a_killed_process_has_lost_some_hundred_sentences_of_documents(tmp_path: Path) -> None:
    documents = [
        Document(str(number), "T", tuple(f"Sentence {number} {each}." for each in range(200))) for number in range(6)
    ]

    def ended() -> Iterator[Document]:
        yield from documents[:5]
        raise KeyboardInterrupt

    with SentenceIndex.build(tmp_path, [], HashEncoder(dimension=8)) as index, pytest.raises(KeyboardInterrupt):
        index.add_documents(ended())
    with SentenceIndex.open(tmp_path, HashEncoder(dimension=8), mode="write") as index:
        assert index.document_ids() == {"0", "1", "2"}
        assert index.add_documents(documents) == 600
        assert len(index) == 1200
