"""Whether a language model takes a reasoning path for valid: what it is shown, in four modes, and what it says."""

# Source: section 3.1 and appendix F.1 of the paper. The paper reads every verdict from generated text; here, a mode
# without chain of thought compares the probabilities of "Yes" and "No" at the next token, so that it always comes to
# a verdict and costs one token.

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
import numpy as np

from pytrace.certify.corruption import InvalidKind, InvalidPath
from pytrace.chain_of_evidence.judges import sigmoid
from pytrace.errors import InputError, LogitsUnavailableError
from pytrace.models.language_model import LanguageModel, OptionScores, Prompt
from pytrace.reader.prompts.reasoning import PathDemonstration
from pytrace.records import Triple

Mode = Literal["zero-shot", "zero-shot-cot", "few-shot", "few-shot-cot"]
MODES: tuple[Mode, ...] = get_args(Mode)
PathKind = Literal["valid"] | InvalidKind
PathVerdict = Literal["yes", "no", "undecided"]

RULES = (
    "A reasoning path leads from a question to its answer in steps, each of which states a fact as: entity -> relation -> "
    "entity. The path is valid if three things hold. All steps are true. The first step starts from something that the "
    "question names, and each later step goes on from where the one before it ended; a step may be read in either direction. "
    "The last step ends in the given answer."
)
INSTRUCTION = f"{RULES} Say whether the path is valid: Yes or No."
CHECK_INSTRUCTION = (
    f"{RULES} Check the path step by step in a few short sentences, and then say whether it is valid. End with the words "
    '"Verdict: Yes" or "Verdict: No".'
)
# What is asked in the place of question, answer and entities to find how much a model likes to say yes.
CONTENT_FREE = "N/A"

# Not upper case, which hardly any model has as one token.
_OPTIONS = ("Yes", "No")
# With less probability than this for both together the model talks of something else, and its lean says nothing.
_UNDECIDED_BELOW = 1e-4
# Spaces are counted, so that a long run of them is read once and not from every place in it.
_CONCLUSION = re.compile(r"\bverdict\b(?:\s{1,9}is\b)?\W{0,9}(?:yes|no)\b[^\n]*", re.IGNORECASE)
# A verdict is said to be one, or stands in upper case, or as a sentence of its own: a "no" in passing is none.
_VERDICT = re.compile(
    r"(?i:\b(?:verdict|answer)\b(?:\s{1,9}is\b)?\W{0,9}(?:yes|no)\b)|\b(?:YES|NO)\b"
    r"|(?:^|[.!?:]\s)\s{0,9}(?i:yes|no)\b\s{0,9}(?=[.!,;]|$)",
    re.MULTILINE,
)


class PathItem(msgspec.Struct, frozen=True):
    """A path to judge: the question and its answer, the steps by their names, and how the path was made."""

    id: str
    kind: PathKind
    question: str
    answer: str
    steps: tuple[Triple, ...]
    made: InvalidPath | None = None  # None where the path is a gold one


class PathJudgement(msgspec.Struct, frozen=True):
    """What a model said of a path."""

    verdict: PathVerdict
    probability: float | None = None  # that of yes, where it was asked without chain of thought
    text: str = ""  # the chain of thought, empty without one


