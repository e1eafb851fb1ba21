"""How well a language model without training writes the queries of PathQuestion, by form and by what it is held to.

A question of PathQuestion has a gold path. As SPARQL it is the whole question; as a triplet it is the path's first hop, asked by
a question of the same entity in which nothing else is sought. Counted are queries that can be read (and, put into SPARQL, run),
those whose relations are the gold ones, and those that are exactly the gold query (names compared by their normal forms).

    python -m benches.query_generators --data ../shared/data/pathquestion/PQ-2H.txt --limit 40 --threads 1
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from pytrace.certify.gold_paths import GoldQuestion, first_of_each_path, read_questions
from pytrace.engine.model_abilities import prompt_style
from pytrace.errors import InputError
from pytrace.kg.fact_store import Relation
from pytrace.kg.names import entity_name, normal_form, relation_name
from pytrace.kg.queries import Query, QueryForm, SparqlQuery, TripletQuery, query_names, replace_names
from pytrace.kg.queries.few_shot import FewShotGenerator
from pytrace.kg.queries.notation import write_name
from pytrace.kg.queries.query_records import GeneratedQuery, Grammar
from pytrace.kg.sparql import rewrite
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.llama.llama_cpp import LlamaCppModel

HELD: dict[str, Grammar] = {"grammar": "words", "relations only": "relations", "free": "none"}


class Task(NamedTuple):
    """A question and its gold query."""

    question: str
    gold: Query


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True, help="Rows of PathQuestion.")
@click.option("--limit", type=click.IntRange(min=1), default=40, show_default=True, help="Questions, spread evenly.")
@click.option("--llm", default="tiny", show_default=True)
@click.option("--encoder", "encoder_name", help="Finds the nearest relations where they are not all shown.")
@click.option("--shown-relations", type=click.IntRange(min=1), default=40, show_default=True)
@click.option(
    "--candidates", type=click.IntRange(min=1), default=1, show_default=True, help="Count the best of so many."
)
@click.option("--threads", type=click.IntRange(min=1))
def main(
    *,
    data: Path,
    limit: int,
    llm: str,
    encoder_name: str | None,
    shown_relations: int,
    candidates: int,
    threads: int | None,
) -> None:
    """Print a table of forms and grammars."""
    rows = first_of_each_path(read_questions(data))
    relations = [Relation(key, relation_name(key)) for key in _relations(rows)]
    chosen = [rows[len(rows) * place // limit] for place in range(min(limit, len(rows)))]
    encoder = OnnxEncoder(registry.resolve(encoder_name, "encoder")) if encoder_name else None
    click.echo(
        f"{len(chosen)} of {len(rows)} paths, {len(relations)} relations, {candidates} candidates; {llm}, "
        f"{threads or 'all'} threads, {platform.machine()}, Python {platform.python_version()}, seed 0"
    )
    heading = f"{'asked':12}{'held to':17}{'read':>7}{'run':>7}{'relations':>11}{'exact':>7}"
    click.echo(f"{heading}{'prompt tokens':>15}{'written tokens':>16}{'seconds':>9}")
    with LlamaCppModel(
        registry.resolve(llm, "language-model"),
        name=llm,
        style=prompt_style(llm),
        threads=threads,
    ) as model:
        for asked, tasks in (("first hop", _first_hops(chosen)), ("whole", _whole(chosen))):
            form: QueryForm = "triplet" if asked == "first hop" else "sparql"
            for held, grammar in HELD.items():
                generator = FewShotGenerator(
                    model,
                    relations,
                    form=form,
                    encoder=encoder,
                    shown_relations=shown_relations,
                    grammar=grammar,
                )
                before, begun = model.usage, time.perf_counter()
                found = generator.generate([task.question for task in tasks], candidates=candidates)
                seconds = time.perf_counter() - begun
                spent = model.usage - before
                shares = _shares(tasks, found)
                click.echo(
                    f"{asked:12}{held:17}{shares[0]:7.2f}{shares[1]:7.2f}{shares[2]:11.2f}{shares[3]:7.2f}"
                    f"{spent.prompt_tokens / len(tasks):15.0f}{spent.generated_tokens / len(tasks):16.1f}{seconds:9.1f}"
                )


def _relations(rows: Sequence[GoldQuestion]) -> list[str]:
    """Return the relations of all paths, the most frequent first, as a store does."""
    counts: dict[str, int] = {}
    for row in rows:
        for step in row.paths[0]:
            counts[step.relation] = counts.get(step.relation, 0) + 1
    return sorted(counts, key=lambda key: (-counts[key], key))


def _first_hops(rows: Sequence[GoldQuestion]) -> list[Task]:
    """Ask for the first hop of each path in the plainest of words, so that only the notation has to be learned."""
    tasks = []
    for row in rows:
        step = row.paths[0][0]
        head, relation = entity_name(step.head), relation_name(step.relation)
        tasks.append(Task(f"what is the {relation} of {head}?", TripletQuery(head, relation, "?")))
    return tasks


def _whole(rows: Sequence[GoldQuestion]) -> list[Task]:
    tasks = []
    for row in rows:
        path = row.paths[0]
        # What is sought is ?x; what lies between comes after it in the alphabet.
        places = [write_name("entity", entity_name(path[0].head)), *"yzuvw"[: len(path) - 1], "x"]
        places = [place if place.startswith("entity") else f"?{place}" for place in places]
        patterns = (
            f"{places[at]} {write_name('relation', relation_name(step.relation))} {places[at + 1]}"
            for at, step in enumerate(path)
        )
        tasks.append(Task(row.question, SparqlQuery(f"select distinct ?x where {{ {' . '.join(patterns)} }}")))
    return tasks


def _shares(tasks: Sequence[Task], found: Sequence[Sequence[GeneratedQuery]]) -> tuple[float, float, float, float]:
    """Return the shares of tasks of which some candidate is read, can be run, has the relations, and is the gold query."""
    counts = [0, 0, 0, 0]
    for task, row in zip(tasks, found, strict=True):
        queries = [one.query for one in row if one.query is not None]
        counts[0] += bool(queries)
        counts[1] += any(map(_runs, queries))
        counts[2] += any(query_names(query)[1] == query_names(task.gold)[1] for query in queries)
        counts[3] += any(_normalised(query) == _normalised(task.gold) for query in queries)
    read, run, relations, exact = (count / len(tasks) for count in counts)
    return read, run, relations, exact


def _runs(query: Query) -> bool:
    try:
        rewrite(replace_names(query, entity=lambda _: "<urn:entity>", relation=lambda _: "<urn:relation>"))
    except InputError:
        return False
    return True


def _normalised(query: Query) -> str:
    return replace_names(
        query, entity=lambda name: f"<{normal_form(name)}>", relation=lambda name: f"<{normal_form(name)}>"
    )


if __name__ == "__main__":
    main()
