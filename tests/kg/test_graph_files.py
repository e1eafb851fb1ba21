"""Graphs as the world writes them: backslashes in TSV, files packed by gzip and bzip2, labels, aliases and descriptions."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.grounding import Grounder, GroundingSettings
from pytrace.errors import DataError, InputError
from pytrace.kg import KnowledgeBase
from pytrace.kg.graph_sources import read_source
from pytrace.kg.mention_index import MentionIndex
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.records import Triple
from pytrace.triples.graph import TripleStore
from pytrace.triples.graph.exchange import write_tsv
from tests.certify.test_certifier import ENCODER

PACKED = {".gz": gzip.compress, ".bz2": bz2.compress}
FILES = {
    "tsv": b"Ada Foah\tcountry\tGhana\n",
    "jsonl": b'{"head": "Ada Foah", "relation": "country", "tail": "Ghana"}\n',
    "nt": b"<urn:pytrace:entity:Ada%20Foah> <urn:pytrace:relation:country> <urn:pytrace:entity:Ghana> .\n",
    "ttl": b"<urn:pytrace:entity:Ada%20Foah> <urn:pytrace:relation:country> <urn:pytrace:entity:Ghana> .\n",
}
FACT = Triple("Ada Foah", "country", "Ghana")


def read(path: Path) -> list[Triple]:
    return list(read_source(path).triples)


def test_a_backslash_is_a_character_where_it_begins_no_escape_anywhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('dwayne_\\"the_rock\\"\tborn_in\tc:\\new\nAC\\DC\tgenre\trock\n')
    assert read(path) == [
        Triple('dwayne_\\"the_rock\\"', "born_in", "c:\\new"),
        Triple("AC\\DC", "genre", "rock"),
    ]


def test_a_file_with_nothing_but_escapes_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\\tb\tr\tc\\\\d\\u0041\n")
    assert read(path) == [Triple("a\tb", "r", "c\\dA")]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda name: name.strip())


@given(st.lists(st.builds(Triple, NAMES, NAMES, NAMES), min_size=1, max_size=4, unique=True))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, triples: list[Triple]) -> None:
    path = tmp_path_factory.mktemp("tsv") / "a.tsv"
    with path.open("wb") as stream:
        write_tsv(stream, triples)
    assert read(path) == triples


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", FILES)
def test_packed_graphs_are_read_as_others_are(tmp_path: Path, kind: str, packed: str) -> None:
    path = tmp_path / f"facts.{kind}{packed}"
    path.write_bytes(PACKED[packed](FILES[kind]))
    assert read(path) == [FACT]
    assert len(KnowledgeStore.load(path)) == 1
    if kind == "jsonl":  # a store imports documents, and has no line of a bare triple
        return
    with TripleStore.open(tmp_path / "store", mode="create") as store:
        store.import_(path)
        assert [(triple.head, triple.tail) for triple in store.iterate_triples()] == [("Ada Foah", "Ghana")]


@pytest.mark.parametrize("packed", PACKED)
def test_a_broken_file_is_named(tmp_path: Path, packed: str) -> None:
    whole = PACKED[packed](FILES["tsv"] * 50)
    for data in (b"plain text", whole[:-9], whole[:40], b""):
        path = tmp_path / f"a.tsv{packed}"
        path.write_bytes(data)
        if data or packed == ".bz2":
            with pytest.raises(DataError, match=rf"a\.tsv\{packed}.*is a broken (gzip|bzip2) file"):
                read(path)


@pytest.mark.parametrize("packed", PACKED)
def test_what_unpacks_beyond_all_proportion_is_refused(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"a.nt{packed}"
    path.write_bytes(PACKED[packed](b"\n" * 60_000_000))
    with pytest.raises(DataError, match="unpacks to more than 50,000,000 bytes"):
        read(path)


def test_an_export_is_not_written_under_a_packed_name(tmp_path: Path) -> None:
    with (
        TripleStore.open(tmp_path / "store", mode="create") as store,
        pytest.raises(InputError, match=r"leave out \.gz"),
    ):
        store.export(tmp_path / "a.tsv.gz")


WIKIDATA = """
@prefix wd: <http://www.wikidata.org/entity/> . @prefix wdt: <http://www.wikidata.org/prop/direct/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix schema: <http://schema.org/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
wd:Q42 wdt:P19 wd:Q350 ; wdt:P569 "+1952-03-11T00:00:00Z"^^xsd:dateTime ; rdfs:label "Douglas Adams"@en, "D. Adams" ;
  skos:altLabel "Douglas Noel Adams"@en, "DNA" , "Adams Duglas"@lv ; schema:description "English author"@en .
wd:Q350 rdfs:label "Cambridge"@en ; skos:altLabel "City of Cambridge"@en . wd:Q999 skos:altLabel "of no fact" .
wd:P19 rdfs:label "place of birth"@en . wd:P569 rdfs:label "date of birth"@en .
"""


@pytest.fixture(scope="module")
def adams(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    path = tmp_path_factory.mktemp("graph") / "adams.ttl"
    path.write_text(WIKIDATA)
    return KnowledgeBase.load(path, ENCODER)


def test_relations_have_the_labels_of_their_properties_and_names_are_no_facts(adams: KnowledgeBase) -> None:
    texts = sorted(adams.text(number) for number in range(len(adams)))
    assert texts == [
        "Douglas Adams date of birth +1952-03-11T00:00:00Z.",
        "Douglas Adams place of birth Cambridge.",
    ]


def test_entities_are_mentioned_by_their_aliases(adams: KnowledgeBase) -> None:
    texts = ["DNA met Douglas Noel Adams and D. Adams in the City of Cambridge", "Adams Duglas and English author"]
    found = [[mention.entities for mention in row] for row in adams.columns.mentions.find(texts)]
    [person], [town] = (adams.columns.mentions.find([name])[0][0].entities for name in ("Douglas Adams", "Cambridge"))
    assert found == [[(person,), (person,), (person,), (town,)], []]


@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("The place of birth of DNA is the City of Cambridge.", "supported"),
        ("The place of birth of the City of Cambridge is DNA.", "unsupported"),
        ("The date of birth of Douglas Noel Adams is 11 March 1952.", "supported"),
        ("The date of birth of Douglas Noel Adams is March 1952.", "supported"),
        ("The date of birth of Douglas Noel Adams is 12 March 1952.", "unsupported"),
    ],
)
def test_steps_are_grounded_by_alias_and_by_date(adams: KnowledgeBase, step: str, status: str) -> None:
    [found] = Grounder(adams, ENCODER, GroundingSettings(threshold=0.5)).ground([step])
    assert found.status == status


def test_an_index_of_names_without_aliases_is_as_before() -> None:
    names = ["Ada Foah", "ada foah", "Accra"]
    plain, same = MentionIndex.of(names), MentionIndex.of(names, [("ADA FOAH", 0), ("Accra", 2)])
    assert (plain.hashes == same.hashes).all()
    assert (plain.entities == same.entities).all()
