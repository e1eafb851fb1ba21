"""Markdown to readable text: a title and blocks."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pytrace.documents.front_matter import split_front_matter
from pytrace.documents.lists import ListDepth
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.documents.unbroken import as_code

# Bounded lengths, so that broken text takes linear time too.
_FOOTNOTE_TEXT = re.compile(r"^\[\^[^\]\s]{1,80}\]:\s*")
_FOOTNOTE_MARK = re.compile(r"\[\^[^\]\s]{1,80}\]")
_TAG_NAME = re.compile(r"<(!--|[!?]|/?[A-Za-z][A-Za-z0-9-]{0,40})")
# Tags within a sentence; every other ends a line.
_INLINE_TAGS = re.compile("/?(a|abbr|b|cite|code|del|em|font|i|ins|kbd|mark|q|s|small|span|strong|sub|sup|u|var)|!--")
_TASK_BOX = re.compile(r"^\[[ xX]\]\s+")
_CODE_TAG = re.compile(r"</?(?:code|kbd|samp|tt)\b", re.IGNORECASE)
# The anchor that many generators of sites have behind a heading: {#name}
_ANCHOR = re.compile(r"\s*\{\s*[#.:][^{}]{0,200}\}$")
_DEFINITION = re.compile(r"^:\s+")
# A note or a tab of MkDocs: its text is indented, which in Markdown is code.
_NOTE = re.compile(r"( *)(?:(?:!!!|\?\?\?\+?) *([\w-]+(?: [\w-]+)*)?|===[+!]?) *(?:\"([^\"]*)\")? *$")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_NOTE_INDENT = 4
_LINE_END = re.compile(r"\r\n?|\n")


def read_markdown(source: str) -> Extracted:
    """Turn Markdown into a title and blocks of readable text."""
    # The title is the front matter's `title`, else the first heading, which then is no block. Links and images leave
    # their words, emphasis and HTML tags go, code spans stay what they are but in headings, a table row becomes
    # `Header: cell; Header: cell`, and every line of code a block of its own.
    fields, source, warning = split_front_matter(source)
    title, level = clean_text(str(fields.pop("title", "")).replace("`", "")), 0
    blocks: list[Block] = []
    tokens = _parser().parse("\n".join(_without_notes(_LINE_END.split(source))))
    items = ListDepth()
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.type == "list_item_open":
            items.open()
        elif token.type == "list_item_close":
            items.close()
        elif token.type == "table_open":
            end = next(i for i in range(position, len(tokens)) if tokens[i].type == "table_close")
            depth = items.next()
            blocks.extend(block._replace(depth=depth) for block in _table(tokens[position:end]))
            position = end
        elif token.type == "inline" and tokens[position - 1].type == "heading_open":
            heading, text = int(tokens[position - 1].tag[1:]), _heading(token)
            if not title or (text == title and not level and not blocks):
                title, level = text, heading
            else:
                blocks.append(Block(text, level=heading))
        elif token.type == "inline":
            following = next(
                (each.content for each in tokens[position + 1 : position + 4] if each.type == "inline"), ""
            )
            blocks.extend(_paragraph(token, following, items))
        elif token.type in ("fence", "code_block"):
            depth = items.next()
            blocks.extend(Block(clean_text(line), whole=True, depth=depth) for line in token.content.splitlines())
        elif token.type == "html_block":
            depth = items.next()
            blocks.extend(Block(line, depth=depth) for line in _html_lines(token.content))
        position += 1
    kept = [block for block in blocks if block.text]
    return Extracted(title, kept, level, fields, [warning] if warning else [])


def _without_notes(lines: Sequence[str]) -> Iterator[str]:
    """Iterate over lines with the text of notes and tabs brought to the left, behind what they are called."""
    indents: list[int] = []  # of the text of the notes that are open
    fence = ""
    for number, line in enumerate(lines):
        while indents and line.strip() and not line.startswith(" " * indents[-1]):
            indents.pop()
        kept = line[indents[-1] if indents else 0 :]
        marks = _FENCE.match(kept)
        note = None if fence or marks else _NOTE.match(kept)
        if fence:
            fence = "" if marks is not None and marks[1].startswith(fence) else fence
        elif marks is not None:
            fence = marks[1]
        if note is not None:
            indent = len(line) - len(kept) + len(note[1]) + _NOTE_INDENT
            if any(following.startswith(" " * indent) for following in lines[number + 1 : number + 3]):
                name = note[3] if note[3] is not None else (note[2] or "")
                kept = f"\n{note[1]}{name[:1].upper()}{name[1:]}\n"
                indents.append(indent - len(note[1]))
        yield kept


def _paragraph(token: Token, following: str, items: ListDepth) -> Iterator[Block]:
    """Iterate over the blocks of a paragraph: itself, or a term and its definitions, which begin with a colon."""
    lines = [_inline(list(part)) for is_end, part in groupby(token.children or (), _ends_line) if not is_end]
    definitions = dict.fromkeys(number for number, line in enumerate(lines) if _DEFINITION.match(line))
    if not definitions and not _DEFINITION.match(following):
        yield Block(_inline(token.children or ()), depth=items.next())
        return
    for first, last in pairwise(dict.fromkeys((0, *definitions, len(lines)))):
        items.open(begun=first in definitions)
        yield Block(_DEFINITION.sub("", " ".join(filter(None, lines[first:last]))), depth=items.next())
        items.close()


def _ends_line(token: Token) -> bool:
    return token.type in ("softbreak", "hardbreak")


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _inline(tokens: Sequence[Token]) -> str:
    text = clean_text(_words(tokens))
    return clean_text(_TASK_BOX.sub("", _FOOTNOTE_MARK.sub("", _FOOTNOTE_TEXT.sub("", text))))


def _heading(token: Token) -> str:
    return clean_text(_ANCHOR.sub("", _inline(token.children or ()).replace("`", "")))


def _words(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    for token in tokens:
        if token.type in ("text", "text_special"):
            parts.append(token.content)
        elif token.type == "code_inline":
            parts.append(as_code(clean_text(token.content)))
        elif token.type == "html_inline" and _CODE_TAG.match(token.content):
            parts.append("`")
        elif _ends_line(token) or token.content.lower().startswith("<br"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(_words(token.children or ()))
    return "".join(parts)


def _table(tokens: Sequence[Token]) -> list[Block]:
    headers: list[str] = []
    rows: list[list[str]] = []
    for token, inner in pairwise(tokens):
        if token.type == "th_open":
            headers.append(_inline(inner.children or ()))
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "td_open":
            rows[-1].append(_inline(inner.children or ()))
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
