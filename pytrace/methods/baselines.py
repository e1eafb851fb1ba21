"""Baselines: what a method must beat."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.answers import Reader
from pytrace.evidence import all_documents
from pytrace.methods.stages import Stages
from pytrace.methods.trace import check_questions, make_answers
from pytrace.models.language_model import LanguageModel
from pytrace.records import Answer, Document


class Rag:
    """Answers from all documents in their given order (TRACE, section 4.1: "w. all documents", the vanilla RAG).

    Parameters
    ----------
    model
        Reads.
    reader_demonstrations
        Short answers shown to the reader.
    """

    name = "rag"

    def __init__(self, model: LanguageModel, *, reader_demonstrations: int = 0) -> None:
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
