"""What a question asks for: a person, a date, a place, a number, a sort of thing, one of two, or yes or no; by its words."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pytrace.reader.spans.words import LISTS, Word, content_stems, stem, words

AnswerKind = Literal["person", "date", "year", "place", "number", "origin", "sort", "yes-no", "other"]

_ASKING = re.compile(r"\b(who|whom|whose|when|where|how (?:many|much|old|long)|how|which|what|why)\b")
_BY_WORD: dict[str, AnswerKind] = {
    "who": "person",
    "whom": "person",
    "whose": "person",
    "when": "date",
    "where": "place",
    "how many": "number",
    "how much": "number",
    "how old": "number",
    "how long": "number",
}
_BY_HEAD: dict[str, AnswerKind] = {
    word: kind  # type: ignore[misc]
    for kind, listed in (
        ("person", LISTS.people),
        ("place", LISTS.places),
        ("date", LISTS.dates),
        ("year", "year"),
        ("number", LISTS.numbers),
        ("origin", LISTS.origins),
    )
    for word in listed.split()
}
_SORTS = frozenset(LISTS.sorts.split())
_IDENTIFIERS = frozenset(LISTS.identifiers.split())
# Words between "which" or "what" and the noun: "What is the name of the class".
_NAMED = re.compile(r"(?:'s|\s+(?:is|are|was))?(?:\s+(?:the|a|an))?(?:\s+names? of (?:the|a|an))?\s+")
_MAX_MODIFIERS = 2  # words before the noun: "which environment variable"
_DATED = re.compile(r"\bdate of\b|\bbirthday\b")
_CHOICE = re.compile(r"\bor\b(?! not\b)")
_ENDS = ("auxiliary", "preposition", "pronoun", "mark")


class Asked(NamedTuple):
    """What a question asks for: the kind, and the stems of its content.

    `choice`: it offers a choice; `identifier`: it asks for a name in software, such as a package, a class or an option.
    """

    kind: AnswerKind
    choice: bool
    stems: frozenset[str]
    identifier: bool = False


def read_question(question: str) -> Asked:
    """Tell what a question asks for.

    Examples
    --------
    >>> for question in ("Which city is larger, Bonn or Jena?", "When was he born?", "Are both films French?"):
    ...     print(*read_question(question)[:2])
    place True
    date False
    yes-no False
    """
    found = words(question)
    stems = content_stems(found)
    lower = question.lower()
    choice = _CHOICE.search(lower) is not None
    asking = _ASKING.search(lower)
    if not choice and any(word.kind == "auxiliary" for word in _openings(found)):
        return Asked("yes-no", choice, stems)
    head = ""
    if asking is not None and asking[1] in ("which", "what", "how many", "how much"):
        head = _head([word for word in found if word.start >= asking.end()])
    kind = _BY_WORD.get(asking[1], "other") if asking is not None else "other"
    if kind == "other":
        kind = _BY_HEAD.get(head.lower(), "other")
    if head.lower() in _SORTS:
        kind = "sort"
    if _DATED.search(lower):
        kind = "date"
    identifier = _identifier(lower, asking) if asking is not None else ""
    if identifier:
        stems -= {stem(identifier)}  # the text about a package need not use the word "package"
    return Asked(kind, choice, stems, identifier=bool(identifier))


def _identifier(question: str, asking: re.Match[str]) -> str:
    """Return the noun behind "which" or "what" if it is a kind of name in software, such as "package"; otherwise ""."""
    if asking[1] not in ("which", "what"):
        return ""
    named = _NAMED.match(question, asking.end())
    behind = re.findall(r"[\w-]+", question[named.end() if named else asking.end() :])[: _MAX_MODIFIERS + 2]
    for word, after in zip(behind[: _MAX_MODIFIERS + 1], [*behind[1:], ""], strict=False):
        if word.removesuffix("s") in _IDENTIFIERS or word in _IDENTIFIERS:
            return "" if after == "of" else word  # "which class of ships"
        if word in ("of", "the", "is", "does", "did", "do"):
            break
    return ""


def _openings(found: list[Word]) -> list[Word]:
    """Return the words that the sentences of a question begin with."""
    openings = []
    begins = True
    for word in found:
        if word.kind != "mark":
            openings += [word] if begins else []
            begins = False
        elif word.text in ".?!":
            begins = True
    return openings


def _head(found: list[Word]) -> str:
    """Return the noun that "which" or "what" asks for: the last of those behind it, or behind "is the"."""
    start = 0
    while start < len(found) and found[start].kind in ("auxiliary", "article", "of"):
        start += 1
    end = start
    while end < len(found) and found[end].kind not in _ENDS and found[end].kind not in ("verb", "of", "and"):
        end += 1
    return found[end - 1].text if end > start else ""
