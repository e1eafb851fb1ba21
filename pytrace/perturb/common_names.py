"""Names that everybody knows or that could be anybody's: they tell a place or person from another name, and stand in for one.

The proper names are invented; the rest is geography, first names at large, and words that tell what sort of name it is.
All stand in `common_names.json` beside this module.
"""

from __future__ import annotations

from importlib import resources

import msgspec

_LISTS = msgspec.json.decode((resources.files(__package__) / "common_names.json").read_bytes())

COUNTRIES: tuple[str, ...] = tuple(_LISTS["countries"])
COUNTRIES_WITH_ARTICLE: tuple[str, ...] = tuple(_LISTS["countries_with_article"])
STATES: tuple[str, ...] = tuple(_LISTS["states"])
CITIES: tuple[str, ...] = tuple(_LISTS["cities"])
TOWNS_WITHIN: tuple[tuple[str, str], ...] = tuple((town, country) for town, country in _LISTS["towns_within"])
NATIONALITIES: tuple[str, ...] = tuple(_LISTS["nationalities"])
WOMEN: tuple[str, ...] = tuple(_LISTS["women"])
MEN: tuple[str, ...] = tuple(_LISTS["men"])
SURNAMES: tuple[str, ...] = tuple(_LISTS["surnames"])
PROPER: tuple[str, ...] = tuple(_LISTS["proper"])
TITLE_WORDS: tuple[str, ...] = tuple(_LISTS["title_words"])

# Words that tell what a name is, or do not count in it.
SMALL_WORDS: frozenset[str] = frozenset(_LISTS["small_words"])
PARTICLES: frozenset[str] = frozenset(_LISTS["particles"])
PLACE_WORDS: frozenset[str] = frozenset(_LISTS["place_words"])
PLACE_STARTS: frozenset[str] = frozenset(_LISTS["place_starts"])
ORGANISATION_WORDS: frozenset[str] = frozenset(_LISTS["organisation_words"])
TITLES: frozenset[str] = frozenset(_LISTS["titles"])
SUFFIXES: frozenset[str] = frozenset(_LISTS["suffixes"])
