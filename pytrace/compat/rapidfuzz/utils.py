"""``rapidfuzz.utils``."""

from __future__ import annotations

import re
from typing import Any

from pytrace.compat.rapidfuzz.handing import rapidfuzz

__all__ = ["default_process"]

_NO_WORD = re.compile(r"\W")


def default_process(sentence: Any) -> Any:
    """Turn what is neither letter, digit nor underscore into blanks, strip them at the ends, and lower the case.

    RapidFuzz's own is called where it is installed; it reads the Unicode of its own version, and never changes the number of
    characters within.
    """
    try:
        process = rapidfuzz("utils").default_process
    except ImportError:
        if not isinstance(sentence, str):
            raise
        # A character whose lower case is several stays as it is, as in RapidFuzz.
        blanked = _NO_WORD.sub(" ", sentence).strip()
        lowered = blanked.lower()
        if len(lowered) == len(blanked):
            return lowered
        return "".join(lower if len(lower := character.lower()) == 1 else character for character in blanked)
    return process(sentence)
