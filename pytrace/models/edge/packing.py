"""Texts as the small model reads them: a question or claim, then passages, each ended by a separator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelFileError
from pytrace.models.encoders.model_directory import TokenizerSettings, load_tokenizer, usable

MAX_TOKENS = 512
"""The longest input, in tokens."""

MAX_QUESTION_TOKENS = 96
"""The longest question or claim, in tokens; what is longer is cut at its end."""

_CACHED_TEXTS = 4_096
_MAX_ID = np.iinfo(np.int32).max


class TokenizedText(NamedTuple):
    """A text's token ids, int32 [n], and where each token begins and ends in it, int32 [n, 2], in characters."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]


class PackedInput(NamedTuple):
    """One input of the model.

    `ids` and `types` are int32 [n]; `passages` int32 [n] is the passage of each token or -1, and `offsets` int32 [n, 2] its characters
    there.
    """

    ids: NDArray[np.int32]
    types: NDArray[np.int32]
    passages: NDArray[np.int32]
    offsets: NDArray[np.int32]

    @property
    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """What the model takes, int64 [1, n] each."""
        return {"input_ids": self.ids[None].astype(np.int64), "token_type_ids": self.types[None].astype(np.int64)}

    def separators(self) -> dict[int, int]:
        """Return the place of the separator after each passage, after its last part if there are several."""
        return {passage: place + 1 for place, passage in enumerate(self.passages.tolist()) if passage >= 0}


class Packer:
    """Tokenizes texts and packs them; tokens of recent texts are kept. Threads may share one."""

    def __init__(self, tokenizer: Path) -> None:
        self._path = tokenizer
        self._tokenizer = load_tokenizer(tokenizer, TokenizerSettings())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.pad_id, self._begin, self._end = (self._mark(mark, tokenizer) for mark in ("[PAD]", "[CLS]", "[SEP]"))
        # Tokens of recent texts, without marks; several threads may ask.
        self.tokens: Callable[[str], TokenizedText] = functools.lru_cache(_CACHED_TEXTS)(self._tokenized)

    def _mark(self, mark: str, path: Path) -> int:
        found = self._tokenizer.token_to_id(mark)
        if found is None or found > _MAX_ID:
            raise ModelFileError(f"{path} has no token {mark}; give the tokenizer of a BERT")
        return found

    def _tokenized(self, text: str) -> TokenizedText:
        # Half of a surrogate pair has no UTF-8.
        plain = text.encode("utf-8", "replace").decode("utf-8")
        with usable(self._path):  # a broken one has numbers that no token has
            found = self._tokenizer.encode(plain, add_special_tokens=False)
            return TokenizedText(np.array(found.ids, np.int32), np.array(found.offsets, np.int32).reshape(-1, 2))

    def pack(
        self, question: str, parts: Sequence[tuple[int, NDArray[np.int64]]], passages: Sequence[str]
    ) -> PackedInput:
        """Pack a question with parts of passages: the passage's index, and which of its tokens, ascending."""
        asked = self.tokens(question).ids[:MAX_QUESTION_TOKENS]
        mark = np.array([self._end], np.int32)
        nowhere = np.full((1, 2), -1, np.int32)
        ids = [np.array([self._begin], np.int32), asked, mark]
        places = [np.full((len(asked) + 2, 2), -1, np.int32)]
        owners = [np.full(len(asked) + 2, -1, np.int32)]
        for index, chosen in parts:
            text = self.tokens(passages[index])
            ids += [text.ids[chosen], mark]
            places += [text.offsets[chosen], nowhere]
            owners += [np.full(len(chosen), index, np.int32), np.array([-1], np.int32)]
        all_ids = np.concatenate(ids)
        types = np.ones(len(all_ids), np.int32)
        types[: len(asked) + 2] = 0
        return PackedInput(all_ids, types, np.concatenate(owners), np.concatenate(places))

    def room(self, question: str) -> int:
        """Return how many tokens of passages, with their separators, go with a question."""
        return MAX_TOKENS - 2 - min(len(self.tokens(question).ids), MAX_QUESTION_TOKENS)

    def windows(self, question: str, passages: Sequence[str]) -> list[PackedInput]:
        """Pack a question with passages, whole and as many as fit into each window.

        A passage that is longer than a window alone is cut into parts that overlap by half, with its title in front of each.
        """
        room = self.room(question)
        groups: list[list[tuple[int, NDArray[np.int64]]]] = [[]]
        used = 0
        for index, passage in enumerate(passages):
            for part in self._cut(passage, room - 1):
                if groups[-1] and used + len(part) + 1 > room:
                    groups.append([])
                    used = 0
                groups[-1].append((index, part))
                used += len(part) + 1
        return [self.pack(question, group, passages) for group in groups]

    def _cut(self, passage: str, room: int) -> list[NDArray[np.int64]]:
        count = len(self.tokens(passage).ids)
        if count <= room:
            return [np.arange(count)]
        title = title_tokens(passage, self.tokens(passage).offsets)[: room // 4]
        width = room - len(title)
        starts = range(len(title), max(count - width // 2, len(title) + 1), max(width // 2, 1))
        return [np.concatenate([title, np.arange(start, min(start + width, count))]) for start in starts]


def title_tokens(passage: str, offsets: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return which tokens are of the title, "[…]" at a passage's beginning."""
    end = passage.find("] ") + 1 if passage.startswith("[") else 0
    return np.flatnonzero(offsets[:, 1] <= end) if end else np.zeros(0, np.int64)
