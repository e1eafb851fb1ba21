"""Models without a model: deterministic stand-ins for tests, of pytrace and of programs that use it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import LogitsUnavailableError
from pytrace.models.base_model import BaseModel, GenerationRequest
from pytrace.models.language_model import Completion, ContinuationScore, OptionScores, Prompt
from pytrace.models.request_context import current_request
from pytrace.records import Usage

_WORD = re.compile(r"\w+")


class HashEncoder:
    """An encoder that counts words: texts are alike as far as they share words.

    Each word adds 1 or -1 at one place of the vector, both chosen by a hash of the word, and vectors are scaled to length
    1; a text without words gives zeros. The same on every machine and in every process.
    """

    # Weinberger et al., "Feature hashing for large scale multitask learning" (ICML 2009), section 2.

    name = "hash"
    # A third of the words shared is as likely as not.
    calibration: ClassVar[dict[str, tuple[float, float]]] = dict.fromkeys(
        ("intent", "intent_wording", "relation", "relation_wording"), (0.33, 25.0)
    )

    def __init__(self, *, dimension: int = 256, device: str = "cpu") -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, not {dimension}")
        self.dimension = dimension
        self.device = device
        self.fingerprint = f"hash-1-{dimension}"

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> NDArray[np.float32]:
        """Return float32 [n, dimension], one row a text, in the order of the texts; `kind` changes nothing."""
        del kind
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.casefold()):
                digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                number = int.from_bytes(digest, "little")
                vectors[row, (number >> 1) % self.dimension] += 1 if number & 1 else -1
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors


class ScriptedModel(BaseModel):
    """A language model that says what it is told to: answers in a row, or whatever a function makes of a prompt.

    Scores are made of the words that a text shares with the end of its prompt, so that a candidate about the question is
    likelier than one about something else, and the same on every machine. Tokens are words.
    """

    name = "scripted"
    fingerprint = "scripted-1"
    # Unless the answers come from a function that is not.
    deterministic = True

    def __init__(
        self,
        answers: Sequence[str] | Callable[[str], str] = ("",),
        *,
        context_tokens: int = 100_000,
        gives_logits: bool = True,
    ) -> None:
        if not callable(answers) and not answers:
            raise ValueError("a scripted model needs at least one answer")
        self._answers = (answers,) if isinstance(answers, str) else answers
        self.context_tokens = context_tokens
        self.gives_logits = gives_logits
        self.usage = Usage()
        self._next = 0
        self.prompts: list[str] = []

    def count_tokens(self, text: str) -> int:
        """Count the words."""
        return len(text.split())

    def _generate(self, call: GenerationRequest) -> list[list[Completion]]:
        results = []
        for index, (prompt, limit) in enumerate(zip(call.prompts, call.limits, strict=True)):
            results.append([self._complete(self._take(prompt), limit, call.stop) for _ in range(call.n)])
            if call.done is not None:
                call.done(index, results[-1])
        return results

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        self._require_logits()
        results = []
        for prompt, labels in zip(prompts, options, strict=True):
            text = self._take(prompt)
            lines = {line.partition(". ")[0]: line.partition(". ")[2] for line in text.splitlines()}
            question = [line for line in text.splitlines() if line.startswith("Question:")][-1:] or [text]
            shared = np.array([_overlap(lines.get(label, ""), question[0]) for label in labels], dtype=np.float64)
            results.append(OptionScores(shared - np.logaddexp.reduce(shared), 0.0 if labels else 1.0))
        return results

    def _score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        self._require_logits()
        results = []
        for prompt, texts in zip(prompts, continuations, strict=True):
            known = set(_WORD.findall(self._take(prompt).rpartition("\n\n")[2].lower()))
            results.append(
                [
                    ContinuationScore(
                        np.array([-1.0 if word in known else -2.0 for word in _WORD.findall(text.lower())], np.float64)
                    )
                    for text in texts
                ]
            )
        return results

    def _require_logits(self) -> None:
        if not self.gives_logits:
            raise LogitsUnavailableError(
                "this scripted model gives no log-probabilities; make it with gives_logits=True"
            )

    def _take(self, prompt: Prompt | str) -> str:
        text = prompt if isinstance(prompt, str) else prompt.plain()
        words = self.count_tokens(text)
        self.prompts.append(text)
        self._spend(Usage(calls=1, prompt_tokens=words, evaluated_tokens=words))
        return text

    def _spend(self, usage: Usage) -> None:
        self.usage += usage
        if (request := current_request()) is not None:
            request.spend(usage)

    def _complete(self, prompt: str, limit: int, stop: Sequence[str]) -> Completion:
        if callable(self._answers):
            text = self._answers(prompt)
        else:
            text = self._answers[self._next % len(self._answers)]
            self._next += 1
        finish: Literal["end", "stop", "length"] = "end"
        cuts = [start for ending in stop if (start := text.find(ending)) >= 0]
        if cuts:
            text, finish = text[: min(cuts)], "stop"
        if self.count_tokens(text) > limit:
            text, finish = " ".join(text.split()[:limit]), "length"
        self._spend(Usage(generated_tokens=self.count_tokens(text)))
        return Completion(text, self.count_tokens(text), finish, 0.0)


def _overlap(text: str, other: str) -> float:
    return float(len(set(_WORD.findall(text.lower())) & set(_WORD.findall(other.lower()))))
