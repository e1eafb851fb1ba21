"""Responses taken apart: steps and a conclusion, an abstention, or neither."""

# Source: appendices C.4 and C.5 of the paper.

from __future__ import annotations

import itertools
import re
from typing import Literal, NamedTuple

import msgspec

from pytrace.documents import split_sentences
from pytrace.kg import normal_form
from pytrace.reader.conclusions import (
    FOREIGN_COPULA,
    FOREIGN_STEP,
    FULL_STOPS,
    abstentions,
    conclusion_words,
    is_abstention,
)
from pytrace.reader.responses import plain_response, statements

StepForm = Literal["auto", "numbered", "sentences"]
"""What counts as steps: numbered lines, as the paper asks for; the sentences beside the conclusion; or the first that a response has
of numbered lines, other lists, rows of a table, and sentences."""


class ParsedResponse(msgspec.Struct, frozen=True):
    """A response in parts; `steps` and `answer` are what could be made out, also where the whole is not structured."""

    form: Literal["structured", "abstained", "unstructured"]
    steps: tuple[str, ...]
    answer: str


class _Parts(NamedTuple):
    steps: tuple[str, ...] = ()
    answer: str = ""
    conclusion: str = ""  # the words before the answer


_NEXT_QUESTION = re.compile(r"^[^\S\n]*(?:Q|Question|Input)\s*:", re.MULTILINE | re.IGNORECASE)
# The question that it answers, said again.
_OWN_QUESTION = re.compile(r"\A\s*(?:Q|Question)\s*:[^\n]*\n(?=\s*\S)", re.IGNORECASE)
# "1.", "Step 1:", "(1)", "Étape 1 –", "第1步：", "1단계:"; and of a number in a sentence none.
_STEP_WORD = rf"(?:(?:step|{FOREIGN_STEP})\s*)?(?:第\s*)?"
_NUMBER = r"\(?{number}(?:\s*(?:단계|步))?\s*(?:[.):、．：]|[–—-]\s)(?!\d)\s*"
_LINE_MARKER = rf"(?:^|\n)[ \t]*{_STEP_WORD}{_NUMBER}"
_INLINE_MARKER = rf"(?<=[.!?)\"'。！？।])\s*{_STEP_WORD}{_NUMBER}"
_FIRST_MARKER = re.compile(_LINE_MARKER.replace("{number}", "1"), re.IGNORECASE)
_ANY_MARKER = re.compile(f"{_LINE_MARKER}|{_INLINE_MARKER}".replace("{number}", "([0-9]+)"), re.IGNORECASE)
# Digits of other scripts, and "01".
_LINE_NUMBER = re.compile(rf"^([ \t]*{_STEP_WORD}\(?)(\d{{1,3}})(?=[.):、．：\s])", re.MULTILINE | re.IGNORECASE)
# "1. lépés: …": the word for a step may stand behind its number.
_WORD_BEHIND = re.compile(rf"(?:{FOREIGN_STEP})\s*[:：]\s*", re.IGNORECASE)
_ITEM = re.compile(r"(?:^|\n)[ \t]*-[ \t]+")
_BLANK_LINE = re.compile(r"\n[ \t]*\n+")
_ENDS = ".!?。！？।۔"
# What begins many responses and states nothing.
_OPENING = re.compile(
    r"(?:sure|certainly|of course|okay|ok|great question|let's|let us|let me|here(?:'s| is| are))\b", re.IGNORECASE
)
_PAIRS = {"(": ")", "（": "）", "[": "]", "{": "}", '"': '"', "“": "”", "*": "*", "«": "»", "「": "」", "`": "`"}
# Each step is looked for in all that is left, and each pair around an answer copies it.
_MOST_STEPS, _LONGEST_ANSWER = 5_000, 2_000
_STOPS = re.compile(rf"\.+$|(?:{FOREIGN_COPULA})?[{FULL_STOPS}]$|(?:{FOREIGN_COPULA})\.?$")
# The phrases of appendix C.4, and what our own readers say. Those of other languages are in `pytrace.reader.conclusions`.
_ABSTENTIONS = (
    "not have knowledge", "not have enough", "not enough information", "more information", "need more", "no answer", "unknown",
    "cannot", "can not", "can't", "could not", "sorry", "impossible", "not possible", "unable", "unclear", "don't know",
    "do not know", "not sure", "cannot be determined", "evidence does not say",
)  # fmt: skip
_NO_ANSWER = frozenset({"none", "n a", "no one", "nobody", "nothing", "undetermined", "not known", "not given"})


