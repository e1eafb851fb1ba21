"""Knowledge bases on disk: what sources give, and builds against kills, full disks, damage, company and broken sources."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace import cli
from pytrace.cli import common
from pytrace.errors import DataError, InputError, PytraceError, StoreError
from pytrace.kernels import top_k
from pytrace.kg import KnowledgeBase, is_knowledge_base, read_source
from pytrace.kg import knowledge_base as base_module
from pytrace.kg import triple_search as sketches
from pytrace.kg.knowledge_base_files import BaseFiles, leaves
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, TextUnit, Triple
from pytrace.triples.graph import Recipe, TripleStore

Run = Callable[..., tuple[int, str, str]]

TOWNS = [
    Triple("Ada_Foah", "located_in", "Ghana"),
    Triple("Ghana", "capital", "Accra"),
    Triple("\ud800\t\\", "中 文", "a\nb"),
]
LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
PREFERRED = "<http://www.w3.org/2004/02/skos/core#prefLabel>"


def facts(path: Path, **options: Any) -> list[Triple]:
    return list(read_source(path, **options).triples)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def many(path: Path, count: int) -> Path:
    """Write so many triples as TSV, each with an entity of its own."""
    return write(path, "".join(f"thing {number}\tis near\tthing {number + 1}\n" for number in range(count)))


def leftovers(place: Path) -> list[str]:
    return sorted(path.name for path in place.parent.iterdir() if path.name.startswith(".") or path == place)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with TripleStore.open(path, recipe=Recipe("letters")) as graph:
        documents = [Document("d1", "Towns", ("Ada Foah lies in Ghana.",)), Document("d2", "Later", ("Not read yet.",))]
        graph.sync([*documents, Document("d3", "More", ("Accra is the capital.",))])
        graph.add(documents[0], [TOWNS[0], TextUnit("Towns", "Ada Foah lies in Ghana."), TOWNS[2]])
        graph.add(Document("d3", "More", ("Accra is the capital.",)), [TOWNS[1], TOWNS[0]])
    return path


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "nt", "ttl", "store"])
def test_a_graph_of_pytrace_gives_the_same_triples_and_names_in_every_form(store: Path, suffix: str) -> None:
    path = store
    if suffix != "store":
        path = store.with_name(f"graph.{suffix}")
        with TripleStore.open(store, mode="read") as graph:
            graph.export(path)
    base = KnowledgeBase.load(path, HashEncoder())
    assert {base.triple(number) for number in range(len(base))} == set(TOWNS)
    assert len(base) == 3
    assert {base.text(number) for number in range(3)} == {
        "Ada Foah located in Ghana.", "Ghana capital Accra.", "\ud800 \\ 中 文 a b."
    }  # fmt: skip


def test_lines_of_triples_are_read_as_tsv_and_as_json(tmp_path: Path) -> None:
    rows = [
        {"head": "\ud800", "relation": "r", "tail": "c", "more": 1},
        {"head": "x", "relation": " ", "tail": "a sentence"},
    ]
    path = write(tmp_path / "a.jsonl", "\ufeff" + "\n\n".join(map(json.dumps, rows)) + "\r\n")
    assert facts(path) == [Triple("\ud800", "r", "c")]
    path = write(tmp_path / "a.txt", "a\\tb\tr\tc\r\n\nx\t\ta sentence\n")
    assert facts(path, format="tsv") == [Triple("a\tb", "r", "c")]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.tsv", "a\tb\tc\na\tb\n", r"a.tsv:2: 2 columns"),
        ("a.tsv", "a\tb\tc\n \tb\tc\n", r"a.tsv:2: the triple .* has an empty head"),
        ("a.tsv", "a\tb\t\n", r"a.tsv:1: the triple .* has an empty tail"),
        ("a.tsv", "a\tb\tc\n\udcff\n", r"a.tsv:2: byte 1 .* not UTF-8"),
        ("a.jsonl", '{"head": "a", "relation": "b", "tail": "c"}\n{"head": "a", "tail": "c"}\n', r"a.jsonl:2: .*`relation`"),
        ("a.jsonl", '{"head": "a", "relation": "b", "tail": 7}', r"a.jsonl:1: Expected `str`, got `int`"),
        ("a.jsonl", '{"id": "d", "triples": 3}', r"a.jsonl:1: Expected `array \| null`"),
        ("a.jsonl", "[1]", r"a.jsonl:1: a JSON list where an object is due"),
        ("a.jsonl", '{"head": ', r"a.jsonl:1: not JSON"),
        ("a.jsonl", "[" * 100_000, r"a.jsonl:1: not JSON"),
        ("a.nt", "<urn:x:a> <urn:x:b> <urn:x:c> .\n<urn:x:a> <urn:x:b> 5 .\n", r"a.nt:2: column 21: .*; repair"),
        ("a.ttl", "@prefix x: <urn:x:> .\nx:a x:b y:c .\n", r"a.ttl:2: column 9: The prefix y: has not been declared"),
        ("a.ttl", '<urn:x:a> <urn:x:b> "never closed', r"a.ttl:1: column 21"),
        ("a.ttl", "<urn:x:a> <urn:x:b> <<( <urn:x:a> <urn:x:b> <urn:x:c> )>> .", "a triple within a triple|column"),
        ("a.nt", "<urn:pytrace:entity:%FF> <urn:x:b> <urn:x:c> .", "is not percent-encoded UTF-8"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line_and_loads_nothing(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=said) as caught:
        KnowledgeBase.build(path, tmp_path / "base", HashEncoder())
    assert "\n" not in str(caught.value)
    assert leftovers(tmp_path / "base") == []


def test_labels_name_keys_english_and_untagged_ones_before_others(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.nt",
        f"""<http://x.org/Q1> <http://x.org/P_1> <http://x.org/Q2> .
