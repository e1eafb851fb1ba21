"""A run's questions as the data that the page's script shows: a list of all, and blocks that are unpacked when looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytrace.evaluation.run.run_store import Result, RunStore
from pytrace.evaluation.scores.metrics import ResultScore, score_result
from pytrace.reader.evidence import document_text
from pytrace.records import Answer, Document, FeatureCover, KnowledgeQuery, Question, TextUnit, Unit, WrittenTriples
from pytrace.report.page_texts import cut, long_text, packed_json, rounded
from pytrace.storage.text import storable

# Questions in a block: some 100 kB of JSON, which a browser unpacks in a few milliseconds.
BLOCK = 25
# Documents that no method chose and that support nothing leave the page once it holds so many characters of documents.
_ALL_DOCUMENTS = 60_000_000
# The list of all questions, which is unpacked at once, has so much of each answer.
_LONGEST_ANSWER = 400
# Of what one question or method may have without bound.
_MOST_ENTRIES = 100
_MOST_CHAINS = 20
_MOST_VALUES = 20


class PageData(msgspec.Struct, frozen=True):
    """The page's data: `index` lists all questions and answers, `blocks` holds the rest of at most `BLOCK` each, packed."""

    index: dict[str, Any]
    blocks: tuple[str, ...]


def page_data(store: RunStore, methods: Sequence[str]) -> PageData:
    """Read the questions that a run has results to, with each method's result."""
    questions: list[list[Any]] = []
    results: list[list[Any]] = [[] for _ in methods]
    blocks: list[str] = []
    sizes: list[int] = []
    room = _ALL_DOCUMENTS
    listed = _questions(store)
    while batch := list(itertools.islice(listed, BLOCK)):
        ids = [question.id for question in batch]
        by_id = [{storable(row.question_id): row for row in store.rows(method, ids)} for method in methods]
        block = []
        for record in batch:
            rows = [column.get(storable(record.id)) for column in by_id]
            if not any(rows):
                continue
            question = _known(record, rows)
            answers = [cut(answer) for answer in question.answers[:_MOST_ENTRIES]]
            questions.append([cut(question.id), long_text(question.question), cut(question.kind), answers])
            scored = [None if row is None else (row, score_result(row)) for row in rows]
            for column, result in zip(results, scored, strict=True):
                column.append(None if result is None else _score(*result))
            documents = _documents(question, rows, room)
            room -= sum(len(document.text) for document in documents)
            block.append(_details(question, scored, documents))
        blocks.append(packed_json(block))
        sizes.append(len(block))
    index = {"methods": list(methods), "questions": questions, "results": results, "blocks": sizes}
    return PageData(index, tuple(blocks))


def _questions(store: RunStore) -> Iterator[Question]:
    """Yield the questions that have results: as they were kept, then those that no record was kept of."""
    answered = dict.fromkeys(store.asked())
    for question in store.questions():
        if storable(question.id) in answered:
            del answered[storable(question.id)]
            yield question
    yield from (Question(question_id, "", ()) for question_id in answered)


def _known(question: Question, rows: Sequence[Result | None]) -> Question:
    """Complete a question that was not kept by what its results say."""
    row = next(row for row in rows if row is not None)
    if question.question:
        return question
    return Question(
        row.question_id, row.question, row.answers, supporting_documents=row.supporting_documents, kind=row.kind
    )  # fmt: skip


def _score(row: Result, score: ResultScore) -> list[Any]:
    text = None if row.answer is None else cut(row.answer.text, _LONGEST_ANSWER)
    return [text, None if score.exact_match is None else int(score.exact_match), rounded(score.f1)]


def _documents(question: Question, rows: Sequence[Result | None], room: int) -> list[Document]:
    """Return which documents the page has: all while there is room, then those that support or were chosen."""
    if sum(len(document.text) for document in question.documents) <= room:
        return list(question.documents)
    used = {*question.supporting_documents, *(document_id for document_id, _ in question.supporting_facts)}
    for answer in (row.answer for row in rows if row is not None and row.answer is not None):
        used |= {*answer.evidence.votes, *(triple.document_id for triple in _units(answer))}
    return [document for document in question.documents if document.id in used]


def _details(
    question: Question, scored: Sequence[tuple[Result, ResultScore] | None], documents: Sequence[Document]
) -> dict[str, Any]:
    facts: dict[str, list[int]] = {}
    for document_id, sentence in question.supporting_facts:
        facts.setdefault(document_id, []).append(sentence)
    titles = {document.id: document.title for document in question.documents}
    gold = dict.fromkeys((*question.supporting_documents, *facts))
    return {
        "documents": [
            [
                cut(_named(document)),
                [long_text(sentence) for sentence in document.sentences],
                int(document.id in gold),
                sorted(facts.get(document.id, ())),
            ]
            for document in documents
        ],
        "leftOut": len(question.documents) - len(documents),
        "gold": [cut(titles.get(document_id, document_id)) for document_id in gold],
        "done": _done(question),
        "methods": [None if result is None else _method(*result, documents, question) for result in scored],
    }


def _named(document: Document) -> str:
    named = document.title or document.id
    return f"{named} ({document.citation()})" if document.origin is not None else named


