r"""Knowledge graphs as files of other programs: JSON lines and TSV here, RDF in `pytrace.triples.graph.rdf`.

JSONL: the first line is ``{"pytrace_graph": 1, "recipe": {...}}`` (it may be left out when importing), then one line
per document with its id, title, sentences, source, triples (null: not extracted yet), statistics and whether a person
edited them. Lossless.

TSV: ``head<TAB>relation<TAB>tail``, one triple a line, no header. A tab, line feed, carriage return and backslash within
a name are written ``\t``, ``\n``, ``\r`` and ``\\``, a lone surrogate (and a byte order mark that begins the file)
``\uXXXX``. A file with any other backslash was not written so, and all of its backslashes are characters.

All are read through gzip or bzip2 if the name ends in ``.gz`` or ``.bz2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

from pytrace.documents.read_report import ReadReport, skipping
from pytrace.documents.text_files import MOST_BYTES, lines_of, open_unpacked, suffix_of
from pytrace.errors import DataError, InputError
from pytrace.records import Document, Origin, Unit
from pytrace.storage.foreign_json import decode_json
from pytrace.storage.text import canonical, dump_json
from pytrace.triples.graph.graph_records import ExtractionStatistics, Recipe, StoredDocument, row_of, unit_of
from pytrace.triples.graph.graph_writer import EDITED, EXTRACTED, Writer
from pytrace.triples.graph.rdf import read_rdf

SUFFIXES = {".jsonl": "jsonl", ".nt": "ntriples", ".ttl": "turtle", ".tsv": "tsv"}
FORMATS = ("jsonl", "ntriples", "turtle", "tsv")


class _Header(msgspec.Struct):
    pytrace_graph: Literal[1]
    recipe: Recipe


class _TripleLine(msgspec.Struct, omit_defaults=True):
    head: str
    relation: str
    tail: str
    sentence: int = -1
    support: float = 0.0

    @classmethod
    def of(cls, unit: Unit) -> _TripleLine:
        return cls(*row_of(unit))

    @property
    def unit(self) -> Unit:
        return unit_of(self.head, self.relation, self.tail, "", self.sentence, self.support)


class _DocumentLine(msgspec.Struct):
    id: str
    title: str
    sentences: tuple[str, ...] = ()
    source: str = ""
    triples: tuple[_TripleLine, ...] | None = None
    statistics: ExtractionStatistics | None = None
    edited: bool = False
    origin: Origin | msgspec.UnsetType = msgspec.UNSET


_Line = TypeVar("_Line", _Header, _DocumentLine, _TripleLine)


def export_format(target: Path | BinaryIO, name: str | None) -> str:
    """Return the format of an export: the one named, else that of the file's suffix."""
    if name is None and not isinstance(target, Path):
        raise InputError(f"a stream has no suffix to tell the format by; name one of {', '.join(FORMATS)}")
    if isinstance(target, Path) and target.suffix.lower() in (".gz", ".bz2"):
        raise InputError(
            f"{target} would not be compressed; leave out {target.suffix}, and compress the file when it is written"
        )
    return graph_format(target if isinstance(target, Path) else Path(), name)


def read_graph(writer: Writer, path: Path, kind: str, report: ReadReport | None = None) -> None:
    """Read a file of a graph into the transaction of an import, with a report but for the lines that cannot be read."""
    if kind == "jsonl":
        _read_jsonl(writer, path, report)
    elif kind == "tsv":
        with writer.loose_triples(path) as put:
            for _, triple in read_tsv(path, report):
                put(triple)
    else:
        read_rdf(writer, path, kind, report)


def graph_format(path: Path, name: str | None) -> str:
    """Return the format of a file: the one named, else that of its suffix."""
    if name is None and suffix_of(path) not in SUFFIXES:
        raise InputError(f"the suffix of {path} tells no format; name one of {', '.join(FORMATS)} (--format)")
    kind = SUFFIXES[suffix_of(path)] if name is None else name
    if kind not in FORMATS:
        raise InputError(f"{kind!r} is no format of knowledge graphs; name one of {', '.join(FORMATS)}")
    return kind


