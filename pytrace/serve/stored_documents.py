"""Documents that come over the network: kept as files in the index's directory, so that a sync reads them again, and indexed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.reader import ReadOptions
from pytrace.errors import InputError, StoreError
from pytrace.records import Document
from pytrace.retrieval.passages import IndexWriter
from pytrace.serve.messages import GivenDocument
from pytrace.serve.served_index import Change
from pytrace.storage.files import flush
from pytrace.storage.text import storable

FOLDER = "documents"
"""In the index's directory, where what was given is kept."""

# What a name may have: letters and digits of all languages, and these. A file system takes 255 bytes.
_UNSAFE = re.compile(r"[^\w .,()\[\]+&@=-]+")
_LONGEST_NAME = 150


class Given(NamedTuple):
    """Documents that wait to be indexed: their passages, the files that they came in, and what was not read of them."""

    passages: list[Document]
    ids: list[str]
    warnings: list[str]
    files: list[tuple[Path, Path]]  # where each lies, and where it belongs
    from_file: bool  # and not given as rows


class StoredDocuments:
    """The files of an index's documents that came over the network.

    Parameters
    ----------
    directory
        Of the index; the files are below it.
    """

    def __init__(self, directory: Path) -> None:
        self.folder = directory.resolve() / FOLDER

    def holds(self, source: str) -> bool:
        """Whether a document was read from one of the files."""
        return source.startswith(f"{self.folder}{os.sep}")

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Give a new folder beside the files, which is gone afterwards with all that was not put in its place."""
        try:
            self.folder.mkdir(exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
        except OSError as error:
            raise StoreError(f"documents cannot be kept ({error.strerror}); make room or correct permissions") from None
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def read_file(self, staged: Path, name: str, reading: ReadOptions) -> Given:
        """Read a file of any format, which then belongs to its name, in the place of the one before.

        Parameters
        ----------
        staged
            The file, in a folder of `staging` and with its own name (`safe_name`).
        name
            Its name, to which it belongs.
        reading
            How the documents of the index are read.

        Raises
        ------
        DataError
            It cannot be read.
        """
        report = ReadReport()
        passages = list(read_documents(staged, report=report, **reading))
        place = self.folder / name
        passed_over = [f"{name}: {each.title}: {each.reason}" for each in report.skipped]
        warnings = [name + warning.removeprefix(str(staged)) for warning in report.warnings] + passed_over
        placed = [_placed(passage, staged, place) for passage in passages]
        return Given(placed, _ids(placed), warnings, [(staged, place)], from_file=True)

    def read_rows(self, folder: Path, documents: Sequence[GivenDocument], reading: ReadOptions) -> Given:
        """Read documents that were given as rows, each of which is kept as a file of its own."""
        passages: list[Document] = []
        files: dict[Path, Path] = {}
        for number, document in enumerate(documents):
            row = {name: value for name, value in msgspec.structs.asdict(document).items() if value}
            row.setdefault("title", "")
            staged = folder / f"{number}.jsonl"
            staged.write_bytes(msgspec.json.encode(row))
            read = list(read_documents(staged, **reading))
            place = self.folder / _row_name(_ids(read)[0], read[0].title)
            if place in files:
                raise InputError(f"two of the documents have the id {_ids(read)[0]!r}; give each an id of its own")
            files[place] = staged
            passages += [_placed(passage, staged, place) for passage in read]
        placed = [(staged, place) for place, staged in files.items()]
        return Given(passages, _ids(passages), [], placed, from_file=False)

    def addition(self, given: Given) -> Change:
        """Return the change that indexes documents, in the place of those with the same ids or from the same file."""

        def apply(writer: IndexWriter) -> None:
            # What a file held before and holds no more goes. A row's file belongs to its id, so that there is nothing else in it.
            known = [place for _, place in given.files if place.exists()] if given.from_file else []
            gone = {entry.id for entry in writer.entries() if _file_of(entry.source) in known} if known else set()
            for staged, place in given.files:
                self._keep(staged, place)
            writer.also_read(str(self.folder))
            if gone := gone.difference(given.ids):
                writer.remove(gone)
            writer.add(given.passages)

        return Change(apply)

    def removal(self, ids: Sequence[str]) -> Change:
        """Return the change that removes documents, and the files that hold none any more, where these are ours."""

        def apply(writer: IndexWriter) -> None:
            left, emptied = set[Path](), set[Path]()
            wanted = set(ids)
            for entry in writer.entries() if self.folder.exists() else ():
                if self.holds(entry.source):
                    (emptied if entry.id in wanted else left).add(_file_of(entry.source))
            writer.remove(ids)
            for path in emptied - left:
                with suppress(OSError):
                    path.unlink()

        return Change(apply)

    def _keep(self, staged: Path, place: Path) -> None:
        try:
            flush(staged)
            staged.replace(place)
            flush(self.folder)
        except OSError as error:
            raise StoreError(f"documents cannot be kept ({error.strerror}); make room or correct permissions") from None


def safe_name(name: str) -> str:
    """Return a file's name without anything that a path could be made of; `InputError` where nothing is left.

    >>> safe_name("report (2).pdf"), safe_name("../../etc/passwd")
    ('report (2).pdf', 'passwd')
    """
    last = re.split(r"[/\\]", storable(name))[-1]
    cleaned = _UNSAFE.sub("_", last).strip(" ._")
    if not cleaned:
        raise InputError(f"{name[:80]!a} is no name of a file; give one such as report.pdf")
    if len(cleaned) > _LONGEST_NAME or len(cleaned.encode()) > _LONGEST_NAME:
        stem, dot, suffix = cleaned.rpartition(".")
        suffix = dot + suffix if stem and len(suffix) <= 10 else ""
        cut = cleaned.encode()[: _LONGEST_NAME - len(suffix.encode())].decode("utf-8", "ignore")
        cleaned = cut.strip(" .") + suffix
    return cleaned


def _row_name(id: str, title: str) -> str:
    """Return the name of the file of a row: of equal ids the same, and one that tells a person what it is."""
    words = _UNSAFE.sub("_", re.sub(r"\W+", "-", title.casefold())[:40].strip("-_"))
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    return f"{words}-{digest}.jsonl" if words else f"{digest}.jsonl"


def _placed(passage: Document, staged: Path, place: Path) -> Document:
    """Return a passage as one that was read from its file's own place, where a later sync reads it."""
    return msgspec.structs.replace(passage, source=f"{place}{passage.source.removeprefix(str(staged))}")


def _file_of(source: str) -> Path:
    """Return the file that a document was read from; of a row, without its line."""
    file, colon, line = source.rpartition(":")
    return Path(file if colon and line.isdecimal() else source)


def _ids(passages: Sequence[Document]) -> list[str]:
    """Return the ids of the documents that passages are of."""
    names = (passage.id if passage.origin is None else passage.origin.document for passage in passages)
    return list(dict.fromkeys(names))
