"""The trained checker of claims, cross-validated on labelled claims beside the one without a model.

    python -m benches.train_checker --data DIR --out DIR [--folds 3] [--epochs 4] [--made 3000] [--threads 1] [--seed 0]

FEVER-symmetric and WiCE are learned together, and scored on the fold that was left out; claims that share a text are in one fold. The
weights of the checker without a model, beside which the trained one judges, are learned anew from the other folds, too, and from the
made claims of `benches.claim_checker`. Before the labelled claims, `--made` claims of the open corpora are learned (0: none).
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from benches.claim_checker import MADE, Measured, Row, labelled, learn, made, measure
from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.entailment_onnx import open_entailment
from pytrace.certify.claims.evaluation import Agreement, Share, Verdict, agreement, judge
from pytrace.training.checker_data import groups_of, read_claims
from pytrace.training.checker_run import MODEL, train_checker
from pytrace.training.training_settings import CheckerSettings, Length

SETS = ("fever-symmetric", "wice")


def measured(rows: list[Row], share: float = 1.0) -> Measured:
    labels, groups, kinds = (np.array([getattr(row, name) for row in rows]) for name in ("label", "group", "kind"))
    return Measured(measure(rows), labels, groups, kinds, share)


def figures(scores: Agreement) -> str:
    return f"{figure(scores.balanced_accuracy, 100, 1)} | {figure(scores.auroc, 1, 3)} | {scores.calibration_error:.3f}"


def figure(share: Share | None, by: int, digits: int) -> str:
    assert share is not None
    return f"{by * share.value:.{digits}f} ({by * share.low:.{digits}f} to {by * share.high:.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the evaluation data: claims/")
    parser.add_argument("--out", type=Path, required=True, help="an empty directory for the folds' models")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--made", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    paths = {name: options.data / "claims" / f"{name}-dev.jsonl" for name in SETS}
    sets = {name: read_claims(path) for name, path in paths.items()}
    corpora = [options.data / "open" / name / "corpus.jsonl" for name in ("hotpotqa-train", "musique-train", "2wiki")]
    folds: dict[str, list[int]] = {}
    for name, claims in sets.items():
        # Of rows without evidence the fold does not matter: no model sees them.
        groups = groups_of(claims.rows)
        order = sorted({*groups})
        random.Random(options.seed).shuffle(order)
        of_group = {group: number % options.folds for number, group in enumerate(order)}
        folds[name] = [0] * len(claims.labelled)
        for number, group in zip(claims.numbers, groups, strict=True):
            folds[name][number] = of_group[group]
    by_hand = {name: measured(rows) for name, rows in labelled(options.data).items()}
    changed = measured(made(options.data, random.Random(options.seed), most=400), MADE)
    found: dict[str, list[Verdict]] = {name: [] for name in SETS}
    by_words: dict[str, list[Verdict]] = {name: [] for name in SETS}
    speeds: dict[str, list[float]] = {name: [] for name in SETS}
    for fold in range(options.folds):
        place = options.out / f"fold-{fold}"
        place.mkdir(parents=True)
        learned = place / "learned.jsonl"
        with learned.open("w", encoding="utf-8") as stream:
            for name, path in paths.items():
                lines = path.read_text("utf-8").splitlines(keepends=True)
                stream.writelines(line for line, of in zip(lines, folds[name], strict=True) if of != fold)
        settings = CheckerSettings(seed=options.seed, made=max(options.made, 1))
        report = train_checker(
            [learned],
            place,
            settings,
            Length(epochs=options.epochs),
            docs=corpora if options.made else (),
            hold_out=0,
            threads=options.threads,
        )
        seconds = f"{report.seconds:.0f} s, and {report.made_seconds:.0f} s for {report.made} made claims"
        print(f"fold {fold}: {report.steps} steps, {report.tokens} tokens in {seconds}", flush=True)
        model = open_entailment(place / MODEL, threads=options.threads)
        others = [part.only(np.array(folds[name]) != fold) for name, part in by_hand.items()]
        checker = ClaimChecker(learn([*others, changed]))
        for name, claims in sets.items():
            rows = [row for row, of in zip(claims.labelled, folds[name], strict=True) if of == fold]
            judged = judge(rows, checker, (), entailment=model)
            found[name] += judged.verdicts
            speeds[name].append(judged.claims_a_second)
            by_words[name] += judge(rows, checker, ()).verdicts
    print("\n| set | checker | balanced accuracy % | AUROC | calibration error | claims a second |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in SETS:
        print(f"| {name} | trained | {figures(agreement(found[name]))} | {min(speeds[name]):.0f} |")
        print(f"| {name} | without a model | {figures(agreement(by_words[name]))} | |")


if __name__ == "__main__":
    main()
