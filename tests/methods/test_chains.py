"""Ranker and beam search: all questions at once give what Algorithm 1 gives for each by itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytrace.methods.trace.beam_search import SearchSettings, build_chains
from pytrace.methods.trace.ranker import Ranker, TripleIndex
from pytrace.methods.trace.selector import RankerSelector, Step
from pytrace.models.scripted import HashEncoder
from pytrace.records import Chain, TextUnit, Triple
from tests import oracles


def numbers(text: str, count: int) -> NDArray[np.float64]:
    """Return normal random numbers that depend on the text alone."""
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(seed).normal(size=count)


class RandomEncoder:
    """Encodes each text as a random direction, so that no two scores are equal; counts what it is asked."""

    name = fingerprint = "random"
    dimension = 16

    def __init__(self) -> None:
        self.encoded: list[tuple[str, str]] = []

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> NDArray[np.float32]:
        self.encoded += [(kind, text) for text in texts]
        vectors = np.array([numbers(text, self.dimension) for text in texts]).reshape(-1, self.dimension)
        return vectors.astype(np.float32)


class RandomSelector:
    """Scores each option at random by its words; remembers every step it was asked about."""

    def __init__(self, *, ending: float = 0.0, spread: float = 2.0) -> None:
        self.calls: list[list[Step]] = []
        self._ending = ending
        self._spread = spread

    def logits(self, question: str, chain: Sequence[Triple], offered: Sequence[Triple]) -> list[float]:
        told = question + "|".join(triple.text for triple in chain)
        scores = [float(numbers(told + option, 1)[0]) * self._spread for option in ("END", *(t.text for t in offered))]
        return [scores[0] + self._ending, *scores[1:]]

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        self.calls.append(list(steps))
        return [
            np.array(self.logits(step.question, step.chain, [candidate.unit for candidate in step.candidates]))
            for step in steps
        ]


def some_triples(question: int, count: int) -> list[Triple]:
    return [Triple(f"h{question}", "r", f"t{number}", f"d{number % 3}", 0) for number in range(count)]


@settings(max_examples=120)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    candidates=st.integers(1, 8),
    length=st.integers(1, 5),
    beams=st.integers(1, 5),
    chains=st.integers(1, 6),
    min_prob=st.sampled_from([0.0, 1e-4, 0.15, 0.45]),
    adaptive=st.booleans(),
    minimum=st.integers(0, 3),
    ending=st.sampled_from([-3.0, 0.0, 3.0]),
)
def test_the_search_is_algorithm_1(
    counts: list[int],
    candidates: int,
    length: int,
    beams: int,
    chains: int,
    min_prob: float,
    adaptive: bool,
    minimum: int,
    ending: float,
) -> None:
    questions = [f"question {number}?" for number in range(len(counts))]
    triples = [some_triples(number, count) for number, count in enumerate(counts)]
    encoder, selector = RandomEncoder(), RandomSelector(ending=ending)
    found = build_chains(
        questions,
        TripleIndex(triples, encoder),
        Ranker(encoder, candidates=candidates),
        selector,
        SearchSettings(length, beams, chains, min_prob=min_prob, adaptive=adaptive, minimum=minimum),
    )
    asked: list[tuple[str, tuple[Triple, ...]]] = []
    for question, own, chains_found in zip(questions, triples, found, strict=True):
        if not own:
            assert chains_found == []
            continue

        def rank(chain: tuple[int, ...], question: str = question, own: list[Triple] = own) -> list[int]:
            query = " ".join([question, *(own[i].text for i in chain)])
            vector = numbers(query, 16).astype(np.float32).tolist()
            vectors = [numbers(triple.text, 16).astype(np.float32).tolist() for triple in own]
            return [
                i for _, i in oracles.top_k([vector], vectors, len(own), "ip", [range(len(own))])[0] if i not in chain
            ][:candidates]

        expected, questioned = oracles.reasoning_chains(
            rank,
            lambda chain, offered, question=question, own=own: selector.logits(  # type: ignore[misc]
                question, [own[i] for i in chain], [own[i] for i in offered]
            ),
            length=length,
            beams=beams,
            chains=chains,
            min_prob=min_prob,
            adaptive=adaptive,
            minimum=minimum,
        )
        assert [chain.units for chain in chains_found] == [tuple(own[i] for i in one[0]) for one in expected]
        assert [chain.finished for chain in chains_found] == [one[2] for one in expected]
        for chain, (_, steps, _) in zip(chains_found, expected, strict=True):
            assert np.exp(chain.steps) == pytest.approx(steps)
            assert math.exp(chain.score) == pytest.approx(math.prod(steps))
        asked += [(question, tuple(own[i] for i in chain)) for chain in questioned]
    sent = [(step.question, step.chain) for call in selector.calls for step in call]
    # A chain that has ended, or has nothing left to choose from, is not asked about again.
    assert sorted(sent, key=repr) == sorted(asked, key=repr)
    assert len(set(sent)) == len(sent)
    assert len(selector.calls) <= length


def search(selector: RandomSelector, counts: Sequence[int] = (6, 6), **options: object) -> list[list[Chain]]:
    encoder = RandomEncoder()
    triples = [some_triples(number, count) for number, count in enumerate(counts)]
    return build_chains(
        [f"question {number}?" for number in range(len(counts))],
        TripleIndex(triples, encoder),
        Ranker(encoder),
        selector,
        SearchSettings(**options),  # type: ignore[arg-type]
    )


def test_fixed_length_chains_never_end_early() -> None:
    selector = RandomSelector(ending=50.0)
    for group in search(selector, length=3, adaptive=False):
        assert [(len(chain.units), len(chain.steps), chain.finished) for chain in group] == [(3, 3, False)] * 5
    assert len(selector.calls) == 3


def test_the_search_ends_when_every_chain_has() -> None:
    selector = RandomSelector(ending=50.0)
    groups = search(selector, length=4)
    # The first step may not end a chain, and the second ends all of them.
    assert [len(call) for call in selector.calls] == [2, 10]
    for group in groups:
        assert [(len(chain.units), len(chain.steps), chain.finished) for chain in group] == [(1, 2, True)] * 5


def test_a_chain_ends_where_its_question_has_no_triples_left() -> None:
    selector = RandomSelector()
    one, none, two = search(selector, counts=(1, 0, 2), length=4, adaptive=False)
    assert [len(chain.units) for chain in one] == [1]
    assert none == []
    assert sorted(len(chain.units) for chain in two) == [2, 2]
    assert not any(chain.finished for chain in (*one, *two))


def test_no_question_and_no_triple_need_no_model() -> None:
    selector = RandomSelector()
    assert search(selector, counts=()) == []
    assert search(selector, counts=(0, 0)) == [[], []]
    assert selector.calls == []


def test_a_chain_holds_no_triple_twice_and_its_score_is_the_sum_of_its_steps() -> None:
    for group in search(RandomSelector(), length=4):
        assert [chain.score for chain in group] == sorted((chain.score for chain in group), reverse=True)
        for chain in group:
            assert len(set(chain.units)) == len(chain.units)
            assert chain.score == pytest.approx(sum(chain.steps))
            assert len(chain.steps) == len(chain.units) + chain.finished


@pytest.mark.parametrize("name", ["length", "beams", "chains"])
def test_sizes_that_search_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        SearchSettings(**{name: 0})


def test_the_ranker_offers_the_nearest_to_question_and_chain_without_what_was_chosen() -> None:
    triples = [
        Triple("Quillhaven", "lies in", "Norland"),
        Triple("Isaura Venn", "born in", "Quillhaven"),
        Triple("Orrin Head", "founder", "Isaura Venn"),
        Triple("Salt", "is", "white"),
    ]
    encoder = HashEncoder(dimension=4096)
    index = TripleIndex([triples], encoder)
    question = "Who was the founder of Orrin Head?"
    first, second = Ranker(encoder, candidates=3).rank(index, [question], [0, 0], [[], [2]])
    assert first[0].unit == triples[2]
    assert [candidate.index for candidate in second] == [1, 0, 3]
    query = encoder.encode([f"{question} {triples[2].text}"], kind="query")[0]
    for candidate in second:
        assert candidate.unit == triples[candidate.index]
        assert candidate.score == pytest.approx(float(query @ encoder.encode([candidate.unit.text])[0]), abs=1e-6)


def test_many_questions_in_one_call_are_ranked_as_one_by_one() -> None:
    encoder = RandomEncoder()
    triples = [some_triples(number, count) for number, count in enumerate((5, 0, 9, 1))]
    questions = [f"question {number}?" for number in range(4)]
    which, chains = [0, 0, 2, 2, 2, 3], [[], [3, 1], [8], [], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0]]
    ranker = Ranker(encoder, candidates=4)
    together = ranker.rank(TripleIndex(triples, encoder), questions, which, chains)
    assert [len(row) for row in together] == [4, 3, 4, 4, 0, 0]
    for question, chain, row in zip(which, chains, together, strict=True):
        (alone,) = ranker.rank(TripleIndex([triples[question]], encoder), [questions[question]], [0], [chain])
        assert [candidate.index for candidate in row] == [candidate.index for candidate in alone]
        assert [candidate.score for candidate in row] == pytest.approx([candidate.score for candidate in alone])
        assert not {candidate.index for candidate in row} & set(chain)
    assert ranker.rank(TripleIndex(triples, encoder), questions, [], []) == []


def test_equally_near_triples_are_offered_in_their_order() -> None:
    triples = [Triple("same", "as", "ever") for _ in range(5)]
    encoder = HashEncoder()
    (row,) = Ranker(encoder, candidates=3).rank(TripleIndex([triples], encoder), ["same?"], [0], [[1]])
    assert [candidate.index for candidate in row] == [0, 2, 3]


def test_triples_are_encoded_once_as_passages_and_chains_as_queries() -> None:
    encoder = RandomEncoder()
    index = TripleIndex([some_triples(0, 3)], encoder)
    build_chains(["q?"], index, Ranker(encoder), RankerSelector(), SearchSettings(length=2, min_prob=0.0))
    passages = [text for kind, text in encoder.encoded if kind == "passage"]
    queries = [text for kind, text in encoder.encoded if kind == "query"]
    assert passages == [triple.text for triple in index.triples[0]]
    assert queries[0] == "q?"
    assert sorted(queries[1:]) == [f"q? {triple.text}" for triple in index.triples[0]]


def test_no_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="candidates must be at least 1, not 0"):
        Ranker(HashEncoder(), candidates=0)


def test_a_wider_search_keeps_chains_that_are_not_yet_the_best() -> None:
    many = (6,) * 12
    wide = search(RandomSelector(), many, length=4, chains=1, width=6)
    as_wide = search(RandomSelector(), many, length=4, chains=6)
    assert wide == [group[:1] for group in as_wide]
    narrow = search(RandomSelector(), many, length=4, chains=1)
    assert all(own[0].score >= other[0].score for own, other in zip(wide, narrow, strict=True))
    assert wide != narrow
    # It is never narrower than what is asked for.
    assert search(RandomSelector(), length=2, chains=3, width=1) == search(RandomSelector(), length=2, chains=3)


def linked(heads: Sequence[str], question: str, chain: Sequence[int] = (), **options: float) -> dict[int, float]:
    """Return each candidate's score beyond its similarity, by its place."""
    encoder = HashEncoder()
    triples = [TextUnit(head, f"text {number}", f"d{number}", 0) for number, head in enumerate(heads)]
    index = TripleIndex([triples], encoder)
    offered = Ranker(encoder, **options).rank(index, [question], [0], [chain])[0]  # type: ignore[arg-type]
    plain = Ranker(encoder).rank(index, [question], [0], [chain])[0]
    similar = {one.index: one.score for one in plain}
    return {one.index: one.score - similar[one.index] for one in offered}


