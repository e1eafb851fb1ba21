"""A question's features: what the grammar lets through, what is read of good and bad output, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.chain_of_evidence.feature_extraction import INSTRUCTION, FeatureExtractor, feature_grammar, read_features
from pytrace.chain_of_evidence.features import FeatureDemonstration, Features, JudgementDemonstration
from pytrace.errors import DataError
from pytrace.methods.scope_coe import ScopeSettings, make_feature_extractor
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import ScriptedModel
from pytrace.records import Feature

QUESTION = "In which country was the architect of the Sydney Opera House born?"


def written(intent: object = "country", nodes: object = (), relations: object = ()) -> str:
    return json.dumps({"intent": intent, "nodes": nodes, "relations": relations})


def test_intent_relations_and_nodes_are_read_in_this_order() -> None:
    relation = {"nodes": ["architect", "Sydney Opera House"], "relation": "designed"}
    found = read_features(written("country of birth", ["architect", "Sydney Opera House"], [relation]), QUESTION)
    assert not found.malformed
    assert found.dropped == ()
    assert found.features.all == (
        Feature("intent", "country of birth"),
        Feature("relation", "designed", ("architect", "Sydney Opera House")),
        Feature("node", "architect"),
        Feature("node", "Sydney Opera House"),
    )
    assert found.features.relations[0].statement == "architect designed Sydney Opera House"


def test_a_node_that_the_question_does_not_hold_is_dropped_and_told() -> None:
    found = read_features(written(nodes=["Eiffel Tower", "architect"]), QUESTION)
    assert found.features.nodes == ("architect",)
    assert found.dropped == ("the node 'Eiffel Tower' is not in the question",)


def test_repeated_nodes_count_once_whatever_their_case() -> None:
    found = read_features(written(nodes=["architect", "Architect", " architect  "]), QUESTION)
    assert found.features.nodes == ("architect",)


def test_more_nodes_than_a_question_has_details_are_dropped() -> None:
    words = QUESTION.rstrip("?").split()
    found = read_features(written(nodes=words), QUESTION)
    assert len(found.features.nodes) == 6
    assert any("one more than 6" in one for one in found.dropped)


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        (["architect", "Sydney Opera House"], True),
        (["architect", "the Sydney Opera House"], True),  # nearly a node means that node
        (["architect", "architect"], False),
        (["architect", "Denmark"], False),
    ],
)
def test_a_relation_is_between_two_different_nodes(ends: list[str], *, kept: bool) -> None:
    relation = {"nodes": ends, "relation": "designed"}
    found = read_features(written(nodes=["architect", "Sydney Opera House"], relations=[relation]), QUESTION)
    assert [one.nodes for one in found.features.relations] == ([("architect", "Sydney Opera House")] if kept else [])
    assert len(found.dropped) == (not kept)


def test_output_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = written("country", ["architect", "House"], [{"nodes": ["architect", "House"], "relation": "of"}] * 2)
    cut = whole[: whole.rindex('"relation"')]
    found = read_features(cut, QUESTION)
    assert found.malformed
    assert found.features == Features(
        "country", ("architect", "House"), (Feature("relation", "of", ("architect", "House")),)
    )


@pytest.mark.parametrize(
    "text",
    ["", "no idea", "{}", '{"intent": 3}', "[" * 10_000, '{"intent": "a", "nodes": "b"}', "\ud800", "\0", "{" * 99],
)
def test_output_that_is_no_json_of_the_shape_is_malformed_and_never_raises(text: str) -> None:
    found = read_features(text, QUESTION)
    assert found.malformed
    assert found.features.nodes == ()


@given(text=st.text(max_size=200), question=st.text(max_size=80))
def test_whatever_stands_in_the_output_nodes_are_short_printable_parts_of_the_question(
    text: str, question: str
) -> None:
    for one in (text, written(text, [text, question], [{"nodes": [text, question], "relation": text}])):
        features = read_features(one, question).features
        for feature in features.all:
            assert feature.text.strip()
            assert all(character.isprintable() for character in feature.text)
        for relation in features.relations:
            assert set(relation.nodes) <= set(features.nodes)


def test_all_questions_are_one_call_and_the_shown_features_are_json() -> None:
    model = ScriptedModel([written(nodes=["architect"]), "gibberish"])
    found = FeatureExtractor(model, demonstrations=2).extract([QUESTION, "Who?"])
    assert [one.malformed for one in found] == [False, True]
    assert found[1].features == Features()
    assert model.usage.calls == 2
    assert model.prompts[0].startswith(INSTRUCTION)
    assert model.prompts[0].count("Question:") == 3
    shown = [line for line in model.prompts[0].splitlines() if line.startswith("{")]
    assert [json.loads(line)["intent"] for line in shown] == ["author of a novel", "musical instrument"]
    assert FeatureExtractor(model).extract([]) == []


def test_what_a_real_grammar_lets_through_is_json_with_words_of_the_question(random_gguf: Path) -> None:
    """A model of random weights writes anything that it may, so its output shows the grammar's limits."""
    question = 'Did "Ada\\Foah" lie near Keta, in the Volta Region?'
    grammar = feature_grammar(question)
    with LlamaCppModel(random_gguf, threads=1, context=512) as model:
        rows = model.generate([question], max_tokens=400, temperature=1.5, n=6, seed=3, grammar=[grammar])[0]
    whole = [json.loads(row.text) for row in rows if row.finish == "end"]
    assert whole, [row.text for row in rows]
    for content in whole:
        assert list(content) == ["intent", "nodes", "relations"]
        for relation in content["relations"]:
            assert len(relation["nodes"]) == 2
            assert relation["relation"] in question
        assert all(node in question for node in content["nodes"])


