"""Rows of LC-QuAD: their queries with names in the place of IRIs, what is left out and what is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytrace.documents.text_files import Place
from pytrace.errors import DataError, InputError
from pytrace.kg.queries import TripletQuery, parse_query, query_names
from pytrace.training.examples import lcquad_example, named_query, read_examples
from pytrace.training.query_text import check_query, query_entities, query_shape, triplet_form
from pytrace.training.run import split_by_group
from pytrace.training.variation import vary_names
from pytrace.training.wrong_queries import wrong_queries
from tests.query_entities import seen_share

RESOURCE, ONTOLOGY = "http://dbpedia.org/resource/", "http://dbpedia.org/ontology/"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
PLACE = Place(Path("rows.jsonl"), 3)


def row(sparql: str, question: str = "Who rules Ada Foah?", **more: Any) -> dict[str, Any]:
    return {"_id": "7", "corrected_question": question, "sparql_query": sparql, **more}


@pytest.mark.parametrize(
    ("sparql", "named"),
    [
        (
            (
                f"SELECT DISTINCT ?uri WHERE {{ ?y <{ONTOLOGY}birthPlace> <{RESOURCE}Ada_Foah>  . ?y <{ONTOLOGY}child> ?uri . "
                f"?uri <{TYPE}> <{ONTOLOGY}TelevisionShow>}}"
            ),
            (
                "select distinct ?x where { ?y relation:/birth place/ entity:/Ada Foah/ . ?y relation:/child/ ?x . "
                "?x relation:/type/ entity:/television show/ }"
            ),
        ),
        (
            f"SELECT DISTINCT COUNT(?uri) WHERE {{?uri <{ONTOLOGY}a> <{RESOURCE}B>  . }}",
            "select (count(distinct ?x) as ?count) where { ?x relation:/a/ entity:/B/ }",
        ),
        (
            f"SELECT COUNT(?uri) WHERE {{?uri <{ONTOLOGY}a> <{RESOURCE}B>}}",
            "select (count(?x) as ?count) where { ?x relation:/a/ entity:/B/ }",
        ),
        (
            f"ASK WHERE {{ <{RESOURCE}A> <http://dbpedia.org/property/isA> <{RESOURCE}B> }}",
            "ask { entity:/A/ relation:/is a/ entity:/B/ }",
        ),
        (
            f"select ?c where {{ ?c <{ONTOLOGY}a> ?b . ?b <{ONTOLOGY}c> ?a . ?a <{ONTOLOGY}d> ?z }}",
            "select ?x where { ?x relation:/a/ ?y . ?y relation:/c/ ?z . ?z relation:/d/ ?v3 }",
        ),
        (
            (
                f"ASK WHERE {{ <{RESOURCE}AC/DC> a <{RESOURCE}Star_Trek:_Voyager_(TV)> ; <{ONTOLOGY}b> 3 . "
                f"<{RESOURCE}Benu%C3%A9_River> <{ONTOLOGY}b> <urn:x:y_z> }}"
            ),
            (
                "ask { entity:/AC\\/DC/ a entity:/Star Trek: Voyager (TV)/ ; relation:/b/ 3 . entity:/Benué River/ relation:/b/ "
                "entity:/y z/ }"
            ),
        ),
    ],
)
def test_iris_become_names_and_variables_canonical(sparql: str, named: str) -> None:
    query = named_query(sparql)
    assert query.text == named
    check_query(query)


def test_a_row_becomes_an_example_whose_group_is_its_entities() -> None:
    sparql = (
        f"SELECT DISTINCT ?uri WHERE {{ <{RESOURCE}Volta_River> <{ONTOLOGY}r> ?uri . <{RESOURCE}Ada_Foah> <{ONTOLOGY}r> ?uri . "
        f"?uri <{TYPE}> <{ONTOLOGY}Town> }}"
    )
    example = lcquad_example(row(sparql, "What do  Ada Foah\nand the volta river share?"), PLACE)
    assert (example.id, example.group, example.answers) == ("7", "Ada Foah | Volta River", ())
    assert example.question == "What do Ada Foah and the volta river share?"
    assert example.mentions == ("volta river", "Ada Foah")
    assert query_entities(example.query) == ("Volta River", "Ada Foah")
    without_id = {key: value for key, value in row(sparql).items() if key != "_id"}
    assert lcquad_example(without_id, PLACE).id == "rows:3"


def test_one_clause_becomes_a_triplet_in_either_direction() -> None:
    for sparql, triplet in (
        (f"SELECT ?u WHERE {{ <{RESOURCE}A> <{ONTOLOGY}b> ?u }}", TripletQuery("A", "b", "?")),
        (f"SELECT ?u WHERE {{ ?u <{ONTOLOGY}b> <{RESOURCE}A> . }}", TripletQuery("?", "b", "A")),
        (f"SELECT ?u WHERE {{ <{RESOURCE}A> ?u <{RESOURCE}C> . }}", TripletQuery("A", "?", "C")),
    ):
        assert lcquad_example(row(sparql), PLACE, form="triplet").query == triplet


@pytest.mark.parametrize(
    "text",
    [
        "ask { entity:/a/ relation:/b/ ?x }",
        "select (count(?x) as ?c) where { entity:/a/ relation:/b/ ?x }",
        "select ?x where { entity:/a/ relation:/b/ ?x . entity:/a/ relation:/c/ ?x }",
        "select ?x where { entity:/a/ relation:/b/ ?x optional { ?x relation:/c/ ?y } }",
        "select ?x where { ?y relation:/b/ ?x }",
        "select ?x where { entity:/a;b/ relation:/b/ ?x }",
        "select ?x where { entity:/a/ relation:/b/ ?x } limit 1",
    ],
)
def test_what_is_more_than_a_triple_is_no_triplet(text: str) -> None:
    with pytest.raises(InputError, match="use the form sparql"):
        triplet_form(parse_query(text))


@pytest.mark.parametrize(
    "sparql",
    [
        "",
        "SELECT",
        "SELECT ?x WHERE { ?x ?p",
        "DELETE WHERE { ?x ?y ?z }",
        f"SELECT ?x WHERE {{ <{RESOURCE}> <{ONTOLOGY}a> ?x }}",
        "SELECT ?x WHERE { SERVICE <urn:a> { ?x ?y ?z } }",
        "SELECT ?x WHERE { }",
        f"CONSTRUCT {{ ?x <{ONTOLOGY}a> ?y }} WHERE {{ ?x <{ONTOLOGY}a> ?y }}",
        f"SELECT ?x WHERE {{ ?x <{ONTOLOGY}a> dbr:Accra }}",
        f"SELECT ?x WHERE {{ ?x <{ONTOLOGY}a> '{'b' * 5000}' }}",
        "\ud800",
    ],
)
def test_a_query_that_cannot_be_run_is_left_out_and_counted(tmp_path: Path, sparql: str) -> None:
    with pytest.raises(InputError) as caught:
        lcquad_example(row(sparql), PLACE)
    assert not isinstance(caught.value, DataError)
    path = tmp_path / "rows.jsonl"
    good = row(f"ASK WHERE {{ <{RESOURCE}A> <{ONTOLOGY}b> <{RESOURCE}C> }}", _id="8")
    safe = sparql.replace("\ud800", "\x00")
    path.write_text(json.dumps(row(safe)) + "\n" + json.dumps(good))
    left_out: list[str] = []
    examples = read_examples(path, left_out=left_out)
    assert [example.id for example in examples] == ["8"]
    assert len(left_out) == 1
    assert left_out[0].startswith(f"{path}:1: left out: ")
    assert [query_shape(example.query) for example in examples] == ["ask 1"]


@pytest.mark.parametrize("field", ["corrected_question", "sparql_query"])
@pytest.mark.parametrize("value", [None, 3, ["a"]])
def test_a_field_that_is_no_text_is_an_error_with_its_line(field: str, value: object) -> None:
    with pytest.raises(DataError, match=rf"rows\.jsonl:3: .*{field}"):
        lcquad_example({**row("ASK { ?x ?y ?z }"), field: value}, PLACE)


@pytest.mark.data
def test_at_least_95_of_100_rows_are_usable_and_have_four_wrong_queries(shared_data: Path) -> None:
    left_out: list[str] = []
    examples = read_examples(shared_data / "lcquad" / "train.jsonl", left_out=left_out)
    assert len(examples) >= 0.95 * (len(examples) + len(left_out))
    assert len(examples) + len(left_out) == 2_000
    assert not any("http" in example.query.text or "?uri" in example.query.text for example in examples)
    written = sum(len(example.mentions) for example in examples)
    assert written > 0.9 * sum(len(query_entities(example.query)) for example in examples)
    relations = sorted({name for example in examples for name in query_names(example.query)[1]})
    for example in examples[::10]:
        wrong = wrong_queries(example, relations=relations, classes=["town", "river"])
        assert len({query.text for query in wrong} | {example.query.text}) == 5
    training, held_out = split_by_group(examples, held_out=0.2, seed=0)
    assert len(held_out) == 400
    assert seen_share(training, held_out) == 0.0
    excluded = {name for example in held_out for name in query_entities(example.query)}
    assert seen_share(vary_names(training, 12_800, excluded=excluded), held_out) == 0.0
