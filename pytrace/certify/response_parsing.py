"""Responses taken apart: numbered steps and a conclusion, an abstention, or neither."""

# Source: appendices C.4 and C.5 of the paper.

from __future__ import annotations

import itertools
import re
from typing import Literal

import msgspec

from pytrace.documents import split_sentences
from pytrace.kg import normal_form
from pytrace.methods.cot.rationales import parse_thought
from pytrace.reader.conclusions import FOREIGN_CONCLUSION, abstentions

StepForm = Literal["numbered", "sentences"]
"""What counts as steps: numbered lines, as the paper asks for, or the sentences before the conclusion."""


class ParsedResponse(msgspec.Struct, frozen=True):
    """A response in parts; `steps` and `answer` are what could be made out, also where the whole is not structured."""

    form: Literal["structured", "abstained", "unstructured"]
    steps: tuple[str, ...]
    answer: str


_CONCLUSION = re.compile(
    r"\b(?:(?:so|thus|hence|therefore),?\s+)?(?:the|my)\s+(?:(?:final|correct)\s+)?answer(?:\s+to\s+the\s+question)?"
    rf"\s*(?:\bis\b:?|:)|{FOREIGN_CONCLUSION}",
    re.IGNORECASE,
)
_NEXT_QUESTION = re.compile(r"^[^\S\n]*(?:Q|Question|Input)\s*:", re.MULTILINE | re.IGNORECASE)
_FIRST_MARKER = re.compile(r"^[ \t]*(?:\*\*)?(?:step\s*)?1\s*[.):、．：]\s*", re.MULTILINE | re.IGNORECASE)
_PAIRS = {"(": ")", "（": "）", "[": "]", "{": "}", '"': '"', "“": "”", "*": "*"}
# Each step is looked for in all that is left, and each pair around an answer copies it.
_MOST_STEPS, _LONGEST_ANSWER = 5_000, 2_000
_STOPS = re.compile(r"\.+$|(?:です|である)?[。۔।]$")
# The phrases of appendix C.4. Those of seven other languages are in `pytrace.reader.conclusions`.
_ABSTENTIONS = (
    "not have knowledge", "not have enough", "not enough information", "more information", "need more", "no answer", "unknown",
    "cannot", "can not", "can't", "could not", "sorry", "impossible", "not possible", "unable", "unclear", "don't know",
    "do not know", "not sure", "cannot be determined",
)  # fmt: skip
_NO_ANSWER = frozenset({"none", "n a", "no one", "nobody", "nothing", "undetermined", "not known", "not given"})


def parse_response(text: str, *, form: StepForm = "numbered") -> ParsedResponse:
    """Take a response apart."""
    # A response is structured if it has at least one step and a conclusion ("the answer is …") that names something. It
    # abstains if its conclusion does ("So the answer is (unknown)"), or if it has no structure and holds a phrase of
    # appendix C.4. There, the phrases are looked for everywhere, so that a step about *Unknown Pleasures* abstains.
    # Appendices C.4 (abstained) and C.5 (unstructured) of the paper.
    text = _before_next_question(text)
    if form == "numbered":
        steps, answer = _numbered(text)
    else:
        thought = parse_thought(text)
        steps, answer = thought.sentences, thought.answer if _CONCLUSION.search(text) is not None else ""
    if steps and answer:
        return ParsedResponse("abstained" if _abstains(answer, abstentions(text)) else "structured", steps, answer)
    folded = text.casefold().replace("’", "'")
    abstained = any(phrase in folded for phrase in (*_ABSTENTIONS, *abstentions(text)))
    return ParsedResponse("abstained" if abstained else "unstructured", steps, answer)


def _before_next_question(text: str) -> str:
    """Return what stands before a next question that the model wrote itself."""
    starts = (match.start() for match in _NEXT_QUESTION.finditer(text))
    return next((text[:start] for start in starts if text[:start].strip()), text)


def _numbered(text: str) -> tuple[tuple[str, ...], str]:
    first = _FIRST_MARKER.search(text)
    concluded = _CONCLUSION.search(text, first.end() if first is not None else 0)
    answer = _answer(text[concluded.end() :]) if concluded is not None else ""
    if first is None:
        return (), answer
    body = text[first.end() : concluded.start() if concluded is not None else len(text)]
    steps = []
    for number in itertools.count(2):
        # The next number on a line of its own, or after the end of a sentence.
        marker = re.compile(
            rf"(?:(?:^|\n)[ \t]*(?:\*\*)?(?:step\s*)?|(?<=[.!?)\"'。！？])\s*(?:step\s*)?){number}\s*[.):、．：](?!\d)\s*",
            re.IGNORECASE,
        ).search(body)
        part = body if marker is None else body[: marker.start()]
        steps.append(" ".join(part.replace("**", "").split()))
        if marker is None or number > _MOST_STEPS:
            break
        body = body[marker.end() :]
    return tuple(step for step in steps if any(map(str.isalnum, step))), answer


def _answer(text: str) -> str:
    """Return what a conclusion names: what stands in its parentheses, else its first sentence."""
    text = text.strip().lstrip(":").strip()
    if text.startswith("（"):
        text = text.replace("（", "(").replace("）", ")")
    if text.startswith("("):
        depth = 0
        for place, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if depth == 0:
                return text[1:place].strip()
        text = text[1:]
    line = text.partition("\n")[0][:_LONGEST_ANSWER]
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
