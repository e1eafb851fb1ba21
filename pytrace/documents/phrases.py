"""What a sentence is about, without a model: its content phrases and its subject, found by lists of English words.

Names, dates, numbers, quoted titles and the nouns behind "is a" are what facts are about. They stand between words of a few
hundred kinds (prepositions, auxiliaries, pronouns, verbs in the past tense), so that breaking a sentence there leaves them
over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import islice

import msgspec

_WORD = re.compile(r'"[^"]+"|“[^”]+”|\([^()]*\)|\[[^\]]*\]|\d[\d,.]*\d|[^\s,;:()"“”\[\]]+|[,;:]')

LANGUAGE = "en"
"""The language whose function words are known."""

# Words that no phrase crosses, by kind.
_ENGLISH = {
    kind: frozenset(words)
    for kind, words in json.loads((resources.files(__package__) / "english_words.json").read_text("utf-8")).items()
}
_BREAKS = _ENGLISH["prepositions"] | _ENGLISH["auxiliaries"] | _ENGLISH["pronouns"]
_VERBS = _ENGLISH["verbs"]
_DETERMINERS = frozenset(("a", "an", "the"))
_CONJUNCTIONS = frozenset(("and", "or", "&"))
# "The Combination at The Albany Empire" is one phrase: what stands between its names only ties them together.
_TIES = frozenset(("in", "at", "of", "and", "or"))
_BEHIND = re.compile(r"[ ,]*\s*(\S*)")
# What a token may begin with that is no word.
_MARKS = frozenset('([,;:"“')
# A capital or a digit: what names, dates and numbers have.
_INFORMATIVE = re.compile(r"[^\W\d_a-zß-öø-ÿ]|\d")
# Behind these words a phrase says what something is, capitals or not.
_COPULA = re.compile(r"\b(?:is|are|was|were|became|becomes|being)\b")
_NATIONALITY = re.compile(r"[A-Z][a-z]+(?:an|ish|ese|ch|i|ek)(?:[- ](?=[A-Z])[A-Z][a-z]+(?:an|ish|ese))?(?= [a-z])")
# An initial or a short title keeps its full stop, wherever it stands.
_ABBREVIATED = re.compile(r"(?:\b\w|\b[A-Z][a-z]{1,2})\.$")
# A short form in brackets has fewer characters than this.
_ACRONYM = 8
_LETTER = re.compile(r"\w")
_NAMING = re.compile(r"[^\W_]")
_SHORTEST = 3
# Of what stands before a main clause, up to a comma, so many words are looked at.
_LONGEST_OPENING = 30
# Of the words before a phrase the last so many characters are kept.
_LONGEST_BEFORE = 160
# What is longer is no sentence, and is looked at in such parts: brackets and quotes that nothing closes cost the square of a part.
_LONGEST_SENTENCE = 2_000


def function_words() -> dict[str, frozenset[str]]:
    """Return the English words that no phrase crosses, by kind: prepositions, auxiliaries, pronouns, verbs, past tenses, openings."""
    return _ENGLISH


class Phrase(msgspec.Struct, frozen=True):
    """A content phrase of a sentence, and the words between the phrase before it and itself ("" if there are none).

    Of many such words the last are kept.
    """

    text: str
    before: str


def content_phrases(sentence: str, *, language: str = "en") -> list[Phrase]:
    """Find the phrases that facts are about: names, dates, numbers, quoted titles, and what something "is".

    Parameters
    ----------
    sentence
        One sentence.
    language
        Its ISO 639-1 code. Only English is known, as the function words are; of others no phrase is found.

    Returns
    -------
    list of Phrase
        In their order; a list of names is one phrase, and the nationality in "is a Danish fort" one of its own.

    Examples
    --------
    >>> for phrase in content_phrases('Ada Foah is a Danish trading fort that was built by "The Company" in 1783.'):
    ...     print(phrase)
    Phrase(text='Ada Foah', before='')
    Phrase(text='Danish', before='is a')
    Phrase(text='trading fort', before='is a')
    Phrase(text='The Company', before='that was built by')
    Phrase(text='1783', before='in')
    """
    if language != LANGUAGE:
        return []
    return [
        phrase
        for start in range(0, len(sentence), _LONGEST_SENTENCE)
        for phrase in _phrases(sentence[start : start + _LONGEST_SENTENCE])
    ]


def _phrases(sentence: str) -> Iterator[Phrase]:
    end = 0
    described = False
    for start, stop in _tied(sentence, _spans(sentence, 0)):
        text = sentence[start:stop]
        if text.endswith(".") and not _ABBREVIATED.search(text):
            text = text[:-1].rstrip()
        before = sentence[max(end, start - _LONGEST_BEFORE) : start].strip(' ,;:"()“”[]')
        is_one = not described and _COPULA.search(before) is not None
        # The first word of a sentence has a capital in any case.
        names = _INFORMATIVE.search(text, 0 if start > _SHORTEST else 1) is not None
        if len(text) < _SHORTEST or not (names or is_one):
            continue
        described = described or _COPULA.search(before) is not None
        nationality = _NATIONALITY.match(text) if is_one else None
        if nationality is not None:
            yield Phrase(nationality[0], before)
            text = text[nationality.end() :].strip()
        yield Phrase(text, before)
        end = stop


def _spans(text: str, offset: int) -> Iterator[tuple[int, int]]:
    """Find where the words lie that stand between function words."""
    open_words: list[re.Match[str]] = []

    def close() -> Iterator[tuple[int, int]]:
        while open_words and _hangs(open_words[-1][0]):
            open_words.pop()
        while open_words and _hangs(open_words[0][0]):
            open_words.pop(0)
        if open_words:
            yield offset + open_words[0].start(), offset + open_words[-1].end()
        open_words.clear()

    # No more words are looked at than are asked for, and the one behind.
    matches = _WORD.finditer(text)
    word, coming = "", next(matches, None)
    following = "" if coming is None else coming[0]
    while coming is not None:
        match, before, word = coming, word, following
        coming = next(matches, None)
        following = "" if coming is None else coming[0]
        if word[0] in _MARKS:
            if word[0] in "([":
                yield from close()
                yield from _spans(word[1:-1], offset + match.start() + 1)
            elif word[0] in '"“':
                yield from close()
                inner = word.strip('"“”').strip()
                if inner:
                    first = offset + match.start() + word.index(inner)
                    yield first, first + len(inner)
            elif word == "," and open_words and _goes_on(open_words[-1][0], following):
                open_words.append(match)
            else:
                yield from close()
            continue
        lower = word.lower()
        joins = lower == "of" and open_words and following and following.lower() not in _ENGLISH["pronouns"]
        is_month = word == "May" and following[:1].isdigit()
        if not (joins or is_month) and (lower in _BREAKS or (_is_verb(word) and not before.endswith("ly"))):
            yield from close()
        elif joins or open_words or lower not in _CONJUNCTIONS:
            open_words.append(match)
    yield from close()


def _hangs(word: str) -> bool:
    return word == "," or word.lower() in _DETERMINERS or word.lower() in _CONJUNCTIONS or word.lower() == "of"


def _goes_on(before: str, after: str) -> bool:
    """Tell whether a comma stands within a list of names, a place or a date."""
    if after[:1].isdigit():
        return True
    if not before[:1].isupper():
        return False
    return after.lower() in _CONJUNCTIONS or (after[:1].isupper() and after.lower() not in _BREAKS)


def _is_verb(word: str) -> bool:
    known = word in _VERBS or (word.endswith("ed") and len(word) > 4 and "-" not in word)
    return known and word[0].islower()


def _tied(sentence: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Put names together that a word only ties, and a name with its short form in brackets."""
    last: tuple[int, int] | None = None
    for start, stop in spans:
        if last is not None:
            before, end = last
            text, between = sentence[start:stop], sentence[end:start]
            words = [word for word in between.strip(" ,").lower().split() if word not in _DETERMINERS]
            named = _INFORMATIVE.search(sentence, before, end) and _INFORMATIVE.search(text)
            if len(words) == 1 and words[0] in _TIES and named and not text[:1].isdigit() and '"' not in between:
                last = before, stop
                continue
            if between.strip() == "(" and text.isupper() and len(text) < _ACRONYM and sentence[stop : stop + 1] == ")":
                last = before, stop + 1
                continue
            yield last
        last = start, stop
        if not _may_be_tied(sentence, stop):
            # At once: who wants the first phrase alone need not find the next.
            yield last
            last = None
    if last is not None:
        yield last


