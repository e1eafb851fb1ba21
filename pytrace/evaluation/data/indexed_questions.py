"""Questions over an index: each is given the passages that the search across hops ranks first."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytrace.evaluation.scores.metrics import recall_at
from pytrace.records import Document, Question
from pytrace.retrieval.hops.weights import OWN_WEIGHTS
from pytrace.retrieval.passages.segment import document_id
from pytrace.storage.question_hashes import question_hash

if TYPE_CHECKING:
    from pytrace.engine.corpus import IndexedCorpus
    from pytrace.engine.loading import Engine

PASSAGES = 20
"""How many passages a question gets, if not told."""

# Questions that are searched for together.
_AT_ONCE = 64
_DEPTHS = (2, 5, 10, 20)


def give_passages(
    questions: Sequence[Question], corpus: IndexedCorpus, engine: Engine, *, count: int = PASSAGES
) -> Iterator[Question]:
    """Give each question the passages of an index that are found for it, best first, in place of documents of its own.

    Parameters
    ----------
    questions
        The questions.
    corpus, engine
        The index, and whose encoder searches it.
    count
        Passages a question, at most.

    Yields
    ------
    Question
        Its supporting documents are, of each that is cut into passages, the best-ranked passage; those of which none was found
        stay as they are, so that they count as missed. Of graded ones likewise. Supporting facts, whose sentences are those of whole
        documents, are left out.
    """
    for start in range(0, len(questions), _AT_ONCE):
        some = questions[start : start + _AT_ONCE]
        rankings = corpus.rank([question.question for question in some], engine, count)
        for question, ranking in zip(some, rankings, strict=True):
            passages = corpus.index.passages(ranking.rows)
            found = _best_passages(passages)
            yield msgspec.structs.replace(
                question,
                documents=tuple(passages),
                supporting_documents=tuple(found.get(name, name) for name in question.supporting_documents),
                grades=tuple((found.get(name, name), grade) for name, grade in question.grades),
                supporting_facts=(),
            )


class Retrieval(msgspec.Struct, frozen=True):
    """How much of what supports answers an index gave, over the questions whose supporting documents are known.

    `recall` is the share of them among the first so many passages, and `whole` the share of questions of which all are there; by
    how many passages count: "2", "5", "10", "20". `unseen` has the same of the questions that the search's weights were not learned from,
    None where these are all of them, or none.
    """

    questions: int
    recall: dict[str, float]
    whole: dict[str, float]
    unseen: Retrieval | None = None


def retrieval_scores(questions: Sequence[Question], seen: Collection[str] = ()) -> Retrieval | None:
    """Score the passages that questions were given, best first; None if no supporting document is known.

    `seen` has the hashes of the questions that the search's weights were learned from.
    """
    known = [question for question in questions if question.supporting_documents]
    if not known:
        return None
    held_out = [question for question in known if question_hash(question.question) not in seen]
    recall, whole = {}, {}
    for depth in _DEPTHS:
        shares = [
            recall_at([passage.id for passage in each.documents], each.supporting_documents, depth) for each in known
        ]
        recall[str(depth)] = sum(filter(None, shares)) / len(known)
        whole[str(depth)] = sum(share == 1 for share in shares) / len(known)
    return Retrieval(len(known), recall, whole, retrieval_scores(held_out) if len(held_out) < len(known) else None)


def index_settings(corpus: IndexedCorpus, count: int) -> dict[str, Any]:
    """Describe an index for the settings of a run by its documents, however they are spread over files, and how it is searched."""
    index = corpus.index
    digests = np.concatenate([np.empty((0, 16), np.uint8), *(segment.digests for segment in index.segments)])
    digest = hashlib.sha256(index.manifest.vectors.encode())
    digest.update(np.unique(digests.view("V16")).tobytes())
    own = index.directory / OWN_WEIGHTS
    if own.is_file():
        digest.update(own.read_bytes())
    return {"passages": len(corpus), "given": count, "sha256": digest.hexdigest()}


def _best_passages(passages: Sequence[Document]) -> dict[str, str]:
    """Return the id of the first passage of each document, by the document's id."""
    found: dict[str, str] = {}
    for passage in passages:
        found.setdefault(document_id(passage), passage.id)
    return found
