"""What a language model can do: the abilities that decide which of the papers' parts a method gives it."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

Ability = Literal["logits", "letters", "ends", "triples", "reads"]
"""Gives log-probabilities; chooses an option by its letter; ends finished chains and no others; writes sound triples; reads long contexts."""

LARGE = 1_000_000_000
"""Parameters from which on a model is taken to read long contexts, to answer in its own words and to follow its chat template."""


class ModelAbilities(Protocol):
    """Tells what a language model can do; an ability may be measured when it is first asked for."""

    def can(self, ability: Ability) -> bool:
        """Return whether the model has an ability."""
        ...

    def known(self) -> Abilities:
        """Return all abilities without measuring any: what is not known yet is presumed."""
        ...


class Abilities(msgspec.Struct, frozen=True):
    """What a language model can do, by ability; the papers presume all of it."""

    logits: bool = True
    letters: bool = True
    ends: bool = True
    triples: bool = True
    reads: bool = True

    def can(self, ability: Ability) -> bool:
        """Return whether the model has an ability."""
        value: bool = getattr(self, ability)
        return value

    def known(self) -> Abilities:
        """Return the abilities."""
        return self


CAPABLE = Abilities()
"""A model that gets the papers' settings."""
UNABLE = Abilities(letters=False, ends=False, triples=False, reads=False)
"""A model in this process that only reads, as those of some hundred million parameters do."""
