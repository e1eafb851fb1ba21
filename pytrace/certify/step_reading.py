"""What a step says of a fact's head and tail beyond naming them: who is what of whom, whether it denies it, what it adds.

A step is read in words: its normal form with X in the place of the fact's head, Y of its tail, and Z of any other entity. It is
read where the relation's own word stands in it, a form of that, or the word of another relation of the graph; a step in other
words has no reading, and is taken as it is.
"""

# The patterns are English: "the R of X is Y", "X's R", "X has the R Y", "for X, the R is Y", "X R-ed Y", "Y was R-ed by X".

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources
from typing import Literal, NamedTuple

import msgspec

from pytrace.certify.claims.tokens import SYMMETRIC, TokenKind, tokens
from pytrace.kg import normal_form

HEAD, TAIL, OTHER = "X", "Y", "Z"
_ENTITIES = frozenset((HEAD, TAIL, OTHER))
Entity = str
"""X or Y."""

# Words are forms of one if they share so many first letters, and at most so many are left of either.
_PREFIX, _LEFT = 4, 4
# As far from a word its possessor may stand: "X's first and only known R".
_NEAR = 4


class _RoleWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    roles: dict[str, str]
    inverses: str
    prepositions: str
    have: str
    boundaries: str
    remarks: str
    denials: str


_LISTS = msgspec.json.decode(resources.files(__package__).joinpath("role_words.json").read_bytes(), type=_RoleWords)
_ROLES = {word: role for role, words in _LISTS.roles.items() for word in (role, *words.split())}
_INVERSES = {
    first: second for pair in _LISTS.inverses.split(";") for first, second in itertools.permutations(pair.split())
}
_PREPOSITIONS = frozenset(_LISTS.prepositions.split())
_HAVE = frozenset(_LISTS.have.split())
_BOUNDARIES = frozenset(_LISTS.boundaries.split())
RELATIVES = frozenset(("who", "which", "whom", "whose"))
OPENINGS = _BOUNDARIES | {"he", "she", "it", "they", "also", "then"}
"""Words that open a piece of a step and are no part of what it says."""
_REMARKS = frozenset(_LISTS.remarks.split())
_DENIALS = frozenset(_LISTS.denials.split(";"))
_DENYING = frozenset(phrase.split()[0] for phrase in _DENIALS)
_BE = frozenset(["is", "are", "was", "were", "be", "been", "being"])
_DETERMINERS = frozenset(["the", "a", "an", "his", "her", "its", "their"])
_PRONOUNS = frozenset(["his", "her", "its", "their"])
_AGENT = re.compile(r"(?:er|or|ist|ant)s?$")
_PARTICIPLE = re.compile(r"(?:ed|ing)$")
_NOMINAL = re.compile(r"(?:tion|[m]ent|ence|ance)s?$")
_PUNCTUATION = re.compile(r"[,;:!?()\[\]{}–—“”\"]+|\.(?=\s|$)|\s-+\s")


