"""The answers of SPARQL endpoints as JSON, and terms as queries write them.

Source: SPARQL 1.1 Query Results JSON Format (W3C, 2013).
"""

from __future__ import annotations

import msgspec
import pyoxigraph as ox

from pytrace.errors import ServerError
from pytrace.kg.terms import key_of_iri

MEDIA_TYPE = "application/sparql-results+json"


class Term(msgspec.Struct, frozen=True):
    """A value of a variable; `type` is "uri", "bnode", "literal" (some say "typed-literal"), or one that we cannot use."""

    type: str
    value: object
    language: str | None = msgspec.field(default=None, name="xml:lang")
    datatype: str | None = None

    @property
    def text(self) -> str | None:
        """Its text, if it is a term that we can use."""
        known = self.type in ("uri", "bnode", "literal", "typed-literal")
        return self.value if known and isinstance(self.value, str) else None

    @property
    def key(self) -> str | None:
        """The key that stands for it, if it is a term that we can use."""
        text = self.text
        if text is None:
            return None
        if self.type == "uri":
            return key_of_iri(text)
        return f"_:{text.removeprefix('_:')}" if self.type == "bnode" else text

    def written(self) -> str | None:
        """Return how a query writes it; None for a blank node, which no query can name, and for what is none of RDF."""
        text = self.text
        if text is None or self.type == "bnode":
            return None
        try:
            if self.type == "uri":
                return str(ox.NamedNode(text))
            if self.language:
                return str(ox.Literal(text, language=self.language))
            return str(ox.Literal(text, datatype=ox.NamedNode(self.datatype)) if self.datatype else ox.Literal(text))
        except ValueError:
            return None


Row = dict[str, Term]


class _Bindings(msgspec.Struct):
    bindings: list[Row]


class _Table(msgspec.Struct):
    results: _Bindings


def read_rows(data: bytes, where: str) -> list[Row]:
    """Read an endpoint's answer to a SELECT query."""
    try:
        return msgspec.json.decode(data, type=_Table).results.bindings
    except (msgspec.DecodeError, RecursionError) as error:
        begin = " ".join(data[:300].decode("utf-8", "replace").split())[:100]
        raise ServerError(
            f"{where}: {len(data):,} bytes that are no SPARQL results in JSON ({error}), beginning {begin!a}; see whether the "
            "address is that of a SPARQL endpoint, or ask for less if the answer was cut off",
            status=200,
        ) from error
