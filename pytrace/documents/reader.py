"""Read documents from files and folders, whatever their format."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

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
from pytrace.documents.markdown import read_markdown
from pytrace.documents.rows import Identities, build_document, make_document, paragraphs_of
from pytrace.documents.sentences import clean_text, split_sentences
from pytrace.errors import DataError
from pytrace.records import Document

# So many of what was passed over are named; all of it is counted.
_LISTED = 1_000
_READ_SUFFIXES = (*JSON_SUFFIXES, *MARKDOWN_SUFFIXES, *TEXT_SUFFIXES)


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
    language: str = "en",
    report: ReadReport | None = None,
    distinct: bool = True,
) -> Iterator[Document]:
    """Read documents from files and folders.

    JSON Lines and JSON lists hold documents (`title`, and `text` or `sentences`; `id` if wanted) or questions with
    their documents (HotpotQA, 2WikiMultiHopQA, MuSiQue, our own), which are told apart by their fields; BEIR's documents
    have their id in `_id`, and the beginning of their text for a title where it is empty. Text and Markdown files are one
    document each; their title is the front matter's, the first heading, or the file's name. A folder is read with all
    below it, in the order of names, hidden files and files of other kinds left out, and so are the questions and relevance
    judgements beside a BEIR corpus. A last `.gz` is unpacked.

    Documents without text and documents met before (the same title and words) are left out and reported. A document
    without an id gets one from its title and content, the same wherever it is read. Rows are read one at a time.

    Parameters
    ----------
    paths
        A file or folder, or several.
    language
        ISO 639-1 code for sentence splitting.
    report
        Is filled with counts and with what was left out, while the documents are read.
    distinct
        Whether to leave out documents met before, for which some 300 bytes of each are remembered. A caller that tells
        them apart itself (`TripleStore.sync` does, on disk) gets all of them, in memory that does not grow.

    Returns
    -------
    iterator of Document
        The documents; if they are distinct, ids are unique.

    Raises
    ------
    DataError
        A file is missing, unreadable, binary, not UTF-8, or not what its name says; a row lacks a field or has it of a
        wrong type; two documents with other words have one id; or nothing is left to give out. Says file, line and
        remedy. Missing files are found at the call, everything else on the way.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "Ada Foah.txt").write_text("Ada Foah is a town in Ghana. It lies on the coast.")
    >>> [(document.title, document.sentences) for document in read_documents(folder)]
    [('Ada Foah', ('Ada Foah is a town in Ghana.', 'It lies on the coast.'))]
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    roots = [Path(path) for path in named]
    if not roots:
        raise DataError("no file or folder was given to read documents from; name at least one")
    for root in roots:
        _check_exists(root)
    return _read(roots, language, report if report is not None else ReadReport(), Identities() if distinct else None)


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


def _read(roots: list[Path], language: str, report: ReadReport, identities: Identities | None) -> Iterator[Document]:
    for root in roots:
        for path in _files(root, report):
            for place, document in _documents(path, language, report):
                before = None if identities is None else identities.first_place(document, place)
                if before is not None:
                    report.add_duplicate(document, before)
                    continue
                report.documents += 1
                yield document
    if not report.documents:
        reasons = f": {report.empty} had no text, {report.other_files} were files of other kinds"
        raise DataError(
            f"no document was found{reasons if report.skipped else ''}; give JSON Lines with title and text, or text "
            f"or Markdown files ({', '.join(_READ_SUFFIXES)})",
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
            reason = "not a text, Markdown or JSON file"
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


def _documents(path: Path, language: str, report: ReadReport) -> Iterator[tuple[Place, Document]]:
    suffix = suffix_of(path)
    if suffix in JSON_SUFFIXES or (suffix not in _READ_SUFFIXES and looks_like_rows(path)):
        for place, row in json_rows(path):
            for paragraph in paragraphs_of(row, place):
                built = build_document(paragraph, language=language)
                if built is None:
                    _report_empty(report, place, paragraph.title)
                else:
                    yield place, built.document
        return
    document = _text_document(path, language, markdown=suffix in MARKDOWN_SUFFIXES)
    if document.sentences:
        yield Place(path), document
    else:
        _report_empty(report, path, document.title)


def _text_document(path: Path, language: str, *, markdown: bool) -> Document:
    text = read_text(path)
    title = ""
    if markdown:
        title, blocks = read_markdown(text)
        sentences = [
            sentence
            for block in blocks
            for sentence in ([block.text] if block.whole else split_sentences(block.text, language=language))
        ]
    else:
        sentences = split_sentences(text, language=language)
    return make_document(title or _title_from_name(path), sentences, source=str(path))


def _title_from_name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    stem = Path(name).stem if suffix_of(path) in _READ_SUFFIXES else name
    return clean_text(stem.replace("_", " ")) or "untitled"


def _report_empty(report: ReadReport, place: Place | Path, title: str) -> None:
    report.empty += 1
    report.add(place, title, "it has no text")
