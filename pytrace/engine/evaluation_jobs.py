"""What an evaluation's methods are made of, as the options say it: it can be sent to other processes, which make them anew."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytrace
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine

if TYPE_CHECKING:
    from pytrace.evaluation.run.runner import Batched
    from pytrace.kg.knowledge import Knowledge
    from pytrace.methods.catalog import Method, MethodName
    from pytrace.records import Answer, Question
    from pytrace.triples.graph import TripleStore

# Questions in flight together.
_BATCH = 8
# Whose version may change an answer.
_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "llama-cpp-python")


@dataclass(frozen=True)
class EvaluationJob:
    """The methods with their settings, and the models, knowledge base, graph and index that they use.

    `settings` are those of ``--set``, `kg` is the graph of ``--kg``, `batch` how many questions are in flight together, and
    `index` that of ``--index``, which some methods search while they think. `systems` are those of ``--system``, which stand among the
    methods and which each process imports.
    """

    methods: tuple[MethodName, ...]
    settings: tuple[str, ...]
    models: Engine
    knowledge: KnowledgeOptions
    kg: Path | None = None
    batch: int | None = None
    index: Path | None = None
    systems: tuple[str, ...] = ()

    def for_processes(self, threads: int) -> EvaluationJob:
        """Return the job as another process gets it: with so many threads, and nothing loaded."""
        # Copies are made of fields alone, so that nothing goes along that was loaded and cannot be sent.
        # What the model can do goes along, so that no process tests it again.
        models = replace(self.models, threads=threads, known_abilities=self.models.abilities.known())
        return replace(self, models=models, knowledge=replace(self.knowledge))

    def release(self, *, keep_model: bool) -> None:
        """Let go of what was loaded; it is loaded again when it is asked for."""
        self.knowledge.close()
        self.models.close(keep_model=keep_model)


class OpenJob:
    """A job's methods, made of loaded models: see `open_job`."""

    def __init__(self, job: EvaluationJob, opened: ExitStack) -> None:
        from pytrace.engine.corpus import Corpus
        from pytrace.methods.catalog import add_system, check_overrides
        from pytrace.triples.graph import TripleStore

        self.job = job
        for system in job.systems:
            add_system(system)
        graph = self.graph = None if job.kg is None else opened.enter_context(TripleStore.open(job.kg, mode="read"))
        corpus = None if job.index is None else opened.enter_context(closing(Corpus.open(job.index)))
        search = None if corpus is None else corpus.finder(job.models)
        # One for all methods, so that a knowledge base is opened once.
        self.opener: Callable[[], Knowledge] | None = job.knowledge.opener(job.models)
        overrides = check_overrides(job.methods, job.settings)
        self.methods: dict[str, Method] = {
            method.label: job.models.method(
                method, overrides[method.name], graph=graph, knowledge=self.opener, search=search, corpus=corpus
            )
            for method in job.methods
        }

    def askers(self) -> dict[str, Batched]:
        """Return what asks each method a batch of questions, by its label."""
        from pytrace.evaluation.run.runner import Batched
        from pytrace.methods.baselines import GOLD

        # With --deterministic, questions that a resumed run finds together must not decide what a question's answer is.
        size = self.job.batch or (1 if self.job.models.model.deterministic else _BATCH)
        names = {method.label: method.name for method in self.job.methods}
        return {
            label: Batched(asker(method, gold=names[label] == GOLD), size) for label, method in self.methods.items()
        }

    def settings(self, threads: int) -> dict[str, Any]:
        """Return all that an answer depends on but the questions, for resuming and for the report."""
        # `threads` are those of the models that answer: they decide in which order numbers are added, so that a
        # deterministic run is the same only with as many. Without --deterministic, what is asked together decides as
        # much, and they are left out.
        import msgspec

        from pytrace.methods.catalog import METHODS, MethodName, check_overrides, method_settings

        # Of all methods, so that a run can be resumed with more of them; settings behind a colon are in a method's label.
        everything = [
            MethodName(name) for name in dict.fromkeys([*METHODS, *(method.name for method in self.job.methods)])
        ]
        models = self.job.models
        abilities = models.abilities.known()  # no model is tested for methods that are not asked
        overrides = check_overrides(everything, self.job.settings)
        return {
            "language model": models.model.fingerprint,
            **({} if models.reader is None else {"reader": models.reader.fingerprint}),
            "encoder": models.encoder.fingerprint,
            "cross-encoder": None if models.cross_encoder_name is None else models.cross_encoder.fingerprint,
            "context": models.model.context_tokens,
            "deterministic": models.model.deterministic,
            "threads": threads if models.model.deterministic else None,
            "triples": None if self.graph is None else graph_settings(self.graph),
            "knowledge base": None if self.opener is None else self.job.knowledge.settings(self.opener()),
            "settings": {
                method.name: msgspec.to_builtins(method_settings(method, abilities, overrides[method.name]))
                for method in everything
            },
            "versions": {"pytrace": pytrace.__version__, **versions(remote=models.remote)},
        }


