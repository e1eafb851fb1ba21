"""Knowledge graphs as RDF: N-Triples and Turtle through pyoxigraph.

An entity is the IRI ``urn:pytrace:entity:<name>`` and a relation ``urn:pytrace:relation:<name>``, the name
percent-encoded, each with an rdfs:label; the tail of a triple without a relation is text, so a literal. Provenance is
kept by RDF reification, the one form that both N-Triples and Turtle can carry::

    <urn:pytrace:document:D>    a pt:Document ; dcterms:title ; dcterms:source ; pt:position ; pt:state
    <urn:pytrace:sentence:D:i>  a pt:Sentence ; pt:document ; rdf:value          (sentence i of document D)
    <urn:pytrace:statement:D:k> a rdf:Statement ; rdf:subject ; rdf:predicate ; rdf:object ;
                                pt:document ; pt:sentence ; pt:support           (triple k of document D)

So documents, sentences and triples with their order and support survive, whatever order the statements are in; the
recipe and statistics of the extraction do not. Text that no RDF literal can hold (a lone surrogate) is a
literal of the type ``urn:pytrace:vocabulary:percent-encoded``. Any other RDF is read, too: each statement is a triple
whose parts are named by their rdfs:label, else by the last part of their IRI.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote_to_bytes

import pyoxigraph as ox

from pytrace.documents.read_report import ReadReport, skipping
from pytrace.errors import DataError, InputError
from pytrace.records import Document, Unit
from pytrace.storage.text import to_sql
from pytrace.triples.graph.database import from_sql
from pytrace.triples.graph.graph_records import StoredDocument, row_of, unit_of
from pytrace.triples.graph.graph_writer import EDITED, EXTRACTED, Writer
from pytrace.triples.graph.rdf_parsing import RDF_FORMATS, parse_rdf

_PREFIXES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "dcterms": "http://purl.org/dc/terms/",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "pt": "urn:pytrace:vocabulary:",
    "entity": "urn:pytrace:entity:",
    "relation": "urn:pytrace:relation:",
    "document": "urn:pytrace:document:",
    "sentence": "urn:pytrace:sentence:",
    "statement": "urn:pytrace:statement:",
}


def _iri(prefix: str, name: str) -> ox.NamedNode:
    return ox.NamedNode(_PREFIXES[prefix] + name)


_TYPE = _iri("rdf", "type")
_LABEL = _iri("rdfs", "label")
_PERCENT_ENCODED = _iri("pt", "percent-encoded")
_STATES = {"extracted": EXTRACTED, "edited": EDITED}


def _encode(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def _decode(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass")


def _literal(text: str) -> ox.Literal:
    try:
        return ox.Literal(text)
    except ValueError:
        return ox.Literal(_encode(text), datatype=_PERCENT_ENCODED)


def write_rdf(
    stream: BinaryIO,
    kind: str,
    documents: Iterable[StoredDocument],
    entities: Iterable[str],
    relations: Iterable[str],
) -> None:
    """Write a graph as it is streamed from the store."""
    statements = chain(_statements(documents), _labels("entity", entities), _labels("relation", relations))
    prefixes = _PREFIXES if kind == "turtle" else None
    ox.serialize(statements, output=stream, format=RDF_FORMATS[kind], prefixes=prefixes)


def _statements(documents: Iterable[StoredDocument]) -> Iterator[ox.Triple]:
    document_iri, position_iri, state_iri = (_iri("pt", name) for name in ("document", "position", "state"))
    sentence_iri, support_iri = _iri("pt", "sentence"), _iri("pt", "support")
    subject_iri, predicate_iri, object_iri = (_iri("rdf", name) for name in ("subject", "predicate", "object"))
    for position, (document, statistics, edited, triples) in enumerate(documents):
        key = _encode(document.id)
        node = _iri("document", key)
        state = "waiting" if statistics is None else "edited" if edited else "extracted"
        yield ox.Triple(node, _TYPE, _iri("pt", "Document"))
        yield ox.Triple(node, _iri("dcterms", "title"), _literal(document.title))
        yield ox.Triple(node, _iri("dcterms", "source"), _literal(document.source))
        yield ox.Triple(node, position_iri, ox.Literal(position))
        yield ox.Triple(node, state_iri, ox.Literal(state))
        for index, text in enumerate(document.sentences):
            sentence = _iri("sentence", f"{key}:{index}")
            yield ox.Triple(sentence, _TYPE, _iri("pt", "Sentence"))
            yield ox.Triple(sentence, document_iri, node)
            yield ox.Triple(sentence, _iri("rdf", "value"), _literal(text))
        if statistics is None:
            continue
        for number, triple in enumerate(triples):
            *parts, sentence_index, support = row_of(triple)
            head, relation = _iri("entity", _encode(parts[0])), _iri("relation", _encode(parts[1]))
            tail = _iri("entity", _encode(parts[2])) if parts[1] else _literal(parts[2])
            statement = _iri("statement", f"{key}:{number}")
            yield ox.Triple(head, relation, tail)
            yield ox.Triple(statement, _TYPE, _iri("rdf", "Statement"))
            yield ox.Triple(statement, subject_iri, head)
            yield ox.Triple(statement, predicate_iri, relation)
            yield ox.Triple(statement, object_iri, tail)
            yield ox.Triple(statement, document_iri, node)
            if sentence_index >= 0:
                yield ox.Triple(statement, sentence_iri, _iri("sentence", f"{key}:{sentence_index}"))
            yield ox.Triple(statement, support_iri, ox.Literal(support))


def _labels(prefix: str, names: Iterable[str]) -> Iterator[ox.Triple]:
    for name in names:
        label = _literal(name)
        if label.datatype != _PERCENT_ENCODED:
            yield ox.Triple(_iri(prefix, _encode(name)), _LABEL, label)


# RDF has no order, so a file is first sorted on the disk: `notes` are statements about our documents, sentences and
# reified statements, `facts` all others. A term is stored as one character for its kind and its value.
_STAGING = """
CREATE TEMP TABLE notes (subject, predicate, object NOT NULL, used INTEGER NOT NULL DEFAULT 0,
                         PRIMARY KEY (subject, predicate)) WITHOUT ROWID;
