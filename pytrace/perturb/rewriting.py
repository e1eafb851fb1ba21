"""Texts rewritten on purpose: by a model where there is one, and by rules that need none.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 4.2 (higher-level expressions) and appendix A (relations and intent removed while other features stay).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from pytrace.documents.mentions import holds, holds_any, replace
from pytrace.documents.sentences import clean_text
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.perturb.answer_types import classify
from pytrace.perturb.rewriting_demonstrations import Job, demonstrations

INSTRUCTIONS: dict[Job, str] = {
    "broader": "Write a more general expression for the phrase, which does not tell which one is meant.",
    "unrelated": "Rewrite the sentence so that it no longer says what is named, and keep everything else.",
    "unintended": "Rewrite the sentence so that it no longer tells the information that is named, and keep everything else.",
    "misstated": "Write one statement that gives the answer to the question.",
}
_SAMPLES = 3
_LONGEST_EXPRESSION = 8


class Rewritten(msgspec.Struct, frozen=True):
    """A text that was rewritten, and by what."""

    text: str
    by: Literal["rule", "model"]


class Order(msgspec.Struct, frozen=True):
    """What a model is to rewrite: a sentence, the phrases that must stay in it, and what it is no longer to tell."""

    job: Literal["unrelated", "unintended"]
    sentence: str
    keep: tuple[str, ...]
    without: str


def broader(phrases: Sequence[str], model: LanguageModel | None, *, seed: int = 0) -> list[list[Rewritten]]:
    """Find higher-level expressions for phrases, all in one call."""
    written = _write(model, "broader", [_phrase_input(phrase) for phrase in phrases], max_tokens=16, seed=seed)
    found = []
    for phrase, texts in zip(phrases, written, strict=True):
        # What is shorter than the phrase and part of it ("company" of "hotel company") is more general; the reverse is not.
        fitting = [
            Rewritten(text, "model")
            for text in texts
            if len(text.split()) <= _LONGEST_EXPRESSION and any(map(str.isalpha, text)) and not holds(text, phrase)
        ]
        found.append([*fitting, Rewritten(_by_type(phrase), "rule")])
    return found


def without(orders: Sequence[Order], model: LanguageModel | None, *, seed: int = 0) -> list[list[Rewritten]]:
    """Rewrite sentences without a relation or the intent, all in one call."""
    found: list[list[Rewritten]] = [[] for _ in orders]
    jobs: tuple[Literal["unrelated", "unintended"], ...] = ("unrelated", "unintended")
    for job in jobs:
        places = [place for place, order in enumerate(orders) if order.job == job]
        inputs = [_order_input(orders[place].sentence, orders[place].keep, orders[place].without) for place in places]
        for place, texts in zip(places, _write(model, job, inputs, max_tokens=96, seed=seed), strict=True):
            order = orders[place]
            found[place] = [
                Rewritten(text, "model")
                for text in texts
                if text.casefold() != order.sentence.casefold() and all(holds(text, one) for one in order.keep)
            ]
    return found


def misstated(
    questions: Sequence[tuple[str, str, Sequence[str]]], model: LanguageModel | None, *, count: int = 6, seed: int = 0
) -> list[list[str]]:
    """Let a model state wrong answers, all in one call."""
    inputs = [_statement_input(question, wrong) for question, wrong, _ in questions]
    written = _write(model, "misstated", inputs, max_tokens=64, samples=count, temperature=0.9, seed=seed)
    return [
        [text for text in texts if holds(text, wrong) and not holds_any(text, right) and len(text.split()) > 2]
        for (_, wrong, right), texts in zip(questions, written, strict=True)
    ]


def joined(sentence: str, first: str, second: str) -> str:
    """Cut what stands between two phrases of a sentence, and join them by "and"; "" if that changes nothing."""
    spans = sorted(span for span in (_span(sentence, first), _span(sentence, second)) if span is not None)
    if len(spans) < 2 or spans[0][1] >= spans[1][0]:
        return ""
    between = sentence[spans[0][1] : spans[1][0]]
    if between.strip(" ,;").casefold() in {"", "and", "or"}:
        return ""
    return f"{sentence[: spans[0][1]]} and {sentence[spans[1][0] :]}"


_CLAUSES = re.compile(r"(?:[,;:]\s+|\s+[-–—]\s+|\s+(?=(?:and|but|which|who|where|when|because)\s)|\s*(?=\())")


def clauses_cut(sentence: str, keep: Sequence[str]) -> list[str]:
    """Return a sentence less one of its clauses each time, as far as what must stay does; rests of one word are left out."""
    borders = [0, *(found.start() for found in _CLAUSES.finditer(sentence)), len(sentence)]
    rests = []
    for start, end in itertools.pairwise(borders):
        before, behind = sentence[:start].rstrip(" ,;:-–—"), sentence[end:]
        gap = "" if behind[:1] in ",;:" else " "
        rest = clean_text(before + gap + behind).lstrip(",;:-–— ")
        rest = rest if rest.endswith((".", "!", "?")) or not rest else f"{rest}."
        if start < end and len(rest.split()) > 1 and rest != sentence and all(holds(rest, one) for one in keep):
            rests.append(rest[:1].upper() + rest[1:])
    return rests


def blanked(sentence: str, answers: Sequence[str]) -> str:
    """Put "something" or its like in place of an answer."""
    for answer in sorted(answers, key=len, reverse=True):
        sentence = replace(sentence, answer, _UNTOLD.get(classify(answer), "something"))
    return sentence


def named(keep: Sequence[str]) -> list[str]:
    """Return a sentence that tells nothing but what it speaks of: the last that can be done; none for nothing."""
    return [f"Much is told of {' and of '.join(keep)}."] if keep else []


_UNTOLD = {
    "year": "some year",
    "date": "some day",
    "number": "some number",
    "nationality": "some nationality",
    "place": "some place",
    "person": "somebody",
}
_BROADER = {
    "year": "that year",
    "date": "that day",
    "number": "a certain number",
    "nationality": "foreign",
    "place": "this place",
    "person": "this person",
    "name": "a certain name",
    "list": "these things",
}


def _by_type(phrase: str) -> str:
    expression = _BROADER.get(classify(phrase), "a certain thing")
    return "something" if holds(expression, phrase) else expression


def _span(sentence: str, phrase: str) -> tuple[int, int] | None:
    words = re.findall(r"\w+", phrase)
    pattern = r"[\W_]{1,4}".join(map(re.escape, words))
    found = re.search(rf"(?<!\w){pattern}(?!\w)", sentence, re.IGNORECASE) if words else None
    return found.span() if found else None


def _phrase_input(phrase: str) -> str:
    return f"Phrase: {phrase}\nMore general:"


def _order_input(sentence: str, keep: Sequence[str], unsaid: str) -> str:
    return f"Sentence: {sentence}\nKeep: {'; '.join(keep) or '-'}\nNo longer say: {unsaid}\nRewritten:"


def _statement_input(question: str, answer: str) -> str:
    return f"Question: {question}\nAnswer: {answer}\nStatement:"


def _write(
    model: LanguageModel | None,
    job: Job,
    inputs: Sequence[str],
    *,
    max_tokens: int,
    seed: int,
    samples: int = _SAMPLES,
    temperature: float = 0.7,
) -> list[list[str]]:
    """Return what a model writes to each input, clean and none twice."""
    if model is None or not inputs:
        return [[] for _ in inputs]
    shown = []
    for one in demonstrations(job):
        if job == "broader":
            given = _phrase_input(one.input)
        elif job == "misstated":
            given = _statement_input(one.input, one.keep[0])
        else:
            given = _order_input(one.input, one.keep, one.without)
        shown.append((given, one.output))
    completions = model.generate(
        [Prompt(INSTRUCTIONS[job], tuple(shown), given) for given in inputs],
        max_tokens=max_tokens, stop=("\n",), temperature=temperature, n=samples, seed=seed,
    )  # fmt: skip
    return [list(dict.fromkeys(text for one in written if (text := _tidy(one.text, job)))) for written in completions]


def _tidy(text: str, job: Job) -> str:
    cleaned = clean_text(text).strip("\"' ")
    return cleaned.rstrip(".") if job == "broader" else cleaned
