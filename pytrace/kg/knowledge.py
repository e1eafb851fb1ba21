"""A knowledge base with what it takes to ask it."""

from __future__ import annotations

from typing import NamedTuple

from pytrace.kg.fact_store import FactStore
from pytrace.kg.linking import EntityLinker
from pytrace.kg.queries import QueryGenerator


class Knowledge(NamedTuple):
    """A knowledge base, the linker that finds the entities of a query, and the generator that writes queries."""

    store: FactStore
    linker: EntityLinker
    generator: QueryGenerator
