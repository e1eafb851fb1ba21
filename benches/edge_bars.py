"""Everything that was wanted of the small model, and what is reached: a table.

    python -m benches.edge_bars --data DIR --work DIR [--only PART…] [--limit N] [--json FILE]

Parts: `read` (gold passages, these with a neighbor of each, and what search across hops chose), `answers` (the default method: abstention
and calibration), `examples`, `claims` (FEVER-symmetric, WiCE, the example responses), `twins`, `speed` (claims a second on one thread,
warm and cold questions on two), `size`, `service` (16 clients of `/v1/ask`) and `steps` (TRACE's labeled steps). "Before" is the same
without the small model. WORK has the indexes of `benches.answers`, made where they are missing. A bar is "at least" unless it says "at most".
Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pytrace
from benches.answers import ask, confidences_of, print_confidence
from benches.claim_twins import make, pages, show, verdicts
from benches.edge import OPEN, Readers, adversarial, choose_triples, compare, open_corpus
from benches.reading_sets import index_of, questions_of
from benches.warm_ask import measure
from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.entailment_edge import EdgeEntailment
from pytrace.certify.claims.evaluation import auroc, balanced_accuracy, judge, read_labelled
from pytrace.engine.corpus import IndexedCorpus
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.scores.metrics import exact_match
from pytrace.models import registry
from pytrace.models.edge.edge_model import EdgeModel, shipped_edge
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.spans.reader import SpanReader
from pytrace.records import Document

EXAMPLES = Path(__file__).parents[1] / "examples"
GOLD = {"advhotpot-dev": (52.0, 65.0), "hotpotqa-train": (50.0, 62.0), "musique-train": (28.0, 40.0), "2wiki": (58.0, 64.0)}  # fmt: skip
# EM that the other evidence may cost: a neighbor of each gold passage, and what was searched for.
NEAR, SEARCHED = 3.0, 5.0
WARM_INDEX = "2wiki"
CLIENTS = 16
_ENCODER = "minilm-l6-int8"  # of the default profile
_COLD = """
import os, subprocess, sys, time
begun = time.perf_counter()
process = subprocess.Popen([sys.argv[1], "-m", "pytrace", *sys.argv[2:]], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(time.perf_counter() - begun, used.ru_maxrss / 1000, os.waitstatus_to_exitcode(status))
"""


class Bar(NamedTuple):
    """What was wanted of some work, what is reached, and what was before; `most` says that it may be no larger."""

    work: str
    bar: tuple[float, ...]
    reached: tuple[float, ...]
    before: tuple[float, ...] = ()
    most: bool = False

    @property
    def met(self) -> bool:
        """Whether every figure keeps its bar."""
        return all(one <= bar if self.most else one >= bar for one, bar in zip(self.reached, self.bar, strict=True))

    def line(self) -> str:
        """Return it as a row of a Markdown table."""
        before, reached, bar = (
            " / ".join(f"{one:.4g}" for one in each) for each in (self.before, self.reached, self.bar)
        )
        return f"| {self.work} | {before} | {reached} | {'at most ' if self.most else ''}{bar} | {'yes' if self.met else 'no'} |"


class Bench:
    """What the parts share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.data: Path = options.data
        self.work: Path = options.work
        self.limit: int | None = options.limit
        directory = shipped_edge()
        if directory is None:
            sys.exit("the small model is not installed")
        self.directory = directory
        self.model = EdgeModel(directory)

    @cached_property
    def engine(self) -> pytrace.Engine:
        return pytrace.load(threads=1)

    def corpus(self, name: str) -> IndexedCorpus:
        return IndexedCorpus(index_of(self.work, name, [self.data / "open" / name], self.engine))


def read(bench: Bench) -> Iterator[Bar]:
    """Yield EM and F1 of gold passages, and EM that other evidence costs."""
    rules = SpanReader(ScriptedModel(["unused"]))
    readers = Readers(bench.model, SpanReader(rules.model, edge=lambda: bench.model), rules)
    name, rows = next(adversarial(bench.data))
    both, before = compare(name, rows[: bench.limit], readers)
    yield Bar("EM / F1: advhotpot-dev, gold", GOLD["advhotpot-dev"], both, before)
    for corpus in OPEN:
        gold = 0.0
        for name, rows in open_corpus(bench.data, bench.work, corpus, bench.engine, bench.limit):
            both, before = compare(name, rows, readers)
            if name.endswith("gold"):
                gold = both[0]
                yield Bar(f"EM / F1: {name}", GOLD[corpus], both, before)
            else:
                yield Bar(
                    f"EM below gold: {name}", (NEAR if "neighbors" in name else SEARCHED,), (gold - both[0],), most=True
                )


def answers(bench: Bench) -> Iterator[Bar]:
    """Yield abstention and calibration of the default method."""
    corpora = {name: bench.corpus(name) for name in OPEN}
    own = []
    for name in ("advhotpot10-dev", *OPEN):
        if name in corpora:
            rows = questions_of(bench.data / "open" / name, bench.limit)
        else:
            given = read_questions(bench.data / "multihop" / f"{name}.jsonl", limit=bench.limit)
            rows = [{"question": one.question, "answers": one.answers, "documents": one.documents} for one in given]
        own += confidences_of(ask(bench.engine, "hops", rows, corpora.get(name)))
    found = print_confidence(bench.engine, "hops", bench.data, own, corpora)
    yield Bar("abstained of unanswerable / right answers kept, %", (90, 85), (found.stopped, found.kept))
    yield Bar("calibration error: answerable / mixed with unanswerable", (0.05, 0.05), (found.answerable, found.mixed), most=True)  # fmt: skip


def examples(bench: Bench) -> Iterator[Bar]:
    """Yield how many example questions are answered rightly."""
    rows = list(map(json.loads, (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()))
    corpus = pytrace.Corpus.read(EXAMPLES / "docs")
    found = [bench.engine.ask(row["question"], corpus) for row in rows]
    right = sum(exact_match(one.answer, row["answers"]) for one, row in zip(found, rows, strict=True) if one.answer)
    yield Bar(f"examples, of {len(rows)} questions", (11,), (float(right),))


def labeled(data: Path, name: str) -> list[tuple[str, list[Document], bool]]:
    """Return claims with their evidence, and whether it supports them."""
    rows = map(json.loads, (data / "claims" / f"{name}.jsonl").read_text("utf-8").splitlines())
    return [(row["claim"], [Document("1", "", tuple(row["evidence"]))], row["label"] == "supported") for row in rows]


def claims(bench: Bench) -> Iterator[Bar]:
    """Yield how well claims are checked by the words, and together with the small model."""
    checkers = ClaimChecker(), ClaimChecker(entailment=EdgeEntailment(bench.model))
    for name, bar in (("fever-symmetric-dev", (79, 0.86)), ("wice-dev", (73, 0.80))):
        rows = labeled(bench.data, name)[: bench.limit]
        right = np.array([supported for *_, supported in rows])
        figures = []
        for checker in checkers:
            checked = [checker.check_claims([claim], documents)[0] for claim, documents, _ in rows]
            shares = np.array([one.supported for one in checked])
            # Of two labels, or three: which one is likeliest.
            said = shares >= np.array([one.contradicted for one in checked]) if name.startswith("fever") else shares >= 0.5  # fmt: skip
            figures.append((100 * balanced_accuracy(said, right), auroc(shares, right)))
        yield Bar(f"balanced accuracy / AUROC: {name}", bar, figures[1], figures[0])
    rows_of_responses = list(read_labelled(EXAMPLES / "responses.jsonl"))
    splits = [json.loads(line)["split"] for line in (EXAMPLES / "responses.jsonl").read_text("utf-8").splitlines()]
    documents = pytrace.Corpus.read(EXAMPLES / "docs")
    figures = []
    for entailment in (None, EdgeEntailment(bench.model)):
        found = judge(rows_of_responses, ClaimChecker(), list(documents), entailment=entailment).verdicts
        right = np.array([one.label == "supported" for one in found])
        shares = np.array([one.supported for one in found])
        dev = np.array([split == "dev" for split in splits])
        threshold = max(np.unique(shares[dev]), key=lambda least: balanced_accuracy(shares[dev] >= least, right[dev]))
        first, second = (100 * balanced_accuracy(shares[half] >= threshold, right[half]) for half in (dev, ~dev))
        figures.append((first, second))
    yield Bar("balanced accuracy of 120 responses: half that chose the threshold / other half", (80, 80), figures[1], figures[0])  # fmt: skip


def twins(bench: Bench) -> Iterator[Bar]:
    """Yield how many false twins are refuted and true ones supported."""
    pairs = make(pages(bench.data), bench.limit or 300, 0)
    before = show("words", pairs, verdicts(ClaimChecker(), pairs))
    together = show("together", pairs, verdicts(ClaimChecker(entailment=EdgeEntailment(bench.model)), pairs))
    for (kind, seen), shares in together.items():
        rules = "seen in training" if seen else "unseen"
        yield Bar(f"{kind}, rules {rules}: false refuted / true supported, %", (85, 85), shares, before[kind, seen])


def claims_a_second(checker: ClaimChecker, rows: Sequence[tuple[str, list[Document], bool]]) -> float:
    begun = time.perf_counter()
    for claim, documents, _ in rows:
        checker.check_claims([claim], documents)
    return len(rows) / (time.perf_counter() - begun)


def speed(bench: Bench) -> Iterator[Bar]:
    """Yield claims a second, and times of warm and cold questions."""
    sets = labeled(bench.data, "fever-symmetric-dev")[:200], labeled(bench.data, "wice-dev")[:60]
    before, both = ([claims_a_second(checker, rows) for rows in sets] for checker in (ClaimChecker(), ClaimChecker(entailment=EdgeEntailment(bench.model))))  # fmt: skip
    yield Bar("claims a second, one thread: sentence / page", (100, 50), tuple(both), tuple(before))
    index = bench.work / f"{WARM_INDEX}.index"
    questions = [row["question"] for row in questions_of(bench.data / "open" / WARM_INDEX, 60)]
    rules, edge = measure(index, questions, 2)
    yield Bar("warm question, ms: median / 95th percentile", (80, 150), edge[1:], rules[1:], most=True)
    runs = [cold(["ask", question, "--index", str(index), "--threads", "2"]) for question in questions[:5]]
    seconds, memory = (float(np.median(each)) for each in zip(*runs, strict=True))
    yield Bar("cold `pytrace ask`: seconds / MB", (1.2, 350), (seconds, memory), most=True)


def cold(arguments: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that a command takes, and its memory in MB."""
    # Start it from a small process: a child's peak memory (ru_maxrss) includes what its parent held when it forked.
    done = subprocess.run(
        [sys.executable, "-c", _COLD, sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    seconds, memory, code = map(float, done.stdout.split())
    if code not in (0, 1):
        sys.exit(f"pytrace {' '.join(arguments)} ended with {code:.0f}")
    return seconds, memory


def size(bench: Bench) -> Iterator[Bar]:
    """Yield how large the models of the default profile are, compressed as in a wheel."""
    encoder = registry.resolve(_ENCODER, "encoder")
    files = [path for folder in (encoder, bench.directory) for path in folder.rglob("*") if path.is_file()]
    total = sum(len(zlib.compress(path.read_bytes())) for path in files) / 1e6
    yield Bar("download of the default profile's models without a language model, MB", (50,), (total,), most=True)


def service(bench: Bench) -> Iterator[Bar]:
    """Yield how many times more answers a second many clients get than one."""
    target = bench.work / "service.json"
    index, questions = bench.work / f"{WARM_INDEX}.index", bench.data / "open" / WARM_INDEX / "questions.jsonl"
    command = [sys.executable, "-m", "benches.service", "--only", "ask", "--turns", "3", "--json", str(target)]
    subprocess.run([*command, "--index", str(index), "--questions", str(questions)], check=True)
    rows = {row["figure"]: row["value"] for row in json.loads(target.read_text("utf-8"))["rows"]}
    yield Bar(f"`/v1/ask`: answers a second, {CLIENTS} clients by one", (2.5,), (rows[f"{CLIENTS} clients by one"],))


def steps(bench: Bench) -> Iterator[Bar]:
    """Yield how often the labeled step is chosen."""
    yield Bar("labeled steps, %: among triples / with the end", (75, 75), choose_triples(bench.data, bench.model))


PARTS: dict[str, Callable[[Bench], Iterable[Bar]]] = {
    part.__name__: part for part in (read, answers, examples, claims, twins, speed, size, service, steps)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder of the indexes, made where they are missing")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--limit", type=int, help="questions, claims or pairs per set")
    parser.add_argument("--json", type=Path, help="where the figures are written, too")
    options = parser.parse_args()
    bench = Bench(options)
    bars = [bar for name in options.only for bar in PARTS[name](bench)]
    print("\n| work | before | reached | wanted | met |\n|---|---|---|---|---|")
    for bar in bars:
        print(bar.line())
    print(f"{sum(bar.met for bar in bars)} of {len(bars)} are met")
    if options.json:
        options.json.write_text(json.dumps([{**bar._asdict(), "met": bar.met} for bar in bars], indent=1), "utf-8")


if __name__ == "__main__":
    main()
