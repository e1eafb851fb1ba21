"""Stretches of the evidence that may be an answer: names, dates, numbers, headings, code and phrases, by the words around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytrace.documents.passages import TITLE_SEPARATOR
from pytrace.documents.sentences import sentence_spans
from pytrace.reader.spans.words import COUNTRIES, HONORIFICS, MONTHS, Word, words

MOST_WORDS = 10
"""Of an answer."""
# Of a longer sentence the first words are looked at.
_LONGEST = 200
_TITLED = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\s*")
_TRIPLE = re.compile(r"<([^;<>]*);([^<>]*);([^;<>]*)>\s*$")
# Where a name ends that something in brackets, or a place behind a comma, tells from others.
_PLAIN_TITLE = re.compile(r"(.+?)\s*(?:\(|, )")
# No answer begins or ends with one of these, and none goes beyond an auxiliary or a pronoun.
_LOOSE = frozenset(("article", "auxiliary", "pronoun", "preposition", "of", "and", "mark"))
_NOT_WITHIN = frozenset(("auxiliary", "pronoun"))
_CLOSING = frozenset(".;:()")
_CURRENCIES = frozenset("$€£¥")
_APPROXIMATELY = frozenset(("about", "around", "over", "under", "nearly", "almost", "approximately"))
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^“”]+)”|«([^«»]+)»|``([^`']+)(?:''|``)")
_POSSESSIVE = re.compile(r"['’]s$")
SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
"""Letters of scripts that put no space between words."""
_ENGLISH_SHARE = 0.08  # of the words of an English text are articles, prepositions and their like, at least
# Of the words of a line of code so many are these marks, at least.
_CODE_SHARE, _CODE_MARKS = 0.2, frozenset("()[]{}<>=+*/\\|#@$%^&~;")


class Sentence(NamedTuple):
    """A sentence of the evidence: the entry it is of, where it begins there, its words, and whether it is in the entry's title.

    `heading` says which heading of a title it is, from 1 for the one that the text stands below; 0 if the title is no path of headings.
    """

    entry: int
    start: int
    text: str
    words: Sequence[Word]
    is_title: bool
    heading: int = 0


class Span(NamedTuple):
    """A stretch of a sentence: from its word `first` up to before `last`, and its characters in the entry."""

    sentence: int
    first: int
    last: int
    start: int
    end: int


def read_entries(entries: Sequence[str]) -> list[Sentence]:
    """Cut entries of evidence (documents and sentences under a title in brackets, triples, plain text) into sentences."""
    return [sentence for number, entry in enumerate(entries) for sentence in _sentences(number, entry)]


def _sentences(number: int, entry: str) -> Iterator[Sentence]:
    triple = _TRIPLE.match(entry)
    if triple is not None:
        for group in (1, 3):  # head and tail; a relation is no answer
            text = triple[group].strip()
            start = triple.start(group) + triple[group].find(text)
            yield Sentence(number, start, text, _first_words(text), is_title=True)
        return
    titled = _TITLED.match(entry)
    at = 0
    if titled is not None:
        at, end = titled.end(), titled.end(1)
        headings = titled[1].split(TITLE_SEPARATOR)
        for rank, heading in enumerate(reversed(headings), 1):
            start = end - len(heading)
            level = rank if len(headings) > 1 else 0
            yield Sentence(number, start, heading, _first_words(heading), is_title=True, heading=level)
            end = start - len(TITLE_SEPARATOR)
    for start, end in sentence_spans(entry[at:]):
        text = entry[at + start : at + end]
        yield Sentence(number, at + start, text, _first_words(text), is_title=False)


def _first_words(text: str) -> list[Word]:
    """Return the words of a sentence that are looked at; no code is cut in two."""
    found = words(text)
    kept = found[:_LONGEST]
    while kept and len(kept) < len(found) and 0 < kept[-1].span == found[_LONGEST].span:
        kept.pop()
    return kept


def opening_of(text: str) -> str:
    """Return the word that a text begins with; its first character where a script has no spaces."""
    found = words(text)
    return text[: found[0].end] if found and not SPACELESS.match(text) else text[:1]


def are_english(sentences: Sequence[Sentence]) -> bool:
    """Return whether sentences are English, by their share of articles, prepositions and the like; True if they have no prose."""
    prose = [word for sentence in sentences if not sentence.is_title for word in _prose(sentence)]
    loose = sum(word.kind in _LOOSE and word.kind != "mark" for word in prose)
    return not prose or loose >= _ENGLISH_SHARE * len(prose)


def spans_of(number: int, sentence: Sentence, *, english: bool) -> Iterator[Span]:
    """Find the stretches of one sentence that may be an answer; `number` is the sentence's index."""
    if sentence.heading > 1:
        return  # a heading further up is shared by many passages
    if sentence.is_title:
        yield from _titles(number, sentence)
    elif english:
        yield from _phrases(number, sentence)
        yield from _enumerations(number, sentence)
        yield from _long_code(number, sentence, MOST_WORDS)
        yield from _quotations(number, sentence)
        yield from _parts_of_origins(number, sentence)
    else:
        yield from _stretches(number, sentence)
        yield from _long_code(number, sentence, MOST_WORDS // 2)


def _prose(sentence: Sentence) -> Sequence[Word]:
    """Return the words of a sentence that tell its language; a line of code has none."""
    marks = sum(word.text in _CODE_MARKS for word in sentence.words)
    is_code = marks >= max(1, _CODE_SHARE * len(sentence.words))
    return [] if is_code else [word for word in sentence.words if not word.span]


def _titles(number: int, sentence: Sentence) -> Iterator[Span]:
    """Yield a title or heading, what stands before its brackets or its comma, and each piece of code in it."""
    if not sentence.words:
        return
    yield _span(number, sentence, 0, len(sentence.words))
    plain = _PLAIN_TITLE.match(sentence.text)
    if plain is not None:
        last = sum(word.end <= plain.end(1) for word in sentence.words)
        if 0 < last < len(sentence.words):
            yield _span(number, sentence, 0, last)
    for place, word in enumerate(sentence.words):
        if word.kind == "code" and not word.span and len(sentence.words) > 1:
            yield _span(number, sentence, place, place + 1)


def _phrases(number: int, sentence: Sentence) -> Iterator[Span]:
    """Yield stretches of English that cut no name in two (titles and owners before it are no part of it) and begin and end with a word that carries content."""
    found = sentence.words
    for first, opening in enumerate(found):
        before = found[first - 1].kind if first else None
        if _is_within_code(found, first):
            continue
        if (opening.kind in _LOOSE and not opening.span and not _is_quantity(found, first)) or opening.text == "born":
            continue
        if opening.kind == before == "name" and not _may_begin_a_name(found, first):
            continue
        for last in range(first, min(first + MOST_WORDS, len(found))):
            closing = found[last]
            if _is_within_code(found, last + 1):
                continue
            if closing.span:
                yield _span(number, sentence, first, last + 1)
                continue
            if closing.kind in _NOT_WITHIN or closing.text in _CLOSING:
                break
            after = found[last + 1].kind if last + 1 < len(found) else None
            within_a_name = closing.kind == "name" and after == "name" and not _may_end_a_name(found, last)
            if closing.kind in _LOOSE or within_a_name:
                continue
            if (
                after == "word"
                and closing.kind in ("word", "verb")
                and opening.kind == "word"
                and before in ("word", "name")
            ):
                continue
            yield _span(number, sentence, first, last + 1)


def _is_within_code(found: Sequence[Word], place: int) -> bool:
    """Whether a code span goes on from the word before a place to the one at it."""
    return 0 < place < len(found) and 0 < found[place - 1].span == found[place].span


def _long_code(number: int, sentence: Sentence, most: int) -> Iterator[Span]:
    """Yield code spans that have more words than a phrase may have."""
    found = sentence.words
    first = 0
    for last in range(1, len(found) + 1):
        if not _is_within_code(found, last):
            if found[first].span and last - first > most:
                yield _span(number, sentence, first, last)
            first = last


def _is_quantity(found: Sequence[Word], first: int) -> bool:
    """Whether a number begins at a word: "$40", "about 40"."""
    text, behind = found[first].text, found[first + 1 : first + 2]
    if text in _CURRENCIES:
        return True
    return text.lower() in _APPROXIMATELY and any(one.kind == "number" or one.text in _CURRENCIES for one in behind)


def _may_begin_a_name(found: Sequence[Word], first: int) -> bool:
    """Whether a name or a date may begin behind a capitalised word: "King Olav", "Mozart's Requiem", "Recorded May 5"."""
    is_month = found[first].text.lower().rstrip(".") in MONTHS
    if is_month and any(word.kind == "number" for word in found[first + 1 : first + 2]):
        return True
    return found[first - 1].text.lower().rstrip(".") in HONORIFICS or _may_end_a_name(found, first - 1)


def _may_end_a_name(found: Sequence[Word], last: int) -> bool:
    """Whether a name may end before another capitalised word: "Mozart's Requiem", "Danish World Cup"."""
    if _POSSESSIVE.search(found[last].text) is not None:
        return True
    return found[last].text.lower() in COUNTRIES and (last == 0 or found[last - 1].kind != "name")


def _quotations(number: int, sentence: Sentence) -> Iterator[Span]:
    """Yield what stands in quotation marks, whatever its words are."""
    for match in _QUOTED.finditer(sentence.text):
        start, end = match.span(match.lastindex or 0)
        inside = [place for place, word in enumerate(sentence.words) if start <= word.start and word.end <= end]
        if 0 < len(inside) <= MOST_WORDS:
            yield _span(number, sentence, inside[0], inside[-1] + 1)


def _parts_of_origins(number: int, sentence: Sentence) -> Iterator[Span]:
    """Yield the countries that a hyphen ties: "French-American"."""
    for first, word in enumerate(sentence.words):
        parts = word.text.split("-")
        if len(parts) > 1 and all(part.lower() in COUNTRIES for part in parts):
            at = sentence.start + word.start
            for part in parts:
                yield Span(number, first, first + 1, at, at + len(part))
                at += len(part) + 1


def _enumerations(number: int, sentence: Sentence) -> Iterator[Span]:
    """Yield lists of names that are longer than a phrase may be: "A, B, C, D and E"."""
    found = sentence.words
    first = 0
    while first < len(found):
        last, listed = first, 0
        while last < len(found) and (found[last].kind in ("name", "number", "and") or found[last].text == ","):
            listed += found[last].text == ","
            last += 1
        while last > first and found[last - 1].kind not in ("name", "number"):
            last -= 1
        if found[first].kind == "name" and listed > 1 and last - first > MOST_WORDS:
            yield _span(number, sentence, first, last)
        first = max(last, first + 1)


def _stretches(number: int, sentence: Sentence) -> Iterator[Span]:
    """Yield stretches of another language: words between marks, or characters where a script has no spaces."""
    found = sentence.words
    for first, opening in enumerate(found):
        if (opening.kind == "mark" and not opening.span) or _is_within_code(found, first):
            continue
        for last in range(first, min(first + MOST_WORDS // 2, len(found))):
            if found[last].kind == "mark" and not found[last].span:
                break
            if _is_within_code(found, last + 1):
                continue
            yield _span(number, sentence, first, last + 1)
        if SPACELESS.match(opening.text) and not opening.span:  # all of it is one of the words above
            for start in range(len(opening.text)):
                for end in range(start + 1, min(start + MOST_WORDS, len(opening.text) + (start > 0))):
                    at = sentence.start + opening.start
                    yield Span(number, first, first + 1, at + start, at + end)


def _span(number: int, sentence: Sentence, first: int, last: int) -> Span:
    """Return a span from a word up to before another; of the last, the ending that says whose the next is stays outside."""
    found = sentence.words
    start, end = found[first].start, found[last - 1].end
    if last < len(found) and (found[last].kind in ("name", "word", "number") or found[last].text in '"“«`'):
        ending = _POSSESSIVE.search(found[last - 1].text)
        end -= len(ending[0]) if ending is not None and ending.start() and not found[last - 1].span else 0
    start, end = with_marks(sentence.text, start, end)
    return Span(number, first, last, sentence.start + start, sentence.start + end)


def with_marks(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where a stretch begins and ends with the marks of code that it has only one of; code by itself has none."""
    if "`" in text[start:end]:
        while start and text[start - 1] == "`":
            start -= 1
        while end < len(text) and text[end] == "`":
            end += 1
    return start, end
