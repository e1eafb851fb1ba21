"""``pytrace perturb``: break the chains of evidence of a data set's questions on purpose, and put noise beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pytrace.cli import common
from pytrace.cli.loading import model_options
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.chain_of_evidence.features import Judge
    from pytrace.methods.scope_coe import ScopeSettings
    from pytrace.perturb.perturbations import PerturbReport
    from pytrace.records import Question

_KINDS = ("coe", "senp", "wordp", "erp", "intentp")
_NOISES = ("irrelevant", "misinformation", "swapped")
_NAMED = 20


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Questions with documents and answers.")
@click.option("--format", "data_format", default="auto", show_default=True, help="Of the data: hotpotqa, musique, …")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(_KINDS),
    multiple=True,
    help="How chains are broken: not at all, a sentence removed, nodes replaced, a relation or the intent removed. May be "
    "repeated.  [default: all]",
)
@click.option(
    "--noise",
    "noises",
    type=click.Choice(_NOISES),
    multiple=True,
    help="What is put beside them; 'swapped' is irrelevant text beside chains that give a wrong answer. May be repeated.  "
    "[default: all]",
)
@click.option(
    "--ratio",
    "ratios",
    type=float,
    multiple=True,
    help="Share of injected characters, from 0 to below 1. May be repeated.  [default: 0 0.25 0.5 0.75]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every choice that is left to chance.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions, and their documents.")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.jsonl", help="Where the rows go.")
@click.option(
    "--judge",
    type=click.Choice(["model", "text", "fused"]),
    help="Who says when a chain is broken: the language model, words and vectors, or both.  [default: as scope-coe has it]",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, max=1),
    default=0.5,
    show_default=True,
    help="From this probability on a text holds a feature of its question.",
)
@click.option(
    "--retriever",
    type=click.Choice(["bm25", "dense", "rrf"]),
    default="dense",
    show_default=True,
    help="What finds irrelevant text among the documents of the data.",
)
@model_options
@common.json_option
def perturb(
    *,
    data: Path,
    data_format: str,
    kinds: tuple[str, ...],
    noises: tuple[str, ...],
    ratios: tuple[float, ...],
    seed: int,
    limit: int | None,
    out: Path,
    judge: Literal["model", "text", "fused"] | None,
    threshold: float,
    retriever: Literal["bm25", "dense", "rrf"],
    models: Engine,
    as_json: bool,
) -> None:
    """Make questions with broken chains of evidence, irrelevant text and misinformation, for 'pytrace eval'.

    A question is used if its supporting sentences hold all of its features. Each of its rows says what was removed, replaced
    and injected; it is checked against that, without any model, before it is written. FILE.jsonl is there when all is done,
    and not before.
    """
    from pytrace.chain_of_evidence.discriminator import Discriminator
    from pytrace.evaluation.data.datasets import read_questions
    from pytrace.evaluation.data.question_report import QuestionReport
    from pytrace.methods.catalog import method_settings
    from pytrace.methods.scope_coe import ScopeSettings, make_feature_extractor
    from pytrace.perturb.perturbations import RATIOS, PerturbReport, Settings
    from pytrace.perturb.perturbations import perturb as make_rows
    from pytrace.retrieval import make_retriever

    settings = Settings(
        kinds=tuple(dict.fromkeys(kinds or _KINDS)),  # type: ignore[arg-type]
        noises=tuple(dict.fromkeys(noises or _NOISES)),  # type: ignore[arg-type]
        ratios=tuple(dict.fromkeys(ratios or RATIOS)),
        seed=seed,
    )
    for ratio in settings.ratios:
        if not 0 <= ratio < 1:
            raise InputError(
                f"--ratio {ratio} is no share that can be injected; give one from 0 to below 1, for instance 0.5"
            )
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; name a file for the rows")
    told = QuestionReport()
    questions = list(read_questions(data, format=data_format, limit=limit, report=told))  # type: ignore[arg-type]
    for note in told.notes[:_NAMED]:
        click.echo(f"pytrace: {note}", err=True)
    documents = list({document.id: document for question in questions for document in question.documents}.values())
    report = PerturbReport()
    scope = method_settings("scope-coe", models.settings_name)
    assert isinstance(scope, ScopeSettings)
    with common.progress("breaking chains", len(questions) * len(settings.kinds)) as advance:
        rows = make_rows(
            questions,
            extractor=make_feature_extractor(models.model, scope),
            discriminator=Discriminator(_judge(judge or scope.judge, models, scope), threshold=threshold),
            retrieve=make_retriever(retriever, documents, models.encoder).retrieve,
            model=models.model,
            settings=settings,
            report=report,
            settled=advance,
        )
        counts = _write(rows, out, report)
    if as_json:
        common.print_json(_document(out, report, counts))
    else:
        _print(out, report, counts, settings.kinds, settings.noises)


def _judge(name: Literal["model", "text", "fused"], models: Engine, settings: ScopeSettings) -> Judge:
    from pytrace.chain_of_evidence.judges import FusedJudge, ModelJudge, TextJudge

    # What is rewritten goes on naming the nodes, so that only the wording around them tells it from what was there.
    if name == "text":
        return TextJudge(models.encoder, wording=True)
    asked = ModelJudge(models.model, calibrated=settings.calibrated, demonstrations=settings.judge_demonstrations)
    return asked if name == "model" else FusedJudge([(asked, 0.5), (TextJudge(models.encoder, wording=True), 0.5)])


def _write(rows: Iterable[Question], out: Path, report: PerturbReport) -> Counter[tuple[str, str]]:
    """Write the rows to a file beside the wanted one, which then takes its place in one step; count kinds and noises."""
    from pytrace.perturb.perturbed_rows import row_line
    from pytrace.storage.files import atomic_output

    counts: Counter[tuple[str, str]] = Counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_output(out) as stream:
        for row in rows:
            stream.write(row_line(row))
            if row.perturbation is not None:
                counts[row.perturbation.kind, row.perturbation.noise] += 1
        if not counts:
            raise InputError(
                f"none of {report.questions} questions gave a row, so nothing was written ({_first_reason(report)}); try another "
                "--judge, a lower --threshold or more questions"
            )
    return counts


def _first_reason(report: PerturbReport) -> str:
    if report.refusals:
        first = report.refusals[0]
        return f"{first.question_id}: {first.reason}"
    return report.faults[0] if report.faults else "no reason is known"


def _document(out: Path, report: PerturbReport, counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    return {
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


def _print(
    out: Path,
    report: PerturbReport,
    counts: Counter[tuple[str, str]],
    kinds: Iterable[str],
    noises: Iterable[str],
) -> None:
    columns = list(noises)
    common.print_text(f"{report.chains} of {report.questions} questions have a chain of evidence")
    common.print_table(
        ("KIND", *(noise.upper() for noise in columns)),
        [(kind, *(str(counts[kind, noise]) for noise in columns)) for kind in kinds],
    )
    common.print_text(
        f"checked {report.rows + report.unsound} rows against what they claim: {report.rows} sound ones written to "
        f"{common.printable(str(out))}, {report.unsound} unsound ones left out"
    )
    told = [
        f"{one.question_id}{f' ({one.kind})' if one.kind else ''}{f' ({one.noise})' if one.noise else ''}: {one.reason}"
        for one in report.refusals
    ]
    for line in [*report.faults, *told][:_NAMED]:
        click.echo(f"pytrace: left out: {common.printable(line)}", err=True)
    if len(told) + len(report.faults) > _NAMED:
        click.echo(
            f"pytrace: {len(told) + len(report.faults) - _NAMED} more were left out; --json names them all", err=True
        )
