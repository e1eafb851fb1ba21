"""The walk kernel against power iteration and a breadth-first search in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import _core
from pytrace.kernels import expand_links, personalised_pagerank
from tests import oracles

pytestmark = pytest.mark.usefixtures("isa")


def graph(rng, nodes, links, *, weighted=True, narrow=True):
    """Make random links in compressed sparse rows; some nodes have none, some link to themselves or twice to another."""
    heads = np.sort(rng.integers(0, nodes, links))
    offsets = np.searchsorted(heads, np.arange(nodes + 1)).astype(np.int64)
    targets = rng.integers(0, nodes, links).astype(np.int32 if narrow else np.int64)
    weights = rng.choice([0.0, 0.25, 1.0, 3.0], links).astype(np.float32) if weighted else None
    return offsets, targets, weights


def rows_of(offsets, targets, weights):
    """List each node's targets with their weights."""
    values = np.ones(len(targets)) if weights is None else weights
    pairs = list(zip(targets.tolist(), values.tolist(), strict=True))
    return [pairs[begin:end] for begin, end in itertools.pairwise(offsets.tolist())]


def scores_of(ranking, nodes):
    """Return the scores of all nodes of a single question."""
    scores = np.zeros(nodes)
    scores[ranking.nodes] = ranking.scores
    return scores


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(0, 150), st.sampled_from([0.15, 0.5, 0.9, 1.0]),
    st.sampled_from([1e-2, 1e-3, 1e-6, 1e-12]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_scores_are_those_of_power_iteration_to_what_is_left(seed, nodes, links, restart, tolerance, weighted, narrow):
    rng = np.random.default_rng(seed)
    offsets, targets, weights = graph(rng, nodes, links, weighted=weighted, narrow=narrow)
    seeds = rng.integers(0, nodes, rng.integers(1, 5))
    seed_weights = rng.random(len(seeds)) + 0.1
    ranking = personalised_pagerank(
        offsets,
        targets,
        seeds,
        weights=weights,
        seed_weights=seed_weights,
        restart=restart,
        tolerance=tolerance,
        k=nodes,
    )
    start = np.bincount(seeds, seed_weights, nodes) / seed_weights.sum()
    expected = np.array(oracles.personalised_pagerank(rows_of(offsets, targets, weights), start.tolist(), restart))
    scores = scores_of(ranking, nodes)
    (left,) = ranking.left
    assert np.all(np.abs(expected - scores) <= left + 1e-12)
    if tolerance * (links + nodes) > 1 / 16:  # pushed: what is left is in no score
        assert scores.sum() + left == pytest.approx(1.0, abs=1e-12)
        assert np.all(scores <= expected + 1e-12)
        assert left <= tolerance * (links + nodes) / restart + 1e-12
    else:
        assert scores.sum() == pytest.approx(1.0, abs=1e-5)
        # A quarter for rounding, as much as is allowed where float32 is used.
        assert left <= 1.25 * tolerance * (links + nodes) + 1e-12
    order = sorted(ranking.nodes.tolist(), key=lambda node: (-scores[node], node))
    assert ranking.nodes.tolist() == order


@pytest.mark.parametrize("power", [1e-30, 1e-10, 1e10, 1e30])  # float32 ends at 3e38
def test_how_large_the_weights_of_a_node_are_does_not_matter(power):
    rng = np.random.default_rng(2)
    offsets, targets, weights = graph(rng, 200, 1_500)
    large = weights * np.repeat(rng.choice(np.array([1.0, power]), 200), np.diff(offsets)).astype(np.float32)
    scores = [
        scores_of(personalised_pagerank(offsets, targets, [5, 7], weights=each, tolerance=1e-6, k=200), 200)
        for each in (weights, large)
    ]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5)


def test_results_are_the_same_on_every_instruction_set():
    rng = np.random.default_rng(11)
    offsets, targets, weights = graph(rng, 3_000, 20_000)
    seeds, seed_offsets = rng.integers(0, 3_000, 3 * 40), np.arange(41) * 3
    for tolerance in (1e-5, 1e-6, 1e-9):  # pushed, walked over all nodes in float32 and in float64
        results = []
        for isa in (_core.active_isa(), _core.available_isas()[0]):
            _core.set_active_isa(isa)
            options = {"weights": weights, "tolerance": tolerance, "k": 50}
            results += [personalised_pagerank(offsets, targets, seeds, seed_offsets=seed_offsets, **options)]
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_of_equal_scores_the_lower_node_comes_first(tolerance):
    # From node 4 to all, and back.
    offsets, targets = [0, 1, 2, 3, 4, 13, 14, 15, 16, 17, 18], [4] * 4 + [0, 1, 2, 3, 5, 6, 7, 8, 9] + [4] * 5
    ranking = personalised_pagerank(offsets, targets, [4], tolerance=tolerance, k=5)
    assert ranking.nodes.tolist() == [4, 0, 1, 2, 3]
    assert len(set(ranking.scores.tolist())) == 2


