"""A language model that is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pytrace.models.language_model import LanguageModel
from pytrace.records import Usage


class DeferredModel:
    """Stands for a language model until something is asked of it; before, it has used nothing."""

    def __init__(self, load: Callable[[], LanguageModel]) -> None:
        self._load = load
        self._loaded: LanguageModel | None = None

    @property
    def usage(self) -> Usage:
        """What the model was asked so far: nothing before it is loaded."""
        return Usage() if self._loaded is None else self._loaded.usage

    def close(self) -> None:
        """Close the model if it was loaded and can be closed."""
        close = getattr(self._loaded, "close", None)
        self._loaded = None
        if close is not None:
            close()

    def __getattr__(self, name: str) -> Any:
        """Load the model, and hand the rest to it."""
        # Who copies or inspects an object asks for such names; that must not load gigabytes.
        if name.startswith("_"):
            raise AttributeError(name)
        if self._loaded is None:
            self._loaded = self._load()
        return getattr(self._loaded, name)


def deferred(load: Callable[[], LanguageModel]) -> LanguageModel:
    """Return a language model that is loaded when it is first used."""
    return cast("LanguageModel", DeferredModel(load))
