"""Whether evidence states what a claim says of its subject: the same predicate, with the same words in the same roles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from pytrace.certify.claims.clauses import Clause, Clauses, Phrase
from pytrace.certify.claims.text_tokens import key_of
from pytrace.certify.claims.tokens import Token
from pytrace.certify.claims.word_forms import lemma

Statement = Literal["stated", "other roles", "not stated"]
"""What evidence has of a claim's predicate: it, it with other words in its roles, or neither."""

Key = str | float
_MIN_SHARE = 0.5  # of a phrase's names that another must have to name the same


class _Sentence:
    """A sentence with what its words are compared by, and its clauses."""

    def __init__(self, words: Sequence[Token]) -> None:
        self.words = words
        self.keys: list[Key] = [lemma(key) if isinstance(key := key_of(word), str) else key for word in words]
        self.has = frozenset(key for word, key in zip(words, self.keys, strict=True) if word.is_content)
        reading = Clauses(words)
        self.certain_verbs = frozenset(key for at, key in enumerate(self.keys) if reading.is_certain(at))
        self.known_verbs = self.certain_verbs

    @cached_property
    def clauses(self) -> Clauses:
        """The sentence's clauses; `known_verbs` are verbs where they may be."""
        return Clauses(self.words, {at for at, key in enumerate(self.keys) if key in self.known_verbs})

    def has_verb(self, key: Key) -> bool:
        """Return whether one of the verbs is this."""
        return any(self.keys[at] == key for at in self.clauses.verbs)

    def names(self, phrase: Phrase) -> list[Key]:
        """Return the keys of a phrase's names and numbers."""
        return [self.keys[at] for at in phrase if self.words[at].kind in ("name", "number", "month")]


def find_statement(
    claim: Sequence[Token], evidence: Sequence[Sequence[Token]], titles: Sequence[Token] = ()
) -> Statement:
    """Find the predicate of an English claim in sentences, with the claim's subject in the same role.

    Parameters
    ----------
    claim, evidence
        The words of a claim and of sentences.
    titles
        Those of the titles of the sentences' documents: what a pronoun or "the company" may stand for.

    Examples
    --------
    >>> from pytrace.certify.claims.tokens import tokens
    >>> evidence = [tokens("The foundry was founded by Matthias Garrow, who had cast bells for Prince Osric.")]
    >>> [find_statement(tokens(f"{name} founded the foundry."), evidence) for name in ("Matthias Garrow", "Prince Osric")]
    ['stated', 'other roles']
    """
    said, answer = _parts(claim)
    read = [_Sentence(sentence) for sentence in evidence]
    title = _Sentence(titles).has
    for sentence in (said, *read):
        sentence.known_verbs = frozenset().union(*(other.certain_verbs for other in (said, *read)))
    clauses = [
        clause
        for at, clause in said.clauses.clauses.items()
        # What only looks like a verb, as "bears", is none if the evidence has it as another word.
        if at in said.clauses.links
        or said.clauses.is_certain(at)
        or any(sentence.has_verb(said.keys[at]) for sentence in read)
        or not any(said.keys[at] in sentence.has for sentence in read)
    ]
    main = next((clause for clause in clauses if clause.is_main), clauses[0] if clauses else None)
    with_answer = [sentence for sentence in read if answer <= sentence.has | title]
    if main is None:
        return "stated" if _names_together(said, with_answer, title) else "not stated"
    if main.verb in said.clauses.links:
        found: Statement = "not stated"
        if any(_says_of_subject(said, main, sentence, title) for sentence in with_answer):
            found = "stated"
    else:
        found = _find_verb(said, main, with_answer, title)
    others = [_find_verb(said, clause, read, title, named_only=True) for clause in clauses if clause is not main]
    return "other roles" if found == "stated" and "other roles" in others else found


def _parts(claim: Sequence[Token]) -> tuple[_Sentence, frozenset[Key]]:
    """Return a claim up to its last colon, and what must be said together with it: what follows the colon without a verb."""
    colon = max((at for at, word in enumerate(claim) if at and word.mark == ":"), default=len(claim))
    answer = _Sentence(claim[colon:])
    if answer.clauses.clauses:
        return _Sentence(claim), frozenset()
    return _Sentence(claim[:colon]), answer.has


def _names_together(said: _Sentence, read: Iterable[_Sentence], title: frozenset[Key]) -> bool:
    """Say whether a sentence has a word of a claim without a verb, and another name, number or word of it."""
    words = {key for word, key in zip(said.words, said.keys, strict=True) if word.kind == "word"}
    least = min(len(said.has), 2)
    return any(words & sentence.has and len(said.has & (sentence.has | title)) >= least for sentence in read)


def _says_of_subject(said: _Sentence, clause: Clause, sentence: _Sentence, title: frozenset[Key]) -> bool:
    """Say whether a sentence has what a claim says that its subject is or has."""
    end = next((at for at in said.clauses.verbs if at > clause.verb), len(said.words))
    complement = [at for at in range(clause.verb + 1, end) if said.words[at].is_content]
    words = [at for at in complement if said.words[at].kind == "word"] or complement
    shared = sum(said.keys[at] in sentence.has for at in words)
    if not shared or 2 * shared < len(words):
        return False
    if not clause.agent:
        return True
    wanted = said.names(clause.agent) or [said.keys[at] for at in clause.agent]
    return sum(key in sentence.has or key in title for key in wanted) >= _MIN_SHARE * len(wanted)


def _find_verb(
    said: _Sentence, clause: Clause, read: Iterable[_Sentence], title: frozenset[Key], *, named_only: bool = False
) -> Statement:
    """Find the verb of a claim's clause with the same agent and patient; `named_only`: of these, names alone are compared."""
    found: Statement = "not stated"
    for sentence in read:
        same = _SamePhrase(said, sentence, title, named_only)
        for at in sentence.clauses.verbs:
            if sentence.keys[at] == said.keys[clause.verb]:
                if _same_roles(clause, sentence.clauses.clauses[at], same):
                    return "stated"
                found = "other roles"
    return found


def _same_roles(claim: Clause, found: Clause, same: _SamePhrase) -> bool:
    if claim.agent and claim.patient is None:
        # "The lamp burned", "was Ada born": the one thing that is named may be either.
        return same(claim.agent, found.agent if found.agent is not None else found.patient)
    if claim.patient and claim.is_passive and found.patient is None and found.agent is not None:
        return not claim.agent and same(claim.patient, found.agent)  # "the dam, completed in 1965"
    if claim.agent and not same(claim.agent, found.agent):
        return False
    return not claim.patient or found.patient is None or same(claim.patient, found.patient)


class _SamePhrase(NamedTuple):
    """Says whether a phrase of a claim and one of a sentence may name the same; a pronoun and "the company" may stand for a title."""

    said: _Sentence
    sentence: _Sentence
    title: frozenset[Key]
    named_only: bool

    def __call__(self, first: Phrase | None, second: Phrase | None) -> bool:
        names = self.said.names(first or ())
        if self.named_only and not (names and self.sentence.names(second or ())):
            return True
        if second is None:
            return not first
        if not first or not second:
            return True
        theirs = {self.sentence.keys[at] for at in second}
        wanted = names or [self.said.keys[at] for at in first]
        if sum(key in theirs for key in wanted) >= _MIN_SHARE * len(wanted) or (not names and wanted[-1] in theirs):
            return True
        if self.sentence.names(second):
            return False
        # "The company", whatever it is called.
        return not self.title or sum(key in self.title for key in wanted) >= _MIN_SHARE * len(wanted)
