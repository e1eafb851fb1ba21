"""Markdown to readable text: a title and blocks."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pytrace.documents.front_matter import split_front_matter
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text

# Bounded lengths, so that broken text takes linear time too.
_FOOTNOTE_TEXT = re.compile(r"^\[\^[^\]\s]{1,80}\]:\s*")
_FOOTNOTE_MARK = re.compile(r"\[\^[^\]\s]{1,80}\]")
_TAG_NAME = re.compile(r"<(!--|[!?]|/?[A-Za-z][A-Za-z0-9-]{0,40})")
# Tags within a sentence; every other ends a line.
_INLINE_TAGS = re.compile("/?(a|abbr|b|cite|code|del|em|font|i|ins|kbd|mark|q|s|small|span|strong|sub|sup|u|var)|!--")
_TASK_BOX = re.compile(r"^\[[ xX]\]\s+")


def read_markdown(source: str) -> Extracted:
    """Turn Markdown into a title and blocks of readable text."""
    # The title is the front matter's `title`, else the first heading, which then is no block. Links and images leave
    # their words, emphasis and HTML tags go, a table row becomes `Header: cell; Header: cell`, and every line of code a
    # block of its own.
    fields, source, warning = split_front_matter(source)
    title, level = clean_text(str(fields.pop("title", ""))), 0
    blocks: list[Block] = []
    tokens = _parser().parse(source)
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.type == "table_open":
            end = next(i for i in range(position, len(tokens)) if tokens[i].type == "table_close")
            blocks.extend(_table(tokens[position:end]))
            position = end
        elif token.type == "inline":
            opening = tokens[position - 1]
            heading = int(opening.tag[1:]) if opening.type == "heading_open" else 0
            text = _inline(token)
            if heading and not title:
                title, level = text, heading
            else:
                blocks.append(Block(text, level=heading))
        elif token.type in ("fence", "code_block"):
            blocks.extend(Block(clean_text(line), whole=True) for line in token.content.splitlines())
        elif token.type == "html_block":
            blocks.extend(Block(line) for line in _html_lines(token.content))
        position += 1
    kept = [block for block in blocks if block.text]
    return Extracted(title, kept, level, fields, [warning] if warning else [])


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _inline(token: Token) -> str:
    text = clean_text(_words(token.children or ()))
    return clean_text(_TASK_BOX.sub("", _FOOTNOTE_MARK.sub("", _FOOTNOTE_TEXT.sub("", text))))


def _words(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special"):
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak") or token.content.lower().startswith("<br"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(_words(token.children or ()))
    return "".join(parts)


def _table(tokens: Sequence[Token]) -> list[Block]:
    headers: list[str] = []
    rows: list[list[str]] = []
    for token, inner in pairwise(tokens):
        if token.type == "th_open":
            headers.append(_inline(inner))
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "td_open":
            rows[-1].append(_inline(inner))
    # The first row is the header's: it is spoken beside every cell, and alone only if no cell follows.
    if len(rows) < 2:
        return [Block("; ".join(filter(None, headers)), True)]
    lines = (
        "; ".join(f"{head}: {cell}" if head else cell for head, cell in zip(headers, row, strict=False) if cell)
        for row in rows[1:]
    )
    return [Block(line, whole=True) for line in lines]


def _html_lines(source: str) -> list[str]:
    """Read the text of a piece of HTML: block elements end a line, comments, scripts and styles are passed over."""
    # One pass with `str.find`: each `<` is looked at once, so that broken HTML takes linear time too.
    parts: list[str] = []
    position = 0
    while position < len(source):
        opening = source.find("<", position)
        if opening < 0:
            parts.append(source[position:])
            break
        parts.append(source[position:opening])
        tag = _TAG_NAME.match(source, opening)
        if not tag:
            parts.append("<")
            position = opening + 1
            continue
        name = tag[1].lower()
        closing_mark = "-->" if name == "!--" else ">"
        position = _behind(source, closing_mark, tag.end())
        if name in ("script", "style"):
            position = _behind(source, ">", _behind(source, f"</{name}", position))
        elif not _INLINE_TAGS.fullmatch(name):
            parts.append("\n\n")
    lines = html.unescape("".join(parts)).split("\n\n")
    return [text for line in lines if (text := clean_text(line))]


def _behind(source: str, mark: str, start: int) -> int:
    position = source.find(mark, start)
    return len(source) if position < 0 else position + len(mark)
