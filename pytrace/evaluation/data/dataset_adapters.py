"""The formats of data sets, a table: how their rows are known, what they must have, and how they are brought into our shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytrace.documents.rows import Row, objects, strings, wrong_type
from pytrace.documents.sentences import clean_text
from pytrace.documents.text_files import Place, read_text
from pytrace.errors import DataError

DataFormat = Literal[
    "auto", "hotpotqa", "2wikimultihopqa", "musique", "triviaqa", "webquestions", "nq-open", "grailqa", "complexwebquestions",
    "pathquestion", "fever", "flashrag", "beir", "pytrace",
]  # fmt: skip

# (description "a name") or (description name), one after the other.
_DESCRIPTION = re.compile(r'\(description (?:"((?:[^"\\]|\\.)*)"|([^()"]+))\)')
# Of FlashRAG's metadata, what our reader knows; its other fields name other things than ours.
_METADATA = frozenset(
    {"type", "context", "paragraphs", "supporting_facts", "evidences", "answerable", "answer_aliases"}
)
# What TriviaQA's tables say in place of an answer that is not given away.
_UNKNOWN = "<unk>"
_ESCAPED = re.compile(r"\\(.)")
# TriviaQA's pages, its search results, the folders of its evidence files, and where table-based copies hold their texts.
_PAGES = (("entity_pages", "EntityPages", "wikipedia", "wiki_context"), ("search_results", "SearchResults", "web", "search_context"))  # fmt: skip


def triviaqa_row(row: Row, place: Place) -> Row:
    """Read a row of TriviaQA, raw or from a table; every alias is a gold answer."""
    # Pages and search results become documents where their texts are at hand: in the row (tables), or in the folder
    # `evidence` beside the data file's folder or in it, as in TriviaQA's archive.
    raw = "Answer" in row
    answer = row.get("Answer" if raw else "answer")
    if not isinstance(answer, dict):
        raise place.error(wrong_type("Answer" if raw else "answer", answer, "an object with its value and aliases"))
    value, aliases = (answer.get(field) for field in (("Value", "Aliases") if raw else ("value", "aliases")))
    return {
        "id": row.get("QuestionId", row.get("question_id")),
        "question": row.get("Question", row.get("question")),
        "answer": None if value == _UNKNOWN else value,
        "aliases": aliases,
        "documents": list(_evidence(row, place)),
    }


def webquestions_row(row: Row, place: Place) -> Row:
    """Read a row of WebQuestions as it was published: the utterance, and answers as descriptions."""
    if "targetValue" not in row:  # a copy in a table
        return row
    target = row["targetValue"]
    if not isinstance(target, str):
        raise place.error(wrong_type("targetValue", target, "a string"))
    answers = [_ESCAPED.sub(r"\1", quoted) or bare.strip() for quoted, bare in _DESCRIPTION.findall(target)]
    if not answers:
        raise place.error(f'`targetValue` is {target[:60]!a}, and (list (description "…") …) was expected; correct it')
    return {"question": row["utterance"], "answers": answers}


def grailqa_row(row: Row, place: Place) -> Row:
    """Read a row of GrailQA or GraphQuestions; entities are called by their names, all else by its value."""
    answers = []
    for number, given in enumerate(_listed(row, "answer", place)):
        answer = given.get("entity_name") or given.get("answer_argument") if isinstance(given, dict) else given
        if not isinstance(answer, str):
            raise place.error(wrong_type(f"answer[{number}]", answer, "a string, or an object that names it"))
        answers.append(answer)
    return {
        **_paths(row),
        "id": row["qid"],
        "question": row.get("question"),
        "answers": answers,
        "type": row.get("level", ""),
    }


def complex_webquestions_row(row: Row, place: Place) -> Row:
    """Read a row of ComplexWebQuestions, raw or from a table; every alias is a gold answer."""
    table = isinstance(row["answers"], dict)
    answers: list[str] = []
    for number, item in enumerate(objects(row, "answers", place) if table else _listed(row, "answers", place)):
        field = f"answers[{number}]"
        if isinstance(item, dict):
            answers += [item["answer"]] if isinstance(item.get("answer"), str) else []
            answers += strings(item.get("aliases") or [], f"{field}.aliases", place)
        elif isinstance(item, str):
            answers.append(item)
        else:
            raise place.error(wrong_type(field, item, "a string, or an object with `answer` and `aliases`"))
    kind = row.get("compositionality_type", "")
    return {
        **_paths(row),
        "id": row["ID"],
        "question": row.get("question"),
        "answers": answers,
        "type": kind if isinstance(kind, str) else "",
    }


def flashrag_row(row: Row, place: Place) -> Row:
    """Read a row of FlashRAG: `golden_answers`, and in `metadata` what else its data set had, such as documents."""
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise place.error(wrong_type("metadata", metadata, "an object"))
    known = {name: value for name, value in (metadata or {}).items() if name in _METADATA and value is not None}
    return {**known, "id": row.get("id"), "question": row.get("question"), "answers": row["golden_answers"]}


def _paths(row: Row) -> Row:
    """Return the gold paths of a row, under the names that it has for them."""
    return {field: row[field] for field in ("gold_paths", "ground_truth_paths", "paths") if row.get(field) is not None}


def _listed(row: Row, field: str, place: Place) -> list[Any]:
    value = row.get(field)
    if not isinstance(value, list):
        raise place.error(wrong_type(field, value, "a list"))
    return value


def _evidence(row: Row, place: Place) -> Iterator[Row]:
    for table, raw, folder, text_field in _PAGES:
        field = raw if raw in row else table
        if row.get(field) is None:
            continue
        for item in objects(row, field, place):
            text = item.get(text_field)
            if text is None:
                text = _evidence_text(item.get("Filename", item.get("filename")), folder, place)
            if text is not None:
                name = item.get("Filename", item.get("filename"))
                yield {"title": item.get("Title", item.get("title")) or name or item.get("url"), "text": text}


def _evidence_text(name: object, folder: str, place: Place) -> str | None:
    """Read a file of TriviaQA's evidence; None where it is not at hand."""
    if not isinstance(name, str) or not name:
        return None
    for evidence in (place.path.parent.parent / "evidence" / folder, place.path.parent / "evidence" / folder):
        path = evidence / name
        # A name in a data file must not lead out of its folder.
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise DataError(
                f"the evidence file {name[:80]!a} lies outside of {evidence}; correct the row",
                path=place.path,
                line=place.line,
            )
        if path.is_file():
            return read_text(path)
    return None


