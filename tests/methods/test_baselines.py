"""Baselines that retrieve, think, vote, and verify what they thought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytrace.errors import InputError
from pytrace.methods.baselines import Rag, RetrievalRag, RetrievalSettings
from pytrace.methods.cot.ircot import Ircot, IrcotSettings
from pytrace.methods.cot.rationales import INSTRUCTION, WITH_CONTEXT
from pytrace.methods.cot.thinking import ChainOfThought, SelfConsistency, ThoughtSettings
from pytrace.methods.cot.verify_and_edit import VerifyAndEdit
from pytrace.methods.ranking import rank_by
from pytrace.models.language_model import Completion, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Answer, Document, Usage

FERRY = Document("ferry", "Pellisk Ferry", ("The ferry leaves at noon.", "It carries mail."))
FOUNDER = Document("venn", "Isaura Venn", ("Isaura Venn was born in Quillhaven.", "She kept bees."))
BAKERY = Document("bakery", "Bakery", ("Bread is baked at dawn.",))
DOCUMENTS = [FERRY, BAKERY, FOUNDER]
QUESTION = "Where was Isaura Venn born?"


class Recorder(ScriptedModel):
    """Keeps the options of every call."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[dict[str, Any]] = []

    def generate(self, prompts: Sequence[Prompt | str], **options: Any) -> list[list[Completion]]:
        self.calls.append({"prompts": list(prompts), **options})
        return super().generate(prompts, **options)


def backwards(questions: Sequence[str], documents: Sequence[Sequence[Document]], count: int) -> list[list[Document]]:
    assert len(questions) == len(documents)
    return [list(own[::-1][:count]) for own in documents]


def settings(**chosen: object) -> ThoughtSettings:
    return msgspec.convert(chosen, ThoughtSettings)


# Retrieval


def test_the_reader_sees_the_first_documents_of_the_ranking() -> None:
    model = ScriptedModel(["x"])
    method = RetrievalRag(model, None, RetrievalSettings(top=2), retriever="bm25", rank=backwards)
    first, second = method.answer([QUESTION, QUESTION], [DOCUMENTS, [FERRY]])
    assert first.evidence.document_ids == ("venn", "bakery")
    assert first.evidence.context == (f"[Isaura Venn] {FOUNDER.text}", f"[Bakery] {BAKERY.text}")
    assert second.evidence.document_ids == ("ferry",)
    assert (first.method, first.evidence.kind, set(first.usage)) == ("bm25", "documents", {"retrieve", "read"})
    assert first.usage["retrieve"] == Usage()
    assert "\n".join(first.evidence.context) in model.prompts[0]
    assert method.answer([], []) == []
    (none,) = method.answer([QUESTION], [[]])
    assert none.notes == ("no evidence was found; the answer is the model's own",)


@pytest.mark.parametrize("retriever", ["dense", "bm25", "rrf"])
def test_every_retriever_puts_the_document_that_answers_first(retriever: Any) -> None:
    method = RetrievalRag(
        ScriptedModel(["x"]), HashEncoder(dimension=4096), RetrievalSettings(top=1), retriever=retriever, name="mine"
    )
    answers = method.answer([QUESTION, "When leaves the ferry?"], [DOCUMENTS, DOCUMENTS])
    assert [answer.evidence.document_ids for answer in answers] == [("venn",), ("ferry",)]
    assert answers[0].method == "mine"


def test_a_retriever_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="there is no retriever 'tfidf'; choose one of given, dense, bm25, rrf"):
        rank_by("tfidf", HashEncoder())  # type: ignore[arg-type]
    for retriever in ("dense", "rrf"):
        with pytest.raises(InputError, match="needs an encoder, but there is none; give one or use bm25"):
            RetrievalRag(ScriptedModel(), None, retriever=retriever)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs an encoder"):
        ChainOfThought(ScriptedModel(), None, settings(context="documents"))
    RetrievalRag(ScriptedModel(), None, retriever="bm25")


def test_the_defaults_are_those_of_the_papers() -> None:
    assert RetrievalSettings().top == 5
    chosen = ThoughtSettings()
    assert (chosen.samples, chosen.temperature, chosen.seed, chosen.context) == (5, 0.7, 0, "none")
    for wrong in ({"samples": 0}, {"temperature": -0.1}, {"context": "all"}, {"retriever": "x"}, {"n": 5}):
        with pytest.raises(msgspec.ValidationError):
            settings(**wrong)


