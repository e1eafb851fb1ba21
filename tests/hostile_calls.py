"""Random calls of every public kernel function with hostile arguments, each made from one seed.

A call begins as one that is right; then some of its arguments are spoiled: strides, byte orders, types and shapes that
nobody would choose, numbers beyond any range, objects that raise or change in the middle of a call, arrays that another
thread overwrites. It must return what is documented or raise one of `REFUSALS`.

    python -m tests.hostile_calls --first 0 --calls 100000     # many
    python -m tests.hostile_calls --first 1234 --calls 1 --show    # one again, with its arguments
    python -m tests.hostile_calls --card --calls 1000    # of the functions with a CUDA form, on the emulated card
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime as dt
import faulthandler
import math
import os
import random
import resource
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pytrace import _core
from pytrace.kernels import (
    alignment,
    beam,
    devices,
    embedding_bag,
    fuzzy,
    max_sim,
    normalize,
    set_cover,
    top_k,
    top_spans,
    walk,
)
from pytrace.kernels.names import NameTable
from pytrace.kernels.similarity import similarity


class Own(Exception):
    """What a hostile object raises; it must come through as it is."""


# Python itself raises the last one when somebody walks over a memoryview of two dimensions.
REFUSALS = (ValueError, TypeError, OverflowError, MemoryError, Own, NotImplementedError)
HANG_SECONDS = 300
"""No few hundred calls take this long on any machine; past it the process prints where it hangs and ends."""


class Dice(random.Random):
    """The choices of one call. `large` asks for one that runs so long that another thread gets its turn meanwhile."""

    large = False

    def seldom(self, share: float) -> bool:
        """Whether to make something large."""
        return self.large or self.random() < share


class Call(NamedTuple):
    """A function with its arguments, and what looks at its result."""

    function: Callable[..., Any]
    args: list[Any]
    options: dict[str, Any]
    check: Callable[[Any, list[Any], dict[str, Any]], None]


class Fickle:
    """A sequence of numbers that gives another length at every question, and raises now and then."""

    def __init__(self, rng: Dice) -> None:
        self.rng = rng

    def _turn(self) -> int:
        if self.rng.random() < 0.2:
            raise Own
        return self.rng.choice([0, 1, 2, 3, 7, -1, 2**40])

    def __len__(self) -> int:
        return self._turn()

    def __getitem__(self, index: object) -> Any:
        if self.rng.random() < 0.3:
            raise IndexError
        return self.rng.choice([0, 1, 1.5, None, "x", self._turn()])

    def __iter__(self) -> Iterator[Any]:
        return iter([0, 1, 2][: abs(self._turn()) % 4])

    def __index__(self) -> int:
        return self._turn()

    def __float__(self) -> float:
        return float(self._turn())

    def __hash__(self) -> int:
        return self._turn()

    def __eq__(self, other: object) -> bool:
        return self._turn() > 1


class Arraylike:
    """Says that it is an array, and then gives something else, or raises."""

    def __init__(self, rng: Dice) -> None:
        self.rng = rng

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        if self.rng.random() < 0.3:
            raise Own
        return self.rng.choice([np.zeros(3), np.zeros((2, 2), np.int64), np.zeros((0, 4)), np.array("x"), [1, 2]])


class Growing(list):  # type: ignore[type-arg]
    """A list that grows while somebody walks over it."""

    def __iter__(self) -> Iterator[Any]:
        for value in range(4):
            if len(self) < 50:
                self.append(value)
            yield value


class Clearing:
    """Empties the container that it stands in when it is hashed or compared."""

    def __init__(self, home: list[Any]) -> None:
        self.home = home

    def __hash__(self) -> int:
        self.home.clear()
        return 7

    def __eq__(self, other: object) -> bool:
        self.home.clear()
        return False


HUGE = [0, 1, -1, 2, 3, 63, 64, 65, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, -(2**70), 2**200]
NUMBERS = [
    0.0,
    -0.0,
    1.5,
    -3.0,
    1e-45,
    1e38,
    1e150,
    1e151,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    50,
]
TYPES = ["f4", "f8", "f2", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16", "O", "M8[s]", "m8[D]"]
TYPES += ["S3", "U2", "V5", ">f4", ">f8", ">i4", ">i8", ">f2", "f4,i8"]
CHARACTERS = ["ab", "abc ", "a\x00\xff\u00a0", "aβγ ", "\ud800\udfff\udc00", "\U0001f600\U0010ffff a", "x\u2028\u3000y"]


def text(rng: Dice) -> str:
    """Return a string of one to four bytes a character, mostly short, seldom of many blocks of 64."""
    size = rng.choice([0, 1, 2, 5, 8, 9, 16, 17, 31, 33, 63, 64, 65, 70, 130]) if rng.random() < 0.97 else 600
    return "".join(rng.choices(rng.choice(CHARACTERS), k=size))


def junk(rng: Dice) -> Any:
    """Return something that fits nowhere, or only by accident."""
    return rng.choice(JUNK)(rng)


def _self_holding(_rng: Dice) -> Any:
    held: list[Any] = [1]
    held.append(held)
    return held


def _clearing(_rng: Dice) -> Any:
    home: list[Any] = []
    home.extend([1, Clearing(home), Clearing(home), "x", 2])
    return home


JUNK: list[Callable[[Dice], Any]] = [
    lambda _: None,
    lambda rng: rng.choice(HUGE),
    lambda rng: rng.choice(HUGE),
    lambda rng: rng.choice(NUMBERS),
    lambda rng: rng.choice([True, False]),
    text,
    lambda rng: text(rng).encode("utf-8", "surrogatepass"),
    lambda rng: bytearray(text(rng).encode("utf-8", "surrogatepass")),
    lambda _: {},
    lambda _: {"a": 1, 2: "b"},
    lambda _: {1, 2, 3},
    lambda _: [],
    lambda _: (),
    lambda _: [[1.0, 2.0], [3.0]],
    lambda _: [[], [1]],
    lambda _: ["a", None, 3, 2.5, ("x",)],
    lambda _: [{}, [[]]],
    lambda _: range(5),
    lambda _: iter([1, 2]),
    lambda _: (value for value in "abc"),
    Fickle,
    lambda rng: [Fickle(rng), Fickle(rng)],
    Arraylike,
    lambda rng: [Arraylike(rng), Arraylike(rng)],
    lambda _: Growing([1, 2]),
    _self_holding,
    _clearing,
    lambda _: object(),
    lambda _: int,
    lambda _: len,
    lambda _: dt.datetime(2024, 1, 1),
    lambda _: Fraction(1, 3),
    lambda _: 1 + 2j,
    lambda _: Ellipsis,
    lambda _: np.float16(2),
    lambda _: np.datetime64("NaT"),
    lambda _: np.array(5),
    lambda _: np.zeros((2, 3, 4)),
    lambda _: np.zeros((0, 0)),
    lambda _: np.zeros((0, 5), np.float32),
    lambda _: np.zeros((5, 0), np.float32),
    lambda _: np.zeros((2, 2, 0)),
    lambda _: np.zeros((10**5, 0), np.float32),
    lambda _: np.zeros((0, 2**58), np.float32),
    lambda rng: np.zeros(rng.choice([1, 3, 8]), rng.choice(TYPES)),
    lambda rng: np.zeros((rng.choice([1, 3]), rng.choice([1, 8])), rng.choice(TYPES)),
    lambda _: np.array([[1, "a"], [None, 2.0]], dtype=object),
    lambda _: np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]),
    lambda _: np.matrix([[1.0, 2.0], [3.0, 4.0]]),
    lambda _: np.array([2, 255, 1, 0], np.uint8).view(np.bool_),
    lambda _: np.full((3, 3), 255, np.uint8).view(np.bool_),
    lambda _: memoryview(bytearray(16)),
    lambda _: memoryview(np.zeros((2, 4), np.float32)),
    lambda _: memoryview(np.zeros((2, 4), np.float32)[:, ::-2]),
    lambda _: (ctypes.c_float * 4)(),
]


Array: TypeAlias = np.ndarray[Any, Any]


def _misaligned(array: Array) -> Array:
    odd: Array = np.ndarray(array.shape, array.dtype, bytearray(array.nbytes + 1), 1)
    odd[...] = array
    return odd


def _read_only(array: Array) -> Array:
    frozen = array.copy()
    frozen.setflags(write=False)
    return frozen


def _repeated(array: Array) -> Array:
    return np.broadcast_to(array[:1], array.shape) if len(array) else array


def _field(array: Array) -> Array:
    """Return a field of a structured array: an odd number of bytes lies between the values."""
    packed = np.zeros(array.shape, np.dtype([("pad", "u1"), ("value", array.dtype)]))
    packed["value"] = array
    return packed["value"]


def _converted(rng: Dice, array: Array) -> Array:
    if array.dtype.kind not in "fiub":
        return array
    return array.astype(rng.choice(["f4", "f8", "f2", "g", "i1", "i4", "u8", "?", ">f4", ">i8", "c8"]))


def _with_one_bad(rng: Dice, array: Array) -> Array:
    bad = array.copy()
    if array.size and array.dtype.kind == "f":
        bad.flat[rng.randrange(array.size)] = rng.choice(NUMBERS)
    elif array.size and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        bad.flat[rng.randrange(array.size)] = rng.choice([limits.min, limits.max, 0, limits.max // 2 + 1])
    return bad


WAYS: list[Callable[[Dice, Array], Any]] = [
    lambda _, array: array[::-1],
    lambda _, array: array[::-1].copy()[::-1],
    lambda _, array: array[..., ::-1],
    lambda _, array: np.asfortranarray(array),
    lambda _, array: np.repeat(array, 3, axis=0)[::3],
    lambda _, array: np.repeat(array, 2, axis=-1)[..., ::2],
    lambda _, array: array.astype(array.dtype.newbyteorder(">")),
    lambda _, array: _misaligned(array),
    lambda _, array: _read_only(array),
    lambda _, array: _repeated(array),
    lambda _, array: _field(array),
    lambda _, array: array.tolist(),
    lambda _, array: array.astype(object),
    lambda _, array: memoryview(array) if array.dtype.kind in "fiub" else array,
    _converted,
    _converted,
    _with_one_bad,
    _with_one_bad,
    lambda rng, array: array[: rng.randrange(len(array) + 1)],
    lambda _, array: np.concatenate([array, array]),
    lambda _, array: array[None],
    lambda _, array: array[..., None],
]


def disarrange(rng: Dice, array: Array) -> Any:
    """Return the same numbers in an unusual place, order or type; seldom others."""
    return rng.choice(WAYS)(rng, array) if array.ndim else array[None]


def spoil(rng: Dice, value: Any) -> Any:
    """Return something to put in an argument's place."""
    if isinstance(value, np.ndarray) and rng.random() < 0.7:
        return disarrange(rng, value)
    if isinstance(value, list | tuple) and value and rng.random() < 0.6:
        spoiled = list(value)
        spoiled[rng.randrange(len(spoiled))] = spoil(rng, rng.choice(spoiled))
        if hasattr(value, "_fields"):
            return type(value)(*spoiled)
        if rng.random() < 0.2:
            spoiled.append(junk(rng))
        return type(value)(spoiled)
    if isinstance(value, int) and rng.random() < 0.5:
        return rng.choice(HUGE)
    if isinstance(value, float) and rng.random() < 0.6:
        return rng.choice(NUMBERS)
    if isinstance(value, str | bytes) and rng.random() < 0.5:
        return text(rng)
    return junk(rng)


