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
    """Refuse limits that would let nothing through, or that limit nothing.

    Raises
    ------
    InputError
        Says which.

    Examples
    --------
    >>> check_limits(QueryLimits(rows=0))
    Traceback (most recent call last):
        ...
    pytrace.errors.InputError: a query's limits are 0 rows, 5 seconds and 2048 megabytes; give at least 1 row and 1 megabyte, \
and seconds above 0 and up to 31536000
    """
    fits = limits.rows >= 1 and limits.megabytes >= 1 and math.isfinite(limits.seconds)
    if not fits or not 0 < limits.seconds <= _LONGEST:
        message = (
            f"a query's limits are {limits.rows} rows, {limits.seconds:g} seconds and {limits.megabytes} megabytes; give at "
            f"least 1 row and 1 megabyte, and seconds above 0 and up to {_LONGEST:.0f}"
        )
        raise InputError(message)


def check_search(*, limit: int, cutoff: float = 0.0) -> None:
    """Refuse to look for nothing.

    Raises
    ------
    InputError
        `limit` is below 1, or `cutoff` is not from 0 to 100.
    """
    if limit < 1:
        message = f"limit is {limit}; ask for at least 1"
        raise InputError(message)
    if not 0 <= cutoff <= 100:
        message = f"cutoff is {cutoff}; give a score from 0 to 100"
        raise InputError(message)


def read_pairs(path: str | os.PathLike[str], *, what: str) -> Iterator[tuple[str, str]]:
    r"""Read a file of keys and names: a key, a tab and a name a line; a key may come again.

    Parameters
    ----------
    path
        UTF-8; empty lines are skipped.
    what
        What a line is to name, for errors: "entity", say.

    Raises
    ------
    DataError
        The file cannot be read, or a line has no key, no name or more than one tab.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "names.tsv"
    >>> _ = path.write_text("http://towns/1\tAccra\n")
    >>> list(read_pairs(path, what="entity"))
    [('http://towns/1', 'Accra')]
    """
    path = Path(path)
    with input_errors(path):
        for number, line in read_lines(path):
            parts = line.split("\t")
            if len(parts) != 2 or not all(part.strip() for part in parts):
                message = f"{len(parts)} columns ({line[:100]!a}); write the {what}'s key, a tab and its name"
                raise DataError(message, path=path, line=number)
            yield parts[0].strip(), " ".join(parts[1].split())
