"""Answers as spans of the evidence beside answers that the model writes: learn the weights, cross-validated, and print the table.

    python -m benches.span_reader --data DIR [--llm tiny] [--threads N] [--cache FILE] [--limit N] [--write]

Sets: HotpotQA's adversarial questions and the questions of the open corpora (HotpotQA, MuSiQue, 2WikiMultiHopQA), each with its gold documents
and no others, and the questions of IRCoT, whose rows name no gold documents, with all of theirs. Figures of a set are of weights that were learned
from the other sets (none is learned from IRCoT's). Both readers get the same prompts of four demonstrations. `--write` learns from all
and replaces the shipped weights; `--cache` keeps what the model said for the next time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from pytrace.certify.claims.evaluation import calibration_error
from pytrace.documents.sentences import split_sentences
from pytrace.engine import load
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.evaluation.scores.significance import paired_bootstrap
from pytrace.models.language_model import LanguageModel
from pytrace.models.response_cache import CachedModel
from pytrace.reader.answers import Reader, normalise_answer
from pytrace.reader.evidence import all_documents
from pytrace.reader.spans import weights as shipped
from pytrace.reader.spans.features import Scored, candidates
from pytrace.reader.spans.question import read_question
from pytrace.reader.spans.reader import Ranked, SpanReader
from pytrace.reader.spans.weights import SpanWeights
from pytrace.records import Document, Evidence

Floats = NDArray[np.float64]

PENALTY = 1.0
LEAST = 5  # candidates that have a feature, for it to have a weight
DEMONSTRATIONS = 4
TOGETHER = 16  # questions that the model is asked at once
ONLY_TESTED = "ircot"


class Row(NamedTuple):
    """A question with its answers and its evidence, and the candidates of that."""

    question: str
    answers: Sequence[str]
    evidence: Evidence
    found: Sequence[Scored]
    right: Sequence[bool]


def read_sets(data: Path, limit: int | None) -> dict[str, list[Row]]:
    """Read every set."""
    sets: dict[str, list[Row]] = {}
    for name, file in (("advhotpot", "advhotpot10-dev"), (ONLY_TESTED, "ircot-hotpotqa")):
        rows = []
        for one in read_questions(data / "multihop" / f"{file}.jsonl", limit=limit):
            gold = [document for document in one.documents if document.id in one.supporting_documents] or one.documents
            rows.append(row_of(one.question, one.answers, gold))
        sets[name] = rows
    for folder in ("hotpotqa-train", "musique-train", "2wiki"):
        passages = {str(row["id"]): row for row in lines(data / "open" / folder / "corpus.jsonl")}
        rows = []
        for row in lines(data / "open" / folder / "questions.jsonl")[:limit]:
            gold = [passages[str(name)] for name in row["gold"]]
            documents = [Document(one["id"], one["title"], tuple(split_sentences(one["text"]))) for one in gold]
            rows.append(row_of(row["question"], row["answers"], documents))
        sets[folder] = rows
    return sets


def lines(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def row_of(question: str, answers: Sequence[str], documents: Sequence[Document]) -> Row:
    evidence = all_documents(documents)
    found = [] if read_question(question).kind == "yes-no" else candidates(question, evidence.context)
    gold = {normalise_answer(answer) for answer in answers}
    return Row(question, answers, evidence, found, [normalise_answer(one.text) in gold for one in found])


def learn_features(rows: Sequence[Row]) -> dict[str, float]:
    """Learn by which features a right candidate is told from the others of its question: a softmax over them."""
    rows = [row for row in rows if any(row.right)]
    counts = Counter(name for row in rows for one in row.found for name, value in one.features.items() if value)
    names = {name: place for place, name in enumerate(sorted(name for name, count in counts.items() if count >= LEAST))}
    entries = [
        (number, names[name], float(value))
        for number, one in enumerate(one for row in rows for one in row.found)
        for name, value in one.features.items()
        if name in names and value
    ]
    which, columns, values = zip(*entries, strict=True)
    sizes = [len(row.found) for row in rows]
    matrix = sparse.csr_matrix((values, (which, columns)), shape=(sum(sizes), len(names)))
    learned = fit(matrix, np.array([right for row in rows for right in row.right]), sizes, PENALTY)
    return {name: round(float(learned[place]), 4) for name, place in names.items()}


def learn_model(rows: Sequence[tuple[Row, Sequence[Ranked]]]) -> dict[str, float]:
    """Learn what the prior and the language model's log-probabilities count beside each other."""
    ranked = [(row, found) for row, found in rows if found and any(is_right(row, one) for one in found)]
    features = [
        [one.prior, one.log_probability, one.log_probability / max(one.tokens, 1)]
        for _, found in ranked
        for one in found
    ]
    right = np.array([is_right(row, one) for row, found in ranked for one in found])
    learned = fit(sparse.csr_matrix(np.array(features)), right, [len(found) for _, found in ranked], 0.1)
    names = ("prior", "log-probability", "mean log-probability")
    return {name: round(float(value), 4) for name, value in zip(names, learned, strict=True)}


