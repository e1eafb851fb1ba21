"""Methods that check claims: what they have in common, and the one that asks the model alone.

Source: Li et al., "Chain of Knowledge: A Framework for Grounding Large Language Models with Structured Knowledge Bases"
(2023), section 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.methods.base import Count, MethodRow, Stages, check_questions, register
from pytrace.methods.cot.thinking import NO_CONTEXT
from pytrace.methods.ks_llm import KnowledgeSelection, KsSettings
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.claims import LABELS, ClaimJudge, ClaimJudgement, ClaimScoring
from pytrace.records import Answer, Document, Evidence
from pytrace.retrieval import SentenceIndex


class StandardSettings(KsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of standard prompting, for questions and for claims."""

    # How claims are judged: see `pytrace.reader.claims.ClaimJudge`.
    claim_demonstrations: Count = 3
    claim_scoring: ClaimScoring = "letters"
    calibrated: bool = True


class StandardClaims(KnowledgeSelection):
    """Standard prompting: answers questions, and judges claims, by what the model knows."""

    # Chain of Knowledge, section 5.2: standard prompting, on the claims of section 6.1; for questions KS-LLM, section
    # 4.1.

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder,
        settings: StandardSettings | None = None,
        *,
        name: str = "",
        index: SentenceIndex | None = None,
    ) -> None:
        self._choices = settings or StandardSettings()
        super().__init__(model, encoder, self._choices, variant="standard", name=name, index=index)

    def judge(self, claims: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Answer]:
        """Judge claims."""
        check_questions(claims, documents)
        judge = ClaimJudge(
            self._model,
            demonstrations=self._choices.claim_demonstrations,
            scoring=self._choices.claim_scoring,
            calibrated=self._choices.calibrated,
        )
        stages = Stages(self._model)
        with stages.stage("judge"):
            judgements = judge.judge(claims, [()] * len(claims))
        return make_claim_answers(claims, [NO_CONTEXT] * len(claims), judgements, stages, self.name)


def make_claim_answers(
    claims: Sequence[str],
    evidence: Sequence[Evidence],
    judgements: Sequence[ClaimJudgement],
    stages: Stages,
    name: str,
) -> list[Answer]:
    """Put together what a method made of claims; what a batch spent is divided evenly among them."""
    share = 1 / max(len(claims), 1)
    return [
        Answer(
            question=claim,
            text=judged.label,
            method=name,
            evidence=one,
            usage={stage: usage.scaled(share) for stage, usage in stages.usage.items()},
            seconds={stage: seconds * share for stage, seconds in stages.seconds.items()},
            notes=judgement_notes(judged, len(one.context)),
            context_tokens=judged.read,
            deterministic=stages.deterministic,
        )
        for claim, one, judged in zip(claims, evidence, judgements, strict=True)
    ]


def judgement_notes(judgement: ClaimJudgement, facts: int) -> tuple[str, ...]:
    """Say how likely each label is, and of `facts` facts how many did not fit."""
    told = ", ".join(f"{label} {share:.0%}" for label, share in zip(LABELS, judgement.probabilities, strict=True))
    if not judgement.left_out:
        return (told,)
    return told, f"{judgement.left_out} of {facts} facts did not fit the model's context whole"


register(
    MethodRow(
        "standard",
        "answer, or judge a claim, by what the model knows",
        StandardClaims,
        StandardSettings(),
        # A small model labels claims no better than chance, whatever it is shown; by words and calibrated it gives all three labels.
        StandardSettings(
            reader_demonstrations=4, rationale_demonstrations=3, claim_demonstrations=0, claim_scoring="words"
        ),
        needs=frozenset(),
        takes=frozenset({"sentence index"}),
    )
)
