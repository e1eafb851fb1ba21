"""Which entities of held-out queries training queries name, too: what a split must keep at none."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.kg.names import normal_form
from pytrace.training.examples import QueryExample
from pytrace.training.query_text import query_entities


def seen_share(training: Sequence[QueryExample], held_out: Sequence[QueryExample]) -> float:
    """Return the share of the entities named by held-out queries that training queries name too."""
    known = {normal_form(name) for example in training for name in query_entities(example.query)}
    asked = {normal_form(name) for example in held_out for name in query_entities(example.query)}
    return len(asked & known) / len(asked) if asked else 0.0
