"""Chain of Knowledge: who is asked about, what is asked, and what the facts change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pytrace.errors import InputError, ServerError
from pytrace.evaluation.run.run_store import Result
from pytrace.evaluation.scores.labels_and_queries import KnowledgeScores, knowledge_scores
from pytrace.evaluation.scores.summary import make_report
from pytrace.kg.linking import EntityLinker
from pytrace.kg.queries import GeneratedQuery, parse_query
from pytrace.methods.cok.chain_of_knowledge import WHOLE, ChainOfKnowledge, Knowledge, KnowledgeSettings
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.claims import LABELS
from pytrace.records import Answer, Document
from tests.store_double import StoreDouble

TRIPLES = [
    ("isaura_venn", "spouse", "orvo_lind"),
    ("orvo_lind", "birthplace", "quillhaven"),
    ("isaura_venn", "profession", "beekeeper"),
]
QUESTION = "Where was the husband of Isaura Venn born?"
CERTAIN = "What did Isaura Venn do?"
SPOUSE, BORN = "Who was the husband of Isaura Venn?", "Where was Brak Olm born?"
DOUBTFUL = [
    "Her husband was Brak Olm. He was born in Rome. So the answer is Rome.",
    "So the answer is Paris.",
    "So the answer is Accra.",
]


class Generator:
    """Writes what a table says, and keeps what it was asked."""

    name = "table"

    def __init__(self, table: dict[str, Sequence[str]], model: ScriptedModel) -> None:
        self.table = table
        self.model = model
        self.asked: list[list[str]] = []

    def generate(self, questions: Sequence[str], *, candidates: int = 1) -> list[list[GeneratedQuery]]:
        self.asked.append(list(questions))
        return [[self._query(text) for text in self.table.get(question, ["?"])[:candidates]] for question in questions]

    @staticmethod
    def _query(text: str) -> GeneratedQuery:
        try:
            return GeneratedQuery(text, parse_query(text), -1.0)
        except InputError as error:
            return GeneratedQuery(text, None, -1.0, str(error))


WHOLE_QUERY = "select ?x where { entity:/Isaura Venn/ relation:/spouse/ ?y . ?y relation:/birthplace/ ?x }"
TABLE = {
    QUESTION: [WHOLE_QUERY],
    SPOUSE: ["<Isaura Venn; spouse; ?>"],
    BORN: ["<Brak Olm; birthplace; ?>"],
}


def said(prompt: str) -> str:
    """Ask, edit and conclude what the thoughts said."""
    if prompt.endswith("Verifying question:"):
        return SPOUSE if "husband was" in prompt.rsplit("Sentence:", 1)[1] else BORN
    if prompt.endswith("Answer:"):
        return "Isaura Venn's husband was Orvo Lind."
    if "So the answer is" in prompt[-40:]:
        return " Quillhaven." if "quillhaven" in prompt.casefold() else " Brak Olm."
    return "?"


class Thinking(ScriptedModel):
    """Thinks what it is told to about each question, one thought a sample."""

    def __init__(self, thoughts: dict[str, Sequence[str]], **options: Any) -> None:
        self._thoughts = {question: list(own) for question, own in thoughts.items()}
        super().__init__(self._say, **options)

    def _say(self, prompt: str) -> str:
        if not prompt.endswith("Thoughts:"):
            return said(prompt)
        question = prompt.rsplit("Question: ", 1)[1].splitlines()[0]
        return self._thoughts[question].pop(0)


THOUGHTS = {QUESTION: DOUBTFUL, CERTAIN: ["So the answer is bees.", "So the answer is bees.", "So the answer is wax."]}


def asked(
    questions: Sequence[str] = (QUESTION,),
    *,
    table: dict[str, Sequence[str]] | None = None,
    store: StoreDouble | None = None,
    **chosen: object,
) -> tuple[list[Answer], Generator, StoreDouble, Thinking]:
    model = Thinking({question: THOUGHTS[question] for question in questions})
    generator = Generator(TABLE if table is None else table, ScriptedModel())
    store = store or StoreDouble(TRIPLES)
    settings = msgspec.convert({"samples": 3, **chosen}, KnowledgeSettings)
    knowledge = Knowledge(store, EntityLinker(store, None), generator)
    method = ChainOfKnowledge(model, None, settings, knowledge=knowledge)
    return method.answer(list(questions), [[] for _ in questions]), generator, store, model


def test_facts_take_the_place_of_what_was_thought_and_the_answer_follows_them() -> None:
    [answer], generator, _, _ = asked()
    assert answer.text == "Quillhaven"
    assert generator.asked == [[QUESTION, SPOUSE, BORN]]
    assert answer.evidence.kind == "facts"
    assert answer.evidence.context == ("isaura venn spouse orvo lind.", "orvo lind birthplace quillhaven.")
    assert answer.evidence.reasoning.rationale == (
        "isaura venn spouse orvo lind.",
        "orvo lind birthplace quillhaven.",
        "Isaura Venn's husband was Orvo Lind.",
        "He was born in Rome.",
    )
    whole, spouse, born = answer.evidence.reasoning.queries
    assert (whole.place, spouse.place, born.place) == (WHOLE, 0, 1)
    assert (whole.values, spouse.values) == (("quillhaven",), ("orvo lind",))
    assert (born.outcome, born.facts) == ("refused", ())
    assert answer.notes == ("1 of 3 samples agreed", "asked the knowledge base 3 times: 2 answered, 1 refused")
    assert set(answer.usage) == {"think", "ask", "write queries", "query", "edit", "conclude"}
    assert answer.context_tokens == sum(len(fact.split()) for fact in answer.evidence.context)


def test_a_certain_question_asks_nothing_of_the_store() -> None:
    [certain, doubtful], generator, store, _ = asked((CERTAIN, QUESTION))
    assert (certain.text, certain.notes, certain.evidence.reasoning.queries) == ("bees", ("2 of 3 samples agreed",), ())
    assert set(certain.usage) == {"think"}
    assert doubtful.text == "Quillhaven"
    assert all(CERTAIN not in row for row in generator.asked)
    assert [len(batch) for batch in store.rounds] == [2]


def test_always_asks_about_certain_questions_too() -> None:
    [answer], generator, _, _ = asked((CERTAIN,), trigger="always", table={CERTAIN: ["<Isaura Venn; profession; ?>"]})
    assert generator.asked == [[CERTAIN]]
    assert answer.evidence.context == ("isaura venn profession beekeeper.",)


def test_what_becomes_queries_is_a_setting() -> None:
    assert asked(ask="question")[1].asked == [[QUESTION]]
    assert asked(ask="thoughts")[1].asked == [[SPOUSE, BORN]]


def test_sentences_that_no_fact_verifies_can_be_dropped() -> None:
    [answer] = asked(unverified="drop")[0]
    assert "He was born in Rome." not in answer.evidence.reasoning.rationale
    # Where there is no fact at all, all stay.
    [answer] = asked(unverified="drop", table={})[0]
    assert answer.evidence.reasoning.rationale == ("Her husband was Brak Olm.", "He was born in Rome.")


def test_the_query_of_the_question_can_give_the_answer_itself() -> None:
    [answer], *_, model = asked(conclude="query", ask="question")
    assert answer.text == "quillhaven"
    assert not any("So the answer is" in prompt[-40:] for prompt in model.prompts if not prompt.endswith("Thoughts:"))
    # Without a value the model concludes, and without a fact the vote stands.
    [answer] = asked(conclude="query", ask="both", table={SPOUSE: TABLE[SPOUSE]})[0]
    assert answer.text == "Brak Olm"


def test_a_triplet_can_be_read_in_the_other_direction_too() -> None:
    table = {QUESTION: ["<Orvo Lind; spouse; ?>"]}
    [strict], *_ = asked(table=table, ask="question")
    [either], *_ = asked(table=table, ask="question", either_direction=True)
    assert strict.evidence.context == ()
    assert either.evidence.context == ("isaura venn spouse orvo lind.",)


def test_without_a_fact_the_vote_stands_and_the_note_says_so() -> None:
    [answer] = asked(table={})[0]
    assert answer.text == "Rome"
    assert answer.evidence.kind == "none"
    assert answer.notes[-1] == "asked the knowledge base 3 times: 3 refused; no fact came back, so the vote stands"
    assert len(answer.evidence.reasoning.queries) == 3


def test_a_store_that_fails_does_not_end_the_run() -> None:
    store = StoreDouble(TRIPLES, lambda _: ServerError("no server answers"))
    [answer] = asked(store=store)[0]
    assert answer.text == "Rome"
    assert answer.evidence.reasoning.queries[0].refused[0][1] == "no server answers"


def test_the_facts_that_the_model_sees_are_limited() -> None:
    [answer] = asked(facts=1)[0]
    assert answer.evidence.context == ("isaura venn spouse orvo lind.",)


def test_costs_of_asking_are_divided_among_those_that_asked() -> None:
    (first, second), *_ = asked((QUESTION, CERTAIN))
    assert "query" in first.seconds
    assert "query" not in second.seconds
    assert asked((), table={})[0] == []


def test_an_empty_question_is_refused() -> None:
    store = StoreDouble(TRIPLES)
    knowledge = Knowledge(store, EntityLinker(store, None), Generator({}, ScriptedModel()))
    with pytest.raises(InputError):
        ChainOfKnowledge(ScriptedModel(), None, knowledge=knowledge).answer([" "], [[]])


# Claims


def judged(claim: str, written: str, **chosen: object) -> tuple[Answer, Generator]:
    model = ScriptedModel()
    generator = Generator({claim: [written]}, model)
    store = StoreDouble(TRIPLES)
    settings = msgspec.convert({"claim_scoring": "words", "calibrated": False, **chosen}, KnowledgeSettings)
    method = ChainOfKnowledge(model, None, settings, knowledge=Knowledge(store, EntityLinker(store, None), generator))
    return method.judge([claim], [[]])[0], generator


CLAIM = "Isaura Venn was a beekeeper."


def test_an_uncertain_claim_is_judged_by_facts() -> None:
    answer, generator = judged(CLAIM, "<Isaura Venn; profession; ?>", temperature=5.0)
    assert generator.asked == [[CLAIM]]
    assert answer.text in LABELS
    assert answer.evidence.context == ("isaura venn profession beekeeper.",)
    assert answer.evidence.reasoning.queries[0].place == WHOLE
    assert answer.notes[-1] == "asked the knowledge base 1 times: 1 answered"


def test_a_certain_claim_asks_nothing() -> None:
    answer, generator = judged(CLAIM, "<Isaura Venn; profession; ?>", temperature=0.0)
    assert generator.asked == []
    assert answer.evidence.reasoning.queries == ()


def test_a_claim_without_facts_keeps_its_label() -> None:
    alone, _ = judged(CLAIM, "?", temperature=0.0)
    asked_about, _ = judged(CLAIM, "?", trigger="always")
    assert asked_about.text == alone.text
    assert asked_about.notes[-1].endswith("no fact came back, so the vote stands")


def test_documents_that_thoughts_saw_stay_behind_the_facts() -> None:
    model = Thinking({QUESTION: DOUBTFUL})
    store = StoreDouble(TRIPLES)
    document = Document("1", "Bees", ("Bees make wax.",))
    settings = msgspec.convert({"samples": 3, "context": "documents"}, KnowledgeSettings)
    knowledge = Knowledge(store, EntityLinker(store, None), Generator(TABLE, model))
    [answer] = ChainOfKnowledge(model, HashEncoder(), settings, knowledge=knowledge).answer([QUESTION], [[document]])
    assert answer.evidence.kind == "mixed"
    assert answer.evidence.context[-1] == "[Bees] Bees make wax."
    assert answer.evidence.document_ids == ("1",)


# The report of an evaluation


def test_a_report_says_how_often_the_store_was_asked_and_how_it_went() -> None:
    (certain, doubtful), *_ = asked((CERTAIN, QUESTION))
    [nothing], *_ = asked(table={})
    rows = [
        Result("cok", "1", CERTAIN, ("bees",), answer=certain),
        Result("cok", "2", QUESTION, ("Quillhaven",), answer=doubtful),
        Result("cok", "3", QUESTION, ("Quillhaven",), answer=nothing),
        Result("cok", "4", QUESTION, ("Quillhaven",), error="lost"),
    ]
    scores = knowledge_scores("cok", rows)
    assert scores is not None
    assert scores == KnowledgeScores("cok", 3, 2, 1, 0.5, 1.0, {"refused": 4, "answered": 2}, scores.refused)
    assert (
        scores.refused
        == sum(len(query.refused) for row in (doubtful, nothing) for query in row.evidence.reasoning.queries)
        > 0
    )
    assert make_report({"cok": rows}).knowledge == (scores,)
    assert knowledge_scores("cok", rows[:1]) is None
