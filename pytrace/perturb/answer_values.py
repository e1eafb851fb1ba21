"""Answers that are values: yes and no, years, dates and numbers, read by their format and computed anew in the same one."""

from __future__ import annotations

import calendar
import random
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

ValueType = Literal["yes-no", "year", "date", "number"]

_LATEST_YEAR = 2025


class Value(msgspec.Struct, frozen=True):
    """A value's type, and its form: what must stay as it is in another value of the same format."""

    type: ValueType
    form: tuple[object, ...]


def parse(text: str) -> Value | None:
    """Read a value; None if the text is none."""
    if text.casefold().rstrip(".") in {"yes", "no"}:
        return Value("yes-no", (_case(text), text.endswith(".")))
    date = _date(text)
    if date is not None:
        return Value("date", _date_form(date))
    year = _YEAR.match(text)
    if year:
        return Value("year", (year["before"] or "", year["decade"] or "", year["era"] or ""))
    number = _number(text)
    if number is not None:
        return Value("number", _number_form(number))
    words = _number_words(text)
    return None if words is None else Value("number", words)


def another(text: str, rng: random.Random) -> str:
    """Make another value in the same format, which may by chance be the same one."""
    if text.casefold().rstrip(".") in {"yes", "no"}:
        word = "no" if text.casefold().startswith("yes") else "yes"
        written = {"upper": word.upper(), "title": word.title()}.get(_case(text.rstrip(".")), word)
        return written + "." * text.endswith(".")
    date = _date(text)
    if date is not None:
        return _another_date(text, date, rng)
    year = _YEAR.match(text)
    if year:
        start, end = year.span("year")
        made = _another_year(int(year["year"]), rng)
        return text[:start] + str(made - made % 10 if year["decade"] else made) + text[end:]
    number = _number(text)
    return _another_number(text, number, rng) if number is not None else _other_words(text, rng)


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
        whole = int(text.replace(",", ""))
        return [f"{whole:,}", str(whole)]
    return []


def _case(text: str) -> str:
    return "upper" if text.isupper() and len(text) > 1 else "title" if text[:1].isupper() else "lower"


def _put(text: str, pieces: list[tuple[tuple[int, int], str]]) -> str:
    """Put texts in place of spans, which do not overlap."""
    for (start, end), piece in sorted(pieces, reverse=True):
        text = text[:start] + piece + text[end:]
    return text


_MONTHS = list(calendar.month_name)[1:]
_SHORT_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
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
        r"(?P<day>[0-9]{1,2})(?P<mark>[-/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{4})",
        rf"{_MONTH}",
    )
]
_YEAR = re.compile(
    r"(?P<before>c\. ?|circa |about |around |in |after |before |since |late |early )?"
    r"(?P<year>1[0-9]{3}|20[0-9]{2})(?P<decade>s)?(?P<era> ?(?:AD|BC|CE|BCE))?\Z",
    re.ASCII,
)


def _date(text: str) -> re.Match[str] | None:
    for pattern in _DATES:
        found = pattern.match(text)
        if found:
            fields = found.groupdict()
            month, day = _month(found), fields.get("day")
            # A leap year where none is told, so that February 29 is a date.
            year = int(fields.get("year") or 2000)
            ambiguous = pattern is _DATES[4]
            if not 1 <= month <= 12 or (ambiguous and int(day or 1) > 12):
                continue
            if 1 <= int(day or 1) <= calendar.monthrange(max(year, 1), month)[1]:
                return found
    return None


def _month(date: re.Match[str]) -> int:
    written = date["month"]
    if written.isdigit():
        return int(written)
    return _SHORT_MONTHS.index(written[:3]) + 1


