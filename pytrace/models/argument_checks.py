"""Checks of what a caller hands to a language model, the same for every back end."""

from __future__ import annotations

from collections.abc import Sequence


def check_list(texts: object, what: str) -> None:
    """Refuse one text where a list of them is meant."""
    if isinstance(texts, str):
        raise TypeError(f"{what} must be a list of texts, not one text; write [text]")


def check_pairs(prompts: int, given: int, what: str) -> None:
    """Refuse lists that do not belong together."""
    if prompts != given:
        raise ValueError(f"there are {prompts} prompts but {given} lists of {what}")


def generation_lists(
    prompts: Sequence[object],
    *,
    max_tokens: int | Sequence[int],
    stop: Sequence[str],
    temperature: float,
    top_p: float,
    n: int,
    seed: int,
    grammar: str | Sequence[str] | None,
) -> tuple[list[int], list[str | None]]:
    """Refuse settings of a generation that are out of range, and return one token limit and one grammar a prompt."""
    check_list(prompts, "prompts")
    check_list(stop, "stop")
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    check_pairs(len(prompts), len(limits), "token limits")
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
    check_pairs(len(prompts), len(grammars), "grammars")
    return limits, grammars
