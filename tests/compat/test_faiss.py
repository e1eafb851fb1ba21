from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys

import faiss as peer
import numpy as np
import pytest

from pytrace.compat import faiss
from pytrace.errors import DataError

METRICS = [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2]
metrics = pytest.mark.parametrize("metric", METRICS, ids=["ip", "l2"])
SHAPES = [(1, 1, 1), (1, 100, 384), (3, 50, 7), (25, 1_000, 64), (40, 5_000, 33)]


def vectors(seed: int, count: int, d: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, d), dtype=np.float32)


def tied(seed: int, count: int, d: int) -> np.ndarray:
    """Vectors of few whole numbers, of which many are equal: distances are exact, and tie."""
    return np.random.default_rng(seed).integers(-1, 2, (count, d)).astype(np.float32)


def both(metric: int, items: np.ndarray) -> tuple[faiss.IndexFlat, peer.IndexFlat]:
    indexes = faiss.IndexFlat(items.shape[1], metric), peer.IndexFlat(items.shape[1], metric)
    for index in indexes:
        index.add(items)
    return indexes


def require_same(ours, theirs, whole, atol):
    """Distances must be equal, and each label be one of those with its distance."""
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=atol)
    rows, columns = np.nonzero(ours[1] >= 0)
    np.testing.assert_allclose(whole[rows, ours[1][rows, columns]], ours[0][rows, columns], rtol=1e-5, atol=atol)
    for row in ours[1]:
        there = row[row >= 0]
        assert len(set(there.tolist())) == len(there)


def all_scores(metric: int, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    a, b = queries.astype(np.float64), items.astype(np.float64)
    return a @ b.T if metric == faiss.METRIC_INNER_PRODUCT else ((a[:, None] - b) ** 2).sum(axis=-1)


@metrics
@pytest.mark.parametrize("make", [vectors, tied])
@pytest.mark.parametrize(("m", "n", "d"), SHAPES)
def test_search_finds_what_faiss_finds(metric, make, m, n, d):
    queries, items = make(1, m, d), make(2, n, d)
    ours, theirs = both(metric, items)
    whole = all_scores(metric, queries, items)
    for k in (1, 5, n + 3):
        require_same(ours.search(queries, k), theirs.search(queries, k), whole, 1e-4)
        require_same(faiss.knn(queries, items, k, metric), peer.knn(queries, items, k, metric), whole, 1e-4)
    distances, labels = ours.search(queries, n + 3)
    assert (distances.dtype, labels.dtype) == (np.float32, np.int64)
    # What is not there has faiss's own mark.
    np.testing.assert_array_equal(distances[:, n:], theirs.search(queries, n + 3)[0][:, n:])
    assert (labels[:, n:] == -1).all()


@metrics
def test_equal_distances_come_by_label(metric):
    items = np.repeat(tied(3, 20, 4), 5, axis=0)
    distances, labels = faiss.knn(items[:7], items, len(items), metric)
    for row, names in zip(distances, labels, strict=True):
        worse = row if metric == faiss.METRIC_L2 else -row
        assert sorted(zip(worse.tolist(), names.tolist(), strict=True)) == list(
            zip(worse.tolist(), names.tolist(), strict=True)
        )


@metrics
@pytest.mark.parametrize("make", [vectors, tied])
def test_range_search_finds_what_faiss_finds(metric, make, monkeypatch):
    monkeypatch.setattr(faiss, "_RANGE_SCORES", 900)  # three queries at once
    queries, items = make(4, 10, 5), make(5, 300, 5)
    ours, theirs = both(metric, items)
    for thresh in (-100.0, 0.5, 1.5, 2.5, 100.0):
        own, other = ours.range_search(queries, thresh), theirs.range_search(queries, thresh)
        np.testing.assert_array_equal(own[0], other[0])
        assert [part.dtype for part in own] == [part.dtype for part in other]
        for begin, end in zip(own[0][:-1].astype(int), own[0][1:].astype(int), strict=True):
            order = np.argsort(other[2][begin:end])
            np.testing.assert_array_equal(own[2][begin:end], other[2][begin:end][order])
            np.testing.assert_allclose(own[1][begin:end], other[1][begin:end][order], rtol=1e-5, atol=1e-5)
    empty = faiss.IndexFlatL2(5).range_search(queries, 1)
    assert (empty[0].tolist(), len(empty[1]), len(empty[2])) == ([0] * 11, 0, 0)


@metrics
def test_labels_of_one_s_own_come_back(metric):
    items, ids = vectors(6, 60, 8), np.arange(60)[::-1] * 7 + 3
    indexes = faiss.IndexIDMap(faiss.IndexFlat(8, metric)), peer.IndexIDMap(peer.IndexFlat(8, metric))
    for index in indexes:
        index.add_with_ids(items[:50], ids[:50])
        index.add_with_ids(items[50:], ids[50:])
        assert index.remove_ids(ids[3:6]) == 3
        assert index.ntotal == 57
    ours, theirs = (index.search(items[:20], 60) for index in indexes)
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        indexes[0].range_search(items[:2], 3.0)[0], indexes[1].range_search(items[:2], 3.0)[0]
    )
    assert set(indexes[0].range_search(items[:2], 3.0)[2]) == set(indexes[1].range_search(items[:2], 3.0)[2])
    np.testing.assert_array_equal(indexes[0].id_map, peer.vector_to_array(indexes[1].id_map))


