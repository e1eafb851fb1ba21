"""How ``pytrace ask`` shows an answer: as text, and as the document of ``--json``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytrace.cli import common
from pytrace.reader.evidence import supporting_sentence
from pytrace.records import (
    Answer,
    Chain,
    Coverage,
    Document,
    Evidence,
    FeatureCover,
    KnowledgeQuery,
    TextUnit,
    Unit,
    WrittenTriples,
)

# A query may give as many values as it may give rows; more than these would bury the rest.
_VALUES = 20
_TITLES = 8  # of a corpus of 20 documents, the most that a method is given, they would fill several lines


def print_answer(answer: Answer, documents: Sequence[Document], *, explain: bool) -> None:
    """Print the answer, the best chain with its sentences, and with `explain` everything that led to it."""
    by_id = {document.id: document for document in documents}
    evidence = answer.evidence
    common.print_styled(f"Answer: {answer.text or '(none)'}", "bold green")
    if explain:
        _print_places(answer, by_id)
    for note in answer.notes:  # what the method had to leave out or make do with
        common.print_styled(f"Note: {note}", "yellow")
    for number, chain in enumerate(evidence.chains if explain else evidence.chains[:1], 1):
        _print_chain(number, chain, by_id, explain=explain)
    if not evidence.chains:
        _print_sources(evidence, by_id, explain=explain)
    if isinstance(evidence.derivation, FeatureCover) and evidence.derivation.coverage:
        _print_coverage(evidence.derivation, by_id, explain=explain)
    if explain:
        written = evidence.derivation.triples if isinstance(evidence.derivation, WrittenTriples) else ()
        _print_section(
            "Triples written from the question", [f"  {common.printable(triple.text)}" for triple in written]
        )
        thoughts = enumerate(evidence.reasoning.rationale, 1)
        _print_section("Thoughts", [f"  {number}. {sentence}" for number, sentence in thoughts])
        queries = enumerate(evidence.reasoning.queries, 1)
        lines = [line for number, query in queries for line in _query_lines(number, query)]
        _print_section("Asked of the knowledge base", lines)
        if evidence.votes:
            common.print_styled("\nVotes")
            ranked = sorted(evidence.votes.items(), key=lambda item: -item[1])
            common.print_table(("VOTES", "DOCUMENT"), [(votes, _title(document, by_id)) for document, votes in ranked])
        _print_costs(answer)


def _print_places(answer: Answer, by_id: dict[str, Document]) -> None:
    """Print the sentences that an answer was taken out of, with its words marked."""
    for place in answer.places:
        document = by_id[place.document_id]
        before, words, behind = place.cut(document)
        marked = f"{before}**{words}**{behind}"
        common.print_text(common.printable(f'  {document.title}: "{marked}"' if place.sentence >= 0 else f"  {marked}"))
        if document.source:
            common.print_styled(common.printable(f"     from {document.citation(place.sentence)}"), "dim")
    if answer.probability is not None:
        common.print_text(f"  right with probability {answer.probability:.2f}")


def _print_section(title: str, lines: Sequence[str]) -> None:
    """Print lines under a title; nothing where there are none."""
    if lines:
        common.print_styled(f"\n{title}")
        for line in lines:
            common.print_text(line)


def _print_sources(evidence: Evidence, by_id: dict[str, Document], *, explain: bool) -> None:
    """Print what was read: sentences as they are, documents by title, and with `explain` where each stands."""
    queries = evidence.reasoning.queries
    if evidence.kind in {"sentences", "mixed", "facts"}:
        for entry in evidence.context:
            common.print_text(f"  {common.printable(_shorten(entry))}")
    if evidence.kind == "facts":
        stores = dict.fromkeys(query.store for query in queries if query.facts or query.statement)
        common.print_text(f"Facts of {', '.join(map(common.printable, stores))}.")
        return
    titles = [_title(document, by_id) for document in evidence.document_ids]
    more = f" and {len(titles) - _TITLES} more" if len(titles) > _TITLES else ""
    what = "passages" if any(by_id[id].is_passage for id in evidence.document_ids if id in by_id) else "documents"
    shown = f"Read from {len(titles)} {what}: {', '.join(titles[:_TITLES])}{more}"
    common.print_text(common.printable(shown) if titles else "Read from no document.")
    for document in (by_id.get(document_id) for document_id in evidence.document_ids if explain):
        if document is not None and document.source:
            common.print_styled(common.printable(f"  from {document.citation()}"), "dim")


def _title(document_id: str, by_id: dict[str, Document]) -> str:
    """Return a document's title, a passage's with its number; the id if it was not given but found or written by the method."""
    if document_id not in by_id:
        return document_id
    document = by_id[document_id]
    if document.origin is None or not document.is_passage:
        return document.title
    return f"{document.title} {document_id.removeprefix(document.origin.document)}"


def _print_coverage(cover: FeatureCover, by_id: dict[str, Document], *, explain: bool) -> None:
    """Print which snippets hold which feature of the question, and which feature nobody holds."""

    def snippet(rank: int, probability: float | None) -> str:
        document_id, sentence = cover.pool[rank]
        where = "" if sentence < 0 else f" (sentence {sentence + 1})"
        certainty = "undecided" if probability is None else f"p={probability:.2f}"
        return f"{_title(document_id, by_id)}{where} {certainty}"

    def held(coverage: Coverage) -> str:
        ranks = coverage.covered_by if explain else coverage.chosen
        return ", ".join(snippet(rank, coverage.probabilities[rank]) for rank in ranks)

    common.print_styled("\nFeatures")
    common.print_records(
        cover.coverage,
        (
            ("KIND", lambda coverage: coverage.feature.kind),
            ("FEATURE", lambda coverage: coverage.feature.statement),
            ("HELD BY", lambda coverage: held(coverage) or "nobody"),
        ),
    )


def _query_lines(number: int, query: KnowledgeQuery) -> Iterator[str]:
    """Yield what a knowledge base was asked, how it was asked, and what it said."""
    asker = "the question itself" if query.place < 0 else f"thought {query.place + 1}"
    yield f"  {number}. {common.printable(query.question)} ({asker})"
    for label, text in _query_details(query):
        yield f"     {label}: {common.printable(text)}"


def _query_details(query: KnowledgeQuery) -> Iterator[tuple[str, str]]:
    for written, reason in query.refused:
        yield "refused", f"{written or '(nothing)'}: {reason}"
    if query.written:
        yield "written", query.written
    for mention, key, score in query.links:
        yield "linked", f"{mention} to {key} ({score:.2f})"
    if query.sparql:
        yield "run", f"{query.sparql} on {query.store}"
    values = ", ".join(query.values[:_VALUES])
    more = f" and {len(query.values) - _VALUES} more" if len(query.values) > _VALUES else ""
    outcome = f"{query.outcome}: {values}{more}" if values else query.outcome
    yield "outcome", f"{outcome} ({query.reason})" if query.reason else outcome
    if query.statement:
        yield "in words", query.statement
    for fact in query.facts:
        yield "fact", f"{fact.text}  {fact.triple.text}"


def _print_chain(number: int, chain: Chain, by_id: dict[str, Document], *, explain: bool) -> None:
    ending = "ended by the selector" if chain.finished else "full length"
    detail = f", {ending}" if explain else ""
    common.print_styled(f"\nChain {number} (probability {math.exp(chain.score):.3f}{detail})")
    for position, triple in enumerate(chain.units):
        probability = f"  p={math.exp(chain.steps[position]):.3f}" if explain else ""
        document = by_id.get(triple.document_id)
        support = "" if document is None else f'{document.title}: "{_shorten(supporting_sentence(triple, by_id))}"'
        # A sentence is its own support; saying it twice would help nobody.
        own_support = support and isinstance(triple, TextUnit)
        shown = support if own_support else triple.text
        common.print_text(common.printable(f"  {position + 1}. {shown}{probability}"))
        if support and not own_support:
            common.print_styled(common.printable(f"     {support}"), "dim")
        if explain and document is not None and document.source:
            common.print_styled(common.printable(f"     from {document.citation(triple.sentence)}"), "dim")


def _shorten(text: str, width: int = 240) -> str:
    return text if len(text) <= width else text[: width - 1].rsplit(" ", 1)[0] + "…"


def _print_costs(answer: Answer) -> None:
    common.print_styled("\nCost")
    common.print_records(
        answer.seconds,
        (
            ("STAGE", lambda stage: stage),
            ("SECONDS", lambda stage: f"{answer.seconds[stage]:.2f}"),
            ("PROMPTS", lambda stage: answer.usage[stage].calls),
            ("TOKENS ASKED FOR", lambda stage: answer.usage[stage].prompt_tokens),
            ("TOKENS EVALUATED", lambda stage: answer.usage[stage].evaluated_tokens),
            ("TOKENS GENERATED", lambda stage: answer.usage[stage].generated_tokens),
        ),
    )
    common.print_text(f"The reader saw {answer.context_tokens} tokens of evidence.")


def answer_document(answer: Answer, documents: Sequence[Document], *, explain: bool) -> dict[str, Any]:
    """Return what ``--json`` prints: the answer, its chains with sentences, votes and costs."""
    by_id = {document.id: document for document in documents}
    # The others of a corpus, thousands perhaps, have no part in the answer.
    used = set(answer.evidence.document_ids) | set(answer.evidence.votes)
    used |= {triple.document_id for chain in answer.evidence.chains for triple in chain.units}
    result: dict[str, Any] = {
        "question": answer.question,
        "answer": answer.text,
        "method": answer.method,
        "chains": [_chain(chain, by_id) for chain in answer.evidence.chains],
        "documents": [
            {
                "id": document.id,
                "title": document.title,
                "source": document.source,
                "origin": document.origin,
                "votes": answer.evidence.votes.get(document.id, 0),
                # Its text, or sentences of it.
                "read": answer.evidence.kind != "triples" and document.id in answer.evidence.document_ids,
            }
            for document in documents
            if document.id in used
        ],
        "notes": answer.notes,
    }
    derivation = answer.evidence.derivation
    if isinstance(derivation, FeatureCover) and derivation.coverage:
        result["features"] = [_feature(each, derivation, by_id, explain=explain) for each in derivation.coverage]
    if isinstance(derivation, WrittenTriples) and derivation.triples:
        result["triples"] = [(triple.head, triple.relation, triple.tail) for triple in derivation.triples]
    if rationale := answer.evidence.reasoning.rationale:
        result["rationale"] = rationale
    if queries := answer.evidence.reasoning.queries:
        result["queries"] = msgspec.to_builtins(queries)
    if explain:
        result["context"] = answer.evidence.context
    if answer.probability is not None:
        result["probability"] = answer.probability
        result["places"] = msgspec.to_builtins(answer.places)
    result["context_tokens"] = answer.context_tokens
    result["deterministic"] = answer.deterministic
    result["seconds"] = answer.seconds
    result["usage"] = msgspec.to_builtins(answer.usage)
    return result


def _feature(coverage: Coverage, cover: FeatureCover, by_id: dict[str, Document], *, explain: bool) -> dict[str, Any]:
    """Return a feature and the snippets that hold it; with `explain` all that were judged."""

    def snippet(rank: int) -> dict[str, Any]:
        document_id, sentence = cover.pool[rank]
        return {
            "rank": rank + 1,
            "document_id": document_id,
            "document": _title(document_id, by_id),
            "sentence_index": sentence,
            "probability": coverage.probabilities[rank],
            "chosen": rank in coverage.chosen,
        }

    ranks = range(len(coverage.probabilities)) if explain else coverage.covered_by
    return {
        "kind": coverage.feature.kind,
        "text": coverage.feature.text,
        "nodes": coverage.feature.nodes,
        "covered": bool(coverage.covered_by),
        "snippets": [snippet(rank) for rank in ranks],
    }


def _chain(chain: Chain, by_id: dict[str, Document]) -> dict[str, Any]:
    from pytrace.triples.graph.graph_records import row_of

    def link(triple: Unit, step: float) -> dict[str, Any]:
        head, relation, tail, _, _ = row_of(triple)
        document = by_id.get(triple.document_id)
        return {
            "head": head,
            "relation": relation,
            "tail": tail,
            "probability": math.exp(step),
            "document": document.title if document is not None else None,
            "sentence_index": triple.sentence,
            "sentence": supporting_sentence(triple, by_id),
        }

    return {
        "probability": math.exp(chain.score),
        "log_probability": chain.score,
        "ended": chain.finished,
        # Where the selector ended the chain there is one step more, the ending.
        "triples": [link(triple, step) for triple, step in zip(chain.units, chain.steps, strict=False)],
    }
