"""Chain of Knowledge: where thoughts disagree, a knowledge base is asked, and the facts that it gives put the thoughts right.

Source: Li et al., "Chain of Knowledge: A Framework for Grounding Large Language Models with Structured Knowledge Bases" (2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from pytrace.errors import InputError
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.knowledge import Knowledge
from pytrace.kg.queries import query_names
from pytrace.kg.queries.running import Asked, QueryRunner
from pytrace.methods.base import (
    Count,
    Documents,
    MethodRow,
    Parts,
    Positive,
    Replacement,
    Stages,
    check_questions,
    noted,
    register,
)
from pytrace.methods.cok.fact_checking import CLAIMS_BY_WORDS, judge_by_model, make_claim_judge
from pytrace.methods.cok.verified_chain import WHOLE, Chain, Step
from pytrace.methods.cot.rationales import Thought
from pytrace.methods.cot.thinking import Thoughtful, ThoughtSettings
from pytrace.methods.cot.verify_and_edit import nearest_units
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.claims import ClaimScoring, votes
from pytrace.records import Answer, Evidence, KnowledgeQuery, Reasoning
from pytrace.retrieval.searching import Search

_Steps = list[tuple[Chain, Step]]


class KnowledgeSettings(ThoughtSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method, beside those of the thoughts; the defaults are the paper's where it names one."""

    # For which questions the knowledge base is asked: those whose thoughts have no majority (section 3.3), or all.
    trigger: Literal["uncertain", "always"] = "uncertain"
    # A second source beside the knowledge base: the sentences nearest to a verifying question, of what the index has for it or
    # else of the question's own documents; for no question, for those of whose queries the knowledge base has no entity, or for all.
    documents: Literal["never", "unknown", "always"] = "never"
    # Whether thoughts are edited all together, or in turn: each is then asked about and edited with those before it in sight,
    # and after one that was put right the next is thought anew.
    edit: Literal["together", "in-turn"] = "together"
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
        if chosen.documents != "never" and encoder is None:
            raise InputError(f"with documents={chosen.documents} sentences are found by an encoder; give one")
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
            Chain(number, thought)
            for number, (vote, thought) in enumerate(zip(votes, chosen, strict=True))
            if self.settings.trigger == "always" or not vote.certain
        ]
        asking = Stages(self._model, self.knowledge.generator.model)
        self._verify(questions, documents, evidence, uncertain, asking)
        concluded = self._conclude(questions, evidence, uncertain, asking)
        for item, text in zip(uncertain, concluded, strict=True):
            answers[item.index] = self._edited(answers[item.index], item, text, asking, len(uncertain))
        return answers

    def judge(self, claims: Sequence[str], documents: Documents) -> list[Answer]:
        """Judge claims, the uncertain ones by what the knowledge base says of them."""
        # Section 6.1: a claim is one statement, so it goes to the generator of queries as it is.
        check_questions(claims, documents)
        choices = self.settings
        judge = make_claim_judge(
            self._model, choices, samples=choices.samples, temperature=choices.temperature, seed=choices.seed
        )
        judged, answers = judge_by_model(judge, claims, Stages(self._model), self.name)
        uncertain = []
        for number, judgement in enumerate(judged):
            # Samples were drawn at that temperature already.
            temperature = 1.0 if judgement.samples else choices.temperature
            vote = votes(judgement.probabilities, temperature=temperature, samples=choices.samples)
            agreed = "agreed" if judgement.samples else "would agree"
            answers[number] = noted(answers[number], f"{vote.share:.0%} of samples {agreed}")
            if choices.trigger == "always" or not vote.certain:
                uncertain.append(Chain(number, Thought((), ""), [Step(WHOLE, "", claims[number])]))
        asking = Stages(self._model, self.knowledge.generator.model)
        self._find([(item, step) for item in uncertain for step in item.steps], documents, asking)
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

    def _verify(
        self,
        questions: Sequence[str],
        documents: Documents,
        evidence: Sequence[Evidence],
        uncertain: Sequence[Chain],
        stages: Stages,
    ) -> None:
        """Give every chain its steps, the question itself and its thoughts, with what is found for them and how they read then."""
        steps: _Steps = []
        if self.settings.ask != "thoughts":
            steps += [(item, Step(WHOLE, "", questions[item.index])) for item in uncertain]
        for item, step in steps:
            item.steps.append(step)
        if self.settings.ask == "question":
            self._find(steps, documents, stages)
            return
        if self.settings.edit == "together":
            thoughts = [(item, number) for item in uncertain for number in range(len(item.sentences))]
            asked = self._ask(questions, thoughts, stages)
            self._find(steps + asked, documents, stages)
            self._edit(asked, stages)
            return
        self._find(steps, documents, stages)
        for number in range(max((len(item.sentences) for item in uncertain), default=0)):
            self._think_anew(questions, evidence, uncertain, number, stages)
            asked = self._ask(questions, [(item, number) for item in uncertain if number < len(item.sentences)], stages)
            self._find(asked, documents, stages)
            self._edit(asked, stages)

    def _think_anew(
        self,
        questions: Sequence[str],
        evidence: Sequence[Evidence],
        uncertain: Sequence[Chain],
        number: int,
        stages: Stages,
    ) -> None:
        """Let the sentence of that number follow from those before it where one of these was put right; without one the chain ends."""
        changed = [
            item
            for item in uncertain
            if number < len(item.sentences) and item.before(number) != item.thought.sentences[:number]
        ]
        if not changed:
            return
        with stages.stage("think on"):
            thoughts = self._thinker.continue_thoughts(
                [questions[item.index] for item in changed],
                [[*item.facts(self.settings.facts), *evidence[item.index].context] for item in changed],
                [item.before(number) for item in changed],
            )
        for item, thought in zip(changed, thoughts, strict=True):
            if thought.sentences and not thought.answer:
                item.sentences[number] = thought.sentences[0]
            else:
                del item.sentences[number:]

    def _ask(self, questions: Sequence[str], thoughts: Sequence[tuple[Chain, int]], stages: Stages) -> _Steps:
        """Turn thoughts into verifying questions, each a step of its chain."""
        with stages.stage("ask"):
            verifying = self._verifier.ask(
                [" ".join([questions[item.index], *self._seen(item, number)]) for item, number in thoughts],
                [item.sentences[number] for item, number in thoughts],
            )
        steps = []
        for (item, number), question in zip(thoughts, verifying, strict=True):
            item.steps.append(Step(number, item.sentences[number], question))
            steps.append((item, item.steps[-1]))
        return steps

    def _seen(self, item: Chain, number: int) -> tuple[str, ...]:
        """Return the sentences that one is asked about and edited by, beside what is found for it."""
        return item.before(number) if self.settings.edit == "in-turn" else ()

    def _find(self, steps: _Steps, documents: Documents, stages: Stages) -> None:
        """Write the queries of steps, run them, and look into documents where these are a source."""
        if not steps:
            return
        asked = [step.question for _, step in steps]
        with stages.stage("write queries"):
            written = self.knowledge.generator.generate(asked, candidates=self.settings.candidates)
        with stages.stage("query"):
            results = self._runner.run(
                [Asked(step.index, step.question, queries) for (_, step), queries in zip(steps, written, strict=True)]
            )
        for (_, step), result in zip(steps, results, strict=True):
            step.found = result
        if self.settings.documents == "never":
            return
        if self.settings.documents == "unknown":
            with stages.stage("query"):
                known = self.knowledge.linker.knows(
                    [[query_names(one.query)[0] for one in queries if one.query] for queries in written]
                )
            for (item, _), knows in zip(steps, known, strict=True):
                item.known = item.known or knows
            steps = [(item, step) for item, step in steps if not item.known]
        if not steps:
            return
        # Steps of one chain stand together, as `nearest_units` wants them.
        steps = sorted(steps, key=lambda pair: pair[0].index)
        read = list(dict.fromkeys(item.index for item, _ in steps))
        owners = [read.index(item.index) for item, _ in steps]
        with stages.stage("find"):
            assert self._encoder is not None  # `__init__` sees to it
            questions, sources = [step.question for _, step in steps], [documents[index] for index in read]
            nearest = nearest_units(questions, owners, sources, self._encoder, self.settings, self._search)
        for (_, step), units in zip(steps, nearest, strict=True):
            step.read = tuple(units)

    def _edit(self, steps: _Steps, stages: Stages) -> None:
        """Rewrite the thoughts for which facts were found."""
        steps = [(item, step) for item, step in steps if step.facts]
        if not steps:
            return
        with stages.stage("edit"):
            edited = self._verifier.answer(
                [step.question for _, step in steps],
                [[*self._seen(item, step.index), *step.facts[: self.settings.facts]] for item, step in steps],
            )
        for (_, step), sentence in zip(steps, edited, strict=True):
            step.edited = sentence

    def _conclude(
        self, questions: Sequence[str], evidence: Sequence[Evidence], uncertain: Sequence[Chain], stages: Stages
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

    def _queried(self, item: Chain) -> str:
        """Return what the query of the question itself gave, if that is to be the answer."""
        if self.settings.conclude != "query":
            return ""
        direct = next((step.found for step in item.steps if step.index == WHOLE), None)
        return direct.values[0] if direct is not None and direct.values else ""

    def _edited(self, answer: Answer, item: Chain, text: str, stages: Stages, among: int) -> Answer:
        """Return an answer with what the knowledge base and the documents said, and its share of what that cost."""
        before = answer.evidence
        facts = item.facts(self.settings.facts)
        rationale = item.rationale(self.settings.unverified) if facts else before.reasoning.rationale
        evidence = msgspec.structs.replace(before, derivation=Reasoning(rationale, item.queries))
        if facts:
            documents = tuple(dict.fromkeys([*before.document_ids, *(unit.document_id for unit in item.read)]))
            kind: Literal["facts", "mixed"] = "mixed" if documents or before.kind != "none" else "facts"
            evidence = msgspec.structs.replace(
                evidence, kind=kind, context=(*facts, *before.context), document_ids=documents
            )
        revised = self._revised(answer, text, evidence, facts, stages, among)
        notes = [_query_note(item.queries, bool(facts))]
        if self.settings.documents != "never" and not item.known:
            notes.append(f"read {len(item.read)} sentences of documents beside it")
        return noted(revised, *notes)


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
        (
            Replacement(
                "reads",
                ("ask=question", "unverified=drop", "conclude=query"),
                "the question itself is asked of the knowledge base instead of the model's thoughts",
            ),
            CLAIMS_BY_WORDS,
        ),
        _make,
        needs=frozenset({"knowledge base"}),
    )
)
