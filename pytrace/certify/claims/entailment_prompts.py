"""A language model that says whether a text supports a claim, by the log-probabilities of three options."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pytrace.certify.claims.entailment import Judgements, in_windows, largest
from pytrace.errors import LogitsUnavailableError, ModelError
from pytrace.models.language_model import LanguageModel, OptionScores, Prompt

_INSTRUCTION = (
    "Decide what the text says of the claim. Answer with one letter. A: the text says that the claim is true. B: the text says that it is "
    "false. C: the text does not say."
)
_OPTIONS = ("A", "B", "C")  # in the order of the columns of probabilities
_ANSWER = "Answer:"
_SHOWN = (
    ("The ferry to Holm leaves at nine and takes two hours.", "The ferry to Holm takes two hours.", "A"),
    ("The bridge was built by Ilse Marl in 1931.", "The bridge was built in 1913.", "B"),
    ("Tarek sold the mill to his sister.", "The mill had burnt down twice.", "C"),
    ("Lake Oster is deeper than Lake Penn.", "Lake Penn is deeper than Lake Oster.", "B"),
    ("The choir has sung in the old chapel since May.", "The choir has 40 members.", "C"),
    ("Rosa Vale, a baker, won the race.", "The race was won by a baker.", "A"),
)
_CONTENT_FREE = ("N/A", "N/A")
# What a prompt has beside the text: instruction and examples, a chat template.
_BESIDE = 500


class PromptedEntailment:
    """A language model that is asked for one of three letters.

    Its lean to one of them is found with a claim without content and taken off, unless a server leaves log-probabilities out.

    Parameters
    ----------
    model
        One that gives log-probabilities.

    Raises
    ------
    LogitsUnavailableError
        It gives none.
    """

    # Zhao et al., "Calibrate Before Use: Improving Few-Shot Performance of Language Models" (2021), section 5: the lean.

    def __init__(self, model: LanguageModel) -> None:
        if not model.gives_logits:
            raise LogitsUnavailableError(
                f"{model.name} gives no log-probabilities, by which it would judge claims; use another model, or the checker without one"
            )
        self._model = model
        self.name, self.around = model.name, 0
        self._demonstrations = tuple((_asked(claim, text), answer) for text, claim, answer in _SHOWN)

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""
        if not pairs:
            return Judgements(np.zeros((0, 3), np.float32))
        rows, parts = in_windows(pairs, self._model.count_tokens, max(self._model.context_tokens - _BESIDE, 1))
        asked = list(dict.fromkeys([_CONTENT_FREE, *parts]))
        prompts = [Prompt(_INSTRUCTION, self._demonstrations, _asked(*pair), _ANSWER, lasting=True) for pair in asked]
        scores = dict(zip(asked, self._model.score_options(prompts, [_OPTIONS] * len(prompts)), strict=True))
        lean = scores[_CONTENT_FREE]
        exact = not any(lean.bounded) and bool(np.isfinite(lean.log_probabilities).all())
        found = np.array(
            [self._probabilities(scores[part], part[0], lean.log_probabilities if exact else None) for part in parts]
        )
        return Judgements(largest(found.astype(np.float32), rows, len(pairs)))

    def _probabilities(self, score: OptionScores, claim: str, lean: NDArray[np.float64] | None) -> NDArray[np.float64]:
        odds = score.log_probabilities
        if (score.bounded and all(score.bounded)) or not np.isfinite(odds).any():
            raise ModelError(
                f"{self.name} answers none of {', '.join(_OPTIONS)} for the claim {claim[:60]!r}, or its server does not say so; use "
                "a model that follows instructions, or the checker without one"
            )
        odds = odds if lean is None or any(score.bounded) else odds - lean
        shares: NDArray[np.float64] = np.exp(odds - np.logaddexp.reduce(odds))
        return shares


def _asked(claim: str, text: str) -> str:
    return f"Text: {' '.join(text.split())}\nClaim: {' '.join(claim.split())}"