# One thought


def test_one_thought_is_greedy_and_becomes_the_rationale() -> None:
    model = Recorder(["Isaura Venn lived there. So the answer is Quillhaven."])
    (answer,) = ChainOfThought(model, None, settings(samples=5)).answer([QUESTION], [DOCUMENTS])
    assert (answer.text, answer.method) == ("Quillhaven", "cot")
    assert answer.evidence.reasoning.rationale == ("Isaura Venn lived there.",)
    assert (answer.evidence.kind, answer.evidence.context, answer.context_tokens) == ("none", (), 0)
    assert answer.notes == ()
    (call,) = model.calls
    assert (call["n"], call["temperature"]) == (1, 0.0)
    assert model.prompts[0].startswith(f"{INSTRUCTION}\n\n")
    assert "Quillhaven" not in model.prompts[0]
    assert set(answer.usage) == {"think"}


@pytest.mark.parametrize("make", [ChainOfThought, SelfConsistency, VerifyAndEdit])
def test_thoughts_see_the_first_documents_where_that_is_asked_for(make: Callable[..., Any]) -> None:
    model = ScriptedModel(["So the answer is Quillhaven."])
    method = make(model, HashEncoder(), settings(context="documents", top=1), rank=backwards, name="mine")
    (answer,) = method.answer([QUESTION], [DOCUMENTS])
    assert (answer.evidence.kind, answer.evidence.document_ids) == ("documents", ("venn",))
    assert answer.context_tokens == 11
    assert model.prompts[0].startswith(WITH_CONTEXT)
    assert model.prompts[0].endswith(f"\n\nContext:\n[Isaura Venn] {FOUNDER.text}\nQuestion: {QUESTION}\nThoughts:")
    assert (answer.method, set(answer.usage)) == ("mine", {"retrieve", "think"})
    (empty,) = method.answer([QUESTION], [[]])
    assert empty.notes[0] == "no evidence was found; the answer is the model's own"


def test_the_settings_retriever_ranks_what_thoughts_see() -> None:
    method = ChainOfThought(
        ScriptedModel(["x"]), HashEncoder(dimension=4096), settings(context="documents", top=1, retriever="dense")
    )
    assert method.answer([QUESTION], [DOCUMENTS])[0].evidence.document_ids == ("venn",)


def test_a_context_that_does_not_fit_is_noted() -> None:
    long = [Document(str(number), f"T{number}", ("word " * 59 + "end.",)) for number in range(5)]
    method = ChainOfThought(
        ScriptedModel(["x"], context_tokens=420), None, settings(context="documents", demonstrations=0), rank=backwards
    )
    (answer,) = method.answer(["What?"], [long])
    assert answer.notes == ("3 of 5 context entries did not fit the model's context whole",)


# A vote


def said(*answers: str) -> list[str]:
    return [f"Thought number {number}. So the answer is {answer}." for number, answer in enumerate(answers)]


def test_the_answer_of_most_samples_wins_and_the_vote_is_told() -> None:
    model = Recorder(said("Rome", "Quillhaven", "the Quillhaven", "Oslo", "Quillhaven"))
    (answer,) = SelfConsistency(model, None, settings(seed=3)).answer([QUESTION], [DOCUMENTS])
    assert (answer.text, answer.method) == ("Quillhaven", "cot-sc")
    assert answer.evidence.reasoning.rationale == ("Thought number 1.",)
    assert answer.notes == ("3 of 5 samples agreed",)
    (call,) = model.calls
    assert (call["n"], call["temperature"], call["seed"]) == (5, 0.7, 3)
    assert len(call["prompts"]) == 1


def test_a_single_sample_is_greedy() -> None:
    model = Recorder(["So the answer is x."])
    (answer,) = SelfConsistency(model, None, settings(samples=1)).answer([QUESTION], [[]])
    assert model.calls[0]["temperature"] == 0.0
    assert answer.notes == ("1 of 1 samples agreed",)


def test_samples_without_an_answer_agree_on_nothing() -> None:
    (answer,) = SelfConsistency(ScriptedModel([""]), None, settings()).answer([QUESTION], [[]])
    assert (answer.text, answer.notes) == ("", ("0 of 5 samples agreed",))


# Verification


