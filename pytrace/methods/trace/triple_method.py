"""What TRACE and its ablation without chains share: where triples come from, and the graph and index that hold them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, ClassVar, Generic, Literal, TypeVar, cast

import msgspec

from pytrace.errors import DataError, InputError, StoreError
from pytrace.methods.base import Count, Documents, Method, Positive, Selected, Stages
from pytrace.methods.trace.ranker import TripleIndex
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.evidence import document_evidence, triple_evidence
from pytrace.reader.prompts import OpenTripleDemonstration, TripleDemonstration
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.records import Chain, ChainSearch, Document, Evidence, GraphCounts, Unit
from pytrace.retrieval.searching import Search
from pytrace.triples.extraction import (
    DocumentExtractor,
    Extraction,
    Extractor,
    Heads,
    PhraseExtractor,
    SentenceExtractor,
    build_graph,
)
from pytrace.triples.graph import TripleStore, describe_triples
from pytrace.triples.kg_generator import Labelled, LanguageModelExtractor

UnitKind = Literal["triple", "sentence", "document"]


class UnitSettings(ReaderSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a method's units come from and how they are read."""

    # What chains are made of; sentences and documents are the paper's ablations and need no extraction.
    unit: UnitKind = "triple"
    # What the reader sees: the chains' triples (TRACE-Triple) or the documents they vote for (TRACE-Doc).
    reader: Literal["triple", "document"] = "triple"
    # Who makes triples: the language model ("written", the paper's KG generator), or rules that take the names, dates,
    # numbers and other content phrases of a document ("phrases", English), which costs no model and invents nothing.
    extraction: Literal["written", "phrases"] = "written"
    # What triples have as head: the document's title (the paper's), or what each fact is about ("open"); "auto" opens
    # them in passages of longer documents and in documents without a title.
    heads: Heads = "auto"
    # For the KG generator: how many labelled documents it is shown, whether they are chosen by similarity, and a file of
    # such documents in place of ours.
    triple_demonstrations: Count = 3
    adaptive_triple_demonstrations: bool = True
    triple_demonstrations_file: str | None = None
    # Triples whose tail (or open head) the document does not support this well are dropped (partial ratio, 0 to 100).
    grounding: Annotated[float, msgspec.Meta(ge=0, le=100)] = 80.0
    # Let the model write only tails that are spans of the text.
    spans: bool = False
    # For TRACE-Doc: the most documents, all voted ones if None.
    reader_documents: Positive | None = None


_Settings = TypeVar("_Settings", bound=UnitSettings)


class TripleMethod(Method, Generic[_Settings]):
    """What methods share that rank the triples of documents: an extractor, a graph, an index of triples and a reader."""

    known_as: ClassVar[str]
    default: ClassVar[UnitSettings]
    settings: _Settings

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder,
        settings: _Settings | None = None,
        *,
        graph: TripleStore | None = None,
        name: str = "",
        extracted: Callable[[Extraction], object] | None = None,
        search: Search | None = None,
        cross_encoder: Callable[[], CrossEncoder] | None = None,
    ) -> None:
        self.settings = settings or cast(_Settings, self.default)
        self.name = name or self.known_as
        self._model = model
        self._encoder = encoder
        self._extracted = extracted
        self._search = search
        self._cross_encoder = cross_encoder
        self.extractor = make_extractor(model, encoder, self.settings)
        self.graph = graph if graph is not None else TripleStore(recipe=self.extractor.recipe)
        self._reader = make_reader(model, self.settings)
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Make what ranks and selects, as the settings say."""

    def _index(self, documents: Documents, stages: Stages) -> tuple[list[list[Unit]], TripleIndex]:
        """Return the triples of each question's documents, extracted where the graph lacks them, and their index."""
        with stages.stage("triples"):
            read = [document for sources in documents for document in sources]
            extract_missing(self.graph, self.extractor, read, done=self._extracted)
            triples = [self.graph.triples(sources) for sources in documents]
        with stages.stage("rank"):
            index = TripleIndex(triples, self._encoder)
        return triples, index

    def _selected(
        self, chains: Sequence[list[Chain]], triples: Sequence[list[Unit]], documents: Documents
    ) -> list[Selected]:
        """Return what the reader sees of each question's chains: their triples, or the documents that they vote for."""
        selected = []
        for searched_chains, searched, sources in zip(chains, triples, documents, strict=True):
            if self.settings.reader == "triple":
                evidence = triple_evidence(searched_chains)
            else:
                by_id = {document.id: document for document in sources}
                evidence = document_evidence(searched_chains, by_id, most=self.settings.reader_documents)
            selected.append(Selected(with_graph(evidence, searched)))
        return selected


def extract_missing(
    graph: TripleStore,
    extractor: Extractor,
    documents: Sequence[Document],
    *,
    done: Callable[[Extraction], object] | None = None,
) -> None:
    """Extract what a graph lacks of documents, those of all questions in shared batches."""
    if graph.writable:
        build_graph(graph, extractor, documents, done=done)
    elif missing := graph.missing(documents):
        raise StoreError(
            f"{graph.location} has no triples of {len(missing)} of the {len(documents)} documents, first of "
            f"{missing[0].title!r}; extract them with 'pytrace kg build', which goes on with --resume"
        )


def make_extractor(model: LanguageModel, encoder: Encoder, settings: UnitSettings) -> Extractor:
    """Make the extractor that the settings ask for."""
    if settings.unit == "sentence":
        return SentenceExtractor()
    if settings.unit == "document":
        return DocumentExtractor()
    if settings.extraction == "phrases":
        return PhraseExtractor(heads=settings.heads)
    labelled, open_labelled = _labelled(settings)
    return LanguageModelExtractor(
        model,
        encoder=encoder if settings.adaptive_triple_demonstrations else None,
        demonstrations=settings.triple_demonstrations,
        labelled=labelled,
        open_labelled=open_labelled,
        heads=settings.heads,
        grounding=settings.grounding,
        spans=settings.spans,
    )


def _labelled(settings: UnitSettings) -> tuple[Labelled, Labelled]:
    """Return the labelled documents with the title as head, and those with open heads."""
    ours: tuple[Labelled, Labelled] = TripleDemonstration.load(), OpenTripleDemonstration.load()
    path = settings.triple_demonstrations_file
    if path is None:
        available = {"title": len(ours[0]), "open": len(ours[1])}
        check_count(
            "triple_demonstrations",
            settings.triple_demonstrations,
            available.get(settings.heads, max(available.values())),
        )
        return ours
    rows = OpenTripleDemonstration.load(path=path)
    titled, opened = [row for row in rows if row.about_title], [row for row in rows if not row.about_title]
    if settings.heads == "title" and not titled:
        raise DataError("has no text whose title is the head of all its triples; add one, or use heads=open", path=path)
    if settings.heads == "open" and not opened:
        raise DataError("has only texts whose title is every head; add another, or use heads=title", path=path)
    return titled or ours[0], opened or ours[1]


def check_count(name: str, wanted: int, available: int) -> None:
    """Refuse to show more labelled examples than there are."""
    if wanted > available:
        raise InputError(
            f"{name} is {wanted}, but there are only {available} labelled ones to show; ask for at most {available}"
        )


def with_graph(evidence: Evidence, triples: Iterable[Unit]) -> Evidence:
    """Return the evidence with the counts of the graph that its chains were searched in (TRACE, Table 5)."""
    counted = describe_triples(triples)
    graph = GraphCounts(counted.entities, counted.triples, counted.density)
    return msgspec.structs.replace(evidence, derivation=ChainSearch(evidence.chains, graph))
