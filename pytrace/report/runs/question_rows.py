"""A run's questions as the data that the page's script shows: a list of all, and blocks that are unpacked when looked at."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.scores.metrics import RowScore, score_row
from pytrace.reader.evidence import document_text
from pytrace.records import Document, FeatureCover, KnowledgeQuery, Question, Reasoning, WrittenTriples
from pytrace.report.page_texts import cut, long_text, packed_json, rounded
from pytrace.results import Findings, Result, Step
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
            scored = [None if row is None else (row, score_row(row)) for row in rows]
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


def _known(question: Question, rows: Sequence[RunRow | None]) -> Question:
    """Complete a question that was not kept by what its results say."""
    row = next(row for row in rows if row is not None)
    if question.question:
        return question
    return Question(
        row.question_id, row.question, row.answers, supporting_documents=row.supporting_documents, kind=row.kind
    )  # fmt: skip


def _score(row: RunRow, score: RowScore) -> list[Any]:
    text = None if row.result is None else cut(row.result.answer, _LONGEST_ANSWER)
    return [text, None if score.exact_match is None else int(score.exact_match), rounded(score.f1)]


def _documents(question: Question, rows: Sequence[RunRow | None], room: int) -> list[Document]:
    """Return which documents the page has: all while there is room, then those that support or were chosen."""
    if sum(len(document.text) for document in question.documents) <= room:
        return list(question.documents)
    used = {*question.supporting_documents, *(document_id for document_id, _ in question.supporting_facts)}
    for evidence in (row.result.evidence for row in rows if row is not None and row.result is not None):
        steps = {step.source for step in _steps(evidence)}
        used |= {source.id for number, source in enumerate(evidence.sources) if source.votes or number in steps}
    return [document for document in question.documents if document.id in used]


def _details(
    question: Question, scored: Sequence[tuple[RunRow, RowScore] | None], documents: Sequence[Document]
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
        "methods": [None if result is None else _method(*result, documents) for result in scored],
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


def _method(row: RunRow, score: RowScore, documents: Sequence[Document]) -> dict[str, Any]:
    """Return what led a method to its answer; documents and steps are named by their index in their lists."""
    support = [rounded(getattr(score.support, name)) for name in ("precision", "recall", "f1", "error_rate")]
    if row.result is None:
        return {"error": long_text(row.error), "support": support}
    result, evidence = row.result, row.result.evidence
    numbers = {document.id: number for number, document in enumerate(documents)}
    texts = {document_text(document): number for number, document in enumerate(documents)}
    titles = {source.id: source.title for source in evidence.sources}
    units = {
        unit: number for number, unit in enumerate(dict.fromkeys(_unit(step, evidence) for step in _steps(evidence)))
    }
    details = evidence.details
    cover = details if isinstance(details, FeatureCover) else FeatureCover((), ())
    triples = details.triples if isinstance(details, WrittenTriples) else ()
    reasoning = details if isinstance(details, Reasoning) else Reasoning()

    def document(document_id: str) -> int | str:
        return numbers.get(document_id, cut(titles.get(document_id) or document_id))

    shown: dict[str, Any] = {
        "support": support,
        "kind": evidence.kind,
        # A document that was read in full is in the page once, and here by its number.
        "context": [texts.get(entry, long_text(entry)) for entry in evidence.read_texts[:_MOST_ENTRIES]],
        "moreContext": max(len(evidence.read_texts) - _MOST_ENTRIES, 0),
        "chosen": [document(document_id) for document_id in evidence.chosen],
        "votes": [[document(source.id), source.votes] for source in evidence.sources if source.votes],
        # The page tells text from triples by the empty relation.
        "units": [[cut(head), cut(relation), long_text(tail), document(id), sentence] for head, relation, tail, id, sentence in units],
        "chains": [
            [
                [units[_unit(step, evidence)] for step in chain.steps],
                [rounded(step.probability) for step in chain.steps],
                None if chain.score is None else rounded(math.exp(chain.score)),
                int(chain.ended),
            ]
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
        "rationale": [long_text(thought) for thought in reasoning.rationale[:_MOST_ENTRIES]],
        "queries": [_query(query) for query in reasoning.queries[:_MOST_ENTRIES]],
        "stages": [[stage, round(seconds, 3), *_counts(result, stage)] for stage, seconds in result.seconds.items()],
        "notes": [long_text(note) for note in result.notes],
        "quote": _quote(evidence),
        "confidence": rounded(result.confidence),
        "certainty": "" if result.confidence is None else result.certainty,
        "contextTokens": result.context_tokens,
        "deterministic": result.deterministic,
    }  # fmt: skip
    # What is empty need not be told, and of thousands of answers it would be much.
    return {name: value for name, value in shown.items() if value not in ([], 0, False, None, "")}


def _quote(evidence: Findings) -> list[str]:
    """Return the sentence of the answer in pieces: its source, what is before the answer, the answer, and what is after it."""
    # Pieces instead of positions: a browser counts the characters of a text differently from Python.
    steps = evidence.chains[0].steps if evidence.chains else ()
    if not steps or steps[-1].answer is None:
        return []
    last, (start, end) = steps[-1], steps[-1].answer
    title = evidence.sources[last.source].title if last.source >= 0 else ""
    if last.characters is not None:
        title = f"{title} ({last.location}, characters {last.characters[0]}-{last.characters[1]})"
    return [cut(title), *map(long_text, (last.sentence[:start], last.sentence[start:end], last.sentence[end:]))]


def _counts(result: Result, stage: str) -> list[int]:
    usage = result.usage.get(stage)
    return [] if usage is None else [usage.calls, usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens]


def _steps(evidence: Findings) -> Iterator[Step]:
    return (step for chain in evidence.chains[:_MOST_CHAINS] for step in chain.steps)


def _unit(step: Step, evidence: Findings) -> tuple[str, str, str, str, int]:
    """Return a step as head, relation, tail, document and sentence; a text has its title as head and no relation."""
    source = evidence.sources[step.source] if step.source >= 0 else None
    parts = step.triple or ("" if source is None else source.title, "", step.sentence)
    return (*parts, "" if source is None else source.id, step.sentence_index)


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
