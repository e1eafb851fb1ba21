"""A store in a process of its own: hostile queries end within their limits, and the next ones are answered."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from pytrace.engine.knowledge import open_store
from pytrace.errors import DataError, InputError, StoreError
from pytrace.kg import KnowledgeBase
from pytrace.kg.fact_store import FactStore, QueryLimits
from pytrace.kg.local_store import LocalStore
from pytrace.kg.sparql import GraphQuery, rewrite
from pytrace.kg.sparql_store import KnowledgeStore, Solutions
from pytrace.models.scripted import HashEncoder
from pytrace.triples.graph import Recipe, TripleStore

TURTLE = """
@prefix : <http://towns/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
:ghana :capital :accra ; :in :africa ; :population 30 ; :near :togo ; rdfs:label "Republic of Ghana"@en, "Gana"@es .
:togo :capital :lome ; :in :africa ; :population 8 .
:accra :mayor [ :party :blue ] ; skos:prefLabel "Accra" ; skos:altLabel "Nkran" .
:lome a :City ; rdfs:label "Lomé"@fr .
:capital rdfs:label "has its capital at" .
"""
PREFIX = "PREFIX : <http://towns/> "
CAPITAL = "SELECT ?x { :ghana :capital ?x }"
# A circle of 3,200 nodes, with a second way between them: 4 * 10^7 pairs of triples, 10^7 pairs of nodes.
NODES = 3_200
PATH_WITHOUT_END = 'SELECT ?a { ?a :next ?y ; (:next|:jump)+ ?b . ?b (:next|:jump)+ ?c FILTER(STR(?c) = "none") }'
PRODUCT = "SELECT * { ?a ?p ?b . ?c ?q ?d }"
SORTED_PRODUCT = f"{PRODUCT} ORDER BY ?b ?d LIMIT 3"
SUMMED_PRODUCT = "SELECT ?p (COUNT(*) AS ?n) { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f } GROUP BY ?p HAVING (?n > 1)"
NEXT = "SELECT ?x { :e1 :next ?x }"


def asked(*queries: str) -> list[GraphQuery]:
    return [rewrite(PREFIX + query) for query in queries]


def short(key: str) -> str:
    return key.removeprefix("http://towns/")


def values(found: Solutions | Exception, name: str = "x") -> list[str]:
    assert isinstance(found, Solutions), found
    return [short(solution.values[name]) for solution in found.solutions]


@pytest.fixture(scope="module")
def turtle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("towns") / "towns.ttl"
    path.write_text(TURTLE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def store(turtle: Path) -> Iterator[LocalStore]:
    with LocalStore.open(turtle) as store:
        yield store


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    path = tmp_path_factory.mktemp("circle") / "circle.nt"
    node = "<http://towns/e{}>".format
    path.write_text(
        "".join(
            f"{node(n)} <http://towns/next> {node((n + 1) % NODES)} .\n{node(n)} <http://towns/jump> {node(n * 7 % NODES)} .\n"
            for n in range(NODES)
        ),
        encoding="utf-8",
    )
    with LocalStore.open(path) as store:
        yield store


@pytest.mark.parametrize(
    "query",
    [
        CAPITAL,
        "SELECT ?x { ?c :capital ?x ; :in :africa } ORDER BY ?x",
        "SELECT ?x { { :ghana :capital ?x } UNION { :togo :in ?x } }",
        "SELECT ?x { ?c :capital ?x OPTIONAL { ?c :near ?d } }",
        "SELECT ?n { ?c :population ?n FILTER(?n > 10) }",
        "SELECT ?p { ?c :mayor ?m . ?m :party ?p }",
        "ASK { :ghana :in :africa }",
    ],
)
def test_solutions_are_those_of_the_store_within_the_process(turtle: Path, store: LocalStore, query: str) -> None:
    [rewritten] = asked(query)
    [found] = store.solutions([rewritten], QueryLimits())
    wanted = KnowledgeStore.load(turtle).solutions(rewritten)
    assert isinstance(found, Solutions)
    assert not found.stopped

    def plain(solutions: Solutions) -> list[str]:  # blank nodes have other names each time
        text = [repr((sorted(one.values.items()), [each.text for each in one.triples])) for one in solutions.solutions]
        return sorted("blank" if "_:" in each else each for each in text)

    assert plain(found) == plain(wanted)
    assert found.solutions


def test_a_batch_is_answered_in_its_order_and_none_of_it_disturbs_another(store: LocalStore) -> None:
    queries = asked(*(f"SELECT ?x {{ :{town} :capital ?x }}" for town in ["ghana", "togo", "nowhere"] * 7))
    found = store.solutions(queries, QueryLimits())
    assert [values(each) for each in found] == [["accra"], ["lome"], []] * 7
    assert store.solutions([], QueryLimits()) == []


def test_more_solutions_than_wanted_are_told_and_as_many_as_wanted_are_not(store: LocalStore) -> None:
    two = asked("SELECT ?x { ?c :capital ?x }")
    [cut], [whole] = (store.solutions(two, QueryLimits(rows=rows)) for rows in (1, 2))
    assert isinstance(cut, Solutions)
    assert (len(cut.solutions), cut.stopped) == (1, "more than 1 solutions")
    assert isinstance(whole, Solutions)
    assert (len(whole.solutions), whole.stopped) == (2, "")


@pytest.mark.parametrize(
    ("hostile", "limits", "reason"),
    [
        (PATH_WITHOUT_END, QueryLimits(seconds=0.5), "more than 0.5 seconds"),
        (SUMMED_PRODUCT, QueryLimits(seconds=0.5, megabytes=20_000), "more than 0.5 seconds"),
        (SORTED_PRODUCT, QueryLimits(seconds=60, megabytes=100), "more than 100 megabytes of memory"),
    ],
)
def test_a_query_that_finds_nothing_until_its_limit_is_ended_there_and_its_neighbours_are_answered(
    circle: LocalStore, hostile: str, limits: QueryLimits, reason: str
) -> None:
    start = time.monotonic()
    first, second, third = circle.solutions(asked(NEXT, hostile, NEXT), limits)
    assert time.monotonic() - start < 30
    assert isinstance(second, Solutions)
    assert (second.solutions, second.stopped) == ((), reason)
    assert values(first) == values(third) == ["e2"]
    assert values(circle.solutions(asked(NEXT), QueryLimits())[0]) == ["e2"]


def test_ten_million_rows_end_with_the_rows_wanted(circle: LocalStore) -> None:
    product, after = circle.solutions(asked(PRODUCT, NEXT), QueryLimits(rows=1_000))
    assert isinstance(product, Solutions)
    assert (len(product.solutions), product.stopped) == (1_000, "more than 1000 solutions")
    assert all(len(solution.triples) in (1, 2) for solution in product.solutions)
    assert values(after) == ["e2"]


def test_what_was_found_before_the_time_was_over_is_kept(circle: LocalStore) -> None:
    # The first branch gives its solutions at once, the second never ends.
    query = f"SELECT ?x {{ {{ :e1 :next ?x }} UNION {PATH_WITHOUT_END.removeprefix('SELECT ?a ')} }}"
    [found] = circle.solutions(asked(query), QueryLimits(seconds=0.7))
    assert isinstance(found, Solutions)
    assert found.stopped == "more than 0.7 seconds"
    assert values(found) == ["e2"]


def test_texts_that_double_themselves_end_at_the_limit_of_memory(circle: LocalStore) -> None:
    steps = " ".join(f'BIND(REPLACE(?y{n}, "x", "xx") AS ?y{n + 1})' for n in range(18))
    query = f'SELECT ?a {{ ?a :next ?b BIND("{"x" * 1000}" AS ?y0) {steps} FILTER(STRLEN(?y18) > 5) }}'
    many, after = circle.solutions(asked(query, NEXT), QueryLimits(seconds=60, megabytes=100))
    assert isinstance(many, Solutions)
    assert many.stopped == "more than 100 megabytes of memory"
    assert values(after) == ["e2"]


def test_long_texts_in_many_solutions_end_at_what_one_query_may_return(circle: LocalStore) -> None:
    text = "x" * 100_000
    query = f'SELECT ?a {{ ?a :next ?b . ?b :next ?c BIND("{text}" AS ?y) ?a ?p ?d FILTER(?d != ?y) }}'
    rewritten = asked(query)[0]
    # `rewrite` returns only what stands in triples; a store may hold such texts too.
    rewritten = msgspec.structs.replace(rewritten, rows=rewritten.rows.replace("SELECT ", "SELECT ?y ", 1))
    many, after = circle.solutions([rewritten, *asked(NEXT)], QueryLimits(rows=10_000, seconds=60))
    assert isinstance(many, Solutions)
    assert many.stopped == "more than 64 megabytes of solutions"
    assert 600 < len(many.solutions) < 700
    assert values(after) == ["e2"]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { <urn:a> <urn:b> <urn:c> }",
        "DELETE WHERE { ?s ?p ?o }",
        "LOAD <http://127.0.0.1:9/data.ttl>",
        "CLEAR ALL",
        "DROP ALL",
        "SELECT * { SERVICE <http://127.0.0.1:9/sparql> { ?s ?p ?o } }",
        "SELECT * { ?s ?p ?o } ; DELETE WHERE { ?s ?p ?o }",
        "PREFIX x: <urn:x> INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }",
        "SELECT * { ?s ?p ?o } # \n INSERT DATA { <urn:a> <urn:b> <urn:c> }",
        "nonsense",
        "",
        "SELECT * { ?s ?p '\ud800' }",
    ],
)
def test_what_changes_data_asks_others_or_is_no_query_is_refused_even_behind_the_back_of_rewrite(
    turtle: Path, text: str
) -> None:
    with pytest.raises(InputError):
        rewrite(text)
    [good] = asked(CAPITAL)
    with LocalStore.open(turtle) as store:
        refused, after = store.solutions([msgspec.structs.replace(good, rows=text), good], QueryLimits())
        assert isinstance(refused, InputError)
        assert values(after) == ["accra"]
        assert store.around(["urn:a"]) == [()]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * {{ ?s ?p ?o FILTER EXISTS {{ ?s :right true{service} }} }}",
        "SELECT * {{ ?s ?p ?o FILTER NOT EXISTS {{ ?s :right false{service} }} }}",
        "SELECT * {{ ?s ?p ?o FILTER EXISTS {{ {silent} }} }}",
        "SELECT * {{ ?s ?p ?o MINUS {{ {silent} }} }}",
        "SELECT * {{ ?s :right true{service} }}",
        "SELECT * {{ ?s ?p ?o . {silent} }}",
    ],
)
def test_no_query_reaches_the_network_however_it_writes_the_word_for_that(tmp_path: Path, text: str) -> None:
    # The parser below us wants no space between words: it reads trueSERVICE as two, and SERVICESILENT too.
    path = tmp_path / "towns.ttl"
    path.write_text("@prefix : <http://towns/> . :ghana :right true, false ; :capital :accra .", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server, LocalStore.open(path) as store:
        server.settimeout(0.2)
        called = f"<http://127.0.0.1:{server.getsockname()[1]}/> {{ ?a ?b ?c }}"
        for service in ("SERVICE", "service"):
            query = PREFIX + text.format(service=f"{service} {called}", silent=f"{service}silent {called}")
            [good] = asked(CAPITAL)
            refused, after = store.solutions([msgspec.structs.replace(good, rows=query), good], QueryLimits())
            assert isinstance(refused, InputError)
            assert values(after) == ["accra"]
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_query_that_is_evaluated_while_it_is_parsed_ends_in_its_fork_and_not_here(store: LocalStore) -> None:
    # 8 * 10^9 rows that need no triple, to be sorted before there is a first one.
    rows = " ".join(f"VALUES ?v{n} {{ {' '.join(map(str, range(300)))} }}" for n in range(4))
    hostile = f"SELECT ?v0 {{ {{ SELECT ?v0 {{ {rows} }} ORDER BY ?v1 LIMIT 1 }} }}"
    [good] = asked(CAPITAL)
    start = time.monotonic()
    limits = QueryLimits(seconds=0.5, megabytes=500)
    ended, after = store.solutions([msgspec.structs.replace(good, rows=hostile, patterns=()), good], limits)
    assert time.monotonic() - start < 10
    assert isinstance(ended, Solutions)
    assert ended.stopped in {"more than 0.5 seconds", "more than 500 megabytes of memory"}
    assert values(after) == ["accra"]


def test_a_fork_cannot_open_a_connection_even_where_a_query_got_through(tmp_path: Path) -> None:
    path = tmp_path / "towns.tsv"
    path.write_text("Ghana\tcapital\tAccra\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server, LocalStore.open(path) as store:
        server.settimeout(0.2)
        query = f"SELECT * {{ ?s ?p ?o SERVICE <http://127.0.0.1:{server.getsockname()[1]}/> {{ ?a ?b ?c }} }}"
        ended = []
        allowed = QueryLimits(rows=10, seconds=5.0, megabytes=100)
        store._process.ask("run", [GraphQuery("", query, (), (), (), ())], allowed, on_piece=ended.append)
        [(_, error)] = ended
        assert isinstance(error, InputError)
        assert "cannot be run" in str(error)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_text_or_a_name_that_has_the_word_for_a_call_in_it_is_no_call(store: LocalStore) -> None:
    query = "SELECT ?x { ?service :capital ?x FILTER(STR(?x) != 'SERVICE' && ?x != :SERVICE) } ORDER BY ?x"
    assert sorted(values(store.solutions(asked(query), QueryLimits())[0])) == ["accra", "lome"]


def test_a_form_of_query_that_gives_no_table_is_an_error_of_that_query_alone(store: LocalStore) -> None:
    [good] = asked(CAPITAL)
    bad = msgspec.structs.replace(good, rows="ASK { ?s ?p ?o }")
    refused, after = store.solutions([bad, good], QueryLimits())
    assert isinstance(refused, StoreError | InputError)
    assert values(after) == ["accra"]


@pytest.mark.parametrize(
    "limits",
    [
        QueryLimits(rows=0),
        QueryLimits(megabytes=0),
        QueryLimits(seconds=0),
        QueryLimits(seconds=-1),
        QueryLimits(seconds=float("nan")),
        QueryLimits(seconds=float("inf")),
    ],
)
def test_limits_that_let_nothing_through_or_limit_nothing_are_refused(store: LocalStore, limits: QueryLimits) -> None:
    with pytest.raises(InputError, match="a query's limits are"):
        store.solutions(asked(CAPITAL), limits)


def children(process: int) -> list[int]:
    """Return the processes that a process has started and that still run, and theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def wait_for(condition: object, seconds: float = 10.0) -> bool:
    assert callable(condition)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_process_that_was_killed_costs_one_query_and_is_started_anew(turtle: Path) -> None:
    before = set(children(os.getpid()))
    with LocalStore.open(turtle) as store:
        [holder] = set(children(os.getpid())) - before
        os.kill(holder, signal.SIGKILL)
        failed, *others = store.solutions(asked(CAPITAL, CAPITAL, CAPITAL), QueryLimits())
        assert isinstance(failed, StoreError)
        assert "signal 9" in str(failed)
        assert [values(each) for each in others] == [["accra"], ["accra"]]
        assert store.names(["http://towns/accra"]) == ["Accra"]
    assert wait_for(lambda: set(children(os.getpid())) <= before)