_POOL = np.random.default_rng(20261122).standard_normal(400_000)
SIZES = [0, 1, 1, 2, 3, 5, 8, 16, 17, 33]
WIDTHS = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100]


def reals(rng: Dice, *shape: int) -> Array:
    count = int(np.prod(shape))
    at = rng.randrange(len(_POOL) - count)
    return _POOL[at : at + count].reshape(shape)


def integers(rng: Dice, count: int, end: int, dtype: Any = np.int64) -> Array:
    # By NumPy, since some are a hundred thousand: a quarter of the time that all calls take.
    return np.random.default_rng(rng.getrandbits(64)).integers(max(end, 1), size=count).astype(dtype)


def ends(rng: Dice, parts: int, total: int) -> Array:
    """Return offsets of `parts` parts of [0, total)."""
    if parts == 0:
        return np.zeros(1, np.int64)
    return np.array([0, *sorted(rng.randrange(total + 1) for _ in range(parts - 1)), total], np.int64)


def rows_and_width(rng: Dice, most: int) -> tuple[int, int]:
    if rng.seldom(0.02):
        return most - rng.randrange(most // 2), rng.choice([64, 100])
    return rng.choice(SIZES), rng.choice(WIDTHS)


def items_of(rng: Dice, rows: int, width: int) -> Array:
    values = reals(rng, rows, width)
    kind = rng.choice(["f4", "f4", "f2", "i1", "f8"])
    return (values * 20).astype(np.int8) if kind == "i1" else values.astype(kind)


def threads(rng: Dice) -> int | None:
    return rng.choice([None, 1, 1, 2, 3])


def expect(condition: bool, what: object) -> None:
    if not condition:
        raise AssertionError(f"the result is not as documented: {what!r}")


def is_array(value: Any, dtype: Any, ndim: int) -> bool:
    return type(value) is np.ndarray and value.dtype == dtype and value.ndim == ndim


def check_top_k(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    scores, indices = result
    ndim = np.ndim(args[0]) if isinstance(args[0], np.ndarray) else scores.ndim
    expect(is_array(scores, np.float32, ndim) and is_array(indices, np.int64, ndim), result)
    expect(scores.shape == indices.shape and (type(args[2]) is not int or scores.shape[-1] == args[2]), result)
    expect(not np.isnan(scores).any(), result)
    if isinstance(args[1], np.ndarray):
        expect(bool(((indices >= -1) & (indices < max(len(args[1]), 1))).all()), result)


def make_top_k(rng: Dice) -> Call:
    rows, width = rows_and_width(rng, 3000)
    queries = 30 if rng.large else rng.choice([0, 1, 2, 5, 9])
    items = items_of(rng, rows, width)
    options: dict[str, Any] = {"metric": rng.choice(["ip", "cosine", "l2"]), "threads": threads(rng)}
    if rng.random() < 0.4:
        options["offsets"] = ends(rng, queries, rows)
        if rng.random() < 0.3:
            groups = rng.choice([1, 2, 4])
            options["offsets"] = ends(rng, groups, rows)
            options["query_offsets"] = ends(rng, groups, queries)
    if rng.random() < 0.3:
        excluded = ends(rng, queries, 7)
        options["exclude"] = rng.choice(
            [
                (integers(rng, int(excluded[-1]), rows), excluded),
                np.full((queries, 2), -1),
                [integers(rng, rng.randrange(3), rows) for _ in range(queries)],
            ]
        )
    if rng.random() < 0.1:
        options["scale"] = rng.choice([0.5, np.abs(reals(rng, rows)) + 0.1])
    first = reals(rng, queries, width).astype(np.float32)
    return Call(
        top_k, [first[0] if queries == 1 else first, items, rng.choice([0, 1, 3, 10, 40])], options, check_top_k
    )


def check_max_sim(result: Any, args: list[Any], options: dict[str, Any]) -> None:
    scores, *rest = result if type(result) is tuple else (result,)
    expect(type(scores) is np.ndarray and scores.dtype == np.float32 and scores.ndim in {1, 2}, result)
    expect(not np.isnan(scores).any() and not (scores == np.inf).any(), result)
    for indices in rest:
        expect(is_array(indices, np.int64, scores.ndim) and indices.shape == scores.shape, result)
        if isinstance(options["document_offsets"], np.ndarray):
            expect(bool(((indices >= -1) & (indices < max(options["document_offsets"].size - 1, 1))).all()), result)
    if options.get("candidates") is None and not rest and isinstance(options["document_offsets"], np.ndarray):
        expect(scores.shape[-1] == options["document_offsets"].size - 1, (scores.shape, args))


def make_max_sim(rng: Dice) -> Call:
    rows, width = rows_and_width(rng, 3000)
    questions, documents = rng.choice([0, 1, 2, 5]), rng.choice([0, 1, 3, 9])
    if rng.large:
        questions = documents = 9
    tokens = 100 if rng.large else rng.choice(SIZES)
    queries = reals(rng, tokens if questions else 0, width).astype(np.float32)
    values = items_of(rng, rows if documents else 0, width)
    options: dict[str, Any] = {"document_offsets": ends(rng, documents, len(values)), "threads": threads(rng)}
    options["query_offsets"] = ends(rng, questions, len(queries)) if rng.random() < 0.8 else None
    if options["query_offsets"] is None:
        questions = 1
    if rng.random() < 0.5:
        seen = ends(rng, questions, 7)
        listed = integers(rng, int(seen[-1]), documents) if documents else np.full(int(seen[-1]), -1)
        options["candidates"] = rng.choice(
            [(listed, seen), np.full((questions, 2), -1), [listed[:2] for _ in range(questions)]]
        )
    if rng.random() < 0.5:
        options["k"] = rng.choice([0, 1, 3, 40])
    if rng.random() < 0.1:
        options["scale"] = rng.choice([0.5, np.abs(reals(rng, len(values))) + 0.1])
    return Call(max_sim, [queries, values], options, check_max_sim)


def check_embedding_bag(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result, np.float32, 2), result)
    if isinstance(args[0], np.ndarray) and isinstance(args[2], np.ndarray):
        expect(result.shape == (args[2].size - 1, args[0].shape[1]), (result.shape, args[0].shape, args[2].shape))


def make_embedding_bag(rng: Dice) -> Call:
    rows, width = rows_and_width(rng, 3000)
    table = items_of(rng, rows, width)
    vocabulary = rng.choice([rows, rows, 1, 12])
    size = 20_000 if rng.large else rng.choice([0, 1, 9, 60])
    size = size if min(rows, vocabulary) else 0
    tokens = integers(rng, size, min(rows, vocabulary), rng.choice([np.int32, np.int64, np.uint16, np.uint64]))
    options: dict[str, Any] = {"threads": threads(rng), "normalize": rng.choice([True, False])}
    if vocabulary != rows:
        options["mapping"] = integers(rng, vocabulary, rows + 1) - 1
    if rng.random() < 0.4:
        options["weights"] = reals(rng, vocabulary).astype(rng.choice(["f4", "f8"]))
    if rng.random() < 0.1:
        options["scale"] = rng.choice([0.5, np.abs(reals(rng, rows)) + 0.1])
    return Call(embedding_bag, [table, tokens, ends(rng, rng.choice([1, 2, 9]), size)], options, check_embedding_bag)


def check_top_spans(result: Any, args: list[Any], options: dict[str, Any]) -> None:
    scores, first, last = result
    expect(is_array(scores, np.float32, 2) and is_array(first, np.int32, 2) and is_array(last, np.int32, 2), result)
    expect(scores.shape == first.shape == last.shape, result)
    there = first >= 0
    expect(bool((last[there] >= first[there]).all() and np.isfinite(scores[there]).all()), result)
    expect(bool((last[~there] == -1).all() and (scores[~there] == -np.inf).all()), result)
    if isinstance(args[0], np.ndarray) and type(options["top"]) is int:
        expect(scores.shape == (len(args[0]), options["top"]), (scores.shape, args[0].shape))
        expect(not there.any() or bool((last < args[0].shape[1]).all()), result)


def make_top_spans(rng: Dice) -> Call:
    windows, tokens = rng.choice([0, 1, 2, 5]), rng.choice(SIZES)
    width = rng.choice([0, 1, 3, 16, 17])
    if rng.large:
        windows, tokens = 8, 300
    values = [reals(rng, windows, tokens).astype(np.float32) for _ in range(2)]
    owners = (integers(rng, windows * tokens, 4, np.int32) - 1).reshape(windows, tokens)
    if rng.random() < 0.8:
        owners.sort(axis=1)
    arrays = [
        reals(rng, windows, tokens, 2 * width).astype(np.float32),
        owners,
        integers(rng, windows * tokens * 2, 400, np.int32).reshape(windows, tokens, 2),
    ]
    options: dict[str, Any] = {"top": rng.choice([0, 1, 3, 20, 100]), "threads": threads(rng)}
    if rng.random() < 0.5:
        options |= {"max_tokens": rng.choice([1, 5, 2**40]), "max_characters": rng.choice([0, 90, 2**40])}
    return Call(top_spans, [*values, *arrays], options, check_top_spans)


def check_similarity(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) is np.ndarray and result.dtype == np.float32 and result.ndim in {1, 2}, result)
    if isinstance(args[0], np.ndarray) and isinstance(args[1], np.ndarray):
        expect(result.shape == (*args[0].shape[:-1], len(args[1])), (result.shape, args[0].shape, args[1].shape))


