"""A store's relations: those that a question may be about, and those that a name means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.errors import InputError
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kernels.fuzzy import cdist, partial_ratio, ratio
from pytrace.kg.fact_store import Relation
from pytrace.kg.names import normal_form
from pytrace.kg.queries.grammar import writable_relations
from pytrace.kg.queries.query_records import QueryForm
from pytrace.models.encoders.encoder import Encoder, Vectors, device_of, encode

# A name with a typo scores above 0.8 by its letters; the encoder puts synonyms ("wife", "spouse") above 0.6, and most
# unrelated names below.
_LETTERS, _SENSE = 0.8, 0.6
_NAMED = 3


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
        return [tuple(self.names[index] for index in row) for row in order.tolist()]


class RelationNames:
    """Finds the relations that a name means: those of that name, else those whose names are like it in letters or in sense."""

    def __init__(self, relations: Sequence[Relation], *, encoder: Encoder | None = None) -> None:
        self._keys: dict[str, list[str]] = {}
        for relation in relations:
            form = normal_form(relation.name)
            if form:
                self._keys.setdefault(form, []).append(relation.key)
        self._forms = list(self._keys)
        self._encoder = encoder
        self._vectors: Vectors | None = None
        self._known: dict[str, list[tuple[str, float]]] = {}

    def find(self, name: str) -> list[tuple[str, float]]:
        """Return the relations that a name means, best first, each with how well it fits, from 0 to 1."""
        # Those of the very name fit by 1, and then no other is looked for.
        form = normal_form(name)
        if form not in self._known:
            self._known[form] = self._look_for(form, name)
        return self._known[form]

    def _look_for(self, form: str, name: str) -> list[tuple[str, float]]:
        if form in self._keys:
            return [(key, 1.0) for key in self._keys[form]]
        if not form or not self._forms:
            raise InputError(
                f"no relation of the knowledge base is called {name[:80]!a}; it has {len(self._forms)} named ones"
            )
        scores = cdist([form], self._forms, scorer=ratio, dtype=np.float64)[0] / 100
        alike = scores >= _LETTERS
        if self._encoder is not None:
            if self._vectors is None:
                self._vectors = encode(self._encoder, self._forms, "passage")
            cosines = (self._vectors @ encode(self._encoder, [form], "query")[0]).astype(np.float64)
            alike |= cosines >= _SENSE
            scores = np.maximum(scores, cosines)
        order = np.argsort(-scores, kind="stable")
        if not alike.any():
            nearest = ", ".join(repr(self._forms[index]) for index in order[:_NAMED].tolist())
            raise InputError(f"no relation of the knowledge base is called {name[:80]!a}; the nearest are {nearest}")
        return [
            (key, round(float(scores[index]), 3))
            for index in order.tolist()
            if alike[index]
            for key in self._keys[self._forms[index]]
        ]