def test_a_head_that_the_question_or_the_chain_names_counts_for_more() -> None:
    heads = [
        "Ada Foah",
        "Accra",
        "Kumasi (city)",
        "Volta",
        "",
        "A very long head that holds Where is Ada Foah within it",
    ]
    beyond = linked(heads, "Where is Ada-Foah, near the cities of Kumasi?", link_weight=0.5)
    assert beyond == pytest.approx({0: 0.5, 1: 0, 2: 0.5, 3: 0, 4: 0, 5: 0}, abs=1e-6)
    # Words are whole: Accra is not named by "Accrals", and case does not matter.
    assert linked(["Accra"], "What are accrals?", link_weight=1)[0] == 0
    assert linked(["ACCRA"], "Is accra large?", link_weight=1)[0] == pytest.approx(1, abs=1e-6)
    # What the chain says names heads, too.
    triples = [TextUnit("Fort", "It lies in Ada Foah.", "a", 0), TextUnit("Ada Foah", "A town.", "b", 0)]
    index = TripleIndex([triples], HashEncoder())
    ranker, plain = Ranker(HashEncoder(), link_weight=2), Ranker(HashEncoder())
    (named,), (unnamed,) = (one.rank(index, ["Where?"], [0], [[0]])[0] for one in (ranker, plain))
    assert named.index == unnamed.index == 1
    assert named.score - unnamed.score == pytest.approx(2, abs=1e-5)


