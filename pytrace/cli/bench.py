"""``pytrace bench``: verify the kernels, then time them beside their peers."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pytrace.bench import CARD_KERNELS, KERNELS
from pytrace.cli import common
from pytrace.cli.commands import Command, argument, option
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.bench.measurements import Document
    from pytrace.bench.suite import Run


class Bench(Command):
    """Verify each KERNEL's answers, then time it beside its peers on the same data and threads.

    KERNEL is similarity, fuzzy, alignment, set_cover, beam, walk, names, late_interaction, bags or spans; all by default.
    A wrong answer ends the run with exit status 1. Peers that are not installed are named and left out; get them
    with pip install 'pytrace-rag[bench]'. On a card (--device cuda) peers are PyTorch, CuPy and faiss with CUDA;
    set_cover runs on the processor alone.
    """

    kernels: tuple[str, ...] = argument("[KERNEL]...", choices=KERNELS)
    rows: bool = option("Time each case that has a bar (default: yes).", "--rows/--no-rows", default=True)
    sweeps: bool = option("Time growing sizes (default: yes).", "--sweeps/--no-sweeps", default=True)
    avx2: bool = option(
        "Where AVX-512 is used, time the rows on AVX2 as well, peers included (default: yes; never with --quick).",
        "--avx2/--no-avx2",
        default=True,
    )
    device: Literal["cpu", "cuda"] = option(
        "Measure the kernels' CUDA forms on a card instead; fails if there is none.", default="cpu"
    )
    scale: float = option(
        "With --device cuda: this share of each case's size; no record below 1.", gt=0, le=1, default=1.0
    )
    quick: bool = option("Smaller cases and shorter limits; no record.")
    repetitions: int = option("Readings of each call.", ge=1, default=7)
    threads: int | None = option("For us and the peers (default: PYTRACE_NUM_THREADS or cores).", ge=1, le=1024)
    seed: int = option("Of all that is drawn at random.", ge=0, default=0)
    data: Path | None = option(
        "A folder of questions as JSON lines, whose sentences the fuzzy kernel gets (default: $PYTRACE_DATA).",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
    )
    plots: Path | None = option("Draw the sweeps here, a PNG and an SVG a kernel.")
    output: Path | None = option("Write JSON here after every row, whole or not at all.")
    strict: bool = option("Exit with 1 if a bar is missed.")
    as_json: bool

    def check(self) -> None:
        if self.device == "cuda":
            _check_card(self.kernels, rows=self.rows, plots=self.plots)
        elif self.scale < 1:
            raise InputError("--scale is for --device cuda; use --quick for smaller cases on the processor")
        if not (self.rows or self.sweeps):
            raise InputError("nothing is left to do with both --no-rows and --no-sweeps; leave one out")
        _check_places(self.plots, self.output, self.data, sweeps=self.sweeps)

    def run(self) -> int:
        from pytrace import _core
        from pytrace.bench import bench_report as report
        from pytrace.bench.measurements import Settings
        from pytrace.bench.suite import Run

        def save(document: Document) -> None:
            # A pipe takes one document, the last.
            output = self.output
            if output is not None and (document.complete or not output.exists() or output.is_file()):
                _write(output, document)

        settings = Settings(
            threads=self.threads or _core.num_threads(),
            repetitions=self.repetitions,
            seed=self.seed,
            quick=self.quick,
            rows=self.rows,
            sweeps=self.sweeps and self.device == "cpu",  # a card's cases have none
            avx2=self.avx2,
            data=self.data,
            device=self.device,
            scale=self.scale,
        )
        run = Run(self.kernels, settings, tell=common.remark, changed=save)
        for warning in run.document.warnings:
            common.remark(warning)
        with run.started() as measure:
            if not self.as_json:
                _print_lines(report.heading(run.document))
            for name in run.kernels:
                with contextlib.nullcontext() if self.as_json else _printed(run, name):
                    measure(name)
                if self.plots is not None:
                    _draw(run.document, name, self.plots)  # at once: a later kernel may fail
        if self.as_json:
            common.print_json(run.document)
        else:
            common.print_text()
            _print_lines(report.summary(run.document))
        return common.FAILED if self.strict and run.document.bars.missed else 0


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
        _check_plots(plots, sweeps=sweeps)
    if output is not None:
        if output.is_dir():
            raise InputError(f"--output {output} is a directory; name a file")
        if not output.parent.is_dir():
            raise InputError(f"--output {output}: there is no directory {output.parent}; make it first")
        if not os.access(output if output.exists() else output.parent, os.W_OK):
            raise InputError(f"--output {output} cannot be written to; correct its permissions or name another file")
    if data is not None:
        from random import Random

        from pytrace.bench import sample_texts

        sample_texts.read(data, Random(0))


def _check_plots(directory: Path, *, sweeps: bool) -> None:
    if not sweeps:
        raise InputError("--plots draws the sweeps; leave --no-sweeps out")
    from pytrace.evaluation.scores.figure_files import new_figure

    # matplotlib is an extra; that it lacks must not be found after the measuring.
    new_figure("sweeps", (1, 1), extra="bench")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A directory's permissions do not tell of a full disk or a file system that is mounted for reading.
        with tempfile.TemporaryFile(dir=directory):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"--plots {directory}: a file is in the way; name a directory") from error
    except OSError as error:
        raise InputError(
            f"--plots {directory} cannot be written to ({error.strerror or error}); name another directory"
        ) from error


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
        common.remark(f"drew {path}")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
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
            common.print_styled(table.title)
            common.print_table(table.columns, table.rows)
            for note in table.notes:
                common.print_text(f"  {note}")
