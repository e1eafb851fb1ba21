"""Chain of thought: a model thinks in sentences before it answers, several thoughts vote, and sentences are verified.

Sources: Wei et al., "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models" (NeurIPS 2022); Wang et al.,
"Self-Consistency Improves Chain of Thought Reasoning in Language Models" (ICLR 2023);
Zhao et al., "Verify-and-Edit: A Knowledge-Enhanced Chain-of-Thought Framework" (ACL 2023), sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytrace.documents import clean_text, split_sentences
from pytrace.models.language_model import Completion, LanguageModel, Prompt
from pytrace.reader.answers import FittedContext, Reading, clean_answer, fit_context, normalise_answer, question_input
from pytrace.reader.conclusions import conclusion_words
from pytrace.reader.prompts.reasoning import RationaleDemonstration, VerificationDemonstration
from pytrace.reader.responses import plain_response, statements
from pytrace.reader.thinking import is_all_thinking, without_thinking
from pytrace.records import Evidence, Reasoning

INSTRUCTION = (
    "Think about the question in a few short sentences, each of which states one fact, and then answer it as short as "
    'possible. End with the words "So the answer is" and the answer.'
)
WITH_CONTEXT = f"{INSTRUCTION} Take the facts from the context."
CONCLUSION = "So the answer is"
ASK_INSTRUCTION = (
    "The sentence is a step on the way to the answer, and may be wrong. Write the question by which one can find out."
)
VERIFY_INSTRUCTION = "Answer the question from the context with one full sentence."
_ANSWER_TOKENS = 32


class Thought(msgspec.Struct, frozen=True):
    """The sentences of a rationale and the answer that it ends in, perhaps empty."""

    sentences: tuple[str, ...]
    answer: str


class Vote(msgspec.Struct, frozen=True):
    """The answer that most thoughts give, how many of how many, and the place of the first that does (-1: no thought)."""

    answer: str
    count: int
    of: int
    first: int = -1

    @property
    def agreement(self) -> float:
        """The share of the thoughts that give the answer, from 0 to 1."""
        return self.count / self.of if self.of else 0.0

    @property
    def certain(self) -> bool:
        """Whether at least half of the thoughts, rounded up, give the answer (Chain of Knowledge, section 3.3)."""
        return 2 * self.count >= self.of > 0


class Thinker:
    """Lets a language model think about questions, all of them and all samples in one call."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 3,
        max_tokens: int = 160,
        labelled: Sequence[RationaleDemonstration] | None = None,
    ) -> None:
        self._model = model
        self._shown = RationaleDemonstration.last(demonstrations, labelled)
        self._max_tokens = max_tokens

    def fit(self, questions: Sequence[str], contexts: Sequence[Sequence[str]]) -> list[FittedContext]:
        """Return what the model sees of each context: see `pytrace.reader.answers.fit_context`."""
        return [
            fit_context(self._model, WITH_CONTEXT, question, context, max_tokens=self._max_tokens)
            for question, context in zip(questions, contexts, strict=True)
        ]

    def readings(
        self, questions: Sequence[str], evidence: Sequence[Evidence], thoughts: Sequence[Thought]
    ) -> tuple[list[Evidence], list[Reading]]:
        """Return each evidence with the thought that it led to, and that thought's answer as what was read from it."""
        derived = [
            msgspec.structs.replace(seen, derivation=Reasoning(thought.sentences))
            for seen, thought in zip(evidence, thoughts, strict=True)
        ]
        readings = [
            Reading(thought.answer, self._model.count_tokens("\n".join(fitted.entries)), fitted.left_out)
            for thought, fitted in zip(thoughts, self.fit(questions, [seen.context for seen in evidence]), strict=True)
        ]
        return derived, readings

    def think(
        self,
        questions: Sequence[str],
        contexts: Sequence[Sequence[str]],
        *,
        n: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[list[Thought]]:
        """Think about every question, with its context or with none."""
        # Wei et al., section 2, for one thought; Wang et al., section 2, for several.
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        if not questions:
            return []
        prompts = [
            self._prompt(question, fitted.entries)
            for question, fitted in zip(questions, self.fit(questions, contexts), strict=True)
        ]
        # Without a demonstration a model may part its thoughts by blank lines; with some these end what it has to say, but not
        # of a model that thinks aloud in tags before it says anything.
        stops = ("\nQuestion:", "\nContext:", "\nThoughts:")
        rows: list[list[Completion]] = []
        for stop in ((*stops, "\n\n"), stops) if self._shown else (stops,):
            rows = self._model.generate(
                prompts, max_tokens=self._max_tokens, stop=stop, temperature=temperature, n=n, seed=seed
            )
            if not all(is_all_thinking(completion.text) for row in rows for completion in row):
                break
        return [[parse_thought(completion.text) for completion in row] for row in rows]

    def continue_thoughts(
        self, questions: Sequence[str], contexts: Sequence[Sequence[str]], rationales: Sequence[Sequence[str]]
    ) -> list[Thought]:
        """Think one more sentence about every question."""
        # IRCoT (Trivedi et al., 2023), section 3: only the first sentence that is generated counts.
        prompts = self._begun(questions, contexts, [" ".join(sentences) for sentences in rationales], self._max_tokens)
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",)) if prompts else []
        thoughts = []
        for (completion,) in rows:
            first = next(iter(split_sentences(without_thinking(completion.text))), "")
            concluded = _CONCLUDED.search(first) is not None
            thoughts.append(parse_thought(first) if concluded else Thought((first,) if first else (), ""))
        return thoughts

    def conclude(
        self, questions: Sequence[str], contexts: Sequence[Sequence[str]], rationales: Sequence[Sequence[str]]
    ) -> list[str]:
        """Answer every question from a rationale that is already there."""
        # Verify-and-Edit, section 3.4: the edited rationale stands in the place of the model's own.
        if not questions:
            return []
        starts = [" ".join([*sentences, CONCLUSION]) for sentences in rationales]
        prompts = self._begun(questions, contexts, starts, _ANSWER_TOKENS)
        rows = self._model.generate(prompts, max_tokens=_ANSWER_TOKENS, stop=("\n",))
        return [_short_answer(row[0].text) for row in rows]

    def _begun(
        self, questions: Sequence[str], contexts: Sequence[Sequence[str]], starts: Sequence[str], max_tokens: int
    ) -> list[Prompt]:
        """Return prompts whose answers have begun, and leave room for so many more tokens."""
        prompts = []
        for question, context, start in zip(questions, contexts, starts, strict=True):
            room = self._model.count_tokens(start) + max_tokens
            fitted = fit_context(self._model, WITH_CONTEXT, question, context, max_tokens=room)
            prompts.append(msgspec.structs.replace(self._prompt(question, fitted.entries), answer_start=start))
        return prompts

    def _prompt(self, question: str, entries: Sequence[str]) -> Prompt:
        shown = tuple(
            (
                question_input(row.context if entries else (), row.question, "Thoughts:"),
                " ".join([*row.rationale, f"{CONCLUSION} {row.answer}."]),
            )
            for row in self._shown
        )
        asked = question_input(entries, question, "Thoughts:")
        return Prompt(WITH_CONTEXT if entries else INSTRUCTION, shown, asked, lasting=True)


def majority(thoughts: Sequence[Thought]) -> Vote:
    """Let thoughts vote on their normalised answers."""
    # Wang et al., section 2: the unweighted majority, which did best in their Table 1.
    voters: dict[str, list[int]] = {}
    for number, thought in enumerate(thoughts):
        # An answer of articles or punctuation alone has no normal form, and is still an answer.
        form = normalise_answer(thought.answer) or thought.answer.strip()
        if form:
            voters.setdefault(form, []).append(number)
    if not voters:
        return Vote("", 0, len(thoughts), 0 if thoughts else -1)
    best = max(voters.values(), key=len)
    return Vote(thoughts[best[0]].answer, len(best), len(thoughts), best[0])


_CONCLUDED = re.compile(
    r"\b(?:so|thus|hence|therefore),?\s+(?:the|my)\s+(?:(?:final|correct)\s+)?answer(?:\s+is\b|:):?", re.IGNORECASE
)


def parse_thought(text: str) -> Thought:
    """Read what a model wrote as a rationale and its answer, however it wrote it; what it thinks aloud in tags is neither."""
    text = plain_response(text)
    match = _CONCLUDED.search(text) or next(reversed(list(conclusion_words().finditer(text))), None)
    if match is None:
        sentences = statements(text)
        return Thought(tuple(sentences), _short_answer(sentences[-1]) if sentences else "")
    before = text[: match.start()].rstrip().rstrip(",;:")
    return Thought(tuple(statements(before)), _short_answer(text[match.end() :]))


_PAIRS = {"(": ")", "（": "）", "[": "]", "{": "}", "*": "*", '"': '"', "“": "”"}

# Each bracket around an answer copies it; what is longer is none that could be given.
_LONGEST_ANSWER = 4_000


def _short_answer(text: str) -> str:
    """Return the first sentence of a text without what is said and set around an answer."""
    sentences = split_sentences(without_thinking(text).strip().partition("\n")[0])
    answer = clean_answer(sentences[0]) if sentences else ""
    while 1 < len(answer) <= _LONGEST_ANSWER and _PAIRS.get(answer[0]) == answer[-1]:
        answer = clean_answer(answer[1:-1])
    return answer.strip()


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
        written = self._write([Prompt(ASK_INSTRUCTION, shown, step, lasting=True) for step in steps])
        return [line or sentence for line, sentence in zip(written, sentences, strict=True)]

    def answer(self, questions: Sequence[str], contexts: Sequence[Sequence[str]]) -> list[str]:
        """Answer verifying questions with full sentences, all in one call."""
        # Verify-and-Edit, section 3.3.
        shown = tuple((question_input(row.context, row.verifying_question), row.answer) for row in self._shown)
        prompts = []
        for question, context in zip(questions, contexts, strict=True):
            fitted = fit_context(self._model, VERIFY_INSTRUCTION, question, context, max_tokens=self._max_tokens)
            prompts.append(Prompt(VERIFY_INSTRUCTION, shown, question_input(fitted.entries, question), lasting=True))
        return self._write(prompts)

    def _write(self, prompts: Sequence[Prompt]) -> list[str]:
        """Let the model write a line for each prompt, "" where it writes no letter or digit."""
        rows = self._model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",)) if prompts else []
        lines = [clean_text(without_thinking(row[0].text)) for row in rows]
        return [line if re.search(r"\w", line) else "" for line in lines]


def _step(question: str, sentence: str) -> str:
    return f"Question: {question}\nSentence: {sentence}\nVerifying question:"