class RelationWords:
    """A relation's name as steps may say it.

    `kind` is what it is worded as: a noun of the tail ("capital", "place of birth"), a noun of the head ("capital of"), or a
    verb of which the head ("wrote", "located in") or the tail ("written by") is the subject.
    """

    def __init__(self, name: str, *, symmetric: bool = False) -> None:
        words = normal_form(name).split()
        while len(words) > 1 and words[0] in _BE | _HAVE | _DETERMINERS:
            words = words[1:]
        self.words = tuple(words)
        self.symmetric = symmetric or not SYMMETRIC.isdisjoint(words) or _role(words) in ("spouse", "sibling")
        last = words[-1] if len(words) > 1 and words[-1] in _PREPOSITIONS else ""
        self.noun = tuple(words[:-1] if last else words)
        content = [word for word in self.noun if word not in _PREPOSITIONS | _DETERMINERS]
        self.content = tuple(content or self.noun)
        head_noun = next(iter(itertools.takewhile(lambda word: word not in _PREPOSITIONS, reversed(self.noun))), "")
        if not set(self.noun).isdisjoint(_PREPOSITIONS):
            before = list(itertools.takewhile(lambda word: word not in _PREPOSITIONS, self.noun))
            head_noun = before[-1] if before else head_noun
        self.head_noun = head_noun
        # "founded by", "starring"; not "founding year"
        verb = _PARTICIPLE.search(words[0]) is not None and (bool(last) or len(self.content) == 1)
        self.kind: Literal["tail noun", "head noun", "active", "passive"]
        if verb or (last and last != "of" and not _is_noun(self.content)):
            self.kind = "passive" if last == "by" else "active"
        else:
            self.kind = "head noun" if last else "tail noun"
        self.agentive = self.kind.endswith("noun") and _AGENT.search(self.head_noun) is not None
        self.role = _role(self.content)

    def possessor(self) -> Entity:
        """Return whose it is that the noun names: "the capital of X"."""
        return TAIL if self.kind == "head noun" else HEAD

    def agent(self) -> Entity | None:
        """Return who does it, for verbs and nouns of doers."""
        if self.kind == "active":
            return HEAD
        if self.kind == "passive":
            return TAIL
        return (HEAD if self.kind == "head noun" else TAIL) if self.agentive else None


def _is_noun(content: Sequence[str]) -> bool:
    return bool(content) and (_AGENT.search(content[-1]) is not None or _role(content) is not None)


def _role(words: Sequence[str]) -> str | None:
    return _ROLES.get(words[-1]) if words else None


def turned(words: Sequence[str], relation: RelationWords, inverses: Sequence[RelationWords] = ()) -> bool | None:
    """Say whether a step tells a fact with head and tail exchanged; None where it does not tell who is what.

    `words` have X and Y for head and tail; `inverses` are the relations that say the same from the other end.
    """
    if relation.symmetric:
        return None
    for each, other_end in ((relation, False), *((inverse, True) for inverse in inverses)):
        for start, end in _places(words, each):
            found = _told_turned(words, start, end, each)
            if found is not None:
                return found != other_end
    if relation.role is None or not relation.kind.endswith("noun"):
        return None
    for place, word in enumerate(words):
        role = _ROLES.get(word)
        if role is None:
            continue
        owner = _possessor(words, place, place + 1)
        if owner is not None and role == relation.role:
            return owner != relation.possessor()
        if owner is not None and _INVERSES.get(role) == relation.role:
            return owner == relation.possessor()
    return None


def _told_turned(words: Sequence[str], start: int, end: int, relation: RelationWords) -> bool | None:
    """Read a step at one place of a relation's words."""
    noun = relation.kind.endswith("noun")
    said = words[start]
    before, behind = words[start - 1] if start else "", words[end] if end < len(words) else ""
    if _same_noun(words[start:end], relation) and (noun or before in _DETERMINERS | {"s"} or behind == "of"):
        # A verb may be used as a noun, too: "the starring of X is Y".
        owner = _possessor(words, start, end)
        if noun or owner is not None:
            return None if owner is None else owner != relation.possessor()
    if noun and _PARTICIPLE.search(said) is None:
        return None  # "a national of Y" is no nationality
    agent = _agent(words, start, end)
    if agent is None:
        return None
    if noun and not relation.agentive:
        # "was educated at" says by its subject whose education it was.
        by = "by" in words[end:]
        return None if by or _NOMINAL.search(relation.head_noun) is None else agent != relation.possessor()
    if not noun and _AGENT.search(said) is not None:  # "the founder of Y is X" for "founded by"
        owner = _possessor(words, start, end)
        return None if owner is None else owner == relation.agent()
    return agent != relation.agent()


