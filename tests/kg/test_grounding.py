"""Queries by name become queries by IRI: every likely way to read the names, the likeliest first, and no harmful one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytrace.errors import InputError
from pytrace.kg.fact_store import QueryLimits, Relation
from pytrace.kg.graph_sources import read_source
from pytrace.kg.linking import EntityLinker, Link
from pytrace.kg.local_store import LocalStore
from pytrace.kg.queries import Query, SparqlQuery, TripletQuery
from pytrace.kg.queries.query_grounding import GroundedQuery, Grounder
from pytrace.models import registry
from pytrace.models.encoders.encoder import Encoder, OnnxEncoder
from tests.store_double import StoreDouble

TRIPLES = [("ghana", "capital", "accra"), ("ghana", "birth_place", "x"), ("keta", "country", "ghana")]
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


class Linked(EntityLinker):
    """Links mentions as it is told, and keeps what it is asked."""

    def __init__(self, store: StoreDouble, links: dict[str, list[tuple[str, float]]]) -> None:
        super().__init__(store, None)
        self.links = links
        self.calls: list[tuple[list[str], list[str]]] = []

    def link(self, mentions: Sequence[str], contexts: Sequence[str]) -> list[list[Link]]:
        self.calls.append((list(mentions), list(contexts)))
        return [
            [Link(key, key, score, None, score) for key, score in self.links.get(mention, [])] for mention in mentions
        ]


class TwoVocabularies(StoreDouble):
    """A store with two relations of one name."""

    def relations(self) -> tuple[Relation, ...]:
        return (
            Relation("o:capital", "capital", 9),
            Relation("p:capital", "capital", 5),
            Relation("o:country", "country", 1),
        )


def ground(
    query: Query | str, store: StoreDouble | None = None, linker: EntityLinker | None = None, **options: object
) -> list[GroundedQuery]:
    store = store or StoreDouble(TRIPLES)
    grounder = Grounder(store, linker or EntityLinker(store, None), **options)  # type: ignore[arg-type]
    [found] = grounder.ground([SparqlQuery(query) if isinstance(query, str) else query], ["?"])
    if isinstance(found, InputError):
        raise found
    return found


def test_entities_and_relations_are_combined_in_the_order_of_summed_scores() -> None:
    store = TwoVocabularies(TRIPLES)
    linker = Linked(store, {"Ghana": [("g1", 1.0), ("g2", 0.9)], "Accra": [("a1", 0.8), ("a2", 0.75)]})
    found = ground("ask { entity:/Ghana/ relation:/capital/ entity:/Accra/ }", store, linker, alternatives=6)
    assert [([key for _, key, _ in one.links], ":capital" in one.sparql) for one in found] == [
        (["g1", "a1"], True),
        (["g1", "a1"], True),
        (["g1", "a2"], True),
        (["g1", "a2"], True),
        (["g2", "a1"], True),
        (["g2", "a1"], True),
    ]
    assert [one.score for one in found] == pytest.approx([2.8, 2.8, 2.75, 2.75, 2.7, 2.7])
    assert ["<urn:pytrace:relation:o:capital>" in one.sparql for one in found] == [True, False] * 3
    assert ["<urn:pytrace:relation:p:capital>" in one.sparql for one in found] == [False, True] * 3
    assert found[2].links == (("Ghana", "g1", 1.0), ("Accra", "a2", 0.75))
    assert "<urn:pytrace:entity:g1>" in found[2].sparql
    assert "<urn:pytrace:entity:a2>" in found[2].sparql


def test_there_are_no_more_readings_than_were_asked_for() -> None:
    store = StoreDouble(TRIPLES)
    linker = Linked(store, {"Ghana": [(f"g{number}", 1 - number / 100) for number in range(50)]})
    for most in (1, 3):
        found = ground(TripletQuery("Ghana", "capital", "?"), store, linker, alternatives=most)
        assert [one.links[0][1] for one in found] == [f"g{number}" for number in range(most)]


def test_what_runs_returns_the_triples_behind_the_answers() -> None:
    [found] = ground("select ?x where { entity:/Keta/ relation:/country/ ?y . ?y relation:/capital/ ?x }")
    [solution] = StoreDouble(TRIPLES).store.solutions(found.graph).solutions
    assert [triple.text for triple in solution.triples] == ["<keta; country; ghana>", "<ghana; capital; accra>"]
    assert found.graph.answers == ("x",)


def test_a_name_that_stands_in_a_query_twice_is_one_entity() -> None:
    store = StoreDouble(TRIPLES)
    linker = Linked(store, {"Ghana": [("g1", 1.0), ("g2", 1.0)]})
    query = "ask { entity:/Ghana/ relation:/capital/ ?x . ?y relation:/country/ entity:/Ghana/ }"
    assert [(one.sparql.count("g1"), one.sparql.count("g2")) for one in ground(query, store, linker)] == [
        (2, 0),
        (0, 2),
    ]


def test_all_mentions_of_a_batch_are_linked_at_once_each_in_its_own_question() -> None:
    store = StoreDouble(TRIPLES)
    linker = Linked(store, {"Ghana": [("ghana", 1.0)], "Keta": [("keta", 1.0)]})
    queries: list[Query] = [
        TripletQuery("Ghana", "capital", "?"),
        SparqlQuery("ask { entity:/ / ?p ?o }"),
        SparqlQuery("ask { entity:/Keta/ relation:/country/ entity:/Ghana/ }"),
        SparqlQuery("ask { ?s ?p ?o }"),
    ]
    found = Grounder(store, linker).ground(queries, ["one", "two", "three", "four"])
    assert linker.calls == [(["Ghana", "Keta", "Ghana"], ["one", "three", "three"])]
    assert [len(one) if isinstance(one, list) else one for one in found] == [1, found[1], 1, 1]
    assert isinstance(found[1], InputError)
    assert isinstance(found[2], list)
    assert found[2][0].links == (("Keta", "keta", 1.0), ("Ghana", "ghana", 1.0))


def test_a_query_without_names_has_one_reading() -> None:
    assert [(one.links, repr(one.score)) for one in ground("ask { ?s ?p ?o }")] == [((), "0.0")]


def test_no_queries_are_no_work_and_every_query_needs_a_context() -> None:
    grounder = Grounder(StoreDouble(TRIPLES), EntityLinker(StoreDouble(TRIPLES), None))
    assert grounder.ground([], []) == []
    with pytest.raises(InputError, match="there are 1 queries but 2 contexts; give one a query"):
        grounder.ground([TripletQuery("Ghana", "capital", "?")], ["a", "b"])


def test_a_relation_that_is_asked_for_is_a_variable() -> None:
    [found] = ground(TripletQuery("Ghana", "?", "Accra"))
    assert found.sparql == "select distinct ?x where { <urn:pytrace:entity:ghana> ?x <urn:pytrace:entity:accra> }"
    assert found.score == 2.0


def test_a_relation_with_a_typo_is_found_and_fits_less() -> None:
    [found] = ground(TripletQuery("Ghana", "capitl", "?"))
    assert "relation:capital>" in found.sparql
    assert 1.8 < found.score < 2.0
    with pytest.raises(InputError, match=r"'wombat'; the nearest are '.*'"):
        ground(TripletQuery("Ghana", "wombat", "?"))


def test_a_mention_of_nobody_is_named_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"^no entity of the knowledge base is called like 'Xyzzyx'; name one .*$"):
        ground(TripletQuery("Xyzzyx", "capital", "?"))


# Directions


def test_the_other_direction_is_the_last_reading_however_many_there_are_of_the_first() -> None:
    store = StoreDouble(TRIPLES)
    linker = Linked(store, {"Accra": [(f"a{number}", 1 - number / 100) for number in range(9)]})
    found = ground(TripletQuery("Accra", "capital", "?"), store, linker, alternatives=3, either_direction=True)
    relation = "<urn:pytrace:relation:capital>"
    assert [one.sparql.partition("{")[2] for one in found] == [
        f" <urn:pytrace:entity:a0> {relation} ?x }}",
        f" <urn:pytrace:entity:a1> {relation} ?x }}",
        f" ?x {relation} <urn:pytrace:entity:a0> }}",
    ]
    assert found[2].links == (("Accra", "a0", 1.0),)


@pytest.mark.parametrize("options", [{}, {"either_direction": True, "alternatives": 1}])
def test_a_triplet_is_only_exchanged_where_that_is_wanted_and_there_is_room(options: dict[str, object]) -> None:
    assert len(ground(TripletQuery("Accra", "capital", "?"), **options)) == 1


def test_sparql_says_its_direction_itself() -> None:
    assert len(ground("select ?x where { entity:/Accra/ relation:/capital/ ?x }", either_direction=True)) == 1


def test_two_names_are_exchanged_around_a_relation_that_is_asked_for() -> None:
    _, swapped = ground(TripletQuery("Accra", "?", "Ghana"), either_direction=True)
    assert swapped.sparql.endswith("{ <urn:pytrace:entity:ghana> ?x <urn:pytrace:entity:accra> }")


# Types


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "towns.nt"
    path.write_text(
        f"<http://t/Keta> <{TYPE}> <http://t/Town> .\n"
        "<http://t/Keta> <http://t/country> <http://t/Ghana> .\n"
        "<http://t/Ghana> <http://t/types> <http://t/Republic> .\n"
    )
    return path


@pytest.mark.parametrize("relation", ["relation:/type/", "relation:/Type/", "a", f"<{TYPE}>"])
@pytest.mark.parametrize("chosen", ["", "http://t/country\tcountry\n", "http://t/types\ttypes\n"])
def test_classes_are_found_by_the_name_type_even_where_it_is_no_chosen_relation(
    typed: Path, tmp_path: Path, relation: str, chosen: str
) -> None:
    predicates = tmp_path / "predicates.tsv"
    predicates.write_text(chosen)
    with LocalStore.open(typed, predicates=predicates if chosen else None) as store:
        grounder = Grounder(store, EntityLinker(store, None))
        [found] = grounder.ground([SparqlQuery(f"select ?x where {{ ?x {relation} entity:/Town/ }}")], ["?"])
        assert isinstance(found, list)
        # Where the store has a relation of a name like it, that one is tried too, but not in its place.
        [told] = [
            outcome
            for outcome in store.solutions([one.graph for one in found], QueryLimits())
            if not isinstance(outcome, Exception) and outcome.solutions
        ]
    assert told.solutions[0].values["x"] == "http://t/Keta"


def test_a_stores_own_relation_of_that_name_is_meant_alone() -> None:
    [found] = ground(TripletQuery("Keta", "type", "?"), StoreDouble([("keta", "type", "town")]))
    assert "<urn:pytrace:relation:type>" in found.sparql
    with pytest.raises(InputError, match="'typeface'"):
        ground(TripletQuery("Ghana", "typeface", "?"))


def test_a_relation_of_a_name_like_it_is_tried_before_rdfs() -> None:
    found = ground(TripletQuery("Keta", "type", "?"), StoreDouble([("keta", "types", "town")]))
    assert ["<urn:pytrace:relation:types>" in one.sparql for one in found] == [True, False]
    assert [f"relation:{TYPE}>" in one.sparql for one in found] == [False, True]


# What must not run


@pytest.mark.parametrize(
    "hostile",
    [
        "ask { entity:/Ghana/ relation:/capital/ ?x } ; insert data { <urn:a> <urn:b> <urn:c> }",
        "select ?x where { service <http://example.org/> { ?x relation:/capital/ ?y } }",
        "select ?x where { entity:/Ghana/ relation:/capital/* ?x }",
        "construct { ?s ?p ?o } where { ?s ?p ?o }",
        "insert data { <urn:a> <urn:b> <urn:c> }",
        "ask { entity:/Ghana/ relation:/capital/ entity:/Accra/",
        "ask { entity:/\ud800/ ?p ?o }",
        "ask { entity:/Ghana/ ?p \x00 }",
        "ask " + "{ " * 5_000,
        "ask { " + "?s ?p ?o . " * 5_000 + "}",
        "ask",
        "",
    ],
    ids=lambda text: text[:30],
)
def test_a_query_that_must_not_run_is_an_error_in_its_place_and_no_other(hostile: str) -> None:
    store = StoreDouble(TRIPLES)
    grounder = Grounder(store, EntityLinker(store, None))
    refused, fine = grounder.ground([SparqlQuery(hostile), TripletQuery("Ghana", "capital", "?")], ["", ""])
    assert isinstance(refused, InputError)
    assert 20 < len(str(refused)) < 400
    assert isinstance(fine, list)


@pytest.mark.parametrize("name", ["\ud800", "x" * 100_000, "a\nb", "\x00", "<urn:x>", "'; drop all", "!!!", "東京"])
@pytest.mark.parametrize("part", ["entity", "relation"])
def test_a_strange_name_is_an_error_or_harmless(name: str, part: str) -> None:
    query = TripletQuery(name, "capital", "?") if part == "entity" else TripletQuery("Ghana", name, "?")
    with pytest.raises(InputError) as caught:
        ground(query)
    assert len(str(caught.value)) < 700


# A real graph and a real encoder


@pytest.mark.data
def test_triples_of_a_knowledge_base_are_found_by_their_names(shared_data: Path) -> None:
    path = shared_data / "pathquestion" / "2H-kb.txt"
    triples = random.Random(0).sample(sorted(read_source(path, format="tsv").triples, key=lambda one: one.text), 40)
    queries: list[Query] = [
        TripletQuery(one.head.replace("_", " ").title(), one.relation.replace("_", " "), "?") for one in triples
    ]
    with LocalStore.open(path, format="tsv") as store:
        found = Grounder(store, EntityLinker(store, None)).ground(queries, [""] * len(queries))
        graphs = [readings[0].graph for readings in found if isinstance(readings, list)]
        outcomes = store.solutions(graphs, QueryLimits())
    assert len(outcomes) == len(triples)
    for triple, outcome in zip(triples, outcomes, strict=True):
        assert not isinstance(outcome, Exception)
        assert triple.tail in {solution.values["x"] for solution in outcome.solutions}


@pytest.mark.models
def test_the_tiny_encoder_knows_what_a_wife_is(tiny_models: dict[registry.Role, Path]) -> None:
    encoder: Encoder = OnnxEncoder(tiny_models["encoder"], threads=1)
    store = StoreDouble([("ada", "spouse", "kofi"), ("ada", "profession", "baker"), ("ada", "place_of_birth", "keta")])
    first = ground(TripletQuery("Ada", "wife", "?"), store, encoder=encoder)[0]
    assert "relation:spouse>" in first.sparql
    with pytest.raises(InputError, match="'wife'"):
        ground(TripletQuery("Ada", "wife", "?"), store)
