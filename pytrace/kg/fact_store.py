"""`FactStore`: what every knowledge base can be asked for, be it a file in this machine or a server's SPARQL endpoint.

`LabelIndex` finds a store's entities by any of their labels and aliases, in spite of typos.
"""

from __future__ import annotations

import math
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import DataError, InputError
from pytrace.kg.entities import EntityIndex
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import Solutions
from pytrace.kg.terms import node_of
from pytrace.kg.text_table import TextTable
from pytrace.records import Triple
from pytrace.storage.closing import Closing
from pytrace.triples.graph.exchange import input_errors, read_lines

# A year: more is a slip, and would not fit the system's timers.
_LONGEST = 31_536_000.0


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


class FactStore(Closing):
    """Triples that queries are asked of. Each verb takes a list and answers in its order, so that a server is asked seldom.

    Keys are those of `pytrace.kg.graph_sources`. Relations are read and labels indexed once, for all threads.

    Parameters
    ----------
    name
        The file or address, for provenance.
    fingerprint
        What stored work depends on: a hash of a file's triples, or the address of a server.
    """

    def __init__(self, name: str, fingerprint: str) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self._lock = threading.Lock()
        self._relations: tuple[Relation, ...] | None = None
        self._index: LabelIndex | None = None

    def relations(self) -> tuple[Relation, ...]:
        """Return the relations but for those to names, or those that were chosen, the most frequent first."""
        with self._lock:
            if self._relations is None:
                self._relations = self._read_relations()
            return self._relations

    @abstractmethod
    def _read_relations(self) -> tuple[Relation, ...]: ...

    @abstractmethod
    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        """Return for each mention the entities with a label or alias like it, best first, each entity once."""

    def _label_index(self, pairs: Callable[[], Iterable[tuple[str, str]]]) -> LabelIndex:
        with self._lock:
            if self._index is None:
                self._index = LabelIndex.of(pairs())
            return self._index

    @abstractmethod
    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        """Return for each entity some triples that it stands in, by keys."""

    @abstractmethod
    def names(self, keys: Sequence[str]) -> list[str]:
        """Return what entities are called: their first label, or their key in words; any other value as it is."""

    def iri(self, key: str, *, relation: bool = False) -> str:
        """Return the IRI, in angle brackets, that stands for a key in queries."""
        return f"<{node_of(key, relation=relation).value}>"

    @abstractmethod
    def solutions(self, queries: Sequence[GraphQuery], limits: QueryLimits) -> list[Solutions | Exception]:
        """Run queries that `rewrite` made, and return what each gave; an error of one is returned in its place.

        A query that reaches a limit gives what it had by then, with `stopped` saying which, and the store stays usable.
        """


def check_limits(limits: QueryLimits) -> None:
    """Refuse limits that would let nothing through, or that limit nothing."""
    fits = limits.rows >= 1 and limits.megabytes >= 1 and math.isfinite(limits.seconds)
    if not fits or not 0 < limits.seconds <= _LONGEST:
        raise InputError(
            f"a query's limits are {limits.rows} rows, {limits.seconds:g} seconds and {limits.megabytes} megabytes; give at "
            f"least 1 row and 1 megabyte, and seconds above 0 and up to {_LONGEST:.0f}"
        )


def read_pairs(path: str | os.PathLike[str], *, what: str) -> Iterator[tuple[str, str]]:
    """Read a file of keys and names: a key, a tab and a name a line; a key may come again."""
    path = Path(path)
    with input_errors(path):
        for number, line in read_lines(path):
            parts = line.split("\t")
            if len(parts) != 2 or not all(part.strip() for part in parts):
                raise DataError(
                    f"{len(parts)} columns ({line[:100]!a}); write the {what}'s key, a tab and its name",
                    path=path,
                    line=number,
                )
            yield parts[0].strip(), " ".join(parts[1].split())


# Labels that a look-up asks for at first: as many as are scored, so that more cost nothing. They have fewer keys than are
# wanted only where an entity has very many labels that are alike.
_LABELS = 512


class LabelIndex(msgspec.Struct, frozen=True, eq=False):
    """Keys by their labels and aliases; a key may have several labels, and a label several keys."""

    # 10^6 labels of 10^6 keys take 200 MiB. Indexing them takes 11 s and 1.7 GiB, nearly all of it for `EntityIndex.of`
    # (benches/entity_linking.py).
    index: EntityIndex
    labels: TextTable  # all different; label i is entity i of the index
    keys: TextTable
    # Label i has the keys ``owners[ends[i - 1]:ends[i]]``, in the order in which they were given.
    ends: NDArray[np.int64]
    owners: NDArray[np.int32]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> LabelIndex:
        """Index labels."""
        labels: dict[str, int] = {}
        keys: dict[str, int] = {}
        # Label and key in one integer, so that a pair takes 8 bytes.
        joined = np.fromiter(
            (labels.setdefault(label, len(labels)) << 32 | keys.setdefault(key, len(keys)) for key, label in pairs),
            dtype=np.int64,
        )
        joined = joined[np.sort(np.unique(joined, return_index=True)[1])]
        label_of = joined >> 32
        joined = joined[np.argsort(label_of, kind="stable")]
        table = TextTable.of(keys)
        del keys  # the index needs the memory
        return cls(
            index=EntityIndex.of(labels),
            labels=TextTable.of(labels),
            keys=table,
            ends=np.cumsum(np.bincount(label_of, minlength=len(labels)), dtype=np.int64),
            owners=(joined & 0xFFFFFFFF).astype(np.int32),
        )

    def find(self, mention: str, *, limit: int = 5, cutoff: float = 60.0) -> list[EntityMatch]:
        """Find the entities that a mention may mean."""
        count = max(limit, _LABELS) if limit > 0 else limit  # the index refuses what is below 1
        while True:
            labels = self.index.find(mention, limit=count, cutoff=cutoff)
            matches = self._matches(mention, labels, limit)
            if len(matches) == limit or len(labels) < count:
                return matches
            count *= 8

    def _matches(self, mention: str, labels: list[tuple[int, float]], limit: int) -> list[EntityMatch]:
        """Return the keys of found labels, each once."""
        same = {label for label, score in labels if score == 100.0 and self.labels[label] == mention}
        ranked = sorted(labels, key=lambda each: (-each[1], each[0] not in same))  # else as the index has them
        matches: dict[int, EntityMatch] = {}
        for label, score in ranked:
            start = int(self.ends[label - 1]) if label else 0
            for number in self.owners[start : int(self.ends[label])].tolist():
                if number not in matches:
                    matches[number] = EntityMatch(self.keys[number], self.labels[label], score)
                    if len(matches) == limit:
                        return list(matches.values())
        return list(matches.values())