def _same_noun(words: Sequence[str], relation: RelationWords) -> bool:
    """Say whether words are a relation's noun but for its number."""
    if len(words) == 1 and len(relation.content) > 1:
        return True  # "birthplace"
    wanted = relation.noun if len(words) == len(relation.noun) else (relation.head_noun,)
    return all(
        a == b or a in (f"{b}s", f"{b}es") or b in (f"{a}s", f"{a}es") for a, b in zip(words, wanted, strict=False)
    )


def names_relation(words: Sequence[str], relation: RelationWords) -> bool:
    """Say whether a step says a relation's noun, and nothing before it that would make it another: "the R of X"."""
    if not relation.kind.endswith("noun"):
        return False
    for start, end in _places(words, relation):
        before = words[start - 1] if start else ""
        if _same_noun(words[start:end], relation) and (
            before in _ENTITIES | _DETERMINERS | _BE | _HAVE | _PREPOSITIONS | {"", "s"}
        ):
            return True
    return False


def says_relation(words: Sequence[str], relation: RelationWords) -> bool:
    """Say whether a step has a relation's words."""
    return any(True for _ in _places(words, relation))


def _places(words: Sequence[str], relation: RelationWords) -> Iterator[tuple[int, int]]:
    """Iterate over where a relation's words stand in a step, as ``words[start:end]``: all of them, one compound, or the noun alone."""
    whole = relation.noun
    size = len(whole)
    for start in range(len(words) - size + 1):
        if all(_one_word(a, b) for a, b in zip(words[start : start + size], whole, strict=True)):
            yield start, start + size
            return
    if len(relation.content) > 1:
        compounds = {"".join(order) for order in itertools.permutations(relation.content[:3])}
        for start, word in enumerate(words):
            if word in compounds or word.removesuffix("s") in compounds:
                yield start, start + 1
                return
    for start, word in enumerate(words):
        if len(relation.content) == 1 and word not in _ENTITIES and _one_word(word, relation.head_noun):
            yield start, start + 1


def _one_word(first: str, second: str) -> bool:
    if first == second:
        return True
    shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))
    longest = max(len(first), len(second))
    return shared >= _PREFIX and longest - shared <= _LEFT and 2 * shared > longest


def _possessor(words: Sequence[str], start: int, end: int) -> Entity | None:
    """Return whose the noun at ``words[start:end]`` is."""
    # "the R of X", "the R (in Asia) of X"
    if end < len(words) and words[end] in ("of", "to", "for"):
        for word in words[end + 1 : end + 2 + _NEAR]:
            if word in (HEAD, TAIL):
                return word
            if word in _BE | _HAVE | _PREPOSITIONS:
                break
    # "X's R", "X's first R", "X R"
    for place in range(start - 1, max(-1, start - 2 - _NEAR), -1):
        word = words[place]
        if word == "s" and place and words[place - 1] in (HEAD, TAIL):
            return words[place - 1]
        if word == "whose":
            return _last_entity(words[:place])
        if word in (HEAD, TAIL) and place == start - 1:
            return word
        if word in _ENTITIES | _BE | _HAVE | _PREPOSITIONS | {"the", "a", "an"}:
            break
    return _distant_possessor(words, start)


def _distant_possessor(words: Sequence[str], start: int) -> Entity | None:
    """Return whose the noun at a word is, where the possessor does not stand beside it."""
    # "X has Y as its R", "Y is what X has as its R"
    for place, word in enumerate(words):
        if word in _HAVE and (owner := _last_entity(words[:place])) is not None:
            return owner
    # "for X, the R is Y"
    for place in range(1, start):
        if words[place] in (HEAD, TAIL) and words[place - 1] in _PREPOSITIONS and not _between(words, place, start):
            return words[place]
    # "X took Y as his R"
    if start and words[start - 1] in _PRONOUNS:
        return next((word for word in words[:start] if word in (HEAD, TAIL)), None)
    return None


def _between(words: Sequence[str], first: int, last: int) -> bool:
    return any(word in (HEAD, TAIL) for word in words[first + 1 : last])


def _last_entity(words: Sequence[str]) -> Entity | None:
    return next((word for word in reversed(words) if word in (HEAD, TAIL)), None)


