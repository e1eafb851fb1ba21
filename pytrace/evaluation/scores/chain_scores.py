"""How much of the gold evidence chains and contexts hold, and how large the graphs are that chains are searched in."""

# Source: TRACE, Appendix C.3, Table 5. The paper has no labels to tell how good its chains are; where a data set has
# gold triples (2WikiMultiHopQA) or gold sentences (HotpotQA, 2WikiMultiHopQA), there are some.

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.scores.metrics import Mean, mean_of, support_score
from pytrace.kernels.fuzzy import partial_ratio
from pytrace.reader.answers import normalise_answer
from pytrace.records import Question, Triple
from pytrace.results import Step

ALIKE = 80.0
"""Two names are one from this partial ratio on."""

HELD = 90.0
"""A text that has not a name's words holds it from this partial ratio on: a short name is nearly some part of any long text."""

# Shorter names are letters of nearly any text, so that a ratio says nothing of them.
_SHORTEST = 3
_NUMBERS = re.compile(r"[0-9]+")


class GoldEvidence(msgspec.Struct, frozen=True):
    """What a question's data know of its evidence, without the documents themselves."""

    documents: int  # how many a method is given
    given: tuple[str, ...]  # the supporting ones among them
    supporting: tuple[str, ...]  # all
    grades: dict[str, int]  # 1 each where the data are not graded
    graded: bool
    triples: tuple[Triple, ...]
    sentences: tuple[tuple[str, int, str], ...]  # the gold ones: document id, index, text


class ChainStatistics(msgspec.Struct, frozen=True):
    """Chains of a method and the graphs that they come from, averaged over questions; shares lie between 0 and 1.

    `documents` and `document_error_rate` are of the documents that a question gives, the rate being the share that does not
    support; `found_documents` and `found_error_rate` of those that its chains' triples come from. `entities`, `triples` and
    `density` are of the graph that was searched. `length` counts the triples of a chain.

    `best_triple_recall` and `triple_recall` are the shares of the gold triples in the first chain and in all that were read,
    `best_sentence_recall` and `sentence_recall` those of the gold sentences that their triples come from. A question that failed
    counts as one whose chains hold nothing there, and nowhere else.
    """

    documents: Mean
    document_error_rate: Mean
    entities: Mean
    triples: Mean
    density: Mean
    chains: Mean
    length: Mean
    found_documents: Mean
    found_error_rate: Mean
    best_triple_recall: Mean
    triple_recall: Mean
    best_sentence_recall: Mean
    sentence_recall: Mean


def gold_evidence(question: Question) -> GoldEvidence:
    """Return what a question's data know of its evidence; gold sentences that it does not have are left out."""
    documents = {document.id: document for document in question.documents}
    grades = dict(question.grades)
    supporting = tuple(dict.fromkeys(question.supporting_documents))
    return GoldEvidence(
        documents=len(question.documents),
        given=tuple(id for id in supporting if id in documents),
        supporting=supporting,
        grades={id: grades.get(id, 1) for id in supporting},
        graded=bool(grades),
        triples=question.triples,
        sentences=tuple(
            (id, index, documents[id].sentences[index])
            for id, index in question.supporting_facts
            if id in documents and 0 <= index < len(documents[id].sentences)
        ),
    )


class _Piece(NamedTuple):
    """A step of a chain with its passage: a triple, or a text and its title."""

    document_id: str
    title: str
    step: Step


def chain_statistics(rows: Sequence[RunRow], gold: Mapping[str, GoldEvidence]) -> ChainStatistics | None:
    """Sum up the chains that a method's search made."""
    # TRACE, Appendix C.3, Table 5.
    answered = [(row, row.result.evidence) for row in rows if row.result is not None]
    graphs = [evidence.graph for _, evidence in answered if evidence.graph is not None]
    if not graphs and not any(evidence.method_chains for _, evidence in answered):
        return None
    known = [(chain_pieces(row), gold[row.question_id]) for row in rows if row.question_id in gold]
    chosen = [
        ({piece.document_id for chain in chain_pieces(row) for piece in chain if piece.document_id}, row)
        for row, _ in answered
    ]
    return ChainStatistics(
        documents=mean_of(evidence.documents for _, evidence in known),
        document_error_rate=mean_of(_error_rate(evidence) for _, evidence in known),
        entities=mean_of(graph.entities for graph in graphs),
        triples=mean_of(graph.triples for graph in graphs),
        density=mean_of(graph.density for graph in graphs),
        chains=mean_of(len(evidence.method_chains) for _, evidence in answered),
        # Each question's own mean first, so that one with many chains weighs no more than another.
        length=mean_of(mean_of(len(chain.steps) for chain in evidence.method_chains).mean for _, evidence in answered),
        found_documents=mean_of(len(ids) for ids, _ in chosen),
        found_error_rate=mean_of(support_score(ids, row.supporting_documents).error_rate for ids, row in chosen),
        best_triple_recall=mean_of(triple_recall(chains[:1], evidence.triples) for chains, evidence in known),
        triple_recall=mean_of(triple_recall(chains, evidence.triples) for chains, evidence in known),
        best_sentence_recall=mean_of(chain_sentence_recall(chains[:1], evidence) for chains, evidence in known),
        sentence_recall=mean_of(chain_sentence_recall(chains, evidence) for chains, evidence in known),
    )


