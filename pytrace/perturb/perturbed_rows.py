"""Rows of a perturbed data set: made, checked against their own claims without any model, and written as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from pytrace.documents.mentions import holds, holds_any, rng_of
from pytrace.perturb.answer_types import same_type
from pytrace.perturb.noise import TOLERANCE, weave
from pytrace.perturb.pieces import Piece, stated_answers
from pytrace.reader.answers import normalise_answer
from pytrace.reader.evidence import document_text
from pytrace.records import Document, Perturbation, Question

Noise = Literal["irrelevant", "misinformation", "swapped"]
NOISES: tuple[Noise, ...] = ("irrelevant", "misinformation", "swapped")

_ORIGINS = {
    "irrelevant": ("retrieved:",),
    "swapped": ("retrieved:",),
    "misinformation": ("swapped:", "model", "template"),
}


def make_row(
    question: Question, chain: Sequence[Piece], injected: Sequence[Piece], perturbation: Perturbation
) -> Question:
    """Make a question whose documents are a chain's pieces with injected ones between them."""
    done = perturbation
    # As short as may be, but two ratios never share an id.
    ratio = f"{done.ratio:g}" if float(f"{done.ratio:g}") == done.ratio else repr(done.ratio)
    row_id = f"{question.id}/{done.kind}/{done.noise}/{ratio}/{done.seed}"
    woven = weave(chain, injected, rng_of(done.seed, row_id))
    documents = [Document(f"{row_id}#{number}", piece.title, (piece.text,)) for number, (piece, _) in enumerate(woven)]
    origins: dict[bool, dict[str, str]] = {False: {}, True: {}}
    for document, (piece, is_injected) in zip(documents, woven, strict=True):
        origins[is_injected][document.id] = piece.origin
    measured = measured_ratio(documents, origins[True])
    return Question(
        id=row_id,
        question=question.question,
        answers=question.answers,
        documents=tuple(documents),
        supporting_documents=tuple(origins[False]),
        kind=question.kind,
        perturbation=msgspec.structs.replace(done, pieces=origins[False], injected=origins[True], measured=measured),
    )


def measured_ratio(documents: Sequence[Document], injected: dict[str, str]) -> float:
    """Return the share of the characters that injected documents have, as the reader sees them; 0 of nothing."""
    sizes = {document.id: len(document_text(document)) for document in documents}
    total = sum(sizes.values())
    return sum(size for one, size in sizes.items() if one in injected) / total if total else 0.0


def check_row(row: Question) -> list[str]:
    """Check a perturbed question against what it claims of itself, without any model."""
    # A removed sentence must stand nowhere in the context, a replaced node nowhere in the chain (text that is injected
    # about a node may name it), and nodes that must stay have to be in the chain. The share of injected characters must
    # be within two points of the claimed one. A wrong answer must have the type and form of the right one, and where it
    # was swapped in, no right one may be left; injected text never holds a right answer, and misinformation always the
    # wrong one. Every document must say where it came from.
    if row.perturbation is None:
        return ["the question has no perturbation, so it claims nothing that could be checked"]
    checks = [*_origins(row, row.perturbation), *_removal(row, row.perturbation), *_answers(row, row.perturbation)]
    return [message for is_wrong, message in checks if is_wrong]


# Whether a claim does not hold, and how to say so.
_Check = tuple[bool, str]


def _origins(row: Question, done: Perturbation) -> Iterator[_Check]:
    ids = [document.id for document in row.documents]
    known = [*done.pieces, *done.injected]
    foreign = [origin for origin in done.pieces.values() if not origin.startswith("chain:")]
    others = [origin for origin in done.injected.values() if not origin.startswith(_ORIGINS[done.noise])]
    measured = measured_ratio(row.documents, done.injected)
    exact = math.isfinite(done.measured) and math.isclose(measured, done.measured, abs_tol=1e-9)
    share = f"{100 * measured:.1f} % of the characters are injected"
    yield not done.source, "the question that it was made of is not named"
    yield len(set(ids)) < len(ids), f"{len(ids)} documents have {len(set(ids))} ids"
    yield sorted(known) != sorted(ids), f"{len(known)} origins are told for {len(ids)} documents, or for others"
    yield set(row.supporting_documents) != set(done.pieces), "the supporting documents are not the pieces of the chain"
    yield not done.pieces, "no piece of the chain is left"
    yield bool(foreign), "a piece of the chain does not come from the question's documents"
    yield bool(others), f"an injected text is none of {done.noise} noise"
    yield not exact, f"{share}, not {100 * done.measured:.1f} % as measured"
    # Written so that a ratio that is no number fails, too.
    yield not abs(measured - done.ratio) <= TOLERANCE, f"{share}, not {100 * done.ratio:.1f} % as claimed"


