"""Mentions are linked by letters, and by the question where letters leave it open; each text is encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError, ModelError
from pytrace.kg.fact_store import EntityMatch, LabelIndex, Relation
from pytrace.kg.linking import EntityLinker, Link
from pytrace.models import registry
from pytrace.models.encoders.encoder import Encoder, Kind, OnnxEncoder, Vectors
from pytrace.models.scripted import HashEncoder
from pytrace.records import Triple
from tests.store_double import StoreDouble

TRIPLES = [
    ("Q1", "birthPlace", "Ulm"),
    ("Q1", "profession", "physicist"),
    ("Q2", "instrument", "trumpet"),
    ("Q2", "genre", "jazz"),
    ("Q3", "country", "Ghana"),
    ("Q4", "capital", "Q3"),
]
LABELS = [
    ("Q1", "Albert Miller"),
    ("Q2", "Albert Miller"),
    ("Q2", "Al the Horn"),
    ("Q3", "Accra"),
    ("Q4", "Ghana Republic"),
    ("Q5", "Albert Millers"),
]
PLAYS, STUDIES = "Which instrument, a trumpet, plays he?", "Is a physicist by profession from Ulm?"


class LabelledStore(StoreDouble):
    """A store whose entities have labels; counts what it is asked."""

    def __init__(
        self, triples: Sequence[tuple[str, str, str]] = TRIPLES, labels: Sequence[tuple[str, str]] = LABELS
    ) -> None:
        super().__init__(triples)
        self.index = LabelIndex.of(labels)
        self.called = dict(reversed(labels))
        self.calls: list[tuple[str, list[str]]] = []

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        self.calls.append(("find_entities", list(mentions)))
        return [self.index.find(mention, limit=limit, cutoff=cutoff) for mention in mentions]

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        self.calls.append(("around", list(keys)))
        return super().around(keys, limit=limit)

    def names(self, keys: Sequence[str]) -> list[str]:
        return [self.called.get(key, key) for key in keys]


class Recorder(HashEncoder):
    """Keeps what it is asked to encode."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[Kind, list[str]]] = []

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        self.batches.append((kind, list(texts)))
        return super().encode(texts, kind=kind)


def link(mention: str, context: str, encoder: Encoder | None = None, **options: Any) -> list[Link]:
    return EntityLinker(LabelledStore(), encoder or HashEncoder(), **options).link([mention], [context])[0]


def keys(links: Sequence[Link]) -> list[str]:
    return [found.key for found in links]


@pytest.mark.parametrize(("context", "meant"), [(PLAYS, "Q2"), (STUDIES, "Q1")])
@pytest.mark.parametrize("mention", ["Albert Miller", "albert_miller", "Albert Mller"])
def test_entities_of_one_name_are_told_apart_by_the_question(mention: str, context: str, meant: str) -> None:
    assert link(mention, context)[0].key == meant


def test_what_an_entity_is_the_tail_of_tells_it_apart_too() -> None:
    store = LabelledStore([("Q1", "composer", "Q2"), ("Q1", "x", "y")], [("Q2", "Emma"), ("Q3", "Emma"), ("Q1", "Ode")])
    [[best, *_]] = EntityLinker(store, HashEncoder()).link(["Emma"], ["composer of the Ode"])
    assert (best.key, best.context) == ("Q2", pytest.approx(2 / np.sqrt(12), abs=1e-3))


def test_a_score_is_the_weighted_sum_of_letters_and_context() -> None:
    best, other = link("Albert Miller", PLAYS, context_weight=0.25, near=1)[:2]
    assert (best.label, best.fuzzy, other.key) == ("Albert Miller", 1.0, "Q1")
    assert best.context is not None
    assert best.context > 0.3
    assert best.score == pytest.approx(0.75 + 0.25 * best.context)


def test_a_context_that_speaks_against_an_entity_counts_as_none() -> None:
    class Opposite(HashEncoder):
        def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
            return super().encode(texts, kind=kind) * (-1 if kind == "query" else 1)

    links = link("Albert Miller", PLAYS, Opposite(), context_weight=0.5)
    assert [(found.key, found.score) for found in links] == [("Q1", 0.5), ("Q2", 0.5)]
    assert links[1].context is not None
    assert links[1].context < -0.3


def test_what_is_nearly_as_good_as_the_best_is_kept_as_an_alternative() -> None:
    best, other = link("Albert Miller", PLAYS, near=1)
    apart = best.score - other.score
    assert keys(link("Albert Miller", PLAYS, near=apart + 1e-6)) == ["Q2", "Q1"]
    assert keys(link("Albert Miller", PLAYS, near=apart - 1e-6)) == ["Q2"]
    assert keys(link("Albert Miller", PLAYS, near=1, limit=1)) == ["Q2"]


