"""What a service does, for HTTP and tools alike: questions, ranks, vectors and certificates, over an index that may change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec import structs

from pytrace import __version__
from pytrace.certify.certifier import Certifier
from pytrace.check_records import Certificate, Response
from pytrace.documents.reader import FORMATS
from pytrace.engine.claims import open_checker
from pytrace.engine.loading import Engine
from pytrace.engine.running import DEFAULT_METHOD, Resources
from pytrace.errors import InputError, PytraceError
from pytrace.kg import KnowledgeBase
from pytrace.methods.abilities import CAPABLE
from pytrace.methods.base import METHODS, setting_name
from pytrace.methods.baselines import GOLD
from pytrace.methods.catalog import MethodName, method_settings, parse_method
from pytrace.models import registry
from pytrace.models.encoders.cross_encoder import checked_scores
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.encoders.encoder_files import Kind
from pytrace.models.request_context import RequestContext, request_context
from pytrace.records import Triple
from pytrace.results import Request, Result
from pytrace.serve import messages
from pytrace.serve.batcher import Batcher
from pytrace.serve.failures import BusyError
from pytrace.serve.library import Library
from pytrace.serve.served_index import ServedIndex
from pytrace.serve.settings import ServeSettings
from pytrace.serve.shared_encoder import SharedEncoder, count_tokens
from pytrace.serve.shared_search import SharedSearch
from pytrace.serve.stored_documents import StoredDocuments
from pytrace.serve.telemetry import Metrics
from pytrace.storage.closing import Closing

_Value = TypeVar("_Value")

# Seconds after which a model that could not be loaded is tried again.
_RETRY_DELAY_S = 3.0
# Tokens of question and passage that a cross-encoder reads together, and that may wait.
_PAIR_TOKENS, _MOST_PAIR_TOKENS = 4096, 1 << 20
# Threads that wait for searches, twice as many as a batch has questions; and searches that may wait for a thread.
_SEARCHING, _WAITING_SEARCHES = 64, 448

# What requests may set numbers of a method to: some times what any of the papers has.
_MOST_OF_SETTING = 200
_MOST_BY_SETTING = {
    "samples": 64,
    "steps": 32,
    "length": 16,
    "max_tokens": 2048,
    "generated_tokens": 2048,
    "document_tokens": 8192,
    "seed": 1_000_000,
}

Emit = Callable[[str, Result], object]
"""Is called with a stage ("search", "evidence" or "answer") and the result so far."""


class _Workers(Closing):
    """Threads that answer requests, so many at once; more requests wait, up to a limit, and others are refused.

    `name` says in messages what the requests are.
    """

    def __init__(self, threads: int, waiting: int, name: str) -> None:
        self._threads, self._waiting, self._name = threads, waiting, name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._seconds = 0.0
        self.count = 0
        """Requests that are under way or wait."""

    def submit(self, work: Callable[[], _Value]) -> Future[_Value]:
        """Do some work in a thread; `BusyError` if too much waits."""
        with self._lock:
            waiting = self.count - self._threads
            if waiting >= self._waiting:
                seconds = (waiting + 1) * (self._seconds or 1.0) / self._threads
                raise BusyError(
                    f"{self.count} {self._name} are running or waiting, which is the limit; try again later",
                    retry_after=int(min(max(seconds, 1.0), 60.0)),
                )
            self.count += 1
        future = self._pool.submit(self._timed, work)
        future.add_done_callback(self._done)
        return future

    def close(self) -> None:
        """Finish what is under way, and cancel what waits."""
        self._pool.shutdown(cancel_futures=True)

    def _timed(self, work: Callable[[], _Value]) -> _Value:
        begun = time.monotonic()
        value = work()
        with self._lock:
            seconds = time.monotonic() - begun
            self._seconds += (seconds - self._seconds) * (0.2 if self._seconds else 1.0)
        return value

    def _done(self, _: object) -> None:
        with self._lock:
            self.count -= 1


class Service(Closing):
    """An engine and an index, for concurrent requests.

    Parameters
    ----------
    engine
        The models. From now on its encoder is shared: texts that come at once are encoded together.
    directory
        Directory of the index.
    settings
        Limits.
    metrics
        Metrics to count in.
    facts
        A knowledge base to check reasoning against where a request brings none.
    method
        Method of questions that name none.
    """

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        settings: ServeSettings,
        *,
        metrics: Metrics | None = None,
        facts: Path | None = None,
        method: str = DEFAULT_METHOD,
    ) -> None:
        if not engine.remote and "model" not in vars(engine):
            # The model is loaded later; a name that does not exist is an error now.
            registry.resolve(engine.llm, "language-model")
        self.engine = engine
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.method = parse_method(method)
        self.encoder = SharedEncoder(engine.encoder, observe=self._observe_encoding)
        vars(engine)["encoder"] = self.encoder
        self.index = ServedIndex(directory, engine, writable=not settings.read_only)
        self.library = Library(self.index, StoredDocuments(directory), settings)
        base = None if facts is None else KnowledgeBase.load(facts, self.encoder)
        self._resources = Resources(facts=base, checker=open_checker(None, engine))
        self._searches = SharedSearch(engine, observe=partial(self.metrics.observe_batch, "search"))
        self._pairs: Batcher[list[tuple[str, str]], Any] | None = None
        if engine.cross_encoder_name is not None:
            self._pairs = Batcher(
                self._score_pairs,
                size=lambda pairs: sum(count_tokens(first + second, 512) for first, second in pairs),
                budget=_PAIR_TOKENS,
                most_waiting=_MOST_PAIR_TOKENS,
                name="tokens to rank",
                observe=partial(self.metrics.observe_batch, "cross-encoder"),
            )
        self._searching = _Workers(_SEARCHING, _WAITING_SEARCHES, "searches")
        self._answering = _Workers(settings.answering, settings.waiting, "questions")
        self._certifying = ThreadPoolExecutor(2, thread_name_prefix="certifying")
        self._warm = False
        self.stopping = False
        """Whether no more questions are taken in."""
        self._closing = threading.Event()
        self.on_trouble: Callable[[str, Exception], object] = lambda _, __: None
        """Is called with what is tried again: opening the index that is on the disk now, or loading the language model."""
        self._watch = threading.Thread(target=self._watch_index, name="watch of the index", daemon=True)
        self._watch.start()

    # ---- questions

    def run(
        self, request: Request, context: RequestContext | None = None, emit: Emit = lambda *_: None
    ) -> Future[Result]:
        """Answer or search for a question in a thread of its own.

        Parameters
        ----------
        request
            The question; without a method, the service's own answers it.
        context
            Cancelling it ends the work.
        emit
            Is called with each stage, in that thread.

        Raises
        ------
        InputError
            There is no such method, or a setting is out of bounds.
        BusyError
            Too many requests wait.
        """
        workers = self._searching
        if request.task != "search":
            request = structs.replace(request, method=request.method or self.method.label)
            self._check_settings(request)
            workers = self._answering
        return workers.submit(partial(self._run, request, context or RequestContext(), emit))

    def _run(self, request: Request, context: RequestContext, emit: Emit) -> Result:
        def on_event(stage: str, _: int, result: Result) -> None:
            context.check()
            emit(stage, result)

        try:
            with request_context(context), self.index.lease() as corpus:
                context.check()
                shared = self._searches.over(corpus)
                return self.engine.run([request], shared, resources=self._resources, on_event=on_event)[0]
        finally:
            self.metrics.observe_usage(context.usage)

    def _check_settings(self, request: Request) -> None:
        """Refuse settings of a request that name files, and numbers with which one question would take the time or memory of all."""
        method = parse_method(request.method)
        overrides = (*request.settings, *(method.overrides if method != self.method else ()))
        for name in map(setting_name, overrides):
            if name.endswith("_file"):
                raise InputError(f"{name} names a file of the server, which is not allowed in requests; leave it out")
        check_settings(method, overrides)

    # ---- ranks, vectors, certificates

    @property
    def models(self) -> list[str]:
        """The names that requests may give as their model, the one that ranks first."""
        cross = self.engine.cross_encoder_name
        names = [cross] if cross is not None else []
        return list(dict.fromkeys([*names, self.engine.encoder_name, self.encoder.name, "pytrace"]))

    def check_model(self, name: str | None) -> str:
        """Return the model that a request names, or the first; `InputError` where there is none of that name."""
        if name is None or name == "":
            return self.models[0]
        if name not in self.models:
            raise InputError(
                f"there is no model {name[:80]!r} here; ask for {' or '.join(self.models)}, or leave it out"
            )
        return name

    def ranks_by_pairs(self, model: str | None) -> bool:
        """Whether a request is ranked by the cross-encoder."""
        return self._pairs is not None and (not model or model == self.engine.cross_encoder_name)

    def score_pairs(self, query: str, texts: Sequence[str]) -> Iterator[Future[Any]]:
        """Have the cross-encoder read each text with the query; float32 scores, in pieces, each put in line when it is asked for."""
        assert self._pairs is not None
        pairs = [(query, text) for text in texts]
        size = 32
        self._pairs.check_room(sum(count_tokens(text, 512) for text in texts))
        line = self._pairs
        return (line.submit(pairs[start : start + size]) for start in range(0, len(pairs), size))

    def _score_pairs(self, batch: list[list[tuple[str, str]]]) -> list[Any]:
        scores = checked_scores(self.engine.cross_encoder, [pair for piece in batch for pair in piece])
        return np.split(scores, np.cumsum([len(piece) for piece in batch])[:-1])

    def encode(self, texts: Sequence[str], kind: Kind) -> Iterator[Future[Vectors]]:
        """Have texts encoded together with those of others, in pieces, each put in line when it is asked for."""
        self.encoder.check_room(texts, kind)
        return self.encoder.submit_in_turn(texts, kind)

    def certify(
        self, request: messages.CertifyRequest, context: RequestContext | None = None
    ) -> Future[list[Certificate]]:
        """Certify responses against triples that come with them, or the service's graph; cancelling the context ends it."""
        if request.facts is None and self._resources.facts is None:
            raise InputError(
                "there is no graph to certify against; give facts, a list of [head, relation, tail], or start the service with --facts"
            )
        return self._certifying.submit(self._certify, request, context or RequestContext())

    def _certify(self, request: messages.CertifyRequest, context: RequestContext) -> list[Certificate]:
        context.check()
        with request_context(context):
            return self._certified(request, context)

    def _certified(self, request: messages.CertifyRequest, context: RequestContext) -> list[Certificate]:
        base = self._resources.facts
        if request.facts is not None:
            base = KnowledgeBase.in_memory([Triple(*fact) for fact in request.facts], self.encoder)
        assert base is not None
        responses = [
            Response(each.id or str(number), each.question, each.text, tuple(each.answers))
            for number, each in enumerate(request.responses, 1)
        ]
        certifier = Certifier(base, self.encoder)
        certificates: list[Certificate] = []
        for response in responses:
            context.check()
            certificates += certifier.certify([response])
        return certificates

    # ---- the index

    def info(self) -> messages.InfoResponse:
        """Say what this service has."""
        with self.index.lease() as corpus:
            passages, documents = len(corpus), corpus.index.documents
        return messages.InfoResponse(
            version=__version__,
            documents=documents,
            passages=passages,
            encoder=self.encoder.name,
            language_model=self.engine.llm,
            cross_encoder=self.engine.cross_encoder_name,
            method=self.method.label,
            methods=[
                messages.MethodInfo(name=row.name, summary=row.summary)
                for row in METHODS.values()
                if row.name != GOLD and self._has(row.needs)
            ],
            read_only=self.settings.read_only,
            facts=self._resources.facts is not None,
            formats=list(FORMATS),
            max_body_bytes=self.settings.max_body,
        )

    def _has(self, needs: frozenset[str]) -> bool:
        return "knowledge base" not in needs and (
            "cross-encoder" not in needs or self.engine.cross_encoder_name is not None
        )

    # ---- the service itself

    def refresh_metrics(self) -> None:
        """Bring gauges up to date."""
        with self.index.lease() as corpus:
            self.metrics.passages.set(len(corpus))
        self.metrics.reloads.set(self.index.reloads)
        waiting = {
            "encoder": self.encoder.waiting,
            "search": self._searching.count,
            "answers": self._answering.count,
        }
        for work, size in waiting.items():
            self.metrics.waiting.labels(work).set(size)

    @property
    def ready(self) -> bool:
        """Whether questions are taken in: the models are loaded, and the service is not being stopped."""
        return self._warm and not self.stopping

    def warm(self) -> None:
        """Load what the service's method needs, so that the first question need not wait; a model on a server may come later."""
        last = ""
        while not (self._warm or self._closing.is_set()):
            try:
                self._load()
                self._warm = True
            except PytraceError as error:
                if str(error) != last:
                    last = str(error)
                    self.on_trouble("models not loaded", error)
                self._closing.wait(_RETRY_DELAY_S)

    def _load(self) -> None:
        # Where the method reads spans, another method's first question loads the language model.
        settings = method_settings(self.method, self.engine.abilities)  # tests the model, if its method needs that
        if self.method.name != DEFAULT_METHOD or settings.reading != "span":
            self.engine.model.count_tokens("ready")
        self._run(Request(question="What is there?", task="search"), RequestContext(), lambda *_: None)

    def stop(self) -> None:
        """Say that no more questions are taken in, so that others stop sending them."""
        self.stopping = True

    def close(self) -> None:
        """End what is under way, and free models and index."""
        self._closing.set()
        self._answering.close()
        self._searching.close()
        self.library.close()
        self._certifying.shutdown(cancel_futures=True)
        self._searches.close()
        if self._pairs is not None:
            self._pairs.close()
        self._watch.join()
        self.index.close()
        self.encoder.close()
        self.engine.close()

    def _observe_encoding(self, kind: str, items: int, seconds: float) -> None:
        self.metrics.observe_batch(f"encoder {kind}", items, seconds)

    def _watch_index(self) -> None:
        """Follow an index that another process writes or replaces."""
        last = ""
        while not self._closing.wait(1.0):
            try:
                self.index.refresh()
                self.index.collect()
                last = ""
            except Exception as error:  # noqa: BLE001  # whatever it is, the next index may be one again
                if str(error) != last:  # once, and not every second
                    last = str(error)
                    self.on_trouble("index not reloaded", error)


def check_settings(method: MethodName, overrides: Sequence[str]) -> None:
    """Refuse settings that a method does not have, and numbers above their bounds."""
    values = method_settings(MethodName(method.name), CAPABLE, overrides)
    for name in {setting_name(override) for override in overrides}:
        value, most = getattr(values, name), _MOST_BY_SETTING.get(name, _MOST_OF_SETTING)
        if isinstance(value, int | float) and value > most:
            raise InputError(f"{name} is {value:,}, and requests may set it to {most:,} at most; ask for less")
