"""One encoder for all who ask at once: questions in batches of their own, which long texts do not hold up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from pytrace.models.encoders.encoder import Encoder, Vectors
from pytrace.models.encoders.encoder_files import Kind
from pytrace.serve.batcher import Batcher
from pytrace.storage.closing import Closing

# A token is some four characters of English; it need not be exact, since it only decides what goes together.
_CHARACTERS = 4
# Tokens that are encoded together, and that a long list of texts is cut into, so that those who came later get their turn: some
# tenth of a second on two cores with the tiny encoder.
BATCH_TOKENS = 2048
# Tokens that may wait: half a minute of that.
_MOST_WAITING = 300 * BATCH_TOKENS


def count_tokens(text: str, most: int) -> int:
    """Estimate the tokens of a text, of which an encoder reads so many at most."""
    return min(len(text) // _CHARACTERS + 2, most)


class SharedEncoder(Closing):
    """An encoder whose calls share batches, from any thread; a vector is what the encoder itself gives.

    Parameters
    ----------
    encoder
        The encoder; all else that is asked of this is its own.
    observe
        Is told of each batch: its kind, texts and seconds.
    """

    def __init__(self, encoder: Encoder, *, observe: Callable[[str, int, float], object] | None = None) -> None:
        self.inner = encoder
        self.longest = int(getattr(encoder, "max_tokens", 512) or 512)
        self._batchers: dict[Kind, Batcher[list[str], Vectors]] = {
            kind: Batcher(
                partial(self._encode, kind),
                size=self.count,
                budget=BATCH_TOKENS,
                most_waiting=_MOST_WAITING,
                name="tokens to encode",
                observe=None if observe is None else partial(observe, kind),
            )
            for kind in ("query", "passage")
        }

    def __getattr__(self, name: str) -> Any:
        """Return what the encoder itself has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def name(self) -> str:
        """The encoder's."""
        return self.inner.name

    @property
    def fingerprint(self) -> str:
        """The encoder's."""
        return self.inner.fingerprint

    @property
    def dimension(self) -> int:
        """The encoder's."""
        return self.inner.dimension

    @property
    def waiting(self) -> int:
        """Tokens that wait to be encoded."""
        return sum(batcher.waiting for batcher in self._batchers.values())

    def count(self, texts: Sequence[str]) -> int:
        """Estimate the tokens of texts, as far as the encoder reads them."""
        return sum(count_tokens(text, self.longest) for text in texts)

    def check_room(self, texts: Sequence[str], kind: Kind = "passage") -> None:
        """Raise `BusyError` where too much waits already."""
        self._batchers[kind].check_room(self.count(texts))

    def submit(self, texts: Sequence[str], kind: Kind) -> list[Future[Vectors]]:
        """Put texts in line, in pieces; each gives the vectors of some of them, in their order."""
        return [*self.submit_in_turn(texts, kind)]

    def submit_in_turn(self, texts: Sequence[str], kind: Kind) -> Iterator[Future[Vectors]]:
        """Put a piece of texts in line each time that one is asked for, so that a long list does not stand before others' short ones."""
        return (self._batchers[kind].submit(piece) for piece in self._pieces(texts))

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """Return float32 [n, dimension], one row a text, in the order of the texts.

        Piece by piece, so that a long list waits behind others that came meanwhile, and ends where its request is cancelled.
        """
        if not texts:
            return self.inner.encode(texts, kind=kind)
        rows = [self._batchers[kind].wait(piece) for piece in self._pieces(texts)]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def close(self) -> None:
        """Encode what waits, and end the threads; the encoder itself stays open."""
        for batcher in self._batchers.values():
            batcher.close()

    def _pieces(self, texts: Sequence[str]) -> Iterator[list[str]]:
        piece: list[str] = []
        tokens = 0
        for text in texts:
            more = count_tokens(text, self.longest)
            if piece and tokens + more > BATCH_TOKENS:
                yield piece
                piece, tokens = [], 0
            piece.append(text)
            tokens += more
        if piece:
            yield piece

    def _encode(self, kind: Kind, batch: list[list[str]]) -> list[Vectors]:
        texts = [text for piece in batch for text in piece]
        vectors = self.inner.encode(texts, kind=kind)
        ends = np.cumsum([len(piece) for piece in batch])[:-1]
        return np.split(vectors, ends)
