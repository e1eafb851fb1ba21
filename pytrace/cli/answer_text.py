"""How an answer is told: a few lines, all of it with --explain, or one JSON document."""

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
    Triple,
    Unit,
    WrittenTriples,
)

# A query may give as many values as it may give rows; more than these would bury the rest.
_VALUES = 20


def print_answer(answer: Answer, documents: Sequence[Document], *, explain: bool) -> None:
    """Print the answer, the best chain with its sentences, and with `explain` everything that led to it."""
    by_id = {document.id: document for document in documents}
    common.print_styled(f"Answer: {answer.text or '(none)'}", "bold green")
    for note in answer.notes:
        common.print_styled(f"Note: {note}", "yellow")
    chains = answer.evidence.chains
    for number, chain in enumerate(chains if explain else chains[:1], 1):
        _print_chain(number, chain, by_id, explain=explain)
    if not chains:
        _print_sources(answer, by_id)
    _print_coverage(answer.evidence, by_id, explain=explain)
    if explain:
        _print_thoughts(answer.evidence)
        _print_queries(answer.evidence)
        _print_votes(answer, by_id)
        _print_costs(answer)


def _print_sources(answer: Answer, by_id: dict[str, Document]) -> None:
    """Print what was read: sentences as they are, documents by title."""
    evidence = answer.evidence
    if evidence.kind in {"sentences", "mixed", "facts"}:
        for entry in evidence.context:
            common.print_text(
                f"  {common.printable(_shorten(entry)) if evidence.reasoning.queries else _shorten(entry)}"
            )
    if evidence.kind == "facts":
        stores = dict.fromkeys(query.store for query in evidence.reasoning.queries if query.facts)
        common.print_text(f"Facts of {', '.join(map(common.printable, stores))}.")
        return
    titles = [_title(one, by_id) for one in evidence.document_ids]
    shown = ", ".join(titles[:8]) + (f" and {len(titles) - 8} more" if len(titles) > 8 else "")
    common.print_text(f"Read from {len(titles)} documents: {shown}" if titles else "Read from no document.")


def _title(document_id: str, by_id: dict[str, Document]) -> str:
    """Return a document's title; its id if it was not given but found or written by the method."""
    return by_id[document_id].title if document_id in by_id else document_id


def _print_coverage(evidence: Evidence, by_id: dict[str, Document], *, explain: bool) -> None:
    """Print which snippets hold which feature of the question, and which feature nobody holds."""
    cover = evidence.derivation
    if not isinstance(cover, FeatureCover) or not cover.coverage:
        return
    common.print_styled("\nFeatures", "bold")
    rows = []
    for one in cover.coverage:
        shown = one.covered_by if explain else one.chosen
        held = ", ".join(f"{_snippet(cover, at, by_id)} {_probability(one.probabilities[at])}" for at in shown)
        rows.append((one.feature.kind, one.feature.statement, held or "nobody"))
    common.print_table(("KIND", "FEATURE", "HELD BY"), rows)


def _snippet(cover: FeatureCover, rank: int, by_id: dict[str, Document]) -> str:
    document_id, sentence = cover.pool[rank]
    title = _title(document_id, by_id)
    return title if sentence < 0 else f"{title} (sentence {sentence + 1})"


def _probability(value: float | None) -> str:
    return "undecided" if value is None else f"p={value:.2f}"


def _print_thoughts(evidence: Evidence) -> None:
    if isinstance(evidence.derivation, WrittenTriples) and evidence.derivation.triples:
        common.print_styled("\nTriples written from the question", "bold")
        for triple in evidence.derivation.triples:
            common.print_text(f"  {triple.text}")
    if evidence.reasoning.rationale:
        common.print_styled("\nThoughts", "bold")
        for number, sentence in enumerate(evidence.reasoning.rationale, 1):
            common.print_text(f"  {number}. {sentence}")


def _print_queries(evidence: Evidence) -> None:
    """Print what a knowledge base was asked, how it was asked, and what it said."""
    if not evidence.reasoning.queries:
        return
    common.print_styled("\nAsked of the knowledge base", "bold")
    for number, query in enumerate(evidence.reasoning.queries, 1):
        place = "the question itself" if query.place < 0 else f"thought {query.place + 1}"
        common.print_text(f"  {number}. {common.printable(query.question)} ({place})")
        for label, text in _query_lines(query):
            common.print_text(f"     {label}: {common.printable(text)}")


def _query_lines(query: KnowledgeQuery) -> Iterator[tuple[str, str]]:
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
    for fact in query.facts:
        yield "fact", f"{fact.text}  {fact.triple.text}"


