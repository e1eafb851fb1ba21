"""What every method is: two verbs, one row in the registry, and the answer that all of them end with.

A method's module ends with `register(MethodRow(...))`; `pytrace.methods.catalog` imports every module of this room, so that a
file with a row is all that it takes to add a method. A row that does not hold together is an error at import.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

import msgspec

from pytrace.errors import InputError
from pytrace.methods.abilities import Ability
from pytrace.models.language_model import LanguageModel
from pytrace.models.request_context import current_request
from pytrace.reader.answers import Reader, Reading
from pytrace.reader.places import answer_places
from pytrace.records import Answer, Document, Evidence, Usage

if TYPE_CHECKING:
    from pytrace.kg.knowledge import Knowledge
    from pytrace.models.edge.edge_model import EdgeModel
    from pytrace.models.encoders.cross_encoder import CrossEncoder
    from pytrace.models.encoders.encoder import Encoder
    from pytrace.retrieval import SentenceIndex
    from pytrace.retrieval.searching import HopSearcher, Search
    from pytrace.triples.graph import TripleStore

Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
# Of any number: what seeds and timers hold.
_MOST = (1 << 31) - 1
Need = Literal["documents", "knowledge base", "cross-encoder", "log-probabilities"]
Extra = Literal["graph", "sentence index", "search", "cross-encoder"]
Documents = Sequence[Sequence[Document]]
"""One list of documents a question."""
Option = tuple[str, ...]
"""Settings that change together, as text: ``("unit=triple", "extraction=phrases")``."""

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


class Stages:
    """Adds up wall-clock seconds and the models' usage by stage; only one stage runs at a time."""

    def __init__(self, model: LanguageModel, *others: LanguageModel) -> None:
        self._models = (model, *(other for other in others if other is not model))
        self.seconds: dict[str, float] = {}
        self.usage: dict[str, Usage] = {}

    @property
    def deterministic(self) -> bool:
        """How the models run: see `LanguageModel.deterministic`; one that was never asked is not loaded to tell."""
        return all(model.deterministic for model in self._models if model.usage != Usage())

    def _spent(self) -> Usage:
        # What the models have spent in all is also others' where several requests share them.
        if (request := current_request()) is not None:
            return request.usage
        return sum((model.usage for model in self._models), Usage())

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside for a stage; entering it again adds to it."""
        started, before = time.perf_counter(), self._spent()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            self.usage[name] = self.usage.get(name, Usage()) + (self._spent() - before)

    def added_to(self, answer: Answer, among: int) -> Answer:
        """Return an answer with its share of what these stages cost `among` answers, added to what it has cost before."""
        usage, seconds = dict(answer.usage), dict(answer.seconds)
        for stage, spent in self.usage.items():
            usage[stage] = usage.get(stage, Usage()) + spent.scaled(1 / among)
        for stage, took in self.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + took / among
        return msgspec.structs.replace(answer, usage=usage, seconds=seconds)


class Selected(NamedTuple):
    """A question's evidence, and notes on how it was found."""

    evidence: Evidence
    notes: tuple[str, ...] = ()


class Method(ABC):
    """A method with its two verbs; those that read what they select need `_select` alone."""

    name: str
    on_evidence: Callable[[list[Evidence]], object] | None = None
    """Is called by `answer` with what was selected, before an answer is read or thought of; who answers people shows it meanwhile."""
    _model: LanguageModel
    _reader: Reader

    def select(self, questions: Sequence[str], documents: Documents) -> list[Evidence]:
        """Select evidence for questions, each from its own documents, without reading an answer from it.

        Parameters
        ----------
        questions
            The questions' texts.
        documents
            One list of documents a question.

        Returns
        -------
        list of Evidence
            One a question. The language model is used only if the method selects with it.

        Raises
        ------
        InputError
            If a question is empty.
        """
        check_questions(questions, documents)
        return [selected.evidence for selected in self._select(questions, documents, Stages(self._model))]

    def answer(self, questions: Sequence[str], documents: Documents) -> list[Answer]:
        """Answer questions, each from its own documents; all of them go through every stage together; see `select`.

        Returns
        -------
        list of Answer
            With evidence, notes, and seconds and usage by stage (what a batch shares is divided evenly).
        """
        check_questions(questions, documents)
        stages = Stages(self._model, self._reader.model)
        selected = self._select(questions, documents, stages)
        if self.on_evidence is not None:
            self.on_evidence([one.evidence for one in selected])
        with stages.stage("read"):
            evidence, readings = self._read(questions, [one.evidence for one in selected])
        answers = make_answers(questions, evidence, readings, stages, self.name, documents)
        return [noted(answer, *one.notes) for answer, one in zip(answers, selected, strict=True)]

    def read_with(self, model: LanguageModel) -> None:
        """Have another language model read the answers, as in TRACE's Figure 3 and Tables 7 and 8.

        Raises
        ------
        InputError
            The method answers with the words that it thinks, so that nothing is left to read.
        """
        if not hasattr(self, "_reader"):
            raise InputError(f"{self.name} has no reader apart from its model; leave --reader-llm out")
        self._reader = self._reader.with_model(model)

    def extract_with(self, edge: Callable[[], EdgeModel]) -> None:
        """Have the small model help to take answers out of the evidence, if that is how the method answers."""
        if hasattr(self, "_reader"):
            self._reader = self._reader.with_edge(edge)

    @abstractmethod
    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        """Select evidence for checked questions, timing each stage."""

    def _read(self, questions: Sequence[str], evidence: list[Evidence]) -> tuple[list[Evidence], list[Reading]]:
        """Read answers from evidence; a method may add to the evidence what it thought while reading."""
        return evidence, self._reader.read(questions, evidence)


