"""Facts of the graph for a question to reason from: those around the entities that it names, nearest first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.kernels.similarity import similarity
from pytrace.kg import KnowledgeBase
from pytrace.kg.paths import neighbourhood
from pytrace.models.encoders.encoder import Encoder

_HOPS = 2
# Around a hub there are more facts than anybody could choose from; the nearest hops come first.
_MOST = 2_000


class FactFinder:
    """Finds the facts that a question could be answered from."""

    def __init__(self, base: KnowledgeBase, encoder: Encoder) -> None:
        self._base = base
        self._encoder = encoder

    def find(self, questions: Sequence[str], count: int) -> list[list[str]]:
        """Find facts for questions."""
        if not questions or count < 1:
            return [[] for _ in questions]
        vectors = self._encoder.encode(list(questions), kind="query")
        found = []
        for vector, mentions in zip(vectors, self._base.columns.mentions.find(questions), strict=True):
            named = sorted({entity for mention in mentions for entity in mention.entities})
            if named:
                near = np.array(neighbourhood(self._base, named, hops=_HOPS, limit=_MOST)[0], dtype=np.int64)
                order = np.argsort(-similarity(vector, self._base.vectors[near]), kind="stable")
                numbers = near[order[:count]]
            else:
                numbers = self._base.search(vector[None], count)[1][0]
            found.append([self._base.text(number) for number in numbers.tolist() if number >= 0])
        return found
