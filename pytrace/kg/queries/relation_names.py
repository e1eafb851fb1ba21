"""Which relations of a store a name means: those of that name, else those whose names are like it in letters or in sense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.errors import InputError
from pytrace.kernels.fuzzy import cdist, ratio
from pytrace.kg.fact_store import Relation
from pytrace.kg.names import normal_form
from pytrace.models.encoders.checked_vectors import encode
from pytrace.models.encoders.encoder import Encoder, Vectors

# A name with a typo scores above 0.8 by its letters; the encoder puts synonyms ("wife", "spouse") above 0.6, and most
# unrelated names below.
_LETTERS, _SENSE = 0.8, 0.6
_NAMED = 3


class RelationNames:
    """Finds a store's relations by name."""

    def __init__(self, relations: Sequence[Relation], *, encoder: Encoder | None = None) -> None:
        self._keys: dict[str, list[str]] = {}
        for relation in relations:
            form = normal_form(relation.name)
            if form:
                self._keys.setdefault(form, []).append(relation.key)
        self._forms = list(self._keys)
        self._encoder = encoder
        self._vectors: Vectors | None = None
        self._found: dict[str, list[tuple[str, float]]] = {}

    def find(self, name: str) -> list[tuple[str, float]]:
        """Return the relations that a name means, best first, each with how well it fits, from 0 to 1."""
        # Those of the very name fit by 1, and then no other is looked for.
        form = normal_form(name)
        if form not in self._found:
            self._found[form] = self._look_for(form, name)
        return self._found[form]

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
            nearest = ", ".join(repr(self._forms[place]) for place in order[:_NAMED].tolist())
            raise InputError(f"no relation of the knowledge base is called {name[:80]!a}; the nearest are {nearest}")
        return [
            (key, round(float(scores[place]), 3))
            for place in order.tolist()
            if alike[place]
            for key in self._keys[self._forms[place]]
        ]
