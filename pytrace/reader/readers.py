"""How answers are read: as a span of the evidence, or written by the language model."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reader
from pytrace.reader.spans.reader import SpanReader

ReaderName = Literal["free", "span"]
"""Written by the language model; a span of the evidence, yes or no, without one."""

SMALL_MODEL_READER = ("reading=span", "reader_demonstrations=4")
"""How answers are read where the language model has less than a billion parameters, whatever the method: such a model answers at length
unless it is shown short answers, and worse than the spans of the evidence are."""


class ReaderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of how answers are read; the defaults are the papers', whose readers write freely and are shown nothing."""

    # Short answers shown to the language model.
    reader_demonstrations: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    # How the answer is read.
    reading: ReaderName = "free"


def make_reader(model: LanguageModel, settings: ReaderSettings) -> Reader:
    """Return the reader that settings ask for."""
    if settings.reading == "span":
        return SpanReader(model, demonstrations=settings.reader_demonstrations)
    return Reader(model, demonstrations=settings.reader_demonstrations)
