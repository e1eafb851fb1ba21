"""A SPARQL endpoint is asked as little as possible, survives what servers do, and is the only one that is asked."""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from pytrace import __version__
from pytrace.engine.knowledge import open_store
from pytrace.errors import DataError, InputError, ServerError, StoreError
from pytrace.kg.answer_cache import AnswerCache
from pytrace.kg.endpoint import SparqlEndpoint
from pytrace.kg.endpoint_queries import limited, read_rows
from pytrace.kg.fact_store import FactStore, QueryLimits
from pytrace.kg.sparql import GraphQuery, rewrite
from pytrace.kg.sparql_store import KnowledgeStore, Solutions
from pytrace.kg.sparql_tokens import check_syntax
from pytrace.models.servers import http_client
from tests.sparql_server import Handler, SparqlServer, hang, sparql_server, times

TURTLE = """
@prefix : <http://towns/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix wd: <http://www.wikidata.org/entity/> .
@prefix wdt: <http://www.wikidata.org/prop/direct/> .
:ghana :capital :accra ; :in :africa ; :population 30 ; :near :togo ; rdfs:label "Republic of Ghana"@en, "Gana"@es .
:togo :capital :lome ; :in :africa ; :population 8 .
:accra :mayor [ :party :blue ] ; rdfs:label "accra" ; skos:altLabel "Nkran"@en ; wdt:P31 :City .
:accra :motto "It's \\"so\\"\\n"@en .
:accra2 rdfs:label "Accra"@en .
:lome a :City ; rdfs:label "Lomé"@fr .
wd:P31 rdfs:label "instance of"@en .
"""
PREFIX = "PREFIX : <http://towns/> "
CAPITAL = "SELECT ?x { :ghana :capital ?x }"
pytestmark = pytest.mark.usefixtures("quick")


def asked(*queries: str) -> list[GraphQuery]:
    return [rewrite(PREFIX + query) for query in queries]


def short(key: str) -> str:
    return key.removeprefix("http://towns/")


def values(found: Solutions | Exception, name: str = "x") -> list[str]:
    assert isinstance(found, Solutions), found
    return [short(solution.values[name]) for solution in found.solutions]


@pytest.fixture
def server() -> Iterator[SparqlServer]:
    with sparql_server(TURTLE) as server:
        yield server


@pytest.fixture
def store(server: SparqlServer) -> Iterator[SparqlEndpoint]:
    with SparqlEndpoint(server.url) as store:
        yield store


def test_a_store_and_an_endpoint_are_one_protocol(store: SparqlEndpoint, server: SparqlServer) -> None:
    typed: FactStore = store
    assert typed.name == typed.fingerprint == server.url
    with open_store(server.url, user_agent="me@towns.example") as opened:
        assert isinstance(opened, SparqlEndpoint)
        assert values(opened.solutions(asked(CAPITAL), QueryLimits())[0]) == ["accra"]
    assert server.seen[-1][1]["user-agent"] == f"pytrace/{__version__} (me@towns.example)"


@pytest.mark.parametrize(
    "query",
    [
        CAPITAL,
        "SELECT ?x { ?c :capital ?x ; :in :africa } ORDER BY ?x",
        "SELECT ?x { { :ghana :capital ?x } UNION { :togo :in ?x } }",
        "SELECT ?x { ?c :capital ?x OPTIONAL { ?c :near ?d } }",
        "SELECT ?x { ?x :in :africa OPTIONAL { ?x :near ?d } OPTIONAL { ?x :capital ?d } }",
        "SELECT ?n { ?c :population ?n FILTER(?n > 10) }",
        "SELECT ?n { { ?c :population ?n } UNION { ?c :motto ?n } }",
        "SELECT ?p { ?c :mayor ?m . ?m :party ?p }",
        "SELECT ?x { ?c :capital ?x } VALUES ?x { :accra }",
        "SELECT ?x { ?c :capital ?x ; :population ?n } ORDER BY DESC(?n) LIMIT 1",
        "ASK { :ghana :in :africa }",
        "SELECT ?x { :ghana :capital ?x } VALUES ?x { :accra :lome }",
    ],
)
def test_solutions_are_those_of_a_store_within_the_process(
    store: SparqlEndpoint, server: SparqlServer, query: str
) -> None:
    [rewritten] = asked(query)
    [found] = store.solutions([rewritten], QueryLimits())
    wanted = KnowledgeStore(server.store).solutions(rewritten)
    assert isinstance(found, Solutions), found
    assert not found.stopped

    def plain(solutions: Solutions) -> list[str]:
        text = [repr((sorted(one.values.items()), [each.text for each in one.triples])) for one in solutions.solutions]
        return sorted("blank" if "_:" in each else each for each in text)

    assert plain(found) == plain(wanted)
    assert any(solution.triples for solution in found.solutions)


