"""A run's questions as the data that the page's script shows: a list of all, and blocks that are unpacked when looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pytrace.evaluation.run.run_store import Result, RunStore
from pytrace.evaluation.scores.result_scores import ResultScore, score_result
from pytrace.reader.evidence import document_text
from pytrace.records import Answer, Chain, Document, FeatureCover, KnowledgeQuery, Question, Triple, WrittenTriples
from pytrace.report.page_texts import cut, long_text, packed_json, rounded
from pytrace.storage.text import storable

BLOCK = 25
"""Questions in a block: some 100 kB of JSON, which a browser unpacks in a few milliseconds."""

# Documents that no method chose and that support nothing leave the page once it holds so many characters of documents.
_ALL_DOCUMENTS = 60_000_000
_LONGEST_ANSWER = 400
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
    for part in _batches(_questions(store)):
        found = [
            {storable(row.question_id): row for row in store.rows(method, [one.id for one in part])}
            for method in methods
        ]
        block = []
        for question in part:
            rows = [own.get(storable(question.id)) for own in found]
            if not any(rows):
                continue
            question = _known(question, rows)  # noqa: PLW2901
            answers = [cut(answer) for answer in question.answers[:_MOST_ENTRIES]]
            questions.append([cut(question.id), long_text(question.question), cut(question.kind), answers])
            scores = [None if row is None else score_result(row) for row in rows]
            for column, row, score in zip(results, rows, scores, strict=True):
                column.append(_score(row, score))
            kept = _kept(question, rows, room)
            room -= sum(len(question.documents[place].text) for place in kept)
            block.append(_details(question, rows, scores, kept))
        blocks.append(packed_json(block))
        sizes.append(len(block))
    index = {"methods": list(methods), "questions": questions, "results": results, "blocks": sizes}
    return PageData(index, tuple(blocks))


def _questions(store: RunStore) -> Iterator[Question]:
    """Yield the questions that have results: as they were kept, then those that no record was kept of."""
    asked = dict.fromkeys(store.asked())
    for question in store.questions():
        if storable(question.id) in asked:
            del asked[storable(question.id)]
            yield question
    yield from (Question(question_id, "", ()) for question_id in asked)


def _batches(questions: Iterator[Question]) -> Iterator[list[Question]]:
    while part := list(itertools.islice(questions, BLOCK)):
        yield part


def _known(question: Question, rows: Sequence[Result | None]) -> Question:
    """Complete a question that was not kept by what its results say."""
    if question.question:
        return question
    row = next(row for row in rows if row is not None)
    return Question(
        row.question_id, row.question, row.answers, supporting_documents=row.supporting_documents, kind=row.kind
    )  # fmt: skip


def _score(row: Result | None, score: ResultScore | None) -> list[Any] | None:
    if row is None or score is None:
        return None
    text = None if row.answer is None else cut(row.answer.text, _LONGEST_ANSWER)
    return [text, None if score.exact_match is None else int(score.exact_match), rounded(score.f1)]


def _kept(question: Question, rows: Sequence[Result | None], room: int) -> list[int]:
    """Return which documents the page has: all while there is room, then those that support or were chosen."""
    places = range(len(question.documents))
    if sum(len(document.text) for document in question.documents) <= room:
        return list(places)
    used = {*question.supporting_documents, *(fact[0] for fact in question.supporting_facts)}
    for row in rows:
        if row is not None and row.answer is not None:
            used |= {*row.answer.evidence.votes, *(triple.document_id for triple in _units(row.answer))}
    return [place for place in places if question.documents[place].id in used]


def _details(
    question: Question, rows: Sequence[Result | None], scores: Sequence[ResultScore | None], kept: Sequence[int]
) -> dict[str, Any]:
    documents = [question.documents[place] for place in kept]
    facts: dict[str, list[int]] = {}
    for document_id, sentence in question.supporting_facts:
        facts.setdefault(document_id, []).append(sentence)
    titles = {document.id: document.title for document in question.documents}
    gold = list(dict.fromkeys((*question.supporting_documents, *facts)))
    return {
        "documents": [
            [
                cut(document.title or document.id),
                [long_text(sentence) for sentence in document.sentences],
                int(document.id in gold),
                sorted(facts.get(document.id, ())),
            ]
            for document in documents
        ],
        "leftOut": len(question.documents) - len(documents),
        "gold": [cut(titles.get(one, one)) for one in gold],
        "done": _done(question),
        "methods": [
            None if row is None or score is None else _method(row, score, documents)
            for row, score in zip(rows, scores, strict=True)
        ],
    }


def _done(question: Question) -> list[str]:
    """Say in words what had been done to a question's documents on purpose."""
    what = question.perturbation
    if what is None:
        return []
    said = [f"{what.kind}, {what.noise} at a ratio of {what.ratio:g} (measured {what.measured:.3f})"]
    said += [f"removed: {text}" for text in what.removed]
    said += [f"replaced: {before} by {after} ({how})" for before, after, how in what.replaced]
    said += [f"wrong answer: {what.wrong_answer}"] if what.wrong_answer else []
    return [long_text(text) for text in said[:_MOST_ENTRIES]]


