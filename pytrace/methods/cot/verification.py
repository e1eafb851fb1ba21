"""The sentences of a rationale become verifying questions, and these are answered from what was found for them.

Source: Zhao et al., "Verify-and-Edit: A Knowledge-Enhanced Chain-of-Thought Framework" (ACL 2023), sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytrace.documents import clean_text
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.answers import fit_context, question_input
from pytrace.reader.prompts.reasoning import VerificationDemonstration

ASK_INSTRUCTION = (
    "The sentence is a step on the way to the answer, and may be wrong. Write the question by which one can find out."
)
VERIFY_INSTRUCTION = "Answer the question from the context with one full sentence."


class Verifier:
    """Turns the sentences of rationales into verifying questions, and answers these from what was found for them."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 3,
        max_tokens: int = 48,
        labelled: Sequence[VerificationDemonstration] | None = None,
    ) -> None:
        self._model = model
        self._shown = VerificationDemonstration.last(demonstrations, labelled)
        self._max_tokens = max_tokens

    def ask(self, questions: Sequence[str], sentences: Sequence[str]) -> list[str]:
        """Turn sentences into verifying questions, all in one call."""
        # Verify-and-Edit, section 3.2.
        if not sentences:
            return []
        shown = tuple((_step(row.question, row.sentence), row.verifying_question) for row in self._shown)
        prompts = [
            Prompt(ASK_INSTRUCTION, shown, _step(question, sentence))
            for question, sentence in zip(questions, sentences, strict=True)
        ]
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",))
        return [
            written if re.search(r"\w", written := clean_text(row[0].text)) else sentence
            for row, sentence in zip(rows, sentences, strict=True)
        ]

    def answer(self, questions: Sequence[str], contexts: Sequence[Sequence[str]]) -> list[str]:
        """Answer verifying questions with full sentences, all in one call."""
        # Verify-and-Edit, section 3.3.
        if not questions:
            return []
        shown = tuple((question_input(row.context, row.verifying_question), row.answer) for row in self._shown)
        fitted = [
            fit_context(self._model, VERIFY_INSTRUCTION, question, context, max_tokens=self._max_tokens)
            for question, context in zip(questions, contexts, strict=True)
        ]
        prompts = [
            Prompt(VERIFY_INSTRUCTION, shown, question_input(row.entries, question))
            for question, row in zip(questions, fitted, strict=True)
        ]
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",))
        return [written if re.search(r"\w", written := clean_text(row[0].text)) else "" for row in rows]


def _step(question: str, sentence: str) -> str:
    return f"Question: {question}\nSentence: {sentence}\nVerifying question:"
