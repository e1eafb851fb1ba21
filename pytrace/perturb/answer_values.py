"""Answers that are values: yes and no, years, dates and numbers, read by their format and computed anew in the same one."""

from __future__ import annotations

import calendar
import functools
import itertools
import random
import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from pytrace.perturb.word_lists import WORDS

AnswerType = Literal[
    "yes-no", "year", "date", "number", "nationality", "place", "person", "name", "phrase", "list"
]  # fmt: skip

# No year of the future is made up, which every reader would know to be wrong.
_LATEST_YEAR = 2025
# What is longer is no number with a unit, and the pattern of numbers need not be tried on it.
_LONGEST_NUMBER = 80


class Parsed(msgspec.Struct, frozen=True):
    """An answer's type, what has to be equal in another of the same form, and how many words may differ little.

    A list has its `items`, a value what makes `another` of the same format, which may by chance be the same one again.
    """

    type: AnswerType
    form: tuple[object, ...]
    words: int = 0
    items: tuple[Parsed, ...] = ()
    another: Callable[[random.Random], str] | None = None

    def alike(self, other: Parsed) -> bool:
        """Whether two answers have the same type and form."""
        if (self.type, self.form, len(self.items)) != (other.type, other.form, len(other.items)):
            return False
        return abs(self.words - other.words) <= 1 and all(map(Parsed.alike, self.items, other.items))


def read_value(text: str) -> Parsed | None:
    """Read a value; None if the text is none."""
    if text.casefold().rstrip(".") in {"yes", "no"}:
        return Parsed("yes-no", (case_of(text), text.endswith(".")), another=lambda _: _opposite(text))
    # Dates come first: "2001-02-03" is a range of numbers as well, and a year begins it.
    date = _date(text)
    if date is not None:
        return Parsed("date", (_date_template(date),), another=functools.partial(_another_date, date))
    year = _YEAR.match(text)
    if year:
        return Parsed("year", (_template(year, {"year": "{}"}),), another=functools.partial(_year_like, year))
    number = _number(text)
    if number is not None:
        return Parsed("number", _number_form(number), another=functools.partial(_another_number, number))
    return _number_words(text)


def renderings(text: str) -> list[str]:
    """Return the other ways of writing a full date or a whole number, always in the same order; none for anything else."""
    date = _date(text)
    if date is not None:
        fields = date.groupdict()
        if not (fields.get("day") and fields.get("year")):
            return []
        day, month, year = int(date["day"]), _month(date), int(date["year"])
        name = calendar.month_name[month]
        return [f"{day} {name} {year}", f"{name} {day}, {year}", f"{year}-{month:02}-{day:02}"]
    if re.fullmatch(r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{4,15}", text) and not _YEAR.match(text):
        number = int(text.replace(",", ""))
        return [f"{number:,}", str(number)]
    return []


def case_of(text: str) -> str:
    """Return "upper", "title" or "lower"; a lone capital is a title."""
    return "upper" if text.isupper() and len(text) > 1 else "title" if text[:1].isupper() else "lower"


def _opposite(text: str) -> str:
    word = "no" if text.casefold().startswith("yes") else "yes"
    written = {"upper": word.upper(), "title": word.title()}.get(case_of(text.rstrip(".")), word)
    return written + "." * text.endswith(".")


def _template(match: re.Match[str], fields: Mapping[str, str]) -> str:
    """Return a value's text with other texts, such as the fields of a format, in place of groups."""
    text = match.string
    # From the last to the first, so that the places of the others stay right.
    for name in sorted(fields, key=match.start, reverse=True):
        text = text[: match.start(name)] + fields[name] + text[match.end(name) :]
    return text


_MONTHS = list(calendar.month_name)[1:]
_SHORT_MONTHS = [name[:3] for name in _MONTHS]
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)}|Sept|{'|'.join(_SHORT_MONTHS)})(?P<dot>\.?)"
_DAY = r"(?P<day>[0-9]{1,2})(?P<ordinal>st|nd|rd|th)?"  # codespell:ignore nd
_DATES = [
    re.compile(pattern + r"\Z", re.ASCII)
    for pattern in (
        rf"{_MONTH} +{_DAY}(?:,? +(?P<year>[0-9]{{3,4}}))?",
        rf"{_DAY} +(?:of +)?{_MONTH}(?:,? +(?P<year>[0-9]{{3,4}}))?",
        rf"{_MONTH},? +(?P<year>[0-9]{{4}})",
        r"(?P<year>[0-9]{4})(?P<mark>[-/.])(?P<month>[0-9]{2})(?P=mark)(?P<day>[0-9]{2})",
        # Which of the two is the day nobody can tell, so both are kept below 13.
        r"(?P<day>0?[0-9]|1[0-2])(?P<mark>[-/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{4})",
        rf"{_MONTH}",
    )
]
_YEAR = re.compile(
    r"(?P<before>c\. ?|circa |about |around |in |after |before |since |late |early )?"
    r"(?P<year>1[0-9]{3}|20[0-9]{2})(?P<decade>s)?(?P<era> ?(?:AD|BC|CE|BCE))?\Z",
    re.ASCII,
)