def make_similarity(rng: Dice) -> Call:
    rows, width = rows_and_width(rng, 500)
    options: dict[str, Any] = {"metric": rng.choice(["ip", "cosine", "l2"]), "threads": threads(rng)}
    return Call(
        similarity,
        [reals(rng, rng.choice([0, 1, 2, 6]), width).astype(np.float32), items_of(rng, rows, width)],
        options,
        check_similarity,
    )


def check_normalize(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) is np.ndarray and result.dtype == np.float32 and result.ndim in {1, 2}, result)
    if isinstance(args[0], np.ndarray):
        expect(result.shape == args[0].shape, result)


def make_normalize(rng: Dice) -> Call:
    rows, width = rows_and_width(rng, 500)
    values = reals(rng, rows, width) if rng.random() < 0.8 else reals(rng, width)
    return Call(normalize, [values.astype("f4")], {"threads": threads(rng)}, check_normalize)


def check_ratio(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) is float and 0 <= result <= 100, result)


def cutoff(rng: Dice) -> float | None:
    return rng.choice([None, None, 0, 50, 99.5, 100])


def a_text(rng: Dice) -> Any:
    return text(rng) if rng.random() < 0.9 else text(rng).encode("utf-8", "surrogatepass")


def make_ratio(rng: Dice) -> Call:
    function = rng.choice([fuzzy.ratio, fuzzy.partial_ratio, fuzzy.token_set_ratio])
    options = {"score_cutoff": cutoff(rng), "processor": rng.choice([None, None, str.lower, len])}
    return Call(function, [a_text(rng), a_text(rng)], options, check_ratio)


