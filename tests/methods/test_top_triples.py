"""Top-T triples: TRACE's triples and reader without its chains."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pytrace.errors import InputError, StoreError
from pytrace.methods.abilities import CAPABLE, UNABLE
from pytrace.methods.catalog import make_method, method_settings
from pytrace.methods.trace.top_triples import TopTriples, TopTriplesSettings
from pytrace.methods.trace.trace import Trace, TraceSettings
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document, Usage
from pytrace.triples.graph import TripleStore
from tests.methods.test_trace import DOCUMENTS, FERRY, QUESTION, model, trace

ENCODER = HashEncoder(dimension=4096)


def top(method_model: ScriptedModel | None = None, **settings: object) -> TopTriples:
    return TopTriples(method_model or model(), ENCODER, msgspec.convert(settings, TopTriplesSettings))


def test_the_reader_sees_the_t_triples_nearest_to_the_question_nearest_first() -> None:
    used = model()
    (answer,) = top(used, top=3).answer([QUESTION], [DOCUMENTS])
    everything = [
        "<Pellisk Ferry; leaves at; noon>",
        "<Pellisk Ferry; carries; mail>",
        "<Orrin Head; founded by; Isaura Venn>",
        "<Orrin Head; built in; 1871>",
        "<Isaura Venn; born in; Quillhaven>",
        "<Isaura Venn; kept; bees>",
    ]
    similarities = ENCODER.encode(everything) @ ENCODER.encode([QUESTION])[0]
    order = np.argsort(-similarities, kind="stable")[:3]
    assert answer.evidence.context == tuple(everything[place] for place in order)
    assert answer.evidence.context[0] == "<Orrin Head; built in; 1871>"
    assert "\n".join(answer.evidence.context) in used.prompts[-1]
    assert everything[order[0] - 2] not in used.prompts[-1].rpartition("Context:")[2]
    shares = np.exp([chain.score for chain in answer.evidence.chains])
    expected = np.exp(similarities[order])
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-5)
    assert all(len(chain.units) == 1 and not chain.finished for chain in answer.evidence.chains)
    assert answer.evidence.derivation.graph is not None
    assert answer.evidence.derivation.graph.triples == 6
    assert (answer.method, answer.evidence.kind) == ("top-triples", "triples")


@pytest.mark.parametrize("reader", ["triple", "document"])
@pytest.mark.parametrize("unit", ["triple", "sentence", "document"])
def test_it_is_trace_with_chains_of_one_triple_by_the_ranker_alone(unit: str, reader: str) -> None:
    """Two ways to the same ablation, by different code."""
    shared = {"unit": unit, "reader": reader}
    (mine,) = top(top=4, **shared).answer([QUESTION], [DOCUMENTS])
    (other,) = trace(**shared, scoring="ranker", length=1, beams=4, chains=4, candidates=4).answer(
        [QUESTION], [DOCUMENTS]
    )
    assert mine.evidence.context == other.evidence.context
    assert mine.evidence.votes == other.evidence.votes
    assert (mine.text, mine.notes, mine.context_tokens) == (other.text, other.notes, other.context_tokens)
    assert [chain.units for chain in mine.evidence.chains] == [chain.units for chain in other.evidence.chains]
    assert [chain.score for chain in mine.evidence.chains] == pytest.approx(
        [chain.score for chain in other.evidence.chains], abs=1e-6
    )


def test_no_model_is_asked_to_select_and_no_chain_is_a_query() -> None:
    used = model()
    (answer,) = top(used).answer([QUESTION], [DOCUMENTS])
    assert set(answer.usage) == set(answer.seconds) == {"triples", "rank", "read"}
    assert answer.usage["triples"].calls == 3
    assert answer.usage["rank"] == Usage()
    assert answer.usage["read"].calls == 1
    assert not any(prompt.endswith("Next:") for prompt in used.prompts)


def test_documents_come_by_the_votes_of_their_triples() -> None:
    (answer,) = top(top=3, reader="document").answer([QUESTION], [DOCUMENTS])
    assert answer.evidence.document_ids[0] == "obs"
    assert answer.evidence.votes["obs"] == 2
    assert answer.evidence.context[0].startswith("[Orrin Head] Orrin Head was founded by")
    (fewer,) = top(top=3, reader="document", reader_documents=1).answer([QUESTION], [DOCUMENTS])
    assert fewer.evidence.document_ids == ("obs",)


def test_questions_together_are_answered_as_alone() -> None:
    questions = [QUESTION, "When leaves the ferry?", "Who?"]
    documents = [DOCUMENTS, [FERRY], []]
    together = top(top=2).answer(questions, documents)
    for question, own, answer in zip(questions, documents, together, strict=True):
        (alone,) = top(top=2).answer([question], [own])
        assert (alone.evidence, alone.text, alone.notes) == (answer.evidence, answer.text, answer.notes)
    assert together[2].notes == ("no evidence was found; the answer is the model's own",)
    assert together[2].evidence.chains == ()


def test_broken_texts_and_empty_questions_never_hurt() -> None:
    broken = [Document("b", "\udfff", ("\ud800 half.", "", "\x00")), Document("e", "", ())]
    for unit in ("triple", "sentence", "document"):
        (answer,) = top(unit=unit).answer(["\udc00 Where?"], [broken])
        assert isinstance(answer.text, str)
    with pytest.raises(InputError, match="question 1 of 1 is empty"):
        top().answer([" "], [DOCUMENTS])
    assert top().answer([], []) == []


def test_a_graph_serves_trace_and_its_ablation(tmp_path: Path) -> None:
    settings = TraceSettings(scoring="ranker", candidates=5, length=1)
    used = model()
    with TripleStore.open(tmp_path, recipe=top().extractor.recipe) as graph:
        Trace(used, ENCODER, settings, graph=graph).answer([QUESTION], [DOCUMENTS[:2]])
        extracted = used.usage.calls
        TopTriples(used, ENCODER, graph=graph).answer([QUESTION], [DOCUMENTS[:2]])
        assert used.usage.calls == extracted + 1  # the reader's
    with TripleStore.open(tmp_path, mode="read") as graph:
        method = TopTriples(used, ENCODER, graph=graph)
        method.answer([QUESTION], [DOCUMENTS[:2]])
        with pytest.raises(StoreError, match="has no triples of 1 of the 3 documents"):
            method.answer([QUESTION], [DOCUMENTS])


def test_it_extracts_by_the_recipe_of_trace() -> None:
    choices: tuple[dict[str, object], ...] = (
        {},
        {"unit": "sentence"},
        {"extraction": "phrases"},
        {"triple_demonstrations": 1, "adaptive_triple_demonstrations": False},
        {"grounding": 50.0, "spans": True},
    )
    recipes = [top(**choice).extractor.recipe for choice in choices]
    assert recipes == [trace(**choice).extractor.recipe for choice in choices]
    assert len({recipe.hash for recipe in recipes}) == len(recipes)


def test_settings_have_the_paper_s_defaults_and_those_of_trace() -> None:
    mine, its = TopTriplesSettings(), TraceSettings()
    assert mine.top == 10
    for name in set(mine.__struct_fields__) - {"top"}:
        assert getattr(mine, name) == getattr(its, name), name
    tiny, its = (method_settings(name, UNABLE) for name in ("top-triples", "trace"))
    for name in set(mine.__struct_fields__) - {"top"}:
        assert getattr(tiny, name) == getattr(its, name), name
    made = make_method("top-triples:top=1", model(), lambda: ENCODER, CAPABLE, [])
    (answer,) = made.answer([QUESTION], [DOCUMENTS])
    assert (answer.method, len(answer.evidence.context)) == ("top-triples:top=1", 1)
    for wrong in ("top=0", "chains=2"):
        with pytest.raises(InputError):
            method_settings("top-triples", UNABLE, [wrong])
