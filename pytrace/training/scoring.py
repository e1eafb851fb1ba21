"""How well a query generator does on questions that it never saw: by the letter of its queries, and by what they bring.

Source: Chain of Knowledge, section 4 and table 2, which report the share of correct queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pytrace.errors import InputError
from pytrace.evaluation.scores.significance import share_with_interval
from pytrace.kg.names import normal_form
from pytrace.kg.queries import GeneratedQuery, Query, TripletQuery, query_names
from pytrace.kg.queries.query_records import QueryGenerator
from pytrace.kg.queries.running import Asked
from pytrace.records import KnowledgeQuery
from pytrace.training.clauses import query_shape
from pytrace.training.query_checks import check_query
from pytrace.training.training_records import QueryExample

_TOKEN = re.compile(r"""\b(?:entity|relation):/(?:\\.|[^/\\\n])*/|"(?:\\.|[^"\\\n])*"|[?$]\w+|\w+|[^\s\w]""")
# So many questions are asked together: enough to keep the engine busy, few enough to show how far it is.
_ASKED = 32
_TRUTH = {"yes": "true", "no": "false"}


class Runner(Protocol):
    """Who runs queries: a `pytrace.kg.queries.running.QueryRunner`."""

    def run(self, asked: Sequence[Asked]) -> list[KnowledgeQuery]:
        """Return what each question got."""
        ...


class Share(msgspec.Struct, frozen=True):
    """So many of so many, their share, and the 95 % interval by Wilson; None where there are none."""

    right: int
    of: int
    share: float | None
    low: float | None
    high: float | None

    @classmethod
    def count(cls, outcomes: Sequence[bool | None]) -> Share:
        """Count outcomes; None is not counted."""
        counted = [outcome for outcome in outcomes if outcome is not None]
        return cls(sum(counted), len(counted), *share_with_interval(sum(counted), len(counted)))


class ScoredQuery(msgspec.Struct, frozen=True):
    """What became of one question; `executes` and `hits` are None where there is no knowledge base or no gold answer."""

    id: str
    question: str
    shape: str
    gold: str
    written: str
    parses: bool
    exact: bool
    names: bool
    relations: bool
    executes: bool | None
    hits: bool | None
    values: tuple[str, ...]
    answers: tuple[str, ...]
    reason: str


class Scores(msgspec.Struct, frozen=True):
    """Scores of some questions.

    `parses` counts queries that are whole and only read, `exact` those that equal the gold query but for white space and the
    names of variables, `names` and `relations` those that name the gold query's entities and relations. `executes` counts
    those whose values on the knowledge base are the gold answers, all of them and nothing else; `hits` those with at least
    one of them.
    """

    parses: Share
    exact: Share
    names: Share
    relations: Share
    executes: Share
    hits: Share


class ScoreReport(msgspec.Struct, frozen=True):
    """Scores of all questions and of each shape of query, and every question with its outcome."""

    questions: int
    overall: Scores
    shapes: dict[str, Scores]
    rows: tuple[ScoredQuery, ...]


def normal_query(query: Query) -> str:
    """Return a query with single spaces and with variables numbered in the order in which they stand."""
    if isinstance(query, TripletQuery):
        return " ".join(query.text.split())
    numbers: dict[str, str] = {}
    words = []
    for token in _TOKEN.findall(query.text):
        if token[0] in "?$" and len(token) > 1:
            words.append(numbers.setdefault(token[1:], f"?{len(numbers) + 1}"))
        elif token[0] == '"' or "/" in token:
            words.append(token)
        else:
            words.append(token.lower())
    return " ".join(words)


def score_generator(
    examples: Sequence[QueryExample],
    generator: QueryGenerator,
    *,
    runner: Runner | None = None,
    done: Callable[[int], None] | None = None,
) -> ScoreReport:
    """Ask a generator questions whose queries are known, and compare."""
    if not examples:
        raise InputError("there is no question to score; hold more out (--hold-out), or give a file with at least one")
    rows: list[ScoredQuery] = []
    for first in range(0, len(examples), _ASKED):
        part = examples[first : first + _ASKED]
        offered = generator.generate([one.question for one in part], candidates=1)
        brought: Sequence[KnowledgeQuery | None] = [None] * len(part)
        gold: Sequence[tuple[str, ...]] = [one.answers for one in part]
        if runner is not None:
            brought = runner.run(
                [
                    Asked(place, one.question, given[:1])
                    for place, (one, given) in enumerate(zip(part, offered, strict=True))
                ]
            )
            gold = _gold_values(part, runner)
        for one, given, got, answers in zip(part, offered, brought, gold, strict=True):
            rows.append(_scored(one, given, got, answers))
        if done is not None:
            done(len(rows))
    shapes = sorted({row.shape for row in rows})
    return ScoreReport(
        questions=len(rows),
        overall=_scores(rows),
        shapes={shape: _scores([row for row in rows if row.shape == shape]) for shape in shapes},
        rows=tuple(rows),
    )


def _gold_values(examples: Sequence[QueryExample], runner: Runner) -> list[tuple[str, ...]]:
    """Return the gold answers, where there are none those that the gold query brings."""
    unknown = [one for one in examples if not one.answers]
    if not unknown:
        return [one.answers for one in examples]
    found = runner.run(
        [
            Asked(place, one.question, [GeneratedQuery(one.query.text, one.query, 0.0)])
            for place, one in enumerate(unknown)
        ]
    )
    # What was stopped is not known whole.
    values = iter([one.values if one.outcome == "answered" else () for one in found])
    return [one.answers or next(values) for one in examples]


def _scored(
    example: QueryExample, offered: Sequence[GeneratedQuery], got: KnowledgeQuery | None, answers: tuple[str, ...]
) -> ScoredQuery:
    best = offered[0] if offered else GeneratedQuery("", None, 0.0, "nothing was written")
    query = best.query
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    if query is not None:
        try:
            check_query(query)
            names = query_names(query)
        except InputError:
            query = None
    wanted = query_names(example.query)
    executes = hits = None
    values: tuple[str, ...] = ()
    if got is not None:
        values = got.values
    gold = {normal_form(answer) for answer in answers} - {""}
    if query_shape(example.query).startswith("ask"):
        # Stores say true and false.
        gold = {_TRUTH.get(answer, answer) for answer in gold}
    if got is not None and gold:
        found = {normal_form(value) for value in values} - {""}
        # A query whose rows were cut off has not brought its set of values.
        executes = got.outcome == "answered" and found == gold
        hits = bool(found & gold)
    return ScoredQuery(
        id=example.id,
        question=example.question,
        shape=query_shape(example.query),
        gold=example.query.text,
        written=best.written.strip(),
        parses=query is not None,
        exact=query is not None and normal_query(query) == normal_query(example.query),
        names=query is not None and set(names[0]) == set(wanted[0]),
        relations=query is not None and set(names[1]) == set(wanted[1]),
        executes=executes,
        hits=hits,
        values=values,
        answers=answers,
        reason=best.fault or ("" if got is None else got.reason),
    )


def _scores(rows: Sequence[ScoredQuery]) -> Scores:
    return Scores(
        parses=Share.count([row.parses for row in rows]),
        exact=Share.count([row.exact for row in rows]),
        names=Share.count([row.names for row in rows]),
        relations=Share.count([row.relations for row in rows]),
        executes=Share.count([row.executes for row in rows]),
        hits=Share.count([row.hits for row in rows]),
    )