def check_alignment_of_texts(result: Any, args: list[Any], options: dict[str, Any]) -> None:
    if result is None:
        return
    expect(isinstance(result, fuzzy.ScoreAlignment) and 0 <= result.score <= 100, result)
    if options.get("processor") is None:
        expect(0 <= result.src_start <= result.src_end <= len(args[0]), result)
        expect(0 <= result.dest_start <= result.dest_end <= len(args[1]), result)


def make_partial_ratio_alignment(rng: Dice) -> Call:
    options = {"score_cutoff": cutoff(rng)}
    return Call(fuzzy.partial_ratio_alignment, [a_text(rng), a_text(rng)], options, check_alignment_of_texts)


def check_cdist(result: Any, args: list[Any], options: dict[str, Any]) -> None:
    dtype = np.dtype(options.get("dtype") or np.float32)
    expect(is_array(result, dtype.newbyteorder("="), 2), result)
    if type(args[0]) is list and type(args[1]) is list:
        expect(result.shape == (len(args[0]), len(args[1])), result.shape)


def make_cdist(rng: Dice) -> Call:
    options: dict[str, Any] = {
        "scorer": rng.choice([fuzzy.ratio, fuzzy.partial_ratio, fuzzy.token_set_ratio]),
        "score_cutoff": cutoff(rng),
        "workers": rng.choice([1, 1, 2, -1]),
    }
    if rng.random() < 0.3:
        options |= {"dtype": rng.choice(["f8", "u1", "i1", "u8", "i8", "i4", ">f8"]), "score_multiplier": 2}
    texts = [[a_text(rng) for _ in range(rng.choice([0, 1, 2, 5]))] for _ in "ab"]
    return Call(fuzzy.cdist, list(texts), options, check_cdist)


def check_cpdist(result: Any, args: list[Any], options: dict[str, Any]) -> None:
    dtype = np.dtype(options.get("dtype") or np.float32)
    expect(is_array(result, dtype.newbyteorder("="), 1), result)
    for side in args:
        expect(type(side) is not list or len(side) == len(result), result.shape)


def make_cpdist(rng: Dice) -> Call:
    call = make_cdist(rng)
    # The same object many times, on one side or on both.
    pool = [a_text(rng) for _ in range(rng.choice([1, 2, 5]))]
    size = 300 if rng.seldom(0.03) else rng.choice([0, 1, 2, 5, 20])
    sides = [[rng.choice(pool) for _ in range(size)], [rng.choice([pool[0], a_text(rng)]) for _ in range(size)]]
    rng.shuffle(sides)
    return Call(fuzzy.cpdist, list(sides), call.options, check_cpdist)


def check_extract(result: Any, _args: list[Any], options: dict[str, Any]) -> None:
    expect(type(result) is list and all(type(row) is tuple and len(row) == 3 for row in result), result)
    expect(all(type(row[1]) is float and 0 <= row[1] <= 100 for row in result), result)
    limit = options.get("limit", 5)
    expect(not isinstance(limit, int) or len(result) <= limit, result)


def make_extract(rng: Dice) -> Call:
    options: dict[str, Any] = {
        "scorer": rng.choice([fuzzy.ratio, fuzzy.partial_ratio, fuzzy.token_set_ratio]),
        "score_cutoff": cutoff(rng),
        "limit": rng.choice([None, 0, 1, 3, 100]),
    }
    choices: Any = [a_text(rng) for _ in range(rng.choice([0, 1, 2, 5, 9]))]
    if rng.random() < 0.3:
        choices = {number * 3: choice for number, choice in enumerate(choices)}
    return Call(fuzzy.extract, [a_text(rng), choices], options, check_extract)


@ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int32, ctypes.c_int32)
def _near(a: int, b: int) -> float:
    return 1.0 - abs(a - b)


@ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int32, ctypes.c_int32)
def _nan(a: int, b: int) -> float:
    return float("nan") if a == b else 1.0


def costs(rng: Dice) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {}
    gap = rng.choice([-1, -2, -0.5, 0, 1, -1e6])
    return {
        "match": rng.choice([1, 0, 2.5, -1, 30000, 1e9]),
        "mismatch": rng.choice([-1, 0, -0.25, 3]),
        "gap": gap,
        "gap_open": rng.choice([None, gap, gap - 2]),
    }


def symbols(rng: Dice) -> Any:
    size = rng.choice([0, 1, 2, 3, 4, 8, 17, 33, 40]) if rng.random() < 0.98 else 200
    way = rng.randrange(5)
    if way == 0:
        return integers(rng, size, 5, rng.choice([np.int32, np.int64, np.uint8, np.uint64]))
    if way == 1:
        return text(rng)
    if way == 2:  # strings alone have a way of their own
        return [text(rng) if rng.random() < 0.5 else rng.choice("abб") for _ in range(min(size, 20))]
    return rng.choices(["a", "b", 3, (1, 2), None, 2.5, "\ud800"], k=size)


def check_needleman(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result.score) is float and len(result.a) == len(result.b), result)
    expect(is_array(result.a_indices, np.int64, 1) and len(result.a_indices) == len(result.a), result)
    expect(is_array(result.b_indices, np.int64, 1) and len(result.b_indices) == len(result.b), result)
    expect(0 <= result.identity <= 1 and 0 <= result.matches <= len(result.a), result)


