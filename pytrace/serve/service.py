"""What a service does, whatever carries requests to it: search, answers, ranks, vectors, certificates, and changes of the index."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytrace import __version__
from pytrace.certify.certifier import Certifier
from pytrace.check_records import Certificate, Response
from pytrace.documents.reader import FORMATS
from pytrace.engine.asking import Certified, certify_by_evidence
from pytrace.engine.corpus import IndexedCorpus
from pytrace.engine.loading import Engine
from pytrace.errors import DataError, InputError, PytraceError
from pytrace.kg import KnowledgeBase
from pytrace.methods.abilities import CAPABLE
from pytrace.methods.base import METHODS, noted, setting_name
from pytrace.methods.baselines import GOLD
from pytrace.methods.catalog import MethodName, method_settings, parse_method
from pytrace.models import registry
from pytrace.models.encoders.cross_encoder import checked_scores
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.encoders.encoder_files import Kind
from pytrace.models.request_context import RequestContext, request_context
from pytrace.records import Document, Triple
from pytrace.retrieval.searching import SearchName
from pytrace.serve import found as says
from pytrace.serve import messages
from pytrace.serve.batcher import Batcher
from pytrace.serve.failures import BusyError
from pytrace.serve.found import Found
from pytrace.serve.library import Library
from pytrace.serve.served_index import ServedIndex
from pytrace.serve.settings import ServeSettings
from pytrace.serve.shared_encoder import SharedEncoder, count_tokens
from pytrace.serve.stored_documents import StoredDocuments
from pytrace.serve.telemetry import Metrics
from pytrace.storage.closing import Closing

# Questions that are searched together, and that may wait.
_SEARCHED, _MOST_SEARCHES = 32, 512
# Seconds after which a model that could not be loaded is tried again.
_AGAIN = 3.0
# Tokens of question and passage that a cross-encoder reads together, and that may wait.
_PAIR_TOKENS, _MOST_PAIR_TOKENS = 4096, 1 << 20

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

Emit = Callable[[str, messages.Message], object]
"""Is told each stage of an answer: its name, and what was found."""


class _Question(NamedTuple):
    """A question to be searched for, and what is wanted of it."""

    text: str
    chains: int
    passages: int
    where: tuple[str, ...]

    @property
    def ranked(self) -> int:
        """How many passages are ranked."""
        return max(self.chains, self.passages)


class Service(Closing):
    """An engine and an index, for many who ask at once.

    Parameters
    ----------
    engine
        The models. Its encoder is shared from now on: what comes at once is encoded together.
    directory
        Of the index.
    settings
        Limits.
    metrics
        Are told what is done.
    facts
        A knowledge base that responses are certified against where none comes with them.
    method
        How questions are answered where nothing is said of it.
    """

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        settings: ServeSettings,
        *,
        metrics: Metrics | None = None,
        facts: Path | None = None,
        method: str = "trace",
    ) -> None:
        if not engine.remote and "model" not in vars(engine):
            registry.resolve(
                engine.llm, "language-model"
            )  # it is loaded later, and whoever starts a service waits for no error then
        self.engine = engine
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.method = parse_method(method)
        self.encoder = SharedEncoder(engine.encoder, observe=self._observe_encoding)
        vars(engine)["encoder"] = self.encoder
        self.index = ServedIndex(directory, engine, writable=not settings.read_only)
        self.library = Library(self.index, StoredDocuments(directory), settings)
        self._facts = None if facts is None else KnowledgeBase.load(facts, self.encoder)
        self._searches: Batcher[_Question, Found] = Batcher(
            self._search,
            size=lambda _: 1,
            budget=_SEARCHED,
            most_waiting=_MOST_SEARCHES,
            name="questions to search for",
            observe=partial(self.metrics.observe_batch, "search"),
        )
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
        self._answering = ThreadPoolExecutor(settings.answering, thread_name_prefix="answering")
        self._certifying = ThreadPoolExecutor(2, thread_name_prefix="certifying")
        self._lock = threading.Lock()
        self._asked = 0
        self._answer_seconds = 0.0
        self._warm = False
        self.stopping = False
        """Whether no more questions are taken in."""
        self._closing = threading.Event()
        self.on_trouble: Callable[[str, Exception], object] = lambda _, __: None
        """Is told what goes on being tried: to open the index that is on the disk now, or to load the language model."""
        self._watch = threading.Thread(target=self._watch_index, name="watch of the index", daemon=True)
        self._watch.start()

    # ---- search

    def search(self, request: messages.SearchRequest) -> Future[Found]:
        """Search for a question, together with those of others."""
        return self._submit(request.question, request.chains, request.passages, request.where)

    def _submit(self, question: str, chains: int, passages: int, where: Sequence[str]) -> Future[Found]:
        check_question(question)
        self._searches.check_room(1)
        return self._searches.submit(_Question(question, chains, passages, tuple(where)))

    def _search(self, batch: list[_Question]) -> list[Found | Exception]:
        results: list[Found | Exception] = [DataError("nothing was found")] * len(batch)
        alike: dict[tuple[tuple[str, ...], int], list[int]] = {}
        for number, question in enumerate(batch):
            alike.setdefault((question.where, question.ranked), []).append(number)
        with self.index.lease() as corpus:
            for (where, count), numbers in alike.items():
                try:
                    rankings = corpus.rank([batch[number].text for number in numbers], self.engine, count, where=where)
                except PytraceError as error:
                    for number in numbers:
                        results[number] = error
                    continue
                for number, ranking in zip(numbers, rankings, strict=True):
                    rows = says.rows_of(ranking, batch[number].chains, batch[number].passages)
                    results[number] = Found(ranking, dict(zip(rows, corpus.index.passages(rows), strict=True)))
        return results

    # ---- answers

    def ask(self, request: messages.AskRequest, emit: Emit, context: RequestContext) -> Future[messages.AskResponse]:
        """Answer a question in a thread of its own; stages are told as they come, and cancelling the context ends it."""
        check_question(request.question)
        method = parse_method(request.method) if request.method else self.method
        if method.name == GOLD:
            raise InputError("gold reads what a data set says is right, which 'pytrace eval' alone knows; use rag")
        for override in (*request.settings, *method.overrides):
            if setting_name(override).endswith("_file"):
                raise InputError(
                    f"{setting_name(override)} names a file of the server, which requests may not; leave it out"
                )
        if method != self.method:
            check_settings(method, (*request.settings, *method.overrides))
        elif request.settings:
            check_settings(MethodName(method.name), request.settings)
        with self._lock:
            waiting = self._asked - self.settings.answering
            if waiting >= self.settings.waiting:
                seconds = (waiting + 1) * (self._answer_seconds or 1.0) / self.settings.answering
                raise BusyError(
                    f"{self._asked} questions are being answered or wait, and no more are taken in; try again later",
                    retry_after=int(min(max(seconds, 1.0), 60.0)),
                )
            self._asked += 1
        future = self._answering.submit(self._ask, request, emit, context)
        future.add_done_callback(self._asked_one)
        return future

    def _asked_one(self, _: object) -> None:
        with self._lock:
            self._asked -= 1

    def _ask(self, request: messages.AskRequest, emit: Emit, context: RequestContext) -> messages.AskResponse:
        try:
            return self._answer(request, emit, context)
        finally:
            self.metrics.observe_usage(context.usage)

    def _answer(self, request: messages.AskRequest, emit: Emit, context: RequestContext) -> messages.AskResponse:
        begun = time.monotonic()
        chains = min(5, request.passages)
        with request_context(context), self.index.lease() as corpus:
            context.check()
            found = self._submit(request.question, chains, request.passages, request.where).result()
            seeds = says.seeds(request.question, found)
            emit("seeds", seeds)
            some = says.chains(request.question, found, chains, min(request.passages, 10))
            emit("chains", some)
            context.check()
            given = found.of(found.ranking.rows[: request.passages])
            documents = {document.id: document for document in found.passages.values()}
            method = self.engine.method(
                parse_method(request.method) if request.method else self.method,
                request.settings,
                search=self._keeping(corpus, request.where, documents),
            )
            told: list[messages.FoundEvidence] = []

            def tell(selected: list[Any]) -> None:
                told.append(says.evidence(selected[0], documents))
                emit("evidence", told[0])

            method.on_evidence = tell
            (answer,) = method.answer([request.question], [given])
            seen = says.evidence(answer.evidence, documents, answer.notes)
            if not told:
                emit("evidence", seen)
            certified = Certified()
            if request.certify:
                try:
                    # A graph is for chains and thoughts; what others answer is a claim beside the passages alone.
                    reasoned = answer.evidence.chains or answer.evidence.reasoning.rationale
                    base = self._facts if reasoned else None
                    certified = certify_by_evidence(method, answer, given, self.encoder, base=base)
                except InputError as error:  # the answer stands all the same
                    answer = noted(answer, f"not certified: {error}")
            said = says.answer(answer, documents, certified)
            emit("answer", said)
        with self._lock:
            seconds = time.monotonic() - begun
            self._answer_seconds += (seconds - self._answer_seconds) * (0.2 if self._answer_seconds else 1.0)
        return messages.AskResponse(**_fields(seeds), **_fields(some), **_fields(said), evidence=seen)

    def _keeping(
        self, corpus: IndexedCorpus, where: Sequence[str], documents: dict[str, Document]
    ) -> Callable[[Sequence[str], SearchName, int], list[list[Document]]]:
        """Return what a method searches while it thinks, which keeps what it finds."""
        find = corpus.finder(self.engine, where=where)

        def search(queries: Sequence[str], retriever: SearchName, count: int) -> list[list[Document]]:
            results = find(queries, retriever, count)
            documents.update((passage.id, passage) for passages in results for passage in passages)
            return results

        return search

    # ---- ranks, vectors, certificates

    @property
    def models(self) -> list[str]:
        """The names that requests may give as their model, the one that ranks first."""
        cross = self.engine.cross_encoder_name
        names = [cross] if cross is not None else []
        return list(dict.fromkeys([*names, self.engine.encoder_name, self.encoder.name, self.engine.llm, "pytrace"]))

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
        if request.facts is None and self._facts is None:
            raise InputError(
                "there is no graph to certify against; give facts, a list of [head, relation, tail], or start the service with --facts"
            )
        return self._certifying.submit(self._certify, request, context or RequestContext())

    def _certify(self, request: messages.CertifyRequest, context: RequestContext) -> list[Certificate]:
        context.check()
        with request_context(context):
            return self._certified(request, context)

    def _certified(self, request: messages.CertifyRequest, context: RequestContext) -> list[Certificate]:
        base = self._facts
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
            facts=self._facts is not None,
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
        waiting = {"encoder": self.encoder.waiting, "search": self._searches.waiting, "answers": self._asked}
        for work, size in waiting.items():
            self.metrics.waiting.labels(work).set(size)

    @property
    def ready(self) -> bool:
        """Whether questions are taken in: the models are loaded, and the service is not being stopped."""
        return self._warm and not self.stopping

    def warm(self) -> None:
        """Load the language model, so that the first question need not wait for it; one on a server may not be there yet."""
        last = ""
        while not (self._warm or self._closing.is_set()):
            try:
                self.engine.model.count_tokens("ready")
                method_settings(self.method, self.engine.abilities)  # tests the model, if its method needs that
                self._warm = True
            except PytraceError as error:
                if str(error) != last:
                    last = str(error)
                    self.on_trouble("language model not loaded", error)
                self._closing.wait(_AGAIN)

    def stop(self) -> None:
        """Say that no more questions are taken in, so that others stop sending them."""
        self.stopping = True

    def close(self) -> None:
        """End what is under way, and free models and index."""
        self._closing.set()
        self._answering.shutdown(cancel_futures=True)
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
    """Refuse settings that a method does not have, and numbers of which one question would take the time or memory of all others."""
    values = method_settings(MethodName(method.name), CAPABLE, overrides)
    for name in {setting_name(override) for override in overrides}:
        value, most = getattr(values, name), _MOST_BY_SETTING.get(name, _MOST_OF_SETTING)
        if isinstance(value, int | float) and value > most:
            raise InputError(f"{name} is {value:,}, and requests may set it to {most:,} at most; ask for less")


def check_question(question: str) -> None:
    """Refuse a question without words."""
    if not question.strip():
        raise InputError("the question is empty; ask something")


def _fields(message: messages.Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}
