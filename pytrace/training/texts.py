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
    r"""Write an example as one sequence.

    References
    ----------
    Chain of Knowledge, section 4.3 and appendix A.1.1.

    Examples
    --------
    >>> from pytrace.kg.queries import TripletQuery
    >>> example = QueryExample("1", "what is the capital of Ghana?", TripletQuery("Ghana", "capital", "?"), "Ghana")
    >>> text = training_text(example, [WrongQuery("<?; capital; Ghana>", "swapped-arguments")])
    >>> print(text.text, end="")
    Question: what is the capital of Ghana?
    Correct query: <Ghana; capital; ?>
    Incorrect query 1: <?; capital; Ghana>
    >>> [piece.text for piece in text.pieces if piece.learned]
    [' <Ghana; capital; ?>\n', ' <?; capital; Ghana>\n']
    """
    pieces = [Piece(question_prompt(example.question), learned=False), _learned(write_query(example.query))]
    for number, query in enumerate(wrong, 1):
        pieces += [Piece(wrong_label(number), learned=False), _learned(query.text)]
    return TrainingText(tuple(pieces))


def _learned(query: str) -> Piece:
    # A line break would end the query for whoever generates.
    return Piece(f" {' '.join(query.split())}\n", learned=True)
