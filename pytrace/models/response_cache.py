"""A language model that remembers what it was asked: for searches that ask the same things again and again.

What a model answers to a prompt depends on the prompt and the parameters alone (up to rounding that depends on a batch),
so a search over a method's settings need not ask twice: most of its trials share most of their prompts. Answers lie in an
SQLite file, so that a search that was killed goes on without asking again what it knew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from pytrace.errors import StoreError
from pytrace.models.base_model import BaseModel, GenerationRequest
from pytrace.models.language_model import Completion, ContinuationScore, LanguageModel, OptionScores, Prompt
from pytrace.records import Usage
from pytrace.storage import sqlite
from pytrace.storage.closing import Closing
from pytrace.storage.sqlite import checksum

_Value = TypeVar("_Value")
_SCHEMA_VERSION = 2
# Version 1 lacks the checksums.
_SCHEMA = f"CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL, {checksum('key', 'value')}) WITHOUT ROWID"
_KIND, _REMEDY = "store of a model's answers", "delete the file"
# SQLite's bound on the variables of one statement is at least this.
_KEYS_AT_ONCE = 500


class _Options(msgspec.Struct, frozen=True):
    values: tuple[float, ...]
    outside: float
    bounded: tuple[bool, ...]


class CachedModel(BaseModel, Closing):
    """Answers from memory what it was asked before, and asks another model the rest.

    Attributes
    ----------
    known, asked
        How many answers came from memory, and how many from the model.
    """

    # `usage` is the model's own: what comes from memory costs nothing, so costs must be measured without memory.
    # Answers are as exact as they were the first time; the same question in another batch may differ by rounding if the
    # model is not deterministic, so `deterministic` is the model's.

    def __init__(self, model: LanguageModel, path: str | os.PathLike[str] = ":memory:") -> None:
        self._model = model
        self.name = model.name
        self.fingerprint = model.fingerprint
        self.context_tokens = model.context_tokens
        self.deterministic = model.deterministic
        self.style = getattr(model, "style", "plain")
        self._path = str(path)
        self.known = 0
        self.asked = 0
        with self._guard():
            self._connection = sqlite.connect(self._path, check_same_thread=False)
            try:
                foreign = f"{self._path} does not hold a model's answers; choose another file"
                sqlite.prepare(
                    self._connection, _SCHEMA, version=_SCHEMA_VERSION, readable=(1, _SCHEMA_VERSION), foreign=foreign
                )
                sqlite.check(self._connection, self._path, _SCHEMA, kind=_KIND, remedy=_REMEDY)
                self._intact = sqlite.intact(self._connection, "answer")
            except BaseException:
                self._connection.close()
                raise
            # What a power cut takes is asked again.
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Close the file; the model is left as it is."""
        self._connection.close()

    @property
    def gives_logits(self) -> bool:
        """Whether the model's scoring verbs work."""
        return self._model.gives_logits

    @property
    def usage(self) -> Usage:
        """What the model has spent; answers from memory cost nothing."""
        return self._model.usage

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        return self._model.count_tokens(text)

    def _generate(self, call: GenerationRequest) -> list[list[Completion]]:
        done = call.done
        seed = call.seed if call.temperature else 0
        keys = [
            self._key("generate", prompt, limit, call.stop, call.temperature, call.top_p, call.n, seed, grammar)
            for prompt, limit, grammar in zip(call.prompts, call.limits, call.grammars, strict=True)
        ]
        answers = self._recall(keys, list[Completion])
        asked = self._unknown(keys, answers)

        indices: dict[bytes, list[int]] = {}
        for index, key in enumerate(keys):
            indices.setdefault(key, []).append(index)

        def tell(key: bytes, completions: list[Completion]) -> None:
            if done is not None:
                for index in indices[key]:
                    done(index, completions)

        def keep(position: int, completions: list[Completion]) -> None:
            key = keys[asked[position]]
            self._keep({key: completions})
            tell(key, completions)

        for key, completions in answers.items():
            tell(key, completions)
        if asked:
            grammars = [grammar for index in asked if (grammar := call.grammars[index]) is not None]
            written = self._model.generate(
                [call.prompts[index] for index in asked],
                max_tokens=[call.limits[index] for index in asked],
                stop=call.stop,
                temperature=call.temperature,
                top_p=call.top_p,
                n=call.n,
                seed=call.seed,
                grammar=grammars or None,
                done=keep,
            )
            answers |= {keys[index]: completions for index, completions in zip(asked, written, strict=True)}
        return [list(answers[key]) for key in keys]

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        keys = [self._key("options", prompt, tuple(labels)) for prompt, labels in zip(prompts, options, strict=True)]
        answers = self._recall(keys, _Options)
        if asked := self._unknown(keys, answers):
            scores = self._model.score_options([prompts[index] for index in asked], [options[index] for index in asked])
            answers |= self._keep(
                {
                    keys[index]: _Options(tuple(score.log_probabilities.tolist()), score.outside, score.bounded)
                    for index, score in zip(asked, scores, strict=True)
                }
            )
        return [
            OptionScores(np.array(answers[key].values, dtype=np.float64), answers[key].outside, answers[key].bounded)
            for key in keys
        ]

    def _score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        keys = [
            [self._key("continuation", prompt, text) for text in texts]
            for prompt, texts in zip(prompts, continuations, strict=True)
        ]
        flat = [key for row in keys for key in row]
        answers = self._recall(flat, list[float])
        pairs = [(row, text) for row, texts in enumerate(continuations) for text in texts]
        wanted: dict[int, dict[bytes, str]] = {}
        for index in self._unknown(flat, answers):
            row, text = pairs[index]
            wanted.setdefault(row, {})[flat[index]] = text
        if wanted:
            scores = self._model.score_continuations(
                [prompts[row] for row in wanted], [list(texts.values()) for texts in wanted.values()]
            )
            answers |= self._keep(
                {
                    key: score.token_log_probabilities.tolist()
                    for texts, row_scores in zip(wanted.values(), scores, strict=True)
                    for key, score in zip(texts, row_scores, strict=True)
                }
            )
        return [[ContinuationScore(np.array(answers[key], dtype=np.float64)) for key in row] for row in keys]

    def _key(self, verb: str, prompt: Prompt | str, *parameters: Any) -> bytes:
        # All but the last field of a prompt, which is about costs.
        given = prompt if isinstance(prompt, str) else msgspec.structs.astuple(prompt)[:-1]
        described = repr((self._model.fingerprint, self._model.context_tokens, verb, given, parameters))
        return hashlib.sha256(described.encode("utf-8", "surrogatepass")).digest()

    def _recall(self, keys: Sequence[bytes], kind: type[_Value]) -> dict[bytes, _Value]:
        """Return what is known, by key."""
        known: dict[bytes, _Value] = {}
        distinct = list(dict.fromkeys(keys))
        with self._guard():
            for start in range(0, len(distinct), _KEYS_AT_ONCE):
                some = distinct[start : start + _KEYS_AT_ONCE]
                marks = ",".join("?" * len(some))
                for key, value in self._connection.execute(
                    f"SELECT key, value FROM answer WHERE key IN ({marks}) AND {self._intact}",  # question marks only
                    some,
                ):
                    known[key] = msgspec.msgpack.decode(value, type=kind)
        self.known += sum(key in known for key in keys)
        return known

    def _unknown(self, keys: Sequence[bytes], answers: dict[bytes, Any]) -> list[int]:
        """Return the first index of each key that is not known."""
        first: dict[bytes, int] = {}
        for index, key in enumerate(keys):
            if key not in answers:
                first.setdefault(key, index)
        return list(first.values())

    def _keep(self, answers: dict[bytes, _Value]) -> dict[bytes, _Value]:
        self.asked += len(answers)
        rows = [(key, msgspec.msgpack.encode(value)) for key, value in answers.items()]
        with self._guard(), self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO answer VALUES (?, ?)", rows)
        return answers

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            with sqlite.translated(self._path, _KIND, _REMEDY):
                yield
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._path} is damaged ({error}); {_REMEDY}") from None
