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
from pytrace.models.language_model import LanguageModel
from pytrace.perturb.answer_types import classify
from pytrace.perturb.model_rewriting import Job, Rewriting, rewrite
from pytrace.perturb.word_lists import WORDS

# A longer expression than this is a description, which may tell what is meant after all.
_LONGEST_EXPRESSION = 8


class Rewritten(msgspec.Struct, frozen=True):
    """A text that was rewritten, and by what."""

    text: str
    by: Literal["rule", "model"]


def broader(phrases: Sequence[str], model: LanguageModel | None, *, seed: int = 0) -> list[list[Rewritten]]:
    """Find higher-level expressions for phrases, all in one call."""
    written = rewrite(model, "broader", [Rewriting("broader", phrase) for phrase in phrases], seed=seed)
    expressions = []
    for phrase, texts in zip(phrases, written, strict=True):
        # What is shorter than the phrase and part of it ("company" of "hotel company") is more general; the reverse is not.
        fitting = [
            Rewritten(text, "model")
            for text in texts
            if len(text.split()) <= _LONGEST_EXPRESSION and any(map(str.isalpha, text)) and not holds(text, phrase)
        ]
        by_type = WORDS.broader.get(classify(phrase), "a certain thing")
        # The expression of a type may itself be the phrase, such as "that year".
        last = "something" if holds(by_type, phrase) else by_type
        expressions.append([*fitting, Rewritten(last, "rule")])
    return expressions


def without(
    job: Job, orders: Sequence[Rewriting], model: LanguageModel | None, *, seed: int = 0
) -> list[list[Rewritten]]:
    """Rewrite sentences without a relation ("unrelated") or the intent ("unintended"), all in one call."""
    return [
        [
            Rewritten(text, "model")
            for text in texts
            if text.casefold() != order.input.casefold() and all(holds(text, phrase) for phrase in order.keep)
        ]
        for order, texts in zip(orders, rewrite(model, job, orders, seed=seed), strict=True)
    ]


def misstated(
    questions: Sequence[tuple[str, str, Sequence[str]]], model: LanguageModel | None, *, seed: int = 0
) -> list[list[str]]:
    """Let a model state wrong answers, all in one call."""
    inputs = [Rewriting("misstated", question, (wrong,)) for question, wrong, _ in questions]
    written = rewrite(model, "misstated", inputs, seed=seed)
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


_CLAUSES = re.compile(
    r"[,;:]\s+|(?<!\s)\s+(?:[-–—]\s+|(?=(?:and|but|which|who|where|when|because)\s))|(?:(?<!\s)\s+)?(?=\()"
)


def clauses_cut(sentence: str, keep: Sequence[str]) -> list[str]:
    """Return a sentence less one of its clauses each time, as far as what must stay does; rests of one word are left out."""
    borders = [0, *(border.start() for border in _CLAUSES.finditer(sentence)), len(sentence)]
    shorter = []
    for start, end in itertools.pairwise(borders):
        before, behind = sentence[:start].rstrip(" ,;:-–—"), sentence[end:]
        gap = "" if behind[:1] in ",;:" else " "
        left = clean_text(before + gap + behind).lstrip(",;:-–— ")
        if left and not left.endswith((".", "!", "?")):
            left += "."
        if start < end and len(left.split()) > 1 and left != sentence and all(holds(left, phrase) for phrase in keep):
            shorter.append(left[:1].upper() + left[1:])
    return shorter


def blanked(sentence: str, answers: Sequence[str]) -> str:
    """Put "something" or its like in place of an answer."""
    # The longest first: an alias may be a part of another.
    for answer in sorted(answers, key=len, reverse=True):
        sentence = replace(sentence, answer, WORDS.untold.get(classify(answer), "something"))
    return sentence


def named(keep: Sequence[str]) -> list[str]:
    """Return a sentence that tells nothing but what it speaks of: the last that can be done; none for nothing."""
    return [f"Much is told of {' and of '.join(keep)}."] if keep else []


def _span(sentence: str, phrase: str) -> tuple[int, int] | None:
    words = re.findall(r"\w+", phrase)
    pattern = r"[\W_]{1,4}".join(map(re.escape, words))
    match = re.search(rf"(?<!\w){pattern}(?!\w)", sentence, re.IGNORECASE) if words else None
    return match.span() if match else None
