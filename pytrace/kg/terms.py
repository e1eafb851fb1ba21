"""RDF terms and the keys that stand for them: an IRI as it is, a literal's text, ``_:`` and the label of a blank node.

A key that is no IRI stands in RDF as ``urn:pytrace:entity:`` or ``urn:pytrace:relation:`` and the key, percent-encoded, as
`pytrace.triples.graph.rdf` writes it.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

import pyoxigraph as ox

_ENTITY, _RELATION = "urn:pytrace:entity:", "urn:pytrace:relation:"
_IRI = re.compile(r"(?:https?|urn):[^\x00-\x20<>\"{}|^`\\\ud800-\udfff]+")
_RDFS, _SKOS = "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2004/02/skos/core#"

LABELS = tuple(map(ox.NamedNode, (f"{_RDFS}label", f"{_SKOS}prefLabel")))
"""The relations of an entity to what it is called."""

ALIASES = tuple(
    map(ox.NamedNode, (f"{_SKOS}altLabel", "http://schema.org/alternateName", "https://schema.org/alternateName"))
)
"""The relations of an entity to what it is also called."""


def node_of(key: str, *, relation: bool = False) -> ox.NamedNode:
    """Return the IRI that stands for an entity's or a relation's key."""
    # A key that looks like one of our own IRIs would be read back as another key.
    if _IRI.fullmatch(key) and not key.startswith("urn:pytrace:"):
        try:
            return ox.NamedNode(key)
        except ValueError:  # it only looks like one
            pass
    prefix = _RELATION if relation else _ENTITY
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
    for prefix in (_ENTITY, _RELATION):
        if iri.startswith(prefix):
            try:
                return unquote_to_bytes(iri.removeprefix(prefix)).decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                return iri
    return iri
