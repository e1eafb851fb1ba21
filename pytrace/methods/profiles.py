"""Which settings a method has with which model: the paper's, or those that measured best for a small model.

The figures behind the tiny profile stand in benches/RESULTS.md with the commands that print them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from pytrace.errors import InputError
from pytrace.methods.trace import TraceSettings

PAPER = TraceSettings()

# SmolLM2-135M judges letters no better than chance and texts well by PMI, which the ranker's score does not help any more; it
# drowns in context, so chains are short and few; and it makes most tails up, so sentences are its units and triples an
# option.
TINY = TraceSettings(
    unit="sentence",
    scoring="pmi",
    candidates=8,
    length=2,
    beams=2,
    chains=2,
    demonstrations=2,
    adaptive_demonstrations=False,
    adaptive_triple_demonstrations=False,
    spans=True,
    reader_demonstrations=4,
    reader_documents=2,
)
_SMALL_MODELS = {"tiny", "smollm2-135m", "gemma", "gemma3-270m"}

TRACE_METHODS = ("trace", "trace-doc")
METHODS = (*TRACE_METHODS, "rag")


def prompt_style(llm: str) -> Literal["plain", "auto"]:
    """Return how prompts are written for a model: the smallest answer plain text far better than their chat template."""
    return "plain" if llm in _SMALL_MODELS else "auto"


def trace_settings(method: str, llm: str, overrides: Sequence[str] = ()) -> TraceSettings:
    """Return the settings of a TRACE method for a model, with `name=value` overrides.

    Parameters
    ----------
    method
        "trace" (the reader sees triples) or "trace-doc" (it sees documents).
    llm
        The language model as the user named it.
    overrides
        Settings of `TraceSettings` as text, for instance "chains=3" or "unit=sentence"; None is written "none".

    Raises
    ------
    InputError
        If a setting is unknown or its value cannot be one.

    Examples
    --------
    >>> trace_settings("trace-doc", "llama.gguf", ["chains=3"]).chains
    3
    """
    base = TINY if llm in _SMALL_MODELS else PAPER
    values: dict[str, Any] = msgspec.to_builtins(base)
    values["reader"] = "document" if method == "trace-doc" else "triple"
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in values:
            message = f"the setting {override!r} is not name=value with a name among: {', '.join(sorted(values))}"
            raise InputError(message)
        values[name] = None if text.strip().lower() == "none" else text.strip()
    try:
        return msgspec.convert(values, TraceSettings, strict=False)
    except msgspec.ValidationError as error:
        message = f"a setting cannot be used: {error}; see pytrace.methods.trace.TraceSettings"
        raise InputError(message) from error
