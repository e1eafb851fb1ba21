"""Minimum covers beside OR-tools' CP-SAT: equal weights on random problems first, then time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, Contest, require
from pytrace.bench.measurements import Check, Comparison, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels.set_cover import Cover, greedy_cover, minimum_cover, minimum_covers, scope_covers

Matrix: TypeAlias = NDArray[np.bool_]

# (sets, features, density): the questions' sizes, where an exact answer takes microseconds.
SMALL = ((10, 8, 0.3), (30, 12, 0.2), (30, 16, 0.15))
# CP-SAT finds the least cover of these, 13 sets, but does not prove it in 20 s.
HARD = (100, 64, 0.08)


class Solved(NamedTuple):
    """What CP-SAT found: no cover weighs less than `bound`; `proved` if none weighs less than `weight`."""

    weight: float
    bound: float
    proved: bool


def cp_sat(model: Any, matrix: Matrix, threads: int, seconds: float = 60.0) -> Solved:
    """Solve a problem by CP-SAT; features that nobody has are left out."""
    problem = model.CpModel()
    chosen = [problem.new_bool_var("") for _ in range(len(matrix))]
    for feature in range(matrix.shape[1]):
        owners = np.flatnonzero(matrix[:, feature]).tolist()
        if owners:
            problem.add_bool_or([chosen[s] for s in owners])
    problem.minimize(sum(chosen))
    solver = model.CpSolver()
    solver.parameters.num_workers = threads
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(problem)
    return Solved(solver.objective_value, solver.best_objective_bound, status == model.OPTIMAL)


def random_problems(seed: int, count: int, sets: int, features: int, density: float) -> list[Matrix]:
    """Draw boolean matrices of independent entries."""
    random = np.random.default_rng(seed)
    return [random.random((sets, features)) < density for _ in range(count)]


def require_cover(matrix: Matrix, cover: Cover, what: str) -> None:
    """Check that a cover covers all that can be covered, and that its weight and bound are possible."""
    covered = matrix[list(cover.sets)].any(axis=0) if cover.sets else np.zeros(matrix.shape[1], dtype=bool)
    require(np.array_equal(covered, matrix.any(axis=0)), f"{what}: the cover leaves features out")
    require(cover.weight == len(set(cover.sets)), f"{what}: a cover of {len(cover.sets)} sets weighs {cover.weight}")
    require(cover.bound <= cover.weight, f"{what}: the bound {cover.bound} is above the weight {cover.weight}")


def solve_both(
    bench: Bench, matrix: Matrix, seconds: float, peer_seconds: float, what: str
) -> tuple[dict[str, float], Solved | None]:
    """Describe our cover, and CP-SAT's if it is here, in figures, once each bound holds against the other's cover."""
    start = time.perf_counter()
    cover = minimum_cover(matrix, time_limit=seconds)
    took = time.perf_counter() - start
    require_cover(matrix, cover, what)
    weight, bound = cover.weight, cover.bound
    figures = {"weight": weight, "bound": bound, "proved": float(cover.optimal), "seconds": took}
    model = bench.peers.get("cp-sat")
    if model is None:
        return figures, None
    start = time.perf_counter()
    solved = cp_sat(model, matrix, bench.settings.threads, peer_seconds)
    figures["CP-SAT seconds"] = time.perf_counter() - start
    require(bound <= solved.weight, f"{what}: our bound is {bound}, but CP-SAT has a cover of {solved.weight}")
    require(solved.bound <= weight, f"{what}: CP-SAT proves {solved.bound}, but our cover weighs {weight}")
    require(not (cover.optimal and weight > solved.weight), f"{what}: ours is called minimal and is not")
    return figures | {"CP-SAT weight": solved.weight, "CP-SAT bound": solved.bound}, solved


def smaller_exists(matrix: Matrix, weight: int) -> bool:
    """Try all choices of fewer sets."""
    if weight == 0:
        return False
    wanted = matrix.any(axis=0)
    # Monotone: if fewer sets covered all, adding any others would give exactly one less.
    return any(
        np.array_equal(matrix[list(choice)].any(axis=0), wanted)
        for choice in itertools.combinations(range(len(matrix)), weight - 1)
    )


def verify(bench: Bench) -> Check:
    """Compare weights on random problems of all shapes up to 30 x 16: with CP-SAT, or by trying all smaller choices."""
    model = bench.peers.get("cp-sat")
    random = np.random.default_rng(bench.settings.seed)
    count = 100 if bench.settings.quick else 1000
    case = "random problems up to 30 x 16 whose minimum is CP-SAT's"
    bench.tell(case)
    for number in range(count):
        shape = (int(random.integers(1, 31)), int(random.integers(1, 17)))
        matrix = random.random(shape) < random.uniform(0.05, 0.5)
        cover = minimum_cover(matrix)
        what = f"random problem {number} of {shape[0]} x {shape[1]}"
        require_cover(matrix, cover, what)
        require(cover.optimal, f"{what}: the minimum is not proved")
        if model is not None:
            solved = cp_sat(model, matrix, 1)
            require(solved.proved and solved.weight == cover.weight, f"{what}: {cover.weight} sets, CP-SAT {solved}")
        elif cover.weight <= 4:  # the choices of 3 of 30 sets are 4,060, and of 4 already 27,405
            require(not smaller_exists(matrix, int(cover.weight)), f"{what}: there is a cover of fewer sets")
    note = "" if model is not None else "ortools is not installed: minima of up to 4 sets were checked by trying all"
    return Check(case, None if model is None else count, "", "at least", count, note=note)


def small(bench: Bench) -> Iterator[Comparison]:
    """Time problems of the size that questions have, one call each."""
    settings, model = bench.settings, bench.peers.get("cp-sat")
    # Starting workers is what takes the time of so small a problem: with one it is twice as fast as with two.
    workers = {"ortools CP-SAT": settings.threads} | ({"ortools CP-SAT, 1 worker": 1} if settings.threads > 1 else {})
    for sets, features, density in SMALL:
        problems = random_problems(settings.seed, 20, sets, features, density)

        def solve_each(solve: Callable[[Matrix], object], problems: list[Matrix] = problems) -> None:
            for matrix in problems:
                solve(matrix)

        peers: dict[str, Call] = {}
        if model is not None:
            peers = {name: partial(solve_each, partial(cp_sat, model, threads=n)) for name, n in workers.items()}
        yield bench.compare(
            f"{len(problems)} minimum covers, one call each, {sets} x {features} at density {density}",
            partial(solve_each, minimum_cover), peers, bar=500, bar_peers=("ortools CP-SAT",), work=Work(0, len(problems), "problem"),
        )  # fmt: skip


def batches(bench: Bench) -> Iterator[Comparison]:
    """Time many problems in one call beside one call each."""
    threads = bench.settings.threads
    problems = random_problems(bench.settings.seed, 1000, 30, 12, 0.2)
    in_one_call = partial(minimum_covers, [(matrix, None) for matrix in problems], threads=threads)
    same = [cover.weight for cover in in_one_call()] == [minimum_cover(matrix).weight for matrix in problems]
    require(same, "a batch of minimum covers differs from single calls")
    random = np.random.default_rng(bench.settings.seed)
    questions = [
        (random.random(20) < 0.2, random.random((20, 3)) < 0.2, random.random((20, 5)) < 0.2) for _ in range(1000)
    ]
    for question, cover in zip(questions, scope_covers(questions, threads=threads), strict=True):
        expected = three_phases(*question)
        require(list(cover.snippets) == expected, f"scope_covers takes {cover.snippets} and should take {expected}")
    cases: tuple[tuple[str, Call, str, Call], ...] = (
        ("1,000 minimum covers in one call, 30 x 12 at density 0.2", in_one_call,
         "pytrace, one call each", lambda: [minimum_cover(matrix) for matrix in problems]),
        ("1,000 three-phase searches in one call, 20 snippets", partial(scope_covers, questions, threads=threads),
         "plain Python", lambda: [three_phases(*question) for question in questions]),
    )  # fmt: skip
    for case, ours, peer, call in cases:
        yield bench.compare(case, ours, {peer: call}, work=Work(0, 1000, "problem"))


def hard(bench: Bench, seed: int) -> Check:
    """Hold a cover found in 5 s against CP-SAT's after 20 s, and each bound against the other's cover."""
    sets, features, density = HARD
    ours, theirs = (1.0, 2.0) if bench.settings.quick else (5.0, 20.0)
    case = f"{sets} x {features} at density {density}, seed {seed}: our cover after {ours:g} s, less CP-SAT's after {theirs:g} s"
    bench.tell(case)
    matrix = random_problems(seed, 1, *HARD)[0]
    figures, solved = solve_both(bench, matrix, ours, theirs, case)
    figures["greedy weight"] = greedy_cover(matrix).weight
    value = None if solved is None else figures["weight"] - solved.weight
    note = "ortools is not installed" if solved is None else ""
    return Check(case, value, "sets", "at most", 0, note, figures)


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel."""
    yield verify(bench)
    yield from small(bench)
    yield from batches(bench)
    # One random problem may be an easy one.
    for seed in range(1 if bench.settings.quick else 3):
        yield hard(bench, bench.settings.seed + seed)


