"""The shipped demonstrations say what they claim to say, and a bad file of the user's own is refused with its place."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pytrace.errors import DataError
from pytrace.kg.queries import parse_query, query_names
from pytrace.reader.prompts import (
    ChainDemonstration,
    OpenTripleDemonstration,
    ReaderDemonstration,
    TripleDemonstration,
)
from pytrace.reader.prompts.reasoning import (
    LABELS,
    ClaimDemonstration,
    PathDemonstration,
    QueryDemonstration,
    QuestionDemonstration,
    RationaleDemonstration,
    StepDemonstration,
    VerificationDemonstration,
)

TRIPLES = TripleDemonstration.load()
OPEN_TRIPLES = OpenTripleDemonstration.load()
CHAINS = ChainDemonstration.load()
READER = (
    *ReaderDemonstration.load_with("kind", "triples"),
    *ReaderDemonstration.load_with("kind", "documents"),
    *ReaderDemonstration.load_with("kind", "mixed"),
)
QUESTIONS = QuestionDemonstration.load()
RATIONALES = RationaleDemonstration.load()
VERIFICATIONS = VerificationDemonstration.load()
PATHS = PathDemonstration.load()
STEPS = StepDemonstration.load()
CLAIMS = ClaimDemonstration.load()
QUERIES = (*QueryDemonstration.load_with("form", "triplet"), *QueryDemonstration.load_with("form", "sparql"))


def normalised(text: str) -> str:
    """Lower-case letters and digits alone, so that punctuation cannot hide an overlap."""
    return " ".join(re.findall(r"\w+", text.lower()))


# Documents


def test_there_are_at_least_twelve_labelled_documents_with_distinct_titles() -> None:
    assert len({demonstration.title for demonstration in TRIPLES}) == len(TRIPLES) >= 12


@pytest.mark.parametrize("demonstration", TRIPLES, ids=lambda demonstration: demonstration.title)
def test_every_tail_is_a_span_of_its_text_and_every_head_its_title(demonstration: Any) -> None:
    assert 4 <= len(demonstration.triples) <= 9
    assert 20 <= len(demonstration.text.split()) <= 60
    for triple in demonstration.triples:
        assert triple.head == demonstration.title
        assert triple.tail in demonstration.text
        assert 1 <= len(triple.relation.split()) <= 8


def test_there_are_at_least_six_labelled_texts_with_open_heads_some_of_them_below_headings() -> None:
    assert len({demonstration.text for demonstration in OPEN_TRIPLES}) == len(OPEN_TRIPLES) >= 6
    assert {demonstration.title is None for demonstration in OPEN_TRIPLES} == {True, False}
    assert not any(demonstration.about_title for demonstration in OPEN_TRIPLES)


@pytest.mark.parametrize("demonstration", OPEN_TRIPLES, ids=lambda demonstration: demonstration.text[:20])
def test_open_heads_and_tails_are_spans_and_every_text_has_several_heads(
    demonstration: OpenTripleDemonstration,
) -> None:
    assert 4 <= len(demonstration.triples) <= 9
    assert 20 <= len(demonstration.text.split()) <= 60
    assert len({triple.head for triple in demonstration.triples}) >= 3
    for triple in demonstration.triples:
        assert triple.head in f"{demonstration.title}\n{demonstration.text}"
        assert triple.tail in demonstration.text
        assert 1 <= len(triple.relation.split()) <= 8


# Chains


def test_there_are_at_least_ten_labelled_questions_of_every_kind() -> None:
    assert len({demonstration.question for demonstration in CHAINS}) == len(CHAINS) >= 10
    kinds = Counter(demonstration.kind for demonstration in CHAINS)
    assert set(kinds) == {"bridge", "comparison", "compositional", "yes-no", "date"}
    assert min(kinds.values()) >= 2


def test_chains_of_one_to_four_steps_are_shown() -> None:
    assert {len(demonstration.chain) for demonstration in CHAINS} == {1, 2, 3, 4}


@pytest.mark.parametrize("demonstration", CHAINS, ids=lambda demonstration: demonstration.question)
def test_each_chain_triple_is_the_answer_among_the_candidates_of_its_step(demonstration: ChainDemonstration) -> None:
    assert len(demonstration.chain) in (1, 2, 3, 4)
    *steps, last = demonstration.steps
    for index, (step, triple) in enumerate(zip(steps, demonstration.chain, strict=True)):
        assert step.candidates[step.answer] == triple
        assert step.candidates.count(triple) == 1
        assert not set(step.candidates) & set(demonstration.chain[:index])
        assert step.letter == "BCDEF"[step.answer]
    assert last.answer == -1
    assert last.letter == "A"
    assert not set(last.candidates) & set(demonstration.chain)
    assert all(len(step.candidates) in (4, 5) for step in demonstration.steps)


@pytest.mark.parametrize("demonstration", CHAINS, ids=lambda demonstration: demonstration.question)
def test_no_step_has_two_right_answers(demonstration: ChainDemonstration) -> None:
    """Where the triples of a chain may come in any order, a later one among the candidates would be right as well."""
    if demonstration.kind in ("comparison", "yes-no"):
        for index, step in enumerate(demonstration.steps):
            assert not set(step.candidates) & set(demonstration.chain[index + 1 :])


@pytest.mark.parametrize("demonstration", CHAINS, ids=lambda demonstration: demonstration.question)
def test_distractors_are_about_what_the_question_is_about(demonstration: ChainDemonstration) -> None:
    """At every step some distractor shares its head with the chain, and some other has another head."""
    heads = {triple.head for triple in demonstration.chain}
    for step in demonstration.steps:
        distractors = [triple for index, triple in enumerate(step.candidates) if index != step.answer]
        assert any(triple.head in heads for triple in distractors)
    offered = {triple.head for step in demonstration.steps for triple in step.candidates}
    assert offered - heads


def test_the_answer_letters_are_balanced_over_the_set_and_at_the_first_two_steps() -> None:
    letters = Counter(step.letter for demonstration in CHAINS for step in demonstration.steps[:-1])
    assert set(letters) == set("BCDEF")
    assert max(letters.values()) <= 0.4 * letters.total()
    for position in (0, 1):
        letters = Counter(demonstration.steps[position].letter for demonstration in CHAINS)
        assert max(letters.values()) <= 0.4 * letters.total()


def test_the_answer_of_a_question_with_a_name_date_or_place_is_in_its_chain() -> None:
    for demonstration in CHAINS:
        if demonstration.kind != "yes-no":
            assert any(
                demonstration.answer in (triple.head, triple.tail) or demonstration.answer in triple.tail
                for triple in demonstration.chain
            )
    assert {demonstration.answer for demonstration in CHAINS if demonstration.kind == "yes-no"} == {"yes", "no"}


# Reader


@pytest.mark.parametrize("kind", ["triples", "documents", "mixed"])
def test_the_reader_has_four_demonstrations_of_each_kind_whose_answers_are_in_the_context(kind: Any) -> None:
    rows = ReaderDemonstration.load_with("kind", kind)
    assert len(rows) == 4
    for row in rows:
        assert row.kind == kind
        if row.answer not in ("yes", "no"):
            assert row.answer in " ".join(row.context)
        assert len(row.answer.split()) <= 4


def test_a_mixed_context_needs_both_its_triples_and_its_sentences() -> None:
    for row in ReaderDemonstration.load_with("kind", "mixed"):
        triples = [item for item in row.context if item.startswith("<")]
        sentences = [item for item in row.context if item.startswith("[")]
        assert [*triples, *sentences] == list(row.context)
        assert triples
        assert sentences
    answers = [row.answer for row in ReaderDemonstration.load_with("kind", "mixed")]
    assert (
        sum(any(answer in item for item in row.context[-1:]) for answer, row in zip(answers, READER[-4:], strict=True))
        == 2
    )


# Thoughts


def test_a_question_s_triples_are_about_a_subject_that_it_names_and_do_not_all_answer_it() -> None:
    assert len({row.question for row in QUESTIONS}) == len(QUESTIONS) >= 4
    for row in QUESTIONS:
        assert row.subject in row.question
        assert 3 <= len(row.triples) <= 5
        assert {triple.head for triple in row.triples} == {row.subject}


def test_rationales_are_short_and_lead_from_their_context_to_their_answer() -> None:
    assert len({row.question for row in RATIONALES}) == len(RATIONALES) >= 4
    for row in RATIONALES:
        assert 2 <= len(row.rationale) <= 3
        assert all(len(sentence.split()) <= 14 and sentence.endswith(".") for sentence in row.rationale)
        assert len(row.context) >= 2
        if row.answer not in ("yes", "no"):
            assert row.answer in row.rationale[-1] or row.answer in row.rationale[0]
            assert row.answer in " ".join(row.context)


def test_verifications_have_right_and_wrong_sentences_and_answer_from_their_context() -> None:
    wrong = [row for row in VERIFICATIONS if row.answer != row.sentence]
    assert 0 < len(wrong) < len(VERIFICATIONS)
    for row in VERIFICATIONS:
        assert row.verifying_question.endswith("?")
        facts = set(normalised(" ".join(row.context)).split())
        # Every name and number of the answer that the sentence does not have comes from the context.
        new = set(normalised(row.answer).split()) - set(normalised(row.sentence).split())
        assert new <= facts
        assert bool(new) == (row in wrong)


def test_loading_twice_gives_the_same_frozen_records() -> None:
    for load in (
        TripleDemonstration.load,
        QuestionDemonstration.load,
        RationaleDemonstration.load,
        VerificationDemonstration.load,
        PathDemonstration.load,
        StepDemonstration.load,
        ClaimDemonstration.load,
    ):
        assert load() is load()  # type: ignore[operator]
    with pytest.raises(AttributeError):
        TRIPLES[0].title = "another"  # type: ignore[misc]


# Claims


def test_claims_show_every_label_once_in_each_three_and_have_facts_of_their_own() -> None:
    assert len({row.claim for row in CLAIMS}) == len(CLAIMS) >= 9
    for start in range(0, len(CLAIMS), 3):
        assert {row.label for row in CLAIMS[start : start + 3]} == set(LABELS)
    facts = [fact for row in CLAIMS for fact in row.facts]
    assert len(set(facts)) == len(facts)
    for row in CLAIMS:
        assert row.claim not in row.facts, "a fact that is the claim itself would show how to copy"


# Independence of the data that measures them


def plain(text: str) -> str:
    return normalised(unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode())


@pytest.mark.data
def test_no_demonstration_overlaps_with_the_evaluation_data(shared_data: Path) -> None:
    titles: set[str] = set()
    questions: set[str] = set()
    for path in sorted((shared_data / "multihop").glob("*.jsonl")):
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            questions.add(normalised(row["question"]))
            titles.update(normalised(title) for title, _ in row["context"])
    for line in (shared_data / "labels" / "triples-hotpotqa.jsonl").read_text(encoding="utf-8").splitlines():
        titles.add(normalised(json.loads(line)["title"]))
    for line in (shared_data / "labels" / "next-triple-hotpotqa.jsonl").read_text(encoding="utf-8").splitlines():
        questions.add(normalised(json.loads(line)["question"]))
    for line in (shared_data / "lcquad" / "train.jsonl").read_text(encoding="utf-8").splitlines():
        questions.add(normalised(json.loads(line)["corrected_question"]))
    for line in (shared_data / "pathquestion" / "PQ-2H.txt").read_text(encoding="utf-8").splitlines():
        questions.add(normalised(line.partition("\t")[0]))
    for line in (shared_data / "pathquestion" / "2H-kb.txt").read_text(encoding="utf-8").splitlines():
        titles.add(normalised(line.partition("\t")[0].replace("_", " ")))
    for line in (shared_data / "fever" / "claims-dev.jsonl").read_text(encoding="utf-8").splitlines():
        questions.add(normalised(json.loads(line)["claim"]))
    assert len(titles) > 500
    assert len(questions) > 1000

    own_titles = {normalised(demonstration.title) for demonstration in TRIPLES}
    own_titles |= {normalised(triple.head) for demonstration in OPEN_TRIPLES for triple in demonstration.triples}
    own_titles |= {normalised(triple.head) for demonstration in CHAINS for triple in demonstration.chain}
    own_titles |= {
        normalised(re.split("[];]", item[1:])[0])
        for row in (*READER, *RATIONALES, *VERIFICATIONS)
        for item in row.context
    }
    own_titles |= {normalised(row.subject) for row in QUESTIONS}
    own_titles |= {normalised(entity) for row in PATHS for triple in row.path for entity in (triple.head, triple.tail)}
    own_questions = {
        normalised(row.question) for row in (*CHAINS, *READER, *QUESTIONS, *RATIONALES, *VERIFICATIONS, *PATHS, *STEPS)
    } | {normalised(row.verifying_question) for row in VERIFICATIONS}
    own_questions |= {normalised(row.claim) for row in CLAIMS} | {normalised(row.question) for row in QUERIES}
    assert not own_titles & titles
    # Steps and facts are prose: nothing that the data is about may stand in them, in whatever spelling.
    prose = [step for row in STEPS for step in row.steps] + [text for row in CLAIMS for text in (row.claim, *row.facts)]
    said = f" {plain(' '.join(prose))} "
    assert not [title for title in map(plain, titles) if len(title) > 3 and f" {title} " in said]
    assert not own_questions & questions


@pytest.mark.data
def test_no_query_demonstration_names_an_entity_of_the_data_that_queries_are_measured_on(shared_data: Path) -> None:
    entities: set[str] = set()
    for line in (shared_data / "lcquad" / "train.jsonl").read_text(encoding="utf-8").splitlines():
        named = re.findall("<http://dbpedia.org/resource/([^>]*)>", json.loads(line)["sparql_query"])
        entities.update(plain(unquote(one).replace("_", " ")) for one in named)
    for line in (shared_data / "pathquestion" / "2H-kb.txt").read_text(encoding="utf-8").splitlines():
        head, _, tail = line.split("\t")
        entities.update(plain(one.replace("_", " ")) for one in (head, tail))
    for line in (shared_data / "fever" / "claims-dev.jsonl").read_text(encoding="utf-8").splitlines():
        evidence = [page for group in json.loads(line)["evidence"] for *_, page, _ in group if page]
        entities.update(plain(page.replace("_", " ")) for page in evidence)
    assert len(entities) > 2000
    own = {plain(name) for row in QUERIES for name in query_names(parse_query(row.query))[0]}
    assert len(own) > 5
    assert not own & entities


# A file of the user's own

TRIPLE_ROW = {
    "title": "Aldra",
    "text": "Aldra is a lake in Tosk.",
    "triples": [["type", "lake"], ["located in", "Tosk"]],
}
CHAIN_ROW = {
    "question": "Where does Ada live?",
    "kind": "bridge",
    "chain": [["Ada", "spouse", "Bo"], ["Bo", "home", "Tosk"]],
    "answer": "Tosk",
    "steps": [
        {"candidates": [["Ada", "age", "40"], ["Ada", "spouse", "Bo"]], "answer": 1},
        {"candidates": [["Bo", "home", "Tosk"]], "answer": 0},
        {"candidates": [["Ada", "age", "40"]], "answer": -1},
    ],
}
READER_ROW = {"kind": "triples", "context": ["<Ada; home; Tosk>"], "question": "Where is Ada?", "answer": "Tosk"}

QUESTION_ROW = {"question": "Where does Ada live?", "subject": "Ada", "triples": [["home", "Tosk"], ["age", "40"]]}
RATIONALE_ROW = {
    "context": ["[Ada] Ada lives in Tosk."],
    "question": "Where does Ada live?",
    "rationale": ["Ada lives in Tosk."],
    "answer": "Tosk",
}
VERIFICATION_ROW = {
    "question": "Where does Ada live?",
    "sentence": "Ada lives in Rome.",
    "verifying_question": "In which town does Ada live?",
    "context": ["[Ada] Ada lives in Tosk."],
    "answer": "Ada lives in Tosk.",
}

QUERY_ROW = {
    "form": "triplet",
    "question": "Where does Ada live?",
    "relations": ["home", "age"],
    "query": "<Ada; home; ?>",
}
SPARQL_ROW = {**QUERY_ROW, "form": "sparql", "query": "ask { entity:/Ada/ relation:/home/ ?x }"}
CLAIM_ROW = {"claim": "Ada lives in Rome.", "facts": ["Ada lives in Tosk."], "label": "REFUTES"}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_file_of_the_users_own_is_read_with_blank_lines_crlf_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    row = json.dumps({**TRIPLE_ROW, "text": "Ålder\u2028\u0085 Tosk lake."}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + f"{row}\r\n\r\n  \n{row}".encode())
    first, second = TripleDemonstration.load(path=path)
    assert first == second
    assert [triple.text for triple in first.triples] == ["<Aldra; type; lake>", "<Aldra; located in; Tosk>"]

    (chain,) = ChainDemonstration.load(path=str(write(tmp_path / "chains.jsonl", CHAIN_ROW)))
    assert [step.letter for step in chain.steps] == ["C", "B", "A"]

    documents = {**READER_ROW, "kind": "documents", "context": ["[Ada] Ada lives in Tosk."]}
    path = write(tmp_path / "reader.jsonl", READER_ROW, documents)
    assert [row.context for row in ReaderDemonstration.load_with("kind", "documents", path=path)] == [
        ("[Ada] Ada lives in Tosk.",)
    ]
    mixed = {**READER_ROW, "kind": "mixed", "context": ["<Ada; home; Tosk>", "[Ada] Ada lives in Tosk."]}
    assert (
        ReaderDemonstration.load_with("kind", "mixed", path=write(tmp_path / "mixed.jsonl", mixed))[0].answer == "Tosk"
    )

    (question,) = QuestionDemonstration.load(path=write(tmp_path / "questions.jsonl", QUESTION_ROW))
    assert [triple.text for triple in question.triples] == ["<Ada; home; Tosk>", "<Ada; age; 40>"]
    (rationale,) = RationaleDemonstration.load(path=write(tmp_path / "rationales.jsonl", RATIONALE_ROW))
    assert rationale.rationale == ("Ada lives in Tosk.",)
    (verification,) = VerificationDemonstration.load(path=write(tmp_path / "verifications.jsonl", VERIFICATION_ROW))
    assert verification.verifying_question == "In which town does Ada live?"
    (query,) = QueryDemonstration.load_with(
        "form", "triplet", path=write(tmp_path / "queries.jsonl", QUERY_ROW, SPARQL_ROW)
    )
    assert (query.relations, query.query) == (("home", "age"), "<Ada; home; ?>")
    (claim,) = ClaimDemonstration.load(path=write(tmp_path / "claims.jsonl", CLAIM_ROW))
    assert (claim.facts, claim.label) == (("Ada lives in Tosk.",), "REFUTES")


def with_step(index: int, **changes: object) -> dict[str, object]:
    """CHAIN_ROW with one step changed."""
    steps: list[Any] = list(CHAIN_ROW["steps"])
    steps[index] = {**steps[index], **changes}
    return {**CHAIN_ROW, "steps": steps}


MALFORMED: list[tuple[Callable[..., object], object, str]] = [
    (TripleDemonstration.load, [1, 2], "Expected `object`, got `array`"),
    (TripleDemonstration.load, {"title": "Aldra", "text": "A lake."}, "missing required field `triples`"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "heads": []}, "unknown field `heads`"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "title": " "}, "the title is empty"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "title": "A; B"}, "contains ';'"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "text": ""}, "the text is empty"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": []}, "has no triple"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["type", "lake", "x"]]}, "Expected `array` of length 2"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["type", 7]]}, "Expected `str`, got `int`"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["type", "Lake"]]}, "'Lake' is no span of the text"),
    *(
        (OpenTripleDemonstration.load, row, said)
        for row, said in [
            ({"triples": [["Bo", "has", "cat"]]}, "missing required field `text`"),
            ({"text": "Bo has a cat."}, "missing required field `triples`"),
            ({"text": "Bo has a cat.", "triples": []}, "the text 'Bo has a cat.' has no triple; label at least one"),
            ({"text": "Bo has a cat.", "triples": [["has", "cat"]]}, "Expected `array` of length 3"),
            ({"text": "Bo has a cat.", "triples": [["Bo", "has", "dog"]]}, "the tail 'dog' is no span of the text"),
            ({"text": "Bo has a cat.", "triples": [["Al", "has", "cat"]]}, "the head 'Al' is no span of the text"),
            ({"text": "Bo has a cat.", "triples": [["Bo", "h;s", "cat"]]}, "the relation 'h;s' contains ';'"),
            ({"text": "A cat.", "title": "", "triples": [["A", "is", "cat"]]}, "the title is empty"),
            ({"text": "A cat.", "title": 7, "triples": [["A", "is", "cat"]]}, "Expected `str | null`, got `int`"),
        ]
    ),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["", "lake"]]}, "the relation is empty"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["a;b", "lake"]]}, "contains ';'"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["type", "lake "]]}, "begins or ends with a space"),
    (TripleDemonstration.load, {**TRIPLE_ROW, "triples": [["type", "lake"]] * 2}, "twice"),
    (ChainDemonstration.load, {**CHAIN_ROW, "kind": "riddle"}, "Invalid enum value 'riddle'"),
    (ChainDemonstration.load, {**CHAIN_ROW, "question": ""}, "the question is empty"),
    (ChainDemonstration.load, {**CHAIN_ROW, "answer": ""}, "the answer is empty"),
    (ChainDemonstration.load, {**CHAIN_ROW, "chain": []}, "the chain is empty"),
    (ChainDemonstration.load, {**CHAIN_ROW, "chain": [["Ada", "spouse", "Bo"]] * 2}, "twice"),
    (
        ChainDemonstration.load,
        {**CHAIN_ROW, "steps": CHAIN_ROW["steps"][:2]},
        "2 steps for a chain of 2 triples; give 3",
    ),
    (ChainDemonstration.load, with_step(0, answer=2), "step 1 has the answer 2; it must be an index from 0 to 1"),
    (ChainDemonstration.load, with_step(0, answer=-1), "step 1 has the answer -1"),
    (ChainDemonstration.load, with_step(0, answer=0), "the answer of step 1 is <Ada; age; 40>"),
    (ChainDemonstration.load, with_step(1, candidates=[]), "step 2 has 0 candidates"),
    (
        ChainDemonstration.load,
        with_step(1, candidates=[["x", "y", str(i)] for i in range(26)]),
        "step 2 has 26 candidates",
    ),
    (ChainDemonstration.load, with_step(1, candidates=[["Bo", "home", "Tosk"]] * 2), "twice"),
    (
        ChainDemonstration.load,
        with_step(1, candidates=[["Bo", "home", "Tosk"], ["Ada", "spouse", "Bo"]]),
        "step 2 offers <Ada; spouse; Bo>, which the chain already holds",
    ),
    (ChainDemonstration.load, with_step(2, answer=0), "the last answer must be -1"),
    (
        lambda path: ReaderDemonstration.load_with("kind", "triples", path=path),
        {**READER_ROW, "kind": "x"},
        "Invalid enum value 'x'",
    ),
    (
        lambda path: ReaderDemonstration.load_with("kind", "triples", path=path),
        {**READER_ROW, "context": []},
        "the context is empty",
    ),
    (
        lambda path: ReaderDemonstration.load_with("kind", "triples", path=path),
        {**READER_ROW, "context": ["<a; b>"]},
        "no triple",
    ),
    (
        lambda path: ReaderDemonstration.load_with("kind", "triples", path=path),
        {**READER_ROW, "kind": "documents", "context": ["no title"]},
        "no document",
    ),
    *(
        (
            lambda path: ReaderDemonstration.load_with("kind", "mixed", path=path),
            {**READER_ROW, "kind": "mixed", "context": given},
            said,
        )
        for given, said in [
            (["<Ada; home; Tosk>"], "triples first and sentences after them; give at least one of each"),
            (["[Ada] Tosk."], "a mixed context needs triples"),
            (["[Ada] Tosk.", "<Ada; home; Tosk>"], "in this order"),
            (["<Ada; home; Tosk>", "Ada lives in Tosk."], "is neither <head; relation; tail> nor [title] sentence"),
        ]
    ),
    (QuestionDemonstration.load, {**QUESTION_ROW, "subject": "Bo"}, "the subject 'Bo' is no part of the question"),
    (QuestionDemonstration.load, {**QUESTION_ROW, "triples": []}, "'Where does Ada live?' has no triple"),
    (QuestionDemonstration.load, {**QUESTION_ROW, "triples": [["home", "Tosk"]] * 2}, "hold <Ada; home; Tosk> twice"),
    (QuestionDemonstration.load, {**QUESTION_ROW, "triples": [["ho;me", "Tosk"]]}, "the relation 'ho;me' contains ';'"),
    (QuestionDemonstration.load, {**QUESTION_ROW, "triples": [["home", " "]]}, "the tail is empty"),
    (RationaleDemonstration.load, {**RATIONALE_ROW, "rationale": []}, "the rationale is empty; give at least one text"),
    (RationaleDemonstration.load, {**RATIONALE_ROW, "rationale": ["a\nb"]}, "the rationale 'a\\nb' has a line break"),
    (RationaleDemonstration.load, {**RATIONALE_ROW, "context": []}, "the context is empty"),
    (RationaleDemonstration.load, {**RATIONALE_ROW, "thoughts": []}, "unknown field `thoughts`"),
    (VerificationDemonstration.load, {**VERIFICATION_ROW, "verifying_question": ""}, "the verifying question is empty"),
    (VerificationDemonstration.load, {**VERIFICATION_ROW, "answer": "a\nb"}, "the answer 'a\\nb' has a line break"),
    (VerificationDemonstration.load, {**VERIFICATION_ROW, "context": [" x"]}, "begins or ends with a space"),
    *(
        (lambda path: QueryDemonstration.load_with("form", "triplet", path=path), {**row, **changes}, said)
        for row, changes, said in [
            (QUERY_ROW, {"form": "prose"}, "Invalid enum value 'prose'"),
            (QUERY_ROW, {"relations": []}, "the question 'Where does Ada live?' has no relation"),
            (QUERY_ROW, {"relations": ["a;b"]}, "the relation 'a;b' contains ';'"),
            (QUERY_ROW, {"relations": ["age"]}, "the query's relation 'home' is not among the 1 that are listed"),
            (QUERY_ROW, {"query": "<Bo; home; ?>"}, "the query's entity 'Bo' is no part of the question"),
            (QUERY_ROW, {"query": "<Ada; home; Ada>"}, "the query '<Ada; home; Ada>' is no triplet"),
            (QUERY_ROW, {"query": "<Ada; ?; ?>"}, "the query '<Ada; ?; ?>' is no triplet"),
            (QUERY_ROW, {"query": "a\nb"}, "the query 'a\\nb' contains '\\n'"),
            (SPARQL_ROW, {"query": "ask { ?y ?z ?x }"}, "the query 'ask { ?y ?z ?x }' is no SPARQL with names"),
            (SPARQL_ROW, {"query": "ask entity:/Ada/"}, "the query 'ask entity:/Ada/' is no SPARQL with names"),
            (SPARQL_ROW, {"relations": ["age"]}, "the query's relation 'home' is not among the 1 that are listed"),
            (SPARQL_ROW, {"question": "Where?"}, "the query's entity 'Ada' is no part of the question"),
            (SPARQL_ROW, {"wrong": []}, "unknown field `wrong`"),
        ]
    ),
    (ClaimDemonstration.load, {**CLAIM_ROW, "label": "TRUE"}, "Invalid enum value 'TRUE'"),
    (ClaimDemonstration.load, {**CLAIM_ROW, "facts": []}, "the claim 'Ada lives in Rome.' has no fact"),
    (ClaimDemonstration.load, {**CLAIM_ROW, "facts": [""]}, "the fact is empty"),
    (ClaimDemonstration.load, {**CLAIM_ROW, "claim": "a\nb"}, "the claim 'a\\nb' has a line break"),
    (ClaimDemonstration.load, {**CLAIM_ROW, "facts": ["a\rb"]}, "the fact 'a\\rb' has a line break"),
    (ClaimDemonstration.load, {"claim": "x", "facts": ["y"]}, "missing required field `label`"),
]


@pytest.mark.parametrize(("load", "row", "reason"), MALFORMED, ids=[reason for _, _, reason in MALFORMED])
def test_a_malformed_row_is_refused_with_file_line_and_reason(
    tmp_path: Path, load: Callable[..., object], row: object, reason: str
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f"\n{json.dumps(row)}\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        load(path=path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert caught.value.line == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b'{"title": "\xff"}', b'{"title": "\\ud800"}', b'{"title"', b"nonsense\x00"]
)
def test_a_line_that_is_no_json_is_refused_with_its_place(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path / "mine.jsonl", TRIPLE_ROW)
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}:2: not a demonstration") as caught:
        TripleDemonstration.load(path=path)
    assert caught.value.exit_code == 2


def test_a_missing_unreadable_or_empty_file_is_refused_by_name(tmp_path: Path) -> None:
    for path, reason in [
        (tmp_path / "missing.jsonl", "No such file"),
        (tmp_path, "Is a directory"),
        ("with\0null", "null"),
    ]:
        with pytest.raises(DataError, match=f"cannot read the demonstrations .*{reason}"):
            ChainDemonstration.load(path=path)
    with pytest.raises(DataError, match="holds no demonstration"):
        TripleDemonstration.load(path=write(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match='no demonstration of kind "documents" among its 1'):
        ReaderDemonstration.load_with("kind", "documents", path=write(tmp_path / "reader.jsonl", READER_ROW))


def test_an_unknown_reader_kind_is_refused() -> None:
    with pytest.raises(ValueError, match='kind must be "triples", "documents" or "mixed", not \'sentences\''):
        ReaderDemonstration.load_with("kind", "sentences")