class PathDiscriminator:
    """Asks a language model whether paths are valid, all of them in one call."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        mode: Mode = "zero-shot",
        calibrated: bool = False,
        max_tokens: int = 160,
        labelled: Sequence[PathDemonstration] | None = None,
    ) -> None:
        if mode not in MODES:
            raise InputError(f"{mode!r} is no mode of asking; choose one of {', '.join(MODES)}")
        self._thinks = mode.endswith("-cot")
        if not self._thinks and not model.gives_logits:
            raise LogitsUnavailableError(f"{model.name} gives no log-probabilities, which {mode} needs; use {mode}-cot")
        self._model = model
        self._calibrated = calibrated
        self._max_tokens = max_tokens
        shown = (PathDemonstration.load() if labelled is None else labelled) if mode.startswith("few") else ()
        self._shown = tuple((self._input(one.question, one.answer, one.path), self._output(one)) for one in shown)

    def judge(self, items: Sequence[PathItem]) -> list[PathJudgement]:
        """Say of every path whether it is valid."""
        prompts = [self._prompt(item.question, item.answer, item.steps) for item in items]
        if not prompts:
            return []
        return self._think(prompts) if self._thinks else self._score(prompts, [len(item.steps) for item in items])

    def _think(self, prompts: Sequence[Prompt]) -> list[PathJudgement]:
        # With demonstrations a blank line ends what the model has to say; without them it may part its sentences so.
        stop = ("\nQuestion:", *(("\n\n",) if self._shown else ()))
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=stop)
        return [PathJudgement(parse_verdict(row[0].text), text=row[0].text.strip()) for row in rows]

    def _score(self, prompts: list[Prompt], lengths: Sequence[int]) -> list[PathJudgement]:
        # How much the model likes to say yes is found for each length: by a path of as many steps without content.
        free = dict(zip(sorted(set(lengths)), itertools.count(len(prompts)), strict=False)) if self._calibrated else {}
        nothing = Triple(CONTENT_FREE, CONTENT_FREE, CONTENT_FREE)
        prompts = prompts + [self._prompt(CONTENT_FREE, CONTENT_FREE, (nothing,) * length) for length in free]
        odds = [_log_odds(score) for score in self._model.score_options(prompts, [_OPTIONS] * len(prompts))]
        judgements = []
        for value, length in zip(odds, lengths, strict=False):
            lean = odds[free[length]] if self._calibrated else 0.0
            if value is None or lean is None:
                judgements.append(PathJudgement("undecided"))
                continue
            net = value - lean
            judgements.append(PathJudgement("yes" if net > 0 else "no" if net < 0 else "undecided", sigmoid(net)))
        return judgements

    def _prompt(self, question: str, answer: str, steps: Sequence[Triple]) -> Prompt:
        instruction = CHECK_INSTRUCTION if self._thinks else INSTRUCTION
        return Prompt(instruction, self._shown, self._input(question, answer, steps), lasting=True)

    def _input(self, question: str, answer: str, steps: Sequence[Triple]) -> str:
        lines = [f"Question: {_line(question)}", f"Answer: {_line(answer)}", "Path:", *path_lines(steps)]
        return "\n".join([*lines, "Check:" if self._thinks else "Valid:"])

    def _output(self, one: PathDemonstration) -> str:
        verdict = "Yes" if one.valid else "No"
        return " ".join([*one.check, f"Verdict: {verdict}"]) if self._thinks else verdict


def path_lines(steps: Sequence[Triple]) -> list[str]:
    """Write a path as a model is shown it, a step a line."""
    return [
        f"Step {number}: {_line(step.head)} -> {_line(step.relation)} -> {_line(step.tail)}"
        for number, step in enumerate(steps, 1)
    ]


def parse_verdict(text: str) -> PathVerdict:
    """Return the last verdict of a text."""
    concluded = _CONCLUSION.search(text)
    verdict: PathVerdict = "undecided"
    for match in _VERDICT.finditer(text, 0, len(text) if concluded is None else concluded.end()):
        verdict = "yes" if match[0].rstrip().lower().endswith("yes") else "no"
    return verdict


def _line(text: str) -> str:
    return " ".join(text.split())


def _log_odds(score: OptionScores) -> float | None:
    """Return log p(Yes) - log p(No), from -100 to 100; None if it cannot be told."""
    yes, no = (float(value) for value in score.log_probabilities)
    if math.isnan(yes) or math.isnan(no) or (score.bounded and all(score.bounded)):
        return None
    if not (math.isfinite(yes) or math.isfinite(no)) or np.logaddexp(yes, no) < math.log(_UNDECIDED_BELOW):
        return None
    return min(max(yes - no, -100.0), 100.0)
