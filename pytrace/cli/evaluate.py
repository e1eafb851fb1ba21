"""``pytrace eval``: ask methods the questions of a data set, and report scores and costs."""

from __future__ import annotations

import platform
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pytrace
from pytrace.cli import common
from pytrace.cli.loading import MethodType, ModelOptions, model_options, settings_option
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.evaluation.report import Report
    from pytrace.evaluation.runner import Batched
    from pytrace.evaluation.study import Study
    from pytrace.methods.catalog import MethodName


@click.command("eval")
@click.argument("methods", metavar="METHOD...", nargs=-1, required=True, type=MethodType())
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Questions with documents and answers.")
@click.option("--format", "data_format", default="auto", show_default=True, help="Of the data: hotpotqa, musique, …")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep every answer here as soon as it is there.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--kg", type=click.Path(path_type=Path), help="Use the triples of this graph; their cost is not counted.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    help="Questions in flight together; a killed run asks these again.  [default: 8; 1 with --deterministic]",
)
@click.option("--plots", type=click.Path(path_type=Path), metavar="DIR", help="Draw the curves of perturbed questions.")
@click.option(
    "--match",
    type=click.Choice(["words", "model"]),
    default="words",
    show_default=True,
    help="For perturbed questions: who says that an answer means the right or the wrong one.",
)
@settings_option
@model_options
@common.json_option
def evaluate(
    *,
    methods: tuple[MethodName, ...],
    data: Path,
    data_format: str,
    limit: int | None,
    out: Path | None,
    resume: bool,
    kg: Path | None,
    batch: int | None,
    plots: Path | None,
    match: str,
    settings: tuple[str, ...],
    models: ModelOptions,
    as_json: bool,
) -> None:
    """Ask each METHOD the questions of a data set, and report scores and costs.

    Reported are exact match and F1, precision, recall and error rate of the documents chosen against the supporting ones,
    context tokens, prompts, tokens asked for and really evaluated, and seconds by stage. Each method extracts its own
    triples, so that its cost is its own; what a batch of questions shares is divided evenly among them.

    Questions that 'pytrace perturb' made are reported by what was done to them, too: the share of right answers (ACC), or of
    answers that follow a wrong chain (FR), with Mann-Whitney tests against the whole chain.

    A METHOD may carry settings, so that one run can compare a method with itself: ks-llm:sentences=1 ks-llm:sentences=4.
    """
    from pytrace.evaluation.datasets import QuestionReport, read_questions
    from pytrace.evaluation.runner import RunStore
    from pytrace.evaluation.runner import evaluate as run
    from pytrace.evaluation.study import ModelMatcher
    from pytrace.graph import KnowledgeGraph
    from pytrace.methods.catalog import check_overrides

    if resume and out is None:
        message = "--resume needs --out, the directory of the run to go on with"
        raise InputError(message)
    told = QuestionReport()
    questions = list(read_questions(data, format=data_format, limit=limit, report=told))  # type: ignore[arg-type]
    for note in told.notes[:20]:
        click.echo(f"pytrace: {note}", err=True)
    chosen = {method.label: method for method in methods}
    own = check_overrides(list(chosen.values()), models.llm, settings)
    matcher = ModelMatcher(models.model) if match == "model" else None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with (
        KnowledgeGraph.open(kg, mode="read") if kg is not None else nullcontext() as graph,
        RunStore(":memory:" if out is None else out / "run.sqlite") as store,
    ):
        store.open_run(
            _settings(data, settings, models, kg),
            resume=resume,
            notes={"data": str(data), "cpu": platform.machine()},
        )
        # With --deterministic, questions that a resumed run finds together must not decide what a question's answer is.
        size = batch or (1 if models.model.deterministic else 8)
        askers = {label: _asker(method, models, own[method.name], graph, size) for label, method in chosen.items()}
        finished = sum(len(store.done(name) & {question.id for question in questions}) for name in chosen)
        with common.progress("answering", len(chosen) * len(questions) - finished) as advance:
            done: dict[str, int] = {}

            def tell(state: Any) -> None:
                before = done.get(state.method, state.resumed)
                done[state.method] = state.done
                for _ in range(state.done - before):
                    advance()

            report = run(askers, questions, store=store, progress=tell, matcher=matcher)
    if plots is not None:
        from pytrace.evaluation.study import draw_curves

        for study in report.studies:
            draw_curves(study, plots)
        if not report.studies:
            click.echo(
                "pytrace: --plots draws the curves of questions that 'pytrace perturb' made; here are none", err=True
            )
    if as_json:
        common.print_json(report)
    else:
        _print_report(report)


