"""Files as bytes and as text: opened through gzip or bzip2, bounded in size, and decoded whatever their encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from pytrace.errors import DataError

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
MARKDOWN_SUFFIXES = (".md", ".markdown")
TEXT_SUFFIXES = (".txt", ".text")
TABLE_SUFFIXES = (".csv", ".tsv")

MOST_BYTES = 50_000_000
"""Of a text that is read as a whole, and of a line or an item of rows: its sentences take up to forty times that."""
# Rows compress to a tenth or less; gzip itself makes a thousandth of zeros at best, bzip2 less than a ten-thousandth.
_MOST_RATIO = 100

# What a file of another format can be saved as, by its suffix.
SAVED_AS = {
    ".doc": ".docx", ".odt": ".docx", ".rtf": ".docx", ".ppt": ".pptx", ".odp": ".pptx", ".xls": ".csv", ".xlsx": ".csv",
    ".ods": ".csv", ".msg": ".eml", ".mobi": ".epub",
}  # fmt: skip

UTF8_MARK = codecs.BOM_UTF8
# The marks of UTF-32 begin with those of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What people give by mistake, each with the way out.
_KNOWN_BINARY = {
    b"%PDF": "a PDF; give it a name that ends in .pdf",
    b"PK\x03\x04": "a zip archive or an office document; unpack it, or give it a name that ends in .docx, .pptx or .epub",
    b"\xd0\xcf\x11\xe0": "an old office document; save it as .docx, .pptx or .csv",
    b"{\\rtf": "rich text; save it as .docx",
    b"\x1f\x8b": "gzip-compressed; give it a name that ends in .gz",
    b"BZh": "bzip2-compressed; give it a name that ends in .bz2",
    b"SQLite format 3": "an SQLite database",
    b"GGUF": "a model file",
}
# As much as Python's buffered reader holds, so that a look at it consumes nothing.
_PEEK = 8_192
# Bytes that are no control characters of a text, and the share of others that a text may have.
_NO_CONTROL, _MOST_CONTROL = bytes({*range(32, 256), *b"\t\n\v\f\r\x1b\x1a"} - {127}), 0.1
# An encoding is guessed from so many bytes, and not from fewer than so many that are no ASCII: then it is the commonest.
_GUESSED_FROM, _FEWEST, _COMMONEST = 100_000, 8, "cp1252"


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
    """Return the suffix in lower case that tells the format, without a last `.gz` or `.bz2`."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".bz2")
    return Path(name).suffix


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, unpacked as `open_unpacked` does; every failure becomes a `DataError`."""
    try:
        with open_unpacked(path) as stream:
            yield stream
    except FileNotFoundError:
        raise DataError("no such file; check the path", path=path) from None
    except IsADirectoryError:
        raise DataError("is a folder, and a file was expected here", path=path) from None
    except PermissionError:
        raise DataError(
            "cannot be read: permission denied; change its permissions or run as its owner", path=path
        ) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None


@contextmanager
def open_unpacked(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, through gzip or bzip2 if its name ends in `.gz` or `.bz2`; `DataError` if it is broken."""
    suffix = path.suffix.lower()
    if suffix not in (".gz", ".bz2"):
        with path.open("rb") as plain:
            yield plain
        return
    try:
        with gzip.open(path) if suffix == ".gz" else bz2.open(path) as unpacked:
            yield io.BufferedReader(cast(Any, _Bounded(unpacked, path)))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _broken(path, error) from None
    except OSError as error:
        if error.errno is None:  # bzip2's faults are no other kind of error
            raise _broken(path, error) from None
        raise


def _broken(path: Path, error: Exception) -> DataError:
    kind = "gzip" if path.suffix.lower() == ".gz" else "bzip2"
    return DataError(f"is a broken {kind} file ({error}); fetch or compress it again", path=path)