<http://x.org/Q1> {LABEL} "Stadt"@de .
<http://x.org/Q1> {PREFERRED} "town"@en-GB .
<http://x.org/Q1> {LABEL} "another" .
<http://x.org/Q2> {LABEL} "Accra "@fr .
<http://x.org/Q2> {LABEL} "Akkra"@de .
<http://x.org/P_1> {LABEL} " " .
<http://x.org/Q1> <http://x.org/note> "http://x.org/see_Here  now"@de .
<http://x.org/Q1> <http://x.org/note> "" .
<http://x.org/Q1> <http://x.org/sameAs> _:b .
""",
    )
    base = KnowledgeBase.load(path, HashEncoder())
    assert [base.text(number) for number in range(2)] == ["town p 1 Accra.", "town note http://x.org/see_Here now."]
    assert base.triple(0) == Triple("http://x.org/Q1", "http://x.org/P_1", "http://x.org/Q2")
    assert base.triple(1).tail == "http://x.org/see_Here  now"
    assert len(base) == 3
    assert base.triple(2).tail.startswith("_:")


@pytest.mark.parametrize("name", ["empty.tsv", "empty.jsonl", "empty.nt", "empty.ttl"])
def test_an_empty_graph_is_an_error(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "")
    with pytest.raises(InputError, match="there is no triple"):
        KnowledgeBase.load(path, HashEncoder())
    with pytest.raises(InputError, match="there is no triple"):
        KnowledgeBase.build(path, tmp_path / "base", HashEncoder())
    assert leftovers(tmp_path / "base") == []


def test_a_source_that_is_none_is_refused_with_a_remedy(tmp_path: Path) -> None:
    for path, options, said in (
        (tmp_path / "a.txt", {}, "--format"),
        (tmp_path / "a.tsv", {"format": "xml"}, "'xml' is no format"),
        (tmp_path / "missing.tsv", {}, "cannot be read: No such file"),
        (tmp_path / "missing.nt", {}, "cannot be read: No such file"),
        (tmp_path, {}, "holds no graph.db"),
        (tmp_path, {"format": "tsv"}, "leave out the format"),
    ):
        with pytest.raises(InputError, match=said):
            facts(path, **options)


def every_vector(base: KnowledgeBase) -> NDArray[np.float32]:
    return base.vectors(np.arange(len(base)))


def same(one: KnowledgeBase, other: KnowledgeBase) -> None:
    """Both hold the same, array by array."""
    mine, theirs = dict(leaves(one.columns)), dict(leaves(other.columns))
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
        assert getattr(value, "dtype", int) == getattr(theirs[name], "dtype", int)
    np.testing.assert_array_equal(every_vector(one), every_vector(other))


def test_what_is_opened_is_what_was_built(store: Path, tmp_path: Path) -> None:
    encoder = HashEncoder()
    built = KnowledgeBase.build(store, tmp_path / "base", encoder)
    opened = KnowledgeBase.open(tmp_path / "base", encoder)
    loaded = KnowledgeBase.load(store, encoder)
    for base in (built, opened, KnowledgeBase.load(tmp_path / "base", encoder)):
        same(base, loaded)
        base.verify()
        assert not base.columns.triples.flags.writeable
        assert base.number(TOWNS[2]) == loaded.number(TOWNS[2])
        asked = encoder.encode(["Ghana's capital is Accra"])
        np.testing.assert_array_equal(base.search(asked, 5)[1], loaded.search(asked, 5)[1])
    assert leftovers(tmp_path / "base") == ["base"]
    assert is_knowledge_base(tmp_path / "base")
    assert not is_knowledge_base(store)
    assert not is_knowledge_base(tmp_path / "base" / "base.json")
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == ["base.columns", "base.json", "base.vectors"]


def test_names_that_are_all_too_long_to_be_mentioned_leave_an_empty_index(tmp_path: Path) -> None:
    long = " ".join(map(str, range(30)))
    path = write(tmp_path / "a.tsv", f"{long}\tr\t{long} more\n")
    base = KnowledgeBase.build(path, tmp_path / "base", HashEncoder())
    assert len(base.columns.mentions.hashes) == 0
    assert base.entity(long) == 0


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KnowledgeBase:
    """Return a base of 300 triples on disk that is searched through a sketch."""
    for name, value in {
        "SKETCH_FROM": 100,
        "_DIRECTIONS": 20,
        "_LEAST_SHARE": 0.0,
        "_FIRST_WIDTH": 8,
        "_BLOCK_BYTES": 4 * 40 * 50,
    }.items():
        monkeypatch.setattr(sketches, name, value)
    monkeypatch.setattr("pytrace.kg.knowledge_base_files._KEPT_BYTES", 0)  # so that rows are copied from the file
    return KnowledgeBase.build(many(tmp_path / "a.tsv", 300), tmp_path / "base", HashEncoder(dimension=40))


def test_a_sketch_on_disk_finds_what_a_search_of_all_finds(sketched: KnowledgeBase, tmp_path: Path) -> None:
    assert (tmp_path / "base" / "base.sketch").exists()
    sketched.verify()
    asked = HashEncoder(dimension=40).encode([f"is thing {number} near thing 7" for number in range(70)])
    for found, expected in zip(sketched.search(asked, 4), top_k(asked, every_vector(sketched), 4), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_int8_vectors_take_a_quarter_of_the_room_and_find_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr("pytrace.kg.knowledge_base_files._KEPT_BYTES", kept)
    monkeypatch.setattr(sketches, "_BLOCK_BYTES", 44 * 50)  # so that what is read is read in six blocks
    source, encoder = many(tmp_path / "a.tsv", 300), HashEncoder(dimension=40)
    whole = KnowledgeBase.build(source, tmp_path / "whole", encoder)
    small = KnowledgeBase.build(source, tmp_path / "small", encoder, vectors="int8")
    assert (tmp_path / "small" / "base.vectors").stat().st_size == 300 * (40 + 4)
    difference = np.abs(every_vector(small) - every_vector(whole))
    assert 0 < difference.max() <= 0.5 / 127 * np.abs(every_vector(whole)).max() * 1.001
    asked = encoder.encode([f"thing {number} is near thing {number + 1}." for number in range(70)])
    scores, numbers = small.search(asked, 4)
    # Of rows whose scores differ in the last bits alone, either may come first.
    np.testing.assert_allclose(scores, top_k(asked, every_vector(small), 4)[0], rtol=1e-5)
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", asked, every_vector(small)[numbers]), rtol=1e-5)
    np.testing.assert_allclose(scores[:, 0], whole.search(asked, 4)[0][:, 0], atol=0.01)
    small.verify()
    content = bytearray((tmp_path / "small" / "base.vectors").read_bytes())
    content[40:44] = b"\0\0\xc0\x7f"  # the first scale is no number
    (tmp_path / "small" / "base.vectors").write_bytes(content)
    with pytest.raises(StoreError, match=r"base\.vectors is damaged"):
        KnowledgeBase.open(tmp_path / "small", encoder).search(asked, 4)


def test_a_build_does_not_go_on_with_vectors_kept_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "_AT_ONCE", 10)
    monkeypatch.setattr(base_module, "_KEPT_AFTER", -1)
    source, place = many(tmp_path / "a.tsv", 45), tmp_path / "base"
    with pytest.raises(KeyboardInterrupt):
        KnowledgeBase.build(source, place, Counting(calls=3))
    encoder = Counting()
    base = KnowledgeBase.build(source, place, encoder, vectors="int8")
    assert encoder.encoded == 45
    base.verify()


@pytest.mark.parametrize("name", ["base.columns", "base.vectors", "base.sketch"])
def test_a_file_that_is_shorter_is_an_error_and_never_kills(sketched: KnowledgeBase, tmp_path: Path, name: str) -> None:
    path = tmp_path / "base" / name
    content = path.read_bytes()
    os.truncate(path, len(content) // 2)
    with pytest.raises(StoreError, match=rf"{name} has {len(content) // 2:,} bytes where {len(content):,} are due"):
        KnowledgeBase.open(tmp_path / "base", HashEncoder(dimension=40))
    with pytest.raises(StoreError, match="was cut off"):
        sketched.text(299) if name == "base.columns" else sketched.search(sketched_query(), 3)
    with pytest.raises(StoreError, match="was cut off"):
        sketched.verify()
    path.unlink()
    with pytest.raises(StoreError, match=rf"{name} cannot be read \(No such file"):
        KnowledgeBase.open(tmp_path / "base", HashEncoder(dimension=40))


def sketched_query() -> Any:
    return HashEncoder(dimension=40).encode(["thing 1"])


@pytest.mark.parametrize("name", ["base.columns", "base.vectors", "base.sketch"])
def test_a_changed_byte_is_found_by_verify(sketched: KnowledgeBase, tmp_path: Path, name: str) -> None:
    path = tmp_path / "base" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{name} is damaged"):
        sketched.verify()


def test_another_encoder_is_refused_by_name(tmp_path: Path) -> None:
    KnowledgeBase.build(many(tmp_path / "a.tsv", 3), tmp_path / "base", HashEncoder(dimension=8))
    with pytest.raises(StoreError, match=r"made with encoder 'hash' \(fingerprint hash-1-8, dimension 8\), not with"):
        KnowledgeBase.open(tmp_path / "base", HashEncoder(dimension=9))


def test_what_is_no_knowledge_base_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = many(tmp_path / "a.tsv", 3)
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match=r"no knowledge base.*kg index"):
            KnowledgeBase.open(path, HashEncoder())
    with pytest.raises(StoreError, match="is a file, where the directory"):
        KnowledgeBase.open(file, HashEncoder())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: manifest.update(format=2), "its checksum is not ''"),
        (lambda manifest: manifest.update(format=3), "has format 3, of a newer pytrace, and this one knows 2"),
        (lambda manifest: manifest.update(triples=2), "has format 1, 2 triples"),
        (lambda manifest: manifest.update(triples=-3), "has format 1, -3 triples"),
        (lambda manifest: manifest.update(unknown=1), "is damaged or of another version"),
        (lambda manifest: manifest.pop("arrays"), "is damaged or of another version"),
        (lambda manifest: manifest["files"].update({"../x": {"bytes": 1, "checksum": 1}}), "and files ../x"),
        (lambda manifest: manifest["arrays"].pop("by_head"), "does not fit the files beside it"),
        (lambda manifest: manifest["numbers"].clear(), "does not fit the files beside it"),
        (lambda manifest: manifest["arrays"]["by_head"].update(dtype="<i8"), "does not fit|by_head"),
        (lambda manifest: manifest["arrays"]["by_head"].update(dtype="O"), "does not fit"),
        (lambda manifest: manifest["arrays"]["by_head"].update(dtype="nonsense"), "does not fit"),
        (lambda manifest: manifest["arrays"]["by_head"].update(shape=[2**62]), "does not fit"),
        (lambda manifest: manifest["arrays"]["by_head"].update(shape=[-3]), "does not fit"),
        (lambda manifest: manifest["arrays"]["by_head"].update(offset=-64), "does not fit"),
        (lambda manifest: manifest["arrays"]["triples"].update(shape=[9]), "does not fit"),
    ],
)
def test_a_damaged_manifest_is_an_error(tmp_path: Path, change: Callable[[Any], object], said: str) -> None:
    place = tmp_path / "base"
    KnowledgeBase.build(many(tmp_path / "a.tsv", 3), place, HashEncoder())
    manifest = json.loads((place / "base.json").read_text())
    manifest.update(format=1, checksum="")  # of format 1, whose manifests have none
    change(manifest)
    (place / "base.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=said):
        KnowledgeBase.open(place, HashEncoder())


class Counting(HashEncoder):
    """Counts what it encodes, and stops after so many calls."""

    def __init__(self, calls: int = 1_000, dimension: int = 8) -> None:
        super().__init__(dimension=dimension)
        self.left, self.encoded = calls, 0

    def encode(self, texts: Sequence[str], *, kind: Any = "passage") -> Any:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.encoded += len(texts)
        return super().encode(texts, kind=kind)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "_AT_ONCE", 10)
    monkeypatch.setattr(base_module, "_KEPT_AFTER", -1)


@pytest.mark.usefixtures("few")
def test_a_build_that_was_ended_goes_on_where_it_was(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 45), tmp_path / "base"
    with pytest.raises(KeyboardInterrupt):
        KnowledgeBase.build(source, place, Counting(calls=3))
    assert leftovers(place) == [".base.building"]
    with pytest.raises(StoreError, match="no knowledge base"):
        KnowledgeBase.open(place, HashEncoder(dimension=8))
    encoder, told = Counting(), []
    base = KnowledgeBase.build(source, place, encoder, progress=lambda done, total: told.append((done, total)))
    assert encoder.encoded == 15
    assert told == [(30, 45), (40, 45), (45, 45)]
    same(base, KnowledgeBase.load(source, HashEncoder(dimension=8)))
    base.verify()
    assert leftovers(place) == ["base"]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("what", ["source", "encoder", "vectors", "cut vectors", "record"])
def test_vectors_of_something_else_or_damaged_ones_are_not_gone_on_with(tmp_path: Path, what: str) -> None:
    source, place = many(tmp_path / "a.tsv", 45), tmp_path / "base"
    with pytest.raises(KeyboardInterrupt):
        KnowledgeBase.build(source, place, Counting(calls=3))
    encoder = Counting()
    vectors = place.with_name(".base.building") / "base.vectors"
    if what == "source":
        source.write_text(source.read_text().replace("thing 44\tis", "thing 43\tis"))
    elif what == "encoder":
        encoder = Counting(dimension=9)
    elif what == "vectors":
        vectors.write_bytes(b"\x01" + vectors.read_bytes()[1:])
    elif what == "cut vectors":
        os.truncate(vectors, 7)
    else:
        (vectors.parent / "building.json").write_text("{")
    base = KnowledgeBase.build(source, place, encoder)
    assert encoder.encoded == 45
    same(base, KnowledgeBase.load(source, HashEncoder(dimension=encoder.dimension)))


def test_nothing_that_is_there_is_built_over(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 3), tmp_path / "base"
    place.mkdir()
    KnowledgeBase.build(source, place, HashEncoder())  # an empty directory is fine
    with pytest.raises(StoreError, match="a knowledge base is there"):
        KnowledgeBase.build(source, place, HashEncoder())
    with pytest.raises(StoreError, match="something else is there"):
        KnowledgeBase.build(source, source, HashEncoder())
    with pytest.raises(StoreError, match="something else is there"):
        KnowledgeBase.build(source, tmp_path, HashEncoder())
    with pytest.raises(StoreError, match="cannot"):
        KnowledgeBase.build(source, source / "below", HashEncoder())
    with pytest.raises(StoreError, match="name a directory"):
        KnowledgeBase.build(source, "/", HashEncoder())
    assert leftovers(place) == ["base"]


def test_what_came_to_be_there_in_the_meantime_is_left_alone(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 3), tmp_path / "base"

    def meddle(done: int, total: int) -> None:
        if done == total:
            write_into(place)

    with pytest.raises(StoreError, match="cannot be built"):
        KnowledgeBase.build(source, place, HashEncoder(), progress=meddle)
    assert [path.name for path in place.iterdir()] == ["mine"]
    shutil.rmtree(place)
    encoder = Counting(dimension=256)
    KnowledgeBase.build(source, place, encoder)
    assert encoder.encoded == 0


def write_into(place: Path) -> None:
    place.mkdir()
    (place / "mine").touch()


def test_two_builds_of_one_directory_do_not_meet(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 3), tmp_path / "base"
    (tmp_path / ".base.building").mkdir()
    with (tmp_path / ".base.building" / "building.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="is being built by another process"):
            KnowledgeBase.build(source, place, HashEncoder())
    KnowledgeBase.build(source, place, HashEncoder())


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python that has the helpers of this file, and the base's directory as `place`."""
    start = "import sys; from tests.kg.test_knowledge_base_files import *; place = Path(sys.argv[1]);"
    return subprocess.Popen(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_a_build_killed_at_any_moment_leaves_nothing_and_repeats_nothing_that_was_told(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 400), tmp_path / "base"
    code = """
base_module._AT_ONCE, base_module._KEPT_AFTER = 10, -1
KnowledgeBase.build(place.with_name("a.tsv"), place, HashEncoder(dimension=8), progress=lambda *told: print(*told, flush=True))
"""
    known = 0
    for told in (1, 3, 8):
        process = child(code, place)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(told)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.communicate()
        assert not place.exists()
        assert int(lines[0].split()[0]) >= known
        known = int(lines[-1].split()[0])
    encoder = Counting()
    base = KnowledgeBase.build(source, place, encoder)
    assert encoder.encoded <= 400 - known
    same(base, KnowledgeBase.load(source, HashEncoder(dimension=8)))


def test_a_killed_build_has_lost_a_few_seconds_of_encoding(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 3000), tmp_path / "base"
    code = """
import time
class Slow(HashEncoder):
    def encode(self, texts, *, kind="passage"):
        time.sleep(0.01 * len(texts))
        return super().encode(texts, kind=kind)
KnowledgeBase.build(place.with_name("a.tsv"), place, Slow(dimension=8), progress=lambda *told: print(*told, flush=True))
"""
    process = child(code, place)
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(2)]
    process.kill()
    process.communicate()
    assert told[0] == "0 3000\n"
    encoder = Counting()
    KnowledgeBase.build(source, place, encoder)
    assert encoder.encoded <= 3000 - 256


