"""Texts, figures and data that can stand in a page: bounded, without what no file can hold, never read as markup."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

from pytrace.certify.certification_scores import Interval

NOTHING = "–"
# So much of a text that may be long, such as a response's step or an error's message, goes into a page.
LONGEST_TEXT = 4_000
_SURROGATE = re.compile("[\ud800-\udfff]")
# What turns text round until it is ended; the marks that Hebrew and Arabic are written with turn nothing but themselves.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
# What an HTML parser reads as markup within a script element, and what scripts once took for line ends.
_MARKUP = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def clean(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def _straight(text: str) -> str:
    return _TURNS.sub("\ufffd", clean(text))


def cut(text: str, longest: int = 200) -> str:
    """Cut a text to so many characters, the last of them an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def long_text(text: str) -> str:
    """Cut a text that may be long."""
    return cut(text, LONGEST_TEXT)


def shown(text: str) -> str:
    """Escape a text for a page, on one line, without what turns it round and control characters, which HTML forbids."""
    printable = "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in _straight(text))
    return escape(" ".join(printable.split()))


def finite(value: float | None) -> float | None:
    """Return a number, or None for what is not one."""
    return value if value is not None and math.isfinite(value) else None


def rounded(value: float | None) -> float | None:
    """Return a number with as many digits as a page shows or draws, or None for what is not one."""
    number = finite(value)
    return None if number is None else round(number, 4)


def value_at(record: Any, path: Sequence[str]) -> Any:
    """Return what stands in a record at a path of attributes, keys and indices; None where a part of it is missing."""
    for name in path:
        if isinstance(record, dict):
            record = record.get(name)
        elif isinstance(record, tuple):
            record = record[int(name)]
        elif record is not None:
            # Without a default: a path that is spelt wrong must not look like a missing value.
            record = getattr(record, name)
    return record


def percent(value: float | None) -> str:
    """Word a share."""
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f}%"


def points(value: float | None) -> str:
    """Word a difference of two shares, in points of a percent."""
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f} points".replace("-", "−")


def interval(estimate: Interval) -> str:
    """Word the interval of an estimate; empty if it has none."""
    low, high = finite(estimate.low), finite(estimate.high)
    return "" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}%"


def counted(number: int, name: str) -> str:
    """Word a number of things."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def embedded_json(value: object) -> str:
    """Write JSON that can stand in a script element of a page: it holds no ``<``, ``>`` or ``&``."""
    return plain_json(value).translate(_MARKUP)


def packed_json(value: object) -> str:
    """Write JSON compressed (gzip) and in base64, as a page's script unpacks it; the same for the same value."""
    # Without a time, which gzip would write into its header.
    return base64.b64encode(gzip.compress(plain_json(value).encode(), 9, mtime=0)).decode()


def plain_json(value: object) -> str:
    """Write JSON on one line, without lone surrogates and what turns text round."""
    # No NaN, which is no JSON: a browser would refuse the whole page's data for it.
    return _straight(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
