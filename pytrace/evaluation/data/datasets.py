"""Read questions with gold answers from the data sets of the field, and from rows of our own."""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import msgspec

from pytrace.documents.gold_fields import gold_fields
from pytrace.documents.json_rows import json_rows
from pytrace.documents.languages import check_language
from pytrace.documents.path_questions import looks_like_path_questions, read_path_questions
from pytrace.documents.rows import (
    Built,
    Identities,
    Row,
    build_document,
    id_of,
    item_lists,
    make_document,
    objects,
    paragraphs_of,
    strings,
    wrong_type,
)
from pytrace.documents.sentences import clean_text
from pytrace.documents.text_files import Place
from pytrace.errors import DataError, InputError
from pytrace.evaluation.data.beir import POOL, beir_settings, is_beir, read_beir
from pytrace.evaluation.data.dataset_adapters import DataFormat, format_of, in_our_shape, text_of
from pytrace.evaluation.data.question_report import QuestionReport
from pytrace.evaluation.run.run_store import file_settings
from pytrace.reader.claims import LABELS
from pytrace.records import Document, Perturbation, Question, Triple

CLAIM = "claim"
"""The kind of a question that is a claim to be judged, with a label as its answer."""


def read_questions(
    path: str | os.PathLike[str],
    *,
    format: DataFormat = "auto",
    limit: int | None = None,
    language: str | None = None,
    report: QuestionReport | None = None,
    pool: int | None = None,
) -> Iterator[Question]:
    """Read the questions of a data set, with documents, gold answers and gold supporting facts.

    `pytrace.evaluation.data.dataset_adapters.SHAPES` lists the formats, each as published and as copies in tables (such as
    Hugging Face's) have it; our own rows are objects with `question`, `answers` (or `answer`), and where wanted `id`,
    `documents` (each with `title`, `text` or `sentences`, `id`, `supporting`), `supporting_facts` as [title or id, sentence
    index], `triples`, `type`, `gold` (ids of the supporting documents in an index, in place of `documents`), and
    the `perturbation` that `pytrace perturb` writes. All but PathQuestion's and BEIR's may be JSON Lines, read one at a time, or one JSON list.

    A document's id is made of its title and content, so it is the same in every question and file; a paragraph that
    stands twice in a question is given once. Supporting facts name a title. Where several paragraphs of a question
    have it, all that have the sentence count as supporting, for the data set says no more. Texts are split into sentences as
    `read_documents` does it, each in the language that is detected or in the one given.
    """
    check_language(language)
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; ask for at least 1 question, or for all with None")
    if format not in get_args(DataFormat):
        raise InputError(f"format {format!r} is unknown; choose one of {', '.join(get_args(DataFormat))}")
    if pool is not None and pool < 1:
        raise InputError(f"pool is {pool}; give each question at least 1 document of the corpus")
    path, report = Path(path), report if report is not None else QuestionReport()
    if format == "beir" or (format == "auto" and (is_beir(path) or path.is_dir())):
        rows = read_beir(path, pool=pool or POOL, language=language, report=report)
    elif pool is not None:
        raise InputError(f"a pool of {pool} documents is of a corpus, and {path} is no BEIR folder; leave it out")
    elif format == "pathquestion" or (format == "auto" and looks_like_path_questions(path)):
        rows = _read_columns(path)
    else:
        rows = _read_json(path, format, language, report)
    return itertools.islice(_distinct(rows, path, report), limit)


def data_settings(path: str | os.PathLike[str], *, pool: int | None = None) -> dict[str, Any]:
    """Describe data for the settings of a run, by the content of its file, or of its files and the pool where it is BEIR's."""
    path = Path(path)
    return {**beir_settings(path), "pool": pool or POOL} if is_beir(path) or path.is_dir() else file_settings(path)


def _distinct(rows: Iterable[tuple[Place, Question]], path: Path, report: QuestionReport) -> Iterator[Question]:
    questions: dict[str, tuple[str, Place]] = {}
    for place, question in rows:
        digest = _made_id(question.question, question.answers, question.documents)
        known = questions.setdefault(question.id, (digest, place))
        if known[1] is not place:
            if known[0] != digest:
                raise place.error(
                    f"question id {question.id!r} also stands at {known[1]}; give each question an id of its own"
                )
            report.left_out += 1
            report.add(place, f"left out: the same question as {known[1]}")
            continue
        report.questions += 1
        yield question
    if not report.questions:
        raise DataError("holds no question; give JSON Lines or a JSON list of questions", path=path)


