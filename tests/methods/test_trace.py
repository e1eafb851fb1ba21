"""TRACE and its baseline as a whole, with scripted models and once with the real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from pytrace.documents import read_documents
from pytrace.errors import InputError, LogitsUnavailableError, StoreError
from pytrace.methods.abilities import CAPABLE, UNABLE
from pytrace.methods.baselines import Rag
from pytrace.methods.catalog import method_settings
from pytrace.methods.trace.selector import BlackBoxSelector, LetterSelector, RankerSelector, TextSelector
from pytrace.methods.trace.trace import Trace, TraceSettings, make_selector
from pytrace.methods.trace.triple_method import make_extractor
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Answer, Document, TextUnit, Triple, Usage
from pytrace.triples.graph import Recipe, TripleStore

EXAMPLES = Path(__file__).parents[2] / "examples"

OBSERVATORY = Document(
    "obs", "Orrin Head", ("Orrin Head was founded by Isaura Venn.", "It was built in 1871."), "obs.txt"
)
FOUNDER = Document("venn", "Isaura Venn", ("Isaura Venn was born in Quillhaven.", "She kept bees."), "venn.txt")
FERRY = Document("ferry", "Pellisk Ferry", ("The ferry leaves at noon.", "It carries mail."), "ferry.txt")
DOCUMENTS = [FERRY, OBSERVATORY, FOUNDER]
QUESTION = "In which town was the founder of Orrin Head born?"

FACTS = {
    "Orrin Head": " founded by; Isaura Venn>\n<Orrin Head; built in; 1871>",
    "Isaura Venn": " born in; Quillhaven>\n<Isaura Venn; kept; bees>",
    "Pellisk Ferry": " leaves at; noon>\n<Pellisk Ferry; carries; mail>",
}


def script(prompt: str) -> str:
    """Extract triples where a title is asked about, and else answer with the last known place of the context."""
    asked = re.search(r"<([^<>;]*);$", prompt)
    if asked:
        return FACTS.get(asked[1], "nothing")
    if prompt.endswith("Next:"):
        return "B"
    context = prompt.rpartition("Context:")[2]
    return "Quillhaven" if "Quillhaven" in context else "unknown"


def model(*, gives_logits: bool = True) -> ScriptedModel:
    return ScriptedModel(script, gives_logits=gives_logits)


def trace(method_model: ScriptedModel | None = None, **settings: object) -> Trace:
    chosen = msgspec.convert({"candidates": 5, "length": 2, "beams": 2, "chains": 2, **settings}, TraceSettings)
    return Trace(method_model or model(), HashEncoder(dimension=4096), chosen)


@pytest.mark.parametrize("scoring", ["letters", "likelihood", "pmi", "ranker", "black-box"])
@pytest.mark.parametrize("unit", ["triple", "sentence", "document"])
@pytest.mark.parametrize("reader", ["triple", "document"])
def test_every_unit_scoring_and_reader_answers_with_chains_that_lead_to_sentences(
    unit: str, scoring: str, reader: str
) -> None:
    (answer,) = trace(unit=unit, scoring=scoring, reader=reader).answer([QUESTION], [DOCUMENTS])
    assert (answer.question, answer.method) == (QUESTION, "trace")
    assert 1 <= len(answer.evidence.chains) <= (1 if scoring == "black-box" else 2)
    by_id = {document.id: document for document in DOCUMENTS}
    for chain in answer.evidence.chains:
        assert 1 <= len(chain.units) <= 2
        for triple in chain.units:
            document = by_id[triple.document_id]
            if unit == "triple":
                assert isinstance(triple, Triple)
                assert triple.head == document.title
                assert triple.relation
                assert triple.tail in document.sentences[triple.sentence]
                continue
            assert isinstance(triple, TextUnit)
            assert triple.title == document.title
            if unit == "document":
                assert (triple.body, triple.sentence) == (document.text, -1)
            else:
                assert triple.body == document.sentences[triple.sentence]
    assert answer.evidence.kind == ("documents" if reader == "document" else f"{unit}s")
    assert answer.evidence.context
    assert set(answer.evidence.votes) == set(answer.evidence.document_ids)
    assert answer.text in {"Quillhaven", "unknown"}
    assert answer.notes == ()


def test_the_chain_goes_from_the_question_over_the_bridge_to_the_answer() -> None:
    (answer,) = trace(unit="triple", scoring="pmi", ranker_weight=1.0).answer([QUESTION], [DOCUMENTS])
    found = {triple.text for chain in answer.evidence.chains for triple in chain.units}
    assert "<Orrin Head; founded by; Isaura Venn>" in found
    assert "<Isaura Venn; born in; Quillhaven>" in found
    assert answer.text == "Quillhaven"


@pytest.mark.parametrize("unit", ["triple", "sentence"])
@pytest.mark.parametrize("scoring", ["letters", "pmi"])
def test_several_questions_at_once_are_answered_as_one_by_one(unit: str, scoring: str) -> None:
    questions = [QUESTION, "When leaves the ferry?", "What did Isaura Venn keep?"]
    documents = [DOCUMENTS, [FERRY], DOCUMENTS[::-1]]
    together = trace(unit=unit, scoring=scoring).answer(questions, documents)
    for question, own, answer in zip(questions, documents, together, strict=True):
        (alone,) = trace(unit=unit, scoring=scoring).answer([question], [own])
        assert (alone.text, alone.notes, alone.context_tokens) == (answer.text, answer.notes, answer.context_tokens)
        assert alone.evidence.context == answer.evidence.context
        assert [chain.units for chain in alone.evidence.chains] == [chain.units for chain in answer.evidence.chains]
        for one, other in zip(alone.evidence.chains, answer.evidence.chains, strict=True):
            assert one.steps == pytest.approx(other.steps)


def spent(answer: Answer) -> Usage:
    return sum(answer.usage.values(), Usage())


def test_usage_is_told_by_stage_and_adds_up_to_what_the_model_spent() -> None:
    used = model()
    method = trace(used, unit="triple", scoring="letters")
    (answer,) = method.answer([QUESTION], [DOCUMENTS])
    assert set(answer.usage) == set(answer.seconds) == {"triples", "rank", "select", "read"}
    assert answer.usage["triples"].calls == 3
    assert answer.usage["rank"] == Usage()
    # One chain at the first step and two at the second.
    assert answer.usage["select"].calls == 3
    assert answer.usage["read"].calls == 1
    assert spent(answer) == used.usage
    assert all(seconds >= 0 for seconds in answer.seconds.values())
    (again,) = method.answer([QUESTION], [DOCUMENTS])
    assert again.usage["triples"] == Usage()
    assert spent(answer) + spent(again) == used.usage


def test_a_batch_divides_its_costs_evenly() -> None:
    used = model()
    answers = trace(used, unit="sentence", scoring="pmi").answer([QUESTION] * 4, [DOCUMENTS] * 4)
    assert answers[0].usage == answers[3].usage
    assert sum(spent(answer).prompt_tokens for answer in answers) == pytest.approx(used.usage.prompt_tokens, abs=8)


def test_documents_are_extracted_once_and_told_as_they_are_done() -> None:
    used = model()
    told: list[str] = []
    method = Trace(
        used,
        HashEncoder(),
        TraceSettings(scoring="ranker", candidates=5, length=2),
        extracted=lambda one: told.append(one.document.id),
    )
    method.answer([QUESTION, QUESTION], [DOCUMENTS, DOCUMENTS[1:]])
    assert told == ["ferry", "obs", "venn"]


def test_one_id_may_mean_other_words_in_another_question() -> None:
    one, two = Document("0", "Orrin Head", OBSERVATORY.sentences), Document("0", "Isaura Venn", FOUNDER.sentences)
    first, second = trace(unit="triple", scoring="ranker").answer(["Orrin Head?", "Isaura Venn?"], [[one], [two]])
    assert {triple.head for chain in first.evidence.chains for triple in chain.units} == {"Orrin Head"}
    assert {triple.head for chain in second.evidence.chains for triple in chain.units} == {"Isaura Venn"}


@pytest.mark.parametrize("question", ["", " \n\t"])
def test_an_empty_question_is_refused_before_any_work(question: str) -> None:
    used = model()
    for method in (trace(used), Rag(used)):
        with pytest.raises(InputError, match="question 2 of 2 is empty; ask something"):
            method.answer([QUESTION, question], [DOCUMENTS, DOCUMENTS])
        with pytest.raises(ValueError, match="there are 1 questions but 2 lists of documents"):
            method.answer([QUESTION], [DOCUMENTS, DOCUMENTS])
        assert method.answer([], []) == []
    assert used.usage == Usage()


@pytest.mark.parametrize("unit", ["triple", "sentence", "document"])
def test_a_question_without_documents_is_answered_and_says_so(unit: str) -> None:
    for documents in ([], [Document("e", "E", ()), Document("f", "F", (" ",))]):
        empty, full = trace(unit=unit).answer([QUESTION, QUESTION], [documents, DOCUMENTS])
        assert empty.evidence.chains == ()
        assert empty.notes == ("no evidence was found; the answer is the model's own",)
        assert (empty.text, empty.context_tokens) == ("unknown", 0)
        assert full.evidence.chains
    (answer,) = Rag(model()).answer([QUESTION], [[]])
    assert answer.notes == ("no evidence was found; the answer is the model's own",)


def test_rag_reads_all_documents_in_their_order() -> None:
    used = model()
    (answer,) = Rag(used).answer([QUESTION], [DOCUMENTS])
    assert answer.evidence.document_ids == ("ferry", "obs", "venn")
    assert (answer.method, answer.text, set(answer.usage)) == ("rag", "Quillhaven", {"read"})
    assert used.prompts[0].index(FERRY.text) < used.prompts[0].index(OBSERVATORY.text)
    assert answer.context_tokens == sum(len(f"[{one.title}] {one.text}".split()) for one in DOCUMENTS)


def test_a_context_that_does_not_fit_is_noted() -> None:
    long = [Document(str(number), f"T{number}", ("word " * 59 + "end.",)) for number in range(5)]
    (answer,) = Rag(ScriptedModel(["x"], context_tokens=300)).answer(["What?"], [long])
    assert answer.notes == ("2 of 5 context entries did not fit the model's context whole",)
    assert answer.evidence.document_ids == ("0", "1", "2", "3", "4")


def test_a_graph_is_used_and_filled(tmp_path: Path) -> None:
    used = model()
    recipe = trace(used).extractor.recipe
    settings = TraceSettings(scoring="ranker", candidates=5, length=2)
    with TripleStore.open(tmp_path, recipe=recipe) as graph:
        Trace(used, HashEncoder(), settings, graph=graph).answer([QUESTION], [DOCUMENTS[:2]])
        assert len(graph) == 2
    assert used.usage.calls == 3
    # A graph opened for reading is used whatever made it, and never mixed with what it lacks.
    with TripleStore.open(tmp_path, mode="read") as graph:
        assert not graph.writable
        method = Trace(used, HashEncoder(), msgspec.structs.replace(settings, unit="sentence"), graph=graph)
        (answer,) = method.answer([QUESTION], [DOCUMENTS[:2]])
        assert all(isinstance(triple, Triple) for chain in answer.evidence.chains for triple in chain.units)
        with pytest.raises(StoreError, match="has no triples of 1 of the 3 documents, first of 'Isaura Venn'"):
            method.answer([QUESTION], [DOCUMENTS])


def test_triples_made_by_hand_are_as_good_as_extracted_ones() -> None:
    used = model()
    with TripleStore(recipe=Recipe("by hand")) as graph:
        graph.add(OBSERVATORY, [Triple("Orrin Head", "owned by", "nobody", "obs", 0)])
        method = Trace(used, HashEncoder(), TraceSettings(scoring="ranker", candidates=5), graph=graph)
        (answer,) = method.answer([QUESTION], [[OBSERVATORY]])
    assert answer.evidence.context == ("<Orrin Head; owned by; nobody>",)


def test_a_closed_graph_is_an_error_of_the_store() -> None:
    graph = TripleStore()
    method = Trace(model(), HashEncoder(), TraceSettings(candidates=5), graph=graph)
    graph.close()
    with pytest.raises(StoreError, match="closed"):
        method.answer([QUESTION], [DOCUMENTS])


def test_models_without_log_probabilities_work_with_the_black_box_selector_only() -> None:
    silent = model(gives_logits=False)
    for scoring in ("letters", "likelihood", "pmi"):
        with pytest.raises(LogitsUnavailableError, match="scoring='black-box'"):
            trace(silent, scoring=scoring)
    (answer,) = trace(silent, scoring="black-box").answer([QUESTION], [DOCUMENTS])
    assert len(answer.evidence.chains) == 1
    assert answer.evidence.chains[0].score == 0.0


def test_settings_choose_the_parts() -> None:
    encoder = HashEncoder()
    kinds = {
        scoring: type(make_selector(model(), encoder, TraceSettings(scoring=scoring)))  # type: ignore[arg-type]
        for scoring in ("letters", "likelihood", "pmi", "ranker", "black-box")
    }
    assert list(kinds.values()) == [LetterSelector, TextSelector, TextSelector, RankerSelector, BlackBoxSelector]
    fixed, adaptive = (
        make_extractor(model(), encoder, TraceSettings(adaptive_triple_demonstrations=on)).recipe
        for on in (False, True)
    )
    assert (fixed.options["chosen by"], adaptive.options["chosen by"]) == ("order", encoder.fingerprint)
    for scoring in ("letters", "black-box"):
        with pytest.raises(InputError, match="candidates is 52, but letters can tell only 51 apart"):
            trace(scoring=scoring, candidates=52)
    assert trace(scoring="pmi", candidates=52).settings.candidates == 52


def test_the_defaults_are_the_paper_s() -> None:
    assert (TraceSettings().candidates, TraceSettings().length, TraceSettings().beams, TraceSettings().chains) == (
        20,
        4,
        5,
        5,
    )
    assert (
        TraceSettings().unit,
        TraceSettings().scoring,
        TraceSettings().adaptive,
        TraceSettings().reader_demonstrations,
    ) == ("triple", "letters", True, 0)
    assert (TraceSettings().demonstrations, TraceSettings().adaptive_demonstrations) == (3, True)
    assert (TraceSettings().triple_demonstrations, TraceSettings().adaptive_triple_demonstrations) == (3, True)


def test_profiles_and_overrides_make_settings() -> None:
    for method in ("trace", "trace-doc"):
        assert method_settings(method, UNABLE).scoring == "ranker"
        assert method_settings(method, CAPABLE).reader == ("document" if method == "trace-doc" else "triple")
    changed = method_settings(
        "trace", UNABLE, ["unit=sentence", "stop-bias= -1.5", "adaptive=false", "reader_documents=none"]
    )
    assert (changed.unit, changed.stop_bias, changed.adaptive, changed.reader_documents) == (
        "sentence",
        -1.5,
        False,
        None,
    )
    assert method_settings("trace", UNABLE, ["reader_documents=3"]).reader_documents == 3


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("units=sentence", "'units=sentence' of trace is not name=value with a name among: adaptive,"),
        ("unit", "'unit' of trace is not name=value"),
        ("unit=word", "a setting of trace cannot be used: Invalid enum value 'word'"),
        ("chains=many", "Expected `int`"),
        ("chains=0", r"Expected `int` >= 1 - at `\$.chains`"),
        ("candidates=-1", r"Expected `int` >= 1 - at `\$.candidates`"),
        ("demonstrations=-1", r"Expected `int` >= 0 - at `\$.demonstrations`"),
        ("grounding=101", r"Expected `float` <= 100.0 - at `\$.grounding`"),
        ("reader_documents=0", r"Expected `int` >= 1"),
        ("adaptive=perhaps", "Expected `bool`"),
        ("unit=none", "Invalid enum value|Expected `str`"),
    ],
)
def test_settings_that_cannot_be_are_refused(override: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        method_settings("trace", UNABLE, [override])


@pytest.mark.models
def test_the_tiny_models_answer_a_question_of_the_examples(tiny_models: dict[str, Path]) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    asked = json.loads((EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()[0])
    # Few documents, candidates and demonstrations: the machine may be small.
    names = {*asked["supporting"], "Pellisk"}
    documents = [document for document in read_documents(EXAMPLES / "docs") if document.title in names]
    assert len(documents) == 3
    tiny = LlamaCppModel(tiny_models["language-model"], name="tiny", context=2048)
    settings = method_settings(
        "trace", UNABLE, ["unit=sentence", "scoring=pmi", "candidates=4", "demonstrations=1", "beams=2"]
    )
    (answer,) = Trace(tiny, OnnxEncoder(tiny_models["encoder"]), settings).answer([asked["question"]], [documents])
    by_id = {document.id: document for document in documents}
    assert answer.text
    assert 1 <= len(answer.evidence.chains) <= settings.chains
    for chain in answer.evidence.chains:
        assert 1 <= len(chain.units) <= settings.length
        assert chain.score == pytest.approx(sum(chain.steps))
        assert all(step <= 0 for step in chain.steps)
        for triple in chain.units:
            assert isinstance(triple, TextUnit)
            assert triple.body == by_id[triple.document_id].sentences[triple.sentence]
    titles = {by_id[one].title for one in answer.evidence.document_ids}
    assert titles & set(asked["supporting"])
    assert answer.usage["select"].evaluated_tokens < answer.usage["select"].prompt_tokens