def test_a_batch_in_large_pages_equals_one_question_at_a_time():
    """Memory of more than 2 MiB comes from the system in another way."""
    rng = np.random.default_rng(9)
    offsets, targets, weights = graph(rng, 12_000, 36_000)
    seeds = rng.integers(0, 12_000, 33)
    batch = personalised_pagerank(offsets, targets, seeds, weights=weights, seed_offsets=np.arange(34), threads=1)
    for question, seed in enumerate(seeds):
        alone = personalised_pagerank(offsets, targets, [seed], weights=weights)
        part = slice(batch.offsets[question], batch.offsets[question + 1])
        np.testing.assert_array_equal(batch.nodes[part], alone.nodes)
        np.testing.assert_array_equal(batch.scores[part], alone.scores)


@pytest.mark.parametrize("restart", [0.05, 0.5])  # walked in float64, and in float32
def test_questions_of_a_batch_end_when_they_would_alone(restart):
    """Some start where no link leads on, some in a ring that mixes slowly, some where links lead everywhere."""
    rng = np.random.default_rng(4)
    ring, mixed, ends = 300, 300, 100
    heads = np.concatenate([np.arange(ring), rng.integers(ring, ring + mixed, 3_000)])
    targets = np.concatenate([(np.arange(ring) + 1) % ring, rng.integers(ring, ring + mixed, 3_000)])
    targets = targets[np.argsort(heads, kind="stable")]
    offsets = np.searchsorted(np.sort(heads), np.arange(ring + mixed + ends + 1))
    seeds = np.concatenate([rng.integers(0, ring + mixed + ends, 30), [3, 310, 650]])
    options = {"restart": restart, "tolerance": 1e-6, "k": 700}
    batch = personalised_pagerank(offsets, targets, seeds, seed_offsets=np.arange(34), **options)
    for question, seed in enumerate(seeds):
        alone = personalised_pagerank(offsets, targets, [seed], **options)
        part = slice(batch.offsets[question], batch.offsets[question + 1])
        np.testing.assert_array_equal(batch.nodes[part], alone.nodes)
        np.testing.assert_array_equal(batch.scores[part], alone.scores)
        assert batch.left[question] == alone.left[0] <= 1.25e-6 * (len(targets) + 700)


@pytest.mark.parametrize("threads", [1, 2, 5])
# Pushed one by one and eight side by side; walked over all nodes in float32 and in float64.
@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 1e-6, 1e-9])
def test_a_batch_equals_one_question_at_a_time(threads, tolerance):
    rng = np.random.default_rng(7)
    offsets, targets, weights = graph(rng, 3_000, 20_000)
    lists = [rng.integers(0, 3_000, size) for size in rng.integers(0, 30, 67)]
    seed_offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
    seeds = np.concatenate(lists)
    batch = personalised_pagerank(
        offsets, targets, seeds, weights=weights, seed_offsets=seed_offsets, tolerance=tolerance, k=20, threads=threads
    )
    reached = expand_links(offsets, targets, seeds, source_offsets=seed_offsets, budget=50, threads=threads)
    for question, own in enumerate(lists):
        alone = personalised_pagerank(offsets, targets, own, weights=weights, tolerance=tolerance, k=20, threads=1)
        part = slice(batch.offsets[question], batch.offsets[question + 1])
        np.testing.assert_array_equal(batch.nodes[part], alone.nodes)
        np.testing.assert_array_equal(batch.scores[part], alone.scores)
        assert batch.left[question] == alone.left[0]
        alone_reached = expand_links(offsets, targets, own, budget=50, threads=1)
        part = slice(reached.offsets[question], reached.offsets[question + 1])
        for whole, single in zip(reached[:3], alone_reached[:3], strict=True):
            np.testing.assert_array_equal(whole[part], single)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(0, 150), st.integers(0, 4), st.integers(0, 50))
def test_expansion_is_a_breadth_first_search(seed, nodes, links, hops, budget):
    rng = np.random.default_rng(seed)
    offsets, targets, _ = graph(rng, nodes, links, narrow=bool(seed % 2))
    sources = rng.integers(0, nodes, rng.integers(0, 5))
    reached = expand_links(offsets, targets, sources, hops=hops, budget=budget)
    rows = [[target for target, _ in row] for row in rows_of(offsets, targets, None)]
    expected = oracles.nodes_within(rows, sources.tolist(), hops, budget)
    assert list(zip(*(each.tolist() for each in reached[:3]), strict=True)) == expected


