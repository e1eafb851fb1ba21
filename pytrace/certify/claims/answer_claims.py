"""What an answer says, as claims: its thoughts, the triples of its best chain, and the question with the answer in its place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytrace.certify.claims.checker import ClaimChecker, judge_claims
from pytrace.certify.claims.entailment import EntailmentModel
from pytrace.certify.claims.splitting import claim_places
from pytrace.check_records import CheckedClaim
from pytrace.reader.claims import ClaimLabel as Verdict
from pytrace.records import Answer, Document, Triple

_BEING = r"(?:is|are|was|were|has|have|had)"
_DOING = r"(?:do|does|did|can|could|will|would|shall|should|may|might)"
_PRONOUN = r"(?:I|he|she|it|they|we|you|this|that|these|those|there)"
# A question whose first words are what its verb is about: the answer may stand for them. "Who was Ada", "what kind of ship" and "whom did she" ask
# for something else.
_ABOUT_SUBJECT = re.compile(
    rf"(?:who|(?:what|which)(?:\s+(?!{_BEING}\b|{_DOING}\b)\w+)?+)\s+(?!{_DOING}\b|of\b|{_BEING}\s+(?:(?-i:[A-Z])|{_PRONOUN}\b))(?=\w)",
    re.IGNORECASE,
)


def answer_statement(question: str, answer: str) -> str:
    """Return a question and its answer as one statement; "" where they state nothing, as where it is "no" or that nobody knows.

    Examples
    --------
    >>> answer_statement("Who founded the company that owns the ferry?", "Tobias Rook")
    'Tobias Rook founded the company that owns the ferry.'
    >>> answer_statement("In which town was Ada Lovelace born?", "London")
    'In which town was Ada Lovelace born: London.'
    """
    question = question.strip().rstrip("?. ")
    answer = answer.strip().rstrip(". ")
    if not answer or answer.lower() == "no" or (answer.lower() != "yes" and not claim_places(answer)):
        return ""
    if answer.lower() == "yes":
        return f"{question}."
    if found := _ABOUT_SUBJECT.match(question):
        return f"{answer} {question[found.end() :]}."
    return f"{question}: {answer}."


def check_answer(
    answer: Answer, documents: Sequence[Document], entailment: EntailmentModel | None = None
) -> list[CheckedClaim]:
    """Check what an answer says against the texts that its method was given.

    Parameters
    ----------
    answer
        Of any method. Its thoughts are claims, or else the triples of its best chain; and so is the answer put to its question.
    documents
        What the method was given.
    entailment
        A model that decides in the end, as for `ClaimChecker`.
    """
    checker = ClaimChecker()
    evidence = answer.evidence
    checked = list(checker.check(" ".join(evidence.reasoning.rationale), documents).claims)
    stated = [
        f"{unit.head} {unit.relation} {unit.tail}."
        for chain in evidence.chains[:1]
        for unit in chain.units
        if isinstance(unit, Triple)
    ]
    if statement := answer_statement(answer.question, answer.text):
        stated.append(statement)
    checked += checker.check_claims(stated, documents)
    return checked if entailment is None else judge_claims(checked, entailment, [documents] * len(checked))


def verdict(claims: Sequence[CheckedClaim]) -> Verdict:
    """Return what texts make of a claim, of whose parts the worst counts, by FEVER's name."""
    labels = {claim.label for claim in claims}
    if "contradicted" in labels:
        return "REFUTES"
    return "SUPPORTS" if labels == {"supported"} else "NOT ENOUGH INFO"
