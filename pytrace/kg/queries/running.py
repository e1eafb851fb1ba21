"""Runs generated queries on a store: the first that is harmless and gives something counts, and nothing ends the run.

Source: Li et al., "Chain of Knowledge" (2023), section 3.1.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from pytrace.errors import InputError, PytraceError
from pytrace.kg.fact_store import FactStore, QueryLimits
from pytrace.kg.linking import EntityLinker
from pytrace.kg.names import verbalise
from pytrace.kg.queries.query_grounding import GroundedQuery, Grounder
from pytrace.kg.queries.query_records import GeneratedQuery
from pytrace.kg.queries.result_wording import ask_sentence, count_sentence
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import Solution, Solutions
from pytrace.kg.sparql_tokens import tokens_of, without_prologue
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Fact, KnowledgeQuery, Triple

# How a query that asks for one count and nothing else begins, its tokens with a space between them.
_COUNT = re.compile(
    r"(?i)select (?:distinct )?(?:\( )?count \( (?:\*|(distinct )?[?$](\w+)) \)(?: as [?$]\w+ \))?(?: from .*)?(?: where)?"
)
_AGGREGATES = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"})
# A value that is longer is a text and no name; a few of them would fill a small model's context.
_LONGEST_NAME = 300


class Asked(msgspec.Struct, frozen=True):
    """What a store is asked: a question, its place in a chain (see `KnowledgeQuery`), and the queries offered for it."""

    place: int
    question: str
    candidates: Sequence[GeneratedQuery]


class _Aim(NamedTuple):
    """What a query asks for; of a count also the variable that is counted (none: solutions are), and if each value once."""

    kind: Literal["values", "count", "ask"]
    counted: str = ""
    once: bool = False


class _Reading(NamedTuple):
    """One way to run a query: its text as written, what it became, and what it asks for."""

    written: str
    grounded: GroundedQuery
    aim: _Aim


class _Attempt:
    """What has been tried for one question, and what may be tried next."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.candidates = deque(asked.candidates)
        self.readings: deque[_Reading] = deque()
        self.tried: set[str] = set()
        # As a set in order: of one query the store may say the same of each reading.
        self.refused: dict[tuple[str, str], None] = {}
        self.first: _Reading | None = None
        self.stopped: tuple[_Reading, str] | None = None
        self.done: KnowledgeQuery | None = None

    def refuse(self, written: str, reason: str) -> None:
        self.refused[written, reason] = None

    def offer(self, written: str, grounded: Sequence[GroundedQuery]) -> None:
        """Keep the ways to run a query that have not been tried for another one already."""
        for each in grounded:
            aim = _aim(each)
            if aim is None:
                reason = "it computes something other than one count, which no fact can show; ask for the values"
                self.refuse(written, reason)
            elif each.sparql not in self.tried:
                self.tried.add(each.sparql)
                self.readings.append(_Reading(written, each, aim))


