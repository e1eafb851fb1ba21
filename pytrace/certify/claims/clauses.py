"""Who does what to whom in an English sentence, by the order of its words: its verbs, each with its agent and its patient."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytrace.certify.claims.tokens import IRREGULAR_FORMS, IRREGULAR_VERBS, LISTS, Token
from pytrace.documents.phrases import function_words

Phrase = tuple[int, ...]
"""The numbers of the words that name something; none for a pronoun."""

_WORDS = function_words()
_BE = frozenset(("is", "are", "was", "were", "be", "been", "being", "am"))
_AUXILIARIES = _WORDS["auxiliaries"]
_LINKING = _BE | frozenset(("has", "have", "had", "became", "become", "becomes"))
_BEFORE_BASE = frozenset(LISTS.before_base.split())
_DETERMINERS = frozenset(LISTS.determiners.split())
_PREPOSITIONS = _WORDS["prepositions"] - {"to"}
_PRONOUNS = frozenset(["he", "she", "it", "they", "we", "i", "you", "him", "them", "us", "me", "who", "whom"])
RELATIVES = frozenset(("who", "whom", "which", "that"))
# A clause after one of these is not a main clause.
_SUBORDINATORS = RELATIVES | frozenset(LISTS.subordinators.split())
_JOINING = frozenset(("and", "or", "but", "then"))
_ADVERBS = frozenset(LISTS.adverbs.split())
_MAX_AGENT_DISTANCE = 10  # words between a passive verb and "by"
# Marks between which a phrase ends; quotation marks, slashes and the like are part of it.
_BREAKS = frozenset(",;:.!?()[]–—|")


class Clause(NamedTuple):
    """A verb of a sentence with who does it (`agent`) and to whom it is done (`patient`).

    Of a form of "be" or "have", the patient is what the agent is or has. A phrase is None if the sentence does not have it, and empty if a pronoun is in its place. Of "the ship sank" and "the ship, sold in
    1902", the ship is the agent: the words alone do not tell the two apart.
    """

    verb: int
    agent: Phrase | None
    patient: Phrase | None
    is_passive: bool
    is_main: bool


class _Subject(NamedTuple):
    phrase: Phrase | None
    is_main: bool = True  # whether its clause is a main clause
    antecedent: Phrase | None = None  # what a relative pronoun before it stands for


class Clauses:
    """The clauses of one sentence.

    Parameters
    ----------
    words
        The words of the sentence, in their order.
    known
        Numbers of words that are verbs elsewhere, and so are verbs here where they may be.
    """

    def __init__(self, words: Sequence[Token], known: Container[int] = ()) -> None:
        self._known = known
        self._words = words
        self._forms = [word.form for word in words]
        self._breaks = [word.mark in _BREAKS and word.mark != "" for word in words]

    @cached_property
    def verbs(self) -> list[int]:
        """The numbers of the words that are verbs with a meaning of their own, in their order."""
        certain = [
            self.is_certain(at) or (at in self._known and self._may_be_verb(at)) for at in range(len(self._words))
        ]
        found: list[int] = []
        for at, verb in enumerate(certain):
            if verb or self._is_third_person(at, certain, found):
                found.append(at)
        return found

    @cached_property
    def links(self) -> list[int]:
        """The numbers of the forms of "be", "have" and "become" that are not auxiliaries of a verb."""
        return [at for at, form in enumerate(self._forms) if form in _LINKING and not self._governs(at)]

    @cached_property
    def _verb_set(self) -> frozenset[int]:
        return frozenset(self.verbs)

    def _governs(self, at: int) -> bool:
        """Say whether an auxiliary belongs to a verb or an auxiliary after it."""
        following = at + 1
        while following < len(self._words) and not self._breaks[following] and self._is_adverb(following):
            following += 1
        return (
            following < len(self._words)
            and not self._breaks[following]
            and (following in self._verb_set or self._forms[following] in _AUXILIARIES)
        )

    def _before(self, at: int) -> str:
        """Return the word before another, "" where a mark is between them."""
        return self._forms[at - 1] if at > 0 and not self._breaks[at] else ""

    def _after(self, at: int) -> str:
        return self._forms[at + 1] if at + 1 < len(self._words) and not self._breaks[at + 1] else ""

    def _may_be_verb(self, at: int) -> bool:
        before = self._before(at)
        return self._words[at].kind == "word" and before not in _DETERMINERS and before not in _PREPOSITIONS

    def is_certain(self, at: int) -> bool:
        """Say whether a word is a verb by its form or by the word before it."""
        word, before = self._words[at], self._before(at)
        if not self._may_be_verb(at):
            return False
        if word.form.endswith("ing"):
            return len(word.form) > 5 and (
                before in _BE or self._breaks[at] or (at > 0 and self._words[at - 1].is_content)
            )
        if word.form in IRREGULAR_FORMS and word.form in IRREGULAR_VERBS:
            return True
        if word.form.endswith("ed") and len(word.form) > 4 + word.form.endswith("eed"):  # not "speed"
            return True
        return (before in _BEFORE_BASE and not self._is_adverb(at)) or (
            word.form in IRREGULAR_VERBS and before in _BE | _PRONOUNS | RELATIVES
        )

    def _is_third_person(self, at: int, certain: Sequence[bool], found: Sequence[int]) -> bool:
        """Say whether a word in "-s", or the base of an irregular verb, is the first verb of a clause that has none for certain."""
        word, before, after = self._words[at], self._before(at), self._after(at)
        in_s = word.form.endswith("s") and not word.form.endswith("ss")
        if word.kind != "word" or not before or after == "of" or not (in_s or word.form in IRREGULAR_VERBS):
            return False
        previous = self._words[at - 1]
        noun = previous.is_content and previous.kind != "number" and before not in _PREPOSITIONS
        if not (noun or before in _PRONOUNS | RELATIVES or before in _ADVERBS):
            return False
        if before in RELATIVES and after and after not in _AUXILIARIES and not certain[at + 1]:
            return True
        around = self._around(at)
        return not any(certain[other] or other in found or self._forms[other] in _AUXILIARIES for other in around)

    def _around(self, at: int) -> list[int]:
        """Return the other words of the same clause, up to marks, relative pronouns and conjunctions."""
        ends = _SUBORDINATORS | _JOINING
        first, last = at, at + 1
        while first > 0 and not self._breaks[first] and self._forms[first - 1] not in ends:
            first -= 1
        while last < len(self._words) and not self._breaks[last] and self._forms[last] not in ends:
            last += 1
        return [other for other in range(first, last) if other != at]

    @cached_property
    def clauses(self) -> dict[int, Clause]:
        """The clause of each verb and link, in their order."""
        found: dict[int, Clause] = {}
        for head in sorted((*self.verbs, *self.links)):
            found[head] = self._clause(head, found)
        return found

    def _clause(self, verb: int, earlier: Mapping[int, Clause]) -> Clause:
        """Return the clause of a verb or link; `earlier` has those before it."""
        left, group = self._left_of_group(verb)
        subject = self._subject(left, earlier)
        form = self._forms[verb]
        if form in _LINKING:
            return Clause(verb, subject.phrase, self._object(verb), False, subject.is_main)
        is_participle = form.endswith(("ed", "en")) or form in IRREGULAR_VERBS
        by = self._agent_word(verb) if is_participle else None
        bare = group.isdisjoint(_AUXILIARIES)
        patient = subject.antecedent or self._object(verb)
        is_passive = is_participle and (not _BE.isdisjoint(group) or form == "born" or (by is not None and bare))
        if not subject.is_main or (bare and (is_passive or patient is None)):
            subject = subject._replace(phrase=self._with_described(verb, subject.phrase, earlier))
        if is_passive:
            agent = None if by is None else self._phrase_after(by + 1)
            return Clause(verb, agent, subject.phrase, True, subject.is_main)
        return Clause(verb, subject.phrase, patient, False, subject.is_main)

    def _left_of_group(self, verb: int) -> tuple[int, set[str]]:
        """Return the word before a verb with its auxiliaries and adverbs, and these."""
        left, group = verb - 1, set[str]()
        while left >= 0 and not self._breaks[left + 1] and self._is_of_group(left):
            group.add(self._forms[left])
            left -= 1
        return left, group

    def _with_described(self, verb: int, phrase: Phrase | None, earlier: Mapping[int, Clause]) -> Phrase | None:
        """Return the phrase that a relative clause or a participle follows, with what it describes.

        "Paramore is a band from Franklin, formed in 2004": of Franklin, of a band, or of Paramore. "Founded in 1802, the foundry cast bells":
        of the foundry.
        """
        if phrase is None:
            following = min((at for at in (*self.verbs, *self.links) if at > verb), default=None)
            if following is None or verb > 1:
                return None
            left, _ = self._left_of_group(following)
            return self._whole_phrase_before(left)[0] or None
        described = next((clause for at, clause in earlier.items() if at in self.links or self._breaks[verb]), None)
        return tuple(sorted({*phrase, *((described and described.agent) or ())})) if phrase else phrase

    def _is_of_group(self, at: int) -> bool:
        return self._forms[at] in _AUXILIARIES or self._forms[at] == "to" or self._is_adverb(at)

    def _is_adverb(self, at: int) -> bool:
        word = self._words[at]
        return word.form in _ADVERBS or word.kind == "negation" or (word.form.endswith("ly") and word.kind == "word")

    def _agent_word(self, verb: int) -> int | None:
        """Return the "by" of a participle, None if there is none before the next clause."""
        joined = True  # "written and directed by"
        for at in range(verb + 1, min(verb + _MAX_AGENT_DISTANCE, len(self._words) - 1)):
            form = self._forms[at]
            if form == "by":
                phrase = self._phrase_after(at + 1)
                return at if any(self._words[of].kind in ("name", "word") for of in phrase or ()) else None
            if form in _SUBORDINATORS or (at in self._verb_set and not joined):
                break
            joined = joined and (form in _JOINING or at in self._verb_set)
        return None

    def _subject(self, left: int, earlier: Mapping[int, Clause]) -> _Subject:
        """Return the phrase that ends with a word, or what that word stands for."""
        if left < 0:
            return _Subject(None)
        form = self._forms[left]
        if form in RELATIVES:
            return _Subject(self._antecedent(left), is_main=False)
        if form in _JOINING:
            shared = next((clause for at, clause in reversed([*earlier.items()]) if at < left), None)
            if shared is None:
                return _Subject(None)
            return _Subject(shared.patient if shared.is_passive else shared.agent, shared.is_main)
        if left in self._verb_set:
            return self._before_relative(left)
        if form in _PRONOUNS:
            return self._of_phrase((), left)
        phrase, start = self._whole_phrase_before(left)
        described, earlier_start = self._before_insertion(left)
        if described:
            return self._of_phrase(described, earlier_start)
        return self._of_phrase(phrase, start) if phrase else _Subject(None)

    def _before_insertion(self, end: int) -> tuple[Phrase, int]:
        """Return the phrase before an insertion between commas that ends with a word, and where it begins: "Rook, a pilot, sailed"."""
        if end + 1 >= len(self._words) or self._words[end + 1].mark != ",":
            return (), 0
        opening = max((at for at in range(1, end + 1) if self._words[at].mark == ","), default=0)
        if not opening or any(self._forms[at] in _SUBORDINATORS or at in self._verb_set for at in range(opening, end)):
            return (), 0
        return self._whole_phrase_before(opening - 1)

    def _of_phrase(self, phrase: Phrase, start: int) -> _Subject:
        """Return the subject that a phrase is, or that the clause is about whose last words it is."""
        before = start - 1
        while before >= 0 and (self._is_adverb(before) or self._forms[before] in _PREPOSITIONS):
            before -= 1
        if before in self._verb_set or before in self.links:
            # "The founder of the company that owns the ferry was born": the phrase is the object of the clause between.
            found = self._before_relative(before)
            return found if found.phrase else _Subject(phrase)
        if before >= 0 and self._forms[before] in RELATIVES:
            return _Subject(phrase, False, self._antecedent(before))
        if not phrase and before == start - 1 and before >= 0 and not self._breaks[start]:
            relative, begins = self._phrase_before(before)
            if relative and self._forms[max(begins - 1, 0)] not in _PREPOSITIONS:
                return _Subject(phrase, False, relative)  # "the company he founded"
        return _Subject(phrase, not (before >= 0 and self._forms[before] in _SUBORDINATORS))

    def _before_relative(self, at: int) -> _Subject:
        """Return what the last relative pronoun before a word stands for, as the subject of a main clause."""
        relative = max((other for other in range(at) if self._forms[other] in RELATIVES), default=None)
        return _Subject(None if relative is None else self._antecedent(relative))

    def _whole_phrase_before(self, end: int) -> tuple[Phrase, int]:
        """Return the head of the phrase that ends with a word, without brackets and prepositions after it, and where it begins."""
        if end + 1 < len(self._words) and self._words[end + 1].mark == ")":
            opening = max((at for at in range(1, end + 1) if self._words[at].mark == "("), default=end + 1)
            end = opening - 1
        phrase, start = self._phrase_before(end)
        # "The foundry in Pellisk cast bells": what follows a preposition belongs to the phrase before it.
        while start > 1 and not self._breaks[start] and self._forms[start - 1] in _PREPOSITIONS - {"of"}:
            before, earlier = self._phrase_before(start - 2)
            if not before:
                break
            phrase, start = before, earlier
        return phrase, start

    def _antecedent(self, relative: int) -> Phrase | None:
        """Return the phrase before a relative pronoun, and before a preposition of it."""
        before = relative - 1
        if before >= 0 and self._forms[before] in _WORDS["prepositions"]:
            before -= 1
        return (self._phrase_before(before, whole=True)[0] or None) if before >= 0 else None

    def _object(self, verb: int) -> Phrase | None:
        at = verb + 1
        while at < len(self._words) and self._is_adverb(at) and not self._breaks[at]:
            at += 1
        phrase = self._phrase_after(at) if at < len(self._words) and not self._breaks[at] else None
        dated = phrase and all(self._words[of].kind in ("number", "month") for of in phrase)
        return None if dated else phrase

    def _phrase_before(self, end: int, *, whole: bool = False) -> tuple[Phrase, int]:
        """Return the head of the phrase that ends with a word, or all of it, and where the phrase begins."""
        taken: list[int] = []
        at = end
        while at >= 0:
            form = self._forms[at]
            if self._words[at].is_content and at not in self._verb_set and form not in _PREPOSITIONS:
                taken.append(at)
            elif form in _DETERMINERS:
                if at < 2 or self._breaks[at] or self._forms[at - 1] not in ("of", "and"):
                    break
            elif form not in ("of", "and", "s") or at == end or not at:
                at += 1
                break
            if self._breaks[at]:
                break
            at -= 1
        taken.sort()
        return (tuple(taken) if whole else self._head(taken)), max(at, 0)

    def _phrase_after(self, start: int) -> Phrase | None:
        """Return the head of the phrase, or of the list of names, that begins with a word; None where there is none."""
        heads: Phrase = ()
        taken: list[int] = []
        at = start
        while at < len(self._words) and at not in self._verb_set:
            form = self._forms[at]
            if at > start and self._breaks[at]:
                if not self._goes_on(at, taken):
                    break
                heads, taken = (*heads, *self._head(taken)), []
            if form in _PRONOUNS and at == start:
                return ()
            if self._words[at].is_content and form not in _PREPOSITIONS:
                taken.append(at)
            elif form not in _DETERMINERS and (form not in ("of", "and", "s") or not taken):
                break
            at += 1
        if not taken and not heads and at > start:
            return ()  # "bought her in 1902"
        return (*heads, *self._head(taken)) or None

    def _goes_on(self, at: int, taken: Sequence[int]) -> bool:
        """Say whether a comma is part of a phrase: of a list of names, or before the name of what is described, as in "a ship, the Tern"."""
        if self._words[at].mark != ",":
            return False
        if any(self._words[of].kind == "name" for of in taken):
            return self._words[at - 1].kind == "name" and (self._words[at].kind == "name" or self._forms[at] == "and")
        named = at + (self._forms[at] in _DETERMINERS)
        return named < len(self._words) and self._words[named].kind == "name"

    def _head(self, taken: Sequence[int]) -> Phrase:
        """Return the words of a phrase without its owner and without what follows its "of"."""
        if not taken:
            return ()
        inside = range(taken[0], taken[-1])
        owner = max((at for at in inside if self._forms[at] == "s"), default=taken[0] - 1)
        of = min((at for at in inside if self._forms[at] == "of" and at > owner), default=taken[-1] + 1)
        return tuple(at for at in taken if owner < at < of)
