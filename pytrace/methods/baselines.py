"""Baselines: what a method must beat.

Those that read stand here, those that think in `pytrace.methods.cot.thinking`, `pytrace.methods.cot.ircot` and
`pytrace.methods.cot.verify_and_edit`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.methods.cot.thinking import ChainOfThought, SelfConsistency, ThoughtSettings
from pytrace.methods.cot.verify_and_edit import VerifyAndEdit
from pytrace.methods.ranking import Rank, rank_by
from pytrace.methods.stages import Stages
from pytrace.methods.trace.trace import Count, Positive, check_questions, make_answers
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reader
from pytrace.reader.evidence import all_documents
from pytrace.records import Answer, Document
from pytrace.retrieval import RetrieverName

__all__ = [
    "ChainOfThought",
    "DenseSettings",
    "Rag",
    "RagSettings",
    "RetrievalRag",
    "RetrievalSettings",
    "SelfConsistency",
    "ThoughtSettings",
    "VerifyAndEdit",
]


class RagSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the vanilla RAG.

    Attributes
    ----------
    reader_demonstrations
        Short answers shown to the reader.
    """

    reader_demonstrations: Count = 0


class RetrievalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of a RAG that retrieves.

    Attributes
    ----------
    top
        How many documents the reader sees.
    reader_demonstrations
        Short answers shown to the reader.
    """

    top: Positive = 5
    reader_demonstrations: Count = 0


class DenseSettings(RetrievalSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of a RAG that retrieves by vectors.

    Attributes
    ----------
    whole_documents
        Encode each document as one passage, as the bi-encoders of TRACE's Table 1 do; what is longer than the encoder takes
        has no say. Otherwise a document is as near as its nearest sentence.
    """

    whole_documents: bool = False


class Rag:
    """Answers from all documents in their given order (TRACE, section 4.1: "w. all documents", the vanilla RAG).

    Parameters
    ----------
    model
        Reads.
    reader_demonstrations
        Short answers shown to the reader.
    name
        The method's name in answers.

    Examples
    --------
    >>> from pytrace.models.scripted import ScriptedModel
    >>> document = Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",))
    >>> Rag(ScriptedModel(["Ghana"])).answer(["In which country is Ada Foah?"], [[document]])[0].text
    'Ghana'
    """

    def __init__(self, model: LanguageModel, *, reader_demonstrations: int = 0, name: str = "rag") -> None:
        self.name = name
        self._model = model
        self._reader = Reader(model, demonstrations=reader_demonstrations)

    def answer(self, questions: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Answer]:
        """Answer questions, each from all of its documents.

        Raises
        ------
        InputError
            If a question is empty.
        """
        check_questions(questions, documents)
        stages = Stages(self._model)
        evidence = [all_documents(own) for own in documents]
        with stages.stage("read"):
            readings = self._reader.read(questions, evidence)
        return make_answers(questions, evidence, readings, stages, self.name)


class RetrievalRag:
    """Answers from the documents that a retriever, or anything else that ranks, puts first.

    Parameters
    ----------
    model
        Reads.
    encoder
        Retrieves; "bm25" needs none.
    settings
        How many documents, and how the reader is shown what to do.
    retriever
        "dense", "bm25" or "rrf".
    name
        The method's name in answers; the retriever's if not given.
    rank
        Ranks in place of the retriever.

    Notes
    -----
    "What External Knowledge is Preferred by LLMs?", section 5 (the baseline RAG with its top 5). TRACE, section 4.1 and appendix
    C.2: documents ranked by bi-encoders and cross-encoders, the first M of them read.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder, ScriptedModel
    >>> town = Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",))
    >>> method = RetrievalRag(ScriptedModel(["Ghana"]), HashEncoder(), RetrievalSettings(top=1))
    >>> answer = method.answer(["Where is Ada Foah?"], [[Document("2", "Bread", ("It is baked.",)), town]])[0]
    >>> answer.text, answer.evidence.document_ids
    ('Ghana', ('1',))
    """

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder | None,
        settings: RetrievalSettings | None = None,
        *,
        retriever: RetrieverName = "dense",
        name: str = "",
        rank: Rank | None = None,
    ) -> None:
        self.settings = settings or RetrievalSettings()
        self.name = name or retriever
        self._model = model
        whole = isinstance(self.settings, DenseSettings) and self.settings.whole_documents
        self._rank = rank or rank_by(retriever, encoder, whole_documents=whole)
        self._reader = Reader(model, demonstrations=self.settings.reader_demonstrations)

    def answer(self, questions: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Answer]:
        """Answer questions, each from the first of its documents.

        Parameters
        ----------
        questions
            The questions' texts.
        documents
            One list of documents a question.

        Returns
        -------
        list of Answer
            With the documents read, best first.

        Raises
        ------
        InputError
            If a question is empty.
        """
        check_questions(questions, documents)
        stages = Stages(self._model)
        with stages.stage("retrieve"):
            evidence = [all_documents(own) for own in self._rank(questions, documents, self.settings.top)]
        with stages.stage("read"):
            readings = self._reader.read(questions, evidence)
        return make_answers(questions, evidence, readings, stages, self.name)