def test_a_mention_that_is_a_name_means_nobody_of_a_similar_name() -> None:
    assert keys(link("Albert Millers", PLAYS)) == ["Q5"]
    assert set(keys(link("Albert Miller", "", near=1))) == {"Q1", "Q2"}
    assert set(keys(link("Albert Mille", "", near=1))) == {"Q1", "Q2", "Q5"}


def test_no_context_makes_up_for_letters_that_are_much_worse() -> None:
    store = LabelledStore(labels=[("Q1", "Albert Miller"), ("Q2", "Albert Mullen")])
    linker = EntityLinker(store, HashEncoder(), context_weight=0.9, near=0.1)
    assert keys(linker.link(["Albert Millr"], [PLAYS])[0]) == ["Q1"]
    assert keys(linker.link(["Albert Muller"], [PLAYS])[0])[0] == "Q2"  # as like the one as the other


def test_entities_are_described_by_the_stores_names_of_relations() -> None:
    class Numbered(LabelledStore):
        def relations(self) -> tuple[Relation, ...]:
            return (Relation("P19", "place of birth"),)

    store = Numbered([("Q1", "P19", "Ulm"), ("Q2", "P20", "Ulm")])
    [[best, *_]] = EntityLinker(store, HashEncoder()).link(["Albert Miller"], ["Which place was the birth at?"])
    assert (best.key, best.context) == ("Q1", pytest.approx(2 / np.sqrt(6 * 6), abs=1e-3))


def test_a_sole_candidate_costs_no_encoding_and_no_second_look() -> None:
    store, encoder = LabelledStore(), Recorder()
    assert EntityLinker(store, encoder).link(["Accra"], ["Where is Accra?"]) == [[Link("Q3", "Accra", 1.0, None, 1.0)]]
    assert encoder.batches == []
    assert store.calls == [("find_entities", ["Accra"])]


@pytest.mark.parametrize("options", [{"encoder": None}, {"context_weight": 0.0}])
def test_letters_alone_rank_where_nothing_else_may(options: dict[str, Any]) -> None:
    encoder = options.pop("encoder", HashEncoder())
    [links] = EntityLinker(LabelledStore(), encoder, **options).link(["Albert Miller"], [PLAYS])
    assert [(found.key, found.context, found.score) for found in links] == [("Q1", None, 1.0), ("Q2", None, 1.0)]


def test_a_context_of_nothing_tells_nothing_apart() -> None:
    encoder = Recorder()
    assert [found.context for found in link("Albert Miller", " \n", encoder)] == [None, None]
    assert encoder.batches == []


def test_all_mentions_are_asked_for_at_once_and_each_text_is_encoded_once() -> None:
    store, encoder = LabelledStore(), Recorder()
    mentions = ["Albert Miller", "Accra", "albert miller", "Albert Miller", "Albert Miller"]
    linked = EntityLinker(store, encoder).link(mentions, [PLAYS, PLAYS, STUDIES, STUDIES, PLAYS])
    assert [keys(links)[0] for links in linked] == ["Q2", "Q3", "Q1", "Q1", "Q2"]
    assert store.calls == [
        ("find_entities", ["Albert Miller", "Accra", "albert miller"]),
        ("around", ["Q1", "Q2"]),
    ]
    assert encoder.batches == [
        (
            "passage",
            ["Albert Miller: birth place Ulm, profession physicist", "Albert Miller: instrument trumpet, genre jazz"],
        ),
        ("query", [PLAYS, STUDIES]),
    ]


def test_a_batch_links_as_each_mention_alone() -> None:
    linker = EntityLinker(LabelledStore(), HashEncoder(), near=1)
    mentions = ["Albert Miller", "Acra", "nobody at all", "", "Albert Mller", "Albert Miller"]
    contexts = [PLAYS, "Where?", "Who?", "Who?", STUDIES, STUDIES]
    assert linker.link(mentions, contexts) == [
        linker.link([mention], [context])[0] for mention, context in zip(mentions, contexts, strict=True)
    ]


def test_a_row_of_the_answer_can_be_changed_without_changing_another() -> None:
    first, second = EntityLinker(LabelledStore(), None).link(["Accra", "Accra"], ["", ""])
    first.clear()
    assert keys(second) == ["Q3"]


def test_more_entities_of_one_name_are_told_apart_than_are_returned() -> None:
    labels = [(f"N{number}", "Springfield") for number in range(4)]
    store = LabelledStore([("N3", "state", "Oregon"), ("N0", "state", "Ohio")], labels)
    [links] = EntityLinker(store, HashEncoder(), limit=2, near=1).link(
        ["Springfield"], ["What state is it in, Oregon?"]
    )
    assert keys(links) == ["N3", "N0"]


