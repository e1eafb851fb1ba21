"""Chains become evidence: the triples themselves, or the documents that they vote for.

Source: TRACE, section 3.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from pytrace.records import Chain, ChainSearch, Document, Evidence, TextUnit, Unit

# So many characters stand between passages that follow each other: an empty line.
_BETWEEN = 2


def triple_evidence(chains: Sequence[Chain]) -> Evidence:
    """Return the chains' units in the order of their first appearance, none twice (TRACE-Triple)."""
    units = list(dict.fromkeys(unit for chain in chains for unit in chain.units))
    votes = count_votes(chains)
    kind: Literal["triples", "sentences", "documents"] = "triples"
    if units and all(isinstance(unit, TextUnit) for unit in units):
        kind = "documents" if all(unit.sentence < 0 for unit in units) else "sentences"
    return Evidence(
        kind=kind,
        context=tuple(dict.fromkeys(unit.text for unit in units)),
        document_ids=tuple(dict.fromkeys(unit.document_id for unit in units)),
        votes=votes,
        derivation=ChainSearch(tuple(chains)),
    )


def document_evidence(
    chains: Sequence[Chain], documents: Mapping[str, Document], *, most: int | None = None
) -> Evidence:
    """Return the documents that the chains' units come from, by votes; those without a vote are left out (TRACE-Doc).

    Passages that follow each other in a document are one text.
    """
    votes = count_votes(chains)
    ranked = sorted(votes, key=lambda document_id: -votes[document_id])[:most]
    return Evidence(
        kind="documents",
        context=_texts([documents[document_id] for document_id in ranked]),
        document_ids=tuple(ranked),
        votes=votes,
        derivation=ChainSearch(tuple(chains)),
    )


def all_documents(documents: Sequence[Document]) -> Evidence:
    """Return all documents in their given order (the baseline "w. all documents")."""
    return Evidence(
        kind="documents",
        context=_texts(documents),
        document_ids=tuple(document.id for document in documents),
    )


def count_votes(chains: Sequence[Chain]) -> dict[str, int]:
    """Count one vote for a document for every unit of every chain, in the order of first appearance."""
    return dict(Counter(unit.document_id for chain in chains for unit in chain.units))


def _texts(documents: Sequence[Document]) -> tuple[str, ...]:
    """Return what the reader sees of documents: one text each, but passages that follow each other under one title joined."""
    ranks = {document.id: rank for rank, document in enumerate(documents)}
    runs: list[list[Document]] = []
    for document in sorted(
        documents, key=lambda each: (each.origin.document, each.origin.start) if each.origin else ("", 0)
    ):
        if runs and _goes_on(runs[-1][-1], document):
            runs[-1].append(document)
        else:
            runs.append([document])
    runs.sort(key=lambda run: min(ranks[document.id] for document in run))
    return tuple(document_text(run[0]) if len(run) == 1 else _joined(run) for run in runs)


def _goes_on(before: Document, document: Document) -> bool:
    first, second = before.origin, document.origin
    if first is None or second is None or (first.document, before.title) != (second.document, document.title):
        return False
    return first.start < second.start <= first.end + _BETWEEN


def _joined(run: Sequence[Document]) -> str:
    sentences: list[str] = []
    end = -1
    for passage in run:
        assert passage.origin is not None  # else it is no run
        for start, sentence in zip(passage.origin.sentences, passage.sentences, strict=True):
            if start >= end:  # else the passage before has it, too
                sentences.append(sentence)
                end = start + len(sentence)
    return f"[{run[0].title}] {' '.join(sentences)}"


def document_text(document: Document) -> str:
    """`[title] text`, as the reader sees a document."""
    return f"[{document.title}] {document.text}"


def supporting_sentence(unit: Unit, documents: Mapping[str, Document]) -> str:
    """Return the sentence that supports a unit; the document's text if it supports it as a whole, "" if unknown."""
    document = documents.get(unit.document_id)
    if document is None:
        return ""
    return document.sentences[unit.sentence] if 0 <= unit.sentence < len(document.sentences) else document.text
