"""A knowledge base by its path or address."""

from __future__ import annotations

import os
import re

from pytrace.errors import InputError
from pytrace.kg.endpoint import SparqlEndpoint
from pytrace.kg.local_store import LocalStore

_ADDRESS = re.compile(r"https?://", re.IGNORECASE)


def open_store(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    predicates: str | os.PathLike[str] | None = None,
    cache_directory: str | os.PathLike[str] | None = None,
    user_agent: str | None = None,
) -> LocalStore | SparqlEndpoint:
    """Open a file or directory of triples, or connect to a SPARQL endpoint."""
    address = os.fspath(source)
    if _ADDRESS.match(address):
        if format is not None:
            raise InputError(f"{address} is an endpoint, which has no format {format!r}; leave the format out")
        return SparqlEndpoint(
            address,
            labels=labels,
            predicates=predicates,
            cache_directory=cache_directory,
            user_agent=user_agent,
        )
    if cache_directory is not None or user_agent is not None:
        what = "a cache" if cache_directory is not None else "a user agent"
        raise InputError(f"{address} is a path, and {what} is for endpoints only; leave it out")
    return LocalStore.open(source, format=format, labels=labels, predicates=predicates)