def _agent(words: Sequence[str], start: int, end: int) -> Entity | None:
    """Return who does what the verb at ``words[start:end]`` says: its subject, or whom "by" names."""
    for place in range(end, len(words) - 1):
        if words[place] == "by" and words[place + 1] in (HEAD, TAIL):
            return words[place + 1]
    for place in range(start - 1, -1, -1):
        if words[place] in (HEAD, TAIL) and not (place and words[place - 1] in _PREPOSITIONS):
            return words[place]
    before = [word for place, word in enumerate(words) if word in (HEAD, TAIL) and place < start]
    after = [
        word
        for place, word in enumerate(words)
        if word in (HEAD, TAIL) and place >= end and words[place - 1] not in _PREPOSITIONS
    ]
    return after[0] if not before and after else None


def denied(words: Sequence[str], relation: RelationWords) -> bool:
    """Say whether a step denies what it tells: by an odd number of negations that are not the relation's own."""
    if not any(word in _DENYING or _kind(word) == "negation" for word in words):
        return False
    read = tokens(" ".join(word for word in words if word not in relation.words))
    count = 0
    for last, token, following in zip([None, *read], read, [*read[1:], None], strict=False):
        behind = "" if following is None else following.form
        twice = (
            token.form == "t" and last is not None and last.kind == "negation"
        )  # "can't" is read as "cannot" and "t"
        negates = token.kind == "negation" and behind != "only" and not twice
        count += negates or token.form in _DENIALS or f"{token.form} {behind}" in _DENIALS
    return count % 2 == 1


class Piece(NamedTuple):
    """A part of a step, ``words[start:end]``, that names neither head nor tail."""

    start: int
    end: int


def cuts(text: str, form: str) -> frozenset[int]:
    """Return at which words of a text's normal form a stop, comma or bracket stands before."""
    places: list[int] = []
    total = 0
    read = []
    for part in _PUNCTUATION.split(text):
        words = normal_form(part).split() if any(map(str.isalnum, part)) else []
        places.append(total)
        total += len(words)
        read += words
    return frozenset(places) if " ".join(read) == form else frozenset((0,))


def pieces(words: Sequence[str], stops: frozenset[int]) -> list[Piece]:
    """Cut off a step what stands behind head and tail, before them, or between commas, and says something.

    `stops` are the words before which there is a stop, comma or the like (of the step in X, Y and Z).
    """
    last = max((place for place, word in enumerate(words) if word in (HEAD, TAIL)), default=-1)
    borders = {place for place, word in enumerate(words) if place in stops or word in _BOUNDARIES}
    found: list[Piece] = []
    for start, end in itertools.pairwise(sorted({0, *borders, last + 1, len(words)})):
        part = words[start:end]
        if not {HEAD, TAIL}.isdisjoint(part) or not says_something(part):
            continue
        # What a word such as "who" opens goes on to head or tail, if no comma ends it: "X who lived long died in Y".
        if start <= last and end not in stops:
            continue
        # One word behind them belongs to them ("X has Y roots"), unless it is a name or a number.
        if start not in borders and sum(map(_content, part)) < 2 and not any(map(_is_value, part)):
            continue
        found.append(Piece(start, end))
    return found


def _is_value(word: str) -> bool:
    return word == OTHER or any(map(str.isdigit, word))


def says_something(words: Sequence[str]) -> bool:
    """Say whether words have content: a name, a number, or a word that is no remark such as "in fact"."""
    return any(
        word == OTHER
        or (word not in _REMARKS and word not in _PREPOSITIONS and word not in ("s", HEAD, TAIL) and _content(word))
        for word in words
    )


def _content(word: str) -> bool:
    return _kind(word) not in ("function", "negation", None)


# As many words as a large file of responses has.
@lru_cache(maxsize=1 << 16)
def _kind(word: str) -> TokenKind | None:
    read = tokens(word)
    return read[0].kind if read else None
