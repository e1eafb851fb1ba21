"""Split a document that is longer than a context, on sentence borders, and say where every sentence went."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from pytrace.documents.unbroken import code_as_words
from pytrace.errors import InputError
from pytrace.records import Document

# Western punctuation ends a clause only before a space (a comma also groups digits), Eastern punctuation has no space.
_CLAUSE_END = re.compile(r"(?<=[,;:—–])\s+(?=\S)|(?<=[、，；：])(?=\S)")
# Where the next word begins: a cut there leaves the space with the piece before.
_WORD_END = re.compile(r"(?<=\s)(?=\S)")


# A code span that begins before a border ends within so many characters.
_LONGEST_CODE = 250

# The index of a sentence, the text of a piece of it, and whether the sentence was cut.
_Piece = tuple[int, str, bool]


class DocumentChunk(msgspec.Struct, frozen=True):
    """A part of a document that fits a context.

    `indices` gives for each sentence of `document` its index in the whole document. `cut` are those of them that were
    too long to fit and are here only in part: each such index returns in the next part, or came in the last one.
    """

    document: Document
    indices: tuple[int, ...]
    cut: tuple[int, ...] = ()


def split_document(document: Document, max_tokens: int, count_tokens: Callable[[str], int]) -> list[DocumentChunk]:
    """Split a document into parts of at most `max_tokens` tokens, on sentence borders.

    Sentences are packed in order, as many as fit. Only a sentence that alone is too long is cut: after a clause if that
    keeps half of what fits, else between words, else between characters; it is then named in `cut`. Nothing is lost: but for
    spaces at a cut, the parts' sentences joined are the document's.

    Parameters
    ----------
    document
        The document; its title is not counted, so leave room for it.
    max_tokens
        The most tokens that the text of a part may have.
    count_tokens
        Counts the tokens of a text, with what the model adds to it if that matters.

    Returns
    -------
    list of DocumentChunk
        In order; one part, with the document itself in it, if it fits. Other parts have the id `ID#1`, `ID#2`, ….

    Raises
    ------
    InputError
        `max_tokens` is below 1, or not even one character fits it.

    Examples
    --------
    >>> whole = Document("a", "A", ("One two three.", "Four five.", "Six."))
    >>> [part.indices for part in split_document(whole, 5, lambda text: len(text.split()))]
    [(0, 1), (2,)]
    """
    if max_tokens < 1:
        raise InputError(f"max_tokens is {max_tokens}; a part needs room for at least 1 token")
    if count_tokens(document.text) <= max_tokens:
        return [DocumentChunk(document, tuple(range(len(document.sentences))))]
    pieces = [
        (index, piece, len(cut) > 1)
        for index, sentence in enumerate(document.sentences)
        for cut in [_pieces(sentence, max_tokens, count_tokens)]
        for piece in cut
    ]
    groups: list[list[_Piece]] = []
    start = 0
    while start < len(pieces):
        size = _fitting(pieces, start, max_tokens, count_tokens)
        groups.append(pieces[start : start + size])
        start += size
    return [
        DocumentChunk(
            Document(f"{document.id}#{number}", document.title, tuple(text for _, text, _ in group), document.source),
            tuple(index for index, _, _ in group),
            tuple(dict.fromkeys(index for index, _, cut in group if cut)),
        )
        for number, group in enumerate(groups, start=1)
    ]


def _fitting(pieces: list[_Piece], start: int, max_tokens: int, count_tokens: Callable[[str], int]) -> int:
    """Count the pieces from `at` on that fit together."""
    # The sum over single pieces only guesses (tokens may join or part at a border); the joined text decides.
    total = 0
    size = 0
    while start + size < len(pieces):
        total += count_tokens(pieces[start + size][1])
        if size and total > max_tokens:
            break
        size += 1
    while size > 1 and count_tokens(" ".join(text for _, text, _ in pieces[start : start + size])) > max_tokens:
        size -= 1
    return size


def _pieces(sentence: str, max_tokens: int, count_tokens: Callable[[str], int]) -> list[str]:
    """Cut a sentence into pieces that each fit; a sentence that fits stays whole."""
    pieces: list[str] = []
    remainder = sentence
    while remainder:
        length = _longest_prefix(remainder, max_tokens, count_tokens)
        pieces.append(remainder[:length].rstrip())
        remainder = remainder[length:].lstrip()
    return pieces


def _longest_prefix(text: str, max_tokens: int, count_tokens: Callable[[str], int]) -> int:
    # Double the length until it is too long: so a long text is never counted whole for a short piece of it.
    fits, tried = 0, min(len(text), 4 * max_tokens)
    while count_tokens(text[:tried]) <= max_tokens:
        fits = tried
        if tried == len(text):
            return tried
        tried = min(len(text), 2 * tried)
    too_long = tried
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if count_tokens(text[:middle]) <= max_tokens:
            fits = middle
        else:
            too_long = middle
    if fits == 0:
        raise InputError(
            f"max_tokens is {max_tokens}, and the one character {text[0]!r} already has {count_tokens(text[0])} tokens"
        )
    return _good_border(text, fits)


def _good_border(text: str, fits: int) -> int:
    text = code_as_words(text[: fits + _LONGEST_CODE])
    for border, least in ((_CLAUSE_END, fits // 2), (_WORD_END, 1)):
        positions = [match.start() for match in border.finditer(text[: fits + 1]) if least <= match.start() <= fits]
        if border is _WORD_END and text[fits].isspace():
            positions.append(fits)
        # A border counts only if the piece before it has a word: it must not be empty once it is stripped.
        if positions and text[: positions[-1]].strip():
            return positions[-1]
    return fits
