"""Clocks: what each stage of a method costs in seconds and in model usage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from pytrace.models.language_model import LanguageModel
from pytrace.records import Answer, Usage


class Stages:
    """Adds up wall-clock seconds and the models' usage by stage; only one stage runs at a time."""

    def __init__(self, model: LanguageModel, *others: LanguageModel) -> None:
        self._models = (model, *(other for other in others if other is not model))
        self.seconds: dict[str, float] = {}
        self.usage: dict[str, Usage] = {}

    @property
    def deterministic(self) -> bool:
        """How the models run: see `LanguageModel.deterministic`."""
        return all(model.deterministic for model in self._models)

    def _spent(self) -> Usage:
        return sum((model.usage for model in self._models), Usage())

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside for a stage; entering it again adds to it."""
        started, before = time.perf_counter(), self._spent()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            self.usage[name] = self.usage.get(name, Usage()) + (self._spent() - before)

    def added_to(self, answer: Answer, among: int) -> Answer:
        """Return an answer with its share of what these stages cost `among` answers, added to what it has cost before."""
        usage, seconds = dict(answer.usage), dict(answer.seconds)
        for stage, spent in self.usage.items():
            usage[stage] = usage.get(stage, Usage()) + spent.scaled(1 / among)
        for stage, took in self.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + took / among
        return msgspec.structs.replace(answer, usage=usage, seconds=seconds)