def parse_response(text: str, *, form: StepForm = "auto") -> ParsedResponse:
    """Take a response apart, as it is: thinking, Markdown, boxes and JSON are read by `pytrace.reader.responses`.

    Parameters
    ----------
    text
        The response.
    form
        What counts as steps.

    Returns
    -------
    ParsedResponse
        Structured if it has at least one step and words that conclude ("the answer is …") before something named; the answer may
        come before the steps. A last sentence that only sounds like a conclusion is none. It abstains if its conclusion does, or if it
        has no structure and holds a phrase of appendix C.4.

    Source: appendices C.4 (abstained) and C.5 (unstructured) of the paper.
    """
    # In C.4, the phrases are looked for everywhere, so that a step about *Unknown Pleasures* abstains.
    text = _before_next_question(plain_response(text))
    parts = _sentences(text) if form == "sentences" else _numbered(text, nested=form == "auto")
    if form == "auto" and not parts.steps:
        parts = _listed(text)
        if not parts.steps:
            parts = _sentences(text)
    steps, answer, conclusion = parts
    if steps and answer:
        abstained = _abstains(answer, abstentions(text, conclusion))
        return ParsedResponse("abstained" if abstained else "structured", steps, answer)
    folded = text.casefold().replace("’", "'")
    abstained = any(phrase in folded for phrase in (*_ABSTENTIONS, *abstentions(text, conclusion)))
    return ParsedResponse("abstained" if abstained or is_abstention(text) else "unstructured", steps, answer)


def _before_next_question(text: str) -> str:
    """Return what stands before a next question that the model wrote itself."""
    text = _OWN_QUESTION.sub("", text, count=1)
    starts = (match.start() for match in _NEXT_QUESTION.finditer(text))
    return next((text[:start] for start in starts if text[:start].strip()), text)


def _numbered(text: str, *, nested: bool) -> _Parts:
    text = _LINE_NUMBER.sub(lambda found: f"{found[1]}{int(found[2])}", text)
    first = _FIRST_MARKER.search(text)
    if first is None:
        concluded = conclusion_words().search(text)
        return _Parts() if concluded is None else _Parts((), _answer(text[concluded.end() :]), concluded[0])
    body, answer, conclusion = _split(text, first.start(), first.end())
    steps: list[str] = []
    for number in itertools.count(2):
        marker = _marker(body, number)
        part = body[: marker.start()] if marker is not None else _first_paragraph(body) if nested else body
        steps += _items(_WORD_BEHIND.sub("", part, count=1) if _WORD_BEHIND.match(part) else part) if nested else [part]
        if marker is None or number > _MOST_STEPS:
            break
        body = body[marker.end() :]
    return _Parts(_cleaned(steps), answer, conclusion)


def _marker(text: str, number: int) -> re.Match[str] | None:
    """Find a number on a line of its own, or after the end of a sentence."""
    # One expression for all numbers: one for each takes milliseconds to compile.
    found = _ANY_MARKER.search(text)
    while found is not None and found[found.lastindex or 0] != str(number):
        found = _ANY_MARKER.search(text, found.start() + 1)
    return found


def _listed(text: str) -> _Parts:
    """Read the items of a list without numbers, or the rows of a table."""
    first = _ITEM.search(text)
    if first is None:
        return _Parts()
    body, answer, conclusion = _split(text, first.start(), first.end())
    *items, last = _ITEM.split(body)
    return _Parts(_cleaned([*items, _first_paragraph(last)]), answer, conclusion)


