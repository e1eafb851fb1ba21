"""How answers are given, in all languages that `pytrace.documents.languages` tells apart, and refused in those beside English."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from importlib import resources

import msgspec

from pytrace.documents.languages import UNSPACED, detect_language


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one language: words before a conclusion, before an answer, before a step's number, and behind an answer; refusals of one."""

    therefore: str
    answer: str
    abstention: str
    step: str = ""
    copula: str = ""


_DATA = msgspec.json.decode(
    resources.files(__package__).joinpath("conclusions.json").read_bytes(), type=dict[str, Phrases]
)
LANGUAGES = frozenset(_DATA)
"""The languages that have phrases here, as codes of ISO 639-1."""


def _phrases(field: str) -> list[str]:
    """Return the phrases of all languages, each once, the longest first."""
    found = dict.fromkeys(phrase for each in _DATA.values() for phrase in getattr(each, field).split("|") if phrase)
    return sorted(found, key=len, reverse=True)


def _any_of(phrases: Iterable[str]) -> str:
    """Return an expression for phrases; those with one first letter stand together, so that few are tried anywhere."""
    by_letter: dict[str, list[str]] = {}
    for phrase in phrases:
        by_letter.setdefault(phrase[0], []).append(re.escape(phrase[1:]).replace("\\ ", r"\s+"))
    return "|".join(f"{re.escape(letter)}(?:{'|'.join(rests)})" for letter, rests in by_letter.items())


_ANSWERS = _any_of(_phrases("answer"))
_FIRST = "".join(re.escape(letter) for letter in {phrase[0] for phrase in _phrases("answer") + _phrases("therefore")})
FOREIGN_CONCLUSION = rf"(?<![^\W{UNSPACED}])(?=[{_FIRST}])(?:(?:{_any_of(_phrases('therefore'))})[\s,，،、]*)?(?:{_ANSWERS})(?:(?<=\W)|(?![^\W{UNSPACED}]))\s*[:：՝]?"
"""The words before an answer, as a regular expression without regard to case. No English text has them."""
ANSWER_LABEL = r"(?:the\s+)?(?:(?:final|short|direct|correct|my)\s+)?answer"
_CONCLUSION = (
    r"\b(?:(?:so|thus|hence|therefore|finally|in\s+conclusion|in\s+summary|conclusion:),?\s+)?(?:the|my|our)\s+(?:(?:final|correct|short)\s+)?answer"
    r"(?:\s+to\s+(?:the|your|this)\s+question)?\s*(?:\bis\b:?|:)"
    rf"|^[ \t]*(?:-[ \t]+|(?:step\s*)?\d{{1,3}}[.):][ \t]+)?{ANSWER_LABEL}[ \t]*(?:[:：]|[–—-][ \t]|$)"
    rf"|{FOREIGN_CONCLUSION}"
)
FOREIGN_STEP = _any_of(_phrases("step"))
"""The words for "step", as a regular expression without regard to case."""
FOREIGN_COPULA = "|".join(map(re.escape, _phrases("copula")))
"""What stands behind an answer for "it is", as a regular expression."""
FULL_STOPS = "。۔।።։។။"
"""The full stops of scripts that have their own."""


# Expressions this long are compiled when they are first asked for: that takes longer than the import of all else here.
@functools.cache
def conclusion_words() -> re.Pattern[str]:
    """Match the words before an answer in a plain text: "So the answer is", "Final answer:", "Answer -", and those of other languages."""
    return re.compile(_CONCLUSION, re.IGNORECASE | re.MULTILINE)


@functools.cache
def _answers_of() -> dict[str, re.Pattern[str]]:
    return {
        language: re.compile(_any_of(sorted(each.answer.split("|"), key=len, reverse=True)), re.IGNORECASE)
        for language, each in _DATA.items()
    }


def abstentions(text: str, conclusion: str = "") -> tuple[str, ...]:
    """Return the phrases that refuse an answer in the language of a text, and in those of the words before its answer.

    In small letters; none in English or another language.
    """
    languages = [detect_language(text)]
    if conclusion and "answer" not in conclusion.lower():
        languages += [language for language, answers in _answers_of().items() if answers.search(conclusion)]
    return tuple(dict.fromkeys(phrase for language in languages for phrase in _abstentions_in(language)))


def is_abstention(text: str) -> bool:
    """Say whether a short text, of which no language can be told, is or begins with a refusal in any of the languages."""
    # One word may be a name ("Inconnu is a fish"), so it has to be all.
    words = " ".join(re.findall(r"\w+", text.casefold()))
    return any(
        words == phrase or (" " in phrase and f"{words} ".startswith(f"{phrase} ")) for phrase in _NORMAL_ABSTENTIONS
    )


def _abstentions_in(language: str) -> Iterator[str]:
    if language in _DATA:
        yield from _DATA[language].abstention.split("|")


_NORMAL_ABSTENTIONS = tuple(" ".join(re.findall(r"\w+", phrase.casefold())) for phrase in _phrases("abstention"))
