"""``pytrace certify discriminate``: whether a model can tell valid reasoning paths from invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.loading import graph_option, model_options
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.discriminative import Accuracy, DiscriminativeReport
    from pytrace.certify.validity import Mode

_MODES: tuple[Mode, ...] = ("zero-shot", "zero-shot-cot", "few-shot", "few-shot-cot")
_NAMED = 10


@click.command()
@graph_option(required=True)
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Questions with answers and gold paths.")
@click.option(
    "--mode",
    "modes",
    type=click.Choice(_MODES),
    multiple=True,
    help="How the model is asked. May be repeated.  [default: all]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions.")
@click.option("--distinct", is_flag=True, help="Of questions with the same gold path, only the first.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of every choice that is left to chance.")
@click.option(
    "--calibrated", is_flag=True, help="Without chain of thought: take away how much the model likes to say yes."
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE.jsonl", help="Write every judgement here, mode by mode."
)
@click.option("--resume", is_flag=True, help="Take the modes that are in --out already from there.")
@model_options
@common.json_option
def discriminate(
    *,
    kg: Path,
    kg_format: str | None,
    data: Path,
    modes: tuple[Mode, ...],
    limit: int | None,
    distinct: bool,
    seed: int,
    calibrated: bool,
    out: Path | None,
    resume: bool,
    models: Engine,
    as_json: bool,
) -> None:
    """Let the language model judge valid and invalid reasoning paths, and report how often it is right.

    Of each question's gold path three invalid ones are made: with an entity replaced so that its triples are no facts
    (factual), with its triples in an order that cannot be read from the question's entity (incoherent), and another
    question's path (misguided). Reported is the accuracy by kind with its 95 % interval; 50 % balanced is what a model gets
    that always says the same.
    """
    from pytrace.certify.discriminative import evaluate_discriminative
    from pytrace.certify.gold_paths import read_questions
    from pytrace.kg import KnowledgeBase

    if resume and out is None:
        raise InputError("--resume needs --out, the file of the run to go on with")
    questions = read_questions(data)
    base = KnowledgeBase.load(kg, models.encoder, format=kg_format)
    modes = modes or _MODES
    with common.progress("asking in modes", len(modes)) as advance:
        report = evaluate_discriminative(
            base,
            questions,
            models.model,
            modes=modes,
            seed=seed,
            limit=limit,
            distinct=distinct,
            calibrated=calibrated,
            out=out,
            resume=resume,
            done=lambda _: advance(),
        )
    if as_json:
        common.print_json(report)
    else:
        _print(report)


def _print(report: DiscriminativeReport) -> None:
    common.print_text(f"{report.paths} paths of {report.questions} questions, judged by {report.model}")
    kinds = [one.kind.upper() for one in report.modes[0].kinds]
    common.print_table(
        ("MODE", *kinds, "ALL", "BALANCED", "YES", "UNDECIDED", "ASKED", "EVALUATED", "SECONDS"),
        [
            (
                one.mode,
                *(_share(kind) for kind in one.kinds),
                _share(one.overall),
                _percent(one.balanced_accuracy),
                _percent(one.yes),
                str(one.overall.undecided),
                f"{one.usage.prompt_tokens:,}",
                f"{one.usage.evaluated_tokens:,}",
                f"{one.usage.seconds:.1f}",
            )
            for one in report.modes
        ],
    )
    common.print_text("accuracy in percent with its 95 % interval; asked and evaluated in tokens")
    for kind, count in report.refused.items():
        common.print_text(f"no {kind} path: {count} of {report.questions} questions")
    for refusal in report.refusals[:_NAMED]:
        line = f"{refusal.question_id} ({refusal.kind}): {refusal.reason}"
        click.echo(f"pytrace: left out: {common.printable(line)}", err=True)
    if len(report.refusals) > _NAMED:
        click.echo(f"pytrace: {len(report.refusals) - _NAMED} more were left out; --json names them all", err=True)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _share(one: Accuracy) -> str:
    if one.low is None or one.high is None:
        return "-"
    return f"{_percent(one.accuracy)} ({100 * one.low:.0f}-{100 * one.high:.0f})"
