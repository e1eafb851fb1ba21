"""`FactStore`: what every knowledge base can be asked for, be it a file in this machine or a server's SPARQL endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import Solutions
from pytrace.records import Triple


class EntityMatch(msgspec.Struct, frozen=True):
    """An entity that a mention may mean: its key, the label or alias that is like the mention, and how like, 0 to 100."""

    key: str
    label: str
    score: float


class Relation(msgspec.Struct, frozen=True):
    """A relation of a store: its key, its name in words, and how many triples have it (0: not known)."""

    key: str
    name: str
    count: int = 0


class QueryLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one query may use: rows that it returns, seconds, and megabytes of memory where it runs in this machine."""

    rows: int = 1_000
    seconds: float = 5.0
    megabytes: int = 2_048


class EntitySource(Protocol):
    """What is known of entities and relations: all that it takes to link mentions.

    Keys are those of `pytrace.kg.graph_sources`. Every verb takes a list and answers in its order, so that a server can
    be asked for many at once.
    """

    def relations(self) -> tuple[Relation, ...]:
        """Return the relations, the most frequent first."""
        ...

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        """Return for each mention the entities with a label or alias like it, best first, each entity once."""
        ...

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        """Return for each entity some triples that it stands in, by keys."""
        ...

    def names(self, keys: Sequence[str]) -> list[str]:
        """Return what entities are called: their first label, or their key in words; any other value as it is."""
        ...


class FactStore(EntitySource, Protocol):
    """Triples that queries are asked of."""

    @property
    def name(self) -> str:
        """The file or address, for provenance."""
        ...

    @property
    def fingerprint(self) -> str:
        """What stored work depends on: a hash of a file's triples, or the address of a server."""
        ...

    def iri(self, key: str, *, relation: bool = False) -> str:
        """Return the IRI, in angle brackets, that stands for a key in queries."""
        ...

    def solutions(self, queries: Sequence[GraphQuery], limits: QueryLimits) -> list[Solutions | Exception]:
        """Run queries that `rewrite` made, and return what each gave; an error of one is returned in its place.

        A query that reaches a limit gives what it had by then, with `stopped` saying which, and the store stays usable.
        """
        ...

    def close(self) -> None:
        """End what runs for the store; any later call fails."""
        ...
