"""Whether trained query generators mind how a question is written: held-out questions as they are, and with capitals.

python -m benches.generator_writing --data DIR/held-out.jsonl --kb ../shared/data/pathquestion/2H-kb.txt --kb-format tsv DIR …
"""

from __future__ import annotations

from pathlib import Path

import click

from pytrace.engine.knowledge import open_store
from pytrace.training.examples import read_examples
from pytrace.training.run import evaluate_generator
from pytrace.training.scoring import Share
from pytrace.training.variation import with_capitals


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True, help="Questions with queries.")
@click.option("--kb", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--kb-format")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.argument("generators", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def main(*, data: Path, kb: Path, kb_format: str | None, threads: int, generators: tuple[Path, ...]) -> None:
    """Print for each generator what executes and what is exact, in percent, both ways."""
    examples = read_examples(data, format="pytrace", form="sparql")
    click.echo(f"{len(examples)} questions of {data}; {examples[0].question!r}")
    with open_store(kb, format=kb_format) as store:
        for path in generators:
            for written, asked in (("as they are", examples), ("capitals", with_capitals(examples))):
                scores = evaluate_generator(path, asked, threads=threads, store=store).overall
                click.echo(f"{path}: {written:12} executes {_percent(scores.executes)}, exact {_percent(scores.exact)}")


def _percent(share: Share) -> str:
    return "-" if share.share is None else f"{100 * share.share:.1f}"


if __name__ == "__main__":
    main()
