"""Clean text and split it into sentences, in time linear in its length."""

from __future__ import annotations

import re
from collections.abc import Iterator

import sentencex

from pytrace.documents.languages import ABBREVIATIONS, detect_language
from pytrace.documents.unbroken import Unbroken, code_as_words

# Control characters that are no white space, the byte order mark, and halves of surrogate pairs: none of them is text,
# and each breaks something further on (C strings end at NUL, tokenizers refuse surrogates).
_NOT_TEXT = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FALLBACK_SENTENCE = re.compile(r"[^.!?。！？؟۔।]*[.!?。！？؟۔।]*\s*")
# What goes on with the sentence before: „Warum?“ – fragte er. av. J.-C.
_GOING_ON = re.compile(r"-\w|(?:[–—]\s*)?([^\W\d_])")
# Of the piece before so many characters are looked at.
_TAIL = 40
_LAST_WORD = re.compile(r"([^\s(\[«„“\"']+)\.\s*$")
# "am 3. Mai" is known, "im 19. Jahrhundert" not.
_GERMAN_ORDINAL = re.compile(
    r"\b(?:am|ab|beim|bis|das|dem|den|der|des|die|im|ins|seit|vom|zum|zur|\d{1,2}\. (?:bis|oder|und))"  # codespell:ignore oder
    r"\s\d{1,2}\.\s*$"
)

# The splitter takes quadratic time on some texts (Chinese, Japanese), so it sees at most this many characters at a time;
# a sentence is some hundred characters long, so that few of them cross a border.
_WINDOW = 4_096


def clean_text(text: str) -> str:
    r"""Make one line of readable text: white space runs become one space, characters that are no text go.

    Parameters
    ----------
    text
        Any string; lone surrogates become U+FFFD.

    Returns
    -------
    str
        The text without line breaks, control characters, or space at either end.

    Examples
    --------
    >>> clean_text("Ada\r\n  Foah\x00")
    'Ada Foah'
    """
    return " ".join(_SURROGATE.sub("\ufffd", _NOT_TEXT.sub(" ", text)).split())


def split_sentences(text: str, *, language: str | None = "en") -> list[str]:
    """Split a text into sentences; a blank line always ends one.

    Abbreviations, initials and quotations are left to `sentencex`, which knows many languages. This function feeds it clean
    paragraphs in windows of bounded length, so that a text of any shape takes linear time. No code span, dotted name
    (``httpx.Limits``), URL, e-mail address or number is cut.

    Parameters
    ----------
    text
        The text; single line breaks count as spaces.
    language
        ISO 639-1 code of the language, which decides on abbreviations and punctuation; None: it is detected. What `sentencex`
        does not know is split as English. Where it splits too often is mended for German, French, Spanish, Italian, Dutch,
        Polish, Portuguese, Russian, Arabic and Japanese.

    Returns
    -------
    list of str
        The sentences in order, each cleaned as by `clean_text`; no sentence is empty and no word is lost.

    Examples
    --------
    >>> split_sentences("Dr. Smith met J. K. Rowling. They talked.")
    ['Dr. Smith met J. K. Rowling.', 'They talked.']
    >>> split_sentences("Pass httpx.Limits to it. Run `make. All` first.")
    ['Pass httpx.Limits to it.', 'Run `make. All` first.']
    """
    language = language or detect_language(text)
    return [sentence for block in _paragraphs(text) for sentence in _block_sentences(block, language)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return where the sentences of a text begin and end, whatever its language; a line break ends one."""
    language = detect_language(text)
    spans: list[tuple[int, int]] = []
    start = 0
    for line in text.split("\n"):
        at, end = start, start + len(line)
        for sentence in split_sentences(line, language=language):
            first = text.find(sentence, at, end)
            last = first + len(sentence)
            if first < 0:  # white space within it was made single
                match = re.compile(r"\s+".join(map(re.escape, sentence.split()))).search(text, at, end)
                if match is None:
                    continue
                first, last = match.span()
            spans.append((first, last))
            at = last
        start = end + 1
    return spans


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        cleaned = clean_text(line)
        if cleaned:
            lines.append(cleaned)
        elif lines:
            yield " ".join(lines)
            lines = []
    if lines:
        yield " ".join(lines)


def _block_sentences(block: str, language: str) -> Iterator[str]:
    shown, unbroken = code_as_words(block), Unbroken(block)
    start = 0
    pending: list[str] = []  # the windows that one very long sentence has filled so far
    while start < len(block):
        window = block[start : start + _WINDOW]
        pieces = unbroken.joined(_segment(shown[start : start + _WINDOW], language), start)
        last_window = start + len(window) == len(block)
        if not last_window and len(pieces) == 1:
            pending.append(window)
            start += len(window)
            continue
        # The last piece may go on behind the window's end: the next window starts with it.
        kept = pieces if last_window else pieces[:-1]
        for piece in kept:
            sentence = "".join([*pending, piece]).strip()
            pending = []
            if sentence:
                yield sentence
        start += sum(map(len, kept))
    if pending:
        yield "".join(pending).strip()


def _segment(text: str, language: str) -> list[str]:
    """Split `text`; the pieces, spaces included, join to it again."""
    try:
        pieces = list(sentencex.segment(language, text))
    except BaseException as error:
        # The splitter is compiled: a bug of its own arrives as a panic, which is no `Exception`.
        if type(error).__name__ != "PanicException":
            raise
        pieces = []
    if "".join(pieces) != text:
        pieces = [piece for piece in _FALLBACK_SENTENCE.findall(text) if piece]
    return pieces if language == "en" else _rejoined(pieces, language)


def _rejoined(pieces: list[str], language: str) -> list[str]:
    """Join what was split behind an abbreviation, an ordinal or a quotation in the middle of a sentence."""
    joined: list[str] = []
    for piece in pieces:
        if joined and _goes_on(joined[-1][-_TAIL:], piece, language):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _goes_on(before: str, piece: str, language: str) -> bool:
    start = _GOING_ON.match(piece)
    if start is not None and (start[1] is None or start[1].islower()):
        return True
    word = _LAST_WORD.search(before)
    if word is not None and word[1] in ABBREVIATIONS.get(language, ()):
        return True
    if language == "ja":  # what was said, and "と": that it was said
        return before.rstrip().endswith(("」", "』")) and piece.startswith("と")
    return language == "de" and _GERMAN_ORDINAL.search(before) is not None