class Shape(NamedTuple):
    """The rows of a format: what they must have (one field of each group), how they are known, and how they are rewritten."""

    required: tuple[tuple[str, ...], ...]
    known_by: Callable[[Row], bool]
    rewrite: Callable[[Row, Place], Row] | None = None


def _all_of(*fields: str) -> Callable[[Row], bool]:
    return lambda row: row.keys() >= set(fields)


# In the order in which rows are tried: fields that no other format has come first, those that many have last.
SHAPES: dict[DataFormat, Shape] = {
    "webquestions": Shape(
        (("utterance", "question"), ("targetValue", "answers")), _all_of("utterance", "targetValue"), webquestions_row
    ),
    # This one and the next have answers by their names and no documents; their gold path is the first of `gold_paths`,
    # `ground_truth_paths` and `paths`. GraphQuestions has rows like GrailQA's.
    "grailqa": Shape((("question",), ("qid",), ("answer",)), _all_of("qid", "question", "answer"), grailqa_row),
    "complexwebquestions": Shape(
        (("question",), ("ID",), ("answers",)),
        _all_of("ID", "question", "compositionality_type"),
        complex_webquestions_row,
    ),
    "flashrag": Shape((("question",), ("golden_answers",)), _all_of("golden_answers", "question"), flashrag_row),
    # Pages and search results become documents where their texts are in the row or in the archive's folder `evidence`.
    "triviaqa": Shape(
        (("Question", "question"), ("Answer", "answer")),
        lambda row: row.keys() >= {"Question", "Answer"} or isinstance(row.get("answer"), dict),
        triviaqa_row,
    ),
    # With aliases and supporting paragraphs.
    "musique": Shape((("question",), ("paragraphs",)), _all_of("paragraphs")),
    # Its evidence becomes `Question.triples`.
    "2wikimultihopqa": Shape((("question",), ("context",), ("evidences",)), _all_of("context", "evidences")),
    # Also its adversarial and IRCoT subsets.
    "hotpotqa": Shape((("question",), ("context",)), _all_of("context")),
    # The claim is the question and the label its answer; `evidence` names places in a Wikipedia that is not here.
    "fever": Shape((("claim",), ("label",)), lambda row: "claim" in row and "question" not in row),
    "pytrace": Shape(
        (("question",),), lambda row: "question" in row and bool({"documents", "answers", "answer"} & row.keys())
    ),
    # Its rows are read as ours are; the name is for those who know what they have.
    "nq-open": Shape((("question",), ("answer",)), lambda _: False),
}


def format_of(row: Row, place: Place) -> DataFormat:
    """Tell which format a row has."""
    for name, shape in SHAPES.items():
        if shape.known_by(row):
            return name
    fields = ", ".join(clean_text(name)[:20] for name in list(row)[:6]) or "none"
    raise place.error(
        f"the format of this file is not known (fields: {fields}); a question has `question`, `answers` and "
        "`documents`, a claim `claim` and `label`, or the fields of HotpotQA, 2WikiMultiHopQA or MuSiQue"
    )


def in_our_shape(row: Row, format: DataFormat, place: Place) -> Row:
    """Check what a row must have, and bring it into the shape of ours."""
    shape = SHAPES[format]
    missing = [fields for fields in shape.required if not row.keys() & set(fields)]
    if missing:
        wanted = " or ".join(f"`{field}`" for field in missing[0])
        raise place.error(f"no {wanted}, which a {format} row must have; add it, or choose another format")
    return shape.rewrite(row, place) if shape.rewrite else row


def text_of(row: Row, field: str, place: Place, *, remedy: str) -> str:
    """Read a field that must be a text with words."""
    value = row.get(field)
    if not isinstance(value, str):
        raise place.error(wrong_type(field, value, "a string"))
    cleaned = clean_text(value)
    if not cleaned:
        raise place.error(f"`{field}` is empty; {remedy}")
    return cleaned
