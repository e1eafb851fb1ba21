"""How well a query generator does on questions that it never saw: by the letter of its queries, and by what they bring.

Source: Chain of Knowledge, section 4 and table 2, which report the share of correct queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pytrace.errors import InputError
from pytrace.evaluation.scores.significance import share_with_interval
from pytrace.kg.names import normal_form
from pytrace.kg.queries import GeneratedQuery, Query, TripletQuery, query_names
from pytrace.kg.queries.running import Asked, QueryRunner
from pytrace.kg.queries.sampling import QueryGenerator
from pytrace.records import KnowledgeQuery
from pytrace.training.examples import QueryExample
from pytrace.training.query_text import check_query, query_shape, split_query

# So many questions are asked together: enough to keep the engine busy, few enough to show how far it is.
_ASKED = 32
_TRUTH = {"yes": "true", "no": "false"}


class Share(msgspec.Struct, frozen=True):
    """So many of so many, their share, and the 95 % interval by Wilson; None of none."""

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
    """What became of one question."""

    id: str
    question: str
    shape: str
    gold: str
    written: str
    parses: bool
    exact: bool
    names: bool
    relations: bool
    executes: bool | None  # None where there is no knowledge base or no gold answer, as in `hits`
    hits: bool | None
    values: tuple[str, ...]
    answers: tuple[str, ...]
    reason: str


class Scores(msgspec.Struct, frozen=True):
    """Scores of some questions."""

    parses: Share  # whole, and only reads
    exact: Share  # equals the gold query but for white space and the names of variables
    names: Share  # names the gold query's entities
    relations: Share  # names its relations
    executes: Share  # its values on the knowledge base are the gold answers, all of them and nothing else
    hits: Share  # at least one of its values is a gold answer


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
    for token in split_query(query.text):
        match token.kind:
            case "variable":
                words.append(numbers.setdefault(token.text[1:], f"?{len(numbers) + 1}"))
            case "word" | "mark":
                words.append(token.text.lower())
            case _:
                words.append(token.text)
    return " ".join(words)


def score_generator(
    examples: Sequence[QueryExample],
    generator: QueryGenerator,
    *,
    runner: QueryRunner | None = None,
    done: Callable[[int], None] | None = None,
) -> ScoreReport:
    """Ask a generator questions whose queries are known, and compare."""
    if not examples:
        raise InputError("there is no question to score; hold more out (--hold-out), or give a file with at least one")
    rows: list[ScoredQuery] = []
    for first in range(0, len(examples), _ASKED):
        part = examples[first : first + _ASKED]
        offered = generator.generate([example.question for example in part], candidates=1)
        best = [queries[0] if queries else GeneratedQuery("", None, 0.0, "nothing was written") for queries in offered]
        results: Sequence[KnowledgeQuery | None] = [None] * len(part)
        gold = [example.answers for example in part]
        if runner is not None:
            results = _run(runner, part, [queries[:1] for queries in offered])
            gold = _gold_values(part, runner)
        rows += [_scored(*outcome) for outcome in zip(part, best, results, gold, strict=True)]
        if done is not None:
            done(len(rows))
    shapes = sorted({row.shape for row in rows})
    return ScoreReport(
        questions=len(rows),
        overall=_scores(rows),
        shapes={shape: _scores([row for row in rows if row.shape == shape]) for shape in shapes},
        rows=tuple(rows),
    )


def _run(
    runner: QueryRunner, examples: Sequence[QueryExample], queries: Sequence[Sequence[GeneratedQuery]]
) -> list[KnowledgeQuery]:
    pairs = zip(examples, queries, strict=True)
    return runner.run([Asked(index, example.question, offered) for index, (example, offered) in enumerate(pairs)])


def _gold_values(examples: Sequence[QueryExample], runner: QueryRunner) -> list[tuple[str, ...]]:
    """Return the gold answers, where there are none those that the gold query brings."""
    unknown = [example for example in examples if not example.answers]
    results = _run(runner, unknown, [[GeneratedQuery(each.query.text, each.query, 0.0)] for each in unknown])
    # What was stopped is not known whole.
    values = iter([result.values if result.outcome == "answered" else () for result in results])
    return [example.answers or next(values) for example in examples]


def _scored(
    example: QueryExample, best: GeneratedQuery, result: KnowledgeQuery | None, answers: tuple[str, ...]
) -> ScoredQuery:
    query, shape = best.query, query_shape(example.query)
    try:
        if query is not None:
            check_query(query)
    except InputError:
        query = None
    entities, relations = map(set, query_names(example.query))
    written = None if query is None else [set(names) for names in query_names(query)]
    gold = {normal_form(answer) for answer in answers} - {""}
    if shape.startswith("ask"):
        # Stores say true and false.
        gold = {_TRUTH.get(answer, answer) for answer in gold}
    executes = hits = None
    if result is not None and gold:
        values = {normal_form(value) for value in result.values} - {""}
        # A query whose rows were cut off has not brought its set of values.
        executes = result.outcome == "answered" and values == gold
        hits = bool(values & gold)
    return ScoredQuery(
        id=example.id,
        question=example.question,
        shape=shape,
        gold=example.query.text,
        written=best.written.strip(),
        parses=query is not None,
        exact=query is not None and normal_query(query) == normal_query(example.query),
        names=written is not None and written[0] == entities,
        relations=written is not None and written[1] == relations,
        executes=executes,
        hits=hits,
        values=() if result is None else result.values,
        answers=answers,
        reason=best.fault or ("" if result is None else result.reason),
    )


def _scores(rows: Sequence[ScoredQuery]) -> Scores:
    # A score is called as the field of a row that it counts.
    return Scores(**{name: Share.count([getattr(row, name) for row in rows]) for name in Scores.__struct_fields__})
