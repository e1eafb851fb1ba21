"""How answers are read: written freely by the language model, or chosen of the evidence."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pytrace.errors import InputError
from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reader
from pytrace.reader.choosing import ChoosingReader
from pytrace.reader.grammar import GrammarReader
from pytrace.reader.spans.agreement import AgreementReader
from pytrace.reader.spans.reader import SpanReader

ReaderName = Literal["free", "span", "grammar", "agreement"]
"""Written by the model; a span of the evidence (or yes or no); written, but only what stands there; the better of the first two."""

SMALL_MODEL_READER = ("reading=span", "reader_demonstrations=4")
"""How a model of less than a billion parameters reads, whatever the method: it answers at length unless it is shown short answers, and
better with what the evidence says than in words of its own."""

_CHOOSING: dict[ReaderName, type[ChoosingReader]] = {
    "span": SpanReader,
    "grammar": GrammarReader,
    "agreement": AgreementReader,
}


class ReaderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of how answers are read; the defaults are the papers', whose readers write freely and are shown nothing."""

    # Short answers shown to the reader.
    reader_demonstrations: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    # How the answer is read.
    reading: ReaderName = "free"
    # Where no answer is right with this probability, the answer is that the evidence does not say.
    min_confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


def make_reader(model: LanguageModel, settings: ReaderSettings) -> Reader:
    """Return the reader that settings ask for.

    Raises
    ------
    InputError
        A confidence is asked for, and answers are written freely.
    """
    if settings.reading != "free":
        return _CHOOSING[settings.reading](
            model, demonstrations=settings.reader_demonstrations, min_confidence=settings.min_confidence
        )
    if settings.min_confidence:
        raise InputError(
            f"min_confidence={settings.min_confidence:g} asks how likely answers are right, which is not known of those that the model "
            "writes; set reading=span, grammar or agreement"
        )
    return Reader(model, demonstrations=settings.reader_demonstrations)
