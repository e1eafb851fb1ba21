"""What an endpoint says of its relations and entities is what a file with the same triples says (`tests/sparql_server.py`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytrace.engine.knowledge import open_store
from pytrace.errors import DataError, InputError
from pytrace.kg.endpoint import SparqlEndpoint
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.sparql import rewrite
from pytrace.kg.sparql_store import KnowledgeStore, Solutions
from pytrace.records import Document, Triple
from pytrace.triples.graph import TripleStore
from tests.sparql_server import Handler, SparqlServer, hang, sparql_server, times

pytestmark = pytest.mark.usefixtures("quick")

TOWNS = """
@prefix t: <http://towns.example/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix wd: <http://www.wikidata.org/entity/> .
@prefix wdt: <http://www.wikidata.org/prop/direct/> .
t:Q1 rdfs:label "Ada Foah"@en, "Abc"@de ; t:locatedIn t:Q2 ; t:population 8019 ; wdt:P17 t:Q2 .
t:Q2 rdfs:label "Ghana" ; skos:altLabel "Gold Coast"@en, "Land of gold" ; t:capital t:Q3 .
t:Q3 skos:prefLabel "Accra"@en ; t:locatedIn t:Q2 .
t:Q30 rdfs:label "Paris"@en ; t:locatedIn t:Q5 .
t:Q4 rdfs:label "Paris"@en ; t:locatedIn t:Q6 .
t:Q7 rdfs:label "Lutetia"@en ; skos:altLabel "Paris"@en ; t:locatedIn t:Q6 .
t:Q8 rdfs:label "Zürich"@de, "Turitg"@rm ; t:locatedIn t:Q6 .
t:Big_Town t:locatedIn t:Q2 ; t:mayor [ t:age 30 ] .
t:locatedIn rdfs:label "located in"@en .
t:Q10 rdfs:label "country"@en ; t:locatedIn t:Q2 .
wd:P17 rdfs:label "country"@en .
"""
Q = "http://towns.example/Q"
IN = "<http://towns.example/locatedIn>"
IN_GHANA = f"SELECT ?x {{ ?x {IN} <{Q}2> }}"
# Either branch binds both variables, and only one of the two triples is a fact.
EITHER = f"SELECT ?a {{ {{ ?a {IN} ?b }} UNION {{ ?a <http://towns.example/capital> ?b }} }}"


@pytest.fixture
def server() -> Iterator[SparqlServer]:
    with sparql_server(TOWNS) as running:
        yield running


@pytest.fixture
def store(server: SparqlServer) -> Iterator[SparqlEndpoint]:
    with SparqlEndpoint(server.url) as store:
        yield store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "towns.ttl"
    path.write_text(TOWNS)
    return path


def test_relations_names_and_iris_are_those_of_a_file(store: SparqlEndpoint, file: Path) -> None:
    keys = [f"{Q}{number}" for number in (1, 2, 3, 4, 6, 8)] + ["http://towns.example/Big_Town", "8019", "_:b", ""]
    with open_store(file) as local:
        assert store.relations() == local.relations()
        assert store.names(keys) == local.names(keys)
        assert [store.iri(key) for key in keys[:-2]] == [local.iri(key) for key in keys[:-2]]
        assert store.iri("located in", relation=True) == local.iri("located in", relation=True)


def test_equally_frequent_relations_come_in_the_order_of_their_keys(
    store: SparqlEndpoint, server: SparqlServer
) -> None:
    def backwards(handler: Handler, query: str) -> bool:
        if "COUNT" not in query:
            return False
        rows = [
            {"p": {"type": "uri", "value": f"urn:x:{name}"}, "n": {"type": "literal", "value": count}}
            for name, count in (("c", "2"), ("b", "2"), ("a", "many"), ("d", "9" * 9999))
        ]
        handler.reply(json.dumps({"results": {"bindings": rows}}).encode())
        return True

    server.trouble = backwards
    assert [(one.key, one.count) for one in store.relations()] == [
        ("urn:x:b", 2), ("urn:x:c", 2), ("urn:x:a", 0), ("urn:x:d", 0),
    ]  # fmt: skip


def test_a_relation_that_a_file_names_twice_is_one(server: SparqlServer, tmp_path: Path) -> None:
    path = tmp_path / "predicates.tsv"
    path.write_text("urn:x:a\tfirst\nurn:x:b\tother\nurn:x:a\tsecond\n")
    with SparqlEndpoint(server.url, predicates=path) as store:
        assert [(one.key, one.name) for one in store.relations()] == [("urn:x:a", "first"), ("urn:x:b", "other")]


def test_a_foreign_label_is_better_than_none_and_none_better_than_an_english_one(store: SparqlEndpoint) -> None:
    assert store.names([f"{Q}8", f"{Q}1", f"{Q}3"]) == ["Turitg", "Ada Foah", "Accra"]


def test_entities_are_found_by_a_preferred_label(store: SparqlEndpoint) -> None:
    assert [match.key for match in store.find_entities(["accra"])[0]] == [f"{Q}3"]


@pytest.mark.parametrize("mention", ["Gold Coast", "gold coast", "land of gold", " Land  of gold", "ghana"])
def test_entities_are_found_by_any_name_but_for_capitals(store: SparqlEndpoint, mention: str) -> None:
    assert [(match.key, match.score) for match in store.find_entities([mention])[0]] == [(f"{Q}2", 100.0)]


def test_of_entities_with_one_name_the_label_counts_more_than_the_alias_and_a_short_key_more_than_a_long_one(
    store: SparqlEndpoint,
) -> None:
    [found] = store.find_entities(["Paris"])
    assert [match.key for match in found] == [f"{Q}4", f"{Q}30", f"{Q}7"]
    assert store.find_entities(["Paris"], limit=1) == [found[:1]]


def test_a_property_of_wikidata_is_no_entity(store: SparqlEndpoint) -> None:
    assert [match.key for match in store.find_entities(["country"])[0]] == [f"{Q}10"]


def test_around_an_entity_its_own_triples_come_first_whatever_the_server_begins_with(
    store: SparqlEndpoint, server: SparqlServer
) -> None:
    def backwards(handler: Handler, query: str) -> bool:
        found = server.store.query(query)
        rows = [
            {name: {"type": "uri", "value": row[name].value} for name in ("s", "p", "o")}
            for row in reversed(list(found))
        ]
        handler.reply(json.dumps({"results": {"bindings": rows}}).encode())
        return True

    server.trouble = backwards
    [about] = store.around([f"{Q}2"], limit=3)
    assert [triple.head == f"{Q}2" for triple in about] == [True, False, False]


def test_around_an_entity_are_only_relations_like_those_of_the_file(server: SparqlServer, tmp_path: Path) -> None:
    path = tmp_path / "predicates.tsv"
    path.write_text("http://www.wikidata.org/prop/direct/P31\tinstance of\n")
    with SparqlEndpoint(server.url, predicates=path) as store:
        [head, tail] = store.around([f"{Q}1", f"{Q}2"])
    assert {triple.relation for triple in (*head, *tail)} == {"http://www.wikidata.org/prop/direct/P17"}
    path.write_text("".join(f"urn:{number}:x\tsome relation\n" for number in range(100)))
    with SparqlEndpoint(server.url, predicates=path) as store:  # too many beginnings to tell a server
        assert len(store.around([f"{Q}1"])[0]) == 3


def test_where_the_facts_of_a_graph_of_ours_are_from_is_no_knowledge(tmp_path: Path) -> None:
    document = Document("d", "Towns", ("Ada Foah is in Ghana.",), "towns.txt")
    with TripleStore() as graph:
        graph.sync([document])
        graph.add(document, [Triple("Ada_Foah", "lies in", "Ghana", "d", 0, 100.0)])
        graph.export(tmp_path / "towns.ttl")
    turtle = (tmp_path / "towns.ttl").read_text()
    with (
        sparql_server(turtle) as server,
        SparqlEndpoint(server.url) as remote,
        open_store(tmp_path / "towns.ttl") as local,
    ):
        assert [relation.key for relation in remote.relations()] == ["lies in"]
        assert remote.relations() == local.relations()
        assert remote.names(["Ghana", "Ada_Foah"]) == local.names(["Ghana", "Ada_Foah"])
        assert [match.key for match in remote.find_entities(["Ada_Foah"])[0]] == ["Ada_Foah"]
        assert remote.around(["Ghana", "Ada_Foah"]) == local.around(["Ghana", "Ada_Foah"])


def test_a_triple_of_the_other_branch_is_no_fact(store: SparqlEndpoint, server: SparqlServer) -> None:
    graph = rewrite(EITHER)
    [found] = store.solutions([graph], QueryLimits(seconds=20))
    assert isinstance(found, Solutions)
    wanted = KnowledgeStore(server.store).solutions(graph).solutions
    assert sorted(map(repr, found.solutions)) == sorted(map(repr, wanted))
    assert all(len(solution.triples) == 1 for solution in found.solutions)


def test_a_triple_of_a_blank_node_that_nobody_can_ask_for_is_no_fact_of_a_query_with_branches(
    store: SparqlEndpoint,
) -> None:
    branches = f"{{ ?a <http://towns.example/mayor> ?b }} UNION {{ ?a {IN} ?b }}"
    [sure, found] = store.solutions(
        [rewrite("ASK { ?a <http://towns.example/mayor> ?b }"), rewrite(f"SELECT ?a {{ {branches} }}")],
        QueryLimits(seconds=20),
    )
    assert isinstance(sure, Solutions)
    assert isinstance(found, Solutions)
    assert len(sure.solutions[0].triples) == 1
    assert sorted(len(one.triples) for one in found.solutions) == [0, *[1] * 8]


def test_only_what_rdf_can_state_is_a_triple(store: SparqlEndpoint, server: SparqlServer) -> None:
    node, text = {"type": "uri", "value": "urn:x:a"}, {"type": "literal", "value": "a"}
    rows = [{"s": node, "p": node, "o": text}, {"s": text, "p": node, "o": node}, {"s": node, "p": text, "o": node}]

    def odd(handler: Handler, _: str) -> bool:
        handler.reply(json.dumps({"results": {"bindings": rows}}).encode())
        return True

    server.trouble = odd
    [found] = store.solutions([rewrite("SELECT * { ?s ?p ?o }")], QueryLimits(seconds=20))
    assert isinstance(found, Solutions)
    assert [[triple.text for triple in one.triples] for one in found.solutions] == [["<urn:x:a; urn:x:a; a>"], [], []]


def test_terms_that_are_none_leave_their_solution_as_it_is(store: SparqlEndpoint, server: SparqlServer) -> None:
    rows = [
        {"x": {"type": "triple", "value": {"subject": {}}}},
        {"x": {"type": "typed-literal", "value": "8", "datatype": "urn:n"}},
        {"x": {"type": "uri", "value": "no iri > }"}},
        {},
    ]

    def odd(handler: Handler, _: str) -> bool:
        handler.reply(json.dumps({"results": {"bindings": rows}}).encode())
        return True

    server.trouble = odd
    [found] = store.solutions([rewrite(IN_GHANA)], QueryLimits(seconds=20))
    assert isinstance(found, Solutions)
    assert [one.values.get("x") for one in found.solutions] == [None, "8", "no iri > }", None]
    assert not any(one.triples for one in found.solutions)


def test_threads_may_share_a_store_and_its_cache(server: SparqlServer, tmp_path: Path) -> None:
    queries = [rewrite(IN_GHANA), rewrite(EITHER)]
    with SparqlEndpoint(server.url, cache_directory=tmp_path) as store, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: store.solutions(queries, QueryLimits(seconds=20)), range(12)))
    assert all(one == found[0] for one in found)
    assert [len(one.solutions) for one in found[0] if isinstance(one, Solutions)] == [4, 9]


def test_answers_of_one_server_are_not_taken_for_those_of_another(server: SparqlServer, tmp_path: Path) -> None:
    with sparql_server(f"<{Q}9> {IN} <{Q}2> .") as other:
        for one, count in ((server, 4), (other, 1), (server, 4)):
            with SparqlEndpoint(one.url, cache_directory=tmp_path) as store:
                [found] = store.solutions([rewrite(IN_GHANA)], QueryLimits(seconds=20))
            assert isinstance(found, Solutions)
            assert len(found.solutions) == count


def test_a_query_may_take_as_long_as_its_limit_says(server: SparqlServer) -> None:
    server.trouble = times(1, hang(0.5))
    with SparqlEndpoint(server.url, timeout=0.1) as store:
        assert store.solutions([rewrite(IN_GHANA)], QueryLimits(seconds=20)) == [Solutions((), "")]


def test_an_answer_may_be_long_but_not_fill_the_memory(store: SparqlEndpoint) -> None:
    assert 16 << 20 <= store._http._largest_answer <= 256 << 20


def test_a_store_may_be_closed_twice_and_leaves_no_thread(server: SparqlServer) -> None:
    store = SparqlEndpoint(server.url)
    store.close()
    store.close()
    assert "pytrace-http" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("option", ["labels", "predicates"])
def test_a_fault_in_a_file_is_told_with_its_line_before_anything_is_asked(
    option: str, server: SparqlServer, tmp_path: Path
) -> None:
    path = tmp_path / "names.tsv"
    options: dict[str, Any] = {option: path}
    missing: dict[str, Any] = {option: tmp_path / "missing.tsv"}
    for content in ("http://a\tone\nhttp://b\n", "http://a\tone\n\thttp://b\n", "http://a\tone\nhttp://b\ta\tb\n"):
        path.write_text(content)
        with pytest.raises(DataError, match=r"names\.tsv:2: "):
            open_store(server.url, **options)
    path.write_bytes(b"http://a\tone\n\xff\xfe\ttwo\n")
    with pytest.raises(DataError, match=r"names\.tsv"):
        open_store(server.url, **options)
    with pytest.raises(DataError, match=r"missing\.tsv"):
        open_store(server.url, **missing)
    assert not server.seen


@pytest.mark.parametrize("option", ["cache_directory", "timeout", "user_agent"])
def test_what_is_for_servers_is_refused_for_a_file(option: str, file: Path) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(InputError, match=r"towns\.ttl.* leave it out"):
        open_store(file, **options)
