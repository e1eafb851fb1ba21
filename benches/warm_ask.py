"""Time of a warm question to an index, by the answer extractor's rules alone and with the small model.

python -m benches.warm_ask --index DIR --questions FILE [--limit 60] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np

import pytrace
from pytrace.models.edge.edge_model import shipped_edge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True, help="JSON lines with 'question'")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    lines = options.questions.read_text("utf-8").splitlines()[: options.limit]
    questions = [json.loads(line)["question"] for line in lines]
    for name, median, late in measure(options.index, questions, options.threads):
        print(f"{name}: median {median:.0f} ms, 95th percentile {late:.0f} ms of {len(questions)} questions")


def measure(index: Path, questions: Sequence[str], threads: int) -> Iterator[tuple[str, float, float]]:
    """Yield who reads, and median and 95th percentile of a warm question in milliseconds."""
    engine = pytrace.load(threads=threads)
    corpus = pytrace.Corpus.open(index)
    for name, directory in (("rules alone", None), ("with the small model", shipped_edge())):
        with mock.patch("pytrace.engine.loading.shipped_edge", return_value=directory):
            engine.ask(questions[0], corpus)
            times = []
            for question in questions:
                begun = time.perf_counter()
                engine.ask(question, corpus)
                times.append(1000 * (time.perf_counter() - begun))
        median, late = np.percentile(times, (50, 95))
        yield name, float(median), float(late)


if __name__ == "__main__":
    main()
