"""Assertions for other people's tests: an answer is faithful to its contexts, a claim is supported, the evidence is found.

>>> assert_supported("Ada Foah is a town in Ghana.", ["Ada Foah is a town in Ghana, at the mouth of the Volta."])
>>> assert_faithful("Ada Foah is in Ghana. It was founded in 1783.", ["Ada Foah is a town in Ghana."])  # doctest: +ELLIPSIS
Traceback (most recent call last):
AssertionError: 1 of 2 claims of the answer is supported, a score of 0.50 (at least 1.00 is wanted):
  not there (support 0.3...): It was founded in 1783.
      the evidence lacks founded, 1783
      nearest: Ada Foah is a town in Ghana. (context 0)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytrace.certify.claims import CheckedResponse, ClaimChecker
from pytrace.check_records import CheckedClaim
from pytrace.documents import read_documents
from pytrace.documents.sentences import split_sentences
from pytrace.errors import InputError
from pytrace.records import Document, Question

if TYPE_CHECKING:
    from pytrace.engine import Corpus, Engine

Contexts = str | Path | Document | Iterable[str | Document]
"""What something is checked against: texts, documents, or the path of a file or folder of documents."""

_MOST = 8  # claims that a message tells of


def assert_faithful(answer: str, contexts: Contexts, *, min_score: float = 1.0) -> None:
    """Fail unless the contexts support each claim of an answer, or a share of them.

    Parameters
    ----------
    answer
        The text to check, claim by claim (see `pytrace.certify.claims`): without a model, by English words.
    contexts
        What it was answered from.
    min_score
        The least share of claims that must be supported, from 0 to 1.

    Raises
    ------
    AssertionError
        Fewer are, or the answer claims nothing. The message has each claim that is not supported, and the nearest evidence.
    InputError
        `min_score` is not from 0 to 1, or there is no context.
    """
    __tracebackhide__ = True
    if not 0 <= min_score <= 1:
        raise InputError(f"min_score is {min_score}; give a share of claims from 0 to 1")
    checked = ClaimChecker().check(answer, documents_of(contexts))
    if not checked.claims:
        raise AssertionError(f"the answer {answer!r} claims nothing: it has no name, number or other content word")
    if checked.score < min_score:
        held = sum(claim.label == "supported" for claim in checked.claims)
        raise AssertionError(
            f"{held} of {len(checked.claims)} claims of the answer {'is' if held == 1 else 'are'} supported, a score of "
            f"{checked.score:.2f} (at least {min_score:.2f} is wanted):\n{unsupported(checked)}"
        )


def assert_supported(claim: str, docs: Contexts) -> None:
    """Fail unless documents support a claim, which is looked at as a whole.

    Raises
    ------
    AssertionError
        They contradict it, or do not say; the message says which, with the nearest evidence.
    InputError
        There is no document.
    """
    __tracebackhide__ = True
    (checked,) = ClaimChecker().check_claims([claim], documents_of(docs))
    if checked.label != "supported":
        raise AssertionError(f"the documents do not support the claim:\n{_described(checked)}")


def assert_evidence(
    question: str | Question,
    corpus: Corpus | str | Path | Sequence[Document],
    *,
    expected: Iterable[str] = (),
    recall_at: int = 5,
    min_recall: float = 1.0,
    engine: Engine | None = None,
) -> None:
    """Fail unless a search finds the documents that answer a question among its first.

    Parameters
    ----------
    question
        The question; one of a data set brings its supporting documents.
    corpus
        An index or its directory, or documents or the path of some; it is searched across hops.
    expected
        Ids or titles of the documents that must be found, for a question that brings none.
    recall_at
        How many documents are looked at.
    min_recall
        The least share of the expected ones that must be among them, from 0 to 1.
    engine
        Whose encoder searches: by default that of the tiny models.

    Raises
    ------
    AssertionError
        Too few are found; the message has what is missing, and what was found in its place.
    InputError
        Nothing is expected, `recall_at` is below 1 or `min_recall` not from 0 to 1.
    """
    __tracebackhide__ = True
    from pytrace.integrations.selection import lock_of, shared_engine
    from pytrace.results import Request

    wanted = list(dict.fromkeys(expected or (question.supporting_documents if isinstance(question, Question) else ())))
    text = question.question if isinstance(question, Question) else question
    if not wanted:
        raise InputError(f"nothing is expected for {text!r}; give expected=, the ids or titles of documents")
    if recall_at < 1:
        raise InputError(f"recall_at is {recall_at}; give 1 or more")
    if not 0 <= min_recall <= 1:
        raise InputError(f"min_recall is {min_recall}; give a share of the expected documents from 0 to 1")
    engine = engine or shared_engine("tiny", None, None)
    request = Request(question=text, task="search", passages=recall_at)
    with lock_of(engine):
        (result,) = engine.run([request], corpus)
    # Those without a score are only part of a chain.
    found = [source for source in result.evidence.sources if source.relevance is not None]
    names = {name for source in found for name in (source.id, source.title, source.document)}
    missing = [name for name in wanted if name not in names]
    recall = 1 - len(missing) / len(wanted)
    if recall < min_recall:
        lines = [f"  missing: {name}" for name in missing]
        lines += [f"  {rank}. {source.title or source.id}" for rank, source in enumerate(found, 1)]
        raise AssertionError(
            f"recall at {recall_at} is {recall:.2f} (at least {min_recall:.2f} is wanted) for {text!r}:\n"
            + "\n".join(lines)
        )


def documents_of(contexts: Contexts) -> list[Document]:
    """Return documents as they are, and make them of texts or a path."""
    if isinstance(contexts, Path):
        return list(read_documents(contexts))
    given = [contexts] if isinstance(contexts, str | Document) else list(contexts)
    documents = []
    for number, context in enumerate(given):
        if not isinstance(context, str | Document):
            raise InputError(f"context {number} is of type {type(context).__name__}; give texts, documents or a path")
        documents.append(
            context
            if isinstance(context, Document)
            else Document(str(number), "", tuple(split_sentences(context)), f"context {number}")
        )
    if not any(document.sentences for document in documents):
        raise InputError("there is no context to check against; give at least one text")
    return documents


def unsupported(checked: CheckedResponse) -> str:
    """Describe the claims of a response that are not supported, a line or more each."""
    failed = [claim for claim in checked.claims if claim.label != "supported"]
    more = [f"  … and {len(failed) - _MOST} more"] if len(failed) > _MOST else []
    return "\n".join([*map(_described, failed[:_MOST]), *more])


def _described(claim: CheckedClaim) -> str:
    lines = [f"  {claim.label} (support {claim.supported:.2f}): {claim.text}", f"      {claim.reason}"]
    if claim.evidence:
        nearest = claim.evidence[0]
        place = nearest.title or nearest.source
        lines.append(f"      nearest: {nearest.text}{f' ({place})' if place else ''}")
    return "\n".join(lines)