def verifying(prompt: str) -> str:
    """Ask about, verify and conclude what the scripted thoughts said."""
    end = prompt.rpartition("\n\n")[2]
    if end.endswith("Verifying question:"):
        return "Where was Isaura Venn born?" if "Rome" in end else "When leaves the ferry?"
    if end.endswith("So the answer is"):
        return "Quillhaven." if "Quillhaven" in end else "nowhere."
    assert end.startswith("Context:\n")
    return "Isaura Venn was born in Quillhaven." if "Quillhaven" in end else ""


class Thinking(Recorder):
    """Thinks what it is told to about each question, and then verifies."""

    def __init__(self, thoughts: dict[str, list[str]]) -> None:
        super().__init__(self._say)
        self._thoughts = {question: list(own) for question, own in thoughts.items()}

    def _say(self, prompt: str) -> str:
        question = prompt.rpartition("Question: ")[2].partition("\n")[0]
        return self._thoughts[question].pop(0) if prompt.endswith("Thoughts:") else verifying(prompt)


DOUBTFUL = [
    "She was born in Rome. The ferry leaves at dawn. So the answer is Rome.",
    *said("Rome", "Oslo", "Bern", "Lima"),
]
SURE = said("noon", "noon", "noon", "dawn", "dusk")
OTHER = "When leaves the ferry?"


def edited(**chosen: object) -> tuple[Answer, Thinking]:
    model = Thinking({QUESTION: DOUBTFUL})
    method = VerifyAndEdit(model, HashEncoder(dimension=4096), settings(**chosen))
    (answer,) = method.answer([QUESTION], [DOCUMENTS])
    return answer, model


def test_a_doubtful_rationale_is_verified_edited_and_concluded_anew() -> None:
    answer, model = edited(sentences=1)
    assert answer.text == "Quillhaven"
    # What nothing was found about stays as it was.
    assert answer.evidence.reasoning.rationale == ("Isaura Venn was born in Quillhaven.", "The ferry leaves at dawn.")
    assert answer.notes == ("2 of 5 samples agreed", "1 of 2 sentences of the rationale were edited")
    assert answer.evidence.kind == "sentences"
    assert answer.evidence.context == (
        "[Isaura Venn] Isaura Venn was born in Quillhaven.",
        "[Pellisk Ferry] The ferry leaves at noon.",
    )
    assert answer.evidence.document_ids == ("venn", "ferry")
    assert answer.context_tokens == sum(len(one.split()) for one in answer.evidence.context)
    think, ask, verify, conclude = model.calls
    assert (think["n"], len(think["prompts"])) == (5, 1)
    assert [prompt.input.splitlines()[1] for prompt in ask["prompts"]] == [
        "Sentence: She was born in Rome.",
        "Sentence: The ferry leaves at dawn.",
    ]
    assert verify["prompts"][0].input == (
        f"Context:\n{answer.evidence.context[0]}\nQuestion: Where was Isaura Venn born?\nAnswer:"
    )
    assert conclude["prompts"][0].answer_start == (
        "Isaura Venn was born in Quillhaven. The ferry leaves at dawn. So the answer is"
    )
    assert set(answer.usage) == {"think", "ask", "find", "verify", "conclude"}


def test_only_doubtful_questions_are_verified_all_in_one_call_a_step() -> None:
    third = "Is Rome old?"
    model = Thinking({QUESTION: DOUBTFUL, OTHER: SURE, third: ["Rome is old. So the answer is yes.", *said(*"abcd")]})
    method = VerifyAndEdit(model, HashEncoder(dimension=4096), settings(sentences=1))
    first, sure, last = method.answer([QUESTION, OTHER, third], [DOCUMENTS, DOCUMENTS, [FOUNDER]])
    assert (first.text, sure.text, last.text) == ("Quillhaven", "noon", "Quillhaven")
    assert [len(call["prompts"]) for call in model.calls] == [3, 3, 3, 2]
    assert sure.notes == ("3 of 5 samples agreed",)
    assert (sure.evidence.kind, sure.evidence.context, sure.evidence.reasoning.rationale) == (
        "none",
        (),
        ("Thought number 0.",),
    )
    assert set(sure.usage) == set(sure.seconds) == {"think"}
    assert set(first.usage) == set(last.usage) == {"think", "ask", "find", "verify", "conclude"}
    assert last.evidence.document_ids == ("venn",)
    spent = sum((one for answer in (first, sure, last) for one in answer.usage.values()), Usage())
    assert spent.prompt_tokens == pytest.approx(model.usage.prompt_tokens, abs=8)
    assert spent.calls == pytest.approx(model.usage.calls, abs=4)


