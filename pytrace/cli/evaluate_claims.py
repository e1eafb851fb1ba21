"""``pytrace eval-claims``: how well the checker of claims agrees with labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.commands import Command, Result, argument, option
from pytrace.cli.shared_options import ATOMIC, CHECKER, MODELS, SEED
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.claims.entailment import EntailmentModel
    from pytrace.certify.claims.evaluation import Agreement, Judged, LabelledText, Share, Verdict


class EvalClaims(Command):
    """Check labelled claims or responses, and say how well the verdicts agree with the labels.

    Each line of DATA has `label` (supported, contradicted, not there, or a data set's word for one of them), and `claim` with `evidence` (its
    sentences) as FEVER and WiCE have them, or a response with its contexts as `pytrace certify --responses` reads it; rows without evidence
    are checked against --docs or --index. Of a response the worst claim counts.
    """

    data: tuple[Path, ...] = argument("DATA...", required=True)
    docs: tuple[Path, ...] = option("A file or a folder of documents to check against. May be repeated.")
    index: Path | None = option("An index to check against: for each claim its passages.", metavar="DIR")
    checker: str | None = CHECKER
    atomic: bool = ATOMIC
    limit: int | None = option("Only the first so many rows of each file.", ge=1)
    out: Path | None = option("Write every verdict here.", metavar="FILE.jsonl")
    seed: int = SEED
    models: Engine = MODELS

    def check(self) -> None:
        if self.docs and self.index is not None:
            raise click.UsageError("give --docs or --index, not both")

    def run(self) -> Result:
        from pytrace.certify.claims.evaluation import agreement, read_labelled
        from pytrace.engine.claims import open_checker
        from pytrace.storage.files import atomic_output
        from pytrace.storage.text import dump_json

        entailment = open_checker(self.checker, self.models)
        judged = {
            path.name: self._judged(path, list(read_labelled(path, limit=self.limit)), entailment) for path in self.data
        }
        scores: dict[str, Agreement] = {}
        for name, of_file in judged.items():
            scores[name] = agreement(of_file.verdicts, seed=self.seed)
            for kind, verdicts in _by_kind(of_file.verdicts).items():
                scores[f"{name}, {kind}"] = agreement(verdicts, seed=self.seed)
        if self.out is not None:
            with atomic_output(self.out) as stream:
                stream.writelines(
                    dump_json({"data": name, "verdict": verdict}).encode() + b"\n"
                    for name, of_file in judged.items()
                    for verdict in of_file.verdicts
                )
        speeds = {name: of_file.claims_a_second for name, of_file in judged.items()}

        def show_text() -> None:
            common.print_table(
                ["rows", "n", "balanced accuracy %", "AUROC", "F1 of unsupported %", "Brier", "ECE", "found supported"],
                [_row(name, each) for name, each in scores.items()],
            )  # fmt: skip
            for name, speed in speeds.items():
                common.print_text(f"{name}: {speed:,.0f} claims a second")

        return Result({"scores": scores, "claims_a_second": speeds}, show_text)

    def _judged(self, path: Path, rows: Sequence[LabelledText], entailment: EntailmentModel | None) -> Judged:
        from pytrace.certify.claims import ClaimChecker
        from pytrace.certify.claims.evaluation import judge
        from pytrace.documents import read_documents
        from pytrace.engine.claims import open_writer, passages_of
        from pytrace.engine.corpus import Corpus

        lacking = next((row.id for row in rows if row.documents is None), None)
        if lacking is not None and not self.docs and self.index is None:
            raise InputError(
                f"{path}: the row {lacking} has no evidence, and neither --docs nor --index says what to check it against"
            )
        checker = ClaimChecker(writer=open_writer(self.atomic, self.models))
        if self.index is None:
            documents = [document for path in self.docs for document in read_documents(path)]
            return judge(rows, checker, documents, entailment=entailment)
        with ExitStack() as stack:
            corpus = Corpus.open(self.index)
            stack.callback(corpus.close)
            return judge(rows, checker, lambda row: passages_of(row.text, corpus, self.models), entailment=entailment)


def _by_kind(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    kinds: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        kinds.setdefault(verdict.kind, []).append(verdict)
    kinds.pop("", None)
    return kinds


def _row(name: str, scores: Agreement) -> list[str]:
    found = sum(row["supported"] for row in scores.confusion.values())
    return [
        name,
        str(scores.n),
        _share(scores.balanced_accuracy, 100, 1),
        _share(scores.auroc, 1, 3),
        f"{100 * scores.unsupported_f1:.1f}",
        f"{scores.brier:.3f}",
        f"{scores.calibration_error:.3f}",
        f"{found} of {scores.n}",
    ]


def _share(share: Share | None, by: int, digits: int) -> str:
    if share is None:
        return "-"
    return f"{by * share.value:.{digits}f} ({by * share.low:.{digits}f} to {by * share.high:.{digits}f})"
