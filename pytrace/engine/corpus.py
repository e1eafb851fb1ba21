"""A corpus of documents, kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.reader import ReadOptions
from pytrace.records import Document, Evidence

if TYPE_CHECKING:
    from pytrace.engine.loading import Engine

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
    def of(cls, corpus: Corpus | str | Path | Sequence[Document]) -> Corpus:
        """Return a corpus as it is, or make one of documents or of a path to some."""
        if isinstance(corpus, Corpus):
            return corpus
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
        from pytrace.methods.catalog import make_method
        from pytrace.methods.trace.trace import SMALL
        from pytrace.reader.evidence import triple_evidence

        # The settings for small models choose by the encoder and named heads alone.
        settings = [f"{name}={getattr(SMALL, name)}" for name in ("unit", "scoring", "length", "beams", "link_weight")]
        method = make_method(
            "trace",
            engine.model,
            lambda: engine.encoder,
            "tiny",
            # As wide as SMALL's: a chain that is not among the best yet may come to be.
            [*settings, f"chains={chains}", f"width={max(8, chains)}"],
        )
        (evidence,) = method.select([question], [self.nearest(question, engine)])
        return [triple_evidence([chain]) for chain in evidence.chains]
