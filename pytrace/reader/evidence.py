"""Chains become evidence: the triples themselves, or the documents that they vote for.

Source: TRACE, section 3.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from pytrace.records import Chain, ChainSearch, Document, Evidence, TextUnit, Unit


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
    """Return the documents that the chains' units come from, by votes; those without a vote are left out (TRACE-Doc)."""
    votes = count_votes(chains)
    ranked = sorted(votes, key=lambda document_id: -votes[document_id])[:most]
    return Evidence(
        kind="documents",
        context=tuple(document_text(documents[document_id]) for document_id in ranked),
        document_ids=tuple(ranked),
        votes=votes,
        derivation=ChainSearch(tuple(chains)),
    )


def all_documents(documents: Sequence[Document]) -> Evidence:
    """Return all documents in their given order (the baseline "w. all documents")."""
    return Evidence(
        kind="documents",
        context=tuple(document_text(document) for document in documents),
        document_ids=tuple(document.id for document in documents),
    )


def count_votes(chains: Sequence[Chain]) -> dict[str, int]:
    """Count one vote for a document for every unit of every chain, in the order of first appearance."""
    return dict(Counter(unit.document_id for chain in chains for unit in chain.units))


def document_text(document: Document) -> str:
    """`[title] text`, as the reader sees a document."""
    return f"[{document.title}] {document.text}"


def supporting_sentence(unit: Unit, documents: Mapping[str, Document]) -> str:
    """Return the sentence that supports a unit; the document's text if it supports it as a whole, "" if unknown."""
    document = documents.get(unit.document_id)
    if document is None:
        return ""
    return document.sentences[unit.sentence] if 0 <= unit.sentence < len(document.sentences) else document.text
