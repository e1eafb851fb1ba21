"""Fair tables: mixed readers are marked, and scores on questions that weights have not seen stand next to those on all."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytrace.cli.report import print_report, print_retrieval
from pytrace.errors import DataError, StoreError
from pytrace.evaluation.data.datasets import CLAIM
from pytrace.evaluation.data.indexed_questions import retrieval_scores
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.scores.readers_in_use import ReaderInUse, reader_in_use, reader_texts
from pytrace.evaluation.scores.seen_questions import (
    ENCODER,
    EXTRACTOR,
    GENERATOR,
    SEARCH,
    graph_path,
    question_lists,
)
from pytrace.evaluation.scores.significance import bootstrap_interval
from pytrace.evaluation.scores.summary import LEARNED_FROM, REPLACED, Report, make_report, score_run
from pytrace.methods.abilities import CAPABLE, UNABLE, Abilities
from pytrace.methods.catalog import METHODS, method_settings
from pytrace.records import Document, Question
from pytrace.report.csv_tables import write_csv_tables
from pytrace.report.runs import report_page
from pytrace.results import Result
from pytrace.storage.question_hashes import question_hash, save_question_hashes
from tests.scripted_methods import read

COUNT = 8
SPAN = {"reading": "span", "reader_demonstrations": 4}
FREE = {"reading": "free", "reader_demonstrations": 1}
THOUGHTS = {"samples": 5, "demonstrations": 3}
SETTINGS: dict[str, Any] = {
    "language model": "m" * 64,
    "settings": {"trace": SPAN, "rag": SPAN, "scope-coe": FREE, "cot": THOUGHTS, "cok": THOUGHTS, "odd": {"x": 1}},
}


def asked(number: int) -> str:
    return f"Who built house {number}?"


def seen(*numbers: int) -> list[str]:
    return sorted(question_hash(f"  {asked(number).upper()}\n") for number in numbers)


def results(method: str, right: Sequence[int], *, kind: str = "") -> list[RunRow]:
    """Return rows of which some are right, and chose the supporting document; the others chose another one."""
    rows = []
    for number in range(COUNT):
        chosen = "a" if number in right else "b"
        text = "Ada" if number in right else "Bo"
        found = Result(question=asked(number), answer=text, evidence=read("x", chosen), context_tokens=3)
        rows.append(RunRow(method, f"q{number}", asked(number), ("Ada",), ("a",), kind=kind, result=found))
    return rows


def report(
    methods: Sequence[str] = ("trace", "rag"), *, lists: Any = None, settings: dict[str, Any] | None = None
) -> Report:
    # The seen questions are the ones that are answered rightly, as they would be.
    rights = ((0, 1, 2, 3, 4), (0, 1, 2), (5, 6, 7), (4, 5))
    return make_report(
        {name: results(name, right) for name, right in zip(methods, rights, strict=False)},
        settings=SETTINGS if settings is None else settings,
        lists=lists,
    )


def printed(one: Report, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_report(one)
    return capsys.readouterr().out.splitlines()


class TestSeenQuestions:
    def test_scores_on_unseen_questions_are_next_to_those_on_all(self, capsys: pytest.CaptureFixture[str]) -> None:
        one = report(lists={EXTRACTOR: seen(0, 1, 2, 3, 99), SEARCH: seen(7)})
        trace, rag = one.methods
        assert (one.unseen, one.questions) == (4, COUNT)
        assert trace.unseen is not None
        assert rag.unseen is not None
        # Of questions 4 to 7, trace has the first right, and rag none.
        assert (trace.exact_match, trace.unseen.exact_match, trace.unseen.f1, trace.unseen.n) == (0.625, 0.25, 0.25, 4)
        assert trace.unseen.exact_match_interval == bootstrap_interval([1, 0, 0, 0])
        assert trace.unseen.supporting_recall.mean == 0.25
        assert (rag.exact_match, rag.unseen.exact_match, rag.unseen.supporting_recall.mean) == (0.375, 0.0, 0.0)
        lines = printed(one, capsys)
        assert lines[1] == (
            "4 of 8 questions were used to train the answer extractor's weights; figures of the 4 unseen questions are shown next "
            "to those of all"
        )
        assert "METHOD  EM " in lines[2]
        assert [lines[2].count(heading) for heading in ("EM UNSEEN", "F1 UNSEEN", "SUPPORT R UNSEEN")] == [1, 1, 1]
        low, high = bootstrap_interval([1, 0, 0, 0]) or (0, 0)
        assert f"25.0 ({100 * low:.1f}–{100 * high:.1f})" in lines[3]
        assert any(line.startswith("differences on all questions, seen ones included, ") for line in lines)

    def test_a_data_set_that_is_wholly_unseen_has_one_line_and_no_column(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        one = report(lists={EXTRACTOR: seen(99), SEARCH: seen(0)})
        assert (one.unseen, [method.unseen for method in one.methods]) == (COUNT, [None, None])
        lines = printed(one, capsys)
        assert lines[1] == "none of the 8 questions was used to train the weights of the answer extractor"
        assert "UNSEEN" not in "\n".join(lines)
        assert any(line.startswith("differences, with") for line in lines)

    def test_a_data_set_that_is_wholly_seen_has_no_held_out_figure(self, capsys: pytest.CaptureFixture[str]) -> None:
        one = report(lists={EXTRACTOR: seen(*range(COUNT))})
        assert (one.unseen, [method.unseen for method in one.methods]) == (0, [None, None])
        lines = printed(one, capsys)
        assert lines[1] == (
            "8 of 8 questions were used to train the answer extractor's weights; no held-out figure exists"
        )
        assert "UNSEEN" not in "\n".join(lines)

    def test_weights_that_no_method_uses_are_not_counted(self) -> None:
        one = report(("scope-coe", "cot"), lists={EXTRACTOR: seen(0), SEARCH: seen(1)})
        assert (one.learned, one.unseen) == ((), COUNT)
        assert not any("train" in notice for notice in one.notices)

    def test_unseen_is_what_no_weights_of_the_run_have_seen(self) -> None:
        settings = {**SETTINGS, "index": {"passages": 3}}
        one = report(("trace", "cot"), lists={EXTRACTOR: seen(0, 1), SEARCH: seen(1, 2)}, settings=settings)
        assert [(each.name, each.methods, each.seen) for each in one.learned] == [
            (EXTRACTOR, ("trace",), 2),
            (SEARCH, ("trace", "cot"), 2),
        ]
        assert one.unseen == 5
        assert [method.unseen.n for method in one.methods if method.unseen] == [5, 5], "the same for all methods"
        assert one.notices[-1] == (
            "2 of 8 questions were used to train the answer extractor's weights (trace); 2 of 8 questions were used to train the "
            "search's weights; figures of the 5 unseen questions are shown next to those of all"
        )

    def test_an_encoder_and_a_query_generator_count_where_they_are_used(self) -> None:
        one = report(("cok", "cot"), lists={ENCODER: seen(0), GENERATOR: seen(1)})
        assert [(each.name, each.methods) for each in one.learned] == [(ENCODER, ("cok", "cot")), (GENERATOR, ("cok",))]

    @pytest.mark.parametrize("lists", [None, {EXTRACTOR: None}])
    def test_an_older_run_or_weights_without_a_list_say_that_nothing_is_known(self, lists: Any) -> None:
        one = report(lists=lists)
        assert (one.unseen, one.methods[0].unseen) == (None, None)
        assert one.notices == ("it is not known which questions were used to train the answer extractor's weights",)

    def test_search_is_scored_on_unseen_questions_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        documents = tuple(Document(name, name, ("x",)) for name in "abc")
        questions = [Question(f"q{n}", asked(n), ("x",), documents, ("a",) if n < 4 else ("gone",)) for n in range(6)]
        known = retrieval_scores(questions, seen(0, 1, 2))
        assert known is not None
        assert known.unseen is not None
        assert (known.recall["2"], known.unseen.questions, known.unseen.recall["2"]) == (4 / 6, 3, pytest.approx(1 / 3))
        print_retrieval(known)
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].endswith("of 6 questions, 3 of them unseen")
        assert lines[3].split() == ["2", "66.7", "33.3", "66.7", "33.3"]
        for hashes in ((), seen(*range(6))):
            everything = retrieval_scores(questions, hashes)
            assert everything is not None
            assert everything.unseen is None


class TestReaders:
    def test_a_table_of_mixed_readers_is_marked(self, capsys: pytest.CaptureFixture[str]) -> None:
        one = report(("trace", "rag", "scope-coe", "cot"), lists={EXTRACTOR: seen(), SEARCH: seen()})
        assert one.notices[0] == (
            "methods read answers in different ways, so differences are not due to the evidence alone (trace, rag: span, 4 "
            "demonstrations; scope-coe: free, 1 demonstration; cot: thoughts, 3 demonstrations)"
        )
        assert [pair.readers_differ for pair in one.comparisons] == [False, True, True, True, True, True]
        lines = printed(one, capsys)
        heads = next(at for at, line in enumerate(lines) if line.startswith("METHOD "))
        assert lines[heads].split()[:2] == ["METHOD", "READER"]
        assert "span, 4 demonstrations" in lines[heads + 1]
        assert "thoughts, 3 demonstrations" in lines[heads + 4]
        pairs = [line for line in lines if " - " in line[:20]]
        assert [" * " in line for line in pairs] == [False, True, True]
        assert lines[-1] == "* The two methods read answers in different ways."

    def test_one_reader_has_no_mark(self, capsys: pytest.CaptureFixture[str]) -> None:
        one = report()
        assert not any(pair.readers_differ for pair in one.comparisons)
        lines = "\n".join(printed(one, capsys))
        assert "READER" not in lines
        assert "different ways" not in lines

    def test_a_setting_in_a_label_counts(self) -> None:
        same = reader_in_use("trace:top=3", SETTINGS)
        assert same == reader_in_use("trace", SETTINGS) == ReaderInUse("span", 4, "m" * 64)
        changed = reader_in_use("trace:reader-demonstrations=2, reading=grammar", SETTINGS)
        assert changed == ReaderInUse("grammar", 2, "m" * 64)
        assert changed.text == "grammar, 2 demonstrations"

    def test_models_are_named_where_they_differ(self) -> None:
        readers = {name: reader_in_use(name, {**SETTINGS, "reader": "r" * 64}) for name in ("trace", "rag", "cot")}
        assert reader_texts({"trace": readers["trace"], "rag": readers["rag"]}) == {}
        assert reader_texts(readers)["rag"] == f"span, 4 demonstrations, {'r' * 12}"
        assert reader_texts(readers)["cot"] == f"thoughts, 3 demonstrations, {'m' * 12}"

    def test_what_a_run_does_not_tell_is_not_marked(self) -> None:
        assert reader_in_use("odd", SETTINGS) is None
        assert reader_in_use("gone", SETTINGS) is None
        assert reader_in_use("trace", {"settings": 3}) is None
        assert reader_in_use("trace", {"settings": {"trace": {"reading": "span", "reader_demonstrations": []}}}) is None
        assert reader_texts({"trace": ReaderInUse("span", 4), "odd": None}) == {}

    def test_claims_are_judged_and_not_read(self) -> None:
        rows = {"cot": results("cot", (0,), kind=CLAIM), "standard": results("standard", (1,), kind=CLAIM)}
        settings = {"settings": {"cot": THOUGHTS, "standard": FREE}}
        one = make_report(rows, settings=settings)
        assert [method.reader for method in one.methods] == [None, None]
        assert one.notices == ()

    @pytest.mark.parametrize("abilities", [UNABLE, CAPABLE])
    def test_every_method_of_the_catalog_has_a_reader(self, abilities: Abilities) -> None:
        settings = {"settings": {name: msgspec.to_builtins(method_settings(name, abilities)) for name in METHODS}}
        without = [name for name in METHODS if reader_in_use(name, settings) is None]
        assert without == []
        thoughts = reader_in_use("cot-doc", settings)
        assert thoughts is not None
        assert thoughts.reading == "thoughts"


class TestFiles:
    @pytest.fixture
    def store(self) -> RunStore:
        store = RunStore(":memory:")
        store.open_run(SETTINGS, notes={"data": "x", LEARNED_FROM: {EXTRACTOR: seen(0, 1, 2, 3), SEARCH: None}})
        for method, right in (("trace", (0, 1, 2, 3, 4)), ("scope-coe", (5,))):
            for row in results(method, right):
                store.save(method, row.question_id, row)
        return store

    def test_a_stored_run_has_the_same_figures_and_its_notes_no_hashes(self, store: RunStore) -> None:
        one = score_run(store)
        assert (one.unseen, one.methods[0].unseen and one.methods[0].unseen.exact_match) == (4, 0.25)
        assert one.notes == {"data": "x"}
        assert msgspec.json.decode(msgspec.json.encode(one), type=Report) == one
        told = json.loads(msgspec.json.encode(one))
        assert told["methods"][1]["reader"] == {
            "reading": "free", "demonstrations": 1, "model": "m" * 64
        }  # fmt: skip
        assert told["learned"] == [{"name": EXTRACTOR, "methods": ["trace"], "seen": 4}]

    def test_a_damaged_note_is_told(self) -> None:
        with RunStore(":memory:") as store:
            store.open_run(SETTINGS, notes={LEARNED_FROM: {EXTRACTOR: 3}})
            with pytest.raises(StoreError, match="its lists of learned questions and replaced parts cannot be read"):
                score_run(store)

    def test_a_report_names_the_parts_that_were_replaced_in_methods_that_it_has(self) -> None:
        parts = {"trace": ["units are sentences instead of written triples"], "cot": ["no letters"], "rag": []}
        with RunStore(":memory:") as store:
            store.open_run({}, notes={REPLACED: parts})
            for method in ("trace", "rag"):
                for row in results(method, (0,)):
                    store.save(method, row.question_id, row)
            one = score_run(store)
            assert one.notices == ("In trace, units are sentences instead of written triples.",)
            assert one.notes == {}
            assert "In trace, units are sentences" in report_page(one, store, title="Parts")

    def test_the_page_has_notices_and_columns(self, store: RunStore) -> None:
        page = report_page(score_run(store), store, title="Fair", baseline="trace")
        assert page.count('<p class="notice">') == 2
        assert "Methods read answers in different ways" in page
        assert "4 of 8 questions were used to train the answer extractor&#x27;s weights (trace)" in page
        for name in ("Reader", "EM unseen", "F1 unseen", "Support R unseen"):
            assert f">{name}</th>" in page
        assert "free, 1 demonstration</td>" in page
        assert "scope-coe<small>read in another way</small>" in page
        with RunStore(":memory:") as plain:
            plain.open_run({})
            for row in results("trace", (0,)):
                plain.save("trace", row.question_id, row)
            page = report_page(score_run(plain), plain, title="Plain")
        assert not any(word in page for word in ('class="notice"', ">Reader</th>", " unseen</th>"))

    def test_tables_have_readers_and_unseen_scores(self, store: RunStore, tmp_path: Path) -> None:
        methods, comparisons, _ = write_csv_tables(tmp_path, score_run(store), store)
        with methods.open(newline="") as stream:
            trace, scope = csv.DictReader(stream)
        assert (trace["reading"], trace["reader_demonstrations"], scope["reading"]) == ("span", "4", "free")
        assert (trace["unseen_questions"], trace["unseen_exact_match"], scope["unseen_f1"]) == ("4", "0.25", "0.25")
        with comparisons.open(newline="") as stream:
            (pair,) = csv.DictReader(stream)
        assert pair["readers_differ"] == "1"


class TestLists:
    def test_those_of_the_package_are_read_and_models_of_a_training_add_theirs(self, tmp_path: Path) -> None:
        assert set(question_lists()) == {EXTRACTOR, SEARCH}
        graph = graph_path(str(tmp_path))
        graph.parent.mkdir()
        graph.write_bytes(b"graph")
        assert set(question_lists(models={ENCODER: graph})) == {EXTRACTOR, SEARCH}, "it has no list"
        save_question_hashes(graph, [asked(1)], made_by="pytrace train ranker")
        assert question_lists(models={ENCODER: graph})[ENCODER] == seen(1)
        graph.write_bytes(b"another")
        with pytest.raises(DataError, match=r"the list of other weights than model\.onnx.*train the model again"):
            question_lists(models={ENCODER: graph})

    def test_an_index_whose_weights_have_no_list_is_not_known(self, tmp_path: Path) -> None:
        assert question_lists(tmp_path) == question_lists(), "it has the shipped weights"
        (tmp_path / "weights.json").write_text("{}")
        assert question_lists(tmp_path)[SEARCH] is None
