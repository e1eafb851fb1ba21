"""``pytrace certify paths``: gold reasoning paths for questions that have a SPARQL query, or topics and answers."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from pytrace.cli import common
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import GoldQuestion
    from pytrace.certify.gold_paths import GoldPaths, GoldRow
    from pytrace.kg import KnowledgeBase
    from pytrace.kg.sparql_store import KnowledgeStore

_NAMED = 10

Way = Literal["given", "sparql", "search"]


class _Outcome(msgspec.Struct, frozen=True):
    """Where a question's paths are from, how many there are, and why none or not all."""

    id: str
    way: Way
    paths: int
    reason: str
    stopped: str


@click.command()
@click.option(
    "--kg",
    type=click.Path(path_type=Path),
    required=True,
    help="The graph: RDF, TSV, JSON lines or a graph of 'kg build'.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), required=True, help="Questions: PathQuestion's text, or JSON lines."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.jsonl", help="Where the rows go.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions.")
@click.option(
    "--max-hops", type=click.IntRange(min=1, max=8), default=4, show_default=True, help="The most triples of a path."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="For one query's answers; what is found by then is kept.",
)
@common.json_option
def paths(*, kg: Path, data: Path, out: Path, limit: int | None, max_hops: int, seconds: float, as_json: bool) -> None:
    """Write questions with their gold paths, for the other commands of 'certify'.

    A row that has paths keeps them. One with a query (`sparql`) gets those that lead from its topics to its answers in
    what the query matches; one with neither, the shortest ones between topics and answers in the whole graph. FILE.jsonl
    is there when all is done, and not before.
    """
    from pytrace.certify.gold_paths import check_paths, question_line, read_rows
    from pytrace.storage.files import atomic_output

    if out.is_dir():
        raise InputError(f"--out {out} is a folder; name a file for the rows")
    rows = read_rows(data, limit=limit)
    graph = _Graph(kg)
    questions: list[GoldQuestion] = []
    outcomes: list[_Outcome] = []
    with common.progress("looking for paths", len(rows)) as advance:
        for row in rows:
            question, outcome = _solved(row, graph, max_hops, seconds)
            questions.append(question)
            outcomes.append(outcome)
            advance()
    absent = check_paths(graph.base, questions)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_output(out) as stream:
        stream.writelines(map(question_line, questions))
    if as_json:
        common.print_json(_document(out, outcomes, absent))
        return
    _print(out, outcomes)
    if absent:
        first = absent[0]
        turned = ", though it has it with head and tail exchanged" if first.reversed else ""
        click.echo(
            f"pytrace: {len(absent)} triples of gold paths are no facts of the graph, for instance {first.question_id}: "
            f"{common.printable(first.triple.text)}{turned}",
            err=True,
        )


class _Graph:
    """The graph in the two forms that it is searched in, each made when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def base(self) -> KnowledgeBase:
        """The triples as a knowledge base without vectors, for nothing is compared by meaning here."""
        import numpy as np

        from pytrace.errors import DataError
        from pytrace.kg import KnowledgeBase, compile_triples
        from pytrace.kg.graph_sources import read_source

        source = read_source(self._path)
        try:
            columns = compile_triples(source.triples, names=source.names)
        except DataError:
            raise
        except InputError as error:
            raise DataError(str(error), path=self._path) from error
        return KnowledgeBase(columns, np.zeros((len(columns.triples), 0), dtype=np.float32))

    @cached_property
    def store(self) -> KnowledgeStore:
        """The graph as SPARQL sees it."""
        from pytrace.kg.sparql_store import KnowledgeStore

        return KnowledgeStore.load(self._path)


def _solved(row: GoldRow, graph: _Graph, max_hops: int, seconds: float) -> tuple[GoldQuestion, _Outcome]:
    question = row.question
    if question.paths:
        return question, _Outcome(question.id, "given", len(question.paths), "", "")
    way: Way = "sparql" if row.sparql else "search"
    found = _found(row, graph, max_hops, seconds)
    question = msgspec.structs.replace(question, paths=found.paths)
    return question, _Outcome(question.id, way, len(found.paths), found.reason, found.stopped)


def _found(row: GoldRow, graph: _Graph, max_hops: int, seconds: float) -> GoldPaths:
    from pytrace.certify.gold_paths import GoldPaths, find_gold_paths, gold_paths_from_sparql

    question = row.question
    if not row.sparql:
        if not question.topics or not question.answers:
            missing = " nor ".join(name for name in ("topics", "answers") if not getattr(question, name))
            return GoldPaths((), f"the row has neither paths nor a query, and no {missing}", "")
        return find_gold_paths(graph.base, question.topics, question.answers, max_hops=max_hops)
    store = graph.store  # a fault of the graph ends the command, one of a query is told of its row
    try:
        return gold_paths_from_sparql(
            store, row.sparql, topics=question.topics, answers=question.answers, max_hops=max_hops, seconds=seconds
        )
    except InputError as error:
        return GoldPaths((), str(error), "")


def _document(out: Path, outcomes: list[_Outcome], absent: object) -> dict[str, Any]:
    return {
        "out": out,
        "questions": len(outcomes),
        "with_paths": sum(one.paths > 0 for one in outcomes),
        "paths": sum(one.paths for one in outcomes),
        "absent": absent,
        "outcomes": outcomes,
    }


def _print(out: Path, outcomes: list[_Outcome]) -> None:
    counts = Counter((one.way, min(one.paths, 2)) for one in outcomes)
    common.print_text(
        f"{sum(one.paths > 0 for one in outcomes)} of {len(outcomes)} questions have gold paths, "
        f"{sum(one.paths for one in outcomes)} in all; written to {common.printable(str(out))}"
    )
    ways = sorted({one.way for one in outcomes})
    common.print_table(
        ("PATHS ARE", "QUESTIONS", "NONE", "ONE", "MORE"),
        [
            (way, str(counts[way, 0] + counts[way, 1] + counts[way, 2]), *(str(counts[way, n]) for n in range(3)))
            for way in ways
        ],
    )
    reasons = Counter(one.reason for one in outcomes if one.reason)
    for reason, count in reasons.most_common(_NAMED):
        click.echo(f"pytrace: no path for {count} of them: {common.printable(reason)}", err=True)
    if len(reasons) > _NAMED:
        click.echo(f"pytrace: {len(reasons) - _NAMED} more reasons were left out; --json names them all", err=True)
    stopped = [one for one in outcomes if one.stopped]
    if stopped:
        click.echo(
            f"pytrace: {len(stopped)} may have more paths, for instance {stopped[0].id}: {stopped[0].stopped}", err=True
        )
