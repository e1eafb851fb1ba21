"""Chooses the weight format in which a language model answers questions fastest on this machine and still chooses alike.

Every format is measured; those faster than the original are then judged, fastest first, until one is accepted. Judged are
the choices on labelled steps of reasoning chains, ours, none of which is shown in the prompt.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytrace.errors import ModelError
from pytrace.methods.trace.selector import Demonstrations, LetterSelector, Selector, Step, TextSelector
from pytrace.models import child
from pytrace.models.language_model import Style
from pytrace.models.llama import extra_buffers as llama_buffers
from pytrace.models.llama import weight_formats
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.runtime import library
from pytrace.models.llama.weight_formats import EXACT, FORMATS, Speed
from pytrace.models.registry import model_files as store
from pytrace.models.registry import rewritten
from pytrace.models.registry.downloads import PullProgress
from pytrace.reader.prompts import ChainDemonstration
from pytrace.records import Candidate
from pytrace.storage.locks import locked

Scoring = Literal["letters", "likelihood", "pmi"]

ORIGINAL = "original"
# What a format must save to be worth a file of its own: two measurements of the same file differ by as much.
_LEAST_GAIN = 0.05
# Formats are measured in turns, so that a slow minute of the machine falls on all of them.
_ROUNDS = 2
_SHOWN = 2
_DAY = 86_400.0


class Answers(msgspec.Struct, frozen=True):
    """How a file answers on the labelled steps: its choices (0 ends the chain), and how many are correct."""

    choices: tuple[int, ...]
    correct: int

    def agreement(self, other: Answers) -> float:
        """Return the share of equal choices."""
        equal = sum(a == b for a, b in zip(self.choices, other.choices, strict=True))
        return equal / max(1, len(self.choices))


def accept(answers: Answers, original: Answers, reference: Answers) -> str:
    """Say why a format is refused; empty if it keeps the model's answers. This is the one rule."""
    # The reference is what the weights say when nothing is rounded on the way (float32), where that fits this machine,
    # and the original else: the original file's own run is an approximation of it too. A format is accepted if it has
    # at most one labelled step less right than the original, and chooses as the reference does in at least 95 % of the
    # steps, or as often as the original does.
    if answers.correct < original.correct - 1:
        return f"{answers.correct} steps right, the original {original.correct}"
    least = min(0.95, original.agreement(reference))
    agreement = answers.agreement(reference)
    if agreement < least:
        return f"chooses as the reference in {agreement:.1%} of the steps, at least {least:.1%} are asked for"
    return ""


def choose(
    source: Path,
    directory: Path,
    *,
    style: Style,
    scoring: Scoring,
    threads: int | None = None,
    progress: PullProgress | None = None,
    formats: Sequence[str] = tuple(FORMATS),
) -> rewritten.Record:
    """Rewrite a model into each format, measure and judge them, and keep the best one in `directory`."""
    threads = threads or len(os.sched_getaffinity(0))
    note = (progress or PullProgress()).note
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / ".lock", lambda: note("another process is rewriting this model; waiting for it")):
        rewritten.sweep(directory, rewritten.read_or_none(directory))
        try:
            return _Choice(source, directory, style, scoring, threads, note).run(formats)
        finally:
            rewritten.sweep(directory, rewritten.read_or_none(directory))


