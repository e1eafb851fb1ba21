"""What a graph is silent about: steps whose entities it knows, but of whose relation it says nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from pytrace.certify.relation_reading import Reading, RelationReader
from pytrace.kg import KnowledgeBase, Mention, normal_form

# Of an entity with more facts the first are looked at, and of a step with more names the first.
_MOST_FACTS, _MOST_NAMES, _MOST_HOMONYMS = 1_000, 4, 8


def silent_steps(
    base: KnowledgeBase,
    reader: RelationReader,
    steps: Mapping[str, Sequence[Mention]],
    *,
    threshold: float,
    margin: float,
) -> set[str]:
    """Return those of some steps that a graph neither confirms nor denies.

    Parameters
    ----------
    base
        The graph.
    reader
        Compares steps with relations.
    steps
        Steps that no fact supports, with the entities that they name.
    threshold
        The least cosine of a step and a relation, both with X and Y for their entities, for the step to tell of it.
    margin
        By how much the cosine of the relation that the step is nearest to may be higher.

    Returns
    -------
    set of str
        The steps such that of no two entities that they name either has a fact with a relation that they tell of. Of the others, the
        graph says otherwise.
    """
    compared: list[tuple[str, str, int]] = []  # step, the same with X and Y, relation
    for step, mentions in steps.items():
        form = normal_form(step)
        for one, two in itertools.combinations(mentions[:_MOST_NAMES], 2):
            relations = _relations_of(base, [*one.entities[:_MOST_HOMONYMS], *two.entities[:_MOST_HOMONYMS]])
            for head, tail in ((one, two), (two, one)):
                others = [(each.start, each.end) for each in mentions if each not in (one, two)]
                read = Reading.of(form, frozenset(), [(head.start, head.end)], [(tail.start, tail.end)], others)
                compared += [(step, read.text(), relation) for relation in relations]
    told = reader.read([text for _, text, _ in compared], [relation for _, _, relation in compared])
    spoken = {
        step
        for (step, _, _), telling in zip(compared, told, strict=True)
        if telling.cosine >= max(threshold, telling.nearest_cosine - margin)
    }
    return set(steps) - spoken


def _relations_of(base: KnowledgeBase, entities: Sequence[int]) -> list[int]:
    rows = [facts[:_MOST_FACTS] for entity in entities for facts in (base.with_head(entity), base.with_tail(entity))]
    numbers = np.concatenate(rows).astype(np.int64) if rows else np.empty(0, dtype=np.int64)
    found: list[int] = np.unique(base.columns.triples[numbers, 1]).tolist()
    return found
