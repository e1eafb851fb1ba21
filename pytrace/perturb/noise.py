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

import msgspec

from pytrace.documents.mentions import holds, holds_any
from pytrace.kernels.fuzzy import ratio
from pytrace.perturb.answer_types import variants
from pytrace.perturb.pieces import Piece, Pieces, Sample, characters, put, supporting_ids
from pytrace.perturb.word_lists import WORDS
from pytrace.records import Document
from pytrace.retrieval.retriever import Hit

# How far the share of injected characters may be off.
TOLERANCE = 0.02

# How many characters are left for the last piece, which is cut to fit: rather enough to tell something.
_LEAST_LAST = (48, 24, 0)
# How many of the complete pieces are given up at most to make room for a last one that fits.
_LEFT_OUT = 4
# From this ratio on, 0 to 100, a sentence is one of the chain with a few words changed.
_NEAR_COPY = 65.0
# A share this close needs no better last piece.
_CLOSE = 0.004


# From queries and a count to that many hits for each query, best first.
Retrieve = Callable[[Sequence[str], int], Sequence[Sequence[Hit]]]


def swapped(pieces: Iterable[Piece], answers: Sequence[str], wrong: str) -> Pieces:
    """Put a wrong answer in place of the right one, in titles too; dates and numbers also where they are written otherwise."""
    # Longer ones first: an alias may be a part of another.
    return put(
        pieces, sorted({pair for answer in answers for pair in variants(answer, wrong)}, key=lambda pair: -len(pair[0]))
    )


def irrelevant(samples: Sequence[Sample], retrieve: Retrieve, *, needed: Sequence[int]) -> list[list[Piece]]:
    """Find sentences that resemble each question but cannot answer it."""
    # The query for an evidence node is "background of <node>" (the question itself, where there is no node). Sentences
    # come from documents that do not support the question, node by node in turn; none holds a right answer.
    noises: list[list[Piece]] = [[] for _ in samples]
    # A word of a title and of the sentences it belongs to is counted for every sentence, so a fifth more is asked for.
    for count in (8, 32, 128):
        waiting = [at for at, noise in enumerate(noises) if characters(noise) < 1.2 * needed[at]]
        queries = [
            [f"background of {node}" for node in samples[at].features.nodes if node.strip()]
            or [samples[at].question.question]
            for at in waiting
        ]
        if not waiting:
            break
        hits = iter(retrieve(list(itertools.chain(*queries)), count))
        for at, asked in zip(waiting, queries, strict=True):
            ranked = [[hit.document for hit in next(hits)] for _ in asked]
            noises[at] = list(_sentences(samples[at], ranked))
    return noises


def _sentences(sample: Sample, ranked: Sequence[Sequence[Document]]) -> Iterator[Piece]:
    question = sample.question
    supporting = supporting_ids(question)
    titles = {document.title.casefold() for document in question.documents if document.id in supporting}
    known = {piece.text.casefold() for piece in sample.pieces}
    done = set(supporting)
    for document in filter(None, itertools.chain(*itertools.zip_longest(*ranked))):
        if document.id in done or document.title.casefold() in titles:
            continue
        done.add(document.id)
        for index, sentence in enumerate(document.sentences):
            piece = Piece(document.title, sentence, f"retrieved:{document.id}#{index}")
            if sentence.casefold() in known or not sentence.strip() or holds_any(piece.shown, question.answers):
                continue
            # Adversarial data sets have the chain's own sentences with other names in them, which is misinformation.
            if any(ratio(sentence, one.text) >= _NEAR_COPY for one in sample.pieces):
                continue
            known.add(sentence.casefold())
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
    templates = _templates(sample, wrong)
    rng.shuffle(templates)
    statements += [Piece(title, text, "template") for text in templates]
    # Of statements that differ in case alone the first is taken, the chain's own before a model's.
    fitting = {
        piece.text.casefold(): piece
        for piece in reversed(statements)
        if holds(piece.text, wrong) and not holds_any(piece.shown, sample.question.answers)
    }
    return list(reversed(fitting.values()))


def _templates(sample: Sample, wrong: str) -> list[str]:
    intent, question = sample.features.intent or "answer", sample.question.question.strip()
    texts = [
        opening + statement.format(wrong=wrong, intent=intent, question=question)
        for opening, statement in itertools.product(WORDS.statement_openings, WORDS.statements)
    ]
    return list(dict.fromkeys(text[:1].upper() + text[1:] for text in texts))


def fill(chain_size: int, candidates: Iterable[Piece], share: float, *, holding: str = "") -> Pieces | None:
    """Take so many pieces that they make up a share of the context; the last one is cut at a word border to fit."""
    if share == 0:
        return ()
    pieces = list(candidates)
    for least in _LEAST_LAST:
        waiting: list[Piece] = []
        chosen: list[Piece] = []
        room = chain_size * share / (1 - share)
        for piece in pieces:
            fits = len(piece.shown) <= room - least
            (chosen if fits else waiting).append(piece)
            room -= len(piece.shown) if fits else 0
        # Where nothing fits behind the complete pieces, there is more room with one of them less.
        for complete in range(len(chosen), max(-1, len(chosen) - _LEFT_OUT), -1):
            filled = _with_last(chain_size, tuple(chosen[:complete]), waiting, share, holding)
            if abs(_share(chain_size, filled) - share) <= TOLERANCE:
                return filled
    return None


def _share(chain_size: int, injected: Pieces) -> float:
    size = characters(injected)
    return size / (chain_size + size) if size else 0.0


def _with_last(chain_size: int, complete: Pieces, waiting: Sequence[Piece], share: float, holding: str) -> Pieces:
    """Add the beginning of the piece that brings the share nearest to the wanted one; none if that is nearer without."""
    room = chain_size * share / (1 - share) - characters(complete)
    best = complete
    for piece in waiting:
        cut = _cut(piece, room, holding)
        if cut is not None and abs(_share(chain_size, (*complete, cut)) - share) < abs(
            _share(chain_size, best) - share
        ):
            best = (*complete, cut)
            if abs(_share(chain_size, best) - share) <= _CLOSE:
                break
    return best


def _cut(piece: Piece, size: float, holding: str) -> Piece | None:
    """Return the beginning of a piece whose length is nearest to a size, at least two words; None if it lacks what it must hold."""
    around = len(piece.shown) - len(piece.text)
    ends = [word.end() for word in re.finditer(r"\S+", piece.text)][min(1, len(piece.text.split()) - 1) :]
    index = bisect.bisect_left(ends, size - around)
    near = [ends[at] for at in (index - 1, index) if 0 <= at < len(ends)]
    end = min(near, key=lambda one: abs(one - (size - around)), default=0)
    cut = msgspec.structs.replace(piece, text=piece.text[:end])
    return cut if end and (not holding or holds(cut.text, holding)) else None


def weave(chain: Sequence[Piece], injected: Collection[Piece], rng: random.Random) -> list[tuple[Piece, bool]]:
    """Put injected pieces at random places between those of a chain, which keep their order."""
    length = len(chain) + len(injected)
    indices = set(rng.sample(range(length), len(injected)))
    pieces, others = iter(chain), iter(injected)
    return [(next(others), True) if index in indices else (next(pieces), False) for index in range(length)]