def _done(question: Question) -> list[str]:
    """Say in words what had been done to a question's documents on purpose."""
    done = question.perturbation
    if done is None:
        return []
    words = [f"{done.kind}, {done.noise} at a ratio of {done.ratio:g} (measured {done.measured:.3f})"]
    words += [f"removed: {text}" for text in done.removed]
    words += [f"replaced: {before} by {after} ({how})" for before, after, how in done.replaced]
    words += [f"wrong answer: {done.wrong_answer}"] if done.wrong_answer else []
    return [long_text(text) for text in words[:_MOST_ENTRIES]]


def _method(row: Result, score: ResultScore, documents: Sequence[Document], question: Question) -> dict[str, Any]:
    """Return what led a method to its answer; documents and units are named by where they stand in their lists."""
    support = [rounded(getattr(score.support, name)) for name in ("precision", "recall", "f1", "error_rate")]
    if row.answer is None:
        return {"error": long_text(row.error), "support": support}
    answer, evidence = row.answer, row.answer.evidence
    numbers = {document.id: number for number, document in enumerate(documents)}
    texts = {document_text(document): number for number, document in enumerate(documents)}
    units = {unit: number for number, unit in enumerate(dict.fromkeys(_units(answer)))}
    cover = evidence.derivation if isinstance(evidence.derivation, FeatureCover) else FeatureCover((), ())
    triples = evidence.derivation.triples if isinstance(evidence.derivation, WrittenTriples) else ()

    def document(document_id: str) -> int | str:
        return numbers.get(document_id, cut(document_id))

    def parts(unit: Unit) -> list[str]:
        # The page tells text from triples by the empty relation.
        if isinstance(unit, TextUnit):
            return [cut(unit.title), "", long_text(unit.body)]
        return [cut(unit.head), cut(unit.relation), cut(unit.tail)]

    details: dict[str, Any] = {
        "support": support,
        "kind": evidence.kind,
        # A document that was read in full stands in the page once, and here by its number.
        "context": [texts.get(entry, long_text(entry)) for entry in evidence.context[:_MOST_ENTRIES]],
        "moreContext": max(len(evidence.context) - _MOST_ENTRIES, 0),
        "chosen": [document(document_id) for document_id in evidence.document_ids],
        "votes": [[document(document_id), votes] for document_id, votes in evidence.votes.items()],
        "units": [[*parts(unit), document(unit.document_id), unit.sentence] for unit in units],
        "chains": [
            [[units[unit] for unit in chain.units], [*map(rounded, chain.steps)], rounded(chain.score), int(chain.finished)]
            for chain in evidence.chains[:_MOST_CHAINS]
        ],
        "features": [
            [
                held.feature.kind, long_text(held.feature.statement), [*map(rounded, held.probabilities)], held.covered_by,
                held.chosen,
            ]
            for held in cover.coverage
        ],
        "pool": [[document(document_id), sentence] for document_id, sentence in cover.pool],
        "triples": [[cut(one.head), cut(one.relation), cut(one.tail)] for one in triples[:_MOST_ENTRIES]],
        "rationale": [long_text(thought) for thought in evidence.reasoning.rationale[:_MOST_ENTRIES]],
        "queries": [_query(query) for query in evidence.reasoning.queries[:_MOST_ENTRIES]],
        "stages": [[stage, round(seconds, 3), *_counts(answer, stage)] for stage, seconds in answer.seconds.items()],
        "notes": [long_text(note) for note in answer.notes],
        "stands": _stands(answer, question),
        "likely": rounded(answer.probability),
        "contextTokens": answer.context_tokens,
        "deterministic": answer.deterministic,
    }  # fmt: skip
    # What is empty need not be told, and of thousands of answers it would be much.
    return {name: value for name, value in details.items() if value not in ([], 0, False, None)}


def _stands(answer: Answer, question: Question) -> list[list[str]]:
    """Return where an answer stands that was taken out of the evidence: title, the sentence before it, itself, and what is behind."""
    # Pieces rather than places: a browser counts a text's characters otherwise than Python does.
    found = []
    by_id = {document.id: document for document in question.documents}
    for place in answer.places:
        if place.document_id in by_id:
            document = by_id[place.document_id]
            found.append([cut(_named(document)), *map(long_text, place.cut(document))])
    return found


def _counts(answer: Answer, stage: str) -> list[int]:
    usage = answer.usage.get(stage)
    return [] if usage is None else [usage.calls, usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens]


def _units(answer: Answer) -> Iterator[Unit]:
    return (unit for chain in answer.evidence.chains[:_MOST_CHAINS] for unit in chain.units)


def _query(query: KnowledgeQuery) -> dict[str, Any]:
    return {
        "place": query.place,
        "question": long_text(query.question),
        "written": long_text(query.written),
        "run": long_text(query.sparql),
        "store": cut(query.store),
        "links": [[cut(mention), cut(key), rounded(score)] for mention, key, score in query.links[:_MOST_VALUES]],
        "refused": [[long_text(written), long_text(reason)] for written, reason in query.refused[:_MOST_VALUES]],
        "values": [cut(value) for value in query.values[:_MOST_VALUES]],
        "moreValues": max(len(query.values) - _MOST_VALUES, 0),
        "facts": [long_text(fact.text) for fact in query.facts[:_MOST_VALUES]],
        "outcome": query.outcome,
        "reason": long_text(query.reason),
    }