@runtime_checkable
class ClaimMethod(Protocol):
    """A method that can judge claims, beside answering questions."""

    def judge(self, claims: Sequence[str], documents: Documents) -> list[Answer]:
        """Judge claims, each with its own documents; the text of an answer is one of `pytrace.reader.claims.LABELS`."""
        ...


def check_questions(questions: Sequence[str], documents: Documents) -> None:
    """Refuse lists that do not belong together, and empty questions."""
    if len(questions) != len(documents):
        raise ValueError(f"there are {len(questions)} questions but {len(documents)} lists of documents")
    for number, question in enumerate(questions, 1):
        if not question.strip():
            raise InputError(f"question {number} of {len(questions)} is empty; ask something")


def make_answers(
    questions: Sequence[str],
    evidence: Sequence[Evidence],
    readings: Sequence[Reading],
    stages: Stages,
    name: str,
    documents: Documents = (),
) -> list[Answer]:
    """Put together what a method found; what a batch spent is divided evenly among its questions.

    Where an answer stands is told of `documents`, one list a question.
    """
    share = 1 / max(len(questions), 1)
    listed = documents or [()] * len(questions)
    return [
        Answer(
            question=question,
            text=reading.text,
            method=name,
            evidence=seen,
            usage={stage: usage.scaled(share) for stage, usage in stages.usage.items()},
            seconds={stage: seconds * share for stage, seconds in stages.seconds.items()},
            notes=_notes(seen, reading),
            context_tokens=reading.context_tokens,
            deterministic=stages.deterministic,
            places=answer_places(reading.places, seen, of_question),
            probability=reading.probability,
        )
        for question, seen, reading, of_question in zip(questions, evidence, readings, listed, strict=True)
    ]


def noted(answer: Answer, *notes: str) -> Answer:
    """Return an answer with more notes."""
    return msgspec.structs.replace(answer, notes=(*answer.notes, *notes))


def _notes(evidence: Evidence, reading: Reading) -> tuple[str, ...]:
    """Return remarks on an answer: no evidence, or a context that did not fit."""
    notes: list[str] = []
    if evidence.kind == "none":  # where a method is to have no context, its absence is no news
        return tuple(notes)
    if not evidence.context:
        own = "; the answer is the model's own" if reading.text else ""
        notes.append(f"no evidence was found{own}")
    if reading.left_out:
        notes.append(
            f"{reading.left_out} of {len(evidence.context)} context entries did not fit the model's context whole"
        )
    return tuple(notes)


class Choice(msgspec.Struct, frozen=True):
    """One decision of a search for settings: its name, and what may be decided, the first of equals first."""

    name: str
    options: tuple[Option, ...]


def choice(name: str, *values: object) -> Choice:
    """Return the choice among values of one setting."""
    return Choice(name, tuple((f"{name}={value}",) for value in values))