@pytest.mark.parametrize("mention", ["", "  ", "\t\n"])
def test_a_mention_of_nothing_means_nothing_and_is_not_asked_for(mention: str) -> None:
    store = LabelledStore()
    assert EntityLinker(store, HashEncoder()).link([mention], [PLAYS]) == [[]]
    assert store.calls == []


def test_no_mentions_are_no_work() -> None:
    store, encoder = LabelledStore(), Recorder()
    assert EntityLinker(store, encoder).link([], []) == []
    assert (store.calls, encoder.batches) == ([], [])


@given(mention=st.text(max_size=20), context=st.text(max_size=40))
def test_any_text_gives_links_in_order_with_scores_from_0_to_1(mention: str, context: str) -> None:
    links = link(mention, context, cutoff=0, near=1)
    assert [found.score for found in links] == sorted((found.score for found in links), reverse=True)
    assert all(0 <= found.score <= 1 and 0 <= found.fuzzy <= 1 for found in links)
    assert len(set(keys(links))) == len(links) <= 5


@pytest.mark.parametrize("text", ["\ud800", "x" * 50_000, "Albert Miller " * 2_000, "\0"])
def test_hostile_mentions_and_contexts_do_no_harm(text: str) -> None:
    assert link(text, text, cutoff=90) == []
    assert set(keys(link("Albert Miller", text))) == {"Q1", "Q2"}


def test_long_values_of_a_store_are_cut_before_they_are_encoded() -> None:
    encoder = Recorder()
    triples = [("Q1", "abstract", "word " * 20_000), ("Q1", "abstract", "x" * 100_000), ("Q2", "y" * 100_000, "Q1")]
    linker = EntityLinker(LabelledStore(triples), encoder)
    assert len(linker.link(["Albert Miller"], [PLAYS])[0]) == 2
    assert max(len(text) for _, texts in encoder.batches for text in texts) <= 90
    assert "word word, abstract xxx" in encoder.batches[0][1][0]  # the first one leaves room for the next


def test_a_key_that_a_store_names_twice_or_below_the_cutoff_is_not_linked_twice_or_at_all() -> None:
    class Careless(LabelledStore):
        def find_entities(
            self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
        ) -> list[list[EntityMatch]]:
            del limit, cutoff
            matches = [("Q3", 90.0), ("Q3", 89.0), ("Q4", 60.0), ("Q5", float("nan"))]
            return [[EntityMatch(key, "Acra", score) for key, score in matches] for _ in mentions]

    links = EntityLinker(Careless(), HashEncoder(), near=1).link(["Accra"], ["Where?"])
    assert links == [[Link("Q3", "Acra", 0.9, None, 0.9)]]


def test_a_broken_encoder_is_named_and_gives_no_links() -> None:
    class Broken(HashEncoder):
        def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
            return super().encode(texts, kind=kind) * np.float32(np.nan)

    with pytest.raises(ModelError, match="NaN"):
        link("Albert Miller", PLAYS, Broken())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("limit", 0),
        ("cutoff", -0.1),
        ("cutoff", 100.5),
        ("cutoff", float("nan")),
        ("context_weight", 1.5),
        ("context_weight", float("nan")),
        ("near", -1.0),
        ("near", 2.0),
    ],
)
def test_numbers_out_of_range_are_refused_with_the_number(option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{option} is {value}; (ask|give)"):
        EntityLinker(LabelledStore(), None, **{option: value})  # type: ignore[arg-type]


def test_every_mention_needs_a_context() -> None:
    with pytest.raises(InputError, match="there are 2 mentions but 1 contexts"):
        EntityLinker(LabelledStore(), None).link(["a", "b"], ["c"])


@pytest.mark.models
def test_the_tiny_encoder_tells_a_physicist_from_a_musician(tiny_models: dict[registry.Role, Path]) -> None:
    linker = EntityLinker(LabelledStore(), OnnxEncoder(tiny_models["encoder"], threads=1))
    contexts = ["Which band did Albert Miller record with?", "What did Albert Miller discover in optics?"]
    assert [keys(links)[0] for links in linker.link(["Albert Miller"] * 2, contexts)] == ["Q2", "Q1"]


def test_a_store_knows_a_question_if_it_has_all_that_one_of_its_queries_mentions() -> None:
    store = LabelledStore()
    linker = EntityLinker(store, None)
    asked = [[["Accra", "Nowhere"], ["acra"]], [["Accra", "Nowhere"]], [[]], [], [["Accra", "Albert Miller"]]]
    assert linker.knows(asked) == [True, False, False, False, True]
    [(_, mentions)] = store.calls
    assert len(mentions) == len(set(mentions)) == 4
    assert linker.knows([]) == []
