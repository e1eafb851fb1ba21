"""Words as claims are compared by: names, numbers by their values, months, negations, and the words that carry content."""

from __future__ import annotations

import re
import unicodedata
from importlib import resources
from typing import Literal, NamedTuple

import msgspec

TokenKind = Literal["word", "name", "number", "month", "negation", "function"]

_TOKEN = re.compile(
    r"\d(?:[\d,.]*\d)?(?:st|[nr]d|th|s)?(?![^\W_])|(?:[^\W\d_][\u0300-\u036f]*)+(?:[.&][^\W\d_]+|['’](?!s\b|t\b)[^\W\d_]+)*|\d[\d,.]*\d|[^\W_]+"
)
_ENDING = re.compile(r"(?<=\d)(?:st|[nr]d|th|s)$")
_CONTRACTED = re.compile(r"(?<=[a-z])n['’]t\b", re.IGNORECASE)
# Brackets as treebanks write them.
_BRACKETS = re.compile(r"-([LR])[RS]B-")
# Of a longer sentence the first words are read.
_LONGEST = 1_000
# A word behind one of these begins a sentence: its capital says nothing.
_STOPS = frozenset(".!?:\n")


class WordLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lists of ``words.json``: English; of texts in other languages, what has no list counts as a word."""

    stop: str
    negations: str
    refusals: str
    exclusives: str
    symmetric: str
    months: str
    units: str
    ordinals: str
    tens: str
    scales: dict[str, int]
    opposites: str
    irregular_verbs: str
    irregular_nouns: str
    before_base: str
    determiners: str
    subordinators: str
    adverbs: str


LISTS = msgspec.json.decode(resources.files(__package__).joinpath("words.json").read_bytes(), type=WordLists)
_FUNCTION = frozenset(LISTS.stop.split())
_NEGATIONS = frozenset(LISTS.negations.split())
_MONTHS = frozenset(LISTS.months.split())
NUMBERS: dict[str, float] = {
    **{word: float(number) for number, word in enumerate(LISTS.units.split())},
    **{word: 10.0 * number for number, word in enumerate(LISTS.tens.split(), 2)},
    # "First" is not among them: most are no ordinals, as in "at first".
    **{word: float(number) for number, word in enumerate(LISTS.ordinals.split(), 2)},
}
_TENS = frozenset(LISTS.tens.split())
REFUSALS = frozenset(LISTS.refusals.split())
EXCLUSIVES = frozenset(LISTS.exclusives.split())
SYMMETRIC = frozenset(LISTS.symmetric.split())
# The kinds that a word has whatever its capital and its place; most words of a text are such.
_LISTED: dict[str, TokenKind] = {
    **dict.fromkeys(_FUNCTION, "function"),
    **dict.fromkeys((*_NEGATIONS, "t"), "negation"),
}
for _other in (*NUMBERS, *LISTS.scales, *_MONTHS):
    _LISTED.pop(_other, None)
OPPOSITES: dict[str, frozenset[str]] = {}
for _pair in LISTS.opposites.split(";"):
    _first, _second = _pair.split()
    OPPOSITES[_first] = OPPOSITES.get(_first, frozenset()) | {_second}
    OPPOSITES[_second] = OPPOSITES.get(_second, frozenset()) | {_first}
IRREGULAR_FORMS = {
    form: base
    for family in (*LISTS.irregular_verbs.split(";"), *LISTS.irregular_nouns.split(";"))
    for base, *forms in [family.split()]
    for form in forms
}
"""The base of each irregular form: "write" of "wrote"."""
IRREGULAR_VERBS = frozenset(" ".join(LISTS.irregular_verbs.split(";")).split())
"""All forms of irregular verbs, their bases included."""

WEIGHTS = {"number": 2.0, "month": 1.5, "name": 1.5, "word": 1.0}
"""What a word of each kind that carries content counts."""


class Token(NamedTuple):
    """A word of a text: its lower-case form, its kind, the value of a number, its offsets ``text[start:end]``, and the mark before it."""

    form: str
    kind: TokenKind
    value: float | None
    start: int
    end: int
    mark: str = ""

    @property
    def is_content(self) -> bool:
        """Whether a text must have it to say what a claim says."""
        return self.kind not in ("function", "negation")


def tokens(text: str) -> list[Token]:
    """Read the words of a text, at most a thousand."""
    # "isn't" is read as "is" and "t": of the same length, so that places hold.
    text = _CONTRACTED.sub(lambda found: " " + found[0][1:], text)
    if "B-" in text:
        text = _BRACKETS.sub(lambda found: ("(" if found[1] == "L" else ")").ljust(len(found[0])), text)
    read: list[Token] = []
    opens, opened = True, False
    last = 0
    for found in _TOKEN.finditer(text):
        if len(read) == _LONGEST:
            break
        start, end = found.span()
        written = found[0]
        form = without_accents(written.lower()).rstrip(".")
        between = text[last:start]
        if between != " " and not _STOPS.isdisjoint(between):
            opens = True
        kind = _LISTED.get(form)
        value = None if kind else _value(form, read, between)
        if value is not None and read and (form in LISTS.scales or _completes(read[-1], form, between)):
            # "six million" is one number, and so is "seventy-one".
            before = read.pop()
            token = before._replace(form=f"{before.form} {form}", value=value, end=end)
        else:
            token = Token(
                form,
                kind or _kind(form, written, value, opens=opens),
                value,
                start,
                end,
                "" if between == " " else between.strip()[:1],
            )
        read.append(token)
        if token.kind == "name" and opened and between == " " and len(read) > 1:
            # "Ada Foah" at the beginning is a name of two words.
            read[-2] = read[-2]._replace(kind="name")
        opened = opens and token.kind == "word" and text[start].isupper()
        opens = False
        last = end
    return read


def without_accents(text: str) -> str:
    """Return "Noel" for "Noël"."""
    if text.isascii():
        return text
    letters = (each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))
    return unicodedata.normalize("NFC", "".join(letters))


def _value(form: str, before: list[Token], between: str) -> float | None:
    if form[0].isdigit():
        try:
            return float(_ENDING.sub("", form).replace(",", ""))
        except ValueError:
            return None
    if form in LISTS.scales:
        if before and before[-1].value is not None and between in (" ", "-"):
            return before[-1].value * LISTS.scales[form]
        return None
    value = NUMBERS.get(form)
    if value is not None and before and _completes(before[-1], form, between):
        return (before[-1].value or 0) + value
    return value


def _completes(before: Token, form: str, between: str) -> bool:
    """Say whether a word is the last part of a number: "one" behind "seventy"."""
    return before.form in _TENS and 1 <= NUMBERS.get(form, 0) <= 9 and between in (" ", "-", "‑")


def _kind(form: str, written: str, value: float | None, *, opens: bool) -> TokenKind:
    if value is not None:
        return "number"
    if form in _NEGATIONS or form == "t":
        return "negation"
    capital = written[0].isupper()
    if capital and form in _MONTHS:
        return "month"
    if form in _FUNCTION:
        return "function"
    return "name" if capital and not opens else "word"
