"""Words as hashes and numbers, and the terms of rows: beside hashlib, dictionaries and lists of Python."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import _core
from pytrace.kernels.strings import hash_texts, joined

TEXTS = st.lists(st.text(st.sampled_from("ab é東\ud800"), max_size=12), max_size=30)


def blake(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@pytest.mark.parametrize("threads", [1, 3, None])
def test_hashes_are_blake2b_at_every_length(threads: int | None) -> None:
    # Blocks have 128 bytes.
    texts = [*("x" * size for size in range(400)), "", "żółw", "\ud800", "ab" * 40_000]
    assert _core.hash_texts(*joined(texts), threads).tolist() == list(map(blake, texts))
    assert hash_texts(iter(texts)).tolist() == list(map(blake, texts))


@given(TEXTS, st.sampled_from([1, 2, None]))
def test_words_are_hashed_once_a_text_in_their_order(texts: list[str], threads: int | None) -> None:
    offsets, hashes = _core.hash_words(*joined(texts), threads)
    expected = [[blake(word) for word in dict.fromkeys(filter(None, text.split(" ")))] for text in texts]
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    assert hashes.tolist() == [number for each in expected for number in each]


@given(TEXTS)
def test_words_are_numbered_as_they_come(texts: list[str]) -> None:
    ids, lengths, distinct, offsets = _core.number_words(*joined(texts))
    numbers: dict[str, int] = {}
    split = [list(filter(None, text.split(" "))) for text in texts]
    assert ids.tolist() == [numbers.setdefault(word, len(numbers)) for each in split for word in each]
    assert lengths.tolist() == list(map(len, split))
    stored = [
        distinct[start:end].tobytes().decode("utf-8", "surrogatepass")
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    assert stored == list(numbers)


def test_many_distinct_words_are_told_apart() -> None:
    words = [f"w{number}" for number in range(20_000)]
    ids = _core.number_words(*joined([" ".join(words), " ".join(reversed(words))]))[0]
    assert ids.tolist() == [*range(20_000), *reversed(range(20_000))]


def drawn_rows(seed: int) -> list[list[int]]:
    """Draw the terms of some rows, rising, some far apart."""
    draw = np.random.default_rng(seed)
    return [
        np.unique(np.cumsum(draw.choice([1, 2, 7, 30], draw.integers(0, 9)))).tolist()
        for _ in range(draw.integers(0, 20))
    ]


def turned(rows: list[list[int]], far: int) -> tuple[Any, Any]:
    """Return the steps of rows and where each row's begin, by way of the postings."""
    terms = max((term for row in rows for term in row), default=-1) + 1
    held = [[number for number, row in enumerate(rows) if term in row] for term in range(terms)]
    postings = np.array([number for each in held for number in each], dtype=np.uint16)
    starts = np.cumsum([0, *map(len, held)]).astype(np.uint32)
    steps, ends = _core.turn_postings(postings, starts, len(rows), 0, far)
    return steps, np.concatenate([[0], ends]).astype(np.uint32)


@given(st.integers(0, 10_000), st.sampled_from([1, 3, 65_535]), st.sampled_from([1, 2, None]))
def test_terms_of_rows_are_those_that_were_turned(seed: int, far: int, threads: int | None) -> None:
    parts = [drawn_rows(seed), drawn_rows(seed + 1)]
    stored = [turned(rows, far) for rows in parts]
    numbers = [np.random.default_rng(seed + 2 + part).integers(0, 1000, 300).astype(np.int32) for part in range(2)]
    given_parts = [(steps, starts, own) for (steps, starts), own in zip(stored, numbers, strict=True)]
    wanted = [(part, row) for part in (1, 0, 1) for row in range(len(parts[part]))]
    offsets, found = _core.terms_of_rows(given_parts, [p for p, _ in wanted], [row for _, row in wanted], far, threads)
    expected = [[int(numbers[part][term]) for term in parts[part][row]] for part, row in wanted]
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    assert found.tolist() == [number for each in expected for number in each]


