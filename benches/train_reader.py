"""Learn the weights of the answer extractor, and measure it on questions that it has not seen.

    python -m benches.train_reader --data DIR --work DIR [--edge DIR] [--threads 1] [--write]

Learns from DATA/train alone: questions of several hops and of one, read with what the search finds for them among 21,000 passages, and
questions with their own passages; confidence is learned from answers by weights that did not see their questions, and from questions that
are asked of a corpus without their passages. With --edge, learns what the scores of the small model of a folder count with the rules,
from the questions that are kept back from this model's training, among their passages and 5,847 others; since these are few, weights that
they do not contradict stay those of the rules alone. Prints EM, F1 and calibration on the open corpora, none of whose questions is learned from.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

import pytrace
from benches.reading_sets import Example, index_of, questions_of, searched, train_examples
from pytrace.certify.claims.evaluation import calibration_error
from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.models.edge.edge_model import GRAPH, EdgeModel
from pytrace.models.edge.reading import EdgeReading
from pytrace.reader.spans import weights as shipped
from pytrace.reader.spans.certainty import certainty
from pytrace.reader.spans.reader import SpanReader
from pytrace.reader.spans.weights import BESIDE_EDGE, SpanWeights, shipped_weights
from pytrace.storage.question_hashes import load_question_hashes, question_hash, save_question_hashes
from pytrace.training.edge.edge_run import is_kept_back
from pytrace.training.edge.edge_settings import EdgeSettings

Floats = NDArray[np.float64]

OPEN = ("hotpotqa-train", "musique-train", "2wiki")
LEAST = 8  # questions that have a feature, for it to have a weight
# Of how far weights are from where they begin: 0, or with the small model what they are without it. Of 1, 3, 10 and 30 for the latter,
# training questions prefer 10 and 30, and of 1, 5, 15 and 40 from 0 none does as well. The rules had learned from these questions, too, so
# that a part of this is flattered.
PENALTY, PENALTY_WITH_EDGE = 1.0, 10.0
SHARPNESS = 4  # a candidate is worth its F1 to this power: what is nearly right teaches, too, and what is right most
FOLDS = 3
THRESHOLD_FOLDS = 5
SMALLEST = 0.02  # a smaller weight is left out
FAMILIES = {
    "scores of the small model": r"edge",
    "shape of the answer, by kind of question": r"\w+: (?!is code)",
    "word before, word after": r"before |behind ",
    "repeats the question": r"repeats |words of the question|a title, repeats",
    "about what the question names": r"about a title",
    "entries that name each other": r"linked |leads on",
    "a title": r"a title",
    "focus of the question": r"focus |title ",
    "words of the question near it": r"near |rare ",
    "order and chain of the search": r"chain |relevance|unranked",
    "said again": r"again",
    "which of two, by dates": r"the one of two",
    "code": r"is code|holds code|an identifier|\w+: is code",
}
"""Features by what they look at, as regular expressions of the beginnings of their names."""


class Row(NamedTuple):
    """An example with the features of its candidates, as numbers of names, and what each candidate is worth."""

    example: Example
    texts: list[str]
    names: NDArray[np.int32]
    values: NDArray[np.float32]
    starts: NDArray[np.int64]
    worth: NDArray[np.float32]


class Remembered:
    """The small model, which reads each question and its evidence once."""

    def __init__(self, model: EdgeModel) -> None:
        self._model = model
        self._read: dict[tuple[str, tuple[str, ...]], EdgeReading] = {}

    def read(self, questions: Sequence[str], passages: Sequence[Sequence[str]], *, top: int) -> list[EdgeReading]:
        keys = [(question, tuple(texts)) for question, texts in zip(questions, passages, strict=True)]
        for key in keys:
            if key not in self._read:
                self._read[key] = self._model.read([key[0]], [key[1]], top=top)[0]
        return [self._read[key] for key in keys]


def reader_of(edge: Remembered | None, weights: SpanWeights) -> SpanReader:
    # It asks no language model.
    return SpanReader(None, edge=None if edge is None else lambda: edge, weights=weights)  # type: ignore[arg-type,return-value]


def rows_of(
    examples: Iterable[Example], edge: Remembered | None, vocabulary: dict[str, int], seen: Collection[str]
) -> list[Row]:
    reader = reader_of(edge, SpanWeights({}, {}))
    rows: list[Row] = []
    begun = time.monotonic()
    for example in examples:
        if question_hash(example.question) in seen:
            continue
        (read,) = reader.edge_readings([example.question], [example.evidence.context])
        found = reader.candidates(example.question, example.evidence, read)
        names: list[int] = []
        values: list[float] = []
        starts = [0]
        for one in found:
            for name, value in one.features.items():
                if value:
                    names.append(vocabulary.setdefault(name, len(vocabulary)))
                    values.append(float(value))
            starts.append(len(names))
        texts = [one.text for one in found]
        if not texts:
            continue
        worth = [f1_score(text, example.answers).f1 ** SHARPNESS if example.answers else 0.0 for text in texts]
        rows.append(
            Row(
                example,
                texts,
                np.array(names, dtype=np.int32),
                np.array(values, dtype=np.float32),
                np.array(starts, dtype=np.int64),
                np.array(worth, dtype=np.float32),
            )
        )
        if len(rows) % 500 == 0:
            print(f"{len(rows):,} questions read, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return rows


def learn_choice(
    rows: Sequence[Row], vocabulary: dict[str, int], before: Mapping[str, float] | None
) -> dict[str, float]:
    """Learn weights by which the worthiest candidate of each question comes first: the expected worth under a softmax is maximized.

    Weights stay near those of `before`, if there are any, and else near 0.
    """
    rows = [row for row in rows if row.worth.max() > 0]
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    for row in rows:
        counts[np.unique(row.names)] += 1
    kept = np.flatnonzero(counts >= LEAST)
    column = np.full(len(vocabulary), -1, dtype=np.int64)
    column[kept] = np.arange(len(kept))
    owners, columns, values, offset = [], [], [], 0
    for row in rows:
        places = column[row.names]
        owner = np.repeat(np.arange(len(row.texts)), np.diff(row.starts)) + offset
        owners.append(owner[places >= 0])
        columns.append(places[places >= 0])
        values.append(row.values[places >= 0])
        offset += len(row.texts)
    matrix = sparse.csr_matrix(
        (np.concatenate(values).astype(np.float64), (np.concatenate(owners), np.concatenate(columns))),
        shape=(offset, len(kept)),
    )
    turned = matrix.T.tocsr()
    sizes = np.array([len(row.texts) for row in rows])
    starts = np.cumsum(sizes) - sizes
    group = np.repeat(np.arange(len(rows)), sizes)
    names = list(vocabulary)
    begin = np.array([(before or {}).get(names[place], 0.0) for place in kept])
    penalty = PENALTY if before is None else PENALTY_WITH_EDGE
    worth = np.concatenate([row.worth for row in rows]).astype(np.float64)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = matrix @ weights
        shares = np.exp(scores - np.maximum.reduceat(scores, starts)[group])
        shares /= np.add.reduceat(shares, starts)[group]
        expected = np.maximum(np.add.reduceat(shares * worth, starts), 1e-12)
        gradient = turned @ (shares - shares * worth / expected[group])
        moved = weights - begin
        return -np.log(expected).sum() + penalty * moved @ moved, gradient + 2 * penalty * moved

    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    learned = {names[place]: round(float(weight), 3) for place, weight in zip(kept.tolist(), found, strict=True)}
    return {name: weight for name, weight in {**(before or {}), **learned}.items() if abs(weight) >= SMALLEST}


def is_yes_or_no(feature: str) -> bool:
    return feature == "denied" or feature.startswith("yes")


class Read(NamedTuple):
    """The answer to an example, what tells how likely it is right, and whether it is."""

    text: str
    told: dict[str, float]
    right: bool


def read(examples: Iterable[Example], edge: Remembered | None, weights: SpanWeights) -> list[Read]:
    reader = reader_of(edge, weights)
    reads = []
    for example in examples:
        (seen,) = reader.edge_readings([example.question], [example.evidence.context])
        ranked = reader.rank(example.question, example.evidence, seen)
        if not ranked:
            reads.append(Read("", {"always": 1.0}, False))
            continue
        text = ranked[0].candidate.text
        right = bool(example.answers) and exact_match(text, example.answers) == 1
        reads.append(Read(text, certainty(example.question, example.evidence, ranked, seen), right))
    return reads


def learn_certainty(reads: Sequence[Read]) -> dict[str, float]:
    """Learn the log-odds that answers are right: logistic regression."""
    names = sorted({name for one in reads for name in one.told})
    matrix = np.array([[one.told.get(name, 0.0) for name in names] for one in reads])
    signs = np.where([one.right for one in reads], 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (matrix @ weights)
        gradient = matrix.T @ (-signs / (1 + np.exp(margins)))
        return np.logaddexp(0, -margins).sum() + 0.1 * weights @ weights, gradient + 0.2 * weights

    found = minimize(loss, np.zeros(len(names)), jac=True, method="L-BFGS-B").x
    return {name: round(float(weight), 4) for name, weight in zip(names, found, strict=True)}


def learned(rows: Sequence[Row], edge: Remembered | None, vocabulary: dict[str, int]) -> SpanWeights:
    """Learn choice from all rows, and certainty from the answers of each fold by weights of the others."""
    before = shipped_weights().choice if edge else None
    # All forms of a question are in one fold.
    draws = [crc32(row.example.question.encode()) for row in rows]
    examples: list[Example] = []
    reads: list[Read] = []
    for fold in range(FOLDS):
        others = [row for row, draw in zip(rows, draws, strict=True) if draw % FOLDS != fold]
        weights = SpanWeights(learn_choice(others, vocabulary, before), {})
        drawn = [(row.example, draw // FOLDS) for row, draw in zip(rows, draws, strict=True) if draw % FOLDS == fold]
        mine = [each for each, draw in drawn if each.evidence.relevance or draw % 4 == 0]
        examples += mine
        reads += read(mine, edge, weights)
        print(f"fold {fold}: {np.mean([one.right for one in reads]):.3f} right so far", file=sys.stderr, flush=True)
    print_thresholds(examples, reads)
    return SpanWeights(learn_choice(rows, vocabulary, before), learn_certainty(reads))


def print_thresholds(examples: Sequence[Example], reads: Sequence[Read]) -> None:
    """Print what thresholds do to training questions that were searched for, by certainty that has not seen them."""
    confidences = np.zeros(len(reads))
    for fold in range(THRESHOLD_FOLDS):
        weights = SpanWeights({}, learn_certainty([one for n, one in enumerate(reads) if n % THRESHOLD_FOLDS != fold]))
        for number in range(fold, len(reads), THRESHOLD_FOLDS):
            confidences[number] = weights.probability(reads[number].told)
    found = [(each, one) for each, one in zip(examples, reads, strict=True) if each.answers and each.evidence.relevance]
    f1 = [f1_score(one.text, each.answers).f1 for each, one in found]
    print(
        f"{len(found):,} training questions that were searched for, by weights that have not seen them: "
        f"EM {100 * np.mean([one.right for _, one in found]):.1f}, F1 {100 * np.mean(f1):.1f}"
    )
    foreign = np.array([not one.answers for one in examples])
    right = np.array([one.right and "own passages" not in each.set for each, one in zip(examples, reads, strict=True)])
    for least in (0.1, 0.12, 0.15, 0.2, 0.25):
        print(
            f"threshold {least}: {100 * np.mean(confidences[foreign] < least):.1f} % of questions asked of other documents are below it, "
            f"{100 * np.mean(confidences[right] >= least):.1f} % of right answers are not"
        )


def print_sets(sets: dict[str, list[Example]], edge: Remembered | None, weights: SpanWeights) -> None:
    print("| set | questions | EM | F1 | mean confidence | calibration error |\n|---|---|---|---|---|---|")
    together: list[tuple[float, bool]] = []
    for name, examples in sets.items():
        reads = read(examples, edge, weights)
        confidences = np.array([weights.probability(one.told) for one in reads])
        right = np.array([one.right for one in reads])
        f1 = np.mean(
            [
                f1_score(one.text, each.answers).f1 if each.answers else 0.0
                for one, each in zip(reads, examples, strict=True)
            ]
        )
        together += zip(confidences.tolist(), right.tolist(), strict=True)
        print(
            f"| {name} | {len(reads)} | {100 * right.mean():.1f} | {100 * f1:.1f} | {confidences.mean():.3f} | "
            f"{calibration_error(confidences, right):.3f} |"
        )
    confidences, right = np.array([each for each, _ in together]), np.array([each for _, each in together])
    print(f"all: calibration error {calibration_error(confidences, right):.3f}")
    for least in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5):
        own = [each for each, is_right in together if is_right]
        print(f"  from {least}: {100 * np.mean(np.array(own) >= least):.0f} % of right answers kept")


def print_without(sets: dict[str, list[Example]], edge: Remembered | None, weights: SpanWeights) -> None:
    """Print how many questions of each set are answered rightly where a family of features counts nothing."""
    vocabulary: dict[str, int] = {}
    rows = {name: rows_of(examples, edge, vocabulary, ()) for name, examples in sets.items()}
    names = list(vocabulary)
    print(f"| without | weights | {' | '.join(rows)} |\n|---|---|{'---|' * len(rows)}")
    for family, pattern in {"nothing": "(?!)", **FAMILIES}.items():
        gone = {name for name in weights.choice if re.match(pattern, name)}
        kept = np.array([0.0 if name in gone else weights.choice.get(name, 0.0) for name in names])
        shown = []
        for mine in rows.values():
            right = 0
            for row in mine:
                scores = np.add.reduceat(np.append(kept[row.names] * row.values, 0.0), row.starts)[:-1]
                scores[np.diff(row.starts) == 0] = 0.0
                right += exact_match(row.texts[int(np.argmax(scores))], row.example.answers) == 1
            shown.append(f"{100 * right / max(len(mine), 1):.1f}")
        print(f"| {family} | {len(gone)} | {' | '.join(shown)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for indexes, which are made once")
    parser.add_argument("--edge", type=Path, help="the small model's folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    engine = pytrace.load(threads=given.threads)
    vocabulary: dict[str, int] = {}
    edge = Remembered(EdgeModel(given.edge, threads=given.threads)) if given.edge else None
    seen = load_question_hashes(given.edge / GRAPH, remedy="train it again") if given.edge else ()
    if seen is None:
        sys.exit(f"{given.edge} does not say which questions its model has read")
    share = EdgeSettings().kept_back
    # The corpus is another one than that of all questions.
    examples = train_examples(
        given.data,
        given.work / "kept-back" if edge else given.work,
        engine,
        lambda row: not edge or is_kept_back(row["source"], row["question"], share),
    )
    rows = rows_of(examples, edge, vocabulary, seen)
    print(f"{len(rows):,} questions to learn from: {Counter(row.example.set for row in rows)}", file=sys.stderr)
    weights = learned(rows, edge, vocabulary)
    if edge:
        # The small model does not tell yes from no, so that what rules count for them stays as it is without it.
        of_rules = {name: weight for name, weight in shipped_weights().choice.items() if is_yes_or_no(name)}
        rest = {name: weight for name, weight in weights.choice.items() if not is_yes_or_no(name)}
        weights = msgspec.structs.replace(weights, choice=rest | of_rules)
    made_by = f"python -m benches.train_reader --data DIR --work DIR {'--edge DIR ' if edge else ''}--write"
    weights = msgspec.structs.replace(weights, made_by=made_by)
    if given.write:
        path = given.edge / BESIDE_EDGE if edge else Path(shipped.__file__).with_name("weights.json")
        path.write_bytes(msgspec.json.format(msgspec.json.encode(weights), indent=0) + b"\n")
        save_question_hashes(path, [row.example.question for row in rows], made_by=weights.made_by)
        print(f"{len(weights.choice):,} weights written to {path}")
    sets: dict[str, list[Example]] = {}
    indexes: dict[str, Any] = {}
    for name in OPEN:
        folder = given.data / "open" / name
        indexes[name] = index_of(given.work, name, [folder], engine)
        sets[name] = list(searched(indexes[name], questions_of(folder), engine, name))
    for name, other in zip(OPEN, (*OPEN[1:], OPEN[0]), strict=True):
        rows_of_set = questions_of(given.data / "open" / name, 100)
        sets[f"{name} asked of {other}"] = list(searched(indexes[other], rows_of_set, engine, name, foreign=True))
    print_sets(sets, edge, weights)
    print_without({name: sets[name] for name in OPEN}, edge, weights)


if __name__ == "__main__":
    main()