class QueryRunner:
    """Runs the queries of many questions together."""

    def __init__(
        self,
        store: FactStore,
        linker: EntityLinker,
        *,
        encoder: Encoder | None = None,
        limits: QueryLimits | None = None,
        alternatives: int = 4,
        facts: int = 20,
        values: int = 100,
        either_direction: bool = False,
    ) -> None:
        if facts < 1 or values < 1:
            raise InputError(f"facts is {facts} and values {values}; keep at least 1 of each")
        self._store = store
        self._limits = limits or QueryLimits()
        self._facts = facts
        self._values = values
        self._grounder = Grounder(
            store, linker, encoder=encoder, alternatives=alternatives, either_direction=either_direction
        )

    def run(self, asked: Sequence[Asked]) -> list[KnowledgeQuery]:
        """Run for each question its first query that gives something."""
        # A query that is none, names what the store does not have, or is not allowed is refused, and the next one
        # tried; so is the next way to read a query, and then the next query, where one gives nothing. Each round takes
        # the next query of every question that has no answer yet, so that a server is asked few times.
        attempts = [_Attempt(question) for question in asked]
        while True:
            self._prepare(attempts)
            waiting = [attempt for attempt in attempts if attempt.done is None and attempt.readings]
            if not waiting:
                break
            self._round([(attempt, attempt.readings.popleft()) for attempt in waiting])
        return [attempt.done or self._nothing(attempt) for attempt in attempts]

    def _prepare(self, attempts: Sequence[_Attempt]) -> None:
        """See to it that each question without an answer has a query to run, as long as candidates last."""
        while True:
            chosen = [
                attempt for attempt in attempts if attempt.done is None and not attempt.readings and attempt.candidates
            ]
            if not chosen:
                return
            valid: list[tuple[_Attempt, GeneratedQuery]] = []
            for attempt in chosen:
                candidate = attempt.candidates.popleft()
                if candidate.query is None:
                    attempt.refuse(candidate.written, candidate.fault or "it is no query")
                else:
                    valid.append((attempt, candidate))
            queries = [candidate.query for _, candidate in valid if candidate.query is not None]
            grounded = self._grounder.ground(queries, [attempt.asked.question for attempt, _ in valid])
            for (attempt, candidate), readings in zip(valid, grounded, strict=True):
                if isinstance(readings, InputError):
                    attempt.refuse(candidate.written, str(readings))
                else:
                    attempt.offer(candidate.written, readings)

    def _round(self, runs: Sequence[tuple[_Attempt, _Reading]]) -> None:
        results = self._store.solutions([reading.grounded.graph for _, reading in runs], self._limits)
        answered: list[tuple[_Attempt, _Reading, Solutions]] = []
        for (attempt, reading), result in zip(runs, results, strict=True):
            if isinstance(result, PytraceError):
                attempt.refuse(reading.written, str(result))
            elif isinstance(result, Exception):
                raise result
            else:
                answered.append((attempt, reading, result))
        kept = []
        for _, reading, result in answered:
            answers = _answers(reading.grounded.graph, result.solutions) if reading.aim.kind == "values" else ()
            triples = (triple for solution in result.solutions for triple in solution.triples)
            kept.append(
                (list(islice(dict.fromkeys(answers), self._values)), list(islice(dict.fromkeys(triples), self._facts)))
            )
        # Names are asked for once a round, and only of what is kept: on a server each costs time.
        keys: dict[str, None] = {}
        for answer_keys, facts in kept:
            keys |= dict.fromkeys(key for key, relation in answer_keys if not relation)
            keys |= dict.fromkeys(key for triple in facts for key in (triple.head, triple.tail))
        names = dict(zip(keys, self._store.names(list(keys)), strict=True)) if keys else {}
        for (attempt, reading, result), (answer_keys, facts) in zip(answered, kept, strict=True):
            attempt.first = attempt.first or reading
            values = dict.fromkeys(
                self._grounder.relation_name(key) if relation else names[key] for key, relation in answer_keys
            )
            worded = tuple(Fact(triple, self._worded(triple, names)) for triple in facts)
            attempt.done = self._read(attempt, reading, result, tuple(values), worded)

    def _read(
        self,
        attempt: _Attempt,
        reading: _Reading,
        result: Solutions,
        values: tuple[str, ...],
        facts: tuple[Fact, ...],
    ) -> KnowledgeQuery | None:
        """Return what a query gave; None if that is nothing."""
        stopped, statement = result.stopped, ""
        if stopped and attempt.stopped is None:
            attempt.stopped = (reading, stopped)
        if not result.solutions or (reading.aim.kind == "values" and not values and not facts):
            return None
        if reading.aim.kind == "ask":  # one solution is enough
            stopped, values, statement = "", ("true",), _statement(reading, 1)
        elif reading.aim.kind == "count":  # some of them are no count
            number = _counted(reading.aim, result.solutions)
            values, statement = ((), "") if stopped else ((str(number),), _statement(reading, number))
        outcome: Literal["stopped", "answered"] = "stopped" if stopped else "answered"
        return self._record(
            attempt, reading, values=values, facts=facts, outcome=outcome, reason=stopped, statement=statement
        )

    def _worded(self, triple: Triple, names: dict[str, str]) -> str:
        relation = self._grounder.relation_name(triple.relation)
        return verbalise(_short(names[triple.head]), relation, _short(names[triple.tail]))

    def _nothing(self, attempt: _Attempt) -> KnowledgeQuery:
        """Return what is told of a question for which no query gave anything."""
        if attempt.stopped is not None:
            return self._record(attempt, attempt.stopped[0], outcome="stopped", reason=attempt.stopped[1])
        if attempt.first is None:
            reason = next((reason for _, reason in reversed(attempt.refused)), "there was no query for it")
            return self._record(attempt, None, outcome="refused", reason=reason)
        kind = attempt.first.aim.kind
        if kind == "values":
            return self._record(attempt, attempt.first, outcome="empty")
        # That something is not so, or that there are none, is an answer too.
        return self._record(
            attempt,
            attempt.first,
            values=("false" if kind == "ask" else "0",),
            outcome="answered",
            statement=_statement(attempt.first, 0),
        )

    def _record(
        self,
        attempt: _Attempt,
        reading: _Reading | None,
        *,
        outcome: Literal["answered", "empty", "stopped", "refused"],
        values: tuple[str, ...] = (),
        facts: tuple[Fact, ...] = (),
        reason: str = "",
        statement: str = "",
    ) -> KnowledgeQuery:
        return KnowledgeQuery(
            place=attempt.asked.place,
            question=attempt.asked.question,
            store=self._store.name,
            written="" if reading is None else reading.written,
            sparql="" if reading is None else reading.grounded.sparql,
            links=() if reading is None else reading.grounded.links,
            refused=tuple(attempt.refused),
            values=values,
            facts=facts,
            outcome=outcome,
            reason=reason,
            statement=statement,
        )