def _read_columns(path: Path) -> Iterator[tuple[Place, Question]]:
    for place, row in read_path_questions(path):
        answers = (clean_text(answer.replace("_", " ")) for answer in row.answers)
        yield (
            place,
            Question(
                id=row.id,
                question=row.question,
                answers=tuple(dict.fromkeys(filter(None, answers))) or row.answers,
                triples=row.path,
                kind=f"{len(row.path)}hop",
            ),
        )


def _read_json(
    path: Path, format: DataFormat, language: str | None, report: QuestionReport
) -> Iterator[tuple[Place, Question]]:
    documents = Identities()
    for place, row in _items(path):
        if format == "auto":
            format = format_of(row, place)  # the first row's is that of all
        common = in_our_shape(row, format, place)
        if common.get("answerable") is False:
            report.left_out += 1
            report.add(place, "left out: it is marked as not answerable")
            continue
        reader = _QuestionReader(common, place, language, report, documents)
        yield place, reader.read_claim() if format == "fever" else reader.read()


def _items(path: Path) -> Iterator[tuple[Place, Row]]:
    """Read the rows of a file, and those of the list `Data` that TriviaQA's files hold."""
    for place, row in json_rows(path):
        if "Data" not in row or "Domain" not in row:
            yield place, row
            continue
        for number, item in enumerate(objects(row, "Data", place), start=1):
            yield Place(path, item=number), item


