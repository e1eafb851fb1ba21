"""Read documents from files and folders, whatever their format."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from pytrace.documents.filters import Filter, matches, parse_filters
from pytrace.documents.foreign import SUFFIXES, ForeignReader, check_command, kind_of
from pytrace.documents.json_rows import json_rows, looks_like_rows
from pytrace.documents.languages import check_language, detect_language
from pytrace.documents.markdown import read_markdown
from pytrace.documents.passages import WORDS, Block, Extracted, cut_passages, sentences_of, size_of
from pytrace.documents.plain import read_plain
from pytrace.documents.read_report import ReadReport
from pytrace.documents.rows import Identities, Row, build_document, make_document, paragraphs_of
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import open_csv
from pytrace.documents.text_files import (
    JSON_SUFFIXES,
    MARKDOWN_SUFFIXES,
    SAVED_AS,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    Place,
    decode_text,
    suffix_of,
    walk,
)
from pytrace.errors import DataError, InputError, MissingDependencyError
from pytrace.records import Document

# Blocks that tell a document's language.
_SAMPLE = 50
FORMATS = (*JSON_SUFFIXES, *MARKDOWN_SUFFIXES, *TEXT_SUFFIXES, *TABLE_SUFFIXES, *SUFFIXES)
"""The suffixes of files that are read."""


class ReadOptions(TypedDict, total=False):
    """What `read_documents` may be told besides the paths, by the names of its parameters."""

    language: str | None
    words: int
    overlap: int
    where: tuple[str, ...]
    ocr: str


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    language: str | None = None,
    report: ReadReport | None = None,
    distinct: bool = True,
    words: int = WORDS,
    overlap: int = 0,
    where: Sequence[str] = (),
    ocr: str = "",
    part: tuple[int, int] = (1, 1),
    skip_bad: bool = False,
) -> Iterator[Document]:
    """Read documents from files and folders, those that are long as passages.

    JSON Lines and JSON lists hold documents (`title`, and `text` or `sentences`; `id` if wanted) or questions with
    their documents (HotpotQA, 2WikiMultiHopQA, MuSiQue, our own), which are told apart by their fields; BEIR's documents
    have their id in `_id`. A `title` that is empty is the beginning of the text. A row of CSV is a document where a
    column is named `text`; another table is one document, a line a row. Text and Markdown files are one
    document each; their title is the front matter's, the first heading, or, where nothing else is there, the file's name.
    PDF, Word files, slides, HTML pages, EPUB books and e-mail likewise (extra `docs`), read in a process of their own. A folder is read with all
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
    where
        Filters that documents must match, all of them: ``author=Venn``, ``date>=2020`` (see `pytrace.documents.filters`).
    ocr
        A command for pages of a PDF that are images alone: ``{}`` in it stands for the image of a page, and its text is what
        the command prints: ``tesseract {} -``.
    part
        ``(2, 8)``: only the second of eight parts, which are about equal and together all there is, so that several processes can
        share the work. Rows are dealt out one by one. A part may be empty, and documents of two parts are not compared.
    skip_bad
        Go on with the next file where one cannot be read, or a row of it: what stands before that row counts, and the report's `bad`
        names the file.

    Returns
    -------
    iterator of Document
        The passages in order; if documents are distinct, ids are unique.

    Raises
    ------
    InputError
        `language` is no ISO 639-1 code, a filter or the command cannot be read, or there is no such part.
    DataError
        A file is missing, unreadable, binary, or not what its name says; a row lacks a field or has it of a
        wrong type; two documents with other words have one id; or nothing is left to give out. Says file, line and
        remedy. Missing files are found at the call, everything else on the way.

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
    identities = Identities() if distinct else None
    if not 1 <= part[0] <= part[1]:
        raise InputError(f"there is no part {part[0]} of {part[1]}; the first is 1 of {part[1]}")
    reading = _Reading(language, words, overlap, parse_filters(where), check_command(ocr), part, skip_bad)
    return _read(roots, report, identities, reading)


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


class _Reading(NamedTuple):
    """How documents are read and cut."""

    language: str | None
    words: int
    overlap: int
    filters: list[Filter]
    ocr: str
    part: tuple[int, int]
    skip_bad: bool


class _Read(NamedTuple):
    """A document as a whole, where it was read, and its blocks; a row's, which has none, is cut by its sentences."""

    place: Place
    document: Document
    extracted: Extracted | None = None
    sentences: Sequence[Sequence[str]] | None = None

    def passages(self, reading: _Reading) -> list[Document]:
        extracted, sentences = self.extracted, self.sentences
        if extracted is None:
            if size_of(self.document.text) <= 2 * reading.words:
                return [self.document]
            metadata = {} if self.document.origin is None else self.document.origin.metadata
            extracted = Extracted(self.document.title, [Block(self.document.text)], metadata=metadata)
            sentences = [self.document.sentences]
        return cut_passages(
            self.document,
            extracted,
            words=reading.words,
            overlap=reading.overlap,
            sentences=sentences,
        )


