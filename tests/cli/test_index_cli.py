"""`pytrace index`, `pytrace search` and `pytrace ask --index`: documents are indexed once, followed, and found across hops."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from pytrace.cli import common, program
from pytrace.engine.corpus import Corpus
from pytrace.engine.loading import Engine
from pytrace.engine.shards import Shards
from pytrace.evaluation.data.indexed_questions import index_settings
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.retrieval.hops.weights import learned_questions, load_weights, save_weights
from pytrace.retrieval.passages import PassageIndex
from pytrace.storage.question_hashes import question_hash

Run = Callable[..., tuple[int, str, str]]
_HEADS = ("--set", "unit=triple", "--set", "extraction=phrases", "--set", "heads=open")
QUESTION = "Who founded the firm that owns the Marigold Tern?"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line with an encoder that counts words in place of the tiny one."""
    monkeypatch.setattr("pytrace.engine.loading.Engine.encoder", HashEncoder(dimension=64))

    def call(*arguments: object) -> tuple[int, str, str]:
        status = common.run(program, [str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in {
        "tern": "# Marigold Tern\n\nThe Marigold Tern is a ferry. Brackwater Lines has owned it since 1931.",
        "lines": "# Brackwater Lines\n\nBrackwater Lines is a firm. It was founded by Tobias Rook.",
        "rook": "---\nauthor: Venn\n---\n# Tobias Rook\n\nTobias Rook was a pilot.",
        "low": "# Low Ferry\n\nLow Ferry is a town. It was founded by the crown.",
    }.items():
        (folder / f"{name}.md").write_text(text)
    return folder


@pytest.fixture
def index(tmp_path: Path, docs: Path, run: Run) -> Path:
    status, _, errors = run("index", "build", tmp_path / "index", "--docs", docs)
    assert status == 0, errors
    return tmp_path / "index"


def test_an_index_is_built_shown_searched_and_verified(index: Path, docs: Path, run: Run) -> None:
    told = json.loads(run("index", "show", index, "--ids", "--json")[1])
    assert (told["documents"], told["passages"]) == (4, 4)
    assert [entry["source"] for entry in told["entries"]] == [
        str(docs / f"{name}.md") for name in ("lines", "low", "rook", "tern")
    ]
    assert "4 passages, all intact" in run("index", "verify", index)[1]
    status, shown, _ = run("search", QUESTION, "--index", index, "--passages", 2)
    assert status == 0
    lines = shown.splitlines()
    assert len(lines) == 4
    assert {line.split("  ")[1].partition(". ")[2] for line in lines[::2]} == {"Marigold Tern", "Brackwater Lines"}
    assert any(line.endswith(f"  {docs}/lines.md") for line in lines), "no offsets of characters"
    assert any("It was founded by Tobias Rook." in line for line in lines[1::2])
    found = json.loads(run("search", QUESTION, "--index", index, "--json", "--passages", 2)[1])["evidence"]
    assert {source["title"] for source in found["sources"][:2]} == {"Marigold Tern", "Brackwater Lines"}
    chain = next(chain for chain in found["chains"] if len(chain["steps"]) == 2)
    assert chain["steps"][1]["sentence"] == "It was founded by Tobias Rook."
    assert chain["steps"][1]["link"].lower() == "brackwater lines"
    assert chain["steps"][1]["characters"] == [28, 58]


def test_folders_and_filters_need_not_be_utf8(tmp_path: Path, docs: Path, run: Run) -> None:
    folder, place = docs.rename(tmp_path / os.fsdecode(b"d\xff")), tmp_path / "index"
    status, _, errors = run("index", "build", place, "--docs", folder, "--where", os.fsdecode(b"author!=\xff"))
    assert status == 0, errors
    (folder / "low.md").unlink()
    assert "1 removed, 3 as before" in run("index", "sync", place)[1]
    assert "3 passages, all intact" in run("index", "verify", place)[1]


def test_sync_follows_the_folder_that_the_index_was_built_from(
    index: Path, docs: Path, run: Run, tmp_path: Path
) -> None:
    (docs / "low.md").unlink()
    (docs / "new.md").write_text("# Ash Point\n\nAsh Point is a light.")
    (docs / "rook.md").write_text("# Tobias Rook\n\nTobias Rook was a smith.")
    status, shown, _ = run("index", "sync", index, "--json")
    assert status == 0
    # What has no id of its own is another document where its text is another.
    assert json.loads(shown)["changes"] == {"added": 2, "replaced": 0, "unchanged": 2, "removed": 2, "encoded": 2}
    assert json.loads(run("index", "sync", index, "--json")[1])["changes"]["unchanged"] == 4
    other = tmp_path / "other"
    other.mkdir()
    (other / "one.md").write_text("# One\n\nOne stays.")
    assert json.loads(run("index", "sync", index, "--docs", other, "--json")[1])["documents"] == 1


def test_single_documents_are_added_and_removed(index: Path, run: Run, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "ash", "title": "Ash Point", "text": "Ash Point is a light."}\n')
    assert "5 passages of 5 documents; 1 added" in run("index", "add", index, "--docs", more)[1]
    more.write_text('{"id": "ash", "title": "Ash Point", "text": "Ash Point is a ruin."}\n')
    assert "0 added, 1 replaced" in run("index", "add", index, "--docs", more)[1]
    assert "4 passages of 4 documents; 0 added, 0 replaced, 1 removed" in run("index", "remove", index, "ash")[1]
    status, _, errors = run("index", "remove", index, "ash")
    assert status == 2
    assert "there is no document 'ash' in" in errors


def test_a_build_that_is_called_again_follows_its_folder(index: Path, docs: Path, run: Run) -> None:
    build = ("index", "build", index, "--docs", docs)
    leftover = index.with_name("index.parts") / "1-of-2"
    leftover.mkdir(parents=True)
    for again in ((*build, "--processes", 2), build):
        status, shown, errors = run(*again)
        assert (status, errors) == (0, "")
        assert "0 added, 0 replaced, 0 removed, 4 as before; 0 passages encoded" in shown
    assert not leftover.parent.exists()
    (docs / "low.md").unlink()
    assert "1 removed, 3 as before" in run(*build)[1]


def test_documents_that_cannot_be_read_leave_the_index_as_it_was(index: Path, run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "a", "title": "A", "text": "One."}\n{"id": "b"\n')
    status, _, errors = run("index", "add", index, "--docs", broken)
    assert status == 2
    assert "broken.jsonl:2" in errors
    assert json.loads(run("index", "show", index, "--json")[1])["documents"] == 4


def test_bad_files_are_skipped_where_that_is_asked_for_and_named_at_the_end(
    docs: Path, run: Run, tmp_path: Path
) -> None:
    rows = docs / "rows.jsonl"
    rows.write_text(
        '{"id": "a", "title": "A", "text": "One."}\n{"id": "b"\n{"id": "c", "title": "C", "text": "Two."}\n'
    )
    (docs / "old.txt").write_bytes(b"\x00\x01\x02\xff" * 50)
    place, build = tmp_path / "index", ("--docs", docs, "--skip-bad")
    assert run("index", "build", place, "--docs", docs)[0] == 2
    parts = [run("index", "build", tmp_path / part[0], *build, "--part", part)[2] for part in ("1/2", "2/2")]
    assert sum(errors.count("not read: ") for errors in parts) == 2
    status, output, errors = run("index", "build", place, *build, "--json")
    assert status == 3, errors
    assert [Path(bad["source"]).name for bad in json.loads(output)["bad"]] == ["old.txt", "rows.jsonl"]
    first, second = errors.splitlines()[-2:]
    assert first.startswith(f"pytrace: not read: {docs}/old.txt: ")
    assert second.startswith(f"pytrace: not read: {rows}: line 2: not JSON")
    held = {entry["id"] for entry in json.loads(run("index", "show", place, "--ids", "--json")[1])["entries"]}
    assert len(held) == 5
    # What was read of a file that has become bad stays.
    (docs / "tern.md").write_bytes(b"\x00" * 50)
    status, output, errors = run("index", "sync", place, "--skip-bad")
    assert status == 3
    assert "nothing is removed" in errors
    assert "5 passages of 5 documents; 0 added, 0 replaced, 0 removed" in output
    (docs / "tern.md").unlink()
    (docs / "old.txt").unlink()
    rows.unlink()
    status, output, errors = run("index", "sync", place, "--skip-bad")
    assert (status, errors) == (0, "")
    assert "3 passages of 3 documents; 0 added, 0 replaced, 2 removed" in output


def test_filters_hold_in_searches(index: Path, run: Run) -> None:
    found = json.loads(run("search", QUESTION, "--index", index, "--where", "author=Venn", "--json")[1])
    assert [source["title"] for source in found["evidence"]["sources"]] == ["Tobias Rook"]
    none = json.loads(run("search", QUESTION, "--index", index, "--where", "author=Nobody", "--json")[1])
    assert "sources" not in none["evidence"]


def test_misuse_is_one_sentence(index: Path, docs: Path, run: Run, tmp_path: Path) -> None:
    for arguments, expected in (
        (
            ("index", "build", index, "--docs", docs, "--passage-words", 50),
            "holds 4 documents already, of other files or read otherwise; bring them up to date with 'pytrace index sync",
        ),
        (("index", "build", docs, "--docs", docs), "holds other files ("),
        (("index", "sync", tmp_path / "none"), "there is no index at"),
        (("search", QUESTION, "--index", tmp_path / "none"), "there is no index at"),
        (("search", " ", "--index", index), "the question is empty"),
        (("search", QUESTION, "--index", index, "--where", "?"), "'?' is no filter"),
        (("ask", QUESTION, "--index", index, "--docs", docs), "--index has its documents already"),
    ):
        status, shown, errors = run(*arguments)
        assert status == 2, arguments
        assert shown == ""
        assert expected in errors
        assert len(errors.strip().splitlines()) == 1


def test_many_questions_are_asked_in_one_batch(
    index: Path, docs: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["Tobias Rook", "Low Ferry"])
    monkeypatch.setattr("pytrace.engine.loading.Engine.model", model)
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        f'{{"id": 1, "question": "{QUESTION}"}}\n\n{{"question": "Which town was founded by the crown?"}}\n'
    )
    for source in (("--index", index), ("--docs", docs)):
        model = ScriptedModel(["Tobias Rook", "Low Ferry"])
        monkeypatch.setattr("pytrace.engine.loading.Engine.model", model)
        status, shown, errors = run(
            "ask", "--questions", questions, *source, "--method", "rag:reading=free", "--json", "--retrieve", 2
        )
        assert status == 0, errors
        told = json.loads(shown)["results"]
        assert [one["answer"] for one in told] == ["Tobias Rook", "Low Ferry"]
        assert [one["question"] for one in told] == [QUESTION, "Which town was founded by the crown?"]
    (tmp_path / "plain.txt").write_text(f"{QUESTION}\n")
    monkeypatch.setattr("pytrace.engine.loading.Engine.model", ScriptedModel(["Tobias Rook"]))
    shown = run("ask", "--questions", tmp_path / "plain.txt", "--index", index, "--method", "rag:reading=free")[1]
    assert shown.startswith(f"Question: {QUESTION}\nAnswer: Tobias Rook\n")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", '{"question": "Who?"}\n{"ask": 1}\n', 'a.jsonl:2: the row has no "question"'),
        ("a.jsonl", '{"question": " "}\n', "a.jsonl:1: the question is empty"),
        ("a.txt", "\n\n", "a.txt: holds no question"),
        ("a.txt", b"\xff\n", "a.txt:1: not UTF-8 (byte 0xff)"),
        ("a.txt", b"\0", "a.txt: is a binary file"),
        ("a.txt", None, "a.txt: no such file"),
    ],
)
def test_questions_that_cannot_be_read_are_told(
    index: Path, run: Run, tmp_path: Path, name: str, content: str | bytes | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    status, _, errors = run("ask", "--questions", tmp_path / name, "--index", index)
    assert status == 2
    assert expected in errors
    assert run("ask", QUESTION, "--questions", tmp_path / name, "--index", index)[2].startswith(
        "pytrace: there must be one QUESTION"
    )


@pytest.fixture
def corpus_questions(tmp_path: Path) -> Path:
    path = tmp_path / "open.jsonl"
    rows = [
        {"id": "1", "question": QUESTION, "answers": ["Tobias Rook"], "gold": ["tern", "lines"]},
        {"id": "2", "question": "Which town was founded by the crown?", "answers": [], "gold": ["low", "missing"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_methods_are_evaluated_over_an_index(
    corpus_questions: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # "lines" is cut into two passages, of which the better one counts.
    long = (
        "Brackwater Lines is a firm. "
        + "It carries mail to the isle and back again. " * 40
        + "It was founded by Tobias Rook."
    )
    rows = [
        {
            "id": "tern",
            "title": "Marigold Tern",
            "text": "The Marigold Tern is a ferry. Brackwater Lines has owned it since 1931.",
        },
        {"id": "lines", "title": "Brackwater Lines", "text": long},
        {"id": "low", "title": "Low Ferry", "text": "Low Ferry is a town. It was founded by the crown."},
        {"id": "ash", "title": "Ash Point", "text": "Ash Point is a light."},
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("index", "build", tmp_path / "index", "--docs", tmp_path / "corpus.jsonl")[0] == 0
    assert json.loads(run("index", "show", tmp_path / "index", "--json")[1])["passages"] > 4
    monkeypatch.setattr("pytrace.engine.loading.Engine.model", ScriptedModel(["Tobias Rook"] * 8))
    arguments = ("eval", "rag:reading=free", "--data", corpus_questions, "--index", tmp_path / "index", "--pool", 3)
    status, shown, errors = run(*arguments, "--out", tmp_path / "run", "--json")
    assert status == 0, errors
    told = json.loads(shown)
    assert told["retrieval"]["questions"] == 2
    assert told["retrieval"]["recall"]["10"] == pytest.approx(0.75)
    assert told["retrieval"]["whole"]["10"] == 0.5
    assert told["settings"]["index"]["given"] == 3
    (method,) = told["methods"]
    assert method["supporting_recall"]["mean"] == pytest.approx(0.75)
    assert method["exact_match"] == 1
    # Another pool is another run.
    status, _, errors = run(*arguments[:-1], 2, "--out", tmp_path / "run", "--resume")
    assert status == 2
    assert "index" in errors
    text = run(*arguments)[1]
    assert "supporting documents among the first passages that the index gave, of 2 questions" in text
    status, _, errors = run(*arguments, "--pad", 10)
    assert status == 2
    assert "--index gives its own passages" in errors


def test_parts_that_are_merged_are_the_index_in_one_piece(index: Path, tmp_path: Path, docs: Path, run: Run) -> None:
    parts = [tmp_path / f"part {number}" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        status, _, errors = run("index", "build", part, "--docs", docs, "--part", f"{number}/3")
        assert status == 0, errors
    status, said, errors = run("index", "merge", tmp_path / "merged", *parts)
    assert status == 0, errors
    assert "4 passages of 4 documents" in said
    assert "0 passages encoded" in said
    found = [run("search", QUESTION, "--index", each, "--json")[1] for each in (index, tmp_path / "merged")]
    chains = [json.loads(text)["evidence"]["chains"] for text in found]
    assert chains[0] == chains[1]
    # Where its documents are, a merged index knows of the first.
    assert "4 as before; 0 passages encoded" in run("index", "sync", tmp_path / "merged")[1]
    # Merged once more, nothing is there twice.
    assert "4 passages of 4 documents" in run("index", "merge", tmp_path / "merged", *parts)[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--part", "0/3"), "there is no part 0 of 3"),
        (("--part", "two"), "--part two is not K/N"),
        (("--part", "1/3", "--processes", "2"), "leave out --processes"),
        (("--ray-address", "auto"), "is of --engine ray"),
    ],
)
def test_parts_that_cannot_be_are_told(
    tmp_path: Path, docs: Path, run: Run, arguments: tuple[str, ...], told: str
) -> None:
    status, _, errors = run("index", "build", tmp_path / "part", "--docs", docs, *arguments)
    assert status == 2
    assert told in errors


def test_a_beir_folder_is_evaluated_over_its_index_without_a_pool(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{number}", "title": "", "text": f"Loaf {number} is baked at dawn."} for number in range(30)]
    corpus += [
        {"_id": "tern", "title": "Marigold Tern", "text": "The Marigold Tern is a ferry of Brackwater Lines."},
        {"_id": "lines", "title": "Brackwater Lines", "text": "Brackwater Lines was founded by Tobias Rook."},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": QUESTION}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ttern\t1\nq\tlines\t2\n")
    assert run("index", "build", tmp_path / "index", "--docs", folder / "corpus.jsonl")[0] == 0
    monkeypatch.setattr("pytrace.engine.loading.Engine.model", ScriptedModel(["Tobias Rook"] * 8))
    status, shown, errors = run("eval", "rag", "--data", folder, "--index", tmp_path / "index", "--pool", 5, "--json")
    assert status == 0, errors
    told = json.loads(shown)
    assert told["retrieval"]["recall"]["5"] == 1
    (method,) = told["methods"]
    assert method["supporting_recall"]["mean"] == 1
    assert method["ranking"]["ndcg"]["mean"] > 0.8


def test_weights_are_learned_for_an_index_and_kept_if_they_are_better(tmp_path: Path, run: Run) -> None:
    # What answers is named by its ferry, and the question's own words lead elsewhere.
    rows, questions = [], []
    for number in range(24):
        rows += [
            {"id": f"ferry {number}", "title": f"Ferry {number}", "text": f"Ferry {number} is run by Line {number}."},
            {"id": f"line {number}", "title": f"Line {number}", "text": f"Line {number} was begun by Rook {number}."},
            {
                "id": f"other {number}",
                "title": f"Firm {number}",
                "text": f"Who founded Firm {number}? It runs ferries.",
            },
        ]
        gold = [f"ferry {number}", f"line {number}"]
        questions.append({"id": str(number), "question": f"Who founded what runs Ferry {number}?", "gold": gold})
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps({**question, "answers": ["x"]}) + "\n" for question in questions))
    index = tmp_path / "index"
    assert run("index", "build", index, "--docs", tmp_path / "corpus.jsonl")[0] == 0
    status, shown, errors = run("index", "learn", index, "--data", data, "--json")
    assert status == 0, errors
    told = json.loads(shown)
    assert told["questions"] == 24
    assert told["kept"] == (sum(told["own"]) > sum(told["shipped"])) == (index / "weights.json").is_file()
    assert sum(told["own"]) >= sum(told["shipped"])
    assert told["kept"]
    # What was learned from is known: these questions, and those of the shipped weights, from which the learning starts.
    learned = learned_questions(index)
    assert learned == {question_hash(question["question"]) for question in questions} | learned_questions()
    listed = index / "weights.questions.json"
    content = listed.read_bytes()
    listed.write_bytes(content.replace(b'"made_by"', b'"by"'))
    status, _, errors = run("index", "verify", index)
    assert status == 2
    assert f"{listed}: is not a list of question hashes" in errors
    assert "pytrace index learn" in errors
    listed.write_bytes(content)
    assert run("index", "verify", index)[0] == 0
    # A broken file is told, and one that is gone leaves the shipped weights.
    (index / "weights.json").write_text("{}")
    status, _, errors = run("search", QUESTION, "--index", index)
    assert status == 2
    assert "learn anew" in errors
    (index / "weights.json").unlink()
    assert run("search", QUESTION, "--index", index)[0] == 0
    data.write_text(json.dumps({**questions[0], "answers": ["x"]}) + "\n")
    status, _, errors = run("index", "learn", index, "--data", data)
    assert status == 2
    assert "too few to learn from" in errors


def test_what_is_not_a_part_stays_where_parts_were(tmp_path: Path) -> None:
    shards = Shards(tmp_path / "papers.parts", (), {}, None, Engine(), 2)
    for number in (1, 2):
        shards.part(number).mkdir(parents=True)
    (tmp_path / "papers.parts" / "mine.txt").write_text("mine")
    shards.clear()
    assert [path.name for path in (tmp_path / "papers.parts").iterdir()] == ["mine.txt"]
    (tmp_path / "papers.parts" / "mine.txt").unlink()
    shards.clear()
    assert not (tmp_path / "papers.parts").exists()


def test_a_run_with_other_weights_is_another_run(index: Path) -> None:
    with closing(Corpus.open(index)) as corpus:
        before = index_settings(corpus, 5)
        save_weights(index, msgspec.structs.replace(load_weights(), surest=0.5), [])
        assert load_weights(index).surest == 0.5
        after = index_settings(corpus, 5)
    assert before["sha256"] != after["sha256"]
    assert before["passages"] == after["passages"]


def test_a_run_goes_on_over_an_index_whose_files_changed_and_whose_documents_did_not(
    index: Path, docs: Path, tmp_path: Path, run: Run
) -> None:
    def settings(place: Path) -> dict[str, object]:
        with closing(Corpus.open(place)) as corpus:
            return index_settings(corpus, 5)

    before, files = settings(index), sorted(path.name for path in index.iterdir())
    (docs / "late.md").write_text("# Late\n\nA late page.")
    assert run("index", "sync", index)[0] == 0
    assert settings(index) != before
    (docs / "late.md").unlink()
    assert run("index", "sync", index)[0] == 0
    assert sorted(path.name for path in index.iterdir()) != files
    assert settings(index) == before
    parts = [tmp_path / "1", tmp_path / "2"]
    for number, part in enumerate(parts, 1):
        assert run("index", "build", part, "--docs", docs, "--part", f"{number}/2")[0] == 0
    assert run("index", "merge", tmp_path / "merged", *reversed(parts))[0] == 0
    assert settings(tmp_path / "merged") == before
    assert run("index", "build", tmp_path / "small", "--docs", docs, "--vectors", "int8")[0] == 0
    assert settings(tmp_path / "small") != before


def test_heads_of_triples_are_names_of_their_passages(tmp_path: Path, docs: Path, run: Run) -> None:
    (docs / "notes.md").write_text("# Notes\n\nIt rained. Orrin Vale bought Low Ferry in 1901.")
    graph, index = tmp_path / "graph", tmp_path / "named"
    build = ("kg", "build", "--docs", docs, "--out", graph, *_HEADS)
    assert run(*build)[0] == 0
    status, shown, errors = run("index", "build", index, "--docs", docs, "--kg", graph, "--json")
    assert status == 0, errors
    plain = json.loads(run("index", "build", tmp_path / "plain", "--docs", docs, "--json")[1])
    assert json.loads(shown)["names"] > plain["names"]
    with PassageIndex(index) as opened:
        (notes,) = [passage for passage in opened.passages(range(len(opened))) if passage.title == "Notes"]
        assert notes.origin is not None
        assert "Orrin Vale" in notes.origin.names
        assert opened.graph is not None
        found = opened.graph.table.find(["who was orrin vale"])
        assert [opened.graph.table.name(name) for name in found.names] == ["orrin vale"]
    # A sync reads the graph again, and changed names encode nothing.
    assert json.loads(run("index", "sync", index, "--json")[1])["changes"]["unchanged"] == 5
    (docs / "notes.md").write_text("# Notes\n\nIt rained. Ada Foah bought Low Ferry in 1901.")
    assert run(*build, "--resume")[0] == 0
    assert json.loads(run("index", "sync", index, "--json")[1])["changes"]["encoded"] == 1
    with PassageIndex(index) as opened:
        assert opened.graph is not None
        assert len(opened.graph.table.find(["ada foah"]).names) == 1
    # The same from several processes, and from Python.
    assert Corpus.build(tmp_path / "third", docs, Engine(), kg=graph).index.manifest.reading["kg"] == str(graph)
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "a", "title": "A", "text": "One."}\n')
    status, _, errors = run("index", "build", tmp_path / "none", "--docs", other, "--kg", graph)
    assert status == 2
    assert "has no triples of any of 1 passages; build it from the same documents" in errors
    assert run("index", "build", tmp_path / "no graph", "--docs", docs, "--kg", tmp_path / "nowhere")[0] == 2
