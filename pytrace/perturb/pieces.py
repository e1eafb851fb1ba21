"""The pieces of knowledge of a question: its supporting sentences, and how they look to a judge and a reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pytrace.chain_of_evidence.features import Features
from pytrace.documents.mentions import holds_any, replace, surface
from pytrace.records import Question


class Piece(msgspec.Struct, frozen=True):
    """One sentence with its document's title; `origin` says where it came from: see `records.Perturbation`."""

    title: str
    text: str
    origin: str

    @property
    def shown(self) -> str:
        """`[title] sentence`, as the reader sees it; its characters are those that ratios count."""
        return f"[{self.title}] {self.text}"


Pieces = tuple[Piece, ...]


class Sample(msgspec.Struct, frozen=True):
    """A question with its features and the pieces that are its chain of evidence.

    `surfaces` are the evidence nodes as they stand in the pieces; a node that is (part of) the answer is none.
    """

    question: Question
    features: Features
    pieces: Pieces
    surfaces: tuple[str, ...]

    @property
    def stated(self) -> tuple[str, ...]:
        """The right answers that can stand in a text: a yes or no does not."""
        return stated_answers(self.question)

    def inquiry(self, pieces: Sequence[Piece]) -> tuple[str, Features, list[str]]:
        """Ask a discriminator whether pieces, joined to one text, hold the question's features."""
        return self.question.question, self.features, [knowledge(pieces)]


def stated_answers(question: Question) -> tuple[str, ...]:
    """Return the right answers that can stand in a text: a yes or no does not."""
    return tuple(answer for answer in question.answers if answer.casefold().strip(" .") not in {"yes", "no"})


def supporting_ids(question: Question) -> set[str]:
    """Return the documents that support a question, named as such or by one of their sentences."""
    return {*question.supporting_documents, *(document_id for document_id, _ in question.supporting_facts)}


def make_sample(question: Question, features: Features) -> Sample:
    """Gather a question's pieces and the nodes that they mention."""
    # The pieces are the supporting sentences in the order of the documents; of a supporting document without a
    # supporting fact they are all sentences.
    facts = set(question.supporting_facts)
    with_facts = {document_id for document_id, _ in facts}
    supporting = supporting_ids(question)
    pieces = tuple(
        Piece(document.title, sentence, f"chain:{document.id}#{index}")
        for document in question.documents
        if document.id in supporting
        for index, sentence in enumerate(document.sentences)
        if sentence.strip() and (document.id not in with_facts or (document.id, index) in facts)
    )
    texts = [piece.shown for piece in pieces]
    answers = stated_answers(question)
    surfaces = dict.fromkeys(
        surface(node, texts)
        for node in features.nodes
        if not holds_any(node, answers) and not any(holds_any(answer, [node]) for answer in answers)
    )
    return Sample(question, features, pieces, tuple(filter(None, surfaces)))


def put(pieces: Iterable[Piece], pairs: Sequence[tuple[str, str]]) -> Pieces:
    """Put phrases in place of others, one pair after the other, in titles as well."""

    def written(text: str) -> str:
        for before, after in pairs:
            text = replace(text, before, after)
        return text

    return tuple(msgspec.structs.replace(one, title=written(one.title), text=written(one.text)) for one in pieces)


def knowledge(pieces: Sequence[Piece]) -> str:
    """Join pieces to the text that a judge reads; a title is told once for the sentences in a row that have it."""
    shown: list[str] = []
    title = None
    for piece in pieces:
        shown.append(piece.text if piece.title == title else piece.shown)
        title = piece.title
    return " ".join(shown)


def characters(pieces: Iterable[Piece]) -> int:
    """Count the characters of pieces as the reader sees them."""
    return sum(len(piece.shown) for piece in pieces)
