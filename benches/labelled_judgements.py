"""How well judges tell texts that hold a question's features from texts that do not.

A question's gold paragraphs, joined, hold its features; the next question's hold none of them, the paragraphs that mislead hold
some, and a sentence that only names the question's nodes holds those alone. Features are extracted once, with the same model. For
each judge and kind of feature it prints the area under the ROC curve and the accuracy at one half of gold beside the next
question's, the area beside the others, and how often the discriminator takes each for a chain of evidence.
The curves that it prints are fitted on the questions after the first `--limit`, which the table does not use.

    python -m benches.labelled_judgements --data ../shared/data/multihop/advhotpot-dev.jsonl --limit 60
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from pytrace.chain_of_evidence.feature_extraction import Extraction, FeatureExtractor
from pytrace.chain_of_evidence.features import Inquiry
from pytrace.chain_of_evidence.judges import Curves, FusedJudge, Judge, Logistic, ModelJudge, TextJudge
from pytrace.engine.encoders import load_encoder
from pytrace.engine.model_abilities import prompt_style
from pytrace.evaluation.data.datasets import read_questions
from pytrace.models import registry
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.reader.evidence import document_text
from pytrace.records import Question

KINDS = ("intent", "relation", "node")
TEXTS = ("gold", "other", "misleading", "naming")


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--limit", type=click.IntRange(min=2), default=60, show_default=True)
@click.option("--llm", default="tiny", show_default=True)
@click.option("--encoder", "encoder_name", default="tiny", show_default=True)
@click.option("--only", multiple=True, help="Judge by these alone, for instance text.")
def main(*, data: Path, limit: int, llm: str, encoder_name: str, only: tuple[str, ...]) -> None:
    """Print a table of judges."""
    everything = list(read_questions(data))
    model = LlamaCppModel(registry.resolve(llm, "language-model"), name=llm, style=prompt_style(llm))
    encoder = load_encoder(encoder_name)
    curves = None
    if not getattr(encoder, "calibration", None):
        click.echo(
            f"{encoder.name} has no calibration: of text and fused only the areas (AUC) and the curves mean anything"
        )
        curves = Curves(*[Logistic(0.5, 20.0)] * 4)
    extractor = FeatureExtractor(model)
    extractions = extractor.extract([one.question for one in everything])
    pairs = _pairs(everything[:limit], extractions[:limit])
    found = [one.features for one in extractions[:limit]]
    counts = {kind: sum(feature.kind == kind for one in found for feature in one.all) for kind in KINDS}
    click.echo(f"{len(pairs)} questions, features: {counts}, repaired {sum(one.malformed for one in extractions)}")
    text, wording = TextJudge(encoder, curves=curves), TextJudge(encoder, wording=True, curves=curves)
    letters, calibrated = ModelJudge(model, calibrated=False), ModelJudge(model)
    judges: dict[str, Judge] = {
        "model": letters,
        "model, calibrated": calibrated,
        "text": text,
        "text, wording": wording,
        "fused": FusedJudge([(_Kept(calibrated), 0.5), (_Kept(text), 0.5)]),
    }
    rest = _pairs(everything[limit:], extractions[limit:])
    if rest:
        _print_curves(rest, wording.scores(rest))
    click.echo(
        f"{'judge':20}{'kind':10}{'AUC':>8}{'correct':>9}{'yes':>7}{'AUC, misleading':>17}{'AUC, naming':>13}{'undecided':>11}"
    )
    for name, judge in judges.items():
        if only and name not in only:
            continue
        judged = judge.judge(pairs)
        for kind in KINDS:
            _print_kind(name, kind, pairs, judged)
        sets = [[all(value is not None and value >= 0.5 for value in row) for row in rows] for rows in judged]
        shares = np.mean(np.array(sets, dtype=float), axis=0)
        click.echo(
            f"{name:20}{'all':10}  complete: gold {shares[0]:.2f}, other {shares[1]:.2f}, misleading {shares[2]:.2f}"
        )
    click.echo(f"{model.usage}")


def _pairs(questions: Sequence[Question], extractions: Sequence[Extraction]) -> list[Inquiry]:
    """Ask each question's features of its own gold paragraphs, of the next question's, and of those that mislead."""
    gold = [
        " ".join(document_text(one) for one in question.documents if one.id in question.supporting_documents)
        for question in questions
    ]
    wrong = [
        " ".join([document_text(one) for one in question.documents if one.id not in question.supporting_documents][:2])
        for question in questions
    ]
    return [
        Inquiry(question.question, found.features.all, (own, other, misleading, _naming(found.features.nodes)))
        for question, found, own, other, misleading in zip(
            questions, extractions, gold, [*gold[1:], *gold[:1]], wrong, strict=True
        )
    ]


def _naming(nodes: Sequence[str]) -> str:
    return f"Old letters name {' and '.join(nodes) or 'nothing'}."


class _Kept:
    """A judge that is asked once and remembers."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._judged: Any = None

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[float | None]]]:
        if self._judged is None:
            self._judged = self._judge.judge(inquiries)
        return self._judged  # type: ignore[no-any-return]