def _may_be_tied(sentence: str, end: int) -> bool:
    """Tell, by the word behind it, whether a phrase may be tied to the next."""
    following = _BEHIND.match(sentence, end)
    word = "" if following is None else following[1].lower().rstrip(",")
    return word in _TIES or word in _DETERMINERS or word.startswith("(")


def is_pronoun(text: str) -> bool:
    """Tell whether a text is a single word that names nothing by itself, as "It" and "there" do; "IT" and "US" are names.

    Examples
    --------
    >>> [word for word in ("It", "she", "US", "Ghana") if is_pronoun(word)]
    ['It', 'she']
    """
    return text[:1].lower() + text[1:] in _ENGLISH["pronouns"]


def sentence_subject(sentence: str) -> tuple[int, int] | None:
    """Find what a sentence is about: the characters of the phrase before its main verb.

    Parameters
    ----------
    sentence
        One sentence; English, as the function words are.

    Returns
    -------
    tuple of int, or None
        Where it begins and ends; None where a pronoun stands in its place, or nothing.

    Examples
    --------
    >>> for sentence in ("In May, the old mill burned.", "Ada Foah lies on the coast.", "Its mayor smiled."):
    ...     found = sentence_subject(sentence)
    ...     print(found and sentence[slice(*found)])
    old mill
    Ada Foah
    None
    """
    sentence = sentence[:_LONGEST_SENTENCE]
    begin = _clause_start(sentence)
    clause = sentence[begin:].rstrip(" .!?")
    for start, stop in islice(_tied(clause, _spans(clause, 0)), 1):
        end = _before_verb(clause, start, stop)
        before, following = clause[:start].strip(' "“').lower(), clause[end:].lstrip('"”')
        # A label ("Owner: …") is no subject, and a fragment has none.
        fragment = following[:1] == ":" or not _LETTER.search(following)
        if before in {"", *_DETERMINERS} and _NAMING.search(clause, start, end) and not fragment:
            return begin + start, begin + end
    return None