@pytest.mark.parametrize(
    ("answers", "doubted"),
    [
        (["a", "a", "a", "b", "c"], False),
        (["a", "a", "b", "c", "d"], True),
        (["a", "a", "b", "c"], False),
        (["a", "b", "c", "d"], True),
        (["a"], False),
        (["", "", ""], True),
    ],
)
def test_a_question_is_uncertain_below_half_of_its_samples_rounded_up(answers: list[str], *, doubted: bool) -> None:
    model = Recorder([*said(*answers), "Why?", "Because.", "z"])
    method = VerifyAndEdit(model, HashEncoder(), settings(samples=len(answers)))
    (answer,) = method.answer([QUESTION], [DOCUMENTS])
    assert (len(model.calls) > 1) == doubted
    assert len(answer.notes) == 1 + doubted


def test_documents_that_thoughts_saw_stay_before_what_verified_them() -> None:
    model = Thinking({QUESTION: DOUBTFUL})
    method = VerifyAndEdit(
        model,
        HashEncoder(dimension=4096),
        settings(context="documents", top=1, sentences=1),
        rank=lambda *_: [[BAKERY]],
    )
    (answer,) = method.answer([QUESTION], [DOCUMENTS])
    assert answer.evidence.kind == "documents"
    assert answer.evidence.document_ids == ("bakery", "venn", "ferry")
    assert answer.evidence.context[0] == f"[Bakery] {BAKERY.text}"
    conclude = model.calls[-1]["prompts"][0]
    assert conclude.input.startswith(f"Context:\n[Bakery] {BAKERY.text}\nQuestion:")
    assert answer.context_tokens == sum(len(one.split()) for one in answer.evidence.context)


def test_what_cannot_be_verified_keeps_the_majority_s_answer_and_says_so() -> None:
    for documents in ([], [Document("e", "E", (" ",))]):
        model = Recorder(said("Rome", "Oslo", "Bern", "Lima", "Bonn"))
        (answer,) = VerifyAndEdit(model, HashEncoder(), settings()).answer([QUESTION], [documents])
        assert answer.text == "Rome"
        assert answer.notes == ("1 of 5 samples agreed", "there is no document to verify the rationale from")
        assert len(model.calls) == 1
    model = Recorder([f"So the answer is {one}." for one in ("Rome", "Oslo", "Bern", "Lima", "Bonn")])
    (answer,) = VerifyAndEdit(model, HashEncoder(), settings()).answer([QUESTION], [DOCUMENTS])
    assert answer.notes == ("1 of 5 samples agreed", "the rationale has no sentence to verify")
    assert len(model.calls) == 1


def test_a_model_that_concludes_nothing_leaves_the_majority_s_answer() -> None:
    model = Recorder([*said("Rome", "Oslo", "Bern", "Lima", "Bonn"), "Why?", "Because.", " "])
    (answer,) = VerifyAndEdit(model, HashEncoder(), settings()).answer([QUESTION], [DOCUMENTS])
    assert answer.text == "Rome"
    assert answer.evidence.reasoning.rationale == ("Because.",)


# All of them


def every(model: ScriptedModel) -> list[Any]:
    encoder = HashEncoder()
    return [
        Rag(model, name="rag"),
        RetrievalRag(model, encoder, rank=backwards),
        ChainOfThought(model, encoder),
        SelfConsistency(model, encoder),
        VerifyAndEdit(model, encoder),
    ]


def test_empty_questions_are_refused_before_any_work_and_nothing_is_nothing() -> None:
    model = ScriptedModel(["x"])
    for method in every(model):
        with pytest.raises(InputError, match="question 2 of 2 is empty; ask something"):
            method.answer([QUESTION, "\n"], [DOCUMENTS, DOCUMENTS])
        with pytest.raises(ValueError, match="there are 1 questions but 0 lists of documents"):
            method.answer([QUESTION], [])
        assert method.answer([], []) == []
    assert model.usage == Usage()


@pytest.mark.parametrize("written", ["", "\ud800", "So the answer is", "\x00\n\n", "So the answer is so the answer is"])
def test_whatever_a_model_writes_every_method_answers(written: str) -> None:
    broken = [Document("b", "\udfff", ("\ud800 half.", "", "\x00"))]
    for method in every(ScriptedModel([written])):
        (answer,) = method.answer(["\udc00 Where?"], [broken])
        assert isinstance(answer.text, str)


