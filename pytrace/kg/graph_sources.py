"""Triples of any knowledge graph as a stream: TSV, JSON lines, N-Triples, Turtle, and pytrace's own store and exports.

Keys are as the source has them. An RDF graph brings names along: an IRI's rdfs:label or skos:prefLabel (one without a
language or in English before any other), and a literal's text; and other names: skos:altLabel, schema:alternateName, and further
labels. Descriptions (schema:description, rdfs:comment and the like) are no facts, and left out. Graphs that pytrace wrote as RDF are read as what they
were written from, so that all forms of one graph have the same keys. What has no relation is a sentence, no fact, and is
left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes

import msgspec
import pyoxigraph as ox

from pytrace.documents.read_report import ReadReport, skipping
from pytrace.errors import DataError, InputError
from pytrace.kg.names import entity_name
from pytrace.kg.terms import ALIASES, DESCRIPTIONS, ENTITY, LABELS, PROVENANCE, RELATION, is_foreign
from pytrace.records import Triple, Unit
from pytrace.storage.foreign_json import decode_json
from pytrace.storage.text import canonical
from pytrace.triples.graph import TripleStore
from pytrace.triples.graph.exchange import graph_format, input_errors, read_lines, read_tsv
from pytrace.triples.graph.rdf_parsing import parse_rdf

_STORE = "graph.db"


class Source(msgspec.Struct, frozen=True):
    """The triples of a knowledge graph, to be read once, and how to word their keys.

    `names` and `aliases`, what entities are also called, are complete when `triples` has come to its end; memory is linear in
    the labels, whatever the triples.
    """

    triples: Iterator[Triple]
    names: dict[str, str]
    aliases: dict[str, list[str]]


def read_source(path: str | os.PathLike[str], *, format: str | None = None, report: ReadReport | None = None) -> Source:
    """Read the triples of a file, or of the directory of a `pytrace.triples.graph.TripleStore`.

    The format of a file is ``"tsv"`` (head, relation, tail), ``"jsonl"`` (an object with `head`, `relation` and `tail` a
    line, or what `pytrace kg export` writes), ``"ntriples"`` or ``"turtle"``; by default its suffix tells. Errors in the
    file are raised while its triples are read: `DataError` with the line, in RDF also the column. With a `report`, lines of
    TSV, JSON lines and N-Triples that cannot be read are left out and named in its `bad`.
    """
    path = Path(path)
    names: dict[str, str] = {}
    aliases: dict[str, list[str]] = {}
    if path.is_dir():
        return Source(_read_store(path, format), names, aliases)
    kind = graph_format(path, format)
    if kind == "tsv":
        return Source(_read_tsv(path, report), names, aliases)
    if kind == "jsonl":
        return Source(_read_jsonl(path, report), names, aliases)
    return Source(_RdfReader(path, names, aliases).read(kind, report), names, aliases)


def _read_store(path: Path, name: str | None) -> Iterator[Triple]:
    if name is not None:
        raise InputError(f"{path} is a directory, which has no format {name!r}; name a file, or leave out the format")
    if not (path / _STORE).exists():
        raise InputError(
            f"the directory {path} holds no {_STORE} of `pytrace kg build`; name a file of triples, or such a directory"
        )

    def facts() -> Iterator[Triple]:
        with TripleStore.open(path, mode="read") as graph:
            for triple in graph.iterate_triples():
                if isinstance(triple, Triple) and triple.relation.strip():
                    yield triple

    return facts()


def _read_tsv(path: Path, report: ReadReport | None) -> Iterator[Triple]:
    with input_errors(path):
        for line, triple in read_tsv(path, report):
            with skipping(path, report):
                yield from _facts([triple], path, line)


def _facts(triples: Iterable[Unit], path: Path, line: int) -> list[Triple]:
    """Leave sentences out, and refuse triples without a head or a tail."""
    facts = []
    for triple in triples:
        if not isinstance(triple, Triple) or not triple.relation.strip():
            continue
        if not (triple.head.strip() and triple.tail.strip()):
            raise DataError(
                f"the triple {triple.text[:200]!a} has an empty {'tail' if triple.head.strip() else 'head'}; fill it in",
                path=path,
                line=line,
            )
        facts.append(triple)
    return facts


class _TripleLine(msgspec.Struct):
    head: str
    relation: str
    tail: str


class _DocumentLine(msgspec.Struct):
    """The triples of a line of `pytrace kg export`; null where they wait for their extraction."""

    id: str
    triples: tuple[_TripleLine, ...] | None


def _read_jsonl(path: Path, report: ReadReport | None) -> Iterator[Triple]:
    with input_errors(path):
        for number, text in read_lines(path, report):
            with skipping(path, report):
                yield from _facts(_triples_of(text, path, number), path, number)


def _triples_of(text: str, path: Path, number: int) -> list[Triple]:
    row = _object(text, path, number)
    if number == 1 and "pytrace_graph" in row:
        return []
    try:
        if "id" in row and "head" not in row:
            lines = msgspec.convert(row, _DocumentLine).triples or ()
        else:
            lines = (msgspec.convert(row, _TripleLine),)
    except ValueError as error:
        raise DataError(
            f"{error}; a line is an object with head, relation and tail, or one that `pytrace kg export` wrote",
            path=path,
            line=number,
        ) from error
    return [Triple(canonical(each.head), canonical(each.relation), canonical(each.tail)) for each in lines]


def _object(text: str, path: Path, line: int) -> dict[str, object]:
    try:
        row = decode_json(text, object, surrogates=True)
    except ValueError as error:
        raise DataError(f"not JSON: {error}; each line must be one JSON object", path=path, line=line) from error
    if not isinstance(row, dict):
        raise DataError(
            f"a JSON {type(row).__name__} where an object is due; write head, relation and tail in braces",
            path=path,
            line=line,
        )
    return row


class _RdfReader:
    """Makes triples of statements, and takes names down while it reads."""

    def __init__(self, path: Path, names: dict[str, str], aliases: dict[str, list[str]]) -> None:
        self._path = path
        self._names = names
        self._aliases = aliases
        self._foreign: set[str] = set()  # keys whose name is in a language that another label may outdo

    def read(self, kind: str, report: ReadReport | None) -> Iterator[Triple]:
        """Iterate over the facts of a file."""
        with input_errors(self._path):
            for quad in parse_rdf(self._path, kind, report):
                with skipping(self._path, report):
                    triple = self._triple(quad)
                    if triple is not None:
                        yield triple

    def _triple(self, quad: ox.Quad) -> Triple | None:
        """Return a statement as a triple, or None where it is none of the graph's facts."""
        subject, target = quad.subject, quad.object
        if isinstance(subject, ox.Triple) or isinstance(target, ox.Triple):
            raise DataError(f"a triple within a triple cannot be read ({quad.triple}); state it alone", path=self._path)
        if subject.value.startswith(PROVENANCE):
            return None
        if isinstance(target, ox.Literal):
            if quad.predicate in LABELS:
                self._name(self._key(subject), target)
                return None
            if quad.predicate in ALIASES:
                if not is_foreign(target):
                    self._alias(self._key(subject), target.value)
                return None
            if quad.predicate in DESCRIPTIONS:
                return None
            tail = target.value
            worded = " ".join(tail.split())
            if not worded:  # it says nothing
                return None
            if worded != entity_name(tail):
                self._names.setdefault(tail, worded)
        else:
            tail = self._key(target)
        relation = self._key(quad.predicate)
        return Triple(self._key(subject), relation, tail) if relation.strip() else None

    def _name(self, key: str, label: ox.Literal) -> None:
        """Take a label down, unless the key has a better one or an earlier one as good."""
        text = " ".join(label.value.split())
        if not text or label.value == key:  # the latter in what pytrace wrote, where keys are names
            return
        foreign = is_foreign(label)
        if key not in self._names or (key in self._foreign and not foreign):
            self._names[key] = text
            (self._foreign.add if foreign else self._foreign.discard)(key)
        elif not foreign:
            self._alias(key, text)

    def _alias(self, key: str, text: str) -> None:
        text = " ".join(text.split())
        known = self._aliases.setdefault(key, [])
        if text and text not in known:
            known.append(text)

    def _key(self, term: ox.NamedNode | ox.BlankNode) -> str:
        if isinstance(term, ox.BlankNode):
            return f"_:{term.value}"
        iri = term.value
        prefix = ENTITY if iri.startswith(ENTITY) else RELATION if iri.startswith(RELATION) else None
        if prefix is None:
            return iri
        try:
            return unquote_to_bytes(iri.removeprefix(prefix)).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise DataError(f"<{iri}> is not percent-encoded UTF-8; encode it anew", path=self._path) from error
