"""Responses are taken apart as appendices C.4 and C.5 say, whatever a model wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.response_parsing import StepForm, answers_match, parse_response

STEPS = ("Corfu is in Greece.", "Greece speaks Greek.")


@pytest.mark.parametrize(
    "text",
    [
        "1. Corfu is in Greece.\n2. Greece speaks Greek.\nSo the answer is (Greek).",
        "1. Corfu is in Greece. 2. Greece speaks Greek. So the answer is (Greek).",
        "1. Corfu is in Greece.2. Greece speaks Greek.So the answer is (Greek).",
        "Let's work it out.\nStep 1: Corfu is in Greece.\nStep 2: Greece speaks Greek.\nThe answer is: Greek",
        "HINT: country -> language\n1) Corfu is in Greece.\n2) Greece speaks Greek.\nTherefore, the final answer is Greek.",
        "**1.** Corfu is in Greece.\n**2.** Greece speaks Greek.\nThe answer to the question is (Greek)",
        "1. Corfu is in\n   Greece.\n\n2. Greece speaks Greek.\n\nSo the answer is (Greek).\n\nQ: and now?\n1. No.\nSo the answer is (x).",
    ],
)
def test_numbered_steps_are_found_however_they_are_laid_out(text):
    parsed = parse_response(text)
    assert (parsed.form, parsed.steps, parsed.answer) == ("structured", STEPS, "Greek")


def test_a_year_or_a_version_at_a_sentences_end_is_no_step():
    parsed = parse_response(
        "1. The cruzado was used from 1986 to 1989. 2.5 million had it.\n2. Brazil used it.\nThe answer is (Brazil)."
    )
    assert parsed.steps == ("The cruzado was used from 1986 to 1989. 2.5 million had it.", "Brazil used it.")


def test_what_follows_the_answer_is_not_read():
    parsed = parse_response("1. a b.\nSo the answer is (c (d)). 2. e f.\nSo the answer is (g).")
    assert (parsed.steps, parsed.answer) == (("a b.",), "c (d)")


@pytest.mark.parametrize(
    "text",
    [
        "I am sorry, I cannot tell.",
        "There is not enough information to say.",
        "I don’t know.",
        "1. Nobody knows Corfu.\nSo the answer is (unknown).",
        "1. Nobody knows Corfu.\nSo the answer is (cannot be determined).",
        "1. Nobody knows Corfu.\nSo the answer is (None).",
    ],
)
def test_who_declines_abstains(text):
    assert parse_response(text).form == "abstained"


def test_a_step_may_speak_of_the_unknown():
    assert (
        parse_response("1. Joy Division made Unknown Pleasures.\nSo the answer is (Unknown Pleasures)").form
        != "structured"
    )
    assert (
        parse_response("1. Joy Division made Unknown Pleasures.\nSo the answer is (Joy Division)").form == "structured"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Greek",
        "So the answer is (Greek).",
        "1. Corfu is in Greece.",
        "2. a.\n3. b.\nThe answer is x",
        "1. ...\nThe answer is x",
    ],
)
def test_without_steps_or_conclusion_a_response_is_unstructured(text):
    assert parse_response(text).form == "unstructured"


def test_sentences_are_steps_where_they_are_asked_for():
    text = "Corfu is in Greece. Greece speaks Greek. So the answer is Greek."
    assert parse_response(text).form == "unstructured"
    parsed = parse_response(text, form="sentences")
    assert (parsed.form, parsed.steps, parsed.answer) == ("structured", STEPS, "Greek")
    assert parse_response("Corfu is in Greece.", form="sentences").form == "unstructured"


def test_other_scripts_have_steps_too():
    parsed = parse_response("1. 科孚岛位于希腊。\n2. Ελλάδα μιλάει ελληνικά.\nSo the answer is (希腊语)。")
    assert (parsed.form, len(parsed.steps), parsed.answer) == ("structured", 2, "希腊语")


def test_a_hundred_thousand_characters_are_classified_at_once():
    assert parse_response("x" * 100_000).form == "unstructured"
    assert parse_response("1. " * 50_000).form == "unstructured"
    long = "1. " + "word " * 20_000 + "\nSo the answer is (x)."
    assert len(parse_response(long).steps) == 1
    many = "\n".join(f"{n}. a b." for n in range(1, 3_000)) + "\nSo the answer is (x)."
    assert len(parse_response(many).steps) == 2_999


@given(st.text(max_size=200), st.sampled_from(["numbered", "sentences"]))
def test_no_text_breaks_it(text, form):
    parsed = parse_response(text, form=form)
    assert parsed.form in ("structured", "abstained", "unstructured")
    assert parsed.form != "structured" or (parsed.steps and parsed.answer)


def test_answers_match_whole_words_in_either_direction():
    assert answers_match("the Greek language", ("Greek",))
    assert answers_match("Greek", ("Greek language",))
    assert answers_match("Arabic, Nobiin", ("Nobiin",))
    assert answers_match("saint michael", ("Saint_Michael_Parish",))
    assert not answers_match("male", ("female",))
    assert not answers_match("", ("Greek",))
    assert not answers_match("Greek", ("",))
    assert not answers_match(", ,", ("Greek",))


@pytest.mark.parametrize("form", ["numbered", "sentences"])
@pytest.mark.parametrize(
    "text",
    [
        "\n" * 300_000,
        "So the answer is " + '"' * 300_000,
        '"' * 300_000,
        "1. " + "".join(f"{n}. " for n in range(2, 50_000)),
    ],
)
def test_a_response_of_one_sign_is_read_in_time_linear_in_its_length(text: str, form: StepForm) -> None:
    # Minutes, where it was the square.
    assert parse_response(text, form=form).form in ("unstructured", "structured")
