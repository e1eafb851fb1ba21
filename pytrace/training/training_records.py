"""What a query generator learns from: questions with their queries, and wrong queries beside them."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytrace.kg.queries import Query

WrongRule = Literal["missing-prefix", "wrong-class", "misspelt-entity", "swapped-arguments", "dropped-clause"]
"""The five rules by which a correct query becomes a wrong one (Chain of Knowledge, appendix A.1.1)."""


class QueryExample(msgspec.Struct, frozen=True):
    """A question and the query that answers it.

    `group` names what must not stand on both sides of a split, such as the entity that the question is about. `answers` are
    the gold answers by name, empty where they are not known. `mentions` are the names in the query as the question writes
    them.
    """

    id: str
    question: str
    query: Query
    group: str
    answers: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()


class WrongQuery(msgspec.Struct, frozen=True):
    """A query that does not answer its question, as text, since it may be no query at all, and the rule that made it."""

    text: str
    rule: WrongRule


class Piece(msgspec.Struct, frozen=True):
    """A part of a training text, and whether its tokens are learned: those of queries are, those of all else are not."""

    text: str
    learned: bool


class TrainingText(msgspec.Struct, frozen=True):
    """One sequence: a question, its correct query and perhaps wrong ones."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(piece.text for piece in self.pieces)
