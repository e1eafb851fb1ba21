"""``pytrace ask``: answer a question from documents, with the chains and sentences it rests on."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pytrace.cli import common
from pytrace.cli.answer_text import answer_document, print_answer
from pytrace.cli.loading import ModelOptions, model_options, settings_option
from pytrace.errors import InputError
from pytrace.methods.profiles import METHODS

if TYPE_CHECKING:
    from pytrace.methods.baselines import Rag
    from pytrace.methods.trace import Trace
    from pytrace.records import Answer, Document


@click.command()
@click.argument("question")
@click.option("--docs", type=click.Path(path_type=Path), help="Documents: a file or a folder.")
@click.option("--kg", type=click.Path(path_type=Path), help="A knowledge graph made by 'pytrace kg build'.")
@click.option("--method", type=click.Choice(METHODS), default="trace", show_default=True, help="How to answer.")
@click.option(
    "--retrieve",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="From a larger corpus, use this many documents nearest to the question.",
)
@click.option("--explain", is_flag=True, help="Show all chains, votes, tokens and seconds.")
@settings_option
@model_options
@common.json_option
def ask(
    *,
    question: str,
    docs: Path | None,
    kg: Path | None,
    method: str,
    retrieve: int,
    explain: bool,
    settings: tuple[str, ...],
    models: ModelOptions,
    as_json: bool,
) -> None:
    """Answer QUESTION from documents, with the reasoning chains and the sentences they came from.

    Give --docs, --kg, or both: with --kg the units are the graph's triples, and no document is read by the model again.
    """
    if not question.strip():
        message = "the question is empty; ask something"
        raise InputError(message)
    documents = read_corpus(docs, kg)
    chosen, answer = answer_one(
        question, documents, kg=kg, method=method, retrieve=retrieve, settings=settings, models=models
    )
    if as_json:
        common.print_json(answer_document(answer, chosen, explain=explain))
    else:
        print_answer(answer, chosen, explain=explain)


def read_corpus(docs: Path | None, kg: Path | None) -> list[Document]:
    """Read documents, and name what was passed over on stderr."""
    from pytrace.documents import ReadReport, read_documents
    from pytrace.graph import KnowledgeGraph

    if docs is not None:
        report = ReadReport()
        documents = list(read_documents(docs, report=report))
        for skipped in report.skipped:
            click.echo(f"pytrace: skipped {skipped.source} ({skipped.title}): {skipped.reason}", err=True)
        return documents
    if kg is not None:
        with KnowledgeGraph.open(kg, mode="read") as graph:
            return list(graph.documents())
    message = "there is nothing to answer from; give --docs FILE|FOLDER or --kg DIR"
    raise InputError(message)


def answer_one(
    question: str,
    documents: list[Document],
    *,
    kg: Path | None,
    method: str,
    retrieve: int,
    settings: tuple[str, ...],
    models: ModelOptions,
) -> tuple[list[Document], Answer]:
    """Retrieve, answer, and show on stderr how far it is."""
    from pytrace.graph import KnowledgeGraph
    from pytrace.retrieval import nearest_documents

    chosen = (
        nearest_documents(question, documents, models.encoder, retrieve) if len(documents) > retrieve else documents
    )
    with (
        common.progress("extracting triples", len(chosen)) as advance,
        KnowledgeGraph.open(kg, mode="read") if kg is not None else nullcontext() as graph,
    ):
        answerer = make_method(method, models, settings, graph=graph, extracted=lambda _: advance())
        answer = answerer.answer([question], [chosen])[0]
    if len(chosen) < len(documents):
        note = f"used the {len(chosen)} documents nearest to the question, of {len(documents)}"
        answer = msgspec.structs.replace(answer, notes=(*answer.notes, note))
    return chosen, answer


def make_method(
    method: str, models: ModelOptions, settings: tuple[str, ...], *, graph: Any = None, extracted: Any = None
) -> Trace | Rag:
    """Make a method by its name, with the settings that its model has by default."""
    from pytrace.methods.baselines import Rag
    from pytrace.methods.profiles import trace_settings
    from pytrace.methods.trace import Trace

    chosen = trace_settings(method, models.llm, settings)
    if method == "rag":
        return Rag(models.model, reader_demonstrations=chosen.reader_demonstrations)
    return Trace(models.model, models.encoder, chosen, graph=graph, name=method, extracted=extracted)
