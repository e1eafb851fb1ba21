"""One beam step, and what turns a vocabulary's logits into log-probabilities, beside NumPy; on a card, beside PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.card import DEVICE, Card
from pytrace.bench.context import Bench, Contest, require, require_close
from pytrace.bench.measurements import Check, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import Expansion, expand, log_sum_exp
from pytrace.kernels.devices import to_host

BEAMS, CHAINS, OPTIONS = 5, 5, 31
VOCABULARY = 49_152
# Both sides add the same float64 numbers, in other orders.
TOLERANCE = 1e-12


class Step(NamedTuple):
    """Input of one step: `questions` with equally many chains each, which all have `OPTIONS` options."""

    questions: int
    scores: NDArray[np.float64]
    logits: NDArray[np.float64]
    finished: NDArray[np.bool_]
    offsets: NDArray[np.int64]

    @staticmethod
    def random(random: np.random.Generator, questions: int, chains: int) -> Step:
        """Draw scores and logits; a fifth of the chains is finished, but never the first of a question."""
        count = questions * chains
        finished = random.random(count) < 0.2
        # A question all of whose chains have ended is no step.
        finished[::chains] = False
        scores, logits = -random.exponential(1.0, count), random.standard_normal((count, OPTIONS))
        return Step(questions, scores, logits, finished, np.arange(questions + 1) * chains)

    @property
    def work(self) -> Work:
        """What a call must read, and the options that it must weigh."""
        return Work(self.logits.nbytes + self.scores.nbytes + self.finished.nbytes, self.logits.size, "option")


def ours(step: Step, **options: Any) -> Expansion:
    """Take the step by the kernel."""
    return expand(
        step.scores, step.logits, step.finished, beams=BEAMS, chains=CHAINS, question_offsets=step.offsets, **options
    )


def numpy_step(step: Step) -> tuple[NDArray[Any], ...]:
    """Take the step of all questions at once with NumPy; returns parents, options, scores and what has ended."""
    scores = step.scores.reshape(step.questions, -1)
    logits = step.logits.reshape(*scores.shape, OPTIONS)
    finished = step.finished.reshape(scores.shape)
    largest = logits.max(axis=2, keepdims=True)
    log_probs = logits - largest - np.log(np.exp(logits - largest).sum(axis=2, keepdims=True))
    options = np.argpartition(-log_probs, BEAMS - 1, axis=2)[:, :, :BEAMS]
    totals = scores[:, :, None] + np.take_along_axis(log_probs, options, 2)
    # A finished chain has one candidate, itself.
    totals[finished] = -np.inf
    totals[:, :, 0][finished] = scores[finished]
    options[finished] = -1
    flat = totals.reshape(step.questions, -1)
    best = np.argsort(-flat, axis=1, kind="stable")[:, :CHAINS]
    chosen = np.take_along_axis(options.reshape(step.questions, -1), best, 1)
    parents = best // BEAMS
    ended = np.take_along_axis(finished, parents, 1) | (chosen == 0)
    return parents, chosen, np.take_along_axis(flat, best, 1), ended


def plain_step(step: Step) -> list[tuple[int, int, float]]:
    """Take the step by trying everything, in plain Python: parents, options and scores, best first a question."""
    chosen = []
    for first, last in zip(step.offsets[:-1].tolist(), step.offsets[1:].tolist(), strict=True):
        candidates: list[tuple[float, int, int]] = []
        for parent in range(first, last):
            score = float(step.scores[parent])
            if step.finished[parent]:
                candidates.append((-score, parent, -1))
                continue
            # The sum is exact (fsum), so that it takes no side among orders of summation.
            logits = step.logits[parent].tolist()
            largest = max(logits)
            total = math.log(math.fsum(math.exp(logit - largest) for logit in logits))
            kept = sorted(range(OPTIONS), key=lambda option: -logits[option])[:BEAMS]
            candidates += [(-(score + logits[option] - largest - total), parent, option) for option in kept]
        chosen += [(parent, option, -negated) for negated, parent, option in sorted(candidates)[:CHAINS]]
    return chosen


def verify(step: Step, result: Expansion, what: str) -> None:
    """Compare with trying everything."""
    parents, options, scores = zip(*plain_step(step), strict=True)
    same = tuple(to_host(result.parents).tolist()) == parents and tuple(to_host(result.options).tolist()) == options
    require(same, f"{what}: the chains chosen differ from those found by trying everything")
    require_close(to_host(result.scores), scores, TOLERANCE, f"{what}: scores")


def contest(step: Step, what: str) -> Contest:
    """Make the calls of the kernel and of NumPy, verified."""
    verify(step, ours(step), what)
    scores = [score for _, _, score in plain_step(step)]
    require_close(numpy_step(step)[2].ravel(), scores, TOLERANCE, f"{what}: NumPy's scores")
    return Contest(partial(ours, step), {"NumPy": partial(numpy_step, step)})


def numpy_log_sum_exp(logits: NDArray[np.float32]) -> float:
    """Sum a row's exponentials with NumPy, in float32 as the kernel does."""
    largest = logits.max()
    shifted = logits - largest
    return float(largest) + float(np.log(np.exp(shifted, out=shifted).sum()))


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel."""
    random = np.random.default_rng(bench.settings.seed)
    bench.tell("random steps by trying everything")
    count = 20 if bench.settings.quick else 200
    for _ in range(count):
        contest(Step.random(random, int(random.integers(1, 30)), int(random.integers(1, 12))), "a random step")
    # The first that differed would have ended the run.
    yield Check("random steps that equal trying everything", count, "", "at least", count)
    for questions, bar in ((1, 20.0), (1_000, 3.0)):
        step = Step.random(random, questions, CHAINS)
        case = f"{questions:,} question{'s' * (questions > 1)} x {CHAINS} chains x {OPTIONS} options"
        calls = contest(step, case)
        yield bench.compare(case, calls.ours, calls.peers, bar=bar, work=step.work)
    logits = (8 * random.standard_normal(VOCABULARY)).astype(np.float32)
    case = f"log_sum_exp of {VOCABULARY:,} logits"
    exact = float(np.logaddexp.reduce(logits.astype(np.float64)))
    require_close(log_sum_exp(logits), exact, 1e-6, case)
    require_close(numpy_log_sum_exp(logits), exact, 1e-5, f"{case}: NumPy's")
    work = Work(logits.nbytes, logits.size, "logit")
    yield bench.compare(case, partial(log_sum_exp, logits), {"NumPy": partial(numpy_log_sum_exp, logits)}, work=work)


def card_rows(bench: Bench, card: Card) -> Iterator[Row]:
    """Verify every chain on a card, then time the step from arrays on the card and from NumPy."""
    step = Step.random(np.random.default_rng(bench.settings.seed), bench.scaled(1_000, least=3), CHAINS)
    case = f"{step.questions:,} questions x {CHAINS} chains x {OPTIONS} options"
    arrays = (step.scores, step.logits, step.finished)
    scores, logits, finished = map(card.put, arrays)
    copies = step._replace(scores=scores, logits=logits, finished=finished)
    peers: dict[str, Call] = {"pytrace, processor": partial(ours, step)}
    peers |= bench.peers.calls("torch", partial(torch_peer, card, step, copies, case))
    yield from bench.compare_on_card(
        case, partial(ours, copies), partial(ours, step, device=DEVICE), arrays, peers, work=step.work,
        verify=partial(verify, step),
    )  # fmt: skip


def torch_peer(card: Card, step: Step, copies: Any, what: str, torch: Any) -> dict[str, Call]:
    """Make the step as PyTorch's operations on tensors of the card, verified by its scores."""
    before = copies.scores.view(step.questions, -1)
    ended = copies.finished.view(step.questions, -1)
    options = copies.logits.view(*before.shape, OPTIONS)

    def expanded() -> Any:
        best, chosen = torch.log_softmax(options, dim=2).topk(BEAMS, dim=2)
        totals = (before[:, :, None] + best).masked_fill(ended[:, :, None], -torch.inf)
        totals[:, :, 0] = torch.where(ended, before, totals[:, :, 0])
        scores, positions = totals.flatten(1).topk(CHAINS, dim=1)
        parents = positions // BEAMS
        taken = chosen.flatten(1).gather(1, positions)
        carried = ended.gather(1, parents)
        return scores, parents, torch.where(carried, -1, taken), carried | (taken == 0)

    call = card.finished(expanded)
    # PyTorch's softmax sums in another order than plain Python's.
    expected = [score for _, _, score in plain_step(step)]
    require_close(call()[0].cpu().numpy().ravel(), expected, 1e-9, f"{what}, torch: scores")
    return {"torch": call}


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of chains: in questions of five, and in one question."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = [10**power for power in range(4 if bench.settings.quick else 5)]

    def prepare(size: int, each: int) -> Contest:
        step = Step.random(random, max(1, size // each), min(size, each))
        return contest(step, f"{size:,} chains")

    for title, each in ((f"one step, questions of {CHAINS} chains", CHAINS), ("one step, one question", sizes[-1])):
        yield bench.sweep(title, "chains", sizes, partial(prepare, each=each), growth=1)
