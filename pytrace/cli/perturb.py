"""``pytrace perturb``: break the chains of evidence of a data set's questions on purpose, and put noise beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pytrace.cli import common
from pytrace.cli.commands import Command, Output, option
from pytrace.cli.shared_options import MODELS, ROWS_OUT, SEED
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.chain_of_evidence.features import Judge
    from pytrace.methods.scope_coe import ScopeSettings
    from pytrace.perturb.perturbations import PerturbReport, Refusal
    from pytrace.records import Question

_Kind = Literal["coe", "senp", "wordp", "erp", "intentp"]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)
_Noise = Literal["irrelevant", "misinformation", "swapped"]
_NOISES: tuple[_Noise, ...] = get_args(_Noise)
_NAMED = 20  # on a screen, of what was left out

_Judge = Literal["model", "text", "fused"]


class Perturb(Command):
    """Make questions with broken chains of evidence, irrelevant text and misinformation, for 'pytrace eval'.

    A question is used if its supporting sentences hold all of its features. Each of its rows says what was removed, replaced
    and injected; it is checked against that, without any model, before it is written. FILE.jsonl is there when all is done,
    and not before.
    """

    data: Path = option("Questions with documents and answers.")
    data_format: str = option("Format of the data: hotpotqa, musique, …", "--format", default="auto")
    kinds: tuple[_Kind, ...] = option(
        "How chains are broken: not at all, a sentence removed, nodes replaced, a relation or the intent removed. May be "
        "repeated.  [default: all]",
        "--kind",
    )
    noises: tuple[_Noise, ...] = option(
        "What is put beside them; 'swapped' is irrelevant text beside chains that give a wrong answer. May be repeated.  "
        "[default: all]",
        "--noise",
    )
    ratios: tuple[float, ...] = option(
        "Share of injected characters, from 0 to below 1. May be repeated.  [default: 0 0.25 0.5 0.75]", "--ratio"
    )
    seed: int = SEED
    limit: int | None = option("Maximum number of questions; only their documents are used.", ge=1)
    out: Path = ROWS_OUT
    judge: _Judge | None = option(
        "What decides whether a chain is broken: the language model, words and vectors, or both.  [default: as for scope-coe]"
    )
    threshold: float = option("Probability from which a text holds a feature of its question.", ge=0, le=1, default=0.5)
    retriever: Literal["bm25", "dense", "rrf"] = option(
        "What finds irrelevant text among the documents of the data.", default="dense"
    )
    models: Engine = MODELS

    def run(self) -> Output:
        from pytrace.chain_of_evidence.discriminator import Discriminator
        from pytrace.evaluation.data.datasets import read_questions
        from pytrace.evaluation.data.question_report import QuestionReport
        from pytrace.methods.catalog import method_settings
        from pytrace.methods.scope_coe import ScopeSettings, make_feature_extractor
        from pytrace.perturb.perturbations import RATIOS, PerturbReport, Settings
        from pytrace.perturb.perturbations import perturb as make_rows
        from pytrace.retrieval import make_retriever

        models, out = self.models, self.out
        # Each choice once, in the order given, which is the order of the rows.
        settings = Settings(
            kinds=tuple(dict.fromkeys(self.kinds or _KINDS)),
            noises=tuple(dict.fromkeys(self.noises or _NOISES)),
            ratios=tuple(dict.fromkeys(self.ratios or RATIOS)),
            seed=self.seed,
        )
        for ratio in settings.ratios:
            if not 0 <= ratio < 1:
                raise InputError(
                    f"--ratio {ratio} is no share that can be injected; give one from 0 to below 1, for instance 0.5"
                )
        if out.is_dir():  # now, for the rows take their place when all is done
            raise InputError(f"--out {out} is a folder; name a file for the rows")
        notes = QuestionReport()
        questions = list(
            read_questions(self.data, format=self.data_format, limit=self.limit, report=notes)  # type: ignore[arg-type]
        )
        common.remark_first(notes.notes, _NAMED)
        # Questions share documents, and each may be injected.
        documents = list({document.id: document for question in questions for document in question.documents}.values())
        report = PerturbReport()
        scope = method_settings("scope-coe", models.abilities)
        assert isinstance(scope, ScopeSettings)
        judge = self._judge(scope)
        with common.progress("breaking chains", len(questions) * len(settings.kinds)) as advance:
            rows = make_rows(
                questions,
                extractor=make_feature_extractor(models.model, scope),
                discriminator=Discriminator(judge, threshold=self.threshold),
                retrieve=make_retriever(self.retriever, documents, models.encoder).retrieve,
                model=models.model,
                settings=settings,
                report=report,
                settled=advance,
            )
            counts = self._write(rows, report)
        document = {
            "out": out,
            "questions": report.questions,
            "chains": report.chains,
            "rows": report.rows,
            "checked": report.rows + report.unsound,
            "unsound": report.unsound,
            "faults": report.faults,
            "by_kind": [{"kind": kind, "noise": noise, "rows": count} for (kind, noise), count in counts.items()],
            "refusals": report.refusals,
        }
        return Output(document, lambda: _print(out, report, counts, settings.kinds, settings.noises))

    def _judge(self, settings: ScopeSettings) -> Judge:
        from pytrace.chain_of_evidence.judges import FusedJudge, ModelJudge, TextJudge

        name = self.judge or settings.judge
        # What is rewritten goes on naming the nodes, so that only the wording around them tells it from what was there.
        if name == "text":
            return TextJudge(self.models.encoder, wording=True)
        model, shown = self.models.model, settings.judge_demonstrations
        judge = ModelJudge(model, calibrated=settings.calibrated, demonstrations=shown)
        return (
            judge
            if name == "model"
            else FusedJudge([(judge, 0.5), (TextJudge(self.models.encoder, wording=True), 0.5)])
        )

    def _write(self, rows: Iterable[Question], report: PerturbReport) -> Counter[tuple[str, str]]:
        """Write the rows to a file beside the wanted one, which then takes its place in one step; count kinds and noises."""
        from pytrace.perturb.perturbed_rows import row_line
        from pytrace.storage.files import atomic_output

        counts: Counter[tuple[str, str]] = Counter()
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_output(self.out) as stream:
            for row in rows:
                stream.write(row_line(row))
                if row.perturbation is not None:
                    counts[row.perturbation.kind, row.perturbation.noise] += 1
            if not counts:
                # Within the block, so that the error keeps an empty file from taking the place of an older one.
                reasons = [f"{refusal.question_id}: {refusal.reason}" for refusal in report.refusals] + report.faults
                raise InputError(
                    f"none of {report.questions} questions gave a row, so nothing was written "
                    f"({reasons[0] if reasons else 'no reason is known'}); try another --judge, a lower --threshold or more "
                    "questions"
                )
        return counts


def _print(
    out: Path, report: PerturbReport, counts: Counter[tuple[str, str]], kinds: Iterable[str], noises: tuple[str, ...]
) -> None:
    common.print_text(f"{report.chains} of {report.questions} questions have a chain of evidence")
    common.print_table(
        ("KIND", *(noise.upper() for noise in noises)),
        [(kind, *(counts[kind, noise] for noise in noises)) for kind in kinds],
    )
    common.print_text(
        f"checked {report.rows + report.unsound} rows against what they claim: {report.rows} sound ones written to "
        f"{common.printable(out)}, {report.unsound} unsound ones left out"
    )
    lines = [*report.faults, *(_refusal_in_words(refusal) for refusal in report.refusals)]
    common.remark_first([f"left out: {line}" for line in lines], _NAMED, "more")


def _refusal_in_words(refusal: Refusal) -> str:
    labels = "".join(f" ({label})" for label in (refusal.kind, refusal.noise) if label)
    return f"{refusal.question_id}{labels}: {refusal.reason}"
