"""Open data files and read JSON rows from them; whatever is wrong is said with file, line and remedy."""

from __future__ import annotations

import gzip
import io
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec

from pytrace.errors import DataError

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
MARKDOWN_SUFFIXES = (".md", ".markdown")
TEXT_SUFFIXES = (".txt", ".text")

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# What people give by mistake, each with the way out.
_KNOWN_BINARY = {
    b"%PDF": "a PDF; give it a name that ends in .pdf",
    b"PK\x03\x04": "a zip archive or an office document; unpack it, or give it a name that ends in .docx or .pptx",
    b"\x1f\x8b": "gzip-compressed; give it a name that ends in .gz",
    b"SQLite format 3": "an SQLite database",
    b"GGUF": "a model file",
}
# As much as Python's buffered reader holds, so that a look at it consumes nothing.
_PEEK = 8_192
_CHUNK = 1 << 18


class Place(NamedTuple):
    """Where something was read: a file, and a line or an item of its list."""

    path: Path
    line: int | None = None
    item: int | None = None

    def __str__(self) -> str:
        """`file`, `file:line` or `file[item]`."""
        if self.line is not None:
            return f"{self.path}:{self.line}"
        return f"{self.path}" if self.item is None else f"{self.path}[{self.item}]"

    def error(self, message: str) -> DataError:
        """Make the error that says `message` about this place."""
        if self.item is not None:
            message = f"item {self.item} of the list: {message}"
        return DataError(message, path=self.path, line=self.line)


def suffix_of(path: Path) -> str:
    """Return the suffix in lower case that tells the format, without a last `.gz`."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, through gzip if its name ends in `.gz`; every failure becomes a `DataError`."""
    try:
        with path.open("rb") as plain:
            if path.name.lower().endswith(".gz"):
                with io.BufferedReader(cast(Any, gzip.GzipFile(fileobj=plain))) as stream:
                    yield stream
            else:
                yield plain
    except FileNotFoundError:
        raise DataError("no such file; check the path", path=path) from None
    except IsADirectoryError:
        raise DataError("is a folder, and a file was expected here", path=path) from None
    except PermissionError:
        raise DataError(
            "cannot be read: permission denied; change its permissions or run as its owner", path=path
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"is a broken gzip file ({error}); fetch or compress it again", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None


def peek_text(stream: io.BufferedReader, path: Path) -> bytes:
    """Look at the first bytes without consuming them, and raise `DataError` if they are not the start of a text."""
    head = stream.peek(_PEEK)[:_PEEK]
    if head.startswith(_UTF16_MARKS):
        raise DataError(
            f"is UTF-16; save it as UTF-8, for example: iconv -f UTF-16 -t UTF-8 {path.name} > utf8-{path.name}",
            path=path,
        )
    for magic, kind in _KNOWN_BINARY.items():
        if head.startswith(magic):
            raise DataError(f"is {kind}", path=path)
    if b"\0" in head:
        raise DataError(
            f"is a binary file (byte 0 at position {head.index(0)}); give text, Markdown or JSON in UTF-8", path=path
        )
    return head.removeprefix(_UTF8_MARK).lstrip()


def read_text(path: Path) -> str:
    """Read a whole text file: UTF-8, with or without byte order mark."""
    with open_file(path) as stream:
        peek_text(stream, path)
        data = stream.read()
    try:
        return data.removeprefix(_UTF8_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.removeprefix(_UTF8_MARK).count(b"\n", 0, error.start) + 1
        raise _not_utf8(error, Place(path, line)) from None


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
    for number, line in enumerate(stream, start=1):
        data = (line.removeprefix(_UTF8_MARK) if number == 1 else line).strip()
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
                row = _decode(data + b"\n" + stream.read(), place)
            except DataError:
                row = None
            if row is None:
                raise
        yield place, _as_object(row, place)


def _list_rows(stream: BinaryIO, path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    for number, (data, line) in enumerate(_list_items(stream, path), start=1):
        place = Place(path, item=number)
        try:
            row: object = msgspec.json.decode(data)
        except UnicodeDecodeError as error:
            raise _not_utf8(error, place) from None
        except (msgspec.DecodeError, RecursionError) as error:
            # An item may be long: say the line of the file, not the byte of the item.
            position = re.search(r" \(byte (\d+)\)", str(error))
            lines_before = data.count(b"\n", 0, int(position[1]) if position else len(data))
            reason = _reason(error).replace(position[0] if position else "", "")
            raise _no_list(reason, path, line + lines_before) from None
        yield place, _as_object(row, place)


# What stands before the next bracket (or, between items, comma): strings are passed over whole.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_WITHIN_ITEM = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
_BETWEEN_ITEMS = re.compile(rb'(?:[^",\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)


def _list_items(stream: BinaryIO, path: Path) -> Iterator[tuple[bytes, int]]:
    """Cut a JSON list into the bytes of its items, each with the line on which it begins; only brackets are checked."""
    buffer = stream.read(_CHUNK).removeprefix(_UTF8_MARK)
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
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise _not_utf8(error, place) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise place.error(
            f"not JSON ({_reason(error)}); correct this line: each line must hold one whole JSON object"
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).removeprefix("JSON is malformed: ").rstrip(".")


_JSON_TYPES = {bool: "boolean", str: "string", int: "number", float: "number", list: "list"}


def _as_object(row: object, place: Place) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    kind = _JSON_TYPES.get(type(row), "null")
    raise place.error(f"holds a JSON {kind}, and an object in braces was expected")


def _not_utf8(error: UnicodeDecodeError, place: Place) -> DataError:
    byte = error.object[error.start]
    return place.error(f"not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8, or correct this line")


def walk(folder: Path) -> Iterator[Path]:
    """List the files under a folder, sorted by name, folder by folder."""
    # Names that begin with a dot are passed over. Links are followed, and each folder is read once, however many links
    # lead to it. What is neither file nor folder (a broken link, a pipe) is listed too.
    seen: set[tuple[int, int]] = set()
    stack = [folder]
    while stack:
        path = stack.pop()
        try:
            status = path.stat()
        except OSError:
            yield path
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield path
        elif (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            stack.extend(path / name for name in _names(path))


def _names(folder: Path) -> list[str]:
    """List the names in a folder that are not hidden, last first."""
    try:
        return sorted((path.name for path in folder.iterdir() if not path.name.startswith(".")), reverse=True)
    except OSError as error:
        raise DataError(
            f"cannot be listed: {error.strerror or error}; change its permissions or leave it out", path=folder
        ) from None
