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
        # Verify-and-Edit, section 3.2. A sentence of which no question comes is its own question.
        shown = tuple((_step(row.question, row.sentence), row.verifying_question) for row in self._shown)
        steps = [_step(question, sentence) for question, sentence in zip(questions, sentences, strict=True)]
        written = self._write([Prompt(ASK_INSTRUCTION, shown, step) for step in steps])
        return [line or sentence for line, sentence in zip(written, sentences, strict=True)]

    def answer(self, questions: Sequence[str], contexts: Sequence[Sequence[str]]) -> list[str]:
        """Answer verifying questions with full sentences, all in one call."""
        # Verify-and-Edit, section 3.3.
        shown = tuple((question_input(row.context, row.verifying_question), row.answer) for row in self._shown)
        prompts = []
        for question, context in zip(questions, contexts, strict=True):
            fitted = fit_context(self._model, VERIFY_INSTRUCTION, question, context, max_tokens=self._max_tokens)
            prompts.append(Prompt(VERIFY_INSTRUCTION, shown, question_input(fitted.entries, question)))
        return self._write(prompts)

    def _write(self, prompts: Sequence[Prompt]) -> list[str]:
        """Let the model write a line for each prompt, "" where it writes no letter or digit."""
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",)) if prompts else []
        lines = [clean_text(row[0].text) for row in rows]
        return [line if re.search(r"\w", line) else "" for line in lines]


def _step(question: str, sentence: str) -> str:
    return f"Question: {question}\nSentence: {sentence}\nVerifying question:"
