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
    from pytrace.documents import ReadReport
    from pytrace.engine.knowledge import KnowledgeOptions
    from pytrace.engine.loading import Engine
    from pytrace.methods.catalog import MethodName
    from pytrace.methods.ranking import Search, SearchName
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
    **options: Unpack[ReadOptions],
) -> list[Document]:
    """Read the documents that a method needs, as `read_documents` does, or those of a graph that match the filters."""
    from pytrace.documents import read_documents
    from pytrace.documents.filters import matches, parse_filters
    from pytrace.methods.catalog import METHODS
    from pytrace.triples.graph import TripleStore

    if docs is not None:
        return list(read_documents(docs, report=report, **options))
    if kg is not None:
        with TripleStore.open(kg, mode="read") as graph:
            filters = parse_filters(options.get("where", ()))
            return [document for document in graph.documents() if matches(document, filters)]
    if "documents" not in METHODS[needed.name].needs:
        return []
    raise InputError(f"there is nothing that {needed.name} could answer from; give --docs FILE|FOLDER or --kg DIR")


class Asked(NamedTuple):
    """A question's answer, the documents that the method was given, and the certificates that were asked for."""

    documents: list[Document]
    answer: Answer
    certificates: list[Certificate]


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
    progress: Progress,
    where: Sequence[str] = (),
) -> list[Asked]:
    """Retrieve for all questions, answer them in one batch and, where it is asked for, certify."""
    from pytrace.methods.base import ClaimMethod
    from pytrace.methods.catalog import check_overrides
    from pytrace.triples.graph import TripleStore

    overrides = check_overrides([method], models.settings_name, settings)[method.name]
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
            raise InputError(f"{method.label} cannot judge claims; use standard or cok")
        chosen = [_with_found(*each, found) for each in zip(chosen, answers, strict=True)]
        # Here, for the graph that the chains were made of is closed with the method.
        certificates = [
            _certify(answerer, answer, documents, facts, models, progress) if certify else []
            for answer, documents in zip(answers, chosen, strict=True)
        ]
    return [
        Asked(documents, _with_note(answer, len(documents), corpus), checked)
        for documents, answer, checked in zip(chosen, answers, certificates, strict=True)
    ]


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


def _certify(
    answerer: object, answer: Answer, documents: list[Document], facts: Path | None, models: Engine, progress: Progress
) -> list[Certificate]:
    """Certify what an answer rests on: by a given graph, or by the evidence itself."""
    from pytrace.certify.certifier import certify_answer
    from pytrace.kg import KnowledgeBase

    if facts is not None:
        return certify_answer(KnowledgeBase.load(facts, models.encoder), models.encoder, answer, documents=documents)
    return certify_by_evidence(answerer, answer, documents, models, progress)


def certify_by_evidence(
    answerer: object,
    answer: Answer,
    documents: list[Document],
    models: Engine,
    progress: Progress = lambda _, __: nullcontext(lambda *_: None),
) -> list[Certificate]:
    """Certify what an answer rests on by the triples that its chains were made of, or by those of its documents.

    Parameters
    ----------
    answerer, answer
        A method, which is still open, and its answer.
    documents
        What the method was given.
    models, progress
        Who finds triples in the documents, and who is told of it.

    Raises
    ------
    InputError
        There is nothing to certify, or no triple to certify it by.
    """
    from pytrace.certify.certifier import certify_answer
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.trace.top_triples import TopTriples
    from pytrace.methods.trace.trace import Trace

    graph = answerer.graph.iterate_triples() if isinstance(answerer, Trace | TopTriples) else ()
    # Sentences and documents state nothing that could be checked.
    triples = [unit for unit in graph if isinstance(unit, Triple)] or _extract_triples(
        answer, documents, models, progress
    )
    if not triples:
        raise InputError(
            f"there is no triple to certify the answer of {answer.method} by, neither its own nor in its "
            f"{len(documents)} documents; give --facts KG"
        )
    return certify_answer(KnowledgeBase.in_memory(triples, models.encoder), models.encoder, answer, documents=documents)


def _extract_triples(answer: Answer, documents: list[Document], models: Engine, progress: Progress) -> list[Triple]:
    """Let the language model find triples in the documents that an answer rests on."""
    from pytrace.methods.catalog import method_settings
    from pytrace.methods.trace.triple_method import make_extractor
    from pytrace.triples.extraction import build_graph
    from pytrace.triples.graph import TripleStore

    # A method that names no documents, such as a chain of thought, was given these all the same.
    used = [document for document in documents if document.id in answer.evidence.document_ids] or documents
    if not used:
        return []
    settings = method_settings("trace", models.settings_name, ["unit=triple"])
    extractor = make_extractor(models.model, models.encoder, settings)
    with (
        progress("extracting triples to certify by", len(used)) as advance,
        TripleStore(recipe=extractor.recipe) as graph,
    ):
        build_graph(graph, extractor, used, done=lambda _: advance())
        return [unit for unit in graph.iterate_triples() if isinstance(unit, Triple)]


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