def test_no_more_is_sent_than_one_row_beyond_those_wanted(store: SparqlEndpoint, server: SparqlServer) -> None:
    cut, whole = (store.solutions(asked("SELECT ?x { ?c :capital ?x }"), QueryLimits(rows=rows))[0] for rows in (1, 2))
    assert isinstance(cut, Solutions)
    assert (len(cut.solutions), cut.stopped) == (1, "more than 1 solutions")
    assert isinstance(whole, Solutions)
    assert (len(whole.solutions), whole.stopped) == (2, "")
    assert [query.rpartition(" ")[2] for query in server.queries] == ["2", "3"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ?x { ?x ?y ?z }",
        "SELECT ?x { ?x ?y ?z VALUES ?z { 1 } }",
        "SELECT ?x { ?x ?y ?z } VALUES ?z { 1 }",
        "SELECT ?x { { SELECT ?x { ?x ?y ?z } LIMIT 9 } ?x ?p ?o } LIMIT 4",
        "SELECT ?select { ?select ?y ' VALUES ' }",
        "BASE <http://select/> SELECT ?x { ?x ?y ?z } VALUES (?x ?z) { (<a> 1) }",
    ],
)
def test_a_limit_is_written_where_sparql_wants_it(query: str) -> None:
    written = limited(rewrite(query).rows, 7)
    check_syntax(written)
    assert written.endswith(" LIMIT 7")
    assert written.count("LIMIT 7") == 1


def test_equal_queries_are_asked_once_and_never_again(store: SparqlEndpoint, server: SparqlServer) -> None:
    found = store.solutions(asked(CAPITAL, "SELECT ?x { :togo :capital ?x }", CAPITAL), QueryLimits())
    assert [values(each) for each in found] == [["accra"], ["lome"], ["accra"]]
    assert len(server.seen) == 2
    store.solutions(asked(CAPITAL), QueryLimits())
    assert len(server.seen) == store.requests == 2
    assert store.solutions([], QueryLimits()) == []


def test_many_queries_are_on_their_way_at_once_but_no_more_than_allowed(server: SparqlServer) -> None:
    server.trouble = times(12, hang(0.1))
    with SparqlEndpoint(server.url, concurrency=3) as store:
        queries = asked(*(f"SELECT ?x {{ :town{number} :capital ?x }}" for number in range(12)))
        store.solutions(queries, QueryLimits())
    assert server.busiest == 3


def test_what_must_not_be_run_is_not_sent(store: SparqlEndpoint, server: SparqlServer) -> None:
    [good] = asked(CAPITAL)
    texts = ["DELETE WHERE { ?s ?p ?o }", "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }", "SELECT", "\ud800"]
    *refused, after = store.solutions(
        [*(msgspec.structs.replace(good, rows=text) for text in texts), good], QueryLimits()
    )
    assert all(isinstance(each, InputError) for each in refused)
    assert values(after) == ["accra"]
    assert len(server.seen) == 1
    with pytest.raises(InputError, match="a query's limits are"):
        store.solutions([good], QueryLimits(rows=0))


def test_a_query_is_sent_as_the_protocol_has_it(store: SparqlEndpoint, server: SparqlServer) -> None:
    store.solutions(asked("SELECT ?x { ?x :motto 'é & + = \U0001f600'@fr }"), QueryLimits())
    [(query, headers)] = server.seen
    assert "é & + = \U0001f600" in query
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["accept"] == "application/sparql-results+json"
    assert headers["user-agent"] == f"pytrace/{__version__}"
    assert "cookie" not in headers
    assert "authorization" not in headers


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(store: SparqlEndpoint, server: SparqlServer, status: int) -> None:
    server.trouble = times(2, lambda handler: handler.reply(b"busy", status, "text/plain"))
    assert values(store.solutions(asked(CAPITAL), QueryLimits())[0]) == ["accra"]
    assert len(server.seen) == 3


