"""What rankers learn from: sets of passages with questions whose supporting documents are known, and the hops to each of these.

A hop is the step from a question and the passages chosen so far to the next supporting passage. Data sets do not say in which
order supporting documents are found, so that the ranker's own order is taken: what is nearest first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.documents import read_documents
from pytrace.errors import DataError, InputError
from pytrace.evaluation.data.beir import is_beir
from pytrace.evaluation.data.datasets import read_questions
from pytrace.kernels import top_k
from pytrace.methods.trace.ranker import chain_query
from pytrace.models.encoders.encoder import Encoder, encode
from pytrace.records import Document
from pytrace.retrieval.bm25 import Bm25Retriever
from pytrace.retrieval.passages.segment import document_id, encoded_text

# Longer chains are hardly asked for, and their queries are longer than what encoders read.
MOST_HOPS = 4


class Asked(NamedTuple):
    """A question: its text, and the rows of the passages of each supporting document."""

    text: str
    supporting: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> frozenset[int]:
        """The passages of all supporting documents."""
        return frozenset(row for rows in self.supporting for row in rows)


class QuestionSet(NamedTuple):
    """Passages, the document that each is of, and questions over them; `missing` had none of their documents among these."""

    name: str
    passages: tuple[Document, ...]
    owners: tuple[str, ...]
    questions: tuple[Asked, ...]
    missing: int

    @property
    def texts(self) -> list[str]:
        """What is encoded of the passages."""
        return [encoded_text(passage) for passage in self.passages]


class Hop(NamedTuple):
    """A step: the query, the next passage, and passages that look like it; no supporting one of the question is among these.

    `supporting` are the rows of those, `set` the number of the set whose passages rows are.
    """

    set: int
    question: int
    query: str
    positive: int
    negatives: tuple[int, ...]
    supporting: frozenset[int]


def read_set(path: Path) -> QuestionSet:
    """Read a set: questions with documents of their own, which are put together, or a folder with corpus.jsonl and questions.jsonl."""
    if path.is_dir() and ((path / "questions.jsonl").is_file() or not is_beir(path)):
        absent = [name for name in ("corpus.jsonl", "questions.jsonl") if not (path / name).is_file()]
        if absent:
            raise DataError(
                f"has no {absent[0]}; give a folder with passages in corpus.jsonl and questions with the ids of their supporting "
                "ones (`gold`) in questions.jsonl, or a file of questions with documents",
                path=path,
            )
        questions = [*read_questions(path / "questions.jsonl")]
        passages = [*read_documents(path / "corpus.jsonl")]
    else:
        questions = [*read_questions(path)]
        passages = [*{each.id: each for question in questions for each in question.documents}.values()]
    owners = tuple(map(document_id, passages))
    rows: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    asked = [
        Asked(question.question, tuple(tuple(rows[name]) for name in question.supporting_documents if name in rows))
        for question in questions
    ]
    known = tuple(question for question in asked if question.supporting)
    if not known:
        raise DataError(
            f"has {len(questions):,} questions, but the passages that support the answer are known of none; give a data set "
            "with supporting facts, or the ids of supporting documents (`gold`) and the documents",
            path=path,
        )
    name = path.name if path.is_dir() else path.stem
    return QuestionSet(name, tuple(passages), owners, known, len(asked) - len(known))


def without_titles(given: QuestionSet) -> QuestionSet:
    """Return a set in which a title tells nothing: a note's number, one for each document."""
    numbers = {owner: number for number, owner in enumerate(dict.fromkeys(given.owners), 1)}
    passages = [
        msgspec.structs.replace(passage, title=f"note {numbers[owner]}")
        for passage, owner in zip(given.passages, given.owners, strict=True)
    ]
    return given._replace(passages=tuple(passages))


def fewer_passages(given: QuestionSet, most: int, *, seed: int) -> QuestionSet:
    """Return a set with at most so many passages: the supporting ones, and others drawn at random."""
    kept = {row for question in given.questions for row in question.rows}
    others = [row for row in range(len(given.passages)) if row not in kept]
    wanted = min(max(most - len(kept), 0), len(others))
    drawn = np.random.default_rng(seed).permutation(len(others))[:wanted].tolist()
    rows = sorted(kept.union(others[number] for number in drawn))
    places = {row: place for place, row in enumerate(rows)}
    return given._replace(
        passages=tuple(given.passages[row] for row in rows),
        owners=tuple(given.owners[row] for row in rows),
        questions=tuple(
            question._replace(supporting=tuple(tuple(places[row] for row in some) for some in question.supporting))
            for question in given.questions
        ),
    )


