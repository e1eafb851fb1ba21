"""Every method by its name, with the settings that it has by default and those that a user changes.

A method is named as ``NAME`` or ``NAME:setting=value,setting=value``, so that one command can compare a method with itself
(``ks-llm:sentences=1 ks-llm:sentences=4``). Which settings suit which model stands in `pytrace.methods.profiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from pytrace.errors import InputError
from pytrace.methods import profiles
from pytrace.methods.baselines import ChainOfThought, Rag, RetrievalRag, SelfConsistency, VerifyAndEdit
from pytrace.methods.cok.chain_of_knowledge import ChainOfKnowledge, Knowledge
from pytrace.methods.cok.fact_checking import StandardClaims
from pytrace.methods.cot.ircot import Ircot
from pytrace.methods.ks_llm import VARIANTS, KnowledgeSelection
from pytrace.methods.ranking import rank_by_cross_encoder
from pytrace.methods.scope_coe import ScopeCoe
from pytrace.methods.trace.top_triples import TopTriples
from pytrace.methods.trace.trace import Trace
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.records import Answer, Document
from pytrace.retrieval import SentenceIndex
from pytrace.triples.graph import KnowledgeGraph


class Method(Protocol):
    """Anything that answers questions from documents."""

    def answer(self, questions: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Answer]:
        """Answer questions, each from its own documents; all of them go through every stage together."""
        ...


TRACE_METHODS = ("trace", "trace-doc")
# TRACE without its chains.
TOP_TRIPLES = "top-triples"
RETRIEVERS = ("bm25", "dense", "rrf")
CROSS_ENCODER = "cross-encoder"
INTERLEAVED = "ircot"
THOUGHT_METHODS = ("cot", "cot-sc", "verify-and-edit", "cok")
# Answers from the documents that support the gold answer and no others: the ceiling of all that select documents.
GOLD = "gold"
METHODS = (
    *TRACE_METHODS,
    TOP_TRIPLES,
    *VARIANTS,
    "scope-coe",
    "rag",
    GOLD,
    *RETRIEVERS,
    CROSS_ENCODER,
    INTERLEAVED,
    *THOUGHT_METHODS,
)
NO_CROSS_ENCODER = f"{CROSS_ENCODER} ranks with a model that was not named; give --cross-encoder DIR"
# These answer without any document, too: from the model alone, or from a document that it writes.
NEEDS_NO_DOCUMENTS = frozenset({*VARIANTS, *THOUGHT_METHODS})

# Classes that are made alike, by method: from triples and their graph, and from the two models alone.
_FROM_TRIPLES: dict[str, Callable[..., Method]] = {**dict.fromkeys(TRACE_METHODS, Trace), TOP_TRIPLES: TopTriples}
_FROM_MODELS: dict[str, Callable[..., Method]] = {
    "scope-coe": ScopeCoe,
    "cot": ChainOfThought,
    "cot-sc": SelfConsistency,
    "verify-and-edit": VerifyAndEdit,
}


class MethodName(msgspec.Struct, frozen=True):
    """A method as a user names it: its name, and settings as text."""

    name: str
    overrides: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The method as it is named in reports."""
        return f"{self.name}:{','.join(self.overrides)}" if self.overrides else self.name


def parse_method(text: str) -> MethodName:
    """Read ``NAME`` or ``NAME:setting=value,setting=value``.

    Raises
    ------
    InputError
        If there is no such method, or what follows the colon is no list of settings.

    Examples
    --------
    >>> parse_method("scope-coe:cover=exact")
    MethodName(name='scope-coe', overrides=('cover=exact',))
    """
    name, colon, rest = text.strip().partition(":")
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    overrides = tuple(part.strip() for part in rest.split(",") if part.strip())
    if colon and (not overrides or not all("=" in one for one in overrides)):
        raise InputError(f"{text!r} does not name settings behind the colon; write {name}:setting=value,setting=value")
    return MethodName(name, overrides)


def method_settings(method: str | MethodName, llm: str, overrides: Iterable[str] = ()) -> msgspec.Struct:
    """Return the settings of a method for a model.

    Examples
    --------
    >>> method_settings("ks-llm", "llama.gguf", ["sentences=3"]).sentences
    3
    """
    named = parse_method(method) if isinstance(method, str) else method
    base = profiles.default_settings(named.name, llm)
    return profiles.changed(base, [*overrides, *named.overrides], what=named.name)


