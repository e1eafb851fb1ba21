"""Fact checking: a language model says what it makes of a claim, by the log-probabilities of three verdicts.

Source: Li et al., "Chain of Knowledge: A Framework for Grounding Large Language Models with Structured Knowledge Bases"
(2023), section 6.1: a claim is a single sentence, so it is judged without a chain of thought. The paper reads the label from
generated text; here it is the log-probabilities of the verdicts, so that the share of samples that would agree (section 3.3) is
known without a sample. Of models that give none, samples are drawn and read, as in the paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.answers import FittedContext, fit_context
from pytrace.reader.prompts.reasoning import LABELS, ClaimDemonstration, ClaimLabel

__all__ = ["LABELS", "ClaimJudge", "ClaimJudgement", "ClaimLabel", "ClaimScoring", "LabelVote", "read_label", "votes"]

ClaimScoring = Literal["words", "letters", "text"]

INSTRUCTION = "Say whether the claim is true or false, or whether there is not enough information to tell."
WITH_FACTS = f"{INSTRUCTION} Go by the facts."
VERDICT = "Verdict:"
WORDS: dict[ClaimLabel, str] = {"SUPPORTS": "true", "REFUTES": "false", "NOT ENOUGH INFO": "unknown"}
"""How a verdict is written in a prompt: a model has met these words after a claim far more often than FEVER's labels."""

_LETTERS = ("A", "B", "C")
_OPTIONS = "\n".join(f"{letter}. {word}" for letter, word in zip(_LETTERS, WORDS.values(), strict=True))
# What stands for claim and facts where a model is asked how much it likes each verdict before it has read anything.
CONTENT_FREE = "N/A"
_UNIFORM = (1 / 3, 1 / 3, 1 / 3)
# A verdict is one word, and a letter one token.
_VERDICT_TOKENS = 8
# A model that is asked for a verdict may say it in a sentence.
_WRITTEN_TOKENS = 32
_STOP = ("\n\n", "\nClaim:", "\nFacts:")
# Three of five in shares that were rounded on their way are still three of five.
_ROUNDING = 1e-12


class ClaimJudgement(msgspec.Struct, frozen=True):
    """What a model makes of a claim: a label, and the probability of each, in the order of `LABELS`.

    `read` counts the tokens of the facts that it saw, `left_out` the facts that it did not see whole. `samples` are those that the
    probabilities are shares of, 0 where they are of log-probabilities.
    """

    label: ClaimLabel
    probabilities: tuple[float, float, float]
    read: int = 0
    left_out: int = 0
    samples: int = 0


class LabelVote(msgspec.Struct, frozen=True):
    """The label that most samples would give, the share of them that would, and whether that is enough to be certain."""

    label: ClaimLabel
    share: float
    certain: bool