def _sentences(text: str) -> _Parts:
    """Read the sentences before the conclusion, or those behind it where it comes first."""
    concluded = conclusion_words().search(text)
    if concluded is None:
        return _Parts(tuple(statements(text)))
    said = text[concluded.end() :]
    steps = statements(text[: concluded.start()].rstrip().rstrip(",;:"))
    steps = [step for step in steps if not _OPENING.match(step)]
    if not steps:
        line, _, below = said.lstrip().partition("\n")
        steps = [*split_sentences(line)[1:], *statements(below)]
    return _Parts(_cleaned(steps), _answer(said), concluded[0])


def _split(text: str, start: int, begin: int) -> tuple[str, str, str]:
    """Return the steps of a list that begins at a place, the answer, and the words before that."""
    concluded = conclusion_words().search(text, begin)
    if concluded is not None:
        return text[begin : concluded.start()], _answer(text[concluded.end() :]), concluded[0]
    concluded = conclusion_words().search(text[:start])  # the answer may come first
    if concluded is None:
        return text[begin:], "", ""
    return text[begin:], _answer(text[concluded.end() : start]), concluded[0]


def _first_paragraph(part: str) -> str:
    """Return the last step of a list without the paragraphs behind the list, but with items of its own."""
    paragraphs = [paragraph for paragraph in _BLANK_LINE.split(part) if any(map(str.isalnum, paragraph))]
    own = itertools.takewhile(lambda each: each[:1] in "- \t", paragraphs[1:])
    return "\n".join([*paragraphs[:1], *own])


def _items(part: str) -> list[str]:
    """Return the items of a list within a step, behind the step itself unless that is only their title."""
    head, *items = _ITEM.split(part)
    return items if items and head.rstrip()[-1:] not in _ENDS else [head, *items]


def _cleaned(steps: list[str]) -> tuple[str, ...]:
    texts = (" ".join(step.replace("**", "").split()) for step in steps)
    return tuple(text for text in texts if any(map(str.isalnum, text)))


def _answer(text: str) -> str:
    """Return what a conclusion names: what stands in its parentheses, else its first sentence."""
    text = text.strip().lstrip(":：").strip()
    if text.startswith("（"):
        text = text.replace("（", "(").replace("）", ")")
    if text.startswith("("):
        depth = 0
        for place, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if depth == 0:
                return text[1:place].strip()
        text = text[1:]
    line = text.partition("\n")[0][:_LONGEST_ANSWER].removeprefix("- ")
    sentences = split_sentences(line)
    answer = _STOPS.sub("", sentences[0].strip()).strip() if sentences else ""
    while len(answer) > 1 and _PAIRS.get(answer[0]) == answer[-1]:
        answer = answer[1:-1].strip()
    return answer


def _abstains(answer: str, foreign: tuple[str, ...]) -> bool:
    folded, words = answer.casefold().replace("’", "'"), normal_form(answer)
    return (
        words in _NO_ANSWER
        or any(folded == phrase or folded.startswith((phrase + " ", "i " + phrase)) for phrase in _ABSTENTIONS)
        or any(f"{words} ".startswith(f"{normal_form(phrase)} ") for phrase in foreign)
    )


def answers_match(answer: str, gold: tuple[str, ...]) -> bool:
    """Say whether a gold answer's words stand in the answer, or a part of the answer's in a gold one."""
    # "It checks whether the generated answer appears in the ground-truth answers, and vice versa" (appendix C.3): whole
    # words here, so that "male" is not in "female".
    words = f" {normal_form(answer)} "
    parts = [form for part in answer.split(",") if (form := normal_form(part))]
    forms = filter(None, map(normal_form, gold))
    return any(f" {form} " in words or any(f" {part} " in f" {form} " for part in parts) for form in forms)
