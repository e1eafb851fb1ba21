"""Forms of one word: English words by their stems, within one part of speech; words of other languages by their first letters."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from snowballstemmer.english_stemmer import EnglishStemmer

from pytrace.certify.claims.tokens import IRREGULAR_FORMS

PREFIX = 4
"""Length of the prefix that all regular forms of a word share."""
# In other languages than English two words are forms of one if they share this part of the longer word, and few letters follow.
_MIN_SHARED, _MAX_ENDING = 0.55, 4
# Endings that leave a word the same part of speech: of plurals, tenses and participles.
_INFLECTION = re.compile(r"(?:ings?|ed|es|s|e)$")


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
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(word, stem, strict=False)))
    ending = word[shared:]
    ending = _INFLECTION.sub("", f"{ending[:-1]}i" if ending.endswith("y") else ending)
    # Spelling alone: "city" of "citi", "modelled" of "model", "hoped" of "hope", "dying" of "die".
    return stem if ending in ("", "i", "d", "y", stem[-1:]) else f"{stem}+{ending}"


def form_key(word: str, *, english: bool) -> str:
    """Return what all forms of a word share: its lemma, or its first letters in other languages than English."""
    return lemma(word) if english else word[:PREFIX]


def are_one_word(first: str, second: str, *, english: bool) -> bool:
    """Say whether two words are forms of one.

    Examples
    --------
    >>> are_one_word("founded", "foundry", english=True), are_one_word("Kirche", "Kirchen", english=False)
    (False, True)
    """
    if english:
        return lemma(first) == lemma(second)
    longest = max(len(first), len(second))
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    return shared >= max(PREFIX, _MIN_SHARED * longest) and longest - shared <= _MAX_ENDING
