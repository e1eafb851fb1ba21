"""Baselines that read: what a method must beat. Those that think stand in `pytrace.methods.cot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytrace.methods.base import Documents, Method, MethodRow, Need, Parts, Positive, Selected, Stages, register
from pytrace.methods.ranking import Rank, rank_by, rank_by_cross_encoder, required
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.evidence import all_documents
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.retrieval import RetrieverName
from pytrace.retrieval.searching import Search


class RetrievalSettings(ReaderSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of a RAG that retrieves."""

    # How many documents the reader sees.
    top: Positive = 5


class DenseSettings(RetrievalSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of a RAG that retrieves by vectors."""

    # Encode each document as one passage, as the bi-encoders of TRACE's Table 1 do; what is longer than the encoder
    # takes has no say. Otherwise a document is as near as its nearest sentence. An index has vectors of passages, always.
    whole_documents: bool = False


class Rag(Method):
    """Answers from all documents in their given order (TRACE, section 4.1: "w. all documents", the vanilla RAG)."""

    def __init__(self, model: LanguageModel, settings: ReaderSettings | None = None, *, name: str = "rag") -> None:
        self.name = name
        self._model = model
        self._reader = make_reader(model, settings or ReaderSettings())

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        del questions, stages
        return [Selected(all_documents(listed)) for listed in documents]


class RetrievalRag(Method):
    """Answers from the documents that a retriever, or anything else that ranks, puts first, of a question's own or of a corpus."""

    # "What External Knowledge is Preferred by LLMs?", section 5 (the baseline RAG with its top 5). TRACE, section 4.1
    # and appendix C.2: documents ranked by bi-encoders and cross-encoders, the first M of them read.

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder | None,
        settings: RetrievalSettings | None = None,
        *,
        retriever: RetrieverName = "dense",
        name: str = "",
        rank: Rank | None = None,
        search: Search | None = None,
    ) -> None:
        self.settings = settings or RetrievalSettings()
        self.name = name or retriever
        self._model = model
        whole = isinstance(self.settings, DenseSettings) and self.settings.whole_documents
        self._rank = rank or rank_by(retriever, encoder, whole_documents=whole, search=search)
        self._reader = make_reader(model, self.settings)

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        with stages.stage("retrieve"):
            return [Selected(all_documents(ranked)) for ranked in self._rank(questions, documents, self.settings.top)]


GOLD = "gold"
"""Answers from the documents that support the gold answer and no others: the ceiling of all that select documents."""


def _make(parts: Parts, settings: Any, name: str) -> Method:
    retriever: Any = name.partition(":")[0]
    if not isinstance(settings, RetrievalSettings):
        return Rag(parts.model, settings, name=name)
    if retriever == "cross-encoder":
        rank = rank_by_cross_encoder(required(parts.cross_encoder))
        return RetrievalRag(parts.model, None, settings, name=name, rank=rank)
    # BM25 ranks by words, so that no encoder is loaded for it.
    encoder = None if retriever == "bm25" else parts.encoder()
    return RetrievalRag(parts.model, encoder, settings, retriever=retriever, name=name, search=parts.search)


_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("rag", ReaderSettings, "answer from all documents, in their order"),
    (GOLD, ReaderSettings, "answer from the documents that support the gold answer ('eval' alone knows them)"),
    ("bm25", RetrievalSettings, "answer from the first documents by words (BM25)"),
    ("dense", DenseSettings, "answer from the first documents by vectors"),
    ("rrf", DenseSettings, "answer from the first documents by the ranks of words and vectors together"),
    (
        "cross-encoder",
        RetrievalSettings,
        "answer from the first documents by a model that reads each with the question",
    ),
)
for _name, _settings, _summary in _ROWS:
    _method = Rag if _settings is ReaderSettings else RetrievalRag
    _needs: set[Need] = {"documents", "cross-encoder"} if _name == "cross-encoder" else {"documents"}
    register(MethodRow(_name, _summary, _method, _settings(), make=_make, needs=frozenset(_needs)))
