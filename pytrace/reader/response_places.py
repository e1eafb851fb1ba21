"""What a response states, in the places where it states it: all else is blank."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytrace.reader.markdown import (
    ANSWER_TAG,
    BULLET,
    CITATION,
    CODE,
    EMPHASIS,
    FENCE,
    HEADING,
    HTML,
    ITEM,
    LINK,
    MARKS,
    NUMBER_CELL,
    PROSE,
    QUOTE,
    RULE,
    SPECIAL_TOKEN,
    TABLE_RULE,
)
from pytrace.reader.responses import json_response
from pytrace.reader.thinking import thinking_spans

Place = tuple[int, int]

_ROW = re.compile(r"^[ \t]*\|[^\n]*$", re.MULTILINE)
# A line of bold words above others is their title.
_TITLE = re.compile(
    rf"^[ \t]*(?:(?:{BULLET}|\d{{1,3}}[.)])[ \t]+)?(?:\*\*|__)[^*_\n]{{0,200}}[^*_\n.!?。！？](?:\*\*|__)[:：]?[ \t]*$(?=\s*\S)",
    re.MULTILINE,
)
_FIRST_CELL = re.compile(rf"[ \t]*\|[ \t]*(?:{NUMBER_CELL.pattern})[ \t]*(?=\|)", re.IGNORECASE)
# Where only places count: commands with their braces, and the signs around formulas.
_LATEX = re.compile(r"\$*\\(?:[A-Za-z]+[ \t]*\{?|[()\[\],;! ])|\{|\}+\$*")
_KEY = re.compile(r'"(?:[^"\\\n]|\\.){0,200}"\s*:')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NOT_BREAK = re.compile(r"[^\n]")


def blanked(text: str) -> str:
    """Return a response of the same length in which what is no statement is blank, so that places in it are places in the response.

    Thinking, special tokens, code, headings, citations, Markdown's and LaTeX's marks and JSON's keys and signs become spaces; items of
    lists, rows of tables and headings begin with a blank line, so that each is a sentence of its own.

    Examples
    --------
    >>> blanked("<think>?</think> **Corfu** is in Greece [1].")
    '                   Corfu   is in Greece    .'
    """
    text = _blank(text, thinking_spans(text))
    if json_response(text) is not None:
        return _blank_json(text)
    if not MARKS.search(text) and not ITEM.search(text):
        return text
    for pattern in (SPECIAL_TOKEN, ANSWER_TAG, HTML, CITATION):
        text = _blank(text, (found.span() for found in pattern.finditer(text)))
    text = _blank(text, _around_fences(text))
    text = _blank_tables(text)
    for pattern in (RULE, TABLE_RULE, _TITLE, QUOTE):
        text = _blank(text, (found.span() for found in pattern.finditer(text)))
    # A heading is none but for its end.
    headings = [
        (found.start(), found.start("heading") if found["heading"][-1:] in ".!?。！？" else found.end())
        for found in HEADING.finditer(text)
    ]
    text = _blank(text, headings, apart=True)
    text = _blank(text, (found.span() for found in ITEM.finditer(text)), apart=True)
    if "\\" in text:
        text = _blank(text, (found.span() for found in _LATEX.finditer(text)))
    for pattern in (LINK, CODE, EMPHASIS, EMPHASIS, EMPHASIS):  # marks within marks
        text = _blank(text, _around_groups(pattern, text))
    return text


def _blank(text: str, spans: Iterable[Place], *, apart: bool = False) -> str:
    """Put spaces for stretches of a text, but for their line breaks; where they are to stand apart, a line break for the first."""
    parts = []
    last = 0
    for start, end in spans:
        if start < last or end <= start:
            continue
        blank = _NOT_BREAK.sub(" ", text[start:end])
        parts += [text[last:start], f"\n{blank[1:]}" if apart else blank]
        last = end
    return "".join([*parts, text[last:]])


def _around_groups(pattern: re.Pattern[str], text: str) -> Iterable[Place]:
    """Return where the marks are before and behind what a pattern has a group for."""
    for found in pattern.finditer(text):
        name = next(name for name in pattern.groupindex if name != "mark" and found[name] is not None)
        yield found.start(), found.start(name)
        yield found.end(name), found.end()


def _around_fences(text: str) -> Iterable[Place]:
    """Return where the fences of code are, with the code itself unless it is prose."""
    for found in FENCE.finditer(text):
        kept = found.span(2) if found[1].lower() in PROSE else (found.end(), found.end())
        yield found.start(), kept[0]
        yield kept[1], found.end()


def _blank_tables(text: str) -> str:
    """Blank the heads of tables, the numbers of their rows, and what parts their cells."""
    rows = list(_ROW.finditer(text))
    heads = [row.span() for row in rows if TABLE_RULE.match(text, row.end() + 1)]
    numbers = (_FIRST_CELL.match(text, *row.span()) for row in rows)
    text = _blank(text, sorted({*heads, *(found.span() for found in numbers if found is not None)}))
    bars = [(place, place + 1) for row in rows for place in range(*row.span()) if text[place] == "|"]
    text = _blank(text, bars)
    return _blank(text, ((row.start(), row.start() + 1) for row in rows if text[row.start()] == " "), apart=True)


def _blank_json(text: str) -> str:
    """Leave of JSON the texts that its fields and lists hold, each in lines of its own."""
    ends = dict(found.span() for found in _KEY.finditer(text))
    parts = []
    last = at = 0
    while found := _STRING.search(text, at):
        at = ends.get(found.start(), found.end())
        if at == found.end():
            parts += [_NOT_BREAK.sub(" ", text[last : found.start()]), "\n", _ESCAPE.sub(_unescaped, found[1]), "\n"]
            last = found.end()
    return "".join([*parts, _NOT_BREAK.sub(" ", text[last:])])


def _unescaped(escape: re.Match[str]) -> str:
    """Return what a JSON string's escape says, as long as it is itself where it is but a sign."""
    sign = escape[0][1]
    return "\n " if sign == "n" else "  " if sign in "trbf" else f" {escape[0][1:]}"
