"""Walks over the links of a corpus: personalised PageRank, and expansion by hops, for many questions at once.

Links are in compressed sparse rows: node u links to ``targets[offsets[u]:offsets[u + 1]]``. They are read where they lie, so that
they may be mapped from a file, and what is wrong in them is found where it is read. A question costs what it touches, whatever the
size of the graph but for memory: a thread takes 16 bytes a node that it touches, or 128 in a batch that it walks eight questions at a
time. Where a fine tolerance has it touch most nodes, links are copied as they are read first: a thread then takes 8 bytes a link (16 in
float64) and 209 a node (29 or 41 for a few questions).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytrace import _core


class Ranking(NamedTuple):
    """The heaviest nodes of each question.

    Attributes
    ----------
    nodes
        Int64: question by question, heaviest first; of equal scores the lower node first.
    scores
        Float64: the share of the walk that each node keeps.
    offsets
        Int64 ``[n_questions + 1]``: the nodes of question q are ``offsets[q]`` to ``offsets[q + 1]``.
    left
        Float64 ``[n_questions]``: mass that was not walked any further, and what rounding may have done. No score is farther from the
        exact one.
    """

    nodes: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    offsets: npt.NDArray[np.int64]
    left: npt.NDArray[np.float64]


class Reached(NamedTuple):
    """The nodes that each question reaches.

    Attributes
    ----------
    nodes
        Int64: question by question, sources first, then by hop in the order of links.
    hops
        Int64: links from the nearest source.
    parents
        Int64: the node that each was reached from, -1 for sources.
    offsets
        Int64 ``[n_questions + 1]``: the nodes of question q are ``offsets[q]`` to ``offsets[q + 1]``.
    """

    nodes: npt.NDArray[np.int64]
    hops: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


def personalised_pagerank(
    offsets: npt.ArrayLike,
    targets: npt.ArrayLike,
    seeds: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    seed_weights: npt.ArrayLike | None = None,
    seed_offsets: npt.ArrayLike | None = None,
    restart: float = 0.5,
    tolerance: float = 1e-6,
    k: int = 10,
    threads: int | None = None,
) -> Ranking:
    """Rank nodes by where a walk from the seeds, which starts anew with a probability of `restart` at each step, is found.

    Parameters
    ----------
    offsets
        Int64 ``[n_nodes + 1]``.
    targets
        Int32 or int64 ``[n_links]``.
    seeds
        Int64: nodes, those of a question side by side.
    weights
        Float32 ``[n_links]``, at least 0: a link is taken by its share of its node's. All the same if left out. A walk that
        comes to a node without links starts anew at the seeds.
    seed_weights
        Float64, as many as seeds, at least 0; all the same if left out. Those of a question are divided by their sum.
    seed_offsets
        Int64 ``[n_questions + 1]``: question q owns seeds ``seed_offsets[q]`` to ``seed_offsets[q + 1]``. By default all are of one
        question.
    restart
        From 0.01 to 1.
    tolerance
        At least 1e-12. What waits at a node is walked on only above `tolerance` times its links (at least one). A question visits at most
        ``1 / (restart * tolerance)`` links. If `tolerance` times all links and nodes is at most 1/16, questions are walked over all
        nodes instead, until no more than that is left.
    k
        Nodes kept a question.
    threads
        Threads to use at most; each question is walked by one. Default `pytrace._core.num_threads()`.

    Returns
    -------
    Ranking
        The same whatever the batch, the number of threads and the instruction set. Scores are exact to `left`. Those of all nodes
        together are 1; where mass waits to be walked on, 1 less what is left.

    Raises
    ------
    ValueError
        Nodes that are not there, weights that are negative, infinite or NaN, offsets that do not fit, values out of range.
    TypeError
        Arrays of the wrong kind.

    Notes
    -----
    A walk over all nodes takes steps from the seeds, O(links) each, and one that has not ended counts where it is; so scores may be too
    low or too high. Sums are in float32 if ``restart**2`` times what may be left is at least 2.5e-4, else in float64. What rounding may
    do is part of `left`: in float32 at most ``6e-8 / restart**2`` times the links to a node, on average over where the walk is found, and
    some 2e-5. With a coarser tolerance mass is pushed from node to node, and no score is too high.

    References
    ----------
    Andersen, Chung and Lang, "Local graph partitioning using PageRank vectors", 2006.
    Page, Brin, Motwani and Winograd, "The PageRank citation ranking: bringing order to the web", 1999, section 2.6.

    Examples
    --------
    >>> ranking = personalised_pagerank([0, 2, 3, 3], [1, 2, 2], [0])
    >>> ranking.nodes.tolist(), ranking.scores.round(3).tolist()
    ([0, 2, 1], [0.615, 0.231, 0.154])
    """
    arrays = _core.personalised_pagerank(
        offsets, targets, weights, seeds, _offsets(seeds, seed_offsets), seed_weights, restart, tolerance, k, threads
    )
    return Ranking(*arrays)


def expand_links(
    offsets: npt.ArrayLike,
    targets: npt.ArrayLike,
    sources: npt.ArrayLike,
    *,
    source_offsets: npt.ArrayLike | None = None,
    hops: int = 2,
    budget: int = 100,
    threads: int | None = None,
) -> Reached:
    """Find the nodes within some links of the sources, nearest first.

    Parameters
    ----------
    offsets, targets
        The links, as for `personalised_pagerank`.
    sources
        Int64: nodes, those of a question side by side; one that stands twice counts once.
    source_offsets
        Int64 ``[n_questions + 1]``: question q owns sources ``source_offsets[q]`` to ``source_offsets[q + 1]``. By default all are of
        one question.
    hops
        Links from a source, at most.
    budget
        Nodes of a question, at most, its sources included: then the search ends.
    threads
        Threads to use at most. Default `pytrace._core.num_threads()`.

    Returns
    -------
    Reached
        The same whatever the batch and the number of threads.

    Raises
    ------
    ValueError
        Nodes that are not there, offsets that do not fit, values below 0.
    TypeError
        Arrays of the wrong kind.

    Examples
    --------
    >>> reached = expand_links([0, 2, 3, 3], [1, 2, 2], [0])
    >>> reached.nodes.tolist(), reached.hops.tolist(), reached.parents.tolist()
    ([0, 1, 2], [0, 1, 1], [-1, 0, 0])
    """
    arrays = _core.expand_links(
        offsets, targets, None, sources, _offsets(sources, source_offsets), None, hops, budget, threads
    )
    return Reached(*arrays)


def _offsets(nodes: npt.ArrayLike, offsets: npt.ArrayLike | None) -> npt.ArrayLike:
    return np.array([0, np.size(nodes)]) if offsets is None else offsets
