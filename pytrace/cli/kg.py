"""``pytrace kg``: look into knowledge graphs on disk, exchange and change them; ``kg build`` has its own module."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Literal

import click
import msgspec

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, click_group, option
from pytrace.cli.kg_build import Build
from pytrace.cli.shared_options import ENCODER
from pytrace.documents.read_report import ReadReport
from pytrace.engine.loading import Engine
from pytrace.errors import DataError, InputError
from pytrace.records import Document, Triple, Unit
from pytrace.triples.graph import GraphReader, TripleStore
from pytrace.triples.graph.exchange import FORMATS, read_triples
from pytrace.triples.graph.graph_records import row_of

_FAILURES_SHOWN = 5


# What most commands of this group are told first.
_DIRECTORY = argument("DIR")
_SKIP_BAD = option(
    "Leave out lines of TSV, JSON lines and N-Triples that cannot be read: they are named at the end, and the exit status is 3. "
    "Turtle has no lines of its own: a fault is an error all the same."
)
_FORMAT = option("Format of the file.  [default: by suffix]", "--format", choices=FORMATS)


class Show(Command):
    """Show a graph in numbers, and triples with the sentences that support them."""

    directory: Path = _DIRECTORY
    document_id: str | None = option("Only the triples of this document.", "--document", metavar="ID")
    entity: str | None = option("Only the triples with this entity as head or tail.", metavar="NAME")
    limit: int = option("Maximum number of triples.", ge=0, default=20)
    only_failures: bool = option("List the documents that failed or were cut off.", "--failures")
    as_json: bool

    def run(self) -> Output | None:
        document_id, entity, limit = self.document_id, self.entity, self.limit
        if self.only_failures:
            if document_id is not None or entity is not None:
                raise click.UsageError(
                    "--failures lists the documents of the whole graph; leave out --document and --entity"
                )
            _show_failures(self.directory, as_json=self.as_json)
            return None
        # Another program may write meanwhile; what is shown belongs together.
        with TripleStore.open(self.directory, mode="read") as graph, graph.snapshot() as frozen:
            statistics = frozen.statistics()
            failures = list(islice(frozen.failures(), limit if self.as_json else _FAILURES_SHOWN))
            chosen = _chosen(frozen, document_id, entity, limit + 1)  # one more tells whether there are more
            sources = list(_sources(frozen, chosen[:limit]))
            document = None if document_id is None else frozen.document(document_id)
            waiting = document_id is not None and frozen.extraction(document_id) is None
            recipe, location = frozen.recipe, frozen.location

        def show_text() -> None:
            if document is None and entity is None:
                _print_statistics(location, msgspec.structs.asdict(statistics), msgspec.structs.asdict(recipe))
                for name, reason in failures:
                    common.print_text(common.printable(f"failed: {name}: {reason}"))
                if statistics.failures > len(failures):
                    common.print_text(f"failed: {statistics.failures - len(failures)} more (--failures lists them)")
            elif document is not None:
                state = "waits for its extraction" if waiting else f"from {document.source}" if document.source else ""
                common.print_text(common.printable(f"{document.id}: {document.title}{f' ({state})' if state else ''}"))
            for triple, title, text in sources:
                _print_triple(triple, title, text)
            if not sources and limit and not waiting:
                common.print_text("no triples" if entity is None else common.printable(f"no triples about {entity!r}"))
            elif len(chosen) > limit > 0:
                common.print_text(f"(the first {limit}; --limit shows more)")

        return Output(
            {
                "graph": location,
                "recipe": recipe,
                "recipe_hash": recipe.hash,
                "statistics": statistics,
                "failures": [{"document_id": name, "reason": reason} for name, reason in failures],
                "document": document,
                "triples": [
                    {
                        **dict(zip(("head", "relation", "tail", "sentence", "support"), row_of(unit), strict=True)),
                        "document_id": unit.document_id,
                        "title": title,
                        "text": text,
                    }
                    for unit, title, text in sources
                ],
            },
            show_text,
        )


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
        # Printed as they are read: there may be more than fit into memory.
        none = True
        for state, documents in (("failed", frozen.failures()), ("cut off", frozen.cut_off())):
            for name, text in documents:
                common.print_text(common.printable(f"{state}: {name}: {text}"))
                none = False
    if none:
        common.print_text("no document failed or was cut off")


def _chosen(graph: GraphReader, document_id: str | None, entity: str | None, limit: int) -> list[Unit]:
    if entity is not None:
        # Of one document only some of these are, so all are read.
        about = graph.triples_about(entity, limit=limit if document_id is None else None)
        return [triple for triple in about if document_id in (None, triple.document_id)][:limit]
    if document_id is None:
        return list(islice(graph.iterate_triples(), limit))
    if graph.extraction(document_id) is None:
        return []
    return list(islice(graph.iterate_triples([document_id]), limit))


def _sources(graph: GraphReader, triples: list[Unit]) -> Iterator[tuple[Unit, str, str | None]]:
    """Yield triples with the titles and the sentences that they came from."""
    document: Document | None = None
    for triple in triples:  # those of a document follow each other, so it is read once
        if document is None or document.id != triple.document_id:
            document = graph.document(triple.document_id)
        yield triple, document.title, document.sentences[triple.sentence] if triple.sentence >= 0 else None


def _print_statistics(location: str, statistics: dict[str, object], recipe: dict[str, object]) -> None:
    common.print_text(location)
    rows = [(name, str(value)) for name, value in statistics.items() if name != "density"]
    rows.append(("density", f"{statistics['density']:.4%}"))
    rows += [(name, common.printable(value)) for name, value in recipe.items() if value]
    common.print_table(("", ""), [(name.replace("_", " "), value) for name, value in rows])
    common.print_text()


def _print_triple(triple: Unit, title: str, text: str | None) -> None:
    common.print_text(common.printable(triple.text))
    ratio = row_of(triple)[-1]
    support = f", support {ratio:.0f}" if ratio else ""
    source = f"document {triple.document_id}"
    if text is not None:
        source = f"{text} [{title}; {source}, sentence {triple.sentence}{support}]"
    common.print_text(common.printable(f"    {source}"))


class Export(Command):
    """Write a graph as JSON lines (all of it), RDF (documents and triples) or TSV (triples alone).

    The file appears when all of it is written, and replaces one of that name.
    """

    directory: Path = _DIRECTORY
    out: str = option("Output file (- for standard output).", metavar="FILE|-")
    format_name: str | None = _FORMAT
    as_json: bool

    def check(self) -> None:
        if self.out == "-" and self.as_json:
            raise click.UsageError("--json and --out - both want standard output; name a file")

    def run(self) -> Output | None:
        out = self.out
        with TripleStore.open(self.directory, mode="read") as graph:
            if out == "-":
                # The formats are UTF-8 in any locale.
                graph.export(sys.stdout.buffer, format=self.format_name or "jsonl")
                return None
            count = graph.export(out, format=self.format_name)
        return Output({"documents": count, "file": out}, f"wrote {count} documents to {common.printable(out)}")


class Import(Command):
    """Make a graph of a file: one that 'kg export' wrote, or any N-Triples, Turtle or TSV of triples.

    Nothing is imported unless the whole file can be read, or --skip-bad is given.
    """

    file: Path = argument("FILE")
    out: Path = option("A new graph's directory.", metavar="DIR")
    format_name: str | None = _FORMAT
    skip_bad: bool = _SKIP_BAD

    def run(self) -> Output:
        out = self.out
        # Before the directory of a graph is made that would stay empty.
        if not self.file.is_file():
            raise DataError("there is no such file; correct the path", path=self.file)
        with TripleStore.open(out, mode="create") as graph:
            report = ReadReport()
            graph.import_(self.file, format=self.format_name, report=report if self.skip_bad else None)
            statistics = graph.statistics()
        return Output(
            {"graph": out, "statistics": statistics, "bad": report.bad},
            f"imported {statistics.documents} documents and {statistics.triples} triples into {out}",
            report.bad,
        )


class Remove(Command):
    """Delete documents and their triples; if one of the ids is not there, none is deleted."""

    directory: Path = _DIRECTORY
    document_ids: tuple[str, ...] = argument("DOCUMENT_ID...", required=True)

    def run(self) -> Output:
        names = list(dict.fromkeys(self.document_ids))  # one named twice is not missing the second time
        with TripleStore.open(self.directory) as graph:
            graph.remove(names)
            left = len(graph)
        return Output({"removed": names, "documents": left}, f"removed {len(names)} documents; {left} are left")


class Edit(Command):
    """Replace a document's triples by others; a triple without a sentence gets the one that supports it best."""

    directory: Path = _DIRECTORY
    document_id: str = argument("DOCUMENT_ID")
    file: Path = option(
        "All triples for the document: .tsv (head, relation, tail) or .jsonl (also the sentence).",
        "--triples",
        metavar="FILE",
    )

    def run(self) -> Output:
        document_id = self.document_id
        triples = read_triples(self.file)
        with TripleStore.open(self.directory) as graph:
            triples = _grounded(graph, graph.document(document_id), triples)
            try:
                changed = graph.replace_triples(document_id, triples)
            except InputError as error:
                raise DataError(str(error), path=self.file) from error  # the store knows not where the triples are from
        text = f"{common.printable(document_id)} has {len(triples)} triples now"
        if len(changed) > 1:
            others = ", ".join(name for name in changed if name != document_id)
            text += f"\nso have the documents with the same words: {common.printable(others)}"
        return Output({"documents": changed, "triples": len(triples)}, text)


