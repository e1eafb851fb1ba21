"""Claims in which the words that their evidence lacks are marked, for models that were trained to look at these."""

from __future__ import annotations

from pytrace.certify.claims.features import compare
from pytrace.certify.claims.tokens import tokens
from pytrace.documents.languages import detect_language
from pytrace.documents.sentences import split_sentences

MARKS = "pytrace_marks_missing"
"""Under this name ``config.json`` says, with true, that a model was trained on such claims."""


def mark_missing(claim: str, evidence: str) -> str:
    """Put an asterisk before each word, name and number of a claim that no word of its evidence is aligned with.

    A small network learns from few claims whether what differs says the same in other words; where it differs, alignment tells it.

    Examples
    --------
    >>> mark_missing("Impregilo finished the dam in 1975.", "Impregilo built the dam in 1965.")
    'Impregilo * finished the dam in * 1975.'
    """
    sentences = [tokens(sentence) for sentence in split_sentences(evidence)]
    english = detect_language(evidence) == "en"
    missing = compare(tokens(claim), sentences, english=english).missing
    for token in sorted(missing, key=lambda token: -token.start):
        claim = f"{claim[: token.start]}* {claim[token.start :]}"
    return claim
