"""Claims as a model reads them: each by itself, with its subject named, and numbers in digits."""

from __future__ import annotations

import itertools
import re

from pytrace.certify.claims.tokens import IRREGULAR_VERBS, LISTS, Token, tokens

_OPENING = re.compile(r"(?:[*_ \"'“]|(?:and|but|while|whereas|so)\s)*(?=([A-Za-z]+)\b)", re.IGNORECASE)
_OWNERS = frozenset(("his", "her", "its", "their", "whose"))
_PERSONS = frozenset(("he", "she", "it", "they"))
_POINTERS = frozenset(("this", "that", "these", "those", "both"))
_NO_VERBS = (
    frozenset(("a", "an", "the", "my", "our", "your", "always", "nowadays", "perhaps", "sometimes"))
    | _OWNERS | _PERSONS | _POINTERS
)  # fmt: skip
_AUXILIARY = re.compile(r"(?:is|are|was|were|has|have|had|do|does|did|can|could|will|would|may|might|must|should)\b")
_CLEFT = re.compile(r"it\s+(?:is|was)\s+([A-Z][^,.;]{0,80}?)\s+(?:who|that)\s+", re.IGNORECASE)
_LATER = re.compile(r"(?:later|then|also|today|now|soon|still|since)\s+(?=(?:he|she|it|they)\s)", re.IGNORECASE)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_ORDINALS = frozenset(LISTS.ordinals.split())
_NEXT = re.compile(r"[\s-]*(?:and\s+)?")


def standalone(claim: str, subject: str) -> tuple[str, int]:
    """Return a claim without the conjunction that it begins with, its pronoun or missing subject named, and by how much it is longer now.

    Only its beginning changes. What is not understood stays.

    Examples
    --------
    >>> [standalone(claim, "Ann Hay")[0] for claim in ("and she swam.", "but never sang.", "Her boat sank.", "That boat sank.")]
    ['Ann Hay swam.', 'Ann Hay never sang.', "Ann Hay's boat sank.", 'That boat sank.']
    """
    opening = _OPENING.match(claim)
    if opening is None:
        return claim, 0
    text = claim[opening.end() :]
    if subject:
        text = _with_subject(text, opening[1], subject)
    text = f"{text[:1].upper()}{text[1:]}"
    return text, len(text) - len(claim)


def _with_subject(text: str, first: str, subject: str) -> str:
    word, rest = first.lower(), text[len(first) :]
    if cleft := _CLEFT.match(text):
        return f"{cleft[1]} {text[cleft.end() :]}"
    if word in _OWNERS:
        return f"{subject}'s{rest}"
    if word == "where":
        return f"In {subject},{rest}"
    following = rest.split(maxsplit=1)[0] if rest.strip() else ""
    if word in _PERSONS or (word in _POINTERS and _is_verb(following)):
        return f"{subject}{rest}"
    if word in ("which", "who"):
        # "which Ann built" has a subject of its own.
        return f"{subject}{rest}" if following[:1].islower() and following not in _NO_VERBS else rest.strip()
    if later := _LATER.match(text):
        return f"{later[0]}{subject} {text[later.end() :].split(maxsplit=1)[1]}"
    return f"{subject} {text}" if _is_verb(first) or word in ("not", "never", "only") else text


def _is_verb(word: str) -> bool:
    """Tell whether a word may be a verb: one that is known, or by its ending."""
    return bool(_AUXILIARY.match(word)) or word in IRREGULAR_VERBS or (
        word[:1].islower() and word not in _NO_VERBS and word.endswith(("ed", "s")) and not word.endswith("ss")
    )  # fmt: skip


def in_digits(text: str) -> str:
    """Return a text with whole numbers in digits, without commas; a number of two words or more that make no sum stays as it is.

    Examples
    --------
    >>> in_digits("Seventy-one of 1,100 ships, two of the second fleet, sank off Three Mile Island.")
    '71 of 1100 ships, 2 of the second fleet, sank off Three Mile Island.'
    """
    numbers = [token for token in tokens(text) if token.value is not None]
    joined = {
        token.start
        for pair in itertools.pairwise(numbers)
        if _NEXT.fullmatch(text, pair[0].end, pair[1].start)
        for token in pair
    }
    parts, last = [], 0
    for token in numbers:
        if token.start >= last and (written := _digits(text, token, alone=token.start not in joined)):
            parts += [text[last : token.start], written]
            last = token.end
    return "".join([*parts, text[last:]])


def _digits(text: str, token: Token, *, alone: bool) -> str:
    """Return a number in digits; "" where it stays."""
    written, value = text[token.start : token.end], token.value or 0
    if _THOUSANDS.fullmatch(written):
        return written.replace(",", "")
    if any(map(str.isdigit, written)) or not alone or value < 2 or value != int(value):
        return ""
    is_name = written[0].isupper() and text[token.end : token.end + 2].lstrip(" ")[:1].isupper()
    return "" if is_name or re.split(r"[\s-]", token.form)[-1] in _ORDINALS else str(int(value))
