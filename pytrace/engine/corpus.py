"""A corpus of documents: in memory, or in an index on disk that is made once and searched by every question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.reader import ReadOptions
from pytrace.records import Document, Evidence
from pytrace.storage.files import real_path

if TYPE_CHECKING:
    from pytrace.engine.loading import Engine
    from pytrace.methods.ranking import Search, SearchName
    from pytrace.retrieval.hops import HopSearch, PassageRanking
    from pytrace.retrieval.passages import PassageIndex, VectorType

MOST_DOCUMENTS = 20
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
        self.documents = tuple(documents)

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

    def nearest(self, question: str, engine: Engine, count: int = MOST_DOCUMENTS) -> list[Document]:
        """Return the documents that a question is asked of: all, or from a larger corpus those nearest to it."""
        if len(self.documents) <= count:
            return list(self.documents)
        from pytrace.retrieval import nearest_documents

        return nearest_documents(question, self.documents, engine.encoder, count)

    def finder(self, engine: Engine, *, where: Sequence[str] = ()) -> Search | None:
        """Return what methods search while they think; None where they are given all that there is."""
        del engine, where
        return None

    def search(self, question: str, engine: Engine, *, chains: int = 5) -> list[Evidence]:
        """Find evidence across documents without a language model: chains of sentences by TRACE's beam search.

        Parameters
        ----------
        question
            The question.
        engine
            Whose encoder ranks the sentences.
        chains
            How many chains, at most.

        Returns
        -------
        list of Evidence
            One chain each, the best first.

        Raises
        ------
        InputError
            The question is empty.
        """
        from pytrace.methods.abilities import UNABLE
        from pytrace.methods.catalog import make_method
        from pytrace.reader.evidence import triple_evidence

        # The settings without a language model's abilities choose by the encoder and named heads alone.
        wide = max(8, chains)  # a chain that is not among the best yet may come to be
        settings = [f"chains={chains}", f"width={wide}"]
        method = make_method("trace", engine.model, lambda: engine.encoder, UNABLE, settings)
        (evidence,) = method.select([question], [self.nearest(question, engine)])
        return [triple_evidence([chain]) for chain in evidence.chains]


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

    def rank(
        self, questions: Sequence[str], engine: Engine, count: int = MOST_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[PassageRanking]:
        """Find the passages that answer each question, one alone or several together; see `pytrace.retrieval.hops`.

        Parameters
        ----------
        questions
            The questions, all of which are encoded and searched together.
        engine
            Whose encoder encodes them: the one that the index was made with.
        count
            Passages, at most.
        where
            Filters that their documents must match, such as ``date>=2020``.
        """
        return self._search(engine).search(questions, count, where=where)

    def nearest(
        self, question: str, engine: Engine, count: int = MOST_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[Document]:
        """Return the passages that answer a question, best first."""
        (ranking,) = self.rank([question], engine, count, where=where)
        return self.index.passages(ranking.rows)

    def find(
        self,
        queries: Sequence[str],
        engine: Engine,
        retriever: SearchName,
        count: int,
        *,
        where: Sequence[str] = (),
    ) -> list[list[Document]]:
        """Return the first passages of the whole index for each query, by a retriever of one hop, or across hops.

        Parameters
        ----------
        queries, engine, count, where
            As for `rank`.
        retriever
            "dense": by the vectors of passages; "bm25": by words, those alone that share one with the query; "rrf": by the ranks
            of both; "given": in the index's own order, that of `rank`; "together": of these only those that answer together.
        """
        from pytrace.models.encoders.encoder import encode
        from pytrace.retrieval.fusion import DEPTH, reciprocal_ranks
        from pytrace.storage.mapped_arrays import damage_told

        rankings: Iterable[Iterable[int]]
        if retriever in ("given", "together"):
            found = self.rank(queries, engine, count, where=where)
            rankings = [each.together(count) if retriever == "together" else each.rows for each in found]
        else:
            depth = max(count, DEPTH) if retriever == "rrf" else count
            mask = self.index.mask(where)
            orders = []
            with damage_told(self.index.verify):
                if retriever != "bm25":
                    orders.append(self.index.nearest(encode(engine.encoder, queries, "query"), depth, mask=mask)[1])
                if retriever != "dense":
                    orders.append(self.index.words.top(queries, depth, mask=mask)[1])
            rankings = [
                list(reciprocal_ranks([rows[rows >= 0].tolist() for rows in of_query]))[:count]
                for of_query in zip(*orders, strict=True)
            ]
        return [self.index.passages(list(rows)) for rows in rankings]

    def finder(self, engine: Engine, *, where: Sequence[str] = ()) -> Search:
        """Return what methods search while they think, `find` with this engine."""

        def search(queries: Sequence[str], retriever: SearchName, count: int) -> list[list[Document]]:
            return self.find(queries, engine, retriever, count, where=where)

        return search

    def search(self, question: str, engine: Engine, *, chains: int = 5, where: Sequence[str] = ()) -> list[Evidence]:
        """Find evidence across the whole index without a language model: chains of one to four passages.

        Parameters
        ----------
        question, engine, chains
            As for a corpus in memory.
        where
            As for `rank`.

        Returns
        -------
        list of Evidence
            One chain each, the likeliest first: its passages as context, and for each the sentence that led on or answers.
        """
        from pytrace.retrieval.hops import chain_evidence

        (ranking,) = self.rank([question], engine, max(chains, 1), where=where)
        return [chain_evidence(question, chain, self.index.passages(chain.rows)) for chain in ranking.chains[:chains]]

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def _search(self, engine: Engine) -> HopSearch:
        from pytrace.retrieval.hops import HopSearch

        if self._searcher is None or self._searcher[0] is not engine:
            self._searcher = engine, HopSearch(self.index, engine.encoder)
        return self._searcher[1]
