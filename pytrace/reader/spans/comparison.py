"""Which of two, by their dates: "Which film was released first, A or B?", also by way of their directors and authors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pytrace.reader.answers import normalise_answer
from pytrace.reader.spans.words import LISTS, MONTHS

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_DATE = re.compile(
    rf"(?:(?P<day>\d{{1,2}})\s+(?P<month>{_MONTH})\.?,?\s+|\b(?P<month_first>{_MONTH})\.?\s+(?P<day_second>\d{{1,2}}),?\s+|"
    rf"\b(?P<month_alone>{_MONTH})\.?,?\s+)?(?P<year>1\d{{3}}|20\d{{2}})(?!\d)",
    re.IGNORECASE,
)
_EARLIEST = re.compile(r"\b(?:first|earlier|earliest|older|oldest|before)\b")
_LATEST = re.compile(r"\b(?:later|latest|last|younger|youngest|newer|newest|more recent|more recently)\b")
_COMPARES = re.compile(r"\b(?:or|both|same)\b")
_LONGER = re.compile(r"\blived longer\b")
_DEATH = re.compile(r"\b(?:died|dead|death|die)\b")
_BIRTH = re.compile(r"\b(?:born|birth|birthday|older|oldest|younger|youngest)\b")
_BRACKETS = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")
_ENDED = re.compile(r"\s*(?:[–—-]|died\b)")
_MARK = re.compile(r"[^\w\s]")
_QUALIFIED = re.compile(r"\s*\([^()]*\)\s*$")
_OPENING = 400  # characters in which a life's dates stand in brackets
_NEAR = 120  # characters behind "born" in which the date stands

Date = tuple[int, int, int]
"""Year, month and day; 0 for what is not told."""


class Entry(NamedTuple):
    """An entry of the evidence: its title and its sentences."""

    title: str
    sentences: Sequence[str]


def merge_articles(entries: Sequence[Entry]) -> list[Entry]:
    """Merge the entries of each title into one, with the beginning of the article first.

    Examples
    --------
    >>> merge_articles([Entry("Ada Hay", ["She died in 1902."]), Entry("Ada Hay", ["Ada Hay (born 1840) was a poet."])])
    [Entry(title='Ada Hay', sentences=['Ada Hay (born 1840) was a poet.', 'She died in 1902.'])]
    """
    of_title: dict[str, Entry] = {}
    for number, (title, said) in enumerate(entries):
        name = normalise_answer(title)
        known = of_title.setdefault(name or f"entry {number}", Entry(title, []))
        begins = bool(said) and any(each in normalise_answer(said[0]) for each in names_of(title))
        sentences = [*said, *known.sentences] if begins else [*known.sentences, *said]
        of_title[name or f"entry {number}"] = Entry(known.title, sentences)
    return list(of_title.values())


def earlier_or_later(question: str, entries: Sequence[Entry]) -> int | None:
    """Return which entry's title the question asks for; None if it compares no two of them, or their dates do not tell."""
    named = asked_about(question, entries)
    if len(named) != 2:
        return None
    asked = without_names(question, [entries[number] for number in named])
    longer, earliest, latest = (pattern.search(asked) is not None for pattern in (_LONGER, _EARLIEST, _LATEST))
    if not re.search(r"\bor\b", asked) or not (longer or earliest != latest):
        return None
    role = role_of(asked)
    others = [entry for number, entry in enumerate(entries) if number not in named]
    values = []
    for number in named:
        entry = entries[number] if role is None else holder_of(role, entries[number], others)
        value = None if entry is None else _value(" ".join(entry.sentences), asked, of_person=role is not None)
        if value is None:
            return None
        values.append(value)
    first, second = _as_exact(*values)
    if first == second:
        return None
    is_first = first > second if longer or latest else first < second
    return named[0] if is_first else named[1]


def compares(question: str) -> bool:
    """Return whether a question seems to compare two: "A or B", "both", "the same"."""
    return _COMPARES.search(question.lower()) is not None


def names_of(title: str) -> list[str]:
    """Return a title's normal form, also without what stands behind it in brackets."""
    return list(
        dict.fromkeys(name for name in (normalise_answer(title), normalise_answer(_QUALIFIED.sub("", title))) if name)
    )