def test_the_time_that_a_server_asks_to_wait_is_waited_beside_the_time_of_the_query(
    store: SparqlEndpoint, server: SparqlServer
) -> None:
    server.trouble = times(1, lambda handler: handler.reply(b"busy", 429, "text/plain", retry_after="1"))
    start = time.monotonic()
    assert values(store.solutions(asked(CAPITAL), QueryLimits(seconds=0.8))[0]) == ["accra"]
    assert time.monotonic() - start >= 1


def html(handler: Handler) -> None:
    handler.reply(b"<!DOCTYPE html><html><body>Sign in", kind="text/html")


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda one: one.reply(b"java.lang.Oops", 500, "text/plain"), r"POST http.*answers 500: java\.lang\.Oops"),
        (lambda one: one.reply(b"Malformed query", 400, "text/plain"), "answers 400: Malformed query"),
        (lambda one: one.reply(b"no", 403, "text/plain"), "answers 403: no; name a server that answers everybody"),
        (html, "no SPARQL results in JSON.*DOCTYPE"),
        (lambda one: one.reply(b""), "0 bytes that are no SPARQL results"),
        (lambda one: one.reply(b"\xff\xfe\x00"), "no SPARQL results"),
        (lambda one: one.reply(b'{"head": {}, "boolean": true}'), "no SPARQL results"),
        (lambda one: one.reply(b'{"results": {"bindings": [{"x": 3}]}}'), "no SPARQL results"),
        (
            lambda one: one.reply(b'{"results": {"bindings": [{"x": {"type": "uri", "value": "\\ud800"}}]}}'),
            "no SPARQL",
        ),
        (lambda one: one.reply(b"[" * 100_000), "no SPARQL results"),
        (lambda one: one.reply(b'{"results": {"bindings": [{"x": {"type": "uri", "val'), "cut off"),
        (lambda one: one.reply(b"", 301, location="http://127.0.0.1:9/other"), "redirects to 127.0.0.1"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_of_that_query_alone_and_is_not_remembered(
    store: SparqlEndpoint, server: SparqlServer, answer: Any, match: str
) -> None:
    server.trouble = times(1, answer)
    [failed] = store.solutions(asked(CAPITAL), QueryLimits())
    with pytest.raises(ServerError, match=match) as caught:
        raise failed if isinstance(failed, Exception) else AssertionError
    assert "\n" not in str(caught.value)
    assert caught.value.status is not None
    assert values(store.solutions(asked(CAPITAL), QueryLimits())[0]) == ["accra"]
    assert len(server.seen) == 2


def test_an_answer_that_breaks_off_is_asked_for_again(store: SparqlEndpoint, server: SparqlServer) -> None:
    server.trouble = times(1, Handler.cut_off)
    assert values(store.solutions(asked(CAPITAL), QueryLimits())[0]) == ["accra"]


def test_an_answer_that_is_too_long_is_not_taken(
    store: SparqlEndpoint, server: SparqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._http, "_largest_answer", 10_000)
    server.trouble = times(1, lambda one: one.reply(b'{"x": "' + b"x" * 100_000))
    [failed] = store.solutions(asked(CAPITAL), QueryLimits())
    with pytest.raises(ServerError, match=r"longer than 10,000 bytes, .*; is this a SPARQL endpoint\?"):
        raise failed if isinstance(failed, Exception) else AssertionError


def test_a_query_that_takes_too_long_is_given_up_once_and_the_next_is_answered(
    store: SparqlEndpoint, server: SparqlServer
) -> None:
    def slow(handler: Handler, query: str) -> bool:
        if "togo" in query:
            hang(2)(handler)
        return "togo" in query

    server.trouble = slow
    start = time.monotonic()
    late, after = store.solutions(asked("SELECT ?x { :togo :capital ?x }", CAPITAL), QueryLimits(seconds=0.3))
    assert time.monotonic() - start < 1.5
    assert late == Solutions((), "more than 0.3 seconds")
    assert values(after) == ["accra"]
    assert sum("togo" in query for query in server.queries) == 1


def test_a_server_that_is_not_there_is_told_and_a_closed_store_too() -> None:
    with SparqlEndpoint("http://127.0.0.1:9/sparql") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_client, "LONGEST_PAUSE", 0.01)
        [failed] = store.solutions(asked(CAPITAL), QueryLimits())
        assert isinstance(failed, ServerError)
        assert "no server answers at http://127.0.0.1:9" in str(failed)
    with pytest.raises(ServerError, match="was closed; open it anew"):
        store.solutions(asked(CAPITAL), QueryLimits())


