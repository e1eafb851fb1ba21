"""Documents become passages: stretches that an encoder and a reader take whole, cut at sentence borders, that know where they stand.

A reader of a format gives the blocks of a document in order. Its text is the blocks with an empty line between them, and offsets
count the characters of that text. A passage that begins within a list repeats the sentence that introduces the list, and the items
that its first item is below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from pytrace.documents.languages import UNSPACED
from pytrace.documents.sentences import split_sentences
from pytrace.documents.unbroken import Unbroken, code_as_words
from pytrace.errors import InputError
from pytrace.records import Document, Origin

WORDS = 120
"""Words of a passage, at most: some 160 tokens, which every encoder reads whole."""

TITLE_SEPARATOR = " > "
"""What stands between the headings of a passage's title."""

# A character of a script that puts no spaces between words counts as a word: models have about a token for either.
# What no space or letter parts (data written as text, rulers, leaders of dots) is cut, too.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]{{1,40}}|(?:[^\w\s]\s?){{20,40}}")
# So many characters count as a word at least: text has six or seven a word.
_CHARACTERS = 10
# A sentence that is longer than a passage is cut after a clause, otherwise after a word.
_CLAUSE_END = re.compile(r"[,;:—–]\s+|[、，；：]")
_WORD_END = re.compile(rf"\s+|(?<=[{UNSPACED}])(?=[{UNSPACED}])")
# Of what introduces an item, the nearest so many are repeated: a list's sentence and the items above.
_MAX_LEADS = 3
BLOCK_BREAK = "\n\n"
"""What stands between the blocks of a document's text."""


class Block(NamedTuple):
    """A piece of text that no sentence crosses: a paragraph, a heading, an item, a table row or a line of code.

    `text` is one clean line. `whole` says that it is not to be split into sentences, `level` that it is a heading (1: the
    highest), `page` on which page or slide it begins, from 1. `depth` is how deep it stands in lists: an item is one deeper than the
    paragraph that introduces its list, and what is below it in turn is deeper than the item.
    """

    text: str
    whole: bool = False
    level: int = 0
    page: int | None = None
    depth: int = 0


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
    """A sentence, or a part of one that is longer than a passage, with its block, where it begins, and the words that it has."""

    text: str
    start: int
    size: int
    block: Block

    @property
    def cost(self) -> int:
        """Its share of a passage, in words."""
        return max(self.size, -(-len(self.text) // _CHARACTERS))


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

    A list that a passage takes stays whole, with the sentence before it. Where a longer list is cut, each passage begins with that
    sentence, and with the items that its first item is below.

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
        with " > " between them. Sentences that are repeated from before the passage are in `origin.sentences` where they were read.

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
        return [_passage(document, extracted, (title,), [], whole, "")] if whole else []
    groups = [
        (headings, leads, group)
        for headings, pieces in _sections(placed, Block(extracted.title, level=extracted.level))
        for leads, group in _packed(pieces, words, overlap)
    ]
    return [
        _passage(document, extracted, headings, leads, group, f"#{number}")
        for number, (headings, leads, group) in enumerate(groups, start=1)
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
            yield _Piece(sentence[first:end].rstrip(), start + at + first, size, block)
        at += len(sentence)


def _parts(sentence: str, words: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over the parts of a sentence that a passage takes, with their words: up to a clause's end in the second half, or a word's."""
    size = size_of(sentence)
    if size <= words:
        yield 0, len(sentence), size
        return
    shown, unbroken = code_as_words(sentence), Unbroken(sentence)
    first = 0
    while first < len(sentence):
        found = [match.start() for match in islice(_WORD.finditer(sentence, first), words + 1)]
        end = len(sentence)
        if len(found) > words:
            end = found[words]
            half = first + (end - first) // 2
            clauses = [match.end() for match in _CLAUSE_END.finditer(shown, first, end) if half < match.end()]
            borders = clauses or [match.end() for match in _WORD_END.finditer(shown, first + 1, end + 1)]
            # What has no border within a passage is cut between its parts, in the end anywhere.
            borders = borders or [start for start in found[1:] if unbroken.allows(start)]
            end = borders[-1] if borders else end
        yield first, end, sum(start < end for start in found)
        first = end


def _packed(pieces: Sequence[_Piece], words: int, overlap: int) -> Iterator[tuple[Sequence[_Piece], Sequence[_Piece]]]:
    """Put as many pieces together as a passage takes; with each group what introduces it, which stands further up."""
    introduced = _introduced(pieces)
    needed = _needed(pieces, introduced, words)
    leads: list[_Piece] = []
    group: list[int] = []
    size = new = 0  # of the group with its leads, and its pieces that no earlier one has
    for number, piece in enumerate(pieces):
        if new and size + needed[number] > words:
            yield leads, [pieces[each] for each in group]
            group = group[len(group) - overlap :] if overlap else []
            while group and sum(pieces[each].cost for each in group) + piece.cost > words:
                group = group[1:]
            size, new = sum(pieces[each].cost for each in group), 0
            leads = [pieces[each] for each in introduced[group[0] if group else number]]
            while leads and sum(lead.cost for lead in leads) + max(size + piece.cost, words // 2) > words:
                leads = leads[1:]
            size += sum(lead.cost for lead in leads)
        group.append(number)
        size, new = size + piece.cost, new + 1
    if new:
        yield leads, [pieces[each] for each in group]


def _introduced(pieces: Sequence[_Piece]) -> list[tuple[int, ...]]:
    """Return by what each piece is introduced: the last sentence before its list, and the last of each item that it is below."""
    introduced: list[tuple[int, ...]] = []
    above: list[int] = []  # the last pieces of the blocks that the next may be below
    for number, piece in enumerate(pieces):
        while above and pieces[above[-1]].block.depth >= piece.block.depth:
            above.pop()
        introduced.append(tuple(above[-_MAX_LEADS:]))
        # Lines of code and rows of tables introduce nothing.
        if piece.block.depth or not piece.block.whole:
            above.append(number)
    return introduced


def _needed(pieces: Sequence[_Piece], introduced: Sequence[Sequence[int]], words: int) -> list[int]:
    """Return how much room a passage must have for each piece: for all that it introduces if a passage takes that, else for the first of it."""
    ends = list(range(1, len(pieces) + 1))
    for number, leads in enumerate(introduced):
        for lead in leads:
            ends[lead] = number + 1
    sizes = [0, *accumulate(piece.cost for piece in pieces)]
    needed = []
    for number, end in enumerate(ends):
        all_of_it, first_of_it = sizes[end] - sizes[number], sizes[min(end, number + 2)] - sizes[number]
        needed.append(next((size for size in (all_of_it, first_of_it) if size <= words), pieces[number].cost))
    return needed


def _passage(
    document: Document,
    extracted: Extracted,
    headings: tuple[str, ...],
    leads: Sequence[_Piece],
    own: Sequence[_Piece],
    suffix: str,
) -> Document:
    pieces = [*leads, *own]
    pages = tuple(piece.block.page for piece in pieces if piece.block.page is not None)
    origin = Origin(
        document=document.id,
        title=document.title,
        headings=headings[headings[:1] == (document.title,) :],
        page=own[0].block.page,
        start=own[0].start,
        end=own[-1].start + len(own[-1].text),
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
