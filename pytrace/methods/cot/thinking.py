"""Baselines that think before they answer: chain of thought, and the vote of several.

Sources: Wei et al., "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models" (NeurIPS 2022); Wang et al.,
"Self-Consistency Improves Chain of Thought Reasoning in Language Models" (ICLR 2023).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from pytrace.methods.base import (
    Count,
    Documents,
    Method,
    MethodRow,
    Positive,
    Selected,
    Stages,
    check_questions,
    make_answers,
    noted,
    register,
)
from pytrace.methods.cot.claim_thoughts import ClaimThinker, labelled
from pytrace.methods.cot.rationales import Thinker, Thought, Verifier, Vote, majority
from pytrace.methods.ranking import Rank, rank_by
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.evidence import all_documents
from pytrace.records import Answer, Evidence
from pytrace.retrieval import RetrieverName
from pytrace.retrieval.searching import Search

NO_CONTEXT = Evidence("none", (), ())


class ThoughtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the methods that think; samples and temperature are those of Chain-of-Knowledge, section 4."""

    # For the vote: how many thoughts, how freely they are sampled, and from which random numbers.
    samples: Positive = 5
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.7
    seed: Count = 0
    # What thoughts see: nothing but the question, or the documents that a retriever puts first.
    context: Literal["none", "documents"] = "none"
    # Which documents these are, and how many.
    retriever: RetrieverName = "dense"
    top: Positive = 5
    # Labelled rationales shown to the model.
    demonstrations: Count = 3
    # The longest thought.
    max_tokens: Positive = 160
    # For Verify-and-Edit: the sentences from which a verifying question is answered.
    sentences: Positive = 3


class Thoughtful(Method):
    """What the methods that think have in common: settings, thoughts, and the documents that these may see."""

    known_as: ClassVar[str]

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder | None,
        settings: ThoughtSettings | None = None,
        *,
        name: str = "",
        rank: Rank | None = None,
        search: Search | None = None,
    ) -> None:
        self.settings = settings or ThoughtSettings()
        self.name = name or self.known_as
        self._model = model
        self._encoder = encoder
        self._search = search
        self._rank = rank
        if rank is None and self.settings.context == "documents":
            self._rank = rank_by(self.settings.retriever, encoder, search=search)
        self._thinker = Thinker(model, demonstrations=self.settings.demonstrations, max_tokens=self.settings.max_tokens)
        self._verifier = Verifier(model, demonstrations=self.settings.demonstrations)

    def select(self, questions: Sequence[str], documents: Documents) -> list[Evidence]:
        """Return what the answers to questions rest on; what a method thinks leads to its evidence, so it thinks and answers."""
        return [answer.evidence for answer in self.answer(questions, documents)]

    def judge(self, claims: Sequence[str], documents: Documents) -> list[Answer]:
        """Judge claims as questions are answered: thoughts end in a label, vote, and are verified."""
        check_questions(claims, documents)
        judging = copy.copy(self)
        judging._thinker = ClaimThinker(
            self._model, demonstrations=self.settings.demonstrations, max_tokens=self.settings.max_tokens
        )
        return [labelled(answer) for answer in judging.answer(claims, documents)]

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        return [Selected(seen) for seen in self._evidence(questions, documents, stages)]

    def _evidence(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Evidence]:
        """Return what the thoughts of each question see."""
        if self.settings.context == "none" or self._rank is None:
            return [NO_CONTEXT] * len(questions)
        with stages.stage("retrieve"):
            return [all_documents(ranked) for ranked in self._rank(questions, documents, self.settings.top)]

    def _think(
        self, questions: Sequence[str], evidence: Sequence[Evidence], stages: Stages, *, samples: int
    ) -> list[list[Thought]]:
        """Let the model think, greedily where one thought is asked for."""
        if self.on_evidence is not None:
            self.on_evidence([*evidence])
        with stages.stage("think"):
            return self._thinker.think(
                questions,
                [seen.context for seen in evidence],
                n=samples,
                temperature=self.settings.temperature if samples > 1 else 0.0,
                seed=self.settings.seed,
            )

    def _answers(
        self, questions: Sequence[str], evidence: Sequence[Evidence], thoughts: Sequence[Thought], stages: Stages
    ) -> list[Answer]:
        """Put together each question's answer with the thought that led to it."""
        evidence, readings = self._thinker.readings(questions, evidence, thoughts)
        return make_answers(questions, evidence, readings, stages, self.name)

    def _vote(
        self, questions: Sequence[str], documents: Documents
    ) -> tuple[list[Evidence], list[Vote], list[Thought], list[Answer]]:
        """Think several times; return what was seen, the votes, the first thought of each majority, and its answer."""
        stages = Stages(self._model)
        evidence = self._evidence(questions, documents, stages)
        samples = self._think(questions, evidence, stages, samples=self.settings.samples)
        votes = [majority(thoughts) for thoughts in samples]
        chosen = [thoughts[vote.first] for thoughts, vote in zip(samples, votes, strict=True)]
        answers = [
            noted(answer, f"{vote.count} of {vote.of} samples agreed")
            for answer, vote in zip(self._answers(questions, evidence, chosen, stages), votes, strict=True)
        ]
        return evidence, votes, chosen, answers

    def _revised(
        self, answer: Answer, text: str, evidence: Evidence, added: Sequence[str], stages: Stages, among: int
    ) -> Answer:
        """Return an answer with a new text, if there is one, evidence to which something was added, and its share of the cost."""
        revised = msgspec.structs.replace(
            answer,
            text=text or answer.text,
            evidence=evidence,
            context_tokens=answer.context_tokens + self._model.count_tokens("\n".join(added)),
        )
        return stages.added_to(revised, among)


class ChainOfThought(Thoughtful):
    """Thinks once, with the likeliest words, and answers."""

    # Wei et al. (NeurIPS 2022), section 2.

    known_as = "cot"

    def answer(self, questions: Sequence[str], documents: Documents) -> list[Answer]:
        """Answer questions after one thought each."""
        check_questions(questions, documents)
        stages = Stages(self._model)
        evidence = self._evidence(questions, documents, stages)
        thoughts = [row[0] for row in self._think(questions, evidence, stages, samples=1)]
        return self._answers(questions, evidence, thoughts, stages)


class SelfConsistency(Thoughtful):
    """Thinks several times, sampled, and gives the answer of the most thoughts."""

    # Wang et al. (ICLR 2023), section 2. The samples of a question share the evaluation of its prompt.

    known_as = "cot-sc"

    def answer(self, questions: Sequence[str], documents: Documents) -> list[Answer]:
        """Answer questions by the vote of several thoughts each."""
        check_questions(questions, documents)
        return self._vote(questions, documents)[-1]


for _name, _summary, _method in (
    ("cot", "think first, then answer", ChainOfThought),
    ("cot-sc", "think five times, sampled, and vote", SelfConsistency),
):
    register(
        MethodRow(
            _name,
            _summary,
            _method,
            ThoughtSettings(),
            needs=frozenset(),
            takes=frozenset({"search"}),
        )
    )
