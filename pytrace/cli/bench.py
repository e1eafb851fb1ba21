"""``pytrace bench``: verify the kernels, then time them beside their peers."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pytrace.bench import CARD_KERNELS, KERNELS
from pytrace.cli import common
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.bench.measurements import Document
    from pytrace.bench.suite import Run


@click.command()
@click.argument("kernels", metavar="[KERNEL]...", nargs=-1, type=click.Choice(KERNELS))
@click.option("--rows/--no-rows", default=True, help="Time each case that has a bar (default: yes).")
@click.option("--sweeps/--no-sweeps", default=True, help="Time growing sizes (default: yes).")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Measure the kernels' CUDA forms on a card instead; fails if there is none.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    help="With --device cuda: this share of each case's size; no record below 1.",
)
@click.option("--quick", is_flag=True, help="Smaller cases and shorter limits; no record.")
@click.option("--repetitions", type=click.IntRange(min=1), default=7, show_default=True, help="Readings of each call.")
@click.option(
    "--threads", type=click.IntRange(min=1), help="For us and the peers (default: PYTRACE_NUM_THREADS or cores)."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn at random."
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder of questions as JSON lines, whose sentences the fuzzy kernel gets (default: $PYTRACE_DATA).",
)
@click.option("--plots", type=click.Path(path_type=Path), help="Draw the sweeps here, a PNG and an SVG a kernel.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON here after every row, whole or not at all.")
@click.option("--strict", is_flag=True, help="Exit with 1 if a bar is missed.")
@common.json_option
def bench(
    *,
    kernels: tuple[str, ...],
    rows: bool,
    sweeps: bool,
    device: Literal["cpu", "cuda"],
    scale: float,
    quick: bool,
    repetitions: int,
    threads: int | None,
    seed: int,
    data: Path | None,
    plots: Path | None,
    output: Path | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Verify each KERNEL's answers, then time it beside its peers on the same data and threads.

    KERNEL is similarity, fuzzy, alignment, set_cover or beam; all by default. A wrong answer ends the run with exit
    status 1. Peers that are not installed are named and left out; get them with pip install 'pytrace-rag[bench]'. On a
    card (--device cuda) peers are PyTorch, CuPy and faiss with CUDA; set_cover runs on the processor alone.
    """
    if device == "cuda":
        _check_card(kernels, rows=rows, plots=plots)
    elif scale < 1:
        raise InputError("--scale is for --device cuda; use --quick for smaller cases on the processor")
    if not (rows or sweeps):
        raise InputError("nothing is left to do with both --no-rows and --no-sweeps; leave one out")
    _check_places(plots, output, data, sweeps=sweeps)

    from pytrace import _core
    from pytrace.bench.measurements import Settings
    from pytrace.bench.suite import Run

    def tell(text: str) -> None:
        click.echo(f"pytrace: {text}", err=True)

    def save(document: Document) -> None:
        # A pipe takes one document, the last.
        if output is not None and (document.complete or not output.exists() or output.is_file()):
            _write(output, document)

    settings = Settings(
        threads=threads or _core.num_threads(), repetitions=repetitions, seed=seed, quick=quick, rows=rows,
        sweeps=sweeps and device == "cpu", data=data, device=device, scale=scale,
    )  # fmt: skip
    run = Run(kernels, settings, tell=tell, changed=save)
    for warning in run.document.warnings:
        tell(warning)
    with run.started() as measure:
        if not as_json:
            _print_heading(run.document)
        for name in run.kernels:
            with contextlib.nullcontext() if as_json else _printed(run, name):
                measure(name)
            if plots is not None:
                _draw(run.document, name, plots)
    if as_json:
        common.print_json(run.document)
    else:
        _print_summary(run.document)
    return common.FAILED if strict and run.document.bars.missed else 0


def _check_card(kernels: tuple[str, ...], *, rows: bool, plots: Path | None) -> None:
    """Refuse what cannot be measured on a card, and a card that is not there."""
    from pytrace.kernels import devices

    foreign = [name for name in kernels if name not in CARD_KERNELS]
    if foreign:
        raise InputError(
            f"{', '.join(foreign)} runs on the processor alone; with --device cuda name {', '.join(CARD_KERNELS)}"
        )
    if not rows or plots is not None:
        raise InputError("with --device cuda there are no sweeps to time or to draw; leave --no-rows and --plots out")
    devices.require("cuda")


def _check_places(plots: Path | None, output: Path | None, data: Path | None, *, sweeps: bool) -> None:
    """Fail before minutes of work rather than after."""
    if plots is not None:
        _prepare_plots(plots, sweeps=sweeps)
    if output is not None:
        _check_output(output)
    if data is not None:
        from random import Random

        from pytrace.bench import sample_texts as texts

        texts.read(data, Random(0))


def _prepare_plots(directory: Path, *, sweeps: bool) -> None:
    if not sweeps:
        raise InputError("--plots draws the sweeps; leave --no-sweeps out")
    from pytrace.bench import plots

    plots.load()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"--plots {directory}: a file is in the way; name a directory") from error
    except OSError as error:
        raise InputError(
            f"--plots {directory} cannot be written to ({error.strerror or error}); name another directory"
        ) from error


def _check_output(output: Path) -> None:
    if output.is_dir():
        raise InputError(f"--output {output} is a directory; name a file")
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no directory {output.parent}; make it first")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise InputError(f"--output {output} cannot be written to; correct its permissions or name another file")


def _write(output: Path, document: Document) -> None:
    from pytrace.storage.files import atomic_output

    with atomic_output(output) as stream:
        stream.write(common.json_bytes(document) + b"\n")


def _draw(document: Document, name: str, directory: Path) -> None:
    from pytrace.bench import plots

    facts = document.machine
    about = (
        f"{facts['processor']}, threads {document.settings.threads}, pytrace {facts['pytrace']} "
        f"({facts['instruction_set']}), median of {document.settings.repetitions}"
    )
    for path in plots.draw(name, document.kernels[name], directory, about):
        click.echo(f"pytrace: drew {path}", err=True)


def _print_heading(document: Document) -> None:
    from pytrace.bench import bench_report as report

    for line in report.heading(document):
        common.print_text(line)


@contextlib.contextmanager
def _printed(run: Run, name: str) -> Iterator[None]:
    """Print a kernel's tables when its bench ends, be it early: what was measured is not lost."""
    from pytrace.bench import bench_report as report

    try:
        yield
    finally:
        for table in report.tables(name, run.document.kernels[name]):
            common.print_text()
            common.print_styled(table.title, "bold")
            common.print_table(table.columns, table.rows)
            for note in table.notes:
                common.print_text(f"  {note}")


def _print_summary(document: Document) -> None:
    from pytrace.bench import bench_report as report

    common.print_text()
    for line in report.summary(document):
        common.print_text(line)