def _read(
    roots: list[Path], report: ReadReport, identities: Identities | None, reading: _Reading
) -> Iterator[Document]:
    first, parts = reading.part[0] - 1, reading.part[1]
    # What is passed over is told by the first part alone.
    passed_over = report if first == 0 else ReadReport()
    with ForeignReader(ocr=reading.ocr) as foreign:
        files = itertools.chain.from_iterable(_files(root, passed_over) for root in roots)
        for number, path in enumerate(files):
            dealt = (first - number) % parts, parts
            alone = path in roots and not reading.skip_bad
            try:
                for read in _documents(path, reading.language, report, foreign, dealt, alone=alone):
                    before = None if identities is None else identities.first_place(read.document, read.place)
                    if before is not None:
                        report.add_duplicate(read.document, before)
                        continue
                    passages = read.passages(reading)
                    if not matches(passages[0], reading.filters):
                        report.filtered += 1
                        continue
                    report.documents += 1
                    yield from passages
            except DataError as error:
                if not reading.skip_bad:
                    raise
                # Several parts meet with a wrong row, and the one whose file it is tells of it.
                if not dealt[0]:
                    report.add_bad(path, error)
    if not report.documents and parts == 1:
        reasons = f": {report.empty} had no text, {report.other_files} were binary or of other kinds"
        message = (
            f"no document was found{reasons if report.skipped else ''}; give files of the formats {', '.join(FORMATS)}"
        )
        if report.filtered:
            filters = ", ".join(f"{each.field}{each.comparison}{each.value}" for each in reading.filters)
            message = f"none of {report.filtered} documents matches {filters}; 'pytrace docs show' says what they say of themselves"
        raise DataError(message, path=", ".join(map(str, roots)))


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
        if not reason and suffix_of(path) not in FORMATS:
            other = SAVED_AS.get(suffix_of(path))
            reason = f"none of the formats that are read{f'; save it as {other}' if other else ''}"
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
    path: Path,
    language: str | None,
    report: ReadReport,
    foreign: ForeignReader,
    dealt: tuple[int, int],
    *,
    alone: bool,
) -> Iterator[_Read]:
    """Read a file; one of a folder that cannot be read is passed over, one that is named alone raises, and so do wrong rows.

    `dealt` is which document is the first to be read of it, and how many it is to the next.
    """
    suffix = suffix_of(path)
    is_foreign = suffix in SUFFIXES or (suffix not in FORMATS and kind_of(path) is not None)
    if suffix in JSON_SUFFIXES or (suffix not in FORMATS and not is_foreign and looks_like_rows(path)):
        yield from _built(json_rows(path), language, report, dealt)
        return
    is_table = suffix in TABLE_SUFFIXES
    if dealt[0] and not is_table:
        return
    try:
        extracted = _extract_foreign(path, foreign) if is_foreign else _extract(path)
    except (DataError, MissingDependencyError) as error:
        if alone:
            raise
        if dealt[0]:
            return
        report.other_files += 1
        report.add(path, "", str(error).removeprefix(f"{path}: "))
        report.add_bad(path, error)
        return
    if extracted is None:
        with open_csv(path) as table:
            report.warn(path, table.warnings)
            yield from _built(table.documents(), language, report, dealt)
        return
    if dealt[0]:
        return
    report.warn(path, extracted.warnings)
    read = _whole(path, extracted, language)
    if read.document.sentences:
        yield read
    else:
        _report_empty(report, read.place, read.document.title)


def _extract_foreign(path: Path, foreign: ForeignReader) -> Extracted:
    kind = kind_of(path)
    if kind is None:
        raise DataError("is packed; unpack it first", path=path)
    return foreign.read(path, kind)


def _extract(path: Path) -> Extracted | None:
    """Read a text or a table as one document; None of a table whose rows are documents."""
    if suffix_of(path) in TABLE_SUFFIXES:
        with open_csv(path) as table:
            return None if table.holds_documents else table.extracted(path)
    text, warning = decode_text(path)
    extracted = read_markdown(text) if suffix_of(path) in MARKDOWN_SUFFIXES else read_plain(text)
    return extracted._replace(warnings=[*extracted.warnings, warning]) if warning else extracted


def _built(
    rows: Iterable[tuple[Place, Row]], language: str | None, report: ReadReport, dealt: tuple[int, int]
) -> Iterator[_Read]:
    """Read the documents that rows hold, and report those without text."""
    for place, row in itertools.islice(rows, dealt[0], None, dealt[1]):
        for paragraph in paragraphs_of(row, place):
            built = build_document(paragraph, language=language)
            if built is None:
                _report_empty(report, place, paragraph.title)
            else:
                yield _Read(place, built.document)


def _whole(path: Path, extracted: Extracted, language: str | None) -> _Read:
    title = extracted.title or _title_from_name(path)
    known = language or detect_language(" ".join(block.text for block in extracted.blocks[:_SAMPLE]))
    if language or known != "en":
        extracted = extracted._replace(metadata={**extracted.metadata, "language": known})
    sentences = [sentences_of(block, language=known) for block in extracted.blocks]
    document = make_document(title, itertools.chain.from_iterable(sentences), source=str(path))
    return _Read(Place(path), document, extracted, sentences)


def _title_from_name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    stem = Path(name).stem if suffix_of(path) in FORMATS else name
    return clean_text(stem.replace("_", " ")) or "untitled"


def _report_empty(report: ReadReport, place: Place | Path, title: str) -> None:
    report.empty += 1
    report.add(place, title, "it has no text")
