"""``pytrace docs``: what is read of documents, before anything is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, click_group, option
from pytrace.cli.shared_options import READING
from pytrace.documents.reader import ReadOptions
from pytrace.records import Document

# Of what was passed over.
_NAMED = 20


class Show(Command):
    """Show what is read of PATH, a file or a folder: passages with their headings, pages and characters.

    This is what methods see. What was passed over is said on stderr, with the reason.
    """

    path: Path = argument()
    limit: int = option("Maximum number of passages.", ge=0, default=20)
    reading: ReadOptions = READING

    def run(self) -> Output:
        from pytrace.documents import ReadReport, read_documents

        report = ReadReport()
        passages = list(read_documents(self.path, report=report, **self.reading))
        common.print_skipped(report, _NAMED)
        document = {
            "documents": report.documents,
            "passages": passages,
            "skipped": report.skipped,
            "warnings": report.warnings,
        }
        return Output(document, lambda: _print(passages, report.documents, self.limit))


def _print(passages: Sequence[Document], documents: int, limit: int) -> None:
    for passage in passages[:limit]:
        common.print_styled(common.printable(f"{passage.id}: {passage.title}"))
        common.print_text(common.printable(f"  {passage.citation()}"))
        if passage.origin is not None and passage.origin.metadata:
            fields = (
                f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
                for name, value in passage.origin.metadata.items()
            )
            common.print_text(common.printable(f"  {'; '.join(fields)}"))
        for sentence in passage.sentences:
            common.print_text(common.printable(f"    {sentence}"))
    more = f"; the first {limit} are shown, --limit shows more" if len(passages) > limit else ""
    common.print_text(f"{documents} documents, {len(passages)} passages{more}")


docs = click_group("See what is read of documents.", Show)
