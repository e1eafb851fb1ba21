"""Text as files, databases and terminals can take it: what has no UTF-8, and what steers a terminal, is escaped."""

from __future__ import annotations

import json
import unicodedata

import msgspec

# They join letters or part them where Persian, Indic languages and emoji are spelled so, and move nothing.
_JOINERS = "\u200c\u200d"


def printable(text: object, kept: str = "") -> str:
    """Escape what would move a terminal's cursor, turn its text around, be seen by nobody or not be encoded, but for what is `kept`."""
    return "".join(
        character if _shows(character) or character in kept else ascii(character)[1:-1]  # escape becomes \x1b
        for character in str(text)
    )


def printable_json(text: str) -> str:
    """Escape the same within JSON, as JSON does: it says the same."""
    if text.isprintable():
        return text
    return "".join(
        character if _shows(character) or character == "\n" else json.dumps(character)[1:-1] for character in text
    )


def _shows(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs" or character in _JOINERS


def storable(text: str) -> str:
    """Escape lone surrogates, which no UTF-8 file can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def canonical(text: str) -> str:
    """Join surrogate pairs into the characters that they spell; a lone surrogate stays as it is."""
    # No text format can tell a pair from its character, so what is stored is the character.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def to_sql(text: str) -> str | bytes:
    """Text as SQLite stores it: itself, or bytes if it holds a lone surrogate, which SQLite's UTF-8 text cannot."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = canonical(text)
        data = text.encode("utf-8", "surrogatepass")
        return data if text.encode("utf-8", "replace") != data else text
    return text


def dump_json(value: object) -> str:
    """JSON text in ASCII where the value holds lone surrogates, in UTF-8 elsewhere; never a line break in it."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