@contextmanager
def open_job(job: EvaluationJob) -> Iterator[OpenJob]:
    """Load what a job's methods need, and make them; graph and index are closed at the end."""
    with ExitStack() as opened:
        yield OpenJob(job, opened)


def make_askers(job: EvaluationJob) -> dict[str, Batched]:
    """Make a job's methods in a process that does nothing else; what they hold open, the end of the process closes."""
    from pytrace import _core

    if job.models.threads is not None:  # the kernels', too, whose default is all processors
        _core.set_num_threads(job.models.threads)
    return OpenJob(job, ExitStack()).askers()


def asker(method: Method, *, gold: bool = False) -> Callable[[Sequence[Question]], list[Answer]]:
    """Return what asks a method questions, with their supporting documents alone if `gold`, and lets it judge claims."""
    from pytrace.evaluation.data.datasets import CLAIM
    from pytrace.methods.base import ClaimMethod

    def answers(questions: Sequence[Question]) -> list[Answer]:
        claims = [question for question in questions if question.kind == CLAIM]
        others = [question for question in questions if question.kind != CLAIM]
        by_id: dict[str, Answer] = {}
        if claims and isinstance(method, ClaimMethod):
            judged = method.judge([claim.question for claim in claims], [claim.documents for claim in claims])
            by_id.update(zip((claim.id for claim in claims), judged, strict=True))
        if others:
            documents = [
                tuple(document for document in each.documents if not gold or document.id in each.supporting_documents)
                for each in others
            ]
            answered = method.answer([each.question for each in others], documents)
            by_id.update(zip((each.id for each in others), answered, strict=True))
        return [by_id[question.id] for question in questions]

    return answers


def graph_settings(graph: TripleStore) -> dict[str, Any]:
    """Describe a graph by its content: how it was made, how much it holds, and SHA-256 over its triples in order."""
    from pytrace.triples.graph.graph_records import row_of

    digest = hashlib.sha256()
    triples = 0
    with graph.snapshot() as frozen:
        for unit in frozen.iterate_triples():
            *parts, sentence, support = row_of(unit)
            for text in (*parts, unit.document_id, str(sentence), repr(support)):
                data = text.encode("utf-8", "surrogatepass")
                # Lengths, so that no two lists of texts look alike.
                digest.update(len(data).to_bytes(4, "little"))
                digest.update(data)
            triples += 1
        return {
            "recipe": frozen.recipe.hash,
            "documents": len(frozen),
            "waiting": frozen.count_pending(),
            "triples": triples,
            "sha256": digest.hexdigest(),
        }


def versions(*, remote: bool) -> dict[str, str]:
    """Return the versions of the packages whose numbers answers are made of; of llama.cpp's not, where a server runs the model."""
    installed = {}
    for name in _PACKAGES:
        if not (remote and name == "llama-cpp-python"):
            with suppress(metadata.PackageNotFoundError):
                installed[name] = metadata.version(name)
    return installed
