"""``pytrace train``: a model of one's own that turns questions into queries of a knowledge base."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytrace.cli import common
from pytrace.cli.loading import settings_option
from pytrace.engine.knowledge import GRAMMARS
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.kg.fact_store import FactStore
    from pytrace.kg.queries import QueryForm
    from pytrace.kg.queries.query_records import Grammar
    from pytrace.training.examples import ExampleFormat
    from pytrace.training.run import TrainingReport
    from pytrace.training.scoring import Scores, Share
    from pytrace.training.trainer import Progress

_F = TypeVar("_F", bound=Callable[..., Any])
_FAILURES = 5  # on a screen
_DEFAULT_EPOCHS = 1.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def train() -> None:
    """Train a query generator, and score one."""


def _knowledge_base(function: _F) -> _F:
    from pytrace.triples.graph.exchange import FORMATS

    where = click.option(
        "--kb",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The knowledge base: held-out queries are run on it, and --sample takes its paths.",
    )
    form = click.option(
        "--kb-format", type=click.Choice(FORMATS), help="Of the knowledge base, if the suffix does not tell it."
    )
    return where(form(function))


@train.command("query-generator")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Questions with queries. May be repeated.",
)
@click.option(
    "--format",
    "data_format",
    type=click.Choice(["auto", "pathquestion", "lcquad", "pytrace"]),
    default="auto",
    show_default=True,
    help="Of the data.",
)
@_knowledge_base
@click.option(
    "--sample", type=click.IntRange(min=0), default=0, metavar="N", help="Make N questions from the paths of --kb."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The directory of the training."
)
@click.option(
    "--form", type=click.Choice(["sparql", "triplet"]), default="sparql", show_default=True, help="What it writes."
)
@click.option(
    "--wrong/--no-wrong",
    default=None,
    help="Learn four wrong queries beside each correct one (default: with --base, where the paper gained by it; not from scratch, "
    "where we did not).",
)
@click.option(
    "--base", metavar="NAME|FILE.gguf|DIR", help="Begin with this Llama and train adapters.  [default: from scratch]"
)
@click.option("--lora-rank", type=click.IntRange(1, 512), help="The rank of the adapters.  [default: 16]")
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="The share of entities whose questions are not learned but asked at the end.",
)
@click.option(
    "--seed", type=click.IntRange(0, (1 << 32) - 1), default=0, show_default=True, help="Of all that is drawn."
)
@click.option("--epochs", type=click.FloatRange(min=0, min_open=True), help="Passes over the texts.  [default: 1]")
@click.option("--steps", type=click.IntRange(min=1), help="Steps, in place of passes.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Minutes, in place of passes.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in --out.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads (default: those that this process may use).")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to train; fails if it is not there.",
)
@settings_option
@common.json_option
def query_generator(
    *,
    data: tuple[Path, ...],
    data_format: ExampleFormat,
    kb: Path | None,
    kb_format: str | None,
    sample: int,
    out: Path,
    form: QueryForm,
    wrong: bool | None,
    base: str | None,
    lora_rank: int | None,
    hold_out: float,
    seed: int,
    epochs: float | None,
    steps: int | None,
    minutes: float | None,
    resume: bool,
    threads: int | None,
    device: str,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train a small model that writes queries, and score it on questions whose entities it never saw.

    The data are PathQuestion's or LC-QuAD's files, or JSON Lines with `question` and `query`. OUT gets the model as
    query-generator.gguf, which 'pytrace ask --query-generator' takes, the held-out questions, and report.json. A training that
    was ended goes on with --resume. --set changes the model or its training: width=128, layers=4, variations=16,
    learning_rate=0.002, checkpoint_minutes=5.
    """
    if lora_rank is not None and base is None:
        raise InputError("--lora-rank is of the adapters of a base, and there is none; give --base too")
    if epochs is None and steps is None and minutes is None:
        epochs = _DEFAULT_EPOCHS
    from pytrace.methods.base import changed
    from pytrace.training.run import Source, train_generator
    from pytrace.training.training_settings import Length, TrainingSettings

    own = [f"seed={seed}", *([] if lora_rank is None else [f"rank={lora_rank}"]), *settings]
    chosen = changed(TrainingSettings(), own, what="train")
    length = Length(epochs=epochs, steps=steps, minutes=minutes)
    source = Source(
        data=data,
        format=data_format,
        kb=kb,
        kb_format=kb_format,
        sample=sample,
        form=form,
        wrong=base is not None if wrong is None else wrong,
        hold_out=hold_out,
    )

    def say(text: str) -> None:
        click.echo(f"pytrace: {text}", err=True)

    with ExitStack() as stack:
        report = train_generator(
            source,
            out,
            chosen,
            length,
            base=base,
            device=device,
            threads=threads,
            resume=resume,
            # Opened before the training, so that a file that cannot be read costs nothing.
            store=None if kb is None else stack.enter_context(_opened(kb, kb_format)),
            say=say,
            tell=_teller(say),
        )
    if as_json:
        common.print_json(report)
        return
    _print_report(report, out)


