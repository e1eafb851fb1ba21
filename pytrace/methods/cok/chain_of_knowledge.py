"""Chain of Knowledge: where thoughts disagree, a knowledge base is asked, and the facts that it gives put the thoughts right.

Source: Li et al., "Chain of Knowledge: A Framework for Grounding Large Language Models with Structured Knowledge Bases" (2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from pytrace.errors import InputError
from pytrace.kg.fact_store import FactStore, QueryLimits
from pytrace.kg.linking import EntityLinker
from pytrace.kg.queries import QueryGenerator
from pytrace.kg.queries.running import Asked, QueryRunner
from pytrace.methods.base import Count, Documents, MethodRow, Parts, Positive, Stages, check_questions, noted, register
from pytrace.methods.cok.fact_checking import judge_by_model, make_claim_judge
from pytrace.methods.cot.rationales import Thought
from pytrace.methods.cot.thinking import Thoughtful, ThoughtSettings
from pytrace.methods.ranking import Search
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.claims import ClaimScoring, votes
from pytrace.records import Answer, Evidence, KnowledgeQuery, Reasoning

WHOLE = -1
"""The index of the question itself beside those of its thoughts."""


class Knowledge(NamedTuple):
    """A knowledge base and what it takes to ask it: who writes queries, and who finds the entities that they mention."""

    store: FactStore
    linker: EntityLinker
    generator: QueryGenerator


class KnowledgeSettings(ThoughtSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method, beside those of the thoughts; the defaults are the paper's where it names one."""

    # For which questions the knowledge base is asked: those whose thoughts have no majority (section 3.3), or all.
    trigger: Literal["uncertain", "always"] = "uncertain"
    # What becomes queries: the verifying questions of thoughts, the question itself, or both (section 3.1).
    ask: Literal["thoughts", "question", "both"] = "both"
    # Queries that the generator offers for each; the next one is tried where one is invalid or gives nothing.
    candidates: Positive = 3
    # Ways to read the entities and relations of one query that are tried.
    alternatives: Positive = 4
    # Whether the last of them is a triplet with head and tail exchanged, for models that confuse the two.
    either_direction: bool = False
    # Facts that the model sees of a question at most, those of the question itself first.
    facts: Positive = 10
    # Whether sentences of the rationale for which no fact was found stay in it ("keep", as in the paper) or go where
    # there is a fact at all ("drop").
    unverified: Literal["keep", "drop"] = "keep"
    # Who gives the answer: the model, from the facts and the rationale (section 3.2), or the query of the question
    # itself where it gave a value, else the model.
    conclude: Literal["model", "query"] = "model"
    # What one query may use.
    rows: Positive = 1_000
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    megabytes: Positive = 2_048
    # How claims are judged: see `pytrace.reader.claims.ClaimJudge`.
    claim_demonstrations: Count = 3
    claim_scoring: ClaimScoring = "letters"
    calibrated: bool = True


class _Step(msgspec.Struct):
    """A thought of a chain, or the question itself: what is asked about it, what was found, and how it reads then."""

    index: int
    sentence: str
    question: str
    found: KnowledgeQuery | None = None
    edited: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        return () if self.found is None else tuple(fact.text for fact in self.found.facts)


class _Uncertain(msgspec.Struct):
    """A question that the knowledge base is asked about: its index among all, and its chain."""

    index: int
    thought: Thought
    steps: list[_Step]

    @property
    def queries(self) -> tuple[KnowledgeQuery, ...]:
        return tuple(step.found for step in self.steps if step.found is not None)

    def facts(self, most: int) -> tuple[str, ...]:
        """Return the facts of all steps, each once."""
        return tuple(dict.fromkeys(fact for step in self.steps for fact in step.facts))[:most]

    def rationale(self, unverified: str) -> tuple[str, ...]:
        """Return the facts of the question itself and the sentences of the chain, as far as they are to be kept."""
        direct = [fact for step in self.steps[:1] if step.index == WHOLE for fact in step.facts]
        by_thought = {step.index: step for step in self.steps if step.index != WHOLE}
        some = bool(self.facts(1))
        sentences = []
        for number, sentence in enumerate(self.thought.sentences):
            step = by_thought.get(number)
            if step is not None and step.edited:
                sentences.append(step.edited)
            elif unverified == "keep" or not some:
                sentences.append(sentence)
        return tuple(dict.fromkeys([*direct, *sentences]))


