"""Grammars in GBNF, llama.cpp's notation, for answers that a program reads: one of some texts, or JSON of a schema."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.errors import InputError


def escaped(text: str) -> str:
    """Return a text as it stands between the quotes of a terminal."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def choices(texts: Sequence[str]) -> str:
    """Return a grammar that accepts exactly one of some texts, with or without a space before it."""
    if isinstance(texts, str) or not texts or not all(texts):
        raise InputError(f"a choice needs a list of texts of which none is empty, not {texts!r}")
    quoted = (f'"{escaped(text)}"' for text in dict.fromkeys(texts))
    return f'root ::= " "? ({" | ".join(quoted)})'
