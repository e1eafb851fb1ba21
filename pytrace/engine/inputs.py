"""What commands answer from: documents, graphs of triples, and indexes of sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pytrace.documents.reader import ReadOptions
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.documents import ReadReport
    from pytrace.engine.loading import Engine
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Document
    from pytrace.retrieval import SentenceIndex


def read_corpus(
    docs: Sequence[Path],
    kg: Path | None,
    *,
    needed: MethodName,
    report: ReadReport | None = None,
    at_first: Callable[[], object] = lambda: None,
    **options: Unpack[ReadOptions],
) -> list[Document]:
    """Read the documents that a method needs, as `read_documents` does, or those of a graph that match the filters.

    `at_first` is called when the first document has been read.
    """
    from pytrace.documents import read_documents
    from pytrace.documents.filters import matches, parse_filters
    from pytrace.methods.catalog import METHODS
    from pytrace.triples.graph import TripleStore

    if docs:
        documents: list[Document] = []
        for document in read_documents(docs, report=report, **options):
            if not documents:
                at_first()
            documents.append(document)
        return documents
    if kg is not None:
        with TripleStore.open(kg, mode="read") as graph:
            at_first()
            filters = parse_filters(options.get("where", ()))
            return [document for document in graph.documents() if matches(document, filters)]
    if "documents" not in METHODS[needed.name].needs:
        return []
    raise InputError(f"{needed.name} has nothing to answer from; give --docs FILE|FOLDER, --index DIR or --kg DIR")


def open_sentence_index(directory: Path, documents: Sequence[Document], models: Engine) -> SentenceIndex:
    """Open an index of sentences, building it if there is none, and add the documents that it lacks."""
    from pytrace.retrieval import SentenceIndex
    from pytrace.retrieval.index_files import MANIFEST

    if not documents or (directory / MANIFEST).exists():
        # One that lacks nothing is only read, which may be all that its place allows.
        index = SentenceIndex.open(directory, models.encoder)
        if {document.id for document in documents} <= index.document_ids():
            return index
        index.close()
    # An empty directory may have been made for the index.
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        index = SentenceIndex.build(directory, (), models.encoder)
    else:
        index = SentenceIndex.open(directory, models.encoder, mode="write")
    try:
        index.add_documents(documents)
    except BaseException:
        # Its lock would keep others out for as long as this process lives.
        index.close()
        raise
    return index
