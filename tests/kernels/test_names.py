"""Names are found exactly, the longest first, in any number of texts, and damaged tables never end the process."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pytrace import _core
from pytrace.kernels.names import FoundNames, NameTable
from pytrace.kernels.strings import joined

HASH = 4253260302482983560
WORDS = ("ada", "foah", "lake", "volta", "a", "of", "the", "é", "ada2", "東京")


def oracle(names: list[str], texts: list[str]) -> list[list[tuple[str, int, int]]]:
    """Look at every stretch of every text, by sets of tuples."""
    known = {tuple(name.split()) for name in names}
    longest = max(map(len, known), default=0)
    found = []
    for text in texts:
        words = text.split()
        hits = []
        at = 0
        while at < len(words):
            sizes = [
                size
                for size in range(longest, 0, -1)
                if tuple(words[at : at + size]) in known and at + size <= len(words)
            ]
            if sizes:
                hits.append((" ".join(words[at : at + sizes[0]]), at, at + sizes[0]))
            at += max(sizes[:1], default=1)
        found.append(hits)
    return found


def listed(table: NameTable, found: FoundNames) -> list[list[tuple[str, int, int]]]:
    rows = list(zip(map(table.name, found.names.tolist()), found.starts.tolist(), found.ends.tolist(), strict=True))
    return [rows[start:end] for start, end in zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)]


def sample(rng: random.Random, longest: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, longest)))


@pytest.mark.parametrize("seed", range(20))
def test_names_are_those_that_looking_at_every_stretch_finds(seed: int) -> None:
    rng = random.Random(seed)
    names = [sample(rng, 6) for _ in range(rng.choice((0, 1, 5, 200)))]
    texts = [sample(rng, 40) if rng.random() < 0.9 else "" for _ in range(rng.choice((1, 3, 300)))]
    table, rows = NameTable.build(names)
    assert [table.name(row) for row in rows.tolist()] == names
    assert len(table) == len(set(names))
    assert (np.diff(table.hashes.astype(object)) >= 0).all()
    expected = oracle(names, texts)
    for index in (False, True, None):
        for threads in (1, 3):
            assert listed(table, table.find(texts, index=index, threads=threads)) == expected


def test_names_that_share_a_hash_are_told_apart() -> None:
    table, _ = NameTable.build(["ada", "foah", "lake"])
    # As if all had one: what is found is compared by its bytes.
    hashes = np.full(3, table.hashes[1], dtype=np.uint64)
    shared = NameTable(hashes, table.text, table.offsets, table.firsts, table.lengths)
    word = table.name(1)
    for index in (False, True):
        assert listed(shared, shared.find([word, "volta"], index=index)) == [[(word, 0, 1)], []]
        others = [name for name in ("ada", "foah", "lake") if name != word]
        assert listed(shared, shared.find(others, index=index)) == [[], []]


def test_a_table_of_arrays_is_that_of_their_names() -> None:
    names = ["lake volta", "ada", "ada foah", "ada", "\ud800 é"]
    table, rows = NameTable.of(*joined(names), threads=2)
    expected, expected_rows = NameTable.build(names, threads=1)
    for part in ("hashes", "text", "offsets", "firsts", "lengths"):
        np.testing.assert_array_equal(getattr(table, part), getattr(expected, part))
    assert rows.tolist() == expected_rows.tolist()
    assert [table.name(row) for row in rows.tolist()] == names
    assert len(NameTable.of(*joined([]))[0]) == 0
    with pytest.raises(ValueError, match="offsets ends at 2, but there are 3 values"):
        NameTable.of(np.zeros(3, np.uint8), np.array([0, 2]))


def test_hashes_stay_what_they_are_in_files() -> None:
    table, _ = NameTable.build(["ada foah"])
    assert table.hashes.tolist() == [HASH]
    assert table.firsts.tolist() == NameTable.build(["ada"])[0].hashes.tolist()
    assert table.lengths.tolist() == [0b10]


def test_spaces_part_words_and_nothing_else_does() -> None:
    table, _ = NameTable.build(["ada  foah ", "no-break\u00a0space"])
    assert sorted(map(table.name, range(2))) == ["ada foah", "no-break\u00a0space"]
    assert listed(table, table.find([" ada   foah ", "ada\tfoah"])) == [[("ada foah", 0, 2)], []]


@pytest.mark.parametrize(("names", "words"), [([""], 0), (["  "], 0), ([" ".join(["a"] * 65)], 65)])
def test_names_of_no_word_or_too_many_are_refused(names: list[str], words: int) -> None:
    with pytest.raises(ValueError, match=f"has {words} words; a name has from 1 to 64"):
        NameTable.build(["ada", *names])


def test_the_longest_name_there_can_be_is_found() -> None:
    name = " ".join(f"w{number}" for number in range(64))
    table, _ = NameTable.build([name, "w0"])
    for index in (False, True):
        assert listed(table, table.find([f"x {name} w0"], index=index)) == [[(name, 1, 65), ("w0", 65, 66)]]


def test_lone_surrogates_are_words_like_others() -> None:
    table, _ = NameTable.build(["\ud800 ada"])
    assert listed(table, table.find(["an \ud800 ada"])) == [[("\ud800 ada", 1, 3)]]
    assert listed(table, table.find(["an \ud800 ada".encode("utf-8", "surrogatepass")])) == [[("\ud800 ada", 1, 3)]]


def test_damaged_tables_are_told_or_find_nothing() -> None:
    names = ["ada foah", "lake", "volta of the lake"]
    table, _ = NameTable.build(names)
    rng = random.Random(1)
    reasons = set()
    arrays = [table.hashes, table.text, table.offsets, table.firsts, table.lengths]
    for _ in range(500):
        damaged = [array.copy() for array in arrays]
        which = rng.randrange(5)
        raw = damaged[which].view(np.uint8)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        other = NameTable(*damaged)
        for index in (False, True):
            try:
                found = other.find(["ada foah at the lake volta of the lake"], index=index)
            except ValueError as error:
                reasons.add(str(error)[:4])
            else:
                assert ((found.names >= 0) & (found.names < 3)).all()
    assert reasons == {"name"}


def test_arrays_that_do_not_go_together_are_refused() -> None:
    table, _ = NameTable.build(["ada"])
    with pytest.raises(ValueError, match="1 hashes need 2 offsets, not 1"):
        NameTable(table.hashes, table.text, table.offsets[:1], table.firsts, table.lengths)
    with pytest.raises(ValueError, match="there are 1 first words, but lengths of 0"):
        NameTable(table.hashes, table.text, table.offsets, table.firsts, table.lengths[:0])
    narrow = NameTable(table.hashes, table.text, table.offsets.astype(np.int32), table.firsts, table.lengths)
    with pytest.raises(TypeError, match="offsets holds int32"):
        narrow.find(["ada"])
    with pytest.raises(ValueError, match="text_offsets ends at 2, but there are 3 values"):
        _core.find_names(
            table.hashes,
            table.text,
            table.offsets,
            table.firsts,
            table.lengths,
            np.zeros(3, np.uint8),
            [0, 2],
            False,
            None,
        )
    with pytest.raises(IndexError, match="there is no name 1 among 1"):
        table.name(1)