@metrics
def test_what_is_done_to_an_index_is_done_as_faiss_does_it(metric):
    items = vectors(7, 30, 6)
    ours, theirs = both(metric, items)
    for index in (ours, theirs):
        assert (index.ntotal, index.d, index.is_trained, index.metric_type) == (30, 6, True, metric)
        assert index.remove_ids(np.array([2, 5, 77])) == 2
    for call in (
        lambda index: index.reconstruct(4),
        lambda index: index.reconstruct_n(3, 5),
        lambda index: index.reconstruct_n(),
        lambda index: index.reconstruct_batch(np.array([7, 1])),
        lambda index: index.assign(items[:3], 4),
    ):
        np.testing.assert_array_equal(call(ours), call(theirs))
    given = np.empty(6, np.float32), np.empty((3, 2), np.float32), np.empty((3, 2), np.int64)
    assert ours.reconstruct(0, given[0]) is given[0]
    found = ours.search(items[:3], 2, D=given[1], I=given[2])
    assert found[0] is given[1]
    assert found[1] is given[2]
    np.testing.assert_array_equal(found[1], theirs.search(items[:3], 2)[1])
    for index in (ours, theirs):
        index.reset()
        assert index.ntotal == 0
        assert index.search(items[:2], 1)[1].tolist() == [[-1], [-1]]


def test_adding_one_by_one_is_adding_all_at_once():
    items = vectors(8, 300, 3)
    one, all_ = faiss.IndexFlatIP(3), faiss.IndexFlatIP(3)
    all_.add(items.astype(np.float64))
    for row in items:
        one.add(row[None])
    np.testing.assert_array_equal(one.reconstruct_n(), all_.reconstruct_n())
    assert len(one._room) < 600