def test_a_full_disk_leaves_no_half_knowledge_base_and_keeps_the_vectors(tmp_path: Path) -> None:
    source, place = many(tmp_path / "a.tsv", 200), tmp_path / "base"
    code = """
import resource
base_module._AT_ONCE, base_module._KEPT_AFTER = 10, -1
size = 4 * 1024 * 105
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    KnowledgeBase.build(place.with_name("a.tsv"), place, HashEncoder(dimension=1024))
except StoreError as error:
    assert "cannot be built (File too large); nothing is there yet" in str(error) and ".base.building keeps" in str(error), error
else:
    raise AssertionError
"""
    process = child(code, place)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert not place.exists()
    encoder = Counting(dimension=1024)
    same(KnowledgeBase.build(source, place, encoder), KnowledgeBase.load(source, HashEncoder(dimension=1024)))
    assert encoder.encoded == 100


def test_opening_reads_no_more_of_many_triples_than_of_few(tmp_path: Path) -> None:
    encoder = HashEncoder(dimension=8)
    for count in (10, 20_000):
        KnowledgeBase.build(many(tmp_path / f"{count}.tsv", count), tmp_path / str(count), encoder)
    touched: list[int] = []
    for count in (10, 20_000):
        faults = []
        for _ in range(5):  # how many pages a fault maps depends on what the system does with them just then
            before = minor_faults()
            files = BaseFiles(tmp_path / str(count), encoder)
            faults.append(minor_faults() - before)
            assert len(files.columns.triples) == count
        touched.append(min(faults))
    # 20,000 triples take more than 300 pages of 4 KiB, and are compared with their checksum through a buffer of 4 MiB.
    assert touched[1] <= touched[0] + 1024 + 30


