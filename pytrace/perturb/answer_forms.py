"""The type and form of an answer, told by rules: what names, lists and phrases look like; values have a module of their own."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from pytrace.perturb import answer_values
from pytrace.perturb.common_names import (
    CITIES,
    COUNTRIES,
    MEN,
    NATIONALITIES,
    ORGANISATION_WORDS,
    PARTICLES,
    PLACE_STARTS,
    PLACE_WORDS,
    SMALL_WORDS,
    STATES,
    SUFFIXES,
    TITLES,
    WOMEN,
)

AnswerType = Literal[
    "yes-no", "year", "date", "number", "nationality", "place", "person", "name", "phrase", "list"
]  # fmt: skip

# An answer is short; what is longer than this is some text, and the rules need not look at it.
LONGEST = 200


class Parsed(msgspec.Struct, frozen=True):
    """An answer's type, what has to be equal in another of the same form, and how many words may differ little."""

    type: AnswerType
    form: tuple[object, ...]
    words: int = 0
    items: tuple[Parsed, ...] = ()


_ARTICLE = re.compile(r"^(the|an?)\s+", re.IGNORECASE)
_FIRST_NAMES = frozenset((*WOMEN, *MEN))
PLACES = {
    **{name.casefold(): "city" for name in CITIES},
    **{name.casefold(): "state" for name in STATES},
    **{name.casefold(): "country" for name in COUNTRIES},
}
_NATIONALITIES = frozenset(name.casefold() for name in NATIONALITIES)
INITIAL = re.compile(r"^(?:[^\W\d_]\.)+$")
# Between the items of a list; a lone comma between two names is a place ("Lyon, France") and no list.
SEPARATOR = re.compile(r"(\s*;\s*|,\s+(?:and\s+|or\s+)?|\s+(?:and|or)\s+|\s*/\s*)")
_MOST_ITEMS = 10


def parse(text: str) -> Parsed:
    """Tell the type and form of an answer, which must be clean."""
    if len(text) > LONGEST:
        return Parsed("phrase", ("", "long"), len(text.split()))
    value = answer_values.parse(text)
    if value is not None:
        return Parsed(value.type, value.form)
    return _name(text) or _list(text) or _title_case(text) or _phrase(text)


def _name(text: str) -> Parsed | None:
    """Recognise what only a known word makes a nationality, a place or a person."""
    article, rest = split_article(text)
    if rest.casefold() in _NATIONALITIES:
        return Parsed("nationality", (article, case_of(rest)))
    parts = rest.split(", ")
    kind = PLACES.get(rest.casefold(), "")
    if kind and _is_title(rest):
        return Parsed("place", (article, "", 1), len(rest.split()))
    if 2 <= len(parts) <= 3 and all(_is_place_part(part) for part in parts) and " and " not in rest:
        return Parsed("place", (article, "", len(parts)), len(rest.split()))
    if len(parts) == 1 and _is_title(rest):
        word = _place_word(rest)
        if word:
            return Parsed("place", (article, word, 1), len(rest.split()))
    return None if article else _person(rest)


def _is_place_part(part: str) -> bool:
    words = part.split()
    return (
        1 <= len(words) <= 4 and _is_title(part) and part.strip(".") not in {"Jr", "Sr", "Inc", "Ltd"} and len(part) > 2
    )


def _place_word(text: str) -> str:
    """Return the word that says what kind of place it is, with where it stands; "" if there is none."""
    words = text.split()
    if len(words) < 2:
        return ""
    if words[-1] in PLACE_WORDS:
        return f"- {words[-1]}"
    start = f"{words[0]} of" if words[1] == "of" and len(words) > 2 else words[0]
    return f"{start} -" if words[0] in PLACE_STARTS else ""


def _person(text: str) -> Parsed | None:
    words = text.replace(",", "").split()
    title = words[0] if words and words[0] in TITLES else ""
    suffix = words[-1] if len(words) > 2 and words[-1] in SUFFIXES else ""
    named = words[bool(title) : len(words) - bool(suffix)]
    if not 1 <= len(named) <= 5 or (len(named) == 1 and not title):
        return None
    if not all(INITIAL.match(word) or word in PARTICLES or is_capital(word) for word in named):
        return None
    initials = sum(bool(INITIAL.match(word)) for word in named)
    if any(word in ORGANISATION_WORDS or word in PLACE_WORDS for word in named) or len(named) == initials:
        return None
    if not (
        title
        or initials
        or suffix.startswith(("J", "S"))
        or named[0] in _FIRST_NAMES
        or named[0].partition("-")[0] in _FIRST_NAMES
    ):
        return None
    return Parsed("person", (title, initials, suffix), len(named))


def _list(text: str) -> Parsed | None:
    items = items_of(text)
    if not items:
        return None
    parsed = tuple(parse(item) for item in items)
    return Parsed("list", tuple(SEPARATOR.split(text)[1::2]), items=parsed)


def items_of(text: str) -> tuple[str, ...]:
    """Return the items of a list; none if the text is not one."""
    if len(text) > LONGEST or answer_values.parse(text) is not None or _name(text) is not None:
        return ()
    items = tuple(SEPARATOR.split(text)[::2])
    if not 2 <= len(items) <= _MOST_ITEMS or not all(items):
        return ()
    # What lies between commas in longer prose is no item.
    return items if all(len(item.split()) <= 6 for item in items) else ()


def _title_case(text: str) -> Parsed | None:
    article, rest = split_article(text)
    if not rest or not _is_title(rest):
        return None
    words = rest.split()
    if len(words) == 1 and rest.isupper() and rest.isalpha() and len(rest) > 1:
        return Parsed("name", (article, "acronym", len(rest)), 1)
    return Parsed("name", (article, _organisation_word(rest)), len(words))


def _organisation_word(text: str) -> str:
    words = text.split()
    if len(words) > 1 and words[-1] in ORGANISATION_WORDS:
        return f"- {words[-1]}"
    return f"{words[0]} of -" if len(words) > 2 and words[1] == "of" and words[0] in ORGANISATION_WORDS else ""


def _phrase(text: str) -> Parsed:
    article, rest = split_article(text)
    return Parsed("phrase", (article, any(is_capital(word) for word in rest.split())), len(rest.split()))


def split_article(text: str) -> tuple[str, str]:
    """Return a first article ("the", or "a" for "an" too) and the rest."""
    found = _ARTICLE.match(text)
    return ("the" if found[1].lower() == "the" else "a", text[found.end() :]) if found else ("", text)


def is_capital(word: str) -> bool:
    """Whether the first letter or digit of a word is a capital letter."""
    letter = next((one for one in word if one.isalnum()), "")
    return letter.isupper()


def _is_title(text: str) -> bool:
    """Whether every word that counts begins with a capital or a digit, and the first with a capital."""
    words = text.split()
    return bool(words) and any(map(is_capital, words)) and all(
        is_capital(word) or word[0].isdigit() or word in SMALL_WORDS or not any(map(str.isalpha, word)) for word in words
    )  # fmt: skip


def case_of(text: str) -> str:
    """Return "upper", "title" or "lower"."""
    return "upper" if text.isupper() else "title" if text[:1].isupper() else "lower"


def alike(first: Parsed, second: Parsed) -> bool:
    """Whether two answers have the same type and form; see `answer_types.same_type`."""
    if (first.type, first.form, len(first.items)) != (second.type, second.form, len(second.items)):
        return False
    return abs(first.words - second.words) <= 1 and all(map(alike, first.items, second.items))
