"""What the reader sees of the chains, and what becomes of what it writes; and which documents of a corpus are near."""

from __future__ import annotations

import hashlib

import pytest

from pytrace.errors import ContextOverflowError
from pytrace.methods.baselines import Rag
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.answers import INSTRUCTION, WITHOUT_CONTEXT, Reader, clean_answer, fit_context, normalise_answer
from pytrace.reader.evidence import (
    all_documents,
    count_votes,
    document_evidence,
    document_text,
    supporting_sentence,
    triple_evidence,
)
from pytrace.reader.prompts import ReaderDemonstration
from pytrace.records import Chain, Document, Evidence, Origin, TextUnit, Triple
from pytrace.retrieval import nearest_documents

DOCUMENTS = {
    name: Document(name, name.upper(), (f"{name} one.", f"{name} two."), f"{name}.txt") for name in ("a", "b", "c", "d")
}
A0, A1, B0, C0 = (
    Triple(name.upper(), "r", f"{name}{number}", name, number)
    for name, number in (("a", 0), ("a", 1), ("b", 0), ("c", 0))
)


def chain(*triples: Triple, score: float = -1.0) -> Chain:
    return Chain(triples, (score,) * len(triples), score * len(triples), finished=False)


def test_triples_stand_in_the_order_of_their_first_appearance_without_repeats() -> None:
    evidence = triple_evidence([chain(B0, A1), chain(A0, B0), chain(A1, C0)])
    assert evidence.kind == "triples"
    assert evidence.context == (B0.text, A1.text, A0.text, C0.text)
    assert evidence.document_ids == ("b", "a", "c")
    assert evidence.votes == {"b": 2, "a": 3, "c": 1}
    assert len(evidence.chains) == 3


def test_one_triple_of_two_documents_is_read_once_and_votes_for_both() -> None:
    twin = Triple(A0.head, A0.relation, A0.tail, "d", 1)
    evidence = triple_evidence([chain(A0, twin)])
    assert evidence.context == (A0.text,)
    assert evidence.document_ids == ("a", "d")
    assert evidence.votes == {"a": 1, "d": 1}


def test_every_triple_of_every_chain_votes_for_its_document() -> None:
    chains = [chain(C0, A0), chain(C0, B0), chain(A1, B0), chain(C0)]
    assert count_votes(chains) == {"c": 3, "a": 2, "b": 2}
    evidence = document_evidence(chains, DOCUMENTS)
    # Among equals the document whose triple appears first comes first; d, without a vote, is left out.
    assert evidence.document_ids == ("c", "a", "b")
    assert evidence.context == tuple(document_text(DOCUMENTS[name]) for name in "cab")
    assert evidence.kind == "documents"
    assert document_evidence(chains, DOCUMENTS, most=2).document_ids == ("c", "a")
    assert document_evidence(chains, DOCUMENTS, most=2).votes == {"c": 3, "a": 2, "b": 2}
    assert document_evidence(chains, DOCUMENTS, most=9).document_ids == ("c", "a", "b")


def passage(number: int, title: str, start: int, *sentences: str) -> Document:
    starts = [start]
    for sentence in sentences[:-1]:
        starts.append(starts[-1] + len(sentence) + 1)
    origin = Origin(
        "r", "Report", page=number, start=start, end=starts[-1] + len(sentences[-1]), sentences=tuple(starts)
    )
    return Document(f"r#{number}", title, sentences, "r.pdf", origin)


def test_passages_that_follow_each_other_are_read_as_one_text() -> None:
    first, second = passage(1, "Report", 0, "One.", "Two."), passage(2, "Report", 11, "Three.")
    below, far = passage(3, "Report > Risks", 19, "Four."), passage(9, "Report", 90, "Nine.")
    by_id = {each.id: each for each in (first, second, below, far, DOCUMENTS["a"])}
    chains = [
        chain(*(Triple("x", "r", "y", each) for each in ids)) for ids in (("r#2", "r#9", "a", "r#1", "r#3"), ("r#2",))
    ]
    evidence = document_evidence(chains, by_id)
    assert evidence.document_ids == ("r#2", "r#9", "a", "r#1", "r#3")
    expected = ("[Report] One. Two.\nThree.", "[Report] Nine.", "[A] a one. a two.", "[Report > Risks] Four.")
    assert evidence.context == expected
    repeating = passage(2, "Report", 5, "Two.", "Three.")  # a space between them: of one block
    assert all_documents([repeating, first]).context == ("[Report] One. Two. Three.",)


