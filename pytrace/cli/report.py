"""``pytrace report``: score the answers that an evaluation kept once more, and an evaluation's scores as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pytrace.cli.commands import Command, Output, argument, option
from pytrace.cli.common import figure, percent, print_styled, print_table, print_text
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.evaluation.data.indexed_questions import Retrieval
    from pytrace.evaluation.scores.comparisons import Comparison, SeedSummary
    from pytrace.evaluation.scores.labels_and_queries import ClaimScores, KnowledgeScores
    from pytrace.evaluation.scores.metrics import Mean
    from pytrace.evaluation.scores.significance import BootstrapTest, Spread
    from pytrace.evaluation.scores.summary import MethodSummary, PoolRecall
    from pytrace.evaluation.scores.summary import Report as EvaluationReport


class Report(Command):
    """Score the answers of an evaluation once more, without any model, and write them for the eye and for spreadsheets.

    DIR is what 'pytrace eval' was given as --out; the evaluation may still be going on. Written are report.html, one page that
    needs no network: scores, comparisons and plots, and every question with each method's answer, chains and evidence; and
    methods.csv, comparisons.csv and questions.csv. Files of these names are replaced, each in one step.
    """

    directory: Path = argument("DIR")
    baseline: str | None = option("Method to compare the others with.  [default: the first]", metavar="METHOD")
    out: Path | None = option("Directory for the report.  [default: the run's]", metavar="DIR")
    title: str | None = option("Heading of the page.  [default: the name of the data]")
    export: Literal["ragas", "deepeval"] | None = option(
        "Also export the answers for this evaluator: one file per method, in the format of its data sets (docs/integrations.md)."
    )
    verify: bool = option("Write nothing; compare the whole run with its checksums.")

    def check(self) -> None:
        if self.verify and (self.baseline, self.out, self.title, self.export) != (None, None, None, None):
            raise click.UsageError("--verify writes nothing; leave out --baseline, --out, --title and --export")

    def run(self) -> Output:
        from pytrace.evaluation.run.run_store import RunStore
        from pytrace.evaluation.scores.summary import score_run
        from pytrace.report.csv_tables import write_csv_tables
        from pytrace.report.exports import write_exports
        from pytrace.report.html_page import write_page
        from pytrace.report.runs import report_page

        directory = self.directory
        path = directory / "run.sqlite"
        if not path.is_file():
            raise InputError(
                f"{directory} holds no run (there is no {path.name} in it); give the directory that was --out of 'pytrace eval'"
            )
        if self.verify:
            return _verified(path)
        # One snapshot, so that page and tables agree although the evaluation may be adding answers meanwhile.
        with RunStore(path) as store, store.snapshot():
            methods = store.methods()
            if not methods:
                raise InputError(
                    f"the run in {directory} has no answers yet; wait for the first, or resume it with 'pytrace eval --resume'"
                )
            baseline = methods[0] if self.baseline is None else self.baseline
            if baseline not in methods:
                raise InputError(f"the run in {directory} has no method {baseline!r}; it has {', '.join(methods)}")
            scored = score_run(store, baseline=baseline)
            title = self.title or Path(str(scored.notes.get("data") or "")).name or "Evaluation"
            out = self.out or directory
            out.mkdir(parents=True, exist_ok=True)
            page = out / "report.html"
            write_page(page, report_page(scored, store, title=title, baseline=baseline))
            written = [page, *write_csv_tables(out, scored, store)]
            if self.export is not None:
                written += write_exports(out, store, self.export)

        def show_text() -> None:
            print_report(scored)
            for file in written:
                print_text(f"written: {file}")

        return Output(scored, show_text)


def _verified(path: Path) -> Output:
    """Compare a run with its checksums."""
    from pytrace.evaluation.run.run_store import RunStore

    with RunStore(path) as store:
        rows = store.verify()
    return Output({"run": path, "checked": rows, "intact": True}, f"{path}: {rows:,} rows, all intact")


_FORMS: dict[str, Callable[..., str]] = {
    "text": str,
    "percent": percent,
    "fine percent": lambda value: f"{100 * value:.2f}",
    "count": "{:,.0f}".format,
    "tenths": "{:,.1f}".format,
    "hundredths": "{:.2f}".format,
    "seconds": "{:.1f}".format,
}


def print_report(report: EvaluationReport) -> None:
    """Print the tables of an evaluation's report, and how its methods compare."""
    print_text(f"{report.questions} questions")
    for notice in report.notices:
        print_styled(notice, "yellow")
    if report.pool is not None and report.pool.held < report.pool.relevant:
        _print_pool(report.pool)
    _print_columns("methods", report.methods)
    graded = any(method.ranking is not None and method.ranking.graded for method in report.methods)
    if graded:
        _print_rankings(report.methods)
    if any(method.chains is not None for method in report.methods):
        _print_chains(report.methods)
    if report.studies:
        from pytrace.evaluation.scores.study import study_tables

        for table in (table for study in report.studies for table in study_tables(study)):
            print_table(table.columns, table.rows, title=table.title)
    for scores in report.claims:
        _print_claims(scores)
    for queries in report.knowledge:
        _print_knowledge(queries)
    for method in report.methods:
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in method.seconds_by_stage.items())
        print_text(f"{method.method}: seconds by stage: {stages}")
        for failure in method.failures:
            print_text(f"{method.method}: {failure.question_id} failed: {failure.error}")
    _print_comparisons(report, graded=graded)


