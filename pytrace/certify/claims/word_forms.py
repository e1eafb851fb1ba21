"""Forms of one word: English words by their stems, within one part of speech; words of other languages by their first letters."""

from __future__ import annotations

import re
from functools import lru_cache

from snowballstemmer.english_stemmer import EnglishStemmer

from pytrace.certify.claims.tokens import IRREGULAR_FORMS

PREFIX = 4
"""Length of the prefix that the forms of a word share in languages without a stemmer here."""
_ENGLISH_PREFIX = 2  # of "go" and "goes"
# In other languages than English two words are forms of one if they share this part of the longer word, and few letters follow.
_MIN_SHARED, _MAX_ENDING = 0.55, 4
# Endings that leave a word the same part of speech: of plurals, tenses and participles.
_INFLECTION = re.compile(r"(?:ings?|ed|es|s|e)$")

# What may follow the letters that two inflected forms share: "ied" and "ying" of "studied" and "studying", "ped" of "stopped" and "stop".
_ENDING = re.compile(r"\w?(?:ings?|e[ds]?|s|d)?")


@lru_cache(maxsize=1 << 17)
def lemma(word: str) -> str:
    """Return what the inflected forms of an English word have in common, and words of another part of speech do not.

    This is Snowball's stem, with the ending if that makes another word of it, as "-ity" does.

    Parameters
    ----------
    word
        In lower case, without accents.

    Examples
    --------
    >>> [lemma(word) for word in ("founded", "founding", "foundry", "authors", "authority", "wrote", "written")]
    ['found', 'found', 'foundri', 'author', 'author+iti', 'write', 'write']
    """
    word = IRREGULAR_FORMS.get(word, word)
    # Made for each word, since a stemmer has a state that threads would share.
    stem = EnglishStemmer().stemWord(word)
    shared = _shared_letters(word, stem)
    ending = word[shared:]
    ending = _INFLECTION.sub("", f"{ending[:-1]}i" if ending.endswith("y") else ending)
    # Spelling alone: "city" of "citi", "modelled" of "model", "hoped" of "hope", "dying" of "die".
    return stem if ending in ("", "i", "d", "y", stem[-1:]) else f"{stem}+{ending}"


def form_prefix(word: str, *, english: bool) -> str:
    """Return letters that all forms of a word share, by which candidates for `are_one_word` are found without stemming every word."""
    return IRREGULAR_FORMS.get(word, word)[:_ENGLISH_PREFIX] if english else word[:PREFIX]


def are_one_word(first: str, second: str, *, english: bool) -> bool:
    """Say whether two words are forms of one.

    Examples
    --------
    >>> are_one_word("founded", "foundry", english=True), are_one_word("Kirche", "Kirchen", english=False)
    (False, True)
    """
    shared = _shared_letters(first, second)
    if english:
        # Stemming takes most of the time, so words are stemmed only if such endings, or a listed form, may make them one.
        likely = _ENDING.fullmatch(first, shared) and _ENDING.fullmatch(second, shared)
        return bool(likely or first in IRREGULAR_FORMS or second in IRREGULAR_FORMS) and lemma(first) == lemma(second)
    longest = max(len(first), len(second))
    return shared >= max(PREFIX, _MIN_SHARED * longest) and longest - shared <= _MAX_ENDING


def _shared_letters(first: str, second: str) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
