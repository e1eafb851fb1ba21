"""Methods that an evaluation asks, as its options say it: a job can be sent to other processes, each of which makes them again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import pytrace
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.results import Request, Result

if TYPE_CHECKING:
    from pytrace.engine.corpus import Corpus
    from pytrace.engine.running import Resources
    from pytrace.evaluation.run.runner import Batched
    from pytrace.kg.knowledge import Knowledge
    from pytrace.methods.catalog import MethodName
    from pytrace.models.language_model import LanguageModel
    from pytrace.records import Document, Question
    from pytrace.triples.graph import TripleStore

# Questions in flight together.
_BATCH = 8
# Whose version may change an answer.
_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "llama-cpp-python")


@dataclass(frozen=True)
class EvaluationJob:
    """The methods with their settings, and the models, knowledge base, graph and index that they use.

    `settings` are those of ``--set``, `kg` is the graph of ``--kg``, `batch` how many questions are in flight together, and
    `index` that of ``--index``, which is searched for `passages` per question. `systems` are those of ``--system``, which are among the
    methods and which each process imports.
    """

    methods: tuple[MethodName, ...]
    settings: tuple[str, ...]
    models: Engine
    knowledge: KnowledgeOptions
    kg: Path | None = None
    batch: int | None = None
    index: Path | None = None
    passages: int = 20
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
    """A job with its models, graph and index opened and its methods made: see `open_job`."""

    def __init__(self, job: EvaluationJob, opened: ExitStack) -> None:
        from pytrace.engine.corpus import Corpus
        from pytrace.engine.running import Resources
        from pytrace.methods.catalog import add_system, check_overrides
        from pytrace.triples.graph import TripleStore

        self.job = job
        for system in job.systems:
            add_system(system)
        graph = self.graph = None if job.kg is None else opened.enter_context(TripleStore.open(job.kg, mode="read"))
        corpus = None if job.index is None else opened.enter_context(closing(Corpus.open(job.index)))
        # One for all methods, so that a knowledge base is opened once.
        self.opener: Callable[[], Knowledge] | None = job.knowledge.opener(job.models)
        resources = Resources(graph=graph, knowledge=self.opener, methods={})
        overrides = check_overrides(job.methods, job.settings)
        self._askers = {
            method.label: Asker(
                job.models, method, overrides[method.name], resources, corpus=corpus, passages=job.passages
            )
            for method in job.methods
        }

    def askers(self) -> dict[str, Batched]:
        """Return what asks each method a batch of questions, by its label."""
        from pytrace.evaluation.run.runner import Batched

        # With --deterministic, questions that a resumed run finds together must not decide what a question's answer is.
        size = self.job.batch or (1 if self.job.models.model.deterministic else _BATCH)
        return {label: Batched(asker, size) for label, asker in self._askers.items()}

    def settings(self, threads: int) -> dict[str, Any]:
        """Return all that an answer depends on but the questions, for resuming and for the report."""
        # `threads` are those of the models that answer: they decide in which order numbers are added, so that a
        # deterministic run is the same only with as many. Without --deterministic, what is asked together decides as
        # much, and they are left out.
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

    def replaced(self) -> dict[str, tuple[str, ...]]:
        """Return the `substitutions` of each method, by its label."""
        from pytrace.methods.catalog import check_overrides, substitutions

        abilities = self.job.models.abilities.known()
        overrides = check_overrides(self.job.methods, self.job.settings)
        return {method.label: substitutions(method, abilities, overrides[method.name]) for method in self.job.methods}


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


class Asker:
    """Asks a method the questions of a data set, and has it judge the claims.

    Parameters
    ----------
    engine, method, settings, resources
        Models, the method with its settings, and what it may use; the method is made at once.
    corpus
        Corpus that is searched for each question; None: each question has its own documents.
    passages
        Maximum number of passages per question that are searched for.
    """

    def __init__(
        self,
        engine: Engine,
        method: MethodName,
        settings: Sequence[str] = (),
        resources: Resources | None = None,
        *,
        corpus: Corpus | None = None,
        passages: int = 20,
    ) -> None:
        from pytrace.engine.running import Resources, prepare
        from pytrace.methods.baselines import GOLD

        self._engine = engine
        self._method = method
        self._settings = tuple(settings)
        self._resources = resources or Resources(methods={})
        self._corpus = corpus
        self._passages = passages
        self._gold = method.name == GOLD
        self._searches = corpus is not None and not self._gold
        prepare(engine, self._request("", None if self._searches else ()), corpus, self._resources)

    def __call__(self, questions: Sequence[Question]) -> list[Result]:
        """Answer questions; confidence decides nothing, so that methods are compared on all of them."""
        from pytrace.evaluation.data.datasets import CLAIM

        requests = [
            self._request(question.question, self._documents(question), judge=question.kind == CLAIM)
            for question in questions
        ]
        results = self._engine.run(requests, self._corpus, resources=self._resources)
        return [with_context_tokens(result, self._engine.model) for result in results]

    def _documents(self, question: Question) -> tuple[Document, ...] | None:
        if self._gold:
            return tuple(document for document in question.documents if document.id in question.supporting_documents)
        return None if self._searches else question.documents

    def _request(self, question: str, documents: tuple[Document, ...] | None, *, judge: bool = False) -> Request:
        return Request(
            question=question,
            task="judge" if judge else "answer",
            method=self._method.label,
            settings=self._settings,
            documents=documents,
            passages=self._passages,
            min_confidence=0.0,
        )


def with_context_tokens(result: Result, model: LanguageModel) -> Result:
    """Return a result with the language model's count of what was read, which readers without that model do not give."""
    texts = result.evidence.read_texts
    if result.context_tokens or not texts:
        return result
    return msgspec.structs.replace(result, context_tokens=model.count_tokens("\n".join(texts)))


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
