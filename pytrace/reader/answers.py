"""Evidence becomes an answer: the reader.

Source: TRACE, section 3.4 and Appendix B.3: the context stands before the question, decoding is greedy, and only the
answer is asked for. KS-LLM, section 3.3, gives the reader triples and sentences together. The papers' readers are zero-shot;
a small model needs to see a few short answers first.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from pytrace.documents.sentences import sentence_spans
from pytrace.errors import ContextOverflowError
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.conclusions import FOREIGN_CONCLUSION, FOREIGN_COPULA, FULL_STOPS
from pytrace.reader.prompts import ReaderDemonstration, ReaderKind
from pytrace.reader.thinking import without_thinking
from pytrace.records import Evidence

if TYPE_CHECKING:
    from pytrace.models.edge.edge_model import EdgeModel

INSTRUCTION = "Answer the question from the context. Write only the answer, as short as possible."
WITHOUT_CONTEXT = "Answer the question. Write only the answer, as short as possible."


class Reading(msgspec.Struct, frozen=True):
    """An answer's text, the tokens of the context that the reader saw, and how many entries it did not see whole.

    `places` has where an answer that was taken out of the context stands there: entry, first character, and the one behind the last.
    `probability` is how likely the answer is right, if the reader knows.
    """

    text: str
    context_tokens: int
    left_out: int = 0
    places: tuple[tuple[int, int, int], ...] = ()
    probability: float | None = None


class FittedContext(msgspec.Struct, frozen=True):
    """What a model has room for of a context, and how many of its entries are not there whole."""

    entries: tuple[str, ...]
    left_out: int = 0


class Reader:
    """Answers questions from evidence, many in one call.

    Sentences are shown as documents are. Where there is to be no context ("none"), the instruction speaks of none, and the
    demonstrations are the questions and answers of all kinds without their contexts.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 2,
        max_tokens: int = 32,
        labelled: Sequence[ReaderDemonstration] | None = None,
    ) -> None:
        self.model = model
        self._count = demonstrations
        self._max_tokens = max_tokens
        self._labelled = labelled

    def with_model(self, model: LanguageModel) -> Reader:
        """Return the same reader with another model."""
        return Reader(model, **self._settings)

    def with_edge(self, edge: Callable[[], EdgeModel]) -> Reader:  # noqa: ARG002 - for readers that take spans
        """Return a reader that the small model helps; this one writes its answers, so it stays as it is."""
        return self

    @property
    def _settings(self) -> dict[str, Any]:
        return {"demonstrations": self._count, "max_tokens": self._max_tokens, "labelled": self._labelled}

    def read(self, questions: Sequence[str], evidence: Sequence[Evidence]) -> list[Reading]:
        """Answer every question from its evidence."""
        fitted, prompts = self._prompts(questions, evidence)
        return self._write(prompts, fitted)

    def _prompts(
        self, questions: Sequence[str], evidence: Sequence[Evidence]
    ) -> tuple[list[FittedContext], list[Prompt]]:
        """Return what the model has room for of each context, and the prompts."""
        # Where a context does not fit the model, demonstrations go first; then its last entries are left out, the first
        # that does not fit keeping as many of its sentences as do. Entries not shown whole are counted.
        fitted = [
            fit_context(self.model, _instruction(seen.kind), question, seen.context, max_tokens=self._max_tokens)
            for question, seen in zip(questions, evidence, strict=True)
        ]
        prompts = [
            self._prompt(question, seen.kind, shown.entries)
            for question, seen, shown in zip(questions, evidence, fitted, strict=True)
        ]
        return fitted, prompts

    def _write(self, prompts: Sequence[Prompt], fitted: Sequence[FittedContext]) -> list[Reading]:
        """Let the model write an answer to every prompt."""
        completions = self.model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",)) if prompts else []
        return [
            Reading(clean_answer(completion.text), self.model.count_tokens("\n".join(shown.entries)), shown.left_out)
            for (completion,), shown in zip(completions, fitted, strict=True)
        ]

    def _prompt(self, question: str, kind: str, entries: Sequence[str]) -> Prompt:
        rows = ReaderDemonstration.last(self._count, self._labelled_for(kind))
        shown = [(question_input(() if kind == "none" else row.context, row.question), row.answer) for row in rows]
        return Prompt(_instruction(kind), tuple(shown), question_input(entries, question), lasting=True)

    def _labelled_for(self, kind: str) -> list[ReaderDemonstration]:
        """Return the demonstrations that serve a kind of evidence, in their order."""
        wanted = "documents" if kind == "sentences" else kind
        # Without a context those of all kinds serve, kind by kind.
        ours = (row for each in get_args(ReaderKind) for row in ReaderDemonstration.load_with("kind", each))
        return [row for row in (ours if self._labelled is None else self._labelled) if wanted in (row.kind, "none")]


