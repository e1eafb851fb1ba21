"""The answer extractor with the small model beside its rules."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest

from pytrace.errors import ModelFileError
from pytrace.models.edge.edge_model import EdgeModel, shipped_edge
from pytrace.models.edge.reading import EdgeReading, ReadSpan
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.spans.edge_features import with_edge
from pytrace.reader.spans.features import EntryFacts, candidates
from pytrace.reader.spans.reader import MOST_CHARACTERS, SpanReader
from pytrace.reader.spans.weights import BESIDE_EDGE, SpanWeights, edge_weights
from pytrace.records import Evidence

LAKE = "[Lake Oster] Lake Oster covers 36 square kilometers. Its largest town is Holm, which was founded by Ada Foah in 1902."


def features_of(read: EdgeReading, question: str = "Who founded Holm?") -> dict[str, dict[str, float]]:
    facts = [EntryFacts(1.0, "last", 0.2)]
    return {one.text: one.features for one in with_edge(candidates(question, [LAKE], facts), read, [LAKE], facts)}


def span(text: str, score: float) -> ReadSpan:
    start = LAKE.index(text)
    return ReadSpan(text, 0, start, start + len(text), score)


class TestFeatures:
    def test_candidates_have_the_score_of_their_span_behind_the_best(self) -> None:
        read = EdgeReading((span("Ada Foah", 4.0), span("Holm", 1.5)), (0.9, 0.0, 0.0, 0.1))
        found = features_of(read)
        assert (found["Ada Foah"]["edge"], found["Ada Foah"]["edge best"]) == (0.0, 1.0)
        assert (found["Holm"]["edge"], found["Holm"]["edge best"]) == (-2.5, 0.0)
        assert found["Lake Oster"]["edge"] == -4.5  # none of its spans: below the last of them
        assert "edge only" not in found["Ada Foah"]

    def test_a_span_that_no_rule_finds_becomes_a_candidate_of_its_passage(self) -> None:
        text = "which was founded by"
        assert text not in features_of(EdgeReading((), (0.9, 0.0, 0.0, 0.1)))
        found = features_of(EdgeReading((span(text, 2.0),), (0.9, 0.0, 0.0, 0.1)))
        assert found[text]["edge only"] == found[text]["chain last"] == 1.0

    def test_a_span_over_two_sentences_is_no_candidate(self) -> None:
        over, within = "36 square kilometers. Its largest town", "Oster covers 36 square"
        found = features_of(EdgeReading((span(over, 4.0), span(within, 2.0)), (0.9, 0.0, 0.0, 0.1)))
        assert over not in found
        assert found[within]["edge only"] == 1.0

    def test_sentences_without_spaces_end_too(self) -> None:
        entry = "[湖] 湖の町はホルムである。町はアダが建てた。"
        text = "ホルムである。町はアダ"
        start = entry.index(text)
        read = EdgeReading((ReadSpan(text, 0, start, start + len(text), 4.0),), (0.9, 0.0, 0.0, 0.1))
        assert text not in [one.text for one in with_edge([], read, [entry])]

    def test_yes_and_no_are_left_to_the_rules(self) -> None:
        question = "Was Holm founded by Ada Foah?"
        found = features_of(EdgeReading((span("Holm", 4.0),), (0.1, 0.6, 0.3, 0.0)), question)
        assert found == {one.text: one.features for one in candidates(question, [LAKE])}

    def test_without_any_span_all_candidates_are_alike(self) -> None:
        assert {one["edge"] for one in features_of(EdgeReading((), (0.2, 0.0, 0.0, 0.8))).values()} == {-2.0}


@pytest.fixture(scope="module")
def directory() -> Path:
    found = shipped_edge()
    assert found is not None  # a checkout has it
    return found


class TestReader:
    def test_it_reads_with_the_model_and_the_weights_beside_it(self, directory: Path) -> None:
        opened = functools.cache(lambda: EdgeModel(directory))
        reader = SpanReader(ScriptedModel()).with_edge(opened).with_model(ScriptedModel())
        questions = ["Who founded Holm?", "When was Holm founded?", "What is the largest town of Lake Oster?"]
        readings = reader.read(questions, [Evidence("documents", (LAKE,), ("lake",))] * 3)
        assert [one.text for one in readings] == ["Ada Foah", "1902", "Holm"]
        for one in readings:
            assert one.probability is not None
            assert one.probability > 0.3
            assert LAKE[one.places[0][1] : one.places[0][2]] == one.text
        together = SpanReader(ScriptedModel(), edge=opened).read(
            questions[:1], [Evidence("documents", (LAKE,), ("lake",))]
        )
        assert together[0].text == "Ada Foah"

    def test_evidence_that_takes_the_model_too_long_is_left_to_the_rules(self, directory: Path) -> None:
        reader = SpanReader(ScriptedModel(), edge=functools.cache(lambda: EdgeModel(directory)))
        filler = "The hills around the lake are low and covered with grass. "
        long = f"{LAKE} {filler * (MOST_CHARACTERS // len(filler) + 1)}"
        some = [Evidence("documents", (text,), ("lake",)) for text in (long, LAKE)]
        assert [
            one is None for one in reader.edge_readings(["Who founded Holm?"] * 2, [one.context for one in some])
        ] == [True, False]
        rules, both = reader.read(["Who founded Holm?"] * 2, some)
        assert rules == SpanReader(ScriptedModel()).read(["Who founded Holm?"], some[:1])[0]
        assert both.text == "Ada Foah"

    def test_no_evidence_is_no_answer(self, directory: Path) -> None:
        reader = SpanReader(ScriptedModel(), edge=functools.cache(lambda: EdgeModel(directory)))
        (reading,) = reader.read(["Who founded Holm?"], [Evidence("documents", (), ())])
        assert reading.text == ""

    def test_missing_or_broken_weights_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="install the small model again"):
            edge_weights(tmp_path)
        for broken in (msgspec.json.encode({"choice": {"edge": "much"}}), b'{"choice": {"\xff": 1.0}}'):
            (tmp_path / BESIDE_EDGE).write_bytes(broken)
            with pytest.raises(ModelFileError, match=BESIDE_EDGE):
                edge_weights(tmp_path)
        (tmp_path / BESIDE_EDGE).write_bytes(msgspec.json.encode(SpanWeights({"edge": 1.0}, {})))
        assert edge_weights(tmp_path).score({"edge": 2.0}) == 2.0
