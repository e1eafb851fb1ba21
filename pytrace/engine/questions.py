"""Which inputs are questions, and questions read from files."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from pytrace.documents.text_files import read_text
from pytrace.errors import DataError
from pytrace.retrieval.bm25 import words
from pytrace.storage.foreign_json import decode_json

NOT_A_QUESTION = "That is not a question; ask something about the documents."


@cache
def _pleasantries() -> tuple[frozenset[str], frozenset[str]]:
    """Return words that greet, thank or agree, and words that go with them, of several languages."""
    content = resources.files(__package__).joinpath("pleasantries.json").read_bytes()
    listed = msgspec.json.decode(content, type=dict[str, list[str]])
    greeting = {word for phrase in listed["greeting"] for word in words(phrase)}
    return frozenset(greeting), frozenset(word for phrase in listed["accompanying"] for word in words(phrase))


def is_question(text: str) -> bool:
    """Return False for a text that only greets, thanks, agrees or has no word at all.

    Examples
    --------
    >>> [is_question(text) for text in ("Hello", "Thanks a lot!", "Who was Ada?", "WebSocket support", "???")]
    [False, False, True, True, False]
    """
    found = words(text)
    if not found or (len(found) > 2 and text.rstrip().endswith(("?", "？", "؟"))):
        return bool(found)
    greeting, accompanying = _pleasantries()
    return not (greeting.intersection(found) and (greeting | accompanying).issuperset(found))


def read_questions(path: Path) -> list[str]:
    """Read questions: one per line, or the field `question` of each row of JSON Lines (`.jsonl`).

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
            raise DataError(
                f'the row has no "question" ({error}); give each line one', path=path, line=number
            ) from None
        if not text.strip():
            raise DataError("the question is empty; ask something", path=path, line=number)
        questions.append(text.strip())
    if not questions:
        raise DataError("holds no question; write one per line", path=path)
    return questions


class _QuestionRow(msgspec.Struct):
    question: str