def _asker(name: MethodName, models: ModelOptions, settings: tuple[str, ...], graph: Any, size: int) -> Batched:
    from pytrace.evaluation.runner import Batched
    from pytrace.methods.catalog import make_method

    method = make_method(name, models.model, lambda: models.encoder, models.llm, settings, graph=graph)
    return Batched(
        lambda questions: method.answer([one.question for one in questions], [one.documents for one in questions]), size
    )


def _settings(data: Path, overrides: tuple[str, ...], models: ModelOptions, kg: Path | None) -> dict[str, Any]:
    """Return all that an answer depends on, for resuming and for the report."""
    import msgspec

    from pytrace.evaluation.runner import file_settings
    from pytrace.methods.catalog import METHODS, MethodName, check_overrides, method_settings

    # Of all methods, so that a run can be resumed with more of them; settings behind a colon are in a method's label.
    everything = [MethodName(name) for name in METHODS]
    own = check_overrides(everything, models.llm, overrides)
    return {
        "data": file_settings(data),
        "language model": models.model.fingerprint,
        "encoder": models.encoder.fingerprint,
        "context": models.model.context_tokens,
        "deterministic": models.model.deterministic,
        "triples": None if kg is None else str(kg),
        "settings": {
            one.name: msgspec.to_builtins(method_settings(one, models.llm, own[one.name])) for one in everything
        },
        "versions": {
            "pytrace": pytrace.__version__,
            **({} if models.remote else {"llama-cpp-python": metadata.version("llama-cpp-python")}),
        },
    }


def _print_study(study: Study) -> None:
    from pytrace.evaluation.study import study_tables

    for table in study_tables(study):
        common.print_text(f"\n{table.title}")
        common.print_table(table.columns, table.rows)


def _print_report(report: Report) -> None:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}"

    def whole(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    common.print_text(f"{report.questions} questions")
    columns = (
        "METHOD", "EM", "F1", "SUPPORT P", "SUPPORT R", "ERROR RATE", "CONTEXT", "PROMPTS",
        "ASKED", "EVALUATED (MEDIAN)", "SHARE", "SECONDS", "FAILED",
    )  # fmt: skip
    common.print_table(
        columns,
        [
            (
                one.method,
                percent(one.exact_match),
                percent(one.f1),
                percent(one.supporting_precision.mean),
                percent(one.supporting_recall.mean),
                percent(one.supporting_error_rate.mean),
                whole(one.context_tokens.mean),
                whole(one.calls.mean),
                whole(one.prompt_tokens.mean),
                whole(one.evaluated_tokens.median),
                "-" if one.evaluated_share is None else f"{one.evaluated_share:.2f}",
                f"{one.seconds.total:.1f}",
                str(one.failed),
            )
            for one in report.methods
        ],
    )
    for study in report.studies:
        _print_study(study)
    for one in report.methods:
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in one.seconds_by_stage.items())
        common.print_text(f"{one.method}: seconds by stage: {stages}")
        for failure in one.failures:
            common.print_text(f"{one.method}: {failure.question_id} failed: {failure.error}")
    # Of many methods, each with the first one; --json has every pair.
    many = len(report.methods) > 3
    for pair in report.comparisons:
        if many and report.methods[0].method not in (pair.first, pair.second):
            continue
        shown = [
            f"{name} {100 * test.difference:+.1f} (p {test.p_value:.3f})"
            for name, test in (("EM", pair.exact_match), ("F1", pair.f1))
            if test.difference is not None and test.p_value is not None
        ]
        if shown:
            common.print_text(f"{pair.first} - {pair.second}: {', '.join(shown)}")