@train.command("evaluate")
@click.option(
    "--generator", type=click.Path(path_type=Path), required=True, metavar="DIR|FILE.gguf", help="The generator."
)
@click.option("--data", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Questions with queries.")
@click.option(
    "--format",
    "data_format",
    type=click.Choice(["auto", "pathquestion", "lcquad", "pytrace"]),
    default="auto",
    show_default=True,
    help="Of the data.",
)
@_knowledge_base
@click.option(
    "--query-grammar",
    type=click.Choice(GRAMMARS),
    help="Hold queries to the relations of --kb and the question's words, to the relations alone, or to nothing.  [default: what did "
    "best after the training, if there is --kb]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads (default: those that this process may use).")
@common.json_option
def evaluate(
    *,
    generator: Path,
    data: Path,
    data_format: ExampleFormat,
    kb: Path | None,
    kb_format: str | None,
    query_grammar: Grammar | None,
    limit: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Score a trained generator on questions with known queries, such as the held-out.jsonl of its training."""
    from pytrace.training.examples import read_examples
    from pytrace.training.export import read_recipe
    from pytrace.training.run import MODEL, evaluate_generator

    if kb is None and query_grammar not in (None, "none"):
        raise InputError(
            f"--query-grammar {query_grammar} holds queries to a knowledge base, and there is none; give --kb FILE"
        )
    path = generator / MODEL if generator.is_dir() else generator
    form: QueryForm = "triplet" if read_recipe(path).form == "triplet" else "sparql"
    examples = read_examples(data, format=data_format, form=form)[:limit]
    with ExitStack() as stack:
        store = None if kb is None else stack.enter_context(_opened(kb, kb_format))
        advance = stack.enter_context(common.progress("asking", len(examples)))
        shown = 0

        def done(count: int) -> None:
            nonlocal shown
            for _ in range(count - shown):
                advance()
            shown = count

        report = evaluate_generator(
            path,
            examples,
            threads=threads or len(os.sched_getaffinity(0)),
            store=store,
            grammar=query_grammar,
            done=done,
        )
    if as_json:
        common.print_json(report)
        return
    _print_scores({"all": report.overall, **report.shapes})


@contextmanager
def _opened(kb: Path, form: str | None) -> Iterator[FactStore]:
    from pytrace.kg.connect import open_store

    store = open_store(kb, format=form)
    try:
        yield store
    finally:
        store.close()


def _teller(say: Callable[[str], None]) -> Callable[[Progress], None]:
    import time

    shown = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= common.PLAIN_INTERVAL:
            shown = now
            say(
                f"training: {100 * progress.share:.0f} %, step {progress.step:,}, loss {progress.loss:.3f}, "
                f"{progress.rate:,.0f} tokens a second"
            )

    return tell


def _print_report(report: TrainingReport, out: Path) -> None:
    from pytrace.training.run import MODEL

    common.print_text(
        f"{out / MODEL}: {report.parameters:,} parameters ({report.trained:,} trained), {common.human_size(report.bytes)}"
    )
    common.print_text(
        f"{report.steps:,} steps, {report.epochs:.2f} epochs, {report.tokens:,} tokens in {report.seconds / 60:.1f} min "
        f"({report.tokens / max(report.seconds, 1e-9):,.0f} a second, {report.threads} threads, {report.device}); "
        f"loss {report.losses[0][1]:.3f}, at the end {report.loss:.3f}"
    )
    common.print_text(
        f"learned from {report.data.examples:,} questions and {report.data.copies:,} copies with other names"
        f"{f'; {report.data.too_long:,} texts were too long' if report.data.too_long else ''}"
    )
    if report.scores is None:
        common.print_text("nothing was held out, so nothing is scored")
        return
    best = report.scores
    common.print_text()
    _print_scores({"all": best.overall, **best.shapes})
    if report.held_scores is not None:
        common.print_text("\nheld to a grammar of the knowledge base's relations and the question's words")
        _print_scores({"all": report.held_scores.overall, **report.held_scores.shapes})
        best = report.held_scores if report.recipe.grammar == "words" else best
        chosen = "so" if report.recipe.grammar == "words" else "without one"
        common.print_text(f"it will be used {chosen} unless --query-grammar says otherwise")
    failures = [row for row in best.rows if not (row.exact if row.executes is None else row.executes)]
    for row in failures[:_FAILURES]:
        common.print_text(common.printable(f"wrong: {row.question} -> {row.written}"))


def _print_scores(scores: dict[str, Scores]) -> None:
    common.print_table(
        ("QUESTIONS", "N", "EXECUTES", "HITS", "EXACT", "NAMES", "RELATIONS", "PARSES"),
        [
            (
                shape,
                str(one.parses.of),
                *(_share(part) for part in (one.executes, one.hits, one.exact, one.names, one.relations, one.parses)),
            )
            for shape, one in scores.items()
        ],
    )
    common.print_text(
        "percent with 95 % Wilson intervals; EXECUTES: the values are the gold answers, HITS: one of them is"
    )


def _share(one: Share) -> str:
    if one.share is None or one.low is None or one.high is None:
        return "-"
    return f"{100 * one.share:.1f} ({100 * one.low:.1f} to {100 * one.high:.1f})"
