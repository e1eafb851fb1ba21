"""The default method: search across hops, read the passages that together answer the question, answer with a span of them.

It is not from a paper. The search finds chains of one to four passages (docs/corpus.md). The likeliest passages are read whole, each
under its heading path: the first two if the third is much less likely, otherwise up to five.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.errors import InputError
from pytrace.methods.base import (
    Documents,
    Method,
    MethodRow,
    Parts,
    Positive,
    Selected,
    Stages,
    choice,
    register,
)
from pytrace.models.language_model import LanguageModel
from pytrace.reader.evidence import document_text
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.reader.spans.comparison import compares, role_of
from pytrace.records import Chain, ChainSearch, Document, Evidence
from pytrace.retrieval.hops import chain_evidence
from pytrace.retrieval.searching import Found, HopSearcher

# Chains that the result shows.
_CHAINS = 3
# Two passages are read if the third is less likely than this share of the second. Comparisons through a third party ("Which film's director
# was born first, A or B?") take four passages. docs/measurements.md has the figures for other shares.
_THIRD_SHARE = 0.2
# Maximum number of passages to read otherwise.
_PASSAGES = 5


class HopsSettings(ReaderSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of `Hops`."""

    # Number of passages to read. None: two if the third is much less likely, otherwise five.
    passages: Positive | None = None


class Hops(Method):
    """Answers from the passages that a search across hops finds."""

    def __init__(self, model: LanguageModel, settings: HopsSettings, *, hops: HopSearcher, name: str = "hops") -> None:
        self.name = name
        self.settings = settings
        self._model = model
        self._reader = make_reader(model, settings)
        self._hops = hops

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        with stages.stage("search"):
            found = self._hops(questions, documents)
        return [Selected(self._evidence(question, one)) for question, one in zip(questions, found, strict=True)]

    def _evidence(self, question: str, found: Found) -> Evidence:
        read = self._read_passages(question, found)
        chains: list[Chain] = []
        for chain in found.ranking.chains:
            keys = {_content_key(passage) for passage in found.of(chain.rows)}
            if len(chains) < _CHAINS and len(keys) == len(chain.rows) and keys <= read.keys():
                passages = [read[_content_key(passage)][0] for passage in found.of(chain.rows)]
                chains += chain_evidence(question, chain, passages).chains
        return Evidence(
            kind="documents",
            context=tuple(document_text(passage) for passage, _ in read.values()),
            document_ids=tuple(passage.id for passage, _ in read.values()),
            derivation=ChainSearch(tuple(chains)),
            relevance=tuple(score for _, score in read.values()),
            signals=_signals(found),
        )

    def _read_passages(self, question: str, found: Found) -> dict[tuple[str, str], tuple[Document, float]]:
        """Return the passages to read with their scores, likeliest first. The key is the content, so duplicates are read once."""
        ranking = found.ranking
        most = self.settings.passages or _PASSAGES
        may_stop = self.settings.passages is None and not (compares(question) and role_of(question))
        read: dict[tuple[str, str], tuple[Document, float]] = {}
        last = 0.0
        for passage, score in zip(found.of(ranking.rows), ranking.scores, strict=True):
            key = _content_key(passage)
            if key in read:
                continue
            if len(read) == most or (may_stop and len(read) == 2 and score < _THIRD_SHARE * last):
                break
            read[key] = (passage, score)
            last = score
        return read


def _content_key(passage: Document) -> tuple[str, str]:
    """Return the title and the text with single spaces, which duplicates share."""
    return passage.title, " ".join(passage.text.split())


def _signals(found: Found) -> dict[str, float]:
    """Return scores of the search as a whole, from which the reader estimates its confidence."""
    ranking = found.ranking
    seeds = [score for _, score in ranking.seeds]
    return {
        "hops": ranking.hops,
        "best seed": seeds[0] if seeds else 0.0,
        "second seed": seeds[1] if len(seeds) > 1 else 0.0,
        "best chain": ranking.chains[0].probability if ranking.chains else 0.0,
        "chain length": float(len(ranking.chains[0].rows)) if ranking.chains else 0.0,
        "best share": ranking.scores[0] if ranking.scores else 0.0,
    }


def _make(parts: Parts, settings: HopsSettings, name: str) -> Method:
    if parts.hops is None:
        raise InputError(f"{name} needs a search across hops, which Engine.run provides; call that")
    return Hops(parts.model, settings, hops=parts.hops, name=name)


register(
    MethodRow(
        "hops",
        "search across hops → read the passages that answer together → answer with a span of them",
        Hops,
        HopsSettings(),
        make=_make,
        space=(choice("passages", 2, 3, 4, 5, 8),),
    )
)
