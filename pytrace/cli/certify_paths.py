"""``pytrace certify paths``: gold reasoning paths for questions that have a SPARQL query, or topics and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from pytrace.cli import common
from pytrace.cli.commands import Command, Output, option
from pytrace.cli.shared_options import LIMIT, ROWS_OUT
from pytrace.errors import InputError, StoreError

if TYPE_CHECKING:
    from pytrace.certify.gold_paths import AbsentTriple, GoldPaths, GoldRow
    from pytrace.check_records import GoldQuestion
    from pytrace.kg import KnowledgeBase
    from pytrace.kg.local_store import LocalStore

_NAMED = 10

Way = Literal["given", "sparql", "search"]


class _Outcome(msgspec.Struct, frozen=True):
    """Where a question's paths are from, how many there are, and why none or not all."""

    id: str
    way: Way
    paths: int
    reason: str
    stopped: str


class Paths(Command):
    """Write questions with their gold paths, for the other commands of 'certify'.

    A row that has paths keeps them. One with a query (`sparql`) gets those that lead from its topics to its answers in
    what the query matches; one with neither, the shortest ones between topics and answers in the whole graph. Without topics
    these are the entities that its question names. Rows of GrailQA and ComplexWebQuestions are read as they are. FILE.jsonl
    is there when all is done, and not before.
    """

    kg: Path = option("The graph: RDF, TSV, JSON lines or a graph of 'kg build'.")
    data: Path = option("Questions: PathQuestion's text, or JSON lines.")
    out: Path = ROWS_OUT
    limit: int | None = LIMIT
    max_hops: int = option("The most triples of a path.", ge=1, le=8, default=4)
    seconds: float = option("For one query's answers; what is found by then is kept.", gt=0, default=10.0)

    def run(self) -> Output:
        from pytrace.certify.gold_paths import check_paths, question_line, read_rows
        from pytrace.storage.files import atomic_output

        out = self.out
        if out.is_dir():  # now, for the rows are written when all is done
            raise InputError(f"--out {out} is a folder; name a file for the rows")
        rows = read_rows(self.data, limit=self.limit)
        questions: list[GoldQuestion] = []
        outcomes: list[_Outcome] = []
        with common.progress("looking for paths", len(rows)) as advance:
            for row in rows:
                question, outcome = self._solved(row)
                questions.append(question)
                outcomes.append(outcome)
                advance()
        absent = check_paths(self._base, questions)
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_output(out) as stream:
            stream.writelines(map(question_line, questions))
        document = {
            "out": out,
            "questions": len(outcomes),
            "with_paths": sum(outcome.paths > 0 for outcome in outcomes),
            "paths": sum(outcome.paths for outcome in outcomes),
            "absent": absent,
            "outcomes": outcomes,
        }
        return Output(document, lambda: _print(out, outcomes, absent))

    @cached_property
    def _base(self) -> KnowledgeBase:
        """The triples as a knowledge base without vectors, for nothing is compared by meaning here."""
        import numpy as np

        from pytrace.errors import DataError
        from pytrace.kg import KnowledgeBase, compile_triples
        from pytrace.kg.graph_sources import read_source

        source = read_source(self.kg)
        try:
            columns = compile_triples(source.triples, names=source.names, aliases=source.aliases)
        except DataError:  # it names its file already
            raise
        except InputError as error:
            raise DataError(str(error), path=self.kg) from error
        return KnowledgeBase(columns, np.zeros((len(columns.triples), 0), dtype=np.float32))

    @cached_property
    def _store(self) -> LocalStore:
        """The graph as SPARQL sees it, in a process of its own, whose queries end when they take too long or too much."""
        from pytrace.kg.local_store import LocalStore

        store = LocalStore.open(self.kg)
        click.get_current_context().call_on_close(store.close)
        return store

    def _solved(self, row: GoldRow) -> tuple[GoldQuestion, _Outcome]:
        question = row.question
        if question.paths:
            return question, _Outcome(question.id, "given", len(question.paths), "", "")
        way: Way = "sparql" if row.sparql else "search"
        result = self._search(row)
        question = msgspec.structs.replace(question, paths=result.paths)
        return question, _Outcome(question.id, way, len(result.paths), result.reason, result.stopped)

    def _search(self, row: GoldRow) -> GoldPaths:
        from pytrace.certify.gold_paths import GoldPaths, find_gold_paths, gold_paths_from_sparql, topics_in

        question = row.question
        if not row.sparql:
            if not question.answers:
                return GoldPaths((), "the row has neither paths nor a query, and no answers", "")
            topics = question.topics or topics_in(self._base, question)
            if not topics:
                return GoldPaths((), "the row has no topics, and its question names no entity of the graph", "")
            return find_gold_paths(self._base, topics, question.answers, max_hops=self.max_hops)
        store = self._store  # a fault of the graph ends the command, one of a query is told of its row
        try:
            return gold_paths_from_sparql(
                store,
                row.sparql,
                topics=question.topics,
                answers=question.answers,
                max_hops=self.max_hops,
                seconds=self.seconds,
            )
        except (InputError, StoreError) as error:
            return GoldPaths((), str(error), "")


def _print(out: Path, outcomes: list[_Outcome], absent: Sequence[AbsentTriple]) -> None:
    counts = Counter((outcome.way, min(outcome.paths, 2)) for outcome in outcomes)  # none, one or more
    common.print_text(
        f"{sum(outcome.paths > 0 for outcome in outcomes)} of {len(outcomes)} questions have gold paths, "
        f"{sum(outcome.paths for outcome in outcomes)} in all; written to {common.printable(out)}"
    )
    common.print_records(
        sorted({outcome.way for outcome in outcomes}),
        (
            ("PATHS ARE", lambda way: way),
            ("QUESTIONS", lambda way: counts[way, 0] + counts[way, 1] + counts[way, 2]),
            ("NONE", lambda way: counts[way, 0]),
            ("ONE", lambda way: counts[way, 1]),
            ("MORE", lambda way: counts[way, 2]),
        ),
    )
    reasons = Counter(outcome.reason for outcome in outcomes if outcome.reason).most_common()
    common.remark_first([f"no path for {count} of them: {reason}" for reason, count in reasons], _NAMED, "more reasons")
    stopped = [outcome for outcome in outcomes if outcome.stopped]
    if stopped:
        common.remark(f"{len(stopped)} may have more paths, for instance {stopped[0].id}: {stopped[0].stopped}")
    if absent:
        first = absent[0]
        turned = ", though it has it with head and tail exchanged" if first.reversed else ""
        common.remark(
            f"{len(absent)} triples of gold paths are no facts of the graph, for instance {first.question_id}: "
            f"{common.printable(first.triple.text)}{turned}"
        )
