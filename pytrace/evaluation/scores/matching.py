"""Whether an answer means another one, where it need not be the same text."""

# Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect
# Context", section 5.1. The paper lets a model write whether two answers agree; here it is exact or fuzzy match, or
# the log-probabilities of yes and no, so that the same answers always give the same verdict.

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from pytrace.documents.mentions import holds
from pytrace.errors import InputError, LogitsUnavailableError
from pytrace.kernels.fuzzy import partial_ratio, ratio, token_set_ratio
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.answers import normalise_answer

INSTRUCTION = "Say whether the two answers to the question mean the same. Answer yes or no."


class Pair(msgspec.Struct, frozen=True):
    """An answer that was given to a question, and those that it may mean."""

    question: str
    given: str
    answers: tuple[str, ...]


class Matcher(Protocol):
    """Anything that tells whether an answer means one of several others."""

    def match(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return one verdict a pair; all are given in one batch."""
        ...


class FuzzyMatcher:
    """Matches answers by their words: equal after `normalise_answer`, held by the given one, or nearly.

    A yes or no must be the first word, and every number of an answer must be given, since 1784 and 1785 are nearly the same
    text.
    """

    def __init__(self, *, threshold: float = 90.0) -> None:
        if not 0 <= threshold <= 100:
            raise InputError(f"threshold is {threshold}; it must be from 0 to 100")
        self._threshold = threshold

    def match(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the given answer means one of the others."""
        return [any(self._same(pair.given, answer) for answer in pair.answers) for pair in pairs]

    def _same(self, given: str, answer: str) -> bool:
        first, second = normalise_answer(given), normalise_answer(answer)
        if not first or not second:
            return False
        if second in {"yes", "no"}:
            return first.split()[0] == second
        if first == second or holds(given, answer):
            return True
        if not set(re.findall(r"[0-9]+", second)) <= set(re.findall(r"[0-9]+", first)):
            return False
        # A part of an answer is another answer: "York" is not "New York", though its words are all there.
        if 4 * len(first) < 3 * len(second) or len(second) < 4:
            return False
        # Only what is longer may hold the answer as its part; the other way round a part would do for the whole.
        alike = partial_ratio(first, second) if len(first) >= len(second) else ratio(first, second)
        return max(token_set_ratio(first, second), alike) >= self._threshold


class ModelMatcher:
    """Lets a language model tell whether two answers mean the same, by the log-probabilities of "yes" and "no".

    What is equal after `normalise_answer` is not asked, and an empty answer means nothing.
    """

    def __init__(self, model: LanguageModel) -> None:
        if not model.gives_logits:
            raise LogitsUnavailableError(
                f"{model.name} gives no log-probabilities; match answers by their words (FuzzyMatcher) instead"
            )
        self._model = model

    def match(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the given answer means one of the others; all are asked in one call."""
        prompts: dict[tuple[int, str], Prompt] = {}
        verdicts = [False] * len(pairs)
        for place, pair in enumerate(pairs):
            given = normalise_answer(pair.given)
            if given and given in map(normalise_answer, pair.answers):
                verdicts[place] = True
            elif given:
                for answer in pair.answers:
                    asked = _same_question(pair.question, answer, pair.given)
                    prompts[place, answer] = Prompt(INSTRUCTION, _SHOWN, asked)
        scores = self._model.score_options(list(prompts.values()), [("yes", "no")] * len(prompts)) if prompts else []
        for (place, _), score in zip(prompts, scores, strict=True):
            yes, no = (float(value) for value in score.log_probabilities)
            # A tie, and a server that told neither, is no yes.
            verdicts[place] |= yes > no and math.isfinite(yes)
        return verdicts


def _same_question(question: str, answer: str, given: str) -> str:
    return f"Question: {question}\nFirst answer: {answer}\nSecond answer: {given}\nDo they mean the same?"


_SHOWN = (
    (_same_question("Which river flows through Basel?", "the Rhine", "The river Rhine flows through it"), "yes"),
    (_same_question("When was the film Yojimbo released?", "1961", "in 1954"), "no"),
    (_same_question("Who was married to Clara Schumann?", "Robert Schumann", "Schumann, the composer"), "yes"),
    (_same_question("Where was Jorn Utzon born?", "Denmark", "Norway"), "no"),
)
