"""Words in segments: ranks are those of BM25 over the live rows, however these were built, merged and removed."""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytrace import _core
from pytrace.errors import StoreError
from pytrace.records import Document
from pytrace.retrieval import Bm25Retriever, word_postings
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.word_index import WordIndex
from pytrace.retrieval.word_postings import WordBlocks, build_words, merge_words, word_hashes
from pytrace.storage.array_file import ArrayFile, write_arrays

Live = NDArray[np.bool_]


def texts_of(seed: int, count: int, *, vocabulary: int = 300, most: int = 60) -> list[str]:
    draw = random.Random(seed)
    names = ["".join(draw.choices(string.ascii_letters + "éßж", k=draw.randint(1, 6))) for _ in range(vocabulary)]
    weights = [1 / (rank + 1) for rank in range(vocabulary)]
    return [" ".join(draw.choices(names, weights, k=draw.randint(0, most))) for _ in range(count)]


def queries_of(seed: int, texts: Sequence[str], count: int = 12) -> list[str]:
    draw = random.Random(seed)
    known = [word for text in texts for word in words(text)] or ["none"]
    return [" ".join(draw.choices([*known, "absent"], k=draw.randint(1, 10))) for _ in range(count)] + ["", "absent"]


def index_of(*segments: tuple[dict[str, NDArray[Any]], Live | None], **settings: float) -> WordIndex:
    return WordIndex([(WordBlocks(arrays), live) for arrays, live in segments], **settings)


def same_arrays(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.fixture(params=[1 << 16, 7], ids=["one block", "blocks of 7 rows"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_postings, "BLOCK_ROWS", request.param)


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75), (0.0, 0.0), (1.2, 1.0)])
def test_scores_are_those_of_bm25s(k1: float, b: float) -> None:
    texts = texts_of(1, 200)
    queries = queries_of(2, texts)
    documents = [Document(str(row), "", (text,)) for row, text in enumerate(texts)]
    theirs = Bm25Retriever(documents, k1=k1, b=b, unmatched=False).retrieve(queries, 300)
    index = index_of((build_words(texts), None), k1=k1, b=b)
    scores = index.scores(queries)
    for ours, hits in zip(scores, theirs, strict=True):
        expected = np.zeros(len(texts))
        expected[[int(hit.document.id) for hit in hits]] = [hit.score for hit in hits]
        np.testing.assert_allclose(ours, expected, rtol=2e-5)
        assert (ours > 0).tolist() == (expected > 0).tolist()


@pytest.mark.usefixtures("_blocks")
def test_the_best_rows_are_those_with_the_best_scores() -> None:
    texts = texts_of(3, 150, vocabulary=20, most=4)  # many ties
    index = index_of((build_words(texts), None))
    queries = queries_of(4, texts, 40)
    scores = index.scores(queries)
    allowed = np.random.default_rng(0).random(150) < 0.4
    for k, mask in itertools.product((1, 3, 20, 149, 400), (None, allowed, np.zeros(150, bool))):
        best, rows = index.top(queries, k, mask=mask)
        assert best.shape == rows.shape == (len(queries), k)
        for of_query, found, found_rows in zip(scores, best, rows, strict=True):
            eligible = np.flatnonzero((of_query > 0) & (True if mask is None else mask))
            expected = eligible[np.argsort(-of_query[eligible], kind="stable")][:k]
            assert found_rows[: len(expected)].tolist() == expected.tolist()
            np.testing.assert_array_equal(found[: len(expected)], of_query[expected])
            assert (found_rows[len(expected) :] == -1).all()
            assert np.isneginf(found[len(expected) :]).all()


@pytest.mark.usefixtures("_blocks")
def test_the_scores_of_some_rows_are_those_of_all() -> None:
    texts = texts_of(5, 90)
    live = np.random.default_rng(1).random(90) < 0.7
    index = index_of((build_words(texts), live), (build_words(texts[:10]), None))
    queries = queries_of(6, texts)
    draw = np.random.default_rng(2)
    offsets = np.concatenate([[0], np.cumsum(draw.integers(0, 60, len(queries)))])
    rows = draw.integers(0, 100, offsets[-1])
    of_all = index.scores(queries)[np.repeat(np.arange(len(queries)), np.diff(offsets)), rows]
    np.testing.assert_array_equal(index.scores_of(queries, offsets, rows), of_all)
    assert index.scores_of([], np.array([0]), []).shape == (0,)
    for wrong in ([100], [-1], [[0]]):
        with pytest.raises(ValueError, match="rows must be one dimension of numbers from 0 to 99"):
            index.scores_of(queries[:1], np.array([0, 1]), wrong)
    with pytest.raises(ValueError, match="offsets of 1 queries over 0 rows, for 2"):
        index.scores_of(queries[:2], np.array([0, 0]), [])


