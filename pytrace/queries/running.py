"""Runs generated queries on a store: the first that is harmless and gives something counts, and nothing ends the run.

Source: Li et al., "Chain of Knowledge" (2023), section 3.1.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec

from pytrace.errors import InputError, PytraceError
from pytrace.knowledge_base.linking import EntityLinker
from pytrace.knowledge_base.names import verbalise
from pytrace.knowledge_base.sparql_store import Solutions
from pytrace.knowledge_base.triple_store import QueryLimits, TripleStore
from pytrace.models.encoder import Encoder
from pytrace.queries.grounding import GroundedQuery, Grounder
from pytrace.queries.records import GeneratedQuery
from pytrace.records import Fact, KnowledgeQuery, Triple

_Kind = Literal["values", "count", "ask"]
# Whole, so that it is the only thing that a query asks for.
_COUNT = re.compile(
    r"(?is)select\s+(?:distinct\s+)?\(?\s*count\s*\(\s*(distinct\s+)?(\*|[?$]\w+)\s*\)\s*(?:as\s+[?$]\w+\s*\))?\s*(?:where\b|\{)"
)
_AGGREGATE = re.compile(r"(?i)\b(count|sum|min|max|avg|sample|group_concat)\s*\(")


class Asked(msgspec.Struct, frozen=True):
    """What a store is asked: a question, its place in a chain (see `KnowledgeQuery`), and the queries offered for it."""

    place: int
    question: str
    candidates: Sequence[GeneratedQuery]


class _Attempt:
    """What has been tried for one question, and what may be tried next."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.candidates = deque(asked.candidates)
        self.written = ""
        self.readings: deque[GroundedQuery] = deque()
        self.refused: list[tuple[str, str]] = []
        self.first: tuple[str, GroundedQuery] | None = None
        self.stopped = ""
        self.done: KnowledgeQuery | None = None


