"""The default method next to its baselines, all with the same reader: EM, F1, chains that hold the answer, abstention and calibration.

    python -m benches.answers --data DIR --work DIR [--limit N] [--methods NAME…]

Sets: HotpotQA's adversarial development questions with ten paragraphs each (`advhotpot10-dev`) and the questions of the open corpora, over
an index of each. Neither the weights of the answer extractor nor those of the search have seen any of these questions. Every method answers
every question (no threshold); abstention is counted at the default threshold, and for 100 questions of each corpus that are asked of another.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import pytrace
from benches.reading_sets import index_of, questions_of
from pytrace.certify.claims.evaluation import calibration_error
from pytrace.engine.corpus import IndexedCorpus
from pytrace.engine.loading import MIN_CONFIDENCE
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.evaluation.scores.significance import paired_bootstrap
from pytrace.results import Request, Result

OPEN = ("hotpotqa-train", "musique-train", "2wiki")
METHODS = ("hops", "trace-doc", "rrf:top=2", "dense:top=5")
TOGETHER = 16


class Asked(NamedTuple):
    """The results of a method on a set, with EM and F1 of each, in percent, and the seconds of each question."""

    results: list[Result]
    em: list[float]
    f1: list[float]
    seconds: list[float]


def ask(
    engine: pytrace.Engine, method: str, rows: Sequence[dict[str, Any]], corpus: pytrace.Corpus | None = None
) -> Asked:
    results: list[Result] = []
    seconds: list[float] = []
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        begun = perf_counter()
        results += engine.run(
            [
                Request(question=row["question"], method=method, min_confidence=0.0, documents=row.get("documents"))
                for row in some
            ],
            corpus,
        )
        seconds += [(perf_counter() - begun) / len(some)] * len(some)
    em = [100 * exact_match(one.answer, row["answers"]) for one, row in zip(results, rows, strict=True)]
    f1 = [100 * f1_score(one.answer, row["answers"]).f1 for one, row in zip(results, rows, strict=True)]
    return Asked(results, em, f1, seconds)


def holds_answer(result: Result) -> bool:
    """Whether the last step of the first chain holds the answer; true for yes and no, which are in no sentence."""
    if result.answer.casefold() in ("", "yes", "no"):
        return True
    if not result.evidence.chains:
        return False
    return result.answer.casefold() in result.evidence.chains[0].steps[-1].sentence.casefold()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for indexes, which are built once")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--json", type=Path, help="write EM and F1 of each question")
    given = parser.parse_args()
    engine = pytrace.load(threads=1)
    adversarial = [
        {"question": one.question, "answers": one.answers, "documents": one.documents}
        for one in read_questions(given.data / "multihop" / "advhotpot10-dev.jsonl", limit=given.limit)
    ]
    corpora = {name: IndexedCorpus(index_of(given.work, name, [given.data / "open" / name], engine)) for name in OPEN}
    asked: dict[tuple[str, str], Asked] = {}
    print(
        "| set | method | questions | EM | F1 | chain holds the answer | ms per question |\n|---|---|---|---|---|---|---|"
    )
    for name in ("advhotpot10-dev", *OPEN):
        rows = adversarial if name == "advhotpot10-dev" else questions_of(given.data / "open" / name, given.limit)
        for method in given.methods:
            one = asked[name, method] = ask(engine, method, rows, corpora.get(name))
            holds = 100 * np.mean([holds_answer(result) for result in one.results])
            print(
                f"| {name} | {method} | {len(rows)} | {np.mean(one.em):.1f} | {np.mean(one.f1):.1f} | {holds:.1f} % | "
                f"{1000 * median(one.seconds):.0f} |",
                flush=True,
            )
    default, *others = given.methods
    for other in others:
        names = [name for name, method in asked if method == default]
        for metric in ("em", "f1"):
            mine = [value for name in names for value in getattr(asked[name, default], metric)]
            theirs = [value for name in names for value in getattr(asked[name, other], metric)]
            test = paired_bootstrap(mine, theirs)
            print(f"{default} against {other}, {metric.upper()} over all {len(mine)}: {test}")
    own = [pair for (_, method), one in asked.items() if method == default for pair in confidences_of(one)]
    print_confidence(engine, default, given.data, own, corpora)
    if given.json is not None:
        found = {f"{name} {method}": {"em": one.em, "f1": one.f1} for (name, method), one in asked.items()}
        given.json.write_text(json.dumps(found), "utf-8")


class Confidence(NamedTuple):
    """What abstention at the default threshold stops of foreign questions and keeps of right answers, in percent, and calibration errors."""

    stopped: float
    kept: float
    answerable: float
    mixed: float


def confidences_of(one: Asked) -> list[tuple[float, bool]]:
    """Return the confidence of each answer, and whether it is right."""
    return [(result.confidence or 0.0, em == 100) for result, em in zip(one.results, one.em, strict=True)]


def print_confidence(
    engine: pytrace.Engine, method: str, data: Path, own: Sequence[tuple[float, bool]], corpora: dict[str, Any]
) -> Confidence:
    """Print and return calibration on own and foreign corpora, and what abstention at the default threshold keeps and stops."""
    foreign: list[float] = []
    for name, other in zip(OPEN, (*OPEN[1:], OPEN[0]), strict=True):
        rows = [{**row, "answers": [""]} for row in questions_of(data / "open" / name, 100)]
        confidences = [result.confidence or 0.0 for result in ask(engine, method, rows, corpora[other]).results]
        foreign += confidences
        print(f"{len(rows)} questions of {name} asked of {other}: {stopped(confidences):.0f} % abstained")
    right = [confidence for confidence, is_right in own if is_right]
    print(f"right answers kept on their own corpora: {100 - stopped(right):.0f} % of {len(right)}")
    mixed = [*own, *((confidence, False) for confidence in foreign)]
    errors = []
    for label, pairs in (("answerable", own), ("answerable and not, mixed", mixed)):
        errors.append(calibration_error(np.array([each for each, _ in pairs]), np.array([each for _, each in pairs])))
        print(f"calibration error, {label}: {errors[-1]:.3f} over {len(pairs)}")
    return Confidence(stopped(foreign), 100 - stopped(right), *errors)


def stopped(confidences: Sequence[float]) -> float:
    return 100 * float(np.mean(np.array(confidences) < MIN_CONFIDENCE))


if __name__ == "__main__":
    main()