def three_phases(intent: NDArray[Any], relations: NDArray[Any], nodes: NDArray[Any]) -> list[int]:
    """Take ScopeCoE's three phases in plain Python: snippets with the intent, then the first one with each feature."""
    taken = [int(snippet) for snippet in np.flatnonzero(intent)]
    for features in (relations, nodes):
        # The paper lists what is uncovered once, at the beginning of a phase.
        uncovered = np.flatnonzero(~features[taken].any(axis=0) & features.any(axis=0)).tolist()
        for feature in uncovered:
            first = int(np.flatnonzero(features[:, feature])[0])
            if first not in taken:
                taken.append(first)
    return taken


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of snippets: with the features of one question, and with features that grow along."""
    settings = bench.settings
    seconds = 0.5 if settings.quick else 2.0
    sizes = [5, 10, 20, 50] if settings.quick else [5, 10, 20, 50, 100, 200]

    def prepare(size: int, per_snippet: float, density: float) -> Contest:
        features = max(4, round(per_snippet * size)) if per_snippet else 16
        matrix = random_problems(settings.seed + size, 1, size, features, density)[0]
        # Every feature has a snippet, or few snippets would leave little to cover.
        matrix[np.random.default_rng(size).integers(0, size, features), np.arange(features)] = True
        what = f"{size} snippets x {features} features"
        figures, _ = solve_both(bench, matrix, seconds, seconds, what)
        extra = {"pytrace weight": figures["weight"], "pytrace bound": figures["bound"]}
        extra |= {name: figures[name] for name in ("CP-SAT weight", "CP-SAT bound") if name in figures}
        peers = bench.peers.calls(
            "cp-sat", lambda model: {"ortools CP-SAT": partial(cp_sat, model, matrix, settings.threads, seconds)}
        )
        # A search that is cut off takes the limit every time; one reading says so.
        repetitions = 1 if figures["seconds"] > 0.5 * seconds else None
        return Contest(partial(minimum_cover, matrix, time_limit=seconds), peers, extra, repetitions)

    cut = f"limit {seconds:g} s: a weight above its bound was not proved in that time"
    for features, per_snippet, density in (("16 features", 0.0, 0.15), ("0.64 features a snippet", 0.64, 0.08)):
        yield bench.sweep(
            f"minimum cover, {features} at density {density}", "snippets", sizes,
            partial(prepare, per_snippet=per_snippet, density=density), growth=0, notes=[cut],
        )  # fmt: skip
