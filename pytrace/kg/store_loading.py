"""Any knowledge graph into an RDF store in memory, with a hash of what it holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph as ox

from pytrace.errors import InputError
from pytrace.kg.columns import Columns
from pytrace.kg.knowledge_base_files import COLUMNS, BaseFiles, is_knowledge_base
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.kg.terms import LABELS, node_of
from pytrace.triples.graph.exchange import input_errors


def load_store(path: Path, *, format: str | None = None) -> tuple[KnowledgeStore, str]:
    """Load a file, a graph of `pytrace kg build` or a knowledge base of `pytrace kg index`."""
    if is_knowledge_base(path):
        if format is not None:
            raise InputError(f"{path} is a directory, which has no format {format!r}; leave out the format")
        columns = BaseFiles(path, None).columns
        return _store_of(columns, path), _hash_of_file(path / COLUMNS)
    store = KnowledgeStore.load(path, format=format)
    return store, _hash_of_triples(store.store) if path.is_dir() else _hash_of_file(path)


def _store_of(columns: Columns, path: Path) -> KnowledgeStore:
    """Take the triples of a knowledge base, and as labels the names that its keys do not tell."""
    entities = [node_of(key) for key in columns.entity_keys]
    relations = [node_of(key, relation=True) for key in columns.relation_keys]

    def labels() -> Iterator[ox.Quad]:
        worded = (
            (entities, columns.entity_keys, columns.entity_names, entity_name),
            (relations, columns.relation_keys, columns.relation_names, relation_name),
        )
        for nodes, keys, names, in_words in worded:
            for node, key, name in zip(nodes, keys, names, strict=True):
                if name != in_words(key) and _is_text(name):
                    yield ox.Quad(node, LABELS[0], ox.Literal(name))

    store = ox.Store()
    with input_errors(path):
        store.bulk_extend(
            ox.Quad(entities[head], relations[relation], entities[tail])
            for head, relation, tail in columns.triples.tolist()
        )
        store.bulk_extend(labels())
    return KnowledgeStore(store)


def _is_text(name: str) -> bool:
    """Whether RDF can hold it: lone surrogates it cannot."""
    return name.encode("utf-8", "replace").decode() == name


def _hash_of_file(path: Path) -> str:
    with input_errors(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_of_triples(store: ox.Store) -> str:
    """Return a hash that does not depend on their order: the sum of the hashes of all."""
    total = sum(int.from_bytes(hashlib.sha256(str(quad).encode()).digest(), "little") for quad in store)
    return (total % (1 << 256)).to_bytes(32, "little").hex()