def _values(kind: str, pairs: Sequence[Inquiry], judged: Any, column: int) -> list[float | None]:
    return [
        rows[column][place]
        for inquiry, rows in zip(pairs, judged, strict=True)
        for place, feature in enumerate(inquiry.features)
        if feature.kind == kind
    ]


def _print_kind(name: str, kind: str, pairs: Sequence[Inquiry], judged: Any) -> None:
    gold, other, wrong, naming = (_values(kind, pairs, judged, column) for column in range(len(TEXTS)))
    undecided = sum(value is None for value in [*gold, *other])
    good = np.array([value for value in gold if value is not None])
    bad = np.array([value for value in other if value is not None])
    misleading, named = (np.array([value for value in one if value is not None]) for one in (wrong, naming))
    correct = (np.sum(good >= 0.5) + np.sum(bad < 0.5)) / max(1, len(good) + len(bad))
    yes = np.mean(np.concatenate([good, bad]) >= 0.5) if len(good) + len(bad) else 0.0
    click.echo(
        f"{name:20}{kind:10}{_area(good, bad):8.3f}{correct:9.3f}{yes:7.2f}{_area(good, misleading):17.3f}"
        f"{_area(good, named):13.3f}{undecided:11}"
    )


def _area(good: np.ndarray, bad: np.ndarray) -> float:
    """Return the share of pairs in which the good one has more, ties counted by half."""
    if not len(good) or not len(bad):
        return 0.5
    return float(np.mean((good[:, None] > bad[None]) + 0.5 * (good[:, None] == bad[None])))


def _print_curves(pairs: Sequence[Inquiry], scores: Any) -> None:
    """Print the curve of each score: gold beside the next question's, and for wordings beside the text that only names."""
    for kind in KINDS:
        _print_curve(kind, *(_scores(kind, "near", pairs, scores, column) for column in (0, 1)))
        if kind != "node":
            _print_curve(f"{kind}_wording", *(_scores(kind, "wording", pairs, scores, column) for column in (0, 3)))


def _scores(kind: str, field: str, pairs: Sequence[Inquiry], scores: Any, column: int) -> list[float]:
    values = [None if one is None else getattr(one, field) for one in _values(kind, pairs, scores, column)]  # type: ignore[attr-defined]
    return [value for value in values if value is not None]


def _print_curve(name: str, good: Sequence[float], bad: Sequence[float]) -> None:
    """Fit middle and slope by Newton's method on the log-likelihood, with a little ridge against separation."""
    x, y = np.array([*good, *bad]), np.array([1.0] * len(good) + [0.0] * len(bad))
    if not good or not bad:
        return
    centre, spread = x.mean(), x.std() or 1.0
    design = np.stack([np.ones_like(x), (x - centre) / spread], axis=1)
    weights = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ weights))
        hessian = (design * (p * (1 - p))[:, None]).T @ design + 1e-2 * np.eye(2)
        weights += np.linalg.solve(hessian, design.T @ (y - p) - 1e-2 * weights)
    slope = weights[1] / spread
    click.echo(f"curve of {name}: middle {centre - weights[0] / slope:.3f}, slope {slope:.3f}")


if __name__ == "__main__":
    main()
