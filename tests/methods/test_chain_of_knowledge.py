"""Chain of Knowledge: who is asked about, what is asked, and what the facts change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pytrace.engine.findings import answer_result
from pytrace.errors import InputError, ServerError
from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.scores.labels_and_queries import KnowledgeScores, knowledge_scores
from pytrace.evaluation.scores.summary import make_report
from pytrace.kg.knowledge import Knowledge
from pytrace.kg.linking import EntityLinker
from pytrace.kg.queries import GeneratedQuery, parse_query
from pytrace.methods.cok.chain_of_knowledge import WHOLE, ChainOfKnowledge, KnowledgeSettings
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


@pytest.mark.parametrize(
    ("written", "knowledge"),
    [
        (
            "select (count(?x) as ?n) where { entity:/Isaura Venn/ ?p ?x }",
            ("The knowledge base knows 2 x such that isaura venn p x.",),
        ),
        (
            "ask { entity:/Isaura Venn/ relation:/birthplace/ ?x }",
            ("The knowledge base does not say, for any x, that isaura venn birthplace x.",),
        ),
    ],
)
def test_counts_and_answers_of_yes_or_no_reach_the_model(written: str, knowledge: tuple[str, ...]) -> None:
    [answer], *_, model = asked(table={QUESTION: [written]}, ask="question")
    assert answer.evidence.context[: len(knowledge)] == knowledge
    assert answer.evidence.reasoning.rationale[: len(knowledge)] == knowledge
    concluding = [prompt for prompt in model.prompts if prompt.endswith("So the answer is")]
    assert [knowledge[0] in prompt for prompt in concluding] == [True]


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


# Documents as a second source

BIRTH = Document("7", "Olm", ("Brak Olm was born in Accra.", "Waves break."))


def read_beside(documents: str, *, search: Any = None, **chosen: object) -> tuple[Answer, Thinking]:
    """Ask the question with a document at hand; the store knows the husband, and nothing of Brak Olm."""
    model = Thinking({QUESTION: DOUBTFUL})
    store = StoreDouble(TRIPLES)
    knowledge = Knowledge(store, EntityLinker(store, None), Generator({**TABLE, **chosen.pop("table", {})}, model))  # type: ignore[dict-item]
    settings = msgspec.convert({"samples": 3, "documents": documents, "sentences": 1, **chosen}, KnowledgeSettings)
    method = ChainOfKnowledge(model, HashEncoder(), settings, knowledge=knowledge, search=search)
    return method.answer([QUESTION], [[BIRTH]])[0], model


def test_documents_verify_the_thoughts_of_a_question_whose_entities_the_store_lacks() -> None:
    nobody = {QUESTION: ["<Brak Olm; spouse; ?>"], SPOUSE: ["?"]}
    answer, model = read_beside("unknown", table=nobody)
    assert answer.evidence.kind == "mixed"
    assert answer.evidence.context == ("[Olm] Brak Olm was born in Accra.",)
    assert answer.evidence.document_ids == ("7",)
    assert answer.notes[1:] == (
        "asked the knowledge base 3 times: 3 refused",
        "read 1 sentences of documents beside it",
    )
    assert any(
        "Context:\n[Olm] Brak Olm was born in Accra.\nQuestion: Where was Brak Olm born?" in one
        for one in model.prompts
    )
    assert "find" in answer.usage


def test_a_store_that_has_the_entities_is_the_only_source_unless_both_are_asked_for() -> None:
    known, _ = read_beside("unknown")
    never, _ = read_beside("never")
    assert known.evidence == never.evidence
    assert known.evidence.kind == "facts"
    both, _ = read_beside("always")
    assert both.evidence.context == (
        "isaura venn spouse orvo lind.",
        "orvo lind birthplace quillhaven.",
        "[Olm] Brak Olm was born in Accra.",
    )
    assert both.evidence.kind == "mixed"


def test_an_index_is_searched_for_each_verifying_question() -> None:
    asked_for: list[tuple[list[str], str, int]] = []

    def search(queries: Sequence[str], retriever: str, count: int) -> list[list[Document]]:
        asked_for.append((list(queries), retriever, count))
        return [[Document("9", "Lind", (f"Found for {query}",))] for query in queries]

    answer, _ = read_beside("always", search=search, retriever="bm25", top=4, ask="thoughts")
    assert asked_for == [([SPOUSE, BORN], "bm25", 4)]
    assert answer.evidence.document_ids == ("9",)
    assert f"[Lind] Found for {BORN}" in answer.evidence.context


def test_a_claim_is_judged_by_documents_where_the_store_lacks_its_entities() -> None:
    model = ScriptedModel()
    store = StoreDouble(TRIPLES)
    knowledge = Knowledge(store, EntityLinker(store, None), Generator({"Brak Olm was born in Rome.": ["?"]}, model))
    settings = KnowledgeSettings(trigger="always", documents="unknown", sentences=1)
    method = ChainOfKnowledge(model, HashEncoder(), settings, knowledge=knowledge)
    [answer] = method.judge(["Brak Olm was born in Rome."], [[BIRTH]])
    assert answer.evidence.context == ("[Olm] Brak Olm was born in Accra.",)
    assert "Facts:\n[Olm] Brak Olm was born in Accra.\nClaim: Brak Olm was born in Rome." in model.prompts[-2]


def test_documents_need_an_encoder() -> None:
    store = StoreDouble(TRIPLES)
    knowledge = Knowledge(store, EntityLinker(store, None), Generator({}, ScriptedModel()))
    with pytest.raises(InputError, match="documents=always sentences are found by an encoder"):
        ChainOfKnowledge(ScriptedModel(), None, KnowledgeSettings(documents="always"), knowledge=knowledge)


# Edits in turn

LIND = "Where was Orvo Lind born?"


def in_turn(next_thought: str, **table: Sequence[str]) -> tuple[Answer, Generator, Thinking]:
    """Think of the wrong husband, and go on with what is given once he is put right."""

    def say(prompt: str) -> str:
        if prompt.endswith("Verifying question:"):
            return SPOUSE if "husband was" in prompt.rsplit("Sentence:", 1)[1] else LIND
        if prompt.endswith("Answer:"):
            return "Orvo Lind was born in Quillhaven." if LIND in prompt[-60:] else "Her husband was Orvo Lind."
        return next_thought if prompt.endswith("Orvo Lind.") else said(prompt)

    class Continuing(Thinking):
        def _say(self, prompt: str) -> str:
            return super()._say(prompt) if prompt.endswith("Thoughts:") else say(prompt)

    model = Continuing({QUESTION: DOUBTFUL})
    store = StoreDouble(TRIPLES)
    generator = Generator({SPOUSE: TABLE[SPOUSE], LIND: ["<Orvo Lind; birthplace; ?>"], **table}, model)
    settings = KnowledgeSettings(samples=3, ask="thoughts", edit="in-turn")
    knowledge = Knowledge(store, EntityLinker(store, None), generator)
    return ChainOfKnowledge(model, None, settings, knowledge=knowledge).answer([QUESTION], [[]])[0], generator, model


def test_after_a_thought_that_was_put_right_the_next_is_thought_anew_and_sees_it() -> None:
    answer, generator, model = in_turn("Orvo Lind was born in Rome.")
    assert generator.asked == [[SPOUSE], [LIND]]
    assert answer.text == "Quillhaven"
    assert answer.evidence.reasoning.rationale == ("Her husband was Orvo Lind.", "Orvo Lind was born in Quillhaven.")
    second = [prompt for prompt in model.prompts if prompt.endswith("Verifying question:")][1].rpartition("\n\n")[2]
    assert second.startswith(f"Question: {QUESTION} Her husband was Orvo Lind.\nSentence: Orvo Lind was born in Rome.")
    edited = [prompt for prompt in model.prompts if prompt.endswith(f"Question: {LIND}\nAnswer:")]
    assert "Context:\nHer husband was Orvo Lind.\norvo lind birthplace quillhaven." in edited[0]


def test_a_chain_ends_where_nothing_follows_from_what_was_put_right() -> None:
    for said_next in ("So the answer is Rome.", ""):
        answer, generator, _ = in_turn(said_next)
        assert generator.asked == [[SPOUSE]]
        assert answer.evidence.reasoning.rationale == ("Her husband was Orvo Lind.",)


def test_thoughts_that_stay_are_not_thought_again() -> None:
    answer, generator, model = in_turn("must not be asked for", **{SPOUSE: ["?"]})
    assert generator.asked == [[SPOUSE], [LIND]]
    assert answer.evidence.reasoning.rationale == ("Her husband was Brak Olm.", "Orvo Lind was born in Quillhaven.")
    assert not any(prompt.endswith("Brak Olm.") for prompt in model.prompts)


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


def test_a_claim_is_judged_by_a_model_that_only_writes() -> None:
    said = iter(["true", "false", "unknown", "false", "false", "false"])
    model = ScriptedModel(lambda _: next(said), gives_logits=False)
    store = StoreDouble(TRIPLES)
    generator = Generator({CLAIM: ["ask { entity:/Isaura Venn/ relation:/birthplace/ ?x }"]}, model)
    knowledge = Knowledge(store, EntityLinker(store, None), generator)
    method = ChainOfKnowledge(model, None, KnowledgeSettings(samples=3), knowledge=knowledge)
    [answer] = method.judge([CLAIM], [[]])
    # An ASK without a triple is knowledge as well.
    assert answer.evidence.context == ("The knowledge base does not say, for any x, that isaura venn birthplace x.",)
    assert answer.text == "REFUTES"
    assert answer.notes == (
        "SUPPORTS 33%, REFUTES 33%, NOT ENOUGH INFO 33% of 3 written verdicts",
        "33% of samples agreed",
        "asked the knowledge base 1 times: 1 answered",
    )


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
        RunRow("cok", "1", CERTAIN, ("bees",), result=answer_result(certain, {})),
        RunRow("cok", "2", QUESTION, ("Quillhaven",), result=answer_result(doubtful, {})),
        RunRow("cok", "3", QUESTION, ("Quillhaven",), result=answer_result(nothing, {})),
        RunRow("cok", "4", QUESTION, ("Quillhaven",), error="lost"),
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