@pytest.mark.parametrize("url", ["http://", "http://me:secret@towns/sparql", "http://towns/sparql?key=secret"])
def test_an_address_that_cannot_be_used_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_other_settings_that_cannot_be_used_are_refused() -> None:
    for agent in ("", "a\nb: c", "\u00e9"):
        with pytest.raises(InputError, match="user agent"):
            SparqlEndpoint("http://towns/sparql", user_agent=agent)
    for number in (0, -1):
        with pytest.raises(InputError, match="concurrency"):
            SparqlEndpoint("http://towns/sparql", concurrency=number)
        with pytest.raises(InputError, match="timeout"):
            SparqlEndpoint("http://towns/sparql", timeout=number)
    with pytest.raises(InputError, match="has no format 'tsv'"):
        open_store("HTTP://towns/sparql", format="tsv")


def test_a_redirection_to_another_host_is_not_followed(store: SparqlEndpoint, server: SparqlServer) -> None:
    with sparql_server(TURTLE) as other:
        server.trouble = times(1, lambda one: one.reply(b"", 307, location=other.url))
        [failed] = store.solutions(asked(CAPITAL), QueryLimits())
        assert isinstance(failed, ServerError)
        assert other.seen == []


def test_a_run_that_is_repeated_asks_for_nothing(server: SparqlServer, tmp_path: Path) -> None:
    for _ in range(2):
        with SparqlEndpoint(server.url, cache_directory=tmp_path / "cache") as store:
            found = store.solutions(asked(CAPITAL, "SELECT ?x { :nobody :capital ?x }"), QueryLimits())
            assert [values(each) for each in found] == [["accra"], []]
            assert store.names(["http://towns/ghana"]) == ["Republic of Ghana"]
    assert len(server.seen) == 3
    with SparqlEndpoint(server.url, cache_directory=tmp_path / "cache") as store:
        store.solutions(asked(CAPITAL), QueryLimits(rows=5))
    assert len(server.seen) == 4  # it asks for other rows


def test_failures_are_not_kept(server: SparqlServer, tmp_path: Path) -> None:
    server.trouble = times(1, lambda one: one.reply(b"<html>"))
    for wanted in (ServerError, Solutions):
        with SparqlEndpoint(server.url, cache_directory=tmp_path) as store:
            assert isinstance(store.solutions(asked(CAPITAL), QueryLimits())[0], wanted)


def test_a_cache_that_is_damaged_is_told_and_not_trusted(server: SparqlServer, tmp_path: Path) -> None:
    with SparqlEndpoint(server.url, cache_directory=tmp_path) as store:
        store.solutions(asked(CAPITAL), QueryLimits())
    path = tmp_path / "answers.sqlite"
    for change in ("SET content = zeroblob(40)", "SET content = 'text'", "SET checksum = 7"):
        before = path.read_bytes()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(f"UPDATE answers {change}")
        connection.close()
        with (
            SparqlEndpoint(server.url, cache_directory=tmp_path) as store,
            pytest.raises(StoreError, match=r"is damaged.*delete"),
        ):
            store.solutions(asked(CAPITAL), QueryLimits())
        path.write_bytes(before)
    for content in (b"garbage" * 1000, path.read_bytes()[:5000], path.read_bytes()[:4096]):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"is damaged.*delete it"):
            SparqlEndpoint(server.url, cache_directory=tmp_path)
    assert len(server.seen) == 1


def test_a_cache_of_another_version_or_without_a_place_is_refused(tmp_path: Path) -> None:
    AnswerCache(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "answers.sqlite")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(StoreError, match="is not of version 1"):
        AnswerCache(tmp_path)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be made"):
        SparqlEndpoint("http://127.0.0.1:9/", cache_directory=tmp_path / "file" / "cache")
    cache = AnswerCache(tmp_path / "other")
    cache.close()
    with pytest.raises(StoreError, match="is closed"):
        cache.get(["x"])


def _fill(directory: str, worker: int) -> None:
    cache = AnswerCache(directory)
    for number in range(50):
        cache.put([str(number)], b"answer %d" % number)
        assert cache.get([str(number)]) == b"answer %d" % number, worker
    cache.close()


