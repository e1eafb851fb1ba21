"""Anybody's retriever or pipeline as a method, so that it is asked and scored as all others are: ``pytrace eval --system MODULE:CALLABLE``.

A system is a function of a question and its documents, or a class that is made without arguments, whose objects are called so. It returns

- ids of documents, best first: the first `top` are evidence, and our reader reads the answer from them;
- a text: the answer;
- a mapping with any of ``"answer"``, ``"ids"`` and ``"context"`` (the texts that it read).

A class may have a method `index`, which is called once, with every passage of the corpus, where questions are asked across one (``--index``);
its objects are then called with no documents and search for themselves.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.errors import InputError, ModelError
from pytrace.methods.base import Documents, Method, MethodRow, Parts, Selected, Stages, check_questions, make_answers
from pytrace.methods.baselines import RetrievalSettings
from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reading
from pytrace.reader.evidence import all_documents
from pytrace.reader.readers import make_reader
from pytrace.records import Answer, Document, Evidence


class _Result(NamedTuple):
    evidence: Evidence
    answer: str | None


class System(Method):
    """Calls a system once a question.

    Parameters
    ----------
    model
        Reads answers from the documents that a system ranks.
    system
        What is called.
    settings
        How many documents are read, and with how many demonstrations.
    name
        Its label.
    corpus
        Every passage, for a system with an `index`.
    """

    def __init__(
        self,
        model: LanguageModel,
        system: Callable[..., Any],
        settings: RetrievalSettings,
        *,
        name: str,
        corpus: Iterable[Document] | None = None,
    ) -> None:
        self.name = name
        self._model = model
        self._settings = settings
        self._reader = make_reader(model, settings)
        self._corpus: dict[str, Document] | None = None
        with self._blamed("it was made"):
            self._system = system() if isinstance(system, type) else system
        if corpus is not None and hasattr(self._system, "index"):
            self._corpus = {passage.id: passage for passage in corpus}
            with self._blamed(f"it indexed {len(self._corpus)} passages"):
                self._system.index(list(self._corpus.values()))

    def answer(self, questions: Sequence[str], documents: Documents) -> list[Answer]:
        """Answer questions: in the system's own words where it has some, else as our reader reads what it ranked."""
        check_questions(questions, documents)
        stages = Stages(self._model, self._reader.model)
        results = self._results(questions, documents, stages)
        with stages.stage("read"):
            unread = [i for i, result in enumerate(results) if result.answer is None]
            read = iter(
                self._reader.read([questions[i] for i in unread], [results[i].evidence for i in unread])
                if unread
                else ()
            )
        readings = [next(read) if result.answer is None else Reading(result.answer, 0) for result in results]
        return make_answers(questions, [result.evidence for result in results], readings, stages, self.name, documents)

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        return [Selected(result.evidence) for result in self._results(questions, documents, stages)]

    def _results(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[_Result]:
        with stages.stage("system"):
            return [
                self._asked(question, () if self._corpus is not None else of_question)
                for question, of_question in zip(questions, documents, strict=True)
            ]

    def _asked(self, question: str, documents: Sequence[Document]) -> _Result:
        with self._blamed(f"it was asked {question!r}"):
            found = self._system(question, list(documents))
        given = found if isinstance(found, Mapping) else {"answer": found} if isinstance(found, str) else {"ids": found}
        if not given.keys() <= {"answer", "ids", "context"}:
            raise self._wrong(question, f"a mapping with {', '.join(sorted(map(repr, given)))}")
        answer, ids, context = given.get("answer"), given.get("ids", ()), given.get("context")
        if not (answer is None or isinstance(answer, str)):
            raise self._wrong(question, f"an answer of type {type(answer).__name__}")
        known = self._corpus if self._corpus is not None else {document.id: document for document in documents}
        ranked: dict[str, Document] = {}
        for name in self._texts(question, ids, "ids"):
            if name not in known:
                raise self._wrong(question, f"the id {name!r}, which none of its {len(known)} documents has")
            ranked.setdefault(name, known[name])
        evidence = all_documents(list(ranked.values())[: self._settings.top])
        if context is not None:
            evidence = Evidence("documents", tuple(self._texts(question, context, "context")), evidence.document_ids)
        elif not ranked and answer is not None:
            evidence = Evidence("none", (), ())
        return _Result(evidence, answer)

    @contextmanager
    def _blamed(self, when: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ModelError(f"{self.name} raised {type(error).__name__} when {when}: {error}") from error

    def _texts(self, question: str, found: Any, what: str) -> list[str]:
        if isinstance(found, str | bytes) or not isinstance(found, Iterable):
            raise self._wrong(question, f"{what} of type {type(found).__name__}")
        texts = list(found)
        for text in texts:
            if not isinstance(text, str):
                raise self._wrong(question, f"{what} with one of type {type(text).__name__}")
        return texts

    def _wrong(self, question: str, returned: str) -> ModelError:
        return ModelError(
            f"{self.name} returned {returned} for {question!r}; give ids of documents, an answer, or a mapping with "
            "'answer', 'ids' and 'context'"
        )


def system_row(module: str, attribute: str) -> MethodRow:
    """Import a system from the working directory or the environment, and return its row.

    Raises
    ------
    InputError
        There is no such module or no such callable in it.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a console script's own path does not have it
    try:
        system = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # whatever the module's own lines raise
        raise InputError(
            f"the system {module}:{attribute} cannot be imported ({type(error).__name__}: {error}); name a module of this folder or of what is installed"
        ) from error
    if not callable(system):
        raise InputError(f"{module} has no callable {attribute!r}; write --system MODULE:CALLABLE")

    def make(parts: Parts, settings: Any, label: str) -> Method:
        return System(parts.model, system, settings, name=label, corpus=parts.corpus)

    return MethodRow(f"{module}.{attribute}", "a system of somebody's own", System, RetrievalSettings(), make=make)