def _clause_start(sentence: str) -> int:
    """Return where the main clause begins: behind an adverb, or a phrase such as "In May," or "In 1848"."""
    found = islice(_WORD.finditer(sentence), _LONGEST_OPENING)
    words = [*islice(found, 2)]
    if len(words) < 2:
        return 0
    first, second = words[0][0], words[1][0]
    lower = first.lower()
    if not _may_open(first):
        return 0
    words += found
    comma = next((word.end() for word in words if word[0] == ","), 0)
    if lower in _ENGLISH["openings"]:
        return comma or words[0].end()
    if lower in _ENGLISH["prepositions"]:
        # An article may tell where the phrase ends; a comma behind a verb does not.
        verb = next((word.start() for word in words if _is_finite(word[0])), len(sentence))
        article = next((word.start() for word in words[2:] if _is_new_article(sentence, word)), 0)
        return comma if 0 < comma < verb else article
    if _is_verb(lower) or lower in _ENGLISH["past_tenses"] or first.endswith("ing"):
        return comma if second.islower() and second not in _ENGLISH["auxiliaries"] else 0
    return comma if second == "," and (lower in _BREAKS or lower.endswith("ly")) else 0


def _may_open(word: str) -> bool:
    """Tell whether what stands before a main clause may begin with a word."""
    lower = word.lower()
    known = lower in _BREAKS or lower in _ENGLISH["openings"] or lower in _ENGLISH["past_tenses"]
    return known or lower.endswith(("ing", "ly")) or _is_verb(lower)


def _is_new_article(sentence: str, word: re.Match[str]) -> bool:
    """Tell whether a word is an article behind a noun, and not behind a preposition, a conjunction or a verb."""
    before = sentence[: word.start()].split()[-1:]
    return word[0] in _DETERMINERS and not {*before} & (_BREAKS | _CONJUNCTIONS) and not _is_verb(before[0])


def _before_verb(sentence: str, start: int, stop: int) -> int:
    """Return the end of a phrase without the verb that `_spans`, which knows few, has left in it."""
    words = [word for word in _WORD.finditer(sentence, start, stop) if _LETTER.search(word[0])]
    for number, word in enumerate(words[1:], 1):
        if word[0] in _ENGLISH["past_tenses"]:
            return words[number - 1].end()
        before = words[number - 1][0]
        if (word[0] in _DETERMINERS and before.lower() not in _TIES) or (word[0][0].isdigit() and _ends_in_s(before)):
            return words[number - 2].end() if number > 1 else start
    while len(words) > 1 and words[-1][0].islower() and words[-1][0].endswith("ly"):
        words.pop()
    if len(words) > 1 and _ends_in_s(words[-1][0]):
        # A plural, if a verb comes later.
        following = [word[0] for word in islice(_WORD.finditer(sentence, words[-1].end()), _LONGEST_OPENING)]
        if following and not any(map(_is_finite, following)):
            words.pop()
    return words[-1].end() if words else start


def _is_finite(word: str) -> bool:
    return word in _ENGLISH["auxiliaries"] or word in _ENGLISH["past_tenses"] or _is_verb(word)


def _ends_in_s(word: str) -> bool:
    """Tell whether a word may be a verb of the third person."""
    return word.islower() and word.endswith("s") and not word.endswith("ss")
