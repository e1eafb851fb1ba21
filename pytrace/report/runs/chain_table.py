"""The table of chains and of the graphs that they were searched in (Table 5 of TRACE's paper)."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.evaluation.scores.metrics import Mean
from pytrace.evaluation.scores.summary import MethodSummary
from pytrace.report.figures import NOTHING, finite
from pytrace.report.runs.run_tables import Cell, Head, method_cell, table

# Statistic, head, what it says in full, and whether it is a share.
_COLUMNS = (
    ("documents", "Documents", "documents that a question gives", False),
    ("document_error_rate", "Error rate", "share of those documents that support nothing, in percent", True),
    ("entities", "Entities", "entities of the graph that was searched", False),
    ("triples", "Triples", "triples of the graph that was searched", False),
    ("density", "Density", "density of the graph that was searched", False),
    ("chains", "Chains", "chains that were found", False),
    ("length", "Length", "triples of a chain", False),
    ("found_documents", "Found", "documents that the chains' triples come from", False),
    ("found_error_rate", "Found, error rate", "share of those documents that support nothing, in percent", True),
    ("best_triple_recall", "Triples, best", "share of the gold triples in the first chain, in percent", True),
    ("triple_recall", "Triples, all", "share of the gold triples in all chains, in percent", True),
    ("best_sentence_recall", "Sentences, best", "share of the gold sentences that the first chain comes from, in percent", True),
    ("sentence_recall", "Sentences, all", "share of the gold sentences that all chains come from, in percent", True),
)  # fmt: skip


def chains_table(methods: Sequence[MethodSummary]) -> str:
    """Write a row for each method with chains; empty if none has any. Statistics that no method has are left out."""
    known = [(number, one.method, one.chains) for number, one in enumerate(methods, 1) if one.chains is not None]
    columns = [one for one in _COLUMNS if any(_mean(getattr(own, one[0])) is not None for _, _, own in known)]
    if not columns:
        return ""
    rows = [
        [method_cell(number, method), *(_cell(_mean(getattr(own, name)), share) for name, _, _, share in columns)]
        for number, method, own in known
    ]
    heads = [Head("Method"), *(Head(head, full) for _, head, full, _ in columns)]
    caption = (
        "Averages over the questions: what they give, the graph that was searched, its chains, and what gold they hold"
    )
    return table(caption, heads, rows)


def _mean(value: Mean) -> float | None:
    return finite(value.mean)


def _cell(value: float | None, share: bool) -> Cell:
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{100 * value:.1f}" if share else f"{value:,.2f}", value)
