"""The small model as a judge of claims."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.certify.claims.entailment import Judgements
from pytrace.models.edge.edge_model import EdgeModel


class EdgeEntailment:
    """The small model: judges what a text says of a claim, beside the verdict by words."""

    name = "the small model"

    def __init__(self, model: EdgeModel) -> None:
        self._model = model

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""
        claims, evidence = [claim for claim, _ in pairs], [text for _, text in pairs]
        return Judgements(self._model.check(claims, evidence), beside_words=True)
