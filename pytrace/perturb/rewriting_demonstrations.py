"""Labelled rewritings that show a model how to change a text on purpose; they stand in `pytrace/prompts` as data."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from pytrace.documents.mentions import holds
from pytrace.reader.prompts import load_demonstrations, require_text

# another: a phrase of the same kind; broader: a higher-level expression; unrelated: a sentence without a relation;
# unintended: one without the intent's information; misstated: a sentence with a wrong answer.
Job = Literal["another", "broader", "unrelated", "unintended", "misstated"]


class Rewriting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, what must stay in it, what it must no longer tell, and the text that came of it."""

    job: Job
    input: str
    keep: tuple[str, ...]
    without: str
    output: str


def demonstrations(job: Job, *, path: str | os.PathLike[str] | None = None) -> tuple[Rewriting, ...]:
    """Return the labelled rewritings for a job."""
    # "What External Knowledge is Preferred by LLMs?", section 4.2 and appendices A and I.
    rows = load_demonstrations(path, Rewriting, _checked, _SHAPE, shipped="perturbations.jsonl")
    return tuple(row for row in rows if row.job == job)


_SHAPE = '{"job": text, "input": text, "keep": [text, ...], "without": text, "output": text}'


def _checked(row: Rewriting) -> Rewriting:
    require_text("input", row.input)
    require_text("output", row.output)
    for one in row.keep:
        require_text("text to keep", one)
        if not holds(row.output, one):
            raise ValueError(f"the output lacks {one!r}, which is to be kept; write it in")
    if row.output == row.input or (row.job in {"another", "broader"} and holds(row.output, row.input)):
        raise ValueError(f"the output still says {row.input!r}; reword it")
    return row
