"""Mentions: whether a text holds a phrase, and what becomes of the text when another stands in its place."""

from __future__ import annotations

import functools
import hashlib
import random
import re
from collections.abc import Iterable, Sequence

from pytrace.documents.languages import UNSPACED
from pytrace.kernels.fuzzy import partial_ratio

_WORD = re.compile(r"\w+")
# Of what stands before a phrase so many characters are looked at.
_NEAR = 200
# What is longer is no name, and none holds it.
_LONGEST = 1_000
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ARTICLES = frozenset({"a", "an", "the"})
# Words that a phrase shares with most texts: alone they mention nothing.
_COMMON = re.compile(
    "a|an|and|are|as|at|be|by|did|do|does|for|from|had|has|have|he|her|his|how|in|is|it|its|not|of|on|"
    "one|or|she|that|the|their|there|they|this|to|was|were|what|when|where|which|who|whom|whose|why|will|"
    "with|year",
    re.IGNORECASE,
)


def holds(text: str, phrase: str) -> bool:
    """Tell whether a text has a phrase's words in a row, whatever the case and the punctuation between them."""
    pattern = _pattern(phrase)
    return pattern is not None and pattern.search(text) is not None


def holds_any(text: str, phrases: Iterable[str]) -> bool:
    """Tell whether a text holds one of several phrases."""
    return any(holds(text, phrase) for phrase in phrases)


def whole_words(pattern: str, phrase: str) -> str:
    """Return a pattern of a phrase that begins and ends where words do, which in an unspaced script is at each character."""
    before = "" if _UNSPACED.match(phrase[0]) else rf"(?<![^\W{UNSPACED}])"
    behind = "" if _UNSPACED.match(phrase[-1]) else rf"(?![^\W{UNSPACED}])"
    return f"{before}{pattern}{behind}"


def replace(text: str, phrase: str, by: str) -> str:
    """Put another phrase wherever a text holds one."""
    # An article before the old phrase goes if the new one brings its own ("this", "a certain"), and the new one begins
    # with a capital where the sentence does.
    pattern = _pattern(phrase)
    if pattern is None:
        return text
    article = by.split(" ", 1)[0].casefold() in {"a", "an", "the", "this", "that", "these", "some"}
    written: list[str] = []
    last = 0
    for match in pattern.finditer(text):
        start = match.start()
        if article:
            near = max(last, start - _NEAR)
            before = re.search(r"(?<!\w)(?:a|an|the)\s+\Z", text[near:start], re.IGNORECASE)
            start = near + before.start() if before else start
        ahead = text[max(0, start - _NEAR) : start]
        # Behind an adjective a common noun has no article: "a coastal town" becomes "a coastal settlement".
        bare = article and start == match.start() and match[0][0].islower() and bool(re.search(r"\w\s+\Z", ahead))
        instead = re.sub(r"^(?:an?|the) ", "", by, flags=re.IGNORECASE) if bare else by
        begins = ahead.rstrip()[-1:] in ".!?]"  # also "", where nothing stands before
        written += [text[last:start], instead[:1].upper() + instead[1:] if begins else instead]
        last = match.end()
    return "".join([*written, text[last:]])


def surface(phrase: str, texts: Sequence[str]) -> str:
    """Return the longest part of a phrase that one of the texts holds, at least half of its words; "" if none does."""
    # A question says "the film Blade Runner" where its evidence has "Blade Runner".
    spans = [match.span() for match in _WORD.finditer(phrase)]
    for length in range(len(spans), 0, -1):
        if 2 * length < len([span for span in spans if phrase[slice(*span)].casefold() not in _ARTICLES]):
            break
        for first in range(len(spans) - length + 1):
            part = phrase[spans[first][0] : spans[first + length - 1][1]]
            if length > 1 and phrase[slice(*spans[first])].casefold() in _ARTICLES:
                continue
            if all(_COMMON.fullmatch(word) for word in _WORD.findall(part)):
                continue
            if any(holds(text, part) for text in texts):
                return part
    return ""


def mentions(text: str, node: str, *, threshold: float = 85.0) -> bool:
    """Tell whether a text speaks of an evidence node: a partial ratio from `threshold` on, from 0 to 100."""
    if not node.strip() or not text.strip():
        return False
    # A short word is part of many others ("Ada" of "Canada"), so it has to stand there itself.
    if len(node) < 5:
        return holds(text, node)
    return len(node) <= len(text) and partial_ratio(node.casefold(), text.casefold()) >= threshold


def rng_of(*parts: object) -> random.Random:
    """Make a random number generator that depends on all parts, and on nothing else."""
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


@functools.lru_cache(maxsize=4096)
def _pattern(phrase: str) -> re.Pattern[str] | None:
    words = _WORD.findall(phrase) if len(phrase) <= _LONGEST else []
    while len(words) > 1 and words[0].casefold() in _ARTICLES:
        words = words[1:]
    if not words:
        return None
    between = r"[\W_]{1,4}"
    return re.compile(whole_words(between.join(map(re.escape, words)), words[0] + words[-1]), re.IGNORECASE)
