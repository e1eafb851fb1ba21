"""`pytrace kg` as a user meets it: what it prints, what it changes, and how it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.engine import loading
from pytrace.kg import KnowledgeBase
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, Triple
from pytrace.triples.graph import ExtractionStatistics, Recipe, TripleStore

Run = Callable[..., tuple[int, str, str]]

ADA = Document(
    "ada",
    "Ada Lovelace",
    ("Ada Lovelace was born in London.", "She wrote notes on the Analytical Engine."),
    "people.jsonl:1",
)
TWIN = Document("twin", ADA.title, ADA.sentences, "people.jsonl:2")
LONDON = Document("london", "London", ("London lies on the Thames.",), "places.jsonl:1")
NASTY = Document("n\n1", "Esc\x1b[31m", ("Right \u202eto left.\x07",))
WAITING = Document("later", "Later", ("Not read yet.",))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "graph"
    with TripleStore.open(path, recipe=Recipe("letters", model="abc")) as graph:
        graph.sync([ADA, TWIN, LONDON, NASTY, WAITING])
        graph.add(
            ADA,
            [
                Triple("Ada Lovelace", "born in", "London", "ada", 0, 100.0),
                Triple("Ada Lovelace", "wrote", "notes on the Analytical Engine", "ada", 1, 97.5),
            ],
        )
        graph.add(LONDON, [Triple("London", "lies on", "the Thames", "london", 0, 100.0)])
        graph.add(NASTY, [Triple("Esc\x1b[31m", "tab\t", "bell\x07", sentence=0)], ExtractionStatistics(failure="half"))
    return path


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, ["kg", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


def test_show_prints_the_numbers_and_triples_with_their_sentences(directory: Path, run: Run) -> None:
    status, output, errors = run("show", directory)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == f"{directory}/graph.db"
    table = dict(line.rsplit("  ", 1) for line in lines if line.startswith(("documents ", "triples ", "waiting ")))
    assert {name.strip(): int(value) for name, value in table.items()} == {"documents": 5, "triples": 6, "waiting": 1}
    place = lines.index("<Ada Lovelace; born in; London>")
    assert (
        lines[place + 1] == "    Ada Lovelace was born in London. [Ada Lovelace; document ada, sentence 0, support 100]"
    )
    assert "failed: n\\n1: half" in lines
    assert "<Esc\\x1b[31m; tab\\t; bell\\x07>" in lines
    assert "\x1b" not in output
    assert "\u202e" not in output


def test_show_narrows_to_a_document_an_entity_and_a_number(directory: Path, run: Run) -> None:
    status, output, _ = run("show", directory, "--document", "ada", "--limit", 1)
    assert status == 0
    assert output.splitlines() == [
        "ada: Ada Lovelace (from people.jsonl:1)",
        "<Ada Lovelace; born in; London>",
        "    Ada Lovelace was born in London. [Ada Lovelace; document ada, sentence 0, support 100]",
        "(the first 1; --limit shows more)",
    ]
    _, output, _ = run("show", directory, "--entity", "London")
    assert [line for line in output.splitlines() if line.startswith("<")] == [
        "<Ada Lovelace; born in; London>",
        "<Ada Lovelace; born in; London>",
        "<London; lies on; the Thames>",
    ]
    _, output, _ = run("show", directory, "--entity", "London", "--document", "london")
    assert [line for line in output.splitlines() if line.startswith("<")] == ["<London; lies on; the Thames>"]
    assert run("show", directory, "--entity", "Nobody")[1] == "no triples about 'Nobody'\n"
    assert run("show", directory, "--document", "later")[1] == "later: Later (waits for its extraction)\n"


def test_show_as_json_is_one_document_with_everything(directory: Path, run: Run) -> None:
    status, output, errors = run("show", directory, "--document", "twin", "--json")
    assert (status, errors) == (0, "")
    shown = json.loads(output)
    assert shown["recipe"] == {"extractor": "letters", "model": "abc", "prompt": "", "options": {}}
    assert (shown["statistics"]["documents"], shown["statistics"]["contents"]) == (5, 4)
    assert shown["document"]["sentences"] == list(ADA.sentences)
    assert shown["triples"][1] == {
        "head": "Ada Lovelace",
        "relation": "wrote",
        "tail": "notes on the Analytical Engine",
        "document_id": "twin",
        "sentence": 1,
        "support": 97.5,
        "title": "Ada Lovelace",
        "text": "She wrote notes on the Analytical Engine.",
    }
    assert shown["failures"] == [{"document_id": "n\n1", "reason": "half"}]


@pytest.mark.parametrize("name", ["graph.jsonl", "graph.nt", "graph.ttl", "graph.tsv"])
def test_a_graph_travels_through_a_file_to_a_new_directory(
    directory: Path, run: Run, tmp_path: Path, name: str
) -> None:
    file, back = tmp_path / name, tmp_path / f"back-{name}"
    assert run("export", directory, "--out", file)[:2] == (0, f"wrote 5 documents to {file}\n")
    copy = tmp_path / "copy"
    status, output, _ = run("import", file, "--out", copy, "--json")
    assert status == 0
    assert json.loads(output)["statistics"]["triples"] == 6
    assert json.loads(run("export", copy, "--out", back, "--json")[1])["file"] == str(back)
    assert back.read_bytes() == file.read_bytes()
    status, _, errors = run("import", file, "--out", copy)
    assert status == 2
    assert "already holds a knowledge graph" in errors


def test_export_to_standard_output_can_be_cut_off(directory: Path, run: Run, tmp_path: Path) -> None:
    status, output, errors = run("export", directory, "--out", "-", "--format", "tsv")
    assert (status, errors) == (0, "")
    assert output.splitlines()[0] == "Ada Lovelace\tborn in\tLondon"
    status, _, errors = run("export", directory, "--out", "-", "--json")
    assert status == 2
    assert "name a file" in errors
    with TripleStore.open(tmp_path / "big", recipe=Recipe("x")) as graph:
        graph.add(Document("d", "T", ("word " * 100_000,)), [])
    for kind in ("jsonl", "turtle"):
        command = f"{sys.executable} -c 'from pytrace.cli import main; main()' kg export big --out - --format {kind} | head -c 9"
        result = subprocess.run(
            ["bash", "-c", command], capture_output=True, cwd=tmp_path, check=False, timeout=60, env={**os.environ}
        )
        assert len(result.stdout) == 9
        assert result.stderr == b""


def test_remove_deletes_all_named_documents_or_none(directory: Path, run: Run) -> None:
    status, _, errors = run("remove", directory, "ada", "nobody")
    assert status == 2
    assert "no document 'nobody'" in errors
    assert json.loads(run("show", directory, "--json")[1])["statistics"]["documents"] == 5
    assert run("remove", directory, "ada", "later", "ada")[:2] == (0, "removed 2 documents; 3 are left\n")
    with TripleStore.open(directory, mode="read") as graph:
        assert [document.id for document in graph.documents()] == ["twin", "london", "n\n1"]
        assert len(graph.triples(["twin"])) == 2


def test_edit_keeps_known_sentences_and_finds_those_of_new_triples(directory: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "ada.tsv"
    file.write_text("Ada Lovelace\twrote on\tthe Analytical Engine\nAda Lovelace\tborn in\tLondon\n")
    status, output, _ = run("edit", directory, "ada", "--triples", file)
    assert status == 0
    assert output == "ada has 2 triples now\nso have the documents with the same words: twin\n"
    with TripleStore.open(directory, mode="read") as graph:
        assert [(triple.tail, triple.sentence) for triple in graph.triples(["ada"])] == [
            ("the Analytical Engine", 1),
            ("London", 0),
        ]
        assert graph.triples(["ada"])[1].support == 100.0
        assert graph.is_edited("twin")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "{none}"), "there is no knowledge graph in"),
        (("show", "{graph}", "--document", "x"), "no document 'x'"),
        (("show", "{graph}", "--limit", "-1"), "-1 is not in the range"),
        (("export", "{graph}", "--out", "{none}/deep/graph.tsv"), "cannot write"),
        (("export", "{graph}", "--out", "graph.xml"), "tells no format"),
        (("export", "{graph}", "--out", "x", "--format", "xml"), "'xml' is not one of"),
        (("import", "{none}", "--out", "{none}2"), "there is no such file"),
        (("import", "{bad}", "--out", "{none}3"), "bad.tsv:2: 1 columns where"),
        (("remove", "{graph}"), "Missing argument 'DOCUMENT_ID...'"),
        (("edit", "{graph}", "ada", "--triples", "{none}.tsv"), "cannot be read: No such file"),
        (("edit", "{graph}", "ada", "--triples", "{far}"), "points at sentence 9, but there are 2"),
        (("edit", "{graph}", "ada", "--triples", "{graph}/graph.db"), "tells no format"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_status_2(
    directory: Path, run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "bad.tsv").write_text("a\tb\tc\noops\n")
    (tmp_path / "far.jsonl").write_text('{"head": "a", "relation": "b", "tail": "c", "sentence": 9}\n')
    names = {
        "graph": directory,
        "none": tmp_path / "none",
        "bad": tmp_path / "bad.tsv",
        "far": tmp_path / "far.jsonl",
    }
    status, output, errors = run(*(argument.format(**names) for argument in arguments))
    assert status == 2
    assert output == ""
    assert errors.startswith("pytrace: ")
    assert errors.count("\n") == 1
    assert said in errors


def test_changes_wait_for_no_other_writer(directory: Path, run: Run) -> None:
    with TripleStore.open(directory):
        status, _, errors = run("remove", directory, "ada")
        assert status == 2
        assert "is writing to the knowledge graph" in errors
        assert run("show", directory, "--limit", 0)[0] == 0


def test_verify_compares_a_graph_and_a_knowledge_base_with_their_checksums(
    directory: Path, run: Run, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    KnowledgeBase.build(directory, base, HashEncoder())
    for place, file, count in ((directory, "graph.db", 14), (base, "base.columns", 4)):
        status, output, _ = run("verify", place, "--json")
        assert (status, json.loads(output)) == (0, {"directory": str(place), "checked": count, "intact": True})
        path = place / file
        content = bytearray(path.read_bytes())
        content[content.rindex(b"Thames")] ^= 1
        path.write_bytes(content)
        status, output, errors = run("verify", place)
        assert (status, output) == (2, "")
        assert f"{path} is damaged" in errors
        assert errors.count("\n") == 1


_NESTED = b"<urn:a> <urn:b> " + b"<<( <urn:a> <urn:b> " * 20_000 + b"<urn:c>" + b" )>>" * 20_000 + b" .\n"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.tsv", (b"a\tb\tc\n", b"d\te\tf\n"), (b"a\tb\n", b"\xff\tb\tc\n", b"a\tb\tc\td\n")),
        (
            "a.jsonl",
            tuple(
                b'{"id": "%s", "title": "T%s", "sentences": ["S."], "triples": [{"head": "a", "relation": "b", "tail": "c%s"}]}\n'
                % (name, name, name)
                for name in (b"x", b"y")
            ),
            (b"[\n", b'{"id": 7, "triples": null}\n', b'{"id": "z", "title": "\xff", "triples": []}\n'),
        ),
        (
            "a.nt",
            (b"<urn:a> <urn:b> <urn:c> .\n", b'<urn:a> <urn:b> "d" .'),
            (b'<urn:a> <urn:b> "open .\n', b"<urn:a> <urn:b> 5 .\n", b'<urn:a> <urn:b> "\xff" .\n', _NESTED),
        ),
    ],
)
def test_bad_lines_of_triples_are_left_out_and_named_where_it_is_asked(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    good: tuple[bytes, ...],
    bad: tuple[bytes, ...],
) -> None:
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    file = tmp_path / name
    file.write_bytes(good[0] + b"".join(bad) + good[1])
    places = [f"not read: {file}: line {number}: " for number in range(2, 2 + len(bad))]
    for command in ("import", "index"):
        assert run(command, file, "--out", tmp_path / f"{command}-whole")[0] == 2
        status, output, errors = run(command, file, "--out", tmp_path / command, "--skip-bad", "--json")
        lines = [line for line in errors.splitlines() if "not read" in line]
        assert status == 3
        assert len(lines) == len(places)
        assert all(place in line for place, line in zip(places, lines, strict=True))
        document = json.loads(output)
        assert (document.get("triples") or document["statistics"]["triples"]) == 2
        assert [each["source"] for each in document["bad"]] == [str(file)] * len(bad)
    assert run("verify", tmp_path / "import")[0] == run("verify", tmp_path / "index")[0] == 0


def test_nothing_is_left_of_a_document_that_is_not_imported(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [
        {"id": "a", "title": "A", "sentences": ["One."], "triples": [{"head": "a", "relation": "b", "tail": "c"}]},
        {"id": "b", "title": "B", "triples": [{"head": "a", "relation": "b", "tail": "c", "sentence": 9}]},
        {"id": "c", "title": "A", "sentences": ["One."], "triples": []},  # the words of `a`, and other triples
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, _, errors = run("import", file, "--out", tmp_path / "graph", "--skip-bad")
    assert (status, errors.count("not read")) == (3, 2)
    with TripleStore.open(tmp_path / "graph", mode="read") as graph:
        assert [document.id for document in graph.documents()] == ["a"]


def test_a_fault_of_turtle_is_an_error_and_so_are_more_bad_lines_than_can_be_named(run: Run, tmp_path: Path) -> None:
    turtle, other = tmp_path / "a.ttl", tmp_path / "a.tsv"
    turtle.write_text("<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b> oops .\n")
    other.write_bytes(b"x\n" * 100_001)
    for file, said in ((turtle, "a.ttl:2: "), (other, "so are 100,000 lines before it")):
        status, _, errors = run("import", file, "--out", tmp_path / "graph", "--skip-bad")
        assert status == 2
        assert said in errors
        assert errors.count("\n") == 1
