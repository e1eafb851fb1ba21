"""A triple store in this process, for tests of what asks one: nothing is limited but rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pytrace.errors import PytraceError
from pytrace.kg.entities import score
from pytrace.kg.fact_store import EntityMatch, QueryLimits, Relation
from pytrace.kg.names import entity_name, normal_form, relation_name
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import KnowledgeStore, Solutions
from pytrace.records import Triple


class StoreDouble:
    """The triples of a list, and a record of what was asked; `answer` may answer a query in the store's place."""

    name = "double"
    fingerprint = "double"

    def __init__(
        self,
        triples: Sequence[tuple[str, str, str]],
        answer: Callable[[GraphQuery], Solutions | Exception | None] | None = None,
    ) -> None:
        self.triples = [Triple(*triple) for triple in triples]
        self.store = KnowledgeStore.of_triples(self.triples)
        self.rounds: list[list[GraphQuery]] = []
        self._answer = answer or (lambda _: None)

    def relations(self) -> tuple[Relation, ...]:
        counts = Counter(triple.relation for triple in self.triples)
        return tuple(Relation(key, relation_name(key), count) for key, count in counts.most_common())

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        keys = list(dict.fromkeys(part for triple in self.triples for part in (triple.head, triple.tail)))
        found = []
        for mention in mentions:
            scores = score(normal_form(mention), [normal_form(entity_name(key)) for key in keys])
            matches = [
                EntityMatch(key, entity_name(key), float(value))
                for key, value in zip(keys, scores, strict=True)
                if value >= cutoff
            ]
            found.append(sorted(matches, key=lambda match: -match.score)[:limit])
        return found

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        return [tuple(one for one in self.triples if key in (one.head, one.tail))[:limit] for key in keys]

    def names(self, keys: Sequence[str]) -> list[str]:
        return [entity_name(key) for key in keys]

    def iri(self, key: str, *, relation: bool = False) -> str:
        return key_iri(key, relation=relation)

    def solutions(self, queries: Sequence[GraphQuery], limits: QueryLimits) -> list[Solutions | Exception]:
        self.rounds.append(list(queries))
        found: list[Solutions | Exception] = []
        for query in queries:
            given = self._answer(query)
            if given is not None:
                found.append(given)
                continue
            try:
                found.append(self.store.solutions(query, limit=limits.rows, seconds=limits.seconds))
            except PytraceError as error:
                found.append(error)
        return found

    def close(self) -> None:
        pass


def key_iri(key: str, *, relation: bool = False) -> str:
    """Write a plain key as `KnowledgeStore` does."""
    return f"<urn:pytrace:{'relation' if relation else 'entity'}:{key}>"
