"""Read questions whose queries are known: from PathQuestion, from LC-QuAD, or from rows of one's own.

A row of one's own is a JSON object ``{"question", "query", "answers"?, "group"?, "id"?}``, as `write_questions` writes it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from pytrace.documents.json_rows import Place, json_rows
from pytrace.documents.path_questions import looks_like_path_questions, read_path_questions
from pytrace.documents.rows import id_of, strings, wrong_type
from pytrace.documents.sentences import clean_text
from pytrace.errors import DataError, InputError
from pytrace.kg.queries import Query, QueryForm, parse_query, sparql_form
from pytrace.training.clauses import one_line, query_entities, query_shape
from pytrace.training.lcquad import lcquad_example, triplet_form
from pytrace.training.path_examples import path_example
from pytrace.training.query_checks import check_query
from pytrace.training.query_mentions import mention_texts
from pytrace.training.training_records import QueryExample

ExampleFormat = Literal["auto", "pathquestion", "lcquad", "pytrace"]
"""What `read_examples` reads."""

_LISTED = 1_000
_LEFT_OUT = ": left out: "


class ExampleReport(msgspec.Struct):
    """What `read_examples` met on its way.

    `left_out` counts the rows that make no example, since their query could not be run or does not fit the form; `notes` says
    of the first thousand where they stand and why. `shapes` counts the examples by `query_shape`.
    """

    left_out: int = 0
    notes: list[str] = []
    shapes: dict[str, int] = {}

    def leave_out(self, place: Place, reason: str) -> None:
        """Count a row that makes no example."""
        self.left_out += 1
        if len(self.notes) < _LISTED:
            self.notes.append(f"{place}{_LEFT_OUT}{reason}")


def read_examples(
    source: str | os.PathLike[str],
    *,
    format: ExampleFormat = "auto",
    form: QueryForm = "sparql",
    report: ExampleReport | None = None,
) -> list[QueryExample]:
    """Read the questions of a file with their queries."""
    # Chain of Knowledge, section 4.2, trains on LC-QuAD and KQA Pro; PathQuestion is of Zhou et al. (2018).
    for name, value, choices in (("format", format, get_args(ExampleFormat)), ("form", form, get_args(QueryForm))):
        if value not in choices:
            raise InputError(f"{name} {value!r} is unknown; choose one of {', '.join(choices)}")
    path = Path(source)
    report = ExampleReport() if report is None else report
    by_columns = format == "pathquestion" or (format == "auto" and looks_like_path_questions(path))
    rows = _path_rows(path, form, report) if by_columns else _json_rows(path, format, form, report)
    examples: dict[str, tuple[Place, QueryExample]] = {}
    for place, example in rows:
        known = examples.setdefault(example.id, (place, example))
        if known[0] is not place:
            raise place.error(
                f"the id {example.id[:80]!a} also stands at {known[0]}; give each question an id of its own"
            )
    found = [example for _, example in examples.values()]
    if not found:
        first = report.notes[0].partition(_LEFT_OUT)[2].rpartition(";")[0] if report.notes else ""
        reason = f", for {report.left_out:,} rows were left out, the first because {first}" if first else ""
        remedy = "use the form sparql" if form == "triplet" and first else "give rows with questions and queries"
        raise DataError(f"holds no example of the form {form}{reason}; {remedy}", path=path)
    report.shapes = dict(Counter(query_shape(example.query) for example in found).most_common())
    return found


def _path_rows(path: Path, form: QueryForm, report: ExampleReport) -> Iterator[tuple[Place, QueryExample]]:
    for place, row in read_path_questions(path):
        try:
            example = path_example(row, form=form)
        except InputError as error:
            report.leave_out(place, str(error))
            continue
        yield place, example


def _json_rows(
    path: Path, format: ExampleFormat, form: QueryForm, report: ExampleReport
) -> Iterator[tuple[Place, QueryExample]]:
    for place, row in json_rows(path):
        if format == "auto":
            format = _format_of(row, place)
        if format == "pytrace":
            example = _own_example(row, place, form, report)
        else:
            try:
                example = lcquad_example(row, place, form=form)
            except DataError:
                raise
            except InputError as error:
                report.leave_out(place, str(error))
                continue
        if example is not None:
            yield place, example


def _format_of(row: dict[str, Any], place: Place) -> ExampleFormat:
    if "sparql_query" in row:
        return "lcquad"
    if "query" in row:
        return "pytrace"
    fields = ", ".join(clean_text(name)[:20] for name in list(row)[:6]) or "none"
    raise place.error(
        f"the format of this file is not known (fields: {fields}); a row has `question` and `query`, or LC-QuAD's "
        "`corrected_question` and `sparql_query`"
    )


def _own_example(row: dict[str, Any], place: Place, form: QueryForm, report: ExampleReport) -> QueryExample | None:
    texts: dict[str, str] = {}
    for field in ("question", "query", "group"):
        value = row.get(field, "" if field == "group" else None)
        if not isinstance(value, str):
            raise place.error(wrong_type(field, value, "a string"))
        texts[field] = value
        if field != "group" and not value.strip():
            raise place.error(f"`{field}` is empty; give it words, or remove the row")
    question = clean_text(texts["question"])
    if not question:
        raise place.error("`question` has no words; give it some, or remove the row")
    try:
        query: Query = parse_query(one_line(texts["query"]))
        check_query(query)
    except InputError as error:
        raise place.error(str(error)) from None
    try:
        query = triplet_form(query) if form == "triplet" else sparql_form(query)
    except InputError as error:
        report.leave_out(place, str(error))
        return None
    return QueryExample(
        id_of(row, place, "id", "_id") or f"{place.path.stem}:{place.line or place.item or 0}",
        question,
        query,
        texts["group"] or " | ".join(sorted(query_entities(query))) or question,
        _answers(row, place),
        mention_texts(question, query),
    )


def _answers(row: dict[str, Any], place: Place) -> tuple[str, ...]:
    value = row.get("answers")
    if value is None:
        return ()
    given = [value] if isinstance(value, str) else strings(value, "answers", place)
    return tuple(dict.fromkeys(filter(None, map(clean_text, given))))
