"""`KnowledgeBase`: the triples of a knowledge graph, found by what they say, by their entities, and as paths."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.documents.read_report import ReadReport
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kg.building import Building
from pytrace.kg.columns import Columns, compile_triples
from pytrace.kg.graph_sources import read_source
from pytrace.kg.knowledge_base_files import BaseFiles, VectorType, is_knowledge_base
from pytrace.kg.names import verbalise
from pytrace.kg.triple_search import Sketch, make_sketch, search, search_int8
from pytrace.models.encoders.encoder import Encoder, Vectors, device_of, encode
from pytrace.records import Triple
from pytrace.storage.mapped_arrays import damage_told

# Sentences that are encoded together; always as many, since vectors differ by rounding from batch to batch.
_AT_ONCE = 256
# What was encoded is kept after so many seconds.
_KEPT_AFTER = 2.0


class KnowledgeBase:
    """The triples of a knowledge graph with the vectors of their sentences.

    Parameters
    ----------
    columns
        The triples, keys and names.
    vectors
        Float32 [n, dimension], of length 1: row i is the vector of ``text(i)``; or int8 with scales, as files have them.
    sketch
        Of the vectors, so that less of them has to be looked at; without one a search looks at all.
    files
        Where columns, vectors and sketch are mapped from; `open` gives them.
    device
        Where the vectors are searched. On a card, to which they are copied when they are first searched, every one is
        looked at, and the sketch is not needed.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> triples = [Triple("Ada_Foah", "country", "Ghana"), Triple("Ghana", "capital", "Accra")]
    >>> base = KnowledgeBase.in_memory(triples, HashEncoder())
    >>> len(base), base.text(0), base.entity("Accra")
    (2, 'Ada Foah country Ghana.', 2)
    """

    def __init__(
        self,
        columns: Columns,
        vectors: NDArray[Any],
        *,
        sketch: Sketch | None = None,
        files: BaseFiles | None = None,
        device: str = "cpu",
    ) -> None:
        self._columns = columns
        self._vectors = vectors
        self._sketch = sketch
        self._files = files
        self._kept = None
        if device != "cpu":
            whole = vectors.dtype.names is None
            self._kept = (
                DeviceVectors(vectors, device)
                if whole
                else DeviceVectors(vectors["vector"], device, scale=vectors["scale"])
            )

    @classmethod
    def in_memory(
        cls,
        triples: Iterable[Triple],
        encoder: Encoder,
        *,
        names: Mapping[str, str] | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
    ) -> KnowledgeBase:
        """Compile triples and encode their sentences.

        Parameters
        ----------
        triples
            Their heads, relations and tails are keys.
        encoder
            Makes the vectors, and says by its device where they are searched.
        names, aliases
            How to word keys, and what entities are also called: see `pytrace.kg.compile_triples`.

        Raises
        ------
        InputError
            There is no triple, or a part of one is empty.
        ModelError
            The encoder gives NaN, infinity or vectors of another shape.
        """
        columns = compile_triples(triples, names=names, aliases=aliases)
        vectors = np.concatenate(list(_encoded(columns, encoder, 0)))
        device = device_of(encoder)
        return cls(columns, vectors, sketch=make_sketch(vectors) if device == "cpu" else None, device=device)

    @classmethod
    def load(cls, source: str | os.PathLike[str], encoder: Encoder, *, format: str | None = None) -> KnowledgeBase:
        r"""Read a knowledge graph of any form into memory; for a directory that `build` made, open that.

        Parameters
        ----------
        source, format
            As `pytrace.kg.read_source` takes them, or the directory of a knowledge base.
        encoder
            Makes the vectors, or made them.

        Raises
        ------
        InputError
            The source cannot be read, has a fault, which is named with its line, or no triple.
        StoreError
            A knowledge base or graph on disk cannot be used.
        ModelError
            The encoder gives NaN, infinity or vectors of another shape.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from pytrace.models.scripted import HashEncoder
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "towns.tsv"
        >>> _ = path.write_text("Ada_Foah\tcountry\tGhana\n")
        >>> KnowledgeBase.load(path, HashEncoder()).text(0)
        'Ada Foah country Ghana.'
        """
        if is_knowledge_base(source):
            return cls.open(source, encoder)
        read = read_source(source, format=format)
        return cls.in_memory(read.triples, encoder, names=read.names, aliases=read.aliases)

    @classmethod
    def build(
        cls,
        source: str | os.PathLike[str],
        directory: str | os.PathLike[str],
        encoder: Encoder,
        *,
        progress: Callable[[int, int], object] | None = None,
        format: str | None = None,
        report: ReadReport | None = None,
        vectors: VectorType = "float32",
    ) -> KnowledgeBase:
        r"""Compile a knowledge graph of any form into a directory, and open that.

        The directory is there when all of it is, and not before. A build that was ended goes on where it was, if it is
        called again with a source of the same triples, in the same order and with the same names, and the same encoder:
        the vectors that it has are kept in ``.NAME.building`` beside the directory.

        Parameters
        ----------
        source, format, report
            As `pytrace.kg.read_source` takes them.
        directory
            Made if it is not there; it must be empty.
        encoder
            Makes the vectors.
        vectors
            How they are kept: "int8" takes a quarter of the room, and cosines differ by some 0.001.
        progress
            Called with the numbers of triples whose vectors are kept and of all, at first and whenever there are more.

        Raises
        ------
        InputError
            The source cannot be read, has a fault, which is named with its line, or no triple.
        StoreError
            Something is in the directory, another process is building it, or it cannot be written.
        ModelError
            The encoder gives NaN, infinity or vectors of another shape.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from pytrace.models.scripted import HashEncoder
        >>> place = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (place / "towns.tsv").write_text("Ada_Foah\tcountry\tGhana\n")
        >>> base = KnowledgeBase.build(place / "towns.tsv", place / "towns", HashEncoder())
        >>> len(KnowledgeBase.open(place / "towns", HashEncoder()))
        1
        """
        with Building(directory, encoder, vectors=vectors) as building:
            read = read_source(source, format=format, report=report)
            columns = compile_triples(read.triples, names=read.names, aliases=read.aliases)
            total = len(columns.triples)
            done = building.begin(columns)
            tell = progress or (lambda *_: None)
            tell(done, total)
            fresh: list[Vectors] = []
            kept = time.monotonic()
            for encoded in _encoded(columns, encoder, done):
                fresh.append(encoded)
                done += len(encoded)
                if done == total or time.monotonic() - kept > _KEPT_AFTER:
                    building.append(np.concatenate(fresh))
                    fresh.clear()
                    tell(done, total)
                    kept = time.monotonic()
            building.finish()
        return cls.open(directory, encoder)

    @classmethod
    def open(cls, directory: str | os.PathLike[str], encoder: Encoder) -> KnowledgeBase:
        """Open a knowledge base that `build` made: its files are mapped, and its columns compared with their checksum.

        Parameters
        ----------
        directory
            Where it is.
        encoder
            The one that it was built with, by its fingerprint.

        Raises
        ------
        StoreError
            There is no knowledge base, or one of another encoder or format, or a file is missing or was cut off.
        """
        files = BaseFiles(directory, encoder)
        return cls(files.columns, files.vectors, sketch=files.sketch, files=files, device=device_of(encoder))

    @property
    def columns(self) -> Columns:
        """The triples, keys and names; `StoreError` where their file has become shorter, which would kill the process."""
        return self._columns if self._files is None else self._files.columns

    def vectors(self, numbers: NDArray[np.int64]) -> Vectors:
        """Return the vectors of some triples, float32 [n, dimension]; `StoreError` where their file has become shorter."""
        rows = self._rows()[numbers]
        if rows.dtype.names is None:
            return np.asarray(rows)
        return np.asarray(rows["vector"] * rows["scale"][:, None], dtype=np.float32)

    def _rows(self) -> NDArray[Any]:
        return self._vectors if self._files is None else self._files.vectors

    def verify(self) -> None:
        """Read the files of a knowledge base on disk and compare their checksums.

        Raises
        ------
        StoreError
            A byte has changed since it was written.
        """
        if self._files is not None:
            self._files.verify()

    def __len__(self) -> int:
        """Count the triples."""
        return len(self.columns.triples)

    def triple(self, number: int) -> Triple:
        """Return a triple by its keys."""
        columns = self.columns
        head, relation, tail = columns.triples[number].tolist()
        return Triple(columns.entity_keys[head], columns.relation_keys[relation], columns.entity_keys[tail])

    def named(self, number: int) -> Triple:
        """Return a triple by its names."""
        columns = self.columns
        head, relation, tail = columns.triples[number].tolist()
        return Triple(columns.entity_names[head], columns.relation_names[relation], columns.entity_names[tail])

    def text(self, number: int) -> str:
        """Return the sentence of a triple, which its vector is of."""
        return _text(self.columns, number)

    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Find the triples whose sentences are most like some vectors.

        Parameters
        ----------
        vectors
            Float32 [n, dimension], of length 1.
        k
            How many a vector.

        Raises
        ------
        ValueError, TypeError
            As `pytrace.kernels.top_k`.
        StoreError
            A file has become shorter since it was opened.

        Returns
        -------
        scores, numbers
            Cosines, float32 [n, k], best first, and the triples' numbers, int64; -inf and -1 beyond the triples that
            there are.
        """
        stored = self._rows()  # looked at first, so that no file that has become shorter is copied to a card
        with damage_told(self.verify):
            if self._kept is not None:
                return self._kept.top_k(np.asarray(vectors, dtype=np.float32), k)
            sketch = self._sketch if self._files is None else self._files.sketch
            read = None if self._files is None else self._files.read_vectors
            if stored.dtype.names is not None:
                return search_int8(vectors, stored, k, read=read)
            return search(vectors, stored, k, sketch, read=read)

    def entity(self, key: str) -> int | None:
        """Return the number of the entity with a key, or None."""
        return self.columns.entity_rows.find(self.columns.entity_keys, key)

    def find_entities(self, name: str, *, limit: int = 5, cutoff: float = 60.0) -> list[tuple[int, float]]:
        """Find the entities that a name most likely means: see `EntityIndex.find`.

        Examples
        --------
        >>> from pytrace.models.scripted import HashEncoder
        >>> base = KnowledgeBase.in_memory([Triple("Ada_Foah", "country", "Ghana")], HashEncoder())
        >>> base.find_entities("ada foa")[0][0] == base.entity("Ada_Foah")
        True
        """
        return self.columns.entity_index.find(name, limit=limit, cutoff=cutoff)

    def relation(self, key: str) -> int | None:
        """Return the number of the relation with a key, or None."""
        return self.columns.relation_rows.find(self.columns.relation_keys, key)

    def with_head(self, entity: int) -> NDArray[np.int32]:
        """Return the numbers of the triples that start at an entity, ascending."""
        return _row(self.columns.by_head, self.columns.head_ends, entity)

    def with_tail(self, entity: int) -> NDArray[np.int32]:
        """Return the numbers of the triples that end at an entity, ascending."""
        return _row(self.columns.by_tail, self.columns.tail_ends, entity)

    def number(self, triple: Triple) -> int | None:
        """Return the number of a triple given by its keys, or None if it is no fact of the graph.

        Examples
        --------
        >>> from pytrace.models.scripted import HashEncoder
        >>> base = KnowledgeBase.in_memory([Triple("Ghana", "capital", "Accra")], HashEncoder())
        >>> base.number(Triple("Ghana", "capital", "Accra")), base.number(Triple("Accra", "capital", "Ghana"))
        (0, None)
        """
        head, relation, tail = self.entity(triple.head), self.relation(triple.relation), self.entity(triple.tail)
        if head is None or relation is None or tail is None:
            return None
        rows = self.with_head(head)
        same = rows[(self.columns.triples[rows, 1:] == (relation, tail)).all(axis=1)]
        return int(same[0]) if len(same) else None


def _row(order: NDArray[np.int32], ends: NDArray[np.int64], entity: int) -> NDArray[np.int32]:
    return order[int(ends[entity - 1]) if entity else 0 : int(ends[entity])]


def _text(columns: Columns, number: int) -> str:
    head, relation, tail = columns.triples[number].tolist()
    return verbalise(columns.entity_names[head], columns.relation_names[relation], columns.entity_names[tail])


def _encoded(columns: Columns, encoder: Encoder, first: int) -> Iterator[Vectors]:
    """Encode the sentences of the triples from one on, batch by batch, and let nothing broken pass."""
    total = len(columns.triples)
    for start in range(first, total, _AT_ONCE):
        texts = [_text(columns, number) for number in range(start, min(start + _AT_ONCE, total))]
        yield encode(encoder, texts, "passage")