class ChainOfKnowledge(Thoughtful):
    """Lets thoughts vote, and where that is no majority, answers from what a knowledge base says."""

    # Section 3: a question is uncertain if fewer than half of its samples (rounded up) agree (3.3). Its thoughts become
    # verifying questions, each a query to the knowledge base, as does the question itself (3.1); mentions are linked to
    # entities (3.3). The facts that come back take the place of what the model had thought, and it answers anew from
    # them (3.2). Certain questions ask nothing of the knowledge base.

    known_as = "cok"
    settings: KnowledgeSettings

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder | None,
        settings: KnowledgeSettings | None = None,
        *,
        knowledge: Knowledge,
        name: str = "",
        search: Search | None = None,
    ) -> None:
        chosen = settings or KnowledgeSettings()
        super().__init__(model, encoder, chosen, name=name, search=search)
        self.knowledge = knowledge
        self._runner = QueryRunner(
            knowledge.store,
            knowledge.linker,
            encoder=encoder,
            limits=QueryLimits(rows=chosen.rows, seconds=chosen.seconds, megabytes=chosen.megabytes),
            alternatives=chosen.alternatives,
            facts=chosen.facts,
            either_direction=chosen.either_direction,
        )

    def answer(self, questions: Sequence[str], documents: Documents) -> list[Answer]:
        """Answer questions; all uncertain ones go through every step together."""
        check_questions(questions, documents)
        evidence, votes, chosen, answers = self._vote(questions, documents)
        uncertain = [
            _Uncertain(number, thought, [])
            for number, (vote, thought) in enumerate(zip(votes, chosen, strict=True))
            if self.settings.trigger == "always" or not vote.certain
        ]
        asking = Stages(self._model, self.knowledge.generator.model)
        self._decompose(questions, uncertain, asking)
        self._query(uncertain, asking)
        self._edit(uncertain, asking)
        concluded = self._conclude(questions, evidence, uncertain, asking)
        for item, text in zip(uncertain, concluded, strict=True):
            answers[item.index] = self._edited(answers[item.index], item, text, asking, len(uncertain))
        return answers

    def judge(self, claims: Sequence[str], documents: Documents) -> list[Answer]:
        """Judge claims, the uncertain ones by what the knowledge base says of them."""
        # Section 6.1: a claim is one statement, so it goes to the generator of queries as it is.
        check_questions(claims, documents)
        choices = self.settings
        judge = make_claim_judge(self._model, choices)
        judged, answers = judge_by_model(judge, claims, Stages(self._model), self.name)
        uncertain = []
        for number, judgement in enumerate(judged):
            vote = votes(judgement.probabilities, temperature=choices.temperature, samples=choices.samples)
            answers[number] = noted(answers[number], f"{vote.share:.0%} of samples would agree")
            if choices.trigger == "always" or not vote.certain:
                uncertain.append(_Uncertain(number, Thought((), ""), [_Step(WHOLE, "", claims[number])]))
        asking = Stages(self._model, self.knowledge.generator.model)
        self._query(uncertain, asking)
        informed = [item for item in uncertain if item.facts(1)]
        with asking.stage("judge"):
            again = judge.judge(
                [claims[item.index] for item in informed], [item.facts(choices.facts) for item in informed]
            )
        labels = {item.index: judgement.label for item, judgement in zip(informed, again, strict=True)}
        for item in uncertain:
            label = labels.get(item.index, "")
            answers[item.index] = self._edited(answers[item.index], item, label, asking, len(uncertain))
        return answers

    def _decompose(self, questions: Sequence[str], uncertain: Sequence[_Uncertain], stages: Stages) -> None:
        """Give every item its chain: the question itself, and a verifying question for each thought."""
        if self.settings.ask != "thoughts":
            for item in uncertain:
                item.steps.append(_Step(WHOLE, "", questions[item.index]))
        if self.settings.ask == "question":
            return
        thoughts = [
            (item, number, sentence) for item in uncertain for number, sentence in enumerate(item.thought.sentences)
        ]
        with stages.stage("ask"):
            verifying = self._verifier.ask(
                [questions[item.index] for item, _, _ in thoughts], [sentence for _, _, sentence in thoughts]
            )
        for (item, number, sentence), question in zip(thoughts, verifying, strict=True):
            item.steps.append(_Step(number, sentence, question))

    def _query(self, uncertain: Sequence[_Uncertain], stages: Stages) -> None:
        """Write the queries of all steps, and run them."""
        steps = [step for item in uncertain for step in item.steps]
        if not steps:
            return
        with stages.stage("write queries"):
            written = self.knowledge.generator.generate(
                [step.question for step in steps], candidates=self.settings.candidates
            )
        with stages.stage("query"):
            results = self._runner.run(
                [Asked(step.index, step.question, queries) for step, queries in zip(steps, written, strict=True)]
            )
        for step, result in zip(steps, results, strict=True):
            step.found = result

    def _edit(self, uncertain: Sequence[_Uncertain], stages: Stages) -> None:
        """Rewrite the thoughts for which facts were found."""
        steps = [step for item in uncertain for step in item.steps if step.index != WHOLE and step.facts]
        if not steps:
            return
        with stages.stage("edit"):
            edited = self._verifier.answer(
                [step.question for step in steps], [step.facts[: self.settings.facts] for step in steps]
            )
        for step, sentence in zip(steps, edited, strict=True):
            step.edited = sentence

    def _conclude(
        self, questions: Sequence[str], evidence: Sequence[Evidence], uncertain: Sequence[_Uncertain], stages: Stages
    ) -> list[str]:
        """Answer every item anew; empty where nothing was found that the model had not thought of."""
        texts = [self._queried(item) for item in uncertain]
        left = {number: item for number, item in enumerate(uncertain) if not texts[number] and item.facts(1)}
        with stages.stage("conclude"):
            concluded = self._thinker.conclude(
                [questions[item.index] for item in left.values()],
                [[*item.facts(self.settings.facts), *evidence[item.index].context] for item in left.values()],
                [item.rationale(self.settings.unverified) for item in left.values()],
            )
        for number, text in zip(left, concluded, strict=True):
            texts[number] = text
        return texts

    def _queried(self, item: _Uncertain) -> str:
        """Return what the query of the question itself gave, if that is to be the answer."""
        if self.settings.conclude != "query":
            return ""
        direct = next((step.found for step in item.steps if step.index == WHOLE), None)
        return direct.values[0] if direct is not None and direct.values else ""

    def _edited(self, answer: Answer, item: _Uncertain, text: str, stages: Stages, among: int) -> Answer:
        """Return an answer with what the knowledge base said, and its share of what that cost."""
        before = answer.evidence
        facts = item.facts(self.settings.facts)
        rationale = item.rationale(self.settings.unverified) if facts else before.reasoning.rationale
        evidence = msgspec.structs.replace(before, derivation=Reasoning(rationale, item.queries))
        if facts:
            kind: Literal["facts", "mixed"] = "facts" if before.kind == "none" else "mixed"
            evidence = msgspec.structs.replace(evidence, kind=kind, context=(*facts, *before.context))
        revised = self._revised(answer, text, evidence, facts, stages, among)
        return noted(revised, _query_note(item.queries, bool(facts)))