def check_overrides(methods: Sequence[MethodName], llm: str, overrides: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Give every method those settings that it has, and refuse what none of them has."""
    own: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()
    known: set[str] = set()
    for method in methods:
        fields = profiles.default_settings(method.name, llm).__struct_fields__
        known |= set(fields)
        mine = tuple(one for one in overrides if profiles.setting_name(one) in fields)
        own[method.name] = mine
        used |= set(mine)
        method_settings(method, llm, mine)
    for one in overrides:
        if one not in used:
            raise InputError(
                f"the setting {one!r} is not name=value with a name among those of "
                f"{', '.join(dict.fromkeys(method.name for method in methods))}: {', '.join(sorted(known))}"
            )
    return own


def make_method(
    method: str | MethodName,
    model: LanguageModel,
    encoder: Callable[[], Encoder],
    llm: str,
    overrides: Iterable[str] = (),
    *,
    graph: KnowledgeGraph | None = None,
    extracted: Callable[[Any], object] | None = None,
    index: SentenceIndex | None = None,
    knowledge: Callable[[], Knowledge] | None = None,
    cross_encoder: Callable[[], CrossEncoder] | None = None,
) -> Method:
    """Make a method by its name.

    Parameters
    ----------
    method, llm, overrides
        As for `method_settings`.
    model
        The language model.
    encoder
        Gives the encoder; called only for a method that needs one.
    graph, extracted
        For TRACE and top-triples: see `pytrace.methods.trace.trace.Trace`.
    index
        For KS-LLM: see `pytrace.methods.ks_llm.KnowledgeSelection`.
    knowledge
        For Chain of Knowledge: gives the knowledge base and what it takes to ask it; called only for that method.
    cross_encoder
        For cross-encoder: gives the model that ranks documents; called only for that method.

    Returns
    -------
    Method
        Its answers have the method's label as their `method`.

    Raises
    ------
    InputError
        If there is no such method or setting, the method has no use for the index, was told another unit than the graph's, or
        needs a knowledge base or a cross-encoder and has none.
    """
    named = parse_method(method) if isinstance(method, str) else method
    overrides = tuple(overrides)
    settings: Any = method_settings(named, llm, overrides)
    name, label = named.name, named.label
    if index is not None and name not in VARIANTS:
        raise InputError(
            f"{name} has no use for an index of sentences; leave it out, or use one of {', '.join(VARIANTS)}"
        )
    if index is not None and "titles" not in map(profiles.setting_name, (*overrides, *named.overrides)):
        # A profile may put titles before sentences; an index has them as they are.
        settings = msgspec.structs.replace(settings, titles=False)
    if name in _FROM_TRIPLES:
        if graph is not None and "unit" in map(profiles.setting_name, (*overrides, *named.overrides)):
            _check_unit(settings.unit, graph, label)
        return _FROM_TRIPLES[name](model, encoder(), settings, graph=graph, name=label, extracted=extracted)
    if name in _FROM_MODELS:
        return _FROM_MODELS[name](model, encoder(), settings, name=label)
    if name in ("rag", GOLD):
        return Rag(model, reader_demonstrations=settings.reader_demonstrations, name=label)
    if name in RETRIEVERS:
        return RetrievalRag(model, encoder() if name != "bm25" else None, settings, retriever=name, name=label)  # type: ignore[arg-type]
    if name == CROSS_ENCODER:
        if cross_encoder is None:
            raise InputError(NO_CROSS_ENCODER)
        return RetrievalRag(model, None, settings, name=label, rank=rank_by_cross_encoder(cross_encoder()))
    if name == INTERLEAVED:
        return Ircot(model, encoder() if settings.retriever != "bm25" else None, settings, name=label)
    if name == "cok":
        if knowledge is None:
            raise InputError("cok asks a knowledge base, and there is none; give --kb FILE|URL")
        return ChainOfKnowledge(model, encoder(), settings, knowledge=knowledge(), name=label)
    if name == "standard":
        return StandardClaims(model, encoder(), settings, name=label, index=index)
    return KnowledgeSelection(model, encoder(), settings, variant=name, name=label, index=index)  # type: ignore[arg-type]


def _check_unit(unit: str, graph: KnowledgeGraph, label: str) -> None:
    """Refuse sentences or documents that are asked for where a graph has other units: its own would be taken."""
    if unit in {"sentence", "document"} and graph.recipe.extractor != unit:
        raise InputError(
            f"{label} was told unit={unit}, but with --kg the units are the graph's; leave out the setting or --kg"
        )
