"""``pytrace tune``: search for the settings of a method that do best on questions of one's own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.loading import MethodType, model_options, settings_option
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.evaluation.run.runner import Batched
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Question
    from pytrace.tuning import Objective, Trial, Tuned


@click.command("tune")
@click.argument("method", metavar="METHOD", type=MethodType())
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Questions with answers.")
@click.option("--format", "data_format", default="auto", show_default=True, help="Of the data, as for 'eval'.")
@click.option("--limit", type=click.IntRange(min=2), help="Only the first so many questions.")
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="NAME=V1,V2,…",
    help="Choose among these values, in place of the method's own space. May be repeated; A+NAME=B sets two at once.",
)
@click.option(
    "--objective",
    type=click.Choice(["f1", "em", "support", "f1+support"]),
    default="f1+support",
    show_default=True,
    help="What to make large: answers, supporting documents, or the mean of both.",
)
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 0.9),
    default=0.5,
    show_default=True,
    help="Share of the questions, the last ones, that only judge what was found.",
)
@click.option("--passes", type=click.IntRange(min=1), default=3, show_default=True, help="Over the space, at most.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Keeps all answers, and what was found.")
@click.option("--resume", is_flag=True, help="Go on with the search in --out.")
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True, help="Questions in flight together.")
@settings_option
@model_options
@common.json_option
def tune(
    *,
    method: MethodName,
    data: Path,
    data_format: str,
    limit: int | None,
    tries: tuple[str, ...],
    objective: Objective,
    hold_out: float,
    passes: int,
    out: Path,
    resume: bool,
    batch: int,
    settings: tuple[str, ...],
    models: Engine,
    as_json: bool,
) -> None:
    """Search for the settings of METHOD that do best on questions with answers, and say how they do on others.

    One choice is made after the other, the best value of each so far kept, until a pass over all choices changes nothing.
    What the language model was asked before is remembered in --out, so that most trials cost little; a value that is surely
    worse is not asked all questions. A killed search goes on with --resume.

    What was found is printed as a method that 'pytrace eval' and 'pytrace ask' take, and stands in OUT/settings.json.
    """
    from pytrace.engine.evaluation_jobs import asker, versions
    from pytrace.evaluation.data.datasets import data_settings, read_questions
    from pytrace.evaluation.run.run_store import RunStore
    from pytrace.evaluation.run.runner import Batched
    from pytrace.methods.baselines import GOLD
    from pytrace.methods.catalog import METHODS, MethodName, check_overrides, make_method, parse_method
    from pytrace.models.response_cache import CachedModel
    from pytrace.storage.files import replace_file
    from pytrace.tuning import default_space, parse_choice
    from pytrace.tuning import tune as search

    if "knowledge base" in METHODS[method.name].needs:
        raise InputError(
            f"{method.name} asks a knowledge base, which a search has none of; compare its settings with 'pytrace eval'"
        )
    start = MethodName(
        method.name, (*check_overrides([method], models.settings_name, settings)[method.name], *method.overrides)
    )
    space = [parse_choice(one, start, models.settings_name) for one in tries] or list(
        default_space(method.name, models.settings_name)
    )
    questions = list(read_questions(data, format=data_format, limit=limit))  # type: ignore[arg-type]
    searched, held_out = split_questions(questions, hold_out)
    out.mkdir(parents=True, exist_ok=True)

    with (
        closing(CachedModel(models.model, out / "answers.sqlite")) as model,
        RunStore(out / "run.sqlite") as store,
    ):

        def make(named: MethodName) -> Batched:
            made = make_method(
                named, model, lambda: models.encoder, models.settings_name, cross_encoder=lambda: models.cross_encoder
            )
            return Batched(asker(made, gold=named.name == GOLD), batch)

        store.open_run(
            {
                "data": data_settings(data),
                "questions": len(questions),
                "language model": models.model.fingerprint,
                "encoder": models.encoder.fingerprint,
                "cross-encoder": None if models.cross_encoder_directory is None else models.cross_encoder.fingerprint,
                "context": models.model.context_tokens,
                "start": start.label,
                "versions": versions(remote=models.remote),
            },
            resume=resume,
            notes={"data": str(data)},
        )
        tuned = search(
            start,
            make,
            space,
            searched,
            llm=models.settings_name,
            store=store,
            objective=objective,
            held_out=held_out,
            passes=passes,
            told=_tell,
        )
    chosen = {"method": tuned.method, "llm": models.llm, "settings": parse_method(tuned.method).overrides}
    replace_file(out / "settings.json", common.json_bytes(chosen))
    if as_json:
        common.print_json(tuned)
    else:
        _print(tuned, out)


def split_questions(questions: list[Question], hold_out: float) -> tuple[list[Question], list[Question]]:
    """Split questions into those to search with and the last ones, to be held out."""
    held = round(len(questions) * hold_out)
    if len(questions) - held < 1 or (hold_out and not held):
        raise InputError(
            f"{len(questions)} questions cannot be split with {hold_out} of them held out; give more, or --hold-out 0"
        )
    return questions[: len(questions) - held], questions[len(questions) - held :]


_COLUMNS = ("TRIED", "N", "EM", "F1", "SUPPORT R", "ERROR RATE", "CONTEXT", "OBJECTIVE", "")


def _row(trial: Trial) -> tuple[str, ...]:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}"

    return (
        ", ".join(trial.changed) or "(start)",
        str(trial.n),
        percent(trial.exact_match),
        percent(trial.f1),
        percent(trial.support_recall),
        percent(trial.support_error_rate),
        f"{trial.context_tokens:.0f}",
        percent(trial.objective),
        trial.outcome,
    )


def _tell(trial: Trial) -> None:
    row = _row(trial)
    click.echo(
        f"pytrace: {trial.outcome}: {row[0]}: EM {row[2]}, F1 {row[3]}, objective {row[7]} on {trial.n} of {trial.of} questions",
        err=True,
    )


def _print(tuned: Tuned, out: Path) -> None:
    common.print_table(_COLUMNS, [_row(trial) for trial in tuned.trials])
    common.print_text(f"\nbest of {len(tuned.trials)} on {tuned.questions} questions: {tuned.method}")
    if not tuned.settings:
        common.print_text("nothing did better than the settings that it began with")
    test = tuned.held_out
    if test is not None and test.difference is not None and tuned.held_out_scores is not None:
        (before_em, before_f1), (em, f1) = tuned.held_out_scores
        common.print_text(
            f"on {tuned.held_out_questions} questions that had no part in the search: EM {100 * before_em:.1f} to {100 * em:.1f}, "
            f"F1 {100 * before_f1:.1f} to {100 * f1:.1f}; {tuned.objective} {100 * test.difference:+.1f} (p {test.p_value:.3f})"
        )
    common.print_text(f"all answers and {out / 'settings.json'} are kept; use it as --set @{out / 'settings.json'}")
