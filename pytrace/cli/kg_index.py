"""``pytrace kg index``: a knowledge graph of any form becomes a knowledge base that steps of reasoning are checked against."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from pytrace.cli import common
from pytrace.cli.loading import encoder_options
from pytrace.engine.loading import EncoderLoader
from pytrace.triples.graph.exchange import FORMATS


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The knowledge base's directory.")
@click.option("--format", type=click.Choice(FORMATS), help="If the suffix of a file does not tell it.")
@encoder_options
@common.json_option
def index(*, source: Path, out: Path, format: str | None, models: EncoderLoader, as_json: bool) -> None:
    """Compile a knowledge graph for `pytrace certify`: triples, names and the vectors of their sentences.

    SOURCE is a file of triples (TSV, JSON lines, N-Triples, Turtle) or the directory of a graph. A build that was ended
    goes on where it was when the same command is run again.
    """
    from pytrace.kg import KnowledgeBase

    encoder = models.encoder
    started = time.perf_counter()
    with ExitStack() as stack:
        known = 0
        counted: Callable[[], None] | None = None
        encoded = 0

        def show(done: int, total: int) -> None:
            nonlocal known, counted, encoded
            if counted is None:
                known = encoded = done
                counted = stack.enter_context(common.progress("encoding triples", total - done))
            for _ in range(done - encoded):
                counted()
            encoded = done

        base = KnowledgeBase.build(source, out, encoder, progress=show, format=format)
    seconds = time.perf_counter() - started
    size = sum(path.stat().st_size for path in out.iterdir())
    columns = base.columns
    if as_json:
        common.print_json(
            {
                "knowledge_base": out,
                "triples": len(base),
                "entities": len(columns.entity_keys),
                "relations": len(columns.relation_keys),
                "encoder": encoder.name,
                "dimension": encoder.dimension,
                "encoded": len(base) - known,
                "seconds": seconds,
                "bytes": size,
            }
        )
        return
    common.print_text(
        f"{out}: {len(base)} triples, {len(columns.entity_keys)} entities, {len(columns.relation_keys)} relations; "
        f"{len(base) - known} triples encoded now, {known} known before"
    )
    common.print_text(f"{common.human_size(size)} in {seconds:.1f} s")
