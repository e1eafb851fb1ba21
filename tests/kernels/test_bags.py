"""Means of embeddings against their naive twin, on every instruction set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import _core
from pytrace.kernels import embedding_bag, normalize
from tests import oracles

# Around the lanes of every instruction set (4, 8, 16) and blocks of eight of them.
WIDTHS = (1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 33, 64, 65, 128, 129, 256, 300)

pytestmark = pytest.mark.usefixtures("isa")


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_gives_the_true_means(width, kind):
    random = np.random.default_rng(width)
    table = (20 * random.standard_normal((50, width))).astype(kind)
    scale = random.random(50).astype(np.float32) + 0.1 if kind is np.int8 else None
    tokens, offsets = random.integers(0, 50, 60), np.array([0, 0, 1, 3, 9, 60, 60])
    means = embedding_bag(table, tokens, offsets, scale=scale)
    rows = table.astype(np.float64) * (1 if scale is None else scale.astype(np.float64)[:, None])
    for bag, (begin, end) in enumerate(itertools.pairwise(offsets)):
        right = rows[tokens[begin:end]].mean(axis=0) if end > begin else np.zeros(width)
        np.testing.assert_allclose(means[bag], right, rtol=1e-5, atol=1e-5)


@given(
    sizes=st.lists(st.integers(0, 6), max_size=6),
    dim=st.integers(0, 9),
    vocabulary=st.integers(1, 8),
    threads=st.sampled_from([1, 3]),
    kind=st.sampled_from([np.float32, np.float16, np.int8, np.float64]),
    seed=st.integers(0, 2**32),
)
def test_weights_and_mappings_equal_the_oracle(sizes, dim, vocabulary, threads, kind, seed):
    random = np.random.default_rng(seed)
    offsets = np.cumsum([0, *sizes])
    tokens = random.integers(0, vocabulary, offsets[-1]).astype(random.choice([np.int32, np.int64, np.uint8]))
    table = random.integers(-8, 9, (5, dim)).astype(kind)
    weights = random.integers(0, 4, vocabulary).astype(np.float32) / 2
    mapping = random.integers(-1, 5, vocabulary)
    means = embedding_bag(table, tokens, offsets, weights=weights, mapping=mapping, threads=threads)
    assert means.shape == (len(sizes), dim)
    rows = table.astype(np.float64).tolist()
    for bag, mean in enumerate(means):
        own = tokens[offsets[bag] : offsets[bag + 1]].tolist()
        right = oracles.embedding_bag(rows, own, weights.tolist(), mapping.tolist(), dim)
        np.testing.assert_allclose(mean, right, rtol=1e-6)


def test_normalized_means_have_length_one_and_nothing_stays_nothing():
    random = np.random.default_rng(1)
    table = random.standard_normal((9, 40)).astype(np.float32)
    table[8] = 0
    tokens, offsets = [0, 1, 2, 8, 8], [0, 3, 3, 5]
    means = embedding_bag(table, tokens, offsets, normalize=True)
    np.testing.assert_allclose(means, normalize(embedding_bag(table, tokens, offsets)), rtol=1e-6)
    assert not means[1:].any()
    assert np.linalg.norm(means[0]) == pytest.approx(1)


def test_means_do_not_depend_on_threads_or_batch():
    random = np.random.default_rng(2)
    table = random.standard_normal((3000, 256)).astype(np.float16)
    offsets = np.cumsum([0, *random.integers(0, 40, 3000)])
    tokens = random.integers(0, 3000, offsets[-1])
    means = embedding_bag(table, tokens, offsets, threads=1, normalize=True)
    for threads in (2, 5):
        np.testing.assert_array_equal(embedding_bag(table, tokens, offsets, threads=threads, normalize=True), means)
    for bag in (0, 1234, 2999):
        own = tokens[offsets[bag] : offsets[bag + 1]]
        np.testing.assert_array_equal(embedding_bag(table, own, [0, len(own)], normalize=True)[0], means[bag])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [0, 3, 1]}, r"tokens\[1\] is 3, but there are 3 tokens"),
        ({"tokens": [0, -1, 1]}, r"tokens\[1\] is -1, but there are 3 tokens"),
        ({"mapping": [0, 3, 0]}, r"mapping\[1\] is 3, but the table has 3 rows; only -1 stands for none"),
        ({"mapping": [0, -2, 0]}, r"mapping\[1\] is -2"),
        ({"mapping": [0]}, r"tokens\[1\] is 1, but there are 1 tokens"),
        ({"weights": [1.0]}, "weights has 1 values, but there are 3 tokens"),
        ({"offsets": [0, 2]}, "offsets ends at 2, but there are 3 values"),
        ({"offsets": []}, "offsets is empty"),
        ({"offsets": [1, 3]}, r"offsets\[0\] is 1, not 0"),
        ({"table": [1.0]}, "table has 1 dimensions; it must have 2"),
        ({"scale": 1.0}, "scale is for int8 table, but table holds float32"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
    ],
)
def test_misuse_is_a_sentence_with_the_numbers(change, message):
    arguments = {"table": np.ones((3, 2)), "tokens": [0, 1, 2], "offsets": [0, 3], **change}
    with pytest.raises(ValueError, match=message):
        embedding_bag(arguments.pop("table"), arguments.pop("tokens"), arguments.pop("offsets"), **arguments)


def test_tokens_that_are_no_whole_numbers_are_refused():
    for name in ("tokens", "mapping", "offsets"):
        arguments = {"tokens": [0], "mapping": [0], "offsets": [0, 1], name: [0.0, 1.0]}
        with pytest.raises(TypeError, match=f"{name} holds float64; it must hold whole numbers"):
            embedding_bag([[1.0]], arguments["tokens"], arguments["offsets"], mapping=arguments["mapping"])


@pytest.mark.parametrize("kind", ["f4", "f2", "i1", ">f4", ">f2", "f8", "i4"])
def test_every_type_and_layout_gives_the_same_means(kind):
    random = np.random.default_rng(5)
    table = random.integers(-9, 10, (12, 21)).astype(kind)
    right = embedding_bag(table.astype(np.float32), [3, 1, 11], [0, 1, 3])
    wide = np.zeros((24, 42), kind)
    wide[::2, ::2] = table
    for layout in (table, np.asfortranarray(table), wide[::2, ::2], table[::-1].copy()[::-1]):
        np.testing.assert_array_equal(embedding_bag(layout, [3, 1, 11], [0, 1, 3]), right)


def test_no_instruction_set_rounds_otherwise_without_weights():
    random = np.random.default_rng(6)
    table, tokens = random.standard_normal((30, 77)).astype(np.float32), random.integers(0, 30, 90)
    before, results = _core.active_isa(), []
    for name in _core.available_isas():
        _core.set_active_isa(name)
        results.append(embedding_bag(table, tokens, [0, 40, 90]))
    _core.set_active_isa(before)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
