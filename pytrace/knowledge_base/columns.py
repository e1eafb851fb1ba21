"""The columns of a knowledge base: plain arrays, made from triples once and then held in memory or mapped from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.knowledge_base.mentions import MentionIndex
from pytrace.knowledge_base.names import entity_name, relation_name
from pytrace.knowledge_base.text_table import KeyIndex, TextTable
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
    by_head: NDArray[np.int32]
    head_ends: NDArray[np.int64]
    by_tail: NDArray[np.int32]
    tail_ends: NDArray[np.int64]


def compile_triples(triples: Iterable[Triple], *, names: Mapping[str, str] | None = None) -> Columns:
    """Give entities and relations numbers in the order they come in, and drop triples that come again.

    Parameters
    ----------
    triples
        Their heads, relations and tails are keys; where they came from is not kept.
    names
        How to word the keys of entities and relations, for instance an ontology's labels; others are worded by
        `entity_name` and `relation_name`.

    Raises
    ------
    InputError
        There is no triple, or a part of one is empty.
    """
    names = names or {}
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows: dict[tuple[int, int, int], None] = {}
    for triple in triples:
        if not (triple.head.strip() and triple.relation.strip() and triple.tail.strip()):
            message = f"the triple {triple.text} has an empty part; give it a head, a relation and a tail"
            raise InputError(message)
        head = entities.setdefault(triple.head, len(entities))
        relation = relations.setdefault(triple.relation, len(relations))
        rows[head, relation, entities.setdefault(triple.tail, len(entities))] = None
    if not rows:
        message = "there is no triple in the knowledge graph; a step cannot be checked against an empty graph"
        raise InputError(message)
    table = np.array(list(rows), dtype=np.int32)
    worded = [names.get(key) or entity_name(key) for key in entities]
    return Columns(
        triples=table,
        entity_keys=TextTable.of(entities),
        entity_names=TextTable.of(worded),
        relation_keys=TextTable.of(relations),
        relation_names=TextTable.of(names.get(key) or relation_name(key) for key in relations),
        entity_rows=KeyIndex.of(entities),
        relation_rows=KeyIndex.of(relations),
        mentions=MentionIndex.of(worded),
        by_head=np.argsort(table[:, 0], kind="stable").astype(np.int32),
        head_ends=np.cumsum(np.bincount(table[:, 0], minlength=len(entities)), dtype=np.int64),
        by_tail=np.argsort(table[:, 2], kind="stable").astype(np.int32),
        tail_ends=np.cumsum(np.bincount(table[:, 2], minlength=len(entities)), dtype=np.int64),
    )