def test_terms_of_a_later_block_are_numbered_from_its_first() -> None:
    steps, ends = _core.turn_postings(np.array([0, 0], np.uint16), np.array([0, 1, 2], np.uint32), 2, 100, 65_535)
    assert steps.tolist() == [100, 1]
    assert ends.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": np.array([0, 5], np.uint16)}, "a posting is of row 5 of 2"),
        ({"starts": np.array([0, 3], np.uint32)}, "starts ends at 3, but there are 2 postings"),
        ({"starts": np.array([2, 1], np.uint32)}, "starts goes back at 1"),
        ({"starts": np.empty(0, np.uint32)}, "starts is empty"),
        ({"far": 0}, "far is 0; it must be at least 1"),
        ({"count": 1 << 17}, "count is 131072, first 0 and far 9; they must be at most 65536"),
    ],
)
def test_postings_that_cannot_be_turned_are_refused(changes: dict[str, Any], message: str) -> None:
    good = {
        "rows": np.array([0, 1], np.uint16),
        "starts": np.array([0, 2], np.uint32),
        "count": 2,
        "first": 0,
        "far": 9,
    }
    assert _core.turn_postings(*good.values())[1].tolist() == [1, 2]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        _core.turn_postings(*(good | changes).values())  # type: ignore[arg-type]


def test_damaged_steps_find_something_else_or_are_told() -> None:
    steps, numbers = np.array([1, 2], np.uint16), np.arange(9, dtype=np.int32)
    damaged = np.array([0, 4_000_000_000, 2], np.uint32)
    assert _core.terms_of_rows([(steps, damaged, numbers)], [0, 0], [0, 1], 65_535, 1)[1].tolist() == [1, 3]
    assert _core.terms_of_rows([(steps * 5, np.array([0, 2], np.uint32), numbers)], [0], [0], 9, 1)[1].tolist() == [5]
    for owners, rows, message in (
        ([1], [0], "there is no part 1 among 1"),
        ([0], [2], "there is no row 2 among 2"),
        ([0], [-1], "there is no row -1 among 2"),
        ([0, 0], [0], "there are 1 rows, but 2 owners"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.terms_of_rows([(steps, damaged, numbers)], owners, rows, 65_535, None)
    with pytest.raises(TypeError, match="parts must hold tuples of 3"):
        _core.terms_of_rows([(steps, damaged)], [0], [0], 65_535, None)  # type: ignore[list-item]


@given(st.integers(0, 10_000), st.sampled_from([1, 2, None]))
def test_scaled_rows_are_those_that_numpy_makes(seed: int, threads: int | None) -> None:
    draw = np.random.default_rng(seed)
    sizes, dimension = draw.integers(1, 40, 3), int(draw.integers(0, 70))
    parts = [
        (draw.integers(-127, 128, (size, dimension), dtype=np.int8), draw.random(size, dtype=np.float32))
        for size in sizes
    ]
    owners = draw.integers(0, 3, 50)
    rows = draw.integers(0, sizes[owners])
    found = _core.scaled_rows(parts, owners, rows, dimension, threads)
    expected = [
        parts[part][0][row].astype(np.float32) * parts[part][1][row] for part, row in zip(owners, rows, strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float32).reshape(50, dimension))


@pytest.mark.parametrize(
    ("owners", "rows", "dimension", "message"),
    [
        ([1], [0], 4, "there is no part 1 among 1"),
        ([0], [3], 4, "there is no row 3 among 3"),
        ([0], [0], 5, r"items are \[3, 4\] with 3 scales, and rows of 5 are due"),
        ([0], [0, 1], 4, "there are 2 rows, but 1 owners"),
    ],
)
def test_rows_that_are_not_there_are_refused(owners: list[int], rows: list[int], dimension: int, message: str) -> None:
    parts = [(np.ones((3, 4), np.int8), np.ones(3, np.float32))]
    assert _core.scaled_rows(parts, [0], [2], 4, None).tolist() == [[1, 1, 1, 1]]
    with pytest.raises(ValueError, match=message):
        _core.scaled_rows(parts, owners, rows, dimension, None)
