"""ScopeCoE: the paper's cover on hand-worked cases, what it costs, where it falls back, and what it tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.chain_of_evidence.feature_extraction import Extraction
from pytrace.chain_of_evidence.features import Features, Inquiry, Probability
from pytrace.errors import InputError
from pytrace.methods.scope_coe import ScopeCoe, ScopeSettings
from pytrace.models import registry
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Answer, Document, Feature
from pytrace.retrieval import CallableRetriever

QUESTION = "In which country is the town Ada Foah?"
R1, R2 = Feature("relation", "r1", ("a", "b")), Feature("relation", "r2", ("b", "c"))
FEATURES = Features("intent", ("a", "b", "c"), (R1, R2))


def documents(count: int) -> list[Document]:
    return [Document(f"d{number}", f"T{number}", (f"Text {number}.", f"More {number}.")) for number in range(count)]


class Found:
    """Finds the same features in every question."""

    def __init__(self, features: Features = FEATURES, **told: object) -> None:
        self.extraction = Extraction(features, **told)  # type: ignore[arg-type]
        self.calls = 0

    def extract(self, questions: Sequence[str]) -> list[Extraction]:
        self.calls += 1
        return [self.extraction] * len(questions)


class Table:
    """Judges by a table: one row a text, one letter a feature, "y" for yes, "?" for undecided."""

    def __init__(self, *rows: str) -> None:
        self.rows = rows
        self.calls = 0

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        self.calls += 1
        value: dict[str, Probability] = {"y": 0.9, "n": 0.1, "?": None}
        return [[[value[one] for one in self.rows[at]] for at in range(len(inquiry.texts))] for inquiry in inquiries]


def scope(judge: Table, *, found: Found | None = None, answers: str = "Ghana", **settings: object) -> ScopeCoe:
    chosen = ScopeSettings(retriever="given", **settings)  # type: ignore[arg-type]
    return ScopeCoe(
        ScriptedModel(answers), HashEncoder(), chosen, extractor=found or Found(), judge=judge, name="scope"
    )


def asked(judge: Table, **settings: object) -> Answer:
    return scope(judge, **settings).answer([QUESTION], [documents(len(judge.rows))])[0]


# One letter each for: intent, r1, r2, a, b, c.
HAND_WORKED = [
    # Every snippet with the intent is taken; the second brings r1, and r2 comes with the first that has it.
    (("nnynnn", "yynnnn", "ynnyyn", "nnyyyy"), (0, 1, 2, 3), (1, 3)),
    # The intent's snippet has all: nothing more is taken, though others hold features too.
    (("nyyyyy", "yyyyyy", "nyyyyy"), (1,), (1,)),
    # r1 and r2 are both uncovered when phase two begins, so each brings its first snippet, though one would have done.
    (("ynnnnn", "nynnnn", "nyynnn", "nnnyyy"), (0, 1, 2, 3), (0, 2, 3)),
    # Nobody has the intent or c: the rest is covered.
    (("nnnnnn", "nyynnn", "nnnyyn"), (1, 2), (1, 2)),
    # An undecided judgement covers nothing.
    (("?yyyyy", "y?????"), (0, 1), (0, 1)),
]


@pytest.mark.parametrize(("rows", "greedy", "exact"), HAND_WORKED)
def test_greedy_is_the_papers_algorithm_and_exact_the_fewest(
    rows: tuple[str, ...], greedy: tuple[int, ...], exact: tuple[int, ...]
) -> None:
    assert asked(Table(*rows)).evidence.document_ids == tuple(f"d{at}" for at in greedy)
    assert asked(Table(*rows), cover="exact").evidence.document_ids == tuple(f"d{at}" for at in exact)


def algorithm_one(rows: Sequence[str]) -> set[int]:
    """Algorithm 1 as it is printed, line by line."""
    chosen = {at for at, row in enumerate(rows) if row[0] == "y"}
    for columns in (range(1, 3), range(3, 6)):
        uncovered = [column for column in columns if not any(rows[at][column] == "y" for at in chosen)]
        for column in uncovered:
            for at, row in enumerate(rows):
                if row[column] == "y":
                    chosen.add(at)
                    break
    return chosen


@given(rows=st.lists(st.text("yn?", min_size=6, max_size=6), min_size=1, max_size=8))
def test_greedy_equals_the_printed_algorithm_and_exact_is_never_larger(rows: list[str]) -> None:
    expected = algorithm_one(rows)
    greedy, exact = asked(Table(*rows)), asked(Table(*rows), cover="exact")
    if expected:
        assert set(greedy.evidence.document_ids) == {f"d{at}" for at in expected}
        assert len(exact.evidence.document_ids) <= len(expected)
        for answer in (greedy, exact):
            for one in answer.evidence.derivation.coverage:
                assert bool(one.chosen) == bool(one.covered_by)
    else:
        assert (
            greedy.evidence.document_ids
            == exact.evidence.document_ids
            == tuple(f"d{at}" for at in range(min(5, len(rows))))
        )


def test_equal_covers_are_decided_by_retrieval_rank() -> None:
    answer = asked(Table("yynyyn", "nnynny", "nnynny"), cover="exact")
    assert answer.evidence.document_ids == ("d0", "d1")


def test_coverage_tells_who_holds_what_and_what_nobody_holds() -> None:
    answer = asked(Table("yynnnn", "nnny?n", "nnnynn"))
    intent, r1, r2, a, b, c = answer.evidence.derivation.coverage
    assert (intent.feature, intent.covered_by, intent.chosen) == (Feature("intent", "intent"), (0,), (0,))
    assert r1.feature is R1 or r1.feature == R1
    assert (a.covered_by, a.chosen, a.probabilities) == ((1, 2), (1,), (0.1, 0.9, 0.9))
    assert b.probabilities == (0.1, None, 0.1)
    assert r2.covered_by == b.covered_by == c.covered_by == ()
    assert answer.evidence.derivation.pool == (("d0", -1), ("d1", -1), ("d2", -1))
    assert "no snippet holds the relation 'b r2 c', the node 'b', the node 'c'" in answer.notes
    assert "the judge was undecided in 1 of 18 cases" in answer.notes


def test_a_question_without_features_falls_back_to_retrieval_order_and_says_so() -> None:
    judge = Table("", "", "")
    answer = scope(judge, found=Found(Features()), top=2).answer([QUESTION], [documents(3)])[0]
    assert answer.evidence.document_ids == ("d0", "d1")
    assert "no feature of the question was found; the snippets are the first by order of retrieval" in answer.notes


def test_features_that_nobody_holds_fall_back_and_say_so() -> None:
    answer = asked(Table("nnnnnn", "nnnnnn"), top=1)
    assert answer.evidence.document_ids == ("d0",)
    assert "no snippet holds any feature of the question; they are the first by order of retrieval" in answer.notes


def test_what_was_dropped_and_repaired_is_listed() -> None:
    found = Found(FEATURES, dropped=("the node 'x' is not in the question",), malformed=True)
    answer = scope(Table("yyyyyy"), found=found).answer([QUESTION], [documents(1)])[0]
    assert "the model's features were no whole JSON and were read by their parts" in answer.notes
    assert "1 of the features that the model wrote were dropped: the node 'x' is not in the question" in answer.notes


def test_no_document_at_all_is_answered_and_told() -> None:
    for cover in ("greedy", "exact"):
        answer = asked(Table(), cover=cover)
        assert answer.evidence.context == ()
        assert any("no evidence was found" in note for note in answer.notes)
    assert scope(Table()).answer([], []) == []
    with pytest.raises(InputError, match="question 1 of 1 is empty"):
        scope(Table()).answer([" "], [[]])


class Counted(ScriptedModel):
    """Counts the calls of its verbs."""

    def __init__(self, answers: object) -> None:
        super().__init__(answers)  # type: ignore[arg-type]
        self.verbs: list[str] = []

    def generate(self, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
        self.verbs.append("generate")
        return super().generate(*args, **kwargs)  # type: ignore[arg-type]

    def score_options(self, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
        self.verbs.append("score_options")
        return super().score_options(*args, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("judge", "verbs"), [("model", 2), ("fused", 2), ("text", 1)])
def test_any_number_of_questions_costs_two_batched_calls_beyond_the_reader(judge: str, verbs: int) -> None:
    features = json.dumps({"intent": "country", "nodes": ["Ada Foah"], "relations": []})
    model = Counted(lambda prompt: features if prompt.startswith("Take") else "Ghana")
    settings = ScopeSettings(judge=judge, calibrated=True)  # type: ignore[arg-type]
    answers = ScopeCoe(model, HashEncoder(), settings).answer([QUESTION] * 3, [documents(4)] * 3)
    assert [answer.text for answer in answers] == ["Ghana"] * 3
    assert len(model.verbs) == verbs + 1
    assert set(answers[0].usage) == {"retrieve", "features", "judge", "cover", "read"}
    assert answers[0].usage["features"].calls == 1


def test_sentences_are_chosen_one_by_one_and_belong_to_their_documents() -> None:
    towns = [
        Document("g", "Ada Foah", ("It is a town.", "", "It lies in the country Ghana.")),
        Document("p", "Lima", ("A city.",)),
    ]
    judge = Table("nnnynn", "yyynyy", "nnnnnn")
    answer = scope(judge, snippet="sentence").answer([QUESTION], [towns])[0]
    assert answer.evidence.kind == "sentences"
    assert answer.evidence.context == ("[Ada Foah] It is a town.", "[Ada Foah] It lies in the country Ghana.")
    assert answer.evidence.document_ids == ("g",)
    assert answer.evidence.derivation.pool == (("g", 0), ("g", 2), ("p", 0))


def test_the_pool_holds_the_best_snippets_by_rank() -> None:
    towns = [Document("p", "Lima", ("A city in Peru.",)), Document("g", "Ada Foah", ("The town Ada Foah.",))]
    method = ScopeCoe(
        ScriptedModel("x"), HashEncoder(), ScopeSettings(pool=1), extractor=Found(), judge=Table("yyyyyy")
    )
    assert method.answer([QUESTION], [towns])[0].evidence.derivation.pool == (("g", -1),)


@pytest.mark.parametrize("snippet", ["document", "sentence"])
def test_snippets_can_come_from_any_callable(snippet: str) -> None:
    queries = []

    def search(query: str, count: int) -> list[Document]:
        queries.append((query, count))
        return [Document("w", "Web", ("Ada Foah lies in Ghana.",))]

    settings = ScopeSettings(pool=7, snippet=snippet)  # type: ignore[arg-type]
    method = ScopeCoe(
        ScriptedModel("x"),
        HashEncoder(),
        settings,
        retriever=CallableRetriever(search),
        extractor=Found(),
        judge=Table("yyyyyy"),
    )
    answer = method.answer([QUESTION], [[]])[0]
    assert queries == [(QUESTION, 7)]
    assert answer.evidence.document_ids == ("w",)


def test_the_threshold_decides_from_which_probability_on() -> None:
    assert asked(Table("yyyyyy"), threshold=0.9).evidence.derivation.coverage[0].covered_by == (0,)
    assert asked(Table("yyyyyy"), threshold=0.91).evidence.derivation.coverage[0].covered_by == ()


@pytest.mark.models
def test_the_real_tiny_models_find_the_snippet_among_others(tiny_models: dict[registry.Role, Path]) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    towns = [
        Document("p", "Lima", ("Lima is the capital of Peru.", "It lies in the valleys of three rivers.")),
        Document(
            "g", "Ada Foah", ("Ada Foah is a town on the coast of Ghana.", "It lies where the Volta meets the sea.")
        ),
        Document("b", "Bread", ("Bread is baked from dough.",)),
    ]
    with LlamaCppModel(tiny_models["language-model"], style="plain") as model:
        method = ScopeCoe(
            model,
            OnnxEncoder(tiny_models["encoder"]),
            ScopeSettings(judge="text", spans=True, reader_demonstrations=4),
        )
        answer = method.answer([QUESTION], [towns])[0]
    assert answer.evidence.document_ids == ("g",)
    assert any(one.feature.kind == "intent" for one in answer.evidence.derivation.coverage)
    assert all(
        value is None or not np.isnan(value)
        for one in answer.evidence.derivation.coverage
        for value in one.probabilities
    )
