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
    """Return the labelled rewritings for a job.

    Parameters
    ----------
    job
        Which of the five.
    path
        A JSONL file of your own, one ``{"job": …, "input": …, "keep": [text, …], "without": …, "output": …}`` a line; ours if
        None. It may hold rows of all jobs; all of them are checked.

    Returns
    -------
    tuple of Rewriting
        In the order of the file.

    Raises
    ------
    DataError
        The file cannot be read, holds no row, or a row is malformed or contradicts itself: its output lacks what must stay,
        is its input, or still holds the expression that it replaces.

    Notes
    -----
    "What External Knowledge is Preferred by LLMs?", section 4.2 and appendices A and I.

    Examples
    --------
    >>> demonstrations("broader")[0].output
    'craftsman'
    """
    rows = load_demonstrations(path, Rewriting, _checked, _SHAPE, shipped="perturbations.jsonl")
    return tuple(row for row in rows if row.job == job)


_SHAPE = '{"job": text, "input": text, "keep": [text, ...], "without": text, "output": text}'


def _checked(row: Rewriting) -> Rewriting:
    require_text("input", row.input)
    require_text("output", row.output)
    for one in row.keep:
        require_text("text to keep", one)
        if not holds(row.output, one):
            message = f"the output lacks {one!r}, which is to be kept; write it in"
            raise ValueError(message)
    if row.output == row.input or (row.job in {"another", "broader"} and holds(row.output, row.input)):
        message = f"the output still says {row.input!r}; reword it"
        raise ValueError(message)
    return row
