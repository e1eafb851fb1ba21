"""How answers are given and refused in Arabic, Chinese, French, German, Japanese, Russian and Spanish.

English has patterns of its own where responses are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import resources

from pytrace.documents.languages import UNSPACED, detect_language

_DATA = json.loads((resources.files(__package__) / "conclusions.json").read_text("utf-8"))


def _any_of(phrases: Iterable[str]) -> str:
    return "|".join(re.escape(phrase).replace("\\ ", r"\s+") for phrase in sorted(phrases, key=len, reverse=True))


FOREIGN_CONCLUSION = (
    rf"(?:(?:{_any_of(_DATA['therefore'])})[\s,，、]*)?(?<![^\W{UNSPACED}])(?:{_any_of(_DATA['answer'])})\s*[:：]?"
)
"""The words before an answer, as a regular expression without regard to case. No English text has them."""


def abstentions(text: str) -> tuple[str, ...]:
    """Return the phrases that refuse an answer in the language of a text, in small letters; none in English or another."""
    return tuple(_DATA["abstention"].get(detect_language(text), ()))