def _query_note(queries: Sequence[KnowledgeQuery], with_facts: bool) -> str:
    """Say what became of the queries of a question."""
    if not queries:
        return "there was nothing to ask the knowledge base"
    counts = Counter(query.outcome for query in queries)
    outcomes = ", ".join(
        f"{counts[outcome]} {outcome}" for outcome in ("answered", "empty", "stopped", "refused") if counts[outcome]
    )
    return f"asked the knowledge base {len(queries)} times: {outcomes}" + (
        "" if with_facts else "; no fact came back, so the vote stands"
    )


def _make(parts: Parts, settings: KnowledgeSettings, name: str) -> ChainOfKnowledge:
    if parts.knowledge is None:
        raise InputError("cok asks a knowledge base, and there is none; give --kb FILE|URL")
    knowledge = parts.knowledge()
    return ChainOfKnowledge(parts.model, parts.encoder(), settings, knowledge=knowledge, name=name, search=parts.search)


register(
    MethodRow(
        "cok",
        "think five times; where the thoughts disagree, ask a knowledge base → edit the thoughts by its facts → answer",
        ChainOfKnowledge,
        KnowledgeSettings(),
        # A small model's thoughts name people who are none, and it does not find the answer among the facts that a query gave.
        KnowledgeSettings(
            ask="question", unverified="drop", conclude="query", claim_demonstrations=0, claim_scoring="words"
        ),
        _make,
        needs=frozenset({"knowledge base"}),
    )
)