def asked_about(question: str, entries: Sequence[Entry]) -> list[int]:
    """Return which entries' titles a question names."""
    asked = f" {normalise_answer(question)} "
    return [
        number for number, entry in enumerate(entries) if any(f" {name} " in asked for name in names_of(entry.title))
    ]


def without_names(question: str, named: Sequence[Entry]) -> str:
    """Return the words of a question in lower case, without the names of the entries that it asks about, each taken out once.

    Examples
    --------
    >>> without_names("Which film stars Stallone, First Blood or Jaws?", [Entry("First Blood", []), Entry("Jaws (film)", [])])
    'which film stars stallone or'
    """
    asked = f" {_spaced(question)} "
    for entry in sorted(named, key=lambda entry: -len(entry.title)):
        for name in (_spaced(entry.title), _spaced(_QUALIFIED.sub("", entry.title))):
            before, found, after = asked.rpartition(f" {name} ")
            if name and found:
                asked = f"{before} {after}"
                break
    return " ".join(asked.split())


def _spaced(text: str) -> str:
    """Return a text's normal form with its punctuation as spaces: "first-born" has the word "first"."""
    return normalise_answer(_MARK.sub(" ", text))


def role_of(asked: str) -> str | None:
    """Return the role (director, author, …) through which a question compares; take names out first (`without_names`) where they are known."""
    return next((role for role in LISTS.roles if re.search(rf"\b{role}s?\b", asked.lower())), None)


def holder_of(role: str, entry: Entry, others: Sequence[Entry]) -> Entry | None:
    """Return the entry about whoever directed (…) what an entry is about."""
    stems = LISTS.roles[role].split()
    said = [normalise_answer(sentence) for sentence in entry.sentences]
    telling = [sentence for sentence in said if any(f" {stem}" in f" {sentence}" for stem in stems)]
    for sentences in (telling, said):
        for other in others:
            if any(f" {name} " in f" {sentence} " for name in names_of(other.title) for sentence in sentences):
                return other
    return None


def _value(text: str, question: str, *, of_person: bool) -> Date | None:
    """Return the date that two are compared by, or the length of a life in years."""
    birth, death = life(text)
    if _LONGER.search(question):
        return (death[0] - birth[0], 0, 0) if birth and death else None
    if _DEATH.search(question):
        return death
    if of_person or _BIRTH.search(question):
        return birth
    return next(iter(_dates(text)), None)


def _as_exact(first: Date, second: Date) -> tuple[Date, Date]:
    """Return two dates as exact as the one that is less so."""
    told = min(2 if not date[1] else 3 if not date[2] else 4 for date in (first, second)) - 1
    return (*first[:told], *(0,) * (3 - told)), (*second[:told], *(0,) * (3 - told))  # type: ignore[return-value]


def life(text: str) -> tuple[Date | None, Date | None]:
    """Return the dates of a birth and a death, as the first sentence of a biography has them in brackets, or behind "born" and "died".

    Examples
    --------
    >>> life("Ada Lovelace (née Byron; 10 December 1815 – 27 November 1852) was a mathematician.")
    ((1815, 12, 10), (1852, 11, 27))
    """
    birth = death = None
    brackets = _BRACKETS.search(text[:_OPENING])
    if brackets is not None:
        told = _dates(brackets[1])
        if len(told) > 1:  # whatever stands between them
            birth, death = told[0], told[-1]
        elif told and _ENDED.match(brackets[1]):
            death = told[0]
        elif told:
            birth = told[0]
    return birth or _behind(r"\bborn\b", text), death or _behind(r"\b(?:died|death)\b", text)


def _behind(pattern: str, text: str) -> Date | None:
    for match in re.finditer(pattern, text):
        if found := _dates(text[match.end() : match.end() + _NEAR]):
            return found[0]
    return None


def _dates(text: str) -> list[Date]:
    found = []
    for match in _DATE.finditer(text):
        month = match["month"] or match["month_first"] or match["month_alone"] or ""
        found.append((int(match["year"]), MONTHS.get(month.lower(), 0), int(match["day"] or match["day_second"] or 0)))
    return found
