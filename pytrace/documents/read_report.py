"""What was passed over while documents and triples were read, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import msgspec

from pytrace.errors import DataError
from pytrace.records import Document

# So many of what was passed over are named; all of it is counted.
_LISTED = 1_000
# So many lines of a file that cannot be read are named; more are another form, and would fill memory.
_MOST_BAD_LINES = 100_000


class Skipped(msgspec.Struct, frozen=True):
    """Something that was passed over: where it stands, its title if it has one, and why."""

    source: str
    title: str
    reason: str


class ReadReport(msgspec.Struct):
    """What `read_documents` met on its way; it grows while documents are read.

    `documents` counts those given out, `empty` those without text, `duplicates` those met before with the same title
    and words, `filtered` those that a filter left out, `other_files` the files of a folder that hold no documents. `skipped`
    names the first thousand of all but the filtered, `warnings` what of a document was not read, or by guessing. `bad` names the
    files that hold documents, or should, and could not be read, or not to their end, and the lines of triples left out.
    """

    documents: int = 0
    empty: int = 0
    duplicates: int = 0
    filtered: int = 0
    other_files: int = 0
    skipped: list[Skipped] = []
    warnings: list[str] = []
    bad: list[Skipped] = []

    def add(self, source: object, title: str, reason: str) -> None:
        """Name one more thing that was passed over, while there are not too many."""
        if len(self.skipped) < _LISTED:
            self.skipped.append(Skipped(str(source), title, reason))

    def warn(self, path: Path, warnings: Iterable[str]) -> None:
        """Keep what of a file was not read, or only by guessing."""
        self.warnings += [f"{path}: {warning}" for warning in warnings][: _LISTED - len(self.warnings)]

    def add_bad(self, path: Path, error: Exception) -> None:
        """Name a file, or the line of one that the error has, that could not be read."""
        line = getattr(error, "line", None)
        reason = str(error).removeprefix(f"{path}: " if line is None else f"{path}:{line}: ")
        self.bad.append(Skipped(str(path), "", reason if line is None else f"line {line}: {reason}"))

    @contextmanager
    def skipping(self, path: Path) -> Iterator[None]:
        """Name a line of a file that cannot be read, and go on."""
        try:
            yield
        except DataError as error:
            if len(self.bad) == _MOST_BAD_LINES:
                raise DataError(
                    f"{error}; so are {_MOST_BAD_LINES:,} lines before it: give the format that the file has, or repair it"
                ) from error
            self.add_bad(path, error)

    def add_duplicate(self, document: Document, first: str) -> None:
        """Count a document that was met before, at `first`, and name it."""
        self.duplicates += 1
        self.add(document.source, document.title, f"the same document as {first}")


def skipping(path: Path, report: ReadReport | None) -> AbstractContextManager[None]:
    """As `ReadReport.skipping`, where there is a report; else errors are raised."""
    return nullcontext() if report is None else report.skipping(path)
