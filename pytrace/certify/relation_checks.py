"""Whether a step tells of a triple's relation, or sounds more like another one of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytrace.certify.naming import Place
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kg import KnowledgeBase, verbalise
from pytrace.models.encoders.encoder import Encoder, device_of

_HEAD, _TAIL = "X", "Y"


class Telling(NamedTuple):
    """How near a step is to a relation, and the relation of the graph that it is nearest to: cosines, and a number."""

    cosine: float
    nearest: int
    nearest_cosine: float


class RelationReader:
    """Compares steps with relations, both without their entities.

    A step's cosine with a triple is mostly that of their entities: whatever relation a step tells of, it is near every
    fact of the two that it names. With X and Y in their places, what is left is the relation.
    """

    def __init__(self, base: KnowledgeBase, encoder: Encoder) -> None:
        self._base = base
        self._encoder = encoder
        self._kept: DeviceVectors | None = None

    def read(self, texts: Sequence[str], relations: Sequence[int]) -> list[Telling]:
        """Compare masked steps with relations."""
        if not texts:
            return []
        if self._kept is None:
            names = [verbalise(_HEAD, name, _TAIL) for name in self._base.columns.relation_names]
            self._kept = DeviceVectors(self._encoder.encode(names, kind="passage"), device_of(self._encoder))
        known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        steps = self._encoder.encode(list(known), kind="query")
        best, nearest = self._kept.top_k(steps, 1)
        rows = [known[text] for text in texts]
        own = np.einsum("ij,ij->i", steps[rows], self._kept.vectors[list(relations)])
        return [
            Telling(cosine, int(nearest[row, 0]), float(best[row, 0]))
            for row, cosine in zip(rows, own.tolist(), strict=True)
        ]


def masked(form: str, heads: Sequence[Place], tails: Sequence[Place]) -> str:
    """Put X and Y for a step's head and tail."""
    spans = sorted([(*place, _HEAD) for place in heads] + [(*place, _TAIL) for place in tails])
    parts = []
    at = 0
    for start, end, letter in spans:
        if start < at:  # a name within a name, or one that is head and tail
            continue
        parts += [form[at:start], letter]
        at = end
    return "".join([*parts, form[at:]])
