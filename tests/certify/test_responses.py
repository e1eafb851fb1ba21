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


AS_THEY_ARE = {
    "prose and a bold label": "**Corfu** is in Greece. Greece speaks Greek.\n\n**Answer:** Greek",
    "bullets": "Here is my reasoning:\n\n- Corfu is in Greece.\n* Greece speaks Greek.\n\n**Final answer:** Greek",
    "the answer first": "**Answer:** Greek\n\n**Explanation:**\n- Corfu is in Greece.\n- Greece speaks Greek.\n\nLet me know if you need more!",
    "headings over steps": "### Step 1: Find the country\nCorfu is in Greece.\n\n### Step 2: Find the language\n\nGreece speaks Greek.\n\n### Final Answer\n**Greek**",
    "steps as headings": "## 1. Corfu is in Greece.\n## 2. Greece speaks Greek.\n## Answer - Greek",
    "thinking before it": "<think>\nHmm, 1. Corfu is in Italy.\nSo the answer is Italian.\n</think>\n\n1. Corfu is in Greece.\n2. Greece speaks Greek.\n\nSo the answer is (Greek).",
    "thinking whose tag the template opened": "1. Corfu is in Italy, wait.</think>1. Corfu is in Greece.\n2. Greece speaks Greek.\nThe answer is Greek.",
    "a box": "1. Corfu is in Greece.\n2. Greece speaks Greek.\n\n$$\\boxed{\\text{Greek}}$$",
    "a box behind its words": "1. Corfu is in Greece.\n2. Greece speaks Greek.\n\nTherefore, the final answer is: $\\boxed{\\text{Greek}}$. I hope it is correct.",
    "a box in a sentence": "- Corfu is in Greece.\n- Greece speaks Greek.\n\nPeople there speak \\(\\boxed{Greek}\\).",
    "bare JSON": '{"reasoning": "Corfu is in Greece. Greece speaks Greek.", "answer": "Greek"}',
    "JSON in a fence": 'Sure:\n```json\n{"steps": ["1. Corfu is in Greece.", {"step": 2, "text": "Greece speaks Greek."}], "final_answer": "Greek"}\n```\nDone.',
    "a table": "| Step | Fact |\n|---|---|\n| 1 | Corfu is in Greece. |\n| 2 | Greece speaks Greek. |\n\n**Answer:** Greek",
    "bullets within numbers": "1. **Country**\n   - Corfu is in Greece.\n2. **Language:**\n   - Greece speaks Greek.\n\nFinal Answer: Greek",
    "an answer tag": "Corfu is in Greece. Greece speaks Greek.\n<answer>Greek</answer>",
    "channels": "<|channel|>analysis<|message|>Let me think. The answer is Italian.<|end|><|start|>assistant<|channel|>final<|message|>Corfu is in Greece. Greece speaks Greek. The answer is Greek.<|return|>",
    "a numbered conclusion": "1. Corfu is in Greece.\n2. Greece speaks Greek.\n3. **Final answer:** Greek",
    "dashes for stops": "Step 1 - Corfu is in Greece.\nStep 2 - Greece speaks Greek.\nAnswer – Greek",
    "a code fence": "```\n1. Corfu is in Greece.\n2. Greece speaks Greek.\nAnswer: Greek\n```",
    "bold steps": "**Step 1:** Corfu is in Greece.\n\n**Step 2:** Greece speaks Greek.\n\n**Conclusion:** The answer is **Greek**.",
    "the question said again": "**Question:** What do they speak?\n**Answer:** Greek\n\nCorfu is in Greece. Greece speaks Greek.",
    "citations": "* Corfu is in Greece [1].\n* Greece speaks Greek.[2]\n\n> **The answer is Greek.**",
    "a quotation": "> 1. Corfu is in Greece.\n> 2. Greece speaks Greek.\n>\n> So the answer is: **Greek**",
    "numbers in parentheses": "(1) Corfu is in Greece.\n(2) Greece speaks Greek.\nHence the answer is Greek.",
    "prose behind its answer": "Answer: Greek. Corfu is in Greece. Greece speaks Greek.",
}


@pytest.mark.parametrize("text", AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_responses_are_read_as_chat_models_write_them(text):
    parsed = parse_response(text)
    assert (parsed.form, parsed.steps, parsed.answer) == ("structured", STEPS, "Greek")


@pytest.mark.parametrize(
    "text",
    [
        "Corfu is in Greece. Greece speaks Greek. Therefore, people of Corfu speak Greek.",
        "- Corfu is in Greece.\n- Greece speaks Greek.\n\n**Conclusion:** On Corfu they speak Greek.",
        "1. Corfu is in Greece.\n2. Greece speaks Greek.\n\nHence Greek.",
        "<think>1. Corfu is in Greece.\n2. Greece speaks Greek.\nSo the answer is (Greek).</think>Greek",
        "<think>1. Corfu is in Greece.\n2. Greece speaks Greek.\nSo the answer is (Greek).",
        '{"steps": ["Corfu is in Greece."], "note": "Greek"}',
    ],
)
def test_a_conclusion_is_never_invented(text):
    parsed = parse_response(text)
    assert parsed.form == "unstructured"
    assert parsed.answer == ""


def test_a_refusal_in_thought_is_none():
    text = "<think>I cannot tell. Sorry.</think>1. Corfu is in Greece.\nAnswer: Greece"
    assert parse_response(text).form == "structured"
    assert parse_response('{"steps": ["Nobody knows."], "answer": null}').form == "abstained"


def test_what_stands_apart_behind_a_list_is_no_step_and_within_it_is():
    text = (
        "Answer: Greek\n\n1. Corfu is in\n   Greece.\n\n2. Greece speaks Greek.\n\nI hope this helps. Corfu is large."
    )
    assert parse_response(text).steps == STEPS
    assert parse_response(text, form="numbered").steps[1] == "Greece speaks Greek. I hope this helps. Corfu is large."


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
    assert parse_response(text, form="numbered").form == "unstructured"
    assert parse_response(text).form == ("structured" if text.startswith("2.") else "unstructured")


def test_sentences_are_steps_where_there_is_no_list_and_numbered_lines_are_not_asked_for():
    text = "Corfu is in Greece. Greece speaks Greek. So the answer is Greek."
    assert parse_response(text, form="numbered").form == "unstructured"
    for form in ("auto", "sentences"):
        parsed = parse_response(text, form=form)
        assert (parsed.form, parsed.steps, parsed.answer) == ("structured", STEPS, "Greek")
        assert parse_response("Corfu is in Greece.", form=form).form == "unstructured"


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
