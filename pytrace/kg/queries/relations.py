"""Which relations of a store a question may be about: all where they are few, else those nearest to its words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.errors import InputError
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.kg.fact_store import Relation
from pytrace.kg.queries.grammar import writable_relations
from pytrace.kg.queries.query_records import QueryForm
from pytrace.models.encoders.encoder import Encoder, device_of


class NearestRelations:
    """Finds for each question the relations that its query may name."""

    def __init__(
        self, relations: Sequence[Relation], *, form: QueryForm, most: int, encoder: Encoder | None = None
    ) -> None:
        if most < 1:
            raise InputError(f"at most {most} relations are to be shown; show at least 1")
        self.names = writable_relations((relation.name for relation in relations), form=form)
        if not self.names:
            raise InputError(
                f"none of the store's {len(relations)} relations has a name that can stand in a query; "
                "give the store names for its relations"
            )
        self._most = most
        self._encoder = encoder
        self._kept: DeviceVectors | None = None

    def find(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the names for each question, the nearest first; all in the store's order where they are few."""
        if len(self.names) <= self._most:
            return [self.names] * len(questions)
        if not questions:
            return []
        if self._encoder is None:
            scores = cdist(
                [question.casefold() for question in questions],
                [name.casefold() for name in self.names],
                scorer=partial_ratio,
            )
            order = np.argsort(-scores, axis=1, kind="stable")[:, : self._most]
        else:
            if self._kept is None:
                self._kept = DeviceVectors(self._encoder.encode(self.names), device_of(self._encoder))
            _, order = self._kept.top_k(self._encoder.encode(questions, kind="query"), self._most)
        return [tuple(self.names[place] for place in row) for row in order.tolist()]
