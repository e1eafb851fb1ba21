"""Turns requests into results: search, select, read, abstain, check.

Every front end calls `Engine.run`: the command line, the library, the service, adapters of other frameworks, and the evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from pytrace.documents.filters import matches, parse_filters
from pytrace.engine.corpus import Corpus, IndexedCorpus, distinct_documents
from pytrace.engine.findings import answer_result, search_findings, source_of
from pytrace.engine.questions import NOT_A_QUESTION, is_question
from pytrace.errors import InputError
from pytrace.records import Answer, Document, Triple
from pytrace.results import Check, Findings, Request, Result, Task
from pytrace.retrieval.searching import Found

if TYPE_CHECKING:
    from pytrace.certify.claims.entailment import EntailmentModel
    from pytrace.engine.loading import Engine
    from pytrace.kg import KnowledgeBase
    from pytrace.kg.knowledge import Knowledge
    from pytrace.methods.base import Method
    from pytrace.methods.catalog import MethodName
    from pytrace.retrieval import SentenceIndex
    from pytrace.retrieval.searching import SearchName
    from pytrace.triples.graph import TripleStore

DEFAULT_METHOD = "hops"
"""Method of requests that name none."""

NOT_FOUND = "No answer found in these documents."
"""Reason for an abstention."""

# Passages that are listed after an abstention.
_CLOSEST = 3

OnEvent = Callable[[str, int, Result], object]
"""Called with a stage ("search", "evidence" or "answer"), the number of the request from 0, and its result so far."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What methods and checks use besides models and corpus.

    Attributes
    ----------
    graph
        Triples of the documents.
    index
        Index of sentences.
    knowledge
        Opens the knowledge base on the first query.
    facts
        Knowledge graph to check answers against.
    checker
        Model that judges claims; None: their words alone do.
    on_extracted
        Called after the triples of a document were extracted.
    methods
        Methods kept between calls, with what they extracted or indexed; None: each call makes its own. Calls that share this must
        not overlap.
    """

    graph: TripleStore | None = None
    index: SentenceIndex | None = None
    knowledge: Callable[[], Knowledge] | None = None
    facts: KnowledgeBase | None = None
    checker: EntailmentModel | None = None
    on_extracted: Callable[[object], object] | None = None
    methods: dict[Hashable, tuple[Method, _Searches]] | None = None


def _default_resources(engine: Engine, requests: Sequence[Request]) -> Resources:
    """Return what a call uses that names nothing: the default checker, if any claim is checked."""
    from pytrace.engine.claims import open_checker

    checks = any(request.check or request.task == "judge" for request in requests)
    return Resources(checker=open_checker(None, engine) if checks else None)


class _Searches:
    """What a method searches by: the batch that it answers now."""

    batch: _Batch

    def find(self, queries: Sequence[str], retriever: SearchName, count: int) -> list[list[Document]]:
        return self.batch.find(queries, retriever, count)

    def hops(self, questions: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Found]:
        return self.batch.hops(questions, documents)


def prepare(engine: Engine, request: Request, corpus: Corpus | None, resources: Resources) -> None:
    """Make the method of a request and keep it in `resources.methods`, so that one that cannot be made is refused before it is asked."""
    batch = _Batch(engine, [request], corpus, resources)
    batch.method(batch.method_name())


def run(
    engine: Engine,
    requests: Sequence[Request],
    corpus: Corpus | str | Path | Sequence[Document] | None = None,
    *,
    resources: Resources | None = None,
    on_event: OnEvent | None = None,
) -> list[Result]:
    """Answer requests; see `Engine.run`."""
    requests = list(requests)
    requests = [_checked(request, number, len(requests)) for number, request in enumerate(requests, 1)]
    searched = None if corpus is None else Corpus.of(corpus)
    in_memory = searched is not None and not isinstance(searched, IndexedCorpus)
    # An index may be filled later; documents without text are as good as none.
    usable = None if in_memory and not any(document.text.strip() for document in searched or ()) else searched
    try:
        alike: dict[tuple[Any, ...], list[int]] = {}
        results: dict[int, Result] = {}
        for number, request in enumerate(requests):
            if request.task == "answer" and not is_question(request.question):
                results[number] = Result(
                    question=request.question, abstained=True, reason=NOT_A_QUESTION, evidence=Findings(kind="none")
                )
                _tell(on_event, "answer", number, results[number])
                continue
            own = request.documents is not None
            key = (request.task, request.method, request.settings, request.where, request.passages, own)
            alike.setdefault(key, []).append(number)
        for numbers in alike.values():
            some = [requests[number] for number in numbers]
            batch = _Batch(engine, some, usable, resources or _default_resources(engine, some))

            def tell(stage: str, place: int, result: Result, numbers: Sequence[int] = numbers) -> None:
                _tell(on_event, stage, numbers[place], result)

            results.update(zip(numbers, batch.results(None if on_event is None else tell), strict=True))
        return [results[number] for number in range(len(requests))]
    finally:
        if searched is not None and searched is not corpus:
            searched.close()


def _checked(request: Request, number: int, count: int) -> Request:
    which = "the question" if count == 1 else f"question {number} of {count}"
    if not isinstance(request, Request):
        raise InputError(f"{which} is not a pytrace.Request: {request!r:.80}; pass pytrace.Request(question=…)")
    if request.task not in get_args(Task):
        raise InputError(f"{which} has an unknown task, {request.task!r:.80}; use one of {', '.join(get_args(Task))}")
    try:
        request = msgspec.convert(msgspec.structs.asdict(request), Request)
    except msgspec.ValidationError as error:
        raise InputError(f"{which} is not a valid request: {error}") from None
    if not request.question.strip():
        raise InputError(f"{which} is empty; ask something")
    if request.min_confidence is not None and not 0 <= request.min_confidence <= 1:
        raise InputError(f"{which} has min_confidence={request.min_confidence}; give a probability from 0 to 1")
    if request.passages < 1 or request.chains < 1:
        raise InputError(
            f"{which} asks for {request.passages} passages and {request.chains} chains; ask for 1 or more of each"
        )
    return request


def _tell(on_event: OnEvent | None, stage: str, number: int, result: Result) -> None:
    if on_event is not None:
        on_event(stage, number, result)


class _Batch:
    """Requests of one task, method and settings, which go through every stage together."""

    def __init__(
        self, engine: Engine, requests: Sequence[Request], corpus: Corpus | None, resources: Resources
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._first = requests[0]
        self._corpus = corpus
        self._resources = resources
        self._questions = [request.question for request in requests]
        # The passages of each request by id. Those of one corpus are one dictionary.
        shared: dict[str, Document] = {}
        self._known = [shared if request.documents is None else {} for request in requests]
        self._given: list[Sequence[Document]] = []
        self._found: dict[int, Found] = {}
        self._searching = 0.0
        self._needs_documents = False
        self._notes: tuple[str, ...] = ()

    def results(self, listener: Callable[[str, int, Result], object] | None) -> list[Result]:
        """Return the results in the order of the requests; `listener` is called with what is known of each before."""
        from pytrace.methods.catalog import method_row

        started = time.perf_counter()
        tell = listener or (lambda *_: None)
        if self._first.task == "judge" and not self._first.method:
            return self._judged(tell)
        if self._first.task == "search" and not self._first.method:
            self._search(range(len(self._requests)))
            results = [self._search_result(number, started) for number in range(len(self._requests))]
            for number, result in enumerate(results):
                tell("search", number, result)
            return results
        name = self.method_name()
        self._needs_documents = "documents" in method_row(name.name).needs
        method = self.method(name)
        documents = self._given = self._documents(name, listener)
        if self._first.task == "search":
            started = time.perf_counter()
            found = method.select(self._questions, documents)
            took = (time.perf_counter() - started) / len(self._requests)
            results = []
            for number, evidence in enumerate(found):
                answer = Answer(self._questions[number], "", name.label, evidence, seconds={"search": took})
                results.append(self._result(number, answer, final=False))
                tell("evidence", number, results[-1])
            return results

        def told(selected: Sequence[Any]) -> None:
            for number, evidence in enumerate(selected):
                partial = Answer(self._questions[number], "", name.label, evidence)
                tell("evidence", number, self._result(number, partial, final=False))

        method.on_evidence = told if listener else None
        if self._first.task == "judge":
            answers = self._judging(method, name).judge(self._questions, documents)
        else:
            answers = method.answer(self._questions, documents)
        results = []
        for number, answer in enumerate(answers):
            checked = self._checked(method, number, answer) if self._requests[number].check else None
            results.append(self._result(number, answer, checked))
            tell("answer", number, results[-1])
        return results

    # ---- what is asked, and of what

    def method_name(self) -> MethodName:
        """Return the method that is asked for."""
        from pytrace.methods.baselines import GOLD
        from pytrace.methods.catalog import parse_method

        name = parse_method(self._first.method or DEFAULT_METHOD)
        if name.name == GOLD and self._first.documents is None:
            raise InputError(
                "gold reads the supporting documents of a data set, which only 'pytrace eval' knows; use rag"
            )
        return name

    def method(self, name: MethodName) -> Method:
        """Return the method, made for this batch or kept from an earlier one."""
        resources = self._resources
        key = (name, self._first.settings, self._searched)
        kept = {} if resources.methods is None else resources.methods
        if key not in kept:
            searches = _Searches()
            method = self._engine.method(
                name,
                self._first.settings,
                graph=resources.graph,
                extracted=resources.on_extracted,
                index=resources.index,
                knowledge=resources.knowledge,
                search=None if self._searched is None else searches.find,
                corpus=self._searched,
                hops=searches.hops,
            )
            kept[key] = method, searches
        method, searches = kept[key]
        searches.batch = self
        return method

    @property
    def _searched(self) -> Corpus | None:
        """The corpus, where the documents are not those of each question."""
        return self._corpus if self._first.documents is None else None

    def _own(self, number: int) -> Sequence[Document]:
        """Return the documents of one request that match the filters."""
        return self._matching(self._requests[number].documents or ())

    def _whole(self) -> Sequence[Document]:
        """Return the documents of the corpus that match the filters."""
        assert self._corpus is not None
        return self._matching(self._corpus)

    def _matching(self, documents: Iterable[Document]) -> Sequence[Document]:
        filters = parse_filters(self._first.where)
        return [document for document in distinct_documents(documents) if matches(document, filters)]

    def find(self, queries: Sequence[str], retriever: SearchName, count: int) -> list[list[Document]]:
        """Search the corpus for a method, and keep what is found for the result."""
        assert self._searched is not None
        found = self._searched.find(queries, self._engine, retriever, count, where=self._first.where)
        self._keep(0, (passage for passages in found for passage in passages))
        return found

    def _keep(self, number: int, passages: Iterable[Document]) -> None:
        """Remember passages of a request; the first of one id counts."""
        for passage in passages:
            self._known[number].setdefault(passage.id, passage)

    def _documents(
        self, name: MethodName, listener: Callable[[str, int, Result], object] | None
    ) -> list[Sequence[Document]]:
        """Return the documents that the method is given for each question."""
        requests = self._requests
        if self._first.documents is not None:
            given: list[Sequence[Document]] = [self._own(number) for number in range(len(requests))]
        elif self._corpus is None:
            if self._needs_documents:
                raise InputError(f"{name.name} has nothing to answer from; give documents or an index")
            given = [()] * len(requests)
        elif self._resources.index is not None:
            # An index of sentences searches all documents itself.
            given = [self._whole()] * len(requests)
        else:
            given = self._nearest(listener)
        for number, documents in enumerate(given):
            self._keep(number, documents)
        return given

    def _nearest(self, listener: Callable[[str, int, Result], object] | None) -> list[Sequence[Document]]:
        corpus = self._corpus
        assert corpus is not None
        if not isinstance(corpus, IndexedCorpus) and len(corpus) <= self._first.passages:
            return [self._whole()] * len(self._requests)
        started = time.perf_counter()
        self._search(range(len(self._requests)))
        self._searching = (time.perf_counter() - started) / len(self._requests)
        given: list[Sequence[Document]] = []
        for number in range(len(self._requests)):
            found = self._found[number]
            given.append(found.of(found.ranking.rows[: self._first.passages]))
            if listener is not None:
                listener("search", number, self._search_result(number, started))
        return given

    @property
    def _depth(self) -> int:
        """How many passages are ranked: no ranking has more chains than passages."""
        return max(self._first.passages, *(request.chains for request in self._requests))

    def _search(self, numbers: Sequence[int]) -> None:
        """Search across hops for requests that were not searched for yet."""
        waiting = [number for number in numbers if number not in self._found]
        if not waiting:
            return
        questions = [self._questions[number] for number in waiting]
        if self._searched is not None:
            found = self._searched.search(questions, self._engine, self._depth, where=self._first.where)
        elif self._first.documents is not None:
            found = [
                self._search_own(question, self._own(number))
                for number, question in zip(waiting, questions, strict=True)
            ]
        else:
            raise InputError("there is nothing to search; give documents or an index")
        for number, one in zip(waiting, found, strict=True):
            self._found[number] = one
            self._keep(number, one.passages.values())

    def _search_own(self, question: str, documents: Sequence[Document]) -> Found:
        corpus = Corpus(documents)
        try:
            return corpus.search([question], self._engine, self._depth)[0]
        finally:
            corpus.close()

    def hops(self, questions: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Found]:
        """Return what the search across hops found for questions of this batch."""
        # The same question may be asked of different documents.
        asked = zip(self._questions, map(id, self._given), strict=True)
        numbers_of = {of: number for number, of in enumerate(asked)}
        numbers = [numbers_of[question, id(given)] for question, given in zip(questions, documents, strict=True)]
        self._search(numbers)
        return [self._found[number] for number in numbers]

    # ---- claims

    def _judging(self, method: Method, name: MethodName) -> Any:
        from pytrace.methods.base import ClaimMethod

        if not isinstance(method, ClaimMethod):
            raise InputError(
                f"{name.label} cannot judge claims; use standard, cot, cot-sc, verify-and-edit or cok, or leave out the method"
            )
        return method

    def _judged(self, tell: Callable[[str, int, Result], object]) -> list[Result]:
        """Judge claims by the texts of the corpus, without a language model unless the checker is one."""
        from pytrace.engine.claims import judge_by_texts, passages_of

        results = []
        for number, request in enumerate(self._requests):
            if request.documents is not None:
                documents: Sequence[Document] = self._own(number)
            elif self._corpus is None:
                raise InputError("there is nothing to judge a claim by; give documents, an index, or a method")
            elif isinstance(self._corpus, IndexedCorpus):
                documents = passages_of(request.question, self._corpus, self._engine, request.where)
            else:
                documents = self._whole()
            self._keep(number, documents)
            ((answer, claims),) = judge_by_texts([request.question], documents, self._resources.checker)
            results.append(self._result(number, answer, Check(claims=claims)))
            tell("answer", number, results[-1])
        return results

    # ---- results

    def _search_result(self, number: int, started: float) -> Result:
        request, found = self._requests[number], self._found[number]
        return Result(
            question=request.question,
            read_as=found.ranking.question or request.question,
            method="search",
            evidence=search_findings(request.question, found, chains=request.chains, passages=request.passages),
            seconds={"search": time.perf_counter() - started},
            deterministic=True,
        )

    def _result(self, number: int, answer: Answer, check: Check | None = None, *, final: bool = True) -> Result:
        request, found = self._requests[number], self._found.get(number)
        self._look_up(number, answer)
        result = answer_result(answer, self._known[number], found)
        result = msgspec.structs.replace(
            result,
            question=request.question,
            check=check,
            notes=(*answer.notes, *self._notes),
            seconds=self._seconds(answer),
        )
        least = self._engine.min_confidence if request.min_confidence is None else request.min_confidence
        # Words that no passage was read for are the model's own.
        unread = self._needs_documents and not answer.evidence.context and least > 0
        unlikely = result.confidence is not None and result.confidence < least
        if not final or (answer.text and not unlikely and not unread):
            return result
        # Evaluations, which ask for every answer, score what was read for an empty one, too.
        closest = Findings(kind=result.evidence.kind, sources=self._closest(found, result.evidence))
        return msgspec.structs.replace(
            result,
            answer="",
            abstained=True,
            reason=NOT_FOUND,
            withheld=answer.text,
            check=None,
            evidence=closest if least else result.evidence,
        )

    def _seconds(self, answer: Answer) -> dict[str, float]:
        """Return the seconds of each stage, with those of the search before the method."""
        if not self._searching:
            return answer.seconds
        return {**answer.seconds, "search": self._searching + answer.seconds.get("search", 0.0)}

    def _look_up(self, number: int, answer: Answer) -> None:
        """Read those passages of the evidence that a method found in the corpus by itself."""
        corpus = self._searched
        if corpus is None:
            return
        for name in answer.evidence.document_ids:
            if name not in self._known[number] and (passage := corpus.passage(name)) is not None:
                self._known[number][name] = passage

    def _closest(self, found: Found | None, findings: Findings) -> tuple[Any, ...]:
        """Return the passages nearest to a question: those of the search, or else those that were read."""
        if found is None:
            return findings.sources[:_CLOSEST]
        ranking = found.ranking
        return tuple(
            source_of(found.passages[row], score)
            for row, score in zip(ranking.rows[:_CLOSEST], ranking.scores, strict=False)
        )

    def _checked(self, method: object, number: int, answer: Answer) -> Check:
        """Check what an answer rests on: its chains or thoughts by a graph or their own triples, what it says by the texts."""
        from pytrace.certify.answer_certificates import certify_answer
        from pytrace.certify.claims.answer_claims import check_answer
        from pytrace.kg import KnowledgeBase
        from pytrace.methods.trace.top_triples import TopTriples
        from pytrace.methods.trace.trace import Trace

        read = [*self._given[number]]
        listed, known = {document.id for document in read}, self._known[number]
        read += [known[name] for name in answer.evidence.document_ids if name in known and name not in listed]
        base = self._resources.facts
        if base is None and isinstance(method, Trace | TopTriples):
            # Sentences and documents state nothing that a graph could check.
            triples = [unit for unit in method.graph.iterate_triples() if isinstance(unit, Triple)]
            base = KnowledgeBase.in_memory(triples, self._engine.encoder) if triples else None
        reasoned = answer.evidence.chains or answer.evidence.reasoning.rationale
        certificates = (
            certify_answer(base, self._engine.encoder, answer, documents=read) if base is not None and reasoned else []
        )
        claims = check_answer(answer, read, self._resources.checker) if read else []
        return Check(certificates=tuple(certificates), claims=tuple(claims))