@pytest.mark.models
def test_the_tiny_models_vote_and_verify_the_same_way_twice(tiny_models: dict[str, Path]) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    encoder = OnnxEncoder(tiny_models["encoder"])
    with LlamaCppModel(
        tiny_models["language-model"], name="tiny", context=2048, style="plain", deterministic=True
    ) as tiny:
        method = VerifyAndEdit(tiny, encoder, settings(samples=3, max_tokens=24, sentences=1, seed=7, demonstrations=1))
        first, second = (method.answer([QUESTION], [[FERRY, FOUNDER]])[0] for _ in range(2))
    assert (first.text, first.evidence, first.notes) == (second.text, second.evidence, second.notes)
    assert first.notes[0].endswith("of 3 samples agreed")
    # The samples share the evaluation of their prompt.
    assert first.usage["think"].evaluated_tokens < first.usage["think"].prompt_tokens


# Thoughts that retrieve


def steps(*said: str, **chosen: object) -> tuple[Answer, Recorder]:
    model = Recorder([*said, "the end"])
    method = Ircot(model, HashEncoder(dimension=4096), msgspec.convert({"top": 1, **chosen}, IrcotSettings))
    (answer,) = method.answer(["Where was the founder of the ferry born?"], [DOCUMENTS])
    return answer, model


def test_each_sentence_finds_documents_for_the_next() -> None:
    answer, model = steps("The founder was Isaura Venn. She", "So the answer is Quillhaven.")
    assert answer.evidence.document_ids == ("ferry", "venn")
    assert answer.evidence.reasoning.rationale == ("The founder was Isaura Venn.",)
    assert answer.text == "the end"
    first, second, read = model.prompts
    assert second.endswith("Thoughts: The founder was Isaura Venn.")
    held = [[one.text in prompt for one in (FERRY, FOUNDER, BAKERY)] for prompt in (first, second, read)]
    assert held == [[True, False, False], [True, True, False], [True, True, False]]
    assert set(answer.usage) == {"retrieve", "think", "read"}
    assert answer.usage["think"].calls == 2


@pytest.mark.parametrize("said", ["", "So the answer is Quillhaven.", "so the answer is Rome"])
def test_thinking_ends_with_an_answer_or_with_nothing_to_say(said: str) -> None:
    answer, model = steps(said)
    assert (answer.text, len(model.prompts)) == ("the end", 2)
    assert (answer.evidence.document_ids, answer.evidence.reasoning.rationale) == (("ferry",), ())


def test_a_thought_that_comes_again_ends_the_search() -> None:
    answer, model = steps("It sails.", "It sails.", most=3)
    assert answer.evidence.reasoning.rationale == ("It sails.",)
    assert len(answer.evidence.document_ids) == 2
    assert len(model.prompts) == 3


def test_steps_and_documents_are_limited() -> None:
    sentences = [f"Thought {number} is of bread and bees." for number in range(9)]
    answer, model = steps(*sentences, steps=1)
    assert (len(answer.evidence.document_ids), len(model.prompts)) == (2, 2)
    answer, model = steps(*sentences, most=1)
    assert (answer.evidence.document_ids, len(model.prompts)) == (("ferry",), 1)
    # With all documents at hand there is nothing left to think for.
    answer, model = steps(*sentences)
    assert (len(answer.evidence.document_ids), len(model.prompts)) == (3, 3)


def test_interleaved_questions_think_together_and_alone_alike() -> None:
    def said(prompt: str) -> str:
        return "The founder was Isaura Venn." if prompt.endswith("Thoughts:") else "So the answer is here."

    questions = ["Where was the founder of the ferry born?", "What is baked at dawn?"]
    method = Ircot(Recorder(said), HashEncoder(dimension=4096), IrcotSettings(top=1))
    together = method.answer(questions, [DOCUMENTS, DOCUMENTS[:2]])
    alone = [
        method.answer([question], [own])[0] for question, own in zip(questions, [DOCUMENTS, DOCUMENTS[:2]], strict=True)
    ]
    assert [one.evidence for one in together] == [one.evidence for one in alone]
    assert method.answer([], []) == []
    (none,) = method.answer(questions[:1], [[]])
    assert none.evidence.document_ids == ()