def test_a_query_whose_own_process_is_killed_is_told_in_one_sentence_and_costs_no_other(circle: LocalStore) -> None:
    before = set(children(os.getpid()))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(circle.solutions, asked(PATH_WITHOUT_END, NEXT), QueryLimits(seconds=60))
        assert wait_for(lambda: len(set(children(os.getpid())) - before) == 1, 30)
        # The short one may have ended by now: what is left is the one without end.
        time.sleep(0.5)
        [fork] = set(children(os.getpid())) - before
        os.kill(fork, signal.SIGKILL)
        ended, after = running.result(30)
    assert isinstance(ended, StoreError)
    assert str(ended) == "the SPARQL query's process ended (signal 9 (Killed)); make the query simpler"
    assert values(after) == ["e2"]


def test_a_source_that_changed_is_told_when_the_process_has_to_start_anew(tmp_path: Path) -> None:
    path = tmp_path / "towns.tsv"
    path.write_text("Ghana\tcapital\tAccra\n", encoding="utf-8")
    before = set(children(os.getpid()))
    with LocalStore.open(path) as store:
        [holder] = set(children(os.getpid())) - before
        path.write_text("Ghana\tcapital\tKumasi\n", encoding="utf-8")
        os.kill(holder, signal.SIGKILL)
        with pytest.raises(StoreError, match="ended"):
            store.relations()
        with pytest.raises(StoreError, match="was changed while it was open"):
            store.relations()