def test_a_citation_says_page_headings_and_characters() -> None:
    origin = Origin("r", "Report", ("Risks", "Currency"), 12, 40, 51, (40, 46))
    document = Document("r#4", "Report > Risks > Currency", ("Four.", "Five."), "r.pdf", origin)
    assert document.citation() == "r.pdf, p. 12, Risks > Currency, characters 40-51"
    assert document.citation(1) == "r.pdf, p. 12, Risks > Currency, characters 46-51"
    assert document.citation(7) == document.citation(), "a sentence that it does not have"
    assert DOCUMENTS["a"].citation(1) == "a.txt"
    over = Document(
        "r#5", "Report", ("Four.", "Five."), "r.pdf", Origin("r", "Report", (), 12, 40, 51, (40, 46), (12, 13))
    )
    assert over.citation() == "r.pdf, pp. 12-13, characters 40-51"
    assert over.citation(1) == "r.pdf, p. 13, characters 46-51"


def test_no_chains_are_no_evidence() -> None:
    for evidence in (triple_evidence([]), document_evidence([], DOCUMENTS)):
        assert (evidence.context, evidence.document_ids, evidence.votes, evidence.chains) == ((), (), {}, ())


def test_all_documents_keep_their_order() -> None:
    evidence = all_documents([DOCUMENTS["c"], DOCUMENTS["a"]])
    assert evidence.context == ("[C] c one. c two.", "[A] a one. a two.")
    assert evidence.document_ids == ("c", "a")


def test_the_supporting_sentence_is_the_one_that_the_triple_names() -> None:
    assert supporting_sentence(A1, DOCUMENTS) == "a two."
    assert supporting_sentence(TextUnit("A", "x", "a", -1), DOCUMENTS) == "a one. a two."
    assert supporting_sentence(TextUnit("A", "x", "nowhere", 0), DOCUMENTS) == ""


LABELLED = (
    ReaderDemonstration("triples", ("<x; y; z>",), "What is x?", "z"),
    ReaderDemonstration("documents", ("[x] y is z.",), "What is y?", "zz"),
    ReaderDemonstration("triples", ("<p; q; r>",), "What is p?", "r"),
)


def evidence_of(*context: str, kind: str = "triples") -> Evidence:
    return Evidence(kind, context, ())  # type: ignore[arg-type]


def test_the_context_stands_before_the_question_and_demonstrations_are_of_its_kind() -> None:
    model = ScriptedModel(["Ghana"])
    reader = Reader(model, demonstrations=2, labelled=LABELLED)
    (reading,) = reader.read(["Where is it?"], [evidence_of("<a; b; c>", "<d; e; f>")])
    assert model.prompts[0].split("\n\n") == [
        INSTRUCTION,
        "Context:\n<x; y; z>\nQuestion: What is x?\nAnswer: z",
        "Context:\n<p; q; r>\nQuestion: What is p?\nAnswer: r",
        "Context:\n<a; b; c>\n<d; e; f>\nQuestion: Where is it?\nAnswer:",
    ]
    assert (reading.text, reading.context_tokens, reading.left_out) == ("Ghana", 6, 0)
    reader.read(["Where?"], [evidence_of("[a] b.", kind="documents")])
    assert "What is y?" in model.prompts[1]
    assert "What is x?" not in model.prompts[1]


def test_the_reader_of_the_paper_sees_no_demonstration() -> None:
    model = ScriptedModel(["x"])
    Reader(model, demonstrations=0).read(["Where?"], [evidence_of("<a; b; c>")])
    assert model.prompts == [f"{INSTRUCTION}\n\nContext:\n<a; b; c>\nQuestion: Where?\nAnswer:"]


@pytest.mark.parametrize("kind", ["triples", "documents"])
def test_our_own_demonstrations_serve_both_kinds(kind: str) -> None:
    model = ScriptedModel(["x"])
    Reader(model).read(["Where?"], [evidence_of("<a; b; c>", kind=kind)])
    for one in ReaderDemonstration.load_with("kind", kind)[-2:]:
        assert f"Question: {one.question}\nAnswer: {one.answer}\n\n" in model.prompts[0]


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("triples", "6048a45fe0814b64201c6737ec5f99447059609423cc7eb2ab5abb1b4a6b201c"),
        ("documents", "89beee89ac9cc41b006c32185787818e534ad5f1ff43c5be0f7b65bc010acbb2"),
    ],
)
def test_the_prompts_that_recorded_measurements_rest_on_are_the_same_to_the_letter(kind: str, digest: str) -> None:
    model = ScriptedModel(["x"])
    Reader(model, demonstrations=4).read(["Where is Ada Foah?"], [evidence_of("<a; b; c>", "[d] e.", kind=kind)])
    assert hashlib.sha256(model.prompts[0].encode()).hexdigest() == digest


