"""`KnowledgeBase`: the triples of a knowledge graph, found by what they say, by their entities, and as paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from pytrace.kernels import top_k
from pytrace.knowledge_base.columns import Columns, compile_triples
from pytrace.knowledge_base.names import verbalise
from pytrace.models.encoder import Encoder
from pytrace.records import Triple

Vectors = NDArray[np.float32]


class KnowledgeBase:
    """The triples of a knowledge graph with the vectors of their sentences.

    Parameters
    ----------
    columns
        The triples, keys and names.
    vectors
        Float32 [n, dimension], of length 1: row i is the vector of ``text(i)``.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> triples = [Triple("Ada_Foah", "country", "Ghana"), Triple("Ghana", "capital", "Accra")]
    >>> base = KnowledgeBase.in_memory(triples, HashEncoder())
    >>> len(base), base.text(0), base.entity("Accra")
    (2, 'Ada Foah country Ghana.', 2)
    """

    def __init__(self, columns: Columns, vectors: Vectors) -> None:
        self.columns = columns
        self.vectors = vectors

    @classmethod
    def in_memory(
        cls, triples: Iterable[Triple], encoder: Encoder, *, names: Mapping[str, str] | None = None
    ) -> KnowledgeBase:
        """Compile triples and encode their sentences.

        Parameters
        ----------
        triples
            Their heads, relations and tails are keys.
        encoder
            Makes the vectors.
        names
            How to word keys: see `pytrace.knowledge_base.compile_triples`.

        Raises
        ------
        InputError
            There is no triple, or a part of one is empty.
        """
        columns = compile_triples(triples, names=names)
        base = cls(columns, np.empty((0, encoder.dimension), dtype=np.float32))
        base.vectors = encoder.encode([base.text(number) for number in range(len(base))], kind="passage")
        return base

    def __len__(self) -> int:
        """Count the triples."""
        return len(self.columns.triples)

    def triple(self, number: int) -> Triple:
        """Return a triple by its keys."""
        head, relation, tail = self.columns.triples[number].tolist()
        return Triple(
            self.columns.entity_keys[head], self.columns.relation_keys[relation], self.columns.entity_keys[tail]
        )

    def named(self, number: int) -> Triple:
        """Return a triple by its names."""
        head, relation, tail = self.columns.triples[number].tolist()
        return Triple(
            self.columns.entity_names[head], self.columns.relation_names[relation], self.columns.entity_names[tail]
        )

    def text(self, number: int) -> str:
        """Return the sentence of a triple, which its vector is of."""
        named = self.named(number)
        return verbalise(named.head, named.relation, named.tail)

    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Find the triples whose sentences are most like some vectors.

        Parameters
        ----------
        vectors
            Float32 [n, dimension], of length 1.
        k
            How many a vector.

        Returns
        -------
        scores, numbers
            Cosines, float32 [n, k], best first, and the triples' numbers, int64; -inf and -1 beyond the triples that
            there are.
        """
        return top_k(vectors, self.vectors, k)

    def entity(self, key: str) -> int | None:
        """Return the number of the entity with a key, or None."""
        return self.columns.entity_rows.find(self.columns.entity_keys, key)

    def relation(self, key: str) -> int | None:
        """Return the number of the relation with a key, or None."""
        return self.columns.relation_rows.find(self.columns.relation_keys, key)

    def with_head(self, entity: int) -> NDArray[np.int32]:
        """Return the numbers of the triples that start at an entity, ascending."""
        return _row(self.columns.by_head, self.columns.head_ends, entity)

    def with_tail(self, entity: int) -> NDArray[np.int32]:
        """Return the numbers of the triples that end at an entity, ascending."""
        return _row(self.columns.by_tail, self.columns.tail_ends, entity)

    def number(self, triple: Triple) -> int | None:
        """Return the number of a triple given by its keys, or None if it is no fact of the graph.

        Examples
        --------
        >>> from pytrace.models.scripted import HashEncoder
        >>> base = KnowledgeBase.in_memory([Triple("Ghana", "capital", "Accra")], HashEncoder())
        >>> base.number(Triple("Ghana", "capital", "Accra")), base.number(Triple("Accra", "capital", "Ghana"))
        (0, None)
        """
        head, relation, tail = self.entity(triple.head), self.relation(triple.relation), self.entity(triple.tail)
        if head is None or relation is None or tail is None:
            return None
        rows = self.with_head(head)
        found = rows[(self.columns.triples[rows, 1:] == (relation, tail)).all(axis=1)]
        return int(found[0]) if len(found) else None


def _row(order: NDArray[np.int32], ends: NDArray[np.int64], entity: int) -> NDArray[np.int32]:
    return order[int(ends[entity - 1]) if entity else 0 : int(ends[entity])]
