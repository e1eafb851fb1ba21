"""Runs the benches of kernels, and keeps all that they say in one document that is whole after every row."""

from __future__ import annotations

import importlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from pytrace import _core
from pytrace.bench import CARD_KERNELS, KERNELS, machine
from pytrace.bench.card import Card
from pytrace.bench.context import Bench
from pytrace.bench.measurements import (
    RECORD_REPETITIONS,
    Check,
    Comparison,
    Document,
    Kernel,
    Settings,
    Sweep,
    count_bars,
)
from pytrace.bench.peers import Peers, limited_threads
from pytrace.errors import VerificationError
from pytrace.models import child

# A file of all that similarity measures would be too long to read.
MODULES = {("similarity", "sweeps"): "similarity_sweeps", ("similarity", "card_rows"): "similarity_card"}
"""The modules of what a kernel's own module does not hold."""


# What holds this library, OpenBLAS (NumPy's and faiss's), and faiss itself to AVX2; each reads it once, when it is loaded.
AVX2 = {"PYTRACE_ISA": "avx2", "OPENBLAS_CORETYPE": "Haswell", "FAISS_SIMD_LEVEL": "AVX2"}
AVX2_SECONDS = 3600.0


class Run:
    """One run of some benches; `document` is what it has said so far."""

    def __init__(
        self,
        kernels: Sequence[str],
        settings: Settings,
        *,
        tell: Callable[[str], None] = lambda _: None,
        changed: Callable[[Document], None] = lambda _: None,
    ) -> None:
        on_card = settings.device == "cuda"
        self.kernels = list(dict.fromkeys(kernels)) or list(CARD_KERNELS if on_card else KERNELS)
        self.settings = settings
        self._tell = tell
        self._changed = changed
        self._peers = Peers(self.kernels, settings.device)
        self._card = Card(self._peers, settings.scale) if on_card else None
        load = machine.load()
        self.document = Document(
            command=command(self.kernels, settings),
            settings=settings,
            machine=machine.facts(settings.threads)
            | {"versions": self._peers.versions()}
            | ({} if self._card is None else {"card": self._card.facts()}),
            missing_peers=self._peers.missing,
            warnings=_warnings(settings, self._peers, load),
            load_at_start=load,
        )

    @contextmanager
    def started(self) -> Iterator[Callable[[str], Kernel]]:
        """Hold all threads to the settings' number, measure the machine, and yield what runs one kernel's bench."""
        start = time.perf_counter()
        with limited_threads(self.settings.threads, self._peers) as warning:
            if warning is not None:
                self.document.warnings.append(warning)
            does = "machine reads" if self._card is None else "card copies"
            self._tell(f"what this {does} and multiplies in a second")
            limits = machine.measure(self.settings.threads) if self._card is None else self._card.measure()
            self.document.limits = limits
            self._changed(self.document)
            try:
                yield self._run
                self.document.complete = True
            finally:
                self.document.seconds = time.perf_counter() - start
                self.document.load_at_end = machine.load()
                self._changed(self.document)

    def _run(self, name: str) -> Kernel:
        bench = Bench(self.settings, self._peers, self.document.limits, lambda text: self._tell(f"{name}: {text}"))
        kernel = self.document.kernels[name] = Kernel()
        columns: dict[type, list[Any]] = {Check: kernel.checks, Comparison: kernel.rows, Sweep: kernel.sweeps}
        parts: dict[str, tuple[Any, ...]] = {}
        if self._card is not None:
            parts["card_rows"] = (bench, self._card)
        else:
            parts |= {part: (bench,) for part in ("rows", "sweeps") if getattr(self.settings, part)}
        start = time.perf_counter()
        for part, arguments in parts.items():
            # Only now: a bench that is not run needs none of its imports.
            module = importlib.import_module(f"pytrace.bench.{MODULES.get((name, part), name)}")
            for result in getattr(module, part)(*arguments):
                columns[type(result)].append(result)
                kernel.seconds = time.perf_counter() - start
                self.document.bars = count_bars(self.document.kernels)
                self._changed(self.document)
        wanted = self.settings.avx2 and not self.settings.quick and self._card is None
        if kernel.rows and wanted and _core.active_isa() == "avx512":
            self._tell(f"{name}: the rows again on AVX2")
            kernel.avx2_rows = rows_on_avx2(name, self.settings)
            self._changed(self.document)
        return kernel


