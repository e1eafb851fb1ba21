"""Read documents from files and folders, whatever their format."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytrace.documents.foreign import SUFFIXES, ForeignReader, kind_of
from pytrace.documents.json_rows import (
    JSON_SUFFIXES,
    MARKDOWN_SUFFIXES,
    TEXT_SUFFIXES,
    Place,
    json_rows,
    looks_like_rows,
    read_text,
    suffix_of,
    walk,
)
from pytrace.documents.languages import check_language, detect_language
from pytrace.documents.markdown import read_markdown
from pytrace.documents.passages import WORDS, Block, Extracted, cut_passages, sentences_of, size_of
from pytrace.documents.plain import read_plain
from pytrace.documents.rows import Identities, build_document, make_document, paragraphs_of
from pytrace.documents.sentences import clean_text
from pytrace.errors import DataError, MissingDependencyError
from pytrace.records import Document

# So many of what was passed over are named; all of it is counted.
_LISTED = 1_000
# Blocks that tell a document's language.
_SAMPLE = 50
_READ_SUFFIXES = (*JSON_SUFFIXES, *MARKDOWN_SUFFIXES, *TEXT_SUFFIXES, *SUFFIXES)


class Skipped(msgspec.Struct, frozen=True):
    """Something that was passed over: where it stands, its title if it has one, and why."""

    source: str
    title: str
    reason: str


class ReadReport(msgspec.Struct):
    """What `read_documents` met on its way; it grows while documents are read.

    `documents` counts those given out, `empty` those without text, `duplicates` those met before with the same title
    and words, `other_files` the files of a folder that hold no documents. `skipped` names the first thousand of all three.
    """

    documents: int = 0
    empty: int = 0
    duplicates: int = 0
    other_files: int = 0
    skipped: list[Skipped] = []

    def add(self, source: object, title: str, reason: str) -> None:
        """Name one more thing that was passed over, while there are not too many."""
        if len(self.skipped) < _LISTED:
            self.skipped.append(Skipped(str(source), title, reason))

    def add_duplicate(self, document: Document, first: str) -> None:
        """Count a document that was met before, at `first`, and name it."""
        self.duplicates += 1
        self.add(document.source, document.title, f"the same document as {first}")


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    language: str | None = None,
    report: ReadReport | None = None,
    distinct: bool = True,
    words: int = WORDS,
    overlap: int = 0,
) -> Iterator[Document]:
    """Read documents from files and folders, those that are long as passages.

    JSON Lines and JSON lists hold documents (`title`, and `text` or `sentences`; `id` if wanted) or questions with
    their documents (HotpotQA, 2WikiMultiHopQA, MuSiQue, our own), which are told apart by their fields; BEIR's documents
    have their id in `_id`, and the beginning of their text for a title where it is empty. Text and Markdown files are one
    document each; their title is the front matter's, the first heading, or, where nothing else is there, the file's name.
    PDF, Word files, slides and HTML pages likewise (extra `docs`), read in a process of their own. A folder is read with all
    below it, in the order of names, hidden files and files of other kinds left out, and so are the questions and relevance
    judgements beside a BEIR corpus. A last `.gz` of text and rows is unpacked.

    A document of more than `words` words is cut into passages, at the borders of sentences and below its headings (see
    `pytrace.documents.passages`); a row's document, which its author chose, only if it has twice as many.

    Documents without text and documents met before (the same title and words) are left out and reported. A document
    without an id gets one from its title and content, the same wherever it is read. Rows are read one at a time.

    Parameters
    ----------
    paths
        A file or folder, or several.
    language
        ISO 639-1 code of all documents, for sentence splitting; by default each document's is detected. That of a file is kept in
        its passages' `origin.metadata` if it is given or is not English.
    report
        Is filled with counts and with what was left out, while the documents are read.
    distinct
        Whether to leave out documents met before, for which some 300 bytes of each are remembered. A caller that tells
        them apart itself (`TripleStore.sync` does, on disk) gets all of them, in memory that does not grow.
    words, overlap
        The most words of a passage, and how many sentences the next one repeats.

    Returns
    -------
    iterator of Document
        The passages in order; if documents are distinct, ids are unique.

    Raises
    ------
    DataError
        A file is missing, unreadable, binary, not UTF-8, or not what its name says; a row lacks a field or has it of a
        wrong type; two documents with other words have one id; or nothing is left to give out. Says file, line and
        remedy. Missing files are found at the call, everything else on the way.
    InputError
        `language` is no ISO 639-1 code.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "Ada Foah.txt").write_text("Ada Foah is a town in Ghana. It lies on the coast.")
    >>> [(passage.title, passage.sentences) for passage in read_documents(folder)]
    [('Ada Foah', ('Ada Foah is a town in Ghana.', 'It lies on the coast.'))]
    >>> [(passage.id[-2:], passage.sentences, passage.origin.start) for passage in read_documents(folder, words=7)]
    [('#1', ('Ada Foah is a town in Ghana.',), 0), ('#2', ('It lies on the coast.',), 29)]
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    roots = [Path(path) for path in named]
    if not roots:
        raise DataError("no file or folder was given to read documents from; name at least one")
    check_language(language)
    for root in roots:
        _check_exists(root)
    report = report if report is not None else ReadReport()
    return _read(roots, report, Identities() if distinct else None, language=language, words=words, overlap=overlap)


