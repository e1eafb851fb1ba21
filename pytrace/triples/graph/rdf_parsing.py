"""RDF files parsed. The parser recurses into triples within triples and would end the process, so these are counted first."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyoxigraph as ox

from pytrace.documents.read_report import ReadReport
from pytrace.documents.text_files import lines_of, open_unpacked
from pytrace.errors import DataError

RDF_FORMATS = {"ntriples": ox.RdfFormat.N_TRIPLES, "turtle": ox.RdfFormat.TURTLE}
_PLACE = re.compile(r"^Parser error (?:at|between) .*?: ", re.DOTALL)

# Data has one or two levels; the parser's stack overflows beyond some thousands.
_DEEPEST = 100
_CHUNK = 1 << 18
# What is passed over at once: IRIs, strings and comments that are whole, and all between them but angle brackets. They are atomic,
# for Python before 3.11.5 stops in the middle of what a possessive loop fails at (CPython's issue 106052).
_PLAIN = re.compile(
    rb"""(?:[^<>"'#\\]++|(?><(?!<)[^<>"\r\n]*+>|"(?!"")(?:[^"\\\r\n]++|\\.)*+"|'(?!'')(?:[^'\\\r\n]++|\\.)*+'|\#[^\r\n]*+[\r\n]))*+""",
    re.DOTALL,
)
# What the end of a chunk cuts, and long strings, by how they begin: what is within them, and how they end.
_WITHIN = {
    b'"""': (re.compile(rb'[^"\\]*+'), (b'"""',)),
    b"'''": (re.compile(rb"[^'\\]*+"), (b"'''",)),
    b'"': (re.compile(rb'[^"\\\r\n]*+'), (b'"', b"\r", b"\n")),
    b"'": (re.compile(rb"[^'\\\r\n]*+"), (b"'", b"\r", b"\n")),
    b"<": (re.compile(rb"[^<>\r\n]*+"), (b">", b"<", b"\r", b"\n")),
    b"#": (re.compile(rb"[^\r\n]*+"), (b"\r", b"\n")),
}


@contextmanager
def open_rdf(path: Path) -> Iterator[BinaryIO]:
    """Open an N-Triples or Turtle file, of which reading raises `DataError` where triples stand over 100 deep within each other."""
    with open_unpacked(path) as stream:
        # A device is read once alone: it may have no end.
        if path.is_file() and not _may_nest(stream):
            yield stream
        else:
            yield io.BufferedReader(cast(Any, _Checked(stream, path)), _CHUNK)


def parse_rdf(path: Path, kind: str, report: ReadReport | None = None) -> Iterator[ox.Quad]:
    """Iterate over the statements of a file; with a report, lines of N-Triples that cannot be read are named there and left out."""
    if kind == "turtle" or report is None:
        with open_rdf(path) as stream:
            try:
                yield from ox.parse(stream, format=RDF_FORMATS[kind])
            except SyntaxError as error:
                raise unreadable(error, path) from error
        return
    # Line by line: behind a string without an end the parser would pass over good lines until the next quotation mark.
    with open_unpacked(path) as stream:
        for number, line in lines_of(stream, path):
            with report.skipping(path):
                try:
                    if b"<<" in line:
                        _Checked(io.BytesIO(line), path, number).readall()
                    yield from list(ox.parse(line, format=RDF_FORMATS[kind]))
                except SyntaxError as error:
                    raise unreadable(error, path, number) from error


def unreadable(error: SyntaxError, path: Path, line: int | None = None) -> DataError:
    """Say where an RDF file cannot be parsed."""
    return DataError(
        f"column {error.offset}: {' '.join(_PLACE.sub('', error.msg).split())[:300]}; repair the line",
        path=path,
        line=line or error.lineno,
    )


def _may_nest(stream: BinaryIO) -> bool:
    """Whether there is such a sign at all, which is told much sooner than where it stands."""
    last = b""
    while chunk := stream.read(_CHUNK):
        if b"<<" in last + chunk:
            break
        last = chunk[-1:]
    stream.seek(0)
    return bool(chunk)


class _Checked(io.RawIOBase):
    """The bytes of a stream, looked at as they are read."""

    def __init__(self, stream: BinaryIO, path: Path, line: int | None = None) -> None:
        self._stream = stream
        self._path = path
        self._line = line
        self._left = b""
        self._within = b""
        self._depth = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._check(chunk)
        return len(chunk)

    def _check(self, chunk: bytes) -> None:
        text = self._left + chunk
        at = 0
        while True:
            passed = (_WITHIN[self._within][0] if self._within else _PLAIN).match(text, at)
            at = passed.end() if passed else at
            sign = text[at : at + 3]
            # The longest sign has three characters.
            if not sign or (len(sign) < 3 and chunk):
                break
            at += self._take(sign)
        self._left = text[at:]

    def _take(self, sign: bytes) -> int:
        """Take what stands where the pattern ends, and return its length."""
        if sign.startswith(b"\\"):
            return 2
        if self._within:
            ends = _WITHIN[self._within][1]
            if not sign.startswith(ends):
                return 1
            long = len(ends[0])
            # An error of the file, such as a line's end within a string, ends the parser's work as well.
            taken = 0 if self._within == b"<" and sign.startswith(b"<") else long
            self._within = b""
            return taken
        if sign.startswith(b"<<"):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise DataError(
                    f"triples stand more than {_DEEPEST} deep within each other; state them alone",
                    path=self._path,
                    line=self._line,
                )
            return 2
        if sign.startswith(b">"):
            deeper = sign.startswith(b">>")
            self._depth = max(0, self._depth - deeper)
            return 1 + deeper
        self._within = sign if sign in _WITHIN else sign[:1]
        return len(self._within)
