"""What methods that think show a model: a question's triples, rationales, and rationales that are verified.

========================  ==============================  =====================================================
file                      loaded by                       shows
========================  ==============================  =====================================================
``questions.jsonl``       `question_demonstrations`       a question, its subject entity and triples about it
``rationales.jsonl``      `rationale_demonstrations`      a context, a question, short thoughts and the answer
``verifications.jsonl``   `verification_demonstrations`   a thought, the question that verifies it and its answer
========================  ==============================  =====================================================
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from pytrace.reader.prompts import load_demonstrations, require_text
from pytrace.records import Triple


class QuestionDemonstration(msgspec.Struct, frozen=True):
    """A question, the entity that it is about, and triples with that entity as their head."""

    question: str
    subject: str
    triples: tuple[Triple, ...]


class RationaleDemonstration(msgspec.Struct, frozen=True):
    """A context of ``[title] text`` strings, a question, the sentences that lead to its answer, and the answer."""

    context: tuple[str, ...]
    question: str
    rationale: tuple[str, ...]
    answer: str


class VerificationDemonstration(msgspec.Struct, frozen=True):
    """A sentence of a question's rationale, the question that verifies it, and that question's answer from a context."""

    question: str
    sentence: str
    verifying_question: str
    context: tuple[str, ...]
    answer: str


def question_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[QuestionDemonstration, ...]:
    """Labelled questions for the construction of triples from a question alone."""
    # KS-LLM, section 3.1.
    return load_demonstrations(path, _QuestionRow, _question, _QUESTION_SHAPE, shipped="questions.jsonl")


def rationale_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[RationaleDemonstration, ...]:
    """Labelled rationales for chain of thought, with and without a context."""
    # Wei et al., "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models" (NeurIPS 2022), section 2.
    return load_demonstrations(path, _RationaleRow, _rationale, _RATIONALE_SHAPE, shipped="rationales.jsonl")


def verification_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[VerificationDemonstration, ...]:
    """Labelled thoughts with the questions that verify them, some of them wrong."""
    # Zhao et al., "Verify-and-Edit: A Knowledge-Enhanced Chain-of-Thought Framework" (ACL 2023), section 3.2.
    return load_demonstrations(
        path, _VerificationRow, _verification, _VERIFICATION_SHAPE, shipped="verifications.jsonl"
    )


class _QuestionRow(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    subject: str
    triples: list[tuple[str, str]]


class _RationaleRow(msgspec.Struct, forbid_unknown_fields=True):
    context: list[str]
    question: str
    rationale: list[str]
    answer: str


class _VerificationRow(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    sentence: str
    verifying_question: str
    context: list[str]
    answer: str


_QUESTION_SHAPE = '{"question": text, "subject": text, "triples": [[relation, tail], ...]}'
_RATIONALE_SHAPE = '{"context": [text, ...], "question": text, "rationale": [text, ...], "answer": text}'
_VERIFICATION_SHAPE = (
    '{"question": text, "sentence": text, "verifying_question": text, "context": [text, ...], "answer": text}'
)


def _question(row: _QuestionRow) -> QuestionDemonstration:
    require_text("question", row.question)
    require_text("subject", row.subject, forbidden=";\n\r")
    if row.subject not in row.question:
        raise ValueError(f"the subject {row.subject!r} is no part of the question; copy it from there letter by letter")
    if not row.triples:
        raise ValueError(f"the question {row.question!r} has no triple; give at least one about {row.subject!r}")
    for relation, tail in row.triples:
        require_text("relation", relation, forbidden=";\n\r")
        require_text("tail", tail, forbidden="\n\r")
    triples = tuple(Triple(row.subject, relation, tail) for relation, tail in row.triples)
    for index, triple in enumerate(triples):
        if triple in triples[:index]:
            raise ValueError(f"the triples hold {triple.text} twice; remove one")
    return QuestionDemonstration(row.question, row.subject, triples)


def _rationale(row: _RationaleRow) -> RationaleDemonstration:
    require_text("question", row.question)
    require_text("answer", row.answer)
    _require_lines("context", row.context)
    _require_lines("rationale", row.rationale)
    return RationaleDemonstration(tuple(row.context), row.question, tuple(row.rationale), row.answer)


def _verification(row: _VerificationRow) -> VerificationDemonstration:
    for name in ("question", "sentence", "verifying_question", "answer"):
        _require_lines(name.replace("_", " "), [getattr(row, name)])
    _require_lines("context", row.context)
    return VerificationDemonstration(row.question, row.sentence, row.verifying_question, tuple(row.context), row.answer)


def _require_lines(name: str, texts: Sequence[str]) -> None:
    """Refuse no text, empty texts, and texts of more than one line: a line break ends what a model writes."""
    if not texts:
        raise ValueError(f"the {name} is empty; give at least one text")
    for text in texts:
        require_text(name, text)
        if len(text.splitlines()) > 1:
            raise ValueError(f"the {name} {text!r} has a line break; write it on one line")
