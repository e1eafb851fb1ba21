"""How an answer is told: a few lines, all of it with --explain, or one JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from pytrace.cli import common
from pytrace.evidence import supporting_sentence
from pytrace.records import Answer, Chain, Document, Triple


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
        titles = [by_id[one].title for one in answer.evidence.document_ids]
        shown = ", ".join(titles[:8]) + (f" and {len(titles) - 8} more" if len(titles) > 8 else "")
        common.print_text(f"Read from {len(titles)} documents: {shown}")
    if explain:
        _print_votes(answer, by_id)
        _print_costs(answer)


def _print_chain(number: int, chain: Chain, by_id: dict[str, Document], *, explain: bool) -> None:
    ending = "ended by the selector" if chain.finished else "full length"
    detail = f", {ending}" if explain else ""
    common.print_styled(f"\nChain {number} (probability {math.exp(chain.score):.3f}{detail})", "bold")
    for position, triple in enumerate(chain.triples):
        probability = f"  p={math.exp(chain.steps[position]):.3f}" if explain else ""
        document = by_id.get(triple.document_id)
        said = _shorten(supporting_sentence(triple, by_id))
        if document is not None and not triple.relation:
            # A sentence is its own support; saying it twice would help nobody.
            common.print_text(f'  {position + 1}. {document.title}: "{said}"{probability}')
        else:
            common.print_text(f"  {position + 1}. {triple.text}{probability}")
        if document is not None:
            if triple.relation:
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
    used |= {triple.document_id for chain in answer.evidence.chains for triple in chain.triples}
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
                "read": answer.evidence.kind == "documents" and document.id in answer.evidence.document_ids,
            }
            for document in documents
            if document.id in used
        ],
        "notes": answer.notes,
    }
    if explain:
        result["context"] = answer.evidence.context
    result["context_tokens"] = answer.context_tokens
    result["deterministic"] = answer.deterministic
    result["seconds"] = answer.seconds
    result["usage"] = msgspec.to_builtins(answer.usage)
    return result


def _chain(chain: Chain, by_id: dict[str, Document]) -> dict[str, Any]:
    def told(triple: Triple, step: float) -> dict[str, Any]:
        document = by_id.get(triple.document_id)
        return {
            "head": triple.head,
            "relation": triple.relation,
            "tail": triple.tail,
            "probability": math.exp(step),
            "document": document.title if document is not None else None,
            "sentence_index": triple.sentence,
            "sentence": supporting_sentence(triple, by_id),
        }

    return {
        "probability": math.exp(chain.score),
        "log_probability": chain.score,
        "ended": chain.finished,
        "triples": [told(triple, step) for triple, step in zip(chain.triples, chain.steps, strict=False)],
    }