def split_questions(given: QuestionSet, *, held_out: float, seed: int) -> NDArray[np.bool_]:
    """Say of each question whether it is held out."""
    count = round(held_out * len(given.questions))
    held = np.zeros(len(given.questions), np.bool_)
    held[np.random.default_rng(seed).permutation(len(held))[:count]] = True
    return held


class Searched:
    """A set whose passages an encoder has encoded: finds the next supporting passage, and those that look like it."""

    def __init__(self, given: QuestionSet, encoder: Encoder) -> None:
        self.given = given
        self.texts = given.texts
        self.encoder = encoder
        self.vectors = encode(encoder, self.texts, "passage")

    def walk(self, most: int = MOST_HOPS) -> list[list[tuple[str, int]]]:
        """Return, of each question, the query of each hop and the supporting passage that is nearest to it."""
        chains: list[list[tuple[str, int]]] = [[] for _ in self.given.questions]
        left = [[*question.supporting] for question in self.given.questions]
        for _ in range(most):
            asked = [number for number, documents in enumerate(left) if documents]
            queries = [
                chain_query(self.given.questions[number].text, [self.texts[row] for _, row in chains[number]])
                for number in asked
            ]
            for number, query, vector in zip(asked, queries, encode(self.encoder, queries, "query"), strict=True):
                rows = [row for document in left[number] for row in document]
                nearest = rows[int(np.argmax(self.vectors[rows] @ vector))]
                chains[number].append((query, nearest))
                left[number] = [document for document in left[number] if nearest not in document]
        return chains

    def hops(self, number: int, *, mined: int) -> list[Hop]:
        """Return the hops of all questions, each with up to `mined` wrong passages by vectors and as many by words."""
        steps = [(asked, *step) for asked, chain in enumerate(self.walk()) for step in chain]
        queries = [query for _, query, _ in steps]
        vectors = encode(self.encoder, queries, "query")
        banned = [self._banned(self.given.questions[asked]) for asked, *_ in steps]
        most = mined + max(map(len, banned))
        _, by_vectors = top_k(vectors, self.vectors, most)
        places = {passage.id: row for row, passage in enumerate(self.given.passages)}
        by_words = [
            [places[hit.document.id] for hit in hits]
            for hits in Bm25Retriever(self.given.passages, unmatched=False).retrieve(queries, most)
        ]
        hops = []
        for (asked, query, positive), out, *found in zip(steps, banned, by_vectors.tolist(), by_words, strict=True):
            wrong = [[row for row in rows if row >= 0 and row not in out][:mined] for rows in found]
            rows = dict.fromkeys(row for some in wrong for row in some)
            hops.append(Hop(number, asked, query, positive, tuple(rows), self.given.questions[asked].rows))
        return hops

    def _banned(self, question: Asked) -> set[int]:
        """Return the rows of supporting passages, and of those with the same text."""
        return {same for row in question.rows for same in self._same[self.given.passages[row].text]}

    @cached_property
    def _same(self) -> dict[str, list[int]]:
        rows: dict[str, list[int]] = {}
        for row, passage in enumerate(self.given.passages):
            rows.setdefault(passage.text, []).append(row)
        return rows


def hops_hash(sets: Sequence[Searched], hops: Sequence[Hop]) -> str:
    """Return SHA-256 of all that hops say, in hexadecimal."""
    digest = hashlib.sha256()
    for hop in hops:
        texts = sets[hop.set].texts
        for part in (hop.query, texts[hop.positive], *(texts[row] for row in hop.negatives)):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def check_apart(trained: Sequence[QuestionSet], scored: Sequence[QuestionSet]) -> None:
    """Refuse to score questions that are learned from."""
    learned = {question.text: given.name for given in trained for question in given.questions}
    for given in scored:
        both = [question.text for question in given.questions if question.text in learned]
        if both:
            raise InputError(
                f"{len(both):,} of the {len(given.questions):,} questions of {given.name} stand in {learned[both[0]]} too, which is "
                f"learned from, such as {both[0]!a:.80}; score on other questions"
            )


def shared_passages(trained: Sequence[QuestionSet], given: QuestionSet) -> int:
    """Count the supporting passages of a set whose texts are also passages of a set that is learned from."""
    learned = {passage.text for each in trained for passage in each.passages}
    rows = {row for question in given.questions for row in question.rows}
    return sum(given.passages[row].text in learned for row in rows)


def batches_of(count: int, size: int, *, seed: int, skipped: int) -> Iterator[tuple[int, list[int]]]:
    """Yield batches of numbers below `count`, pass after pass without end, each with the pass's number, but the first `skipped` ones."""
    a_pass = -(-count // size)
    epoch = skipped // a_pass
    first = skipped % a_pass
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count).tolist()
        for number in range(first, a_pass):
            yield epoch, order[number * size : (number + 1) * size]
        epoch, first = epoch + 1, 0
