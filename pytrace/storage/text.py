"""Text as files and databases can hold it: lone surrogates, which have no UTF-8, escaped or kept as bytes."""

from __future__ import annotations

import json

import msgspec


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
