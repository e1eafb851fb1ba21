"""Requests that come while a batch is under way make the next one, and each gets what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.errors import CancelledRequestError, InputError
from pytrace.models.request_context import RequestContext, request_context
from pytrace.serve.batcher import Batcher
from pytrace.serve.failures import BusyError


class Work:
    """Doubles numbers, in batches that are written down; the first one waits until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def __call__(self, items: list[int]) -> list[int | Exception]:
        self.batches.append(items)
        self.begun.set()
        assert self.gate.wait(10)
        if 13 in items:
            raise InputError("13 brings bad luck")
        return [InputError(f"{item} is below zero") if item < 0 else 2 * item for item in items]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def batcher(work: Work) -> Iterator[Batcher[int, int]]:
    with make(work) as batcher:
        yield batcher
        work.gate.set()


def make(work: Any, **options: Any) -> Batcher[int, int]:
    settings = {"size": abs, "budget": 10, "most_waiting": 20, "name": "numbers", **options}
    return Batcher(work, **settings)


def begin(batcher: Batcher[int, int], work: Work) -> Any:
    """Have a first batch begin, which waits, so that what follows makes the next."""
    first = batcher.submit(1)
    assert work.begun.wait(10)
    return first


def test_what_comes_during_a_batch_goes_together_up_to_the_budget(batcher: Batcher[int, int], work: Work) -> None:
    first = begin(batcher, work)
    others = [batcher.submit(item) for item in (2, 3, 5, 4, 4, 3)]
    assert batcher.waiting == 21
    work.gate.set()
    assert [future.result(10) for future in (first, *others)] == [2, 4, 6, 10, 8, 8, 6]
    assert work.batches == [[1], [2, 3, 5], [4, 4], [3]]
    assert batcher.waiting == 0


def test_an_item_above_the_budget_goes_alone(batcher: Batcher[int, int], work: Work) -> None:
    first = begin(batcher, work)
    others = [batcher.submit(item) for item in (2, 50, 3)]
    work.gate.set()
    assert [future.result(10) for future in (first, *others)] == [2, 4, 100, 6]
    assert work.batches == [[1], [2], [50], [3]]


def test_a_failure_is_only_of_the_item_that_it_is_about(batcher: Batcher[int, int], work: Work) -> None:
    begin(batcher, work)
    fine, negative, also_fine = (batcher.submit(item) for item in (2, -1, 3))
    unlucky, beside = batcher.submit(13), batcher.submit(4)
    work.gate.set()
    assert (fine.result(10), also_fine.result(10), beside.result(10)) == (4, 6, 8)
    with pytest.raises(InputError, match="below zero"):
        negative.result(10)
    with pytest.raises(InputError, match="bad luck"):
        unlucky.result(10)
    assert batcher.submit(5).result(10) == 10


def test_where_a_batch_raises_each_item_is_done_by_itself(work: Work) -> None:
    with make(work, size=lambda _: 1) as batcher:
        begin(batcher, work)
        futures = [batcher.submit(item) for item in (2, 13, 3)]
        work.gate.set()
        assert futures[0].result(10) == 4
        assert futures[2].result(10) == 6
        with pytest.raises(InputError, match="bad luck"):
            futures[1].result(10)
    assert work.batches == [[1], [2, 13, 3], [2], [13], [3]]


def test_work_that_gives_too_few_results_is_an_error_and_not_a_hang() -> None:
    with make(lambda _: [], size=lambda _: 1) as batcher:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="1 were given, and 0 came back"):
                batcher.submit(1).result(10)


def test_a_cancelled_item_is_never_done(batcher: Batcher[int, int], work: Work) -> None:
    first = begin(batcher, work)
    unwanted, wanted = batcher.submit(2), batcher.submit(3)
    assert unwanted.cancel()
    assert not first.cancel()  # it has begun
    work.gate.set()
    assert wanted.result(10) == 6
    with pytest.raises(CancelledError):
        unwanted.result(10)
    assert work.batches == [[1], [3]]
    assert batcher.waiting == 0


def test_who_waits_gets_the_result_or_leaves_when_its_request_is_cancelled(
    batcher: Batcher[int, int], work: Work
) -> None:
    begin(batcher, work)
    context = RequestContext()
    ended: list[object] = []

    def wait(item: int, of: RequestContext | None) -> None:
        try:
            with request_context(of):
                ended.append(batcher.wait(item))
        except CancelledRequestError as error:
            ended.append(error)

    threads = [threading.Thread(target=wait, args=args) for args in ((2, context), (3, None))]
    for thread in threads:
        thread.start()
    while batcher.waiting < 5:
        time.sleep(0.001)
    context.cancel()
    threads[0].join(10)
    assert [type(each) for each in ended] == [CancelledRequestError]
    work.gate.set()
    threads[1].join(10)
    assert ended[1:] == [6]
    wait(4, context)  # a request that was cancelled before puts nothing in line
    assert isinstance(ended[-1], CancelledRequestError)
    assert work.batches == [[1], [3]]


def test_more_than_may_wait_is_refused_with_the_seconds_that_it_takes(work: Work) -> None:
    with make(work) as batcher:
        batcher.check_room(1000)  # nothing waits, so that it is taken whatever its size
        work.gate.set()
        batcher.submit(10).result(10)
        work.gate.clear()
        work.begun.clear()
        first = begin(batcher, work)
        batcher.submit(10)
        batcher.check_room(10)
        batcher.submit(10)
        with pytest.raises(BusyError, match=r"20 of numbers waiting, and takes in 20; try again in \d+ s") as caught:
            batcher.check_room(1)
        assert 1 <= caught.value.retry_after <= 60
        work.gate.set()
        assert first.result(10) == 2
        while batcher.waiting:
            time.sleep(0.001)
        batcher.check_room(20)


def test_closing_does_what_waits_and_takes_nothing_more_in(work: Work) -> None:
    batcher = make(work)
    begin(batcher, work)
    others = [batcher.submit(item) for item in (9, 9, 9)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    time.sleep(0.02)
    with pytest.raises(BusyError, match="stopping"):
        batcher.submit(1)
    assert closing.is_alive()
    work.gate.set()
    closing.join(10)
    assert [future.result(0) for future in others] == [18, 18, 18]


def test_many_threads_get_each_their_own_result_and_batches_are_observed() -> None:
    observed: list[tuple[int, float]] = []
    results: dict[int, int] = {}

    def ask(item: int, batcher: Batcher[int, int]) -> None:
        results[item] = batcher.submit(item).result(10)

    def work(items: list[int]) -> list[int]:
        time.sleep(0.002)
        return [2 * item for item in items]

    with make(work, size=lambda _: 1, budget=16, observe=lambda *seen: observed.append(seen)) as batcher:
        threads = [threading.Thread(target=ask, args=(item, batcher)) for item in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert results == {item: 2 * item for item in range(200)}
    assert sum(items for items, _ in observed) == 200
    assert max(items for items, _ in observed) <= 16
    assert all(seconds >= 0.002 for _, seconds in observed)
