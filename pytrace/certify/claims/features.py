"""A claim beside a text: which of its words the text has, in which order, and what stands in their place."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.certify.claims.predicates import Statement, find_statement
from pytrace.certify.claims.replaced import another_number, exactly_replaced
from pytrace.certify.claims.roles import GAP, NEAR, turned_round
from pytrace.certify.claims.text_tokens import OTHER_FORM, key_of
from pytrace.certify.claims.tokens import EXCLUSIVES, OPPOSITES, REFUSALS, WEIGHTS, Token
from pytrace.certify.claims.word_forms import are_one_word, form_prefix

FEATURES = (
    "coverage",  # of the content words' weight, what the evidence has
    "missing_names",
    "missing_numbers",
    "other_numbers",  # a number is missing, and the evidence has another of its size
    "missing_months",
    "missing_words",
    "missing",
    "longest_missing",  # content words in a row
    "negated",  # claim or evidence is, and not both
    "negation",  # the claim's, whatever the evidence has
    "refused",  # "failed to", "declined", in the claim alone
    "exclusive",  # "only", "first", in the claim alone
    "inverted",  # share of pairs of words that stand the other way round
    "swapped",  # two names have changed places around the same words
    "other_number",  # where the claim's number would be the evidence has another
    "other_name",
    "other_word",
    "pairs",  # neighbouring words of the claim that are near neighbours in the evidence
    "opposite",
    "opening",  # share of the claim's first two content words
    # The same where all else is there, word for word: then one difference decides.
    "exactly_negated",
    "exactly_swapped",
    "exactly_numbered",
    "exactly_longer",
    "exactly_replaced",  # a sentence has all else in this order, and another name or number in the place of one
    "exactly_other",  # where the best sentence has another name or number, whatever stands elsewhere
    "unsaid",  # share of the words that are no names, numbers or months that the evidence lacks
    "another_title",  # a name is missing, and the claim has no word of the titles
    "length",  # logarithm of the claim's words by the evidence's
)
"""What is measured of a claim beside its evidence."""

_SIDE = 5  # words beside a matched one, among which another may stand for the missing one
_NONE = frozenset(("none", "nothing", "nobody"))
_BEGINNING = frozenset(("and", "but", "or", "while", "because", "although", "that", "which"))
_SCOPE = 4  # words behind a negation that it may deny

Floats = NDArray[np.float64]


class Compared(NamedTuple):
    """A claim against evidence: its features, which of its tokens are content that the evidence lacks, and whether its predicate is stated."""

    features: Floats
    missing: list[Token]
    statement: Statement


def compare(
    claim: Sequence[Token],
    evidence: Sequence[Sequence[Token]],
    titles: Sequence[Sequence[Token]] = (),
    *,
    english: bool = True,
) -> Compared:
    """Measure a claim against sentences, the best first, and the titles that each of them stands under."""
    body = [token for sentence in evidence for token in sentence]
    headings = [token for title in {id(title): title for title in titles}.values() for token in title]
    text = [*body, *headings]
    places, shares, used = _align(claim, text, len(body), english=english)
    content = [row for row, token in enumerate(claim) if token.is_content]
    missing = [row for row in content if shares[row] == 0]
    lacking = Counter(claim[row].kind for row in missing)
    forms = {token.form for token in text}
    weight = sum(WEIGHTS[claim[row].kind] for row in content)
    unused = [token for place, token in enumerate(text) if token.kind == "number" and place not in used]
    substituted = _substituted(claim, text, content, places, used)
    neighbours = [(places[first], places[second]) for first, second in itertools.pairwise(content)]
    opening = [shares[row] for row in content[:2]]
    denied = any(token.kind == "negation" for token in claim)
    n = max(1, len(content))
    negated = denied != _denies(text, places)
    in_body = [None if place is None or place >= len(body) else place for place in places]
    swapped = turned_round(claim, text, in_body)
    run = _longest_run(content, missing)
    pairs = sum(a is not None and b is not None and 0 < b - a <= NEAR for a, b in neighbours) / max(1, len(neighbours))
    rest = _rest(claim, content, shares)
    best_places, best_rest, in_best = places, rest, substituted
    if len(text) > len(evidence[0] if evidence else ()):
        # Neither another sentence nor a title excuses that the best sentence has another name in the place of one.
        best = evidence[0] if evidence else ()
        best_places, best_shares, best_used = _align(claim, best, len(best), english=english)
        in_best = _substituted(claim, best, content, best_places, best_used)
        best_rest = _rest(claim, content, best_shares)
    others = in_best["number"] + in_best["month"] + in_best["name"]
    values = {
        "coverage": sum(WEIGHTS[claim[row].kind] * shares[row] for row in content) / weight if content else 0.0,
        "missing_names": lacking["name"] / n,
        "missing_numbers": min(lacking["number"], 2),
        "other_numbers": any(
            claim[row].kind == "number" and any(_like(claim[row].value, token.value) for token in unused)
            for row in missing
        ),
        "missing_months": min(lacking["month"], 1),
        "missing_words": lacking["word"] / n,
        "missing": math.log1p(len(missing)),
        "longest_missing": min(run, 5) / 5,
        "negated": negated,
        "negation": denied,
        "refused": any(token.form in REFUSALS for token in claim) and REFUSALS.isdisjoint(forms),
        "exclusive": min(sum(token.form in EXCLUSIVES and token.form not in forms for token in claim), 2),
        "inverted": _inverted([place for place in places if place is not None and place < len(body)]),
        "swapped": swapped,
        "other_number": min(substituted["number"] + substituted["month"], 2),
        "other_name": min(substituted["name"], 2),
        "other_word": min(substituted["word"], 2),
        "pairs": pairs,
        "opposite": any(not forms.isdisjoint(OPPOSITES.get(claim[row].form, ())) for row in missing),
        "opening": sum(opening) / len(opening) if opening else 0.0,
        "exactly_negated": negated * pairs**2,
        "exactly_swapped": swapped * rest**4,
        "exactly_numbered": (lacking["number"] + lacking["month"] > 0) * rest**4,
        "exactly_longer": (run > 2) * pairs,
        "exactly_replaced": any(
            exactly_replaced(claim, sentence) or another_number(claim, sentence, missing) for sentence in evidence
        ),
        "exactly_other": min(others, 2) * best_rest**4 * _close([best_places[row] for row in content]),
        "unsaid": lacking["word"] / max(1, sum(claim[row].kind == "word" for row in content)),
        "another_title": bool(headings)
        and lacking["name"] > 0
        and {token.form for token in claim}.isdisjoint(token.form for token in headings),
        "length": math.log((len(claim) + 1) / (len(text) + 1)),
    }
    features = np.array([float(values[name]) for name in FEATURES])
    # Clauses are read in English alone: in other languages words and their order decide.
    statement = find_statement(claim, evidence, titles) if english else "stated"
    return Compared(features, [claim[row] for row in missing], statement)


def _align(
    claim: Sequence[Token], text: Sequence[Token], body: int, *, english: bool
) -> tuple[list[int | None], list[float], set[int]]:
    """Return for each token of a claim its place in a text, and how well it matches; and the places that are taken."""
    where: dict[str | float, list[int]] = defaultdict(list)
    forms: dict[str, set[str]] = defaultdict(set)
    for place, token in enumerate(text):
        if token.is_content:
            key = key_of(token)
            where[key].append(place)
            if isinstance(key, str):
                forms[form_prefix(key, english=english)].add(key)
    places: list[int | None] = [None] * len(claim)
    shares = [0.0] * len(claim)
    used: set[int] = set()
    last = 0
    for row, token in enumerate(claim):
        if not token.is_content:
            continue
        key = key_of(token)
        found, share = where.get(key), 1.0
        if not found and isinstance(key, str):
            # Sorted, so that the order of a set never shows.
            found = sorted(
                place
                for form in forms.get(form_prefix(key, english=english), ())
                if are_one_word(form, key, english=english)
                for place in where[form]
            )
            share = OTHER_FORM
        if found:
            # A place in a sentence rather than a title, that is free, and near the last one.
            place = min(found, key=lambda at: (at >= body, at in used, abs(at - last)))
            places[row], shares[row], last = place, share, min(place, body)
            used.add(place)
    return places, shares, used


def _rest(claim: Sequence[Token], content: Sequence[int], shares: Sequence[float]) -> float:
    """Return how much of a claim's words that are no names, numbers or months is there."""
    plain = [row for row in content if claim[row].kind == "word"]
    return (sum(shares[row] for row in plain) + 1) / (len(plain) + 1)