def test_a_cache_is_shared_by_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(str(tmp_path), worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    cache = AnswerCache(tmp_path)
    assert cache.get(["49"]) == b"answer 49"
    cache.close()


def test_parts_of_what_was_asked_do_not_run_together(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path)
    cache.put(["ab", "c"], b"x")
    assert (cache.get(["a", "bc"]), cache.get(["ab", "c"]), cache.get(["\ud800"])) == (None, b"x", None)
    cache.close()


def test_relations_are_counted_and_named_by_their_labels_those_of_wikidata_by_their_properties(
    store: SparqlEndpoint,
) -> None:
    found = {short(each.key): (each.name, each.count) for each in store.relations()}
    assert found["http://www.wikidata.org/prop/direct/P31"] == ("instance of", 1)
    assert found["capital"] == ("capital", 2)
    assert not any("label" in key.lower() for key in found)
    counts = [each.count for each in store.relations()]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("answer", [hang(0.6), lambda one: one.reply(b"timeout", 500, "text/plain")])
def test_relations_that_cannot_be_counted_are_listed(server: SparqlServer, answer: Any) -> None:
    def no_counting(handler: Handler, query: str) -> bool:
        if "COUNT" in query:
            answer(handler)
        return "COUNT" in query

    server.trouble = no_counting
    with SparqlEndpoint(server.url, timeout=0.3) as store:
        assert {(short(each.key), each.count) for each in store.relations()} >= {("capital", 0), ("in", 0)}


def test_relations_of_a_server_that_does_neither_come_from_a_file(server: SparqlServer, tmp_path: Path) -> None:
    server.trouble = times(99, lambda one: one.reply(b"timeout", 500, "text/plain"))
    with SparqlEndpoint(server.url, timeout=0.3) as store, pytest.raises(ServerError, match="--kb-predicates"):
        store.relations()
    path = tmp_path / "relations.tsv"
    path.write_text("http://towns/capital\thas its seat at\n", encoding="utf-8")
    asked_before = len(server.seen)
    with SparqlEndpoint(server.url, predicates=path) as store:
        [relation] = store.relations()
        assert (short(relation.key), relation.name, relation.count) == ("capital", "has its seat at", 0)
    assert len(server.seen) == asked_before
    path.write_text("x\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"relations\.tsv:1"):
        SparqlEndpoint(server.url, predicates=path)


def test_names_are_english_labels_then_others_then_the_key_in_words_and_values_stay(
    store: SparqlEndpoint, server: SparqlServer
) -> None:
    keys = [
        "http://towns/ghana",
        "http://towns/lome",
        "30",
        "",
        "\ud800",
        "http://towns/ghana",
        "snow_white",
        "urn:x:a_b",
    ]
    names = ["Republic of Ghana", "Lomé", "30", "", "\ud800", "Republic of Ghana", "snow_white", "a b"]
    assert store.names(keys) == names
    assert store.names([]) == []
    assert len(server.seen) == 2
    store.names([f"http://towns/{number}" for number in range(250)])
    assert len(server.seen) == 8


def test_around_gives_triples_of_the_head_then_of_the_tail_and_no_labels(store: SparqlEndpoint) -> None:
    ghana, nothing, blank, again = store.around(["http://towns/ghana", "nothing", "_:b", "http://towns/ghana"], limit=5)
    assert {(short(one.relation), short(one.tail)) for one in ghana} == {
        ("capital", "accra"), ("in", "africa"), ("population", "30"), ("near", "togo"),
    }  # fmt: skip
    assert (nothing, blank, again) == ((), (), ghana)
    [africa] = store.around(["http://towns/africa"], limit=1)
    assert len(africa) == 1
    with pytest.raises(InputError, match="limit is 0"):
        store.around(["x"], limit=0)


def test_entities_are_found_by_label_and_alias_with_any_capitals_in_one_request(
    store: SparqlEndpoint, server: SparqlServer
) -> None:
    mentions = ["accra", "nkran", "republic of ghana", "Republic of  Ghana", "", "nobody", '"} ?s ?p ?o {"', "\ud800x"]
    found = store.find_entities(mentions)
    assert len(server.seen) == 1
    best = [[short(match.key) for match in matches] for matches in found]
    # "republic of ghana" in capitals is "Republic Of Ghana", which is no label.
    assert best == [["accra", "accra2"], ["accra"], [], ["ghana"], [], [], [], []]
    assert found[0][0].score == 100
    assert len(store.find_entities(["accra"], limit=1)[0]) == 1
    for wrong in ({"limit": 0}, {"cutoff": 101.0}, {"cutoff": float("nan")}):
        with pytest.raises(InputError):
            store.find_entities(["x"], **wrong)


def test_with_a_file_of_labels_mentions_may_be_misspelt_and_the_server_is_not_asked(
    server: SparqlServer, tmp_path: Path
) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("http://towns/ghana\tRepublic of Ghana\nhttp://towns/togo\tTogo\n", encoding="utf-8")
    with SparqlEndpoint(server.url, labels=path) as store:
        assert [short(match.key) for match in store.find_entities(["republik of gana"])[0]] == ["ghana"]
    assert server.seen == []


def test_a_failure_while_labels_are_asked_for_is_raised(store: SparqlEndpoint, server: SparqlServer) -> None:
    server.trouble = times(9, lambda one: one.reply(b"no", 500, "text/plain"))
    for call in (lambda: store.names(["http://x/y"]), lambda: store.find_entities(["x"]), lambda: store.around(["x"])):
        with pytest.raises(ServerError, match="answers 500"):
            call()
    server.trouble = times(9, hang(0.5))
    with (
        SparqlEndpoint(server.url, timeout=0.2) as slow,
        pytest.raises(ServerError, match=r"no whole answer within 0\.2 s.*--kb-timeout"),
    ):
        slow.names(["http://x/y"])


@pytest.mark.parametrize("answer", [lambda one: one.reply(b"no", 500, "text/plain"), hang(1)])
def test_facts_of_alternatives_that_cannot_be_checked_are_not_taken_for_facts(
    store: SparqlEndpoint, server: SparqlServer, answer: Any
) -> None:
    def no_checking(handler: Handler, query: str) -> bool:
        if "?place" in query:
            answer(handler)
        return "?place" in query

    server.trouble = no_checking
    union = "SELECT ?x { { :ghana :capital ?x } UNION { :togo :in ?x } }"
    unchecked, after = store.solutions(asked(union, CAPITAL), QueryLimits(seconds=0.5))
    assert isinstance(unchecked, ServerError) or unchecked == Solutions((), "more than 0.5 seconds")
    assert values(after) == ["accra"]


@pytest.mark.parametrize(
    ("term", "key", "written"),
    [
        ({"type": "uri", "value": "http://a/b"}, "http://a/b", "<http://a/b>"),
        ({"type": "uri", "value": "urn:pytrace:entity:Ada%20Foah"}, "Ada Foah", "<urn:pytrace:entity:Ada%20Foah>"),
        ({"type": "uri", "value": "http://a> } INSERT"}, "http://a> } INSERT", None),
        ({"type": "bnode", "value": "b0"}, "_:b0", None),
        ({"type": "literal", "value": 'a"\n'}, 'a"\n', '"a\\"\\n"'),
        ({"type": "literal", "value": "a", "xml:lang": "en"}, "a", '"a"@en'),
        ({"type": "literal", "value": "a", "xml:lang": "no language"}, "a", None),
        ({"type": "typed-literal", "value": "8", "datatype": "urn:n"}, "8", '"8"^^<urn:n>'),
        ({"type": "triple", "value": {"subject": {}}}, None, None),
        ({"type": "literal", "value": None}, None, None),
    ],
)
def test_terms_have_keys_and_are_written_only_where_that_is_safe(
    term: dict[str, Any], key: str | None, written: str | None
) -> None:
    data = msgspec.json.encode({"head": {"vars": ["x"]}, "results": {"bindings": [{"x": term}]}})
    [row] = read_rows(data, "somewhere")
    assert (row["x"].key, row["x"].written()) == (key, written)


def test_the_path_of_an_address_is_kept_as_it_is(server: SparqlServer) -> None:
    port = urlsplit(server.url).port
    with SparqlEndpoint(f"http://127.0.0.1:{port}/other/v1") as store:
        [failed] = store.solutions(asked(CAPITAL), QueryLimits())
    assert isinstance(failed, ServerError)
    assert f"http://127.0.0.1:{port}/other/v1: the server answers 404" in str(failed)
