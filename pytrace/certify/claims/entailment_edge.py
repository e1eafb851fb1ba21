"""The small model as a judge of claims, together with their words."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.certify.claims.entailment import Judgements
from pytrace.certify.claims.standalone import in_digits
from pytrace.models.edge.edge_model import EdgeModel

# The weight of its log-odds; those of the words have the rest. Training claims that it has not read prefer 0.6 to 0.8, responses in free
# paraphrase 0.3.
_SHARE = 0.5


class EdgeEntailment:
    """The check head of the small model, whose verdict counts together with that of the words.

    A claim is judged by itself, so that no verdict depends on other claims.

    Parameters
    ----------
    model
        The small model.
    """

    name = "the small model"
    around = 1

    def __init__(self, model: EdgeModel) -> None:
        self._model = model

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""
        claims, evidence = [in_digits(claim) for claim, _ in pairs], [in_digits(text) for _, text in pairs]
        return Judgements(self._model.check(claims, evidence), share=_SHARE)
