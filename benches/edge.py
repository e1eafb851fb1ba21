"""The answer extractor with the small model and without it, and the model alone, on questions and claims that none has seen.

    python -m benches.edge --data DIR --work DIR --model DIR [--threads 1] [--limit N] [--show N]

Reads four sets of questions over several passages, three times: their gold passages, these with the nearest other passage of each, and
what search across hops chose from the whole corpus (WORK has the indexes of `benches.answers`). Checks the claims of FEVER-symmetric, and
chooses among the labeled next triples of TRACE. Prints EM and F1, p-values of paired bootstraps, accuracy and AUROC. Ends with an error
if a question or a claim is in the training data, and prints how many gold passages are.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import pytrace
from benches.reading_sets import index_of, questions_of, searched
from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.evaluation.scores.significance import paired_bootstrap
from pytrace.models.edge.edge_model import EdgeModel
from pytrace.models.edge.reading import KINDS, EdgeReading
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.spans.reader import SpanReader
from pytrace.records import Evidence
from pytrace.retrieval.passages import PassageIndex

OPEN = ("hotpotqa-train", "musique-train", "2wiki")
ADVERSARIAL = "advhotpot-dev"


class Row(NamedTuple):
    """A question with its right answers and the evidence that it is read from."""

    question: str
    answers: tuple[str, ...]
    evidence: Evidence


def texts(passages: Sequence[str]) -> Evidence:
    return Evidence("documents", tuple(passages), tuple(map(str, range(len(passages)))))


def adversarial(data: Path) -> Iterator[tuple[str, list[Row]]]:
    """Yield the adversarial questions with their two gold paragraphs, and with all four, two of which mislead."""
    gold, full = [], []
    for line in (data / "multihop" / f"{ADVERSARIAL}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        titles = {title for title, _ in row["supporting_facts"]}
        passages = {title: f"[{title}] {' '.join(sentences)}" for title, sentences in row["context"]}
        gold.append(
            Row(row["question"], (row["answer"],), texts([text for title, text in passages.items() if title in titles]))
        )
        full.append(Row(row["question"], (row["answer"],), texts([*passages.values()])))
    yield f"{ADVERSARIAL}, gold", gold
    yield f"{ADVERSARIAL}, all four", full


def open_corpus(
    data: Path, work: Path, name: str, engine: pytrace.Engine, limit: int | None
) -> Iterator[tuple[str, list[Row]]]:
    """Yield the questions of an open corpus with gold passages, with a neighbor of each, and with what search across hops chose."""
    index = index_of(work, name, [data / "open" / name], engine)
    questions = questions_of(data / "open" / name, limit)
    gold, near = [], []
    for row in questions:
        rows = [index.rows_of(document)[0] for document in row["gold"]]
        answers = tuple(row["answers"])
        gold.append(Row(row["question"], answers, texts(passages_of(index, rows))))
        near.append(Row(row["question"], answers, texts(passages_of(index, [*rows, *neighbors(index, rows)]))))
    yield f"{name}, gold", gold
    yield f"{name}, gold and neighbors", near
    found = searched(index, questions, engine, name)
    yield f"{name}, searched", [Row(one.question, one.answers, one.evidence) for one in found]


def passages_of(index: PassageIndex, rows: Sequence[int]) -> list[str]:
    return [f"[{document.title}] {document.text}" for document in index.passages(list(rows))]


def neighbors(index: PassageIndex, rows: Sequence[int]) -> list[int]:
    """Return the nearest other passage of each, by vectors."""
    _, nearest = index.nearest(index.vectors(np.array(rows)), len(rows) + 2)
    found: dict[int, None] = {}
    for ranked in nearest.tolist():
        found.update(dict.fromkeys([row for row in ranked if row not in rows][:1]))
    return list(found)


def answer(reading: EdgeReading) -> str:
    kind = KINDS[int(np.argmax(reading.kinds[:3]))]
    return kind if kind != "span" else reading.spans[0].text if reading.spans else ""


def auroc(scores: NDArray[Any], right: NDArray[np.bool_]) -> float:
    order = np.argsort(np.argsort(scores)) + 1.0
    return float((order[right].sum() - right.sum() * (right.sum() + 1) / 2) / (right.sum() * (~right).sum()))


def asked_and_passages(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    return [row.question for row in rows], [text for row in rows for text in row.evidence.context]


class Trained:
    """Questions, claims and passages of the training data."""

    def __init__(self, data: Path) -> None:
        self._texts: set[str] = set()
        for name in ("reading", "claims", "passages"):
            with gzip.open(data / "train" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
                for row in map(json.loads, lines):
                    own = [
                        row.get("question"),
                        row.get("claim"),
                        *row.get("passages", ()),
                        *row.get("other_passages", ()),
                    ]
                    if name == "passages":
                        own.append(f"[{row['title']}] {row['text']}")
                    self._texts.update(plain(text) for text in own if text)

    def check(self, name: str, asked: Iterable[str], passages: Iterable[str]) -> None:
        """End the program if a question or claim is one of the training data; print how many passages are."""
        known = [text for text in asked if plain(text) in self._texts]
        if known:
            sys.exit(f"{name}: {len(known)} texts are in the training data, such as {known[0]!r:.120}")
        shared = sum(plain(text) in self._texts for text in set(passages))
        print(f"{name:38} no question is in the training data; {shared} of the passages are")


def plain(text: str) -> str:
    """Return a text as it is compared: letters and digits in lower case."""
    return "".join(filter(str.isalnum, text.casefold()))


class Readers(NamedTuple):
    """Who reads: the small model alone, the extractor with it, and the extractor's rules without it."""

    model: EdgeModel
    both: SpanReader
    rules: SpanReader


