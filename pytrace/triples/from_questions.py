"""A question becomes triples about the entity that it names, from what a model knows.

Source: KS-LLM, section 3.1: the model names the question's subject entity, and then writes triples with it as their head.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytrace.documents import clean_text
from pytrace.kernels.fuzzy import partial_ratio
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.prompts.reasoning import QuestionDemonstration
from pytrace.records import Triple
from pytrace.triples.parsing import parse_triples

INSTRUCTION = (
    "Name the subject of the question, as the question writes it. Then write down what you know about it that may help to "
    "answer the question, as knowledge triples <subject; relation; tail>."
)
_STOP = ("\n\n", "Question:")
# The subject is a part of the question, so a head that the question does not hold is about something else.
_GROUNDED = 80.0


class QuestionTriples(msgspec.Struct, frozen=True):
    """A question's subject entity and triples, how many lines the model wrote and how many of them were dropped."""

    subject: str
    triples: tuple[Triple, ...]
    lines: int = 0
    dropped: int = 0


class TripleConstructor:
    """Lets a language model write triples about what questions name, all questions in one call."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 3,
        most: int = 5,
        max_tokens: int = 160,
        labelled: Sequence[QuestionDemonstration] | None = None,
    ) -> None:
        self._model = model
        shown = QuestionDemonstration.last(demonstrations, labelled)
        self._shown = tuple((_input(demonstration.question), _output(demonstration)) for demonstration in shown)
        self._most = most
        self._max_tokens = max_tokens

    def construct(self, questions: Sequence[str]) -> list[QuestionTriples]:
        """Construct the triples of questions."""
        if not questions:
            return []
        prompts = [Prompt(INSTRUCTION, self._shown, _input(question)) for question in questions]
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=_STOP)
        return [
            read_triples(row[0].text, question, most=self._most, complete=row[0].finish not in {"length", "repetition"})
            for row, question in zip(rows, questions, strict=True)
        ]


def read_triples(text: str, question: str, *, most: int, complete: bool = True) -> QuestionTriples:
    """Read the subject and the triples that a model wrote about a question, however badly."""
    lines = [cleaned for line in text.splitlines() if (cleaned := clean_text(line))]
    subject = lines[0].partition("<")[0].strip().rstrip(".,;:") if lines else ""
    if lines:
        lines[0] = lines[0][lines[0].find("<") :] if "<" in lines[0] else ""
    parsed = parse_triples("\n".join(lines), subject, complete=complete)
    asked = question.casefold()
    kept: dict[tuple[str, str, str], Triple] = {}
    dropped = parsed.malformed
    for head, relation, tail in parsed.triples:
        if not re.search(r"\w", tail) or partial_ratio(head.casefold(), asked) < _GROUNDED:
            dropped += 1
        else:
            kept.setdefault((head.casefold(), relation.casefold(), tail.casefold()), Triple(head, relation, tail))
    return QuestionTriples(subject, tuple(kept.values())[:most], parsed.lines, dropped)


def _input(question: str) -> str:
    return f"Question: {question}\nSubject:"


def _output(demonstration: QuestionDemonstration) -> str:
    return "\n".join([demonstration.subject, *(triple.text for triple in demonstration.triples)])
