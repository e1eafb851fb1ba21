"""Which settings a method has with which model: the paper's, or those that measured best for a small model.

The figures behind the tiny profile stand in benches/RESULTS.md with the commands that print them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args

import msgspec

from pytrace.errors import InputError
from pytrace.methods.baselines import DenseSettings, RagSettings, RetrievalSettings, ThoughtSettings
from pytrace.methods.cok.chain_of_knowledge import KnowledgeSettings
from pytrace.methods.cok.fact_checking import StandardSettings
from pytrace.methods.cot.ircot import IrcotSettings
from pytrace.methods.ks_llm import KsSettings
from pytrace.methods.scope_coe import ScopeSettings
from pytrace.methods.trace.top_triples import TopTriplesSettings
from pytrace.methods.trace.trace import TraceSettings

_Settings = TypeVar("_Settings", bound=msgspec.Struct)

PAPER = TraceSettings()

# Chosen on HotpotQA's adversarial subset, by hand and by `pytrace tune` (docs/measurements.md). SmolLM2-135M judges
# letters no better than chance, and texts by PMI well; but what it adds to the ranker is gone once the ranker knows
# which heads are named, so it only reads. It drowns in context, so that one chain of two documents is read, the best
# of eight. It makes most tails up, so that sentences are its units and phrases its triples.
TINY = TraceSettings(
    unit="sentence",
    extraction="phrases",
    scoring="ranker",
    link_weight=0.5,
    new_documents=True,
    candidates=8,
    length=2,
    beams=8,
    chains=1,
    width=8,
    demonstrations=2,
    adaptive_demonstrations=False,
    adaptive_triple_demonstrations=False,
    spans=True,
    reader_demonstrations=4,
    reader_documents=2,
)
# What TRACE does for the same model, less its chains.
TOP_TINY = TopTriplesSettings(
    unit=TINY.unit,
    extraction=TINY.extraction,
    adaptive_triple_demonstrations=TINY.adaptive_triple_demonstrations,
    spans=TINY.spans,
    reader_demonstrations=TINY.reader_demonstrations,
    reader_documents=TINY.reader_documents,
)
SMALL_MODELS = {"tiny", "smollm2-135m", "gemma", "gemma3-270m"}

# A small model judges by yes and no hardly better than chance, and text alone well; it copies what a grammar lets it copy.
SCOPE_TINY = ScopeSettings(
    snippet="sentence", pool=10, judge="text", threshold=0.3, spans=True, reader_demonstrations=1
)
KS_TINY = KsSettings(titles=True, triple_demonstrations=0, reader_demonstrations=4, rationale_demonstrations=3)
RAG_TINY = RagSettings(reader_demonstrations=4)
RETRIEVAL_TINY = RetrievalSettings(reader_demonstrations=4)
DENSE_TINY = DenseSettings(reader_demonstrations=4)
IRCOT_TINY = IrcotSettings(reader_demonstrations=4)
# It labels claims no better than chance, whatever it is shown; by words and calibrated it at least gives all three labels.
STANDARD_TINY = StandardSettings(
    reader_demonstrations=4, rationale_demonstrations=3, claim_demonstrations=0, claim_scoring="words"
)
# Its thoughts name people who are none, and it does not find the answer among the facts that a query gave.
COK_TINY = KnowledgeSettings(
    ask="question", unverified="drop", conclude="query", claim_demonstrations=0, claim_scoring="words"
)
_DEFAULTS: dict[str, tuple[msgspec.Struct, msgspec.Struct]] = {
    "scope-coe": (ScopeSettings(), SCOPE_TINY),
    **dict.fromkeys(("rag", "gold"), (RagSettings(), RAG_TINY)),
    "standard": (StandardSettings(), STANDARD_TINY),
    **dict.fromkeys(("bm25", "cross-encoder"), (RetrievalSettings(), RETRIEVAL_TINY)),
    **dict.fromkeys(("dense", "rrf"), (DenseSettings(), DENSE_TINY)),
    "top-triples": (TopTriplesSettings(), TOP_TINY),
    "ircot": (IrcotSettings(), IRCOT_TINY),
    **dict.fromkeys(("cot", "cot-sc", "verify-and-edit"), (ThoughtSettings(), ThoughtSettings())),
    "cok": (KnowledgeSettings(), COK_TINY),
}


def prompt_style(llm: str) -> Literal["plain", "auto"]:
    """Return how prompts are written for a model: the smallest answer plain text far better than their chat template."""
    return "plain" if llm in SMALL_MODELS else "auto"


def default_settings(method: str, llm: str) -> msgspec.Struct:
    """Return the settings that a method has with a model if nobody changes them.

    Examples
    --------
    >>> default_settings("trace-doc", "llama.gguf").reader
    'document'
    """
    if method in {"trace", "trace-doc"}:
        return _trace_default(method, llm)
    paper, tiny = _DEFAULTS.get(method, (KsSettings(), KS_TINY))
    return tiny if llm in SMALL_MODELS else paper


def setting_name(override: str) -> str:
    """Return the name in `name=value`, as the settings have it; "" if it is none.

    Examples
    --------
    >>> setting_name("reader-documents=3")
    'reader_documents'
    """
    name, equals, _ = override.partition("=")
    return name.strip().replace("-", "_") if equals else ""


def changed(settings: _Settings, overrides: Sequence[str], *, what: str) -> _Settings:
    """Return settings with some of them changed."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    may_be_none = {field.name for field in msgspec.structs.fields(settings) if type(None) in get_args(field.type)}
    for override in overrides:
        name = setting_name(override)
        if name not in values:
            raise InputError(
                f"the setting {override!r} of {what} is not name=value with a name among: {', '.join(sorted(values))}"
            )
        text = override.partition("=")[2].strip()
        values[name] = None if name in may_be_none and text.lower() == "none" else text
    try:
        return msgspec.convert(values, type(settings), strict=False)
    except msgspec.ValidationError as error:
        raise InputError(
            f"a setting of {what} cannot be used: {error}; see {type(settings).__module__}.{type(settings).__name__}"
        ) from error


def trace_settings(method: str, llm: str, overrides: Sequence[str] = ()) -> TraceSettings:
    """Return the settings of a TRACE method for a model, with `name=value` overrides.

    Examples
    --------
    >>> trace_settings("trace-doc", "llama.gguf", ["chains=3"]).chains
    3
    """
    settings = _trace_default(method, llm)
    return changed(settings, overrides, what=method)


def _trace_default(method: str, llm: str) -> TraceSettings:
    base = TINY if llm in SMALL_MODELS else PAPER
    return msgspec.structs.replace(base, reader="document" if method == "trace-doc" else "triple")
