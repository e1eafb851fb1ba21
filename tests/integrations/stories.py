"""Passages of the example documents, two of which answer a question together."""

from __future__ import annotations

from pytrace.engine import Engine
from pytrace.integrations.selection import Passage

QUESTION = "Who founded the foundry that cast the bell of the Lady Addle?"
PASSAGES = [
    Passage(name, text, {"title": title, "year": year})
    for name, title, year, text in (
        ("geese", "Geese of Skarra", 1901, "Geese fly south over Skarra Isle in October. They come back in spring."),
        (
            "ship",
            "Lady Addle",
            1889,
            "The Lady Addle was built in 1889 as a tug on the River Addle. Her bell came from the Orrin Bell Foundry.",
        ),
        ("treaty", "Treaty of Nethercove", 1763, "The Treaty of Nethercove was signed on 2 June 1763 by fishermen."),
        (
            "foundry",
            "Orrin Bell Foundry",
            1850,
            "The Orrin Bell Foundry was founded by Matthias Garrow in 1850. It cast the bells of three hundred ships.",
        ),
        ("walk", "The Lamp Walk", 1846, "The Lamp Walk goes back to 1846. It is held in Nethercove each winter."),
    )
]


def require_no_language_model(engine: Engine) -> None:
    """Fail if the language model's file was read."""
    assert engine.model.usage.calls == 0
    assert getattr(engine.model, "_loaded", None) is None