def test_a_query_may_be_the_hashes_of_its_words() -> None:
    texts = texts_of(8, 60)
    index = index_of((build_words(texts), None))
    queries = queries_of(9, texts)
    hashed = [word_hashes(words(query)) for query in queries]
    np.testing.assert_allclose(index.scores(hashed), index.scores(queries), rtol=1e-6)
    assert index.top(hashed, 3)[1].tolist() == index.top(queries, 3)[1].tolist()


@given(st.data())
def test_removed_rows_leave_what_an_index_of_the_others_has(data: st.DataObject) -> None:
    draw = random.Random(data.draw(st.integers(0, 10_000)))
    rows = data.draw(st.sampled_from((5, 16, 1 << 16)))
    before, word_postings.BLOCK_ROWS = word_postings.BLOCK_ROWS, rows
    try:
        parts = [texts_of(draw.randint(0, 99), draw.randint(0, 40)) for _ in range(draw.randint(0, 5))]
        share = draw.choice([0.0, 0.3, 0.9, 1.0])
        lives = [np.array([draw.random() < share for _ in part], dtype=bool) for part in parts]
        segments = [
            (build_words(part), None if live.all() and draw.random() < 0.5 else live)
            for part, live in zip(parts, lives, strict=True)
        ]
        kept = [text for part, live in zip(parts, lives, strict=True) for text in itertools.compress(part, live)]
        fresh_arrays = build_words(kept)
        merged = merge_words(segments)
        queries = queries_of(draw.randint(0, 99), [text for part in parts for text in part])
        index, fresh = index_of(*segments), index_of((fresh_arrays, None))
        live_rows = np.flatnonzero(np.concatenate([np.empty(0, bool), *lives]))
        scores = index.scores(queries)
        np.testing.assert_array_equal(scores[:, live_rows], fresh.scores(queries))
        assert not np.delete(scores, live_rows, axis=1).any()
        best, best_rows = index.top(queries, 8)
        expected, expected_rows = fresh.top(queries, 8)
        np.testing.assert_array_equal(best, expected)
        np.testing.assert_array_equal(best_rows, np.append(live_rows, -1)[expected_rows])
        same_arrays(merged, fresh_arrays)
    finally:
        word_postings.BLOCK_ROWS = before


def test_blocks_end_where_texts_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = texts_of(8, 120)
    whole = index_of((build_words(texts), None))
    monkeypatch.setattr(word_postings, "_BLOCK_WORDS", 100)
    arrays = build_words(texts)
    merged = merge_words([(arrays, None)])
    queries = queries_of(9, texts)
    assert len(WordBlocks(arrays)) > 20
    for each in (arrays, merged):
        np.testing.assert_array_equal(index_of((each, None)).scores(queries), whole.scores(queries))


def test_a_word_may_stand_any_number_of_times() -> None:
    texts = ["a b " * 255, "a " * 70_000, "a b", ""]
    arrays = build_words(texts)
    assert arrays["words.counts"].dtype == np.uint32
    assert build_words(texts[2:])["words.counts"].dtype == build_words(texts[2:])["words.lengths"].dtype == np.uint8
    [scores] = index_of((arrays, None)).scores(["a"])
    lengths = np.array([510, 70_000, 2, 0])
    counts = np.array([255, 70_000, 1, 0])
    expected = np.log1p(1.5 / 3.5) * counts / (counts + 0.9 * (0.6 + 0.4 * lengths / lengths.mean()))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    same_arrays(merge_words([(build_words(texts[2:]), None), (arrays, None)]), build_words(texts[2:] + texts))


def test_words_that_share_a_hash_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "hash_texts", lambda _text, offsets, _threads: np.diff(offsets).astype(np.uint64))
    arrays = build_words(["aa bb c", "c aa"])
    assert arrays["words.terms"].tolist() == [1, 2]
    assert arrays["words.counts"].tolist() == [1, 1, 2, 1]


def test_hashes_never_change() -> None:
    assert word_hashes(["ferry", "", "żółw"]).tolist() == [
        7949881795909877008,
        13020603013274838756,
        4184056875267249520,
    ]