@contextmanager
def input_errors(path: Path) -> Iterator[None]:
    """Say of a file that it cannot be opened or read."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}; check the path and its permissions", path=path
        ) from error


def read_lines(path: Path, report: ReadReport | None = None) -> Iterator[tuple[int, str]]:
    """Iterate over (line number, line without its end) of a UTF-8 file, empty lines left out."""
    with open_unpacked(path) as stream:
        for number, line in lines_of(stream, path):
            with skipping(path, report):
                try:
                    text = line.decode()
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"byte {error.start + 1} of the line is not UTF-8; convert the file to UTF-8",
                        path=path,
                        line=number,
                    ) from error
                if text:
                    yield number, text


def write_jsonl(stream: BinaryIO, recipe: Recipe, documents: Iterable[StoredDocument]) -> None:
    """Write a header and a line for each document."""
    stream.write(dump_json(_Header(1, recipe)).encode() + b"\n")
    for document, statistics, edited, triples in documents:
        lines = None if statistics is None else tuple(map(_TripleLine.of, triples))
        line = _DocumentLine(
            document.id, document.title, document.sentences, document.source, lines, statistics, edited,
            document.origin or msgspec.UNSET,
        )  # fmt: skip
        stream.write(dump_json(line).encode() + b"\n")


def _parse(text: str, kind: type[_Line], path: Path, line: int) -> _Line:
    try:
        return decode_json(text, kind, surrogates=True)
    except ValueError as error:
        raise DataError(
            f"not JSON of a knowledge graph ({error}); see `pytrace kg export --format jsonl` for the form of a line",
            path=path,
            line=line,
        ) from error


def _read_jsonl(writer: Writer, path: Path, report: ReadReport | None) -> None:
    for number, text in read_lines(path, report):
        with skipping(path, report):
            if number == 1 and '"pytrace_graph"' in text[:40]:
                writer.take_recipe(_parse(text, _Header, path, number).recipe)
                continue
            record = _parse(text, _DocumentLine, path, number)
            document = Document(record.id, record.title, record.sentences, record.source, record.origin or None)
            triples = None if record.triples is None else [line.unit for line in record.triples]
            try:
                writer.put(document, triples, record.statistics, state=EDITED if record.edited else EXTRACTED)
            except InputError as error:
                raise DataError(str(error), path=path, line=number) from error


def read_triples(path: Path) -> list[Unit]:
    """Read triples that a person wrote for one document: TSV, or JSON lines of head, relation, tail and sentence."""
    kind = graph_format(path, None)
    if kind not in ("tsv", "jsonl"):
        raise DataError("triples are edited as .tsv or .jsonl; export them so", path=path)
    with input_errors(path):
        if kind == "tsv":
            return [triple for _, triple in read_tsv(path)]
        return [_parse(text, _TripleLine, path, number).unit for number, text in read_lines(path)]


_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
_TO_ESCAPE = re.compile("[\t\n\r\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([tnr\\]))")
_ANY_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|[tnr\\]|(?P<other>))")
_CHUNK = 1 << 20


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04X}", text)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _CHARACTERS[found[2]]

    return canonical(_ESCAPED.sub(character, text))


def write_tsv(stream: BinaryIO, triples: Iterable[Unit]) -> None:
    """Write a line for each triple."""
    for number, triple in enumerate(triples):
        line = "\t".join(map(_escape, row_of(triple)[:3]))
        # Readers take a byte order mark at the start of a file for no part of the text.
        if number == 0 and line.startswith("\ufeff"):
            line = "\\uFEFF" + line[1:]
        stream.write(line.encode() + b"\n")


def read_tsv(path: Path, report: ReadReport | None = None) -> Iterator[tuple[int, Unit]]:
    """Iterate over (line number, triple) of a TSV file."""
    escaped = _is_escaped(path)
    for number, text in read_lines(path, report):
        with skipping(path, report):
            columns = text.split("\t")
            if len(columns) != 3:
                raise DataError(
                    f"{len(columns)} columns where head, relation and tail are wanted; put one tab between them",
                    path=path,
                    line=number,
                )
            yield number, unit_of(*(map(_unescape, columns) if escaped else columns))


def _is_escaped(path: Path) -> bool:
    """Say whether every backslash of a TSV file begins an escape, as where `write_tsv` wrote it."""
    if not path.is_file():
        return True  # what can be read but once
    with open_unpacked(path) as stream:
        while chunk := stream.read(_CHUNK):
            # No escape is cut by the end of a line.
            chunk += stream.readline(MOST_BYTES)
            if b"\\" in chunk and any(found["other"] is not None for found in _ANY_ESCAPE.finditer(chunk)):
                return False
    return True
