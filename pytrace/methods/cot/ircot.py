"""IRCoT: each sentence of a chain of thought retrieves, and what it finds is there for the next sentence.

Source: Trivedi et al., "Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step Questions" (ACL
2023), section 3. The paper retrieves from a whole corpus, as is done here over an index; TRACE compares itself with it on the
documents of each question (appendix C.2 there).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.methods.base import Count, Documents, Method, MethodRow, Positive, Selected, Stages, register
from pytrace.methods.cot.rationales import Thinker
from pytrace.methods.ranking import rank_by
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.evidence import all_documents
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.records import Document, Reasoning
from pytrace.retrieval import RetrieverName
from pytrace.retrieval.searching import Search


class IrcotSettings(ReaderSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method; steps and the most documents are the paper's."""

    # What ranks documents; the paper's is BM25.
    retriever: RetrieverName = "dense"
    # Documents that each query adds.
    top: Positive = 2
    # Documents that are collected at most.
    most: Positive = 15
    # Sentences that are thought at most.
    steps: Positive = 8
    # Labelled rationales shown to the model.
    demonstrations: Count = 3
    # The longest sentence, in tokens.
    max_tokens: Positive = 64


class _Search(msgspec.Struct):
    """What one question has collected and thought so far."""

    question: str
    documents: Sequence[Document]
    query: str
    collected: list[Document] = []
    sentences: list[str] = []
    done: bool = False


class Ircot(Method):
    """Thinks and retrieves in turn, and answers from all that was retrieved; all questions take each step together."""

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder | None,
        settings: IrcotSettings | None = None,
        *,
        name: str = "ircot",
        search: Search | None = None,
    ) -> None:
        self.settings = settings or IrcotSettings()
        self.name = name
        self._model = model
        self._rank = rank_by(self.settings.retriever, encoder, search=search)
        # Without an index a question has its own documents, and no more.
        self._own_documents = search is None
        self._thinker = Thinker(model, demonstrations=self.settings.demonstrations, max_tokens=self.settings.max_tokens)
        self._reader = make_reader(model, self.settings)

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        searches = list(map(_Search, questions, documents, questions))
        self._retrieve(searches, stages)
        for _ in range(self.settings.steps):
            thinking = [search for search in searches if not search.done]
            if not thinking:
                break
            self._think(thinking, stages)
            self._retrieve([search for search in thinking if not search.done], stages)
        return [
            Selected(
                msgspec.structs.replace(all_documents(search.collected), derivation=Reasoning(tuple(search.sentences)))
            )
            for search in searches
        ]

    def _think(self, searches: Sequence[_Search], stages: Stages) -> None:
        """Let every search go on by a sentence; one that says the answer, nothing or the same again is done."""
        with stages.stage("think"):
            thoughts = self._thinker.continue_thoughts(
                [search.question for search in searches],
                [all_documents(search.collected).context for search in searches],
                [search.sentences for search in searches],
            )
        for search, thought in zip(searches, thoughts, strict=True):
            new = [sentence for sentence in thought.sentences[:1] if sentence not in search.sentences]
            search.sentences += new
            search.done = bool(thought.answer) or not new
            search.query = new[0] if new else search.query

    def _retrieve(self, searches: Sequence[_Search], stages: Stages) -> None:
        """Add to every search the documents that its query finds among those that it does not have."""
        with stages.stage("retrieve"):
            left = [
                [document for document in search.documents if document not in search.collected] for search in searches
            ]
            # An index gives again what it gave before.
            again = 0 if self._own_documents else max((len(search.collected) for search in searches), default=0)
            results = self._rank([search.query for search in searches], left, self.settings.top + again)
        for search, found in zip(searches, results, strict=True):
            new = [document for document in found if document not in search.collected][: self.settings.top]
            search.collected += new[: self.settings.most - len(search.collected)]
            # More sentences would find nothing more.
            there = len(search.documents) if self._own_documents else self.settings.most
            search.done = search.done or len(search.collected) >= min(self.settings.most, there)


register(
    MethodRow(
        "ircot",
        "think a sentence, retrieve by it, think the next; answer from all that was retrieved",
        Ircot,
        IrcotSettings(),
        make=lambda parts, settings, name: Ircot(
            parts.model,
            parts.encoder() if settings.retriever != "bm25" else None,
            settings,
            name=name,
            search=parts.search,
        ),
    )
)