class _Bounded(io.RawIOBase):
    """What a file unpacks to, as long as it is not out of all proportion to it."""

    def __init__(self, unpacked: gzip.GzipFile | bz2.BZ2File, path: Path) -> None:
        super().__init__()
        self._unpacked = unpacked
        self._path = path
        self._most = max(MOST_BYTES, _MOST_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._unpacked.seek(offset, whence)

    def tell(self) -> int:
        return self._unpacked.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._unpacked.read(len(buffer))
        buffer[: len(data)] = data
        if self._unpacked.tell() > self._most:
            raise DataError(
                f"unpacks to more than {self._most:,} bytes, a hundred times its size; unpack it, and see what it holds",
                path=self._path,
            )
        return len(data)


def peek_text(stream: io.BufferedReader, path: Path, *, only_utf8: bool = True) -> bytes:
    """Look at the first bytes without consuming them, and raise `DataError` if they are not the start of a text."""
    head = stream.peek(_PEEK)[:_PEEK]
    encoding = _marked(head)
    if only_utf8 and encoding in ("utf-16", "utf-32"):
        name = encoding.upper()
        raise DataError(
            f"is {name}; save it as UTF-8, for example: iconv -f {name} -t UTF-8 {path.name} > utf8-{path.name}",
            path=path,
        )
    for magic, kind in _KNOWN_BINARY.items():
        if head.startswith(magic):
            raise DataError(f"is {kind}", path=path)
    if encoding not in ("utf-16", "utf-32"):
        control = head.translate(None, _NO_CONTROL)
        if b"\0" in head or len(control) > _MOST_CONTROL * len(head):
            byte = 0 if b"\0" in head else control[0]
            raise DataError(
                f"is a binary file (byte {byte} at position {head.index(byte)}); give text, Markdown or JSON in UTF-8",
                path=path,
            )
    return head.removeprefix(UTF8_MARK).lstrip()


def lines_of(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """Iterate over (line number, line without its end), a byte order mark taken away; `DataError` for a line of no end."""
    for number, line in enumerate(iter(lambda: stream.readline(MOST_BYTES + 1), b""), start=1):
        if len(line) > MOST_BYTES:
            raise DataError(
                f"has more than {MOST_BYTES:,} bytes in a line, the most that is read of one; break it",
                path=path,
                line=number,
            )
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        yield number, text.removeprefix(UTF8_MARK) if number == 1 else text


def read_text(path: Path) -> str:
    """Read a whole text file: UTF-8, with or without byte order mark."""
    data = _read_bytes(path, only_utf8=True)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        start = _first_error(data)
        raise not_utf8(data[start], Place(path, data.count(b"\n", 0, start) + 1)) from None


def decode_text(path: Path) -> tuple[str, str]:
    """Read a whole text file in whatever encoding; return the text, and a warning if bytes of it are no UTF-8 ("" if none)."""
    data = _read_bytes(path, only_utf8=False)
    encoding, warning = encoding_of(data)
    return data.decode(encoding, "replace"), warning


def not_utf8(byte: int, place: Place) -> DataError:
    """Make the error of a byte that is no UTF-8."""
    return place.error(f"not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8, or correct this line")


def _read_bytes(path: Path, *, only_utf8: bool) -> bytes:
    with open_file(path) as stream:
        peek_text(stream, path, only_utf8=only_utf8)
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DataError(f"has more than {MOST_BYTES:,} bytes, the most that is read of one text; split it", path=path)
    return data


def encoding_of(data: bytes, *, whole: bool = True) -> tuple[str, str]:
    """Tell the encoding of a text, or of its beginning, and what to warn of: bytes that are no UTF-8 ("" if there are none).

    A byte order mark decides, else UTF-8 if most of what is no ASCII is valid, else the likeliest of the older encodings.
    """
    if marked := _marked(data):
        encoding, replaced = marked, 0
        if marked == "utf-8-sig":
            replaced = data.decode(marked, "replace").count("\ufffd")
    else:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(data, whole)  # if not whole, it may end within a character
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            replaced = text.count("\ufffd")
            encoding = "utf-8" if len(text) - len(text.encode("ascii", "ignore")) > 2 * replaced else _guessed(data)
        else:
            return "utf-8", ""
    if not replaced:
        return encoding, ""
    error = _first_error(data)
    where = f"not UTF-8 (byte 0x{data[error]:02x} on line {data.count(10, 0, error) + 1})"
    if encoding.startswith("utf-8"):
        return encoding, f"{where}; {replaced} such bytes were replaced by \ufffd"
    return encoding, f"{where}; read as {encoding}, the likeliest: save it as UTF-8 if that is wrong"


def _marked(data: bytes) -> str:
    return next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), "")


def _guessed(data: bytes) -> str:
    if len(data[: 10 * _GUESSED_FROM].translate(None, bytes(range(128)))) < _FEWEST:
        return _COMMONEST
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_GUESSED_FROM]).best()
    return _COMMONEST if best is None else best.encoding


def _first_error(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


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