def check_score(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) is float and not math.isnan(result), result)


def make_needleman(rng: Dice) -> Call:
    options = costs(rng)
    a, b = symbols(rng), symbols(rng)
    if rng.random() < 0.3:
        a, b = integers(rng, rng.choice([0, 1, 5, 20]), 4), integers(rng, rng.choice([0, 1, 5, 20]), 4)
        options["score"] = rng.choice([reals(rng, len(a), len(b)), reals(rng, len(a), len(b)), _near, _nan])
    if rng.random() < 0.4:
        return Call(alignment.alignment_score, [a, b], options, check_score)
    if rng.random() < 0.3:
        options["trace_bytes"] = rng.choice([0, 1, 100, 5000])
    return Call(alignment.needleman_wunsch, [a, b], options, check_needleman)


def check_distance(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) is int and result >= 0, result)
    if all(isinstance(value, str | np.ndarray) for value in args):
        expect(abs(len(args[0]) - len(args[1])) <= result <= max(len(args[0]), len(args[1])), result)


def make_edit_distance(rng: Dice) -> Call:
    return Call(alignment.edit_distance, [symbols(rng), symbols(rng)], {}, check_distance)


def check_batch(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    n = len(result.best)
    expect(is_array(result.best, np.int64, 1) and is_array(result.scores, np.float64, 1), result)
    expect(is_array(result.matches, np.int64, 1) and is_array(result.lengths, np.int64, 1), result)
    expect(len(result.scores) == len(result.matches) == len(result.lengths) == n, result)
    if type(args[0]) is list:
        expect(len(args[0]) == n, result)
    expect(len(result) == n and [row.best for row in result] == result.best.tolist(), result)
    expect(bool((result.matches <= result.lengths).all()), result)
    if result.offsets is not None:
        expect(len(result.offsets) == n + 1 and result.offsets[-1] == len(result.candidate_steps), result)


def make_align_batch(rng: Dice) -> Call:
    options = costs(rng) | {"threads": threads(rng), "steps": rng.choice([True, False])}
    n, m = rng.choice([0, 1, 2, 5]), rng.choice([0, 1, 3, 8])
    if rng.seldom(0.02):
        n, m = 300, 600
    groups = ends(rng, n, m)
    if rng.random() < 0.6:
        sides: list[Any] = []
        for count in (n, m):
            offsets = ends(rng, count, 4 * count)
            values = integers(rng, 4 * count, 5, rng.choice([np.int32, np.int32, np.int64, np.uint8, np.uint64]))
            sides.append(alignment.Ragged(values, offsets))
        if rng.random() < 0.4:
            options["score"] = rng.choice([reals(rng, 5, 5), reals(rng, 5, 5), _near])
    else:
        sides = [[symbols(rng)[:6] for _ in range(count)] for count in (n, m)]
    return Call(alignment.align_batch, [*sides, groups], options, check_batch)


def check_cover(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(isinstance(result, set_cover.Cover) and type(result.sets) is tuple, result)
    expect(type(result.weight) is float and type(result.optimal) is bool and result.bound <= result.weight, result)
    if isinstance(args[0], np.ndarray):
        expect(all(0 <= index < len(args[0]) for index in result.sets), result)
        expect(all(0 <= feature < args[0].shape[1] for feature in result.uncovered), result)


def check_covers(result: Any, args: list[Any], options: dict[str, Any]) -> None:
    expect(type(result) is list, result)
    for cover in result:
        check_cover(cover, [None], options)
    if type(args[0]) is list:
        expect(len(result) == len(args[0]), result)


def some_sets(rng: Dice) -> tuple[Any, Any]:
    n, features = rng.choice([0, 1, 2, 5, 10]), rng.choice([0, 1, 3, 8, 63, 64, 65, 130])
    if rng.random() < 0.5:
        return reals(rng, n, features) > 0.5, None
    names = rng.choice([range(features), list("abcdefgh"), [("a", 1), None, 2.5, "x"]])
    sets = [[name for name in names if rng.random() < 0.3] for _ in range(n)]
    return sets, rng.choice([None, list(names), ["a", 1, "nobody has it"]])


def a_time_limit(rng: Dice) -> float | None:
    return rng.choice([None, 0, 0.001, 10])


def make_cover(rng: Dice) -> Call:
    way = rng.randrange(4)
    sets, universe = some_sets(rng)
    weights = rng.choice([None, None, np.abs(reals(rng, len(sets))), integers(rng, len(sets), 9)])
    if way == 0:
        return Call(set_cover.greedy_cover, [sets, universe], {"weights": weights}, check_cover)
    ties = rng.choice(["any", "any", "earliest"])
    if way == 1:
        options = {"weights": weights, "ties": ties, "time_limit": a_time_limit(rng)}
        return Call(set_cover.minimum_cover, [sets, universe], options, check_cover)
    problems = [some_sets(rng) for _ in range(rng.choice([0, 1, 3]))]
    many: dict[str, Any] = {"threads": threads(rng)}
    if rng.random() < 0.3:
        many["weights"] = [None] * len(problems)
    if way == 2:
        return Call(set_cover.greedy_covers, [problems], many, check_covers)
    return Call(
        set_cover.minimum_covers, [problems], many | {"ties": ties, "time_limit": a_time_limit(rng)}, check_covers
    )


def check_scope(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    for cover in result if type(result) is list else [result]:
        expect(isinstance(cover, set_cover.ScopeCover) and type(cover.intent) is bool, cover)
        expect(len(set(cover.snippets)) == len(cover.snippets), cover)


def make_scope(rng: Dice) -> Call:
    def question() -> tuple[Any, Any, Any]:
        n = rng.choice([0, 1, 3, 10])
        kind = rng.choice([np.bool_, np.bool_, np.int64, np.float32])
        shapes = [(n,), (n, rng.choice([0, 1, 5])), (n, rng.choice([0, 2, 70]))]
        intent, relations, nodes = ((reals(rng, *shape) > 0.3).astype(kind) for shape in shapes)
        return intent, relations, nodes

    options: dict[str, Any] = {"recheck": rng.choice([True, False])}
    if rng.random() < 0.6:
        return Call(set_cover.scope_cover, list(question()), options, check_scope)
    options["threads"] = threads(rng)
    return Call(set_cover.scope_covers, [[question() for _ in range(rng.choice([0, 1, 4]))]], options, check_scope)


def check_expand(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(isinstance(result, beam.Expansion), result)
    kinds = [np.int64, np.int64, np.float64, np.float64, np.bool_, np.bool_]
    expect(all(is_array(field, kind, 1) for field, kind in zip(result, kinds, strict=False)), result)
    expect(len({len(field) for field in result[:-1]}) == 1, result)
    expect(is_array(result.offsets, np.int64, 1) and result.offsets[-1] == len(result.parents), result)


def make_expand(rng: Dice) -> Call:
    chains = 500 if rng.seldom(0.03) else rng.choice(SIZES)
    options: dict[str, Any] = {
        "beams": rng.choice([1, 2, 5, 100]),
        "chains": rng.choice([1, 3, 10]),
        "min_prob": rng.choice([0.0, 0.0, 0.1, 0.9]),
        "terminate": rng.choice([0, None, 1]),
        "threads": threads(rng),
    }
    if rng.random() < 0.4:
        options["question_offsets"] = ends(rng, rng.choice([1, 2, 5]), chains)
    width = rng.choice([1, 2, 3, 8, 17, 31])
    logits = reals(rng, chains, width).astype(rng.choice(["f4", "f8"]))
    if rng.random() < 0.3:
        logits[logits > 0.7] = -np.inf
    if rng.random() < 0.4:
        logits = logits.reshape(-1)
        options["option_offsets"] = ends(rng, chains, logits.size) if chains else np.zeros(1, np.int64)
    if rng.random() < 0.3:
        options |= {"lengths": integers(rng, chains, 5), "length_penalty": rng.choice([0.5, 1.0, -1.0])}
    finished = reals(rng, chains) > 1
    return Call(beam.expand, [-np.abs(reals(rng, chains)), logits, finished], options, check_expand)


def check_log_sum_exp(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) is float, result)


def make_log_sum_exp(rng: Dice) -> Call:
    size = 200_000 if rng.large else rng.choice([0, 1, 7, 8, 31, 500])
    return Call(beam.log_sum_exp, [reals(rng, size).astype(rng.choice(["f4", "f8"]))], {}, check_log_sum_exp)


def check_walk(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(type(result) in (walk.Ranking, walk.Reached), result)
    expect(is_array(result.nodes, np.int64, 1) and is_array(result.offsets, np.int64, 1), result)
    expect(len(result[0]) == len(result[1]) == result.offsets[-1], result)
    if isinstance(args[0], np.ndarray):
        expect(bool(((result.nodes >= 0) & (result.nodes < max(len(args[0]) - 1, 1))).all()), result)
    if type(result) is walk.Ranking:
        expect(is_array(result.scores, np.float64, 1) and is_array(result.left, np.float64, 1), result)
        expect(not np.isnan(result.scores).any(), result)


def make_walk(rng: Dice) -> Call:
    nodes = 3_000 if rng.large else rng.choice(SIZES)
    links = rng.choice([0, 1, 3, 8]) * nodes
    offsets = ends(rng, nodes, links)
    targets = integers(rng, links, nodes, rng.choice([np.int32, np.int32, np.int64, np.uint32]))
    questions = rng.choice([1, 2, 5])
    seeds = integers(rng, 3 * questions if nodes else 0, nodes)
    options: dict[str, Any] = {"threads": threads(rng)}
    if rng.random() < 0.5:
        options["source_offsets"] = ends(rng, questions, len(seeds))
    if rng.random() < 0.4:
        options |= {"hops": rng.choice([0, 1, 2, 5]), "budget": rng.choice([0, 1, 10, 10_000])}
        return Call(walk.expand_links, [offsets, targets, seeds], options, check_walk)
    if "source_offsets" in options:
        options["seed_offsets"] = options.pop("source_offsets")
    if rng.random() < 0.5:
        options["weights"] = np.abs(reals(rng, links)).astype(rng.choice(["f4", "f8"]))
    if rng.random() < 0.3:
        options["seed_weights"] = np.abs(reals(rng, len(seeds)))
    options |= {
        "restart": rng.choice([0.1, 0.5, 1.0, 0.0]),
        "tolerance": rng.choice([1e-2, 1e-4, 1e-7, 0.0]),
        "k": rng.choice([0, 1, 10, 10_000]),
    }
    return Call(walk.personalised_pagerank, [offsets, targets, seeds], options, check_walk)


def check_word_scores(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result, np.float32, 2), result)


def make_word_scores(rng: Dice) -> Call:
    rows, words = rng.choice(SIZES), rng.choice([0, 1, 2, 7])
    size = 200_000 if rng.large else rng.choice([0, 1, 9, 100])
    counts = integers(rng, size, 9, rng.choice([np.uint8, np.uint16, np.uint32]))
    stops = ends(rng, words, size)
    arguments = [integers(rng, size, rows, np.uint16), counts, np.abs(reals(rng, rows)).astype(np.float32)]
    arguments += [stops[:words], stops[1:], reals(rng, words).astype(np.float32), ends(rng, rng.choice([1, 3]), words)]
    return Call(_core.word_scores, [*arguments, threads(rng)], {}, check_word_scores)


def make_word_scores_of(rng: Dice) -> Call:
    queries, words, rows = rng.choice([0, 1, 3]), rng.choice([0, 1, 2, 7]), rng.choice([0, 1, 5, 60])
    size = rng.choice([0, 1, 9, 100])
    counts = integers(rng, size, 9, rng.choice([np.uint8, np.uint16, np.uint32]))
    stops = ends(rng, words, size)
    arguments = [integers(rng, size, 40, np.uint16), counts, stops[:words], stops[1:]]
    arguments += [reals(rng, words).astype(np.float32), ends(rng, queries, words), ends(rng, queries, rows)]
    arguments += [integers(rng, rows, 40, np.uint16), np.abs(reals(rng, rows)).astype(np.float32)]
    return Call(_core.word_scores_of, [*arguments, threads(rng)], {}, check_word_scores_of)


def make_word_top(rng: Dice) -> Call:
    arguments = make_word_scores(rng).args[:-1]
    rows, queries, k = len(arguments[2]), len(arguments[6]) - 1, rng.choice([0, 1, 5])
    allowed = rng.choice([None, integers(rng, rows, 2, np.uint8).astype(bool)])
    places = integers(rng, queries * k, 9, np.int64).reshape(queries, k) - 1
    best = [reals(rng, queries, k).astype(np.float32), places]
    return Call(
        _core.word_top, [*arguments, allowed, rng.choice([0, 7, 1 << 62]), *best, threads(rng)], {}, check_word_top
    )


def check_word_top(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result[0], np.float32, 2) and is_array(result[1], np.int64, 2), result)


def check_word_scores_of(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result, np.float32, 1), result)


def check_pair_features(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result, np.float64, 2) and result.shape[1] == 24, result)


