"""The columns of a knowledge base: plain arrays, made from triples once and then held in memory or mapped from files."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kg.entities import EntityIndex
from pytrace.kg.mention_index import MentionIndex
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.terms import named_by
from pytrace.kg.text_table import KeyIndex, TextTable
from pytrace.records import Triple


class Columns(msgspec.Struct, frozen=True, eq=False):
    """All of a knowledge base but its vectors.

    `triples` is int32 [n, 3]: the numbers of head, relation and tail. Keys are as the source writes them, names as they
    are worded. Triples with head e are ``by_head[head_ends[e - 1]:head_ends[e]]``, those with tail e likewise (`by_head`
    and `by_tail` int32 [n], the ends int64, one an entity).
    """

    triples: NDArray[np.int32]
    entity_keys: TextTable
    entity_names: TextTable
    relation_keys: TextTable
    relation_names: TextTable
    entity_rows: KeyIndex
    relation_rows: KeyIndex
    mentions: MentionIndex
    entity_index: EntityIndex
    by_head: NDArray[np.int32]
    head_ends: NDArray[np.int64]
    by_tail: NDArray[np.int32]
    tail_ends: NDArray[np.int64]


def compile_triples(
    triples: Iterable[Triple],
    *,
    names: Mapping[str, str] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> Columns:
    """Give entities and relations numbers in the order they come in, and drop triples that come again.

    `names` words keys, for instance by an ontology's labels; others are worded by `entity_name` and `relation_name`. `aliases`
    are other names by which texts mention entities. Both are looked at after the last triple, and may be filled while they
    come. A relation of Wikidata has the label of its property.
    """
    # What is empty now may fill while the triples come.
    names, aliases = {} if names is None else names, {} if aliases is None else aliases
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    numbers = array("i")
    for triple in triples:
        if not (triple.head.strip() and triple.relation.strip() and triple.tail.strip()):
            raise InputError(f"the triple {triple.text} has an empty part; give it a head, a relation and a tail")
        head = entities.setdefault(triple.head, len(entities))
        relation = relations.setdefault(triple.relation, len(relations))
        numbers.extend((head, relation, entities.setdefault(triple.tail, len(entities))))
    if not numbers:
        raise InputError("there is no triple in the knowledge graph; a step cannot be checked against an empty graph")
    table = _distinct(np.frombuffer(numbers, dtype=np.int32).reshape(-1, 3))
    worded = [names.get(key) or entity_name(key) for key in entities]
    return Columns(
        triples=table,
        entity_keys=TextTable.of(entities),
        entity_names=TextTable.of(worded),
        relation_keys=TextTable.of(relations),
        relation_names=TextTable.of(
            names.get(key) or names.get(named_by(key)) or relation_name(key) for key in relations
        ),
        entity_rows=KeyIndex.of(entities),
        relation_rows=KeyIndex.of(relations),
        mentions=MentionIndex.of(
            worded, [(alias, entities[key]) for key, others in aliases.items() if key in entities for alias in others]
        ),
        entity_index=EntityIndex.of(worded),
        by_head=np.argsort(table[:, 0], kind="stable").astype(np.int32),
        head_ends=np.cumsum(np.bincount(table[:, 0], minlength=len(entities)), dtype=np.int64),
        by_tail=np.argsort(table[:, 2], kind="stable").astype(np.int32),
        tail_ends=np.cumsum(np.bincount(table[:, 2], minlength=len(entities)), dtype=np.int64),
    )


def _distinct(rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Keep the first of equal rows, in order."""
    order = np.lexsort(rows.T)  # stable: of equal rows the first comes first
    among = rows[order]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (among[1:] != among[:-1]).any(axis=1)
    return rows[np.sort(order[first])]
