"""What tells how likely a chosen answer is right, by which probabilities are learned that keep what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytrace.reader.spans.question import read_question
from pytrace.reader.spans.words import content_stems, words


def certainty(
    question: str, entries: Sequence[str], scores: Sequence[float], log_probability: float, *, ruled: bool = False
) -> dict[str, float]:
    """Return what speaks for an answer being right, by name.

    Parameters
    ----------
    question, entries
        What was asked, and the evidence.
    scores
        Of all that the answer was chosen from, in log-probabilities up to a constant; its own, the largest, is the first.
    log_probability
        What the model gives to it, a token.
    ruled
        Whether a rule decided.
    """
    asked = read_question(question)
    seen = content_stems(words(" ".join(entries)))
    names = {word.stem for word in words(question)[1:] if word.kind in ("name", "number")} & asked.stems
    share = 1 / sum(math.exp(score - scores[0]) for score in scores)
    bounded = min(max(share, 1e-6), 1 - 1e-6)
    return {
        "always": 1.0,
        "log-odds": math.log(bounded / (1 - bounded)),
        "log-probability": log_probability,
        "ruled": float(ruled),
        "yes or no": float(asked.kind == "yes-no"),
        "words unseen": 1 - len(asked.stems & seen) / max(len(asked.stems), 1),
        "names unseen": 1 - len(names & seen) / len(names) if names else 0.0,
    }
