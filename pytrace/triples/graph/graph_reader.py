"""`GraphReader`: everything that a knowledge graph can be asked, with memory bounded by a page of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from pytrace.errors import InputError, StoreError
from pytrace.records import Document, Triple
from pytrace.storage.closing import Closing
from pytrace.storage.text import canonical, to_sql
from pytrace.triples.graph.database import Database, from_sql, load_json
from pytrace.triples.graph.graph_records import ExtractionStatistics, GraphStatistics, Recipe, density, describe_triples
from pytrace.triples.graph.graph_writer import EDITED, WAITING, prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


_PAGE = 256  # rows in memory at a time while iterating
_STATISTICS = "lines, parsed, dropped, repeated, truncated, failure"


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

    @property
    def recipe(self) -> Recipe:
        """How the triples are extracted."""
        return self._database.recipe()

    @property
    def place(self) -> str:
        """The graph's file, or ``"memory"``, for messages."""
        return self._database.place

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
        yield from self._documents("")

    def pending(self, *, failed: bool = False) -> Iterator[Document]:
        """Iterate over one document of each content that waits for its extraction, in document order.

        With `failed`, those whose extraction failed come, too. What is stored meanwhile does not come again.
        """
        yield from self._documents(
            f"AND {_lacking(failed=failed)} AND NOT EXISTS (SELECT 1 FROM documents e WHERE e.content = d.content "
            "AND (e.position, e.number) < (d.position, d.number))"
        )

    def count_pending(self, *, failed: bool = False) -> int:
        """Count what `pending` gives."""
        with self._database.read() as connection:
            (count,) = connection.execute(
                f"SELECT count(*) FROM contents c WHERE {_lacking(failed=failed)} "
                "AND EXISTS (SELECT 1 FROM documents d WHERE d.content = c.number)"
            ).fetchone()
        return int(count)

    def _documents(self, condition: str) -> Iterator[Document]:
        # CROSS JOIN keeps SQLite from going by another index, which it would have to sort for every page.
        query = (
            "SELECT d.position, d.number, d.id, c.title, c.sentences, d.source FROM documents d "
            "CROSS JOIN contents c ON c.number = d.content "
            f"WHERE (d.position, d.number) > (?, ?) {condition} ORDER BY d.position, d.number LIMIT {_PAGE}"
        )
        last = (-1, -1)
        while True:
            with self._database.read() as connection:
                page = connection.execute(query, last).fetchall()
            if not page:
                return
            for _, _, name, title, sentences, source in page:
                yield Document(from_sql(name), from_sql(title), _sentences(sentences), from_sql(source))
            last = page[-1][:2]

    def document(self, document_id: str) -> Document:
        """Return the document of that id; InputError if there is none."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT c.title, c.sentences, d.source FROM documents d JOIN contents c ON c.number = d.content "
                "WHERE d.id = ?",
                (to_sql(document_id),),
            ).fetchone()
        if row is None:
            raise self._unknown(document_id)
        return Document(canonical(document_id), from_sql(row[0]), _sentences(row[1]), from_sql(row[2]))

    def extraction(self, document_id: str) -> ExtractionStatistics | None:
        """Return how the extraction of a document went, or None if the document waits for it."""
        with self._database.read() as connection:
            row = connection.execute(
                f"SELECT c.state, {_STATISTICS} FROM documents d JOIN contents c ON c.number = d.content WHERE d.id = ?",
                (to_sql(document_id),),
            ).fetchone()
        if row is None:
            raise self._unknown(document_id)
        return None if row[0] == WAITING else _extraction(row[1:])

    def is_edited(self, document_id: str) -> bool:
        """Tell whether a person replaced the document's triples."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT c.state FROM documents d JOIN contents c ON c.number = d.content WHERE d.id = ?",
                (to_sql(document_id),),
            ).fetchone()
        if row is None:
            raise self._unknown(document_id)
        return bool(row[0] == EDITED)

    def failures(self) -> Iterator[tuple[str, str]]:
        """Iterate over (document id, reason) of the documents whose extraction failed, in document order."""
        return self._flagged("c.failure", "c.failure <> ''")

    def cut_off(self) -> Iterator[tuple[str, str]]:
        """Iterate over (document id, title) of the documents at which the extractor's output was cut off, in order."""
        return self._flagged("c.title", "c.truncated <> 0")

    def _flagged(self, column: str, condition: str) -> Iterator[tuple[str, str]]:
        query = (
            f"SELECT d.position, d.number, d.id, {column} FROM documents d CROSS JOIN contents c ON c.number = d.content "
            f"WHERE (d.position, d.number) > (?, ?) AND {condition} "
            f"ORDER BY d.position, d.number LIMIT {_PAGE}"
        )
        last = (-1, -1)
        while True:
            with self._database.read() as connection:
                page = connection.execute(query, last).fetchall()
            if not page:
                return
            for _, _, name, value in page:
                yield from_sql(name), from_sql(value)
            last = page[-1][:2]

    def missing(self, documents: Iterable[Document], *, failed: bool = False) -> list[Document]:
        """Return the documents whose content has not been extracted, each content once, in the order given.

        Parameters
        ----------
        documents
            Documents, in the graph or not.
        failed
            Whether a content whose extraction failed counts as missing, to try it again.
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
                    "SELECT state, failure FROM contents WHERE hash = ?", (content_hash,)
                ).fetchone()
            if row is None or row[0] == WAITING or (failed and row[1]):
                yield document

    def triples(self, documents: Iterable[str | Document] | None = None) -> list[Triple]:
        """Return the triples of some documents in the order asked for, or of all in document order.

        Raises
        ------
        InputError
            If a document is not in the graph.
        StoreError
            If a document asked for has not been extracted yet.
        """
        return list(self.iterate_triples(documents))

    def iterate_triples(self, documents: Iterable[str | Document] | None = None) -> Iterator[Triple]:
        """Iterate over what `triples` returns, a page of triples in memory at a time."""
        for document_id, content in self._contents(documents):
            yield from self._triples_of(content, document_id)

    def _triples_of(self, content: int, document_id: str) -> Iterator[Triple]:
        last = -1
        while True:
            with self._database.read() as connection:
                page = connection.execute(
                    "SELECT position, head, relation, tail, sentence, support FROM triples "
                    f"WHERE content = ? AND position > ? ORDER BY position LIMIT {_PAGE}",
                    (content, last),
                ).fetchall()
            for _, head, relation, tail, sentence, support in page:
                yield Triple(from_sql(head), from_sql(relation), from_sql(tail), document_id, sentence, support)
            if len(page) < _PAGE:
                return
            last = page[-1][0]

    def _contents(self, documents: Iterable[str | Document] | None) -> Iterator[tuple[str, int]]:
        """Resolve documents to (id to report, number of the content)."""
        if documents is None:
            yield from self._all_contents()
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
                row = connection.execute(f"SELECT number, state FROM contents WHERE {where}", (key,)).fetchone()
            if row is None:
                raise self._unknown(name)
            if row[1] == WAITING:
                raise StoreError(f"document {name!r} in {self.place} has not been extracted yet; resume the build")
            yield canonical(name), row[0]

    def _all_contents(self) -> Iterator[tuple[str, int]]:
        last = (-1, -1)
        while True:
            with self._database.read() as connection:
                page = connection.execute(
                    "SELECT position, number, id, content FROM documents "
                    f"WHERE (position, number) > (?, ?) ORDER BY position, number LIMIT {_PAGE}",
                    last,
                ).fetchall()
            for _, _, name, content in page:
                yield from_sql(name), content
            if len(page) < _PAGE:
                return
            last = page[-1][:2]

    def triples_about(self, entity: str, *, limit: int | None = None) -> list[Triple]:
        """Return the triples that have this entity as head or tail, in document order, at most `limit` of them."""
        key = to_sql(entity)
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT t.head, t.relation, t.tail, d.id, t.sentence, t.support FROM ("
                "SELECT content, position FROM triples WHERE head = ? "
                "UNION SELECT content, position FROM triples WHERE tail = ? AND relation <> '') found "
                "JOIN triples t ON t.content = found.content AND t.position = found.position "
                "JOIN documents d ON d.content = found.content ORDER BY d.position, d.number, t.position LIMIT ?",
                (key, key, -1 if limit is None else limit),
            ).fetchall()
        return [
            Triple(from_sql(head), from_sql(relation), from_sql(tail), from_sql(document_id), sentence, support)
            for head, relation, tail, document_id, sentence, support in rows
        ]

    def entities(self) -> Iterator[str]:
        """Iterate over the distinct entities in the order of their code points, a page in memory at a time."""
        member = "EXISTS (SELECT 1 FROM documents d WHERE d.content = t.content)"
        # Each half stops after a page of its index; an integer sorts before any text.
        query = (
            f"SELECT * FROM (SELECT DISTINCT head FROM triples t WHERE head > ?1 AND {member} ORDER BY 1 LIMIT {_PAGE}) "
            "UNION SELECT * FROM (SELECT DISTINCT tail FROM triples t WHERE tail > ?1 AND relation <> '' "
            f"AND {member} ORDER BY 1 LIMIT {_PAGE}) ORDER BY 1 LIMIT {_PAGE}"
        )
        last: object = -1
        while True:
            with self._database.read() as connection:
                page = connection.execute(query, (last,)).fetchall()
            if not page:
                return
            for (entity,) in page:
                yield from_sql(entity)
            last = page[-1][0]

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
        with self._database.read() as connection:
            total, waiting, empty, edited = connection.execute(
                "SELECT count(*), ifnull(sum(c.state = 0), 0), "
                "ifnull(sum(c.state > 0 AND NOT EXISTS (SELECT 1 FROM triples t WHERE t.content = c.number)), 0), "
                "ifnull(sum(c.state = 2), 0) FROM documents d JOIN contents c ON c.number = d.content"
            ).fetchone()
            (triples,) = connection.execute(
                "SELECT count(*) FROM documents d JOIN triples t ON t.content = d.content"
            ).fetchone()
            within = "content IN (SELECT content FROM documents)"
            entities, edges = connection.execute(
                f"SELECT (SELECT count(*) FROM (SELECT head FROM triples WHERE {within} "
                f"UNION SELECT tail FROM triples WHERE relation <> '' AND {within})), "
                "(SELECT count(*) FROM (SELECT DISTINCT head, tail FROM triples "
                f"WHERE relation <> '' AND head <> tail AND {within}))"
            ).fetchone()
            (relations,) = connection.execute(
                f"SELECT count(DISTINCT relation) FROM triples WHERE relation <> '' AND {within}"
            ).fetchone()
            contents, lines, parsed, dropped, repeated, truncated, failures = connection.execute(
                "SELECT count(*), ifnull(sum(lines), 0), ifnull(sum(parsed), 0), ifnull(sum(dropped), 0), "
                "ifnull(sum(repeated), 0), ifnull(sum(truncated), 0), ifnull(sum(failure <> ''), 0) FROM contents "
                "WHERE number IN (SELECT content FROM documents)"
            ).fetchone()
        return GraphStatistics(
            documents=total,
            contents=contents,
            waiting=waiting,
            without_triples=empty,
            edited=edited,
            triples=triples,
            entities=entities,
            relations=relations,
            edges=edges,
            density=density(entities, edges),
            lines=lines,
            parsed=parsed,
            dropped=dropped,
            repeated=repeated,
            truncated=truncated,
            failures=failures,
        )

    def export(self, path: str | Path | BinaryIO, *, format: str | None = None) -> int:
        """Write the graph to a file, whole or not at all, and return the number of documents.

        Parameters
        ----------
        path
            The file, replaced if it exists, or a binary stream.
        format
            ``"jsonl"`` (everything), ``"ntriples"`` or ``"turtle"`` (documents and triples with their
            provenance as reified statements), or ``"tsv"`` (head, relation, tail alone). By default the file's suffix
            tells: .jsonl, .nt, .ttl or .tsv. An export that is imported and exported again gives the same bytes.

        Raises
        ------
        InputError
            If the format is unknown.
        StoreError
            If the file cannot be written.
        """
        from pytrace.triples.graph.exchange import export

        return export(self, path, format=format)

    def _unknown(self, document_id: str) -> InputError:
        return InputError(f"there is no document {document_id!r} in the knowledge graph in {self.place}; check its id")


def _lacking(*, failed: bool) -> str:
    return f"(c.state = {WAITING} OR c.failure <> '')" if failed else f"c.state = {WAITING}"


def _sentences(text: str) -> tuple[str, ...]:
    sentences = load_json(text)
    return tuple(sentences) if isinstance(sentences, list) else ()


def _extraction(row: tuple[int, int, int, int, int, str | bytes]) -> ExtractionStatistics:
    return ExtractionStatistics(*row[:4], bool(row[4]), from_sql(row[5]))