def make_pair_features(rng: Dice) -> Call:
    queries, size, known = rng.choice([0, 1, 3]), rng.choice([0, 1, 5, 30]), rng.choice([0, 1, 9])
    passages, names = rng.choice([0, 1, 9]), rng.choice([0, 1, 8])
    pairs, asked, held, parts = (rng.choice([0, 1, 20]) for _ in range(4))
    dimension = rng.choice([1, 7, 40])
    offsets = ends(rng, queries, size)
    arguments = [integers(rng, known, 9, np.int32), passages]
    arguments += [reals(rng, queries, dimension), ends(rng, queries, asked), integers(rng, asked, 12, np.int32)]
    arguments += [np.abs(reals(rng, queries)), offsets]
    arguments += [reals(rng, size, dimension), reals(rng, size, 4), ends(rng, size, held)]
    arguments += [integers(rng, held, 12, np.int32), ends(rng, size, names), ends(rng, names, parts)]
    arguments += [integers(rng, parts, 12, np.int32) - 1, ends(rng, queries, pairs)]
    # Places among the first question's candidates, as a rule.
    within = max(1, int(offsets[1]) if queries else 1)
    arguments += [integers(rng, pairs, within, np.int64), integers(rng, pairs, within, np.int64)]
    arguments += [*(reals(rng, pairs).astype(np.float32) for _ in range(2)), threads(rng)]
    return Call(_core.pair_features, arguments, {}, check_pair_features)


