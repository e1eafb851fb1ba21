"""``pytrace eval``: ask methods the questions of a data set, and report scores and costs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pytrace
from pytrace.cli import common
from pytrace.cli.knowledge import KnowledgeOptions, knowledge_options
from pytrace.cli.loading import MethodType, ModelOptions, model_options, settings_option
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.methods.catalog import Method, MethodName
    from pytrace.records import Answer, Question


@click.command("eval")
@click.argument("methods", metavar="METHOD...", nargs=-1, required=True, type=MethodType())
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Questions with answers, or claims.")
@click.option(
    "--format",
    "data_format",
    default="auto",
    show_default=True,
    help="Of the data: hotpotqa, triviaqa, flashrag, fever, …",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions.")
@click.option(
    "--pad",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bring each question to N documents by those of other questions, which hold no gold answer.",
)
@click.option("--pad-seed", type=click.IntRange(min=0), help="Of what --pad draws.  [default: 0]")
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
@knowledge_options
@settings_option
@model_options
@common.json_option
def evaluate(
    *,
    methods: tuple[MethodName, ...],
    data: Path,
    data_format: str,
    limit: int | None,
    pad: int | None,
    pad_seed: int | None,
    out: Path | None,
    resume: bool,
    kg: Path | None,
    batch: int | None,
    plots: Path | None,
    match: str,
    knowledge: KnowledgeOptions,
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

    Claims are judged: EM is the accuracy of their labels then, and each label's scores are reported beside it. The method cok
    asks the knowledge base of --kb where its thoughts disagree.

    A METHOD may carry settings, so that one run can compare a method with itself: ks-llm:sentences=1 ks-llm:sentences=4.
    """
    from pytrace.evaluation.datasets import QuestionReport, read_questions
    from pytrace.evaluation.padding import pad_questions
    from pytrace.evaluation.runner import Batched, RunStore
    from pytrace.evaluation.runner import evaluate as run
    from pytrace.evaluation.study import ModelMatcher
    from pytrace.graph import KnowledgeGraph
    from pytrace.methods.catalog import GOLD, check_overrides, make_method

    if resume and out is None:
        message = "--resume needs --out, the directory of the run to go on with"
        raise InputError(message)
    if pad_seed is not None and pad is None:
        message = f"--pad-seed {pad_seed} is of what --pad draws, and nothing is padded; give --pad N too"
        raise InputError(message)
    knowledge.check(methods)
    told = QuestionReport()
    # What is drawn for a question must not depend on how many are asked.
    read = read_questions(data, format=data_format, limit=None if pad else limit, report=told)  # type: ignore[arg-type]
    everything = list(read)
    questions = everything[:limit]
    if pad:
        questions = pad_questions(questions, pad, others=everything, seed=pad_seed or 0)
        short = sum(len(question.documents) < pad for question in questions)
        if short:
            click.echo(
                f"pytrace: {short} of {len(questions)} questions have fewer than {pad} documents: the data hold no more for them",
                err=True,
            )
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
        opener = knowledge.opener(models)
        made = {
            label: make_method(
                method,
                models.model,
                lambda: models.encoder,
                models.llm,
                own[method.name],
                graph=graph,
                knowledge=opener,
            )
            for label, method in chosen.items()
        }
        check_claims(made, questions)
        check_gold(chosen.values(), questions)
        store.open_run(
            {
                **_settings(data, settings, models, kg, None if opener is None else knowledge.settings(opener())),
                "padding": {"documents": pad, "seed": pad_seed or 0} if pad else None,
            },
            resume=resume,
            notes={"data": str(data), "cpu": platform.machine()},
        )
        # With --deterministic, questions that a resumed run finds together must not decide what a question's answer is.
        size = batch or (1 if models.model.deterministic else 8)
        askers = {
            label: Batched(asker(method, gold=chosen[label].name == GOLD), size) for label, method in made.items()
        }
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
        from pytrace.cli.report_text import print_report

        print_report(report)


def check_claims(methods: Mapping[str, Method], questions: Sequence[Question]) -> None:
    """Refuse to have claims judged by methods that cannot.

    Raises
    ------
    InputError
        Names the first such method.
    """
    from pytrace.evaluation.datasets import CLAIM
    from pytrace.methods.claims import ClaimMethod

    claims = sum(one.kind == CLAIM for one in questions)
    for label, method in methods.items():
        if claims and not isinstance(method, ClaimMethod):
            message = f"{label} cannot judge claims, which {claims} of the {len(questions)} questions are; use standard or cok"
            raise InputError(message)


def check_gold(methods: Iterable[MethodName], questions: Sequence[Question]) -> None:
    """Refuse to read gold documents where there are none.

    Raises
    ------
    InputError
        Names the first question without one.
    """
    from pytrace.methods.catalog import GOLD

    without = [one.id for one in questions if not one.supporting_documents]
    if without and any(method.name == GOLD for method in methods):
        message = (
            f"gold reads the documents that support the answer, and {len(without)} of {len(questions)} questions (such as "
            f"{without[0]!r}) have none; leave it out"
        )
        raise InputError(message)


def asker(method: Method, *, gold: bool = False) -> Callable[[Sequence[Question]], list[Answer]]:
    """Return what asks a method questions, with their supporting documents alone if `gold`, and lets it judge claims."""
    from pytrace.evaluation.datasets import CLAIM
    from pytrace.methods.claims import ClaimMethod

    def answers(questions: Sequence[Question]) -> list[Answer]:
        claims = [one for one in questions if one.kind == CLAIM]
        others = [one for one in questions if one.kind != CLAIM]
        found: dict[str, Answer] = {}
        if claims and isinstance(method, ClaimMethod):
            judged = method.judge([one.question for one in claims], [one.documents for one in claims])
            found.update(zip((one.id for one in claims), judged, strict=True))
        if others:
            given = [
                tuple(document for document in one.documents if not gold or document.id in one.supporting_documents)
                for one in others
            ]
            answered = method.answer([one.question for one in others], given)
            found.update(zip((one.id for one in others), answered, strict=True))
        return [found[one.id] for one in questions]

    return answers


def _settings(
    data: Path, overrides: tuple[str, ...], models: ModelOptions, kg: Path | None, knowledge: dict[str, Any] | None
) -> dict[str, Any]:
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
        "knowledge base": knowledge,
        "settings": {
            one.name: msgspec.to_builtins(method_settings(one, models.llm, own[one.name])) for one in everything
        },
        "versions": {
            "pytrace": pytrace.__version__,
            **({} if models.remote else {"llama-cpp-python": metadata.version("llama-cpp-python")}),
        },
    }
