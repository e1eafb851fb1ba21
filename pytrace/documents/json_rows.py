"""Read JSON rows from files; whatever is wrong is said with file, line and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pytrace.documents.text_files import MOST_BYTES, UTF8_MARK, Place, lines_of, open_file, peek_text, suffix_of
from pytrace.errors import DataError
from pytrace.storage.foreign_json import decode_json

_CHUNK = 1 << 18


def looks_like_rows(path: Path) -> bool:
    """Say whether a file without a telling suffix begins with a JSON object on a line of its own, or with a list of them."""
    with open_file(path) as stream:
        head = peek_text(stream, path)
    return re.match(rb'\{\s*"|\[\s*\{\s*"', head) is not None


def json_rows(path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Read the JSON objects of a file with their places."""
    # JSON Lines are read one line at a time and lists one item at a time, so that memory does not grow with the file.
    # Blank lines, CRLF and a byte order mark are no matter.
    with open_file(path) as stream:
        head = peek_text(stream, path)
        if head.startswith(b"["):
            yield from _list_rows(stream, path)
        else:
            yield from _line_rows(stream, path)


def _line_rows(stream: BinaryIO, path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    for number, line in lines_of(stream, path):
        data = line.strip()
        if not data:
            continue
        place = Place(path, number)
        try:
            row = _decode(data, place)
        except DataError:
            if number > 1 or suffix_of(path) != ".json":
                raise
            # A `.json` file may be one object written over many lines; if it is not, the first line's error is the one to tell.
            try:
                row = _decode(data + b"\n" + stream.read(MOST_BYTES), place)
            except DataError:
                row = None
            if row is None:
                raise
        yield place, _as_object(row, place)


def _list_rows(stream: BinaryIO, path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    for number, (data, line) in enumerate(_list_items(stream, path), start=1):
        place = Place(path, item=number)
        try:
            row = decode_json(data, object)
        except ValueError as error:
            # An item may be long: say the line of the file, not the byte of the item.
            position = re.search(r" \(byte (\d+)\)", str(error))
            lines_before = data.count(b"\n", 0, int(position[1]) if position else len(data))
            reason = str(error).replace(position[0] if position else "", "")
            raise _no_list(reason, path, line + lines_before) from None
        yield place, _as_object(row, place)


# What stands before the next bracket (or, between items, comma): strings are passed over whole. They are atomic, for Python before
# 3.11.5 stops in the middle of what a possessive loop fails at (CPython's issue 106052).
_STRING = rb'(?>"(?:[^"\\]++|\\.)*+")'
_WITHIN_ITEM = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
_BETWEEN_ITEMS = re.compile(rb'(?:[^",\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)


def _list_items(stream: BinaryIO, path: Path) -> Iterator[tuple[bytes, int]]:
    """Cut a JSON list into the bytes of its items, each with the line on which it begins; only brackets are checked."""
    buffer = stream.read(_CHUNK).removeprefix(UTF8_MARK)
    start = position = buffer.index(b"[") + 1
    line = 1 + buffer.count(b"\n", 0, start)
    depth = 1
    first = True
    while True:
        run = (_BETWEEN_ITEMS if depth == 1 else _WITHIN_ITEM).match(buffer, position)
        assert run is not None
        position = run.end()
        character = buffer[position : position + 1]
        if character in (b"", b'"'):  # the end of what was read, perhaps within a string
            if len(buffer) - start > MOST_BYTES:
                raise _no_list(f"an item has more than {MOST_BYTES:,} bytes", path, line)
            # As much again as the item has so far, so that a long one is not looked at over and over.
            more = stream.read(max(_CHUNK, len(buffer) - start))
            if not more:
                raise _no_list("it ends before its closing bracket", path, line + buffer.count(b"\n", start))
            buffer = buffer[start:] + more
            position -= start
            start = 0
            continue
        if character in (b"[", b"{"):
            depth += 1
        elif character in (b"]", b"}"):
            depth -= 1
        if depth == 0 or (depth == 1 and character == b","):
            item = buffer[start:position]
            if depth or item.strip() or not first:
                yield item, line
            first = False
            line += buffer.count(b"\n", start, position + 1)
            start = position + 1
        position += 1
        if depth == 0:
            break
    remainder = buffer[start:]
    while not remainder.strip() and remainder:
        line += remainder.count(b"\n")
        remainder = stream.read(_CHUNK)
    line += remainder.count(b"\n", 0, len(remainder) - len(remainder.lstrip()))
    if remainder or character == b"}":
        raise _no_list("more follows after its end" if remainder else "a brace closes it", path, line)


def _no_list(reason: str, path: Path, line: int) -> DataError:
    message = f"not a JSON list ({reason}); correct the file, or write one JSON object a line and name it .jsonl"
    return DataError(message, path=path, line=line)


def _decode(data: bytes, place: Place) -> object:
    try:
        return decode_json(data, object)
    except ValueError as error:
        raise place.error(f"not JSON ({error}); correct this line: each line must hold one whole JSON object") from None


_JSON_TYPES = {bool: "boolean", str: "string", int: "number", float: "number", list: "list"}


def _as_object(row: object, place: Place) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    kind = _JSON_TYPES.get(type(row), "null")
    raise place.error(f"holds a JSON {kind}, and an object in braces was expected")