class ClaimJudge:
    """Judges claims by themselves or by facts, all of them in one call.

    With the scoring ``text``, and whatever it is with a model that gives no log-probabilities, the model writes its verdict, `samples`
    times at a temperature, and the probabilities are the shares of the labels.
    """

    # Chain of Knowledge, section 6.1; the samples are those of section 3.3.

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 3,
        scoring: ClaimScoring = "letters",
        calibrated: bool = True,
        labelled: Sequence[ClaimDemonstration] | None = None,
        samples: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        if scoring not in get_args(ClaimScoring):
            raise InputError(f"the scoring of claims is {scoring!r}; choose 'words', 'letters' or 'text'")
        if samples < 1 or not 0 <= temperature < math.inf:
            raise InputError(
                f"there are {samples} samples at temperature {temperature}; give at least 1, and 0 or a number above it"
            )
        self._model = model
        self._scoring: ClaimScoring = scoring if model.gives_logits else "text"
        # Greedy ones would all be the same.
        self._samples, self._temperature, self._seed = samples if temperature else 1, temperature, seed
        self._calibrated = calibrated
        self._shown = ClaimDemonstration.last(max(demonstrations, 0), labelled)

    def judge(self, claims: Sequence[str], contexts: Sequence[Sequence[str]]) -> list[ClaimJudgement]:
        """Judge claims, each by its facts, or by what the model knows where it has none."""
        if len(claims) != len(contexts):
            raise ValueError(f"there are {len(claims)} claims but {len(contexts)} lists of facts")
        for number, claim in enumerate(claims, 1):
            if not claim.strip():
                raise InputError(f"claim {number} of {len(claims)} is empty; give it words")
        instruction = f"{WITH_FACTS}\n{_OPTIONS}"  # the longest that there is
        fitted = [
            fit_context(self._model, instruction, claim, list(filter(str.strip, facts)), max_tokens=_WRITTEN_TOKENS)
            for claim, facts in zip(claims, contexts, strict=True)
        ]
        prompts = [self._prompt(claim, seen.entries) for claim, seen in zip(claims, fitted, strict=True)]
        sampled = self._scoring == "text"
        probabilities = self._shares(prompts) if sampled else self._likelihoods(prompts, fitted)
        return [
            ClaimJudgement(
                LABELS[_likeliest(own)],
                own,
                self._model.count_tokens("\n".join(seen.entries)) if seen.entries else 0,
                seen.left_out,
                self._samples if sampled else 0,
            )
            for seen, own in zip(fitted, probabilities, strict=True)
        ]

    def _likelihoods(
        self, prompts: Sequence[Prompt], fitted: Sequence[FittedContext]
    ) -> list[tuple[float, float, float]]:
        """Return the probabilities of the labels by what the model makes of each verdict."""
        # Calibration differs with the form of the prompt: with facts, or without.
        forms = list(dict.fromkeys(bool(seen.entries) for seen in fitted)) if self._calibrated else []
        free = [self._prompt(CONTENT_FREE, (CONTENT_FREE,) if form else ()) for form in forms]
        scores = self._scores([*prompts, *free])
        liked = dict(zip(forms, scores[len(prompts) :], strict=True))
        return [
            _probabilities(score, liked.get(bool(seen.entries))) for seen, score in zip(fitted, scores, strict=False)
        ]

    def _shares(self, prompts: Sequence[Prompt]) -> list[tuple[float, float, float]]:
        """Let the model write its verdicts, and return the share of each label."""
        if not prompts:
            return []
        rows = self._model.generate(
            prompts,
            max_tokens=_WRITTEN_TOKENS,
            stop=_STOP,
            temperature=self._temperature,
            n=self._samples,
            seed=self._seed,
        )
        shares = []
        for row in rows:
            said = [read_label(completion.text) for completion in row]
            # A sample without a label speaks for none of them more than for another.
            unread = said.count(None) / len(LABELS)
            first, second, third = ((said.count(label) + unread) / len(said) for label in LABELS)
            shares.append((first, second, third))
        return shares

    def _scores(self, prompts: Sequence[Prompt]) -> list[NDArray[np.float64]]:
        """Return the log-probabilities of the verdicts after each prompt: float64 [3]."""
        if not prompts:
            return []
        if self._scoring == "letters":
            options = self._model.score_options(prompts, [_LETTERS] * len(prompts))
            # A server that told none of the letters has told nothing.
            return [
                np.full(len(LABELS), -math.inf) if score.bounded and all(score.bounded) else score.log_probabilities
                for score in options
            ]
        words = [f" {word}" for word in WORDS.values()]
        return [
            np.array([score.log_probability for score in row])
            for row in self._model.score_continuations(prompts, [words] * len(prompts))
        ]

    def _prompt(self, claim: str, facts: Sequence[str]) -> Prompt:
        pairs = tuple(
            (self._asked(row.claim, row.facts if facts else ()), f"{VERDICT} {self._verdict(row.label)}")
            for row in self._shown
        )
        instruction = WITH_FACTS if facts else INSTRUCTION
        return Prompt(instruction, pairs, self._asked(claim, facts), VERDICT, "\n", lasting=True)

    def _asked(self, claim: str, facts: Sequence[str]) -> str:
        lines = ["Facts:", *(" ".join(fact.split()) for fact in facts)] if facts else []
        lines.append(f"Claim: {' '.join(claim.split())}")
        return "\n".join([*lines, _OPTIONS] if self._scoring == "letters" else lines)

    def _verdict(self, label: ClaimLabel) -> str:
        return _LETTERS[LABELS.index(label)] if self._scoring == "letters" else WORDS[label]


