"""Words of a text as spans are found and compared by: where each stands, what kind of word it is, and its stem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Literal, NamedTuple

import msgspec

from pytrace.documents.languages import UNSPACED
from pytrace.documents.phrases import function_words
from pytrace.documents.unbroken import CODE_SPAN

# What only programs and addresses are written like, so that it is a word wherever it stands. Where a letter or digit stands before
# it none begins.
_CODE = rf"""
    (?<![A-Za-z0-9_])(?:
        (?:[A-Za-z][A-Za-z0-9+.-]{{1,15}}://|www\.)                                 # an address of the web
            (?:[^\s<>"`(){UNSPACED}。、，！？…]|\([^\s()]*\))*(?:[\w/=&#%+~-]|\([^\s()]*\))
        | [\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}})+                             # of mail
        | (?:localhost|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|[a-z]\w*(?:\.\w+)+):\d{{2,5}}       # a host and a port
        | \d+(?:\.\d+)+(?:(?:[-.]?(?:alpha|beta|a|b|rc|dev|post|pre)[.-]?\d+)+|\+\w+)  # a version: 1.0b3
        | __[A-Za-z0-9]\w*(?:\.\w+)*(?:\(\))?                                       # __init__.py
        | [A-Za-z]\w*(?:(?:\.|::|->)\w+)*(?:\[[a-z][\w,-]{{2,}}\])?                    # a name with a call, a value or an extra
            (?:\(\)|(?:=|[<>=!~]=(?=\d))[^\s,;()\[\]{{}}"'`=<>]*[^\s,;()\[\]{{}}"'`=<>.:!?]|(?<=\]))
        | (?:[A-Za-z0-9]+[./-])*[A-Za-z0-9]+_+[A-Za-z0-9]\w*(?:(?:[./-]|::)\w+)*       # snake_case
        | [A-Za-z]\w*(?:::\w+)+
        | [a-z]\w+(?:\.[^\W\d_]\w+)+                                               # httpx.Limits
        | (?:C\+\+|[CFJ]\#)(?!\w)
    )
    | (?<![\w-])(?:--[A-Za-z][\w-]*(?:=[^\s,;()"'`]*[^\s,;()"'`.:!?])?|-[A-Za-z](?![\w-]))  # an option
    | (?<![\w/.])(?:~|\.{{1,2}})?(?:/[A-Za-z0-9_.@-]*[A-Za-z0-9_])+/?(?!\w)          # a path
    | (?<![\w.*])\*?\.[a-z][\w.-]*\w                                               # .env, *.py
    | (?<!\w)(?:\$[A-Z]\w+|@[A-Za-z_][\w.]*\w)
"""
# Something of this is in all of that. Most sentences have none of it, and are read faster without looking for more.
_SIGN = re.compile(r"[_/@=$#]|::|\(\)|\+\+|:\d|\d[-+]\w|\w\[[a-z]|\w\.\w\w|(?<!\w)(?:-[A-Za-z-]|\.[a-z])")
# A number, a word with what ties its parts, or a mark.
_PROSE = r"\d(?:[\d,.]*\d)?(?:[^\W\d_]+)?|[^\W_]+(?:[-'’.&/][^\W_]+)*\.?|[^\w\s]|_"
_PLAIN_WORD = re.compile(rf"(?P<code>(?!))|{_PROSE}")
_WORD = re.compile(rf"(?P<code>{_CODE})|{_PROSE}", re.VERBOSE)
# A word that keeps its full stop: initials, short titles, "No."
_ABBREVIATED = re.compile(r"(?:[^\W\d_]\.)+|(?:[A-Z][a-z]{0,2}|Sept)\.")
# At the end of a sentence only initials keep theirs.
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
_ENDINGS = ("'s", "’s", "ing", "ed", "es", "s")
_SHORTEST_STEM = 4

Kind = Literal[
    "name", "word", "number", "verb", "article", "of", "and", "preposition", "auxiliary", "pronoun", "mark", "code"
]


class Word(NamedTuple):
    """A word, where it stands in its text, its kind, and the number of the code span that it is of, from 1 (0: none)."""

    text: str
    start: int
    end: int
    kind: Kind
    span: int = 0

    @property
    def stem(self) -> str:
        """Its lower case without an ending."""
        return stem(self.text)


class _Lists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    people: str
    places: str
    dates: str
    numbers: str
    origins: str
    identifiers: str
    months: str
    sorts: str
    families: list[str]
    honorifics: str
    roles: dict[str, str]


LISTS = msgspec.json.decode(resources.files(__package__).joinpath("words.json").read_bytes(), type=_Lists)
MONTHS = {form: number for number, name in enumerate(LISTS.months.split(), 1) for form in (name, name[:3])} | {
    "sept": 9
}
"""Months by their names and by what these are shortened to, without a full stop."""
HONORIFICS = frozenset((LISTS.honorifics + " " + LISTS.people).split())
"""Words before a person's name that are no part of it, in lower case."""
COUNTRIES = {
    form: country
    for country, forms in msgspec.json.decode(
        resources.files(__package__).joinpath("countries.json").read_bytes(), type=dict[str, list[str]]
    ).items()
    for form in (country, *forms)
}
"""Countries by their names and by what comes from them, in lower case."""
_FUNCTION = function_words()
_ARTICLES = frozenset(("a", "an", "the"))
_ASKING = frozenset(
    [
        "also",
        "but",
        "did",
        "do",
        "does",
        "how",
        "many",
        "much",
        "not",
        "or",
        "that",
        "this",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "whose",
    ]
)


def words(text: str) -> list[Word]:
    """Return the words and marks of a text; the marks around code are none of them."""
    found: list[Word] = []
    end, last = 0, len(text.rstrip())
    for number, span in enumerate(CODE_SPAN.finditer(text) if "`" in text else (), 1):
        _add_words(found, text, end, span.start(), last)
        for match in _WORD.finditer(text, *span.span(2)):
            kind: Kind = "code" if match["code"] or match[0][0].isalnum() else "mark"
            found.append(Word(match[0], match.start(), match.end(), kind, number))
        end = span.end()
    _add_words(found, text, end, len(text), last)
    return found


def _add_words(found: list[Word], text: str, first: int, stop: int, last: int) -> None:
    """Add the words and marks of prose; at `last` the text ends."""
    pattern = _WORD if _SIGN.search(text, first, stop) else _PLAIN_WORD
    for match in pattern.finditer(text, first, stop):
        word, start, end = match[0], match.start(), match.end()
        kept = _INITIALS if end == last else _ABBREVIATED
        if match["code"]:
            found.append(Word(word, start, end, "code"))
        elif len(word) > 1 and word[-1] == "." and not kept.fullmatch(word):
            found += [Word(word[:-1], start, end - 1, _kind(word[:-1])), Word(".", end - 1, end, "mark")]
        elif word == "I" and found and found[-1].kind == "name":  # a number: "Richard I"
            found.append(Word(word, start, end, "name"))
        else:
            found.append(Word(word, start, end, _kind(word)))


@lru_cache(1 << 16)
def _kind(word: str) -> Kind:
    lower = word.lower()
    if not word[0].isalnum():
        return "mark"
    if lower in _ARTICLES:
        return "article"
    if lower == "of":
        return "of"
    if lower == "and":
        return "and"
    for kind, listed in (("preposition", "prepositions"), ("auxiliary", "auxiliaries"), ("pronoun", "pronouns")):
        if lower in _FUNCTION[listed]:
            return kind  # type: ignore[return-value]
    if word[0].isdigit():
        return "number"
    if word[0].isupper():
        return "name"
    verb = lower in _FUNCTION["past_tenses"] or lower in _FUNCTION["verbs"] or (lower.endswith("ed") and len(lower) > 4)
    return "verb" if verb else "word"


@lru_cache(1 << 16)
def stem(word: str) -> str:
    """Return a word in lower case without an English ending; of a family of words ("die", "died", "death") the first."""
    bare = _bare(word)
    return _FAMILIES.get(bare, bare)


def _bare(word: str) -> str:
    word = word.lower().rstrip(".'’")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


_FAMILIES = {
    form: family.split()[0]
    for family in LISTS.families
    for word in family.split()
    for form in (word, _bare(word), word.removesuffix("e"))  # of "produced" "produc" is left
}


def content_stems(found: Sequence[Word]) -> frozenset[str]:
    """Return the stems of the words that carry content."""
    return frozenset(
        word.stem
        for word in found
        if word.kind in ("name", "word", "number", "verb", "code") and word.text.lower() not in _ASKING
    )