READER_CHOICE = choice("reader_demonstrations", 0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Parts:
    """What a method may be made of; what makes or opens something is called only for a method that needs it.

    `search` searches the corpus that the documents of questions were found in, `corpus` has every passage of it, and `hops` searches across
    hops: see `pytrace.retrieval.searching`.
    """

    model: LanguageModel
    encoder: Callable[[], Encoder]
    graph: TripleStore | None = None
    extracted: Callable[[Any], object] | None = None
    index: SentenceIndex | None = None
    knowledge: Callable[[], Knowledge] | None = None
    cross_encoder: Callable[[], CrossEncoder] | None = None
    search: Search | None = None
    corpus: Iterable[Document] | None = None
    hops: HopSearcher | None = None


@dataclass(frozen=True)
class Replacement:
    """Settings that a method has where its language model lacks an ability.

    `note` says which part of the paper's method is replaced, and by what; it is empty where no part is, and is not shown where
    the first of the settings was chosen otherwise.
    """

    ability: Ability
    settings: Option
    note: str = ""


@dataclass(frozen=True)
class MethodRow:
    """All that the project knows of a method; its row in the registry.

    Parameters
    ----------
    name
        As users write it.
    summary
        What it does, in one line.
    method
        Its class.
    settings
        Its settings, the paper's.
    replacements
        What changes of them with what the language model cannot do; a later one wins. How answers are read is decided by the
        model alone (`pytrace.reader.readers.SMALL_MODEL_READER`).
    make
        Makes it from parts, settings and a label; if not given, by its model, encoder and settings and by what it takes.
    needs
        What it cannot do without.
    takes
        What it can use beside the documents of a question.
    space
        What a search for its settings tries, in that order; the common choices that it has if empty.
    """

    name: str
    summary: str
    method: type[Method]
    settings: msgspec.Struct
    replacements: tuple[Replacement, ...] = ()
    make: Callable[[Parts, Any, str], Method] | None = None
    needs: frozenset[Need] = frozenset({"documents"})
    takes: frozenset[Extra] = frozenset()
    space: tuple[Choice, ...] = ()


# The parts, which are also a class's arguments, that stand for what a method takes.
TAKEN: dict[Extra, tuple[str, ...]] = {
    "graph": ("graph", "extracted"),
    "sentence index": ("index",),
    "search": ("search",),
    "cross-encoder": ("cross_encoder",),
}

METHODS: dict[str, MethodRow] = {}
"""Every registered method by its name."""


def register(row: MethodRow) -> None:
    """Add a method to the registry.

    Raises
    ------
    InputError
        The name is taken or no name, the summary is missing, the class lacks a verb, a need or an ability is unknown, or a
        replacement or the search space names a setting or a value that the settings do not take.
    """
    where = f"the method {row.name!r} cannot be registered"
    if row.name in METHODS:
        raise InputError(f"{where}: the name is taken by {METHODS[row.name].method.__name__}")
    if not row.name.replace("-", "").isalnum() or not row.name.islower():
        raise InputError(f"{where}: a name has lower-case letters, digits and hyphens")
    if not row.summary.strip():
        raise InputError(f"{where}: it has no summary")
    if not (isinstance(row.method, type) and issubclass(row.method, Method)) or row.method.__abstractmethods__:
        raise InputError(f"{where}: {row.method!r} is no class with the verbs select and answer")
    if unknown := (row.needs - set(get_args(Need))) | (row.takes - set(get_args(Extra))):
        raise InputError(f"{where}: nothing is known of {', '.join(sorted(unknown))}")
    for replacement in row.replacements:
        if replacement.ability not in get_args(Ability):
            raise InputError(
                f"{where}: there is no ability {replacement.ability!r}; use {', '.join(get_args(Ability))}"
            )
        changed(row.settings, replacement.settings, what=row.name)
    for decision in row.space:
        for option in decision.options:
            changed(row.settings, option, what=row.name)
    METHODS[row.name] = row


def setting_name(override: str) -> str:
    """Return the name in `name=value`, as the settings have it; "" if it is none."""
    name, equals, _ = override.partition("=")
    return name.strip().replace("-", "_") if equals else ""


@functools.cache
def _may_be_none(settings: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(settings) if type(None) in get_args(field.type))


def changed(settings: _Settings, overrides: Sequence[str], *, what: str) -> _Settings:
    """Return settings with some of them changed."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    may_be_none = _may_be_none(type(settings))
    for override in overrides:
        name = setting_name(override)
        if name not in values:
            raise InputError(
                f"the setting {override!r} of {what} is not name=value with a name among: {', '.join(sorted(values))}"
            )
        text = override.partition("=")[2].strip()
        values[name] = None if name in may_be_none and text.lower() == "none" else text
    try:
        result = msgspec.convert(values, type(settings), strict=False)
    except ValueError as error:
        raise InputError(
            f"a setting of {what} cannot be used: {error}; see {type(settings).__module__}.{type(settings).__name__}"
        ) from error
    for name, value in msgspec.structs.asdict(result).items():
        if isinstance(value, int | float) and not abs(value) <= _MOST:  # NaN is not either
            raise InputError(
                f"the setting {name} of {what} is {value!r:.40}, and not within {_MOST:,}; give another number"
            )
    return result
