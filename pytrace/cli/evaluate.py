"""``pytrace eval``: ask methods the questions of a data set, and report scores and costs."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, option
from pytrace.cli.shared_options import KNOWLEDGE, LIMIT, MODELS, SETTINGS, MethodType
from pytrace.engine.evaluation_jobs import EvaluationJob, make_askers, open_job
from pytrace.engine.knowledge import TRAINED, KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.evaluation.run.run_store import RunStore
    from pytrace.evaluation.run.runner import Batched, Progress
    from pytrace.evaluation.run.runner import Engine as Executor
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Question

_NOTES = 20  # on a screen, of what is wrong with rows of the data


class Eval(Command):
    """Ask each METHOD the questions of a data set, and report scores and costs.

    Reported are exact match and F1, precision, recall and error rate of the documents chosen against the supporting ones,
    context tokens, prompts, tokens asked for and really evaluated, and seconds by stage. Each method extracts its own
    triples, so that its cost is its own; what a batch of questions shares is divided evenly among them.

    Questions of 'pytrace perturb' are also reported by kind of change: the share of right answers (ACC) and of
    answers that follow a wrong chain (FR), with Mann-Whitney tests against the whole chain.

    For a BEIR folder, whose questions mostly have no answers, eval scores the chosen documents: nDCG@10 and recall.

    Methods judge claims. EM is then the accuracy of the labels, and each label's scores are reported. The method cok
    queries the knowledge base of --kb if its thoughts disagree.

    --system scores your own retriever or pipeline on the same questions. It takes the settings of baselines that
    retrieve: my.module:search:top=3.

    If methods read answers in different ways, eval says how. It counts the questions that the learned weights in use (of the answer
    extractor and the search) were trained on, and reports the scores on the others next to those on all.

    A METHOD can have settings, so one run can compare a method with itself: ks-llm:sentences=1 ks-llm:sentences=4. --sweep and
    --seeds turn one METHOD into many; settings that a METHOD names itself are not swept. Scores of methods that differ only in
    their seed are also summarized.

    The number of --processes does not change the batches, and only this process writes --out. Other processes or another engine
    can resume a run.
    """

    methods: tuple[MethodName, ...] = argument("METHOD...", type=MethodType())
    data: Path = option("Questions with answers, claims, or a BEIR folder.")
    data_format: str = option("Format of the data: hotpotqa, triviaqa, flashrag, fever, …", "--format", default="auto")
    limit: int | None = LIMIT
    pad: int | None = option(
        "Pad each question to N documents with other questions' documents that hold no gold answer.", ge=1, metavar="N"
    )
    pad_seed: int | None = option("Seed of --pad.  [default: 0]", ge=0)
    passage_words: int | None = option("Maximum number of words per passage; longer documents are cut.", ge=1)
    index: Path | None = option(
        "Search this index, made by 'pytrace index build', for each question.",
        metavar="DIR",
    )
    pool: int | None = option(
        "For a BEIR corpus: number of documents per question, the first by BM25.  [default: 100]  With --index: number of "
        "passages, the first of the search.  [default: 20]",
        ge=1,
        metavar="N",
    )
    sweeps: tuple[str, ...] = option(
        "Run every METHOD that has this setting with each value. May be repeated; all combinations are run.",
        "--sweep",
        metavar="NAME=V1,V2,…",
    )
    seeds: str | None = option("Run every METHOD that has a seed with each of these.", metavar="N,N,…")
    systems: tuple[str, ...] = option(
        "Also run your own retriever or pipeline: a callable that takes a question and its documents and returns document ids or "
        "an answer (docs/integrations.md). May be repeated.",
        "--system",
        metavar="MODULE:CALLABLE[:NAME=VALUE,…]",
    )
    baseline: MethodName | None = option(
        "The METHOD that the others are compared with.", metavar="METHOD", type=MethodType()
    )
    out: Path | None = option("Directory of the run; each answer is written at once.")
    resume: bool = option("Resume the run in --out.")
    retry_failed: bool = option("With --resume: repeat questions that failed.")
    processes: int = option(
        "Number of processes, each with its own models. They share the CPUs unless --threads sets a number for each.",
        ge=1,
        le=1024,
        default=1,
    )
    engine: Literal["local", "ray"] = option("Who starts the processes: this program, or Ray.", default="local")
    ray_address: str | None = option("A Ray cluster, such as auto.  [default: one on this machine]", metavar="ADDRESS")
    kg: Path | None = option("Use the triples of this graph; the cost of extraction is not counted.")
    batch: int | None = option(
        "Questions per batch; an interrupted run repeats its last batch.  [default: 8; 1 with --deterministic]", ge=1
    )
    plots: Path | None = option("Draw the curves of perturbed questions.", metavar="DIR")
    match: Literal["words", "model"] = option(
        "For perturbed questions: what decides whether an answer matches the right or the wrong one.", default="words"
    )
    knowledge: KnowledgeOptions = KNOWLEDGE
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def check(self) -> None:
        if self.resume and self.out is None:
            raise InputError("--resume needs --out, the directory of the run to go on with")
        if self.retry_failed and not self.resume:
            raise InputError(
                "--retry-failed asks again what failed before, and a new run has nothing; give --out and --resume too"
            )
        if self.ray_address is not None and self.engine != "ray":
            raise InputError(f"--ray-address {self.ray_address} is of --engine ray; give that too")
        if self.pad_seed is not None and self.pad is None:
            raise InputError(
                f"--pad-seed {self.pad_seed} is of what --pad draws, and nothing is padded; give --pad N too"
            )
        if self.index is not None and (self.pad is not None or self.passage_words is not None):
            raise InputError("--index gives its own passages; leave out --pad and --passage-words")
        if not self.methods and not self.systems:
            raise InputError("no METHOD was named; give one or more, such as trace, or a --system MODULE:CALLABLE")
        self.knowledge.check(self.methods)

    def run(self) -> Output:
        from pytrace.cli.report import print_report, print_retrieval, print_seeds
        from pytrace.evaluation.data.datasets import data_settings
        from pytrace.evaluation.data.indexed_questions import PASSAGES, retrieval_scores
        from pytrace.evaluation.run.run_store import RunStore
        from pytrace.evaluation.run.runner import batch_sizes
        from pytrace.evaluation.run.runner import evaluate as run
        from pytrace.evaluation.scores.comparisons import seed_summaries
        from pytrace.evaluation.scores.matching import ModelMatcher
        from pytrace.evaluation.scores.seen_questions import SEARCH, question_lists
        from pytrace.evaluation.scores.study import draw_curves
        from pytrace.evaluation.scores.summary import LEARNED_FROM, REPLACED
        from pytrace.methods.catalog import add_system

        models, out = self.models, self.out
        asked = (*self.methods, *map(add_system, self.systems))
        methods = expand(asked, self.sweeps, self.seeds, self.settings)
        baseline = baseline_label(self.baseline, methods)
        if self.sweeps or self.seeds is not None:
            common.remark(f"--sweep and --seeds make {len(methods)} methods of {len(asked)}")
        questions = self._questions()
        lists = question_lists(self.index, self._trained_models())
        job = EvaluationJob(
            methods=methods,
            settings=self.settings,
            models=models,
            knowledge=self.knowledge,
            kg=self.kg,
            batch=self.batch,
            index=self.index,
            passages=self.pool or PASSAGES,
            systems=self.systems,
        )
        # The processes share the processors: with more threads than those they would only wait for each other.
        threads = models.threads or max(1, len(os.sched_getaffinity(0)) // self.processes)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        # Without --out a store in memory, so that there is one way to run and to score.
        with ExitStack() as stack, RunStore(":memory:" if out is None else out / "run.sqlite") as store:
            # Before the run is recorded, so that a refused one leaves nothing that --resume would hold to.
            check_claims(methods, questions)
            check_gold(methods, questions)
            opened = stack.enter_context(open_job(job))
            store.open_run(
                {
                    "data": data_settings(self.data, pool=None if self.index is not None else self.pool),
                    **self._index_settings(),
                    **opened.settings(threads),
                    **({} if self.passage_words is None else {"passage words": self.passage_words}),
                    "padding": {"documents": self.pad, "seed": self.pad_seed or 0} if self.pad else None,
                },
                resume=self.resume,
                # How it is run may change on resuming, and no answer depends on where files lie.
                notes={
                    "data": str(self.data),
                    "triples": None if self.kg is None else str(self.kg),
                    "cpu": platform.machine(),
                    "engine": self.engine,
                    "processes": self.processes,
                    LEARNED_FROM: lists,
                    REPLACED: opened.replaced(),
                },
            )
            if out is not None:
                processes.last_words("the answers so far are stored, go on with --resume")
            matcher = ModelMatcher(models.model) if self.match == "model" else None
            askers = opened.askers()
            answering: Mapping[str, Batched] | Executor = askers
            if self.processes > 1 or self.engine == "ray":
                # Settings and batch sizes needed the models; each process has its own, and those here would lie idle.
                answering = self._processes(job, batch_sizes(askers), threads)
                del opened, askers
                stack.close()
                job.release(keep_model=matcher is not None)
            with _progress(store, methods, questions, retry_failed=self.retry_failed) as show:
                report = run(
                    answering,
                    questions,
                    store=store,
                    progress=show,
                    retry_failed=self.retry_failed,
                    matcher=matcher,
                    baseline=baseline,
                )
        seeds = seed_summaries(report.methods)
        retrieval = None if self.index is None else retrieval_scores(questions, lists[SEARCH] or ())
        if self.plots is not None:
            for study in report.studies:
                draw_curves(study, self.plots)
            if not report.studies:
                common.remark("--plots draws the curves of questions that 'pytrace perturb' made; here are none")

        def show_text() -> None:
            print_report(report)
            print_seeds(seeds)
            if retrieval is not None:
                print_retrieval(retrieval)

        searched = {} if retrieval is None else {"retrieval": retrieval}
        return Output({**msgspec.structs.asdict(report), "seeds": seeds, **searched}, show_text)

    def _trained_models(self) -> dict[str, Path]:
        """Return the files of the models of this run that 'pytrace train' may have written."""
        from pytrace.evaluation.scores.seen_questions import CROSS_ENCODER, ENCODER, GENERATOR, graph_path

        models = {ENCODER: graph_path(self.models.encoder_name)}
        if self.models.cross_encoder_name is not None:
            models[CROSS_ENCODER] = graph_path(self.models.cross_encoder_name)
        if self.knowledge.query_generator is not None:
            path = Path(self.knowledge.query_generator)
            models[GENERATOR] = path / TRAINED if path.is_dir() else path
        return models

    def _questions(self) -> Sequence[Question]:
        """Read the questions, and say on stderr what is wrong with some."""
        from pytrace.engine.corpus import Corpus
        from pytrace.evaluation.data.beir import is_beir
        from pytrace.evaluation.data.datasets import read_questions
        from pytrace.evaluation.data.indexed_questions import PASSAGES, give_passages
        from pytrace.evaluation.data.long_documents import cut_question
        from pytrace.evaluation.data.padding import pad_questions
        from pytrace.evaluation.data.question_report import QuestionReport

        report = QuestionReport()
        pad = self.pad
        # What is drawn for a question must not depend on how many are asked, so padding draws from all.
        most = None if pad else self.limit
        # Where an index is searched, the pool is its passages, and one document of BEIR's own will do.
        own_pool = self.pool if self.index is None else 1 if is_beir(self.data) else None
        everything = list(
            read_questions(self.data, format=self.data_format, limit=most, report=report, pool=own_pool)  # type: ignore[arg-type]
        )
        if self.index is not None:
            with closing(Corpus.open(self.index)) as corpus:
                everything = list(give_passages(everything, corpus, self.models, count=self.pool or PASSAGES))
        if self.passage_words is not None:
            everything = [cut_question(question, self.passage_words) for question in everything]
        questions = everything[: self.limit]
        if pad:
            questions = pad_questions(questions, pad, others=everything, seed=self.pad_seed or 0)
            short = sum(len(question.documents) < pad for question in questions)
            if short:
                common.remark(
                    f"{short} of {len(questions)} questions have fewer than {pad} documents: the data hold no more for them"
                )
        common.remark_first(report.notes, _NOTES)
        return questions

    def _index_settings(self) -> dict[str, object]:
        from pytrace.engine.corpus import Corpus
        from pytrace.evaluation.data.indexed_questions import PASSAGES, index_settings

        if self.index is None:
            return {}
        with closing(Corpus.open(self.index)) as corpus:
            return {"index": index_settings(corpus, self.pool or PASSAGES)}

    def _processes(self, job: EvaluationJob, sizes: Mapping[str, int], threads: int) -> Executor:
        """Return the engine that has other processes answer, each with so many threads."""
        # A partial of a module's function can be sent to other processes, a closure cannot.
        make = partial(make_askers, job.for_processes(threads))
        if self.engine == "ray":
            from pytrace.evaluation.run.ray_engine import RayEngine

            # Ray hides a machine's GPUs from processes that did not ask for one.
            layers = self.models.gpu_layers
            gpu = self.models.device == "cuda" or (layers is not None and layers != 0)
            return RayEngine(make, sizes, processes=self.processes, threads=threads, gpu=gpu, address=self.ray_address)
        from pytrace.evaluation.run.workers import Workers

        return Workers(make, sizes, processes=self.processes)


def check_claims(methods: Iterable[MethodName], questions: Sequence[Question]) -> None:
    """Refuse to have claims judged by methods that cannot."""
    from pytrace.evaluation.data.datasets import CLAIM
    from pytrace.methods.base import ClaimMethod
    from pytrace.methods.catalog import method_row

    claims = sum(question.kind == CLAIM for question in questions)
    for method in methods:
        if claims and not issubclass(method_row(method.name).method, ClaimMethod):
            raise InputError(
                f"{method.label} cannot judge claims, which {claims} of the {len(questions)} questions are; use standard, cot, cot-sc, verify-and-edit or cok"
            )


def check_gold(methods: Iterable[MethodName], questions: Sequence[Question]) -> None:
    """Refuse to read gold documents where there are none."""
    from pytrace.methods.baselines import GOLD

    without = [question.id for question in questions if not question.supporting_documents]
    if without and any(method.name == GOLD for method in methods):
        raise InputError(
            f"gold reads the documents that support the answer, and {len(without)} of {len(questions)} questions (such as "
            f"{without[0]!r}) have none; leave it out"
        )


@contextmanager
def _progress(
    store: RunStore, methods: Sequence[MethodName], questions: Sequence[Question], *, retry_failed: bool
) -> Iterator[Callable[[Progress], None]]:
    """Show how many of the answers that the store lacks are there, and how long the rest will take."""
    ids = {question.id for question in questions}
    lacking = 0
    for method in methods:
        stored = store.done(method.label)
        # What failed lacks, too, if it is asked again.
        lacking += len(ids - (stored - store.failed(method.label) if retry_failed else stored))
    with common.progress("answering", lacking) as advance:
        done: dict[str, int] = {}

        def show(state: Progress) -> None:
            # Resumed answers count as done in a state, but not in what is lacking.
            advance(state.done - done.get(state.method, state.resumed))
            done[state.method] = state.done

        yield show


def expand(
    methods: Sequence[MethodName], sweeps: Sequence[str], seeds: str | None, settings: Sequence[str] = ()
) -> tuple[MethodName, ...]:
    """Return every method with every combination of the values of the swept settings that it has and does not name itself."""
    # In the order of the methods; the last option's values change fastest, and seeds faster. No two are the same.
    from pytrace.methods.abilities import CAPABLE
    from pytrace.methods.base import setting_name
    from pytrace.methods.catalog import MethodName, method_row, method_settings

    swept = _values(sweeps, seeds)
    for setting in settings:
        if setting_name(setting) in swept:
            raise InputError(f"{setting_name(setting)} is both set ({setting}) and swept; leave one of them out")
    used: set[str] = set()
    expanded: dict[tuple[str, frozenset[tuple[str, str]]], MethodName] = {}
    for method in methods:
        named = {setting_name(setting) for setting in method.overrides}
        fields = method_row(method.name).settings.__struct_fields__
        open_values = {name: values for name, values in swept.items() if name in fields and name not in named}
        used |= open_values.keys()
        for values in itertools.product(*open_values.values()):
            added = (f"{name}={value}" for name, value in zip(open_values, values, strict=True))
            variant = MethodName(method.name, (*method.overrides, *added))
            method_settings(variant, CAPABLE)  # a wrong value must not be found after hours of asking
            expanded.setdefault(identity(variant), variant)  # a METHOD that was named in full may come again of a sweep
    for name in swept:
        if name not in used:
            flag = "--seeds" if name == "seed" and seeds is not None else f"--sweep {name}"
            among = ", ".join(dict.fromkeys(method.label for method in methods))
            raise InputError(
                f"{flag} changes nothing: none of {among} has a setting {name!r} that it does not name itself"
            )
    return tuple(expanded.values())


def identity(method: MethodName) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return what two methods have in common that are the same: name and settings, in whatever order and spelling."""
    from pytrace.methods.base import setting_name

    return method.name, frozenset(
        {setting_name(setting): setting.partition("=")[2].strip() for setting in method.overrides}.items()
    )