def chain_pieces(row: RunRow) -> list[list[_Piece]]:
    """Return the steps of the chains that the method's search made, likeliest chain first."""
    if row.result is None:
        return []
    evidence = row.result.evidence
    sources = {number: (source.id, source.title) for number, source in enumerate(evidence.sources)}
    return [
        [_Piece(*sources.get(step.source, ("", "")), step) for step in chain.steps] for chain in evidence.method_chains
    ]


def triple_recall(chains: Iterable[Sequence[_Piece]], gold: Sequence[Triple]) -> float | None:
    """Return the share of gold triples that chains hold."""
    # A triple holds a gold one if their heads and their tails are alike, in either direction and whatever the relation:
    # equal once normalised, or with a partial ratio of 80, where all numbers of one name are among those of the other.
    # A sentence or a document in the place of a triple holds it if both of its names stand there: their words, or
    # nearly (a partial ratio of 90).
    wanted = list(dict.fromkeys((normalise_answer(triple.head), normalise_answer(triple.tail)) for triple in gold))
    if not wanted:
        return None
    pieces = [piece for chain in chains for piece in chain]
    triples = dict.fromkeys(piece.step.triple for piece in pieces if piece.step.triple is not None)
    pairs = [(normalise_answer(head), normalise_answer(tail)) for head, _, tail in triples]
    texts = dict.fromkeys(
        normalise_answer(f"{piece.title} {piece.step.sentence}") for piece in pieces if piece.step.triple is None
    )
    held = sum(
        any((_alike(head, a) and _alike(tail, b)) or (_alike(head, b) and _alike(tail, a)) for a, b in pairs)
        or any(_holds(text, head) and _holds(text, tail) for text in texts)
        for head, tail in wanted
    )
    return held / len(wanted)


def chain_sentence_recall(chains: Iterable[Sequence[_Piece]], gold: GoldEvidence) -> float | None:
    """Return the share of the gold sentences that chains' triples come from; None if there is no gold sentence."""
    # A document in the place of a triple comes from all of its sentences.
    if not gold.sentences:
        return None
    origins = {
        (piece.document_id, piece.step.sentence_index)
        for chain in chains
        for piece in chain
        if piece.step.sentence_index >= 0 or piece.step.triple is None
    }
    held = sum((id, index) in origins or (id, -1) in origins for id, index, _ in gold.sentences)
    return held / len(gold.sentences)


def context_sentence_recall(row: RunRow, gold: GoldEvidence) -> float | None:
    """Return the share of the gold sentences that a context rests on."""
    # They stand in the context word for word, and their document is among the evidence's; or, in a context of triples,
    # a triple of the chains comes from them. What did not fit the reader's model is not looked at.
    if not gold.sentences:
        return None
    if row.result is None:
        return 0.0
    evidence = row.result.evidence
    if evidence.kind == "triples" and (chains := chain_pieces(row)):
        return chain_sentence_recall(chains, gold)
    chosen = set(evidence.chosen)
    context = [" ".join(entry.split()) for entry in evidence.read_texts]
    held = sum(
        id in chosen and any(" ".join(sentence.split()) in entry for entry in context)
        for id, _, sentence in gold.sentences
    )
    return held / len(gold.sentences)


def _error_rate(gold: GoldEvidence) -> float | None:
    return 1 - len(gold.given) / gold.documents if gold.documents and gold.supporting else None


def _alike(first: str, second: str) -> bool:
    """Tell whether two normalised names are one: 1984 is no misspelt 1985, but one name may leave a number out."""
    if first == second:
        return bool(first)
    numbers, others = _numbers(first), _numbers(second)
    if min(len(first), len(second)) < _SHORTEST or not (numbers <= others or others <= numbers):
        return False
    return partial_ratio(first, second) >= ALIKE


def _holds(text: str, name: str) -> bool:
    """Tell whether a normalised text holds a normalised name."""
    if f" {name} " in f" {text} ":
        return bool(name)
    if not _SHORTEST <= len(name) <= len(text) or not _numbers(name) <= _numbers(text):
        return False
    return partial_ratio(name, text) >= HELD


@functools.lru_cache(maxsize=4_096)
def _numbers(text: str) -> frozenset[str]:
    return frozenset(_NUMBERS.findall(text))
