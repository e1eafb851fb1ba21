"""Changes to a graph within one transaction: what a document and its triples are in rows, and many of them at once."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pytrace.errors import InputError, StoreError
from pytrace.records import Document, Unit
from pytrace.storage.text import canonical, dump_json, to_sql
from pytrace.triples.graph.graph_records import ExtractionStatistics, Recipe, row_of

Row = tuple[int, str | bytes, str | bytes, str | bytes, int, float]

WAITING, EXTRACTED, EDITED = 0, 1, 2
INSERT_TRIPLE = "INSERT INTO triples VALUES (?, ?, ?, ?, ?, ?, ?)"


class Writer:
    """Stores many documents in the transaction of an import."""

    def __init__(self, connection: sqlite3.Connection, *, recipe: Recipe, location: str) -> None:
        self.connection = connection
        self.documents = 0
        self._recipe = recipe
        self._location = location
        # What this import has stored: documents of the same words must agree on their triples.
        self._contents: set[int] = set()

    def take_recipe(self, recipe: Recipe) -> None:
        """Give the recipe of what is imported to a graph that is empty; another graph must have the same."""
        if recipe.hash == self._recipe.hash:
            return
        if self.connection.execute("SELECT 1 FROM documents LIMIT 1").fetchone():
            raise StoreError(
                f"the file was extracted in another way than {self._location} "
                f"({'; '.join(self._recipe.differences(recipe))}); import it into a directory of its own"
            )
        self.connection.execute("UPDATE settings SET value = ? WHERE name = 'recipe'", (recipe.to_json(),))
        self._recipe = recipe

    def put(
        self,
        document: Document,
        triples: Sequence[Unit] | None,
        statistics: ExtractionStatistics | None = None,
        *,
        state: int = EXTRACTED,
    ) -> None:
        """Store a document and, unless `triples` is None, its extraction; nothing of one that is refused."""
        document, content_hash = prepare(document)
        rows = None if triples is None else rows_of(document, triples)
        content = content_number(self.connection, document, content_hash)
        if rows is not None and content in self._contents and stored_rows(self.connection, content) != rows:
            raise InputError(
                f"document {document.id!r} has the same words as one before it, but other triples; "
                "give both the same triples, or change a title"
            )
        place_document(self.connection, document, content, None)
        self.documents += 1
        if rows is None or content in self._contents:
            return
        self._contents.add(content)
        if statistics is None:
            statistics = ExtractionStatistics(lines=len(rows), parsed=len(rows))
        store_extraction(self.connection, content, rows, statistics, state=state)

    @contextmanager
    def loose_triples(self, path: Path) -> Iterator[Callable[[Unit], None]]:
        """Take the triples that no document claims, one by one; they become one document named after the file."""
        document, content_hash = prepare(Document(path.name, path.name, (), str(path)))
        content = None
        count = 0

        def put(triple: Unit) -> None:
            nonlocal content, count
            if content is None:
                if self.connection.execute(
                    "SELECT 1 FROM documents d JOIN contents c ON c.number = d.content WHERE d.id = ? OR c.hash = ?",
                    (to_sql(document.id), content_hash),
                ).fetchone():
                    raise InputError(
                        f"{self._location} already has triples of a file named {path.name}; rename the file"
                    )
                content = content_number(self.connection, document, content_hash)
                place_document(self.connection, document, content, None)
                self.connection.execute("DELETE FROM triples WHERE content = ?", (content,))
                self.documents += 1
            row = (*map(to_sql, row_of(triple)[:3]), -1, 0.0)
            self.connection.execute(INSERT_TRIPLE, (content, count, *row))
            count += 1

        yield put
        if content is not None:
            self.connection.execute(
                "UPDATE contents SET state = ?, lines = ?, parsed = ? WHERE number = ?",
                (EXTRACTED, count, count, content),
            )


def prepare(document: Document) -> tuple[Document, bytes]:
    """Return the document as the graph keeps it, and the hash of its content."""
    try:
        "".join((document.id, document.source, document.title, *document.sentences)).encode()
    except UnicodeEncodeError:
        document = Document(
            canonical(document.id),
            canonical(document.title),
            tuple(map(canonical, document.sentences)),
            canonical(document.source),
            document.origin,
        )
    except TypeError as error:
        raise InputError(
            f"document {document.id!r} has a title, sentence or source that is no text: {error}"
        ) from error
    return document, bytes.fromhex(document.content_hash)


def rows_of(document: Document, triples: Sequence[Unit]) -> list[Row]:
    """Check that the triples belong to the document and turn them into rows without the content's number."""
    rows: list[Row] = []
    for position, triple in enumerate(triples):
        try:
            head, relation, tail, sentence, support = row_of(triple)
            row = (to_sql(head), to_sql(relation), to_sql(tail))
        except AttributeError as error:
            raise InputError(
                f"triple {position} of document {document.id!r} has a part that is no text: {triple!r}"
            ) from error
        fault = ""
        if triple.document_id not in ("", document.id) and canonical(triple.document_id) != document.id:
            fault = f"says it is of document {triple.document_id!r}"
        elif not -1 <= sentence < len(document.sentences):
            fault = f"points at sentence {sentence}, but there are {len(document.sentences)}"
        elif not (math.isfinite(support) and 0 <= support <= 100):
            fault = f"has support {support}, which must be from 0 to 100"
        if fault:
            raise InputError(f"triple {position} of document {document.id!r} {fault}")
        rows.append((position, *row, sentence, float(support)))
    return rows


