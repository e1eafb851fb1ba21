"""What a language model answers, as plain text: without its thinking, Markdown, boxes and JSON.

Everything that reads a response goes through here: certification, and the votes of the methods that think. Where places in the
response have to hold, `pytrace.reader.response_places` does the same by blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pytrace.documents.sentences import split_sentences
from pytrace.reader.markdown import ANSWER_TAG, FENCE, ITEM, SPECIAL_TOKEN, STEP_MARK, plain_markdown
from pytrace.reader.thinking import without_thinking
from pytrace.storage.foreign_json import decode_json


def plain_response(text: str) -> str:
    r"""Return a response as plain text.

    Thinking is left out, Markdown marks and headings go, items of lists and rows of tables are lines with "- " or their number before
    them, a ``\boxed{}`` answer is put behind "The answer is", and JSON with an answer becomes numbered steps and a conclusion.

    Examples
    --------
    >>> print(plain_response("<think>?</think>### Steps\n* **Corfu** is in Greece.\n\n**Answer:** Greek"))
    - Corfu is in Greece.
    <BLANKLINE>
    Answer: Greek
    """
    text = without_thinking(text)
    if "<" in text:
        text = ANSWER_TAG.sub(lambda tag: "\n" if tag["closing"] else "\nAnswer: ", SPECIAL_TOKEN.sub("", text))
    fields = json_response(text)
    if fields is not None:
        return response_text(*fields)
    return plain_markdown(text)


STEP_FIELDS = ("steps", "reasoning_steps", "reasoning", "rationale", "chain_of_thought")
"""The fields of rows and of JSON that hold the steps of a response."""
_STEP_FIELDS = (*STEP_FIELDS, "explanation", "thoughts", "reasoning_path", "evidence")
_ANSWER_FIELDS = ("final_answer", "finalanswer", "answer", "short_answer", "response", "output", "result", "conclusion")


def json_response(text: str) -> tuple[list[str], str] | None:
    """Return the steps and the answer of a response that is a JSON object, bare or in a code fence; None of any other text."""
    if "{" not in text or '"' not in text:
        return None
    fenced = [found[2] for found in FENCE.finditer(text) if found[2].lstrip().startswith("{")]
    for data in (*fenced, text[text.find("{") : text.rfind("}") + 1]):
        try:
            row = decode_json(data.strip(), dict[str, object])
        except ValueError:
            continue
        known = {name.casefold().replace(" ", "_").replace("-", "_"): value for name, value in row.items()}
        answer = next((name for name in _ANSWER_FIELDS if name in known), None)
        if answer is not None:
            steps = next((known[name] for name in _STEP_FIELDS if known.get(name)), ())
            return step_texts(steps), ", ".join(_texts(known[answer])) if known[answer] is not None else "unknown"
    return None


def step_texts(steps: object) -> list[str]:
    """Return the steps that a field holds: of a text its lines or sentences, of a list its items, each in one line."""
    if isinstance(steps, str):
        listed = [_unnumbered(line) for line in steps.split("\n") if line.strip()]
        return (
            listed
            if len(listed) > 1
            else [part for part in _numbered_parts(steps) if part] or split_sentences(steps, language=None)
        )
    if isinstance(steps, dict):
        steps = list(steps.values())
    if not isinstance(steps, list | tuple):
        return _texts(steps)
    parts = (" ".join(_texts(step)) for step in steps)
    return [" ".join(_unnumbered(part).split()) for part in parts if part.strip()]


def _unnumbered(step: str) -> str:
    mark = STEP_MARK.match(step.strip()) or ITEM.match(step)
    return (step.strip() if mark is None else mark.string[mark.end() :]).strip()


def _numbered_parts(text: str) -> list[str]:
    """Return what stands behind each number of "1. a 2. b"; nothing where the text is not numbered."""
    if not re.match(r"\s*(?:step\s*)?1\s*[.):]", text, re.IGNORECASE):
        return []
    return [
        part.strip()
        for part in re.split(r"(?:^|(?<=[.!?。])\s*)(?:step\s*)?\d{1,2}\s*[.):]\s+", text, flags=re.IGNORECASE)
    ]


def _texts(value: object) -> list[str]:
    """Return the texts within a JSON value, without what numbers a step."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, int | float):
        return [f"{value}"]
    if isinstance(value, dict):
        named: Iterable[Any] = (
            each for name, each in value.items() if not (isinstance(each, int) and name.casefold() in _NUMBERING)
        )
        return [text for each in named for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


_NUMBERING = frozenset({"step", "number", "id", "index", "step_number"})


def response_text(steps: Iterable[str], answer: str) -> str:
    """Write steps and an answer as numbered lines and a conclusion, the form that the rest of pytrace reads."""
    # In parentheses, as the paper on evaluating chain-of-thought asks models to write it (appendix F.2), so that an answer of
    # several sentences is read whole; unless its own would end it early.
    answer = " ".join(answer.split())
    lines = [f"{number}. {' '.join(step.split())}" for number, step in enumerate(steps, 1)]
    closed = re.sub(r"\([^()]*\)", "", answer)
    said = f"({answer})" if "(" not in closed and ")" not in closed else answer
    return "\n".join([*lines, *([f"So the answer is {said}."] if answer else [])])


def statements(plain: str) -> list[str]:
    """Return the sentences of a plain response; each item of a list begins one, without its mark."""
    return split_sentences(ITEM.sub("\n", plain))
