"""``pytrace certify table``: runs of several models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytrace.cli import common
from pytrace.cli.certify_discriminate import share_text
from pytrace.cli.commands import Command, Output, argument
from pytrace.evaluation.scores.metrics import Mean

if TYPE_CHECKING:
    from pytrace.certify.certification_scores import Interval
    from pytrace.certify.run_tables import RunTables


class Table(Command):
    """Show runs of several models side by side, a row for each and each way of asking.

    RUN is a file that 'certify discriminate --out' wrote or a directory of 'certify generate', and is shown by its name: keep
    one a model. Judgements have their accuracy by kind; responses the F1 of their answers and of their reasoning, the gap
    between the two, and the edit distance to the nearest gold path, all with 95 % intervals.
    """

    runs: tuple[Path, ...] = argument("RUN…", required=True)

    def run(self) -> Output:
        from pytrace.certify.run_tables import read_run_tables

        tables = read_run_tables(self.runs)
        return Output(tables, lambda: _print(tables))


def _print(tables: RunTables) -> None:
    if tables.judged:
        kinds = [kind.kind.upper() for kind in tables.judged[0].report.kinds]
        rows = [
            (
                run.run,
                run.report.mode,
                *(share_text(kind) for kind in run.report.kinds),
                share_text(run.report.overall),
                common.percent(run.report.balanced_accuracy),
                common.percent(run.report.yes),
            )
            for run in tables.judged
        ]
        common.print_table(("RUN", "MODE", *kinds, "ALL", "BALANCED", "YES"), rows, title="Accuracy of judgements, %")
    if tables.generated:
        rows = [
            (
                run.run,
                run.prompting,
                str(run.scores.n),
                "-" if run.scores.answer is None else _interval(run.scores.answer.f1),
                _interval(run.scores.reasoning.f1),
                _interval(run.scores.gap),
                _mean(run.scores.edit_distance),
            )
            for run in tables.generated
        ]
        columns = ("RUN", "PROMPTING", "RESPONSES", "ANSWER F1", "REASONING F1", "GAP", "EDIT DISTANCE")
        common.print_table(columns, rows, title="Answers and reasoning, %; edit distance in steps")


def _interval(interval: Interval) -> str:
    return common.percent_interval(interval.value, interval.low, interval.high)


def _mean(mean: Mean) -> str:
    return "-" if mean.mean is None else f"{mean.mean:.2f}"
