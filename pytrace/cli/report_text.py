"""An evaluation's report as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytrace.cli import common

if TYPE_CHECKING:
    from pytrace.evaluation.scores.comparisons import Comparison, SeedSummary
    from pytrace.evaluation.scores.labels_and_queries import ClaimScores, KnowledgeScores
    from pytrace.evaluation.scores.metrics import Mean
    from pytrace.evaluation.scores.significance import BootstrapTest, Spread
    from pytrace.evaluation.scores.study import Study
    from pytrace.evaluation.scores.summary import MethodSummary, PoolRecall, Report


def print_report(report: Report) -> None:
    """Print the tables of an evaluation's report, and how its methods compare."""

    def whole(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    common.print_text(f"{report.questions} questions")
    if report.pool is not None and report.pool.held < report.pool.relevant:
        _print_pool(report.pool)
    columns = (
        "METHOD", "EM", "F1", "SUPPORT P", "SUPPORT R", "ERROR RATE", "CONTEXT", "PROMPTS",
        "ASKED", "EVALUATED (MEDIAN)", "SHARE", "SECONDS", "FAILED",
    )  # fmt: skip
    common.print_table(
        columns,
        [
            (
                one.method,
                _with_interval(one.exact_match, one.exact_match_interval),
                _with_interval(one.f1, one.f1_interval),
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
    if any(one.ranking is not None and one.ranking.graded for one in report.methods):
        _print_rankings(report.methods)
    if any(one.chains is not None for one in report.methods):
        _print_chains(report.methods)
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
    _print_comparisons(report)


def _print_study(study: Study) -> None:
    from pytrace.evaluation.scores.study import study_tables

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


def _print_pool(pool: PoolRecall) -> None:
    """Say what the documents that methods are given can yield at most."""
    common.print_text(
        f"methods are given {pool.held:,} of the {pool.relevant:,} supporting documents ({_percent(pool.held / pool.relevant)} %), "
        f"{_decimal(pool.documents)} documents a question on average; the support recall can be {_percent(pool.recall.mean)} "
        "at most"
    )


def _print_rankings(methods: Sequence[MethodSummary]) -> None:
    """Print how well the chosen documents are ranked."""
    shown = [(one.method, one.ranking) for one in methods if one.ranking is not None]
    depths = list(shown[0][1].recall)
    common.print_text("\nchosen documents as a ranking; a depth beyond those chosen finds no more")
    common.print_table(
        ("METHOD", "CHOSEN", "NDCG@10", *(f"RECALL@{depth}" for depth in depths)),
        [
            (
                method,
                _decimal(one.documents),
                _percent(one.ndcg.mean),
                *(_percent(one.recall[depth].mean) for depth in depths),
            )
            for method, one in shown
        ],
    )


def _print_chains(methods: Sequence[MethodSummary]) -> None:
    """Print the statistics of graphs and chains (TRACE, Table 5), and how much gold evidence they hold."""
    shown = [(one, one.chains) for one in methods if one.chains is not None]
    common.print_text(
        "\ngraphs and chains, averages of questions: documents given, graph, chains, documents they come from"
    )
    columns = (
        "METHOD", "DOCUMENTS", "ERROR RATE", "ENTITIES", "TRIPLES", "DENSITY %", "CHAINS", "LENGTH",
        "FOUND DOCUMENTS", "THEIR ERROR RATE",
    )  # fmt: skip
    common.print_table(
        columns,
        [
            (
                one.method,
                _decimal(chains.documents),
                _percent(chains.document_error_rate.mean),
                _decimal(chains.entities),
                _decimal(chains.triples),
                "-" if chains.density.mean is None else f"{100 * chains.density.mean:.2f}",
                _decimal(chains.chains),
                _decimal(chains.length),
                _decimal(chains.found_documents),
                _percent(chains.found_error_rate.mean),
            )
            for one, chains in shown
        ],
    )
    if not any(chains.triple_recall.n or chains.sentence_recall.n for _, chains in shown):
        return
    common.print_text("\ngold evidence: its share in the best chain, in all chains, and in the context")
    gold_columns = (
        "METHOD", "TRIPLES, BEST CHAIN", "ALL CHAINS", "QUESTIONS", "SENTENCES, BEST CHAIN", "ALL CHAINS", "CONTEXT",
        "QUESTIONS",
    )  # fmt: skip
    common.print_table(
        gold_columns,
        [
            (
                one.method,
                _percent(chains.best_triple_recall.mean),
                _percent(chains.triple_recall.mean),
                str(chains.triple_recall.n),
                _percent(chains.best_sentence_recall.mean),
                _percent(chains.sentence_recall.mean),
                _percent(one.supporting_sentences.mean),
                str(chains.sentence_recall.n),
            )
            for one, chains in shown
        ],
    )


def _print_comparisons(report: Report) -> None:
    """Print how methods differ from the baseline, or from the first one where there is none; --json has every pair."""
    centre = report.baseline or (report.methods[0].method if report.methods else "")
    pairs = [pair for pair in report.comparisons if centre in (pair.first, pair.second)]
    if not any(test.n > 1 for pair in pairs for test in (pair.exact_match, pair.supporting_recall)):
        return
    many = any(pair.adjusted for pair in pairs)
    common.print_text(
        "\ndifferences, with 95 % intervals and p-values"
        + (" (in brackets: adjusted by Holm's method)" if many else "")
    )
    graded = any(one.ranking is not None and one.ranking.graded for one in report.methods)
    measures = [
        (heading, name)
        for heading, name in _COMPARED
        if any(getattr(pair, name).n for pair in pairs) and (graded or name != "ndcg")
    ]
    columns = ["METHODS"]
    for heading, name in measures:
        columns += [heading, "P", "MCNEMAR P"] if name == "exact_match" else [heading, "P"]
    rows = []
    for pair in pairs:
        row = [f"{pair.first} - {pair.second}"]
        for _, name in measures:
            row += _tested(pair, name)
            if name == "exact_match":
                row.append(_p_value(pair, "exact_match_mcnemar", pair.exact_match_mcnemar.p_value))
        rows.append(row)
    common.print_table(columns, rows)


# What is compared, by its heading and its name in a comparison.
_COMPARED = (
    ("EM", "exact_match"),
    ("F1", "f1"),
    ("NDCG@10", "ndcg"),
    ("SUPPORT R", "supporting_recall"),
    ("ERROR RATE", "supporting_error_rate"),
    ("CONTEXT", "context_tokens"),
)


def _tested(pair: Comparison, name: str) -> tuple[str, str]:
    test: BootstrapTest = getattr(pair, name)
    if test.difference is None:
        return "-", "-"
    scale, form = (1, "+,.0f") if name == "context_tokens" else (100, "+,.1f")
    shown = format(scale * test.difference, form)
    if test.low is not None and test.high is not None:
        shown += f" ({format(scale * test.low, form)} to {format(scale * test.high, form)})"
    return shown, _p_value(pair, name, test.p_value)


def _p_value(pair: Comparison, name: str, p_value: float | None) -> str:
    if p_value is None:
        return "-"
    adjusted = pair.adjusted.get(name)
    return f"{p_value:.4f}" if adjusted is None else f"{p_value:.4f} ({adjusted:.4f})"


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or interval is None:
        return _percent(value)
    return f"{_percent(value)} ({_percent(interval[0])}–{_percent(interval[1])})"


def _decimal(mean: Mean) -> str:
    return "-" if mean.mean is None else f"{mean.mean:,.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def print_seeds(summaries: Sequence[SeedSummary]) -> None:
    """Print the scores over seeds of the methods that were asked with several."""

    def words(spread: Spread) -> tuple[str, str, str]:
        extent = f"{_percent(spread.minimum)}–{_percent(spread.maximum)}"
        return _percent(spread.mean), _percent(spread.standard_deviation), extent

    if summaries:
        common.print_text("\nOver seeds: mean, standard deviation, minimum–maximum")
        common.print_table(
            ("METHOD", "SEEDS", "EM", "SD", "MIN–MAX", "F1", "SD", "MIN–MAX"),
            [(one.method, str(len(one.seeds)), *words(one.exact_match), *words(one.f1)) for one in summaries],
        )