def test_sentences_are_shown_as_documents_are() -> None:
    prompts = []
    for kind in ("sentences", "documents"):
        model = ScriptedModel(["x"])
        Reader(model, demonstrations=2).read(["Where?"], [evidence_of("[a] b.", kind=kind)])
        prompts += model.prompts
    assert prompts[0] == prompts[1]
    assert prompts[0].count("Context:") == 3


def test_triples_and_sentences_together_have_demonstrations_of_their_own() -> None:
    model = ScriptedModel(["x"])
    Reader(model, demonstrations=1).read(["Where?"], [evidence_of("<a; b; c>", "[d] e.", kind="mixed")])
    shown = ReaderDemonstration.load_with("kind", "mixed")[-1]
    context = "\n".join(["Context:", *shown.context])
    assert model.prompts[0].split("\n\n") == [
        INSTRUCTION,
        f"{context}\nQuestion: {shown.question}\nAnswer: {shown.answer}",
        "Context:\n<a; b; c>\n[d] e.\nQuestion: Where?\nAnswer:",
    ]


def test_where_there_is_to_be_no_context_nothing_speaks_of_one() -> None:
    model = ScriptedModel(["x"])
    Reader(model, demonstrations=12).read(["Where?"], [evidence_of(kind="none")])
    (prompt,) = model.prompts
    assert prompt.startswith(f"{WITHOUT_CONTEXT}\n\nQuestion: ")
    assert "context" not in prompt.lower()
    for kind in ("triples", "documents", "mixed"):
        for one in ReaderDemonstration.load_with("kind", kind):
            assert f"\n\nQuestion: {one.question}\nAnswer: {one.answer}\n\n" in prompt
    Reader(model, demonstrations=0).read(["Where?"], [evidence_of(kind="none")])
    assert model.prompts[1] == f"{WITHOUT_CONTEXT}\n\nQuestion: Where?\nAnswer:"
    Reader(model, demonstrations=2, labelled=LABELLED).read(["Where?"], [evidence_of(kind="none")])
    assert model.prompts[2].split("\n\n")[1:3] == [
        "Question: What is y?\nAnswer: zz",
        "Question: What is p?\nAnswer: r",
    ]


def test_kinds_of_evidence_may_stand_side_by_side_in_one_call() -> None:
    model = ScriptedModel(["x"])
    kinds = ("none", "mixed", "sentences", "triples", "documents")
    readings = Reader(model, demonstrations=1).read(["Where?"] * 5, [evidence_of(kind=kind) for kind in kinds])
    assert [reading.text for reading in readings] == ["x"] * 5
    assert [prompt.startswith(WITHOUT_CONTEXT) for prompt in model.prompts] == [True, False, False, False, False]


def test_without_evidence_the_question_stands_alone() -> None:
    model = ScriptedModel(["x"])
    (reading,) = Reader(model, demonstrations=0).read(["Where?"], [evidence_of()])
    assert model.prompts == [f"{INSTRUCTION}\n\nQuestion: Where?\nAnswer:"]
    assert (reading.context_tokens, reading.left_out) == (0, 0)


def test_questions_are_answered_in_one_call_and_in_order() -> None:
    model = ScriptedModel(lambda prompt: prompt.rpartition("Question: ")[2].split("?")[0].upper())
    readings = Reader(model).read(["one?", "two?", "three?"], [evidence_of("<a; b; c>")] * 3)
    assert [reading.text for reading in readings] == ["ONE", "TWO", "THREE"]
    assert Reader(model).read([], []) == []


def entries(count: int, words: int) -> list[str]:
    return [" ".join([f"[{number}]", *["word"] * (words - 1)]) for number in range(count)]


def test_what_does_not_fit_the_context_is_left_out_from_the_end_and_counted() -> None:
    model = ScriptedModel(["x"], context_tokens=300)
    context = entries(10, 40)
    (reading,) = Reader(model, demonstrations=0).read(["Where is it?"], [evidence_of(*context)])
    kept = 10 - reading.left_out
    assert 0 < kept < 10
    assert reading.context_tokens == 40 * kept
    assert "\n".join(context[:kept]) in model.prompts[0]
    assert context[kept] not in model.prompts[0]
    assert model.count_tokens(model.prompts[0]) + 32 <= 300
    # One more would still have been too many.
    assert model.count_tokens(model.prompts[0]) + 40 + 32 + 64 > 300


