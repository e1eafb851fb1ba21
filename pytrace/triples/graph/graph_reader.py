"""`GraphReader`: everything that a knowledge graph can be asked, with memory bounded by a page of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from pytrace.errors import InputError, StoreError
from pytrace.records import Document, Origin, Unit
from pytrace.storage import sqlite
from pytrace.storage.closing import Closing
from pytrace.storage.files import atomic_output
from pytrace.storage.text import canonical, to_sql
from pytrace.triples.graph.database import Database, from_sql, load_json
from pytrace.triples.graph.exchange import export_format, write_jsonl, write_tsv
from pytrace.triples.graph.graph_records import (
    ExtractionStatistics,
    GraphStatistics,
    Recipe,
    StoredDocument,
    density,
    describe_triples,
    unit_of,
)
from pytrace.triples.graph.graph_writer import EDITED, WAITING, prepare
from pytrace.triples.graph.rdf import write_rdf

_PAGE = 256  # rows in memory at a time while iterating
_TABLES = {"c": "contents", "d": "documents", "o": "origins", "t": "triples"}
_STATISTICS = "c.lines, c.parsed, c.dropped, c.repeated, c.truncated, c.failure"

# What is counted of a whole graph, under the names of `GraphStatistics`.
_COUNTS = """
SELECT count(*) AS documents,
  ifnull(sum(c.state = 0), 0) AS waiting,
  ifnull(sum(c.state > 0 AND NOT EXISTS (SELECT 1 FROM triples t WHERE t.content = c.number)), 0) AS without_triples,
  ifnull(sum(c.state = 2), 0) AS edited
FROM documents d JOIN contents c ON c.number = d.content;
SELECT count(*) AS triples FROM documents d JOIN triples t ON t.content = d.content;
WITH facts AS (SELECT * FROM triples WHERE content IN (SELECT content FROM documents))
SELECT (SELECT count(*) FROM (SELECT head FROM facts UNION SELECT tail FROM facts WHERE relation <> '')) AS entities,
  (SELECT count(*) FROM (SELECT DISTINCT head, tail FROM facts WHERE relation <> '' AND head <> tail)) AS edges,
  (SELECT count(DISTINCT relation) FROM facts WHERE relation <> '') AS relations;
SELECT count(*) AS contents, ifnull(sum(lines), 0) AS lines, ifnull(sum(parsed), 0) AS parsed,
  ifnull(sum(dropped), 0) AS dropped, ifnull(sum(repeated), 0) AS repeated,
  ifnull(sum(truncated), 0) AS truncated, ifnull(sum(failure <> ''), 0) AS failures