def test_an_open_head_in_lower_case_names_nothing_and_one_of_several_documents_is_worth_less() -> None:
    question = ["Where is the town hall of Accra, a town near Volta?"]

    def named(*heads: tuple[str, str]) -> list[float]:
        triples = [Triple(head, "has", f"x{number}", document) for number, (head, document) in enumerate(heads)]
        return TripleIndex([triples], HashEncoder()).named(0, question)[0].tolist()

    opened = [("Accra", "a"), ("town", "a"), ("Accra", "b"), ("Volta", "b"), ("town hall of Accra", "c")]
    assert named(*opened) == pytest.approx([0.5, 0, 0.5, 1, 1])
    # Where the title is every head of a document, it counts whole, as in the paper's graphs.
    titled = [("Accra", "a"), ("Accra", "a"), ("Accra", "b"), ("town", "c")]
    assert named(*titled) == pytest.approx([1, 1, 1, 1])


def test_links_of_many_questions_are_those_of_each_by_itself() -> None:
    encoder = RandomEncoder()
    questions = [f"Where is h{number}?" for number in range(4)]
    triples = [[*some_triples(number, 3 * (number % 3)), *some_triples(9, 2)] for number in range(4)]
    ranker = Ranker(encoder, candidates=4, link_weight=0.7)
    which, chains = [0, 1, 1, 3], [[], [0], [1, 2], []]
    together = ranker.rank(TripleIndex(triples, encoder), questions, which, chains)
    for number, chain, row in zip(which, chains, together, strict=True):
        (alone,) = ranker.rank(TripleIndex([triples[number]], encoder), [questions[number]], [0], [chain])
        assert [one.index for one in row] == [one.index for one in alone]
        assert [one.score for one in row] == pytest.approx([one.score for one in alone], abs=1e-5)


@pytest.mark.parametrize("link_weight", [0.0, 0.5])
def test_a_chain_may_be_led_to_other_documents_only(link_weight: float) -> None:
    encoder = RandomEncoder()
    triples = some_triples(0, 7)  # documents d0, d1, d2 in turn
    ranker = Ranker(encoder, link_weight=link_weight, new_documents=True)
    index = TripleIndex([triples], encoder)
    first, second, third = ranker.rank(index, ["question 0?"], [0, 0, 0], [[], [3], [0, 1]])
    assert {one.index for one in first} == set(range(7))
    assert {one.unit.document_id for one in second} == {"d1", "d2"}
    assert {one.unit.document_id for one in third} == {"d2"}
    chains = build_chains(["question 0?"], index, ranker, RandomSelector(), SearchSettings(5, adaptive=False))
    assert all(len({one.document_id for one in chain.units}) == len(chain.units) == 3 for chain in chains[0])


def test_a_negative_link_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="link_weight must be 0 or more, not -1"):
        Ranker(HashEncoder(), link_weight=-1)
