"""Documents that come over the network: kept as files in the index's directory, so that a sync reads them again, and indexed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.reader import FORMATS, ReadOptions
from pytrace.documents.text_files import SAVED_AS, suffix_of
from pytrace.errors import DataError, InputError, StoreError
from pytrace.records import Document
from pytrace.retrieval.passages import IndexWriter, PassageIndex
from pytrace.retrieval.passages.segment import DocumentEntry, document_id
from pytrace.serve.failures import NotFoundError
from pytrace.serve.messages import GivenDocument
from pytrace.serve.served_index import Change
from pytrace.storage.files import atomic_output, flush

FOLDER = "documents"
"""In the index's directory, where what was given is kept."""

# What a name may have: letters and digits of all languages, and these. A file system takes 255 bytes.
_UNSAFE = re.compile(r"[^\w .,()\[\]+&@=-]+")
_LONGEST_NAME = 150
# Where files are put as they come, hidden from syncs, and the seconds after which nobody works on them any more.
_INCOMING, _LEFT = ".incoming", 86_400.0


class Given(NamedTuple):
    """Documents that wait to be indexed: their passages, the files that they came in, and what was not read of them."""

    passages: list[Document]
    ids: list[str]
    warnings: list[str]
    files: list[tuple[Path, Path]]  # where each lies, and where it belongs


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
        incoming = self.folder / _INCOMING
        try:
            incoming.mkdir(parents=True, exist_ok=True)
            for left in incoming.iterdir():  # by a process that was killed
                with suppress(FileNotFoundError):  # by another request, which has ended
                    if left.stat().st_mtime < time.time() - _LEFT:
                        shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(dir=incoming))
        except OSError as error:
            raise _unkept(error) from None
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
        InputError
            It cannot be read.
        """
        report = ReadReport()
        try:
            passages = list(read_documents(staged, report=report, **reading))
        except DataError as error:
            raise InputError(str(error).replace(str(staged), name)) from None
        place = self.folder / name
        passed_over = [f"{name}: {each.title}: {each.reason}" for each in report.skipped]
        warnings = [name + warning.removeprefix(str(staged)) for warning in report.warnings] + passed_over
        placed = [_placed(passage, staged, place) for passage in passages]
        return Given(placed, _ids(placed), warnings, [(staged, place)])

    def read_rows(self, folder: Path, documents: Sequence[GivenDocument], reading: ReadOptions) -> Given:
        """Read documents that were given as rows, each of which is kept as a file of its own."""
        passages: list[Document] = []
        files: dict[Path, Path] = {}
        for number, document in enumerate(documents):
            if not document.text.strip():
                raise InputError(f"documents[{number}] has no text; give it some, or leave it out")
            row = {name: value for name, value in msgspec.structs.asdict(document).items() if value}
            row.setdefault("title", "")
            staged = folder / f"{number}.jsonl"
            try:
                staged.write_bytes(msgspec.json.encode(row))
                read = list(read_documents(staged, **reading))
            except OSError as error:
                raise _unkept(error) from None
            except DataError as error:
                told = str(error).replace(f"{staged}:1", str(staged))
                raise InputError(told.replace(str(staged), f"documents[{number}]")) from None
            place = self.folder / _row_name(_ids(read)[0])
            if place in files:
                raise InputError(f"two of the documents have the id {_ids(read)[0]!r}; give each an id of its own")
            files[place] = staged
            passages += [_placed(passage, staged, place) for passage in read]
        return Given(passages, _ids(passages), [], [(staged, place) for place, staged in files.items()])

    def addition(self, given: Given) -> Change:
        """Return the change that indexes documents, in the place of those with the same ids or from the same file."""
        places = {place for _, place in given.files}

        def apply(writer: IndexWriter, before: PassageIndex) -> None:
            given_ids = set(given.ids)
            superseded = self._superseded(given, places, writer, before)
            # What a file held before and holds no more goes.
            held = _held(before, superseded | {place for place in places if place.exists()})
            for path in superseded:
                if left := next((name for name, _ in held[path] if name not in given_ids), None):
                    raise InputError(
                        f"{path.name} has one of these documents, and {left[:100]!r} besides; send {path.name} anew, or give another id"
                    )
            self._keep(given.files)
            for path in superseded:
                path.unlink(missing_ok=True)
            writer.also_read(str(self.folder))
            writer.remove({name for documents in held.values() for name, _ in documents} - given_ids)
            writer.add(given.passages)

        return Change(apply, frozenset((*given.ids, *map(str, places))))

    def removal(self, ids: Sequence[str]) -> Change:
        """Return the change that removes documents, and what our files hold of them."""
        wanted = set(ids)

        def apply(writer: IndexWriter, before: PassageIndex) -> None:
            entries = [entry_of(before, name) for name in ids]
            for name, entry in zip(ids, entries, strict=True):
                if entry is None:
                    raise NotFoundError(f"there is no document {name[:100]!r} in the index, and nothing was removed")
            files = {_file_of(entry.source) for entry in entries if entry is not None and self.holds(entry.source)}
            emptied, blanked = list[Path](), dict[Path, set[int]]()
            for path, documents in _held(before, files).items():
                left = {source for name, source in documents if name not in wanted}
                gone = {source for name, source in documents if name in wanted}
                if not left:
                    emptied.append(path)
                elif gone & left or not _has_lines(path):
                    raise InputError(
                        f"{path.name} has {len(left)} documents besides; send it anew without what should go, or remove all of them"
                    )
                else:
                    blanked[path] = {int(source.rpartition(":")[2]) for source in gone}
            writer.remove(ids)
            for path in emptied:
                path.unlink(missing_ok=True)
            for path, lines in blanked.items():
                _blank(path, lines)

        return Change(apply, frozenset(ids))

    def _superseded(
        self, given: Given, places: Collection[Path], writer: IndexWriter, before: PassageIndex
    ) -> set[Path]:
        """Return our other files that have documents of the same ids: no two may have one, or a sync could not read them."""
        texts: dict[str, list[str]] = {}
        for passage in given.passages:
            texts.setdefault(document_id(passage), []).append(passage.text)
        roots = [Path(root) for root in writer.reading.get("docs", ())]
        superseded: set[Path] = set()
        for name in given.ids:
            entry = entry_of(before, name)
            path = None if entry is None else _file_of(entry.source)
            if entry is None or path is None or path in places:
                continue
            if self.holds(entry.source):
                superseded.add(path)
                continue
            read_again = any(path.is_relative_to(root) for root in roots)
            if read_again and [each.text for each in before.passages(before.rows_of(name))] != texts[name]:
                raise InputError(
                    f"the document {name[:100]!r} was read from {path.name}, where every sync of the index reads it again; change it "
                    "there, or give another id"
                )
        return superseded

    def _keep(self, files: Sequence[tuple[Path, Path]]) -> None:
        """Put files in their places; where that was done before, it is done."""
        staged = [(file, place) for file, place in files if file.exists() or not place.exists()]
        try:
            for file, _ in staged:
                flush(file)
            for file, place in staged:
                file.replace(place)
            flush(self.folder)
        except OSError as error:
            raise _unkept(error) from None


def entry_of(index: PassageIndex, name: str) -> DocumentEntry | None:
    """Return what is known of a document by its id; None where there is none."""
    rows = index.rows_of(name)
    if not rows:
        return None
    segment, local = index.place(rows[0])
    return segment.entry_of(int(segment["passages"][local]))


def _held(index: PassageIndex, files: Collection[Path]) -> dict[Path, list[tuple[str, str]]]:
    """Return the documents that were read from each of some files: their ids, and where they stand."""
    held: dict[Path, list[tuple[str, str]]] = {path: [] for path in files}
    for entry in index.entries() if files else ():
        if (path := _file_of(entry.source)) in held:
            held[path].append((entry.id, entry.source))
    return held


def _has_lines(path: Path) -> bool:
    """Whether a file has its documents in lines that may be blank."""
    try:
        with path.open("rb") as stream:
            return path.suffix.lower() in {".jsonl", ".ndjson"} and stream.read(1 << 16).lstrip()[:1] == b"{"
    except OSError:
        return False


def _blank(path: Path, lines: Collection[int]) -> None:
    """Make lines of a file blank, so that the others stay where they are."""
    try:
        with atomic_output(path) as output, path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                output.write(b"\n" if number in lines else line)
    except OSError as error:
        raise _unkept(error) from None


def _unkept(error: OSError) -> StoreError:
    return StoreError(f"documents cannot be kept ({error.strerror}); make room or correct permissions")


def safe_name(name: str) -> str:
    """Return a file's name without anything that a path could be made of; `InputError` where none is left that a sync would read.

    >>> safe_name("report (2).pdf"), safe_name("../../etc/passwd.txt")
    ('report (2).pdf', 'passwd.txt')
    """
    last = re.split(r"[/\\]", name)[-1]
    cleaned = _UNSAFE.sub("_", last).strip(" ._")
    if not cleaned:
        raise InputError(f"{name[:80]!a} is no name of a file; give one such as report.pdf")
    if len(cleaned) > _LONGEST_NAME or len(cleaned.encode()) > _LONGEST_NAME:
        stem, dot, suffix = cleaned.rpartition(".")
        suffix = dot + suffix if stem and len(suffix) <= 10 else ""
        cut = cleaned.encode()[: _LONGEST_NAME - len(suffix.encode())].decode("utf-8", "ignore")
        cleaned = cut.strip(" .") + suffix
    if suffix_of(Path(cleaned)) not in FORMATS:
        other = SAVED_AS.get(suffix_of(Path(cleaned)), f"one of {', '.join(FORMATS)}")
        raise InputError(f"{cleaned[:80]!a} is of none of the formats that are read; save it as {other}")
    return cleaned


def _row_name(id: str) -> str:
    """Return the name of the file of a row: of equal ids the same, and one that tells a person what it is."""
    words = _UNSAFE.sub("_", re.sub(r"\W+", "-", id.casefold())[:40].strip("-_"))
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    return f"{words}-{digest}.jsonl" if words else f"{digest}.jsonl"


def _placed(passage: Document, staged: Path, place: Path) -> Document:
    """Return a passage as one that was read from its file's own place, where a later sync reads it."""
    return msgspec.structs.replace(passage, source=f"{place}{passage.source.removeprefix(str(staged))}")


def _file_of(source: str) -> Path:
    """Return the file that a document was read from; of a row, without its line or its number in a list."""
    return Path(re.sub(r":\d+\Z|\[\d+\]\Z", "", source, flags=re.ASCII))


def _ids(passages: Sequence[Document]) -> list[str]:
    """Return the ids of the documents that passages are of."""
    names = (passage.id if passage.origin is None else passage.origin.document for passage in passages)
    return list(dict.fromkeys(names))
