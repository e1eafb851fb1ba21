"""Every way to choose evidence beside the others, on two data sets, in one command that a kill does not set back.

It runs `pytrace eval` on each data set with `--resume`, so that a second call goes on where the first one was, and prints a
table: exact match, F1, precision and recall of the chosen documents against the supporting ones, context tokens, prompts,
tokens asked for and evaluated, all means a question.

    python -m benches.evidence_selection --data ../shared/data/multihop --out runs/evidence
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

# File and how many of its first questions.
SETS = (("advhotpot-dev.jsonl", 40), ("advhotpot10-dev.jsonl", 20))
METHODS = (
    "rag", "bm25", "dense", "rrf", "standard", "standard-doc", "cot-doc", "ks-q", "ks-t", "ks-s", "ks-llm", "scope-coe",
    "scope-coe:cover=exact", "cot", "cot-sc", "verify-and-edit", "trace", "trace-doc",
)  # fmt: skip
COLUMNS = ("method", "EM", "F1", "support P", "support R", "context", "prompts", "asked for", "evaluated")


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--llm", default="tiny", show_default=True)
@click.option("--encoder", default="tiny", show_default=True)
@click.argument("methods", nargs=-1)
def main(*, data: Path, out: Path, llm: str, encoder: str, methods: tuple[str, ...]) -> None:
    """Evaluate METHODS (all by default) on both data sets and print their tables."""
    for name, limit in SETS:
        command = [
            str(Path(sys.executable).with_name("pytrace")), "eval", *(methods or METHODS),
            "--data", str(data / name), "--limit", str(limit), "--out", str(out / Path(name).stem), "--resume",
            "--llm", llm, "--encoder", encoder, "--json",
        ]  # fmt: skip
        told = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        print_table(f"{name}, the first {limit} questions", json.loads(told.stdout))


def print_table(title: str, report: dict[str, Any]) -> None:
    """Print a report as a table in Markdown."""
    click.echo(f"\n{title}\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for one in report["methods"]:
        cells = [
            f"{100 * one['exact_match']:.1f}",
            f"{100 * one['f1']:.1f}",
            _share(one["supporting_precision"]["mean"]),
            _share(one["supporting_recall"]["mean"]),
            *(_mean(one[name]) for name in ("context_tokens", "calls", "prompt_tokens", "evaluated_tokens")),
        ]
        failed = f" ({one['failed']} failed)" if one["failed"] else ""
        click.echo(f"| {one['method']}{failed} | {' | '.join(cells)} |")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mean(quantity: dict[str, Any]) -> str:
    mean = quantity["mean"]
    return "-" if mean is None else f"{mean:,.1f}" if mean < 10 else f"{mean:,.0f}"


if __name__ == "__main__":
    main()
