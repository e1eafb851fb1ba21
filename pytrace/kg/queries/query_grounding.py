"""Queries by name become queries that a store can run: mentions are entities then, and names relations.

Source: Li et al., "Chain of Knowledge" (2023), section 3.3: the mentions of a query are linked to entities before it is run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec

from pytrace.errors import InputError
from pytrace.kg.fact_store import FactStore
from pytrace.kg.linking import EntityLinker, Link
from pytrace.kg.names import normal_form, relation_name
from pytrace.kg.queries.notation import query_names, replace_names
from pytrace.kg.queries.query_records import Query, TripletQuery
from pytrace.kg.queries.relations import RelationNames
from pytrace.kg.sparql import GraphQuery, rewrite
from pytrace.models.encoders.encoder import Encoder

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


class GroundedQuery(msgspec.Struct, frozen=True):
    """A query as a store runs it."""

    sparql: str  # with keys for names
    graph: GraphQuery  # the same, returning the triples behind its answers
    links: tuple[tuple[str, str, float], ...]  # its mentions, each with the entity's key and a score from 0 to 1
    score: float  # the sum of how well all its names fit
    names: dict[str, str]  # what the store calls each of its entities and relations, by IRI in angle brackets


class Grounder:
    """Grounds queries in a store."""

    # Chain of Knowledge, section 3.3.

    def __init__(
        self,
        store: FactStore,
        linker: EntityLinker,
        *,
        encoder: Encoder | None = None,
        alternatives: int = 4,
        either_direction: bool = False,
    ) -> None:
        if alternatives < 1:
            raise InputError(f"alternatives is {alternatives}; allow at least 1 way to read a query")
        self._store = store
        self._linker = linker
        relations = store.relations()
        self._names = {relation.key: relation.name for relation in relations}
        self._relations = RelationNames(relations, encoder=encoder)
        self._alternatives = alternatives
        self._either_direction = either_direction

    def relation_name(self, key: str) -> str:
        """Return what a relation of the store is called."""
        return self._names.get(key) or relation_name(key)

    def ground(self, queries: Sequence[Query], contexts: Sequence[str]) -> list[list[GroundedQuery] | InputError]:
        """Ground queries, all mentions of them together."""
        if len(queries) != len(contexts):
            raise InputError(f"there are {len(queries)} queries but {len(contexts)} contexts; give one a query")
        grounded: list[list[GroundedQuery] | InputError] = []
        named: list[tuple[tuple[str, ...], tuple[str, ...]] | InputError] = []
        for query in queries:
            try:
                named.append(query_names(query))
            except InputError as error:
                named.append(error)
        mentions = [
            (name, context)
            for names, context in zip(named, contexts, strict=True)
            if not isinstance(names, InputError)
            for name in names[0]
        ]
        links = iter(self._linker.link([name for name, _ in mentions], [context for _, context in mentions]))
        for query, names in zip(queries, named, strict=True):
            if isinstance(names, InputError):
                grounded.append(names)
                continue
            entities = {name: next(links) for name in names[0]}
            try:
                grounded.append(self._ground(query, entities, names[1]))
            except InputError as error:
                grounded.append(error)
        return grounded

    def _ground(self, query: Query, entities: dict[str, list[Link]], relations: Sequence[str]) -> list[GroundedQuery]:
        for mention, matches in entities.items():
            if not matches:
                raise InputError(
                    f"no entity of the knowledge base is called like {mention[:80]!a}; name one as the knowledge base does"
                )
        choices: list[list[tuple[str, float]]] = [
            [(link.key, link.score) for link in matches] for matches in entities.values()
        ]
        # What is asked for in the place of a relation is a variable already, and no name.
        choices += [self._called(name) for name in relations]
        labels = {link.key: link.label for matches in entities.values() for link in matches}
        names = [*(("entity", name) for name in entities), *(("relation", name) for name in relations)]
        forms: list[Query] = [query]
        if self._either_direction and isinstance(query, TripletQuery) and self._alternatives > 1:
            forms.append(TripletQuery(query.tail, query.relation, query.head))
        combinations = best_combinations(choices, self._alternatives + 1 - len(forms))
        readings = [(query, *combination) for combination in combinations]
        readings += [(turned, *combinations[0]) for turned in forms[1:]]
        return [
            self._written(form, dict(zip(names, combination, strict=True)), total, labels)
            for form, combination, total in readings
        ]

    def _called(self, name: str) -> list[tuple[str, float]]:
        """Return the relations that a name means; "type" is also RDF's, which a list of chosen relations may lack."""
        try:
            relations = self._relations.find(name)
        except InputError:
            if normal_form(name) != "type":
                raise
            return [(_TYPE, 1.0)]
        if normal_form(name) == "type" and relations[0][1] < 1.0:
            return [*relations, (_TYPE, relations[-1][1])]
        return relations

    def _written(
        self,
        query: Query,
        chosen: dict[tuple[str, str], tuple[str, float]],
        score: float,
        labels: dict[str, str],
    ) -> GroundedQuery:
        """Write a query with the keys that were chosen for its names, given by kind and name."""
        sparql = replace_names(
            query,
            entity=lambda name: self._store.iri(chosen["entity", name][0]),
            relation=lambda name: self._store.iri(chosen["relation", name][0], relation=True),
        )
        links = tuple((name, *match) for (kind, name), match in chosen.items() if kind == "entity")
        names = {
            self._store.iri(key, relation=kind == "relation"): labels[key]
            if kind == "entity"
            else self.relation_name(key)
            for (kind, _), (key, _) in chosen.items()
        }
        return GroundedQuery(sparql, rewrite(sparql), links, score, names)


def best_combinations(
    choices: Sequence[Sequence[tuple[str, float]]], most: int
) -> list[tuple[tuple[tuple[str, float], ...], float]]:
    """Return the combinations of one choice each with the highest sums, without forming all of them."""

    def total(ranks: tuple[int, ...]) -> float:
        return sum((row[rank][1] for row, rank in zip(choices, ranks, strict=True)), start=0.0)

    start = (0,) * len(choices)
    waiting = [(-total(start), start)]
    seen = {start}
    best: list[tuple[tuple[tuple[str, float], ...], float]] = []
    while waiting and len(best) < most:
        negative, ranks = heapq.heappop(waiting)
        best.append((tuple(row[rank] for row, rank in zip(choices, ranks, strict=True)), -negative))
        for index, rank in enumerate(ranks):
            following = (*ranks[:index], rank + 1, *ranks[index + 1 :])
            if rank + 1 < len(choices[index]) and following not in seen:
                seen.add(following)
                heapq.heappush(waiting, (-total(following), following))
    return best
