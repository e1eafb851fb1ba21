"""A language model that remembers what it was asked: for searches that ask the same things again and again.

What a model answers to a prompt depends on the prompt and the parameters alone (up to rounding that depends on a batch),
so a search over a method's settings need not ask twice: most of its trials share most of their prompts. Answers lie in an
SQLite file, so that a search that was killed goes on without asking again what it knew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
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

_Value = TypeVar("_Value")
_SCHEMA_VERSION = 1
_SCHEMA = "CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
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
        self._path = str(path)
        self.known = 0
        self.asked = 0
        with self._guard():
            self._connection = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
            try:
                foreign = f"{self._path} does not hold a model's answers; choose another file"
                sqlite.prepare(self._connection, _SCHEMA, version=_SCHEMA_VERSION, foreign=foreign)
            except BaseException:
                self._connection.close()
                raise
            # What a power cut takes is asked again.
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Close the file; the model is left as it is."""
        self._connection.close()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint."""
        return self._model.fingerprint

    @property
    def context_tokens(self) -> int:
        """The longest sequence of the model."""
        return self._model.context_tokens

    @property
    def gives_logits(self) -> bool:
        """Whether the model's scoring verbs work."""
        return self._model.gives_logits

    @property
    def deterministic(self) -> bool:
        """Whether the model is deterministic."""
        return self._model.deterministic

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
        found = self._recall(keys, list[Completion])
        if done is not None:
            for place, key in enumerate(keys):
                if key in found:
                    done(place, found[key])
        places = self._unknown(keys, found)

        def tell(place: int, completions: list[Completion]) -> None:
            self._keep({keys[places[place]]: completions})
            if done is not None:
                for other, key in enumerate(keys):
                    if key == keys[places[place]]:
                        done(other, completions)

        if places:
            grammars = [grammar for place in places if (grammar := call.grammars[place]) is not None]
            written = self._model.generate(
                [call.prompts[place] for place in places],
                max_tokens=[call.limits[place] for place in places],
                stop=call.stop,
                temperature=call.temperature,
                top_p=call.top_p,
                n=call.n,
                seed=call.seed,
                grammar=grammars or None,
                done=tell,
            )
            found |= {keys[place]: own for place, own in zip(places, written, strict=True)}
        return [list(found[key]) for key in keys]

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        keys = [self._key("options", prompt, tuple(own)) for prompt, own in zip(prompts, options, strict=True)]
        found = self._recall(keys, _Options)
        places = self._unknown(keys, found)
        if places:
            scores = self._model.score_options(
                [prompts[place] for place in places], [options[place] for place in places]
            )
            new = {
                keys[place]: _Options(tuple(score.log_probabilities.tolist()), score.outside, score.bounded)
                for place, score in zip(places, scores, strict=True)
            }
            self._keep(new)
            found |= new
        return [
            OptionScores(np.array(found[key].values, dtype=np.float64), found[key].outside, found[key].bounded)
            for key in keys
        ]

    def _score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        keys = [
            [self._key("continuation", prompt, text) for text in own]
            for prompt, own in zip(prompts, continuations, strict=True)
        ]
        found = self._recall([key for own in keys for key in own], list[float])
        wanted: dict[int, dict[bytes, str]] = {}
        taken: set[bytes] = set()
        for place, (own, texts) in enumerate(zip(keys, continuations, strict=True)):
            for key, text in zip(own, texts, strict=True):
                if key not in found and key not in taken:
                    taken.add(key)
                    wanted.setdefault(place, {})[key] = text
        if wanted:
            scores = self._model.score_continuations(
                [prompts[place] for place in wanted], [list(own.values()) for own in wanted.values()]
            )
            new = {
                key: score.token_log_probabilities.tolist()
                for own, row in zip(wanted.values(), scores, strict=True)
                for key, score in zip(own, row, strict=True)
            }
            self._keep(new)
            found |= new
        return [[ContinuationScore(np.array(found[key], dtype=np.float64)) for key in own] for own in keys]

    def _key(self, verb: str, prompt: Prompt | str, *parameters: Any) -> bytes:
        given = prompt if isinstance(prompt, str) else msgspec.structs.astuple(prompt)
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
                    f"SELECT key, value FROM answer WHERE key IN ({marks})",  # question marks only
                    some,
                ):
                    known[key] = msgspec.msgpack.decode(value, type=kind)
        self.known += sum(key in known for key in keys)
        return known

    def _unknown(self, keys: Sequence[bytes], found: dict[bytes, Any]) -> list[int]:
        """Return the first place of each key that is not known."""
        first: dict[bytes, int] = {}
        for place, key in enumerate(keys):
            if key not in found:
                first.setdefault(key, place)
        return list(first.values())

    def _keep(self, answers: dict[bytes, Any]) -> None:
        self.asked += len(answers)
        rows = [(key, msgspec.msgpack.encode(value)) for key, value in answers.items()]
        with self._guard(), self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO answer VALUES (?, ?)", rows)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        remedy = "delete the file"
        try:
            with sqlite.translated(self._path, "store of a model's answers", remedy):
                yield
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._path} is damaged ({error}); {remedy}") from None
