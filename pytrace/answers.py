"""Evidence becomes an answer: the reader.

Source: TRACE, section 3.4 and Appendix B.3: the context stands before the question, decoding is greedy, and only the
answer is asked for. The paper's reader is zero-shot; a small model needs to see a few short answers first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytrace.documents import split_sentences
from pytrace.errors import ContextOverflowError
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.prompts import ReaderDemonstration, reader_demonstrations
from pytrace.records import Evidence

INSTRUCTION = "Answer the question from the context. Write only the answer, as short as possible."


class Reading(msgspec.Struct, frozen=True):
    """An answer's text, the tokens of the context that the reader saw, and how many entries it did not see whole."""

    text: str
    context_tokens: int
    left_out: int = 0


class Reader:
    """Answers questions from evidence, many in one call.

    Parameters
    ----------
    model
        Any language model.
    demonstrations
        How many short answers to show before the question (0: the paper's zero-shot reader).
    max_tokens
        The longest answer.
    labelled
        Demonstrations of your own, for both kinds of evidence; ours if not given.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 2,
        max_tokens: int = 32,
        labelled: Sequence[ReaderDemonstration] | None = None,
    ) -> None:
        self._model = model
        self._count = demonstrations
        self._max_tokens = max_tokens
        self._labelled = labelled

    def read(self, questions: Sequence[str], evidence: Sequence[Evidence]) -> list[Reading]:
        """Answer every question from its evidence.

        Where a context does not fit the model, demonstrations go first; then its last entries are left out, the first that
        does not fit keeping as many of its sentences as do. Entries not shown whole are counted.

        Raises
        ------
        ContextOverflowError
            If not even one sentence of a context fits.
        """
        kept = [self._fitting(question, one) for question, one in zip(questions, evidence, strict=True)]
        prompts = [
            self._prompt(question, one.kind, entries)
            for question, one, (entries, _) in zip(questions, evidence, kept, strict=True)
        ]
        completions = self._model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",)) if prompts else []
        return [
            Reading(
                clean_answer(completion[0].text),
                self._model.count_tokens("\n".join(entries)),
                left_out,
            )
            for completion, (entries, left_out) in zip(completions, kept, strict=True)
        ]

    def _fitting(self, question: str, evidence: Evidence) -> tuple[tuple[str, ...], int]:
        """Return what fits when no demonstration is shown, and how many entries do not fit whole.

        The engine drops demonstrations as it must.
        """
        room = self._model.context_tokens - self._max_tokens - 64
        room -= self._model.count_tokens(INSTRUCTION) + self._model.count_tokens(question)
        entries: list[str] = []
        whole = 0
        for entry in evidence.context:
            tokens = self._model.count_tokens(entry) + 2
            if tokens > room:
                beginning = self._beginning(entry, room)
                if beginning:
                    entries.append(beginning)
                break
            room -= tokens
            entries.append(entry)
            whole += 1
        if evidence.context and not entries:
            message = (
                f"the first of {len(evidence.context)} context entries has {self._model.count_tokens(evidence.context[0])} "
                f"tokens, and with a question of {self._model.count_tokens(question)} and an answer of up to "
                f"{self._max_tokens} not one sentence of it fits the {self._model.context_tokens} tokens of {self._model.name}; "
                "use a model with a longer context, or a shorter question or document"
            )
            raise ContextOverflowError(message)
        return tuple(entries), len(evidence.context) - whole

    def _beginning(self, entry: str, room: int) -> str:
        """Return as many whole sentences of an entry as fit."""
        kept: list[str] = []
        for sentence in split_sentences(entry):
            room -= self._model.count_tokens(sentence) + 2
            if room < 0:
                break
            kept.append(sentence)
        return " ".join(kept)

    def _prompt(self, question: str, kind: str, entries: Sequence[str]) -> Prompt:
        labelled = reader_demonstrations(kind) if self._labelled is None else self._labelled  # type: ignore[arg-type]
        # The last ones of the file, so that the one next to the question stays whatever their number.
        shown = [one for one in labelled if one.kind == kind][-self._count :] if self._count else []
        return Prompt(
            INSTRUCTION,
            tuple((_input(one.context, one.question), one.answer) for one in shown),
            _input(entries, question),
        )


def _input(context: Sequence[str], question: str) -> str:
    lines = ["Context:", *context] if context else []
    return "\n".join([*lines, f"Question: {question}", "Answer:"])


_PREAMBLE = re.compile(r"^(?:the (?:correct )?answer is:?|answer:)\s*", re.IGNORECASE)


def clean_answer(text: str) -> str:
    """Return an answer without a preamble, surrounding quotes or a final full stop."""
    line = text.strip().splitlines()[0].strip() if text.strip() else ""
    line = _PREAMBLE.sub("", line).strip()
    if len(line) > 1 and line[0] == line[-1] and line[0] in "\"'":
        line = line[1:-1]
    # An abbreviation keeps its full stop: "Washington, D.C.", "J. R. R."
    return line[:-1] if line.endswith(".") and not re.search(r"\b\w\.$", line) else line
