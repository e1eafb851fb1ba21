"""The small model as a judge of claims, together with their words."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.certify.claims.entailment import Judgements
from pytrace.models.edge.edge_model import EdgeModel

# What its log-odds count, and those of the words the rest. It knows paraphrases, negations and dates better than the words do, and
# overlooks numbers and names inside long sentences, which they see.
_SHARE = 0.4


class EdgeEntailment:
    """The check head of the small model, whose verdict counts together with that of the words.

    A claim is judged by itself, so that no verdict depends on other claims.

    Parameters
    ----------
    model
        The small model.
    """

    name = "the small model"

    def __init__(self, model: EdgeModel) -> None:
        self._model = model

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""
        claims, evidence = [claim for claim, _ in pairs], [text for _, text in pairs]
        return Judgements(self._model.check(claims, evidence), share=_SHARE)
