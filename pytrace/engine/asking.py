"""Questions from retrieval to certified answers: what ``pytrace ask`` does, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import msgspec

from pytrace.documents.reader import ReadOptions
from pytrace.documents.text_files import read_text
from pytrace.engine.corpus import Corpus, IndexedCorpus
from pytrace.errors import DataError, InputError
from pytrace.records import Triple
from pytrace.storage.foreign_json import decode_json

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import Certificate
    from pytrace.certify.claims import CheckedClaim
    from pytrace.certify.claims.entailment import EntailmentModel
    from pytrace.documents import ReadReport
    from pytrace.engine.knowledge import KnowledgeOptions
    from pytrace.engine.loading import Engine
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.catalog import MethodName
    from pytrace.methods.ranking import Search, SearchName
    from pytrace.models.encoders.encoder import Encoder
    from pytrace.records import Answer, Document
    from pytrace.retrieval import SentenceIndex

Progress = Callable[[str, int], AbstractContextManager[Callable[..., object]]]
"""From what is done and how often to a context that gives what to call after each."""


def read_corpus(
    docs: Path | None,
    kg: Path | None,
    *,
    needed: MethodName,
    report: ReadReport | None = None,
    at_first: Callable[[], object] = lambda: None,
    **options: Unpack[ReadOptions],
) -> list[Document]:
    """Read the documents that a method needs, as `read_documents` does, or those of a graph that match the filters.

    `at_first` is called once there is a document.
    """
    from pytrace.documents import read_documents
    from pytrace.documents.filters import matches, parse_filters
    from pytrace.methods.catalog import METHODS
    from pytrace.triples.graph import TripleStore

    if docs is not None:
        documents: list[Document] = []
        for document in read_documents(docs, report=report, **options):
            if not documents:
                at_first()
            documents.append(document)
        return documents
    if kg is not None:
        with TripleStore.open(kg, mode="read") as graph:
            at_first()
            filters = parse_filters(options.get("where", ()))
            return [document for document in graph.documents() if matches(document, filters)]
    if "documents" not in METHODS[needed.name].needs:
        return []
    raise InputError(f"there is nothing that {needed.name} could answer from; give --docs FILE|FOLDER or --kg DIR")


class Asked(NamedTuple):
    """A question's answer, the documents that the method was given, and what was asked for besides: certificates, checked claims."""

    documents: list[Document]
    answer: Answer
    certificates: Sequence[Certificate] = ()
    claims: Sequence[CheckedClaim] = ()


def answer_all(
    questions: Sequence[str],
    corpus: Corpus,
    *,
    kg: Path | None,
    method: MethodName,
    retrieve: int,
    sentence_index: Path | None,
    settings: tuple[str, ...],
    models: Engine,
    claim: bool,
    knowledge: KnowledgeOptions,
    certify: bool,
    facts: Path | None,
    checker: str | None = None,
    progress: Progress,
    where: Sequence[str] = (),
) -> list[Asked]:
    """Retrieve for all questions, answer them in one batch and, where it is asked for, certify; `checker` names a model that decides about claims."""
    from pytrace.engine.claims import open_checker
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.base import ClaimMethod
    from pytrace.methods.catalog import check_overrides
    from pytrace.triples.graph import TripleStore

    overrides = check_overrides([method], settings)[method.name]
    # An index of sentences searches all documents itself.
    everything = list(corpus) if sentence_index is not None else None
    chosen = (
        _nearest(questions, corpus, models, retrieve, where) if everything is None else [everything] * len(questions)
    )
    found: dict[str, Document] = {}
    with (
        progress("extracting triples", sum(map(len, chosen))) as advance,
        TripleStore.open(kg, mode="read") if kg is not None else nullcontext() as graph,
        _open_index(sentence_index, everything or [], models)
        if sentence_index is not None
        else nullcontext() as sentences,
    ):
        answerer = models.method(
            method,
            overrides,
            graph=graph,
            extracted=lambda _: advance(),
            index=sentences,
            knowledge=knowledge.opener(models),
            search=_keeping(corpus.finder(models, where=where), found),
        )
        if not claim:
            answers = answerer.answer(questions, chosen)
        elif isinstance(answerer, ClaimMethod):
            answers = answerer.judge(questions, chosen)
        else:
            raise InputError(f"{method.label} cannot judge claims; use standard, cot, cot-sc, verify-and-edit or cok")
        chosen = [_with_found(*each, found) for each in zip(chosen, answers, strict=True)]
        # Here, for the graph that the chains were made of is closed with the method.
        entailment = open_checker(checker, models) if certify else None
        base = None if facts is None or not certify else KnowledgeBase.load(facts, models.encoder)
        certified = [
            certify_by_evidence(answerer, answer, documents, models.encoder, base=base, entailment=entailment)
            if certify
            else Certified()
            for answer, documents in zip(answers, chosen, strict=True)
        ]
    return [
        Asked(documents, _with_note(answer, len(documents), corpus), *found)
        for documents, answer, found in zip(chosen, answers, certified, strict=True)
    ]