def _removal(row: Question, done: Perturbation) -> Iterator[_Check]:
    context = [document_text(document).casefold() for document in row.documents]
    chain = [document_text(document) for document in row.documents if document.id in done.pieces]

    def held(phrase: str) -> bool:
        return any(holds(text, phrase) for text in chain)

    whole = done.kind == "coe"
    yield whole and bool(done.removed or done.replaced), "the chain is said to be whole, but something was removed"
    yield not whole and not done.removed, "nothing is said to be removed"
    if done.kind == "senp":
        for sentence in done.removed:
            there = any(sentence.casefold() in text for text in context)
            yield there, f"the removed sentence {sentence!r} is still there"
    elif done.kind == "wordp":
        for node in done.removed:
            yield held(node), f"the replaced node {node!r} is still there"
        before = {phrase for phrase, _, _ in done.replaced}
        yield before != set(done.removed), "the replaced nodes are not the removed ones"
    elif not whole:
        yield not done.replaced, "no sentence is said to be rewritten"
        sentences = {sentence.casefold() for document in row.documents for sentence in document.sentences}
        for old, new, _ in done.replaced:
            yield old.casefold() in sentences, f"the sentence {old!r} still stands as it was"
            stands = any(text.endswith(f"] {new}") for text in chain)
            yield not stands, f"the sentence {new!r} does not stand in the chain"
    for node in done.kept:
        yield not held(node), f"the node {node!r} is no longer there"


def _answers(row: Question, done: Perturbation) -> Iterator[_Check]:
    texts = {document.id: document_text(document) for document in row.documents}
    wrong = done.wrong_answer
    for text in (text for document_id, text in texts.items() if document_id in done.injected):
        yield holds_any(text, row.answers), f"the injected text {text!r} holds a right answer"
        lacks = done.noise == "misinformation" and not holds(text, wrong)
        yield lacks, f"the injected text {text!r} does not hold the wrong answer {wrong!r}"
    if done.noise == "irrelevant":
        return
    alike = bool(wrong) and any(same_type(answer, wrong) for answer in row.answers)
    yield not alike, f"the wrong answer {wrong!r} is not of the type and form of {row.answers[0]!r}"
    right = {normalise_answer(answer) for answer in row.answers}
    yield normalise_answer(wrong) in right, f"the wrong answer {wrong!r} is a right one"
    if done.noise == "swapped":
        for text in texts.values():
            yield holds_any(text, stated_answers(row)), f"the text {text!r} still holds the right answer"


def row_object(row: Question) -> dict[str, Any]:
    """Return a perturbed question as a row of our own format, which `read_questions` reads back."""
    row_fields: dict[str, Any] = {
        "id": row.id,
        "question": row.question,
        "answers": list(row.answers),
        "documents": [
            {
                "id": document.id,
                "title": document.title,
                "sentences": list(document.sentences),
                "supporting": document.id in row.supporting_documents,
            }
            for document in row.documents
        ],
        "perturbation": msgspec.to_builtins(row.perturbation),
    }
    return {**row_fields, "type": row.kind} if row.kind else row_fields


def row_line(row: Question) -> bytes:
    """Return a row as a line of JSON Lines, with its line feed."""
    try:
        return msgspec.json.encode(row_object(row)) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no place in UTF-8; escaped it has one in JSON, and reading cleans it away.
        return json.dumps(row_object(row)).encode() + b"\n"
