"""Readers that choose an answer of the evidence, with how likely it is right; below a confidence that was asked for they abstain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.answers import FittedContext, Reader, Reading
from pytrace.records import Evidence

ABSTENTION = "The evidence does not say."
"""The answer where none is as likely as was asked for."""

Place = tuple[int, int, int]
"""An entry of the evidence, a first character of it, and the character behind the last."""


class Chosen(NamedTuple):
    """A text of the evidence, or yes or no; the probability that it is right; and where it stands."""

    text: str
    probability: float
    places: tuple[Place, ...]


class ChoosingReader(Reader, ABC):
    """Answers with what it chooses of the evidence; where there is no evidence at all, the model writes its own answer.

    An answer that is less likely right than `min_confidence` is withheld, and so is the model's own if that is above 0.
    """

    def __init__(self, model: LanguageModel, *, min_confidence: float = 0.0, **settings: Any) -> None:
        if not 0 <= min_confidence <= 1:
            raise ValueError(f"min_confidence is a probability from 0 to 1, not {min_confidence}")
        super().__init__(model, **settings)
        self._min_confidence = min_confidence

    @property
    def _settings(self) -> dict[str, Any]:
        return {**super()._settings, "min_confidence": self._min_confidence}

    def with_model(self, model: LanguageModel) -> Reader:
        """Return the same reader with another model."""
        return type(self)(model, **self._settings)

    @abstractmethod
    def choose(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[Chosen]:
        """Choose an answer to every question from the entries that it is shown behind; an empty text if there is none."""

    def read(self, questions: Sequence[str], evidence: Sequence[Evidence]) -> list[Reading]:
        """Answer every question from its evidence."""
        fitted, prompts = self._prompts(questions, evidence)
        seen = [number for number, shown in enumerate(fitted) if shown.entries]
        bare = [number for number, shown in enumerate(fitted) if not shown.entries]
        written = self._write([prompts[number] for number in bare], [fitted[number] for number in bare])
        readings = dict(zip(bare, written, strict=True))
        chosen = self.choose(
            [questions[number] for number in seen],
            [fitted[number].entries for number in seen],
            [prompts[number] for number in seen],
        )
        for number, one in zip(seen, chosen, strict=True):
            readings[number] = self._reading(one, fitted[number])
        return [self._or_abstain(readings[number]) for number in range(len(questions))]

    def _reading(self, one: Chosen, shown: FittedContext) -> Reading:
        tokens = self.model.count_tokens("\n".join(shown.entries))
        return Reading(one.text, tokens, shown.left_out, one.places, one.probability)

    def _or_abstain(self, reading: Reading) -> Reading:
        if (reading.probability or 0.0) >= self._min_confidence:
            return reading
        return msgspec.structs.replace(reading, text=ABSTENTION, places=(), withheld=reading.text)


def as_answers(model: LanguageModel, texts: Sequence[str]) -> list[str]:
    """Return texts as a model goes on with them behind a prompt, with the line's end where it ends so."""
    # A chat ends with a token of its own, which is no text.
    return [f" {text}\n" if is_plain(model) else text for text in texts]


def is_plain(model: LanguageModel) -> bool:
    """Whether a model is asked in plain text."""
    return getattr(model, "style", "plain") == "plain"
