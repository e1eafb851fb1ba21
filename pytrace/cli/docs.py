"""``pytrace docs``: what is read of documents, before anything is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytrace.cli import common
from pytrace.cli.commands import Command, Result, argument, click_group, option
from pytrace.cli.shared_options import LANGUAGE, PASSAGE_OVERLAP, PASSAGE_WORDS
from pytrace.records import Document

# Of what was passed over.
_NAMED = 20


class Show(Command):
    """Show what is read of PATH, a file or a folder: passages with their headings, pages and characters.

    This is what methods see. What was passed over is said on stderr, with the reason.
    """

    path: Path = argument()
    limit: int = option("At most so many passages.", ge=0, default=20)
    words: int = PASSAGE_WORDS
    overlap: int = PASSAGE_OVERLAP
    language: str | None = LANGUAGE

    def run(self) -> Result:
        from pytrace.documents import ReadReport, read_documents

        report = ReadReport()
        passages = list(
            read_documents(self.path, language=self.language, report=report, words=self.words, overlap=self.overlap)
        )
        common.print_skipped(report, _NAMED)
        document = {"documents": report.documents, "passages": passages, "skipped": report.skipped}
        return Result(document, lambda: _print(passages, report.documents, self.limit))


def _print(passages: Sequence[Document], documents: int, limit: int) -> None:
    for passage in passages[:limit]:
        common.print_styled(common.printable(f"{passage.id}: {passage.title}"))
        common.print_text(common.printable(f"  {common.citation(passage)}"))
        if passage.origin is not None and passage.origin.metadata:
            fields = (f"{name}: {value}" for name, value in passage.origin.metadata.items())
            common.print_text(common.printable(f"  {'; '.join(fields)}"))
        for sentence in passage.sentences:
            common.print_text(common.printable(f"    {sentence}"))
    more = f"; the first {limit} are shown, --limit shows more" if len(passages) > limit else ""
    common.print_text(f"{documents} documents, {len(passages)} passages{more}")


docs = click_group("See what is read of documents.", Show)
