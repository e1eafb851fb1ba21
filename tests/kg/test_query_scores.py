"""How generators are scored: each share counts what it says."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.errors import InputError
from pytrace.kg.queries import GeneratedQuery, SparqlQuery, TripletQuery
from pytrace.records import KnowledgeQuery
from pytrace.training import scoring
from pytrace.training.examples import QueryExample

GOLD = SparqlQuery("select distinct ?x where { entity:/ada/ relation:/spouse/ ?y . ?y relation:/gender/ ?x }")


class Writer:
    """A generator that writes what it is told to."""

    name = "writer"
    model: Any = None

    def __init__(self, *written: str | None) -> None:
        self.written = list(written)

    def generate(self, questions: Any, *, candidates: int = 1) -> list[list[GeneratedQuery]]:
        assert candidates == 1
        return [
            [GeneratedQuery("?", None, 0.0, "no query") if one is None else GeneratedQuery(one, SparqlQuery(one), 0.0)]
            for one in (self.written.pop(0) for _ in questions)
        ]


class Store:
    """A runner that knows what each query brings."""

    def __init__(self, values: dict[str, tuple[str, ...]], outcome: Any = "answered") -> None:
        self.values = values
        self.outcome = outcome

    def run(self, asked: Any) -> list[KnowledgeQuery]:
        return [
            KnowledgeQuery(
                one.place,
                one.question,
                "store",
                values=self.values.get(one.candidates[0].written, ()),
                outcome=self.outcome,
            )
            for one in asked
        ]


def example(number: int, answers: tuple[str, ...], query: Any = GOLD) -> QueryExample:
    return QueryExample(str(number), "what gender is ada's wife?", query, "ada", answers)


def test_variables_and_white_space_do_not_matter_and_all_else_does() -> None:
    def same(text: str) -> bool:
        return scoring.normal_query(SparqlQuery(text)) == scoring.normal_query(GOLD)

    assert same("SELECT DISTINCT ?b  WHERE {entity:/ada/ relation:/spouse/ ?a.\n?a relation:/gender/ ?b}")
    assert not same(GOLD.text.replace("ada", "Ada"))
    assert not same(GOLD.text.replace("distinct ", ""))
    assert not same("select distinct ?x where { entity:/ada/ relation:/spouse/ ?y . ?x relation:/gender/ ?y }")
    assert not same(GOLD.text.replace("spouse", "parents"))
    assert scoring.normal_query(TripletQuery("a", "b", "?")) == "<a; b; ?>"


def test_each_share_counts_what_it_says() -> None:
    wrong_name = GOLD.text.replace("ada", "adda")
    wrong_relation = GOLD.text.replace("gender", "religion")
    other_words = GOLD.text.replace("?y", "?m")
    examples = [example(number, ("Female",)) for number in range(5)]
    brought = {GOLD.text: ("female",), other_words: ("female", "male"), wrong_relation: ("none",)}
    writer = Writer(GOLD.text, other_words, wrong_relation, wrong_name, None)
    report = scoring.score_generator(examples, writer, runner=Store(brought))
    counts = {name: getattr(report.overall, name).right for name in report.overall.__struct_fields__}
    assert counts == {"parses": 4, "exact": 2, "names": 3, "relations": 3, "executes": 1, "hits": 2}
    assert [row.executes for row in report.rows] == [True, False, False, False, False]
    assert report.overall.executes.of == 5
    assert report.overall.executes.low == pytest.approx(0.036, abs=1e-3)
    assert list(report.shapes) == ["select 2"]


def test_without_a_store_nothing_is_said_of_execution() -> None:
    report = scoring.score_generator([example(0, ("female",))], Writer(GOLD.text))
    assert report.overall.executes == scoring.Share(0, 0, None, None, None)
    assert report.rows[0].executes is None


def test_values_that_were_cut_off_are_not_the_answer() -> None:
    store = Store({GOLD.text: ("female",)}, outcome="stopped")
    report = scoring.score_generator([example(0, ("female",))], Writer(GOLD.text), runner=store)
    assert (report.overall.executes.right, report.overall.hits.right) == (0, 1)


def test_unknown_answers_are_those_of_the_gold_query() -> None:
    other = GOLD.text.replace("?y", "?m")
    store = Store({GOLD.text: ("female",), other: ("female",)})
    report = scoring.score_generator([example(0, ()), example(1, ("male",))], Writer(other, other), runner=store)
    assert [row.executes for row in report.rows] == [True, False]
    unknown = scoring.score_generator([example(0, ())], Writer(other), runner=Store({}))
    assert unknown.rows[0].executes is None


def test_no_question_is_no_score() -> None:
    with pytest.raises(InputError, match="no question to score"):
        scoring.score_generator([], Writer())


@pytest.mark.parametrize(
    "written", ["select distinct ?x where { entity:/", "select ?x", "ask { } ; drop all", "select ?x where {}"]
)
def test_half_a_query_does_not_parse(written: str) -> None:
    report = scoring.score_generator([example(0, ())], Writer(written))
    assert (report.overall.parses.right, report.rows[0].exact) == (0, False)
