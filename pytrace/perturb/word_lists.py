"""Words as data (`word_lists.json`): common names, words that tell what sort of name it is, and the wording of statements."""

from __future__ import annotations

from importlib import resources

import msgspec


class WordLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lists of `word_lists.json` by name."""

    # Geography and first names at large: known ones tell a place or a person from another name, and stand in for it.
    countries: tuple[str, ...]
    countries_with_article: tuple[str, ...]
    states: tuple[str, ...]
    cities: tuple[str, ...]
    towns_within: tuple[tuple[str, str], ...]
    nationalities: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    # Invented, so that a wrong answer made of them is true of nothing.
    surnames: tuple[str, ...]
    proper: tuple[str, ...]
    title_words: tuple[str, ...]
    # Words that tell what a name is, or do not count in it.
    small_words: frozenset[str]
    particles: frozenset[str]
    place_words: frozenset[str]
    place_starts: frozenset[str]
    organisation_words: frozenset[str]
    titles: frozenset[str]
    suffixes: frozenset[str]
    # Groups of words of which one can stand for another, and scales, which stay: "two million" to "six million".
    number_groups: tuple[tuple[str, ...], ...]
    scales: tuple[str, ...]
    # What stands in a sentence instead of an answer, and instead of a phrase, by the type of answer.
    untold: dict[str, str]
    broader: dict[str, str]
    # Every opening goes with every statement; a chance order of them is what templates of misinformation are.
    statement_openings: tuple[str, ...]
    statements: tuple[str, ...]


WORDS = msgspec.json.decode((resources.files(__package__) / "word_lists.json").read_bytes(), type=WordLists)
