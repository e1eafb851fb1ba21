"""Dates and numbers in names and texts, compared by what they are worth: "1908-05-01" and "May 1, 1908", "0.42 km" and "420 m"."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            ("january", "jan"), ("february", "feb"), ("march", "mar"), ("april", "apr"), ("may",), ("june", "jun"), ("july", "jul"),
            ("august", "aug"), ("september", "sep", "sept"), ("october", "oct"), ("november", "nov"), ("december", "dec"),
        ),
        1,
    )
    for name in names
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
# What a unit measures, and how much of the base unit it is. Exact by definition, but for the year (365.25 days).
_UNITS: dict[str, tuple[str, float]] = {
    word: (kind, factor)
    for kind, words in {
        "length": "m metre metres meter meters=1;km kilometre kilometres kilometer kilometers=1000;cm centimetre centimetres "
        "centimeter centimeters=0.01;mm millimetre millimetres millimeter millimeters=0.001;mi mile miles=1609.344;ft foot feet=0.3048;"
        "in inch inches=0.0254;yd yard yards=0.9144",
        "mass": "kg kilogram kilograms=1;g gram grams=0.001;t tonne tonnes=1000;lb lbs pound pounds=0.45359237;oz ounce ounces=0.028349523125",
        "area": "km2 km²=1e6;m2 m²=1;ha hectare hectares=1e4;acre acres=4046.8564224",
        "time": "s second seconds=1;min minute minutes=60;h hour hours=3600;day days=86400;week weeks=604800;year years=31557600",
        "share": "% percent=0.01",
    }.items()
    for entry in words.split(";")
    for names, factor in [(entry.partition("=")[0], float(entry.partition("=")[2]))]
    for word in names.split()
}
_SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_NUMBER = r"[-−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-−]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
_UNIT = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
_VALUE = re.compile(
    rf"""(?<![\w.,/+-])(?:
        (?P<iso>[-+]?\d{{4}})-(?P<iso_month>\d\d)(?:-(?P<iso_day>\d\d)(?:T[\d:.]*(?:Z|[-+]\d\d:\d\d)?)?)?(?![\w-])
      | (?P<day>\d{{1,2}})(?:st|[nr]d|th)?\s(?:of\s)?(?P<month>{_MONTH})\.?,?\s(?P<year>\d{{3,4}})\b
      | (?P<month2>{_MONTH})\.?\s(?P<day2>\d{{1,2}})(?:st|[nr]d|th)?,?\s(?P<year2>\d{{3,4}})\b
      | (?P<month3>{_MONTH})\.?,?\s(?:of\s)?(?P<year3>\d{{3,4}})\b
      | (?P<rough>(?:about|around|approximately|roughly|nearly|some|almost)\s)?(?P<number>{_NUMBER})
        (?:\s(?P<scale>{"|".join(_SCALES)})\b)?(?:[\s-]?(?P<unit>{_UNIT})(?!\w))?(?![\w])
    )""",
    re.VERBOSE | re.IGNORECASE,
)


class Value(NamedTuple):
    """A date or a number in a text, ``text[start:end]``.

    `date` is (year, month, day), with 0 for what is not said, of dates and of what may be a year; `number` is in the base unit
    of what `unit` says is measured ("" if no unit is given), `plain` as it is written, both NaN of dates. `digits` is how many count, if it is a rough number.
    """

    date: tuple[int, int, int] | None
    number: float
    plain: float
    unit: str
    digits: int
    start: int
    end: int


def find_values(text: str) -> list[Value]:
    """Find the dates and numbers of a text, in their order."""
    return [_value(found) for found in _VALUE.finditer(text)] if any(map(str.isdigit, text)) else []


def value_of(name: str) -> Value | None:
    """Return the date or number that a name is, or None where it is more or less than one."""
    stripped = name.strip()
    found = _VALUE.fullmatch(stripped) if any(map(str.isdigit, stripped)) else None
    return None if found is None else _value(found)


def tells(said: Value, known: Value) -> bool:
    """Say whether a text that says one value says no more than a graph that knows another: "1908" of 1 May 1908, not the reverse."""
    if said.date and known.date and math.isnan(said.number + known.number):
        return all(a in (0, b) for a, b in zip(said.date, known.date, strict=True))
    if said.unit and known.unit and said.unit != known.unit:
        return False
    measured = said.unit == known.unit
    number, wanted = (said.number, known.number) if measured else (said.plain, known.plain)
    if said.digits and wanted and math.isfinite(wanted):
        size = math.floor(math.log10(abs(wanted))) + 1 - said.digits
        wanted = round(wanted, -size)
    return math.isclose(number, wanted, rel_tol=1e-9)


def _value(found: re.Match[str]) -> Value:
    parts = found.groupdict()
    start, end = found.span()
    if parts["number"] is None:
        year = parts["iso"] or parts["year"] or parts["year2"] or parts["year3"]
        month = parts["iso_month"] or parts["month"] or parts["month2"] or parts["month3"]
        day = parts["iso_day"] or parts["day"] or parts["day2"] or 0
        number = int(month) if month.isdigit() else _MONTHS[month.lower()]
        return Value((int(year), number, int(day)), math.nan, math.nan, "", 0, start, end)
    written = parts["number"].replace(",", "").replace("−", "-")
    value = float(written) * _SCALES.get((parts["scale"] or "").lower(), 1.0)
    unit, factor = _UNITS.get((parts["unit"] or "").lower(), ("", 1.0))
    year_like = re.fullmatch(r"\d{3,4}", written) and not (parts["unit"] or parts["scale"] or parts["rough"])
    digits = len(written.strip("-").replace(".", "").strip("0")) if parts["rough"] else 0
    return Value((int(written), 0, 0) if year_like else None, value * factor, value, unit, digits, start, end)