def _aim(grounded: GroundedQuery) -> _Aim | None:
    """Tell what a query asks for; None for what cannot be told from its solutions."""
    tokens = without_prologue(tokens_of(grounded.sparql))
    if tokens[0].word == "ASK":
        return _Aim("ask")
    body = next(index for index, token in enumerate(tokens) if token.text == "{")
    clause = tokens[:body]
    if not any(token.word in _AGGREGATES for token in clause):
        return _Aim("values")
    count = _COUNT.fullmatch(" ".join(token.text for token in clause))
    depth = 0
    for token in tokens[body:]:
        depth += (token.text == "{") - (token.text == "}")
        if depth == 0 and token.word in ("GROUP", "HAVING"):  # then it is many counts, or none
            return None
    known = {name for pattern in grounded.graph.patterns for name in pattern}
    if count is None or (count[2] is not None and count[2] not in known):
        return None
    return _Aim("count", count[2] or "", once=count[1] is not None)


def _counted(aim: _Aim, solutions: Sequence[Solution]) -> int:
    if not aim.counted:
        return len(solutions)
    values = [solution.values[aim.counted] for solution in solutions if aim.counted in solution.values]
    return len(set(values) if aim.once else values)


def _statement(reading: _Reading, number: int) -> str:
    """Put what a COUNT or ASK query gave into a sentence."""
    grounded, aim = reading.grounded, reading.aim
    if aim.kind == "ask":
        return ask_sentence(grounded.sparql, grounded.names, holds=number > 0)
    return count_sentence(grounded.sparql, grounded.names, number=number, counted=aim.counted, once=aim.once)


def _answers(graph: GraphQuery, solutions: Sequence[Solution]) -> Iterator[tuple[str, bool]]:
    """Iterate over the keys that a query asked for, solution by solution, each with whether it is a relation's."""
    relations = {relation for _, relation, _ in graph.patterns}
    relations -= {name for subject, _, target in graph.patterns for name in (subject, target)}
    for solution in solutions:
        for variable in graph.answers:
            if variable in solution.values:
                yield solution.values[variable], variable in relations


def _short(name: str) -> str:
    """Return a name of one line."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[:_LONGEST_NAME]}…"
