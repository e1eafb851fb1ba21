"""The type and form of an answer, told by rules, and wrong answers of the same type and form.

A wrong answer that is to stand where the right one stood must read as well there: a date in the same format, a number with as
many digits and the same unit, a person for a person.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 6.1 and appendix I. The paper asks a model for everything; here rules do what rules can, so that the same seed gives the
same answer and each one can be checked.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from pytrace.documents.sentences import clean_text
from pytrace.models.language_model import LanguageModel
from pytrace.perturb.answer_values import AnswerType, Parsed, case_of, read_value, renderings
from pytrace.perturb.model_rewriting import Rewriting, rewrite
from pytrace.perturb.word_lists import WORDS
from pytrace.reader.answers import normalise_answer

__all__ = ["AnswerType", "By", "Swap", "classify", "same_type", "swap_all", "variants"]

By = Literal["rule", "pool", "names", "model"]

# An answer is short; what is longer than this is some text, and the rules need not look at it.
_LONGEST = 200
_MOST_ITEMS = 10
# What lies between commas in longer prose is no item of a list.
_LONGEST_ITEM = 6
# How often a rule may make what does not fit, and how often the model is asked for a phrase.
_TRIES = 60
_ROUNDS = 2


class Swap(msgspec.Struct, frozen=True):
    """A wrong answer, the type it shares with the right one, and where it comes from.

    `by` is "rule" (computed), "pool" (another answer of the data set), "names" (our lists) or "model".
    """

    text: str
    type: AnswerType
    by: By


def classify(text: str) -> AnswerType:
    """Tell the type of an answer by rules."""
    # Source: section 6.1, which lets GPT-4 tell the types.
    return _parse(clean_text(text)).type


def same_type(first: str, second: str) -> bool:
    """Tell whether two answers have the same type and form."""
    # The form is all that a reader sees of an answer before its meaning: the format of a date, the digits, commas,
    # decimals and unit of a number, a name's title, article and kind of place, a list's separators. Names and phrases
    # may differ by one word.
    # Source: section 6.1, "match the original in both type and format".
    return _parse(clean_text(first)).alike(_parse(clean_text(second)))


def swap_all(
    texts: Sequence[str],
    rngs: Sequence[random.Random],
    *,
    pool: Sequence[str] = (),
    model: LanguageModel | None = None,
) -> list[Swap | None]:
    """Find a wrong answer of the same type and form for each of several."""
    # Values (yes and no, years, dates, numbers) are computed. Places, persons and names come from the pool, then from
    # short lists of our own. Common phrases come from the model, which is asked a bounded number of times about all of
    # them in one call, then from the pool.
    # Source: section 6.1 and appendix I.
    cleaned = [clean_text(text) for text in texts]
    # Sorted, so that the order of the pool has no part in what chance picks.
    answers = {answer: _parse(answer) for answer in sorted(set(map(clean_text, pool)) - {""})}
    phrases = dict.fromkeys(part for text in cleaned for part in _items(text) if _parse(part).type == "phrase")
    proposals = {} if model is None else _propose([phrase for phrase in phrases if phrase], model)
    sources = _Sources(answers, proposals)
    return [sources.swap(text, rng) for text, rng in zip(cleaned, rngs, strict=True)]


def variants(right: str, wrong: str) -> list[tuple[str, str]]:
    """Return the ways in which a right answer may stand in a text, each with the wrong one written likewise."""
    return list(dict.fromkeys([(right, wrong), *zip(renderings(right), renderings(wrong), strict=False)]))


_PLACES = {
    name.casefold(): sort
    for sort, names in (("city", WORDS.cities), ("state", WORDS.states), ("country", WORDS.countries))
    for name in names
}
_NATIONALITIES = {name.casefold() for name in WORDS.nationalities}
_FIRST_NAMES = {*WORDS.women, *WORDS.men}
_INITIAL = re.compile(r"^(?:[^\W\d_]\.)+$")
# Between the items of a list; a lone comma between two names is a place ("Lyon, France") and no list.
_SEPARATOR = re.compile(r"(\s*;\s*|,\s+(?:and\s+|or\s+)?|\s+(?:and|or)\s+|\s*/\s*)")


def _parse(text: str) -> Parsed:
    """Tell the type and form of an answer, which must be clean."""
    if len(text) > _LONGEST:
        return Parsed("phrase", ("", "long"), len(text.split()))
    return read_value(text) or _known_name(text) or _list(text) or _title_or_phrase(text)


def _known_name(text: str) -> Parsed | None:
    """Recognise what only a known word makes a nationality, a place or a person."""
    article, name = _split_article(text)
    if name.casefold() in _NATIONALITIES:
        return Parsed("nationality", (article, case_of(name)))
    words, parts = name.split(), name.split(", ")
    if name.casefold() in _PLACES and _is_title(name):
        return Parsed("place", (article, "", 1), len(words))
    if 2 <= len(parts) <= 3 and all(map(_is_place_part, parts)) and " and " not in name:
        return Parsed("place", (article, "", len(parts)), len(words))
    if len(parts) == 1 and _is_title(name):
        kind = _kind_word(words, WORDS.place_words, WORDS.place_starts)
        if kind:
            return Parsed("place", (article, kind, 1), len(words))
    return None if article else _person(name)


def _is_place_part(part: str) -> bool:
    short = len(part) > 2 and 1 <= len(part.split()) <= 4
    return short and _is_title(part) and part.strip(".") not in {"Jr", "Sr", "Inc", "Ltd"}


def _kind_word(words: Sequence[str], endings: Collection[str], starts: Collection[str]) -> str:
    """Return the word that says what kind of place or body it is, with where it stands; "" if there is none."""
    if len(words) > 1 and words[-1] in endings:
        return f"- {words[-1]}"
    if len(words) < 2 or words[0] not in starts:
        return ""
    if words[1] == "of" and len(words) > 2:
        return f"{words[0]} of -"
    # A place may do without "of" ("Lake Geneva"), a body does not ("Bank of England").
    return f"{words[0]} -" if starts is WORDS.place_starts else ""


def _person(text: str) -> Parsed | None:
    words = text.replace(",", "").split()
    title = words[0] if words and words[0] in WORDS.titles else ""
    suffix = words[-1] if len(words) > 2 and words[-1] in WORDS.suffixes else ""
    named = words[bool(title) : len(words) - bool(suffix)]
    if not 1 <= len(named) <= 5 or (len(named) == 1 and not title):
        return None
    initials = sum(bool(_INITIAL.match(word)) for word in named)
    if (
        initials == len(named)
        or not WORDS.organisation_words.isdisjoint(named)
        or not WORDS.place_words.isdisjoint(named)
    ):
        return None
    if not all(_INITIAL.match(word) or word in WORDS.particles or _is_capital(word) for word in named):
        return None
    known = named[0] in _FIRST_NAMES or named[0].partition("-")[0] in _FIRST_NAMES
    # A number behind a name ("Rocky II") makes no person of it; Junior and Senior do.
    if not (title or initials or suffix.startswith(("J", "S")) or known):
        return None
    return Parsed("person", (title, initials, suffix), len(named))


def _list(text: str) -> Parsed | None:
    items = _SEPARATOR.split(text)[::2]
    if not 2 <= len(items) <= _MOST_ITEMS or not all(items):
        return None
    if any(len(item.split()) > _LONGEST_ITEM for item in items):
        return None
    return Parsed("list", tuple(_SEPARATOR.split(text)[1::2]), items=tuple(map(_parse, items)))


def _items(text: str) -> list[str]:
    """Return the items of a list; of anything else the text itself."""
    return _SEPARATOR.split(text)[::2] if _parse(text).type == "list" else [text]


def _title_or_phrase(text: str) -> Parsed:
    article, name = _split_article(text)
    words = name.split()
    if not _is_title(name):
        return Parsed("phrase", (article, any(map(_is_capital, words))), len(words))
    if len(words) == 1 and name.isupper() and name.isalpha() and len(name) > 1:
        return Parsed("name", (article, "acronym", len(name)), 1)
    return Parsed("name", (article, _kind_word(words, WORDS.organisation_words, WORDS.organisation_words)), len(words))


def _split_article(text: str) -> tuple[str, str]:
    """Return a first article ("the", or "a" for "an" too) and what follows."""
    match = re.match(r"(the|an?)\s+", text, re.IGNORECASE)
    return ("the" if match[1].lower() == "the" else "a", text[match.end() :]) if match else ("", text)


def _is_capital(word: str) -> bool:
    """Whether the first letter or digit of a word is a capital letter."""
    return next(filter(str.isalnum, word), "").isupper()


def _is_title(text: str) -> bool:
    """Whether every word that counts begins with a capital or a digit, and at least one with a capital."""
    words = text.split()
    return any(map(_is_capital, words)) and all(
        _is_capital(word) or word[0].isdigit() or word in WORDS.small_words or not any(map(str.isalpha, word))
        for word in words
    )


class _Sources(msgspec.Struct, frozen=True):
    """Where wrong answers come from: the answers of the data set, parsed, and what the model wrote to which phrase."""

    pool: Mapping[str, Parsed]
    proposals: Mapping[str, Sequence[str]]

    def swap(self, text: str, rng: random.Random) -> Swap | None:
        if not text or len(text) > _LONGEST:
            return None
        parsed = _parse(text)
        for by, candidates in self.candidates(text, parsed, rng):
            for candidate in candidates:
                if _is_swap(text, candidate):
                    return Swap(candidate, parsed.type, by)
        return None

    def candidates(self, text: str, parsed: Parsed, rng: random.Random) -> Iterable[tuple[By, Iterable[str]]]:
        """Name the sources of wrong answers for a type, the best first; each draws from chance only when it is reached."""
        if parsed.another is not None:
            return [("rule", map(parsed.another, itertools.repeat(rng, _TRIES)))]
        if parsed.type == "list":
            return self.lists(text, rng)
        others = [answer for answer, other in self.pool.items() if parsed.alike(other)]
        rng.shuffle(others)
        # The likest first: the same sort of place, as many words.
        others.sort(key=lambda other: (_sort_of(other) != _sort_of(text), self.pool[other].words != parsed.words))
        names = (_from_names(text, parsed, rng) for _ in range(_TRIES))
        if parsed.type != "phrase":
            return [("pool", others), ("names", names)]
        return [("model", self.proposals.get(text, ())), ("names", names), ("pool", others)]

    def lists(self, text: str, rng: random.Random) -> Iterable[tuple[By, Iterable[str]]]:
        parts = _SEPARATOR.split(text)
        for _ in range(_TRIES):
            swaps = [one for one in [self.swap(part, rng) for part in parts[::2]] if one is not None]
            if len(swaps) < len(parts[::2]):
                return
            if len({one.text for one in swaps}) < len(swaps):
                continue
            written = [*parts]
            written[::2] = [one.text for one in swaps]
            sources = {one.by for one in swaps}
            by: By = next((source for source in ("model", "pool", "names") if source in sources), "rule")
            yield by, ["".join(written)]


def _is_swap(text: str, candidate: str) -> bool:
    right, wrong = normalise_answer(text), normalise_answer(candidate)
    readable = any(map(str.isalnum, right)) and any(map(str.isalnum, wrong))
    return readable and right not in wrong and wrong not in right and same_type(text, candidate)


def _sort_of(text: str) -> str:
    return _PLACES.get(_split_article(text)[1].casefold(), "")


def _from_names(text: str, parsed: Parsed, rng: random.Random) -> str:
    """Make a name of the same form from our lists; it is checked by the caller."""
    _, name = _split_article(text)
    prefix = text[: len(text) - len(name)]
    if parsed.type == "nationality":
        other = rng.choice(WORDS.nationalities)
        return prefix + {"upper": other.upper(), "lower": other.lower()}.get(case_of(name), other)
    if parsed.type == "person":
        return _another_person(text, rng)
    if parsed.type == "place" and "," in name:
        # The town is drawn first, and stands last: it is one of its country.
        town = rng.choice(WORDS.towns_within)
        return prefix + ", ".join([*(rng.choice(WORDS.proper) for _ in name.split(", ")[2:]), *town])
    if parsed.type == "place" and not parsed.form[1]:
        if prefix:
            return prefix + rng.choice(WORDS.countries_with_article)
        return rng.choice({"country": WORDS.countries, "state": WORDS.states}.get(_sort_of(text), WORDS.cities))
    if parsed.type == "name" and parsed.form[1] == "acronym":
        return prefix + "".join(rng.choice("BCDFGHKLMNPRSTVW") for _ in name)
    fixed = set(str(parsed.form[1]).split())
    words = name.split()
    # A title of several words, such as a film's, is made of words that mean something; any other name of invented ones.
    choices = WORDS.title_words if parsed.type == "name" and not fixed and len(words) > 1 else WORDS.proper
    return prefix + " ".join(rng.choice(choices) if _is_capital(word) and word not in fixed else word for word in words)


def _another_person(text: str, rng: random.Random) -> str:
    words = text.split()
    in_full = [i for i, word in enumerate(words) if word.strip(",") not in WORDS.suffixes and not _INITIAL.match(word)]
    surname = max(in_full, default=0)
    # A woman for a woman where the first name tells it, for the text around the name goes on with "she".
    first_names = next((names for names in (WORDS.women, WORDS.men) if any(word in names for word in words)), WORDS.men)
    written = []
    for index, word in enumerate(words):
        if (index == 0 and word in WORDS.titles) or word.strip(",") in WORDS.suffixes or word in WORDS.particles:
            written.append(word)
        elif _INITIAL.match(word):
            written.append(re.sub(r"[^\W\d_]", lambda _: rng.choice("ABCDEFGHJKLMNPRSTW"), word))
        else:
            comma = "," if word.endswith(",") else ""
            written.append(rng.choice(WORDS.surnames if index == surname else first_names) + comma)
    return " ".join(written)


def _propose(phrases: Sequence[str], model: LanguageModel) -> dict[str, list[str]]:
    """Let the model write other phrases, again for those that got nothing of the same type and form."""
    proposals: dict[str, list[str]] = {phrase: [] for phrase in phrases}
    for seed in range(_ROUNDS):
        waiting = [phrase for phrase in phrases if not proposals[phrase] and len(phrase) <= _LONGEST]
        written = rewrite(model, "another", [Rewriting("another", phrase) for phrase in waiting], seed=seed)
        for phrase, texts in zip(waiting, written, strict=True):
            proposals[phrase] = [text for text in texts if _is_swap(phrase, text)]
    return proposals
