"""Texts that can stand in a page: of a bounded length, without what no file can hold, and never read as markup."""

from __future__ import annotations

import json
import re

_SURROGATE = re.compile("[\ud800-\udfff]")
# What an HTML parser reads as markup within a script element, and what scripts once took for line ends.
_MARKUP = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def clean(text: str) -> str:
    r"""Replace lone surrogates, which no UTF-8 file can hold, by U+FFFD.

    Examples
    --------
    >>> clean("Gh\ud800ana") == "Gh\ufffdana"
    True
    """
    return _SURROGATE.sub("\ufffd", text)


def cut(text: str, longest: int = 200) -> str:
    """Cut a text to so many characters, the last of them an ellipsis.

    Examples
    --------
    >>> cut("Ghana", 4), cut("Ghana")
    ('Gha…', 'Ghana')
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def embedded_json(value: object) -> str:
    r"""Write JSON that can stand in a script element of a page: it holds no ``<``, ``>`` or ``&``.

    Examples
    --------
    >>> embedded_json({"text": "</script>"})
    '{"text":"\\u003c/script\\u003e"}'
    """
    return clean(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).translate(_MARKUP)