def _grounded(graph: GraphReader, document: Document, triples: list[Unit]) -> list[Unit]:
    """Give triples without a sentence the one they had before, or the best match."""
    known = {}
    if graph.extraction(document.id) is not None:
        known = {row_of(old)[:3]: old for old in graph.iterate_triples([document.id])}
    result = []
    for triple in triples:
        old = known.get(row_of(triple)[:3])
        if triple.sentence >= 0 or not isinstance(triple, Triple):  # text is its own support
            result.append(triple)
        elif old is not None:
            result.append(old)
        else:
            from pytrace.triples.parsing import locate

            result.extend(locate(document, [triple]))
    return result


class Index(Command):
    """Compile a knowledge graph for `pytrace certify`: triples, names and the vectors of their sentences.

    SOURCE is a file of triples (TSV, JSON lines, N-Triples, Turtle) or the directory of a graph. A build that was ended
    goes on where it was when the same command is run again.
    """

    source: Path = argument()
    out: Path = option("The knowledge base's directory.")
    format: str | None = option("Format of the source.  [default: by suffix]", choices=FORMATS)
    skip_bad: bool = _SKIP_BAD
    vectors: Literal["float32", "int8"] = option(
        "Type of stored vectors: int8 takes a quarter of the space and is exact up to its rounding.",
        default="float32",
    )
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.kg import KnowledgeBase

        out, encoder = self.out, self.models.encoder
        started = time.perf_counter()
        processes.last_words("the same command goes on with what is stored")
        with ExitStack() as stack:
            known = encoded = 0
            advance: Callable[..., None] | None = None

            def show(done: int, total: int) -> None:
                nonlocal known, encoded, advance
                if advance is None:  # the first call says what an earlier build left
                    known = encoded = done
                    advance = stack.enter_context(common.progress("encoding triples", total - done))
                advance(done - encoded)
                encoded = done

            report = ReadReport()
            skipped = report if self.skip_bad else None
            base = KnowledgeBase.build(
                self.source, out, encoder, progress=show, format=self.format, report=skipped, vectors=self.vectors
            )
        seconds = time.perf_counter() - started
        size = sum(path.stat().st_size for path in out.iterdir())
        entities, relations = len(base.columns.entity_keys), len(base.columns.relation_keys)
        document = {
            "knowledge_base": out,
            "triples": len(base),
            "entities": entities,
            "relations": relations,
            "encoder": encoder.name,
            "dimension": encoder.dimension,
            "encoded": len(base) - known,
            "seconds": seconds,
            "bytes": size,
            "bad": report.bad,
        }
        text = (
            f"{out}: {len(base)} triples, {entities} entities, {relations} relations; "
            f"{len(base) - known} triples encoded now, {known} known before\n{common.human_size(size)} in {seconds:.1f} s"
        )
        return Output(document, text, report.bad)


class Verify(Command):
    """Compare all that DIR holds with its checksums: a graph, or a knowledge base that 'kg index' made."""

    directory: Path = _DIRECTORY

    def run(self) -> Output:
        from pytrace.kg.knowledge_base_files import BaseFiles, is_knowledge_base

        directory = self.directory
        if is_knowledge_base(directory):
            files = BaseFiles(directory, None)
            files.verify()
            count, text = files.manifest.triples, f"{files.manifest.triples:,} triples, all intact"
        else:
            with TripleStore.open(directory, mode="read") as graph:
                count = graph.verify()
            text = f"{count:,} rows, all intact"
            if not count:
                text = (
                    "SQLite finds its pages in order; its rows have no checksums, since an older version made it: they get "
                    "them when it is changed next"
                )
        return Output({"directory": directory, "checked": count, "intact": True}, f"{directory}: {text}")


kg = click_group(
    """Build knowledge graphs of documents, look into them, exchange them with other programs, change them by hand.

    DIR is the directory of a graph. Any number of programs may read it while one writes.
    """,
    *(Build, Show, Export, Import, Remove, Edit, Index, Verify),
)
