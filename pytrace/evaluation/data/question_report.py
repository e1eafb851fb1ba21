"""What is met while questions are read, for whoever wants to know what was left out."""

from __future__ import annotations

import msgspec

from pytrace.documents.text_files import Place

_LISTED = 1_000


class QuestionReport(msgspec.Struct):
    """What `read_questions` met on its way; it grows while questions are read."""

    questions: int = 0  # given out
    left_out: int = 0  # repeated, or marked unanswerable
    empty_documents: int = 0  # dropped, for they had no text
    repeated_documents: int = 0  # dropped, for they stood in their question (or corpus) before
    unresolved_facts: int = 0  # gold facts of no paragraph or sentence of their question, or no document of its corpus
    ambiguous_facts: int = 0  # those whose title several paragraphs have
    notes: list[str] = []  # on the first thousand of all of them

    def add(self, place: Place, note: str) -> None:
        """Keep a note, while there are not too many."""
        if len(self.notes) < _LISTED:
            self.notes.append(f"{place}: {note}")
