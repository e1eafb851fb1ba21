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
    r"""Open a file or directory of triples, or connect to a SPARQL endpoint.

    Parameters
    ----------
    source
        What begins with ``http://`` or ``https://`` is an endpoint, all else a path: see `LocalStore.open`.
    format
        Of a file; by default its suffix tells.
    labels
        A file of entities' further names: key, tab and name a line.
    predicates
        A file of the relations to use: key, tab and name a line.
    cache_directory
        Where an endpoint's answers are kept.
    user_agent
        What an endpoint is told of you, such as an address.

    Raises
    ------
    InputError
        A file or address cannot be used, or what is only for one kind is given for the other.
    StoreError
        A directory or the cache is damaged, or no process can be started.
    MissingDependencyError
        An endpoint is wanted, and httpx2 is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "towns.tsv"
    >>> _ = path.write_text("Ghana\tcapital\tAccra\n")
    >>> with open_store(path) as store:
    ...     [relation.name for relation in store.relations()], store.names(["Accra"])
    (['capital'], ['Accra'])
    """
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
