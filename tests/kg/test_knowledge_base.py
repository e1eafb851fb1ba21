"""The knowledge base in memory: what it finds by key, by entity and by vector, beside plain Python over the same triples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError, ModelError
from pytrace.kernels import top_k
from pytrace.kg import KnowledgeBase, compile_triples
from pytrace.kg import triple_search as sketches
from pytrace.kg.text_table import KeyIndex, TextTable
from pytrace.kg.triple_search import make_sketch, search
from pytrace.models.scripted import HashEncoder
from pytrace.records import Triple

GHANA = [
    Triple("Ada_Foah", "located_in", "Ghana"),
    Triple("Ghana", "capital", "Accra"),
    Triple("Accra", "located_in", "Ghana"),
    Triple("Ghana", "capital", "Accra"),
    Triple("Ghana", "part_of", "Ghana"),
]

texts = st.text(st.characters(), max_size=8)  # with lone surrogates
parts = st.sampled_from(["a", "b", "c", "A", "\ud800", "中", "a b", "a_b"])
graphs = st.lists(st.builds(Triple, parts, parts, parts), min_size=1, max_size=30)


@given(graphs)
def test_triples_are_kept_once_in_their_order_and_found_by_head_tail_and_key(triples: list[Triple]) -> None:
    base = KnowledgeBase.in_memory(triples, HashEncoder(dimension=8))
    distinct = list(dict.fromkeys(triples))
    assert [base.triple(number) for number in range(len(base))] == distinct
    for key in {part for triple in distinct for part in (triple.head, triple.tail)}:
        entity = base.entity(key)
        assert entity is not None
        assert base.with_head(entity).tolist() == [n for n, triple in enumerate(distinct) if triple.head == key]
        assert base.with_tail(entity).tolist() == [n for n, triple in enumerate(distinct) if triple.tail == key]
    for number, triple in enumerate(distinct):
        assert base.number(triple) == number
        other = Triple(triple.tail, triple.relation, triple.head)
        assert base.number(other) == (distinct.index(other) if other in distinct else None)


def test_names_are_worded_from_keys_unless_they_are_given() -> None:
    base = KnowledgeBase.in_memory(
        GHANA, HashEncoder(), names={"Ghana": "Republic of Ghana", "capital": "has as capital"}
    )
    assert base.text(0) == "Ada Foah located in Republic of Ghana."
    assert base.named(1) == Triple("Republic of Ghana", "has as capital", "Accra")
    assert base.triple(1) == GHANA[1]


def test_names_may_come_while_the_triples_do() -> None:
    names: dict[str, str] = {}

    def stream() -> Iterator[Triple]:
        yield GHANA[1]
        names["Accra"] = "Greater Accra"

    assert list(compile_triples(stream(), names=names).entity_names) == ["Ghana", "Greater Accra"]


@pytest.mark.parametrize("triples", [[], [Triple("a", "", "b")], [Triple(" ", "r", "b")], [Triple("a", "r", "\n")]])
def test_no_triple_and_an_empty_part_are_errors(triples: list[Triple]) -> None:
    with pytest.raises(InputError, match="empty"):
        KnowledgeBase.in_memory(triples, HashEncoder())


def test_what_is_not_there_is_none() -> None:
    base = KnowledgeBase.in_memory(GHANA, HashEncoder())
    assert (base.entity("ghana"), base.relation(""), base.number(Triple("Ghana", "born in", "x"))) == (None, None, None)


class Broken:
    """Gives what it is told to, whatever the texts."""

    name, fingerprint, dimension = "broken", "broken", 2

    def __init__(self, vectors: Any) -> None:
        self._vectors = vectors

    def encode(self, given: Any, *, kind: str = "passage") -> Any:
        del given, kind
        return self._vectors


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([[0, 1]], r"\[1, 2\] for 2 texts where \[2, 2\]"),
        ([[0, 1], [np.nan, 0]], "number 1, 'b r c.'"),
        ([[0, 1], [np.inf, 0]], "number 1"),
    ],
)
def test_a_broken_encoder_is_named(vectors: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        KnowledgeBase.in_memory(
            [Triple("a", "r", "b"), Triple("b", "r", "c")], Broken(np.array(vectors, dtype=np.float32))
        )


@given(st.lists(texts, unique=True, max_size=20), texts)
def test_a_table_gives_back_its_texts_and_an_index_their_numbers(given_texts: list[str], other: str) -> None:
    table = TextTable.of(given_texts)
    index = KeyIndex.of(given_texts)
    assert list(table) == given_texts
    assert [index.find(table, text) for text in given_texts] == list(range(len(given_texts)))
    assert index.find(table, other) == (given_texts.index(other) if other in given_texts else None)
    for number in (-1, len(given_texts)):
        with pytest.raises(IndexError):
            table[number]


def test_texts_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.kg.text_table.text_hash", len)
    words = ["aa", "bb", "c", "dd"]
    index = KeyIndex.of(words)
    table = TextTable.of(words)
    assert [index.find(table, word) for word in [*words, "ee", "eee"]] == [0, 1, 2, 3, None, None]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Let a few vectors of 12 dimensions be sketched by 3 directions, and return which scans were made since, how wide."""
    for name, value in {
        "SKETCH_FROM": 1, "_DIRECTIONS": 3, "_LEAST_SHARE": 0.0, "_FIRST_WIDTH": 2, "_CANDIDATES": 12, "_MOST_SHARE": 0.5, 
        "_ROWS_AT_ONCE": 7, "_SAMPLE": 10, "_BLOCK_BYTES": 16 * 4 * 12,
    }.items():  # fmt: skip
        monkeypatch.setattr(sketches, name, value)
    scans: list[tuple[str, int]] = []

    def recorded(queries: Any, items: Any, k: int, **options: Any) -> Any:
        if not options:
            scans.append(("sketch" if items.dtype == np.float16 else "all", k))
        return top_k(queries, items, k, **options)

    monkeypatch.setattr(sketches, "top_k", recorded)
    return scans