Figures = tuple[float, float]
"""EM and F1, in percent."""


def compare(name: str, rows: Sequence[Row], readers: Readers, show: int = 0) -> tuple[Figures, Figures]:
    """Print how well a set is read; return the figures of the extractor with the small model, and of its rules."""
    asked, seen = [row.question for row in rows], [row.evidence for row in rows]
    alone = [answer(read) for read in readers.model.read(asked, [one.context for one in seen])]
    begun = time.monotonic()
    both = [one.text for one in readers.both.read(asked, seen)]
    seconds = time.monotonic() - begun
    rules = [one.text for one in readers.rules.read(asked, seen)]
    given = (both, rules, alone)
    em = [[100 * exact_match(text, row.answers) for text, row in zip(texts, rows, strict=True)] for texts in given]
    f1 = [[100 * f1_score(text, row.answers).f1 for text, row in zip(texts, rows, strict=True)] for texts in given]
    figures = "   ".join(f"{np.mean(one):5.1f} / {np.mean(other):5.1f}" for one, other in zip(em, f1, strict=True))
    p = f"p {paired_bootstrap(*em[:2]).p_value:.4f}, {paired_bootstrap(*f1[:2]).p_value:.4f}"
    print(f"{name:36} {len(rows):4}   {figures}   {p}   {1000 * seconds / len(rows):4.0f} ms", flush=True)
    for text, row, right in list(zip(both, rows, em[0], strict=True))[:show]:
        print(f"   {'right' if right else 'WRONG'} {row.question} => {text!r}, right: {row.answers}")
    both_figures, rules_figures, _ = zip(map(float, map(np.mean, em)), map(float, map(np.mean, f1)), strict=True)
    return both_figures, rules_figures


def check_claims(data: Path, model: EdgeModel, trained: Trained, limit: int | None) -> None:
    lines = (data / "claims" / "fever-symmetric-dev.jsonl").read_text("utf-8").splitlines()
    given = [json.loads(line) for line in lines][:limit]
    trained.check("fever-symmetric-dev", [row["claim"] for row in given], [])
    labels = model.check([row["claim"] for row in given], [" ".join(row["evidence"]) for row in given])
    score = np.log(labels[:, 0] + 1e-9) - np.log(labels[:, 1] + 1e-9)
    right = np.array([row["label"] == "supported" for row in given])
    print(f"fever-symmetric-dev: accuracy {100 * np.mean((score > 0) == right):.1f}, AUROC {auroc(score, right):.3f}")


def choose_triples(data: Path, model: EdgeModel) -> Figures:
    """Print and return how often the labeled triple is chosen, among triples and with the end as one more option, in percent."""
    lines = (data / "labels" / "next-triple-hotpotqa.jsonl").read_text("utf-8").splitlines()
    among, ended = [], []
    for row in map(json.loads, lines):
        options = [re.sub(r"^[A-Z]\. ", "", text) for text in row["candidate_triples"]]
        right = "ABCDEFGHIJ".index(row["answer"])
        scores = model.link([row["question"]] * len(options), [row["triples"]] * len(options), [None, *options[1:]])
        if right:
            among.append(int(np.argmax(scores[1:])) + 1 == right)
        ended.append(int(np.argmax(scores)) == right)
    shares = 100 * float(np.mean(among)), 100 * float(np.mean(ended))
    print(f"labeled steps: {shares[0]:.1f} of {len(among)} among triples, {shares[1]:.1f} of {len(ended)} with the end")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder of the indexes, made where they are missing")
    parser.add_argument("--model", type=Path, required=True, help="as 'pytrace train edge' writes it: OUT/model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=int, help="questions per set")
    parser.add_argument("--show", type=int, default=0, help="answers shown per set")
    options = parser.parse_args()
    model = EdgeModel(options.model, threads=options.threads)
    trained = Trained(options.data)
    engine = pytrace.load(threads=options.threads)
    rules = SpanReader(ScriptedModel(["unused"]))
    readers = Readers(model, SpanReader(rules.model, edge=lambda: model), rules)
    print(
        "EM / F1: the extractor with the small model, its rules alone, the model alone; p of the first two; time of the first"
    )
    for name, rows in adversarial(options.data):
        trained.check(name, *asked_and_passages(rows))
        compare(name, rows[: options.limit], readers, options.show)
    for corpus in OPEN:
        for name, rows in open_corpus(options.data, options.work, corpus, engine, options.limit):
            if name.endswith("gold"):
                trained.check(name, *asked_and_passages(rows))
            compare(name, rows, readers, options.show)
    check_claims(options.data, model, trained, options.limit)
    choose_triples(options.data, model)


if __name__ == "__main__":
    main()