FROM contents WHERE number IN (SELECT content FROM documents)
"""


class GraphReader(Closing):
    """The reading half of `TripleStore`, over one connection; `TripleStore.snapshot` gives one by itself."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Close the file and let another process write. A closed graph cannot be used."""
        self._database.close()

    @contextmanager
    def snapshot(self) -> Iterator[GraphReader]:
        """Give the graph as it is now, unchanged by what is written to the file meanwhile; for reading."""
        with self._database.snapshot() as database:
            yield GraphReader(database)

    def verify(self) -> int:
        """Read the whole graph, and return how many rows fit their checksums; 0: it was made before there were any.

        Raises
        ------
        StoreError
            Something has changed since it was written.
        """
        return self._database.verify()

    @property
    def recipe(self) -> Recipe:
        """How the triples are extracted."""
        return self._database.recipe()

    @property
    def location(self) -> str:
        """The graph's file, or ``"memory"``, for messages."""
        return self._database.location

    @property
    def writable(self) -> bool:
        """Whether the graph can be changed; one opened for reading cannot."""
        return self._database.writable

    def __len__(self) -> int:
        """Count the documents."""
        with self._database.read() as connection:
            return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def documents(self) -> Iterator[Document]:
        """Iterate over the documents in order, a page of them in memory at a time."""
        return (stored.document for stored in self.stored_documents())

    def pending(self, *, failed: bool = False) -> Iterator[Document]:
        """Iterate over one document of each content that waits for its extraction, in document order.

        With `failed`, those whose extraction failed come, too. What is stored meanwhile does not come again.
        """
        waiting = self.stored_documents(
            f"AND {_lacking(failed=failed)} AND NOT EXISTS (SELECT 1 FROM documents e WHERE e.content = d.content "
            "AND (e.position, e.number) < (d.position, d.number))"
        )
        return (stored.document for stored in waiting)

    def count_pending(self, *, failed: bool = False) -> int:
        """Count what `pending` gives."""
        with self._database.read() as connection:
            (count,) = connection.execute(
                f"SELECT count(*) FROM contents c WHERE {_lacking(failed=failed)} "
                "AND EXISTS (SELECT 1 FROM documents d WHERE d.content = c.number)"
            ).fetchone()
        return int(count)

    def stored_documents(self, condition: str = "") -> Iterator[StoredDocument]:
        """Iterate over the documents with their extraction in order, a page of them in memory at a time."""
        # CROSS JOIN keeps SQLite from going by another index, which it would have to sort for every page.
        rows = self._pages(
            f"SELECT d.position, d.number, d.id, c.title, c.sentences, d.source, {self._origin}, c.number, c.state, {_STATISTICS} "
            "FROM documents d CROSS JOIN contents c ON c.number = d.content "
            f"WHERE (d.position, d.number) > (?, ?) {condition} AND {self._intact('d', 'c')} ORDER BY d.position, d.number",
            (-1, -1),
        )
        for _, _, name, title, sentences, source, origin, content, state, *statistics in rows:
            document = Document(
                from_sql(name), from_sql(title), _sentences(sentences), from_sql(source), _origin_of(origin)
            )
            extraction = None if state == WAITING else _extraction(*statistics)
            yield StoredDocument(document, extraction, state == EDITED, self._triples_of(content, document.id))

    @property
    def _origin(self) -> str:
        """The column that has a document's origin."""
        with self._database.read() as connection:
            if not sqlite.schema_of(connection, "origins"):  # before the first passage, in a file of version 1
                return "NULL"
        return f"(SELECT o.origin FROM origins o WHERE o.document = d.number AND {self._intact('o')})"

    def _intact(self, *aliases: str) -> str:
        """Return the condition that the rows of these tables are as they were written; they are named by their initials."""
        with self._database.read() as connection:
            return " AND ".join(sqlite.intact(connection, _TABLES[alias], alias) for alias in aliases)

    def _pages(self, query: str, last: tuple[Any, ...], *arguments: object) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query, a page of them in memory at a time.

        Each page begins behind the first columns of the row before it, which the query's first placeholders take.
        """
        # No cursor stays open between two pages: a caller may write while it iterates, and a reader of hours does not
        # keep SQLite from clearing its log.
        while True:
            with self._database.read() as connection:
                page = connection.execute(f"{query} LIMIT {_PAGE}", (*last, *arguments)).fetchall()
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1][: len(last)]

    def _member(self, document_id: str, columns: str) -> tuple[Any, ...]:
        """Return columns of a document and its content; InputError if there is none of that id."""
        with self._database.read() as connection:
            row: tuple[Any, ...] | None = connection.execute(
                f"SELECT {columns} FROM documents d JOIN contents c ON c.number = d.content "
                f"WHERE d.id = ? AND {self._intact('d', 'c')}",
                (to_sql(document_id),),
            ).fetchone()
        if row is None:
            raise self._unknown(document_id)
        return row

    def document(self, document_id: str) -> Document:
        """Return the document of that id; InputError if there is none."""
        title, sentences, source, origin = self._member(document_id, f"c.title, c.sentences, d.source, {self._origin}")
        return Document(
            canonical(document_id), from_sql(title), _sentences(sentences), from_sql(source), _origin_of(origin)
        )

    def extraction(self, document_id: str) -> ExtractionStatistics | None:
        """Return how the extraction of a document went, or None if the document waits for it."""
        state, *statistics = self._member(document_id, f"c.state, {_STATISTICS}")
        return None if state == WAITING else _extraction(*statistics)

    def is_edited(self, document_id: str) -> bool:
        """Tell whether a person replaced the document's triples."""
        return bool(self._member(document_id, "c.state") == (EDITED,))

    def failures(self) -> Iterator[tuple[str, str]]:
        """Iterate over (document id, reason) of the documents whose extraction failed, in document order."""
        return self._flagged("c.failure", "c.failure <> ''")

    def cut_off(self) -> Iterator[tuple[str, str]]:
        """Iterate over (document id, title) of the documents at which the extractor's output was cut off, in order."""
        return self._flagged("c.title", "c.truncated <> 0")

    def _flagged(self, column: str, condition: str) -> Iterator[tuple[str, str]]:
        rows = self._pages(
            f"SELECT d.position, d.number, d.id, {column} FROM documents d CROSS JOIN contents c ON c.number = d.content "
            f"WHERE (d.position, d.number) > (?, ?) AND {condition} AND {self._intact('d', 'c')} "
            "ORDER BY d.position, d.number",
            (-1, -1),
        )
        return ((from_sql(name), from_sql(value)) for _, _, name, value in rows)

    def missing(self, documents: Iterable[Document], *, failed: bool = False) -> list[Document]:
        """Return the documents, in the graph or not, whose content has not been extracted, each content once, in order.

        With `failed`, a content whose extraction failed counts as missing, to try it again.
        """
        return list(self.iterate_missing(documents, failed=failed))

    def iterate_missing(self, documents: Iterable[Document], *, failed: bool = False) -> Iterator[Document]:
        """Iterate over what `missing` returns, as documents are asked for."""
        seen: set[bytes] = set()
        for document in documents:
            document, content_hash = prepare(document)  # noqa: PLW2901
            if content_hash in seen:
                continue
            seen.add(content_hash)
            with self._database.read() as connection:
                row = connection.execute(
                    f"SELECT state, failure FROM contents c WHERE hash = ? AND {self._intact('c')}", (content_hash,)
                ).fetchone()
            if row is None or row[0] == WAITING or (failed and row[1]):
                yield document

    def triples(self, documents: Iterable[str | Document] | None = None) -> list[Unit]:
        """Return the triples of some documents in the order asked for, or of all in document order.

        InputError names a document that is not in the graph, StoreError one that has not been extracted yet.
        """
        return list(self.iterate_triples(documents))

    def iterate_triples(self, documents: Iterable[str | Document] | None = None) -> Iterator[Unit]:
        """Iterate over what `triples` returns, a page of triples in memory at a time."""
        for document_id, content in self._contents(documents):
            yield from self._triples_of(content, document_id)

    def _triples_of(self, content: int, document_id: str) -> Iterator[Unit]:
        rows = self._pages(
            "SELECT position, head, relation, tail, sentence, support FROM triples t "
            f"WHERE position > ? AND content = ? AND {self._intact('t')} ORDER BY position",
            (-1,),
            content,
        )
        for _, head, relation, tail, sentence, support in rows:
            yield unit_of(from_sql(head), from_sql(relation), from_sql(tail), document_id, sentence, support)

    def _contents(self, documents: Iterable[str | Document] | None) -> Iterator[tuple[str, int]]:
        """Resolve documents to (id to report, number of the content)."""
        if documents is None:
            query = "SELECT position, number, id, content FROM documents d WHERE (position, number) > (?, ?)"
            for _, _, name, content in self._pages(
                f"{query} AND {self._intact('d')} ORDER BY position, number", (-1, -1)
            ):
                yield from_sql(name), content
            return
        if isinstance(documents, str):
            raise InputError("documents must be a list of ids or documents, not one string")
        for document in documents:
            if isinstance(document, str):
                name = document
                where, key = "number = (SELECT content FROM documents WHERE id = ?)", to_sql(document)
            else:
                prepared, key = prepare(document)
                name, where = prepared.id, "hash = ?"
            with self._database.read() as connection:
                row = connection.execute(
                    f"SELECT number, state FROM contents c WHERE {where} AND {self._intact('c')}", (key,)
                ).fetchone()
            if row is None:
                raise self._unknown(name)
            if row[1] == WAITING:
                raise StoreError(f"document {name!r} in {self.location} has not been extracted yet; resume the build")
            yield canonical(name), row[0]

    def triples_about(self, entity: str, *, limit: int | None = None) -> list[Unit]:
        """Return the triples that have this entity as head or tail, in document order, at most `limit` of them."""
        key = to_sql(entity)
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT t.head, t.relation, t.tail, d.id, t.sentence, t.support FROM ("
                "SELECT content, position FROM triples WHERE head = ? "
                "UNION SELECT content, position FROM triples WHERE tail = ? AND relation <> '') found "
                "JOIN triples t ON t.content = found.content AND t.position = found.position "
                f"JOIN documents d ON d.content = found.content WHERE {self._intact('t', 'd')} ORDER BY d.position, d.number, t.position LIMIT ?",
                (key, key, -1 if limit is None else limit),
            ).fetchall()
        return [
            unit_of(from_sql(head), from_sql(relation), from_sql(tail), from_sql(document_id), sentence, support)
            for head, relation, tail, document_id, sentence, support in rows
        ]

    def entities(self) -> Iterator[str]:
        """Iterate over the distinct entities in the order of their code points, a page in memory at a time."""
        member = "EXISTS (SELECT 1 FROM documents d WHERE d.content = t.content)"
        # Each half stops after a page of its index; an integer sorts before any text.
        query = (
            f"SELECT * FROM (SELECT DISTINCT head FROM triples t WHERE head > ?1 AND {member} ORDER BY 1 LIMIT {_PAGE}) "
            "UNION SELECT * FROM (SELECT DISTINCT tail FROM triples t WHERE tail > ?1 AND relation <> '' "
            f"AND {member} ORDER BY 1 LIMIT {_PAGE}) ORDER BY 1"
        )
        return (from_sql(entity) for (entity,) in self._pages(query, (-1,)))

    def relations(self) -> list[str]:
        """Return the distinct relations in the order of their code points; there are few beside the triples."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT DISTINCT relation FROM triples WHERE relation <> '' "
                "AND content IN (SELECT content FROM documents) ORDER BY relation"
            ).fetchall()
        return [from_sql(relation) for (relation,) in rows]

    def statistics(self, documents: Iterable[str | Document] | None = None) -> GraphStatistics:
        """Count the graph, or with `documents` the entities, triples and density of these documents alone.

        Source
        ------
        TRACE, Appendix C.3, Table 5.
        """
        if documents is not None:
            chosen = list(documents)
            return msgspec.structs.replace(describe_triples(self.iterate_triples(chosen)), documents=len(chosen))
        counts: dict[str, int] = {}
        with self._database.read() as connection:
            for query in _COUNTS.split(";\n"):
                cursor = connection.execute(query)
                names = [column for column, *_ in cursor.description]
                counts.update(zip(names, cursor.fetchone(), strict=True))
        return GraphStatistics(**counts, density=density(counts["entities"], counts["edges"]))

    def export(self, path: str | Path | BinaryIO, *, format: str | None = None) -> int:
        """Write the graph to a file, whole or not at all, or to a binary stream, and return the number of documents.

        The format is ``"jsonl"`` (everything), ``"ntriples"`` or ``"turtle"`` (documents and triples with their
        provenance as reified statements), or ``"tsv"`` (head, relation, tail alone). By default the file's suffix
        tells: .jsonl, .nt, .ttl or .tsv. An export that is imported and exported again gives the same bytes.
        InputError refuses an unknown format, StoreError a file that cannot be written.
        """
        target = Path(path) if isinstance(path, (str, Path)) else path
        kind = export_format(target, format)
        with self.snapshot() as frozen:
            if isinstance(target, Path):
                with atomic_output(target) as stream:
                    frozen._write(stream, kind)
            else:
                frozen._write(target, kind)
            return len(frozen)

    def _write(self, stream: BinaryIO, kind: str) -> None:
        if kind == "jsonl":
            write_jsonl(stream, self.recipe, self.stored_documents())
        elif kind == "tsv":
            write_tsv(stream, self.iterate_triples())
        else:
            write_rdf(stream, kind, self.stored_documents(), self.entities(), self.relations())

    def _unknown(self, document_id: str) -> InputError:
        return InputError(
            f"there is no document {document_id!r} in the knowledge graph in {self.location}; check its id"
        )


def _lacking(*, failed: bool) -> str:
    return f"(c.state = {WAITING} OR c.failure <> '')" if failed else f"c.state = {WAITING}"


def _origin_of(text: str | None) -> Origin | None:
    try:
        return None if text is None else msgspec.convert(load_json(text), Origin)
    except msgspec.ValidationError:  # of a later version
        return None


def _sentences(text: str) -> tuple[str, ...]:
    sentences = load_json(text)
    return tuple(sentences) if isinstance(sentences, list) else ()


def _extraction(
    lines: int, parsed: int, dropped: int, repeated: int, truncated: int, failure: str | bytes
) -> ExtractionStatistics:
    return ExtractionStatistics(lines, parsed, dropped, repeated, bool(truncated), from_sql(failure))
