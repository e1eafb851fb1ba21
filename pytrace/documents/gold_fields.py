"""The gold part of a row: answers, reasoning paths and topic entities, under the names that data sets give them."""

from __future__ import annotations

from typing import NamedTuple

from pytrace.documents.rows import Row, wrong_type
from pytrace.documents.text_files import Place
from pytrace.records import Triple

ANSWER_FIELDS = ("answers", "answer", "golden_answers", "gold_answers")
PATH_FIELDS = ("gold_paths", "ground_truth_paths", "paths")
TOPIC_FIELDS = ("topics", "topic_entities", "topic")


class Gold(NamedTuple):
    """What is known to be right of a question; each empty where the row does not say."""

    answers: tuple[str, ...]
    paths: tuple[tuple[Triple, ...], ...]
    topics: tuple[str, ...]


def gold_fields(row: Row, place: Place) -> Gold:
    """Read the gold part of a row."""
    return Gold(gold_answers(row, place), _paths(row, place), _texts(row, TOPIC_FIELDS, place))


def gold_answers(row: Row, place: Place) -> tuple[str, ...]:
    """Read the gold answers of a row, as `gold_fields` does, whatever else it holds."""
    return _texts(row, ANSWER_FIELDS, place)


def _first(row: Row, fields: tuple[str, ...]) -> str | None:
    return next((field for field in fields if row.get(field) is not None), None)


def _texts(row: Row, fields: tuple[str, ...], place: Place) -> tuple[str, ...]:
    field = _first(row, fields)
    if field is None:
        return ()
    values = [row[field]] if isinstance(row[field], str) else row[field]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise place.error(wrong_type(field, row[field], "a string or a list of strings"))
    return tuple(value for value in values if value.strip())


def _paths(row: Row, place: Place) -> tuple[tuple[Triple, ...], ...]:
    field = _first(row, PATH_FIELDS)
    if field is None:
        return ()
    paths = row[field]
    if not isinstance(paths, list) or not all(isinstance(path, list) for path in paths):
        raise place.error(wrong_type(field, paths, "a list of paths, each a list of [head, relation, tail]"))
    return tuple(
        tuple(_triple(part, f"{field}[{number}][{step}]", place) for step, part in enumerate(path))
        for number, path in enumerate(paths)
        if path
    )


def _triple(part: object, name: str, place: Place) -> Triple:
    if not isinstance(part, list) or len(part) != 3 or not all(isinstance(text, str) and text.strip() for text in part):
        raise place.error(wrong_type(name, part, "[head, relation, tail], three strings that are not empty"))
    return Triple(*part)
