"""The small model on questions and claims that it has not seen.

    python -m benches.edge --data DIR --model DIR [--threads 1] [--limit N] [--show N]

Reads the gold passages of four sets of questions over several passages, and the same with the nearest other passage of each as a
distractor; checks FEVER-symmetric's claims. Prints EM and F1, accuracy and AUROC.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.models.edge.edge_model import EdgeModel
from pytrace.models.edge.reading import KINDS, Reading

OPEN = ("hotpotqa-train", "musique-train", "2wiki")


class Row(NamedTuple):
    """A question with its right answers and its gold passages."""

    question: str
    answers: tuple[str, ...]
    passages: tuple[str, ...]


def gold_rows(data: Path, name: str) -> Iterator[Row]:
    """Yield a set's questions with their gold passages."""
    if name.startswith("adv"):
        for line in (data / "multihop" / f"{name}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            titles = dict.fromkeys(title for title, _ in row["supporting_facts"])
            texts = {title: f"[{title}] {' '.join(sentences)}" for title, sentences in row["context"]}
            yield Row(row["question"], (row["answer"],), tuple(texts[title] for title in titles))
        return
    folder = data / "open" / name
    corpus = {}
    for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        corpus[row["id"]] = f"[{row['title']}] {row['text']}"
    for line in (folder / "questions.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        yield Row(row["question"], tuple(row["answers"]), tuple(corpus[gold] for gold in row["gold"]))


def answer(reading: Reading) -> str:
    kind = KINDS[int(np.argmax(reading.kinds[:3]))]
    return kind if kind != "span" else reading.spans[0].text if reading.spans else ""


def auroc(scores: np.ndarray, right: np.ndarray) -> float:
    order = np.argsort(np.argsort(scores)) + 1.0
    return float((order[right].sum() - right.sum() * (right.sum() + 1) / 2) / (right.sum() * (~right).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="as 'pytrace train edge' writes it: OUT/model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    model = EdgeModel(options.model, threads=options.threads)
    for name in ("advhotpot-dev", *OPEN):
        rows = list(gold_rows(options.data, name))[: options.limit]
        begun = time.monotonic()
        readings = model.read([row.question for row in rows], [row.passages for row in rows])
        seconds = time.monotonic() - begun
        em = [
            max(exact_match(answer(found), (right,)) for right in row.answers)
            for found, row in zip(readings, rows, strict=True)
        ]
        f1 = [f1_score(answer(found), row.answers).f1 for found, row in zip(readings, rows, strict=True)]
        top = [
            any(exact_match(span.text, row.answers) for span in found.spans)
            for found, row in zip(readings, rows, strict=True)
        ]
        print(
            f"{name}: {len(rows)} questions, EM {100 * np.mean(em):.1f}, F1 {100 * np.mean(f1):.1f}, "
            f"among five {100 * np.mean(top):.1f}, {1000 * seconds / len(rows):.0f} ms each",
            flush=True,
        )
        for found, row, right in list(zip(readings, rows, em, strict=True))[: options.show]:
            print(f"   {'right' if right else 'WRONG'} {row.question} => {answer(found)!r}, right: {row.answers}")
    given = [
        json.loads(line)
        for line in (options.data / "claims" / "fever-symmetric-dev.jsonl").read_text("utf-8").splitlines()
    ][: options.limit]
    labels = model.check([row["claim"] for row in given], [" ".join(row["evidence"]) for row in given])
    score = np.log(labels[:, 0] + 1e-9) - np.log(labels[:, 1] + 1e-9)
    right = np.array([row["label"] == "supported" for row in given])
    print(f"fever-symmetric-dev: accuracy {100 * np.mean((score > 0) == right):.1f}, AUROC {auroc(score, right):.3f}")


if __name__ == "__main__":
    main()
