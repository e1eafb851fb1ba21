"""Whether a sentence says word for word what a claim says, but for a name, a number or a month that stands there in another's place."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from pytrace.certify.claims.text_tokens import key_of
from pytrace.certify.claims.tokens import Token
from pytrace.certify.claims.word_forms import PREFIX
from pytrace.kernels import needleman_wunsch

_SPECIFIC = frozenset(("name", "number", "month"))
_LONGEST = 4  # words of what stands for another


def exactly_replaced(claim: Sequence[Token], sentence: Sequence[Token]) -> bool:
    """Align a claim with a sentence, and say whether all of its content is there but for such a place, inside or at the end of both."""
    here, there = ([_symbol(token) for token in each] for each in (claim, sentence))
    found = needleman_wunsch(here, there, match=2.0, mismatch=-1.0, gap=-0.5)
    same = [
        (row, place)
        for row, place in zip(found.a_indices.tolist(), found.b_indices.tolist(), strict=True)
        if row >= 0 and place >= 0 and here[row] == there[place]
    ]
    rows, taken = {row for row, _ in same}, {place for _, place in same}
    lacking = {row for row, token in enumerate(claim) if token.is_content} - rows
    within = range(min(taken, default=0), max(taken, default=0))
    if any(token.kind == "negation" and row not in rows for row, token in enumerate(claim)) or any(
        sentence[place].kind == "negation" and place not in taken for place in within
    ):
        return False
    # What stands elsewhere in the sentence has only been moved.
    free = {symbol for place, symbol in enumerate(there) if place not in taken}
    if same and _another_opening(claim[: same[0][0]], sentence[: same[0][1]], free):
        return lacking <= {*range(same[0][0])}
    for (row, place), (end, stop) in itertools.pairwise([*same, (len(claim), len(sentence))]):
        mine, theirs = claim[row + 1 : end], sentence[place + 1 : stop]
        if end == len(claim):
            theirs = theirs[: len(mine) + 1]
        if (
            max(len(mine), len(theirs)) <= _LONGEST
            and any(token.kind in _SPECIFIC and _symbol(token) not in free for token in mine)
            and _words(mine) <= _words(theirs)
            and any(token.kind in _SPECIFIC for token in theirs)
        ):
            return lacking <= {*range(row + 1, end)}
    return False


def _another_opening(mine: Sequence[Token], theirs: Sequence[Token], free: Collection[str | float]) -> bool:
    """Say whether a claim begins with a name where a sentence has another."""
    theirs = theirs[-len(mine) - 1 :]
    return (
        0 < len(mine) <= _LONGEST
        # The capital of a single word that opens a claim says nothing.
        and (all(token.kind == "name" for token in mine) or (len(mine) == 1 and mine[0].kind == "word"))
        and any(token.kind == "name" for token in theirs[-1:])
        and not any(
            _symbol(token) in free or other.form.startswith(token.form[:3]) for token in mine for other in theirs
        )
    )


def _words(tokens: Sequence[Token]) -> int:
    return sum(token.kind == "word" for token in tokens)


def _symbol(token: Token) -> str | float:
    """Return what a word is known by, whatever its ending: "Chinese" is not another name than "China"."""
    key = key_of(token)
    return key[:PREFIX] if isinstance(key, str) and token.is_content else key


def another_number(claim: Sequence[Token], sentence: Sequence[Token], missing: Collection[int]) -> bool:
    """Say whether a sentence has all of a claim but its `missing` rows, all numbers or months, and has others of these, wherever that is."""
    kinds = {claim[row].kind for row in missing}
    if not kinds or not kinds <= {"number", "month"} or any(token.kind == "negation" for token in claim):
        return False
    own, symbols = ({_symbol(token) for token in each} for each in (claim, sentence))
    rest = [_symbol(token) for row, token in enumerate(claim) if token.is_content and row not in missing]
    return (
        bool(rest)
        and symbols.issuperset(rest)
        and any(token.kind in kinds and _symbol(token) not in own for token in sentence)
    )