def is_right(row: Row, one: Ranked) -> bool:
    return exact_match(one.candidate.text, row.answers) == 1


def fit(matrix: sparse.csr_matrix, right: NDArray[np.bool_], sizes: Sequence[int], penalty: float) -> Floats:
    """Maximise the probability of the right ones of each group, with a penalty for large weights."""
    starts = np.cumsum([0, *sizes[:-1]])
    group = np.repeat(np.arange(len(sizes)), sizes)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = matrix @ weights
        shares = np.exp(scores - np.maximum.reduceat(scores, starts)[group])
        shares /= np.add.reduceat(shares, starts)[group]
        rightly = np.add.reduceat(shares * right, starts)
        gradient = matrix.T @ (shares - shares * right / np.maximum(rightly, 1e-12)[group])
        return -np.log(np.maximum(rightly, 1e-12)).sum() + penalty * weights @ weights, gradient + 2 * penalty * weights

    return minimize(loss, np.zeros(matrix.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x


def rank_all(reader: SpanReader, rows: Sequence[Row]) -> list[list[Ranked]]:
    """Return the ranked candidates of every row."""
    ranked: list[list[Ranked]] = []
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        fitted, prompts = reader._prompts([row.question for row in some], [row.evidence for row in some])
        ranked += reader.rank([row.question for row in some], [shown.entries for shown in fitted], prompts)
    return ranked


def read_freely(model: LanguageModel, rows: Sequence[Row]) -> list[str]:
    """Return what the model writes."""
    reader = Reader(model, demonstrations=DEMONSTRATIONS)
    texts: list[str] = []
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        texts += [one.text for one in reader.read([row.question for row in some], [row.evidence for row in some])]
    return texts


def scores(rows: Sequence[Row], texts: Sequence[str]) -> tuple[Floats, Floats]:
    """Return EM and F1 of each question, in per cent."""
    pairs = list(zip(rows, texts, strict=True))
    return (
        np.array([100 * exact_match(text, row.answers) for row, text in pairs]),
        np.array([100 * f1_score(text, row.answers).f1 for row, text in pairs]),
    )


def stands(row: Row, text: str) -> bool:
    """Whether a text stands in the evidence, or is yes or no."""
    form = normalise_answer(text)
    shown = " ".join(map(normalise_answer, row.evidence.context))
    within = any(text in entry for entry in row.evidence.context)
    return form in ("yes", "no") or (form != "" and (within or f" {form} " in f" {shown} "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--llm", default="tiny")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    sets = read_sets(given.data, given.limit)
    model = load(given.llm, threads=given.threads).model
    if given.cache is not None:
        model = CachedModel(model, given.cache)
    learned_from = [name for name in sets if name != ONLY_TESTED]
    ranked: dict[str, list[list[Ranked]]] = {}
    for name, rows in sets.items():
        features = learn_features([row for other in learned_from if other != name for row in sets[other]])
        first = SpanWeights(features, {"prior": 1.0, "log-probability": 1.0, "mean log-probability": 0.0})
        reader = SpanReader(model, demonstrations=DEMONSTRATIONS, weights=first)
        ranked[name] = rank_all(reader, rows)
        print(f"{name}: {len(rows)} questions scored", flush=True)
    print(
        "\n| set | questions | best of the candidates EM | reader | EM | F1 | stands in the evidence |\n|---|---|---|---|---|---|---|"
    )
    all_free: list[float] = []
    all_span: list[float] = []
    sure: list[float] = []
    right: list[float] = []
    for name, rows in sets.items():
        others = [other for other in learned_from if other != name]
        weights = learn_model([pair for other in others for pair in zip(sets[other], ranked[other], strict=True)])
        texts = [best_text(found, weights) for found in ranked[name]]
        ceiling = 100 * np.mean(
            [any(is_right(row, one) for one in found) for row, found in zip(rows, ranked[name], strict=True)]
        )
        prior = [max(found, key=lambda one: one.prior).candidate.text if found else "" for found in ranked[name]]
        free = read_freely(model, rows)
        tokens = np.mean([sum(one.tokens for one in found) for found in ranked[name]])
        for label, said in (("free", free), ("span, without the model", prior), ("span", texts)):
            em, f1 = scores(rows, said)
            inside = 100 * np.mean([stands(row, text) for row, text in zip(rows, said, strict=True)])
            print(
                f"| {name} | {len(rows)} | {ceiling:.1f} | {label} | {em.mean():.1f} | {f1.mean():.1f} | {inside:.1f} |",
                flush=True,
            )
        test = paired_bootstrap(scores(rows, texts)[1], scores(rows, free)[1])
        print(
            f"  {name}: F1 {test.difference:+.1f}, p = {test.p_value:.4f}; weights {weights}; candidates of {tokens:.0f} tokens a question"
        )
        all_free += scores(rows, free)[1].tolist()
        all_span += scores(rows, texts)[1].tolist()
        told = [probability(found, weights) for found in ranked[name]]
        sure += told
        right += scores(rows, texts)[0].tolist()
    test = paired_bootstrap(all_span, all_free)
    print(
        f"all: F1 {np.mean(all_free):.1f} free, {np.mean(all_span):.1f} span, {test.difference:+.1f} ({test.low:.1f} to {test.high:.1f}), p = {test.p_value}"
    )
    print(reliability(np.array(sure), np.array(right) / 100))
    if given.write:
        features = learn_features([row for name in learned_from for row in sets[name]])
        final = learn_model([pair for name in learned_from for pair in zip(sets[name], ranked[name], strict=True)])
        path = Path(shipped.__file__).with_name("weights.json")
        path.write_bytes(msgspec.json.format(msgspec.json.encode(SpanWeights(features, final)), indent=1) + b"\n")
        print(f"{len(features)} weights written to {path}")


def best_text(found: Sequence[Ranked], weights: Mapping[str, float]) -> str:
    """Return the best candidate's text under other weights of the model."""
    told = SpanWeights({}, dict(weights))
    return (
        max(found, key=lambda one: told.total(one.prior, one.log_probability, one.tokens)).candidate.text
        if found
        else ""
    )


def probability(found: Sequence[Ranked], weights: Mapping[str, float]) -> float:
    """Return the probability of the best candidate among those that were scored."""
    told = SpanWeights({}, dict(weights))
    totals = np.array([told.total(one.prior, one.log_probability, one.tokens) for one in found] or [0.0])
    return float(1 / np.exp(totals - totals.max()).sum()) if found else 0.0


def reliability(sure: Floats, right: Floats) -> str:
    """Word how far probabilities are to be trusted: Brier score, calibration error, and EM of the surest tenths to all."""
    order = np.argsort(-sure, kind="stable")
    shares = ", ".join(
        f"{percent} %: {100 * right[order][: max(1, len(order) * percent // 100)].mean():.1f}"
        for percent in (10, 25, 50, 75, 100)
    )
    brier = float(((sure - right) ** 2).mean())
    return f"Brier score {brier:.3f}, calibration error {calibration_error(sure, right > 0):.3f}; EM of the surest {shares}"


if __name__ == "__main__":
    main()
