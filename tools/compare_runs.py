"""Compare the answers of two runs of `pytrace eval --out`: exit 0 if every answer and its evidence are the same.

python tools/compare_runs.py runs/before runs/after
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytrace.evaluation.run.run_store import RunStore
from pytrace.results import Findings


def answers(run: str) -> dict[tuple[str, str], tuple[str, Findings | None]]:
    """Return text and evidence of every answer of a run, by method and question."""
    path = Path(run) / "run.sqlite"
    if not path.is_file():
        raise SystemExit(f"{path} is not there; give a directory that 'pytrace eval --out' wrote")
    with RunStore(path) as store:
        rows = [row for method in store.methods() for row in store.rows(method)]
    return {
        (row.method, row.question_id): (row.error, None)
        if row.result is None
        else (row.result.answer, row.result.evidence)
        for row in rows
    }


def main() -> int:
    """Print what differs."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: compare_runs.py BEFORE AFTER")
    before, after = answers(sys.argv[1]), answers(sys.argv[2])
    missing = before.keys() ^ after.keys()
    texts = [key for key in before.keys() & after.keys() if before[key][0] != after[key][0]]
    evidence = [key for key in before.keys() & after.keys() if before[key][1] != after[key][1]]
    for what, keys in (("only in one run", missing), ("another answer", texts), ("other evidence", evidence)):
        for method, question in sorted(keys):
            print(f"{what}: {method} {question}")
    print(f"{len(before)} and {len(after)} answers: {len(missing)} in one alone, {len(texts)} differ in text, "
          f"{len(evidence)} in evidence")  # fmt: skip
    return 1 if missing or texts or evidence else 0


if __name__ == "__main__":
    sys.exit(main())
