"""An index is searched while it changes, is exchanged for its successor without a gap, and changes of many are committed together."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.errors import InputError, StoreError
from pytrace.models.scripted import HashEncoder
from pytrace.retrieval.passages import Changes, IndexWriter, PassageIndex
from pytrace.serve import served_index
from pytrace.serve.failures import BusyError
from pytrace.serve.served_index import Change, ServedIndex, check_index
from tests.serve import hashed
from tests.serve.hashed import document, elsewhere

TOWNS = ("ada", "keta", "sogakope")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return hashed.build(tmp_path / "index", map(document, TOWNS))


@pytest.fixture
def index(directory: Path) -> Iterator[ServedIndex]:
    with ServedIndex(directory, hashed.engine()) as index:
        yield index


def adding(*names: str, text: str = "", also: Callable[[], object] = lambda: None) -> Change:
    def apply(writer: IndexWriter, before: PassageIndex) -> None:
        assert len(before) > 0
        also()
        writer.add(document(name, text) for name in names)

    return Change(apply, frozenset(names))


def removing(*names: str) -> Change:
    return Change(lambda writer, _: writer.remove(names), frozenset(names))


def held(index: ServedIndex) -> set[str]:
    with index.lease() as corpus:
        return {entry.id for entry in corpus.index.entries()}


class Held:
    """Holds the first change, so that those that come meanwhile wait together."""

    def __init__(self, index: ServedIndex) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()
        self.done = index.submit(adding("first", also=self._wait))
        assert self.begun.wait(10)

    def _wait(self) -> None:
        self.begun.set()
        assert self.gate.wait(10)


def test_a_change_is_searched_when_it_answers(index: ServedIndex) -> None:
    changes = index.submit(adding("ho"))()
    assert changes == Changes(added=1, encoded=1)
    assert held(index) == {*TOWNS, "ho"}
    with index.lease() as corpus:
        assert corpus.nearest("Where is Ho?", index._engine, 1)[0].id == "ho"
    assert index.submit(removing("ho", "ada"))() == Changes(removed=2)
    assert held(index) == {"keta", "sogakope"}


def test_who_has_the_index_keeps_it_as_it_is(index: ServedIndex) -> None:
    with index.lease() as before:
        index.submit(removing(*TOWNS[:2]))()
        index.submit(adding("ho"))()
        assert {entry.id for entry in before.index.entries()} == {*TOWNS}
        assert [passage.title for passage in before.index.passages([0, 1, 2])] == ["Ada", "Keta", "Sogakope"]
        assert held(index) == {"sogakope", "ho"}
    assert index.reloads == 2
    with pytest.raises(OSError):  # closed when the last has left
        before.index.passages([0])


def test_what_another_process_wrote_is_served(index: ServedIndex, directory: Path) -> None:
    assert not index.refresh()
    code = (
        "with IndexWriter(Path(sys.argv[1]), engine().encoder) as writer: writer.add([document('ho')]); writer.commit()"
    )
    with elsewhere(code, directory) as other:
        assert other.wait(60) == 0
    assert index.refresh()
    assert held(index) == {*TOWNS, "ho"}
    assert not index.refresh()


def test_an_index_that_took_the_place_of_another_is_served(index: ServedIndex, directory: Path, tmp_path: Path) -> None:
    rebuilt = hashed.build(tmp_path / "rebuilt", [document("ho")])
    directory.rename(tmp_path / "before")
    with pytest.raises(StoreError, match="there is no index"):
        index.refresh()
    assert held(index) == {*TOWNS}
    rebuilt.rename(directory)
    assert index.refresh()
    assert held(index) == {"ho"}


@pytest.mark.parametrize("broken", [b"{", b"", b'{"format": 99}'])
def test_a_broken_successor_leaves_the_index_served(index: ServedIndex, directory: Path, broken: bytes) -> None:
    manifest = directory / "passages.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(broken)
    for _ in range(2):
        with pytest.raises(StoreError):
            index.refresh()
    assert held(index) == {*TOWNS}
    with pytest.raises(StoreError):
        index.submit(adding("ho"))()
    manifest.write_bytes(whole)
    assert index.refresh()
    assert index.submit(adding("ho"))().added == 1


def test_a_successor_with_a_lost_file_leaves_the_index_served(
    index: ServedIndex, directory: Path, tmp_path: Path
) -> None:
    rebuilt = hashed.build(tmp_path / "rebuilt", [document("ho")])
    next(rebuilt.glob("passages-*.arrays")).unlink()
    shutil.copy(rebuilt / "passages.json", directory / "passages.json")
    with pytest.raises(StoreError):
        index.refresh()
    assert held(index) == {*TOWNS}


def test_changes_that_wait_are_committed_together_and_each_is_told_its_own(index: ServedIndex) -> None:
    first = Held(index)
    waiting = [index.submit(adding(f"town {number}", f"village {number}")) for number in range(5)]
    waiting += [
        index.submit(adding("ada")),
        index.submit(adding("keta", text="Keta lies on a lagoon.")),
        index.submit(removing("sogakope")),
    ]
    first.gate.set()
    assert first.done() == Changes(added=1, encoded=1)
    told = [wait() for wait in waiting]
    assert [(each.added, each.replaced, each.unchanged, each.removed) for each in told] == [(2, 0, 0, 0)] * 5 + [
        (0, 0, 1, 0), (0, 1, 0, 0), (0, 0, 0, 1),
    ]  # fmt: skip
    assert {each.encoded for each in told} == {11}
    assert index.reloads == 2


def test_changes_of_one_document_are_done_in_their_order(index: ServedIndex, directory: Path) -> None:
    first = Held(index)
    waiting = [
        index.submit(change)
        for change in (
            adding("ho"),
            adding("ho", text="Ho has a market."),
            removing("ho"),
            adding("ho", text="Ho lies inland."),
        )
    ]
    first.gate.set()
    told = [wait() for wait in waiting]
    assert [(each.added, each.replaced, each.removed) for each in told] == [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)]
    assert hashed.text_of(directory, "ho") == "Ho lies inland."


def test_the_failure_of_a_change_is_only_its_own(index: ServedIndex) -> None:
    first = Held(index)
    fine, unknown, broken, also_fine = (
        index.submit(change)
        for change in (adding("ho"), removing("nowhere"), adding("hi", also=lambda: 1 / 0), adding("wa"))
    )
    first.gate.set()
    with pytest.raises(InputError, match="nowhere"):
        unknown()
    with pytest.raises(ZeroDivisionError):
        broken()
    assert fine().added + fine().unchanged == 1
    assert also_fine().added + also_fine().unchanged == 1
    assert held(index) == {*TOWNS, "first", "ho", "wa"}


def test_an_index_that_a_kept_error_refers_to_is_freed(index: ServedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise InputError("no")

    def alive() -> list[PassageIndex]:
        return [found for _, one in index._closed if (found := one()) is not None]

    gc.disable()
    try:
        with pytest.raises(InputError):
            index.submit(adding("ho", also=fail))()
        index.submit(adding("ho"))()
        index.collect()  # which leaves them time
        assert alive()
        monkeypatch.setattr(served_index, "_LINGER", 0.0)
        index.collect()
        assert not alive()
    finally:
        gc.enable()


def test_a_change_waits_for_another_process_that_writes(index: ServedIndex, directory: Path) -> None:
    code = (
        "with IndexWriter(Path(sys.argv[1]), engine().encoder) as writer:\n"
        "    print('writing', flush=True); time.sleep(0.5); writer.add([document('theirs')]); writer.commit()"
    )
    with elsewhere(code, directory) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "writing\n"
        assert index.submit(adding("ours"))().added == 1
    assert held(index) == {*TOWNS, "theirs", "ours"}


def test_who_waits_too_long_for_another_process_is_told_to_come_again(
    index: ServedIndex, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_index, "_PATIENCE", 0.3)
    first = Held(index)
    waiting = [index.submit(adding(f"town {number}")) for number in range(8)]
    code = "with IndexWriter(Path(sys.argv[1]), engine().encoder): print('writing', flush=True); sys.stdin.read()"
    first.gate.set()
    first.done()
    for wait in waiting:
        wait()
    with elsewhere(code, directory) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "writing\n"
        begun = time.monotonic()
        late = [index.submit(adding(f"village {number}")) for number in range(8)]
        for wait in late:
            with pytest.raises(BusyError, match="another process has been writing") as caught:
                wait()
            assert caught.value.retry_after == 10
        assert time.monotonic() - begun < 1.5  # once for those that wait together, not for each
        other.communicate("")
    assert index.submit(adding("ho"))().added == 1


def test_the_last_document_may_go_and_others_may_come(index: ServedIndex) -> None:
    assert index.submit(removing(*TOWNS))().removed == 3
    with index.lease() as corpus:
        (ranking,) = corpus.rank(["Where is Ada?"], index._engine, 5)
        assert ranking.rows == ()
    change = Change(lambda writer, _: writer.add([document("ho")]), frozenset(["ho"]))
    assert index.submit(change)().added == 1
    assert held(index) == {"ho"}


def test_searches_during_changes_never_fail_and_are_never_wrong(index: ServedIndex) -> None:
    ended = threading.Event()

    def search(number: int) -> int:
        count = 0
        while not ended.is_set():
            with index.lease() as corpus:
                (ranking,) = corpus.rank([f"Where is {TOWNS[number % 3].title()}?"], index._engine, 3)
                passages = corpus.index.passages(ranking.rows)
                # A town that is never touched is found first, and all that is found says what it is.
                assert passages[0].id == TOWNS[number % 3]
                assert all(passage.text.startswith(passage.title) for passage in passages)
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        searching = [pool.submit(search, number) for number in range(3)]
        for number in range(6):
            index.submit(adding(f"town{number}"))()
            if number % 2:
                index.submit(removing(f"town{number}"))()
        ended.set()
        assert all(future.result(20) > 3 for future in searching)
    assert held(index) == {*TOWNS, *(f"town{number}" for number in range(0, 6, 2))}


def test_closing_commits_what_waits(directory: Path) -> None:
    index = ServedIndex(directory, hashed.engine())
    first = Held(index)
    index.submit(adding("ho"))
    first.gate.set()
    index.close()
    assert hashed.ids(directory) == {*TOWNS, "first", "ho"}


def test_an_index_of_another_encoder_is_refused(directory: Path) -> None:
    engine = hashed.engine()
    vars(engine)["encoder"] = HashEncoder(dimension=32)
    with pytest.raises(StoreError):
        ServedIndex(directory, engine)
    with pytest.raises(StoreError, match="there is no index"):
        check_index(directory.parent)
