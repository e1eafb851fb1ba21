"""``pytrace kg build``: documents become a knowledge graph on disk, resumable after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.loading import ModelOptions, model_options, settings_option

if TYPE_CHECKING:
    from pytrace.triples import Extraction

FAILURES_SHOWN = 5


@click.command()
@click.option("--docs", type=click.Path(path_type=Path), required=True, help="Documents: a file or a folder.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The graph's directory.")
@click.option("--resume", is_flag=True, help="Go on with, or bring up to date, the graph that is there.")
@click.option("--retry", is_flag=True, help="Extract again the documents for which sentences stand in.")
@settings_option
@model_options
@common.json_option
def build(
    *,
    docs: Path,
    out: Path,
    resume: bool,
    retry: bool,
    settings: tuple[str, ...],
    models: ModelOptions,
    as_json: bool,
) -> None:
    """Extract the triples of documents into a graph (sentences or documents with --set unit=...).

    Every document is stored as soon as it is done; a killed build goes on with --resume and repeats none. With --resume a
    changed corpus is followed: new and changed documents are extracted, deleted ones leave the graph.
    """
    from pytrace.documents import ReadReport, read_documents
    from pytrace.graph import KnowledgeGraph
    from pytrace.methods.profiles import trace_settings
    from pytrace.methods.trace import make_extractor
    from pytrace.triples import build_graph

    report = ReadReport()
    documents = read_documents(docs, report=report)
    extractor = make_extractor(
        models.model, models.encoder, trace_settings("trace", models.llm, ("unit=triple", *settings))
    )
    with KnowledgeGraph.open(out, recipe=extractor.recipe, mode="resume" if resume else "create") as graph:
        changes = graph.sync(documents)
        for skipped in report.skipped:
            click.echo(f"pytrace: skipped {skipped.source} ({skipped.title}): {skipped.reason}", err=True)
        before = graph.statistics()
        troubled: list[str] = []
        waiting = before.waiting + (before.failures if retry else 0)
        with common.progress("extracting triples", waiting) as advance:

            def done(extraction: Extraction) -> None:
                if extraction.statistics.failure:
                    troubled.append(f"{extraction.document.title}: {extraction.statistics.failure}")
                advance()

            extracted = build_graph(graph, extractor, graph.documents(), done=done, retry=retry)
        statistics = graph.statistics()
    usage = models.model.usage
    if as_json:
        common.print_json(
            {
                "graph": out,
                "extracted": extracted,
                "changes": changes,
                "skipped": report.skipped,
                "failures": troubled,
                "statistics": statistics,
                "usage": usage,
            }
        )
        return
    common.print_text(
        f"{out}: {statistics.documents} documents, {statistics.triples} triples, {statistics.entities} entities; "
        f"{extracted} documents extracted now, {changes.unchanged} known before, {len(changes.removed)} removed"
    )
    common.print_text(
        f"{statistics.lines} lines written by the model: {statistics.parsed} kept, {statistics.dropped} dropped, "
        f"{statistics.repeated} repeated; {statistics.truncated} documents cut off"
    )
    for line in troubled[:FAILURES_SHOWN]:
        common.print_text(f"no sound triple: {line}")
    if len(troubled) > FAILURES_SHOWN:
        common.print_text(f"no sound triple: {len(troubled) - FAILURES_SHOWN} more (--json lists them)")
    if usage.seconds:
        common.print_text(
            f"{usage.prompt_tokens} prompt tokens asked for, {usage.evaluated_tokens} evaluated, "
            f"{usage.generated_tokens} generated in {usage.seconds:.1f} s"
        )