def _print_chain(number: int, chain: Chain, by_id: dict[str, Document], *, explain: bool) -> None:
    ending = "ended by the selector" if chain.finished else "full length"
    detail = f", {ending}" if explain else ""
    common.print_styled(f"\nChain {number} (probability {math.exp(chain.score):.3f}{detail})", "bold")
    for position, triple in enumerate(chain.units):
        probability = f"  p={math.exp(chain.steps[position]):.3f}" if explain else ""
        document = by_id.get(triple.document_id)
        said = _shorten(supporting_sentence(triple, by_id))
        if document is not None and isinstance(triple, TextUnit):
            # A sentence is its own support; saying it twice would help nobody.
            common.print_text(f'  {position + 1}. {document.title}: "{said}"{probability}')
        else:
            common.print_text(f"  {position + 1}. {triple.text}{probability}")
        if document is not None:
            if isinstance(triple, Triple):
                common.print_styled(f'     {document.title}: "{said}"', "dim")
            if explain and document.source:
                common.print_styled(f"     from {document.source}", "dim")


def _shorten(text: str, width: int = 240) -> str:
    return text if len(text) <= width else text[: width - 1].rsplit(" ", 1)[0] + "…"


def _print_votes(answer: Answer, by_id: dict[str, Document]) -> None:
    if answer.evidence.votes:
        common.print_styled("\nVotes", "bold")
        ranked = sorted(answer.evidence.votes.items(), key=lambda item: -item[1])
        common.print_table(("VOTES", "DOCUMENT"), [(str(votes), by_id[one].title) for one, votes in ranked])


def _print_costs(answer: Answer) -> None:
    common.print_styled("\nCost", "bold")
    rows = []
    for stage, seconds in answer.seconds.items():
        usage = answer.usage[stage]
        rows.append(
            (
                stage,
                f"{seconds:.2f}",
                str(usage.calls),
                str(usage.prompt_tokens),
                str(usage.evaluated_tokens),
                str(usage.generated_tokens),
            )
        )
    columns = ("STAGE", "SECONDS", "PROMPTS", "TOKENS ASKED FOR", "TOKENS EVALUATED", "TOKENS GENERATED")
    common.print_table(columns, rows)
    common.print_text(f"The reader saw {answer.context_tokens} tokens of evidence.")


def answer_document(answer: Answer, documents: Sequence[Document], *, explain: bool) -> dict[str, Any]:
    """Return what ``--json`` prints: the answer, its chains with sentences, votes and costs."""
    by_id = {document.id: document for document in documents}
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
        result["features"] = [_feature(one, derivation, by_id, explain=explain) for one in derivation.coverage]
    if isinstance(derivation, WrittenTriples) and derivation.triples:
        result["triples"] = [(one.head, one.relation, one.tail) for one in derivation.triples]
    if rationale := answer.evidence.reasoning.rationale:
        result["rationale"] = rationale
    if queries := answer.evidence.reasoning.queries:
        result["queries"] = msgspec.to_builtins(queries)
    if explain:
        result["context"] = answer.evidence.context
    result["context_tokens"] = answer.context_tokens
    result["deterministic"] = answer.deterministic
    result["seconds"] = answer.seconds
    result["usage"] = msgspec.to_builtins(answer.usage)
    return result


def _feature(one: Coverage, cover: FeatureCover, by_id: dict[str, Document], *, explain: bool) -> dict[str, Any]:
    """Return a feature and the snippets that hold it; with `explain` all that were judged."""

    def told(place: int) -> dict[str, Any]:
        document_id, sentence = cover.pool[place]
        return {
            "rank": place + 1,
            "document_id": document_id,
            "document": _title(document_id, by_id),
            "sentence_index": sentence,
            "probability": one.probabilities[place],
            "chosen": place in one.chosen,
        }

    return {
        "kind": one.feature.kind,
        "text": one.feature.text,
        "nodes": one.feature.nodes,
        "covered": bool(one.covered_by),
        "snippets": [told(place) for place in (range(len(one.probabilities)) if explain else one.covered_by)],
    }


def _chain(chain: Chain, by_id: dict[str, Document]) -> dict[str, Any]:
    def told(triple: Unit, step: float) -> dict[str, Any]:
        document = by_id.get(triple.document_id)
        from pytrace.triples.graph.graph_records import row_of

        head, relation, tail, _, _ = row_of(triple)
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
        "triples": [told(triple, step) for triple, step in zip(chain.units, chain.steps, strict=False)],
    }