def minor_faults() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, ["kg", "index", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command have an encoder that needs no model."""
    monkeypatch.setattr(
        "pytrace.engine.loading.load_encoder", lambda name, *_, **__: HashEncoder(dimension=len(f"encoder:{name}"))
    )


@pytest.mark.usefixtures("scripted")
def test_the_command_builds_a_base_and_tells_its_size(tmp_path: Path, run: Run) -> None:
    source, place = many(tmp_path / "a.txt", 3), tmp_path / "base"
    status, out, err = run(source, "--out", place, "--format", "tsv", "--encoder", "small")
    assert (status, err) == (0, "")
    assert "3 triples, 4 entities, 1 relations; 3 triples encoded now, 0 known before" in out
    assert len(KnowledgeBase.open(place, HashEncoder(dimension=len("encoder:small")))) == 3
    status, out, err = run(source, "--out", place, "--format", "tsv")
    assert (status, out) == (2, "")
    assert "a knowledge base is there; remove it" in err


@pytest.mark.usefixtures("scripted")
def test_the_command_tells_the_same_as_json(tmp_path: Path, run: Run) -> None:
    status, out, _ = run(many(tmp_path / "a.tsv", 3), "--out", tmp_path / "base", "--json")
    said = json.loads(out)
    assert status == 0
    assert (said["triples"], said["entities"], said["relations"], said["encoded"]) == (3, 4, 1, 3)
    assert said["bytes"] == sum(path.stat().st_size for path in (tmp_path / "base").iterdir())


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.tsv"], "cannot be read"),
        (["a.txt"], "--format"),
        (["a.txt", "--format", "turtle"], "a.txt:1: column"),
    ],
)
def test_the_command_refuses_in_one_sentence(tmp_path: Path, run: Run, arguments: list[str], said: str) -> None:
    many(tmp_path / "a.txt", 3)
    status, out, err = run(tmp_path / arguments[0], *arguments[1:], "--out", tmp_path / "base")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert leftovers(tmp_path / "base") == []


@pytest.mark.models
def test_the_command_indexes_with_the_tiny_encoder(tiny_models: Any, tmp_path: Path, run: Run) -> None:
    del tiny_models
    status, out, err = run(many(tmp_path / "a.tsv", 2), "--out", tmp_path / "base", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["dimension"] == 384


@pytest.mark.data
def test_the_graph_of_pathquestion_is_read_whole(shared_data: Path) -> None:
    try:
        found = facts(shared_data / "pathquestion" / "2H-kb.txt", format="tsv")
    except PytraceError as error:
        pytest.fail(str(error))
    assert len(found) == len(set(found)) == 1_211
