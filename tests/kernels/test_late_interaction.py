"""MaxSim against its naive twin, on every instruction set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import _core
from pytrace.kernels import max_sim
from tests import oracles

# Around the lanes of every instruction set (4, 8, 16) and panels of two of them.
TOKENS = (1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 48, 65)
# Around the tiles (5, 6, 12 rows).
ROWS = (1, 2, 4, 5, 6, 7, 10, 11, 12, 13, 24, 25)

pytestmark = pytest.mark.usefixtures("isa")


def expected(queries, documents, query_offsets, document_offsets):
    """Score every question with every document by the oracle."""
    questions, texts = (
        [values[begin:end].astype(np.float64).tolist() for begin, end in itertools.pairwise(offsets)]
        for values, offsets in ((queries, query_offsets), (documents, document_offsets))
    )
    return np.array([[oracles.max_sim(question, text) for text in texts] for question in questions]).reshape(
        len(questions), len(texts)
    )


@st.composite
def batches(draw):
    """Ragged questions and documents of small whole numbers, so that every sum is exact."""
    sizes = st.lists(st.integers(0, 9), min_size=0, max_size=5)
    query_offsets, document_offsets = (np.cumsum([0, *draw(sizes)]) for _ in range(2))
    dim = draw(st.integers(0, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from([np.float32, np.float16, np.int8, np.float64]))
    queries = random.integers(-4, 5, (query_offsets[-1], dim)).astype(np.float32)
    documents = random.integers(-4, 5, (document_offsets[-1], dim)).astype(kind)
    return queries, documents, query_offsets, document_offsets


@pytest.mark.parametrize("threads", [1, 3])
@given(batch=batches())
def test_exact_scores_equal_the_oracle(threads, batch):
    queries, documents, query_offsets, document_offsets = batch
    scores = max_sim(
        queries, documents, query_offsets=query_offsets, document_offsets=document_offsets, threads=threads
    )
    np.testing.assert_array_equal(scores, expected(*batch))


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("dim", [1, 2, 7, 8, 16, 17, 33, 128])
def test_every_remainder_of_panels_and_tiles_gives_the_true_scores(dim, kind):
    random = np.random.default_rng(dim)
    query_offsets, document_offsets = np.cumsum([0, *TOKENS]), np.cumsum([0, *ROWS])
    queries = random.standard_normal((query_offsets[-1], dim)).astype(np.float32)
    documents = (20 * random.standard_normal((document_offsets[-1], dim))).astype(kind)
    scale = random.random(len(documents)).astype(np.float32) + 0.1 if kind is np.int8 else None
    scores = max_sim(queries, documents, query_offsets=query_offsets, document_offsets=document_offsets, scale=scale)
    scaled = documents.astype(np.float64) * (1 if scale is None else scale.astype(np.float64)[:, None])
    right = np.array(
        [
            [
                (queries[a:b].astype(np.float64) @ scaled[c:d].T).max(axis=1).sum()
                for c, d in itertools.pairwise(document_offsets)
            ]
            for a, b in itertools.pairwise(query_offsets)
        ]
    )
    np.testing.assert_allclose(scores, right, rtol=2e-6, atol=2e-5 * np.sqrt(dim))


@pytest.mark.parametrize("dim", [64, 100])
def test_scores_do_not_depend_on_threads_batch_or_place(dim):
    random = np.random.default_rng(7)
    query_offsets = np.cumsum([0, *random.integers(1, 40, 30)])
    document_offsets = np.cumsum([0, *random.integers(0, 300, 60)])
    queries = random.standard_normal((query_offsets[-1], dim)).astype(np.float32)
    documents = random.standard_normal((document_offsets[-1], dim)).astype(np.float16)
    offsets = {"query_offsets": query_offsets, "document_offsets": document_offsets}
    scores = max_sim(queries, documents, threads=1, **offsets)
    for threads in (2, 5):
        np.testing.assert_array_equal(max_sim(queries, documents, threads=threads, **offsets), scores)
    odd = np.zeros((len(documents), dim + 3), np.float16)
    odd[:, 3:] = documents
    np.testing.assert_array_equal(max_sim(queries, odd[:, 3:], **offsets), scores)
    for question in (0, 17, 29):
        own = queries[query_offsets[question] : query_offsets[question + 1]]
        alone = max_sim(own, documents, document_offsets=document_offsets)
        np.testing.assert_array_equal(alone, scores[question])
    candidates = random.integers(-1, 60, (30, 20))
    chosen = np.take_along_axis(scores, np.maximum(candidates, 0), axis=1)
    chosen[candidates < 0] = -np.inf
    for threads in (1, 3):
        mine = max_sim(queries, documents, candidates=candidates, threads=threads, **offsets)
        np.testing.assert_array_equal(mine, chosen)
    lists = [row[row >= 0] for row in candidates]
    np.testing.assert_array_equal(
        max_sim(queries, documents, candidates=lists, **offsets), chosen[np.isfinite(chosen) | (candidates >= 0)]
    )


def test_the_newer_instruction_sets_agree_to_the_bit():
    newer = [name for name in _core.available_isas() if name in {"avx2", "avx512"}]
    if len(newer) < 2:
        pytest.skip("this machine has one of AVX2 and AVX-512 at most")
    random = np.random.default_rng(3)
    queries = random.standard_normal((50, 96)).astype(np.float32)
    documents = random.standard_normal((333, 96)).astype(np.float32)
    before, results = _core.active_isa(), []
    for name in newer:
        _core.set_active_isa(name)
        results.append(max_sim(queries, documents, document_offsets=[0, 1, 40, 333]))
    _core.set_active_isa(before)
    np.testing.assert_array_equal(*results)


@given(batch=batches(), k=st.integers(0, 7))
def test_the_best_are_those_of_all_scores_sorted(batch, k):
    queries, documents, query_offsets, document_offsets = batch
    offsets = {"query_offsets": query_offsets, "document_offsets": document_offsets}
    right = expected(*batch)
    scores, indices = max_sim(queries, documents, k=k, **offsets)
    assert scores.shape == indices.shape == (len(query_offsets) - 1, k)
    for row, column in zip(right, range(len(right)), strict=True):
        best = sorted((-score, index) for index, score in enumerate(row.tolist()) if score > -np.inf)[:k]
        padding = k - len(best)
        assert indices[column].tolist() == [index for _, index in best] + [-1] * padding
        assert scores[column].tolist() == [-score for score, _ in best] + [-np.inf] * padding


def test_the_best_of_candidates_name_documents_and_none_is_left_out():
    documents = np.array([[1.0], [3.0], [2.0], [3.0]], np.float32)
    offsets = {"query_offsets": [0, 1, 2], "document_offsets": [0, 1, 2, 3, 4, 4]}
    queries = np.array([[1.0], [-1.0]], np.float32)
    scores, indices = max_sim(queries, documents, candidates=[[3, -1, 2, 1], [4, 0]], k=3, **offsets)
    assert indices.tolist() == [[1, 3, 2], [0, -1, -1]]
    assert scores.tolist() == [[3.0, 3.0, 2.0], [-1.0, -np.inf, -np.inf]]
    one = max_sim(queries[:1], documents, document_offsets=offsets["document_offsets"], k=2)
    assert [values.tolist() for values in one] == [[3.0, 3.0], [1, 3]]
    matrix = max_sim(
        queries[:1], documents, document_offsets=offsets["document_offsets"], candidates=np.array([[4, 0]])
    )
    assert matrix.tolist() == [-np.inf, 1.0]


def test_a_question_without_vectors_scores_nothing_and_a_document_without_is_last():
    offsets = {"query_offsets": [0, 0, 1], "document_offsets": [0, 0, 1]}
    assert max_sim([[1.0]], [[2.0]], **offsets).tolist() == [[0.0, 0.0], [-np.inf, 2.0]]
    assert max_sim(np.zeros((0, 3)), np.zeros((0, 3)), document_offsets=[0]).shape == (0,)


GOOD = {"document_offsets": [0, 1, 3], "query_offsets": [0, 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.zeros((2, 3))}, "queries have 3 dimensions, but documents have 2"),
        ({"queries": [[1.0, np.nan], [0, 0]]}, r"queries\[0, 1\] is NaN or infinite"),
        ({"documents": [[0, 0], [np.inf, 0], [0, 0]]}, r"documents\[1, 0\] is NaN or infinite"),
        ({"documents": np.array([[0, 0], [0, 0], [0, np.nan]], np.float16)}, r"documents\[2, 1\] is NaN or infinite"),
        ({"documents": [[1e38, 1e38]] * 3, "queries": [[9, 9]] * 2}, "question 0 with document 0 overflows float32"),
        ({"queries": [1.0, 2.0]}, "queries has 1 dimensions; it must have 2"),
        ({"document_offsets": [0, 2]}, "document_offsets ends at 2, but there are 3 values"),
        ({"document_offsets": [0, 3, 1, 3]}, "document_offsets goes back at 2: 3 then 1"),
        ({"query_offsets": []}, "query_offsets is empty"),
        ({"candidates": [[2]]}, "candidates holds 2, but there are 2 documents; only -1 stands for none"),
        ({"candidates": [[0], [1]]}, "candidates has 2 rows, but there are 1 queries"),
        ({"candidates": ([0], [0, 1, 1])}, "candidates' offsets have 3 values, but 1 questions need 2"),
        ({"k": -1}, "k is -1; it must be at least 0"),
        ({"k": 2**61}, "that many results have no room in memory"),
        ({"scale": 2.0}, "scale is for int8 documents, but documents holds float32"),
        ({"documents": np.zeros((3, 2), np.int8), "scale": [1.0, 2.0]}, "scale has 2 values, but documents has 3 rows"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
    ],
)
def test_misuse_is_a_sentence_with_the_numbers(change, message):
    arguments = {"queries": [[1.0, 0.0], [0.0, 1.0]], "documents": [[1.0, 0.0]] * 3, **GOOD, **change}
    with pytest.raises(ValueError, match=message):
        max_sim(arguments.pop("queries"), arguments.pop("documents"), **arguments)


def test_types_that_are_none_are_refused():
    with pytest.raises(TypeError, match="documents holds <U1; it must hold real numbers"):
        max_sim([[1.0]], [["a"]], document_offsets=[0, 1])
    with pytest.raises(TypeError, match="document_offsets holds float64; it must hold whole numbers"):
        max_sim([[1.0]], [[1.0]], document_offsets=[0.0, 1.0])


@pytest.mark.parametrize("kind", ["f4", "f2", "i1", ">f4", ">f2", "f8", "i4"])
def test_every_type_and_layout_gives_the_same_scores(kind):
    random = np.random.default_rng(5)
    documents = random.integers(-9, 10, (40, 6)).astype(kind)
    queries = random.integers(-9, 10, (5, 6)).astype(np.float64)
    offsets = [0, 7, 40]
    right = max_sim(queries, documents.astype(np.float32), document_offsets=offsets)
    wide = np.zeros((80, 12), kind)
    wide[::2, ::2] = documents
    for layout in (documents, np.asfortranarray(documents), wide[::2, ::2], documents[::-1].copy()[::-1]):
        np.testing.assert_array_equal(max_sim(np.asfortranarray(queries), layout, document_offsets=offsets), right)


def test_more_pairs_than_are_held_at_once_give_each_question_its_best():
    """16 million scores are kept at a time; all questions but the outermost have no vectors, and are done at once."""
    count = 4200
    documents = np.arange(count, dtype=np.float32)[:, None]
    query_offsets = np.concatenate([[0], np.ones(count - 1, np.int64), [2]])
    scores, indices = max_sim(
        [[1.0], [-1.0]], documents, query_offsets=query_offsets, document_offsets=np.arange(count + 1), k=2
    )
    assert (indices[0].tolist(), scores[0].tolist()) == ([count - 1, count - 2], [count - 1, count - 2])
    assert (indices[-1].tolist(), scores[-1].tolist()) == ([0, 1], [0.0, -1.0])
    assert (indices[1:-1] == [0, 1]).all()
    assert not scores[1:-1].any()
