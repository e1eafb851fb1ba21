"""Read BEIR data sets: questions about a corpus, and how relevant its documents are to each."""

# Source: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models"
# (NeurIPS 2021), whose folders hold `corpus.jsonl`, `queries.jsonl` and `qrels/{test,dev,train}.tsv`.

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.documents.gold_fields import gold_answers
from pytrace.documents.json_rows import json_rows
from pytrace.documents.rows import Row, document_paragraph, id_of, make_document, wrong_type
from pytrace.documents.sentences import clean_text, split_sentences
from pytrace.documents.text_files import Place, read_text
from pytrace.errors import DataError
from pytrace.evaluation.data.dataset_adapters import text_of
from pytrace.evaluation.data.question_report import QuestionReport
from pytrace.evaluation.run.run_store import file_settings
from pytrace.records import Document, Question
from pytrace.retrieval import Bm25Retriever

POOL = 100
"""How many documents of the corpus a question gets, if not told."""

_SPLITS = ("test", "dev", "train")
_COLUMNS = ("query-id", "corpus-id", "score")
# Four digits are more than any data set's grades, and cannot grow without bounds.
_GRADE = re.compile(r"[+-]?[0-9]{1,4}(?:\.0+)?")


class BeirFiles(NamedTuple):
    """The files of a data set."""

    corpus: Path
    queries: Path
    judgements: Path


class _Judgement(NamedTuple):
    grade: int
    place: Place


class _Query(NamedTuple):
    text: str
    answers: tuple[str, ...]
    place: Place


def is_beir(path: Path) -> bool:
    """Tell whether a path is the folder of a BEIR data set, or one of its files of judgements."""
    return _folder(path) is not None


def beir_files(path: Path) -> BeirFiles:
    """Find the files of a data set."""
    folder = _folder(path)
    corpus = None if folder is None else _present(folder / "corpus.jsonl")
    if folder is None or corpus is None:
        raise DataError(
            f"is {'a folder, and ' if path.is_dir() else ''}no BEIR data set; give a file of questions, or the folder that holds "
            "corpus.jsonl, queries.jsonl and qrels/test.tsv, or a file of qrels",
            path=path,
        )
    queries = _present(folder / "queries.jsonl")
    if queries is None:
        raise DataError("has a corpus.jsonl, but no queries.jsonl beside it; fetch the data set again", path=folder)
    if not path.is_dir():
        return BeirFiles(corpus, queries, path)
    judgements = next(filter(None, (_present(folder / "qrels" / f"{split}.tsv") for split in _SPLITS)), None)
    if judgements is None:
        raise DataError(
            f"has no judgements: none of {', '.join(f'qrels/{split}.tsv' for split in _SPLITS)} is there; fetch them",
            path=folder,
        )
    return BeirFiles(corpus, queries, judgements)


def beir_settings(path: Path) -> dict[str, Any]:
    """Describe the files of a data set for the settings of a run, by their content."""
    return {name: file_settings(file) for name, file in beir_files(path)._asdict().items()}


def read_beir(
    path: Path, *, pool: int, language: str | None, report: QuestionReport
) -> Iterator[tuple[Place, Question]]:
    """Read the judged questions of a data set, each with the documents of the corpus that BM25 ranks first."""
    # The documents judged relevant to a question are its supporting documents, with their grades, whether they are
    # among those that it is given or not. Its answers are those that its `metadata` has, if any. A document without a
    # title gets the beginning of its text for one, and one without a text its title. Documents are split into sentences
    # only where a question gets them, and questions share them. The whole corpus is in memory: some 5 KB for a document
    # of 150 words.
    files = beir_files(path)
    judged = read_judgements(files.judgements)
    queries = _read_queries(files, judged, report)
    corpus = _Corpus(files.corpus, language, report)
    report.add(
        Place(files.judgements),
        f"each question gets the first {pool:,} documents of {len(corpus.documents):,} by BM25 (--pool); the rest cannot be chosen",
    )
    for id, query in queries.items():
        relevant = {document: judgement.grade for document, judgement in judged[id].items() if judgement.grade > 0}
        if not relevant:
            report.left_out += 1
            report.add(query.place, f"left out: none of its {len(judged[id])} judged documents is relevant")
            continue
        for document in relevant:
            if document not in corpus.documents:
                report.unresolved_facts += 1
                missing = f"the relevant document {document!r} is not in {files.corpus.name}"
                report.add(judged[id][document].place, missing)
        yield (
            query.place,
            Question(
                id=id,
                question=query.text,
                answers=query.answers,
                documents=corpus.first(query.text, pool),
                supporting_documents=tuple(relevant),
                grades=tuple(relevant.items()),
            ),
        )


