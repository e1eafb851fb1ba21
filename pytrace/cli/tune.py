"""``pytrace tune``: search for the settings of a method that do best on questions of one's own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, option
from pytrace.cli.shared_options import MODELS, SETTINGS, MethodType
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.evaluation.run.runner import Batched
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Question
    from pytrace.tuning import Trial, Tuned


class Tune(Command):
    """Search for the settings of METHOD that do best on questions with answers, and say how they do on others.

    One choice is made after the other, the best value of each so far kept, until a pass over all choices changes nothing.
    What the language model was asked before is remembered in --out, so that most trials cost little; a value that is surely
    worse is not asked all questions. A killed search goes on with --resume.

    What was found is printed as a method that 'pytrace eval' and 'pytrace ask' take, and stands in OUT/settings.json.
    """

    method: MethodName = argument("METHOD", type=MethodType())
    data: Path = option("Questions with answers.")
    data_format: str = option("Format of the data, as for 'eval'.", "--format", default="auto")
    # One question at least to search with, and one to judge by.
    limit: int | None = option("Maximum number of questions.", ge=2)
    tries: tuple[str, ...] = option(
        "Choose among these values instead of the method's own search space. May be repeated; A+NAME=B sets two at once.",
        "--try",
        metavar="NAME=V1,V2,…",
    )
    objective: Literal["f1", "em", "support", "f1+support"] = option(
        "What to maximize: answers, supporting documents, or the mean of both.", default="f1+support"
    )
    hold_out: float = option(
        "Share of the questions, the last ones, that are held out for the final score.", ge=0, le=0.9, default=0.5
    )
    passes: int = option("Maximum number of passes over the search space.", ge=1, default=3)
    out: Path = option("Directory for all answers and the settings found.")
    resume: bool = option("Resume the search in --out.")
    batch: int = option("Questions per batch.", ge=1, default=8)
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def run(self) -> Output:
        from pytrace.engine.evaluation_jobs import Asker, versions
        from pytrace.evaluation.data.datasets import data_settings, read_questions
        from pytrace.evaluation.run.run_store import RunStore
        from pytrace.evaluation.run.runner import Batched
        from pytrace.methods.catalog import METHODS, MethodName, check_overrides, parse_method
        from pytrace.models.response_cache import CachedModel
        from pytrace.storage.files import replace_file
        from pytrace.tuning import default_space, parse_choice
        from pytrace.tuning import tune as search

        method, models, out = self.method, self.models, self.out
        if "knowledge base" in METHODS[method.name].needs:
            raise InputError(
                f"{method.name} asks a knowledge base, which a search has none of; compare its settings with 'pytrace eval'"
            )
        settings = check_overrides([method], self.settings)[method.name]
        # What the METHOD names itself comes last and so wins over --set.
        start = MethodName(method.name, (*settings, *method.overrides))
        space = [parse_choice(choice, start) for choice in self.tries] or list(default_space(method.name))
        questions = list(read_questions(self.data, format=self.data_format, limit=self.limit))  # type: ignore[arg-type]
        searched, held_out = split_questions(questions, self.hold_out)
        out.mkdir(parents=True, exist_ok=True)

        with closing(CachedModel(models.model, out / "answers.sqlite")) as model, RunStore(out / "run.sqlite") as store:
            # All that an answer depends on, so that no search is resumed with answers of other models or data.
            store.open_run(
                {
                    "data": data_settings(self.data),
                    "questions": len(questions),
                    "language model": models.model.fingerprint,
                    **({} if models.reader is None else {"reader": models.reader.fingerprint}),
                    "encoder": models.encoder.fingerprint,
                    "cross-encoder": None if models.cross_encoder_name is None else models.cross_encoder.fingerprint,
                    "context": models.model.context_tokens,
                    "start": start.label,
                    "versions": versions(remote=models.remote),
                },
                resume=self.resume,
                notes={"data": str(self.data)},
            )
            engine = models.with_model(model)

            def make(named: MethodName) -> Batched:
                return Batched(Asker(engine, named), self.batch)

            processes.last_words("the answers so far are stored, go on with --resume")
            tuned = search(
                start,
                make,
                space,
                searched,
                abilities=models.abilities,
                store=store,
                objective=self.objective,
                held_out=held_out,
                passes=self.passes,
                told=_show_trial,
            )
        chosen = {"method": tuned.method, "llm": models.llm, "settings": parse_method(tuned.method).overrides}
        replace_file(out / "settings.json", common.json_bytes(chosen))
        return Output(tuned, lambda: _print(tuned, out))


def split_questions(questions: list[Question], hold_out: float) -> tuple[list[Question], list[Question]]:
    """Split questions into those to search with and the last ones, to be held out."""
    held = round(len(questions) * hold_out)
    # One question at least on either side, unless none shall be held out.
    if len(questions) - held < 1 or (hold_out and not held):
        raise InputError(
            f"{len(questions)} questions cannot be split with {hold_out} of them held out; give more, or --hold-out 0"
        )
    return questions[: len(questions) - held], questions[len(questions) - held :]


def _changed(trial: Trial) -> str:
    return ", ".join(trial.changed) or "(start)"


def _show_trial(trial: Trial) -> None:
    common.remark(
        f"{trial.outcome}: {_changed(trial)}: EM {common.percent(trial.exact_match)}, F1 {common.percent(trial.f1)}, "
        f"objective {common.percent(trial.objective)} on {trial.n} of {trial.of} questions"
    )


def _print(tuned: Tuned, out: Path) -> None:
    common.print_records(
        tuned.trials,
        (
            ("TRIED", _changed),
            ("N", lambda trial: trial.n),
            ("EM", lambda trial: common.percent(trial.exact_match)),
            ("F1", lambda trial: common.percent(trial.f1)),
            ("SUPPORT R", lambda trial: common.percent(trial.support_recall)),
            ("ERROR RATE", lambda trial: common.percent(trial.support_error_rate)),
            ("CONTEXT", lambda trial: f"{trial.context_tokens:.0f}"),
            ("OBJECTIVE", lambda trial: common.percent(trial.objective)),
            ("", lambda trial: trial.outcome),
        ),
    )
    common.print_text(f"\nbest of {len(tuned.trials)} on {tuned.questions} questions: {tuned.method}")
    if not tuned.settings:
        common.print_text("nothing did better than the settings that it began with")
    test = tuned.held_out
    if test is not None and test.difference is not None and tuned.held_out_scores is not None:
        (before_em, before_f1), (em, f1) = tuned.held_out_scores
        p_value = common.figure(test.p_value, ".3f")  # none for a single question
        common.print_text(
            f"on {tuned.held_out_questions} questions that had no part in the search: EM {100 * before_em:.1f} to {100 * em:.1f}, "
            f"F1 {100 * before_f1:.1f} to {100 * f1:.1f}; {tuned.objective} {100 * test.difference:+.1f} (p {p_value})"
        )
    common.print_text(f"all answers and {out / 'settings.json'} are kept; use it as --set @{out / 'settings.json'}")
