"""Documents become passages: stretches that an encoder and a reader take whole, cut at sentence borders, that know where they stand.

A reader of a format gives the blocks of a document in order. Its text is the blocks with an empty line between them, and offsets
count the characters of that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from pytrace.documents.languages import UNSPACED
from pytrace.documents.sentences import split_sentences
from pytrace.errors import InputError
from pytrace.records import Document, Origin

WORDS = 120
"""Words of a passage, at most: some 160 tokens, which every encoder reads whole."""

TITLE_SEPARATOR = " > "
"""What stands between the headings of a passage's title."""

# A character of a script that puts no spaces between words counts as a word: models have about a token for either.
# What no space or letter parts (data written as text, rulers, leaders of dots) is cut, too.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]{{1,40}}|(?:[^\w\s]\s?){{20,40}}")
# A passage has at most so many characters for each of its words: text has six or seven.
_CHARACTERS = 10
# Where a sentence that is longer than a passage is cut: behind a clause, else behind a word.
_CLAUSE_END = re.compile(r"[,;:—–]\s+|[、，；：]")
BLOCK_BREAK = "\n\n"
"""What stands between the blocks of a document's text."""


class Block(NamedTuple):
    """A piece of text that no sentence crosses: a paragraph, a heading, an item, a table row or a line of code.

    `text` is one clean line. `whole` says that it is not to be split into sentences, `level` that it is a heading (1: the
    highest), `page` on which page or slide it begins, from 1.
    """

    text: str
    whole: bool = False
    level: int = 0
    page: int | None = None


class Extracted(NamedTuple):
    """What a reader found in a document: its own title ("" if it names none), its blocks, and any other fields.

    A title that is the first heading has the `level` of that one: what stands below later headings of the level is not below it.
    `warnings` say what of the document was not read, or only by guessing.
    """

    title: str
    blocks: Sequence[Block]
    level: int = 0
    metadata: Mapping[str, Any] = MappingProxyType({})
    warnings: Sequence[str] = ()


class _Piece(NamedTuple):
    """A sentence, or a part of one that is longer than a passage, with where it begins and the words that it has."""

    text: str
    start: int
    size: int
    page: int | None


_Placed = tuple[Block, list[_Piece]]


def size_of(text: str) -> int:
    """Count the words of a text; each character of an unspaced script is one."""
    return len(_WORD.findall(text))


def sentences_of(block: Block, *, language: str) -> list[str]:
    """Return the sentences of a block."""
    return [block.text] if block.whole or block.level else split_sentences(block.text, language=language)


def cut_passages(
    document: Document,
    extracted: Extracted,
    *,
    words: int = WORDS,
    overlap: int = 0,
    language: str = "en",
    sentences: Sequence[Sequence[str]] | None = None,
) -> list[Document]:
    """Cut a document into passages of at most so many words, at the borders of sentences and below its headings.

    Parameters
    ----------
    document
        The document as a whole: its id, title and source.
    extracted
        Its blocks.
    words
        The most words of a passage. A document of no more is one passage.
    overlap
        How many sentences from the end of a passage begin the next one below the same heading, too.
    language
        ISO 639-1 code for sentence splitting.
    sentences
        Those of each block, where they are known.

    Returns
    -------
    list of Document
        In order, none without text; each says in its `origin` where it stands. Ids are that of the document and ``#1``, ``#2``,
        …; one that is all of the document has its id. The title of a passage below headings is the document's own and these,
        with " > " between them.

    Raises
    ------
    InputError
        `words` is below 1, or `overlap` below 0.

    Examples
    --------
    >>> blocks = [Block("One two three. Four five."), Block("More", level=1), Block("Six.")]
    >>> passages = cut_passages(Document("a", "A", ()), Extracted("A", blocks), words=4)
    >>> [(passage.id, passage.title, passage.sentences) for passage in passages]
    [('a#1', 'A', ('One two three.',)), ('a#2', 'A', ('Four five.',)), ('a#3', 'A > More', ('Six.',))]
    """
    if words < 1 or overlap < 0:
        raise InputError(
            f"passages of {words} words that overlap by {overlap} sentences cannot be; give at least 1 and 0"
        )
    if sentences is None:
        sentences = [sentences_of(block, language=language) for block in extracted.blocks]
    placed: list[_Placed] = []
    start = 0
    for block, split in zip(extracted.blocks, sentences, strict=True):
        if block.text:
            placed.append((block, list(_pieces(block, split, start, words))))
            start += len(block.text) + len(BLOCK_BREAK)
    if sum(piece.size for _, pieces in placed for piece in pieces) <= words:
        whole = [piece for _, pieces in placed for piece in pieces]
        title = extracted.title or document.title
        return [_passage(document, extracted, (title,), whole, "")] if whole else []
    groups = [
        (headings, group)
        for headings, pieces in _sections(placed, Block(extracted.title, level=extracted.level))
        for group in _packed(pieces, words, overlap)
    ]
    return [
        _passage(document, extracted, headings, group, f"#{number}")
        for number, (headings, group) in enumerate(groups, start=1)
    ]


