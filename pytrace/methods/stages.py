"""Clocks: what each stage of a method costs in seconds and in model usage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pytrace.models.language_model import LanguageModel
from pytrace.records import Usage


class Stages:
    """Adds up wall-clock seconds and a model's usage by stage; only one stage runs at a time."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.seconds: dict[str, float] = {}
        self.usage: dict[str, Usage] = {}

    @property
    def deterministic(self) -> bool:
        """How the model runs: see `LanguageModel.deterministic`."""
        return self._model.deterministic

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside for a stage; entering it again adds to it."""
        started, before = time.perf_counter(), self._model.usage
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            self.usage[name] = self.usage.get(name, Usage()) + (self._model.usage - before)