def rows_on_avx2(name: str, settings: Settings) -> list[Comparison]:
    """Run a kernel's rows in a process of its own whose libraries are held to AVX2."""
    changed = msgspec.structs.replace(settings, sweeps=False, avx2=False)
    features = [name for name in _numpy_dispatch() if name.startswith(("X86_V4", "AVX512"))]
    environment = AVX2 | {"NPY_DISABLE_CPU_FEATURES": " ".join(features)}
    try:
        return child.run(
            rows_of, name, changed, returns=list[Comparison], timeout=AVX2_SECONDS, environment=environment
        )
    except child.ChildFailedError as error:
        raise VerificationError(f"{name} on AVX2: {error}") from error


def rows_of(name: str, settings: dict[str, Any]) -> list[Comparison]:
    """Run a kernel's rows and return them; settings are those of `Settings` as JSON has them."""
    with Run([name], msgspec.convert(settings, Settings)).started() as measure:
        return measure(name).rows


def _numpy_dispatch() -> list[str]:
    """Name the instruction sets beyond its baseline that NumPy uses here."""
    import numpy as np

    found = np.show_config(mode="dicts")
    return list(found.get("SIMD Extensions", {}).get("found", [])) if isinstance(found, dict) else []


def _warnings(settings: Settings, peers: Peers, load: list[float] | None) -> list[str]:
    cores = machine.cores()
    warnings = []
    # From half the cores on, the measured threads have to share some with what else runs.
    if load is not None and load[0] > cores / 2:
        warnings.append(
            f"the load average is {load[0]:g} on {cores} cores: other work takes time from these figures, which are no record"
        )
    if settings.threads > cores:
        warnings.append(f"{settings.threads} threads share {cores} cores")
    if settings.repetitions < RECORD_REPETITIONS:
        warnings.append(
            f"{settings.repetitions} repetitions are below {RECORD_REPETITIONS}: these figures are no record"
        )
    if settings.quick:
        warnings.append("quick: smaller cases and shorter limits than those of the bars; these figures are no record")
    if settings.scale < 1:
        warnings.append(f"scale {settings.scale:g}: smaller cases than those of the bars; these figures are no record")
    if peers.missing:
        reasons = ", ".join(f"{name} ({reason})" for name, reason in peers.missing.items())
        warnings.append(f"peers left out: {reasons}; {peers.remedy}")
    return warnings


def command(kernels: Sequence[str], settings: Settings) -> str:
    """Return the command line that repeats a run on the same data, with what it leaves to chance or the machine said."""
    usual = set(CARD_KERNELS if settings.device == "cuda" else KERNELS)
    words = ["pytrace", "bench", *([] if set(kernels) == usual else kernels)]
    words += ["--threads", str(settings.threads), "--repetitions", str(settings.repetitions)]
    words += ["--seed", str(settings.seed)]
    words += ["--quick"] * settings.quick + ["--no-rows"] * (not settings.rows)
    if settings.device == "cuda":
        words += ["--device", "cuda", *(["--scale", f"{settings.scale:g}"] * (settings.scale < 1))]
    else:
        words += ["--no-sweeps"] * (not settings.sweeps) + ["--no-avx2"] * (not settings.avx2)
    if settings.data is not None:
        words += ["--data", str(settings.data)]
    forced = {name: os.environ[name] for name in ("PYTRACE_ISA", "PYTRACE_DATA") if os.environ.get(name)}
    environment = [f"{name}={shlex.quote(value)}" for name, value in forced.items()]
    return " ".join([*environment, shlex.join(words)])