def _check_exists(path: Path) -> None:
    try:
        path.stat()
    except PermissionError:
        raise DataError(
            "cannot be read: permission denied; change its permissions or run as its owner", path=path
        ) from None
    except (OSError, ValueError) as error:
        reason = "no such file or folder" if isinstance(error, FileNotFoundError) else str(error)
        raise DataError(f"{reason}; check the path", path=path) from None


class _Read(NamedTuple):
    """A document as a whole, where it was read, and its blocks; a row's, which has none, is cut by its sentences."""

    place: Place
    document: Document
    extracted: Extracted | None = None
    sentences: Sequence[Sequence[str]] | None = None

    def passages(self, *, words: int, overlap: int) -> list[Document]:
        extracted = self.extracted
        if extracted is None:
            if size_of(self.document.text) <= 2 * words:
                return [self.document]
            extracted = Extracted(self.document.title, [Block(text, whole=True) for text in self.document.sentences])
        return cut_passages(self.document, extracted, words=words, overlap=overlap, sentences=self.sentences)


def _read(
    roots: list[Path],
    report: ReadReport,
    identities: Identities | None,
    *,
    language: str | None,
    words: int,
    overlap: int,
) -> Iterator[Document]:
    with ForeignReader() as foreign:
        for path in itertools.chain.from_iterable(_files(root, report) for root in roots):
            for read in _documents(path, language, report, foreign, alone=path in roots):
                before = None if identities is None else identities.first_place(read.document, read.place)
                if before is not None:
                    report.add_duplicate(read.document, before)
                    continue
                report.documents += 1
                yield from read.passages(words=words, overlap=overlap)
    if not report.documents:
        reasons = f": {report.empty} had no text, {report.other_files} were files of other kinds"
        raise DataError(
            f"no document was found{reasons if report.skipped else ''}; give files of the formats {', '.join(_READ_SUFFIXES)}",
            path=", ".join(map(str, roots)),
        )


def _files(root: Path, report: ReadReport) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    if not root.is_dir():
        raise DataError("is a pipe or a device, and a file is read twice; save it as a file first", path=root)
    for path in walk(root):
        try:
            regular = stat.S_ISREG(path.stat().st_mode)
        except OSError:
            regular = False
        reason = "" if regular else "not a file that can be read"
        reason = reason or _beside_beir_corpus(path)
        if not reason and suffix_of(path) not in _READ_SUFFIXES:
            reason = "none of the formats that are read"
        if reason:
            report.other_files += 1
            report.add(path, "", reason)
        else:
            yield path


def _beside_beir_corpus(path: Path) -> str:
    """Say what a file is that belongs to a BEIR corpus and holds no documents; empty if it is something else."""
    # A corpus is a folder with `corpus.jsonl`, `queries.jsonl` and the folder `qrels`.
    if path.name.removesuffix(".gz") == "queries.jsonl" and _has_corpus(path.parent):
        return "the questions of a BEIR corpus, no documents"
    if path.parent.name == "qrels" and _has_corpus(path.parent.parent):
        return "relevance judgements of a BEIR corpus, no documents"
    return ""


def _has_corpus(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))


def _documents(
    path: Path, language: str | None, report: ReadReport, foreign: ForeignReader, *, alone: bool
) -> Iterator[_Read]:
    """Read a file; one of a folder that its format's reader refuses is passed over, one that is named alone raises."""
    suffix = suffix_of(path)
    if suffix in SUFFIXES or (suffix not in _READ_SUFFIXES and kind_of(path)):
        try:
            kind = kind_of(path)
            if kind is None:
                raise DataError("is packed; unpack it first", path=path)
            extracted = foreign.read(path, kind)
        except (DataError, MissingDependencyError) as error:
            if alone:
                raise
            report.other_files += 1
            report.add(path, "", str(error).removeprefix(f"{path}: "))
            return
        yield from _reported(_whole(path, extracted, language), report)
        return
    if suffix in JSON_SUFFIXES or (suffix not in _READ_SUFFIXES and looks_like_rows(path)):
        for place, row in json_rows(path):
            for paragraph in paragraphs_of(row, place):
                built = build_document(paragraph, language=language)
                if built is None:
                    _report_empty(report, place, paragraph.title)
                else:
                    yield _Read(place, built.document)
        return
    text = read_text(path)
    extracted = read_markdown(text) if suffix in MARKDOWN_SUFFIXES else read_plain(text)
    yield from _reported(_whole(path, extracted, language), report)


def _whole(path: Path, extracted: Extracted, language: str | None) -> _Read:
    title = extracted.title or _title_from_name(path)
    known = language or detect_language(" ".join(block.text for block in extracted.blocks[:_SAMPLE]))
    if language or known != "en":
        extracted = extracted._replace(metadata={**extracted.metadata, "language": known})
    sentences = [sentences_of(block, language=known) for block in extracted.blocks]
    document = make_document(title, itertools.chain.from_iterable(sentences), source=str(path))
    return _Read(Place(path), document, extracted, sentences)


def _reported(read: _Read, report: ReadReport) -> Iterator[_Read]:
    """Give a document, or report that it has no text."""
    if read.document.sentences:
        yield read
    else:
        _report_empty(report, read.place, read.document.title)


def _title_from_name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    stem = Path(name).stem if suffix_of(path) in _READ_SUFFIXES else name
    return clean_text(stem.replace("_", " ")) or "untitled"


def _report_empty(report: ReadReport, place: Place | Path, title: str) -> None:
    report.empty += 1
    report.add(place, title, "it has no text")
