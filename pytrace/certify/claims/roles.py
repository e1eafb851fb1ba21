"""Whether what a claim has in common with a text stands there the other way round: names, words, numbers, sides of "than"."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pytrace.certify.claims.tokens import SYMMETRIC, Token

NEAR = 3
"""Of two words that stand together, how far apart they are at most."""
GAP = 12
"""Words between two matched ones, among which a word may stand for another."""
_NAMES = 12  # of a claim whose order is looked at
_MATCHED = 24  # words of it
_THAN = "than"
_GOING_ON = frozenset(("and", "but", "while"))
# Words by which a sentence turns round who does what.
_TURNING = frozenset(("by", "of", "from", "s"))
_BEING = frozenset(("is", "was", "are", "were"))
# Names with no more than these between them stand in a list, in any order.
_JOINING = frozenset(("and", "or", "the", "a"))


def turned_round(claim: Sequence[Token], text: Sequence[Token], places: Sequence[int | None]) -> bool:
    """Say whether names or words have changed places; `places` are those of the claim's words in the text."""
    return _swapped(claim, text, places) or _transposed(claim, text, places) or _compared(claim, text, places)


def _swapped(claim: Sequence[Token], text: Sequence[Token], places: Sequence[int | None]) -> bool:
    """Say whether two names have changed places around words that are the same in claim and text."""
    if any(token.form in SYMMETRIC for token in claim):
        return False
    matched = [(row, place) for row, place in enumerate(places) if place is not None]
    names = [(row, place) for row, place in matched if claim[row].kind == "name" or text[place].kind == "name"][:_NAMES]
    others = [pair for pair in matched if pair not in names]
    for at, (first, far) in enumerate(names):
        for last, near in names[at + 1 :]:
            if far <= near or far - near > 2 * (last - first) + GAP:
                continue
            if {claim[row].form for row in range(first + 1, last) if claim[row].kind != "name"} <= _JOINING:
                continue
            # Words such as "by" turn a sentence round, and the order of its names with it: only the same words keep the roles.
            here = range(max(0, first - NEAR), min(last + 1 + NEAR, len(claim)))
            there = range(max(0, near - NEAR), min(far + 1 + NEAR, len(text)))
            if {claim[row].form for row in here} & _TURNING != {text[place].form for place in there} & _TURNING:
                continue
            if {_identity(claim[first:last]), _identity(text[near:far])} == {True, False}:
                continue
            if any(row in here and place in there for row, place in others):
                return True
    return False


def _identity(between: Sequence[Token]) -> bool | None:
    """Return whether "the" follows a form of "be": "X is the head of Y" and "the head of Y is X" say the same; None without "be"."""
    forms = [token.form for token in between]
    at = next((row for row, form in enumerate(forms) if form in _BEING), None)
    return None if at is None else forms[at + 1 : at + 2] == ["the"]


def _transposed(claim: Sequence[Token], text: Sequence[Token], places: Sequence[int | None]) -> bool:
    """Say whether two words or numbers have changed places within what is otherwise in the same order."""
    matched = [(row, place) for row, place in enumerate(places) if place is not None][:_MATCHED]
    for at, (row, place) in enumerate(matched):
        for to in range(at + 2, len(matched)):
            other, there = matched[to]
            if (
                claim[row].kind != claim[other].kind
                or claim[row].kind == "name"
                or not there < place <= there + 2 * GAP
            ):
                continue
            between = [near for _, near in matched[at + 1 : to]]
            around = [near for _, near in (*matched[max(at - 1, 0) : at], *matched[to + 1 : to + 2])]
            order = [*around[: at > 0], there, *between, place, *around[at > 0 :]]
            if any(first >= second for first, second in itertools.pairwise(order)):
                continue
            here, far = claim[row + 1 : other], text[there + 1 : place]
            if {token.form for token in here if token.kind == "function"} <= _JOINING:
                continue
            if {token.form for token in here} & _TURNING == {token.form for token in far} & _TURNING:
                return True
    return False


def _compared(claim: Sequence[Token], text: Sequence[Token], places: Sequence[int | None]) -> bool:
    """Say whether what is compared by "than" has changed sides."""
    middle = next((row for row, token in enumerate(claim) if token.form == _THAN), None)
    pivots = [place for place, token in enumerate(text) if token.form == _THAN]
    if middle is None or len(pivots) != 1:
        return False
    # "… than the Skarra wren and sings louder" goes on about the first.
    end = next((row for row in range(middle, len(claim)) if claim[row].form in _GOING_ON), len(claim))
    sides = [{claim[row].form for row in rows} for rows in (range(middle), range(middle, end))]

    def before(rows: range) -> list[bool]:
        # A word of both sides, as "wren" in "the wren of the mainland is larger than the Skarra wren", tells none of them.
        found = [
            place for row in rows if claim[row].form not in sides[0] & sides[1] and (place := places[row]) is not None
        ]
        return [place < pivots[0] for place in found]

    left, right = before(range(middle)), before(range(middle, end))
    # What is said of it, as "larger", stays where it is.
    return bool(right) and all(right) and not all(left)