CREATE TEMP TABLE facts (number INTEGER PRIMARY KEY, subject, predicate, object, UNIQUE (subject, predicate, object));
CREATE TEMP TABLE labels (subject PRIMARY KEY, rank INTEGER NOT NULL, label NOT NULL) WITHOUT ROWID
"""
_NOTED = tuple(_PREFIXES[name] for name in ("document", "sentence", "statement"))


def read_rdf(writer: Writer, path: Path, kind: str, report: ReadReport | None) -> None:
    """Read a file into the transaction of an import, with a report but for the lines of N-Triples that cannot be read."""
    connection = writer.connection
    for statement in _STAGING.split(";\n"):
        connection.execute(statement)
    _stage(connection, path, kind, report)
    reader = _Reader(connection, path)
    nodes = "SELECT subject, object FROM notes WHERE predicate = ?1 AND subject >= ?2 AND subject < ?3"
    documents = connection.execute(
        f"SELECT subject FROM ({nodes}) ORDER BY CAST(substr(object, 2) AS INTEGER)",
        (_PREFIXES["pt"] + "position", _PREFIXES["document"], _PREFIXES["document"] + "\U0010ffff"),
    ).fetchall()
    for (node,) in documents:
        document, triples, state = reader.document(node)
        try:
            writer.put(document, triples, state=state)
        except InputError as error:
            raise DataError(str(error), path=path) from error
    left = connection.execute("SELECT subject FROM notes WHERE used = 0 LIMIT 1").fetchone()
    if left is not None:
        raise DataError(
            f"<{left[0]}> belongs to no document of the file (with a pt:position), or has a property too many",
            path=path,
        )
    with writer.loose_triples(path) as put:
        last = -1
        while page := connection.execute(
            "SELECT number, subject, predicate, object FROM facts WHERE number > ? ORDER BY number LIMIT 256", (last,)
        ).fetchall():
            for _, head, relation, tail in page:
                put(reader.unit(from_sql(head), from_sql(relation), from_sql(tail)))
            last = page[-1][0]
    for table in ("notes", "facts", "labels"):
        connection.execute(f"DROP TABLE temp.{table}")


def _stage(connection: sqlite3.Connection, path: Path, kind: str, report: ReadReport | None) -> None:
    for quad in parse_rdf(path, kind, report):
        with skipping(path, report):
            subject, predicate, target = quad.subject, quad.predicate.value, quad.object
            if isinstance(subject, ox.Triple) or isinstance(target, ox.Triple):
                raise DataError(f"a triple within a triple cannot be read ({quad.triple}); state it alone", path=path)
            if subject.value.startswith(_NOTED):
                if predicate == _TYPE.value:
                    continue
                same = connection.execute(
                    "INSERT INTO notes (subject, predicate, object) VALUES (?1, ?2, ?3) "
                    "ON CONFLICT DO UPDATE SET used = used WHERE object = ?3",
                    (subject.value, predicate, to_sql(_term(target))),
                )
                if same.rowcount == 0:
                    raise DataError(f"{subject} has two values of <{predicate}>; keep one", path=path)
            elif predicate == _LABEL.value:
                if isinstance(target, ox.Literal):
                    connection.execute(
                        "INSERT INTO labels VALUES (?1, ?2, ?3) "
                        "ON CONFLICT DO UPDATE SET rank = ?2, label = ?3 WHERE ?2 < rank",
                        (_term(subject), {None: 0, "en": 1}.get(target.language, 2), target.value),
                    )
            else:
                connection.execute(
                    "INSERT OR IGNORE INTO facts (subject, predicate, object) VALUES (?, ?, ?)",
                    (_term(subject), "<" + predicate, to_sql(_term(target))),
                )


def _term(term: ox.NamedNode | ox.BlankNode | ox.Literal) -> str:
    if isinstance(term, ox.NamedNode):
        return "<" + term.value
    if isinstance(term, ox.BlankNode):
        return "_" + term.value
    return '"' + (_decode(term.value) if term.datatype == _PERCENT_ENCODED else term.value)


class _Reader:
    """Puts documents together from the staged statements."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def document(self, node: str) -> tuple[Document, list[Unit] | None, int]:
        """Return a document, its triples (None if it waits for its extraction), and its state."""
        key = node.removeprefix(_PREFIXES["document"])
        notes = self._notes(node)
        state = notes.get("state", "extracted")
        sentences = [
            self._take(f"{_PREFIXES['sentence']}{key}:{index}", sentence, "value")
            for index, sentence in self._parts("sentence", key)
        ]
        document = Document(_decode(key), self._take(node, notes, "title"), tuple(sentences), notes.get("source", ""))
        if state == "waiting":
            return document, None, EXTRACTED
        if state not in _STATES:
            raise DataError(f"<{node}> has state {state!r}; it can be waiting, extracted or edited", path=self._path)
        return document, [self._triple(key, *part) for part in self._parts("statement", key)], _STATES[state]

    def _triple(self, key: str, number: int, notes: dict[str, str]) -> Unit:
        node = f"{_PREFIXES['statement']}{key}:{number}"
        terms = (
            self._take(node, notes, "subject"),
            self._take(node, notes, "predicate"),
            self._take(node, notes, "object"),
        )
        self._connection.execute(
            "DELETE FROM facts WHERE subject = ? AND predicate = ? AND object = ?", tuple(map(to_sql, terms))
        )
        sentence = notes.get("sentence")
        try:
            index = -1 if sentence is None else int(sentence.removeprefix(f"{_PREFIXES['sentence']}{key}:"))
            support = float(notes.get("support", "0"))
        except ValueError as error:
            raise DataError(
                f"<{node}> has a pt:sentence or pt:support of the wrong kind: {error}", path=self._path
            ) from error
        head, relation, tail = map(self.name, terms)
        return unit_of(head, relation, tail, "", index, support)

    def unit(self, *terms: str) -> Unit:
        """Name the three terms of a statement."""
        head, relation, tail = map(self.name, terms)
        return unit_of(head, relation, tail)

    def _take(self, node: str, notes: dict[str, str], name: str) -> str:
        if name not in notes:
            raise DataError(f"<{node}> has no {name}; export the graph again", path=self._path)
        return notes[name]

    def _notes(self, node: str) -> dict[str, str]:
        """Return the properties of a node by the last part of their IRI; of a reified triple's terms with their kind."""
        rows = self._connection.execute("SELECT predicate, object FROM notes WHERE subject = ?", (node,)).fetchall()
        self._connection.execute("UPDATE notes SET used = 1 WHERE subject = ?", (node,))
        notes = {}
        for predicate, value in rows:
            name = predicate.rpartition("#")[2].rpartition("/")[2].rpartition(":")[2]
            text = from_sql(value)
            notes[name] = text if name in ("subject", "predicate", "object") else text[1:]
        return notes

    def _parts(self, prefix: str, key: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Iterate over the sentences or statements of a document: they must be numbered from 0."""
        start = f"{_PREFIXES[prefix]}{key}:"
        (count,) = self._connection.execute(
            "SELECT count(DISTINCT subject) FROM notes WHERE subject >= ? AND subject < ?", (start, start[:-1] + ";")
        ).fetchone()
        for number in range(count):
            notes = self._notes(f"{start}{number}")
            if not notes:
                raise DataError(
                    f"of {count} {prefix}s of document {_decode(key)!r}, <{start}{number}> is not there",
                    path=self._path,
                )
            yield number, notes

    def name(self, term: str) -> str:
        """Name an entity or relation."""
        kind, value = term[0], term[1:]
        if kind == '"':
            return value
        for prefix in (_PREFIXES["entity"], _PREFIXES["relation"]):
            if value.startswith(prefix):
                return self._decoded(value, prefix)
        label = self._connection.execute("SELECT label FROM labels WHERE subject = ?", (term,)).fetchone()
        if label is not None:
            return str(label[0])
        if kind == "_":
            return "_:" + value
        local = value.rstrip("/#")
        prefix = local[: max(local.rfind(mark) for mark in "#/:") + 1]
        return self._decoded(local, prefix)

    def _decoded(self, iri: str, prefix: str) -> str:
        try:
            return _decode(iri[len(prefix) :])
        except UnicodeDecodeError as error:
            raise DataError(f"<{iri}> is not percent-encoded UTF-8; encode it anew", path=self._path) from error
