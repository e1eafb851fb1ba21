"""What users hand to a store beside queries: limits, and files of names."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from pytrace.errors import DataError, InputError
from pytrace.kg.fact_store import QueryLimits
from pytrace.triples.graph.exchange import input_errors, read_lines

# A year: more is a slip, and would not fit the system's timers.
_LONGEST = 31_536_000.0


def check_limits(limits: QueryLimits) -> None:
    """Refuse limits that would let nothing through, or that limit nothing."""
    fits = limits.rows >= 1 and limits.megabytes >= 1 and math.isfinite(limits.seconds)
    if not fits or not 0 < limits.seconds <= _LONGEST:
        raise InputError(
            f"a query's limits are {limits.rows} rows, {limits.seconds:g} seconds and {limits.megabytes} megabytes; give at "
            f"least 1 row and 1 megabyte, and seconds above 0 and up to {_LONGEST:.0f}"
        )


def check_search(*, limit: int, cutoff: float = 0.0) -> None:
    """Refuse to look for nothing."""
    if limit < 1:
        raise InputError(f"limit is {limit}; ask for at least 1")
    if not 0 <= cutoff <= 100:
        raise InputError(f"cutoff is {cutoff}; give a score from 0 to 100")


def read_pairs(path: str | os.PathLike[str], *, what: str) -> Iterator[tuple[str, str]]:
    """Read a file of keys and names: a key, a tab and a name a line; a key may come again."""
    path = Path(path)
    with input_errors(path):
        for number, line in read_lines(path):
            parts = line.split("\t")
            if len(parts) != 2 or not all(part.strip() for part in parts):
                raise DataError(
                    f"{len(parts)} columns ({line[:100]!a}); write the {what}'s key, a tab and its name",
                    path=path,
                    line=number,
                )
            yield parts[0].strip(), " ".join(parts[1].split())
