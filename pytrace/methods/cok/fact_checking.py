"""Methods that check claims: what they have in common, and the one that asks the model alone.

Source: Li et al., "Chain of Knowledge: A Framework for Grounding Large Language Models with Structured Knowledge Bases"
(2023), section 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytrace.methods.base import (
    Count,
    Documents,
    MethodRow,
    Replacement,
    Stages,
    check_questions,
    make_answers,
    noted,
    register,
)
from pytrace.methods.cot.thinking import NO_CONTEXT
from pytrace.methods.ks_llm import SMALL_MODEL, KnowledgeSelection, KsSettings
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reading
from pytrace.reader.claims import LABELS, ClaimJudge, ClaimJudgement, ClaimScoring
from pytrace.records import Answer
from pytrace.retrieval import SentenceIndex

if TYPE_CHECKING:
    from pytrace.methods.cok.chain_of_knowledge import KnowledgeSettings


# A small model labels claims no better than chance, whatever it is shown; by words and calibrated it gives all three labels.
CLAIMS_BY_WORDS = Replacement("reads", ("claim_scoring=words", "claim_demonstrations=0"))


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

    settings: StandardSettings

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder,
        settings: StandardSettings | None = None,
        *,
        name: str = "",
        index: SentenceIndex | None = None,
    ) -> None:
        super().__init__(model, encoder, settings or StandardSettings(), variant="standard", name=name, index=index)

    def judge(self, claims: Sequence[str], documents: Documents) -> list[Answer]:
        """Judge claims."""
        check_questions(claims, documents)
        judge = make_claim_judge(self._model, self.settings)
        return judge_by_model(judge, claims, Stages(self._model), self.name)[1]


def make_claim_judge(
    model: LanguageModel,
    settings: StandardSettings | KnowledgeSettings,
    *,
    samples: int = 1,
    temperature: float = 0.0,
    seed: int = 0,
) -> ClaimJudge:
    """Make the judge of claims that the settings ask for; samples are drawn where there are no log-probabilities."""
    return ClaimJudge(
        model,
        demonstrations=settings.claim_demonstrations,
        scoring=settings.claim_scoring,
        calibrated=settings.calibrated,
        samples=samples,
        temperature=temperature,
        seed=seed,
    )


def judge_by_model(
    judge: ClaimJudge, claims: Sequence[str], stages: Stages, name: str
) -> tuple[list[ClaimJudgement], list[Answer]]:
    """Judge claims by what the model knows, and answer with the labels and a note of how likely each is."""
    with stages.stage("judge"):
        judged = judge.judge(claims, [()] * len(claims))
    readings = [Reading(judgement.label, judgement.read) for judgement in judged]
    answers = make_answers(claims, [NO_CONTEXT] * len(claims), readings, stages, name)
    return judged, [noted(answer, label_shares(judgement)) for answer, judgement in zip(answers, judged, strict=True)]


def label_shares(judgement: ClaimJudgement) -> str:
    """Say how likely each label is, and where that was sampled, how often."""
    shares = ", ".join(f"{label} {share:.0%}" for label, share in zip(LABELS, judgement.probabilities, strict=True))
    return f"{shares} of {judgement.samples} written verdicts" if judgement.samples else shares


register(
    MethodRow(
        "standard",
        "answer, or judge a claim, by what the model knows",
        StandardClaims,
        StandardSettings(),
        (SMALL_MODEL, CLAIMS_BY_WORDS),
        needs=frozenset(),
        takes=frozenset({"sentence index"}),
    )
)