def content_number(connection: sqlite3.Connection, document: Document, content_hash: bytes) -> int:
    """Return the number of a content, which waits for its extraction if it is new."""
    row = connection.execute("SELECT number FROM contents WHERE hash = ?", (content_hash,)).fetchone()
    if row is not None:
        return int(row[0])
    cursor = connection.execute(
        "INSERT INTO contents (hash, title, sentences) VALUES (?, ?, ?)",
        (content_hash, to_sql(document.title), dump_json(document.sentences)),
    )
    return int(cursor.lastrowid or 0)


def place_document(connection: sqlite3.Connection, document: Document, content: int, position: int | None) -> int:
    """Make the document a member of the corpus, at the end or where it was if no position is given."""
    number = _place(connection, document, content, position)
    if document.origin is not None:
        connection.execute("INSERT OR REPLACE INTO origins VALUES (?, ?)", (number, dump_json(document.origin)))
    else:
        connection.execute("DELETE FROM origins WHERE document = ?", (number,))
    return number


def _place(connection: sqlite3.Connection, document: Document, content: int, position: int | None) -> int:
    name, source = to_sql(document.id), to_sql(document.source)
    known = connection.execute(
        "SELECT number, position, content, source FROM documents WHERE id = ?", (name,)
    ).fetchone()
    if known is None:
        if position is None:
            (position,) = connection.execute("SELECT ifnull(max(position), -1) + 1 FROM documents").fetchone()
        cursor = connection.execute(
            "INSERT INTO documents (id, position, content, source) VALUES (?, ?, ?, ?)",
            (name, position, content, source),
        )
        return int(cursor.lastrowid or 0)
    number, old_position, *_ = known
    wanted = (old_position if position is None else position, content, source)
    if wanted != known[1:]:
        connection.execute(
            "UPDATE documents SET position = ?, content = ?, source = ? WHERE number = ?", (*wanted, number)
        )
    return int(number)


def store_extraction(
    connection: sqlite3.Connection,
    content: int,
    rows: list[Row],
    statistics: ExtractionStatistics,
    *,
    state: int = EXTRACTED,
    before: int | None = None,
) -> None:
    """Store the triples of a content, whose state is `before`."""
    if before is None:
        (before,) = connection.execute("SELECT state FROM contents WHERE number = ?", (content,)).fetchone()
    # Rewriting equal rows would grow the log by all of them; a content that waits has none.
    if before == WAITING or stored_rows(connection, content) != rows:
        if before != WAITING:
            connection.execute("DELETE FROM triples WHERE content = ?", (content,))
        connection.executemany(INSERT_TRIPLE, [(content, *row) for row in rows])
    *counts, failure = msgspec.structs.astuple(statistics)
    connection.execute(
        "UPDATE contents SET state = ?, lines = ?, parsed = ?, dropped = ?, repeated = ?, truncated = ?, failure = ? "
        "WHERE number = ?",
        (state, *counts, to_sql(failure), content),
    )


def stored_rows(connection: sqlite3.Connection, content: int) -> list[Row]:
    """Return the triples of a content as `rows_of` gives them."""
    return connection.execute(
        "SELECT position, head, relation, tail, sentence, support FROM triples WHERE content = ? ORDER BY position",
        (content,),
    ).fetchall()


def collect_orphans(connection: sqlite3.Connection) -> None:
    """Delete the contents that no document has any more."""
    orphans = "(SELECT number FROM contents WHERE number NOT IN (SELECT content FROM documents))"
    # Triples first: which contents are orphans is read from the contents.
    for table, column in (("triples", "content"), ("contents", "number")):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN {orphans}")
