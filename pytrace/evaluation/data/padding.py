"""Questions with more documents around the right ones: paragraphs of other questions, which cannot help."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytrace.documents.mentions import holds_any
from pytrace.errors import InputError
from pytrace.reader.answers import normalise_answer
from pytrace.records import Document, Question

_NO_PHRASES = frozenset({"yes", "no", "noanswer"})


def pad_questions(
    questions: Sequence[Question], documents: int, *, others: Iterable[Question], seed: int = 0
) -> list[Question]:
    """Bring questions to a number of documents by those of other questions."""
    # A document is none of the question's own, has no title of them and holds none of the gold answers (but for yes and
    # no), so that it is no evidence. All documents of a padded question are shuffled, so that their places tell
    # nothing.
    if documents < 1:
        raise InputError(f"each question is to have {documents} documents; ask for at least 1")
    pool = list({document.content_hash: document for other in others for document in other.documents}.values())
    return [_padded(question, documents, pool, seed) for question in questions]


def _padded(question: Question, size: int, pool: Sequence[Document], seed: int) -> Question:
    if len(question.documents) >= size:
        return question
    draw = random.Random(f"{seed}:{question.id}")
    ids = {document.id for document in question.documents}
    titles = {_plain(document.title) for document in question.documents}
    answers = [answer for answer in question.answers if normalise_answer(answer) not in _NO_PHRASES]
    documents = list(question.documents)
    for index in shuffled_indices(draw, len(pool)):
        document = pool[index]
        if document.id in ids or _plain(document.title) in titles:
            continue
        if holds_any("\n".join((document.title, *document.sentences)), answers):
            continue
        documents.append(document)
        ids.add(document.id)
        titles.add(_plain(document.title))
        if len(documents) == size:
            break
    draw.shuffle(documents)
    return msgspec.structs.replace(question, documents=tuple(documents))


def shuffled_indices(draw: random.Random, count: int) -> Iterator[int]:
    """Iterate over the numbers below `count` in random order, at the cost of those that are looked at."""
    # A shuffle of Fisher and Yates that writes down only what it has swapped: of a large pool few are looked at.
    swapped: dict[int, int] = {}
    for last in range(count - 1, -1, -1):
        index = draw.randint(0, last)
        yield swapped.get(index, index)
        swapped[index] = swapped.get(last, last)


def _plain(title: str) -> str:
    return " ".join(title.split()).casefold()
