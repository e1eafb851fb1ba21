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

    Parameters
    ----------
    texts
        At least one; none empty.

    Raises
    ------
    InputError
        If there is none, or one is empty.

    Examples
    --------
    >>> print(choices(["yes", "no"]))
    root ::= " "? ("yes" | "no")
    """
    if isinstance(texts, str) or not texts or not all(texts):
        message = f"a choice needs a list of texts of which none is empty, not {texts!r}"
        raise InputError(message)
    quoted = (f'"{escaped(text)}"' for text in dict.fromkeys(texts))
    return f'root ::= " "? ({" | ".join(quoted)})'


def json_schema(schema: Mapping[str, Any]) -> str:
    """Return a grammar that accepts the JSON documents of a schema, without needless blanks.

    Parameters
    ----------
    schema
        JSON Schema, as far as llama.cpp's own converter goes: objects with `properties` and `required`, arrays with
        `minItems` and `maxItems`, strings with `maxLength`, numbers, booleans, `enum`, `anyOf`.

    Raises
    ------
    InputError
        If the schema cannot be converted.
    MissingDependencyError
        If llama-cpp-python, whose converter this is, is not installed.
    """
    try:
        from llama_cpp.llama_grammar import json_schema_to_gbnf
    except ImportError as error:
        message = "llama-cpp-python is not installed; install pytrace's extra for it: pip install 'pytrace-rag[cpu]'"
        raise MissingDependencyError(message) from error
    try:
        grammar = json_schema_to_gbnf(json.dumps(schema))
    except Exception as error:  # whatever the converter may raise at a schema that it does not know
        message = f"the JSON schema cannot be made into a grammar ({type(error).__name__}: {error}); simplify it"
        raise InputError(message) from error
    # The converter lets control characters stand in a string, which JSON forbids.
    return str(grammar).replace(r'[^"\\]', r'[^"\\\x7F\x00-\x1F]')
