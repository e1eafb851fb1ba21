"""Texts and data that can stand in a page: of a bounded length, without what no file can hold, never read as markup."""

from __future__ import annotations

import base64
import gzip
import json
import re
import unicodedata
from html import escape

_SURROGATE = re.compile("[\ud800-\udfff]")
# What an HTML parser reads as markup within a script element, and what scripts once took for line ends.
_MARKUP = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def clean(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def cut(text: str, longest: int = 200) -> str:
    """Cut a text to so many characters, the last of them an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shown(text: str) -> str:
    """Escape a text for a page, on one line and without control characters, which HTML forbids."""
    kept = "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in clean(text))
    return escape(" ".join(kept.split()))


def embedded_json(value: object) -> str:
    """Write JSON that can stand in a script element of a page: it holds no ``<``, ``>`` or ``&``."""
    return plain_json(value).translate(_MARKUP)


def packed_json(value: object) -> str:
    """Write JSON compressed (gzip) and in base64, as a page's script unpacks it; the same for the same value."""
    return base64.b64encode(gzip.compress(plain_json(value).encode(), 9, mtime=0)).decode()


def plain_json(value: object) -> str:
    """Write JSON on one line, without lone surrogates."""
    return clean(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
