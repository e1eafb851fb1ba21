"""``pytrace kg``: look into knowledge graphs on disk, exchange and change them; ``kg build`` has its own module."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from pytrace.cli import common
from pytrace.cli.kg_build import build
from pytrace.cli.kg_index import index
from pytrace.errors import DataError, InputError
from pytrace.records import Document, Triple, Unit
from pytrace.triples.graph import GraphReader, TripleStore
from pytrace.triples.graph.exchange import FORMATS, read_triples
from pytrace.triples.graph.graph_records import row_of

_FAILURES_SHOWN = 5
_T = TypeVar("_T")


@click.group()
def kg() -> None:
    """Build knowledge graphs of documents, look into them, exchange them with other programs, change them by hand.

    DIR is the directory of a graph. Any number of programs may read it while one writes.
    """


kg.add_command(build)
kg.add_command(index)


class _Source(msgspec.Struct):
    """A triple with the words that it came from."""

    unit: Unit
    title: str
    text: str | None


@kg.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--document", "document_id", metavar="ID", help="Only the triples of this document.")
@click.option("--entity", metavar="NAME", help="Only the triples with this entity as head or tail.")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many triples.")
@click.option("--failures", "only_failures", is_flag=True, help="List the documents that failed or were cut off.")
@common.json_option
def show(
    *,
    directory: Path,
    document_id: str | None,
    entity: str | None,
    limit: int,
    only_failures: bool,
    as_json: bool,
) -> None:
    """Show a graph in numbers, and triples with the sentences that support them."""
    if only_failures:
        if document_id is not None or entity is not None:
            raise click.UsageError(
                "--failures lists the documents of the whole graph; leave out --document and --entity"
            )
        _show_failures(directory, as_json=as_json)
        return
    with TripleStore.open(directory, mode="read") as graph, graph.snapshot() as frozen:
        statistics = frozen.statistics()
        failures = _first(frozen.failures(), _FAILURES_SHOWN if not as_json else limit)
        chosen = _chosen(frozen, document_id, entity, limit + 1)  # one more tells whether there are more
        found = list(_sources(frozen, chosen[:limit]))
        document = None if document_id is None else frozen.document(document_id)
        waiting = document_id is not None and frozen.extraction(document_id) is None
        recipe = frozen.recipe
        place = frozen.location
    if as_json:
        common.print_json(
            {
                "graph": place,
                "recipe": recipe,
                "recipe_hash": recipe.hash,
                "statistics": statistics,
                "failures": [{"document_id": name, "reason": reason} for name, reason in failures],
                "document": document,
                "triples": [
                    {
                        **dict(
                            zip(("head", "relation", "tail", "sentence", "support"), row_of(item.unit), strict=True)
                        ),
                        "document_id": item.unit.document_id,
                        "title": item.title,
                        "text": item.text,
                    }
                    for item in found
                ],
            }
        )
        return
    if document is None and entity is None:
        _print_statistics(place, msgspec.structs.asdict(statistics), {**msgspec.structs.asdict(recipe)})
        for name, reason in failures:
            common.print_text(common.printable(f"failed: {name}: {reason}"))
        if statistics.failures > len(failures):
            common.print_text(f"failed: {statistics.failures - len(failures)} more (--failures lists them)")
    elif document is not None:
        state = "waits for its extraction" if waiting else f"from {document.source}" if document.source else ""
        common.print_text(common.printable(f"{document.id}: {document.title}{f' ({state})' if state else ''}"))
    for item in found:
        _print_triple(item)
    if not found and limit and not waiting:
        common.print_text("no triples" if entity is None else common.printable(f"no triples about {entity!r}"))
    elif len(chosen) > limit > 0:
        common.print_text(f"(the first {limit}; --limit shows more)")


def _show_failures(directory: Path, *, as_json: bool) -> None:
    """List, whatever their number, the documents for which sentences stand in and those whose output was cut off."""
    with TripleStore.open(directory, mode="read") as graph, graph.snapshot() as frozen:
        if as_json:
            common.stream_json(
                {"graph": frozen.location},
                {
                    "failures": ({"document_id": name, "reason": reason} for name, reason in frozen.failures()),
                    "cut_off": ({"document_id": name, "title": title} for name, title in frozen.cut_off()),
                },
            )
            return
        count = 0
        for name, reason in frozen.failures():
            common.print_text(common.printable(f"failed: {name}: {reason}"))
            count += 1
        for name, title in frozen.cut_off():
            common.print_text(common.printable(f"cut off: {name}: {title}"))
            count += 1
    if not count:
        common.print_text("no document failed or was cut off")


def _chosen(graph: GraphReader, document_id: str | None, entity: str | None, limit: int) -> list[Unit]:
    if entity is not None:
        about = graph.triples_about(entity, limit=limit if document_id is None else None)
        return [triple for triple in about if document_id in (None, triple.document_id)][:limit]
    if document_id is None:
        return _first(graph.iterate_triples(), limit)
    if graph.extraction(document_id) is None:
        return []
    return _first(graph.iterate_triples([document_id]), limit)


def _first(items: Iterable[_T], limit: int) -> list[_T]:
    return list(islice(items, limit))


def _sources(graph: GraphReader, triples: list[Unit]) -> Iterator[_Source]:
    document: Document | None = None
    for triple in triples:
        if document is None or document.id != triple.document_id:
            document = graph.document(triple.document_id)
        yield _Source(triple, document.title, document.sentences[triple.sentence] if triple.sentence >= 0 else None)


def _print_statistics(place: str, statistics: dict[str, object], recipe: dict[str, object]) -> None:
    common.print_text(place)
    rows = [(name, str(value)) for name, value in statistics.items() if name != "density"]
    rows.append(("density", f"{statistics['density']:.4%}"))
    rows += [(name, common.printable(str(value))) for name, value in recipe.items() if value]
    common.print_table(("", ""), [(name.replace("_", " "), value) for name, value in rows])
    common.print_text()


def _print_triple(item: _Source) -> None:
    triple = item.unit
    common.print_text(common.printable(triple.text))
    if item.text is None:
        common.print_text(common.printable(f"    document {triple.document_id}"))
        return
    _, _, _, _, support_ratio = row_of(triple)
    support = f", support {support_ratio:.0f}" if support_ratio else ""
    common.print_text(
        common.printable(
            f"    {item.text} [{item.title}; document {triple.document_id}, sentence {triple.sentence}{support}]"
        )
    )


_format_option = click.option(
    "--format", "format_name", type=click.Choice(FORMATS), help="By default the suffix of the file tells."
)


@kg.command("export")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="FILE|-", help="The file to write (- for standard output).")
@_format_option
@common.json_option
def export_command(*, directory: Path, out: str, format_name: str | None, as_json: bool) -> None:
    """Write a graph as JSON lines (all of it), RDF (documents and triples) or TSV (triples alone).

    The file appears when all of it is written, and replaces one of that name.
    """
    if out == "-" and as_json:
        raise click.UsageError("--json and --out - both want standard output; name a file")
    with TripleStore.open(directory, mode="read") as graph:
        if out == "-":
            graph.export(sys.stdout.buffer, format=format_name or "jsonl")
            return
        count = graph.export(out, format=format_name)
    if as_json:
        common.print_json({"documents": count, "file": out})
    else:
        common.print_text(f"wrote {count} documents to {common.printable(out)}")


@kg.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="A new graph's directory.")
@_format_option
@common.json_option
def import_command(*, file: Path, out: Path, format_name: str | None, as_json: bool) -> None:
    """Make a graph of a file: one that 'kg export' wrote, or any N-Triples, Turtle or TSV of triples.

    Nothing is imported unless the whole file can be read.
    """
    if not file.is_file():
        raise DataError("there is no such file; correct the path", path=file)
    with TripleStore.open(out, mode="create") as graph:
        graph.import_(file, format=format_name)
        statistics = graph.statistics()
    if as_json:
        common.print_json({"graph": out, "statistics": statistics})
    else:
        common.print_text(f"imported {statistics.documents} documents and {statistics.triples} triples into {out}")


@kg.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("document_ids", metavar="DOCUMENT_ID...", nargs=-1, required=True)
@common.json_option
def remove(*, directory: Path, document_ids: tuple[str, ...], as_json: bool) -> None:
    """Delete documents and their triples; if one of the ids is not there, none is deleted."""
    names = list(dict.fromkeys(document_ids))
    with TripleStore.open(directory) as graph:
        graph.remove(names)
        left = len(graph)
    if as_json:
        common.print_json({"removed": names, "documents": left})
    else:
        common.print_text(f"removed {len(names)} documents; {left} are left")


@kg.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("document_id", metavar="DOCUMENT_ID")
@click.option(
    "--triples",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="All triples that the document shall have: .tsv (head, relation, tail) or .jsonl (sentence, too).",
)
@common.json_option
def edit(*, directory: Path, document_id: str, file: Path, as_json: bool) -> None:
    """Replace a document's triples by others; a triple without a sentence gets the one that supports it best."""
    triples = read_triples(file)
    with TripleStore.open(directory) as graph:
        triples = _grounded(graph, graph.document(document_id), triples)
        try:
            changed = graph.replace_triples(document_id, triples)
        except InputError as error:
            raise DataError(str(error), path=file) from error
    if as_json:
        common.print_json({"documents": changed, "triples": len(triples)})
        return
    common.print_text(common.printable(f"{document_id} has {len(triples)} triples now"))
    if len(changed) > 1:
        others = [name for name in changed if name != document_id]
        common.print_text(common.printable(f"so have the documents with the same words: {', '.join(others)}"))


def _grounded(graph: GraphReader, document: Document, triples: list[Unit]) -> list[Unit]:
    """Give triples without a sentence the one they had before, or the best match."""
    known = {}
    if graph.extraction(document.id) is not None:
        known = {row_of(old)[:3]: old for old in graph.iterate_triples([document.id])}
    result = []
    for triple in triples:
        old = known.get(row_of(triple)[:3])
        if triple.sentence >= 0 or not isinstance(triple, Triple):
            result.append(triple)
        elif old is not None:
            result.append(old)
        else:
            from pytrace.triples.parsing import locate

            result.extend(locate(document, [triple]))
    return result
