r"""The text that a trained query generator reads and writes, the same in training and in use.

A generator of its own is trained on ``Question: …\nCorrect query: …\n``, the contrastive one with ``Incorrect query 1: …\n``
and so on after it (Li et al., "Chain of Knowledge", 2023, section 4). In use it is given all up to `QUERY_LABEL` and
goes on to the end of the line; a space stands between a label and its text.
"""

from __future__ import annotations

from pytrace.errors import InputError

QUESTION_LABEL = "Question:"
QUERY_LABEL = "Correct query:"
"""What stands before the query that answers the question."""

METADATA_KEY = "pytrace.query_generator"
"""Where the model's file says, as a JSON object, that it is a query generator, and how it was trained."""

TEMPLATE_VERSION = 1
"""Changes whenever the texts do, so that no model is given a prompt that it was not trained on."""


def question_prompt(question: str) -> str:
    """Return what a trained generator is given for a question; its continuation is a space, the query and a line break."""
    return f"{QUESTION_LABEL} {' '.join(question.split())}\n{QUERY_LABEL}"


def wrong_label(number: int) -> str:
    """Return the label of a wrong query, which the contrastive training text has after the correct one."""
    if number < 1:
        raise InputError(f"the wrong query's number is {number}; count from 1")
    return f"Incorrect query {number}:"
