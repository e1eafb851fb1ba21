"""Responses are certified against a graph on a server, of which only what they speak of is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytrace.certify.certifier import Certifier
from pytrace.certify.endpoint_facts import base_of_endpoint
from pytrace.certify.grounding import GroundingSettings
from pytrace.check_records import Response
from pytrace.errors import InputError
from pytrace.kg.endpoint import SparqlEndpoint
from tests.certify.test_certifier import ENCODER
from tests.sparql_server import SparqlServer, sparql_server

TURTLE = """
@prefix wd: <http://www.wikidata.org/entity/> . @prefix wdt: <http://www.wikidata.org/prop/direct/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
wd:Q42 wdt:P19 wd:Q350 ; rdfs:label "Douglas Adams"@en ; skos:altLabel "DNA"@en .
wd:Q350 wdt:P17 wd:Q145 ; rdfs:label "Cambridge"@en .
wd:Q145 rdfs:label "United Kingdom"@en ; wdt:P36 wd:Q84 . wd:Q84 rdfs:label "London"@en .
wd:Q1 wdt:P36 wd:Q2 ; rdfs:label "Elsewhere"@en .
wd:P19 rdfs:label "place of birth"@en . wd:P17 rdfs:label "country"@en . wd:P36 rdfs:label "capital"@en .
"""
TOLD = "1. The place of birth of Douglas Adams is Cambridge. 2. The country of Cambridge is {}. So the answer is ({})."


@pytest.fixture
def server() -> Iterator[SparqlServer]:
    with sparql_server(TURTLE) as running:
        yield running


@pytest.mark.parametrize(("answer", "kind"), [("United Kingdom", "faithful"), ("London", "unfaithful")])
def test_responses_are_certified_against_an_endpoint(server: SparqlServer, answer: str, kind: str) -> None:
    response = Response("1", "In which country was Douglas Adams born?", TOLD.format(answer, answer))
    with SparqlEndpoint(server.url) as store:
        base = base_of_endpoint(store, ENCODER, [response])
    assert "Elsewhere" not in set(base.columns.entity_names)
    assert "place of birth" in set(base.columns.relation_names)
    [certificate] = Certifier(base, ENCODER, GroundingSettings(threshold=0.5)).certify([response])
    assert certificate.kind == kind, certificate.reason


def test_of_nothing_that_is_named_there_is_no_base(server: SparqlServer) -> None:
    response = Response("1", "Who?", "1. Ada Lovelace met Charles Babbage. So the answer is (Babbage).")
    with SparqlEndpoint(server.url) as store, pytest.raises(InputError, match="has no triple of anything"):
        base_of_endpoint(store, ENCODER, [response])