def test_no_process_outlives_its_parent_not_even_one_in_the_middle_of_a_query(turtle: Path) -> None:
    script = f"""
from pathlib import Path
from tests.kg.test_local_store import *
store = LocalStore.open({str(turtle)!r})
print("open", flush=True)
patterns = " . ".join(f"?s{{n}} ?p{{n}} ?o{{n}}" for n in range(9))
query = rewrite(f"SELECT (COUNT(*) AS ?n) {{{{ {{patterns}} }}}} GROUP BY ?p0 HAVING (?n < 0)")
store.solutions([query], QueryLimits(seconds=600, megabytes=2_000))
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "open\n"
        assert wait_for(lambda: len(children(parent.pid)) == 2)
        started = children(parent.pid)
        parent.kill()
    assert wait_for(lambda: not any(Path(f"/proc/{each}/stat").exists() for each in started))


def test_an_interruption_in_the_middle_of_an_answer_does_not_mix_it_with_the_next(turtle: Path) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with LocalStore.open(turtle) as store:
        with pytest.raises(KeyboardInterrupt):
            store._process.ask("run", asked(CAPITAL, CAPITAL), QueryLimits(), on_piece=interrupt)
        assert store.names(["http://towns/accra"]) == ["Accra"]


def test_threads_share_a_store(store: LocalStore) -> None:
    towns = ["ghana", "togo"] * 10
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(
            lambda town: store.solutions(asked(f"SELECT ?x {{ :{town} :capital ?x }}"), QueryLimits())[0], towns
        )
        assert [values(each) for each in found] == [["accra"], ["lome"]] * 10


def test_a_closed_store_says_so(turtle: Path) -> None:
    store = LocalStore.open(turtle)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed; open it anew"):
        store.solutions(asked(CAPITAL), QueryLimits())


def test_relations_come_by_number_with_their_labels_and_without_those_to_names(store: LocalStore) -> None:
    found = [(short(each.key), each.name, each.count) for each in store.relations()]
    assert found[:3] == [("capital", "has its capital at", 2), ("in", "in", 2), ("population", "population", 2)]
    assert {key for key, _, _ in found[3:]} == {
        "mayor", "near", "party", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
    }  # fmt: skip


def test_names_are_english_labels_before_others_then_the_key_in_words_and_values_stay(store: LocalStore) -> None:
    keys = ["http://towns/ghana", "http://towns/lome", "http://towns/africa", "30", "snow_white", "", "\ud800"]
    assert store.names(keys) == ["Republic of Ghana", "Lomé", "africa", "30", "snow_white", "", "\ud800"]
    assert store.names([]) == []


def test_around_gives_triples_of_the_head_then_of_the_tail_and_no_labels(store: LocalStore) -> None:
    [ghana, togo, nothing] = store.around(["http://towns/ghana", "http://towns/togo", "nothing"], limit=4)
    assert {(short(one.relation), short(one.tail)) for one in ghana} == {
        ("capital", "accra"), ("in", "africa"), ("population", "30"), ("near", "togo"),
    }  # fmt: skip
    assert {short(one.head) for one in togo} == {"togo", "ghana"}
    assert nothing == ()
    assert len(store.around(["http://towns/ghana"], limit=1)[0]) == 1
    with pytest.raises(InputError, match="limit is 0"):
        store.around(["x"], limit=0)


def test_entities_are_found_by_labels_of_any_language_aliases_keys_and_the_users_file(
    turtle: Path, tmp_path: Path
) -> None:
    labels = tmp_path / "names.tsv"
    labels.write_text("http://towns/africa\tThe Black Continent\nhttp://towns/mars\tRed Planet\n", encoding="utf-8")
    with LocalStore.open(turtle, labels=labels) as store:
        mentions = ["gana", "republik of Ghana", "Nkran", "africa", "black continent", "Red Planet", ""]
        found = store.find_entities(mentions, cutoff=80)
        best = [short(matches[0].key) if matches else None for matches in found]
        assert best == ["ghana", "ghana", "accra", "africa", "africa", None, None]
        assert found[0][0].score == 100
        assert len({match.key for match in found[1]}) == len(found[1])
        # A relation has a label too, and is no entity.
        assert store.find_entities(["has its capital at"], cutoff=90) == [[]]


@pytest.mark.parametrize("content", [b"http://towns/africa\n", b"a\tb\tc\n", b"\tb\n", b"a\t\n", b"\xff\xfe\tb\n"])
def test_a_fault_in_a_file_of_names_is_told_with_its_line_before_anything_runs(
    turtle: Path, tmp_path: Path, content: bytes
) -> None:
    names = tmp_path / "names.tsv"
    names.write_bytes(b"a\tb\n" + content)
    with pytest.raises(DataError, match=r"names\.tsv:2: "):
        LocalStore.open(turtle, labels=names)
    with pytest.raises(DataError, match=r"names\.tsv:2: "):
        LocalStore.open(turtle, predicates=names)


def test_a_file_of_relations_chooses_and_names_them(turtle: Path, tmp_path: Path) -> None:
    names = tmp_path / "relations.tsv"
    names.write_text(
        "http://towns/none\tnothing\nhttp://towns/near\tborders\nhttp://towns/in\tlies in\n", encoding="utf-8"
    )
    with LocalStore.open(turtle, predicates=names) as store:
        assert [(each.name, each.count) for each in store.relations()] == [
            ("lies in", 2),
            ("borders", 1),
            ("nothing", 0),
        ]


def test_every_form_of_a_graph_answers_the_same(tmp_path: Path) -> None:
    tsv = tmp_path / "towns.tsv"
    tsv.write_text("Ada_Foah\tcountry\tGhana\nGhana\tcapital\tAccra \\ud800\n", encoding="utf-8")
    with TripleStore.open(tmp_path / "graph", recipe=Recipe("scripted", model="m", prompt="p")) as graph:
        graph.import_(tsv)
        for suffix in ("jsonl", "nt", "ttl"):
            graph.export(tmp_path / f"out.{suffix}")
    KnowledgeBase.build(tsv, tmp_path / "base", HashEncoder())
    forms = [
        tsv,
        tmp_path / "graph",
        tmp_path / "base",
        *(tmp_path / f"out.{suffix}" for suffix in ("jsonl", "nt", "ttl")),
    ]
    fingerprints = set()
    for form in forms:
        with LocalStore.open(form) as store:
            query = f"SELECT ?c ?x {{ ?t {store.iri('country', relation=True)} ?c . ?c {store.iri('capital', relation=True)} ?x }}"
            [found] = store.solutions([rewrite(query)], QueryLimits())
            assert isinstance(found, Solutions)
            assert [one.text for one in found.solutions[0].triples] == [
                "<Ada_Foah; country; Ghana>", "<Ghana; capital; Accra \ud800>",
            ]  # fmt: skip
            assert [(each.key, each.count) for each in store.relations()] == [("capital", 1), ("country", 1)]
            assert store.find_entities(["ada foah"])[0][0].key == "Ada_Foah"
            assert [one.text for one in store.around(["Ada_Foah"])[0]] == ["<Ada_Foah; country; Ghana>"]
            fingerprints.add(store.fingerprint)
    assert len(fingerprints) == len(forms)


def test_a_compiled_base_keeps_the_names_of_its_source(turtle: Path, tmp_path: Path) -> None:
    KnowledgeBase.build(turtle, tmp_path / "base", HashEncoder())
    with LocalStore.open(tmp_path / "base") as store:
        assert store.names(["http://towns/ghana"]) == ["Republic of Ghana"]
        assert store.find_entities(["republic of ghana"])[0][0].key == "http://towns/ghana"
        assert store.relations()[0].name == "has its capital at"


def test_a_fingerprint_follows_from_the_content_alone(tmp_path: Path) -> None:
    prints = []
    for number, content in enumerate(["a\tb\tc\n", "a\tb\tc\n", "a\tb\td\n"]):
        path = tmp_path / f"{number}.tsv"
        path.write_text(content, encoding="utf-8")
        with LocalStore.open(path) as store:
            prints.append(store.fingerprint)
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.tsv", b"", "there is no triple"),
        ("a.tsv", b"one\ttwo\n", r"a\.tsv:1"),
        ("a.tsv", b"\xff\tb\tc\n", "UTF-8"),
        ("a.ttl", b"<a> <b>", r"a\.ttl"),
        ("a.nt", b"<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b>", r"a\.nt:2"),
        ("a.jsonl", b'{"head": 1}\n', r"a\.jsonl:1"),
        ("a.doc", b"x", "format"),
    ],
)
def test_a_broken_source_is_told_as_ever_and_leaves_no_process(
    tmp_path: Path, name: str, content: bytes, match: str
) -> None:
    before = set(children(os.getpid()))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=match):
        LocalStore.open(tmp_path / name)
    with pytest.raises(DataError, match="cannot be read"):
        LocalStore.open(tmp_path / "missing.tsv")
    with pytest.raises(InputError, match=r"holds no graph\.db"):
        LocalStore.open(tmp_path)
    assert wait_for(lambda: set(children(os.getpid())) <= before)


def test_the_line_of_a_fault_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\tc\nd\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        LocalStore.open(path)
    assert (caught.value.path, caught.value.line) == (path, 2)


def test_a_path_is_opened_by_its_kind_and_what_is_for_endpoints_is_refused(turtle: Path) -> None:
    with open_store(turtle) as store:
        typed: FactStore = store
        assert typed.name == str(turtle)
        assert isinstance(store, LocalStore)
        assert len(store) == 16
    with pytest.raises(InputError, match="a cache is for endpoints only"):
        open_store(turtle, cache_directory="somewhere")
    with pytest.raises(InputError, match="a user agent is for endpoints only"):
        open_store(turtle, user_agent="me")


@pytest.mark.data
def test_the_questions_of_pathquestion_are_answered_by_their_gold_paths(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "pathquestion"
    path = tmp_path / "kb.tsv"
    path.write_bytes((folder / "2H-kb.txt").read_bytes())
    rows = [line.split("\t") for line in (folder / "PQ-2H.txt").read_text(encoding="utf-8").splitlines()[:200]]
    with LocalStore.open(path) as store:
        queries = []
        for _, _, gold in (row[:3] for row in rows):
            head, first, _, second, *_ = gold.split("#")
            steps = f"{store.iri(first, relation=True)}/{store.iri(second, relation=True)}"
            queries.append(rewrite(f"SELECT ?x {{ {store.iri(head)} {steps} ?x }}"))
        for row, found in zip(rows, store.solutions(queries, QueryLimits()), strict=True):
            answers = {answer.partition("(")[0] for answer in row[1].split("/")}
            assert answers & set(values(found)), row