def vectors(shape: str, count: int, seed: int) -> Any:
    """Make vectors of length 1 (or 0): in few directions, in clusters, at random, or a few that come again and again."""
    random = np.random.default_rng(seed)
    made = random.standard_normal((count, 12)).astype(np.float32)
    if shape == "flat":
        made *= 4.0 ** -np.arange(12, dtype=np.float32)
    elif shape == "clusters":
        made = 3 * made[random.integers(0, max(count // 8, 1), count)] + made
    elif shape == "equal":
        made = made[random.integers(0, min(3, count), count)]
    made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-30)
    made[random.random(count) < 0.05] = 0
    return made


@given(
    st.sampled_from(["flat", "clusters", "random", "equal"]),
    st.integers(1, 200),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 1e-6, 100.0, 1e6]),
)
def test_a_sketched_search_finds_what_a_search_of_all_finds_to_the_last_bit(
    small: list[tuple[str, int]], shape: str, count: int, queries: int, k: int, seed: int, length: float
) -> None:
    del small
    items = vectors(shape, count, seed) * np.float32(length)
    asked = np.concatenate([vectors(shape, queries, seed + 1), items[: queries // 2]]).astype(np.float32)
    for sketch in (make_sketch(items), None):
        for found, expected in zip(search(asked, items, k, sketch), top_k(asked, items, k), strict=True):
            np.testing.assert_array_equal(found, expected)


@given(st.integers(20, 200), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_vectors_that_are_read_are_looked_at_nowhere_else_and_never_all_at_once(
    small: list[tuple[str, int]], count: int, k: int, seed: int
) -> None:
    del small
    items, asked = vectors("clusters", count, seed), vectors("random", 5, seed + 1)
    longest = 0

    def read(rows: Any) -> Any:
        nonlocal longest
        longest = max(longest, len(rows))
        return items[rows]

    elsewhere = np.full_like(items, np.nan)
    for sketch in (make_sketch(items), None):
        for found, expected in zip(search(asked, elsewhere, k, sketch, read=read), top_k(asked, items, k), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert longest <= max(16, count // 2)


def test_where_length_lies_in_few_directions_the_sketch_alone_is_scanned(small: list[tuple[str, int]]) -> None:
    items = vectors("flat", 400, 0)
    sketch = make_sketch(items)
    small.clear()
    search(items[:5], items, 1, sketch)
    assert {kind for kind, _ in small} == {"sketch"}


def test_what_a_sketch_cannot_prove_is_asked_of_wider_ones_and_at_last_of_all(small: list[tuple[str, int]]) -> None:
    items = np.repeat(vectors("random", 1, 3), 100, axis=0)  # all tie, so that no bound tells them apart
    sketch = make_sketch(items)
    small.clear()
    assert search(items[:1], items, 2, sketch)[1].tolist() == [[0, 1]]
    assert small == [("sketch", 4), ("sketch", 16), ("all", 2)]


def test_equal_scores_with_different_bounds_are_ordered_by_lower_index(small: list[tuple[str, int]]) -> None:
    items = np.zeros((100, 12), dtype=np.float32)
    items[:2, 0] = 0.5
    items[1, 5] = 0.25  # no query looks there, but the sketch does not know
    items[2:51, 1] = items[51:, 2] = -0.5
    asked = np.eye(12, dtype=np.float32)[[0]] + np.eye(12, dtype=np.float32)[11]
    sketch = make_sketch(items)
    small.clear()
    assert search(asked, items, 1, sketch)[1].tolist() == [[0]]
    assert {kind for kind, _ in small} == {"sketch"}


def test_vectors_too_long_for_half_precision_are_not_sketched(small: list[tuple[str, int]]) -> None:
    del small
    assert make_sketch(vectors("flat", 50, 0) * np.float32(1e6)) is None


def test_only_vectors_with_most_of_their_length_in_few_directions_are_sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "SKETCH_FROM", 1_000)
    random = np.random.default_rng(0).standard_normal((1_000, 384), dtype=np.float32)
    assert make_sketch(random) is None
    steep = random * (1.02 ** -np.arange(384, dtype=np.float32))
    assert make_sketch(steep) is not None
    assert make_sketch(steep[:999]) is None
    assert make_sketch(steep[:, :200]) is None
    assert make_sketch(np.zeros_like(random)) is None


def test_a_sketched_search_refuses_what_a_plain_one_refuses(small: list[tuple[str, int]]) -> None:
    del small
    items = vectors("flat", 50, 0)
    sketch = make_sketch(items)
    for asked in (np.full((2, 12), np.nan, dtype=np.float32), np.zeros((2, 5), dtype=np.float32)):
        with pytest.raises(ValueError):
            search(asked, items, 3, sketch)
    with pytest.raises(ValueError):
        search(items[:2], items, -1, sketch)
    assert search(items[0], items, 3, sketch)[0].shape == (3,)
    assert search(items[:0], items, 3, sketch)[0].shape == (0, 3)


def test_a_base_finds_the_triples_that_say_the_same() -> None:
    encoder = HashEncoder()
    base = KnowledgeBase.in_memory(GHANA, encoder)
    scores, numbers = base.search(encoder.encode(["The capital of Ghana: Accra!", "nothing alike"]), 6)
    assert numbers[0, 0] == 1
    assert numbers.shape == (2, 6)
    assert numbers[:, 4:].tolist() == [[-1, -1]] * 2
    assert np.isneginf(scores[:, 4:]).all()


@pytest.mark.models
def test_the_tiny_encoder_finds_a_fact_said_in_other_words(tiny_models: Any) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder

    encoder = OnnxEncoder(tiny_models["encoder"])
    base = KnowledgeBase.in_memory(GHANA, encoder)
    _, numbers = base.search(encoder.encode(["Accra is Ghana's capital city."], kind="passage"), 1)
    assert numbers[0, 0] == 1
