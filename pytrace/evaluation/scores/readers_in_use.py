"""How the methods of a run read their answers, by the run's settings: methods are compared fairly only where that is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytrace.methods.base import setting_name

THOUGHTS = "thoughts"
"""The reading of methods that take the answer from their own chain of thought."""

# Of KS-LLM's variants, this one thinks instead of reading, and shares the settings of the others.
_THINKING = {"cot-doc": "rationale_demonstrations"}
_FINGERPRINT_DIGITS = 12


class ReaderInUse(msgspec.Struct, frozen=True):
    """How a method reads answers: the setting `reading` (or "thoughts"), demonstrations, fingerprint of the model."""

    reading: str
    demonstrations: int
    model: str = ""

    @property
    def text(self) -> str:
        """The reader in words, without the model."""
        return f"{self.reading}, {self.demonstrations} demonstration{'' if self.demonstrations == 1 else 's'}"


def reader_in_use(label: str, settings: Mapping[str, Any]) -> ReaderInUse | None:
    """Return the reader of a method by its label and the settings of its run; None if they do not tell."""
    name, _, changed = label.partition(":")
    methods = settings.get("settings")
    chosen = methods.get(name) if isinstance(methods, Mapping) else None
    if not isinstance(chosen, Mapping):
        return None
    values = {**chosen, **{setting_name(part): part.partition("=")[2].strip() for part in changed.split(",") if part}}
    model = str(settings.get("language model", ""))
    try:
        if "reading" in values and name not in _THINKING:
            return ReaderInUse(
                str(values["reading"]),
                int(values.get("reader_demonstrations", 0)),
                str(settings.get("reader", model)),
            )
        shown = values.get(_THINKING.get(name, "demonstrations"))
        # Methods without `reading` that sample thoughts answer with these.
        return ReaderInUse(THOUGHTS, int(shown or 0), model=model) if name in _THINKING or "samples" in values else None
    except (TypeError, ValueError):  # of a damaged run
        return None


def reader_texts(readers: Mapping[str, ReaderInUse | None]) -> dict[str, str]:
    """Word the reader of each method, with its model only where models differ; empty unless readers differ."""
    known = {reader for reader in readers.values() if reader is not None}
    if len(known) < 2:
        return {}
    models = len({reader.model for reader in known}) > 1
    return {
        method: "unknown"
        if reader is None
        else f"{reader.text}, {reader.model[:_FINGERPRINT_DIGITS]}"
        if models
        else reader.text
        for method, reader in readers.items()
    }


def reader_notice(texts: Mapping[str, str]) -> str:
    """Say which methods read how; empty if `texts` are."""
    if not texts:
        return ""
    groups: dict[str, list[str]] = {}
    for method, text in texts.items():
        groups.setdefault(text, []).append(method)
    listed = "; ".join(f"{', '.join(methods)}: {text}" for text, methods in groups.items())
    return f"methods read answers in different ways, so differences are not due to the evidence alone ({listed})"
