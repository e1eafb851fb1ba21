"""RDF terms and the keys that stand for them: an IRI as it is, a literal's text, ``_:`` and the label of a blank node.

A key that is no IRI stands in RDF as ``urn:pytrace:entity:`` or ``urn:pytrace:relation:`` and the key, percent-encoded, as
`pytrace.triples.graph.rdf` writes it.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

import pyoxigraph as ox

# The vocabulary of `pytrace.triples.graph.rdf`: facts have these subjects and relations, and what it says of documents,
# sentences and reified statements, which is no knowledge, has the others as subjects.
ENTITY, RELATION = "urn:pytrace:entity:", "urn:pytrace:relation:"
VOCABULARY = "urn:pytrace:vocabulary:"
PROVENANCE = ("urn:pytrace:document:", "urn:pytrace:sentence:", "urn:pytrace:statement:")
# Wikidata states facts with one IRI and names them by another.
_STATED, _PROPERTY = (
    re.compile(r"https?://www\.wikidata\.org/prop/(?:[a-z/-]+/)?(P\d+)"),
    "http://www.wikidata.org/entity/",
)
_IRI = re.compile(r"(?:https?|urn):[^\x00-\x20<>\"{}|^`\\\ud800-\udfff]+")
_RDFS, _SKOS = "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2004/02/skos/core#"

LABELS = tuple(map(ox.NamedNode, (f"{_RDFS}label", f"{_SKOS}prefLabel")))
"""The relations of an entity to what it is called."""

ALIASES = tuple(
    map(ox.NamedNode, (f"{_SKOS}altLabel", "http://schema.org/alternateName", "https://schema.org/alternateName"))
)
"""The relations of an entity to what it is also called."""

NAMING = frozenset((*LABELS, *ALIASES))
"""The relations of entities to their names."""

DESCRIPTIONS = frozenset(
    map(
        ox.NamedNode,
        (
            f"{_RDFS}comment",
            f"{_SKOS}definition",
            "http://schema.org/description",
            "https://schema.org/description",
            "http://purl.org/dc/terms/description",
            "http://purl.org/dc/elements/1.1/description",
            "http://dbpedia.org/ontology/abstract",
        ),
    )
)
"""The relations of entities to sentences about them, which are no facts to compare a step with."""


def named_by(key: str) -> str:
    """Return the key that has a relation's label: of a Wikidata relation its property, else the relation itself."""
    found = _STATED.fullmatch(key)
    return key if found is None else _PROPERTY + found[1]


def is_foreign(label: ox.Literal) -> bool:
    """Whether a label is in a language other than English."""
    return label.language is not None and label.language.partition("-")[0] != "en"


def node_of(key: str, *, relation: bool = False) -> ox.NamedNode:
    """Return the IRI that stands for an entity's or a relation's key."""
    # A key that looks like one of our own IRIs would be read back as another key.
    if _IRI.fullmatch(key) and not key.startswith("urn:pytrace:"):
        try:
            return ox.NamedNode(key)
        except ValueError:  # it only looks like one
            pass
    prefix = RELATION if relation else ENTITY
    return ox.NamedNode(prefix + quote(key.encode("utf-8", "surrogatepass"), safe=""))


def key_of(term: object) -> str:
    """Return the key that stands for a term of pyoxigraph."""
    if isinstance(term, ox.NamedNode):
        return key_of_iri(term.value)
    if isinstance(term, ox.BlankNode):
        return f"_:{term.value}"
    return term.value if isinstance(term, ox.Literal) else str(term)


def key_of_iri(iri: str) -> str:
    """Return the key that stands for an IRI."""
    for prefix in (ENTITY, RELATION):
        if iri.startswith(prefix):
            try:
                return unquote_to_bytes(iri.removeprefix(prefix)).decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                return iri
    return iri
