"""Rows of PathQuestion: questions of tokens with their answers and the gold path that leads to them.

Source: Zhou et al., "An Interpretable Reasoning Network for Multi-Relation Question Answering" (COLING 2018).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pytrace.documents.text_files import Place, lines_of, open_file, peek_text
from pytrace.records import Triple

_END = "<end>"


class PathQuestion(msgspec.Struct, frozen=True):
    """A row: the question as people write it, the answers' keys (that of the path first), and the gold path by keys."""

    id: str
    question: str
    answers: tuple[str, ...]
    path: tuple[Triple, ...]


def looks_like_path_questions(path: Path) -> bool:
    """Say whether a file begins with a row of columns, which no line of JSON does."""
    with open_file(path) as stream:
        first = peek_text(stream, path).partition(b"\n")[0]
    return b"\t" in first and not first.startswith((b"{", b"["))


def read_path_questions(path: Path) -> Iterator[tuple[Place, PathQuestion]]:
    """Read the rows of a file one at a time, with their places."""
    with open_file(path) as stream:
        peek_text(stream, path)
        for number, line in lines_of(stream, path):
            place = Place(path, number)
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise place.error(
                    f"byte {error.start + 1} of the line is not UTF-8; convert the file to UTF-8"
                ) from error
            if text:
                yield place, parse_path_question(text, place)


def parse_path_question(text: str, place: Place) -> PathQuestion:
    """Read one row."""
    columns = text.split("\t")
    if len(columns) != 3:
        raise place.error(
            f"{len(columns)} columns where question, answers and path are wanted; put one tab between them"
        )
    question, listed, steps = (column.strip() for column in columns)
    parts = steps.split("#")
    if len(parts) < 5 or len(parts) % 2 == 0 or parts[-2] != _END or parts[-1] != parts[-3] or not all(parts):
        raise place.error(
            f"the path {steps[:80]!a} is not of the form head#relation#…#answer#{_END}#answer, none of them empty; correct it"
        )
    answer = parts[-1]
    others = listed.removeprefix(answer).removeprefix("(").removesuffix(")").split("/")
    if not question or not listed.startswith(f"{answer}(") or not listed.endswith("/)"):
        raise place.error(
            f"the answers {listed[:80]!a} of the question {question[:40]!a} are not of the form {answer[:40]}({answer[:40]}/…/), "
            "with the answer that the path ends at; correct them"
        )
    return PathQuestion(
        f"{place.path.stem}:{place.line}",
        _joined(question),
        tuple(dict.fromkeys((answer, *filter(None, others)))),
        tuple(Triple(parts[index], parts[index + 1], parts[index + 2]) for index in range(0, len(parts) - 3, 2)),
    )


def _joined(question: str) -> str:
    """Write a question of tokens as people do."""
    words = " ".join(question.replace("_", " ").split())
    return re.sub(r" (?='s\b|[?.!,])", "", words)
