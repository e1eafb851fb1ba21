"""What stands beside a chain of evidence: text about something else, or statements of a wrong answer.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
sections 5.1, 6.1 and 7.1. The paper searches the web for irrelevant text; here it comes from the other documents of the data
set, so that a run needs no network and can be repeated.
"""

from __future__ import annotations

import bisect
import itertools
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from pytrace.documents.mentions import holds, holds_any, replace
from pytrace.kernels.fuzzy import ratio
from pytrace.perturb.answer_types import variants
from pytrace.perturb.pieces import Piece, Pieces, Sample, characters
from pytrace.records import Document

TOLERANCE = 0.02

# How many characters are left for the last piece, which is cut to fit: rather enough to tell something.
_LEAST_LAST = (48, 24, 0)
# How many of the whole pieces are given up at most to make room for a last one that fits.
_LEFT_OUT = 4
# From this ratio on, 0 to 100, a sentence is one of the chain with a few words changed.
_NEAR_COPY = 65.0
# A share this close needs no better last piece.
_CLOSE = 0.004


class Hit(Protocol):
    """A document that a retriever found."""

    @property
    def document(self) -> Document:
        """The document."""
        ...


Retrieve = Callable[[Sequence[str], int], Sequence[Sequence[Hit]]]
"""From queries and a count to that many hits for each query, best first."""


def swapped(pieces: Sequence[Piece], answers: Sequence[str], wrong: str) -> Pieces:
    """Put a wrong answer in place of the right one, in titles too; dates and numbers also where they are written otherwise."""
    # Longer ones first: an alias may be a part of another.
    pairs = sorted({pair for answer in answers for pair in variants(answer, wrong)}, key=lambda pair: -len(pair[0]))
    changed = []
    for piece in pieces:
        title, text = piece.title, piece.text
        for right, instead in pairs:
            title, text = replace(title, right, instead), replace(text, right, instead)
        changed.append(msgspec.structs.replace(piece, title=title, text=text))
    return tuple(changed)


def irrelevant(samples: Sequence[Sample], retrieve: Retrieve, *, needed: Sequence[int]) -> list[list[Piece]]:
    """Find sentences that resemble each question but cannot answer it."""
    # The query for an evidence node is "background of <node>" (the question itself, where there is no node). Sentences
    # come from documents that do not support the question, node by node in turn; none holds a right answer.
    found: list[list[Piece]] = [[] for _ in samples]
    # A word of a title and of the sentences it belongs to is counted for every sentence, so a fifth more is asked for.
    for count in (8, 32, 128):
        waiting = [at for at, own in enumerate(found) if characters(own) < 1.2 * needed[at]]
        queries = [_queries(samples[at]) for at in waiting]
        if not waiting:
            break
        hits = iter(retrieve([query for own in queries for query in own], count))
        for at, own in zip(waiting, queries, strict=True):
            ranked = [[hit.document for hit in next(hits)] for _ in own]
            found[at] = list(_sentences(samples[at], ranked))
    return found


def _queries(sample: Sample) -> list[str]:
    return [f"background of {node}" for node in sample.features.nodes if node.strip()] or [sample.question.question]


def _sentences(sample: Sample, ranked: Sequence[Sequence[Document]]) -> Iterator[Piece]:
    question = sample.question
    supporting = {*question.supporting_documents, *(document_id for document_id, _ in question.supporting_facts)}
    titles = {document.title.casefold() for document in question.documents if document.id in supporting}
    told = {piece.text.casefold() for piece in sample.pieces}
    done: set[str] = set()
    for document in (one for row in itertools.zip_longest(*ranked) for one in row if one is not None):
        if document.id in done or document.id in supporting or document.title.casefold() in titles:
            continue
        done.add(document.id)
        for index, sentence in enumerate(document.sentences):
            piece = Piece(document.title, sentence, f"retrieved:{document.id}#{index}")
            if sentence.casefold() in told or not sentence.strip() or holds_any(piece.shown, question.answers):
                continue
            # Adversarial data sets have the chain's own sentences with other names in them, which is misinformation.
            if any(ratio(sentence, one.text) >= _NEAR_COPY for one in sample.pieces):
                continue
            told.add(sentence.casefold())
            yield piece


