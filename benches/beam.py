"""One beam step beside NumPy: `python -m benches.beam [--json]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benches import harness
from pytrace.kernels import expand
from tests import oracles

BEAMS, CHAINS, OPTIONS = 5, 5, 31


def numpy_step(
    scores: NDArray[np.float64], logits: NDArray[np.float64], finished: NDArray[np.bool_], chains: int
) -> tuple[NDArray, ...]:
    """Take one step of all questions at once: scores [questions, chains], logits [questions, chains, options]."""
    questions, width = scores.shape
    largest = logits.max(axis=2, keepdims=True)
    log_probs = logits - largest - np.log(np.exp(logits - largest).sum(axis=2, keepdims=True))
    options = np.argpartition(-log_probs, BEAMS - 1, axis=2)[:, :, :BEAMS]
    totals = scores[:, :, None] + np.take_along_axis(log_probs, options, 2)
    # A finished chain has one candidate, itself.
    totals[finished] = -np.inf
    totals[:, :, 0][finished] = scores[finished]
    options[finished] = -1
    flat = totals.reshape(questions, width * BEAMS)
    best = np.argsort(-flat, axis=1, kind="stable")[:, :chains]
    chosen = np.take_along_axis(options.reshape(questions, -1), best, 1)
    parents = best // BEAMS
    ended = np.take_along_axis(finished, parents, 1) | (chosen == 0)
    return parents, chosen, np.take_along_axis(flat, best, 1), ended


def run(settings: harness.Settings) -> Iterator[harness.Comparison]:
    rng = np.random.default_rng(settings.seed)
    for questions, bar in ((1, 20.0), (1_000, 3.0)):
        scores = -rng.exponential(1.0, questions * CHAINS)
        logits = rng.standard_normal((questions * CHAINS, OPTIONS))
        finished = rng.random(questions * CHAINS) < 0.2
        finished[::CHAINS] = False
        offsets = np.arange(questions + 1) * CHAINS

        def ours(scores=scores, logits=logits, finished=finished, offsets=offsets):
            return expand(scores, logits, finished, beams=BEAMS, chains=CHAINS, question_offsets=offsets)

        def peer(scores=scores, logits=logits, finished=finished, questions=questions):
            return numpy_step(
                scores.reshape(questions, CHAINS),
                logits.reshape(questions, CHAINS, OPTIONS),
                finished.reshape(questions, CHAINS),
                CHAINS,
            )

        result = ours()
        expected = oracles.expand(
            scores.tolist(), logits.tolist(), finished.tolist(), offsets.tolist(), beams=BEAMS, chains=CHAINS
        )
        rows = [row for question in expected for row in question]
        np.testing.assert_array_equal(result.parents, [row[0] for row in rows])
        np.testing.assert_array_equal(result.options, [row[1] for row in rows])
        np.testing.assert_allclose(result.scores, [row[2] for row in rows], rtol=0, atol=1e-12)
        np.testing.assert_allclose(peer()[2].ravel(), result.scores, rtol=0, atol=1e-12)
        yield harness.compare(
            f"{questions:,} questions x {CHAINS} chains x {OPTIONS} options", ours, {"NumPy": peer}, settings, bar=bar
        )


if __name__ == "__main__":
    sys.exit(harness.main({"beam": run}))