@dataclass
class _Choice:
    """One run of `choose`: the files, what is known of each format, and why some were left out."""

    _source: Path
    _directory: Path
    _style: Style
    _scoring: Scoring
    _threads: int
    _note: Callable[[str], None]

    def __post_init__(self) -> None:
        self._files = {ORIGINAL: self._source}
        self._speeds: dict[str, Speed] = {}
        self._answers: dict[str, Answers] = {}
        self._verdicts: dict[str, str] = {}

    def run(self, formats: Sequence[str]) -> rewritten.Record:
        library()  # loads llama.cpp here, so that the record can name its build
        before = self._source.stat()
        self._write(formats)
        self._measure()
        seconds = {name: speed.seconds for name, speed in self._speeds.items()}
        enough = (1 - _LEAST_GAIN) * seconds[ORIGINAL]
        faster = [name for name in sorted(seconds, key=lambda name: seconds[name]) if seconds[name] <= enough]
        chosen = self._judge(faster) if faster else ORIGINAL
        for name in self._speeds:
            slower = name not in self._answers and name != chosen
            self._verdicts.setdefault(name, "slower than the chosen one" if slower else "")
        file = self._files[chosen] if chosen != ORIGINAL else None
        digest = None if file is None else store.sha256_of(file)
        record = rewritten.Record(
            source=rewritten.Source(
                str(self._source.resolve()), before.st_size, before.st_mtime_ns, store.sha256_of(self._source)
            ),
            format=chosen,
            reason=self._reason(chosen),
            figures=tuple(self._figures(name) for name in (ORIGINAL, *formats)),
            reference=self._reference,
            scoring=self._scoring,
            processor=llama_buffers.processor_name(),
            threads=self._threads,
            llama_cpp=importlib.metadata.version("llama-cpp-python"),
            libraries=llama_buffers.libraries_sha256(),
            date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            file=None if digest is None else f"{self._source.stem}.{chosen}-{digest[:8]}.gguf",
            size=None if file is None else file.stat().st_size,
            sha256=digest,
        )
        rewritten.keep(self._directory, record, file)
        return record

    def _write(self, formats: Sequence[str]) -> None:
        """Write what fits; a format that does not, or that llama.cpp refuses, is left out with the reason."""
        weights = weight_formats.parameters(self._source)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for name in formats:
            size = weights * FORMATS[name][1] / 8
            free = shutil.disk_usage(self._directory).free
            # Half of the memory is left to everything else; beyond it weights are read from disk again and again.
            due = f"{size / 1e6:,.0f} MB"
            if size > memory / 2:
                self._verdicts[name] = f"its {due} are more than half of the {memory / 1e6:,.0f} MB of memory"
            elif 1.1 * size > free:
                self._verdicts[name] = f"no room on disk ({due} needed, {free / 1e6:,.0f} MB free)"
            else:
                self._note(f"rewriting {self._source.name} as {name} (about {due})")
                target = self._directory / f".candidate-{name}.gguf"
                try:
                    weight_formats.rewrite(self._source, target, name, threads=self._threads)
                    self._files[name] = target
                except child.ChildFailedError as error:
                    self._verdicts[name] = f"could not be written: {error}"

    def _measure(self) -> None:
        for number in range(_ROUNDS):
            for name in [name for name in self._files if name not in self._verdicts]:
                self._note(f"measuring {name} ({number + 1} of {_ROUNDS})")
                try:
                    speed = weight_formats.measure(self._files[name], threads=self._threads)
                    self._speeds[name] = speed.or_faster(self._speeds.get(name, speed))
                except child.ChildFailedError as error:
                    self._drop(name, f"could not be measured: {error}")

    def _judge(self, faster: Sequence[str]) -> str:
        """Return the first of the faster formats that keeps the answers, or the original."""
        self._ask(ORIGINAL)
        if EXACT in self._files and EXACT not in self._verdicts:
            self._ask(EXACT)
        for name in faster:
            if name not in self._answers and name not in self._verdicts:
                self._ask(name)
            if name in self._answers:
                refused = accept(self._answers[name], self._answers[ORIGINAL], self._answers[self._reference])
                self._verdicts[name] = f"refused: {refused}" if refused else "chosen"
                if not refused:
                    return name
        return ORIGINAL

    def _ask(self, name: str) -> None:
        self._note(f"comparing the choices of {name} on labelled steps")
        call = (str(self._files[name]), self._style, self._scoring, self._threads)
        try:
            self._answers[name] = child.run(answer, *call, returns=Answers, timeout=_DAY)
        except child.ChildFailedError as error:
            self._drop(name, f"could not be judged: {error}")

    def _drop(self, name: str, why: str) -> None:
        if name == ORIGINAL:
            raise ModelError(f"{self._source} itself {why}; run it with 'pytrace ask' to see whether it works here")
        self._speeds.pop(name, None)
        self._verdicts[name] = why

    @property
    def _reference(self) -> str:
        return EXACT if EXACT in self._answers else ORIGINAL

    def _reason(self, chosen: str) -> str:
        original = self._speeds[ORIGINAL].seconds
        if chosen == ORIGINAL:
            return f"no format is at least {_LEAST_GAIN:.0%} faster and keeps the answers; the original is used"
        answers, before = self._answers[chosen], self._answers[ORIGINAL]
        return (
            f"{chosen} takes {self._speeds[chosen].seconds:.1f} s for the work of one question, the original "
            f"{original:.1f} s; it has {answers.correct} of {len(answers.choices)} labelled steps right, the original "
            f"{before.correct}, and chooses as the {self._reference} weights do in "
            f"{answers.agreement(self._answers[self._reference]):.0%} of them"
        )

    def _figures(self, name: str) -> rewritten.Figures:
        known: dict[str, Any] = {}
        if (speed := self._speeds.get(name)) is not None:
            known |= {"prompt": speed.prompt, "generation": speed.generation, "seconds": speed.seconds}
        if (answers := self._answers.get(name)) is not None:
            agreement = answers.agreement(self._answers[self._reference])
            known |= {"correct": answers.correct, "steps": len(answers.choices), "agreement": agreement}
        size = self._files[name].stat().st_size if name in self._files else None
        return rewritten.Figures(name, size, verdict=self._verdicts.get(name, ""), **known)


def answer(path: str, style: Style, scoring: Scoring, threads: int) -> Answers:
    """Let a model choose at every labelled step; runs in a child process."""
    labelled = ChainDemonstration.load()
    shown = Demonstrations(_SHOWN, labelled=labelled)
    steps, right = [], []
    for example in labelled[_SHOWN:]:
        for index, step in enumerate(example.steps):
            candidates = tuple(Candidate(triple, i, 0.0) for i, triple in enumerate(step.candidates))
            steps.append(Step(example.question, example.chain[:index], candidates))
            right.append(step.answer + 1)
    with LlamaCppModel(path, context=4096, threads=threads, style=style) as model:
        selector: Selector = (
            LetterSelector(model, shown) if scoring == "letters" else TextSelector(model, shown, scoring=scoring)
        )
        choices = tuple(int(row.argmax()) for row in selector.select(steps))
    return Answers(choices, correct=sum(choice == due for choice, due in zip(choices, right, strict=True)))