def _instruction(kind: str) -> str:
    return WITHOUT_CONTEXT if kind == "none" else INSTRUCTION


def fit_context(
    model: LanguageModel, instruction: str, question: str, context: Sequence[str], *, max_tokens: int
) -> FittedContext:
    """Return what a model has room for of a context when no demonstration is shown; the engine drops these as it must."""
    # 64 tokens are left for the labels of a prompt's parts and a chat template, 2 an entry for its line break.
    room = model.context_tokens - max_tokens - 64
    room -= model.count_tokens(instruction) + model.count_tokens(question)
    entries: list[str] = []
    for entry in context:
        tokens = model.count_tokens(entry) + 2
        if tokens > room:
            break
        room -= tokens
        entries.append(entry)
    left_out = len(context) - len(entries)
    prefix = _whole_sentences(model, context[len(entries)], room) if left_out else ""
    if prefix:
        entries.append(prefix)
    if context and not entries:
        raise ContextOverflowError(
            f"the first of {len(context)} context entries has {model.count_tokens(context[0])} tokens, and with a question "
            f"of {model.count_tokens(question)} and an answer of up to {max_tokens} not one sentence of it fits the "
            f"{model.context_tokens} tokens of {model.name}; use a model with a longer context, or a shorter question or "
            "document"
        )
    return FittedContext(tuple(entries), left_out)


def _whole_sentences(model: LanguageModel, entry: str, room: int) -> str:
    """Return as many of an entry's first sentences as fit."""
    fits = 0
    for start, end in sentence_spans(entry):
        room -= model.count_tokens(entry[start:end]) + 2
        if room < 0:
            break
        fits = end
    return entry[:fits]


def question_input(context: Sequence[str], question: str, prefix: str = "Answer:") -> str:
    """Return a context, if there is one, a question, and what the model is to write next."""
    lines = ["Context:", *context] if context else []
    return "\n".join([*lines, f"Question: {question}", prefix])


_QUOTES = {'"': '"', "'": "'", "`": "`", "«": "»", "„": "“", "「": "」", "『": "』"}
# A full stop of another script, and "it is" behind an answer.
_STOP = re.compile(rf"(?:{FOREIGN_COPULA})?[{FULL_STOPS}]$|(?:{FOREIGN_COPULA})\.?$")


@functools.cache  # compiling it takes long
def _preamble() -> re.Pattern[str]:
    return re.compile(rf"^(?:the (?:correct )?answer is:?|answer:|{FOREIGN_CONCLUSION})\s*", re.IGNORECASE)


def clean_answer(text: str) -> str:
    """Return an answer without thinking in tags, a preamble, surrounding quotes or a final full stop."""
    text = without_thinking(text).strip()
    line = text.splitlines()[0].strip() if text else ""
    line = _STOP.sub("", _preamble().sub("", line).strip())
    if len(line) > 1 and _QUOTES.get(line[0]) == line[-1] and not _closed_before(line):
        line = line[1:-1].strip() if line[0] in "«„" else line[1:-1]
    # An abbreviation keeps its full stop: "Washington, D.C.", "J. R. R."
    return line[:-1] if line.endswith(".") and not re.search(r"(?:^|[\s.-])\w\.$", line) else line


def _closed_before(line: str) -> bool:
    """Return whether a line's first quote is closed before its end, and another opened, as in '"A" and "B"'."""
    first, last = re.escape(line[0]), re.escape(line[-1])
    # One mark for both opens before a letter or digit that no other stands before, unlike an apostrophe.
    pattern = rf"{last}.*{first}" if first != last else rf"(?<=\S){last}(?=\W).*(?<!\w){first}(?=\w)"
    return re.search(pattern, line[1:-1]) is not None


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation + "。、，；：？！（）「」『』《》〈〉【】،؛؟۔।")


def normalise_answer(text: str) -> str:
    """Normalise an answer as HotpotQA's and SQuAD's scripts do."""
    # Lower case; ASCII punctuation removed; the words a, an and the removed; white space made single. Ours: punctuation of
    # Chinese, Japanese, Arabic and Hindi goes, too.
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
