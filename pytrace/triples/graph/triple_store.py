"""`TripleStore`: documents and their triples, one extraction per distinct content, on disk or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytrace.documents.read_report import ReadReport
from pytrace.errors import InputError
from pytrace.records import Document, Unit
from pytrace.storage.text import to_sql
from pytrace.triples.graph.database import Database, Mode, from_sql
from pytrace.triples.graph.exchange import graph_format, input_errors, read_graph
from pytrace.triples.graph.graph_reader import GraphReader
from pytrace.triples.graph.graph_records import BY_HAND, ExtractionStatistics, Recipe, SyncReport
from pytrace.triples.graph.graph_writer import (
    EDITED,
    Writer,
    collect_orphans,
    content_number,
    place_document,
    prepare,
    rows_of,
    store_extraction,
)

# A report does not grow with the corpus.
_NAMED = 1_000  # ids of each kind in a report


class TripleStore(GraphReader):
    """Documents and their triples, with where each triple came from.

    One extraction is kept per distinct content (title and sentences), whatever documents have it, so that nothing is
    extracted twice. Each change is one transaction: a killed program leaves whole documents only, and all that it
    reported. Any number of processes may read a graph while one writes it.

    Wherever documents are asked for, an id means the document of that id in the graph, and a `Document` means the
    extraction of its content, whoever brought it: its triples then carry the id of the `Document` given.

    Parameters
    ----------
    recipe
        How the triples are extracted. This constructor makes an empty graph in memory; `open` opens one on disk.

    Source
    ------
    TRACE, Section 4.1 (the KG generator works on one document at a time).

    Examples
    --------
    >>> from pytrace.records import Document, Triple
    >>> document = Document("d1", "Ada Lovelace", ("Ada Lovelace was born in London.",))
    >>> with TripleStore() as graph:
    ...     report = graph.sync([document])
    ...     for waiting in graph.missing([document]):
    ...         graph.add(waiting, [Triple("Ada Lovelace", "born in", "London", sentence=0, support=100.0)])
    ...     [triple.text for triple in graph.triples()]
    ['<Ada Lovelace; born in; London>']
    """

    def __init__(self, *, recipe: Recipe | None = None) -> None:
        super().__init__(Database.in_memory(recipe or BY_HAND))

    @classmethod
    def open(cls, path: str | Path, *, recipe: Recipe | None = None, mode: Mode = "resume") -> TripleStore:
        """Open the graph in a directory.

        Parameters
        ----------
        path
            The directory; the graph is the file ``graph.db`` in it.
        recipe
            How triples are, or will be, extracted. None takes what the graph was made with.
        mode
            ``"create"`` makes a new graph and refuses a directory that has one with documents; ``"resume"`` opens the
            graph for writing, and makes it if there is none and a recipe is given; ``"read"`` never changes a byte.

        Raises
        ------
        StoreError
            If there is no graph (or, to create, already one), it was made by another recipe, another process is
            writing to it, or the file is damaged, of another program or of a newer format.
        """
        graph = cls.__new__(cls)
        GraphReader.__init__(graph, Database.open(Path(path), recipe=recipe, mode=mode))
        return graph

    def sync(
        self, documents: Iterable[Document], *, repeated: Callable[[Document, str], object] | None = None
    ) -> SyncReport:
        """Make the graph hold exactly these documents, in this order, keeping every extraction still of use.

        A document whose content is known keeps its triples; one with new content waits for extraction (`missing` or
        `pending`); triples that no document needs any more are deleted. All of it is one transaction, also when reading
        the documents raises: the graph then stays as it was. Memory does not grow with their number.

        The same document may come again, and `repeated` is then called with it and the source it had before; other
        words under the same id are an InputError.
        """
        added: list[str] = []
        changed: list[str] = []
        news = changes = unchanged = repeats = 0
        with self._database.write() as connection:
            # Documents added from here on have higher numbers, so only those up to it need to be marked as seen.
            (newest,) = connection.execute("SELECT ifnull(max(number), 0) FROM documents").fetchone()
            connection.execute("CREATE TEMP TABLE seen (number INTEGER PRIMARY KEY)")
            for position, raw in enumerate(documents):
                document, content_hash = prepare(raw)
                known = connection.execute(
                    "SELECT d.number, c.hash, d.source FROM documents d JOIN contents c ON c.number = d.content "
                    "WHERE d.id = ?",
                    (to_sql(document.id),),
                ).fetchone()
                if known is not None and (
                    known[0] > newest or connection.execute("SELECT 1 FROM seen WHERE number = ?", known[:1]).fetchone()
                ):
                    before = from_sql(known[2])
                    if known[1] != content_hash:
                        places = " and ".join(source for source in (before, document.source) if source)
                        raise InputError(
                            f"two documents have the id {document.id!r} and different words"
                            f"{f' (in {places})' if places else ''}; give each its own id"
                        )
                    repeats += 1
                    if repeated is not None:
                        repeated(document, before)
                    continue
                content = content_number(connection, document, content_hash)
                number = place_document(connection, document, content, position)
                if known is None:
                    news += 1
                    if len(added) < _NAMED:
                        added.append(document.id)
                    continue
                connection.execute("INSERT INTO seen VALUES (?)", (number,))
                if known[1] == content_hash:
                    unchanged += 1
                else:
                    changes += 1
                    if len(changed) < _NAMED:
                        changed.append(document.id)
            gone = "number <= ? AND number NOT IN (SELECT number FROM seen)"
            removed = connection.execute(
                f"SELECT id FROM documents WHERE {gone} ORDER BY position, number LIMIT {_NAMED}", (newest,)
            ).fetchall()
            removals = connection.execute(f"DELETE FROM documents WHERE {gone}", (newest,)).rowcount
            collect_orphans(connection)
            connection.execute("DROP TABLE seen")
        names = tuple(from_sql(name) for (name,) in removed)
        return SyncReport(news, changes, removals, unchanged, repeats, tuple(added), tuple(changed), names)

    def add(
        self,
        document: Document,
        triples: Sequence[Unit],
        statistics: ExtractionStatistics | None = None,
    ) -> None:
        """Store the extraction of one document, in one transaction; afterwards no kill can lose it.

        A document that is not in the graph comes last in its order; one of the same id with other words is replaced.
        An extraction stored before for the same content is replaced. A triple's `document_id` is the document's or
        empty, its `sentence` an index into the sentences or -1, its `support` from 0 to 100; InputError refuses others.
        By default each triple is a parsed line. After a StoreError, what was stored before stays.
        """
        document, content_hash = prepare(document)
        rows = rows_of(document, triples)
        if statistics is None:
            statistics = ExtractionStatistics(lines=len(rows), parsed=len(rows))
        with self._database.write() as connection:
            # A build stores documents that a sync has placed: one look tells that nothing but the triples is new.
            placed = connection.execute(
                "SELECT c.number, c.state FROM documents d JOIN contents c ON c.number = d.content "
                "WHERE d.id = ? AND c.hash = ? AND d.source = ?",
                (to_sql(document.id), content_hash, to_sql(document.source)),
            ).fetchone()
            if placed is None:
                content = content_number(connection, document, content_hash)
                place_document(connection, document, content, None)
                store_extraction(connection, content, rows, statistics)
            else:
                store_extraction(connection, placed[0], rows, statistics, before=placed[1])

    def replace_triples(self, document_id: str, triples: Sequence[Unit]) -> list[str]:
        """Replace a document's triples by others, made by hand; they count as extracted from then on.

        Documents with the same content share one extraction, so theirs change, too: returned are the ids of all whose
        triples changed, in document order.
        """
        document = self.document(document_id)
        rows = rows_of(document, triples)
        with self._database.write() as connection:
            (content,) = connection.execute(
                "SELECT content FROM documents WHERE id = ?", (to_sql(document_id),)
            ).fetchone() or (None,)
            if content is None:
                raise self._unknown(document_id)
            statistics = ExtractionStatistics(lines=len(rows), parsed=len(rows))
            store_extraction(connection, content, rows, statistics, state=EDITED)
            members = connection.execute(
                "SELECT id FROM documents WHERE content = ? ORDER BY position, number", (content,)
            ).fetchall()
        return [from_sql(member) for (member,) in members]

    def remove(self, document_ids: Iterable[str]) -> None:
        """Delete documents, and the triples that no other document needs; InputError names an id that is not there."""
        if isinstance(document_ids, str):
            raise InputError("document ids must be a list of strings, not one string")
        with self._database.write() as connection:
            for document_id in document_ids:
                deleted = connection.execute("DELETE FROM documents WHERE id = ?", (to_sql(document_id),))
                if deleted.rowcount == 0:
                    raise self._unknown(document_id)
            collect_orphans(connection)

    def import_(self, path: str | Path, *, format: str | None = None, report: ReadReport | None = None) -> int:
        """Read what `export` writes, or any RDF or TSV of triples, and return the number of documents.

        All of it is one transaction: after an error the graph is as it was. Triples that no document claims are kept
        under one document without sentences, which is named after the file. A graph without documents takes the
        recipe of a JSONL file, too. DataError says which line of the file is malformed, or why it cannot be read; with a
        `report`, lines of TSV, JSONL and N-Triples that are malformed are left out and named in its `bad`.
        """
        kind = graph_format(Path(path), format)
        with input_errors(Path(path)), self.writer() as writer:
            read_graph(writer, Path(path), kind, report)
            return writer.documents

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Store many documents in one transaction: all of them are kept, or none."""
        recipe = self.recipe
        with self._database.write() as connection:
            yield Writer(connection, recipe=recipe, location=self.location)