def test_a_first_entry_that_does_not_fit_is_an_error_with_numbers_and_remedy() -> None:
    model = ScriptedModel(["x"], context_tokens=200)
    with pytest.raises(ContextOverflowError) as caught:
        Reader(model).read(["Where is it?"], [evidence_of(*entries(2, 500))])
    assert str(caught.value) == (
        "the first of 2 context entries has 500 tokens, and with a question of 3 and an answer of up to 32 not one sentence "
        "of it fits the 200 tokens of scripted; use a model with a longer context, or a shorter question or document"
    )


def test_a_context_is_fitted_with_room_for_the_instruction_and_the_answer() -> None:
    model = ScriptedModel(context_tokens=200)
    whole = fit_context(model, "one two", "three", entries(3, 20), max_tokens=30)
    assert (whole.entries, whole.left_out) == (tuple(entries(3, 20)), 0)
    fewer = fit_context(model, "one two", "three", entries(3, 20), max_tokens=68)
    assert (fewer.entries, fewer.left_out) == (tuple(entries(2, 20)), 1)
    assert fit_context(model, "one two", "three", [], max_tokens=900).entries == ()


def test_evaluation_and_answers_normalise_alike() -> None:
    from pytrace.evaluation.scores import metrics

    assert metrics.normalise_answer is normalise_answer


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (" Ghana\n", "Ghana"),
        ("Ghana.", "Ghana"),
        ("The answer is Ghana.", "Ghana"),
        ("the correct answer is: Ghana", "Ghana"),
        ("Answer: Ghana", "Ghana"),
        ('"Ghana."', "Ghana"),
        ("'Ghana'", "Ghana"),
        ("'Ghana's capital'", "Ghana's capital"),
        ('"Ghana" and "Togo"', '"Ghana" and "Togo"'),
        ("„Ghana“, „Togo“", "„Ghana“, „Togo“"),
        ("「ガーナ」と「トーゴ」", "「ガーナ」と「トーゴ」"),
        ('"Ghana""Togo"', '"Ghana""Togo"'),
        ("'The dogs' and cats' home'", "The dogs' and cats' home"),
        ("Ghana\nQuestion: and now?", "Ghana"),
        ("Washington, D.C.", "Washington, D.C."),
        ("J. R. R.", "J. R. R."),
        ("The Answers", "The Answers"),
        ("the 'Ghana'", "the 'Ghana'"),
        ('"', '"'),
        (".", ""),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_answers_are_cleaned_of_what_is_said_around_them(written: str, expected: str) -> None:
    assert clean_answer(written) == expected


def test_a_document_is_as_near_as_its_nearest_sentence() -> None:
    corpus = [
        Document(
            "long", "Harbours", ("Ships come.", "The ferry to Pellisk leaves at noon.", *["Ropes are sold."] * 30)
        ),
        Document("other", "Bread", ("Bread is baked at dawn.",)),
        Document("empty", "Nothing", ()),
        Document("near", "Ferries", ("A ferry may leave late.",)),
    ]
    found = nearest_documents("When leaves the ferry to Pellisk?", corpus, HashEncoder(dimension=4096), 2)
    assert [document.id for document in found] == ["long", "near"]
    found = nearest_documents("When leaves the ferry to Pellisk?", corpus, HashEncoder(dimension=4096), 3)
    assert [document.id for document in found] == ["long", "near", "other"]


def test_a_small_corpus_is_taken_as_it_is() -> None:
    corpus = list(DOCUMENTS.values())
    assert nearest_documents("d?", corpus, HashEncoder(), 4) == corpus
    assert nearest_documents("d?", [], HashEncoder(), 4) == []


def test_documents_without_text_come_last_in_their_order() -> None:
    corpus = [Document(str(number), "T", ()) for number in range(3)]
    assert nearest_documents("x?", corpus, HashEncoder(), 2) == corpus[:2]
    corpus.append(Document("3", "T", ("text",)))
    assert [document.id for document in nearest_documents("x?", corpus, HashEncoder(), 3)] == ["3", "0", "1"]


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        nearest_documents("x?", [], HashEncoder(), 0)


def test_a_document_longer_than_the_context_is_read_up_to_a_sentence_border_and_noted() -> None:
    sentences = tuple(f"Sentence number {number} has these eight words." for number in range(100))
    document = Document("1", "Long", sentences)
    model = ScriptedModel(["x"], context_tokens=300)
    (answer,) = Rag(model).answer(["What?"], [[document]])
    (prompt,) = model.prompts
    assert prompt.count("has these eight words.") == prompt.count("Sentence number") > 10
    assert len(prompt.split()) < 300
    assert answer.notes == ("1 of 1 context entries did not fit the model's context whole",)