def _method(row: Result, score: ResultScore, documents: Sequence[Document]) -> dict[str, Any]:
    support = [rounded(getattr(score.support, name)) for name in ("precision", "recall", "f1", "error_rate")]
    if row.answer is None:
        return {"error": long_text(row.error), "support": support}
    answer, evidence = row.answer, row.answer.evidence
    places = {document.id: place for place, document in enumerate(documents)}
    texts = {document_text(document): place for place, document in enumerate(documents)}
    units = {unit: number for number, unit in enumerate(dict.fromkeys(_units(answer)))}
    derivation = evidence.derivation
    cover = derivation if isinstance(derivation, FeatureCover) else FeatureCover((), ())
    triples = derivation.triples if isinstance(derivation, WrittenTriples) else ()
    told: dict[str, Any] = {
        "support": support,
        "kind": evidence.kind,
        # A document that was read whole stands in the page once, and here by its place.
        "context": [texts.get(entry, long_text(entry)) for entry in evidence.context[:_MOST_ENTRIES]],
        "moreContext": max(len(evidence.context) - _MOST_ENTRIES, 0),
        "chosen": [places.get(one, cut(one)) for one in evidence.document_ids],
        "votes": [[places.get(one, cut(one)), votes] for one, votes in evidence.votes.items()],
        "units": [_unit(unit, places) for unit in units],
        "chains": [_chain(chain, units) for chain in evidence.chains[:_MOST_CHAINS]],
        "features": [
            [
                one.feature.kind,
                long_text(one.feature.statement),
                [rounded(value) for value in one.probabilities],
                one.covered_by,
                one.chosen,
            ]
            for one in cover.coverage
        ],
        "pool": [[places.get(one, cut(one)), sentence] for one, sentence in cover.pool],
        "triples": [[cut(one.head), cut(one.relation), cut(one.tail)] for one in triples[:_MOST_ENTRIES]],
        "rationale": [long_text(one) for one in evidence.reasoning.rationale[:_MOST_ENTRIES]],
        "queries": [_query(one) for one in evidence.reasoning.queries[:_MOST_ENTRIES]],
        "stages": [[stage, round(seconds, 3), *_counts(answer, stage)] for stage, seconds in answer.seconds.items()],
        "notes": [long_text(one) for one in answer.notes],
        "contextTokens": answer.context_tokens,
        "deterministic": answer.deterministic,
    }
    return {name: value for name, value in told.items() if value not in ([], 0, False)}


def _counts(answer: Answer, stage: str) -> list[int]:
    usage = answer.usage.get(stage)
    return [] if usage is None else [usage.calls, usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens]


def _units(answer: Answer) -> Iterator[Triple]:
    return (triple for chain in answer.evidence.chains[:_MOST_CHAINS] for triple in chain.triples)


def _unit(unit: Triple, places: Mapping[str, int]) -> list[Any]:
    place = places.get(unit.document_id, cut(unit.document_id))
    tail = cut(unit.tail) if unit.relation else long_text(unit.tail)
    return [cut(unit.head), cut(unit.relation), tail, place, unit.sentence]


def _chain(chain: Chain, units: Mapping[Triple, int]) -> list[Any]:
    steps = [rounded(step) for step in chain.steps]
    return [[units[triple] for triple in chain.triples], steps, rounded(chain.score), int(chain.finished)]


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
