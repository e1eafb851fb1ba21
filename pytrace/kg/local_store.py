"""`LocalStore`: the triples of a file or a graph on this machine, asked by queries that cannot do any harm."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytrace.errors import InputError, StoreError
from pytrace.kg.fact_store import EntityMatch, QueryLimits, Relation
from pytrace.kg.query_fork import Ended, unpack
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import Solutions
from pytrace.kg.sparql_tokens import tokens_of
from pytrace.kg.store_inputs import check_limits, check_search, read_pairs
from pytrace.kg.store_process import ProcessEndedError, StoreProcess
from pytrace.kg.terms import node_of
from pytrace.records import Triple
from pytrace.storage.closing import Closing

if TYPE_CHECKING:
    from pytrace.kg.labels import LabelIndex


class LocalStore(Closing):
    """A `FactStore` whose triples are in the memory of a process of its own.

    Each query runs in a fork of that process, which ends when it takes too much time or memory; what the query had found by
    then is kept, and neither the store nor this process notices. Make one by `open`, and close it, or use it in a
    ``with`` statement.
    """

    def __init__(
        self,
        process: StoreProcess,
        *,
        name: str,
        labels: Path | None = None,
        predicates: Mapping[str, str] | None = None,
    ) -> None:
        self._process = process
        self._name = name
        self._labels = labels
        self._predicates = predicates
        self._lock = threading.Lock()
        self._relations: tuple[Relation, ...] | None = None
        self._index: LabelIndex | None = None

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str],
        *,
        format: str | None = None,
        labels: str | os.PathLike[str] | None = None,
        predicates: str | os.PathLike[str] | None = None,
    ) -> LocalStore:
        """Load the triples of a file, or of a graph."""
        path = None if labels is None else Path(labels)
        if path is not None:
            for _ in read_pairs(path, what="entity"):  # so that a fault is told now, not at the first mention
                pass
        chosen = None if predicates is None else dict(read_pairs(predicates, what="relation"))
        return cls(StoreProcess(source, format=format), name=os.fspath(source), labels=path, predicates=chosen)

    def __len__(self) -> int:
        """Count the triples, labels included."""
        return self._process.triples

    @property
    def name(self) -> str:
        """The file or directory as it was given."""
        return self._name

    @property
    def fingerprint(self) -> str:
        """A hash of the file, or of a directory's triples."""
        return self._process.fingerprint

    def relations(self) -> tuple[Relation, ...]:
        """Return the relations but for those to names, or those that were chosen, the most frequent first."""
        with self._lock:
            if self._relations is None:
                found = tuple(Relation(*each) for each in self._process.ask("relations"))
                if self._predicates is not None:
                    counts = {relation.key: relation.count for relation in found}
                    chosen = (Relation(key, name, counts.get(key, 0)) for key, name in self._predicates.items())
                    found = tuple(sorted(chosen, key=lambda relation: -relation.count))
                self._relations = found
            return self._relations

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        """Return for each mention the entities with a label, an alias or a key like it."""
        # The first call reads all labels: see `pytrace.kg.labels.LabelIndex`.
        check_search(limit=limit, cutoff=cutoff)
        index = self._label_index()
        return [index.find(mention, limit=limit, cutoff=cutoff) for mention in mentions]

    def _label_index(self) -> LabelIndex:
        from pytrace.kg.labels import LabelIndex

        with self._lock:
            if self._index is None:
                pairs: list[tuple[str, str]] = []
                self._process.ask("labels", on_piece=pairs.extend)
                self._index = LabelIndex.of(self._with_aliases(pairs))
            return self._index

    def _with_aliases(self, pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        yield from pairs
        if self._labels is not None:
            known = {key for key, _ in pairs}
            yield from (pair for pair in read_pairs(self._labels, what="entity") if pair[0] in known)

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        """Return for each entity some triples that it stands in: those that it is the head of, then others."""
        check_search(limit=limit)
        found = self._process.ask("around", list(keys), limit)
        return [tuple(Triple(*triple) for triple in triples) for triples in found]

    def names(self, keys: Sequence[str]) -> list[str]:
        """Return what entities are called: their first label, or their key in words; any other value as it is."""
        names: list[str] = self._process.ask("names", list(keys))
        return names

    def iri(self, key: str, *, relation: bool = False) -> str:
        """Return the IRI, in angle brackets, that stands for a key in queries."""
        return f"<{node_of(key, relation=relation).value}>"

    def solutions(self, queries: Sequence[GraphQuery], limits: QueryLimits) -> list[Solutions | Exception]:
        """Run queries, as many at once as there are processors."""
        check_limits(limits)
        outcomes: list[Solutions | Exception | None] = [_refused(query) for query in queries]

        def take(piece: tuple[int, tuple[Any, ...]]) -> None:
            outcomes[left[piece[0]]] = _outcome(Ended(*piece[1]))

        while left := [place for place, outcome in enumerate(outcomes) if outcome is None]:
            asked = [(queries[place].rows, queries[place].patterns) for place in left]
            try:
                self._process.ask("run", asked, (limits.rows, limits.seconds, limits.megabytes), on_piece=take)
            except ProcessEndedError as error:
                # It may have been ended for what it ran, so that is not tried again; the rest is.
                outcomes[next(place for place in left if outcomes[place] is None)] = error
        return [outcome for outcome in outcomes if outcome is not None]

    def close(self) -> None:
        """End the store's process; any later call fails."""
        self._process.close()


def _refused(query: GraphQuery) -> InputError | None:
    """Return why a query must not be run: it might be none of `rewrite`'s."""
    # Only its words are looked at. The parser below us begins to evaluate what it parses, so it runs in a fork alone.
    try:
        # That parser wants no space between words: trueSERVICE and SERVICESILENT are two words each to it.
        glued = next((token for token in tokens_of(query.rows) if "SERVICE" in token.word), None)
    except InputError as error:
        return error
    if glued is None:
        return None
    message = (
        f"the SPARQL query has {glued.text[:40]!a} at character {glued.place + 1}, which calls another server, and none is "
        "asked; leave that part out"
    )
    return InputError(message)


def _outcome(ended: Ended) -> Solutions | Exception:
    if ended.fault == "input":
        return InputError(ended.reason)
    if ended.fault:
        message = f"the SPARQL query's process ended ({ended.reason}); make the query simpler"
        return StoreError(message)
    return Solutions(tuple(map(unpack, ended.packed)), ended.stopped)
