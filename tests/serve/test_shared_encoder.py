"""An encoder that is shared gives the vectors that it gives alone, whoever asks beside."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.errors import CancelledRequestError
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.request_context import RequestContext, request_context
from pytrace.models.scripted import HashEncoder
from pytrace.serve.failures import BusyError
from pytrace.serve.shared_encoder import BATCH_TOKENS, SharedEncoder, count_tokens

WORDS = "ferry", "founder", "quay", "almanac", "tern", "town", "isle", "lantern"


class SlowEncoder(HashEncoder):
    """Writes down what it encodes together, and waits where it is told to."""

    max_tokens = 256

    def __init__(self) -> None:
        super().__init__(dimension=64)
        self.batches: list[list[str]] = []
        self.begun, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def encode(self, texts: Sequence[str], *, kind: Any = "passage") -> Vectors:
        self.batches.append([*texts])
        self.begun.set()
        assert self.gate.wait(10)
        return super().encode(texts, kind=kind)


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(1, 90))) for _ in range(count)]


def test_vectors_are_the_encoders_own_in_their_order() -> None:
    given = texts(300)
    encoder = SlowEncoder()
    with SharedEncoder(encoder) as shared:
        assert np.array_equal(shared.encode(given), HashEncoder(dimension=64).encode(given))
        assert shared.encode([]).shape == (0, 64)
        assert (shared.name, shared.dimension, shared.fingerprint) == ("hash", 64, "hash-1-64")
        assert shared.calibration is HashEncoder.calibration
        assert not hasattr(shared, "tokenizer")
    longest = [sum(count_tokens(text, 256) for text in batch) for batch in encoder.batches if batch]
    assert max(longest) <= BATCH_TOKENS
    assert len(longest) > 5


def test_questions_of_many_threads_share_batches() -> None:
    encoder = SlowEncoder()
    asked = [f"who owns the {word} of {number}" for number in range(8) for word in WORDS]
    with SharedEncoder(encoder) as shared, ThreadPoolExecutor(len(asked)) as pool:
        encoder.gate.clear()
        rows = [pool.submit(shared.encode, [question], kind="query") for question in asked]
        assert encoder.begun.wait(10)
        # How many came before the first batch was begun is chance; all others wait.
        rest = sum(count_tokens(question, 256) for question in asked if question not in encoder.batches[0])
        while shared.waiting < rest:
            time.sleep(0.001)
        encoder.gate.set()
        alone = HashEncoder(dimension=64)
        for question, row in zip(asked, rows, strict=True):
            assert np.array_equal(row.result(10), alone.encode([question]))
    assert len(encoder.batches) <= 3


def test_a_long_list_lets_questions_pass() -> None:
    encoder = SlowEncoder()
    with SharedEncoder(encoder) as shared, ThreadPoolExecutor(1) as pool:
        encoder.gate.clear()
        long = pool.submit(shared.encode, texts(400))
        assert encoder.begun.wait(10)
        question: list[Future[Vectors]] = shared.submit(["who owns the tern"], "query")
        encoder.gate.set()
        question[0].result(10)
        assert not long.done()
        assert long.result(10).shape == (400, 64)


def test_a_cancelled_request_leaves_the_line_at_once() -> None:
    encoder = SlowEncoder()
    context = RequestContext()

    def encode(given: list[str]) -> Vectors:
        with request_context(context):
            return shared.encode(given)

    with SharedEncoder(encoder) as shared, ThreadPoolExecutor(2) as pool:
        encoder.gate.clear()
        before = pool.submit(shared.encode, ["the tern"])
        assert encoder.begun.wait(10)
        waiting = pool.submit(encode, ["never encoded"])
        while not shared.waiting:
            pass
        context.cancel()
        with pytest.raises(CancelledRequestError, match="waited for its turn"):
            waiting.result(10)  # while the encoder is still at the one before
        encoder.gate.set()
        assert before.result(10).shape == (1, 64)
        with pytest.raises(CancelledRequestError):
            pool.submit(encode, ["too late"]).result(10)
    assert encoder.batches == [["the tern"]]


def test_too_much_is_refused_before_any_of_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.serve.shared_encoder._MOST_WAITING", 2 * BATCH_TOKENS)
    encoder = SlowEncoder()
    with SharedEncoder(encoder) as shared:
        encoder.gate.clear()
        shared.submit(["the tern"], "passage")
        assert encoder.begun.wait(10)
        many = ["word " * 500] * 16
        shared.check_room(many)
        shared.submit(many, "passage")
        with pytest.raises(BusyError, match="tokens to encode waiting"):
            shared.check_room(["one more"])
        shared.check_room(["a question"], "query")  # questions wait in a line of their own
        encoder.gate.set()


@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_encoder_gives_the_vectors_that_it_gives_alone() -> None:
    from pytrace.engine.loading import load

    given = texts(12)
    with closing(load("tiny", encoder="tiny", threads=1)) as engine:
        alone = [engine.encoder.encode([text]) for text in given]
        with SharedEncoder(engine.encoder) as shared, ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda text: shared.encode([text]), given))
    for one, other in zip(alone, together, strict=True):
        assert np.allclose(one, other, atol=2e-2)
        assert float((one * other).sum()) > 0.999
