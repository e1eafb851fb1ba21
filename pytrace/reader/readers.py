"""How answers are read: written freely by the language model, or taken out of the evidence."""

from __future__ import annotations

from typing import Literal

from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reader
from pytrace.reader.spans.reader import SpanReader

ReaderName = Literal["free", "span"]
"""Written by the model, or a span of the evidence (or yes or no)."""

_READERS: dict[ReaderName, type[Reader]] = {"free": Reader, "span": SpanReader}


def make_reader(model: LanguageModel, reading: ReaderName, *, demonstrations: int = 2) -> Reader:
    """Return a reader of a kind; `demonstrations` short answers are shown to the model."""
    return _READERS[reading](model, demonstrations=demonstrations)