# What says that nothing can be said comes first: "no evidence" is no "no". A bare yes or no counts only as the first word.
_LABEL = re.compile(
    r"(?P<none>\b(?:unknown|unclear|uncertain|undecided|not enough|insufficient|neither|no (?:information|evidence)|"
    r"can(?:not|'t|’t| not) be (?:determined|verified|told|known))\b)"
    r"|(?P<refutes>\A\W*no\b|\b(?:false|untrue|incorrect|wrong|refute[sd]?|contradict(?:s|ed)?|not (?:true|correct|supported))\b)"
    r"|(?P<supports>\A\W*yes\b|\b(?:true|correct|support(?:s|ed)?)\b)",
    re.IGNORECASE,
)


def read_label(text: str) -> ClaimLabel | None:
    """Return the label that a text gives first, as a verdict in words or as FEVER writes it; None if it gives none.

    Examples
    --------
    >>> read_label("The claim is not true."), read_label("NOT ENOUGH INFO"), read_label("Perhaps.")
    ('REFUTES', 'NOT ENOUGH INFO', None)
    """
    match = _LABEL.search(text)
    if match is None:
        return None
    return "NOT ENOUGH INFO" if match["none"] else "REFUTES" if match["refutes"] else "SUPPORTS"


def _probabilities(score: NDArray[np.float64], liked: NDArray[np.float64] | None) -> tuple[float, float, float]:
    """Normalise the verdicts' log-probabilities, less those that they have without a claim."""
    if not np.isfinite(score).any():
        return _UNIFORM
    values = np.where(np.isfinite(score), score, -math.inf)
    if liked is not None and np.isfinite(liked).all():
        values = values - liked
    shares = np.exp(values - values.max())
    first, second, third = (float(share) for share in shares / shares.sum())
    return first, second, third


def _likeliest(probabilities: Sequence[float]) -> int:
    """Return the index of the largest probability, the last of equals: the most careful label."""
    return max(range(len(LABELS)), key=lambda index: (probabilities[index], index))


def votes(probabilities: Sequence[float], *, temperature: float = 0.7, samples: int = 5) -> LabelVote:
    """Tell how a vote of samples would end, without taking any: a sample's label has a known distribution."""
    # Sampling at a temperature gives a label with a probability in proportion to the label's own to the power of one
    # over the temperature. The share of the samples that give the likeliest label is that probability in the mean; it
    # takes the place of a count of `samples`, which would only scatter around it.
    # Chain of Knowledge, sections 3.3 (the threshold) and 5 (the sampling).
    values = np.array(probabilities, dtype=np.float64)
    if values.shape != (len(LABELS),) or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise InputError(
            f"the probabilities {[float(value) for value in values.ravel()[:4]]} are not those of {len(LABELS)} labels; give one of at least 0 for each"
        )
    if not (math.isfinite(temperature) and temperature >= 0) or samples < 1:
        raise InputError(
            f"the temperature is {temperature} and there are {samples} samples; give a temperature of at least 0 and 1 sample"
        )
    best = _likeliest(values.tolist())
    if temperature == 0:
        return LabelVote(LABELS[best], 1.0, certain=True)
    with np.errstate(divide="ignore"):
        sharpened = np.exp((np.log(values) - math.log(values[best])) / temperature)
    share = float(sharpened[best] / sharpened.sum())
    return LabelVote(LABELS[best], share, certain=share >= math.ceil(samples / 2) / samples - _ROUNDING)