def misinformation(
    pieces: Sequence[Piece], sample: Sample, wrong: str, written: Sequence[str], rng: random.Random
) -> list[Piece]:
    """State a wrong answer in as many ways as there are: the chain's own sentences, a model's, and templates."""
    holding = [piece for piece in pieces if holds_any(piece.text, sample.stated)]
    statements = [
        msgspec.structs.replace(piece, origin=piece.origin.replace("chain:", "swapped:", 1))
        for piece in swapped(holding, sample.stated, wrong)
    ]
    title = swapped(holding[:1] or pieces[:1], sample.stated, wrong)[0].title if pieces else wrong
    if holds_any(title, sample.question.answers):
        title = wrong
    statements += [Piece(title, text, "model") for text in written]
    made = _templates(sample, wrong)
    rng.shuffle(made)
    statements += [Piece(title, text, "template") for text in made]
    fitting = {
        piece.text.casefold(): piece
        for piece in reversed(statements)
        if holds(piece.text, wrong) and not holds_any(piece.shown, sample.question.answers)
    }
    return list(reversed(fitting.values()))


_OPENINGS = (
    "", "According to several records, ", "As the sources tell, ", "It is well known that ", "Most accounts agree: ",
    "One often reads that ", "The archives confirm that ", "There is no item that ", "Those who looked into it report that ",
    "Whoever asks hears that ", "In short, ", "To sum up, ",
)  # fmt: skip
_STATEMENTS = (
    "it is {wrong}.",
    "the right answer is {wrong}.",
    "{wrong} is what was asked for.",
    "the {intent} is {wrong}.",
    "as for the {intent}, it is {wrong}.",
    "{wrong} has to be named as the {intent}.",
    "the question “{question}” is answered by {wrong}.",
    "asked “{question}”, one has to say {wrong}.",
    "nothing but {wrong} answers “{question}”.",
)


def _templates(sample: Sample, wrong: str) -> list[str]:
    intent = sample.features.intent or "answer"
    texts = []
    for opening, statement in itertools.product(_OPENINGS, _STATEMENTS):
        text = opening + statement.format(wrong=wrong, intent=intent, question=sample.question.question.strip())
        texts.append(text[:1].upper() + text[1:])
    return list(dict.fromkeys(texts))


def fill(
    own: int, candidates: Iterable[Piece], share: float, *, holding: str = "", tolerance: float = TOLERANCE
) -> Pieces | None:
    """Take so many pieces that they make up a share of the context; the last one is cut at a word border to fit."""
    if share == 0:
        return ()
    given = list(candidates)
    for least in _LEAST_LAST:
        waiting: list[Piece] = []
        chosen: list[Piece] = []
        room = own * share / (1 - share)
        for piece in given:
            if len(piece.shown) <= room - least:
                chosen.append(piece)
                room -= len(piece.shown)
            else:
                waiting.append(piece)
        # Where nothing fits behind the whole pieces, there is more room with one of them less.
        for whole in range(len(chosen), max(-1, len(chosen) - _LEFT_OUT), -1):
            found = _with_last(own, tuple(chosen[:whole]), waiting, share, holding)
            if abs(_share(own, found) - share) <= tolerance:
                return found
    return None


def _share(own: int, injected: Pieces) -> float:
    size = characters(injected)
    return size / (own + size) if size else 0.0


def _with_last(own: int, whole: Pieces, waiting: Sequence[Piece], share: float, holding: str) -> Pieces:
    """Add the beginning of the piece that brings the share nearest to the wanted one; none if that is nearer without."""
    room = own * share / (1 - share) - characters(whole)
    best = whole
    for piece in waiting:
        cut = _cut(piece, room, holding)
        if cut is not None and abs(_share(own, (*whole, cut)) - share) < abs(_share(own, best) - share):
            best = (*whole, cut)
            if abs(_share(own, best) - share) <= _CLOSE:
                break
    return best


def _cut(piece: Piece, size: float, holding: str) -> Piece | None:
    """Return the beginning of a piece whose length is nearest to a size, at least two words; None if it lacks what it must hold."""
    around = len(piece.shown) - len(piece.text)
    ends = [found.end() for found in re.finditer(r"\S+", piece.text)][min(1, len(piece.text.split()) - 1) :]
    place = bisect.bisect_left(ends, size - around)
    near = [ends[at] for at in (place - 1, place) if 0 <= at < len(ends)]
    end = min(near, key=lambda one: abs(one - (size - around)), default=0)
    cut = msgspec.structs.replace(piece, text=piece.text[:end])
    return cut if end and (not holding or holds(cut.text, holding)) else None


def weave(chain: Sequence[Piece], injected: Collection[Piece], rng: random.Random) -> list[tuple[Piece, bool]]:
    """Put injected pieces at random places between those of a chain, which keep their order."""
    length = len(chain) + len(injected)
    places = set(rng.sample(range(length), len(injected)))
    own, other = iter(chain), iter(injected)
    return [(next(other), True) if place in places else (next(own), False) for place in range(length)]
