"""Steps in words beside a relation: who is what of whom, what is denied, and what is said besides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.certifier import Certifier
from pytrace.certify.grounding import Grounder, GroundingSettings
from pytrace.certify.step_reading import HEAD, TAIL, RelationWords, cuts, denied, names_relation, pieces, turned
from pytrace.certify.wording import TEMPLATES
from pytrace.check_records import Response
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.records import Triple
from tests.certify.test_certifier import ENCODER


def words(text: str) -> list[str]:
    return [
        word if word in (HEAD, TAIL) else word.lower() for word in text.replace("'s", " s").replace(",", "").split()
    ]


def exchanged(text: str) -> str:
    return "".join({HEAD: TAIL, TAIL: HEAD}.get(letter, letter) for letter in text)


@pytest.mark.parametrize("relation", ["capital", "place of birth", "founder", "children", "education", "record label"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_roles_are_read_in_sentences_of_every_form(relation, template):
    told = template.format(head=HEAD, relation=relation, tail=TAIL).rstrip(".")
    assert turned(words(told), RelationWords(relation)) is False
    assert turned(words(exchanged(told)), RelationWords(relation)) is True


@pytest.mark.parametrize(
    ("relation", "text"),
    [
        ("founded by", "X was founded by Y"),
        ("founded by", "Y founded X"),
        ("founded by", "the founder of X is Y"),
        ("founder", "Y founded X"),
        ("founder", "X was founded by Y"),
        ("located in", "X is located in Y"),
        ("capital of", "X is the capital of Y"),
        ("capital of", "Y has the capital X"),
        ("part of", "Y has X as a part of it"),
        ("parents", "Y is the father of X"),
        ("children", "X is the mother of Y"),
        ("children", "Y's father is X"),
        ("place of birth", "X's birthplace is Y"),
        ("education", "X was educated at Y"),
        ("starring", "the starring of X is Y"),
    ],
)
def test_roles_are_read_in_other_words_of_a_relation(relation, text):
    assert turned(words(text), RelationWords(relation)) is False
    assert turned(words(exchanged(text)), RelationWords(relation)) is True


def test_what_is_told_in_words_of_its_own_has_no_roles():
    assert turned(words("X passed away in Y"), RelationWords("place of death")) is None
    assert turned(words("X is a national of Y"), RelationWords("nationality")) is None  # a form, not the noun


def test_a_symmetric_relation_has_no_direction():
    for relation in (RelationWords("spouse"), RelationWords("borders"), RelationWords("ally", symmetric=True)):
        assert turned(words("the ally of Y is X, the spouse and one who borders it"), relation) is None


def test_the_inverse_relation_says_it_from_the_other_end():
    source, target = RelationWords("influence"), RelationWords("follower")
    assert turned(words("the follower of Y is X"), source, [target]) is False
    assert turned(words("the follower of X is Y"), source, [target]) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the capital of X is not Y", True),
        ("X doesn t have the capital Y", True),
        ("Y was never the capital of X", True),
        ("it is false that the capital of X is Y", True),
        ("X has another capital than Y or Z instead of Y", True),
        ("it is not the case that Y was never the capital of X", False),
        ("Y is not only the capital of X", False),
        ("Y is the capital of X", False),
    ],
)
def test_negations_are_counted(text, expected):
    assert denied(words(text), RelationWords("capital")) is expected


def test_a_negation_of_the_relation_itself_denies_nothing():
    assert not denied(words("X is not the seat of Y"), RelationWords("not the seat of"))


def said_besides(text: str) -> list[str]:
    form = " ".join(word if word in (HEAD, TAIL) else word.lower() for word in normal_form_of(text).split())
    read = form.split()
    return [" ".join(read[start:end]) for start, end in pieces(read, cuts(text, normal_form(text)))]


def normal_form_of(text: str) -> str:
    # The letters stay as they are.
    return " ".join({"x": HEAD, "y": TAIL}.get(word, word) for word in normal_form(text).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The capital of X is Y.", []),
        ("The capital of X is Y, who kept sheep.", ["who kept sheep"]),
        ("The capital of X is Y and won a prize", ["and won a prize"]),
        ("The capital of X is Y. It lies on a river.", ["it lies on a river"]),
        ("X, a town of painters, has the capital Y.", ["a town of painters"]),
        ("In 1908, the capital of X was Y", ["in 1908"]),
        ("In fact, the capital of X is Y, as we know.", []),
        ("X has Y roots", []),
        ("X has the capital Y in 1908", ["in 1908"]),
        ("X who lived for long died in Y", []),
        ("Y is what X has as its capital", ["as its capital"]),
    ],
)
def test_what_stands_behind_before_or_between_head_and_tail(text, expected):
    assert said_besides(text) == expected


@given(st.text(max_size=60))
def test_any_text_is_cut_at_its_own_words(text):
    form = normal_form(text)
    count = len(form.split())
    assert all(0 <= place <= count for place in cuts(text, form))
    for start, end in pieces(form.split(), cuts(text, form)):
        assert 0 <= start < end <= count


@given(
    st.lists(
        st.sampled_from(["X", "Y", "s", "of", "the", "capital", "founded", "by", "has", "is", "whose", "born"]),
        max_size=9,
    )
)
def test_exchanged_words_are_read_the_other_way_round(read):
    for name in ("capital", "founded by", "founder", "capital of"):
        relation = RelationWords(name)
        there = turned(read, relation)
        back = turned([exchanged(word) for word in read], relation)
        assert there is None or back is (not there)


def test_another_relation_is_named_only_where_nothing_before_makes_it_a_third():
    assert names_relation(words("the location of X is Y"), RelationWords("location"))
    assert not names_relation(words("the birth location of X is Y"), RelationWords("location"))


FACTS = [
    Triple("Ada Foah", "country", "Ghana"),
    Triple("Ghana", "capital", "Accra"),
    Triple("Kofi", "spouse", "Ama"),
    Triple("Kofi", "date of birth", "1908-05-01"),
    Triple("Ada Foah", "population", "6,325"),
    Triple("Volta", "length", "1500 km"),
    Triple("Kofi", "house", "Villa 12"),
]
GROUNDER = Grounder(KnowledgeBase.in_memory(FACTS, ENCODER), ENCODER, GroundingSettings(threshold=0.5))


@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("The capital of Ghana is Accra.", "supported"),
        ("The capital of Accra is Ghana.", "unsupported"),
        ("The capital of Ghana is not Accra.", "unsupported"),
        ("The capital of Ghana is Accra, which won three prizes.", "unsupported"),
        ("The spouse of Kofi is Ama.", "supported"),
        ("The spouse of Ama is Kofi.", "supported"),
        ("The date of birth of Kofi is 1908-05-01.", "supported"),
        ("The date of birth of Kofi is May 1, 1908.", "supported"),
        ("The date of birth of Kofi is 1908.", "supported"),
        ("The date of birth of Kofi is 1909.", "unsupported"),
        ("The date of birth of Kofi is 2 May 1908.", "unsupported"),
        ("The population of Ada Foah is 6325.", "supported"),
        ("The population of Ada Foah is 6,352.", "unsupported"),
        ("The length of Volta is 1,500 km.", "supported"),
        ("The length of Volta is 1,500,000 m.", "supported"),
        ("The length of Volta is 1,500 miles.", "unsupported"),
        ("The house of Kofi is Villa 12.", "supported"),
        ("The house of Kofi is Villa 13.", "undecided"),
    ],
)
def test_a_fact_told_wrongly_is_no_fact(step, status):
    [found] = GROUNDER.ground([step])
    assert (found.status, found.match is not None) == (status, True), found


def test_what_speaks_against_a_step_is_told():
    reasons = [
        found.match.objection
        for found in GROUNDER.ground(
            [
                "The capital of Accra is Ghana.",
                "The capital of Ghana is not Accra.",
                "The capital of Ghana is Accra, which won three prizes.",
                "The population of Ghana is Accra.",
            ]
        )
        if found.match is not None
    ]
    assert reasons == [
        "the step says it the other way round",
        "the step denies it",
        "the step also says 'which won three prizes'",
        "the step says 'population'",
    ]


def test_the_papers_rule_takes_all_of_them():
    paper = Grounder(KnowledgeBase.in_memory(FACTS, ENCODER), ENCODER, GroundingSettings(rule="paper"))
    steps = ["The capital of Accra is Ghana.", "The capital of Ghana is not Accra."]
    assert [found.status for found in paper.ground(steps)] == ["supported", "supported"]


SEVERAL = [
    Triple("Ada Foah", "country", "Ghana"),
    Triple("Ghana", "capital", "Accra"),
    Triple("Kofi", "place of death", "Tema"),
    Triple("Kofi", "date of death", "1950"),
    Triple("paris_1", "mayor", "Ann"),
    Triple("paris_2", "mayor", "Ann"),
    Triple("Bea", "home", "paris_2"),
]
NAMES = {"paris_1": "Paris", "paris_2": "Paris"}
BASE = KnowledgeBase.in_memory(SEVERAL, ENCODER, names=NAMES)
SETTINGS = GroundingSettings(threshold=0.5)


def certified(text: str, rule: str = "strict"):
    certifier = Certifier(BASE, ENCODER, GroundingSettings(threshold=0.5, rule=rule))
    return next(certifier.certify([Response("1", "What?", text)]))


@pytest.mark.parametrize(
    ("step", "others", "objection"),
    [
        ("The country of Ada Foah is Ghana, whose capital is Accra.", ["Ghana capital Accra"], ""),
        (
            "The place of death of Kofi is Tema, and his date of death is 1950.",
            ["Kofi date of death 1950"],
            "",
        ),
        (
            "The place of death of Kofi is Tema, and his date of death is 1951.",
            [],
            "the step also says 'and his date of death is 1951'",
        ),
        ("The country of Ada Foah is Ghana, whose capital is Tema.", [], "the step also says 'whose capital is tema'"),
    ],
)
def test_a_step_may_state_several_facts_and_none_that_is_wrong(step, others, objection):
    [found] = Grounder(BASE, ENCODER, SETTINGS).ground([step])
    assert found.match is not None
    said = [f"{one.triple.head} {one.triple.relation} {one.triple.tail}" for one in found.also]
    assert (found.status == "supported", said, found.match.objection) == (not objection, others, objection)


def test_a_walk_goes_on_from_the_last_fact_of_a_step():
    found = certified("1. The country of Ada Foah is Ghana, whose capital is Accra. So the answer is (Accra).")
    assert (found.kind, found.reached) == ("faithful", "Accra")
    assert "Ada Foah – country – Ghana and Ghana – capital – Accra" in found.steps[0].reason


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_entities_of_one_name_the_chain_chooses(order):
    told = ["The home of Bea is Paris.", "The mayor of Paris is Ann."]
    steps = " ".join(f"{number}. {told[place]}" for number, place in enumerate(order, 1))
    found = certified(f"{steps} So the answer is ({'Ann' if order == (0, 1) else 'Bea'}).")
    numbers = {step.match.triple.relation: step.match.number for step in found.steps if step.match is not None}
    assert (found.kind, numbers) == ("faithful", {"home": 6, "mayor": 5})
