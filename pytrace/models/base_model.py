"""What every back end of a language model shares: its arguments are checked and made one limit and one grammar a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytrace.models.language_model import Completion, ContinuationScore, OptionScores, Prompt


class GenerationRequest(NamedTuple):
    """A checked call of `generate`: `limits` and `grammars` have one item a prompt, and no stop text is empty."""

    prompts: Sequence[Prompt | str]
    limits: list[int]
    grammars: list[str | None]
    stop: tuple[str, ...]
    temperature: float
    top_p: float
    n: int
    seed: int
    done: Callable[[int, list[Completion]], None] | None


class BaseModel(ABC):
    """The three verbs of a `LanguageModel`, with their arguments checked before a back end sees them."""

    def generate(
        self,
        prompts: Sequence[Prompt | str],
        *,
        max_tokens: int | Sequence[int],
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        top_p: float = 1.0,
        n: int = 1,
        seed: int = 0,
        grammar: str | Sequence[str] | None = None,
        done: Callable[[int, list[Completion]], None] | None = None,
    ) -> list[list[Completion]]:
        """Write `n` completions of every prompt, as `LanguageModel.generate` says."""
        _check_list(prompts, "prompts")
        _check_list(stop, "stop")
        limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
        _check_pairs(len(prompts), len(limits), "token limits")
        if any(limit < 1 for limit in limits):
            raise ValueError(f"max_tokens must be at least 1, not {min(limits)}")
        if not 0.0 <= temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or above, not {temperature}")
        if not 0.0 < top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {top_p}")
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        if seed < 0:
            raise ValueError(f"seed must be 0 or above, not {seed}")
        grammars: list[str | None]
        grammars = [grammar] * len(prompts) if grammar is None or isinstance(grammar, str) else list(grammar)
        _check_pairs(len(prompts), len(grammars), "grammars")
        stops = tuple(text for text in stop if text)
        return self._generate(GenerationRequest(prompts, limits, grammars, stops, temperature, top_p, n, seed, done))

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        """Score the option labels of every prompt as its next token."""
        _check_list(prompts, "prompts")
        _check_pairs(len(prompts), len(options), "options")
        return self._score_options(prompts, options)

    def score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        """Score whole texts as what follows every prompt."""
        _check_list(prompts, "prompts")
        _check_pairs(len(prompts), len(continuations), "continuations")
        return self._score_continuations(prompts, continuations)

    @abstractmethod
    def _generate(self, call: GenerationRequest) -> list[list[Completion]]: ...

    @abstractmethod
    def _score_options(
        self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]
    ) -> list[OptionScores]: ...

    @abstractmethod
    def _score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]: ...


def _check_list(texts: object, what: str) -> None:
    """Refuse one text where a list of them is meant."""
    # A str is a Sequence[str] too, so that no type checker finds the mistake.
    if isinstance(texts, str):
        raise TypeError(f"{what} must be a list of texts, not one text; write [text]")


def _check_pairs(prompts: int, given: int, what: str) -> None:
    """Refuse lists that do not belong together."""
    if prompts != given:
        raise ValueError(f"there are {prompts} prompts but {given} lists of {what}")


def check_bounds(least: float, **options: float | None) -> None:
    """Refuse options below `least`, or so large that the C code or a timer behind them would overflow."""
    for option, value in options.items():
        if value is not None and not least <= value < 2**30:
            raise ValueError(f"{option} must be at least {least} and below 2**30, not {value}")


def label_forms(label: str) -> list[str]:
    """Return the ways in which an option's label may be written."""
    if not label.strip():
        raise ValueError(f"the option label {label!r} is empty; use one letter or a short word")
    # Many vocabularies have a token for a word with the space before it, and a model may write either.
    return list(dict.fromkeys((label, f" {label.strip()}", label.strip())))