def check_live_postings(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result, np.int64, 1), result)
    if isinstance(args[0], np.ndarray):
        expect(bool((result >= 0).all() and (result <= args[0].size).all()), result)


def make_live_postings(rng: Dice) -> Call:
    size, words = 200_000 if rng.large else rng.choice([0, 1, 9, 100]), rng.choice([0, 1, 2, 7])
    stops = ends(rng, words, size)
    live = reals(rng, rng.choice(SIZES)) > 0
    return Call(
        _core.live_postings,
        [integers(rng, size, 40, np.uint16), live, stops[:words], stops[1:]],
        {},
        check_live_postings,
    )


def check_names(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(len(result) == 4, result)
    for array in result:
        expect(is_array(array, np.int64, 1), result)
    expect(len(result[1]) == len(result[2]) == len(result[3]) == result[0][-1], result)
    if isinstance(args[0], np.ndarray):
        expect(bool(((result[1] >= 0) & (result[1] < max(args[0].size, 1))).all()), result)


def make_names(rng: Dice) -> Call:
    # Some of the table's arrays are a real one's, so that what the others say is believed.
    words = ["ada", "foah", "lake", "of"]
    names = [" ".join(rng.choice(words) for _ in range(rng.choice([1, 2, 5]))) for _ in range(rng.choice([0, 1, 9]))]
    table, _ = NameTable.build(names)
    arrays: list[Any] = [table.hashes, table.text, table.offsets, table.firsts, table.lengths]
    if rng.random() < 0.7:
        place = rng.choice([0, 1, 2, 3, 4])
        size = rng.choice([0, 1, arrays[place].size, 40])
        arrays[place] = integers(
            rng, size, 1 << 8 if place == 1 else 1 << 20, arrays[place].dtype if rng.random() < 0.7 else np.int64
        )
    text = np.frombuffer(" ".join(rng.choice(words) for _ in range(rng.choice([0, 3, 50]))).encode(), np.uint8)
    stops = ends(rng, rng.choice([1, 4]), len(text))
    return Call(_core.find_names, [*arrays, text, stops, rng.random() < 0.5, threads(rng)], {}, check_names)


def some_texts(rng: Dice) -> tuple[Any, Any]:
    """Draw texts of short words, one behind the other, and where each begins."""
    words = rng.choice([["ada", "foah", "", "of"], ["a"], [" ", "b" * 200]])
    size = 50_000 if rng.large else rng.choice([0, 1, 3, 50])
    text = np.frombuffer(" ".join(rng.choice(words) for _ in range(size)).encode(), np.uint8).copy()
    return text, ends(rng, rng.choice([0, 1, 4]), len(text))


def check_texts(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    if not isinstance(result, tuple):
        expect(is_array(result, np.uint64, 1), result)
        return
    expect(all(isinstance(array, np.ndarray) and array.ndim == 1 for array in result), result)
    if len(result) == 6:
        expect(len(result[0]) == len(result[2]) - 1 and result[2][-1] == len(result[1]), result)
        expect(bool((result[5] < max(len(result[0]), 1)).all()), result)
    elif len(result) == 4:
        expect(len(result[0]) == result[1].sum() and result[3][-1] == len(result[2]), result)
        expect(bool((result[0] < max(len(result[3]) - 1, 1)).all()), result)
    else:
        expect(result[0][-1] == len(result[1]), result)


def make_texts(rng: Dice) -> Call:
    called = rng.choice([_core.build_names, _core.hash_texts, _core.hash_words, _core.number_words])
    arguments = [*some_texts(rng)]
    return Call(called, arguments if called is _core.number_words else [*arguments, threads(rng)], {}, check_texts)


def check_turned(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    steps, row_ends = result
    expect(is_array(steps, np.uint16, 1) and is_array(row_ends, np.uint32, 1), result)
    expect(type(args[2]) is not int or len(row_ends) == args[2], result)
    expect(not len(row_ends) or row_ends[-1] == len(steps), result)


def make_turned(rng: Dice) -> Call:
    rows, terms = rng.choice([0, 1, 7, 300]), rng.choice([0, 1, 9])
    size = 200_000 if rng.large and rows else rng.choice([0, 1, 40]) if rows else 0
    arguments = [integers(rng, size, rows, np.uint16), ends(rng, terms, size).astype(np.uint32), rows]
    return Call(
        _core.turn_postings, [*arguments, rng.choice([0, 7, 200_000]), rng.choice([1, 3, 65_535])], {}, check_turned
    )


def check_terms(result: Any, _args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result[0], np.int64, 1) and is_array(result[1], np.int32, 1), result)
    expect(result[0][-1] == len(result[1]), result)


def make_terms(rng: Dice) -> Call:
    parts = []
    for _ in range(rng.choice([1, 1, 3])):
        steps = integers(rng, rng.choice([0, 1, 50]), 9, np.uint16)
        starts = ends(rng, 5, len(steps)).astype(np.uint32) if rng.random() < 0.8 else integers(rng, 6, 90, np.uint32)
        parts.append((steps, starts, integers(rng, rng.choice([0, 30]), 9, np.int32)))
    size = 3_000 if rng.large else rng.choice([0, 1, 9])
    owners, rows = integers(rng, size, len(parts)), integers(rng, size, 5)
    return Call(_core.terms_of_rows, [parts, owners, rows, rng.choice([1, 8, 65_535]), threads(rng)], {}, check_terms)


def check_scaled_rows(result: Any, args: list[Any], _options: dict[str, Any]) -> None:
    expect(is_array(result, np.float32, 2), result)
    expect(type(args[3]) is not int or result.shape[1] == args[3], result)


def make_scaled_rows(rng: Dice) -> Call:
    dimension = rng.choice([0, 1, 9])
    parts = []
    for _ in range(rng.choice([1, 1, 3])):
        rows = rng.choice([1, 7])
        parts.append(
            (integers(rng, rows * dimension, 9, np.int8).reshape(rows, dimension), reals(rng, rows).astype("f4"))
        )
    size = 3_000 if rng.large else rng.choice([0, 1, 9])
    arguments = [parts, integers(rng, size, len(parts)), integers(rng, size, rng.choice([1, 1, 7])), dimension]
    return Call(_core.scaled_rows, [*arguments, threads(rng)], {}, check_scaled_rows)


MAKERS: list[Callable[[Dice], Call]] = [
    make_top_k, make_similarity, make_normalize, make_ratio, make_partial_ratio_alignment, make_cdist, make_cpdist,
    make_extract, make_needleman, make_edit_distance, make_align_batch, make_cover, make_scope, make_expand,
    make_log_sum_exp, make_walk, make_word_scores, make_live_postings, make_names, make_word_scores_of, make_word_top,
    make_pair_features, make_texts, make_turned, make_terms, make_scaled_rows,
    make_max_sim, make_embedding_bag, make_top_spans,
]  # fmt: skip


CARD_MAKERS = [make_top_k, make_similarity, make_normalize, make_cdist, make_cpdist, make_align_batch, make_expand]


def make(seed: int, *, card: bool = False) -> tuple[Call, bool]:
    """Return the call of a seed, and whether another thread overwrites its arrays while it runs (never on a `card`)."""
    rng = Dice(seed)
    rng.large = rng.random() < 0.01 and not card
    call = rng.choice(CARD_MAKERS if card else MAKERS)(rng)
    if rng.large:
        return call, True
    if card:
        call.options["device"] = "cuda"
        call = on_card(rng, call)
    names = [*range(len(call.args)), *call.options]
    for name in rng.sample(names, min(rng.choice([0, 1, 1, 1, 2, 3]), len(names))):
        if isinstance(name, int):
            call.args[name] = spoil(rng, call.args[name])
        else:
            call.options[name] = spoil(rng, call.options[name])
    return call, False


def on_card(rng: Dice, call: Call) -> Call:
    """Return the call with some of its arrays on the card; what is refused stays where it is."""

    def there(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or rng.random() < 0.8:
            return value
        with contextlib.suppress(*REFUSALS):
            return devices.to_device(value)
        return value

    return call._replace(args=[there(value) for value in call.args], check=on_host(call.check))


def on_host(
    check: Callable[[Any, list[Any], dict[str, Any]], None],
) -> Callable[[Any, list[Any], dict[str, Any]], None]:
    """Return a check of what a result on the card holds."""

    def brought(value: Any) -> Any:
        if devices.on_card(value):
            return value.numpy()
        if isinstance(value, tuple):
            parts = [brought(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, alignment.BatchAlignment):
            return alignment.BatchAlignment(*(brought(getattr(value, name)) for name in value.__struct_fields__))
        return value

    return lambda result, args, options: check(brought(result), [brought(value) for value in args], options)


def emulated_card() -> None:
    """Put the emulated card in the place of a real one."""
    from tests.conftest import emulated_module

    devices._module = emulated_module()


def arrays_in(value: Any) -> Iterator[Array]:
    if isinstance(value, np.ndarray) and value.flags.writeable and value.size:
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from arrays_in(part)


@contextlib.contextmanager
def overwritten(rng: Dice, call: Call) -> Iterator[None]:
    """Let another thread write anything into the call's arrays, and put the pool back afterwards."""
    arrays = list(arrays_in([*call.args, *call.options.values()]))
    done = threading.Event()

    def overwrite() -> None:
        while not done.is_set():
            array = rng.choice(arrays)
            if array.dtype.kind == "f":
                array.flat[rng.randrange(array.size)] = rng.choice(NUMBERS[:4] + NUMBERS[-4:])
            elif array.dtype.kind == "b":
                array.view(np.uint8).flat[rng.randrange(array.size)] = rng.choice([0, 1, 255])
            else:
                limits = np.iinfo(array.dtype)
                array.flat[rng.randrange(array.size)] = rng.choice([0, 1, limits.max, limits.min])

    if not arrays:
        yield
        return
    with np.errstate(all="ignore"):
        worker = threading.Thread(target=overwrite)
        worker.start()
        try:
            yield
        finally:
            done.set()
            worker.join()


def own(value: Any) -> Any:
    """Return a copy of the arrays in an argument, so that overwriting them hurts no later call."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        parts = [own(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def run(seed: int, *, show: bool = False, card: bool = False) -> str:
    """Make and run one call; return what came of it. Anything undocumented raises AssertionError."""
    call, overwriting = make(seed, card=card)
    rng = Dice(seed + 1)
    isas = _core.available_isas()
    _core.set_active_isa(isas[seed % len(isas)])
    if overwriting:
        call = call._replace(
            args=[own(value) for value in call.args], options={name: own(value) for name, value in call.options.items()}
        )
    if show:
        print(call.function.__name__, "while another thread overwrites its arrays" if overwriting else "")
        for name, value in [*enumerate(call.args), *call.options.items()]:
            kind = f" {value.dtype}{value.shape} strides {value.strides}" if isinstance(value, np.ndarray) else ""
            print(f"  {name}:{kind} {_shown(value)}")
    try:
        if overwriting:
            with overwritten(rng, call):
                for _ in range(20):
                    with contextlib.suppress(*REFUSALS):
                        call.function(*call.args, **call.options)
            return "overwritten"
        result = call.function(*call.args, **call.options)
    except REFUSALS as error:
        if show:
            print(f"  refused: {type(error).__name__}: {error}")
        return type(error).__name__
    except Exception as error:
        raise AssertionError(f"seed {seed}: {call.function.__name__} raised {type(error).__name__}: {error}") from error
    call.check(result, call.args, call.options)
    if show:
        print(f"  returned: {_shown(result)}")
    return "returned"


def _shown(value: object) -> str:
    try:
        return ascii(value)[:2000]
    except Exception as error:  # noqa: BLE001 (a hostile object may raise anything from its __repr__)
        return f"<no repr: {type(error).__name__}>"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile_calls", description="Run random hostile calls.")
    parser.add_argument("--first", type=int, default=0, help="the first call's seed")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--card", action="store_true", help="call what has a CUDA form, on the emulated card")
    parser.add_argument("--show", action="store_true", help="print each call's arguments")
    parser.add_argument("--last-seed", help="a file that always holds the running call's seed, as 8 bytes")
    parser.add_argument("--memory", type=int, default=4 << 30, help="bytes of address space; 0: no limit (sanitizers)")
    given = parser.parse_args()
    if given.card:
        emulated_card()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    if given.memory:
        # Asking for more memory than there is must raise MemoryError at once, not bring the machine to its knees.
        resource.setrlimit(resource.RLIMIT_AS, (given.memory, given.memory))
    last = os.open(given.last_seed or os.devnull, os.O_WRONLY | os.O_CREAT, 0o600)
    outcomes: dict[str, int] = {}
    failures = 0
    for seed in range(given.first, given.first + given.calls):
        if seed % 256 == 0 or seed == given.first:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        os.pwrite(last, struct.pack("<q", seed), 0)
        try:
            outcome = run(seed, show=given.show, card=given.card)
        except AssertionError as error:
            failures += 1
            print(f"seed {seed}: {error}", flush=True)
            if given.show:
                traceback.print_exc()
            if failures == 20:
                break
            continue
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    faulthandler.cancel_dump_traceback_later()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