def _date(text: str) -> re.Match[str] | None:
    for date in filter(None, (pattern.match(text) for pattern in _DATES)):
        fields = date.groupdict()
        month, day = _month(date), int(fields.get("day") or 1)
        # A leap year where none is told, so that February 29 is a date.
        year = max(int(fields.get("year") or 2000), 1)
        if 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]:
            return date
    return None


def _month(date: re.Match[str]) -> int:
    written = date["month"]
    return int(written) if written.isdigit() else _SHORT_MONTHS.index(written[:3]) + 1


def _date_template(date: re.Match[str]) -> str:
    """Return the format of a date, with a field for each of its parts in the style that it has."""
    fields = date.groupdict()
    month, day = date["month"], fields.get("day") or ""
    # Beside a month in words a day has one or two digits as it comes; in numbers the digits are part of the format.
    numeric = month.isdigit()
    styles = {
        "year": "{year}",
        "ordinal": "{ordinal}",
        "day": f"{{day:0{len(day)}}}" if numeric or day[:1] == "0" else "{day}",
        "month": f"{{month:0{len(month)}}}" if numeric else "{name}" if month in _MONTHS else "{short}",
    }
    return _template(date, {name: style for name, style in styles.items() if fields.get(name)})


def _another_date(date: re.Match[str], rng: random.Random) -> str:
    fields = date.groupdict()
    others = [number for number in range(1, 13) if number != _month(date)]
    month, day = rng.choice(others), 0
    year = _another_year(int(fields["year"]), rng) if fields.get("year") else None
    if date["month"].isdigit() and len(date["month"]) == 1:
        month = rng.choice([number for number in others if number < 10])
    if fields.get("day"):
        # A common year where none is told, so that February 29 is not made up.
        last = 12 if fields.get("mark") else calendar.monthrange(year or 2001, month)[1]
        # As many digits as before, so that "09" stays two and "9" one.
        low, high = (1, 9) if len(date["day"]) == 1 or date["day"][0] == "0" else (10, last)
        day = rng.choice([number for number in range(low, high + 1) if number != int(date["day"])])
    name, short = _MONTHS[month - 1], _SHORT_MONTHS[month - 1]
    return _date_template(date).format(year=year, month=month, name=name, short=short, day=day, ordinal=_ordinal(day))


def _year_like(year: re.Match[str], rng: random.Random) -> str:
    number = _another_year(int(year["year"]), rng)
    return _template(year, {"year": str(number - number % 10 if year["decade"] else number)})


def _another_year(year: int, rng: random.Random) -> int:
    """Return a year some time before or after, of as many digits and not in the future."""
    low, high = 10 ** (len(str(year)) - 1), max(_LATEST_YEAR, year) if year > 999 else 999
    near = [other for other in range(max(low, year - 60), min(high, year + 60) + 1) if abs(other - year) >= 3]
    return rng.choice(near)


_FIGURE = r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?"
_NUMBER = re.compile(
    r"(?P<before>(?:about|after|almost|approximately|around|at least|before|c\.|circa|less than|more than|nearly|over|roughly|"
    r"some|under|up to) ?)?"
    r"(?P<sign>(?:US|A|C)?[$€£¥₹]|[A-Z]{3} |[-+−])?"
    rf"(?P<first>{_FIGURE})(?:(?P<between> ?[-–—:] ?| to | and )(?P<second>{_FIGURE}))?"
    r"(?P<ordinal>st|nd|rd|th)?(?P<unit>[ -]?[%°a-zA-Z²³µ/.()-]*(?: [%°a-zA-Z²³µ/.()-]+){0,4})\Z"  # codespell:ignore nd
)


def _number(text: str) -> re.Match[str] | None:
    match = _NUMBER.match(text)
    if match is None or len(text) > _LONGEST_NUMBER:
        return None
    # "12 Angry Men" and "747 Boeing" are names: a unit is written small or in a few letters ("GHz").
    if any(re.match(r"[A-Z][a-z]{2,}", word) for word in match["unit"].split()):
        return None
    if re.fullmatch(r"[a-zA-Z].*", match["unit"]) and len(match["unit"].split()[0]) > 4:
        return None
    return match


