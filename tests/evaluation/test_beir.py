"""BEIR data sets: questions, grades and pools of a corpus; what is broken is told by file and line."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.cli import common, program
from pytrace.documents import read_documents
from pytrace.engine import loading
from pytrace.errors import DataError, InputError
from pytrace.evaluation.data.beir import beir_settings, is_beir, read_judgements
from pytrace.evaluation.data.datasets import data_settings, read_questions
from pytrace.evaluation.data.question_report import QuestionReport
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Question
from pytrace.retrieval import Bm25Retriever

CORPUS: list[dict[str, Any]] = [
    {"_id": "fort", "title": "Fort Kongenstein", "text": "A Danish fort in Ada Foah. It is old.", "metadata": {}},
    {"_id": "ada", "title": "Ada Foah", "text": "A town of Ghana.", "metadata": {}},
    {"_id": "bread", "title": "", "text": "Bread is baked of flour and water.", "metadata": {}},
    {"_id": "keta", "title": "Fort Prinsenstein in Keta", "text": "", "metadata": {}},
    {"_id": "sea", "title": "Gulf", "text": "Salt water.", "metadata": {}},
]
QUERIES: list[dict[str, Any]] = [
    {"_id": "q2", "text": "What is bread baked of?", "metadata": {}},
    {
        "_id": "q1",
        "text": "Which old fort is Danish?",
        "metadata": {"answer": "Fort  Kongenstein", "supporting_facts": []},
    },
    {"_id": "q3", "text": "Not judged?", "metadata": {}},
]
QRELS = ("query-id\tcorpus-id\tscore", "q1\tfort\t2", "q1\tketa\t1", "q1\tsea\t1", "q1\tada\t0", "q2\tbread\t1")


def make(
    folder: Path,
    *,
    corpus: Sequence[object] = CORPUS,
    queries: Sequence[object] = QUERIES,
    qrels: Mapping[str, Sequence[str]] | Sequence[str] = QRELS,
) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, lines in (qrels if isinstance(qrels, Mapping) else {"test": qrels}).items():
        (folder / "qrels" / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))
    return folder


def read(path: Path, **options: Any) -> dict[str, Question]:
    return {question.id: question for question in read_questions(path, **options)}


class TestQuestions:
    def test_judged_questions_have_grades_and_answers_where_their_metadata_have_some(self, tmp_path: Path) -> None:
        questions = read(make(tmp_path))
        assert list(questions) == ["q2", "q1"], "in the order of the questions' file, those that nobody judged left out"
        first = questions["q1"]
        assert (first.question, first.answers) == ("Which old fort is Danish?", ("Fort Kongenstein",))
        assert first.supporting_documents == ("fort", "keta", "sea"), "0 means irrelevant"
        assert first.grades == (("fort", 2), ("keta", 1), ("sea", 1))
        assert questions["q2"].answers == ()

    def test_a_pool_holds_what_bm25_ranks_first_and_no_gold_document_that_it_misses(self, tmp_path: Path) -> None:
        question = read(make(tmp_path), pool=2)["q1"]
        assert [document.id for document in question.documents] == ["fort", "keta"]
        assert "sea" in question.supporting_documents, "it counts as missed"
        assert [document.id for document in read(tmp_path, pool=1)["q1"].documents] == ["fort"]
        assert len(read(tmp_path)["q1"].documents) == 3, "ada, keta and fort share a word with it; bread and sea do not"

    def test_pools_are_those_of_an_index_of_the_whole_corpus(self, tmp_path: Path) -> None:
        words = ["ada", "fort", "keta", "ghana", "old", "town", "sea", "salt", "bread", "flour"]
        corpus = [
            {"_id": str(at), "title": words[at % 7], "text": " ".join(words[(at * step) % 10] for step in range(1, 7))}
            for at in range(200)
        ]
        queries = [{"_id": word, "text": f"{word} {words[place - 3]}"} for place, word in enumerate(words)]
        make(tmp_path, corpus=corpus, queries=queries, qrels=[f"{word}\t0\t1" for word in words])
        retriever = Bm25Retriever(list(read_documents(tmp_path / "corpus.jsonl")), unmatched=False)
        for question in read(tmp_path, pool=17).values():
            expected = [hit.document.id for hit in retriever.retrieve([question.question], 17)[0]]
            assert [document.id for document in question.documents] == expected

    def test_documents_are_those_that_a_graph_is_built_of(self, tmp_path: Path) -> None:
        made = {document.id: document for document in read_documents(make(tmp_path))}
        given = {document.id: document for one in read(tmp_path).values() for document in one.documents}
        assert {id: (made[id].title, made[id].sentences) for id in ("fort", "ada", "bread")} == {
            id: (given[id].title, given[id].sentences) for id in ("fort", "ada", "bread")
        }
        assert given["bread"].title == "Bread is baked of flour and water."
        assert given["keta"].sentences == ("Fort Prinsenstein in Keta",), "a title alone is a text"
        assert given["fort"].source == f"{tmp_path / 'corpus.jsonl'}:1"

    def test_questions_share_their_documents(self, tmp_path: Path) -> None:
        queries = [{"_id": str(at), "text": "fort"} for at in range(3)]
        questions = read(make(tmp_path, queries=queries, qrels=[f"{at}\tfort\t1" for at in range(3)]))
        assert len({id(question.documents[0]) for question in questions.values()}) == 1

    def test_the_split_is_test_unless_a_file_is_named(self, tmp_path: Path) -> None:
        make(tmp_path, qrels={"train": ["q2\tbread\t1"], "dev": ["q1\tfort\t1"], "test": ["q1\tada\t1"]})
        assert read(tmp_path)["q1"].supporting_documents == ("ada",)
        assert list(read(tmp_path / "qrels" / "train.tsv")) == ["q2"]
        (tmp_path / "qrels" / "test.tsv").unlink()
        assert read(tmp_path)["q1"].supporting_documents == ("fort",)

    def test_compressed_files_are_unpacked(self, tmp_path: Path) -> None:
        expected = read(make(tmp_path))
        for path in (tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl", tmp_path / "qrels" / "test.tsv"):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        found = read(tmp_path, format="beir")
        assert [(one.id, one.grades, [d.sentences for d in one.documents]) for one in found.values()] == [
            (one.id, one.grades, [d.sentences for d in one.documents]) for one in expected.values()
        ]

    def test_a_limit_reads_no_further(self, tmp_path: Path) -> None:
        assert list(read(make(tmp_path), limit=1)) == ["q2"]

    def test_the_pool_and_all_that_is_left_out_are_told(self, tmp_path: Path) -> None:
        corpus = [*CORPUS, {"_id": "none", "title": " ", "text": ""}, CORPUS[1]]
        qrels = [*QRELS, "q3\tada\t0", "q9\tada\t1", "q2\tlost\t1"]
        report = QuestionReport()
        questions = read(make(tmp_path, corpus=corpus, qrels=qrels), report=report)
        assert (report.questions, report.left_out, report.empty_documents, report.repeated_documents) == (2, 2, 1, 1)
        assert report.unresolved_facts == 1
        assert questions["q2"].supporting_documents == ("bread", "lost"), "as in BEIR, it counts as missed"
        assert sorted(note.removeprefix(f"{tmp_path}/") for note in report.notes) == [
            "corpus.jsonl:6: document 'none' has neither title nor text and was left out",
            f"corpus.jsonl:7: document 'ada' was left out: the same as {tmp_path}/corpus.jsonl:2",
            "qrels/test.tsv: each question gets the first 100 documents of 5 by BM25 (--pool); the rest cannot be chosen",
            "qrels/test.tsv:8: left out: the question 'q9' is not in queries.jsonl",
            "qrels/test.tsv:9: the relevant document 'lost' is not in corpus.jsonl",
            "queries.jsonl:3: left out: none of its 1 judged documents is relevant",
        ]


class TestTroubles:
    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("q1\tfort", "2 columns parted by tabs, and 3 were expected"),
            ("q1 0 fort 1", "1 columns parted by tabs"),
            ("q1\t0\tfort\t1", "4 columns parted by tabs"),
            ("q1\tfort\tnan", "the score 'nan' is no whole number"),
            ("q1\tfort\t0.5", "the score '0.5' is no whole number"),
            ("q1\tfort\t-inf", "the score '-inf' is no whole number"),
            ("q1\tfort\t12345", "the score '12345' is no whole number of at most four digits"),
            ("q1\tfort\thigh", "the score 'high' is no whole number"),
            ("q1\tfort\t", "the score '' is no whole number"),
            ("\tfort\t1", "the query-id is empty"),
            ("q1\t \t1", "the corpus-id is empty"),
            ("q1\tfort\t3", "document 'fort' has the score 3 for question 'q1' here and 2 at "),
        ],
    )
    def test_a_broken_judgement_is_told_with_its_line(self, tmp_path: Path, line: str, told: str) -> None:
        make(tmp_path, qrels=[*QRELS, "", line])
        with pytest.raises(DataError, match=re.escape(f"qrels/test.tsv:8: {told}")):
            read(tmp_path)

    def test_numbers_in_the_first_line_are_no_names_of_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "test.tsv"
        path.write_text("\ufeffq1\tfort\t1.0\r\nq1\tfort\t1\r\nq1\tada\t-1\r\n", encoding="utf-8")
        assert {id: one.grade for id, one in read_judgements(path)["q1"].items()} == {"fort": 1, "ada": -1}
        for first in ("q1\tfort\tnan", "q1\tfort\t1.5"):
            path.write_text(f"{first}\nq1\tfort\t1\n")
            with pytest.raises(DataError, match=r"test\.tsv:1: the score"):
                read_judgements(path)

    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            (
                {"corpus": [*CORPUS, {**CORPUS[0], "text": "Others."}]},
                r"corpus.jsonl:6: document id 'fort' stands for other",
            ),
            ({"corpus": [*CORPUS, {"title": "A", "text": "B."}]}, r"corpus.jsonl:6: no `_id`"),
            ({"corpus": [{"_id": "1", "title": "A"}]}, r"corpus.jsonl:1: no `text`"),
            ({"corpus": [{"_id": "1", "title": 5, "text": "B"}]}, r"corpus.jsonl:1: `title` must be a string"),
            ({"corpus": []}, r"corpus.jsonl: holds no document"),
            ({"queries": [{**QUERIES[0], "text": " "}]}, r"queries.jsonl:1: `text` is empty"),
            ({"queries": [{"_id": "q1"}]}, r"queries.jsonl:1: `text` must be a string"),
            (
                {"queries": [QUERIES[0], {**QUERIES[0], "text": "Other?"}]},
                r"queries.jsonl:2: question id 'q2' also stands at",
            ),
            (
                {"queries": [{**QUERIES[1], "metadata": {"answer": 3}}]},
                r"queries.jsonl:1: `answer` must be a string or a list",
            ),
            ({"queries": [{**QUERIES[1], "metadata": [3]}]}, r"queries.jsonl:1: `metadata` must be an object"),
            ({"queries": [QUERIES[2]]}, r"test.tsv: judges none of the questions"),
            ({"qrels": [QRELS[0]]}, r"test.tsv: judges no document"),
            ({"qrels": ["q2\tbread\t0"]}, r"holds no question"),
            ({"qrels": {}}, r"has no judgements: none of qrels/test.tsv, qrels/dev.tsv, qrels/train.tsv is there"),
        ],
    )
    def test_broken_data_are_told(self, tmp_path: Path, changed: dict[str, Any], told: str) -> None:
        with pytest.raises(DataError, match=told):
            read(make(tmp_path, **changed))

    def test_missing_files_are_told(self, tmp_path: Path) -> None:
        make(tmp_path / "a").joinpath("queries.jsonl").unlink()
        with pytest.raises(DataError, match=r"no queries\.jsonl beside it"):
            read(tmp_path / "a")
        with pytest.raises(
            DataError, match="is a folder, and no BEIR data set; give a file of questions, or the folder"
        ):
            read(tmp_path)
        with pytest.raises(DataError, match="is no BEIR data set"):
            read(make(tmp_path / "b") / "queries.jsonl", format="beir")
        with pytest.raises(DataError, match=r"none\.tsv: no such file"):
            read(tmp_path / "b" / "qrels" / "none.tsv")

    def test_the_same_question_twice_is_asked_once(self, tmp_path: Path) -> None:
        report = QuestionReport()
        assert len(read(make(tmp_path, queries=[*QUERIES, QUERIES[0]]), report=report)) == 2
        assert report.left_out == 1

    def test_pools_that_make_no_sense_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="pool is 0"):
            read_questions(make(tmp_path), pool=0)
        rows = tmp_path / "rows.jsonl"
        rows.write_text('{"question": "Where?", "answers": ["Ghana"]}')
        with pytest.raises(InputError, match="a pool of 5 documents is of a corpus"):
            read_questions(rows, pool=5)

    @settings(max_examples=200, deadline=None)
    @given(st.text(max_size=60))
    def test_any_text_as_judgements_is_read_or_told(self, tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
        path = tmp_path_factory.mktemp("qrels") / "test.tsv"
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        try:
            judged = read_judgements(path)
        except DataError as error:
            judged = {str(error): {}}
        assert all(documents or question.startswith(str(path)) for question, documents in judged.items())


def test_a_run_is_known_by_the_content_of_all_three_files_and_the_pool(tmp_path: Path) -> None:
    before = data_settings(make(tmp_path))
    assert before == {**beir_settings(tmp_path), "pool": 100}
    assert before.keys() == {"corpus", "queries", "judgements", "pool"}
    (tmp_path / "qrels" / "test.tsv").write_text("q1\tfort\t1\n")
    after = data_settings(tmp_path, pool=7)
    assert [name for name in before if before[name] != after[name]] == ["judgements", "pool"]
    assert [is_beir(tmp_path / name) for name in (".", "qrels/test.tsv", "qrels", "corpus.jsonl")] == [
        True,
        True,
        False,
        False,
    ]
    assert data_settings(tmp_path / "queries.jsonl").keys() == {"bytes", "sha256"}


def test_the_command_scores_choices_of_a_corpus(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(lambda _: "Fort Kongenstein"))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    folder, out = make(tmp_path / "data"), tmp_path / "run"

    def run(*arguments: object) -> tuple[int, str, str]:
        status = common.run(
            program, ["eval", "bm25:reading=free", "--data", str(folder), "--out", str(out), *map(str, arguments)]
        )
        return (status, *capfd.readouterr())

    status, output, errors = run("--pool", 2, "--json")
    assert (status, "the first 2 documents of 5" in errors) == (0, True)
    told = json.loads(output)
    [method] = told["methods"]
    assert (method["exact_match"], method["n"]) == (1.0, 2)
    assert (told["pool"]["held"], told["pool"]["relevant"]) == (3, 4)
    # q1: 2/1 + 1/log2(3) of 2/1 + 1/log2(3) + 1/2; q2: all.
    assert method["ranking"]["ndcg"]["mean"] == pytest.approx((2.63093 / 3.13093 + 1) / 2, abs=1e-5)
    status, _, errors = run("--pool", 3, "--resume")
    assert (status, "data" in errors) == (2, True), "another pool is another run"
    status, output, _ = run("--pool", 2, "--resume")
    assert (status, "NDCG@10" in output) == (0, True)
