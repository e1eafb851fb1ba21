"""Wrong queries: what each of the five rules makes of a query, and that none of them is right after all."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError
from pytrace.kg.names import normal_form
from pytrace.kg.queries import SparqlQuery, TripletQuery, parse_query
from pytrace.training.examples import QueryExample, path_query
from pytrace.training.wrong_queries import WrongQuery, wrong_queries

TWO_HOPS = "select distinct ?x where { entity:/Ada Foah/ relation:/country/ ?y . ?y relation:/ruler/ ?x }"
OF_A_CLASS = (
    "select ?x where { entity:/Delta Air Lines/ relation:/mouthpiece/ ?x . ?x relation:/type/ entity:/periodical/ }"
)
ONE_HOP = "select distinct ?x where { entity:/Ada Foah/ relation:/country/ ?x }"
RULES = {"missing-prefix", "wrong-class", "misspelt-entity", "swapped-arguments", "dropped-clause"}


def made(query: str, rule: str, *, classes: list[str] | None = None, seeds: int = 60) -> set[str]:
    """Return all that a rule makes of a query, over many seeds."""
    example = QueryExample("1", "q?", parse_query(query), "g")
    found: list[WrongQuery] = []
    for seed in range(seeds):
        found += wrong_queries(example, seed=seed, relations=["country", "ruler", "river"], classes=classes or [])
    return {wrong.text for wrong in found if wrong.rule == rule}


def test_a_missing_prefix_leaves_the_bare_name() -> None:
    assert made(TWO_HOPS, "missing-prefix") == {TWO_HOPS.replace("entity:/Ada Foah/", "Ada Foah")}


def test_a_bare_name_has_its_slashes_back() -> None:
    assert made("ask { entity:/AC\\/DC/ relation:/r/ ?x }", "missing-prefix") == {"ask { AC/DC relation:/r/ ?x }"}


def test_a_class_is_replaced_by_another() -> None:
    expected = {OF_A_CLASS.replace("periodical", "magazine"), OF_A_CLASS.replace("periodical", "river")}
    assert made(OF_A_CLASS, "wrong-class", classes=["magazine", "Periodical", "river"]) == expected


def test_without_a_class_the_relation_that_leads_to_the_answer_is_replaced() -> None:
    assert made(TWO_HOPS, "wrong-class") == {TWO_HOPS.replace("ruler", name) for name in ("country", "river")}
    assert made(OF_A_CLASS, "wrong-class", classes=["periodical"]) == {
        OF_A_CLASS.replace("mouthpiece", name) for name in ("country", "ruler", "river")
    }


def test_an_entity_is_misspelt_by_one_edit_and_a_class_is_not() -> None:
    names = {re.findall(r"entity:/(.*?)/", text)[0] for text in made(OF_A_CLASS, "misspelt-entity", seeds=300)}
    assert {"DeltaAir Lines", "Delta AirLines"} & names
    assert any(sorted(name) == sorted("Delta Air Lines") for name in names)
    assert any(len(name) == len("Delta Air Lines") + 1 for name in names)
    assert all(abs(len(name) - len("Delta Air Lines")) <= 1 for name in names)
    assert all(normal_form(name) != "delta air lines" for name in names)
    assert all("entity:/periodical/" in text for text in made(OF_A_CLASS, "misspelt-entity"))


def test_no_misspelling_is_the_name_of_another_entity() -> None:
    example = QueryExample("1", "q?", TripletQuery("ab", "r", "?"), "g")
    known = {"a", "b", "ba", "aab"}
    texts = {wrong.text for seed in range(100) for wrong in wrong_queries(example, seed=seed, names=known)}
    assert "<abb; r; ?>" in texts
    assert not texts & {f"<{name}; r; ?>" for name in known}


def test_signs_and_case_alone_make_neither_a_misspelling_nor_another_relation() -> None:
    example = QueryExample("1", "q?", TripletQuery("a-b", "birth place", "?"), "g")
    found = [wrong for seed in range(200) for wrong in wrong_queries(example, seed=seed, relations=["Birth-Place"])]
    assert "wrong-class" not in {wrong.rule for wrong in found}
    misspelt = {wrong.text for wrong in found if wrong.rule == "misspelt-entity"}
    assert misspelt >= {"<ab; birth place; ?>", "<aa-b; birth place; ?>"}
    assert not misspelt & {"<a--b; birth place; ?>"}


def test_arguments_are_swapped_in_one_clause_that_names_no_class() -> None:
    assert made(TWO_HOPS, "swapped-arguments") == {
        "select distinct ?x where { ?y relation:/country/ entity:/Ada Foah/ . ?y relation:/ruler/ ?x }",
        "select distinct ?x where { entity:/Ada Foah/ relation:/country/ ?y . ?x relation:/ruler/ ?y }",
    }
    assert made(OF_A_CLASS, "swapped-arguments") == {
        "select ?x where { ?x relation:/mouthpiece/ entity:/Delta Air Lines/ . ?x relation:/type/ entity:/periodical/ }"
    }


def test_a_clause_is_dropped_with_its_point() -> None:
    assert made(TWO_HOPS, "dropped-clause") == {
        "select distinct ?x where { ?y relation:/ruler/ ?x }",
        "select distinct ?x where { entity:/Ada Foah/ relation:/country/ ?y }",
    }


@pytest.mark.parametrize(
    ("query", "left"),
    [(ONE_HOP, "select distinct ?x"), ("ask { entity:/a b/ relation:/r/ entity:/c d/ }", "ask")],
)
def test_of_a_single_clause_all_from_the_where_is_dropped(query: str, left: str) -> None:
    assert made(query, "dropped-clause") == {left}


def test_a_triplet_is_made_wrong_by_the_rules_that_apply_to_it() -> None:
    query = "<Ada Foah; river; ?>"
    assert made(query, "missing-prefix") == set()
    assert made(query, "wrong-class") == {"<Ada Foah; country; ?>", "<Ada Foah; ruler; ?>"}
    assert made(query, "swapped-arguments") == {"<?; river; Ada Foah>"}
    assert made(query, "dropped-clause") == {"<Ada Foah; ?>", "<river; ?>"}
    assert "<AdaFoah; river; ?>" in made(query, "misspelt-entity")


def test_a_triplet_that_asks_for_the_relation_keeps_it_asked_for() -> None:
    assert made("<Ada Foah; ?; Ghana>", "wrong-class") == set()
    assert made("<Ada Foah; ?; Ghana>", "swapped-arguments") == {"<Ghana; ?; Ada Foah>"}


def test_four_rules_of_five_are_taken_each_once_and_all_equally_often() -> None:
    counts: Counter[str] = Counter()
    for seed in range(500):
        wrong = wrong_queries(
            QueryExample("1", "q?", SparqlQuery(TWO_HOPS), "g"), seed=seed, relations=["country", "x"]
        )
        assert len({query.rule for query in wrong}) == len(wrong) == 4
        counts.update(query.rule for query in wrong)
    assert set(counts) == RULES
    assert all(350 < count < 450 for count in counts.values())


def test_where_rules_do_not_apply_others_are_taken_again() -> None:
    wrong = wrong_queries(QueryExample("1", "q?", parse_query(ONE_HOP), "g"))  # no other relation is known
    assert len({query.text for query in wrong}) == 4
    assert "wrong-class" not in {query.rule for query in wrong}


def test_the_seed_and_the_example_decide_and_nothing_else_does() -> None:
    first, second = (QueryExample(id, "q?", SparqlQuery(TWO_HOPS), "g") for id in ("1", "2"))
    assert wrong_queries(first, seed=1) == wrong_queries(first, seed=1)
    assert wrong_queries(first, seed=1) != wrong_queries(first, seed=2)
    assert wrong_queries(first, seed=1) != wrong_queries(second, seed=1)


def test_swapping_what_is_the_same_on_both_sides_is_not_wrong() -> None:
    assert made("ask { entity:/a/ relation:/r/ entity:/a/ }", "swapped-arguments") == set()
    assert made("<?; r; ?>".replace("<?", "<a"), "swapped-arguments") == {"<?; r; a>"}


@pytest.mark.parametrize(
    "query",
    [
        SparqlQuery(""),
        SparqlQuery("select ?x where { ?x ?p ?y }"),
        SparqlQuery("ask { entity:/ / relation:/ / ?x } ."),
        SparqlQuery("ask . entity:/a/ relation:/b/ ?x ."),
        SparqlQuery("entity:/\ud800/"),
        TripletQuery("?", "?", "?"),
        TripletQuery("", "", ""),
        TripletQuery("?!", "r", "?"),
    ],
)
def test_what_is_hardly_a_query_gives_what_there_is_and_no_crash(query: SparqlQuery | TripletQuery) -> None:
    wrong = wrong_queries(QueryExample("\ud800", "q?", query, "g"), relations=[" ", "r"], classes=[""])
    assert len({each.text for each in wrong}) == len(wrong) <= 4
    assert query.text not in {each.text for each in wrong}


def shown(text: str) -> tuple[object, ...]:
    """Return what a person takes a query to say: its clauses in any order, without case or white space."""
    clauses = re.search(r"\{(.*)\}", text)
    parts = frozenset(" ".join(part.split()).lower() for part in (clauses[1] if clauses else "").split(" . "))
    return parts, " ".join(re.sub(r"\{.*\}", "", text).split()).lower()


words = st.text(st.characters(max_codepoint=0x17F, categories=["L", "N"]), min_size=1, max_size=8)
phrases = st.lists(words, min_size=1, max_size=3).map(" ".join)


@given(phrases, st.lists(phrases, min_size=1, max_size=3), st.lists(phrases, max_size=4), st.integers(0, 99))
def test_all_four_differ_from_each_other_and_from_the_right_one(
    subject: str, relations: list[str], others: list[str], seed: int
) -> None:
    query = path_query(subject, relations)
    wrong = wrong_queries(QueryExample("1", "q?", query, "g"), seed=seed, relations=others)
    said = [shown(query.text), *(shown(each.text) for each in wrong)]
    assert len(wrong) == 4
    assert len(set(said)) == 5
    for each in wrong:
        assert "\n" not in each.text


@given(phrases, phrases, phrases, st.integers(0, 2), st.integers(0, 99))
def test_four_wrong_triplets_differ_and_at_least_one_is_no_query(
    head: str, relation: str, tail: str, asked: int, seed: int
) -> None:
    parts = [head, relation, tail]
    parts[asked] = "?"
    wrong = wrong_queries(
        QueryExample("1", "q?", TripletQuery(*parts), "g"), seed=seed, relations=[relation, "other", "more"]
    )
    assert len({each.text.lower() for each in wrong} | {TripletQuery(*parts).text.lower()}) == 5
    for each in wrong:
        if each.rule == "dropped-clause":
            with pytest.raises(InputError):
                parse_query(each.text)