def baseline_label(baseline: MethodName | None, methods: Sequence[MethodName]) -> str | None:
    """Return the label that a baseline has among the methods."""
    if baseline is None:
        return None
    for method in methods:
        if identity(method) == identity(baseline):
            return method.label
    raise InputError(
        f"the baseline {baseline.label} is none of the methods; choose one of {', '.join(method.label for method in methods)}"
    )


def _values(sweeps: Sequence[str], seeds: str | None) -> dict[str, tuple[str, ...]]:
    """Read the options: the values of each setting, in the order given and each once."""
    from pytrace.methods.base import setting_name

    swept: dict[str, tuple[str, ...]] = {}
    for sweep in sweeps:
        name = setting_name(sweep)
        values = [value.strip() for value in sweep.partition("=")[2].split(",")]
        if not name or not all(values):
            raise InputError(f"--sweep {sweep!r} is not NAME=V1,V2,…; write top=2,4,8, for instance")
        if name in swept:
            raise InputError(f"--sweep {name} is given twice; give all its values at once")
        swept[name] = tuple(dict.fromkeys(values))  # a value that is written twice is asked once
    if seeds is not None:
        # isdigit() alone takes ² as well, which int() does not.
        numbers = [number.strip() for number in seeds.split(",")]
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise InputError(f"--seeds {seeds!r} is no list of whole numbers from 0 on; write 0,1,2, for instance")
        if "seed" in swept:
            raise InputError("--sweep seed and --seeds say the same; leave one of them out")
        # 007 is the seed 7, and must not be asked twice.
        swept["seed"] = tuple(dict.fromkeys(str(int(number)) for number in numbers))
    return swept