def read_judgements(path: Path) -> dict[str, dict[str, _Judgement]]:
    """Read how relevant documents are to questions: by the question's id, and by the document's."""
    judged: dict[str, dict[str, _Judgement]] = {}
    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
    for index, (number, line) in enumerate(lines):
        place = Place(path, number)
        columns = line.rstrip("\r").split("\t")
        if len(columns) != 3:
            raise place.error(
                f"{len(columns)} columns parted by tabs, and 3 were expected ({', '.join(_COLUMNS)}); correct this line"
            )
        question, document, grade = map(clean_text, columns)
        # The first line may name the columns: it does if it has no number for a score, not even a wrong one.
        if index == 0 and not any(map(str.isdigit, grade)) and not _is_number(grade):
            continue
        if not question or not document:
            raise place.error(
                f"the {_COLUMNS[0] if not question else _COLUMNS[1]} is empty; give both ids, or remove this line"
            )
        if not _GRADE.fullmatch(grade):
            raise place.error(
                f"the score {grade[:40]!a} is no whole number of at most four digits; grade relevance by 0, 1, 2, …"
            )
        judgement = _Judgement(int(grade.partition(".")[0]), place)
        known = judged.setdefault(question, {}).setdefault(document, judgement)
        if known.grade != judgement.grade:
            raise place.error(
                f"document {document!r} has the score {judgement.grade} for question {question!r} here and {known.grade} at "
                f"{known.place}; remove one of them"
            )
    if not judged:
        raise DataError(f"judges no document; give lines of {', '.join(_COLUMNS)}, parted by tabs", path=path)
    return judged


class _Corpus:
    """A corpus in memory, with an index of its words; a document becomes one of sentences when it is first given out."""

    def __init__(self, path: Path, language: str | None, report: QuestionReport) -> None:
        self._language = language
        self.documents: dict[str, Document] = {}
        self._split: dict[str, Document] = {}
        for place, row in json_rows(path):
            self._add(row, place, report)
        if not self.documents:
            raise DataError('holds no document; give JSON Lines with "_id", "title" and "text"', path=path)
        self._retriever = Bm25Retriever(list(self.documents.values()), unmatched=False)

    def first(self, question: str, count: int) -> tuple[Document, ...]:
        """Return the documents that BM25 ranks first, those without a common word left out."""
        hits = self._retriever.retrieve([question], count)[0]
        for document in (hit.document for hit in hits):
            if document.id not in self._split:
                sentences = split_sentences(document.text, language=self._language)
                self._split[document.id] = make_document(
                    document.title, sentences, source=document.source, id=document.id
                )
        return tuple(self._split[hit.document.id] for hit in hits)

    def _add(self, row: Row, place: Place, report: QuestionReport) -> None:
        _check_id(row, place, "document")
        title = row.get("title")
        paragraph = document_paragraph({**row, "title": "" if title is None else title, "id": None}, place)
        text = paragraph.text if paragraph.sentences is None else " ".join(paragraph.sentences)
        if not clean_text(text):
            if title is None or not clean_text(title):
                report.empty_documents += 1
                report.add(place, f"document {paragraph.id!r} has neither title nor text and was left out")
                return
            text = paragraph.title
        document = Document(paragraph.id, paragraph.title, (text,), str(place))
        known = self.documents.setdefault(document.id, document)
        if known is document:
            return
        if (known.title, known.sentences) != (document.title, document.sentences):
            raise place.error(
                f"document id {document.id!r} stands for other words at {known.source}; give each document an id of its own"
            )
        report.repeated_documents += 1
        report.add(place, f"document {document.id!r} was left out: the same as {known.source}")


def _read_queries(
    files: BeirFiles, judged: dict[str, dict[str, _Judgement]], report: QuestionReport
) -> dict[str, _Query]:
    """Read the questions that are judged, by their ids."""
    queries: dict[str, _Query] = {}
    for place, row in json_rows(files.queries):
        id = _check_id(row, place, "question")
        if id not in judged:
            continue
        text = text_of(row, "text", place, remedy="give the question words, or remove its judgements")
        query = _Query(text, _answers(row, place), place)
        known = queries.setdefault(id, query)
        if known is query:
            continue
        if (known.text, known.answers) != (query.text, query.answers):
            raise place.error(f"question id {id!r} also stands at {known.place}; give each question an id of its own")
        report.left_out += 1
        report.add(place, f"left out: the same question as {known.place}")
    for id, documents in judged.items():
        if id not in queries:
            report.left_out += 1
            first = next(iter(documents.values()))
            report.add(first.place, f"left out: the question {id!r} is not in {files.queries.name}")
    if not queries:
        raise DataError(
            f"judges none of the questions of {files.queries.name}; take both from one data set", path=files.judgements
        )
    return queries


def _answers(row: Row, place: Place) -> tuple[str, ...]:
    """Return the gold answers that a question's metadata have, as those of HotpotQA do."""
    metadata = row.get("metadata")
    if not isinstance(metadata, dict | None):
        raise place.error(wrong_type("metadata", metadata, "an object"))
    return tuple(dict.fromkeys(filter(None, map(clean_text, gold_answers(metadata or {}, place)))))


def _check_id(row: Row, place: Place, what: str) -> str:
    id = id_of(row, place, "_id")
    if not id:
        raise place.error(f"no `_id`, which each {what} of a BEIR data set must have; add it")
    return id


def _folder(path: Path) -> Path | None:
    """Return the folder of the data set that a path is of; None if it is of none."""
    if path.is_dir():
        folder = path
    elif path.parent.name == "qrels":
        folder = path.parent.parent
    else:
        return None
    return folder if _present(folder / "corpus.jsonl") else None


def _present(path: Path) -> Path | None:
    """Return the file, or its compressed form; None if neither is there."""
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
