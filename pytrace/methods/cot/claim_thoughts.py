"""Chain of thought about claims: a rationale ends in a verdict, and thoughts vote on labels.

Sources: Zhao et al., "Verify-and-Edit: A Knowledge-Enhanced Chain-of-Thought Framework" (ACL 2023), section 4, and Li et al.,
"Chain of Knowledge" (2023), Table 3: CoT, CoT-SC and Verify-and-Edit on FEVER.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.methods.base import noted
from pytrace.methods.cot.rationales import Thinker, Thought
from pytrace.models.language_model import LanguageModel
from pytrace.reader.claims import WORDS, read_label
from pytrace.reader.prompts.reasoning import ClaimDemonstration, RationaleDemonstration
from pytrace.records import Answer


class ClaimThinker(Thinker):
    """Lets a language model think about claims; the answer of a thought is a label, or empty where it gives none."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 3,
        max_tokens: int = 160,
        labelled: Sequence[ClaimDemonstration] | None = None,
    ) -> None:
        shown = [
            RationaleDemonstration(row.facts, _asked(row.claim), row.facts, WORDS[row.label])
            for row in ClaimDemonstration.last(demonstrations, labelled)
        ]
        super().__init__(model, demonstrations=len(shown), max_tokens=max_tokens, labelled=shown)

    def think(
        self,
        questions: Sequence[str],
        contexts: Sequence[Sequence[str]],
        *,
        n: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[list[Thought]]:
        """Think about every claim, with its context or with none."""
        asked = list(map(_asked, questions))
        rows = super().think(asked, contexts, n=n, temperature=temperature, seed=seed)
        return [[msgspec.structs.replace(each, answer=read_label(each.answer) or "") for each in row] for row in rows]

    def conclude(
        self, questions: Sequence[str], contexts: Sequence[Sequence[str]], rationales: Sequence[Sequence[str]]
    ) -> list[str]:
        """Label every claim from a rationale that is already there; empty where the model gives no label."""
        concluded = super().conclude(list(map(_asked, questions)), contexts, rationales)
        return [read_label(text) or "" for text in concluded]


def labelled(answer: Answer) -> Answer:
    """Return an answer that is a label: where no thought gave one, the most careful."""
    if answer.text:
        return answer
    careful = msgspec.structs.replace(answer, text="NOT ENOUGH INFO")
    return noted(careful, "no thought ended in true, false or unknown")


def _asked(claim: str) -> str:
    return f"Is this claim true, false or unknown? {' '.join(claim.split())}"