def test_links_are_read_from_a_mapped_file(tmp_path):
    rng = np.random.default_rng(3)
    offsets, targets, weights = graph(rng, 500, 4_000)
    mapped = []
    for name, array in (("offsets", offsets), ("targets", targets), ("weights", weights)):
        np.save(tmp_path / f"{name}.npy", array)
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    here = personalised_pagerank(offsets, targets, [1, 2], weights=weights)
    there = personalised_pagerank(mapped[0], mapped[1], [1, 2], weights=mapped[2])
    for left, right in zip(here, there, strict=True):
        np.testing.assert_array_equal(left, right)


LINKS = ([0, 2, 3, 3], [1, 2, 2])


@pytest.mark.parametrize(
    ("links", "options", "error", "says"),
    [
        (([0, 2, 3, 3], [1, 3, 2]), {}, ValueError, r"targets\[1\] is 3, but there are 3 nodes"),
        (([0, 2, 3, 3], [1, -1, 2]), {}, ValueError, r"targets\[1\] is -1"),
        (([0, 4, 3, 3], [1, 2, 2]), {}, ValueError, "the links of node 0 lie from 0 to 4, but there are 3 links"),
        (([2, 0, 3, 3], [1, 2, 2]), {}, ValueError, "the links of node 0 lie from 2 to 0"),
        (([], []), {}, ValueError, "offsets is empty"),
        (LINKS, {"seeds": [3]}, ValueError, r"seeds\[0\] is 3, but there are 3 nodes"),
        (LINKS, {"seeds": [0.5]}, TypeError, "seeds holds float64; it must hold whole numbers"),
        (LINKS, {"weights": [1.0, np.nan, 1.0]}, ValueError, r"weights\[1\] is nan"),
        (LINKS, {"weights": [1.0, -1.0, 1.0]}, ValueError, r"weights\[1\] is -1; it must be finite and at least 0"),
        (LINKS, {"weights": [1.0]}, ValueError, "weights has 1 values, but there are 3 targets"),
        (LINKS, {"weights": []}, ValueError, "weights has 0 values"),
        (LINKS, {"seed_weights": [np.inf]}, ValueError, r"seed_weights\[0\] is inf"),
        (LINKS, {"seed_weights": [1.0, 1.0]}, ValueError, "seed_weights has 2 values, but there are 1 seeds"),
        (LINKS, {"seed_offsets": [0, 2]}, ValueError, "seed_offsets ends at 2, but there are 1 values"),
        (LINKS, {"restart": 0.0}, ValueError, "restart is 0; it must be from 0.01 to 1"),
        (LINKS, {"restart": np.nan}, ValueError, "restart is nan"),
        (LINKS, {"tolerance": 0.0}, ValueError, "tolerance is 0; it must be at least 1e-12"),
        (LINKS, {"k": -1}, ValueError, "k is -1"),
        (LINKS, {"threads": 0}, ValueError, "threads is 0"),
    ],
)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])  # pushed, and walked over all nodes
def test_what_is_wrong_is_told(links, options, error, says, tolerance):
    with pytest.raises(error, match=says):
        personalised_pagerank(*links, **{"seeds": [0], "tolerance": tolerance, **options})


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_what_is_wrong_where_no_walk_comes_to_does_not_matter(tolerance):
    offsets, targets = np.arange(1001), np.arange(1, 1001)
    targets[7], targets[900] = 0, 5_000  # a ring of eight nodes, and a link to nowhere
    assert personalised_pagerank(offsets, targets, [3], tolerance=tolerance, k=9).nodes.size == 8
    with pytest.raises(ValueError, match=r"targets\[900\] is 5000, but there are 1001 nodes"):
        personalised_pagerank(np.append(offsets, 1000), targets, [900], tolerance=tolerance)


def test_questions_without_seeds_and_empty_graphs_find_nothing():
    ranking = personalised_pagerank(*LINKS, [0], seed_weights=[0.0])
    assert (ranking.nodes.size, ranking.left.tolist()) == (0, [0.0])
    ranking = personalised_pagerank([0], [], [], seed_offsets=[0, 0, 0])
    assert ranking.offsets.tolist() == [0, 0, 0]
    assert expand_links(*LINKS, [0, 1], budget=0).nodes.size == 0
    with pytest.raises(ValueError, match="hops is -1"):
        expand_links(*LINKS, [0], hops=-1)
