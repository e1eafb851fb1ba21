"""KS-LLM and its variants: what questions become, which sentences are selected, and what the reader then sees."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError
from pytrace.methods.ks_llm import VARIANTS, KnowledgeSelection, KsSettings, Variant, prefix_of, write_documents
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.answers import INSTRUCTION, WITHOUT_CONTEXT
from pytrace.reader.prompts.reasoning import QuestionDemonstration
from pytrace.records import Answer, Document, Triple, Usage, WrittenTriples
from pytrace.retrieval import SentenceIndex
from pytrace.retrieval.nearest_sentences import nearest_sentences
from pytrace.triples.from_questions import INSTRUCTION as TRIPLES_INSTRUCTION
from pytrace.triples.from_questions import TripleConstructor, read_triples

HARBOUR = Document(
    "h",
    "Pellisk",
    ("The ferry leaves at noon.", "The harbour of Pellisk was built by Isaura Venn.", "Ropes are sold.", " "),
)
PERSON = Document("p", "Isaura Venn", ("She kept bees.", "Isaura Venn was born in Quillhaven.", "Honey was sold."))
EMPTY = Document("e", "Nothing", ("",))
QUESTION = "Where was the builder of Pellisk's harbour born?"
WRITTEN = (
    " Pellisk\n<Pellisk; harbour built by; Isaura Venn>\n<Pellisk; builder born in; Quillhaven>\n<Rome; river; Tiber>"
)


def script(prompt: str) -> str:
    """Write triples, a passage, a thought or an answer, whatever the prompt ends with."""
    end = prompt.rpartition("\n")[2]
    if end == "Subject:":
        return WRITTEN if "Pellisk" in prompt.rpartition("Question:")[2] else "nothing"
    if end == "Passage:":
        return "Bees live in Quillhaven. They make honey."
    if end == "Thoughts:":
        return "It was Isaura Venn. So the answer is Quillhaven."
    return "Quillhaven" if "Quillhaven" in prompt.rpartition("Context:")[2] else "unknown"


def method(variant: Variant = "ks-llm", model: ScriptedModel | None = None, **settings: object) -> KnowledgeSelection:
    chosen = msgspec.convert(settings, KsSettings)
    return KnowledgeSelection(model or ScriptedModel(script), HashEncoder(dimension=4096), chosen, variant=variant)


def ask(variant: Variant, *documents: Document, model: ScriptedModel | None = None, **settings: object) -> Answer:
    (answer,) = method(variant, model, **settings).answer([QUESTION], [documents])
    return answer


TRIPLES = ("<Pellisk; harbour built by; Isaura Venn>", "<Pellisk; builder born in; Quillhaven>")
SENTENCES = (
    "[Pellisk] The harbour of Pellisk was built by Isaura Venn.",
    "[Isaura Venn] Isaura Venn was born in Quillhaven.",
)
WHOLE = (f"[Pellisk] {HARBOUR.text.strip()}", f"[Isaura Venn] {PERSON.text}")


@pytest.mark.parametrize(
    ("variant", "kind", "context", "ids", "stages", "calls"),
    [
        ("standard", "none", (), (), {"read"}, 1),
        ("standard-doc", "documents", WHOLE, ("h", "p"), {"read"}, 1),
        ("cot-doc", "documents", WHOLE, ("h", "p"), {"read"}, 1),
        ("ks-q", "sentences", SENTENCES, ("h", "p"), {"select", "read"}, 1),
        ("ks-t", "triples", TRIPLES, (), {"triples", "read"}, 2),
        ("ks-s", "sentences", SENTENCES, ("h", "p"), {"triples", "select", "read"}, 2),
        ("ks-llm", "mixed", (*TRIPLES, *SENTENCES), ("h", "p"), {"triples", "select", "read"}, 2),
    ],
)
def test_every_variant_of_table_1_sees_what_its_row_says(
    variant: Variant, kind: str, context: tuple[str, ...], ids: tuple[str, ...], stages: set[str], calls: int
) -> None:
    model = ScriptedModel(script)
    answer = ask(variant, HARBOUR, EMPTY, PERSON, model=model)
    assert (answer.evidence.kind, answer.evidence.context, answer.evidence.document_ids) == (kind, context, ids)
    assert (answer.method, set(answer.usage), model.usage.calls) == (variant, stages, calls)
    assert answer.text == ("unknown" if variant == "standard" else "Quillhaven")
    shown = "".join(f"Context:\n{one}\n" if at == 0 else f"{one}\n" for at, one in enumerate(context))
    assert model.prompts[-1].endswith(
        f"\n\n{shown}Question: {QUESTION}\n{'Thoughts' if variant == 'cot-doc' else 'Answer'}:"
    )
    if variant != "cot-doc":
        assert model.prompts[-1].startswith(WITHOUT_CONTEXT if variant == "standard" else INSTRUCTION)
    derivation = answer.evidence.derivation
    written = tuple(one.text for one in derivation.triples) if isinstance(derivation, WrittenTriples) else ()
    assert written == (TRIPLES if variant in {"ks-t", "ks-s", "ks-llm"} else ())
    assert answer.evidence.reasoning.rationale == (("It was Isaura Venn.",) if variant == "cot-doc" else ())
    assert answer.context_tokens == sum(len(one.split()) for one in context)
    dropped = "1 of 3 lines of triples were dropped: malformed, or about something that the question does not name"
    assert answer.notes == ((dropped,) if written else ())


def test_the_variants_are_the_rows_of_table_1() -> None:
    assert VARIANTS == ("standard", "standard-doc", "cot-doc", "ks-q", "ks-t", "ks-s", "ks-llm")
    with pytest.raises(InputError, match="there is no variant 'ks' of KS-LLM; choose one of standard, standard-doc"):
        method("ks")  # type: ignore[arg-type]


def test_the_defaults_are_the_paper_s() -> None:
    settings = KsSettings()
    assert (settings.sentences, settings.document_tokens, settings.titles) == (2, 300, False)
    assert (settings.reader_demonstrations, settings.rationale_demonstrations) == (0, 0)
    assert settings.generate_documents
    for wrong in ({"sentences": 0}, {"triples": 0}, {"document_tokens": 0}, {"reader_demonstrations": -1}, {"k": 2}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, KsSettings)


def test_the_triples_and_not_the_question_choose_the_sentences() -> None:
    document = Document("d", "Notes", ("What is known of Pellisk's age?", "It has bees.", "Zorb quix."))
    model = ScriptedModel(lambda prompt: "Pellisk\n<Pellisk; zorb; quix>" if prompt.endswith("Subject:") else "x")
    chosen = {}
    for variant in ("ks-q", "ks-s"):
        (answer,) = method(variant, model, sentences=1).answer(["What is known of Pellisk's age?"], [[document]])  # type: ignore[arg-type]
        chosen[variant] = answer.evidence.context
    assert chosen == {"ks-q": ("[Notes] What is known of Pellisk's age?",), "ks-s": ("[Notes] Zorb quix.",)}


def test_titles_are_embedded_only_where_that_is_asked_for() -> None:
    documents = [
        Document("a", "Other", ("It is old.", "The builder was young.")),
        Document("b", "Pellisk harbour", ("It was begun in 1871.",)),
    ]
    plain, titled = (
        method("ks-q", titles=titles, sentences=1).answer(["Pellisk harbour?"], [documents])[0]
        for titles in (False, True)
    )
    assert plain.evidence.document_ids == ("a",)
    assert titled.evidence.document_ids == ("b",)


def test_selected_sentences_stand_in_the_order_of_the_documents() -> None:
    documents = [Document("1", "T", ("c d e.", "x.", "b c d e f.")), Document("2", "U", ("b c d e f g.",))]
    (answer,) = method("ks-q", sentences=3).answer(["b c d e f g?"], [documents])
    assert answer.evidence.context == ("[T] c d e.", "[T] b c d e f.", "[U] b c d e f g.")
    (answer,) = method("ks-q", sentences=9).answer(["b c d e f g?"], [documents])
    assert len(answer.evidence.context) == 4


def test_without_a_sound_triple_the_question_is_the_query_and_the_answer_says_so() -> None:
    model = ScriptedModel(lambda prompt: "I do not know.\n<<>" if prompt.endswith("Subject:") else "x")
    silent = ask("ks-llm", HARBOUR, PERSON, model=model)
    asked = ask("ks-q", HARBOUR, PERSON)
    assert silent.evidence.context == asked.evidence.context
    assert silent.evidence.derivation is None
    assert silent.notes == (
        "1 of 1 lines of triples were dropped: malformed, or about something that the question does not name",
        "the model wrote no sound triple about the question; the question itself was the query",
    )
    alone = ask("ks-t", model=ScriptedModel([""]))
    assert alone.notes == (
        "no evidence was found",
        "the model wrote no sound triple about the question",
    )


@pytest.mark.parametrize("variant", ["standard-doc", "cot-doc", "ks-q", "ks-s", "ks-llm"])
@pytest.mark.parametrize("documents", [(), (EMPTY,)])
def test_a_missing_document_is_written_by_the_model(variant: Variant, documents: tuple[Document, ...]) -> None:
    model = ScriptedModel(script)
    answer = ask(variant, *documents, model=model)
    (identity,) = answer.evidence.document_ids
    (again,) = write_documents(ScriptedModel(script), [QUESTION], max_tokens=99)
    assert again is not None
    assert (again.id, again.source) == (identity, "generated")
    assert identity.startswith("generated:")
    assert "the question has no document; the model wrote one" in answer.notes
    assert "Bees live in Quillhaven." in " ".join(answer.evidence.context)
    assert answer.usage["documents"].calls == 1
    assert answer.text == "Quillhaven"


def test_variants_that_read_no_document_have_none_written() -> None:
    for variant in ("standard", "ks-t"):
        assert "documents" not in ask(variant).usage  # type: ignore[arg-type]
    answer = ask("ks-llm", generate_documents=False)
    assert "documents" not in answer.usage
    assert answer.evidence.context == TRIPLES
    assert "the question has no document" in answer.notes
    silent = ask("ks-q", model=ScriptedModel(lambda prompt: "..." if prompt.endswith("Passage:") else "x"))
    assert silent.notes == (
        "no evidence was found; the answer is the model's own",
        "the question has no document, and the model wrote none",
    )


def test_a_written_document_ends_with_a_whole_sentence() -> None:
    model = ScriptedModel(["One two three. Four five six.", "One two three four five."])
    first, second = write_documents(model, ["a?", "b?"], max_tokens=4)
    assert first is not None
    assert second is not None
    assert first.sentences == ("One two three.",)
    assert second.sentences == ("One two three four",)
    assert first.id != second.id
    assert write_documents(model, [], max_tokens=4) == []


def test_a_long_document_is_cut_between_words_and_the_rest_is_left_out() -> None:
    answer = ask("standard-doc", HARBOUR, PERSON, EMPTY, document_tokens=22)
    assert answer.evidence.context == (WHOLE[0], "[Isaura Venn] She kept")
    assert answer.context_tokens == 22
    assert answer.evidence.document_ids == ("h", "p")
    assert answer.notes == ("the evidence document was cut to 22 tokens",)
    exact = ask("standard-doc", HARBOUR, PERSON, document_tokens=len(" ".join(WHOLE).split()))
    assert (exact.evidence.context, exact.notes) == (WHOLE, ())
    only = ask("standard-doc", HARBOUR, PERSON, document_tokens=len(WHOLE[0].split()))
    assert only.evidence.context == WHOLE[:1]
    assert only.notes


def characters(text: str) -> int:
    return len(text)


@given(st.text(alphabet="ab 日\n", max_size=60), st.integers(0, 40))
def test_the_beginning_of_a_text_is_the_longest_that_fits(text: str, most: int) -> None:
    for count in (characters, lambda text: len(text.split())):
        found = prefix_of(text, most, count)
        assert text.startswith(found)
        assert count(found) <= most
        rest = text[len(found) :]
        blanks = len(rest) - len(rest.lstrip())
        first = text[: len(text) - len(text.lstrip())] + "".join(text.split()[:1])
        if count(first) > most:  # not even a word fits
            assert len(found) == (most if count is characters and text.strip() else 0)  # blanks alone are no text
        elif rest.strip():
            # One word more would have been too many.
            assert blanks
            assert count(found + rest[:blanks] + rest.split()[0]) > most


def test_a_huge_text_is_cut_without_counting_all_of_it() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4 + 1

    for text in ("word " * 200_000, "日" * 1_000_000):
        counted.clear()
        assert 0 < count(prefix_of(text, 300, count)) <= 300
        assert max(counted) < 25_000
        assert len(counted) < 60


def test_questions_are_answered_together_as_one_by_one_and_each_stage_is_one_call() -> None:
    class Counting(ScriptedModel):
        batches = 0

        def generate(self, *arguments, **options):  # type: ignore[no-untyped-def]
            self.batches += 1
            return super().generate(*arguments, **options)

    questions = [QUESTION, "Where do bees live?", "What does Pellisk sell?"]
    documents = [[HARBOUR, PERSON], [], [PERSON]]
    for variant in VARIANTS:
        model = Counting(script)
        together = method(variant, model).answer(questions, documents)
        assert model.batches == {"ks-q": 2, "ks-s": 3, "ks-llm": 3, "ks-t": 2, "standard": 1}.get(variant, 2)
        for question, own, answer in zip(questions, documents, together, strict=True):
            (alone,) = method(variant).answer([question], [own])
            assert (alone.text, alone.evidence, alone.notes) == (answer.text, answer.evidence, answer.notes)
        spent = [sum(answer.usage.values(), Usage()).prompt_tokens for answer in together]
        assert sum(spent) == pytest.approx(model.usage.prompt_tokens, abs=8)
        assert method(variant).answer([], []) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_empty_questions_are_refused_before_any_work(variant: Variant) -> None:
    model = ScriptedModel(script)
    with pytest.raises(InputError, match="question 2 of 2 is empty; ask something"):
        method(variant, model).answer([QUESTION, " "], [[], []])
    with pytest.raises(ValueError, match="there are 1 questions but 2 lists of documents"):
        method(variant, model).answer([QUESTION], [[], []])
    assert model.usage == Usage()


@pytest.mark.parametrize("variant", VARIANTS)
def test_broken_text_goes_through_every_variant(variant: Variant) -> None:
    broken = Document("b", "\ud800", ("\udfff half.", "\x00", "日本語" * 500))
    for said in ("\ud800", "<\ud800; \x00; >", "<a;b;c>\n" * 50, ";" * 500, "<" * 500):
        (answer,) = method(variant, ScriptedModel([said])).answer(["\udc00 Where is a?"], [[broken, EMPTY]])
        assert isinstance(answer.text, str)


# Triples from a question


def test_a_question_is_shown_after_labelled_ones_with_their_triples() -> None:
    model = ScriptedModel(["Ada\n<Ada; home; Tosk>"])
    labelled = [
        QuestionDemonstration("Old?", "Old", (("a", "b"),)),
        QuestionDemonstration("Who is Bo?", "Bo", (("age", "40"), ("home", "Rome"))),
    ]
    (found,) = TripleConstructor(model, demonstrations=1, labelled=labelled).construct(["Where does Ada live?"])
    assert model.prompts[0].split("\n\n") == [
        TRIPLES_INSTRUCTION,
        "Question: Who is Bo?\nSubject: Bo\n<Bo; age; 40>\n<Bo; home; Rome>",
        "Question: Where does Ada live?\nSubject:",
    ]
    assert found.triples == (Triple("Ada", "home", "Tosk"),)
    TripleConstructor(model).construct(["Ada?"])
    assert [one.question in model.prompts[1] for one in QuestionDemonstration.load()][-3:] == [True] * 3
    TripleConstructor(model, demonstrations=0).construct(["Ada?"])
    assert model.prompts[2] == f"{TRIPLES_INSTRUCTION}\n\nQuestion: Ada?\nSubject:"
    with pytest.raises(ValueError, match="demonstrations must be 0 or more, not -1"):
        TripleConstructor(model, demonstrations=-1)
    assert TripleConstructor(model).construct([]) == []


@pytest.mark.parametrize(
    ("written", "subject", "triples", "lines", "dropped"),
    [
        (" Ada\n<Ada; home; Tosk>", "Ada", ["<Ada; home; Tosk>"], 1, 0),
        ("Ada.\n\n1. <Ada; home; Tosk>\n- <Ada; age; 40", "Ada", ["<Ada; home; Tosk>", "<Ada; age; 40>"], 2, 0),
        ("Ada <Ada; home; Tosk>", "Ada", ["<Ada; home; Tosk>"], 1, 0),
        ("<Ada; home; Tosk>", "", ["<Ada; home; Tosk>"], 1, 0),
        ("Ada\n<home; Tosk>", "Ada", ["<Ada; home; Tosk>"], 1, 0),
        ("Ada\n<Ada; home; Tosk>\n<ada; Home; tosk>", "Ada", ["<Ada; home; Tosk>"], 2, 0),
        ("Ada\n<Bo; home; Tosk>\n<Ada; home; Tosk>", "Ada", ["<Ada; home; Tosk>"], 2, 1),
        ("Ada\n<Ada; home; ?>\n<Ada; home>", "Ada", [], 2, 2),
        ("Ada\nnothing\n<<<>", "Ada", [], 2, 2),
        ("Rome\n<Rome; river; Tiber>", "Rome", [], 1, 1),
        ("Ada", "Ada", [], 0, 0),
        ("", "", [], 0, 0),
        (" \n\n", "", [], 0, 0),
    ],
)
def test_triples_are_read_leniently_and_what_is_dropped_is_counted(
    written: str, subject: str, triples: list[str], lines: int, dropped: int
) -> None:
    found = read_triples(written, "Where does Ada live, and who else?", most=5)
    assert (found.subject, [triple.text for triple in found.triples]) == (subject, triples)
    assert (found.lines, found.dropped) == (lines, dropped)


def test_no_more_triples_are_kept_than_are_asked_for_and_a_cut_one_is_not() -> None:
    written = "Ada\n" + "\n".join(f"<Ada; friend; F{number}>" for number in range(9))
    found = read_triples(written, "Ada?", most=3)
    assert [triple.tail for triple in found.triples] == ["F0", "F1", "F2"]
    cut = "Ada\n<Ada; friend; Bo>\n<Ada; home; To"
    assert [triple.tail for triple in read_triples(cut, "Ada?", most=5).triples] == ["Bo", "To"]
    assert [triple.tail for triple in read_triples(cut, "Ada?", most=5, complete=False).triples] == ["Bo"]
    model = ScriptedModel([" ".join(["Ada\n<Ada; friend; Bo>\n<Ada; home;", *["x"] * 90])])
    (found,) = TripleConstructor(model, max_tokens=20).construct(["Ada?"])
    assert [triple.tail for triple in found.triples] == ["Bo"]
    assert (found.lines, found.dropped) == (2, 1)


@given(st.text(max_size=80) | st.text(alphabet="<>;a \n\ud800", max_size=80), st.text(max_size=20))
def test_no_output_breaks_the_reading_of_triples(written: str, question: str) -> None:
    found = read_triples(written, question, most=5)
    assert 0 <= found.dropped <= found.lines
    for triple in found.triples:
        assert triple.head.strip()
        assert triple.relation.strip()
        assert triple.tail.strip()


# Nearest sentences


@given(st.data())
def test_nearest_sentences_are_those_of_plain_numpy(data: st.DataObject) -> None:
    words = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4).map(" ".join)
    lists = data.draw(st.lists(st.lists(words, max_size=6), min_size=1, max_size=4))
    owners = sorted(data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=5)))
    queries = data.draw(st.lists(words, min_size=len(owners), max_size=len(owners)))
    count = data.draw(st.integers(1, 4))
    encoder = HashEncoder(dimension=16)
    found = nearest_sentences(queries, lists, encoder, count, owners=owners)
    for query, owner, places in zip(queries, owners, found, strict=True):
        assert places == sorted(set(places))
        assert len(places) == min(count, len(lists[owner]))
        distances = np.linalg.norm(encoder.encode(lists[owner]) - encoder.encode([query]), axis=1)
        assert np.sort(distances[places]) == pytest.approx(np.sort(distances)[: len(places)], abs=1e-6)


def test_distance_is_euclidean_and_not_the_inner_product() -> None:
    class Lengths(HashEncoder):
        def encode(self, texts, *, kind="passage"):  # type: ignore[no-untyped-def, override]
            del kind
            return np.array([[float(text), 1.0] for text in texts], dtype=np.float32).reshape(len(texts), 2)

    assert nearest_sentences(["1"], [["9", "2", "5"]], Lengths(dimension=2), 1) == [[1]]


def test_queries_and_lists_must_belong_together() -> None:
    encoder = HashEncoder()
    assert nearest_sentences([], [], encoder, 2) == []
    assert nearest_sentences(["a", "b"], [[], []], encoder, 2) == [[], []]
    assert nearest_sentences(["a", "b"], [[], ["b"]], encoder, 2) == [[], [0]]
    assert nearest_sentences(["a", "a"], [["b", "a"], ["c"]], encoder, 1, owners=[0, 0]) == [[1], [1]]
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        nearest_sentences(["a"], [["a"]], encoder, 0)
    with pytest.raises(ValueError, match="there are 1 queries but 2 lists of sentences"):
        nearest_sentences(["a"], [["a"], ["b"]], encoder, 1)
    for owners in ([1, 0], [0], [0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="owners must name one of 2 lists for each of 2 queries"):
            nearest_sentences(["a", "b"], [["a"], ["b"]], encoder, 1, owners=owners)


@pytest.mark.models
def test_the_tiny_models_find_the_sentence_with_the_answer(tiny_models: dict[str, Path]) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    documents = [
        Document("1", "Pellisk Ferry", ("The ferry leaves at noon.", "It carries mail and bread.")),
        Document("2", "Isaura Venn", ("She kept bees.", "Isaura Venn was born in the town of Quillhaven in 1840.")),
    ]
    with LlamaCppModel(tiny_models["language-model"], name="tiny", context=2048, style="plain") as tiny:
        encoder = OnnxEncoder(tiny_models["encoder"])
        settings = KsSettings(sentences=1, reader_demonstrations=2, triple_demonstrations=1, generated_tokens=32)
        (answer,) = KnowledgeSelection(tiny, encoder, settings).answer(
            ["In which town was Isaura Venn born?"], [documents]
        )
    assert answer.evidence.context[-1] == f"[Isaura Venn] {documents[1].sentences[1]}"
    assert all(
        triple.head.casefold() in "in which town was isaura venn born?" for triple in answer.evidence.derivation.triples
    )
    assert "Quillhaven" in answer.text
    assert answer.usage["triples"].calls == answer.usage["read"].calls == 1


def test_sentences_come_from_an_index_where_there_is_one() -> None:
    index = SentenceIndex(HashEncoder())
    town = Document("1", "Ada Foah", ("The town has a beach.", "", "It lies in Ghana."))
    other = Document("2", "Lima", ("Lima lies in Peru.",))
    assert index.add_documents([other, town, town]) == 3
    model = ScriptedModel(["Ada Foah\n<Ada Foah; lies in; Ghana>", "Ghana"])
    method = KnowledgeSelection(model, HashEncoder(), KsSettings(sentences=2), index=index)
    (answer,) = method.answer(["In which country is Ada Foah?"], [[]])
    # In the order in which they were added, as sentences of documents stand in theirs.
    assert answer.evidence.context == (
        "<Ada Foah; lies in; Ghana>",
        "[Lima] Lima lies in Peru.",
        "[Ada Foah] It lies in Ghana.",
    )
    assert answer.evidence.document_ids == ("2", "1")
    assert answer.notes == ()
    assert "documents" not in answer.usage


@pytest.mark.parametrize(
    ("variant", "titles", "said"),
    [
        ("standard-doc", False, "selects no sentences and has no use for an index"),
        ("ks-llm", True, "titles=true cannot be had"),
    ],
)
def test_an_index_that_cannot_be_used_is_refused(variant: Variant, *, titles: bool, said: str) -> None:
    with pytest.raises(InputError, match=said):
        KnowledgeSelection(
            ScriptedModel(),
            HashEncoder(),
            KsSettings(titles=titles),
            variant=variant,
            index=SentenceIndex(HashEncoder()),
        )
