"""Chains become evidence: the triples themselves, or the documents that they vote for.

Source: TRACE, section 3.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pytrace.documents.passages import BLOCK_BREAK
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
        documents, key=lambda each: (each.origin.document, each.origin.start, each.origin.end) if each.origin else ("",)
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
    return first.start <= second.start <= first.end + len(BLOCK_BREAK) and first.end < second.end


def _joined(run: Sequence[Document]) -> str:
    placed: list[tuple[int, str]] = []
    end = -1
    for passage in run:
        assert passage.origin is not None  # else it is no run
        for start, sentence in zip(passage.origin.sentences, passage.sentences, strict=True):
            if start >= end:  # else the passage before has it, too
                placed.append((start, sentence))
                end = start + len(sentence)
    return f"[{run[0].title}] {_lines(placed)}"


def document_text(document: Document) -> str:
    """`[title] text`, as the reader sees a document: its title with the headings above it, and its lines."""
    return f"[{document.title}] {lines_of(document)}"


def lines_of(document: Document) -> str:
    """Return a document's sentences, each paragraph, item and line of code on a line of its own, as far as it is known where they end."""
    origin = document.origin
    if origin is None or len(origin.sentences) != len(document.sentences):
        return document.text
    return _lines(zip(origin.sentences, document.sentences, strict=True))


def _lines(placed: Iterable[tuple[int, str]]) -> str:
    """Join sentences, each with where it begins; where a block has ended between two of them, by a line break."""
    parts: list[str] = []
    end = 0
    for start, sentence in placed:
        if parts:
            parts.append("\n" if start - end >= len(BLOCK_BREAK) else " ")
        parts.append(sentence)
        end = start + len(sentence)
    return "".join(parts)


def supporting_sentence(unit: Unit, documents: Mapping[str, Document]) -> str:
    """Return the sentence that supports a unit; the document's text if it supports it as a whole, "" if unknown."""
    document = documents.get(unit.document_id)
    if document is None:
        return ""
    return document.sentences[unit.sentence] if 0 <= unit.sentence < len(document.sentences) else document.text
