"""Requests that share models: each is charged its part, and leaves when it is cancelled, while the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace.errors import CancelledRequestError, ModelError
from pytrace.methods.base import Stages
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.request_context import RequestContext, current_request, request_context
from pytrace.models.servers.remote_model import RemoteModel
from pytrace.records import Usage
from tests.engine_checks import assert_close
from tests.server_double import COMPLETIONS, Double, count, trouble

LONGEST = 30.0
ADDED = ("calls", "prompt_tokens", "evaluated_tokens", "generated_tokens")


class Call(threading.Thread):
    """What one thread does for a request: its result, or what it raised."""

    def __init__(self, work: Callable[[], Any], request: RequestContext | None = None) -> None:
        super().__init__(daemon=True)
        self.request = request or RequestContext()
        self.error: BaseException | None = None
        self.result: Any = None
        self._work = work
        self.start()

    def run(self) -> None:
        try:
            with request_context(self.request):
                self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - to be looked at in the test's thread
            self.error = error

    def ended(self) -> Any:
        """Return the result, or raise what was raised."""
        self.join(LONGEST)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result

    def was_cancelled(self) -> bool:
        self.join(LONGEST)
        return isinstance(self.error, CancelledRequestError)


class Rounds:
    """Holds a model before each decoder call, until it is let go on."""

    def __init__(self, model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self._decode = model._runtime.decode
        self._arrived, self._go = threading.Semaphore(0), threading.Semaphore(0)
        self._free = False
        monkeypatch.setattr(model._runtime, "decode", self.decode)

    def decode(self, *arrays: NDArray[Any]) -> bool:
        if not self._free:
            self._arrived.release()
            assert self._go.acquire(timeout=LONGEST)
        return self._decode(*arrays)

    def reached(self) -> None:
        """Wait until the next call stands before the decoder."""
        assert self._arrived.acquire(timeout=LONGEST)

    def step(self) -> None:
        """Let the call go that stands there, and wait for the next."""
        self._go.release()
        self.reached()

    def free(self) -> None:
        self._free = True
        self._go.release()


def writes(model: LlamaCppModel, prompt: str, tokens: int = 20) -> Callable[[], str]:
    return lambda: model.generate([prompt], max_tokens=tokens)[0][0].text


def in_line(model: LlamaCppModel, tasks: int) -> None:
    """Wait until so many tasks stand in line."""
    until = time.monotonic() + LONGEST
    while len(model._scheduler._inbox) < tasks:
        assert time.monotonic() < until
        time.sleep(0.001)


def assert_at_rest(model: LlamaCppModel) -> None:
    """Nothing is in progress, nothing is pinned, and the cells are those of the kept prefixes."""
    scheduler, runtime = model._scheduler, model._runtime
    assert not any((scheduler._inbox, scheduler._waiting, scheduler._entering, scheduler._writing, scheduler._finished))
    assert scheduler._driver is None
    trie = scheduler._trie
    assert (trie._taken, trie.pinned_cells(), trie.cells <= trie._budget) == (set(), 0, True)
    held = {node.sequence: node.end - 1 for node in trie.root.below() if not node.children and node is not trie.root}
    assert trie.free_sequences == runtime.sequences - len(held)
    for sequence in range(runtime.sequences):
        assert runtime._c.llama_memory_seq_pos_max(runtime._memory, sequence) == held.get(sequence, -1)


def assert_adds_up(parts: list[Usage], total: Usage) -> None:
    whole = sum(parts, Usage())
    for name in ADDED:
        assert getattr(whole, name) == getattr(total, name), name
    assert whole.seconds == pytest.approx(total.seconds)
    assert max(part.batches for part in parts) <= total.batches <= whole.batches


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_requests_spend_adds_up_and_their_results_are_those_of_calls_alone(
    random_gguf: Path, alone: LlamaCppModel, deterministic: bool
) -> None:
    stem, endings = "abab" * 8, ["a", "ba", "é", "ab", "bb"]

    def ask(model: LlamaCppModel, ending: str) -> tuple[list[str], NDArray[np.float64], float]:
        texts = [row[0].text for row in model.generate([stem + ending, ending], max_tokens=[12, 5])]
        scores = model.score_options([stem + ending], [["A", "B"]])[0].log_probabilities
        return texts, scores, model.score_continuations([ending], [["abc"]])[0][0].log_probability

    with LlamaCppModel(
        random_gguf, threads=1, context=256, batch=16, float32_cache=True, deterministic=deterministic
    ) as model:
        calls = [Call(lambda ending=ending: ask(model, ending)) for ending in endings]
        results = [call.ended() for call in calls]
        assert_adds_up([call.request.usage for call in calls], model.usage)
        for call, ending, (texts, scores, likelihood) in zip(calls, endings, results, strict=True):
            lengths = [len(model.render(text)) for text in (stem + ending, ending)]
            assert call.request.usage.calls == 4
            # Three prompts by themselves, and what is scored: all of "abc" but its last letter goes through the network.
            assert call.request.usage.prompt_tokens == 2 * lengths[0] + 2 * lengths[1] + 2
            expected = ask(alone, ending)
            assert texts == expected[0]
            assert_close(scores, expected[1])
            assert likelihood == pytest.approx(expected[2], abs=1e-3)


def test_what_several_requests_share_is_charged_evenly_and_its_decoder_call_to_each(
    model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    driver = Call(writes(model, "zz", 3))
    rounds.reached()
    endings = ["x", "yy", "b" * 9]
    calls = [Call(lambda e=e: model.score_options(["a" * 21 + e], [["A"]])) for e in endings]
    in_line(model, 3)
    rounds.free()
    driver.ended()
    for call in calls:
        call.ended()
    usages = [call.request.usage for call in calls]
    assert [usage.evaluated_tokens for usage in usages] == [7 + 1, 7 + 2, 7 + 9]
    assert [usage.batches for usage in usages] == [1, 1, 1]
    assert driver.request.usage.evaluated_tokens == 2 + 2
    assert (driver.request.usage.batches, driver.request.usage.generated_tokens) == (3, 3)
    assert all(usage.seconds > 0.0 for usage in usages)
    assert_adds_up([*usages, driver.request.usage], model.usage)


def test_work_outside_of_requests_is_charged_to_none_of_them(
    model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    call = Call(writes(model, "ab", 5))
    rounds.reached()
    free = threading.Thread(target=writes(model, "ba", 9))
    free.start()
    in_line(model, 1)
    rounds.free()
    call.ended()
    free.join(LONGEST)
    usage = call.request.usage
    assert (usage.calls, usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens) == (1, 2, 6, 5)
    assert model.usage.evaluated_tokens == 6 + 10
    assert current_request() is None


def test_a_stage_counts_what_its_request_spent(model: LlamaCppModel) -> None:
    def staged() -> Usage:
        stages = Stages(model)
        with stages.stage("read"):
            model.generate(["ab"], max_tokens=4)
            Call(writes(model, "ba", 9)).ended()  # of another request
        return stages.usage["read"]

    call = Call(staged)
    assert call.ended() == call.request.usage
    assert (call.request.usage.calls, model.usage.calls) == (1, 2)
    assert staged().calls == 2  # outside of requests everything counts


def test_a_cancelled_request_begins_nothing(model: LlamaCppModel) -> None:
    request = RequestContext()
    request.cancel()
    assert request.cancelled
    assert Call(writes(model, "ab"), request).was_cancelled()
    assert (request.usage, model.usage) == (Usage(), Usage())


def test_who_is_cancelled_while_waiting_leaves_at_once(
    random_gguf: Path, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LlamaCppModel(random_gguf, threads=1, context=256, float32_cache=True, max_parallel=1) as model:
        rounds = Rounds(model, monkeypatch)
        driver = Call(writes(model, "abab"))
        rounds.reached()
        first, second, third = (Call(writes(model, prompt)) for prompt in ("ba", "bb", "bé"))
        in_line(model, 3)
        first.request.cancel()  # nobody has taken it in yet
        assert first.was_cancelled()
        rounds.step()
        assert len(model._scheduler._waiting) == 2  # one text is written at a time
        second.request.cancel()
        assert second.was_cancelled()
        rounds.step()
        assert len(model._scheduler._waiting) == 1
        rounds.free()
        assert driver.ended() == writes(alone, "abab")()
        assert third.ended() == writes(alone, "bé")()
        assert (second.request.usage.evaluated_tokens, second.request.usage.batches) == (0, 0)
        assert_at_rest(model)


def test_who_is_cancelled_while_entering_or_writing_leaves_and_gives_back_its_cells(
    model: LlamaCppModel, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    driver = Call(writes(model, "abab"))
    rounds.reached()
    entering, writing = Call(writes(model, "abba")), Call(writes(model, "abé"))
    in_line(model, 2)
    rounds.step()
    scheduler = model._scheduler
    assert (len(scheduler._entering), len(scheduler._writing), len(scheduler._trie._taken)) == (2, 1, 3)
    entering.request.cancel()
    assert entering.was_cancelled()  # in the middle of the round
    rounds.step()
    assert (len(scheduler._entering), len(scheduler._writing), len(scheduler._trie._taken)) == (0, 2, 2)
    rounds.step()
    writing.request.cancel()
    assert writing.was_cancelled()
    rounds.step()
    assert (len(scheduler._writing), len(scheduler._trie._taken)) == (1, 1)
    rounds.free()
    assert driver.ended() == writes(alone, "abab")()
    assert entering.request.usage.generated_tokens == 1
    assert writing.request.usage.generated_tokens == 3
    assert_adds_up([call.request.usage for call in (driver, entering, writing)], model.usage)
    assert_at_rest(model)


@pytest.mark.parametrize("stand_by", [0, 1, 2])
def test_a_driver_that_is_cancelled_hands_over_to_a_thread_that_waits(
    random_gguf: Path, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch, stand_by: int
) -> None:
    with LlamaCppModel(random_gguf, threads=1, context=256, float32_cache=True, reuse_tokens=2) as model:
        rounds = Rounds(model, monkeypatch)
        driver = Call(writes(model, "abab"))
        rounds.reached()
        prompts = ["abba", "é"][:stand_by]
        others = [Call(writes(model, prompt)) for prompt in prompts]
        in_line(model, stand_by)
        rounds.step()
        rounds.step()  # they write now
        driver.request.cancel()
        rounds.free()
        assert driver.was_cancelled()
        assert [call.ended() for call in others] == [writes(alone, prompt)() for prompt in prompts]
        assert_adds_up([call.request.usage for call in (driver, *others)], model.usage)
        assert_at_rest(model)
        assert writes(model, "abab")() == writes(alone, "abab")()


def test_all_calls_of_a_request_end_with_it(model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(model, monkeypatch)
    request = RequestContext()
    calls = [Call(writes(model, "ab"), request)]
    rounds.reached()
    calls += [Call(writes(model, prompt), request) for prompt in ("ba", "bb")]
    in_line(model, 2)
    request.cancel()
    assert calls[1].was_cancelled()
    assert calls[2].was_cancelled()
    rounds.free()
    assert calls[0].was_cancelled()
    assert not request._callbacks
    assert_at_rest(model)


def test_a_deterministic_model_heeds_cancels_and_stays_the_same_to_the_last_bit(
    random_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(model: LlamaCppModel) -> list[float]:
        return [row[0].log_probability for row in model.generate(["abab", "abba", "é"], max_tokens=9)]

    options: dict[str, Any] = {"threads": 1, "context": 256, "deterministic": True}
    with LlamaCppModel(random_gguf, **options) as model:
        expected = ask(model)
    with LlamaCppModel(random_gguf, **options) as model:
        rounds = Rounds(model, monkeypatch)
        driver = Call(lambda: ask(model))
        rounds.reached()
        waiting, cancelled = Call(lambda: ask(model)), Call(lambda: ask(model))
        cancelled.request.cancel()
        assert cancelled.was_cancelled()
        rounds.step()
        driver.request.cancel()
        rounds.free()
        assert driver.was_cancelled()
        assert waiting.ended() == expected
        assert ask(model) == expected


def test_what_a_caller_does_when_told_is_done_for_its_own_request_and_fails_nobody_else(
    model: LlamaCppModel, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    seen: list[RequestContext | None] = []

    def stop(*_: object) -> None:
        request = current_request()
        seen.append(request)
        assert request is not None
        request.cancel()
        request.check()

    driver = Call(lambda: model.generate(["ba", "bb"], max_tokens=[4, 50], done=stop))
    rounds.reached()
    other = Call(lambda: model.generate(["abab"], max_tokens=2, done=lambda *_: seen.append(current_request())))
    last = Call(writes(model, "abba"))
    in_line(model, 2)
    rounds.free()
    assert driver.was_cancelled()
    other.ended()
    assert seen == [other.request, driver.request]
    assert last.ended() == writes(alone, "abba")()
    assert_at_rest(model)


def when_no_thread_drives(model: LlamaCppModel, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something done in the moment between two drivers."""
    scheduler = model._scheduler
    drop = scheduler._drop

    def drop_and_act() -> None:
        drop()
        if scheduler._driver is None:
            act()

    monkeypatch.setattr(scheduler, "_drop", drop_and_act)


