"""A query for answers becomes one for the triples behind them; nothing is changed, and nobody else is asked."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import DataError, InputError, PytraceError
from pytrace.kg.sparql import GraphQuery, rewrite, written_out
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.kg.sparql_tokens import check_syntax
from pytrace.kg.terms import key_of
from pytrace.records import Triple

TURTLE = """
@prefix : <http://towns/> .
:ghana :capital :accra ; :in :africa ; :population 30 .
:togo :capital :lome ; :in :africa ; :population 8 .
:accra a :City ; :mayor [ :name "Ama" ; :party :blue ] .
:lome a :City .
:ghana :near :togo .
"""
PREFIX = "PREFIX : <http://towns/> "


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeStore:
    path = tmp_path_factory.mktemp("rdf") / "towns.ttl"
    path.write_text(TURTLE, encoding="utf-8")
    return KnowledgeStore.load(path)


def short(key: str) -> str:
    return key.removeprefix("http://towns/").removeprefix("http://www.w3.org/1999/02/22-rdf-syntax-ns#")


def constructed(store: KnowledgeStore, rewritten: GraphQuery) -> set[Triple]:
    """The triples that the CONSTRUCT form of a query returns, those that the graph has."""
    quads = [ox.Quad(each.subject, each.predicate, each.object) for each in store.store.query(rewritten.construct)]
    return {
        Triple(key_of(quad.subject), key_of(quad.predicate), key_of(quad.object))
        for quad in quads
        if quad in store.store
    }


def graph_of(store: KnowledgeStore, query: str) -> set[tuple[str, str, str]]:
    """The triples behind a query; both forms of it must agree."""
    rewritten = rewrite(PREFIX + query)
    triples = {(short(one.head), short(one.relation), short(one.tail)) for one in constructed(store, rewritten)}
    by_row = {
        (short(one.head), short(one.relation), short(one.tail))
        for solution in store.solutions(rewritten).solutions
        for one in solution.triples
    }
    assert by_row == triples
    return triples


GHANA = {("ghana", "capital", "accra"), ("ghana", "in", "africa")}
TOGO = {("togo", "capital", "lome"), ("togo", "in", "africa")}
BOTH = "?c :capital ?x ; :in :africa"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (f"SELECT ?x {{ {BOTH} }}", GHANA | TOGO),
        (f"SELECT DISTINCT ?x WHERE {{ {BOTH} . }}", GHANA | TOGO),
        (f"SELECT * WHERE {{ {BOTH} FILTER(?x != :lome) }}", GHANA),
        (f"SELECT COUNT(?x) WHERE {{ {BOTH} }}", GHANA | TOGO),
        (f"SELECT (COUNT(?x) AS ?n) WHERE {{ {BOTH} }} LIMIT 1", GHANA | TOGO),
        (f"SELECT COUNT(?x) WHERE {{ {BOTH} }} LIMIT 1", GHANA | TOGO),
        (f"ASK {{ {BOTH} }}", GHANA | TOGO),
        ("SELECT ?x { ?c :in :africa . { ?c :capital ?x } FILTER NOT EXISTS { ?c :near [] } }", TOGO),
        ("SELECT ?x { ?c :in :africa ; :capital ?x MINUS { ?c :near ?d . ?d :in :africa } }", TOGO),
        (
            "SELECT ?x { ?c :capital ?x OPTIONAL { ?c :near ?d } }",
            {("ghana", "capital", "accra"), ("togo", "capital", "lome"), ("ghana", "near", "togo")},
        ),
        (
            "SELECT ?x { { :ghana :capital ?x } UNION { :togo :in ?x } }",
            {("ghana", "capital", "accra"), ("togo", "in", "africa")},
        ),
        (f"SELECT ?x {{ {BOTH} }} VALUES ?x {{ :accra }}", GHANA),
        (f"SELECT ?x {{ VALUES (?x) {{ (:lome) }} {BOTH} }}", TOGO),
        (f"SELECT ?x {{ {BOTH} ; :population ?n }} ORDER BY DESC(?n) LIMIT 1", GHANA | {("ghana", "population", "30")}),
        (f"SELECT ?x {{ {BOTH} ; :population ?n }} ORDER BY ?n LIMIT 1", TOGO | {("togo", "population", "8")}),
        (f"SELECT ?c (COUNT(?d) AS ?n) {{ {BOTH} . ?c :near ?d }} GROUP BY ?c HAVING(COUNT(?d) > 1)", set()),
        ("SELECT ?x { :togo ^:near/:capital ?x }", {("ghana", "near", "togo"), ("ghana", "capital", "accra")}),
        ("SELECT ?x { :ghana (:capital|:near) ?x }", {("ghana", "capital", "accra"), ("ghana", "near", "togo")}),
        ("SELECT ?x { ?x a|:in ?y . ?x :population 8 }", {("togo", "in", "africa"), ("togo", "population", "8")}),
        ("SELECT ?x { ?c :capital ?x # a comment } {\n FILTER(STR(?x) != '}{') . ?x a :City }", {
            ("ghana", "capital", "accra"), ("togo", "capital", "lome"), ("accra", "type", "City"), ("lome", "type", "City"),
        }),
        ("SELECT ?c { ?c :capital/a :City FILTER(?c = :togo) }", {("togo", "capital", "lome"), ("lome", "type", "City")}),
        (
            "SELECT ?x { { SELECT ?c (MAX(?n) AS ?m) { ?c :population ?n } GROUP BY ?c } ?c :capital ?x FILTER(?m > 10) }",
            {("ghana", "capital", "accra")},
        ),
        ("SELECT ?x FROM <http://elsewhere/> { ?x :near :togo }", {("ghana", "near", "togo")}),
        ("SELECT ?x { ?c :capital ?x . ?c :population ?n BIND(?n - 8 AS ?left) FILTER(?left>0&&?n<99) }", {
            ("ghana", "capital", "accra"), ("ghana", "population", "30"),
        }),
    ],
)  # fmt: skip
def test_the_triples_behind_the_answers_come_back(
    store: KnowledgeStore, query: str, wanted: set[tuple[str, str, str]]
) -> None:
    assert graph_of(store, query) == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        '?x :mayor [ :name "Ama" ; :party ?p ]',
        '?x :mayor _:m . _:m :name "Ama" ; :party ?p',
        '?x :mayor ?m . [] :party ?p . ?m :name "Ama" ; :party ?p .',
    ],
)
def test_blank_nodes_of_a_query_are_those_of_the_graph(store: KnowledgeStore, pattern: str) -> None:
    found = graph_of(store, f"SELECT ?x {{ {pattern} }}")
    [mayor] = {tail for _, relation, tail in found if relation == "mayor"}
    assert found == {("accra", "mayor", mayor), (mayor, "name", "Ama"), (mayor, "party", "blue")}


def test_one_branch_does_not_lend_its_values_to_the_triples_of_another(store: KnowledgeStore) -> None:
    query = PREFIX + "SELECT ?x { { :ghana :capital ?x } UNION { :togo :in ?x } }"
    found = [[triple.tail for triple in one.triples] for one in store.solutions(rewrite(query)).solutions]
    assert sorted(found) == [["http://towns/accra"], ["http://towns/africa"]]


def test_paths_whose_steps_cannot_be_told_only_filter(store: KnowledgeStore) -> None:
    query = PREFIX + "SELECT ?x { ?c :capital ?x ; (:near|^:near)+ :togo . ?c !:mayor ?y }"
    rewritten = rewrite(query)
    assert len(rewritten.left_out) == 2
    found = {triple.tail for triple in constructed(store, rewritten)}
    assert found == {"http://towns/accra", "http://towns/lome"}


def test_constants_and_answers_of_a_query_are_named() -> None:
    rewritten = rewrite(PREFIX + "SELECT ?x (1 AS ?n) { :ghana :capital ?x . ?x a :City }")
    assert rewritten.answers == ("x", "n")
    [name] = rewritten.constants
    assert f"(<http://towns/ghana> AS ?{name})" in rewritten.rows
    assert rewrite("SELECT * { ?a <urn:p> ?b }").answers == ("a", "b")


def test_variables_made_up_are_not_those_of_the_query() -> None:
    rewritten = rewrite("SELECT ?node0 { ?node0 ?node1 [ ?node2 ?node3 ] }")
    assert len({name for pattern in rewritten.patterns for name in pattern}) == 5


def test_names_of_three_parts_are_read() -> None:
    query = "PREFIX ns: <http://rdf.freebase.com/ns/> ASK { ?c ns:location.country.languages_spoken ns:m.02g__4. }"
    assert "<http://rdf.freebase.com/ns/location.country.languages_spoken>" in rewrite(query).construct
    assert "<http://rdf.freebase.com/ns/m.02g__4>" in written_out(query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "too early"),
        ("SELECT ?x", "too early"),
        ("SELECT ?x {", "ends before '}'"),
        ("SELECT ?x { ?x ?y ?z ) }", "')' at character 22"),
        ("SELECT ?x { ?x }", "a relation is due"),
        ("SELECT ?x { ?x <urn:p> }", "an entity, a variable or a value is due"),
        ("SELECT ?x { }", "no triples"),
        ("SELECT ?x { ?x <urn:p>* ?y }", "no triples"),
        ("SELECT ?x { ?x no:prefix ?y }", "the prefix no: is not declared"),
        ("SELECT ?x { ?x ?y ?z } SELECT", "the query should end"),
        ("DESCRIBE <urn:x>", "SELECT or ASK is due"),
        ("INSERT DATA { <urn:a> <urn:b> <urn:c> }", "INSERT, which changes data"),
        ("PREFIX : <urn:> DELETE WHERE { ?x ?y ?z }", "DELETE, which changes data"),
        ("LOAD <http://towns/>", "LOAD, which changes data"),
        ("SELECT ?x { SERVICE <http://towns/> { ?x ?y ?z } }", "SERVICE"),
        ("SELECT ?x { ?x ?y 'open }", "fits nothing there"),
        ("SELECT ?x { ?x ?y '\ud800' }", "cannot be read"),
        ("PREFIX : SELECT ?x { ?x ?y ?z }", "PREFIX at character 1"),
        ("SELECT ?x " + "{" * 60 + "}" * 60, "nested more than 50 deep"),
        ("SELECT ?x { ?x ?y ?z FILTER(" + "!" * 20_000 + "1) }", "nested more than 50 deep"),
        ("SELECT ?x { " + "?x ?y ?z . " * 201 + "}", "more than 200 triples"),
        ("SELECT ?x { ?x ?y " + ", ".join(map(str, range(100_000))) + "}", "more than 5000 words"),
        ("\x00", "fits nothing there"),
        ("'" * 100_001, "more than 5000 words"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(query: str, reason: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        rewrite(query)
    assert reason in str(caught.value)
    assert time.perf_counter() - start < 2


pieces = st.sampled_from(
    [
        "SELECT",
        "ASK",
        "?x",
        "?y",
        "*",
        "DISTINCT",
        "WHERE",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ".",
        ";",
        ",",
        "a",
        "^",
        "/",
        "|",
        "!",
        "+",
        "<urn:p>",
        "_:b",
        ":q",
        '"s"',
        "'é'",
        "5",
        "-1.5",
        "true",
        "@en",
        "^^",
        "FILTER",
        "OPTIONAL",
        "UNION",
        "MINUS",
        "GRAPH",
        "VALUES",
        "BIND",
        "AS",
        "EXISTS",
        "NOT",
        "COUNT",
        "LIMIT",
        "ORDER",
        "BY",
        "GROUP",
        "#",
        "<",
        ">",
        "=",
        "&&",
        "PREFIX",
        ":",
        "<urn:>",
        "FROM",
    ]
)


@given(st.lists(pieces, max_size=30), st.booleans())
def test_no_query_does_worse_than_being_refused(words: list[str], framed: bool) -> None:
    query = " ".join(words)
    try:
        rewritten = rewrite(f"PREFIX : <urn:> SELECT ?x {{ ?x <urn:p> ?y . {query} }}" if framed else query)
    except InputError:
        return
    check_syntax(rewritten.construct)
    assert rewritten.patterns


@given(st.text(max_size=40))
def test_no_text_does_worse_than_being_refused(text: str) -> None:
    for query in (text, f"SELECT ?x {{ ?x <urn:p> '{text}' }}", f"ASK {{ ?x <{text}> ?y }}"):
        try:
            rewrite(query)
        except InputError:
            continue


@pytest.mark.data
def test_all_queries_of_lcquad_can_be_turned(shared_data: Path) -> None:
    lines = (shared_data / "lcquad" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line)["sparql_query"] for line in lines]
    assert len(queries) == 2000
    for query in queries:
        rewritten = rewrite(query)
        check_syntax(rewritten.construct)
        check_syntax(rewritten.rows)
        assert all(f"<{iri}>" in rewritten.construct for iri in query.replace(">", "<").split("<")[1::2])


def test_triples_of_any_keys_are_asked_for_and_come_back() -> None:
    triples = [
        Triple("ada foah", "in", "ghana"),
        Triple("urn:pytrace:entity:x", "<r>", '"quoted" \\ {}'),
        Triple("\ud800", "http://relations/near", "http://[broken"),
        Triple("http://towns/accra", "urn:r", "Ακρα"),
    ]
    store = KnowledgeStore.of_triples(triples)
    assert len(store) == 4
    assert constructed(store, rewrite("SELECT * { ?s ?p ?o }")) == set(triples)


def test_limits_of_rows_and_time_are_told(store: KnowledgeStore) -> None:
    query = rewrite("SELECT ?a { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o . ?p ?q ?r . ?s ?t ?u }")
    cut = store.solutions(query, limit=3)
    assert (len(cut.solutions), cut.stopped) == (3, "more than 3 solutions")
    start = time.perf_counter()
    assert store.solutions(query, seconds=0.2, limit=10**9).stopped == "more than 0.2 seconds"
    assert time.perf_counter() - start < 5
    assert store.solutions(rewrite("SELECT * { ?a ?b ?c } LIMIT 3"), limit=3).stopped == ""
    with pytest.raises(InputError, match="limit is 0"):
        store.solutions(query, limit=0)
    with pytest.raises(InputError, match="seconds nan"):
        store.solutions(query, seconds=float("nan"))


@pytest.mark.parametrize(
    "query", ["CLEAR ALL", "DELETE WHERE { ?s ?p ?o }", "SELECT ?x { SERVICE <urn:x> { ?x ?y ?z } }"]
)
def test_a_store_is_neither_changed_nor_asks_others(store: KnowledgeStore, query: str) -> None:
    before = len(store)
    with pytest.raises(InputError):
        store.solutions(rewrite(query))
    assert len(store) == before


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("a.nt", b"<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b> .\n", 2, "column 17"),
        ("a.ttl", b"@prefix : <urn:> .\n:a :b :c .\n:a :b :c, .\n", 3, "column 11"),
        ("a.nt", b'<urn:a> <urn:b> "\xff" .\n', 1, "UTF-8"),
        ("a.nt", b"<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn", 2, "column"),
        ("a.nt", b"", None, "no triple"),
        ("a.tsv", b"a\tb\n", 1, "2 columns"),
        ("a.tsv", b"", None, "no triple"),
    ],
)
def test_broken_files_are_told_with_their_place_and_not_loaded(
    tmp_path: Path, name: str, content: bytes, line: int | None, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        KnowledgeStore.load(path)
    assert caught.value.line == line
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_files_and_folders_are_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.ttl", tmp_path / "none.nt", tmp_path / "none.tsv", tmp_path, tmp_path / "x.docx"):
        with pytest.raises(PytraceError) as caught:
            KnowledgeStore.load(path)
        assert str(path) in str(caught.value)


def test_names_are_labels_and_the_key_in_words(tmp_path: Path) -> None:
    path = tmp_path / "towns.nt"
    path.write_text(
        '<http://t/m.1> <http://www.w3.org/2000/01/rdf-schema#label> "Ada Foah" .\n<http://t/m.1> <urn:in> "Ghana" .\n'
    )
    store = KnowledgeStore.load(path)
    assert store.names("http://t/m.1") == ("Ada Foah", "m.1")


def test_a_store_answers_as_its_engine_does() -> None:
    draw = random.Random(2)
    triples = [
        Triple(f"urn:e{draw.randrange(9)}", f"urn:r{draw.randrange(3)}", f"urn:e{draw.randrange(9)}") for _ in range(40)
    ]
    store = KnowledgeStore.of_triples(triples)
    plain = ox.Store()
    for one in triples:
        plain.add(ox.Quad(ox.NamedNode(one.head), ox.NamedNode(one.relation), ox.NamedNode(one.tail)))
    query = "SELECT ?a ?b { ?a <urn:r0> ?m . ?m <urn:r1> ?b }"
    wanted = sorted((row["a"].value, row["b"].value) for row in plain.query(query))
    assert wanted
    rows = [solution.values for solution in store.solutions(rewrite(query)).solutions]
    assert sorted((row["a"], row["b"]) for row in rows) == wanted


@pytest.mark.parametrize("expression", ["concat(?x, 'a')", "COALESCE(?x, 'a')", "STR(?x)"])
def test_functions_are_written_as_the_parser_takes_them(expression: str) -> None:
    query = f"SELECT ?x {{ <urn:Ghana> <urn:capital> ?x FILTER({expression} != 'b') }}"
    assert "capital" in rewrite(query).rows
    assert "capital" in written_out(query)


ROWS = " ".join(f'"{row}"' for row in range(300))
VALUES = " ".join(f"VALUES ?v{block} {{ {ROWS} }}" for block in range(4))
BOMBS = [
    f"SELECT ?x {{ {VALUES} ?x ?y ?z }} ORDER BY ?v0",
    f"SELECT ?x {{ {VALUES} MINUS {{ {VALUES} }} ?x ?y ?z }}",
    f"SELECT ?x {{ ?x ?y ?z {{ SELECT (COUNT(*) AS ?n) {{ {VALUES} }} }} }}",
    f"ASK {{ {VALUES} ?x ?y ?z FILTER(?v0 = 'none') }}",
]


@pytest.mark.parametrize("query", BOMBS)
def test_reading_a_query_evaluates_nothing_of_it(query: str) -> None:
    start = time.monotonic()
    rewrite(query)
    written_out(query)
    assert time.monotonic() - start < 20  # 8 billion solutions take hours, if the memory lasts


@pytest.mark.parametrize(
    "glued", ["trueSERVICE <http://127.0.0.1:9/> { ?a ?b ?c }", "SERVICESILENT <http://127.0.0.1:9/> { }"]
)
def test_a_call_of_another_server_is_seen_where_the_parser_wants_no_space(glued: str) -> None:
    query = f"SELECT ?x {{ ?x ?y ?z FILTER NOT EXISTS {{ FILTER(?x = ?z || {glued}) }} }}"
    for read in (rewrite, written_out):
        with pytest.raises(InputError, match="calls another server"):
            read(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ?x FROM <urn:a> FROM NAMED <urn:b> WHERE { ?x ?y ?z }",
        "BASE <urn:x> PREFIX a: <urn:a> ASK FROM a:b { ?x ?y ?z }",
        "CONSTRUCT { ?x ?y ?z . ?z ?y ?x } FROM <urn:a> WHERE { ?x ?y ?z } LIMIT 3",
        "CONSTRUCT WHERE { ?x ?y ?z }",
        "SELECT (COUNT(*) AS ?n) { ?x ?y ?z } GROUP BY ?x HAVING (COUNT(*) > 1) # and so on",
    ],
)
def test_every_form_that_returns_something_can_be_checked(query: str) -> None:
    check_syntax(query)


@pytest.mark.parametrize(
    "query", ["", "DESCRIBE <urn:a>", "SELECT", "CONSTRUCT { ?x", "CONSTRUCT { ?x ?y } WHERE { ?x ?y ?z }", "ASK"]
)
def test_what_is_no_query_or_returns_no_solutions_is_refused(query: str) -> None:
    with pytest.raises(InputError):
        check_syntax(query)
