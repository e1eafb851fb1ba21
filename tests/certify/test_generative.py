"""A model is asked for numbered steps in three ways, its samples vote, and facts of the graph can stand beside a question."""

import re

import msgspec
import pytest

from pytrace.certify.answer_certificates import certify_answer
from pytrace.certify.certifier import Certifier
from pytrace.certify.generative import FactFinder, GenerationSettings, Reasoner, choose_samples
from pytrace.check_records import GoldQuestion
from pytrace.errors import DataError, InputError
from pytrace.kg import KnowledgeBase
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts.reasoning import StepDemonstration
from pytrace.records import Answer, Chain, ChainSearch, Document, Evidence, Origin, Reasoning, TextUnit, Triple

PATH = (Triple("Corfu", "part of", "Greece"), Triple("Greece", "speaks", "Greek"))
FACTS = [*PATH, Triple("Rome", "part of", "Italy"), Triple("Italy", "speaks", "Italian")]
RIGHT = "1. Corfu is part of Greece.\n2. Greece speaks Greek.\nSo the answer is (Greek)."
UNFOUNDED = "1. Corfu is large.\n2. It is green.\nSo the answer is (Greek)."
WRONG = "1. Corfu is part of Italy.\n2. Italy speaks Italian.\nSo the answer is (Italian)."
QUESTIONS = [GoldQuestion(f"q{n}", "What is spoken on Corfu?", ("Greek",), (PATH,), ("Corfu",)) for n in range(2)]
ENCODER = HashEncoder()
BASE = KnowledgeBase.in_memory(FACTS, ENCODER)


def certified(texts, **settings):
    reasoner = Reasoner(ScriptedModel(texts), GenerationSettings(samples=len(texts), **settings))
    return list(Certifier(BASE, ENCODER).certify(reasoner.respond(QUESTIONS[:1], "cot-sc")))


def test_the_prompt_shows_numbered_steps_and_never_the_gold():
    model = ScriptedModel(RIGHT)
    responses = Reasoner(model, GenerationSettings(demonstrations=2)).respond(QUESTIONS, "cot")
    assert [(one.id, one.text, one.answers, one.paths, one.topics) for one in responses] == [
        (one.id, RIGHT, one.answers, one.paths, one.topics) for one in QUESTIONS
    ]
    prompt = model.prompts[0]
    assert prompt.count("So the answer is (") == 2 + 1  # two demonstrations and the instruction
    assert "What is spoken on Corfu?" in prompt
    assert "Greek" not in prompt
    assert "HINT" not in prompt


def test_a_plan_comes_before_the_steps_where_it_is_asked_for():
    model = ScriptedModel(RIGHT)
    Reasoner(model).respond(QUESTIONS[:1], "cot-plan")
    assert "HINT: country -> capital\n1. " in model.prompts[0]


def test_samples_share_one_call_and_are_numbered():
    asked = []

    class Counting(ScriptedModel):
        def generate(self, prompts, **options):
            asked.append((len(prompts), options["n"], options["temperature"], options["top_p"]))
            return super().generate(prompts, **options)

    responses = Reasoner(Counting([RIGHT, WRONG, UNFOUNDED, RIGHT])).respond(QUESTIONS, "cot-sc")
    assert [(one.id, one.sample) for one in responses] == [(f"q{n}", sample) for n in range(2) for sample in range(4)]
    assert asked == [(2, 4, 0.7, 0.9)]


def test_each_question_is_told_as_it_is_done():
    told = []
    Reasoner(ScriptedModel(RIGHT)).respond(QUESTIONS, "cot-sc", done=told.append)
    assert sorted(own[0].id for own in told) == ["q0", "q1"]
    assert all(len(own) == 4 for own in told)


def test_samples_at_temperature_0_are_refused_and_nothing_is_asked_of_nobody():
    with pytest.raises(InputError, match="4 samples at temperature 0"):
        Reasoner(ScriptedModel(), GenerationSettings(temperature=0)).respond(QUESTIONS, "cot-sc")
    assert Reasoner(ScriptedModel()).respond([], "cot") == []


def test_the_majority_is_what_a_user_would_be_told_and_the_best_what_the_paper_reports():
    samples = certified([WRONG, UNFOUNDED, RIGHT, WRONG.replace("Italian).", "Turkish).")])
    assert [one.sample for one in choose_samples(samples, how="majority")] == [1]
    assert [one.sample for one in choose_samples(samples, how="best")] == [2]
    assert len(list(choose_samples(samples, how="all"))) == 4
    assert [one.sample for one in choose_samples(certified(["no", "none"]))] == [0]
    assert list(choose_samples([])) == []


def test_responses_of_one_id_that_are_no_samples_all_stay():
    first, second = certified([RIGHT])[0], certified([WRONG])[0]
    assert (first.id, first.sample, second.id, second.sample) == ("q0", 0, "q0", 0)
    assert list(choose_samples([first, second])) == [first, second]


def test_facts_stand_before_the_question_and_before_the_demonstrations():
    model = ScriptedModel(RIGHT)
    Reasoner(model, GenerationSettings(facts=2)).respond(QUESTIONS[:1], "cot", facts=[["Corfu part of Greece."]])
    prompt = model.prompts[0]
    assert "Facts:\nCorfu part of Greece.\nQuestion: What is spoken on Corfu?" in prompt
    assert prompt.count("Facts:\n") == 6
    assert "by some of the facts given before it" in prompt


