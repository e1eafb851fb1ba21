"""What is met while questions are read, for whoever wants to know what was left out."""

from __future__ import annotations

import msgspec

from pytrace.documents.json_rows import Place

_LISTED = 1_000


class QuestionReport(msgspec.Struct):
    """What `read_questions` met on its way; it grows while questions are read.

    `questions` counts those given out, `left_out` those that were not (repeated, or marked unanswerable).
    `empty_documents` and `repeated_documents` count paragraphs that were dropped because they had no text or stood in
    their question (or corpus) before, `unresolved_facts` gold facts that point to no paragraph or sentence of their question, or
    to no document of its corpus, and `ambiguous_facts` those whose title several paragraphs have. `notes` names the first thousand
    of all of them.
    """

    questions: int = 0
    left_out: int = 0
    empty_documents: int = 0
    repeated_documents: int = 0
    unresolved_facts: int = 0
    ambiguous_facts: int = 0
    notes: list[str] = []

    def add(self, place: Place, note: str) -> None:
        """Keep a note, while there are not too many."""
        if len(self.notes) < _LISTED:
            self.notes.append(f"{place}: {note}")