class QueryRunner:
    r"""Runs the queries of many questions together.

    Parameters
    ----------
    store
        What is asked.
    linker
        Finds the entities that queries mention.
    encoder
        Finds relations whose names mean the same as one of a query; without one, only letters count.
    limits
        What one query may use.
    alternatives
        Ways to read the names of one query that are tried.
    facts
        Facts that are kept of a query at most.
    values
        Values that are kept of a query at most.
    either_direction
        See `Grounder`.

    Raises
    ------
    InputError
        A number is below 1.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from pytrace.knowledge_base.connect import open_store
    >>> from pytrace.queries import parse_query
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "towns.tsv"
    >>> _ = path.write_text("Ada_Foah\tcountry\tGhana\n")
    >>> written = "<Ada Foah; country; ?>"
    >>> asked = Asked(0, "Where is Ada Foah?", [GeneratedQuery(written, parse_query(written), -1.0)])
    >>> with open_store(path) as store:
    ...     [found] = QueryRunner(store, EntityLinker(store, None)).run([asked])
    >>> found.outcome, found.values, found.facts[0].text
    ('answered', ('Ghana',), 'Ada Foah country Ghana.')
    """

    def __init__(
        self,
        store: TripleStore,
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
            message = f"facts is {facts} and values {values}; keep at least 1 of each"
            raise InputError(message)
        self._store = store
        self._limits = limits or QueryLimits()
        self._facts = facts
        self._values = values
        self._grounder = Grounder(
            store, linker, encoder=encoder, alternatives=alternatives, either_direction=either_direction
        )

    def run(self, asked: Sequence[Asked]) -> list[KnowledgeQuery]:
        """Run for each question its first query that gives something.

        A query that is none, names what the store does not have, or is not allowed is refused, and the next one tried; so is
        the next way to read a query, and then the next query, where one gives nothing. Each round takes the next query of
        every question that has no answer yet, so that a server is asked few times.

        Parameters
        ----------
        asked
            Questions with their candidates, best first.

        Returns
        -------
        list of KnowledgeQuery
            One a question. Where nothing came back the outcome is "empty", and the query the first that was run; "stopped"
            where a limit ended it, with what had come by then; "refused" where none could be run.
        """
        attempts = [_Attempt(one) for one in asked]
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
            chosen = [one for one in attempts if one.done is None and not one.readings and one.candidates]
            if not chosen:
                return
            valid: list[tuple[_Attempt, GeneratedQuery]] = []
            for attempt in chosen:
                candidate = attempt.candidates.popleft()
                if candidate.query is None:
                    attempt.refused.append((candidate.written, candidate.fault or "it is no query"))
                else:
                    valid.append((attempt, candidate))
            queries = [candidate.query for _, candidate in valid if candidate.query is not None]
            found = self._grounder.ground(queries, [attempt.asked.question for attempt, _ in valid])
            for (attempt, candidate), readings in zip(valid, found, strict=True):
                if isinstance(readings, InputError):
                    attempt.refused.append((candidate.written, str(readings)))
                elif readings and _kind(readings[0].sparql) is None:
                    reason = "it computes something other than one count, which no fact can show; ask for the values"
                    attempt.refused.append((candidate.written, reason))
                else:
                    attempt.written = candidate.written
                    attempt.readings.extend(readings)

    def _round(self, runs: Sequence[tuple[_Attempt, GroundedQuery]]) -> None:
        results = self._store.solutions([grounded.graph for _, grounded in runs], self._limits)
        # Names are asked for once a round.
        keys = dict.fromkeys(
            key
            for result in results
            if isinstance(result, Solutions)
            for solution in result.solutions
            for key in (
                *solution.values.values(),
                *(part for triple in solution.triples for part in (triple.head, triple.tail)),
            )
        )
        names = dict(zip(keys, self._store.names(list(keys)), strict=True))
        for (attempt, grounded), result in zip(runs, results, strict=True):
            if isinstance(result, PytraceError):
                attempt.refused.append((attempt.written, str(result)))
            elif isinstance(result, Exception):
                raise result
            else:
                attempt.first = attempt.first or (attempt.written, grounded)
                attempt.stopped = attempt.stopped or result.stopped
                attempt.done = self._read(attempt, grounded, result, names)

    def _read(
        self, attempt: _Attempt, grounded: GroundedQuery, result: Solutions, names: dict[str, str]
    ) -> KnowledgeQuery | None:
        """Return what a query gave; None if that is nothing."""
        if not result.solutions:
            return None
        triples = dict.fromkeys(triple for solution in result.solutions for triple in solution.triples)
        return self._told(
            attempt,
            grounded,
            values=_values(grounded, result, names)[: self._values],
            facts=tuple(Fact(triple, self._worded(triple, names)) for triple in list(triples)[: self._facts]),
            outcome="stopped" if result.stopped else "answered",
            reason=result.stopped,
        )

    def _worded(self, triple: Triple, names: dict[str, str]) -> str:
        return verbalise(names[triple.head], self._grounder.relation_name(triple.relation), names[triple.tail])

    def _nothing(self, attempt: _Attempt) -> KnowledgeQuery:
        """Return what is told of a question for which no query gave anything."""
        if attempt.first is None:
            reason = attempt.refused[-1][1] if attempt.refused else "there was no query for it"
            return self._told(attempt, None, outcome="refused", reason=reason)
        attempt.written, grounded = attempt.first
        if attempt.stopped:
            return self._told(attempt, grounded, outcome="stopped", reason=attempt.stopped)
        kind = _kind(grounded.sparql)
        if kind in ("ask", "count"):  # that something is not so, or that there are none, is an answer too
            return self._told(attempt, grounded, values=("false" if kind == "ask" else "0",), outcome="answered")
        return self._told(attempt, grounded, outcome="empty")

    def _told(
        self,
        attempt: _Attempt,
        grounded: GroundedQuery | None,
        *,
        outcome: Literal["answered", "empty", "stopped", "refused"],
        values: tuple[str, ...] = (),
        facts: tuple[Fact, ...] = (),
        reason: str = "",
    ) -> KnowledgeQuery:
        return KnowledgeQuery(
            place=attempt.asked.place,
            question=attempt.asked.question,
            store=self._store.name,
            written=attempt.written if grounded is not None else "",
            sparql="" if grounded is None else grounded.sparql,
            links=() if grounded is None else grounded.links,
            refused=tuple(attempt.refused),
            values=values,
            facts=facts,
            outcome=outcome,
            reason=reason,
        )


def _kind(sparql: str) -> _Kind | None:
    """Tell what a query asks for; None for what cannot be told from its solutions."""
    if re.match(r"(?i)\s*ask\b", sparql):
        return "ask"
    if _COUNT.match(sparql):
        return "count"
    return None if _AGGREGATE.search(sparql.partition("{")[0]) else "values"


def _values(grounded: GroundedQuery, result: Solutions, names: dict[str, str]) -> tuple[str, ...]:
    """Return what a query asked for, by name."""
    kind = _kind(grounded.sparql)
    if kind == "ask":
        return ("true" if result.solutions else "false",)
    if kind == "count":
        match = _COUNT.match(grounded.sparql)
        assert match is not None
        found = [solution.values.get(match[2][1:]) for solution in result.solutions]
        counted = len(found) if match[2] == "*" else len([one for one in found if one is not None])
        return (str(len({one for one in found if one is not None}) if match[1] else counted),)
    return tuple(
        dict.fromkeys(
            names[solution.values[variable]]
            for solution in result.solutions
            for variable in grounded.graph.answers
            if variable in solution.values
        )
    )
