"""A corpus of documents: in memory, or in an index on disk that is built once and searched by every question."""

from __future__ import annotations

import functools
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.reader import ReadOptions
from pytrace.errors import InputError
from pytrace.records import Document
from pytrace.storage.files import real_path, temporary_files

if TYPE_CHECKING:
    from pytrace.engine.loading import Engine
    from pytrace.retrieval.hops import HopSearch, PassageRanking
    from pytrace.retrieval.passages import PassageIndex, VectorType
    from pytrace.retrieval.searching import Found, Search, SearchName

MAX_DOCUMENTS = 20
"""From a larger corpus, a method is given the documents nearest to the question; more bring a small reader nothing."""


class Corpus:
    """Documents that questions are asked of, kept in memory.

    Parameters
    ----------
    documents
        The documents, in any order.

    Examples
    --------
    >>> corpus = Corpus([Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",))])
    >>> len(corpus), next(iter(corpus)).title
    (1, 'Ada Foah')
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        try:
            self.documents = tuple(documents)
        except TypeError:
            raise InputError(
                f"{documents!r:.80} is not a list of documents; give Document records, or a path"
            ) from None
        for document in self.documents:
            if not isinstance(document, Document):
                raise InputError(
                    f"{document!r:.80} is not a document; make one with pytrace.Document(id, title, sentences)"
                )
        self._indexed: tuple[Engine, IndexedCorpus] | None = None
        self._removers: list[weakref.finalize[..., Corpus]] = []
        self._indexing = threading.Lock()

    @classmethod
    def read(cls, path: str | Path, *, report: ReadReport | None = None, **options: Unpack[ReadOptions]) -> Corpus:
        """Read a file or a folder of documents, long ones as passages.

        Parameters
        ----------
        path
            A file of any format that `read_documents` knows, or a folder of such files.
        report
            Told what was passed over, and why.
        **options
            `words` and `overlap` of passages, `language`, filters (`where`) and so on, as for `read_documents`.

        Returns
        -------
        Corpus
            The passages in the order of their paths.

        Raises
        ------
        DataError
            A file cannot be read.
        """
        return cls(read_documents(path, report=report, **options))

    @classmethod
    def open(
        cls, directory: str | Path, *, processes: int = 0, threads: int = 1, ray_address: str | None = None
    ) -> IndexedCorpus:
        """Open an index that `build`, or ``pytrace index``, has made; what a writer does later is not seen.

        Parameters
        ----------
        directory
            Of the index.
        processes, threads, ray_address
            Ray actors that search it, how many threads each has, and the cluster that they run on, by default one on this machine; 0
            processes: this process searches. What is found is the same.

        Raises
        ------
        StoreError
            There is none, it has not been built to its end, or its files are damaged.
        """
        if processes:
            from pytrace.engine.spread_index import SpreadIndex

            return IndexedCorpus(SpreadIndex(directory, processes=processes, threads=threads, address=ray_address))
        from pytrace.retrieval.passages import PassageIndex

        return IndexedCorpus(PassageIndex(directory))

    @classmethod
    def build(
        cls,
        directory: str | Path,
        documents: str | Path | Iterable[Document],
        engine: Engine,
        *,
        vectors: VectorType | None = None,
        kg: str | Path | None = None,
        report: ReadReport | None = None,
        **options: Unpack[ReadOptions],
    ) -> IndexedCorpus:
        """Index documents in a directory, or bring the index there up to date with them, and open it.

        Parameters
        ----------
        directory
            Of the index. What was encoded for it before is not encoded again.
        documents
            A file or folder of documents, or documents.
        engine
            Whose encoder encodes the passages.
        vectors
            How vectors of a new index are kept: "float32" (the default), "float16" (half the disk) or "int8" (a quarter).
        kg
            A graph of triples of the same passages (``pytrace kg build``): they are known by the heads of their triples, too.
        report, **options
            As for `read`, where documents are read.

        Raises
        ------
        DataError, StoreError
            Documents cannot be read, or the index cannot be written; it then stays as it was.
        """
        from pytrace.engine.named_passages import name_passages
        from pytrace.retrieval.passages import IndexWriter

        reading: dict[str, Any] = dict(options)
        if isinstance(documents, str | Path):
            reading["docs"] = [str(documents)]
            documents = read_documents(documents, report=report, **options)
        if kg is not None:
            reading["kg"] = str(real_path(Path(kg)))
            documents = name_passages(documents, Path(kg))
        with IndexWriter(directory, engine.encoder, create=True, vectors=vectors, reading=reading) as writer:
            writer.add(documents)
            writer.remove_unseen()
            writer.commit()
        return cls.open(directory)

    @classmethod
    def of(cls, corpus: Corpus | str | Path | Sequence[Document]) -> Corpus:
        """Return a corpus as it is, or make one of documents, or of a path to some or to an index."""
        if isinstance(corpus, Corpus):
            return corpus
        if isinstance(corpus, str | Path) and (Path(corpus) / "passages.json").is_file():
            return cls.open(corpus)
        return cls.read(corpus) if isinstance(corpus, str | Path) else cls(corpus)

    def __len__(self) -> int:
        """Count the documents."""
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        """Iterate over the documents."""
        return iter(self.documents)

    def passage(self, id: str) -> Document | None:
        """Return a passage by its id; None if there is none."""
        return next((document for document in self.documents if document.id == id), None)

    def index_for(self, engine: Engine) -> IndexedCorpus:
        """Return the index that searches this corpus: built in a private temporary directory on first use, removed with the corpus."""
        with self._indexing:
            if self._indexed is None or self._indexed[0] is not engine:
                folder = tempfile.TemporaryDirectory(prefix="pytrace-")
                try:
                    with temporary_files():
                        indexed = self.build(Path(folder.name) / "index", distinct_documents(self.documents), engine)
                except BaseException:
                    folder.cleanup()
                    raise
                # The files are closed before the directory goes.
                self._removers.append(weakref.finalize(self, _discard, indexed.index, folder))
                self._indexed = engine, indexed
            return self._indexed[1]

    def search(
        self, questions: Sequence[str], engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[Found]:
        """Find the passages that answer each question, one alone or several together, without a language model.

        Parameters
        ----------
        questions
            The questions, encoded and searched together.
        engine
            Engine that embeds the questions; its encoder must match the index.
        count
            Maximum number of passages per question.
        where
            Filters that their documents must match, such as ``date>=2020``.

        Returns
        -------
        list of Found
            One per question: the ranking with its chains, and the passages that it names.
        """
        from pytrace.retrieval.searching import Found

        index = self.index_for(engine).index
        found = []
        for ranking in self.rank(questions, engine, count, where=where):
            rows = [*ranking.rows, *(row for chain in ranking.chains for row in chain.rows)]
            rows = list(dict.fromkeys([*rows, *(row for row, _ in ranking.seeds)]))
            found.append(Found(ranking, dict(zip(rows, index.passages(rows), strict=True))))
        return found

    def rank(
        self, questions: Sequence[str], engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[PassageRanking]:
        """Rank the passages for each question by row of the index, as `search` does, without reading them."""
        return self.index_for(engine).rank(questions, engine, count, where=where)

    def nearest(
        self, question: str, engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[Document]:
        """Return the passages that answer a question, best first; all in their order if there are no more than `count`."""
        if len(self) <= count and not where:
            return list(self)
        (ranking,) = self.rank([question], engine, count, where=where)
        return self.index_for(engine).index.passages(ranking.rows)

    def find(
        self,
        queries: Sequence[str],
        engine: Engine,
        retriever: SearchName,
        count: int,
        *,
        where: Sequence[str] = (),
    ) -> list[list[Document]]:
        """Return the first passages of the corpus for each query, by a retriever of one hop, or across hops.

        Parameters
        ----------
        queries, engine, count, where
            As for `search`.
        retriever
            "dense": by vectors; "bm25": by words, only passages that share one with the query; "rrf": by the ranks of both; "given": in
            the order of `rank`; "together": only those of them that answer together.
        """
        from pytrace.models.encoders.encoder import encode
        from pytrace.retrieval.fusion import DEPTH, reciprocal_ranks
        from pytrace.storage.mapped_arrays import damage_told

        index = self.index_for(engine).index
        rankings: Iterable[Iterable[int]]
        if retriever in ("given", "together"):
            found = self.rank(queries, engine, count, where=where)
            rankings = [each.together(count) if retriever == "together" else each.rows for each in found]
        else:
            depth = max(count, DEPTH) if retriever == "rrf" else count
            mask = index.mask(where)
            orders = []
            with damage_told(index.verify):
                if retriever != "bm25":
                    orders.append(index.nearest(encode(engine.encoder, queries, "query"), depth, mask=mask)[1])
                if retriever != "dense":
                    orders.append(index.words.top(queries, depth, mask=mask)[1])
            rankings = [
                list(reciprocal_ranks([rows[rows >= 0].tolist() for rows in of_query]))[:count]
                for of_query in zip(*orders, strict=True)
            ]
        return [index.passages(list(rows)) for rows in rankings]

    def finder(self, engine: Engine, *, where: Sequence[str] = ()) -> Search:
        """Return the search that methods use while they think: `find` with this engine."""
        return functools.partial(_find, self, engine, tuple(where))

    def close(self) -> None:
        """Remove the temporary index, if there is one; the next search builds it again."""
        with self._indexing:
            self._indexed = None
            while self._removers:
                self._removers.pop()()


class IndexedCorpus(Corpus):
    """A corpus in an index on disk, opened by `Corpus.open`: searched as a whole, and read a passage at a time.

    Parameters
    ----------
    index
        The index, which is closed with the corpus.
    """

    def __init__(self, index: PassageIndex) -> None:
        self.index = index
        self._searcher: tuple[Engine, HopSearch] | None = None

    def __len__(self) -> int:
        """Count the passages."""
        return len(self.index)

    def __iter__(self) -> Iterator[Document]:
        """Iterate over the passages."""
        return map(self.index.passage, range(len(self.index)))

    def passage(self, id: str) -> Document | None:
        """Return a passage by its id; None if there is none."""
        row = self.index.row_of(id)
        return None if row is None else self.index.passage(row)

    def index_for(self, engine: Engine) -> IndexedCorpus:
        """Return this corpus."""
        del engine
        return self

    def rank(
        self, questions: Sequence[str], engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[PassageRanking]:
        """Rank the passages for each question by row, as `search` does, without reading them."""
        return self._search(engine).search(questions, count, where=where)

    def nearest(
        self, question: str, engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[Document]:
        """Return the passages that answer a question, best first."""
        (ranking,) = self.rank([question], engine, count, where=where)
        return self.index.passages(ranking.rows)

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def _search(self, engine: Engine) -> HopSearch:
        from pytrace.retrieval.hops import HopSearch

        if self._searcher is None or self._searcher[0] is not engine:
            self._searcher = engine, HopSearch(self.index, engine.encoder)
        return self._searcher[1]


def _find(
    corpus: Corpus, engine: Engine, where: Sequence[str], queries: Sequence[str], retriever: SearchName, count: int
) -> list[list[Document]]:
    return corpus.find(queries, engine, retriever, count, where=where)


def distinct_documents(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the documents with text, each once, passages of one document next to each other.

    Raises
    ------
    InputError
        If two documents have one id, but not one title and text.
    """
    by_document: dict[str, dict[str, Document]] = {}
    for document in documents:
        if document.text.strip():
            name = document.id if document.origin is None else document.origin.document
            known = by_document.setdefault(name, {}).setdefault(document.id, document)
            if (known.title, known.text) != (document.title, document.text):
                raise InputError(
                    f"two documents have the id {document.id!r:.80}, but not the same text; give each an id of its own"
                )
    for passages in by_document.values():
        yield from passages.values()


def _discard(index: PassageIndex, folder: tempfile.TemporaryDirectory[str]) -> None:
    index.close()
    folder.cleanup()
