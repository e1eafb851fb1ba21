"""Minimum covers beside OR-tools' CP-SAT: equal weights on random problems first, then time."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches import harness
from pytrace.kernels.set_cover import greedy_cover, minimum_cover, minimum_covers, scope_covers

Matrix = NDArray[np.bool_]


def cp_model() -> Any:
    """Return OR-tools' model module, or None where it is not installed."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        return None


def solve_by_cp_sat(model: Any, matrix: Matrix, threads: int, seconds: float = 60.0) -> tuple[float, float, bool]:
    """Weight, bound and whether they are proved equal."""
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
    return solver.objective_value, solver.best_objective_bound, status == model.OPTIMAL


def random_problems(seed: int, count: int, sets: int, features: int, density: float) -> list[Matrix]:
    """Boolean matrices of independent entries."""
    random = np.random.default_rng(seed)
    return [random.random((sets, features)) < density for _ in range(count)]


def verify(settings: harness.Settings, model: Any) -> int:
    """Compare weights on random problems of all shapes up to 30 x 16; returns how many."""
    random = np.random.default_rng(settings.seed)
    count = 100 if settings.quick else 1000
    for _ in range(count):
        shape = (int(random.integers(1, 31)), int(random.integers(1, 17)))
        matrix = random.random(shape) < random.uniform(0.05, 0.5)
        cover = minimum_cover(matrix)
        assert cover.optimal
        covered = matrix[list(cover.sets)].any(axis=0) if cover.sets else np.zeros(shape[1], dtype=bool)
        assert np.array_equal(covered, matrix.any(axis=0))
        if model is not None:
            weight, _, proved = solve_by_cp_sat(model, matrix, 1)
            assert proved
            assert weight == cover.weight
    return count


def run(settings: harness.Settings) -> Iterator[harness.Comparison]:
    """Verify, then time."""
    model = cp_model()
    verified = verify(settings, model)
    for sets, features, density in ((10, 8, 0.3), (30, 12, 0.2), (30, 16, 0.15)):
        problems = random_problems(settings.seed, 20, sets, features, density)

        def ours(problems: list[Matrix] = problems) -> None:
            for matrix in problems:
                minimum_cover(matrix)

        def theirs(problems: list[Matrix] = problems) -> None:
            for matrix in problems:
                solve_by_cp_sat(model, matrix, settings.threads)

        yield harness.compare(
            f"20 minimum covers, one call each, {sets} sets of {features} features at density {density}", ours,
            {} if model is None else {"ortools CP-SAT": theirs}, settings, bar=500,
            note=f"{verified} problems verified" + ("" if model is None else " with CP-SAT"),
        )  # fmt: skip

    batch = [(matrix, None) for matrix in random_problems(settings.seed, 1000, 30, 12, 0.2)]
    yield harness.compare("1,000 minimum covers in one call, 30 x 12", lambda: minimum_covers(batch), {}, settings)
    random = np.random.default_rng(settings.seed)
    questions = [
        (random.random(20) < 0.2, random.random((20, 3)) < 0.2, random.random((20, 5)) < 0.2) for _ in range(1000)
    ]
    yield harness.compare(
        "1,000 ScopeCoE searches in one call, 20 snippets", lambda: scope_covers(questions), {}, settings
    )

    for seed in range(1 if settings.quick else 3):
        matrix = random_problems(settings.seed + seed, 1, 100, 64, 0.08)[0]
        start = time.perf_counter()
        cover = minimum_cover(matrix, time_limit=5.0)
        extra = {
            "weight": cover.weight,
            "bound": cover.bound,
            "seconds": time.perf_counter() - start,
            "greedy weight": greedy_cover(matrix).weight,
        }
        assert cover.bound <= cover.weight
        if model is not None:
            start = time.perf_counter()
            weight, bound, _ = solve_by_cp_sat(model, matrix, settings.threads, 20.0)
            extra |= {"CP-SAT weight": weight, "CP-SAT bound": bound, "CP-SAT seconds": time.perf_counter() - start}
            assert cover.weight <= weight
            assert cover.bound <= weight
            assert bound <= cover.weight
        yield harness.compare(
            f"100 sets of 64 features at density 0.08, seed {settings.seed + seed}, limit 5 s",
            lambda matrix=matrix: minimum_cover(matrix, time_limit=5.0), {}, settings, extra=extra,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(harness.main({"set_cover": run}))
