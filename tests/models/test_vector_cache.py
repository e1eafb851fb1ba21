"""The cache of vectors on disk against a dictionary, and against kills, full disks, damage and company."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import StoreError
from pytrace.models.encoders.vector_cache import VectorCache

DIMENSION = 6


def key(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def keys(numbers: Iterable[int]) -> list[bytes]:
    return [key(number) for number in numbers]


def vectors(numbers: Iterable[int], dimension: int = DIMENSION) -> np.ndarray[Any, Any]:
    """Make the vector that belongs to each number, so that a wrong one is always seen."""
    return np.array(
        [np.random.default_rng(number).standard_normal(dimension, dtype=np.float32) for number in numbers]
    ).reshape(-1, dimension)


def opened(place: Path, **options: Any) -> VectorCache:
    return VectorCache(place, **{"fingerprint": "model", "dimension": DIMENSION, **options})


def held(cache: VectorCache, count: int, dimension: int = DIMENSION) -> list[int]:
    """Return which of the first numbers are there, having compared their vectors."""
    there, found = cache.get(keys(range(count)))
    numbers = np.flatnonzero(there).tolist()
    np.testing.assert_array_equal(found, vectors(numbers, dimension))
    return numbers


def file(place: Path, kind: str) -> Path:
    (found,) = place.glob(f"*.{kind}")
    return found


def child(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a Python that has the helpers of this file, the cache's directory as `place` and `arguments` as text."""
    start = (
        "import sys; from pathlib import Path; from tests.models.test_vector_cache import *; place = Path(sys.argv[1]);"
    )
    return subprocess.Popen(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def ended_well(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    assert process.returncode == 0
    return said


def test_what_was_put_is_found_by_this_process_and_the_next(tmp_path: Path) -> None:
    cache = opened(tmp_path / "made" / "on the way")
    assert held(cache, 3) == []
    assert cache.put(keys([0, 2]), vectors([0, 2]))
    assert held(cache, 4) == [0, 2]
    again = opened(tmp_path / "made" / "on the way")
    assert held(again, 4) == [0, 2]
    there, found = again.get(keys([2, 7, 0, 2]))
    assert there.tolist() == [True, False, True, True]
    np.testing.assert_array_equal(found, vectors([2, 0, 2]))
    assert found.flags.writeable  # a copy, never the file
    found[:] = 0
    assert held(again, 4) == [0, 2]
    assert [len(one) for one in again.get([])] == [0, 0]


def test_a_key_takes_one_row(tmp_path: Path) -> None:
    cache, other = opened(tmp_path), opened(tmp_path)
    cache.put(keys([1, 1, 2]), vectors([1, 1, 2]))
    assert other.put(keys([2, 1]), vectors([2, 1]))
    assert len(cache) == len(other) == 2
    assert file(tmp_path, "vectors").stat().st_size == 2 * 4 * DIMENSION


def test_many_rows_in_many_appends(tmp_path: Path) -> None:
    """More than the index keeps unsorted, several times over."""
    cache = opened(tmp_path)
    reader = opened(tmp_path)
    numbers = np.random.default_rng(0).permutation(15_000).tolist()
    for start in range(0, len(numbers), 700):
        cache.put(keys(numbers[start : start + 700]), vectors(numbers[start : start + 700]))
        some = numbers[max(0, start - 800) : start + 700 : 97]
        there, found = reader.get(keys(some))
        assert there.all()
        np.testing.assert_array_equal(found, vectors(some))
    for one in (cache, reader, opened(tmp_path)):
        assert len(one) == 15_000
        assert len(held(one, 15_100)) == 15_000


def test_the_rows_are_plain_float32(tmp_path: Path) -> None:
    opened(tmp_path).put(keys(range(5)), vectors(range(5)))
    found = np.memmap(file(tmp_path, "vectors"), dtype="<f4", mode="r").reshape(-1, DIMENSION)
    np.testing.assert_array_equal(found, vectors(range(5)))


@given(st.lists(st.tuples(st.sampled_from(["put", "get", "open", "clear"]), st.lists(st.integers(0, 30), max_size=9))))
def test_it_answers_as_a_dictionary_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    place = tmp_path_factory.mktemp("cache")
    caches = [opened(place), opened(place)]
    expected: set[int] = set()
    for number, (step, chosen) in enumerate(steps):
        cache = caches[number % 2]
        match step:
            case "put":
                assert cache.put(keys(chosen), vectors(chosen))
                expected |= set(chosen)
            case "open":
                caches[number % 2] = opened(place)
            case "clear":
                cache.clear()
                expected = set()
            case "get":
                there, found = cache.get(keys(chosen))
                assert there.tolist() == [one in expected for one in chosen]
                np.testing.assert_array_equal(found, vectors([one for one in chosen if one in expected]))


@pytest.mark.parametrize("options", [{"fingerprint": "another"}, {"dimension": 3}])
def test_another_model_sees_nothing_of_it(tmp_path: Path, options: dict[str, Any]) -> None:
    opened(tmp_path).put(keys([1]), vectors([1]))
    other = opened(tmp_path, **options)
    assert len(other) == 0
    assert not other.get(keys([1]))[0].any()
    dimension = options.get("dimension", DIMENSION)
    other.put(keys([1]), -vectors([1], dimension))
    np.testing.assert_array_equal(other.get(keys([1]))[1], -vectors([1], dimension))
    assert held(opened(tmp_path), 3) == [1]


def test_files_of_another_model_under_this_ones_name_are_not_believed(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    opened(mine).put(keys([1]), vectors([1]))
    opened(theirs, fingerprint="another").put(keys([1]), vectors([2]))
    for kind in ("keys", "vectors"):
        file(theirs, kind).rename(file(mine, kind))
    cache = opened(mine)
    assert held(cache, 3) == []
    assert cache.put(keys([2]), vectors([2]))
    assert held(cache, 3) == held(opened(mine), 3) == [2]


COUNT = 7
KEYS_SIZE, VECTORS_SIZE = 64 + 32 * COUNT, 4 * DIMENSION * COUNT


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("filled")
    opened(place).put(keys(range(COUNT)), vectors(range(COUNT)))
    assert file(place, "keys").stat().st_size == KEYS_SIZE
    assert file(place, "vectors").stat().st_size == VECTORS_SIZE
    return place


@pytest.fixture(scope="module")
def whole(filled: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in filled.iterdir()}


def restore(place: Path, whole: dict[str, bytes]) -> None:
    for name, content in whole.items():
        (place / name).write_bytes(content)


def mends_itself(place: Path, *caches: VectorCache) -> None:
    """What is lost can be put again, and everybody sees it."""
    assert opened(place).put(keys(range(COUNT + 2)), vectors(range(COUNT + 2)))
    for cache in (*caches, opened(place)):
        assert held(cache, COUNT + 3) == list(range(COUNT + 2))


@pytest.mark.parametrize("size", range(0, KEYS_SIZE, 5))
def test_keys_cut_off_anywhere_lose_what_was_cut_and_no_more(filled: Path, whole: dict[str, bytes], size: int) -> None:
    restore(filled, whole)
    before = opened(filled)
    assert held(before, COUNT) == list(range(COUNT))
    os.truncate(file(filled, "keys"), size)
    assert held(opened(filled), COUNT) == list(range(max(0, size - 64) // 32))
    held(before, COUNT)  # still mapped, still right
    mends_itself(filled, before)


@pytest.mark.parametrize("size", range(0, VECTORS_SIZE, 7))
def test_vectors_cut_off_anywhere_lose_what_was_cut_and_no_more(
    filled: Path, whole: dict[str, bytes], size: int
) -> None:
    restore(filled, whole)
    before = opened(filled)
    assert held(before, COUNT) == list(range(COUNT))  # now mapped; touching what is cut off would kill this process
    os.truncate(file(filled, "vectors"), size)
    for cache in (before, opened(filled)):
        assert held(cache, COUNT) == list(range(size // (4 * DIMENSION)))
    mends_itself(filled, before)


@given(kind=st.sampled_from(["keys", "vectors"]), place=st.integers(0), flip=st.integers(1, 255))
def test_a_changed_byte_never_changes_a_vector(
    filled: Path, whole: dict[str, bytes], kind: str, place: int, flip: int
) -> None:
    restore(filled, whole)
    path = file(filled, kind)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= flip
    path.write_bytes(content)
    left = held(opened(filled), COUNT)
    assert len(left) >= (0 if kind == "keys" and place % len(content) < 64 else COUNT - 1)
    mends_itself(filled)


@given(st.binary(max_size=200), st.sampled_from(["keys", "vectors"]), st.booleans())
def test_rubbish_at_the_end_or_in_place_of_all_is_no_vector(
    filled: Path, whole: dict[str, bytes], rubbish: bytes, kind: str, alone: bool
) -> None:
    restore(filled, whole)
    path = file(filled, kind)
    path.write_bytes(rubbish if alone else path.read_bytes() + rubbish)
    held(opened(filled), COUNT)
    mends_itself(filled)


def test_entries_of_zeros_as_a_power_cut_leaves_them_are_cut_off(filled: Path, whole: dict[str, bytes]) -> None:
    restore(filled, whole)
    for kind in ("keys", "vectors"):
        path = file(filled, kind)
        path.write_bytes(path.read_bytes() + bytes(4096))
    assert held(opened(filled), COUNT) == list(range(COUNT))
    mends_itself(filled)
    assert file(filled, "keys").stat().st_size == 64 + 32 * (COUNT + 2)


@pytest.mark.parametrize("appends", [1, 5, 40])
def test_a_writer_killed_at_any_moment_loses_at_most_what_it_was_writing(tmp_path: Path, appends: int) -> None:
    code = """
cache = opened(place)
for start in range(0, 10**9, 50):
    cache.put(keys(range(start, start + 50)), vectors(range(start, start + 50)))
    print(start + 50, flush=True)
"""
    process = child(code, tmp_path)
    assert process.stdout is not None
    said = 0
    for _ in range(appends):
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    said = max([said, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    cache = opened(tmp_path)
    there = held(cache, said + 100)
    assert there == list(range(len(there)))
    assert len(there) >= said
    assert cache.put(keys(range(said + 100)), vectors(range(said + 100)))
    assert held(opened(tmp_path), said + 200) == list(range(said + 100))


def test_a_reader_sees_what_another_process_appends_and_clears(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    for first, end in ((0, 2), (2, 3), (3, 6000)):
        ended_well(child(f"opened(place).put(keys(range({first}, {end})), vectors(range({first}, {end})))", tmp_path))
        assert held(cache, end + 10) == list(range(end))
    ended_well(child("opened(place).clear(); opened(place).put(keys([7]), vectors([8]))", tmp_path))
    there, found = cache.get(keys([1, 7]))
    assert there.tolist() == [False, True]
    np.testing.assert_array_equal(found, vectors([8]))


def test_processes_that_write_at_once_spoil_nothing(tmp_path: Path) -> None:
    code = """
cache = opened(place)
kept = 0
for start in range(int(sys.argv[2]), 4000, 100):
    kept += 20 * cache.put(keys(range(start, start + 20)), vectors(range(start, start + 20)))
    held(cache, 4100)
print(kept)
"""
    processes = [child(code, tmp_path, start) for start in (0, 20, 50)]
    kept = [int(ended_well(process)) for process in processes]
    assert min(kept) > 0
    assert len(held(opened(tmp_path), 4100)) == sum(kept)


def test_threads_share_one_cache(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    failed: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for start in range(first, 3000, 100):
                cache.put(keys(range(start, start + 30)), vectors(range(start, start + 30)))
                held(cache, 300)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 20, 50, 70)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert held(cache, 3100) == list(range(3000))


def test_while_another_process_writes_this_one_goes_without(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    cache.put(keys([1]), vectors([1]))
    with file(tmp_path, "lock").open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert not cache.put(keys([2]), vectors([2]))
        assert held(cache, 3) == held(opened(tmp_path), 3) == [1]
    assert cache.put(keys([2]), vectors([2]))
    assert held(cache, 3) == [1, 2]


# The limit falls in the middle of a row; with rows of one number, in the middle of an entry.
@pytest.mark.parametrize(("dimension", "limit"), [(384, 100_000), (1, 64 + 32 * 65 + 11)])
def test_a_full_disk_ends_writing_and_nothing_else(tmp_path: Path, dimension: int, limit: int) -> None:
    code = f"""
import resource, warnings
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
cache = opened(place, dimension={dimension})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    done = [cache.put(keys(range(n, n + 20)), vectors(range(n, n + 20), {dimension})) for n in range(0, 200, 20)]
assert [str(one.message) for one in caught if "cannot be written (File too large)" in str(one.message)]
assert len(caught) == 1, caught
assert done == [True] * 3 + [False] * 7, done
assert not cache.writable
assert held(cache, 200, {dimension}) == list(range(60))
"""
    ended_well(child(code, tmp_path))
    cache = opened(tmp_path, dimension=dimension)
    assert held(cache, 200, dimension) == list(range(60))
    assert cache.put(keys(range(200)), vectors(range(200), dimension))
    assert held(opened(tmp_path, dimension=dimension), 210, dimension) == list(range(200))


def test_a_bound_is_kept_and_said_once(tmp_path: Path) -> None:
    cache = opened(tmp_path, max_bytes=5 * 4 * DIMENSION + 3)
    assert cache.put(keys(range(4)), vectors(range(4)))
    with pytest.warns(RuntimeWarning, match=r"is full \(4 vectors of 24 bytes, limit 123 bytes\)"):
        assert not cache.put(keys([4, 5]), vectors([4, 5]))
    assert not cache.put(keys([4, 5]), vectors([4, 5]))
    assert cache.put(keys([4]), vectors([4]))
    assert not cache.put(keys([5]), vectors([5]))
    assert held(cache, 9) == [0, 1, 2, 3, 4]
    cache.clear()
    assert held(cache, 9) == []
    assert cache.put(keys([5]), vectors([5]))
    assert held(opened(tmp_path), 9) == [5]


def test_files_may_be_deleted_at_any_time(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    for kind in ("keys", "vectors", "lock"):
        cache.put(keys([1, 2]), vectors([1, 2]))
        file(tmp_path, kind).unlink()
        assert set(held(cache, 4)) <= {1, 2, 3}
        assert cache.put(keys([3]), vectors([3]))
        assert 3 in held(opened(tmp_path), 4)


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match=r"cannot be made .*name another directory") as caught:
        opened(tmp_path / where)
    assert caught.value.exit_code == 2


def as_nobody(check: Callable[[Path], None], place: Path) -> None:
    """Call a check in a child whom permissions hold, unlike root."""
    if os.geteuid() != 0:
        check(place)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that the child needs
        pid = os.fork()
    if pid == 0:  # imports are done, so that it needs to read nothing but the cache
        status = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            check(place)
            status = 0
        except BaseException:  # noqa: BLE001 - nothing may leave the child
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def readable() -> Iterator[Path]:
    """Return a directory that others may look into, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)
        Path(place).chmod(0o755)


def reads_and_does_not_write(place: Path) -> None:
    cache = opened(place)
    assert not cache.writable
    assert not cache.put(keys([2]), vectors([2]))
    assert held(cache, 3) == [1]
    with pytest.raises(StoreError, match=r"cannot be cleared .*Permission denied"):
        cache.clear()
    assert held(cache, 3) == [1]
    with pytest.raises(StoreError, match=r"cannot be written .* holds no vectors of this model"):
        opened(place, fingerprint="another")


def test_a_directory_that_cannot_be_written_is_read(readable: Path) -> None:
    opened(readable).put(keys([1]), vectors([1]))
    for path in readable.iterdir():
        path.chmod(0o444)
    readable.chmod(0o555)
    as_nobody(reads_and_does_not_write, readable)


def is_refused(place: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        opened(place)


@pytest.mark.parametrize("kind", ["keys", "vectors"])
def test_files_that_cannot_be_read_are_refused(readable: Path, kind: str) -> None:
    opened(readable).put(keys([1]), vectors([1]))
    readable.chmod(0o777)
    file(readable, "lock").chmod(0o666)
    file(readable, kind).chmod(0)
    as_nobody(is_refused, readable)


@pytest.mark.parametrize(
    ("given_keys", "shape"), [([b"short"], (1, DIMENSION)), ([bytes(16)], (1, DIMENSION + 1)), ([bytes(16)], (2, 3))]
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, given_keys: list[bytes], shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="keys of 16 bytes want vectors"):
        opened(tmp_path).put(given_keys, np.zeros(shape, np.float32))
