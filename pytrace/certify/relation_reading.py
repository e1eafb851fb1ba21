"""A step beside a relation: in words with X and Y for the entities, what speaks against it, and how near it sounds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pytrace.certify.step_reading import (
    HEAD,
    OPENINGS,
    OTHER,
    RELATIVES,
    TAIL,
    Piece,
    RelationWords,
    denied,
    names_relation,
    pieces,
    says_relation,
    turned,
)
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kg import KnowledgeBase, verbalise
from pytrace.kg.relation_pairs import RelationPairs, relation_pairs
from pytrace.models.encoders.encoder import Encoder, device_of

Span = tuple[int, int]
"""Where something stands in a step's normal form: ``form[start:end]``."""


class Reading(NamedTuple):
    """A step in words, with X and Y for a triple's head and tail and Z for other entities, and as it is written but for X and Y.

    `stops` are the words before which there is a stop, comma or bracket, `names` what X and Y stand for.
    """

    words: list[str]
    written: list[str]
    stops: frozenset[int]
    names: dict[str, str]

    @classmethod
    def of(
        cls, form: str, stops: frozenset[int], heads: Sequence[Span], tails: Sequence[Span], others: Sequence[Span]
    ) -> Reading:
        """Put letters for the entities of a step's normal form."""
        spans = sorted([(*span, HEAD) for span in heads] + [(*span, TAIL) for span in tails])
        spans += [
            (*span, OTHER) for span in others if not any(span[0] < end and start < span[1] for start, end, _ in spans)
        ]
        letters: dict[int, tuple[str, int]] = {}
        for start, end, entity in sorted(spans):
            letters.update({at: (entity, start) for at in range(start, end) if at not in letters})
        words: list[str] = []
        written: list[str] = []
        places = []
        last: tuple[str, int] | None = None
        at = 0
        for number, word in enumerate(form.split(" ")):
            letter = letters.get(at) or letters.get(at + len(word) - 1)
            if number in stops:
                places.append(len(words))
            if letter is None or letter != last:
                words.append(word if letter is None else letter[0])
                written.append(word if letter is None or letter[0] == OTHER else letter[0])
            elif letter[0] == OTHER:
                written[-1] += f" {word}"
            last = letter
            at += len(word) + 1
        names = {entity: form[slice(*ends[0])] for entity, ends in ((HEAD, heads), (TAIL, tails))}
        return cls(words, written, frozenset(places), names)

    def text(self, without: Piece | None = None) -> str:
        """Return the words with X and Y, but for a piece."""
        if without is None:
            return " ".join(self.written)
        return " ".join([*self.written[: without.start], *self.written[without.end :]])

    def said(self, piece: Piece) -> str:
        """Return the words of a piece."""
        return " ".join(self.written[slice(*piece)])

    def sentence(self, piece: Piece) -> str:
        """Return a piece as a sentence of its own, about the entity that it seems to be about."""
        behind = self.words[piece.start] in RELATIVES
        entities = [word for word in self.words[: piece.start if behind else None] if word in (HEAD, TAIL)]
        if not entities:
            return ""
        subject = self.names[entities[-1] if behind else entities[0]]
        rest = list(itertools.dropwhile(lambda word: word in OPENINGS, self.written[slice(*piece)]))
        return " ".join([subject, *(["s"] if self.words[piece.start] == "whose" else []), *rest])


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
        self._vectors: DeviceVectors | None = None

    @cached_property
    def _words(self) -> list[RelationWords]:
        names = self._base.columns.relation_names
        return [RelationWords(name, symmetric=n in self._pairs.symmetric) for n, name in enumerate(names)]

    @cached_property
    def _pairs(self) -> RelationPairs:
        return relation_pairs(self._base.columns)

    @cached_property
    def _by_beginning(self) -> dict[str, list[int]]:
        """The relations by the first letters of their nouns, so that few are looked for in a step."""
        rows: dict[str, list[int]] = {}
        for number, relation in enumerate(self._words):
            rows.setdefault(relation.head_noun[:4], []).append(number)
        return rows

    def said(self, words: Sequence[str], number: int) -> bool:
        """Say whether a step has a relation's words."""
        return says_relation(words, self._words[number])

    def objection(self, words: Sequence[str], number: int) -> str:
        """Say what speaks against a step's telling a relation of X and Y; "" if nothing does."""
        relation = self._words[number]
        if denied(words, relation):
            return "the step denies it"
        inverses = self._pairs.inverses.get(number, frozenset()) - {number}
        if turned(words, relation, [self._words[each] for each in inverses]):
            return "the step says it the other way round"
        other = self._other_named(words, number, inverses)
        return f"the step says {other!r}" if other else ""

    def _other_named(self, words: Sequence[str], number: int, inverses: frozenset[int]) -> str:
        """Return the name of another relation that a step says in so many words, while it does not say this one."""
        relation = self._words[number]
        if says_relation(words, relation):
            return ""
        for near in {row for word in words for row in self._by_beginning.get(word[:4], ())}:
            other = self._words[near]
            if near in inverses or other.words == relation.words or (other.role and relation.role):
                continue
            if names_relation(words, other):
                return self._base.columns.relation_names[near]
        return ""

    def doubtful(self, reading: Reading, number: int) -> list[Piece]:
        """Return the pieces of a step that may say something else than the relation."""
        relation = self._words[number]
        found = []
        for piece in pieces(reading.words, reading.stops):
            rest = [*reading.words[: piece.start], *reading.words[piece.end :]]
            if says_relation(rest, relation) or not says_relation(reading.words[slice(*piece)], relation):
                found.append(piece)
        return found

    def read(self, texts: Sequence[str], relations: Sequence[int]) -> list[Telling]:
        """Compare masked steps with relations."""
        if not texts:
            return []
        if self._vectors is None:
            names = [verbalise(HEAD, name, TAIL) for name in self._base.columns.relation_names]
            self._vectors = DeviceVectors(self._encoder.encode(names, kind="passage"), device_of(self._encoder))
        rows_by_text = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        steps = self._encoder.encode(list(rows_by_text), kind="query")
        best, nearest = self._vectors.top_k(steps, 1)
        rows = [rows_by_text[text] for text in texts]
        cosines = np.einsum("ij,ij->i", steps[rows], self._vectors.vectors[list(relations)])
        return [
            Telling(cosine, int(nearest[row, 0]), float(best[row, 0]))
            for row, cosine in zip(rows, cosines.tolist(), strict=True)
        ]
