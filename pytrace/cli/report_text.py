"""An evaluation's report as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.cli import common

if TYPE_CHECKING:
    from pytrace.evaluation.claim_scores import ClaimScores
    from pytrace.evaluation.knowledge_scores import KnowledgeScores
    from pytrace.evaluation.report import Report
    from pytrace.evaluation.study import Study


def print_report(report: Report) -> None:
    """Print the tables of an evaluation's report, and how its methods compare."""

    def whole(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    common.print_text(f"{report.questions} questions")
    columns = (
        "METHOD", "EM", "F1", "SUPPORT P", "SUPPORT R", "ERROR RATE", "CONTEXT", "PROMPTS",
        "ASKED", "EVALUATED (MEDIAN)", "SHARE", "SECONDS", "FAILED",
    )  # fmt: skip
    common.print_table(
        columns,
        [
            (
                one.method,
                _percent(one.exact_match),
                _percent(one.f1),
                _percent(one.supporting_precision.mean),
                _percent(one.supporting_recall.mean),
                _percent(one.supporting_error_rate.mean),
                whole(one.context_tokens.mean),
                whole(one.calls.mean),
                whole(one.prompt_tokens.mean),
                whole(one.evaluated_tokens.median),
                "-" if one.evaluated_share is None else f"{one.evaluated_share:.2f}",
                f"{one.seconds.total:.1f}",
                str(one.failed),
            )
            for one in report.methods
        ],
    )
    for study in report.studies:
        _print_study(study)
    for scores in report.claims:
        _print_claims(scores)
    for asked in report.knowledge:
        _print_knowledge(asked)
    for one in report.methods:
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in one.seconds_by_stage.items())
        common.print_text(f"{one.method}: seconds by stage: {stages}")
        for failure in one.failures:
            common.print_text(f"{one.method}: {failure.question_id} failed: {failure.error}")
    # Of many methods, each with the first one; --json has every pair.
    many = len(report.methods) > 3
    for pair in report.comparisons:
        if many and report.methods[0].method not in (pair.first, pair.second):
            continue
        shown = [
            f"{name} {100 * test.difference:+.1f} (p {test.p_value:.3f})"
            for name, test in (("EM", pair.exact_match), ("F1", pair.f1))
            if test.difference is not None and test.p_value is not None
        ]
        if shown:
            common.print_text(f"{pair.first} - {pair.second}: {', '.join(shown)}")


def _print_study(study: Study) -> None:
    from pytrace.evaluation.study import study_tables

    for table in study_tables(study):
        common.print_text(f"\n{table.title}")
        common.print_table(table.columns, table.rows)


def _print_claims(scores: ClaimScores) -> None:
    """Print which label was given to the claims of which, and the scores of each."""
    common.print_text(
        f"\n{scores.method}: labels of {scores.n} claims, accuracy {_percent(scores.accuracy)}, macro F1 "
        f"{_percent(scores.macro_f1)}; how often each was given, and its scores"
    )
    given = list(
        dict.fromkeys([*(one.label for one in scores.labels), *(name for one in scores.labels for name in one.given)])
    )
    common.print_table(
        ("GOLD", *given, "PRECISION", "RECALL", "F1"),
        [
            (
                one.label,
                *(str(one.given.get(name, 0)) for name in given),
                _percent(one.precision),
                _percent(one.recall),
                _percent(one.f1),
            )
            for one in scores.labels
        ],
    )


def _print_knowledge(scores: KnowledgeScores) -> None:
    """Print how often a method asked its knowledge base, and how it did where it asked."""
    ended = ", ".join(f"{count} {outcome}" for outcome, count in scores.queries.items())
    common.print_text(
        f"{scores.method}: asked the knowledge base about {scores.asked} of {scores.n} questions "
        f"({_percent(scores.asked / scores.n)} %), of which {scores.informed} got facts; EM {_percent(scores.asked_exact_match)} "
        f"where it asked, {_percent(scores.other_exact_match)} where not; queries: {ended}; {scores.refused} refused on the way"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