def test_normalising_is_done_in_place():
    ours, theirs = vectors(9, 20, 5), vectors(9, 20, 5)
    ours[3] = theirs[3] = 0
    faiss.normalize_L2(ours)
    peer.normalize_L2(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    far = np.array([[3e30, 4e30], [3e-30, 4e-30], [3, 4], [0, 0]], dtype=np.float32)
    faiss.normalize_L2(far)
    np.testing.assert_allclose(far, [[0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)
    refused = np.array([[3, 4], [np.nan, 1]], dtype=np.float32)
    with pytest.raises(ValueError, match="NaN"):
        faiss.normalize_L2(refused)
    assert refused[0].tolist() == [3, 4]
    faiss.normalize_L2(np.empty((0, 3), dtype=np.float32))
    for wrong in (ours.astype(np.float64), ours[0], ours.tolist()):
        with pytest.raises(ValueError, match="changed in place"):
            faiss.normalize_L2(wrong)


@metrics
@pytest.mark.parametrize("count", [0, 1, 37])
@pytest.mark.parametrize("labelled", [False, True])
def test_each_library_reads_what_the_other_wrote(metric, count, labelled, tmp_path):
    items, ids = vectors(10, count, 9), np.arange(count) + 2**40
    for writer, reader in ((faiss, peer), (peer, faiss), (faiss, faiss)):
        flat = {0: writer.IndexFlatIP, 1: writer.IndexFlatL2}[metric](9)
        index = writer.IndexIDMap(flat) if labelled else flat
        index.add_with_ids(items, ids) if labelled else index.add(items)
        path = tmp_path / f"{writer.__name__}-{reader.__name__}"
        writer.write_index(index, str(path))
        read = reader.read_index(str(path))
        assert (read.ntotal, read.d, read.metric_type) == (count, 9, metric)
        if count:
            np.testing.assert_array_equal(read.search(items, 1)[1], index.search(items, 1)[1])
            if labelled and metric == faiss.METRIC_L2:
                assert read.search(items, 1)[1][:, 0].tolist() == ids.tolist()
    generic, path = peer.IndexFlat(9, metric), tmp_path / "generic"
    peer.write_index(generic, str(path))
    assert faiss.read_index(path).metric_type == metric
    ours = (tmp_path / "pytrace.compat.faiss-faiss").read_bytes()
    assert ours == (tmp_path / "faiss-pytrace.compat.faiss").read_bytes()


def test_files_that_are_broken_or_of_another_kind_are_refused(tmp_path):
    index = faiss.IndexIDMap(faiss.IndexFlatL2(3))
    index.add_with_ids(vectors(11, 4, 3), np.arange(4))
    path = tmp_path / "index"
    faiss.write_index(index, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="bytes before what it says it holds"):
            faiss.read_index(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(DataError, match="1 bytes behind its index"):
        faiss.read_index(path)
    refusals = []
    chance = np.random.default_rng(0)
    for _ in range(2_000):
        changed = bytearray(whole)
        changed[chance.integers(len(whole))] = chance.integers(256)
        path.write_bytes(changed)
        try:
            read = faiss.read_index(path)
        except DataError as error:
            refusals.append(str(error))
        else:  # numbers of vectors and labels may be any
            assert read.ntotal == 4
    assert len(refusals) > 500
    assert all(str(path) in refusal for refusal in refusals)
    compressed = peer.IndexHNSWFlat(4, 8)
    peer.write_index(compressed, str(path))
    with pytest.raises(DataError, match="flat ones"):
        faiss.read_index(path)
    with pytest.raises(FileNotFoundError):
        faiss.read_index(tmp_path / "nothing")


KILLED = """
import sys, numpy as np
from pytrace.compat import faiss
index = faiss.IndexFlatIP(1000)
index.add(np.ones((20_000, 1000), np.float32))
print("go", flush=True)
while True:
    faiss.write_index(index, sys.argv[1])
"""


def test_a_killed_writer_leaves_the_file_of_before(tmp_path):
    path = tmp_path / "index"
    faiss.write_index(faiss.IndexFlatIP(2), path)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    assert faiss.read_index(path).ntotal in (0, 20_000)


def test_wrong_arguments_are_refused_with_the_numbers():
    index = faiss.IndexFlatL2(3)
    for call, message in (
        (lambda: faiss.IndexFlatL2(0), "d is 0"),
        (lambda: faiss.IndexFlat(3, 7), "metric is 7"),
        (lambda: index.add(np.zeros((2, 4))), r"shape \(2, 4\); it must be \(n, 3\)"),
        (lambda: index.add(np.zeros(3)), r"shape \(3,\)"),
        (lambda: index.add(np.full((1, 3), np.nan)), "NaN or infinity"),
        (lambda: faiss.knn(np.full((1, 3), np.inf), np.zeros((1, 3)), 1), "queries"),
        (lambda: index.search(np.zeros((1, 3)), 0), "k is 0"),
        (lambda: index.search(np.zeros((1, 3)), 1, params=object()), "no selectors"),
        (lambda: index.search(np.zeros((1, 3)), 2, D=np.zeros((1, 1), np.float32)), r"shape \(1, 2\)"),
        (lambda: index.reconstruct(0), "key is 0"),
        (lambda: index.reconstruct_n(0, 1), "vectors 0 to 0"),
        (lambda: index.reconstruct_batch([0]), "keys are 0 to 0"),
        (lambda: faiss.IndexIDMap(index).add(np.zeros((1, 3))), "add_with_ids"),
        (lambda: faiss.IndexIDMap(index).add_with_ids(np.zeros((2, 3)), [1]), "1 ids for 2 vectors"),
        (lambda: faiss.knn(np.zeros((1, 3)), np.zeros((1, 2)), 1), r"\(1, 3\); it must be \(n, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    filled = faiss.IndexFlatL2(1)
    filled.add(np.zeros((1, 1)))
    with pytest.raises(ValueError, match="1 vectors without labels"):
        faiss.IndexIDMap(filled)
    for call in (lambda: faiss.IndexIDMap(faiss.IndexIDMap(index)), lambda: faiss.write_index(3, "x")):
        with pytest.raises(TypeError, match="index is a"):
            call()


@pytest.mark.parametrize(
    "name", ["search", "range_search", "assign", "reconstruct", "reconstruct_n", "add", "remove_ids"]
)
def test_parameters_are_faiss_s(name):
    def parameters(function):
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    theirs = [given for given in parameters(getattr(peer.IndexFlatL2, name)) if given[0] != "numeric_type"]
    assert parameters(getattr(faiss.IndexFlatL2, name)) == theirs
    assert [p[:2] for p in parameters(faiss.knn)] == [p[:2] for p in parameters(peer.knn)]


def test_threads_are_the_kernels():
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        assert faiss.omp_get_max_threads() == 1
    finally:
        faiss.omp_set_num_threads(before)