def test_a_node_has_eight_words_at_most_and_other_marks_between_them() -> None:
    rules = dict(line.split(" ::= ", 1) for line in feature_grammar('a "b" ' + "c " * 20).splitlines())
    assert rules["w0-8"] == r'"a" (" \\\"" w1-7)?'
    assert rules["w0-8"].endswith("w1-7)?")
    assert rules["w21-1"] == '"c"'
    assert "w21-2" not in rules
    assert "node ::= text" in feature_grammar("???")
    assert "node ::= text" in feature_grammar("Who?", spans=False)


def test_our_demonstrations_show_both_answers_of_every_kind() -> None:
    answers = {(one.feature.kind, one.answer) for one in JudgementDemonstration.load()}
    assert answers == {(kind, answer) for kind in ("intent", "relation", "node") for answer in ("yes", "no")}
    assert len(FeatureDemonstration.load()) >= 5


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "Who?", "intent": "a", "nodes": ["Emma"], "relations": []}, "no part of the question"),
        ({"question": "Who?", "intent": "", "nodes": [], "relations": []}, "intent is empty"),
        (
            {"question": "A B?", "intent": "a", "nodes": ["A"], "relations": [["A", "r", "B"]]},
            "between two of the nodes",
        ),
        ({"question": "A B?", "intent": "a", "nodes": []}, "relations"),
    ],
)
def test_a_demonstration_that_contradicts_itself_is_refused(tmp_path: Path, row: dict[str, object], said: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match=said):
        FeatureDemonstration.load(path=path)


def test_a_judgement_of_a_relation_has_two_nodes(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    row = {"text": "t", "kind": "relation", "feature": "of", "nodes": ["a"], "answer": "yes"}
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match="has 1 nodes"):
        JudgementDemonstration.load(path=path)
    path.write_text(json.dumps({**row, "nodes": ["a", "b"]}))
    assert JudgementDemonstration.load(path=path)[0].feature.statement == "a of b"


def test_a_server_that_takes_no_grammar_can_do_without() -> None:
    class NoGrammar(ScriptedModel):
        def generate(self, *args: object, grammar: object = None, stop: object = (), **kwargs: object):  # type: ignore[no-untyped-def]
            assert grammar is None
            assert "Question:" in stop  # type: ignore[operator]
            return super().generate(*args, **kwargs)  # type: ignore[arg-type]

    settings = ScopeSettings(grammar=False)
    (found,) = make_feature_extractor(NoGrammar([written(nodes=["architect"])]), settings).extract([QUESTION])
    assert found.features.nodes == ("architect",)