def test_facts_are_those_around_the_questions_entities_nearest_first():
    finder = FactFinder(BASE, ENCODER)
    near, none, unknown = finder.find(["What does one speak on Corfu? speaks", "", "What is spoken in Rio?"], 3)
    assert near == ["Greece speaks Greek.", "Corfu part of Greece."]
    assert len(none) == len(unknown) == 3
    assert finder.find(["x"], 0) == [[]]
    assert finder.find([], 3) == []


def test_the_prompt_hash_changes_with_what_the_model_is_shown():
    hashes = {
        Reasoner(ScriptedModel(), settings).prompt_hash(prompting)
        for settings in (GenerationSettings(), GenerationSettings(demonstrations=1), GenerationSettings(facts=3))
        for prompting in ("cot", "cot-plan")
    }
    assert len(hashes) == 6


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"question": "q", "plan": ["r"], "steps": [], "answer": "a"}', "0 steps and 1 relations"),
        ('{"question": "q", "plan": ["r"], "steps": ["It is b."], "answer": "a"}', "does not name the answer 'a'"),
        ('{"question": "", "plan": ["r"], "steps": ["a"], "answer": "a"}', "question is empty"),
        ('{"question": "q", "plan": ["r\\n"], "steps": ["a"], "answer": "a"}', "relation 1"),
    ],
)
def test_a_demonstration_that_contradicts_itself_is_refused(tmp_path, row, message):
    path = tmp_path / "steps.jsonl"
    path.write_text(row)
    with pytest.raises(DataError, match=re.escape(message)) as error:
        StepDemonstration.load(path=path)
    assert f"{path}:1" in str(error.value)


def test_our_demonstrations_are_what_the_parser_reads():
    for one in StepDemonstration.load():
        model = ScriptedModel(RIGHT)
        Reasoner(model, labelled=[one]).respond(QUESTIONS[:1], "cot")
        assert f"1. {one.steps[0]}\n2. {one.steps[1]}\nSo the answer is ({one.answer})." in model.prompts[0]


def answer(*chains, text="Greek", rationale=()):
    made = tuple(Chain(tuple(chain), (-0.1,) * len(chain), -0.1 * len(chain), False) for chain in chains)
    return Answer(
        "What is spoken on Corfu?",
        text,
        "trace",
        Evidence("triples", (), (), derivation=ChainSearch(made) if made else Reasoning(rationale)),
    )


def test_chains_are_certified_one_by_one():
    jump = (PATH[0], Triple("Italy", "speaks", "Italian"))
    found = certify_answer(BASE, ENCODER, answer(PATH, jump, PATH[:1], ()))
    assert [(one.id, one.kind, one.error) for one in found] == [
        ("chain 1", "faithful", None),
        ("chain 2", "unfaithful", "incoherent"),
        ("chain 3", "unfaithful", "answer"),
        ("chain 4", "unstructured", None),
    ]


def test_sentences_of_a_chain_are_steps_with_their_title_and_thoughts_as_they_are():
    chain = (TextUnit("Corfu", "It is part of Greece."), TextUnit("Greece", "The country speaks Greek."))
    [found] = certify_answer(BASE, ENCODER, answer(chain))
    assert (found.kind, found.steps[0].text) == ("faithful", "Corfu: It is part of Greece.")
    assert [step.source for step in found.steps] == ["", ""]
    cited = (TextUnit("Corfu", "It is part of Greece.", "c", 1), chain[1])
    corfu = Document(
        "c", "Corfu", ("An island.", "It is part of Greece."), "a.pdf", Origin("c", "Corfu", (), 3, 0, 32, (0, 11))
    )
    [found] = certify_answer(BASE, ENCODER, answer(cited), documents=[corfu])
    assert [step.source for step in found.steps] == ["a.pdf, p. 3, characters 11-32", ""]
    thoughts = answer(rationale=("Corfu is part of Greece.", "Greece speaks Greek."))
    [found] = certify_answer(BASE, ENCODER, thoughts, answers=["Greek"])
    assert (found.id, found.kind, found.answer_correct) == ("thoughts", "faithful", True)


def test_an_answer_without_chains_or_thoughts_cannot_be_certified():
    with pytest.raises(InputError, match=r"nothing to certify; use trace-doc, cot, cot-sc or verify-and-edit"):
        certify_answer(BASE, ENCODER, answer())
    with pytest.raises(InputError, match=r"nothing to certify; use trace, trace-doc, cot-sc or verify-and-edit"):
        certify_answer(BASE, ENCODER, msgspec.structs.replace(answer(), method="cot:demonstrations=2"))


@pytest.mark.models
def test_a_grammar_holds_the_tiny_model_to_steps(tiny_models):
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    with LlamaCppModel(tiny_models["language-model"], threads=1, context=2048, style="plain") as model:
        reasoner = Reasoner(model, GenerationSettings(structured=True, demonstrations=1, max_tokens=120))
        for prompting in ("cot", "cot-plan"):
            [response] = reasoner.respond(QUESTIONS[:1], prompting)
            start = r"\s?HINT: .+\n1\. " if prompting == "cot-plan" else r"\s?1\. "
            assert re.match(start, response.text)
