"""Rows of data sets with shapes of their own, brought into ours: TriviaQA, WebQuestions, GrailQA, ComplexWebQuestions, FlashRAG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytrace.documents.json_rows import Place, read_text
from pytrace.documents.rows import Row, objects, strings, wrong_type
from pytrace.errors import DataError

# (description "a name") or (description name), one after the other.
_DESCRIPTION = re.compile(r'\(description (?:"((?:[^"\\]|\\.)*)"|([^()"]+))\)')
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
    kept = {name: value for name, value in (metadata or {}).items() if name in _METADATA and value is not None}
    return {**kept, "id": row.get("id"), "question": row.get("question"), "answers": row["golden_answers"]}


_METADATA = frozenset(
    {"type", "context", "paragraphs", "supporting_facts", "evidences", "answerable", "answer_aliases"}
)


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
        name = raw if raw in row else table
        if row.get(name) is None:
            continue
        for item in objects(row, name, place):
            text = item.get(text_field)
            if text is None:
                text = _evidence_text(item.get("Filename", item.get("filename")), folder, place)
            if text is not None:
                title = (
                    item.get("Title", item.get("title"))
                    or item.get("Filename", item.get("filename"))
                    or item.get("url")
                )
                yield {"title": title, "text": text}


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