def _date_form(date: re.Match[str]) -> tuple[object, ...]:
    """Return the format: the text with the style of each field in its place."""
    fields = date.groupdict()
    styles = {"year": "YEAR", "ordinal": "TH"}
    # Beside a month in words a day has one or two digits as it comes; in numbers the digits are part of the format.
    numeric = date["month"].isdigit()
    styles["day"] = "D" * len(fields.get("day") or "") if numeric or (fields.get("day") or "")[:1] == "0" else "DAY"
    styles["month"] = "M" * len(date["month"]) if numeric else "MONTH" if date["month"] in _MONTHS else "MON"
    return (_put(date.string, [(date.span(name), style) for name, style in styles.items() if fields.get(name)]),)


def _another_date(text: str, date: re.Match[str], rng: random.Random) -> str:
    fields = date.groupdict()
    month = rng.choice([number for number in range(1, 13) if number != _month(date)])
    pieces: list[tuple[tuple[int, int], str]] = []
    year = _another_year(int(fields["year"]), rng) if fields.get("year") else None
    if year is not None:
        pieces.append((date.span("year"), str(year)))
    written = date["month"]
    if written.isdigit():
        if len(written) == 1:
            month = rng.choice([number for number in range(1, 10) if number != _month(date)])
        pieces.append((date.span("month"), f"{month:0{len(written)}}"))
    else:
        names = _MONTHS if written in _MONTHS else _SHORT_MONTHS
        pieces.append((date.span("month"), names[month - 1]))
    if fields.get("day"):
        last = 12 if fields.get("mark") else calendar.monthrange(year or 2001, month)[1]
        # As many digits as before, so that "09" stays two and "9" one.
        low, high = (1, 9) if len(date["day"]) == 1 or date["day"][0] == "0" else (10, last)
        day = rng.choice([number for number in range(low, high + 1) if number != int(date["day"])])
        pieces.append((date.span("day"), f"{day:0{len(date['day'])}}"))
        if fields.get("ordinal"):
            pieces.append((date.span("ordinal"), _ordinal(day)))
    return _put(text, pieces)


def _another_year(year: int, rng: random.Random) -> int:
    """Return a year some time before or after, of as many digits and not in the future."""
    low, high = 10 ** (len(str(year)) - 1), max(_LATEST_YEAR, year) if year > 999 else 999
    near = [one for one in range(max(low, year - 60), min(high, year + 60) + 1) if abs(one - year) >= 3]
    return rng.choice(near)


