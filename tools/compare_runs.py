"""Compare the answers of two runs of `pytrace eval --out`: exit 0 if every answer and its evidence are the same.

python tools/compare_runs.py runs/before runs/after
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any


def answers(run: str) -> dict[tuple[str, str], Any]:
    """Return text and evidence of every answer of a run, by method and question."""
    path = Path(run) / "run.sqlite"
    if not path.is_file():
        raise SystemExit(f"{path} is not there; give a directory that 'pytrace eval --out' wrote")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        rows = [json.loads(record) for (record,) in database.execute("SELECT record FROM result")]
    return {(one["method"], one["question_id"]): (one["answer"]["text"], one["answer"]["evidence"]) for one in rows}


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