def _digits(written: str) -> tuple[int, bool, int]:
    integer, _, decimals = written.partition(".")
    return len(integer.replace(",", "")), "," in integer, len(decimals)


def _amount(written: str) -> float:
    return float(written.replace(",", ""))


def _number_form(number: re.Match[str]) -> tuple[object, ...]:
    """Return the digits, commas and decimals of the one or two numbers, and the text around them."""
    numbers = [name for name in ("first", "second") if number[name]]
    styles = dict.fromkeys(numbers, "#") | ({"ordinal": "TH"} if number["ordinal"] else {})
    return (_template(number, styles), *(_digits(number[name]) for name in numbers))


def _another_number(number: re.Match[str], rng: random.Random) -> str:
    names = ["first", "second"] if number["second"] else ["first"]
    # There were few centuries yet.
    make = _century if "centur" in number["unit"] else _like
    written = [make(number[name], rng) for name in names]
    # What rises goes on rising, unless the digits of its ends forbid it.
    if len(written) == 2 and _amount(number["first"]) < _amount(number["second"]):
        written.sort(key=_amount)
        if _digits(written[0]) != _digits(number["first"]):
            written.reverse()
    fields = dict(zip(names, written, strict=True))
    if number["ordinal"]:
        fields["ordinal"] = _ordinal(int(written[-1].replace(",", "").partition(".")[0]))
    return _template(number, fields)


def _century(written: str, rng: random.Random) -> str:
    return str(rng.randint(10, 20) if len(written) == 2 else rng.randint(2, 9)) if len(written) < 3 else written


def _like(written: str, rng: random.Random) -> str:
    """Write a number with as many digits, the same commas, decimals and leading zeros."""
    integer, point, decimals = written.partition(".")
    bare = integer.replace(",", "")
    if re.fullmatch(r"1[0-9]{3}|20[0-9]{2}", integer):
        digits = str(_another_year(int(integer), rng))  # a range of years stays one
    else:
        zeros = min(len(bare) - len(bare.lstrip("0")), len(bare) - 1)
        first = rng.choice("23456789")  # a lone 1 would want another form of its noun
        digits = "0" * zeros + first + "".join(rng.choice("0123456789") for _ in range(len(bare) - zeros - 1))
    if "," in integer:
        digits = f"{int(digits):,}"
    return digits + point + "".join(rng.choice("123456789") for _ in decimals)


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")  # codespell:ignore nd


_GROUPS = {word: group for group in (*WORDS.number_groups, WORDS.scales) for word in group}


def _number_words(text: str) -> Parsed | None:
    """Read a number in words ("twenty-three miles"); its form is the sort of each word, and what else stands there."""
    if len(text) > _LONGEST_NUMBER:
        return None
    # An article may stand before a number ("the third").
    start = re.match(r"(?:the |an? )?", text, re.IGNORECASE).end()  # type: ignore[union-attr]
    matches = re.compile(r"[a-z]+", re.IGNORECASE | re.ASCII).finditer(text, start)
    words = list(itertools.takewhile(lambda word: word[0].lower() in _GROUPS, matches))
    if not words or (len(words) == 1 and text.lower() in WORDS.scales):
        return None
    behind = text[words[-1].end() :]
    # "one of the judges" counts nobody, and "Five Summer Stories" is a name.
    unit = behind.split()
    if len(unit) > 2 or behind[:3] == " of" or not all(word.islower() for word in unit):
        return None
    ends = [0, *(word.end() for word in words)]
    gaps = [text[end : word.start()] for end, word in zip(ends, words, strict=False)]
    sorts = [(_sort(word[0].lower()), case_of(word[0])) for word in words]

    def another(rng: random.Random) -> str:
        return "".join(gap + _other_word(word[0], rng) for gap, word in zip(gaps, words, strict=True)) + behind

    return Parsed("number", ("words", *gaps, *sorts, behind), another=another)


def _sort(word: str) -> object:
    return word if word in WORDS.scales else _GROUPS[word]


def _other_word(word: str, rng: random.Random) -> str:
    if word.lower() in WORDS.scales:
        return word
    # Not "one", which would want another form of its noun.
    others = [other for other in _GROUPS[word.lower()] if other not in {"one", word.lower()}]
    written = rng.choice(others or [word])
    return written.title() if case_of(word) == "title" else written