_NUMBER = re.compile(
    r"(?P<before>(?:about|after|almost|approximately|around|at least|before|c\.|circa|less than|more than|nearly|over|roughly|"
    r"some|under|up to) ?)?"
    r"(?P<sign>(?:US|A|C)?[$€£¥₹]|[A-Z]{3} |[-+−])?"
    r"(?P<first>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)"
    r"(?:(?P<between> ?[-–—:] ?| to | and )(?P<second>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?))?"
    r"(?P<ordinal>st|nd|rd|th)?(?P<unit>[ -]?[%°a-zA-Z²³µ/.()-]*(?: [%°a-zA-Z²³µ/.()-]+){0,4})\Z"  # codespell:ignore nd
)
_UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = [
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_TIMES = ["twice", "thrice"]
_SCALES = ["hundred", "thousand", "million", "billion"]
_WORDS = {word: group for group in (_UNITS, _TEENS, _TENS, _ORDINALS, _TIMES, _SCALES) for word in group}


def _number(text: str) -> re.Match[str] | None:
    found = _NUMBER.match(text)
    if found is None or len(text) > 80:
        return None
    # "12 Angry Men" and "747 Boeing" are names: a unit is written small or in a few letters ("GHz").
    if any(re.match(r"[A-Z][a-z]{2,}", word) for word in found["unit"].split()):
        return None
    if re.fullmatch(r"[a-zA-Z].*", found["unit"]) and len(found["unit"].split()[0]) > 4:
        return None
    return found


def _digits(written: str) -> tuple[int, bool, int]:
    whole, _, decimals = written.partition(".")
    return len(whole.replace(",", "")), "," in whole, len(decimals)


def _number_form(number: re.Match[str]) -> tuple[object, ...]:
    second = _digits(number["second"]) if number["second"] else None
    kept = (
        number["before"] or "",
        number["sign"] or "",
        number["between"] or "",
        bool(number["ordinal"]),
        number["unit"],
    )
    return (*kept, _digits(number["first"]), second)


def _another_number(text: str, number: re.Match[str], rng: random.Random) -> str:
    names = ["first", "second"] if number["second"] else ["first"]
    # There were few centuries yet.
    made = [_century(number[name], rng) if "centur" in number["unit"] else _like(number[name], rng) for name in names]
    given = [float(number[name].replace(",", "")) for name in names]
    if len(made) == 2 and given[0] < given[1]:
        made.sort(key=lambda one: float(one.replace(",", "")))
        if _digits(made[0]) != _digits(number["first"]):
            made.reverse()
    pieces = [(number.span(name), one) for name, one in zip(names, made, strict=True)]
    if number["ordinal"]:
        pieces.append((number.span("ordinal"), _ordinal(int(made[-1].replace(",", "").partition(".")[0]))))
    return _put(text, pieces)


def _century(written: str, rng: random.Random) -> str:
    return str(rng.randint(10, 20) if len(written) == 2 else rng.randint(2, 9)) if len(written) < 3 else written


def _like(written: str, rng: random.Random) -> str:
    """Write a number with as many digits, the same commas, decimals and leading zeros."""
    whole, point, decimals = written.partition(".")
    bare = whole.replace(",", "")
    if re.fullmatch(r"1[0-9]{3}|20[0-9]{2}", whole):
        digits = str(_another_year(int(whole), rng))  # a range of years stays one
    else:
        zeros = min(len(bare) - len(bare.lstrip("0")), len(bare) - 1)
        rest = len(bare) - zeros
        first = rng.choice("23456789") if rest else ""  # a lone 1 would want another form of its noun
        digits = "0" * zeros + first + "".join(rng.choice("0123456789") for _ in range(rest - 1))
    if "," in whole:
        digits = f"{int(digits):,}"
    return digits + point + "".join(rng.choice("123456789") for _ in decimals)


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")  # codespell:ignore nd


_WORD = re.compile(r"[a-z]+", re.IGNORECASE | re.ASCII)


def _counting(text: str) -> Iterator[re.Match[str]]:
    """Return the words behind an article, which may begin a number ("the third")."""
    return _WORD.finditer(text, re.match(r"(?:the |an? )?", text, re.IGNORECASE).end())  # type: ignore[union-attr]


def _number_words(text: str) -> tuple[object, ...] | None:
    """Return the form of a number in words ("twenty-three miles"): the sort of each word, and what else stands there."""
    if len(text) > 80:
        return None
    form: list[object] = []
    counted = last = 0
    for found in _counting(text):
        group = _WORDS.get(found[0].lower())
        if group is None:
            break
        counted += 1
        form.extend(
            (text[last : found.start()], tuple(group) if group is not _SCALES else found[0].lower(), _case(found[0]))
        )
        last = found.end()
    rest = text[last:]
    # "one of the judges" counts nobody, and "Five Summer Stories" is a name.
    follows = rest.split()
    if not counted or len(follows) > 2 or rest[:3] == " of" or any(not word.islower() for word in follows):
        return None
    if counted == 1 and text.lower() in _SCALES:
        return None
    return ("words", *form, rest)


def _other_words(text: str, rng: random.Random) -> str:
    pieces = []
    for found in _counting(text):
        group = _WORDS.get(found[0].lower())
        if group is None:
            break
        if group is not _SCALES:
            # Not "one", which would want another form of its noun.
            word = rng.choice([one for one in group if one not in {"one", found[0].lower()}] or [found[0]])
            pieces.append((found.span(), word.title() if _case(found[0]) == "title" else word))
    return _put(text, pieces)
