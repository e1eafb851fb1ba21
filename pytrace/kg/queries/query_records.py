"""What crosses between those who write queries and those who run them.

Source: Li et al., "Chain of Knowledge: A Framework for Grounding Large Language Models with Structured Knowledge Bases"
(2023), sections 3.1 and 4: queries hold textual mentions only, which an entity linker grounds later.
"""

from __future__ import annotations

from typing import Literal

import msgspec

QueryForm = Literal["triplet", "sparql"]
"""The two forms of section 4: triplets for single facts, SPARQL for complex questions."""

Grammar = Literal["words", "relations", "none"]
"""What a generator is held to: names in the question's words and relations of the store, any names and those relations, or nothing."""

SOUGHT = "?"
"""What stands in a triplet query for the part that is asked for."""


class TripletQuery(msgspec.Struct, frozen=True):
    """A triple of names of which one part is asked for: exactly one of the three is `SOUGHT`."""

    head: str
    relation: str
    tail: str

    @property
    def text(self) -> str:
        """`<head; relation; tail>`."""
        return f"<{self.head}; {self.relation}; {self.tail}>"


class SparqlQuery(msgspec.Struct, frozen=True):
    """SPARQL in which entities, classes and relations stand by name: ``entity:/Ada Foah/``, ``relation:/country/``."""

    text: str


Query = TripletQuery | SparqlQuery


class GeneratedQuery(msgspec.Struct, frozen=True):
    """A query that a generator offers: what it wrote, what that means (None: nothing, `fault` says why), and how likely it was.

    `log_probability` is natural, of the whole text; the candidates of a question come best first.
    """

    written: str
    query: Query | None
    log_probability: float
    fault: str = ""
