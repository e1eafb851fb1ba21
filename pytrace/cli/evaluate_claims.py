"""``pytrace eval-claims``: how well the checker of claims agrees with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, option
from pytrace.cli.shared_options import ATOMIC, CHECKER, MODELS, SEED
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.claims.entailment import EntailmentModel
    from pytrace.certify.claims.evaluation import Agreement, Judged, LabelledText, Share, Verdict


class EvalClaims(Command):
    """Check labeled claims or responses, and report how well the verdicts agree with the labels.

    Each line of DATA has `label` (supported, contradicted, not there, or a data set's word for one of them), and `claim` with `evidence` (its
    sentences) as FEVER and WiCE have them, or a response with its contexts as `pytrace certify --responses` reads it; rows without evidence
    are checked against --docs or --index. The worst claim of a response decides. eval-claims counts the claims that the checker's weights were
    trained on, and scores the others separately.
    """

    data: tuple[Path, ...] = argument("DATA...", required=True)
    docs: tuple[Path, ...] = option("Documents to check against: a file or a folder. May be repeated.")
    index: Path | None = option("Index to check against; each claim gets its own passages.", metavar="DIR")
    checker: str | None = CHECKER
    atomic: bool = ATOMIC
    limit: int | None = option("Maximum number of rows per file.", ge=1)
    out: Path | None = option("Write every verdict here.", metavar="FILE.jsonl")
    seed: int = SEED
    models: Engine = MODELS

    def check(self) -> None:
        if self.docs and self.index is not None:
            raise click.UsageError("give --docs or --index, not both")

    def run(self) -> Output:
        from pytrace.certify.claims.evaluation import agreement, read_labelled
        from pytrace.engine.claims import open_checker
        from pytrace.storage.files import atomic_output
        from pytrace.storage.text import dump_json

        entailment = open_checker(self.checker, self.models)
        lists = _claim_lists(self.checker)
        rows = {path: list(read_labelled(path, limit=self.limit)) for path in self.data}
        judged = {path.name: self._judged(path, some, entailment) for path, some in rows.items()}
        texts = {path.name: [row.text for row in some] for path, some in rows.items()}
        scores: dict[str, Agreement] = {}
        notices: dict[str, str] = {}
        for name, of_file in judged.items():
            scores[name] = agreement(of_file.verdicts, seed=self.seed)
            unseen, notices[name] = _unseen(of_file.verdicts, texts[name], lists)
            if 0 < len(unseen) < len(of_file.verdicts):
                scores[f"{name}, unseen"] = agreement(unseen, seed=self.seed)
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
            for name, notice in notices.items():
                if notice:
                    common.print_styled(f"{name}: {notice}", "yellow")

        return Output({"scores": scores, "claims_a_second": speeds, "notices": notices}, show_text)

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
            documents = list(read_documents(self.docs)) if self.docs else []
            return judge(rows, checker, documents, entailment=entailment)
        with ExitStack() as stack:
            corpus = Corpus.open(self.index)
            stack.callback(corpus.close)
            return judge(rows, checker, lambda row: passages_of(row.text, corpus, self.models), entailment=entailment)


def _claim_lists(checker: str | None) -> dict[str, frozenset[str] | None]:
    """Return the hashes of the claims that the weights which decide were learned from, by the weights' name; None if not listed."""
    from pytrace.certify.claims.weights import learned_claims
    from pytrace.evaluation.scores.seen_questions import graph_path, model_questions
    from pytrace.models.edge.edge_model import GRAPH, shipped_edge

    words = {"claim checker": learned_claims()}
    if checker is None and (edge := shipped_edge()) is not None:
        return words | {"small model": model_questions(edge / GRAPH)}
    if checker in (None, "words"):
        return words
    own = model_questions(graph_path(checker))
    # What `pytrace train checker` made decides together with the words; other models decide alone.
    return {} if own is None else words | {checker: own}


def _unseen(
    verdicts: Sequence[Verdict], texts: Sequence[str], lists: Mapping[str, frozenset[str] | None]
) -> tuple[list[Verdict], str]:
    """Return the verdicts on claims that no weights were learned from, and a notice of how many those are."""
    from pytrace.evaluation.scores.seen_questions import LearnedWeights, seen_notice, unseen_questions
    from pytrace.storage.question_hashes import question_hash

    hashes = {str(number): question_hash(text) for number, text in enumerate(texts)}
    learned = [
        LearnedWeights(name, (), None if listed is None else sum(one in listed for one in hashes.values()))
        for name, listed in lists.items()
    ]
    unseen = unseen_questions(learned, lists, hashes)
    count = None if unseen is None else len(unseen)
    notice = seen_notice(learned, methods=0, questions=len(texts), unseen=count, noun="claims")
    return [verdict for number, verdict in enumerate(verdicts) if unseen is not None and str(number) in unseen], notice


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
