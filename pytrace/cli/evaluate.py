"""``pytrace eval``: ask methods the questions of a data set, and report scores and costs."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.knowledge import knowledge_options
from pytrace.cli.loading import MethodType, model_options, settings_option
from pytrace.cli.sweeps import baseline_label, expand
from pytrace.engine.evaluation_jobs import EvaluationJob, make_askers, open_job
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.evaluation.run.run_store import RunStore
    from pytrace.evaluation.run.runner import Batched, Progress
    from pytrace.evaluation.run.runner import Engine as Executor
    from pytrace.methods.catalog import Method, MethodName
    from pytrace.records import Question


@click.command("eval")
@click.argument("methods", metavar="METHOD...", nargs=-1, required=True, type=MethodType())
@click.option(
    "--data", type=click.Path(path_type=Path), required=True, help="Questions with answers, claims, or a BEIR folder."
)
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
@click.option(
    "--pool",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of a BEIR corpus, give each question the N documents that BM25 ranks first.  [default: 100]",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=V1,V2,…",
    help="Ask every METHOD that has this setting once with each value. May be repeated: every combination is asked.",
)
@click.option("--seeds", metavar="N,N,…", help="Ask every METHOD that draws by a seed once with each of these.")
@click.option("--baseline", type=MethodType(), metavar="METHOD", help="The METHOD that the others are compared with.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep every answer here as soon as it is there.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--retry-failed", is_flag=True, help="With --resume: ask again what failed before.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that answer, each with models of its own; they share the processors, unless --threads says how many each has.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Who starts the processes: this program, or Ray.",
)
@click.option("--ray-address", metavar="ADDRESS", help="A Ray cluster, such as auto.  [default: one on this machine]")
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
    pool: int | None,
    sweeps: tuple[str, ...],
    seeds: str | None,
    baseline: MethodName | None,
    out: Path | None,
    resume: bool,
    retry_failed: bool,
    processes: int,
    engine: str,
    ray_address: str | None,
    kg: Path | None,
    batch: int | None,
    plots: Path | None,
    match: str,
    knowledge: KnowledgeOptions,
    settings: tuple[str, ...],
    models: Engine,
    as_json: bool,
) -> None:
    """Ask each METHOD the questions of a data set, and report scores and costs.

    Reported are exact match and F1, precision, recall and error rate of the documents chosen against the supporting ones,
    context tokens, prompts, tokens asked for and really evaluated, and seconds by stage. Each method extracts its own
    triples, so that its cost is its own; what a batch of questions shares is divided evenly among them.

    Questions that 'pytrace perturb' made are reported by what was done to them, too: the share of right answers (ACC), or of
    answers that follow a wrong chain (FR), with Mann-Whitney tests against the whole chain.

    Of a BEIR folder, whose questions mostly have no answers, the documents that are chosen are scored: nDCG@10 and recall too.

    Claims are judged: EM is the accuracy of their labels then, and each label's scores are reported beside it. The method cok
    asks the knowledge base of --kb where its thoughts disagree.

    A METHOD may carry settings, so that one run can compare a method with itself: ks-llm:sentences=1 ks-llm:sentences=4. With
    --sweep and --seeds one METHOD becomes many; what a METHOD names itself is not swept. The scores of methods that differ in
    their seed only are summed up, too.

    However many --processes answer, the batches are the same, and this process alone writes --out. A run may be gone on with by
    other processes or another engine.
    """
    from pytrace.evaluation.data.datasets import data_settings
    from pytrace.evaluation.run.run_store import RunStore
    from pytrace.evaluation.run.runner import batch_sizes
    from pytrace.evaluation.run.runner import evaluate as run
    from pytrace.evaluation.scores.comparisons import seed_summaries
    from pytrace.evaluation.scores.matching import ModelMatcher

    _check_options(out=out, resume=resume, retry_failed=retry_failed, engine=engine, ray_address=ray_address)
    if pad_seed is not None and pad is None:
        raise InputError(f"--pad-seed {pad_seed} is of what --pad draws, and nothing is padded; give --pad N too")
    knowledge.check(methods)
    chosen = expand(methods, sweeps, seeds, models.settings_name, settings)
    compared = baseline_label(baseline, chosen)
    if sweeps or seeds is not None:
        click.echo(f"pytrace: --sweep and --seeds make {len(chosen)} methods of {len(methods)}", err=True)
    questions = _questions(data, data_format, limit=limit, pad=pad, pad_seed=pad_seed or 0, pool=pool)
    job = EvaluationJob(chosen, settings, models, knowledge, kg, batch)
    threads = models.threads or max(1, len(os.sched_getaffinity(0)) // processes)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened, RunStore(":memory:" if out is None else out / "run.sqlite") as store:
        made = opened.enter_context(open_job(job))
        check_claims(made.methods, questions)
        check_gold(chosen, questions)
        store.open_run(
            {
                "data": data_settings(data, pool=pool),
                **made.settings(threads),
                "padding": {"documents": pad, "seed": pad_seed or 0} if pad else None,
            },
            resume=resume,
            # How it is run may change on resuming, and no answer depends on where files lie.
            notes={
                "data": str(data),
                "triples": None if kg is None else str(kg),
                "cpu": platform.machine(),
                "engine": engine,
                "processes": processes,
            },
        )
        matcher = ModelMatcher(models.model) if match == "model" else None
        askers = made.askers()
        answering: Mapping[str, Batched] | Executor = askers
        if processes > 1 or engine == "ray":
            answering = _elsewhere(job, batch_sizes(askers), engine, processes, threads, ray_address)
            del made, askers
            opened.close()
            job.release(keep_model=matcher is not None)
        with _progress(store, chosen, questions, retry_failed=retry_failed) as tell:
            report = run(
                answering,
                questions,
                store=store,
                progress=tell,
                retry_failed=retry_failed,
                matcher=matcher,
                baseline=compared,
            )
    spread = seed_summaries(report.methods)
    if plots is not None:
        from pytrace.evaluation.scores.study import draw_curves

        for study in report.studies:
            draw_curves(study, plots)
        if not report.studies:
            click.echo(
                "pytrace: --plots draws the curves of questions that 'pytrace perturb' made; here are none", err=True
            )
    if as_json:
        common.print_json({**{name: getattr(report, name) for name in report.__struct_fields__}, "seeds": spread})
    else:
        from pytrace.cli.report_text import print_report, print_seeds

        print_report(report)
        print_seeds(spread)


def check_claims(methods: Mapping[str, Method], questions: Sequence[Question]) -> None:
    """Refuse to have claims judged by methods that cannot."""
    from pytrace.evaluation.data.datasets import CLAIM
    from pytrace.methods.base import ClaimMethod

    claims = sum(one.kind == CLAIM for one in questions)
    for label, method in methods.items():
        if claims and not isinstance(method, ClaimMethod):
            raise InputError(
                f"{label} cannot judge claims, which {claims} of the {len(questions)} questions are; use standard or cok"
            )


def check_gold(methods: Iterable[MethodName], questions: Sequence[Question]) -> None:
    """Refuse to read gold documents where there are none."""
    from pytrace.methods.baselines import GOLD

    without = [one.id for one in questions if not one.supporting_documents]
    if without and any(method.name == GOLD for method in methods):
        raise InputError(
            f"gold reads the documents that support the answer, and {len(without)} of {len(questions)} questions (such as "
            f"{without[0]!r}) have none; leave it out"
        )


def _check_options(*, out: Path | None, resume: bool, retry_failed: bool, engine: str, ray_address: str | None) -> None:
    if resume and out is None:
        raise InputError("--resume needs --out, the directory of the run to go on with")
    if retry_failed and not resume:
        raise InputError(
            "--retry-failed asks again what failed before, and a new run has nothing; give --out and --resume too"
        )
    if ray_address is not None and engine != "ray":
        raise InputError(f"--ray-address {ray_address} is of --engine ray; give that too")


def _questions(
    data: Path, data_format: str, *, limit: int | None, pad: int | None, pad_seed: int, pool: int | None
) -> Sequence[Question]:
    """Read the questions, and tell on stderr what was wrong with some."""
    from pytrace.evaluation.data.datasets import read_questions
    from pytrace.evaluation.data.padding import pad_questions
    from pytrace.evaluation.data.question_report import QuestionReport

    told = QuestionReport()
    # What is drawn for a question must not depend on how many are asked.
    read = read_questions(data, format=data_format, limit=None if pad else limit, report=told, pool=pool)  # type: ignore[arg-type]
    everything = list(read)
    questions = everything[:limit]
    if pad:
        questions = pad_questions(questions, pad, others=everything, seed=pad_seed)
        short = sum(len(question.documents) < pad for question in questions)
        if short:
            click.echo(
                f"pytrace: {short} of {len(questions)} questions have fewer than {pad} documents: the data hold no more for them",
                err=True,
            )
    for note in told.notes[:20]:
        click.echo(f"pytrace: {note}", err=True)
    return questions


def _elsewhere(
    job: EvaluationJob, sizes: Mapping[str, int], engine: str, processes: int, threads: int, ray_address: str | None
) -> Executor:
    """Return the engine that has other processes answer, each with so many threads."""
    make = partial(make_askers, job.for_processes(threads))
    if engine == "ray":
        from pytrace.evaluation.run.ray_engine import RayEngine

        layers = job.models.gpu_layers
        gpu = job.models.device == "cuda" or (layers is not None and layers != 0)
        return RayEngine(make, sizes, processes=processes, threads=threads, gpu=gpu, address=ray_address)
    from pytrace.evaluation.run.workers import Workers

    return Workers(make, sizes, processes=processes)


@contextmanager
def _progress(
    store: RunStore, methods: Sequence[MethodName], questions: Sequence[Question], *, retry_failed: bool
) -> Iterator[Callable[[Progress], None]]:
    """Show how many of the answers that the store lacks are there, and how long the rest will take."""
    ids = {question.id for question in questions}
    lacking = 0
    for method in methods:
        kept = store.done(method.label)
        lacking += len(ids - (kept - store.failed(method.label) if retry_failed else kept))
    with common.progress("answering", lacking) as advance:
        done: dict[str, int] = {}

        def tell(state: Progress) -> None:
            before = done.get(state.method, state.resumed)
            done[state.method] = state.done
            for _ in range(state.done - before):
                advance()

        yield tell
