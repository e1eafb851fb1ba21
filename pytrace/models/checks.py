"""Checks of what a caller hands to a language model, the same for every back end."""

from __future__ import annotations


def check_list(texts: object, what: str) -> None:
    """Refuse one text where a list of them is meant."""
    if isinstance(texts, str):
        message = f"{what} must be a list of texts, not one text; write [text]"
        raise TypeError(message)


def check_pairs(prompts: int, given: int, what: str) -> None:
    """Refuse lists that do not belong together."""
    if prompts != given:
        message = f"there are {prompts} prompts but {given} lists of {what}"
        raise ValueError(message)


def check_generation(prompts: int, limits: list[int], temperature: float, top_p: float, n: int, seed: int) -> None:
    """Refuse settings of a generation that are out of range."""
    check_pairs(prompts, len(limits), "token limits")
    if any(limit < 1 for limit in limits):
        message = f"max_tokens must be at least 1, not {min(limits)}"
        raise ValueError(message)
    if not 0.0 <= temperature < float("inf"):
        message = f"temperature must be 0 or above, not {temperature}"
        raise ValueError(message)
    if not 0.0 < top_p <= 1.0:
        message = f"top_p must be above 0 and at most 1, not {top_p}"
        raise ValueError(message)
    if n < 1:
        message = f"n must be at least 1, not {n}"
        raise ValueError(message)
    if seed < 0:
        message = f"seed must be 0 or above, not {seed}"
        raise ValueError(message)