def _close(places: Sequence[int | None]) -> float:
    """Return which share of neighbouring words that are there are near neighbours."""
    matched = [place for place in places if place is not None]
    return sum(0 < b - a <= NEAR for a, b in itertools.pairwise(matched)) / max(1, len(matched) - 1)


def _like(first: float | None, second: float | None) -> bool:
    """Say whether two numbers are of one kind: years, days of a month and counts, larger ones."""

    def kind(number: float) -> int:
        return 0 if 1000 <= number <= 2100 else 1 if number <= 31 else 2

    return first is not None and second is not None and kind(first) == kind(second)


def _longest_run(content: Sequence[int], missing: Sequence[int]) -> int:
    lacking = set(missing)
    longest = run = 0
    for row in content:
        run = run + 1 if row in lacking else 0
        longest = max(longest, run)
    return longest


def _denies(text: Sequence[Token], places: Sequence[int | None]) -> bool:
    """Say whether a text denies one of the places, by a negation a few words before it, or by a "none" behind it."""
    matched = {place for place in places if place is not None}
    for at, token in enumerate(text):
        if token.kind == "negation":
            # "It asked for none", and not "and none of them names it".
            denied = token.form in _NONE and at > 0 and text[at - 1].form not in _BEGINNING
            if not matched.isdisjoint(range(at - _SCOPE if denied else at + 1, at + 1 + _SCOPE)):
                return True
    return False


def _inverted(places: Sequence[int]) -> float:
    pairs = len(places) * (len(places) - 1) // 2
    return sum(a > b for i, a in enumerate(places) for b in places[i + 1 :]) / pairs if pairs else 0.0


def _substituted(
    claim: Sequence[Token],
    text: Sequence[Token],
    content: Sequence[int],
    places: Sequence[int | None],
    used: set[int],
) -> Counter[str]:
    """Count the missing words in whose place, between the matches beside them, a text has another of their kind."""
    counts: Counter[str] = Counter()
    behind: list[int | None] = []  # for each content word, the place of the next matched one
    following: int | None = None
    for row in reversed(content):
        behind.append(following)
        following = places[row] if places[row] is not None else following
    left: int | None = None
    for row, right in zip(content, reversed(behind), strict=True):
        if places[row] is not None:
            left = places[row]
            continue
        if left is not None and right is not None and 0 < right - left <= GAP:
            begin, end = left + 1, right
        elif left is not None:
            begin, end = left + 1, min(left + 1 + _SIDE, len(text))
        elif right is not None:
            begin, end = max(0, right - _SIDE), right
        else:
            continue
        kind = claim[row].kind
        if any(text[place].kind == kind and place not in used for place in range(begin, end)):
            counts[kind] += 1
    return counts
