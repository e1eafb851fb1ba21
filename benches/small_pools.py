"""Search across hops in pools of 2 to 6 passages, as adapters give them, by the minimum number of pairs that the best one is compared with.

    python -m benches.small_pools --data DIR --work DIR

DIR of `--data` has train/reading.jsonl.gz. Each pool has the gold passages of a training question and random ones of the same set. A
row has for each kind of pool the share of pools whose gold passages are all first, the share whose gold passages are all read by
`hops`, and the mean logarithm of a gold passage's score.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pytrace
from benches.hops_sets import index_passages
from benches.reading_sets import SEARCHED, questions_of, write_folders
from pytrace.documents import read_documents
from pytrace.methods.hops import HopsSettings
from pytrace.retrieval.hops import HopSearch, weights
from pytrace.retrieval.hops.features import Pairs
from pytrace.retrieval.passages.segment import document_id

_QUESTIONS = 120  # of each set
_MINIMA = (0, 5, weights.MIN_PAIRS, 15, 20, 30, 100)


class Pool(NamedTuple):
    """The pairs of a pool's passages, and which of the passages are gold."""

    pairs: Pairs
    gold: list[bool]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the sets of training questions")
    options = parser.parse_args()
    if not (options.work / "extra").exists():
        write_folders(options.data, options.work)
    pools: dict[tuple[int, int], list[Pool]] = defaultdict(list)
    for pool in _pools(options.work, pytrace.load("tiny", threads=1)):
        pools[sum(pool.gold), len(pool.gold)].append(pool)
    for minimum in _MINIMA:
        weights.MIN_PAIRS = minimum
        print(f"\nat least {minimum} pairs")
        for (gold, size), some in sorted(pools.items()):
            first, read, likelihood = np.mean([_measure(pool) for pool in some], axis=0)
            print(
                f"  {gold} gold of {size} passages, {len(some)} pools: first {100 * first:5.1f} %, read {100 * read:5.1f} %, "
                f"log score {likelihood:.3f}",
                flush=True,
            )
    return 0


def _pools(work: Path, engine: pytrace.Engine) -> Iterator[Pool]:
    shuffler = random.Random(3)
    for name in SEARCHED:
        passages = {passage.id: passage for passage in read_documents(work / name / "corpus.jsonl")}
        questions = questions_of(work / name)
        shuffler.shuffle(questions)
        for question in questions[:_QUESTIONS]:
            gold = [id for id in question["gold"] if id in passages]
            for size in (2, 3, 4, 6) if len(gold) in (1, 2) else ():
                others = shuffler.sample([id for id in passages if id not in gold], size - len(gold))
                ids = [*gold, *others]
                shuffler.shuffle(ids)
                with tempfile.TemporaryDirectory() as directory:
                    index = index_passages((passages[id] for id in ids), Path(directory) / "index", engine)
                    (pairs,) = HopSearch(index, engine.encoder).pairs([question["question"]])
                    yield Pool(pairs, [document_id(index.passage(row)) in gold for row in pairs.rows.tolist()])


def _measure(pool: Pool) -> tuple[bool, bool, float]:
    """Return whether the gold passages are all first, whether all are read, and the mean logarithm of their scores."""
    pairs, gold = pool.pairs, np.array(pool.gold)
    scores = weights.load_weights().score(pairs.features, pairs.firsts, pairs.seconds, pairs.seed_scores).passages
    order = np.argsort(-scores, kind="stable")
    read = np.isin(np.arange(len(scores)), order[: HopsSettings().passages])
    return (
        bool(gold[order[: gold.sum()]].all()),
        bool(read[gold].all()),
        float(np.log(np.maximum(scores[gold], 1e-9)).mean()),
    )


if __name__ == "__main__":
    raise SystemExit(main())
