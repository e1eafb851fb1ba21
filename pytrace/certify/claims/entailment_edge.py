"""The small model as a judge of claims, together with their words."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.certify.claims.entailment import Judgements
from pytrace.models.edge.edge_model import EdgeModel

# The weight of its log-odds; those of the words have the rest. It knows negations and dates better than the words do, which see names and
# numbers inside long sentences. Of 0.25, 0.4 and 0.5, FEVER-symmetric and false twins prefer the last, and WiCE and unseen wordings the first.
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
