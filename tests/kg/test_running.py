"""Queries are run round by round: what a query gave is told as it is, and what it cannot tell is never made up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytrace.errors import InputError, StoreError
from pytrace.kg.endpoint import SparqlEndpoint
from pytrace.kg.fact_store import QueryLimits, Relation
from pytrace.kg.linking import EntityLinker
from pytrace.kg.local_store import LocalStore
from pytrace.kg.queries import GeneratedQuery, SparqlQuery, parse_query
from pytrace.kg.queries.running import Asked, QueryRunner
from pytrace.kg.sparql_store import Solutions
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.records import Fact, KnowledgeQuery, Triple
from tests.sparql_server import sparql_server
from tests.store_double import StoreDouble

TRIPLES = [
    ("ada_foah", "country", "ghana"),
    ("keta", "country", "ghana"),
    ("lome", "country", "togo"),
    ("ghana", "capital", "accra"),
    ("togo", "capital", "lome"),
]
COUNTRY = "?x relation:/country/ ?c"


class Recorder(StoreDouble):
    """Keeps what names it is asked for, call by call."""

    def __init__(self, triples: Sequence[tuple[str, str, str]] = TRIPLES) -> None:
        super().__init__(triples)
        self.named: list[list[str]] = []

    def names(self, keys: Sequence[str]) -> list[str]:
        self.named.append(list(keys))
        return super().names(keys)


def asked(*written: str, place: int = 0, question: str = "Where?") -> Asked:
    return Asked(place, question, [GeneratedQuery(text, parse_query(text), -1.0) for text in written])


def run(*written: str, store: StoreDouble | None = None, **options: object) -> KnowledgeQuery:
    store = store or StoreDouble(TRIPLES)
    [found] = QueryRunner(store, EntityLinker(store, None), **options).run(  # type: ignore[arg-type]
        [asked(*written)]
    )
    return found


# Counts, and yes or no


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("select (count(?x) as ?n) where { %s }", "3"),
        ("select (count(?c) as ?n) { %s }", "3"),
        ("select (count(distinct ?c) as ?n) where { %s }", "2"),
        ("select (count(*) as ?n) where { %s }", "3"),
        ("SELECT DISTINCT COUNT(DISTINCT ?c) WHERE { %s }", "2"),
        ("select count(?x) where { %s }", "3"),
        ("select ( COUNT ( $x )\n as ?n) # how many (sum(?x))\n where { %s }", "3"),
        ("select (count(?c) as ?n) from <urn:all> where { %s }", "3"),
        ("select (count(?x) as ?n) where { { select ?x ?c where { %s } group by ?x ?c having (count(?c) > 0) } }", "3"),
        ("select (count(?y) as ?n) where { %s optional { ?c relation:/wombats/ ?y } }", "0"),
        ('select (count(?x) as ?n) where { %s filter(str(?x) != "} group by {") }', "3"),
    ],
)
def test_a_count_counts_as_sparql_does(select: str, value: str) -> None:
    store = StoreDouble([*TRIPLES, ("x", "wombats", "y")])
    found = run(select % COUNTRY, store=store)
    assert (found.outcome, found.values, found.refused) == ("answered", (value,), ())
    assert len(found.facts) == 3


@pytest.mark.parametrize(
    "query",
    [
        "select (count(?x) as ?n) where { %s } group by ?c",
        "select (count(?x) as ?n) where { %s } having (count(?x) > 5)",
        "select ?c (count(?x) as ?n) where { %s } group by ?c",
        "select (count(distinct *) as ?n) where { %s }",
        "select (count(?z) as ?n) where { %s bind(?c as ?z) }",
        "select (count(?x) + 1 as ?n) where { %s }",
        "select (count(?x) as ?n) (count(?c) as ?m) where { %s }",
        "select (max(?x) as ?n) where { %s }",
        "select (sum(?x) as ?n) where { %s }",
    ],
)
def test_what_no_solution_shows_is_refused_and_not_made_up(query: str) -> None:
    store = StoreDouble(TRIPLES)
    found = run(query % COUNTRY, "<Ghana; capital; ?>", store=store)
    assert found.values == ("accra",)
    [(written, reason)] = found.refused
    assert (written, reason.startswith("it computes something")) == (query % COUNTRY, True)
    assert [len(batch) for batch in store.rounds] == [1]


def test_a_count_that_a_limit_ended_has_facts_but_no_number() -> None:
    found = run(f"select (count(?x) as ?n) where {{ {COUNTRY} }}", limits=QueryLimits(rows=2))
    assert (found.outcome, found.values, len(found.facts)) == ("stopped", (), 2)
    assert found.reason == "more than 2 solutions"


def test_what_is_so_by_one_solution_is_so_whatever_ended_the_query() -> None:
    found = run(f"ask {{ {COUNTRY} }}", limits=QueryLimits(rows=1))
    assert (found.outcome, found.values, found.reason, len(found.facts)) == ("answered", ("true",), "", 1)


def test_no_is_only_said_when_no_candidate_says_yes() -> None:
    no, yes = (f"ask {{ entity:/Ghana/ relation:/{name}/ entity:/Accra/ }}" for name in ("country", "capital"))
    assert (run(no).outcome, run(no).values, run(no).facts) == ("answered", ("false",), ())
    found = run(no, yes)
    assert (found.values, found.written, found.facts[0].text) == (("true",), yes, "ghana capital accra.")


def test_a_keyword_within_a_prefix_or_after_one_is_read_as_what_it_is() -> None:
    store = StoreDouble(TRIPLES)
    # What `parse_query` takes begins with SELECT or ASK, but a query need not come from there.
    query = SparqlQuery("PREFIX ask: <urn:ask:> ASK { entity:/Ghana/ relation:/capital/ ?x }")
    [found] = QueryRunner(store, EntityLinker(store, None)).run([Asked(0, "?", [GeneratedQuery("?", query, -1.0)])])
    assert found.values == ("true",)


BORDERING = f"{COUNTRY} . ?c relation:/capital/ ?y"


@pytest.mark.parametrize(
    ("written", "statement"),
    [
        (f"select (count(?x) as ?n) where {{ {COUNTRY} . }}", "The knowledge base knows 3 x such that x country c."),
        (
            f"select (count(distinct ?c) as ?n) where {{ {BORDERING} }}",
            "The knowledge base knows 2 different c such that x country c and c capital y.",
        ),
        (
            "select (count(*) as ?n) where { ?x relation:/country/ entity:/Ghana/ }",
            "The knowledge base knows 2 solutions such that x country ghana.",
        ),
        (
            "select (count(?x) as ?n) where { ?x relation:/capital/ entity:/Keta/ }",
            "The knowledge base knows 0 x such that x capital keta.",
        ),
        (
            "ask { entity:/Ghana/ relation:/capital/ entity:/Accra/ }",
            "The knowledge base says that ghana capital accra.",
        ),
        (
            "ask { entity:/Ghana/ relation:/capital/ ?x . ?x relation:/country/ ?y }",
            "The knowledge base does not say, for any x, y, that ghana capital x and x country y.",
        ),
        # A sentence of its triples would say too much.
        (
            "ask { entity:/Ghana/ relation:/capital/ ?x filter(?x != entity:/Accra/) }",
            "The knowledge base answers no to the query: ask { ghana capital ?x filter ( ?x != accra ) }",
        ),
        (
            "select (count(?x) as ?n) where { ?x relation:/country/|relation:/capital/ entity:/Ghana/ }",
            "The knowledge base answers 2 to the query: select ( count ( ?x ) as ?n ) where { ?x country | capital ghana }",
        ),
        ("<Ghana; capital; ?>", ""),
    ],
)
def test_what_a_query_computes_is_put_into_a_sentence_of_its_own(written: str, statement: str) -> None:
    assert run(written).statement == statement


def test_a_count_that_a_limit_ended_is_not_stated() -> None:
    assert run(f"select (count(?x) as ?n) where {{ {COUNTRY} }}", limits=QueryLimits(rows=2)).statement == ""


# Values and facts


def test_values_come_by_name_each_once_in_the_order_of_the_solutions_and_no_more_than_wanted() -> None:
    triples = [(f"town_{number:02}", "country", "ghana") for number in range(30)]
    query = "select ?c ?x where { ?x relation:/country/ ?c }"
    found = run(query, store=StoreDouble(triples), values=5, facts=7)
    assert found.values[0] == "ghana"
    assert len(set(found.values)) == len(found.values) == 5
    assert len(set(found.facts)) == len(found.facts) == 7
    assert found.outcome == "answered"


def test_only_what_is_kept_is_named_and_in_one_call_a_round() -> None:
    store = Recorder([(f"town_{number:02}", "country", "ghana") for number in range(100)])
    query = "<?; country; Ghana>"
    found = QueryRunner(store, EntityLinker(store, None), values=3, facts=2).run([asked(query), asked(query)])
    assert [len(one.values) for one in found] == [3, 3]
    [keys] = store.named
    assert len(keys) == len(set(keys)) == 4


def test_a_relation_that_is_asked_for_is_called_as_the_store_calls_it() -> None:
    class Worded(StoreDouble):
        def relations(self) -> tuple[Relation, ...]:
            return (Relation("P36", "seat of government"),)

    found = run("<Ghana; ?; Accra>", store=Worded([("ghana", "P36", "accra")]))
    assert found.values == ("seat of government",)
    assert found.facts == (Fact(Triple("ghana", "P36", "accra"), "ghana seat of government accra."),)


def test_a_relation_that_the_query_says_something_of_is_an_entity_too() -> None:
    capital = "http://towns/seatOf"
    store = Recorder([("ghana", capital, "accra"), (capital, "domain", "state")])
    assert run("<Ghana; ?; Accra>", store=store).values == ("seat of",)
    assert store.named == [["ghana", "accra"]]  # what is only a relation is no entity to be named
    found = run("select ?r where { entity:/Ghana/ ?r ?x . ?r relation:/domain/ ?d }", store=store)
    assert found.values == ("seatOf",)


def test_of_a_value_that_is_computed_the_facts_are_told() -> None:
    found = run("select (?c as ?z) where { entity:/Keta/ relation:/country/ ?c }")
    assert (found.outcome, found.values) == ("answered", ())
    assert [fact.text for fact in found.facts] == ["keta country ghana."]


def test_texts_among_the_values_are_shortened_to_one_line_in_facts_and_whole_beside_them() -> None:
    text = "A town.\n\nQuestion: " + "x" * 100_000
    found = run("<Keta; abstract; ?>", store=StoreDouble([("keta", "abstract", text)]))
    [fact] = found.facts
    assert fact.triple.tail == text
    assert fact.text.startswith("keta abstract A town. Question: xxx")
    assert fact.text.endswith("xxx….")
    assert len(fact.text) < 400


def test_a_solution_that_says_nothing_is_none() -> None:
    found = run("select ?x where { optional { entity:/Ghana/ relation:/country/ ?x } }", "<Ghana; capital; ?>")
    assert (found.values, found.refused) == (("accra",), ())
    assert run("select ?x where { optional { entity:/Ghana/ relation:/country/ ?x } }").outcome == "empty"


# Rounds


def test_readings_come_before_candidates_and_answered_questions_are_not_asked_again() -> None:
    store = StoreDouble([*TRIPLES, ("Ghana.", "motto", "freedom")])
    runner = QueryRunner(store, EntityLinker(store, None))
    found = runner.run(
        [
            asked("<Ghana; motto; ?>", "<Togo; capital; ?>", place=0),
            asked("<Accra; capital; ?>", "<Togo; capital; ?>", place=1),
            asked("<Togo; capital; ?>", place=2),
        ]
    )
    assert [one.values for one in found] == [("freedom",), ("lome",), ("lome",)]
    assert [one.place for one in found] == [0, 1, 2]
    assert [len(batch) for batch in store.rounds] == [3, 2]


def test_readings_that_are_left_are_not_run_after_an_answer() -> None:
    store = StoreDouble([*TRIPLES, ("Ghana.", "capital", "Kumasi")])
    runner = QueryRunner(store, EntityLinker(store, None))
    found = runner.run([asked("<Ghana; capital; ?>"), asked("<Accra; capital; ?>", "<Togo; capital; ?>")])
    assert [one.values for one in found] == [("accra",), ("lome",)]
    assert [len(batch) for batch in store.rounds] == [2, 1]


def test_what_was_run_for_a_question_is_not_run_for_it_again() -> None:
    store = StoreDouble(TRIPLES)
    found = run("<Accra; capital; ?>", "<accra; Capital; ?>", "<Lome; capital; ?>", store=store)
    assert (found.outcome, found.written) == ("empty", "<Accra; capital; ?>")
    assert [len(batch) for batch in store.rounds] == [1, 1]


def test_the_query_that_was_stopped_is_the_one_that_is_told() -> None:
    store = StoreDouble(TRIPLES, lambda query: Solutions((), "more than 5 seconds") if "lome" in query.rows else None)
    found = run("<Accra; capital; ?>", "<Lome; capital; ?>", "<Keta; capital; ?>", store=store)
    assert (found.outcome, found.written, found.reason) == ("stopped", "<Lome; capital; ?>", "more than 5 seconds")
    assert "lome" in found.sparql
    assert found.links == (("Lome", "lome", 1.0),)


def test_a_stopped_query_does_not_keep_a_later_one_from_answering() -> None:
    store = StoreDouble(TRIPLES, lambda query: Solutions((), "more than 5 seconds") if "accra" in query.rows else None)
    found = run("<Accra; capital; ?>", "<Ghana; capital; ?>", store=store)
    assert (found.outcome, found.values, found.reason) == ("answered", ("accra",), "")


def test_an_error_of_the_store_is_told_once_and_each_reading_is_tried() -> None:
    triples = [*TRIPLES, ("Ghana.", "motto", "freedom")]
    store = StoreDouble(triples, lambda _: StoreError("it crashed"))
    found = run("<Ghana; motto; ?>", "<Togo; capital; ?>", store=store)
    assert found.refused == (("<Ghana; motto; ?>", "it crashed"), ("<Togo; capital; ?>", "it crashed"))
    assert (found.outcome, found.reason, found.written) == ("refused", "it crashed", "")
    assert len(store.rounds) == 3


def test_a_fault_of_the_program_is_not_taken_for_one_of_a_query() -> None:
    with pytest.raises(ZeroDivisionError):
        run("<Ghana; capital; ?>", store=StoreDouble(TRIPLES, lambda _: ZeroDivisionError()))


@pytest.mark.parametrize("options", [{"facts": 0}, {"values": -1}])
def test_numbers_that_keep_nothing_are_refused_with_the_numbers(options: dict[str, int]) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(options.values()))}.*; keep at least 1 of each"):
        run("<Ghana; capital; ?>", **options)


# A store in a process of its own


TOWNS = (
    "@prefix t: <http://towns/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    't:1 rdfs:label "Ada Foah" ; a t:Town ; t:inCountry t:2 ; t:people 7000 ; t:motto "Sea\\nand river" .\n'
    't:2 rdfs:label "Ghana" ; t:capital t:3 . t:3 rdfs:label "Accra" . t:inCountry rdfs:label "country" .\n'
    't:Town rdfs:label "Town" .\n'
)


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    path = tmp_path_factory.mktemp("store") / "towns.ttl"
    path.write_text(TOWNS + "".join(f"t:n{number} t:next t:n{number + 1} .\n" for number in range(300)))
    with LocalStore.open(path) as store:
        yield store


@pytest.mark.parametrize(
    ("written", "values", "texts"),
    [
        ("<Ada Foah; country; ?>", ("Ghana",), ("Ada Foah country Ghana.",)),
        ("<Ada Foah; people; ?>", ("7000",), ("Ada Foah people 7000.",)),
        ("<Ada Foah; motto; ?>", ("Sea\nand river",), ("Ada Foah motto Sea and river.",)),
        ("<Ada Foah; ?; Ghana>", ("country",), ("Ada Foah country Ghana.",)),
        (
            "select ?x where { ?t a entity:/Town/ ; relation:/country//relation:/capital/ ?x }",
            ("Accra",),
            ("Ada Foah type Town.", "Ada Foah country Ghana.", "Ghana capital Accra."),
        ),
        ("select (count(?t) as ?n) where { ?t relation:/type/ entity:/Town/ }", ("1",), ("Ada Foah type Town.",)),
        ("ask { entity:/Accra/ relation:/country/ ?x }", ("false",), ()),
    ],
)
def test_a_store_of_triples_answers_by_its_labels(
    towns: LocalStore, written: str, values: tuple[str, ...], texts: tuple[str, ...]
) -> None:
    [found] = QueryRunner(towns, EntityLinker(towns, None)).run([asked(written)])
    assert (found.outcome, found.values) == ("answered", values)
    assert tuple(fact.text for fact in found.facts) == texts
    assert found.store == towns.name


COMPUTED = [
    (
        "select (count(?t) as ?n) where { ?t relation:/type/ entity:/Town/ }",
        "The knowledge base knows 1 t such that t type Town.",
    ),
    (
        "ask { entity:/Accra/ relation:/country/ ?x }",
        "The knowledge base does not say, for any x, that Accra country x.",
    ),
    (
        "ask { entity:/ada foah/ relation:/country/ entity:/Ghana/ }",
        "The knowledge base says that Ada Foah country Ghana.",
    ),
]


@pytest.mark.parametrize(("written", "statement"), COMPUTED)
def test_what_is_computed_is_worded_by_the_labels_of_a_local_store(
    towns: LocalStore, written: str, statement: str
) -> None:
    [found] = QueryRunner(towns, EntityLinker(towns, None)).run([asked(written)])
    assert found.statement == statement


@pytest.mark.usefixtures("quick")
def test_what_is_computed_is_worded_alike_over_an_endpoint() -> None:
    with sparql_server(TOWNS) as server, SparqlEndpoint(server.url) as store:
        found = QueryRunner(store, EntityLinker(store, None)).run([asked(written) for written, _ in COMPUTED])
    assert [one.statement for one in found] == [statement for _, statement in COMPUTED]


@pytest.mark.parametrize(
    ("hostile", "outcome"),
    [
        ("select ?a where { ?a relation:/next/+ ?b . ?b relation:/next/+ ?c . ?c relation:/next/ ?a }", "stopped"),
        ("select ?a where { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f }", "stopped"),
        ("select (count(*) as ?n) where { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f }", "stopped"),
        ("select ?a where { ?a relation:/next/ ?b } ; drop all", "refused"),
    ],
)
def test_a_hostile_query_is_stopped_or_refused_and_its_neighbours_are_answered(
    towns: LocalStore, hostile: str, outcome: str
) -> None:
    runner = QueryRunner(towns, EntityLinker(towns, None), limits=QueryLimits(seconds=0.5, rows=500))
    start = time.perf_counter()
    first, bad, last = runner.run([asked("<Ghana; capital; ?>"), asked(hostile), asked("<Ada Foah; country; ?>")])
    assert time.perf_counter() - start < 10
    assert (bad.outcome, bool(bad.reason)) == (outcome, True)
    assert (first.values, last.values) == (("Accra",), ("Ghana",))
    assert len(bad.facts) <= 20


@pytest.mark.models
def test_the_question_tells_apart_entities_of_one_name(tmp_path: Path, tiny_models: dict[registry.Role, Path]) -> None:
    (tmp_path / "facts.tsv").write_text(
        "Q1\tprofession\tphysicist\nQ1\tborn_in\tUlm\nQ2\tinstrument\ttrumpet\nQ2\tborn_in\tNew Orleans\n"
    )
    (tmp_path / "names.tsv").write_text("Q1\tAlbert Miller\nQ2\tAlbert Miller\n")
    encoder = OnnxEncoder(tiny_models["encoder"], threads=1)
    questions = ["Where was the trumpet player Albert Miller born?", "Where was the physicist Albert Miller born?"]
    with LocalStore.open(tmp_path / "facts.tsv", labels=tmp_path / "names.tsv") as store:
        runner = QueryRunner(store, EntityLinker(store, encoder), encoder=encoder)
        found = runner.run([asked("<Albert Miller; born in; ?>", question=question) for question in questions])
    assert [one.values for one in found] == [("New Orleans",), ("Ulm",)]
    assert [one.links[0][1] for one in found] == ["Q2", "Q1"]
