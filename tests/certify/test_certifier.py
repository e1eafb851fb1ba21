"""Certificates say which steps are facts of a graph, whether they hang together, and where they lead."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.certify.certification_scores import score_certificates
from pytrace.certify.certifier import Certifier, path_end, path_start
from pytrace.certify.grounding import Grounder, GroundingSettings
from pytrace.check_records import Response
from pytrace.kernels import normalize
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.records import Triple

PATH = (Triple("corfu", "part of", "greece"), Triple("greece", "official language", "greek"))
FACTS = [
    *PATH,
    Triple("greece", "capital", "athens"),
    Triple("frederick_v_of_denmark", "gender", "male"),
    Triple("frederick_vii_of_denmark", "nationality", "denmark"),
    Triple("louise", "gender", "female"),
    Triple("george", "parent", "george_jr"),
    Triple("john_iii", "child", "john_iii"),
    Triple("otto", "religion", "jew"),
    Triple("italy", "official language", "italian"),
    Triple("rome", "part of", "italy"),
]
GOLD = "1. Corfu is part of Greece.\n2. The official language of Greece is Greek.\nSo the answer is (Greek)."


class WordEncoder:
    """Vectors of the words that a text has, so that texts with the same words are alike."""

    name = fingerprint = "words"
    dimension = 512

    def encode(self, texts, *, kind="passage"):
        del kind
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in normal_form(text).split():
                row[sum((place + 1) * ord(letter) ** 2 for place, letter in enumerate(word)) % self.dimension] += 1
        return normalize(rows)


ENCODER = WordEncoder()
BASE = KnowledgeBase.in_memory(FACTS, ENCODER)


def certify(
    text,
    answers=("Greek",),
    *,
    paths=(PATH,),
    topics=("corfu",),
    question="What do they speak on Corfu?",
    rule="strict",
):
    response = Response("1", question, text, answers, paths, topics)
    return next(Certifier(BASE, ENCODER, GroundingSettings(rule=rule)).certify([response]))


def steps(*texts, answer="Greek"):
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)) + f"\nSo the answer is ({answer})."


def test_a_gold_path_is_faithful():
    found = certify(GOLD)
    assert (found.kind, found.error, found.answer_correct, found.reached) == ("faithful", None, True, "greek")
    assert [step.status for step in found.steps] == ["supported", "supported"]
    assert [step.match.triple.relation for step in found.steps] == ["part of", "official language"]
    assert (found.edit_distance, found.edit_rate, found.gold_path) == (0, 0.0, PATH)


def test_a_wrong_entity_is_a_factual_error_and_named():
    found = certify(steps("Corfu is part of Italy.", "The official language of Italy is Italian.", answer="Italian"))
    assert (found.kind, found.error) == ("unfaithful", "factual")
    assert [step.status for step in found.steps] == ["unsupported", "supported"]
    assert "step 1 of 2" in found.reason
    assert "the graph has no such fact of corfu, italy" in found.steps[0].reason
    assert found.answer_correct is False


def test_an_entity_that_the_graph_does_not_know_leaves_a_step_undecided():
    found = certify(steps("Corfu is part of Atlantis.", "The official language of Atlantis is Greek."))
    assert (found.kind, found.error, found.steps[0].status) == ("undecided", None, "undecided")
    assert "names word for word only corfu" in found.steps[0].reason
    assert "does not name greece" in found.steps[0].reason


def test_a_relation_that_the_graph_does_not_know_leaves_a_step_undecided():
    # Both entities are known, and of neither the graph says whom it admires.
    found = certify(steps("Corfu is part of Greece.", "Greece greatly admires Rome.", answer="Rome"))
    assert (found.kind, [step.status for step in found.steps]) == ("undecided", ["supported", "undecided"])
    assert "step 2 of 2: the graph cannot tell" in found.reason
    assert "it knows greece, rome, but nothing of what the step says of them" in found.steps[1].reason
    other = certify(steps("Corfu is part of Greece.", "The capital of Italy is Athens.", answer="Athens"))
    assert (other.kind, other.error, other.steps[1].status) == ("unfaithful", "factual", "unsupported")


def test_what_is_wrong_beside_an_undecided_step_is_still_wrong():
    unknown = "Corfu is part of Atlantis."
    assert certify(steps(unknown, "The official language of Italy is Greek.")).error == "factual"
    jump = certify(steps(unknown, "Corfu is part of Greece.", "Rome is part of Italy."))
    assert (jump.error, jump.steps[0].status) == ("incoherent", "undecided")
    assert "no step is against the graph, but step 3" in jump.reason


def test_the_papers_rule_knows_no_undecided_response_and_numbered_steps_alone():
    text = steps("Corfu is part of Atlantis.", "The official language of Atlantis is Greek.")
    found = certify(text, rule="paper")
    assert (found.kind, found.error) == ("unfaithful", "factual")
    assert certify("- Corfu is part of Greece.\n\nAnswer: Greece", rule="paper").kind == "unstructured"


def test_a_comparison_may_start_from_both_entities():
    text = steps(
        "Corfu is part of Greece.", "The official language of Greece is Greek.", "Rome is part of Italy.",
        "The official language of Italy is Italian.", answer="no",
    )  # fmt: skip
    question = "Do they speak the same language on Corfu and in Rome?"
    both = {"paths": (), "topics": ("corfu", "rome"), "question": question}
    found = certify(text, ("no",), **both)
    assert (found.kind, [step.follows for step in found.steps]) == ("faithful", [True] * 4)
    assert "in chains from corfu and rome; that its answer follows from their comparison is not checked" in found.reason
    assert certify(text, ("yes",), **both).error == "answer"
    assert certify(text, (), **both).kind == "undecided"
    assert certify(text.replace("(no)", "(Corfu)"), (), **both).kind == "faithful"
    # The question names both where no topic is given; where it names one, a jump stays a jump.
    assert certify(text, ("no",), paths=(), topics=(), question=question).kind == "faithful"
    assert certify(text, ("no",), question="What do they speak on Corfu?").error == "incoherent"
    assert certify(text, ("no",), **both, rule="paper").error == "incoherent"


def test_the_reason_says_why_a_response_cannot_be_judged():
    assert certify("<think>1. Corfu is part of").reason == "the response ends before its thinking does"
    assert "no conclusion that names an answer" in certify("Corfu is part of Greece.").reason
    assert certify("Answer: Greek").reason == "the response has no steps that lead to an answer"


def test_thinking_is_not_certified():
    thought = "<think>\n1. Corfu is part of Italy.\nSo the answer is (Italian).\n</think>\n"
    assert certify(thought + GOLD).kind == "faithful"


def test_steps_in_the_wrong_order_are_incoherent():
    found = certify(steps("The official language of Greece is Greek.", "Corfu is part of Greece."))
    assert (found.error, [step.follows for step in found.steps]) == ("incoherent", [False, True])
    assert found.answer_correct is True


def test_steps_told_backwards_are_incoherent_where_only_the_question_tells_its_entity():
    found = certify(steps("The official language of Greece is Greek.", "Corfu is part of Greece."), paths=(), topics=())
    assert found.error == "incoherent"
    assert "step 1 does not go on from an entity of the question" in found.reason


def test_steps_that_jump_are_incoherent():
    found = certify(steps("Corfu is part of Greece.", "Rome is part of Italy."))
    assert (found.error, [step.follows for step in found.steps]) == ("incoherent", [True, False])


def test_another_questions_path_leads_to_no_gold_answer():
    other = steps("Rome is part of Italy.", "The official language of Italy is Italian.", answer="Greek")
    found = certify(other)
    assert (found.error, found.answer_correct) == ("answer", True)
    assert "never speak of corfu" in found.reason
    without = certify(other, paths=(), topics=(), question="What?")
    assert (without.error, "italian, which is no gold answer" in without.reason) == ("answer", True)


def test_a_path_from_the_question_to_something_else_is_an_answer_error():
    found = certify(steps("Corfu is part of Greece.", "The capital of Greece is Athens.", answer="Athens"))
    assert (found.error, found.reached, found.answer_correct) == ("answer", "athens", False)
    assert (found.edit_distance, found.edit_rate) == (1, 0.5)
    # Of the paper's two edits, adding and removing, it takes both.
    other = steps("Corfu is part of Greece.", "The capital of Greece is Athens.", answer="Athens")
    assert certify(other, rule="paper").edit_distance == 2
    assert certify(GOLD, rule="paper").edit_distance == 0


def test_without_gold_answers_the_steps_must_lead_to_what_the_response_concludes():
    assert certify(GOLD, (), paths=(), topics=()).kind == "faithful"
    found = certify(GOLD.replace("(Greek)", "(Turkish)"), (), paths=(), topics=())
    assert (found.error, found.answer_correct) == ("answer", None)
    assert "concludes 'Turkish'" in found.reason


def test_a_step_may_state_a_fact_from_its_other_end():
    assert (
        certify(steps("Greece has Corfu as a part of it.", "Greek is the official language of Greece.")).kind
        == "faithful"
    )


def test_abstained_and_unstructured_responses_are_neither_right_nor_wrong():
    for text, kind in (("I cannot say.", "abstained"), ("Greek!", "unstructured"), ("", "unstructured")):
        found = certify(text)
        assert (found.kind, found.error, found.steps, found.answer_correct) == (kind, None, (), None)
        assert found.edit_distance is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Frederick V of Denmark has the nationality Denmark.", "a name that is nearly another's"),
        ("Frederick V of Denmark has the gender female.", "a name within a word"),
        ("George Jr has the parent Rome.", "a name within another's"),
        ("Rome is the child of John III.", "one mention for both ends"),
        ("Otto has the gender jew.", "another relation"),
        ("Otto", "too short to say anything"),
        ("o", "a letter"),
    ],
)
def test_what_the_papers_rule_lets_pass_the_strict_one_does_not(text, why):
    del why
    strict = Grounder(BASE, ENCODER).ground([text])[0]
    assert strict.status != "supported", strict
    assert all(math.isfinite(value) for value in (strict.match.score, strict.match.cosine))


@pytest.mark.parametrize(
    "text",
    [
        "Frederick V of Denmark has the gender male.",
        "Fredrick V of Denmark has the gender male.",
        "Otto has the religion jew.",
        "John III has the child John III.",
        "George has the parent George Jr.",
        "frederick_vii_of_denmark's nationality is Denmark",
    ],
)
def test_what_is_true_is_supported(text):
    assert Grounder(BASE, ENCODER).ground([text])[0].status == "supported"


def test_the_papers_rule_is_equation_2_and_its_threshold():
    settings_ = GroundingSettings(rule="paper")
    for text in ("Otto has the gender jew.", "Corfu is part of Italy.", "xyz"):
        found = Grounder(BASE, ENCODER, settings_).ground([text])[0]
        match = found.match
        assert match.score == pytest.approx((match.cosine + match.head_ratio + match.tail_ratio) / 3)
        assert (found.status == "supported") == (match.score >= 0.7)
        assert match.score >= found.runner_up.score


def test_steps_of_a_batch_do_not_depend_on_each_other():
    texts = ["Corfu is part of Greece.", "Rome is part of Italy.", "Otto has the gender jew.", "", "x" * 1000]
    together = Grounder(BASE, ENCODER).ground([*texts, texts[0]])
    assert together == [Grounder(BASE, ENCODER).ground([text])[0] for text in [*texts, texts[0]]]


def test_an_edit_distance_is_to_the_nearest_gold_path_whatever_the_direction_of_triples():
    gold = ((Triple("rome", "part of", "italy"),), (Triple("greece", "part of", "corfu"), PATH[1]))
    found = certify(steps("Corfu is part of Greece."), paths=gold, answers=())
    assert (found.edit_distance, found.gold_path) == (1, gold[0]) or found.edit_distance == 1
    assert certify(GOLD, paths=gold, answers=()).edit_distance == 0


def test_the_ends_of_a_path_are_those_that_its_neighbours_lack():
    path = (Triple("b", "r", "a"), Triple("c", "s", "b"))
    assert (path_start(path), path_end(path)) == ("a", "c")
    back = (Triple("a", "r", "b"), Triple("b", "s", "a"))
    assert (path_start(back), path_end(back)) == ("a", "a")
    assert (path_start(()), path_end(())) == ("", "")


def test_responses_are_streamed_in_their_order():
    responses = [Response(str(n), "", GOLD if n % 2 else "no", ("Greek",)) for n in range(9_000)]
    found = Certifier(BASE, ENCODER).certify(iter(responses))
    assert [one.id for one in found] == [one.id for one in responses]


def test_a_step_of_a_hundred_thousand_characters_and_other_scripts_are_certified():
    long = certify(steps("corfu " * 20_000, "Greece " + "x" * 100_000))
    assert (long.kind, long.error) == ("undecided", None)
    for text in ("科孚岛位于希腊。", "Η Κέρκυρα είναι στην Ελλάδα.", "كورفو جزء من اليونان", "コルフ島"):
        assert certify(steps(text, text, answer=text)).kind == "undecided"
        assert certify(steps(text, text, answer=text), rule="paper").error == "factual"
    for text in ("\ud800", "🏝️"):  # no letter, and so no step
        assert certify(steps(text, text, answer=text)).kind == "unstructured"
    base = KnowledgeBase.in_memory([Triple("科孚岛", "位于", "希腊")], ENCODER)
    [found] = Certifier(base, ENCODER).certify([Response("1", "", steps("科孚岛位于希腊。", answer="希腊"), ("希腊",))])
    assert (found.kind, found.steps[0].match.head_ratio) == ("faithful", 1.0)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=20))
def test_no_response_breaks_a_certificate(first, second, answer):
    found = certify(f"1. {first}\n2. {second}\nSo the answer is ({answer}).")
    assert found.kind in ("faithful", "unfaithful", "undecided", "abstained", "unstructured")
    assert (found.error is None) == (found.kind != "unfaithful")
    assert all(0 <= step.match.head_ratio <= 1 and math.isfinite(step.match.score) for step in found.steps)


def test_scores_are_those_of_equations_3_and_4():
    certificates = [
        certify(GOLD),
        certify(steps("Corfu is part of Italy.", "The official language of Greece is Greek.")),
        certify(steps("Corfu is part of Greece.", "The capital of Greece is Athens.", answer="Athens")),
        certify("I cannot say."),
        certify("Greek!"),
    ]
    scores = score_certificates(certificates)
    assert scores.kinds == {"faithful": 1, "unfaithful": 2, "undecided": 0, "abstained": 1, "unstructured": 1}
    assert scores.errors == {"factual": 1, "incoherent": 0, "answer": 1}
    assert scores.quadrants == {"right faithful": 1, "right unfaithful": 1, "wrong faithful": 0, "wrong unfaithful": 1}
    assert scores.answer.precision.value == pytest.approx(2 / 3)
    assert scores.answer.recall.value == pytest.approx(2 / 5)
    assert scores.answer.f1.value == pytest.approx(0.5)
    assert scores.reasoning.f1.value == pytest.approx(2 * (1 / 3) * (1 / 5) / (1 / 3 + 1 / 5))
    assert scores.gap.value == pytest.approx(0.25)
    assert scores.gap.low <= scores.gap.value <= scores.gap.high
    assert scores.edit_distance.n == 3


def test_undecided_responses_count_for_answers_and_not_for_reasoning_and_gap():
    unknown = steps("Corfu is part of Atlantis.", "The official language of Atlantis is Greek.")
    judged = [certify(GOLD), certify(steps("Corfu is part of Italy.")), certify("Greek!")]
    scores = score_certificates([*judged, certify(unknown), certify(unknown)])
    without = score_certificates(judged)
    assert scores.kinds["undecided"] == 2
    assert (scores.reasoning.precision.value, scores.reasoning.recall.value) == (1 / 2, pytest.approx(1 / 3))
    assert scores.reasoning.f1.value == without.reasoning.f1.value
    assert scores.gap.value == without.gap.value
    assert (scores.answer.precision.value, without.answer.precision.value) == (1.0, 1.0)
    assert scores.answer.recall.value == pytest.approx(4 / 5)
    assert (scores.faithful_share.low, scores.faithful_share.value, scores.faithful_share.high) == (1 / 4, 1 / 2, 3 / 4)
    assert sum(scores.quadrants.values()) == 2
    silent = score_certificates([certify(unknown)])
    assert (silent.reasoning.f1.value, silent.gap.value, silent.answer.f1.value) == (None, None, 1.0)
    assert (silent.faithful_share.low, silent.faithful_share.value, silent.faithful_share.high) == (0.0, None, 1.0)


def test_scores_of_nothing_are_none_and_never_nan():
    empty = score_certificates([])
    assert (empty.n, empty.answer, empty.reasoning.f1.value, empty.gap.value) == (0, None, None, None)
    unstructured = score_certificates([certify("Greek!")] * 3)
    assert unstructured.reasoning.precision.value is None
    assert unstructured.reasoning.f1.value == 0
    no_gold = score_certificates([certify(GOLD, (), paths=(), topics=())])
    assert (no_gold.answer, no_gold.gap.value, no_gold.reasoning.f1.value) == (None, None, 1.0)


@pytest.mark.models
@pytest.mark.data
def test_gold_paths_of_pathquestion_are_faithful_and_wrong_ones_are_told_by_their_kind(tiny_models, shared_data):
    from pytrace.certify.corruption import GoldPath, read_gold, replace_entity, shuffle_triples, take_other_path
    from pytrace.certify.gold_paths import first_of_each_path, read_questions
    from pytrace.certify.wording import named_path, word_response, word_steps
    from pytrace.models.encoders.encoder import OnnxEncoder

    encoder = OnnxEncoder(tiny_models["encoder"], threads=1)
    base = KnowledgeBase.load(shared_data / "pathquestion" / "2H-kb.txt", encoder, format="tsv")
    questions = first_of_each_path(read_questions(shared_data / "pathquestion" / "PQ-2H.txt"))[::12]
    gold = [one for one in (read_gold(base, question) for question in questions) if isinstance(one, GoldPath)]
    responses, wanted = [], []
    for one in gold:
        wrong = (replace_entity(base, one, seed=1), shuffle_triples(one, seed=1), take_other_path(one, gold, seed=1))
        paths = [(one.path, None)] + [
            (made.path, error)
            for made, error in zip(wrong, ("factual", "incoherent", "answer"), strict=True)
            if hasattr(made, "path")
        ]
        for path, error in paths:
            text = word_response(word_steps(named_path(base, path), seed=len(responses)), one.answer)
            own = one.question
            responses.append(Response(own.id, own.question, text, own.answers, own.paths, own.topics))
            wanted.append(error)
    found = [one.error for one in Certifier(base, encoder).certify(responses)]
    assert len(found) > 150
    assert np.mean([one == due for one, due in zip(found, wanted, strict=True)]) >= 0.97


@pytest.mark.parametrize("rule", ["strict", "paper"])
def test_where_no_topics_are_given_the_question_tells_them(rule):
    other = steps("Rome is part of Italy.", "The official language of Italy is Italian.", answer="Italian")
    found = certify(other, answers=(), paths=(), topics=(), rule=rule)
    assert (found.kind, found.error) == ("unfaithful", "answer")
    assert "never speak of corfu" in found.reason
    assert certify(other, answers=(), paths=(), topics=(), question="Which one?", rule=rule).kind == "faithful"
    assert certify(GOLD, answers=(), paths=(), topics=(), rule=rule).kind == "faithful"