@pytest.mark.parametrize("segments", [[], [([], None)], [([""], None)], [(["a b"], [False])]], ids=range(4))
def test_nothing_is_found_where_nothing_is(segments: list[tuple[list[str], list[bool] | None]]) -> None:
    built = [(build_words(texts), None if live is None else np.array(live)) for texts, live in segments]
    for index in (index_of(*built), index_of((merge_words(built), None))):
        assert not index.scores(["a", ""]).any()
        scores, rows = index.top(["a", ""], 2)
        assert (rows == -1).all()
        assert np.isneginf(scores).all()
        assert index.top([], 2)[1].shape == (0, 2)


def test_merged_words_may_be_held_in_files(tmp_path: Path) -> None:
    segments = [(build_words(texts_of(seed, 30)), None) for seed in range(3)]
    merged = merge_words(segments, spool=tmp_path)
    same_arrays(merged, merge_words(segments))
    assert not list(tmp_path.iterdir())
    same_arrays(merge_words([], spool=tmp_path), build_words([]))
    with pytest.raises(StoreError, match=r"none cannot hold the merged words \(No such file or directory\)"):
        merge_words(segments, spool=tmp_path / "none")


def test_words_on_disk_are_searched_where_they_lie(tmp_path: Path) -> None:
    texts = texts_of(10, 60)
    arrays = build_words(texts)
    write_arrays(tmp_path / "words", arrays)
    file = ArrayFile.open(tmp_path / "words", what="the test", remedy="write it anew")
    queries = queries_of(11, texts)
    index = WordIndex([(WordBlocks(file), None)])
    np.testing.assert_array_equal(index.scores(queries), index_of((arrays, None)).scores(queries))
    same_arrays(merge_words([(file, None)]), arrays)
    block = WordBlocks(file)[0]
    for array in (block.terms, block.starts, block.rows, block.counts, block.lengths):
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_arrays_of_another_kind_are_refused() -> None:
    arrays = build_words(texts_of(12, 30))
    for name, array in arrays.items():
        for wrong in (array[:-1], array.astype(np.float32), array.reshape(-1, 1, 1)):
            with pytest.raises(
                StoreError, match=r"it has (words in arrays of another kind|.* words, which do not go with)"
            ):
                WordBlocks(arrays | {name: wrong}, name="it")
    table = arrays["words.blocks"]
    beyond = np.array([[0] * 4, [0, 2**63 - 1, 0, 0], [0, -2, 0, 0], table[1]], dtype=np.int64)
    for wrong in (beyond, table - 1, table[::-1], np.empty((0, 4), dtype=np.int64), table * [1, 1, 2, 1]):
        with pytest.raises(
            StoreError,
            match=r"it has .* which do not go with its table of \d+ blocks; delete the index and build it again",
        ):
            WordBlocks(arrays | {"words.blocks": wrong}, name="it")


def test_damaged_arrays_never_crash_a_search() -> None:
    draw = np.random.default_rng(13)
    texts = texts_of(13, 50)
    queries = queries_of(13, texts)
    arrays = build_words(texts)
    changed = 0
    expected = index_of((arrays, None)).scores(queries)
    for _ in range(300):
        name = str(draw.choice([name for name in arrays if name != "words.blocks"]))
        damaged = arrays[name].copy()
        content = damaged.view(np.uint8)
        content[draw.integers(0, len(content), 5)] = draw.integers(0, 256, 5)
        index = index_of((arrays | {name: damaged}, None))
        scores = index.scores(queries)
        index.top(queries, 5)
        index.scores_of(queries[:1], np.array([0, 50]), np.arange(50))
        assert scores.shape == expected.shape
        changed += not np.array_equal(scores, expected)
    assert changed > 50


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.4), (0.9, 1.1), (float("nan"), 0.4), (float("inf"), 0.4)])
def test_settings_out_of_range_are_refused(k1: float, b: float) -> None:
    with pytest.raises(ValueError, match="k1 must be 0 or more and b from 0 to 1"):
        index_of(k1=k1, b=b)


def test_masks_and_live_rows_of_another_length_are_refused() -> None:
    arrays = build_words(["a", "b"])
    with pytest.raises(ValueError, match=r"live rows of shape \[3\] for a segment of 2 rows"):
        index_of((arrays, np.ones(3, bool)))
    index = index_of((arrays, None))
    for mask in (np.ones(3, bool), np.ones(2, int)):
        with pytest.raises(ValueError, match="it must be bool, one a row"):
            index.top(["a"], 1, mask=mask)
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        index.top(["a"], 0)