def test_who_is_cancelled_in_the_last_round_of_the_driver_leaves_nothing(
    model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    driver = Call(writes(model, "abab", 3))
    rounds.reached()
    other = Call(writes(model, "ba"))
    in_line(model, 1)
    rounds.step()
    rounds.step()
    other.request.cancel()
    assert other.was_cancelled()
    rounds.free()
    driver.ended()
    assert_at_rest(model)


def test_who_is_cancelled_while_no_thread_drives_leaves_nothing(
    model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    driver = Call(writes(model, "abab", 3))
    rounds.reached()
    other = Call(writes(model, "ba"))
    in_line(model, 1)
    when_no_thread_drives(model, other.request.cancel, monkeypatch)
    rounds.free()
    driver.ended()
    assert other.was_cancelled()
    assert_at_rest(model)


def test_who_waits_for_a_model_that_is_closed_is_told_and_touches_nothing(
    model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(model, monkeypatch)
    driver = Call(writes(model, "ab", 3))
    rounds.reached()
    waiting = Call(writes(model, "ba"))
    in_line(model, 1)
    forgotten: list[int] = []

    def close() -> None:
        if model._runtime._context:
            model.close()
            monkeypatch.setattr(model._runtime, "forget", lambda sequence, _: forgotten.append(sequence))

    when_no_thread_drives(model, close, monkeypatch)
    rounds.free()
    driver.ended()
    with pytest.raises(ModelError, match="was closed"):
        waiting.ended()
    assert not forgotten


def test_cancels_at_any_moment_hurt_nobody_else(random_gguf: Path, alone: LlamaCppModel) -> None:
    prompts = ["ab" * 12 + ending for ending in ("", "a", "bb", "é")] + ["ba" * 20, "b", "é" * 9]
    expected = {prompt: writes(alone, prompt, 12)() for prompt in prompts}
    scores = {prompt: alone.score_options([prompt], [["A", "B"]])[0].log_probabilities for prompt in prompts}
    finished: list[RequestContext] = []
    until = time.monotonic() + 2.5
    outcomes = {"finished": 0, "cancelled": 0}
    faults: list[BaseException] = []
    active: dict[int, RequestContext] = {}

    def user(number: int, model: LlamaCppModel) -> None:
        random = np.random.default_rng(number)
        try:
            while time.monotonic() < until:
                chosen = [prompts[index] for index in random.integers(0, len(prompts), 3)]
                request = active[number] = RequestContext()
                finished.append(request)
                try:
                    with request_context(request):
                        rows = model.generate(chosen, max_tokens=12)
                        assert [row[0].text for row in rows] == [expected[prompt] for prompt in chosen]
                        for prompt, score in zip(chosen, model.score_options(chosen, [["A", "B"]] * 3), strict=True):
                            assert_close(score.log_probabilities, scores[prompt])
                    outcomes["finished"] += 1
                except CancelledRequestError:
                    assert request.cancelled
                    outcomes["cancelled"] += 1
        except BaseException as error:  # noqa: BLE001 - to be raised in the test's thread
            faults.append(error)

    with LlamaCppModel(
        random_gguf, threads=1, context=128, cache_tokens=256, max_parallel=5, float32_cache=True
    ) as model:
        users = [threading.Thread(target=user, args=(number, model), daemon=True) for number in range(5)]
        for thread in users:
            thread.start()
        random = np.random.default_rng(99)
        while time.monotonic() < until:
            time.sleep(random.random() * 0.01)
            if requests := list(active.values()):
                requests[random.integers(len(requests))].cancel()
        for thread in users:
            thread.join(LONGEST)
        assert not any(thread.is_alive() for thread in users)
        if faults:
            raise faults[0]
        assert min(outcomes.values()) > 0, outcomes
        assert_adds_up([request.usage for request in finished], model.usage)
        assert_at_rest(model)


@pytest.mark.usefixtures("quick")
def test_what_a_server_spends_for_a_request_is_charged_to_it(openai: Double) -> None:
    with RemoteModel(openai.url) as model:
        calls = [
            Call(lambda n=n: model.generate(["The sky", "The sea"], max_tokens=n))  # type: ignore[misc]
            for n in (3, 5)
        ]
        for call in calls:
            call.ended()
        assert [call.request.usage.generated_tokens for call in calls] == [6, 10]
        total = sum((call.request.usage for call in calls), Usage())
        assert (total.calls, total.batches, total.evaluated_tokens) == (
            4,
            model.usage.batches,
            model.usage.evaluated_tokens,
        )


@pytest.mark.usefixtures("quick")
def test_a_cancel_ends_a_call_of_a_server_and_hangs_up(openai: Double) -> None:
    asked, hung_up = threading.Semaphore(0), threading.Semaphore(0)

    def wait(handler: Any) -> None:
        asked.release()
        handler.connection.settimeout(LONGEST)
        if handler.connection.recv(1) == b"":
            hung_up.release()
        handler.close_connection = True

    with RemoteModel(openai.url, concurrency=2) as model:
        before = count(openai)
        openai.trouble = trouble(COMPLETIONS, 2, wait)
        call = Call(lambda: model.generate(["The sky"] * 6, max_tokens=3))
        for _ in range(2):
            assert asked.acquire(timeout=LONGEST)
        call.request.cancel()
        assert call.was_cancelled()
        for _ in range(2):
            assert hung_up.acquire(timeout=LONGEST)
        assert count(openai) - before == 2
        assert Call(lambda: model.generate(["The sky"], max_tokens=3), call.request).was_cancelled()
        assert count(openai) - before == 2
        assert Call(lambda: model.generate(["The sky"], max_tokens=3)).ended()[0][0].tokens == 3


@pytest.mark.usefixtures("quick")
def test_a_request_that_was_cancelled_asks_a_server_nothing(openai: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cancel = RequestContext.on_cancel

    def late(self: RequestContext, callback: Callable[[], object]) -> Any:
        time.sleep(0.2)
        return on_cancel(self, callback)

    with RemoteModel(openai.url) as model:
        before = len(openai.seen)
        monkeypatch.setattr(RequestContext, "on_cancel", late)
        request = RequestContext()
        request.cancel()
        for work in (lambda: model.generate(["The sky"], max_tokens=3), lambda: model.count_tokens("The sky")):
            assert Call(work, request).was_cancelled()
        assert len(openai.seen) == before


@pytest.mark.usefixtures("quick")
def test_a_cancel_ends_a_single_question_to_a_server(vllm: Double) -> None:
    asked, end = threading.Event(), threading.Event()

    def wait(_: Any) -> None:
        asked.set()
        end.wait(LONGEST)

    with RemoteModel(vllm.url) as model:
        vllm.trouble = trouble("/tokenize", 1, wait)
        call = Call(lambda: model.count_tokens("The sky"))
        assert asked.wait(LONGEST)
        call.request.cancel()
        assert call.was_cancelled()
        end.set()
        assert model.count_tokens("The sea") == 2
