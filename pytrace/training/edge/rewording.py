"""Claims in other words: dates, numbers and units written another way, and words that mean the same in most sentences.

A checker that has seen supported claims only as their pages word them takes every other wording for an error.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from pytrace.training.edge.made_questions import MONTHS

_SYNONYMS = tuple(
    tuple(line.split(", "))
    for line in """
film, movie
bought, purchased
founded, established, set up
began, started
wrote, authored
died, passed away
located, situated
built, constructed
married, wed
moved to, relocated to
served as, acted as, worked as
took part in, participated in
is known for, is famous for
was known for, was famous for
best known for, most famous for
known as, called
consists of, is made up of
occurred, took place, happened
takes place, is held
near, close to
approximately, roughly
more than, in excess of
less than, fewer than
formerly, previously
currently, at present
attended, went to
created, made
entire, whole
often, frequently
rarely, seldom
because, since
several, a number of
many, numerous
important, significant
helped, aided, assisted
ended, came to an end
forbidden, banned, outlawed
allowed, permitted
needed, required
showed, demonstrated
gave, handed
got, received
tried, attempted
selected, chosen
whole life, entire life
such as, like
together with, along with
due to, because of, owing to
after that, afterwards
in the end, eventually
at first, initially
the only, the sole
the largest, the biggest
the oldest, the most ancient
owned by, in the possession of
published by, brought out by
published in, brought out in
released in, put out in
written by, authored by
grew up, was raised
studied at, was a student at
retired, stopped working
hit, struck
United States, U.S., USA
United Kingdom, UK
""".strip().splitlines()
)
_OTHERS: dict[str, tuple[str, ...]] = {}
for _line in _SYNONYMS:
    for _word in _line:
        _OTHERS[_word] = (*_OTHERS.get(_word, ()), *(other for other in _line if other != _word))
_KNOWN = re.compile(rf"(?<![\w'’-])(?:{'|'.join(map(re.escape, sorted(_OTHERS, key=len, reverse=True)))})(?![\w'’-])")
_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS = {
    number: _SMALL[number]
    if number < len(_SMALL)
    else _TENS[number // 10 - 2] + (f"-{_SMALL[number % 10]}" if number % 10 else "")
    for number in range(2, 100)
}
_VALUES = {word: number for number, word in _WORDS.items()}
_NUMBER_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(_VALUES, key=len, reverse=True))})(?![\w-])")
_SMALL_NUMBER = re.compile(
    r"(?<![\w.,:/–$£€-])[2-9]\d?(?= [a-z]{3,})(?! (?:percent|per cent|million|billion|thousand))"
)
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")
_MONTH = "|".join(MONTHS)
_DATES = (
    re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?P<month>{_MONTH}),? (?P<year>\d{{3,4}})\b"),
    re.compile(rf"\b(?P<month>{_MONTH}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?, (?P<year>\d{{3,4}})\b"),
)
_DATE_FORMS = (
    "{day} {month} {year}", "{month} {day}, {year}", "{month} {day}{th}, {year}", "{day}{th} {month} {year}", "the {day}{th} of {month} {year}",
)  # fmt: skip
_UNITS = tuple(
    (re.compile(rf"(?<=\d)(?:{'|'.join(map(re.escape, forms))})(?!\w)"), forms)
    for forms in (
        (" km", " kilometres", " kilometers"),
        (" m", " metres", " meters"),
        ("%", " percent", " per cent"),
        (" mi", " miles"),
        (" ft", " feet"),
        (" kg", " kilograms"),
    )
)
_FRAMES = ("According to the text, {}", "The page says that {}", "It is stated that {}")
_SHARE = 0.7  # of what could be worded otherwise
_FRAMED = 0.04


def reworded(claim: str, rng: random.Random) -> str:
    """Return a claim in other words.

    Examples
    --------
    >>> reworded("The film came out on 2 June 1963 and ran for 71 weeks.", random.Random(3))
    'The movie came out on the 2nd of June 1963 and ran for seventy-one weeks.'
    """

    def at_times(change: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
        return lambda match: change(match) if rng.random() < _SHARE else match[0]

    for pattern in _DATES:
        if pattern.search(claim):
            claim = pattern.sub(at_times(lambda match: _date(match, rng)), claim)
            break
    claim = _SMALL_NUMBER.sub(at_times(lambda match: _WORDS[int(match[0])]), claim)
    if rng.random() < _SHARE / 2:
        claim = _NUMBER_WORD.sub(lambda match: str(_VALUES[match[0]]), claim)
    claim = _THOUSANDS.sub(at_times(lambda match: match[0].replace(",", "")), claim)
    for unit, forms in _UNITS:
        claim = unit.sub(rng.choice(forms), claim)
    claim = _KNOWN.sub(at_times(lambda match: rng.choice(_OTHERS[match[0]])), claim)
    if rng.random() < _FRAMED:
        frame = rng.choice(_FRAMES)
        begins = claim[:1].lower() + claim[1:] if claim.startswith(("The ", "It ", "He ", "She ", "A ")) else claim
        claim = frame.format(begins)
    return claim


def _date(match: re.Match[str], rng: random.Random) -> str:
    day = int(match["day"])
    ending = "th" if 10 <= day % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return rng.choice(_DATE_FORMS).format(day=day, month=match["month"], year=match["year"], th=ending)
