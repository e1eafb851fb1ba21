"""What is larger than the card is streamed: kernels may run beside the copies of the next tile, and of the one before.

On the emulated card alone, which counts how often its streams leave a kernel and a copy free to run at the same time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from pytrace.kernels import cdist, cpdist, expand, partial_ratio, ratio, token_set_ratio, top_k
from pytrace.kernels.devices import cuda_module, to_device
from pytrace.kernels.similarity import similarity

pytestmark = pytest.mark.parametrize("card", ["emulated"], indirect=True)

RANDOM = np.random.default_rng(0)
ITEMS = RANDOM.standard_normal((3000, 128)).astype(np.float32)
QUERIES = ITEMS[:16]
# Short, since an emulated warp takes long for a pair.
NAMES = ["".join(map(chr, RANDOM.integers(97, 123, RANDOM.integers(1, 6)))) for _ in range(300)]


def overlaps(call: Callable[[], object]) -> tuple[int, int]:
    """Count how often a kernel of the call could have run beside a copy to the card, and beside one from it."""
    count = ctypes.CDLL(cuda_module().__file__).emulated_overlaps
    count.restype = ctypes.c_int64
    before = count(0), count(1)
    call()
    return count(0) - before[0], count(1) - before[1]


@pytest.mark.parametrize("search", ["scan", "product"])
def test_a_search_runs_beside_the_copy_of_the_next_items(card, monkeypatch, search):
    monkeypatch.setenv("PYTRACE_CUDA_SEARCH", search)
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", "150000")
    there, _ = overlaps(lambda: top_k(QUERIES, ITEMS, 3, device=card))
    assert there > 0


def test_similarity_runs_beside_copies_both_ways(card, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", "150000")
    there, back = overlaps(lambda: similarity(ITEMS[:128], ITEMS, device=card))
    assert there > 0
    assert back > 0


@pytest.mark.parametrize("scorer", [ratio, partial_ratio, token_set_ratio])
def test_a_matrix_of_ratios_runs_beside_copies_both_ways(card, monkeypatch, scorer):
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", "60000")
    there, back = overlaps(lambda: cdist(NAMES[:40], NAMES, scorer=scorer, device=card))
    assert there > 0
    assert back > 0


@pytest.mark.parametrize("scorer", [ratio, partial_ratio, token_set_ratio])
def test_pairs_of_texts_run_beside_the_copy_of_the_next(card, monkeypatch, scorer):
    """Their scores are small beside the texts, and leave while the next texts come."""
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", "60000")
    there, _ = overlaps(lambda: cpdist(NAMES * 10, NAMES[::-1] * 10, scorer=scorer, device=card))
    assert there > 0


def test_chains_are_extended_beside_the_copy_of_the_next_logits(card, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", "60000")
    logits = RANDOM.standard_normal((800, 50)).astype(np.float32)
    # Streams are mixed at random: of a quarter of these rows one call in forty showed no overlap.
    there, _ = overlaps(lambda: expand(np.zeros(800), logits, np.zeros(800, bool), beams=3, chains=5, device=card))
    assert there > 0


def test_what_is_on_the_card_needs_no_copies(card):
    """Prove that the count means something: without copies there is nothing to run beside."""
    queries, items = to_device(QUERIES, card), to_device(ITEMS, card)
    assert overlaps(lambda: similarity(queries, items)) == (0, 0)
