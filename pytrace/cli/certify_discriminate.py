"""``pytrace certify discriminate``: whether a model can tell valid reasoning paths from invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, option
from pytrace.cli.shared_options import (
    DISTINCT,
    GOLD_DATA,
    GRAPH,
    GRAPH_FORMAT,
    LIMIT,
    MAX_HOPS,
    MIN_HOPS,
    MODELS,
    SEED,
)
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.discriminative import Accuracy, DiscriminativeReport

_Mode = Literal["zero-shot", "zero-shot-cot", "few-shot", "few-shot-cot"]
_MODES: tuple[_Mode, ...] = get_args(_Mode)
_Corruption = Literal["strict", "random"]
_NAMED = 10


class Discriminate(Command):
    """Let the language model judge valid and invalid reasoning paths, and report how often it is right.

    Of each question's gold path three invalid ones are made: with an entity replaced so that its triples are no facts
    (factual), with its triples in an order that cannot be read from the question's entity (incoherent), and another
    question's path (misguided). Reported is the accuracy by kind with its 95 % interval; 50 % balanced is what a model gets
    that always says the same.
    """

    kg: Path = GRAPH
    kg_format: str | None = GRAPH_FORMAT
    data: Path = GOLD_DATA
    modes: tuple[_Mode, ...] = option("How the model is asked. May be repeated.  [default: all]", "--mode")
    min_hops: int | None = MIN_HOPS
    max_hops: int | None = MAX_HOPS
    limit: int | None = LIMIT
    distinct: bool = DISTINCT
    seed: int = SEED
    corruption: _Corruption = option(
        "How invalid paths are made: each surely invalid, or at random as in the paper, so that some are valid.",
        default="strict",
    )
    calibrated: bool = option("Without chain of thought: take away how much the model likes to say yes.")
    out: Path | None = option("Write every judgement here, mode by mode.", metavar="FILE.jsonl")
    resume: bool = option("Take the modes that are in --out already from there.")
    models: Engine = MODELS

    def check(self) -> None:
        if self.resume and self.out is None:
            raise InputError("--resume needs --out, the file of the run to go on with")

    def run(self) -> Output:
        from pytrace.certify.discriminative import evaluate_discriminative
        from pytrace.certify.gold_paths import of_hops, read_questions
        from pytrace.kg import KnowledgeBase

        models = self.models
        questions = of_hops(read_questions(self.data), self.min_hops, self.max_hops)
        base = KnowledgeBase.load(self.kg, models.encoder, format=self.kg_format)
        modes = self.modes or _MODES
        if self.out is not None:
            processes.last_words("whole modes are stored, go on with --resume")
        with common.progress("asking in modes", len(modes)) as advance:
            report = evaluate_discriminative(
                base,
                questions,
                models.model,
                modes=modes,
                seed=self.seed,
                limit=self.limit,
                distinct=self.distinct,
                corruption=self.corruption,
                calibrated=self.calibrated,
                out=self.out,
                resume=self.resume,
                done=lambda _: advance(),
            )
        return Output(report, lambda: _print(report))


def _print(report: DiscriminativeReport) -> None:
    common.print_text(f"{report.paths} paths of {report.questions} questions, judged by {report.model}")
    kinds = [kind.kind.upper() for kind in report.modes[0].kinds]  # all modes are asked about the same paths
    common.print_table(
        ("MODE", *kinds, "ALL", "BALANCED", "YES", "UNDECIDED", "ASKED", "EVALUATED", "SECONDS"),
        [
            (
                mode.mode,
                *(share_text(kind) for kind in mode.kinds),
                share_text(mode.overall),
                common.percent(mode.balanced_accuracy),
                common.percent(mode.yes),
                mode.overall.undecided,
                f"{mode.usage.prompt_tokens:,}",
                f"{mode.usage.evaluated_tokens:,}",
                f"{mode.usage.seconds:.1f}",
            )
            for mode in report.modes
        ],
    )
    common.print_text("accuracy in percent with its 95 % interval; asked and evaluated in tokens")
    for kind, count in report.refused.items():
        common.print_text(f"no {kind} path: {count} of {report.questions} questions")
    lines = [f"left out: {refusal.question_id} ({refusal.kind}): {refusal.reason}" for refusal in report.refusals]
    common.remark_first(lines, _NAMED, "more")


def share_text(accuracy: Accuracy) -> str:
    """Return an accuracy in percent with its interval."""
    if accuracy.low is None or accuracy.high is None:
        return "-"
    return f"{common.percent(accuracy.accuracy)} ({100 * accuracy.low:.0f}-{100 * accuracy.high:.0f})"