@dataclass
class _QuestionReader:
    """Reads one row; holds what all parts of it need."""

    row: Row
    place: Place
    language: str | None
    report: QuestionReport
    identities: Identities
    built: list[Built] = field(default_factory=list)
    # Dictionaries for sets that keep their order.
    supporting: dict[str, None] = field(default_factory=dict)
    facts: dict[tuple[str, int], None] = field(default_factory=dict)

    def read(self) -> Question:
        text = self._text("question")
        self._gold_ids()
        answers = self._answers()
        self._documents()
        self._supporting_facts()
        documents = tuple(built.document for built in self.built)
        return Question(
            id=id_of(self.row, self.place, "_id", "id") or _made_id(text, answers, documents),
            question=text,
            answers=answers,
            documents=documents,
            supporting_documents=tuple(self.supporting),
            supporting_facts=tuple(self.facts),
            triples=tuple(self._triples()),
            kind=self._kind(),
            perturbation=self._perturbation(),
        )

    def read_claim(self) -> Question:
        """Read a row of FEVER; what is its evidence there are places in a Wikipedia that is not here."""
        claim, label = self._text("claim"), self._text("label")
        if label not in LABELS:
            raise self.place.error(
                f"the label {label[:40]!a} is none of {', '.join(LABELS)}; correct it, or use the labelled split"
            )
        return Question(
            id=id_of(self.row, self.place, "id", "_id") or _made_id(claim, (label,), ()),
            question=claim,
            answers=(label,),
            kind=CLAIM,
        )

    def _gold_ids(self) -> None:
        """Read which documents of a corpus support the answer, where a row names them by id and has none of its own."""
        if "gold" in self.row and not {"paragraphs", "context", "documents"} & self.row.keys():
            self.supporting.update(dict.fromkeys(strings(self.row["gold"] or [], "gold", self.place)))

    def _text(self, name: str) -> str:
        return text_of(self.row, name, self.place, remedy="give it words, or remove the row")

    def _answers(self) -> tuple[str, ...]:
        given: list[str] = []
        for name in ("answer", "answers", "answer_aliases", "aliases"):
            value = self.row.get(name)
            if not isinstance(value, str | list | None):
                raise self.place.error(wrong_type(name, value, "a string or a list of strings"))
            given += [value] if isinstance(value, str) else strings(value or [], name, self.place)
        answers = tuple(dict.fromkeys(filter(None, map(clean_text, given))))
        # A question of a corpus may measure which of its documents are found, and no more.
        if not answers and not self.supporting:
            raise self.place.error(
                "no gold answer, so nothing can be scored; add `answer` or `answers`, or use the labelled split"
            )
        return answers

    def _documents(self) -> None:
        if not {"paragraphs", "context", "documents"} & self.row.keys():
            return
        known: dict[str, Document] = {}
        for paragraph in paragraphs_of(self.row, self.place):
            built = build_document(paragraph, language=self.language)
            if built is None:
                self.report.empty_documents += 1
                self.report.add(self.place, f"document {paragraph.title!r} has no text and was left out")
                continue
            document = built.document
            if paragraph.supporting:
                self.supporting[document.id] = None
            if document.id in known and known[document.id].content_hash == document.content_hash:
                self.report.repeated_documents += 1
                self.report.add(self.place, f"document {paragraph.title!r} stands twice and is given once")
                continue
            if paragraph.id:
                self.identities.first_place(document, self.place)
            known[document.id] = document
            self.built.append(built)

    def _lists(self, name: str, parts: Sequence[str], expected: str) -> list[Any]:
        """Return a field whose items are lists, or in a copy in a table objects of these parts; empty if it is not there."""
        if self.row.get(name) is None:
            return []
        items = item_lists(self.row, name, [(part,) for part in parts], self.place)
        if not isinstance(items, list):
            raise self.place.error(wrong_type(name, items, f"a list of {expected}"))
        return items

    def _supporting_facts(self) -> None:
        if self.supporting and not self.built:
            return  # sentences of an index's documents, which are cut into passages there
        facts = self._lists("supporting_facts", ("title", "sent_id"), "[title, sentence index]")
        for number, fact in enumerate(facts):
            match fact:
                case [str(title), int(index)] if not isinstance(index, bool):
                    self._resolve(clean_text(title), index)
                case _:
                    expected = "a pair [title, sentence index]"
                    raise self.place.error(wrong_type(f"supporting_facts[{number}]", fact, expected))

    def _resolve(self, title: str, index: int) -> None:
        named = [built for built in self.built if title in (built.document.title, built.document.id)]
        # Some data sets escape titles in one of the two places, or write them in another case.
        named = named or [built for built in self.built if _plain(built.document.title) == _plain(title)]
        with_sentence = [built for built in named if 0 <= index < len(built.indices) and built.indices[index] >= 0]
        if not with_sentence:
            self.report.unresolved_facts += 1
            what = f"has no sentence {index}" if named else "is not among the documents"
            self.report.add(self.place, f"supporting fact: {title!r} {what}")
        if len(named) > 1:
            self.report.ambiguous_facts += 1
            self.report.add(self.place, f"supporting fact: {len(named)} documents are titled {title!r}")
        self.supporting.update((built.document.id, None) for built in with_sentence or named)
        self.facts.update(((built.document.id, built.indices[index]), None) for built in with_sentence)

    def _triples(self) -> Iterator[Triple]:
        ids = {built.document.title: built.document.id for built in self.built}
        for name in ("evidences", "triples"):
            items = self._lists(name, ("fact", "relation", "entity"), "[head, relation, tail]")
            for number, item in enumerate(items):
                parts = strings(item, f"{name}[{number}]", self.place)
                if len(parts) != 3:
                    raise self.place.error(wrong_type(f"{name}[{number}]", item, "[head, relation, tail]"))
                head, relation, tail = map(clean_text, parts)
                yield Triple(head, relation, tail, document_id=ids.get(head, ""))
        yield from next(iter(gold_fields(self.row, self.place).paths), ())

    def _kind(self) -> str:
        kind = self.row.get("type", self.row.get("kind", ""))
        if not isinstance(kind, str):
            raise self.place.error(wrong_type("type", kind, "a string"))
        id = self.row.get("id")
        if not kind and "paragraphs" in self.row and isinstance(id, str) and "__" in id:
            kind = id.split("__")[0]  # MuSiQue: 2hop__…, 3hop1__…
        return clean_text(kind)

    def _perturbation(self) -> Perturbation | None:
        value = self.row.get("perturbation")
        if value is None:
            return None
        try:
            change = msgspec.convert(value, Perturbation)
        except msgspec.ValidationError as error:
            raise self.place.error(
                f"`perturbation` is none that 'pytrace perturb' writes ({error}); make the file anew, or remove the field"
            ) from None
        if not (0 <= change.ratio < 1 and 0 <= change.measured <= 1):  # NaN is in neither range
            raise self.place.error(
                f"`perturbation` has the ratio {change.ratio} and measured {change.measured}; a share of the characters lies "
                "from 0 to below 1, so make the file anew"
            )
        return change


def _plain(title: str) -> str:
    return clean_text(html.unescape(title)).casefold()


def _made_id(question: str, answers: tuple[str, ...], documents: tuple[Document, ...]) -> str:
    content = (*answers, *(document.id for document in documents))
    return make_document(question, content, source="").id
