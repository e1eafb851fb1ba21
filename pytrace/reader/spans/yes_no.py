"""Features of the answers "yes" and "no": two things share a country, the evidence states what is asked, or a sentence denies it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytrace.reader.answers import normalise_answer
from pytrace.reader.spans.comparison import Entry, asked_about, holder_of, role_of, without_names
from pytrace.reader.spans.words import COUNTRIES, content_stems, stem, words

_SAME = re.compile(r"\b(?:same|share)\b")
_ORIGIN = re.compile(r"\b(?:country|countries|nation|nationality|nationalities|citizenship)\b")
# Of the question, and no part of what is asked of the two.
_ASKING = frozenset(("both", "same", "share", "two", "either"))
_COUNTRY = re.compile(
    rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(COUNTRIES, key=len, reverse=True)))})(?!\w)", re.IGNORECASE
)
_NEGATION = re.compile(r"(?:\b(?:not|never|cannot|no longer)|n['’]t)\s+(?:\w+ly\s+)?(\w+)", re.IGNORECASE)
# Share of the question's words that the denying sentence needs. From 0.5 to 1, 68 to 71 % of the claims that it denies are refuted
# (python -m benches.denials).
_DENIED = 0.75
_FIRST = 2  # sentences that tell what something is and where it comes from


def yes_features(question: str, entries: Sequence[Entry]) -> dict[str, float]:
    """Return what speaks for and against the answer "yes", by name.

    Examples
    --------
    >>> entries = [Entry("Ann Hay", ["Ann Hay is a Scottish poet."]), Entry("Jo Berg", ["Jo Berg was a German chemist."])]
    >>> yes_features("Are Ann Hay and Jo Berg from the same country?", entries)
    {'yes': 1.0, 'yes: one country False': 1.0}
    """
    named = asked_about(question, entries)
    bare = without_names(question, [entries[number] for number in named])
    features = {"yes": 1.0}
    if _SAME.search(bare) and _ORIGIN.search(bare):
        found = [_countries(entry) for entry in _compared(role_of(bare), named, entries)]
        if len(found) == 2 and all(found):
            features[f"yes: one country {found[0][0] == found[1][0]}"] = 1.0
        return features
    titles = content_stems(words(" ".join(entries[number].title for number in named)))
    asked = content_stems(words(question)) - titles - _ASKING
    if asked and named:
        said = [content_stems(words(" ".join(entries[number].sentences))) for number in named]
        features["yes: the least said"] = min(len(asked & stems) for stems in said) / len(asked)
        features["yes: the most unsaid"] = float(min(len(asked & stems) for stems in said) == 0)
    return features


def is_denied(question: str, sentences: Sequence[str], *, share: float = _DENIED) -> bool:
    """Return whether the sentence with most words of the question negates one of them.

    The sentence needs this share of the words.

    Examples
    --------
    >>> is_denied("Does Ferry follow redirects?", ["Ferry is fast.", "Ferry does not follow redirects by default."])
    True
    >>> is_denied("Does Ferry follow redirects?", ["Ferry follows redirects.", "It does not follow links."])
    False
    >>> is_denied("Does Ferry support HTTP/2?", ["In Ferry, HTTP/2 support is not enabled by default."])
    False
    """
    asked = content_stems(words(question))
    if not asked or _NEGATION.search(question):
        return False
    best = max(sentences, key=lambda text: len(asked & content_stems(words(text))), default="")
    negated = {stem(match[1]) for match in _NEGATION.finditer(best)}
    return len(asked & content_stems(words(best))) >= share * len(asked) and not asked.isdisjoint(negated)


def _compared(role: str | None, named: Sequence[int], entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that are compared: those that are named, or of their directors (…), where these are asked about."""
    if role is None:
        return [entries[number] for number in named]
    others = [entry for number, entry in enumerate(entries) if number not in named]
    # A film whose director is told of nowhere is told of itself.
    return [holder_of(role, entries[number], others) or entries[number] for number in named]


def _countries(entry: Entry) -> list[str]:
    """Return the countries that the first sentences of an entry name, its title left out."""
    title = normalise_answer(entry.title)
    told = " ".join(entry.sentences[:_FIRST])
    return [
        country
        for match in _COUNTRY.finditer(told)
        # The pattern ignores case, and takes "İran" for "iran"; lowercasing does not.
        if match[0][0].isupper() and match[0].lower() not in title and (country := COUNTRIES.get(match[0].lower()))
    ]
