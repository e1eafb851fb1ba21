"""Grammars in GBNF, llama.cpp's notation, for answers that a program reads: one of some texts, or JSON of a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pytrace.errors import InputError, MissingDependencyError


def escaped(text: str) -> str:
    r"""Return a text as it stands between the quotes of a terminal.

    Examples
    --------
    >>> print(escaped('a "b"'))
    a \"b\"
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def choices(texts: Sequence[str]) -> str:
    """Return a grammar that accepts exactly one of some texts, with or without a space before it.

    Examples
    --------
    >>> print(choices(["yes", "no"]))
    root ::= " "? ("yes" | "no")
    """
    if isinstance(texts, str) or not texts or not all(texts):
        raise InputError(f"a choice needs a list of texts of which none is empty, not {texts!r}")
    quoted = (f'"{escaped(text)}"' for text in dict.fromkeys(texts))
    return f'root ::= " "? ({" | ".join(quoted)})'


def json_schema(schema: Mapping[str, Any]) -> str:
    """Return a grammar that accepts the JSON documents of a schema, without needless blanks."""
    try:
        from llama_cpp.llama_grammar import json_schema_to_gbnf
    except ImportError as error:
        raise MissingDependencyError(
            "llama-cpp-python is not installed; install pytrace's extra for it: pip install 'pytrace-rag[cpu]'"
        ) from error
    try:
        grammar = json_schema_to_gbnf(json.dumps(schema))
    except Exception as error:  # whatever the converter may raise at a schema that it does not know
        raise InputError(
            f"the JSON schema cannot be made into a grammar ({type(error).__name__}: {error}); simplify it"
        ) from error
    # The converter lets control characters stand in a string, which JSON forbids.
    return str(grammar).replace(r'[^"\\]', r'[^"\\\x7F\x00-\x1F]')
