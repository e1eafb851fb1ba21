"""The texts that a query generator learns from: a question, its query, and perhaps wrong queries behind it.

Source: Chain of Knowledge, section 4.3: correct and wrong queries are modelled in one sequence, and only the tokens of
queries are learned (equation 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.kg.queries import write_query
from pytrace.kg.queries.template import question_prompt, wrong_label
from pytrace.training.training_records import Piece, QueryExample, TrainingText, WrongQuery


def training_text(example: QueryExample, wrong: Sequence[WrongQuery] = ()) -> TrainingText:
    """Write an example as one sequence."""
    # Chain of Knowledge, section 4.3 and appendix A.1.1.
    pieces = [Piece(question_prompt(example.question), learned=False), _learned(write_query(example.query))]
    for number, query in enumerate(wrong, 1):
        pieces += [Piece(wrong_label(number), learned=False), _learned(query.text)]
    return TrainingText(tuple(pieces))


def _learned(query: str) -> Piece:
    # A line break would end the query for whoever generates.
    return Piece(f" {' '.join(query.split())}\n", learned=True)
