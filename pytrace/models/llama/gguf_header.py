"""Reads what a GGUF file says before its weights, and refuses what llama.cpp would end the process for.

The layout is that of ggml's docs/gguf.md, versions 2 and 3: magic, version, counts, keys with typed values, the tensors' names,
shapes, types and offsets, and behind padding their data.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.errors import ModelFileError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# Beyond these nothing is a model: the largest vocabularies have 300,000 tokens, the deepest models 130 layers.
_MOST_ITEMS, _MOST_TENSORS, _MOST_KEYS = 1 << 24, 1 << 16, 1 << 16
_MOST_TEXT = 1 << 24
_MOST_LAYERS = 512  # llama.cpp's own


class Header(NamedTuple):
    """What a file says before its weights: values by key (of an array its length alone), tensors' shapes, a hash of all its bytes.

    A shape begins with the axis whose numbers lie beside each other, as ggml has it.
    """

    values: dict[str, Any]
    lengths: dict[str, int]
    tensors: dict[str, tuple[int, ...]]
    sha256: str


class _NotAModelError(Exception):
    """What is wrong with a header."""


class _Reader:
    """A position in a file's bytes; whoever reads beyond the end is told that the file ends there."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def number(self, kind: str) -> Any:
        try:
            (value,) = struct.unpack_from(f"<{kind}", self._data, self.position)
        except struct.error:
            raise _NotAModelError(f"it ends within its header, at byte {len(self._data):,}") from None
        self.position += struct.calcsize(f"<{kind}")
        return value

    def skip(self, size: int) -> None:
        if size > len(self._data) - self.position:
            raise _NotAModelError(
                f"its header asks for {size:,} bytes at byte {self.position:,}, where it has not as many"
            )
        self.position += size

    def text(self) -> str:
        size = self.number("Q")
        start = self.position
        self.skip(size)
        if size > _MOST_TEXT:
            raise _NotAModelError(f"a text in its header has {size:,} bytes")
        return self._data[start : self.position].decode("utf-8", "replace")

    def array(self) -> int:
        kind = self.number("I")
        count: int = self.number("Q")
        if count > _MOST_ITEMS:
            raise _NotAModelError(f"a list in its header has {count:,} items")
        if kind in _SCALARS:
            self.skip(count * struct.calcsize(f"<{_SCALARS[kind]}"))
        elif kind == _STRING:
            self._skip_texts(count)
        else:
            raise _NotAModelError(f"a list in its header holds values of type {kind}")
        return count

    def _skip_texts(self, count: int) -> None:
        # A vocabulary has some hundred thousand texts: a call of `skip` for each would take a second.
        data, size_of, position, end = self._data, struct.Struct("<Q").unpack_from, self.position, len(self._data)
        for _ in range(count):
            if position > end - 8:
                raise _NotAModelError(f"it ends within its header, at byte {end:,}")
            self.position = position + 8
            position = self.position + size_of(data, position)[0]
        self.skip(position - self.position)


def read_header(path: Path) -> Header:
    """Read and check a file's header; raises `ModelFileError` with what is wrong."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            header = _read(data)
            _check(header)
        except _NotAModelError as error:
            raise ModelFileError(
                f"{path} is no model that can be loaded: {error}; pull it again or choose another"
            ) from None
    return header


def count_parameters(header: Header) -> int:
    """Return the numbers of all tensors, as llama.cpp counts a model's parameters."""
    return sum(map(math.prod, header.tensors.values()))


def _read(data: mmap.mmap) -> Header:
    reader = _Reader(data)
    reader.skip(4)  # the magic
    version, tensors, keys = reader.number("I"), reader.number("Q"), reader.number("Q")
    if version not in {2, 3}:
        raise _NotAModelError(f"its GGUF version is {version}, not 2 or 3")
    if tensors > _MOST_TENSORS or keys > _MOST_KEYS:
        raise _NotAModelError(f"it claims {tensors:,} tensors and {keys:,} keys")
    values: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for _ in range(keys):
        key, kind = reader.text(), reader.number("I")
        if key in values or key in lengths:
            raise _NotAModelError(f"its header has the key {key[:80]!r} twice")
        if kind == _ARRAY:
            lengths[key] = reader.array()
        elif kind == _STRING:
            values[key] = reader.text()
        elif kind in _SCALARS:
            values[key] = reader.number(_SCALARS[kind])
        else:
            raise _NotAModelError(f"{key[:80]!r} has a value of type {kind}, which GGUF does not know")
    offsets = []
    shapes: dict[str, tuple[int, ...]] = {}
    for _ in range(tensors):
        name, dimensions = reader.text(), reader.number("I")
        if not 1 <= dimensions <= 4:
            raise _NotAModelError(f"the tensor {name[:80]!r} has {dimensions} dimensions")
        shape = [reader.number("Q") for _ in range(dimensions)]
        if not 0 < math.prod(shape) < 1 << 48:
            raise _NotAModelError(f"the tensor {name[:80]!r} has the shape {shape}")
        shapes[name] = tuple(shape)
        reader.skip(4)  # its type, which llama.cpp checks with its size
        offsets.append(reader.number("Q"))
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _NotAModelError(f"its alignment is {alignment!r}, no power of two")
    start = -(-reader.position // alignment) * alignment
    if len(set(offsets)) < len(offsets):
        raise _NotAModelError("two of its tensors lie at one place")
    if offsets and start + max(offsets) >= len(data):
        raise _NotAModelError(
            f"a tensor lies {max(offsets):,} bytes into its data, which ends before; it may be cut off"
        )
    return Header(values, lengths, shapes, hashlib.sha256(memoryview(data)[: reader.position]).hexdigest())


def _check(header: Header) -> None:
    """Refuse sizes for which llama.cpp ends the process."""
    architecture = header.values.get("general.architecture")
    if not isinstance(architecture, str):
        raise _NotAModelError("its header names no architecture")

    def check(name: str, good: Callable[[Any], bool], wanted: str) -> None:
        key = f"{architecture}.{name}"
        value = header.values.get(key)
        if value is not None and not (isinstance(value, int | float) and good(value)):
            raise _NotAModelError(f"{key} is {value!r}, not {wanted}")

    check("block_count", lambda value: 1 <= value <= _MOST_LAYERS, f"1 to {_MOST_LAYERS}")
    for name in ("context_length", "embedding_length"):
        check(name, lambda value: 1 <= value < 1 << 31, "1 to 2^31")
    for name in ("attention.head_count", "attention.head_count_kv"):
        check(name, lambda value: 0 <= value <= 1 << 16, "0 to 65,536")
    for name in ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"):
        check(name, lambda value: 0 <= value < 1, "0 to 1")
    for name in ("rope.freq_base", "rope.scale_linear", "rope.scaling.factor"):
        check(name, lambda value: math.isfinite(value) and value >= 0, "a finite number from 0 on")
