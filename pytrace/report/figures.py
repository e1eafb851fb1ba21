"""How the pages word figures: shares, differences and intervals, with a dash for what is not defined."""

from __future__ import annotations

import math
from typing import Protocol

NOTHING = "–"


class Estimate(Protocol):
    """A share from 0 to 1 with its confidence interval; each None where there is nothing to count."""

    @property
    def value(self) -> float | None:
        """The share."""

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""


def finite(value: float | None) -> float | None:
    """Return a number, or None for what is not one."""
    return value if value is not None and math.isfinite(value) else None


def percent(value: float | None) -> str:
    """Word a share."""
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f}%"


def points(value: float | None) -> str:
    """Word a difference of two shares, in points of a percent."""
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f} points".replace("-", "−")


def interval(estimate: Estimate) -> str:
    """Word the interval of an estimate; empty if it has none."""
    low, high = finite(estimate.low), finite(estimate.high)
    return "" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}%"