def judge_all(
    claims: Sequence[str],
    corpus: Corpus,
    *,
    models: Engine,
    checker: str | None = None,
    where: Sequence[str] = (),
) -> list[Asked]:
    """Judge claims by the texts of a corpus, without a language model unless `checker` is "lm"."""
    from pytrace.engine.claims import judge_by_texts, open_checker, passages_of

    entailment = open_checker(checker, models)
    if not isinstance(corpus, IndexedCorpus):
        documents = list(corpus)
        judged = judge_by_texts(claims, documents, entailment)
        return [Asked(documents, answer, claims=checked) for answer, checked in judged]
    asked = []
    for claim in claims:
        passages = passages_of(claim, corpus, models, where)
        ((answer, checked),) = judge_by_texts([claim], passages, entailment)
        asked.append(Asked(passages, answer, claims=checked))
    return asked


def _keeping(search: Search | None, found: dict[str, Document]) -> Search | None:
    """Return a search that keeps all that it finds, by id."""
    if search is None:
        return None

    def keep(queries: Sequence[str], retriever: SearchName, count: int) -> list[list[Document]]:
        results = search(queries, retriever, count)
        found.update((passage.id, passage) for passages in results for passage in passages)
        return results

    return keep


def _with_found(documents: list[Document], answer: Answer, found: Mapping[str, Document]) -> list[Document]:
    """Return the documents of a question with those that the method itself found and rests on."""
    known = {document.id for document in documents}
    return [*documents, *(found[name] for name in answer.evidence.document_ids if name not in known and name in found)]


def _with_note(answer: Answer, count: int, corpus: Corpus) -> Answer:
    if count >= len(corpus):
        return answer
    indexed = isinstance(corpus, IndexedCorpus)
    cut = indexed or any(document.is_passage for document in corpus)
    note = f"was given the {count} {'passages' if cut else 'documents'} nearest to the question, of {len(corpus):,}"
    if not indexed:
        note += "; 'pytrace index build' encodes them once, and not for each question"
    return msgspec.structs.replace(answer, notes=(*answer.notes, note))


def _nearest(
    questions: Sequence[str], corpus: Corpus, models: Engine, count: int, where: Sequence[str]
) -> list[list[Document]]:
    if isinstance(corpus, IndexedCorpus):
        rankings = corpus.rank(questions, models, count, where=where)
        return [corpus.index.passages(ranking.rows) for ranking in rankings]
    return [corpus.nearest(question, models, count) for question in questions]


def read_questions(path: Path) -> list[str]:
    """Read questions: one a line, or of JSON Lines (`.jsonl`) what stands in the field `question` of each.

    Raises
    ------
    DataError
        The file cannot be read, a row has no question, or there is none at all.
    """
    questions = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            text = decode_json(line, _QuestionRow).question if path.suffix == ".jsonl" else line
        except ValueError as error:
            raise DataError(f'no row with a "question" ({error}); give each line one', path=path, line=number) from None
        if not text.strip():
            raise DataError("the question is empty; ask something", path=path, line=number)
        questions.append(text.strip())
    if not questions:
        raise DataError("holds no question; write one a line", path=path)
    return questions


class _QuestionRow(msgspec.Struct):
    question: str


class Certified(NamedTuple):
    """What was found of an answer: certificates by a graph, and its claims beside the texts."""

    certificates: Sequence[Certificate] = ()
    claims: Sequence[CheckedClaim] = ()


def certify_by_evidence(
    answerer: object,
    answer: Answer,
    documents: list[Document],
    encoder: Encoder,
    *,
    base: KnowledgeBase | None = None,
    entailment: EntailmentModel | None = None,
) -> Certified:
    """Certify what an answer rests on by a graph, or by the triples that its chains were made of; and what it says, by its documents.

    Parameters
    ----------
    answerer, answer
        A method, which is still open, and its answer.
    documents
        What the method was given.
    encoder
        Compares steps with triples.
    base
        A graph to certify by.
    entailment
        A model that decides about claims.

    Raises
    ------
    InputError
        There is nothing to certify by: neither graph, nor triples, nor texts that the answer claims anything beside.
    """
    from pytrace.certify.answer_certificates import certify_answer
    from pytrace.certify.claims.answer_claims import check_answer
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.trace.top_triples import TopTriples
    from pytrace.methods.trace.trace import Trace

    if base is None and isinstance(answerer, Trace | TopTriples):
        # Sentences and documents state nothing that could be checked by a graph.
        triples = [unit for unit in answerer.graph.iterate_triples() if isinstance(unit, Triple)]
        base = KnowledgeBase.in_memory(triples, encoder) if triples else None
    certificates = [] if base is None else certify_answer(base, encoder, answer, documents=documents)
    claims = check_answer(answer, documents, entailment) if documents else []
    if not certificates and not claims:
        raise InputError(
            f"there is nothing to certify the answer of {answer.method} by: it has no triples, and claims nothing beside its "
            f"{len(documents)} documents; give --facts KG"
        )
    return Certified(certificates, claims)


def _open_index(directory: Path, documents: list[Document], models: Engine) -> SentenceIndex:
    """Open an index of sentences, or build it if it is not there, and add the documents that it lacks."""
    from pytrace.retrieval import SentenceIndex
    from pytrace.retrieval.index_files import MANIFEST

    if not documents or (directory / MANIFEST).exists():
        # One that lacks nothing is only read, which may be all that its place allows.
        index = SentenceIndex.open(directory, models.encoder)
        if {document.id for document in documents} <= index.document_ids():
            return index
        index.close()
    # An empty directory may have been made for the index.
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        index = SentenceIndex.build(directory, (), models.encoder)
    else:
        index = SentenceIndex.open(directory, models.encoder, mode="write")
    try:
        index.add_documents(documents)
    except BaseException:
        # Its lock would keep others out for as long as this process lives.
        index.close()
        raise
    return index