def _print_claims(scores: ClaimScores) -> None:
    """Print which label was given to the claims of which, and the scores of each."""
    # Gold labels first and in their order; a method may have given others.
    labels = dict.fromkeys(row.label for row in scores.labels)
    labels |= dict.fromkeys(name for row in scores.labels for name in row.given)
    print_table(
        ("GOLD", *labels, "PRECISION", "RECALL", "F1"),
        [
            (
                row.label,
                *(row.given.get(name, 0) for name in labels),
                percent(row.precision),
                percent(row.recall),
                percent(row.f1),
            )
            for row in scores.labels
        ],
        title=f"{scores.method}: labels of {scores.n} claims, accuracy {percent(scores.accuracy)}, macro F1 "
        f"{percent(scores.macro_f1)}; how often each was given, and its scores",
    )


def _print_knowledge(scores: KnowledgeScores) -> None:
    """Print how often a method asked its knowledge base, and how it did where it asked."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in scores.queries.items())
    print_text(
        f"{scores.method}: asked the knowledge base about {scores.asked} of {scores.n} questions "
        f"({percent(scores.asked / scores.n)} %), of which {scores.informed} got facts; EM {percent(scores.asked_exact_match)} "
        f"where it asked, {percent(scores.other_exact_match)} where not; queries: {outcomes}; {scores.refused} refused on the way"
    )


def _print_pool(pool: PoolRecall) -> None:
    """Say what the documents that methods are given can yield at most."""
    print_text(
        f"methods are given {pool.held:,} of the {pool.relevant:,} supporting documents ({percent(pool.held / pool.relevant)} %), "
        f"{_decimal(pool.documents)} documents a question on average; the support recall can be {percent(pool.recall.mean)} "
        "at most"
    )


def print_retrieval(retrieval: Retrieval) -> None:
    """Print how much of what supports answers was found in an index."""
    unseen = retrieval.unseen
    parts = [(retrieval, "", ""), *([(unseen, " UNSEEN", f", {unseen.questions} of them unseen")] if unseen else [])]
    print_table(
        ("PASSAGES", *(f"{heading}{name}" for heading in ("RECALL", "ALL FOUND") for _, name, _ in parts)),
        [
            (
                depth,
                *(percent(part.recall[depth]) for part, *_ in parts),
                *(percent(part.whole[depth]) for part, *_ in parts),
            )
            for depth in retrieval.recall
        ],
        title=f"supporting documents among the first passages that the index gave, of {retrieval.questions} questions{parts[-1][2]}",
    )


def _print_rankings(methods: Sequence[MethodSummary]) -> None:
    """Print how well the chosen documents are ranked."""
    rankings = [(method.method, method.ranking) for method in methods if method.ranking is not None]
    depths = list(rankings[0][1].recall)
    print_table(
        ("METHOD", "CHOSEN", "NDCG@10", *(f"RECALL@{depth}" for depth in depths)),
        [
            (
                name,
                _decimal(ranking.documents),
                percent(ranking.ndcg.mean),
                *(percent(ranking.recall[depth].mean) for depth in depths),
            )
            for name, ranking in rankings
        ],
        title="chosen documents as a ranking; a depth beyond those chosen finds no more",
    )


def _print_chains(methods: Sequence[MethodSummary]) -> None:
    """Print the statistics of graphs and chains (TRACE, Table 5), and how much gold evidence they hold."""
    shown = [method for method in methods if method.chains is not None]
    _print_columns("chains", shown)
    # Data without gold triples or sentences, such as BEIR's, have nothing to be found.
    if any(method.chains and (method.chains.triple_recall.n or method.chains.sentence_recall.n) for method in shown):
        _print_columns("gold evidence", shown)


# What is compared, by its heading and its name in a comparison.
_COMPARED = (
    ("EM", "exact_match"),
    ("F1", "f1"),
    ("NDCG@10", "ndcg"),
    ("SUPPORT R", "supporting_recall"),
    ("ERROR RATE", "supporting_error_rate"),
    ("CONTEXT", "context_tokens"),
)


def _print_comparisons(report: EvaluationReport, *, graded: bool) -> None:
    """Print how methods differ from the baseline, or from the first one where there is none; --json has every pair."""
    centre = report.baseline or (report.methods[0].method if report.methods else "")
    pairs = [pair for pair in report.comparisons if centre in (pair.first, pair.second)]
    # One question has no spread to test by.
    if not any(test.n > 1 for pair in pairs for test in (pair.exact_match, pair.supporting_recall)):
        return
    measures = [
        (heading, name)
        for heading, name in _COMPARED
        if any(getattr(pair, name).n for pair in pairs) and (graded or name != "ndcg")
    ]
    columns = ["METHODS"]
    rows = [[f"{pair.first} - {pair.second}{' *' if pair.readers_differ else ''}"] for pair in pairs]
    for heading, name in measures:
        columns += [heading, "P"]
        for pair, row in zip(pairs, rows, strict=True):
            row.extend(_tested(pair, name))
        if name == "exact_match":  # right or wrong: McNemar's test applies, too
            columns.append("MCNEMAR P")
            for pair, row in zip(pairs, rows, strict=True):
                row.append(_p_value(pair, "exact_match_mcnemar", pair.exact_match_mcnemar.p_value))
    adjusted = " (in brackets: adjusted by Holm's method)" if any(pair.adjusted for pair in pairs) else ""
    seen = "" if report.unseen in (None, report.questions) else " on all questions, seen ones included"
    print_table(columns, rows, title=f"differences{seen}, with 95 % intervals and p-values{adjusted}")
    if any(pair.readers_differ for pair in pairs):
        print_text("* The two methods read answers in different ways.")


def _tested(pair: Comparison, name: str) -> tuple[str, str]:
    test: BootstrapTest = getattr(pair, name)
    if test.difference is None:
        return "-", "-"
    # Tokens are counts, all else are shares.
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


def _print_columns(name: str, methods: Sequence[MethodSummary]) -> None:
    """Print a table of methods whose columns stand in `report_tables.json`: heading, path of the value, form, and interval."""
    from pytrace.evaluation.scores.readers_in_use import reader_texts
    from pytrace.report.page_texts import value_at

    described = json.loads((resources.files(__package__) / "report_tables.json").read_bytes())[name]

    def cell(method: MethodSummary, path: str, form: str, interval: str = "") -> str:
        value = value_at(method, path.split("."))
        ends = value_at(method, interval.split(".")) if interval else None
        worded = "-" if value is None else _FORMS[form](value)
        return worded if ends is None else f"{worded} ({percent(ends[0])}–{percent(ends[1])})"

    some_unseen = any(method.unseen is not None for method in methods)
    columns = [column for column in described["columns"] if some_unseen or not column[1].startswith("unseen.")]
    headings = [heading for heading, *_ in columns]
    rows = [[cell(method, *column) for _, *column in columns] for method in methods]
    if name == "methods" and (texts := reader_texts({method.method: method.reader for method in methods})):
        headings.insert(1, "READER")
        for method, row in zip(methods, rows, strict=True):
            row.insert(1, texts[method.method])
    print_table(headings, rows, title=described["title"])


def _decimal(mean: Mean) -> str:
    return figure(mean.mean, ",.1f")


def print_seeds(summaries: Sequence[SeedSummary]) -> None:
    """Print the scores over seeds of the methods that were asked with several."""

    def words(spread: Spread) -> tuple[str, str, str]:
        extent = f"{percent(spread.minimum)}–{percent(spread.maximum)}"
        return percent(spread.mean), percent(spread.standard_deviation), extent

    if summaries:
        print_table(
            ("METHOD", "SEEDS", "EM", "SD", "MIN–MAX", "F1", "SD", "MIN–MAX"),
            [(row.method, len(row.seeds), *words(row.exact_match), *words(row.f1)) for row in summaries],
            title="Over seeds: mean, standard deviation, minimum–maximum",
        )
