"""The documents of the index that is served: listed, read, followed from one to the next, added and removed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec

from pytrace.documents.formats.page_picture import page_picture
from pytrace.documents.reader import ReadOptions
from pytrace.engine.corpus import IndexedCorpus
from pytrace.errors import DataError, InputError
from pytrace.records import Document
from pytrace.retrieval.passages import Changes
from pytrace.retrieval.passages.segment import DocumentEntry, document_id
from pytrace.serve import messages
from pytrace.serve.failures import NotFoundError
from pytrace.serve.served_index import ServedIndex
from pytrace.serve.settings import ServeSettings
from pytrace.serve.stored_documents import StoredDocuments, entry_of
from pytrace.storage.closing import Closing

# Pictures of pages that are kept; each has some hundred kilobytes.
_PICTURES = 32
# Documents of a listing, so that one request does not hold up a thread for long.
_ONCE = 1_000


class Library(Closing):
    """What is known of documents, in threads that questions do not wait for.

    Parameters
    ----------
    index, stored
        The index, and the files of what came over the network.
    settings
        Whether changes are allowed.
    """

    def __init__(self, index: ServedIndex, stored: StoredDocuments, settings: ServeSettings) -> None:
        self.index = index
        self.stored = stored
        self.settings = settings
        self._reading = ThreadPoolExecutor(4, thread_name_prefix="reading")
        # Changes wait for their commit, and must not keep readers waiting.
        self._changing = ThreadPoolExecutor(8, thread_name_prefix="changing")
        self._pictures: dict[tuple[str, int, float], bytes] = {}
        self._drawing = threading.Lock()

    def close(self) -> None:
        """End what is under way."""
        self._changing.shutdown(cancel_futures=True)
        self._reading.shutdown(cancel_futures=True)

    def list_documents(self, offset: int, limit: int, query: str) -> Future[messages.DocumentsResponse]:
        """List documents, those whose id, title or source has `query`."""
        return self._reading.submit(self._list, offset, min(limit, _ONCE), query.casefold())

    def _list(self, offset: int, limit: int, query: str) -> messages.DocumentsResponse:
        with self.index.lease() as corpus:
            held: list[DocumentEntry] = []
            total = 0
            if query:
                for entry in corpus.index.entries():
                    if any(query in text.casefold() for text in (entry.title, entry.id, entry.source)):
                        held += [entry] if offset <= total < offset + limit else []
                        total += 1
            else:
                for segment in corpus.index.segments:
                    segment.check()
                    first, last = max(0, offset - total), min(segment.documents, offset + limit - total)
                    held += [segment.entry_of(number) for number in range(first, last)]
                    total += segment.documents
        return messages.DocumentsResponse(total=total, offset=offset, documents=[self._listed(entry) for entry in held])

    def _listed(self, entry: DocumentEntry) -> messages.ListedDocument:
        return messages.ListedDocument(
            id=entry.id,
            title=entry.title,
            source=entry.source,
            passages=entry.passages,
            metadata=entry.metadata,
            pages=entry.source.lower().endswith(".pdf"),
        )

    def document(self, name: str) -> Future[messages.DocumentResponse]:
        """Give a document to be read, by its id or that of one of its passages."""
        return self._reading.submit(self._document, name)

    def _document(self, name: str) -> messages.DocumentResponse:
        with self.index.lease() as corpus:
            rows, entry = self._found(corpus, name)
            passages = corpus.index.passages(rows)
        return messages.DocumentResponse(
            **msgspec.structs.asdict(self._listed(entry)),
            text=[_read(passage) for passage in sorted(passages, key=_start)],
        )

    @staticmethod
    def _found(corpus: IndexedCorpus, name: str) -> tuple[list[int], DocumentEntry]:
        """Return the rows of a document and what is known of it; `NotFoundError` where there is none."""
        index = corpus.index
        entry = entry_of(index, name)
        if entry is None and (row := index.row_of(name)) is not None:
            entry = entry_of(index, document_id(index.passage(row)))
        if entry is None:
            raise NotFoundError(f"there is no document or passage {name[:100]!r} in the index")
        return index.rows_of(entry.id), entry

    def page(self, name: str, page: int) -> Future[bytes]:
        """Draw a page of a PDF document, from the file that it was read from."""
        return self._reading.submit(self._page, name, page)

    def _page(self, name: str, page: int) -> bytes:
        with self.index.lease() as corpus:
            _, entry = self._found(corpus, name)
        path = Path(entry.source)
        try:
            # Only what the index itself was made of is opened, and only while it is still such a file.
            changed = path.stat().st_mtime
        except (OSError, ValueError):
            changed = 0.0
        if path.suffix.lower() != ".pdf" or not changed:
            raise NotFoundError(f"no pages of {entry.title[:100]!r} can be shown: it is no PDF file, or that is gone")
        key = entry.source, page, changed
        if (picture := self._pictures.get(key)) is None:
            with self._drawing:  # one at a time: each takes a process
                try:
                    picture = self._pictures.get(key) or page_picture(path, page)
                except DataError as error:
                    raise NotFoundError(str(error).removeprefix(f"{path}: ")) from None
                while len(self._pictures) >= _PICTURES:
                    del self._pictures[next(iter(self._pictures))]
                self._pictures[key] = picture
        return picture

    def neighbours(self, passage: str, limit: int) -> Future[messages.NeighboursResponse]:
        """Return the passages that one is linked with."""
        return self._reading.submit(self._neighbours, passage, limit)

    def _neighbours(self, name: str, limit: int) -> messages.NeighboursResponse:
        with self.index.lease() as corpus:
            row = corpus.index.row_of(name)
            if row is None:
                rows, _ = self._found(corpus, name)
                row = rows[0]
            linked = corpus.index.neighbours(row, limit)
            passage, *others = corpus.index.passages([row, *(each.row for each in linked)])
        return messages.NeighboursResponse(
            id=passage.id,
            title=passage.title,
            neighbours=[
                messages.Neighbour(
                    id=other.id,
                    document=document_id(other),
                    title=other.title,
                    name=each.name,
                    forth=each.forth,
                    back=each.back,
                    where=other.citation(),
                )
                for each, other in zip(linked, others, strict=True)
            ],
        )

    def check_writable(self) -> None:
        """Refuse changes of an index that is served to be read alone."""
        if self.settings.read_only:
            raise InputError("this service was started with --read-only; change the index with 'pytrace index'")

    def add_rows(self, documents: Sequence[messages.GivenDocument]) -> Future[messages.ChangeResponse]:
        """Add documents, or replace those with the same ids."""
        self.check_writable()
        return self._changing.submit(self._add_rows, documents)

    def _add_rows(self, documents: Sequence[messages.GivenDocument]) -> messages.ChangeResponse:
        with self.stored.staging() as folder:
            given = self.stored.read_rows(folder, documents, self._read_options())
            changes = self.index.submit(self.stored.addition(given))()
        return _changed(changes, given.ids, given.warnings)

    def add_file(self, folder: Path, name: str, staging: ExitStack) -> Future[messages.ChangeResponse]:
        """Add the documents of a file that lies in a folder of `documents.staging` under its name, and end the staging."""
        return self._changing.submit(self._add_file, folder, name, staging)

    def _add_file(self, folder: Path, name: str, staging: ExitStack) -> messages.ChangeResponse:
        with staging:
            given = self.stored.read_file(folder / name, name, self._read_options())
            changes = self.index.submit(self.stored.addition(given))()
            return _changed(changes, given.ids, given.warnings)

    def remove(self, ids: Sequence[str]) -> Future[messages.ChangeResponse]:
        """Remove documents by their ids."""
        self.check_writable()
        return self._changing.submit(self._remove, ids)

    def _remove(self, ids: Sequence[str]) -> messages.ChangeResponse:
        return _changed(self.index.submit(self.stored.removal(ids))(), list(ids), [])

    def _read_options(self) -> ReadOptions:
        """Return how documents of the index are read, and would be by a sync, which filters them, too."""
        with self.index.lease() as corpus:
            kept = dict(corpus.index.manifest.reading)
        return msgspec.convert(
            {name: kept[name] for name in ("language", "words", "overlap", "where") if name in kept}, ReadOptions
        )


def _changed(changes: Changes, ids: list[str], warnings: list[str]) -> messages.ChangeResponse:
    return messages.ChangeResponse(
        added=changes.added,
        replaced=changes.replaced,
        removed=changes.removed,
        unchanged=changes.unchanged,
        encoded=changes.encoded,
        ids=ids,
        warnings=warnings,
    )


def _start(passage: Document) -> int:
    return 0 if passage.origin is None else passage.origin.start


def _read(passage: Document) -> messages.ReadPassage:
    origin = passage.origin
    return messages.ReadPassage(
        id=passage.id,
        title=passage.title,
        headings=[] if origin is None else list(origin.headings),
        page=None if origin is None else origin.page,
        start=_start(passage),
        sentences=list(passage.sentences),
        starts=[] if origin is None else list(origin.sentences),
        pages=[] if origin is None else list(origin.pages),
        where=passage.citation(),
    )
