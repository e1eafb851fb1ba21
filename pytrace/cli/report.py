"""``pytrace report``: score the answers that an evaluation kept once more, and write pages and tables to look at them."""

from __future__ import annotations

from pathlib import Path

import click

from pytrace.cli import common
from pytrace.errors import InputError


@click.command("report")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--baseline", metavar="METHOD", help="Compare the others with this method.  [default: the first]")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write here.  [default: beside the run]")
@click.option("--title", help="Heading of the page.  [default: the name of the data]")
@common.json_option
def report(*, directory: Path, baseline: str | None, out: Path | None, title: str | None, as_json: bool) -> None:
    """Score the answers of an evaluation once more, without any model, and write them for the eye and for spreadsheets.

    DIR is what 'pytrace eval' was given as --out; the evaluation may still be going on. Written are report.html, one page that
    needs no network: scores, comparisons and plots, and every question with each method's answer, chains and evidence; and
    methods.csv, comparisons.csv and questions.csv. Files of these names are replaced, each in one step.
    """
    from pytrace.cli.report_text import print_report
    from pytrace.evaluation.run.run_store import RunStore
    from pytrace.evaluation.scores.summary import score_run
    from pytrace.report.csv_tables import write_csv_tables
    from pytrace.report.html_page import write_page
    from pytrace.report.runs import report_page

    path = directory / "run.sqlite"
    if not path.is_file():
        raise InputError(
            f"{directory} holds no run (there is no {path.name} in it); give the directory that was --out of 'pytrace eval'"
        )
    with RunStore(path) as store, store.snapshot():
        methods = store.methods()
        if not methods:
            raise InputError(
                f"the run in {directory} has no answers yet; wait for the first, or resume it with 'pytrace eval --resume'"
            )
        if baseline is not None and baseline not in methods:
            raise InputError(f"the run in {directory} has no method {baseline!r}; it has {', '.join(methods)}")
        against = baseline or methods[0]
        scored = score_run(store, baseline=against)
        heading = title or Path(str(scored.notes.get("data") or "")).name or "Evaluation"
        place = directory if out is None else out
        place.mkdir(parents=True, exist_ok=True)
        page = place / "report.html"
        write_page(page, report_page(scored, store, title=heading, baseline=against))
        written = [page, *write_csv_tables(place, scored, store)]
    if as_json:
        common.print_json(scored)
        return
    print_report(scored)
    for one in written:
        common.print_text(f"written: {one}")