def _sections(placed: Sequence[_Placed], title: Block) -> Iterator[tuple[tuple[str, ...], list[_Piece]]]:
    """Iterate over the pieces below each heading, with the title and headings above; a heading with nothing below is text."""
    path = [title] if title.text else []
    body: list[_Piece] = []
    for index, (block, pieces) in enumerate(placed):
        if not block.level:
            body += pieces
            continue
        if body:
            yield tuple(heading.text for heading in path), body
            body = []
        path = [heading for heading in path if heading.level < block.level]
        following = placed[index + 1][0] if index + 1 < len(placed) else None
        if following is None or 0 < following.level <= block.level:
            body = list(pieces)
        else:
            path.append(block)
    if body:
        yield tuple(heading.text for heading in path), body


def _pieces(block: Block, sentences: Sequence[str], start: int, words: int) -> Iterator[_Piece]:
    """Place the sentences of a block, those that are longer than a passage in parts."""
    at = 0
    for sentence in sentences:
        at = block.text.index(sentence, at)
        for first, end, size in _parts(sentence, words):
            yield _Piece(sentence[first:end].rstrip(), start + at + first, size, block.page)
        at += len(sentence)


def _parts(sentence: str, words: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over the parts of a sentence that a passage takes, with their words: up to a clause's end in the second half, or a word's."""
    size = size_of(sentence)
    if size <= words:
        yield 0, len(sentence), size
        return
    first = 0
    while first < len(sentence):
        found = list(islice(_WORD.finditer(sentence, first), words + 1))
        end = len(sentence)
        if len(found) > words:
            end = found[words].start()
            clauses = [match.end() for match in _CLAUSE_END.finditer(sentence, first, end)]
            end = clauses[-1] if clauses and 2 * (clauses[-1] - first) >= end - first else end
        yield first, end, sum(match.start() < end for match in found)
        first = end


def _packed(pieces: Sequence[_Piece], words: int, overlap: int) -> Iterator[list[_Piece]]:
    """Put as many pieces together as a passage takes."""
    group: list[_Piece] = []
    size = new = 0  # of the group, and its pieces that no earlier one has
    for piece in pieces:
        length = piece.start + len(piece.text) - group[0].start if group else 0
        if new and (size + piece.size > words or length > _CHARACTERS * words):
            yield group
            group = group[len(group) - overlap :] if overlap else []
            while group and sum(kept.size for kept in group) + piece.size > words:
                group = group[1:]
            size, new = sum(kept.size for kept in group), 0
        group.append(piece)
        size, new = size + piece.size, new + 1
    if new:
        yield group


def _passage(
    document: Document, extracted: Extracted, headings: tuple[str, ...], pieces: Sequence[_Piece], suffix: str
) -> Document:
    pages = tuple(piece.page for piece in pieces if piece.page is not None)
    origin = Origin(
        document=document.id,
        title=document.title,
        headings=headings[headings[:1] == (document.title,) :],
        page=pieces[0].page,
        start=pieces[0].start,
        end=pieces[-1].start + len(pieces[-1].text),
        sentences=tuple(piece.start for piece in pieces),
        pages=pages if len(set(pages)) > 1 else (),
        metadata=dict(extracted.metadata),
        titled=bool(extracted.title),
    )
    return Document(
        id=document.id + suffix,
        title=TITLE_SEPARATOR.join(headings) or document.title,
        sentences=tuple(piece.text for piece in pieces),
        source=document.source,
        origin=origin,
    )
