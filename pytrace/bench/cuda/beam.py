"""A beam step of many questions on the card beside PyTorch's and the processor's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pytrace.bench.beam import BEAMS, CHAINS, OPTIONS, TOLERANCE, Step, plain_step
from pytrace.bench.beam import ours as on_processor
from pytrace.bench.context import Bench, require, require_close
from pytrace.bench.cuda.card import DEVICE, card_of, from_numpy
from pytrace.bench.measurements import Row
from pytrace.bench.stopwatch import Call
from pytrace.kernels import Expansion, expand
from pytrace.kernels.devices import to_host


def rows(bench: Bench) -> Iterator[Row]:
    """Verify every chain, then time the step from arrays on the card and from NumPy."""
    card = card_of(bench)
    step = Step.random(np.random.default_rng(bench.settings.seed), bench.scaled(1_000, least=3), CHAINS)
    case = f"{step.questions:,} questions x {CHAINS} chains x {OPTIONS} options"
    scores, logits, finished = card.put(step.scores), card.put(step.logits), card.put(step.finished)
    there = partial(expand, scores, logits, finished, beams=BEAMS, chains=CHAINS, question_offsets=step.offsets)
    given = partial(
        expand, step.scores, step.logits, step.finished, beams=BEAMS, chains=CHAINS, question_offsets=step.offsets,
        device=DEVICE,
    )  # fmt: skip
    for found, how in ((there(), "on the card"), (given(), "from NumPy")):
        verify(step, found, f"{case}, {how}")
    peers: dict[str, Call] = {"pytrace, processor": partial(on_processor, step)}
    peers |= torch_peer(bench, step, scores, logits, finished, case)
    yield bench.compare(case, there, peers, work=step.work)
    yield from_numpy(bench, case, [step.scores, step.logits, step.finished], given, there)


def verify(step: Step, found: Expansion, what: str) -> None:
    """Compare with trying everything."""
    expected = plain_step(step)
    require(
        to_host(found.parents).tolist() == [parent for parent, _, _ in expected]
        and to_host(found.options).tolist() == [option for _, option, _ in expected],
        f"{what}: the chains chosen differ from those found by trying everything",
    )
    require_close(to_host(found.scores), [score for _, _, score in expected], TOLERANCE, f"{what}: scores")


def torch_peer(bench: Bench, step: Step, scores: Any, logits: Any, finished: Any, what: str) -> dict[str, Call]:
    """Make the step as PyTorch's operations, verified by its scores, if it can use the card."""
    torch = bench.peers.get("torch")
    if torch is None:
        return {}
    before = scores.view(step.questions, -1)
    ended = finished.view(step.questions, -1)
    options = logits.view(*before.shape, OPTIONS)

    def expanded() -> Any:
        best, chosen = torch.log_softmax(options, dim=2).topk(BEAMS, dim=2)
        totals = (before[:, :, None] + best).masked_fill(ended[:, :, None], -torch.inf)
        totals[:, :, 0] = torch.where(ended, before, totals[:, :, 0])
        kept, places = totals.flatten(1).topk(CHAINS, dim=1)
        parents = places // BEAMS
        taken = chosen.flatten(1).gather(1, places)
        carried = ended.gather(1, parents)
        return kept, parents, torch.where(carried, -1, taken), carried | (taken == 0)

    step_of_torch = card_of(bench).finished(expanded)
    found: Any = step_of_torch()
    due = [score for _, _, score in plain_step(step)]
    require_close(found[0].cpu().numpy().ravel(), due, 1e-9, f"{what}, torch: scores")
    return {"torch": step_of_torch}
