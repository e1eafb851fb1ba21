"""Queries by name: read, grounded, and run so that a bad one costs nothing but itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError, ServerError
from pytrace.kg.fact_store import QueryLimits, Relation
from pytrace.kg.linking import EntityLinker
from pytrace.kg.queries import (
    GeneratedQuery,
    SparqlQuery,
    TripletQuery,
    parse_query,
    query_names,
    replace_names,
    sparql_form,
    write_query,
)
from pytrace.kg.queries.notation import write_name
from pytrace.kg.queries.query_grounding import Grounder, best_combinations
from pytrace.kg.queries.relations import RelationNames
from pytrace.kg.queries.running import Asked, QueryRunner
from pytrace.kg.sparql_store import Solutions
from pytrace.models.scripted import HashEncoder
from pytrace.records import KnowledgeQuery
from tests.store_double import StoreDouble

TRIPLES = [
    ("ada_foah", "country", "ghana"),
    ("keta", "country", "ghana"),
    ("ghana", "capital", "accra"),
    ("lome", "country", "togo"),
    ("togo", "capital", "lome"),
]


def runner(store: StoreDouble, **options: object) -> QueryRunner:
    return QueryRunner(store, EntityLinker(store, None), **options)  # type: ignore[arg-type]


def asked(*written: str, place: int = 0, question: str = "Where?") -> Asked:
    candidates = []
    for text in written:
        try:
            candidates.append(GeneratedQuery(text, parse_query(text), -1.0))
        except InputError as error:
            candidates.append(GeneratedQuery(text, None, -1.0, str(error)))
    return Asked(place, question, candidates)


def run(*written: str, triples: list[tuple[str, str, str]] = TRIPLES, **options: object) -> KnowledgeQuery:
    return runner(StoreDouble(triples), **options).run([asked(*written)])[0]


# Notation


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "<a; b>",
        "<a; b; c>",
        "<?; b; ?>",
        "<; b; ?>",
        "<a; b; ?",
        "<a; b; c; ?>",
        "<a\x00; b; ?>",
        "insert data { entity:/a/ relation:/b/ entity:/c/ }",
        "select ?x where { entity:/ / relation:/b/ ?x }",
        "select ?x where { entity:// relation:/b/ ?x }",
        "select " + "x" * 5_000,
    ],
)
def test_what_is_no_query_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_query(text)
    assert len(str(caught.value)) < 300


@given(
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(lambda text: text.strip())
)
def test_any_name_of_one_line_survives_writing_and_reading(name: str) -> None:
    query = parse_query(f"ask {{ {write_name('entity', name)} ?p ?o }}")
    assert query_names(query) == ((name.strip(),), ())
    assert write_query(query) == query.text


def test_names_in_strings_iris_and_comments_are_no_names() -> None:
    text = "select ?x { ?x <urn:entity:/a/> \"entity:/b/\" . ?x relation:/c/ 'relation:/d/' } # entity:/e/"
    assert query_names(parse_query(text)) == ((), ("c",))
    assert replace_names(SparqlQuery(text), entity=lambda _: "!", relation=lambda name: f"<{name}>") == text.replace(
        "relation:/c/", "<c>"
    )


def test_each_part_of_a_triplet_can_be_asked_for() -> None:
    assert sparql_form(TripletQuery("?", "capital", "Accra")).text.endswith("{ ?x relation:/capital/ entity:/Accra/ }")
    assert sparql_form(TripletQuery("Ghana", "?", "Accra")).text.endswith("{ entity:/Ghana/ ?x entity:/Accra/ }")
    assert sparql_form(TripletQuery("Ghana", "capital", "?")).text.endswith("{ entity:/Ghana/ relation:/capital/ ?x }")


# Relations by name


def test_relations_of_one_name_are_alternatives_and_others_are_not_looked_for() -> None:
    names = RelationNames(
        [Relation("o:birthPlace", "birth place"), Relation("p:birthPlace", "birth place"), Relation("d", "death place")]
    )
    assert names.find("Birth-Place") == [("o:birthPlace", 1.0), ("p:birthPlace", 1.0)]


def test_a_name_that_no_relation_has_is_refused_with_the_nearest_ones() -> None:
    names = RelationNames([Relation("a", "spouse"), Relation("b", "children")])
    with pytest.raises(InputError, match=r"'wombat'; the nearest are '\w+', '\w+'"):
        names.find("wombat")
    with pytest.raises(InputError, match="it has 0 named ones"):
        RelationNames([]).find("spouse")


def test_an_encoder_finds_a_relation_by_its_sense() -> None:
    class Synonyms(HashEncoder):
        def encode(self, texts, *, kind="passage"):  # type: ignore[no-untyped-def]
            return super().encode(["spouse" if text == "wife" else text for text in texts], kind=kind)

    relations = [Relation("a", "spouse"), Relation("b", "children")]
    assert RelationNames(relations, encoder=Synonyms()).find("wife")[0][0] == "a"
    with pytest.raises(InputError):
        RelationNames(relations).find("wife")


# Grounding


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), max_size=4), st.integers(1, 12))
def test_the_best_combinations_are_those_of_all_combinations(scores: list[list[float]], most: int) -> None:
    choices = [[(str(place), score) for place, score in enumerate(sorted(row, reverse=True))] for row in scores]
    totals = np.zeros(1)
    for row in choices:
        totals = np.add.outer(totals, np.array([score for _, score in row])).ravel()
    found = best_combinations(choices, most)
    assert len({tuple(key for key, _ in one) for one, _ in found}) == len(found) == min(most, len(totals))
    np.testing.assert_allclose([total for _, total in found], np.sort(totals)[::-1][: len(found)], atol=1e-12)


def test_a_query_with_a_name_that_means_nothing_is_refused_and_the_others_of_its_batch_are_not() -> None:
    store = StoreDouble(TRIPLES)
    queries = [parse_query(text) for text in ("<Xyzzyx Qqq; capital; ?>", "<Ghana; wombat; ?>", "<Ghana; capital; ?>")]
    entity, relation, fine = Grounder(store, EntityLinker(store, None)).ground(queries, ["?"] * 3)
    assert isinstance(entity, InputError)
    assert "Xyzzyx" in str(entity)
    assert isinstance(relation, InputError)
    assert isinstance(fine, list)
    assert fine[0].sparql == "select distinct ?x where { <urn:pytrace:entity:ghana> <urn:pytrace:relation:capital> ?x }"
    assert fine[0].links == (("Ghana", "ghana", 1.0),)


def test_either_direction_comes_after_the_one_that_was_written() -> None:
    assert run("<Accra; capital; ?>").outcome == "empty"
    assert run("<Accra; capital; ?>", either_direction=True).values == ("ghana",)


# Running


def test_an_answer_has_values_facts_and_where_they_are_from() -> None:
    found = run("select ?x where { entity:/Ada Foah/ relation:/country/ ?y . ?y relation:/capital/ ?x }")
    assert (found.outcome, found.values, found.store) == ("answered", ("accra",), "double")
    assert [fact.text for fact in found.facts] == ["ada foah country ghana.", "ghana capital accra."]
    assert found.facts[1].triple.head == "ghana"
    assert found.links == (("Ada Foah", "ada_foah", 1.0),)
    assert "<urn:pytrace:entity:ada_foah>" in found.sparql


def test_the_next_candidate_is_tried_where_one_is_refused_or_gives_nothing() -> None:
    found = run("no query", "<Ghana; wombat; ?>", "<Accra; capital; ?>", "<Ghana; capital; ?>", "<Togo; capital; ?>")
    assert (found.outcome, found.values, found.written) == ("answered", ("accra",), "<Ghana; capital; ?>")
    assert [written for written, _ in found.refused] == ["no query", "<Ghana; wombat; ?>"]
    assert "wombat" in found.refused[1][1]


@pytest.mark.parametrize(
    "hostile",
    [
        "select ?x where { entity:/Ghana/ relation:/capital/ ?x } ; drop all",
        "select ?x where { service <http://example.org/> { entity:/Ghana/ relation:/capital/ ?x } }",
        "select ?x where { entity:/Ghana/ relation:/capital/* ?x }",
        "select (sum(?x) as ?n) where { entity:/Ghana/ relation:/capital/ ?x }",
        "select ?x where { entity:/Ghana/ relation:/capital/ ?x",
        "select ?x where { " * 60 + "}" * 60,
    ],
)
def test_what_must_not_be_run_is_refused_and_the_next_candidate_answers(hostile: str) -> None:
    store = StoreDouble(TRIPLES)
    [found] = runner(store).run([asked(hostile, "<Ghana; capital; ?>")])
    assert found.values == ("accra",)
    assert [written for written, _ in found.refused] == [hostile]
    assert [len(batch) for batch in store.rounds] == [1]


def test_nothing_but_refused_queries_is_told_with_the_last_reason() -> None:
    found = run("<Ghana; wombat; ?>")
    assert (found.outcome, found.sparql, found.facts) == ("refused", "", ())
    assert "wombat" in found.reason
    assert runner(StoreDouble(TRIPLES)).run([Asked(0, "?", [])])[0].reason == "there was no query for it"


def test_an_empty_result_keeps_the_first_query_that_was_run() -> None:
    found = run("<Accra; capital; ?>", "<Lome; capital; ?>")
    assert (found.outcome, found.written, found.values) == ("empty", "<Accra; capital; ?>", ())


def test_another_reading_of_a_name_is_tried_before_another_query() -> None:
    twins = [*TRIPLES, ("Ghana.", "motto", "freedom")]
    found = run("<Ghana; motto; ?>", "<Togo; capital; ?>", triples=twins)
    assert (found.values, found.links[0][1]) == (("freedom",), "Ghana.")


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("ask { entity:/Ghana/ relation:/capital/ entity:/Accra/ }", "true"),
        ("ask { entity:/Ghana/ relation:/capital/ entity:/Lome/ }", "false"),
        ("select (count(distinct ?x) as ?n) where { ?x relation:/country/ entity:/Ghana/ }", "2"),
        ("select (count(?c) as ?n) where { ?x relation:/country/ ?c }", "3"),
        ("select (count(distinct ?c) as ?n) where { ?x relation:/country/ ?c }", "2"),
        ("select (count(*) as ?n) where { ?x relation:/country/ entity:/Accra/ }", "0"),
    ],
)
def test_counts_and_yes_or_no_have_a_value(query: str, value: str) -> None:
    found = run(query)
    assert (found.outcome, found.values) == ("answered", (value,))


def test_a_limit_keeps_what_came_before_it() -> None:
    found = run("select ?x where { ?x relation:/country/ ?c }", limits=QueryLimits(rows=1))
    assert (found.outcome, len(found.values), len(found.facts)) == ("stopped", 1, 1)
    assert "1 solutions" in found.reason


def test_a_stopped_query_without_an_answer_is_no_denial() -> None:
    store = StoreDouble(TRIPLES, lambda _: Solutions((), "more than 5 seconds"))
    [found] = runner(store).run([asked("ask { entity:/Ghana/ relation:/capital/ entity:/Accra/ }")])
    assert (found.outcome, found.values, found.reason) == ("stopped", (), "more than 5 seconds")


def test_an_error_of_the_store_costs_one_query_and_no_other() -> None:
    def broken(query: object) -> ServerError | None:
        return ServerError("the server answers 500") if "ghana" in str(query) else None

    first, second = runner(StoreDouble(TRIPLES, broken)).run(
        [asked("<Ghana; capital; ?>"), asked("<Togo; capital; ?>")]
    )
    assert (first.outcome, first.refused) == ("refused", (("<Ghana; capital; ?>", "the server answers 500"),))
    assert second.values == ("lome",)


def test_all_questions_of_a_batch_are_asked_together() -> None:
    store = StoreDouble(TRIPLES)
    questions = [asked("<Accra; capital; ?>", "<Ghana; capital; ?>", place=place) for place in range(5)]
    found = runner(store).run([*questions, asked("<Togo; capital; ?>", place=9)])
    assert [len(batch) for batch in store.rounds] == [6, 5]
    assert [one.place for one in found] == [0, 1, 2, 3, 4, 9]
    assert {one.values for one in found} == {("accra",), ("lome",)}


def test_no_question_asks_nothing() -> None:
    store = StoreDouble(TRIPLES)
    assert runner(store).run([]) == []
    assert store.rounds == []


def test_numbers_that_keep_nothing_are_refused() -> None:
    for options in ({"facts": 0}, {"values": 0}, {"alternatives": 0}):
        with pytest.raises(InputError):
            runner(StoreDouble(TRIPLES), **options)
