"""Candidates become chains: TRACE's beam search with adaptive termination, for many questions at once.

Source: TRACE, section 3.3 and Algorithm 1. At each step every live chain of every question is ranked and selected in one
call; finished chains are carried over and never sent to the model again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytrace.kernels.beam import expand
from pytrace.methods.trace.ranker import Ranker, TripleIndex
from pytrace.methods.trace.selector import Selector, Step
from pytrace.records import Candidate, Chain, Unit


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The search's sizes, with the paper's defaults."""

    # L, the most triples of a chain.
    length: int = 4
    # b, options tried a chain and step.
    beams: int = 5
    # R, chains a question.
    chains: int = 5
    # Chains kept a question while searching, at least R: a chain that is not yet among the best R may come to be. None
    # keeps R.
    width: int | None = None
    # Options below this probability are dropped.
    min_prob: float = 1e-4
    # Whether a chain may end before `length` (option A); False is the paper's ablation with fixed-length chains.
    adaptive: bool = True
    # Chains with fewer triples may not end.
    minimum: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes that search nothing."""
        for name in ("length", "beams", "chains"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def kept(self) -> int:
        """Chains kept a question while searching."""
        return max(self.width or self.chains, self.chains)


@dataclass(frozen=True, slots=True)
class _Path:
    question: int
    positions: tuple[int, ...] = ()
    steps: tuple[float, ...] = ()
    score: float = 0.0
    finished: bool = False
    stuck: bool = False


def build_chains(
    questions: Sequence[str],
    index: TripleIndex,
    ranker: Ranker,
    selector: Selector,
    settings: SearchSettings | None = None,
    *,
    stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[list[Chain]]:
    """Build up to R reasoning chains for every question."""
    # TRACE, Algorithm 1. The options of a step are normalised over the candidates and, where termination is adaptive
    # and the chain is long enough, option A.
    settings = settings or SearchSettings()
    paths = [[_Path(number)] if index.triples[number] else [] for number in range(len(questions))]
    for _ in range(settings.length):
        live = [path for group in paths for path in group if not path.finished and not path.stuck]
        if not live:
            break
        with stage("rank"):
            candidates = ranker.rank(
                index, questions, [path.question for path in live], [path.positions for path in live]
            )
        offered = {id(path): row for path, row in zip(live, candidates, strict=True)}
        with stage("select"):
            logits = selector.select(
                [
                    Step(questions[path.question], _triples(index, path), tuple(row))
                    for path, row in zip(live, candidates, strict=True)
                ]
            )
        scored = {id(path): row for path, row in zip(live, logits, strict=True)}
        paths = _advance(paths, offered, scored, settings)
    return [
        [
            Chain(_triples(index, path), path.steps, path.score, path.finished)
            for path in sorted(group, key=lambda path: -path.score)
            if path.positions
        ][: settings.chains]
        for group in paths
    ]


def _triples(index: TripleIndex, path: _Path) -> tuple[Unit, ...]:
    return tuple(index.unit(path.question, position) for position in path.positions)


def _advance(
    paths: list[list[_Path]],
    offered: dict[int, list[Candidate]],
    scored: dict[int, NDArray[np.float64]],
    settings: SearchSettings,
) -> list[list[_Path]]:
    """Expand all live chains by one step with the beam kernel."""
    flat = [path for group in paths for path in group]
    width = 1 + max((len(offered.get(id(path), ())) for path in flat), default=0)
    logits = np.full((len(flat), width), -np.inf)
    for row, path in enumerate(flat):
        if id(path) in scored:
            options = scored[id(path)].copy()
            if not settings.adaptive or len(path.positions) < settings.minimum:
                options[0] = -np.inf
            logits[row, : len(options)] = options
    result = expand(
        np.array([path.score for path in flat]),
        logits,
        np.array([path.finished or path.stuck for path in flat]),
        question_offsets=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        beams=settings.beams,
        chains=settings.kept,
        min_prob=settings.min_prob,
        terminate=0,
    )
    advanced: list[list[_Path]] = []
    for begin, end in zip(result.offsets[:-1].tolist(), result.offsets[1:].tolist(), strict=True):
        group: list[_Path] = []
        for i in range(begin, end):
            parent = flat[int(result.parents[i])]
            option = int(result.options[i])
            if option < 0:
                # A chain carried over: finished, or with nothing left to choose from.
                group.append(parent if parent.finished else replace(parent, stuck=True))
                continue
            chosen = (offered[id(parent)][option - 1].index,) if option else ()
            positions, steps = (*parent.positions, *chosen), (*parent.steps, float(result.steps[i]))
            group.append(_Path(parent.question, positions, steps, float(result.scores[i]), finished=not option))
        advanced.append(group)
    return advanced
