"""Whether evidence states what a claim says of its subject: the same predicate, with the same words in the same roles."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from pytrace.certify.claims.clauses import RELATIVES, Clause, Clauses, Phrase
from pytrace.certify.claims.text_tokens import key_of
from pytrace.certify.claims.tokens import Token
from pytrace.certify.claims.word_forms import are_one_word, form_prefix

Statement = Literal["stated", "reworded", "other roles", "not stated"]
"""What evidence has of a claim's predicate.

"stated": a sentence has it, with the claim's subject in the same role. "reworded": no sentence has it, but one has what it is said of, and may say it
in other words. "other roles": sentences have it of something else only. "not stated": none of these, or the claim has no predicate.
"""

Key = str | float
_MAX_LABEL = 2  # words
_DESCRIBING = RELATIVES | {"whose", "what", "where"}
_MAX_WORDS = 250  # of a sentence; what is longer is a table


class _Keys:
    """What words are compared by: the first word of a claim that they are forms of, or they themselves."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[str]] = defaultdict(list)

    def of_claim(self, word: Token) -> Key:
        """Return the key of a claim's word, which others may be forms of."""
        key = self.of(word)
        if isinstance(key, str) and key not in self._by_prefix[form_prefix(key, english=True)]:
            self._by_prefix[form_prefix(key, english=True)].append(key)
        return key

    def of(self, word: Token) -> Key:
        """Return the key of a word of the evidence."""
        form = key_of(word)
        if not isinstance(form, str):
            return form
        known = self._by_prefix.get(form_prefix(form, english=True), ())
        return form if form in known else next((one for one in known if are_one_word(one, form, english=True)), form)


class _Sentence:
    """A sentence with what its words are compared by, and its clauses."""

    def __init__(
        self,
        words: Sequence[Token],
        title: Sequence[Token],
        key: Callable[[Token], Key],
        claim: _Sentence | None = None,
    ) -> None:
        self.words = words = words[:_MAX_WORDS]
        self.keys = [key(word) for word in words]
        self.has = frozenset(key for word, key in zip(words, self.keys, strict=True) if word.is_content)
        self.title = [key(word) for word in title]
        self.known = self.has.union(self.title)
        reading = Clauses(words)
        wanted = self.has if claim is None else claim.has
        self.certain_verbs = frozenset(
            key for at, key in enumerate(self.keys) if key in wanted and reading.is_certain(at)
        )
        self.known_verbs = self.certain_verbs

    @cached_property
    def clauses(self) -> Clauses:
        """The sentence's clauses; `known_verbs` are verbs where they may be."""
        return Clauses(self.words, {at for at, key in enumerate(self.keys) if key in self.known_verbs})

    def has_verb(self, key: Key) -> bool:
        """Return whether one of the verbs is this."""
        return key in self.has and any(self.keys[at] == key for at in self.clauses.verbs)

    def keys_of(self, phrase: Phrase) -> list[Key]:
        """Return the keys of a phrase's words."""
        return [self.keys[at] for at in phrase]

    def is_described(self, phrase: Phrase) -> bool:
        """Return whether a phrase goes on with "of" or a relative pronoun, which tell what it names."""
        following = self.words[phrase[-1] + 1 : phrase[-1] + 3]
        return any(word.form in RELATIVES | {"of", "whose", "about"} for word in following)

    def names(self, phrase: Phrase) -> list[Key]:
        """Return the keys of a phrase's names and numbers."""
        return [self.keys[at] for at in phrase if self.words[at].kind in ("name", "number", "month")]


def find_statement(
    claim: Sequence[Token], evidence: Sequence[Sequence[Token]], titles: Sequence[Sequence[Token]] = ()
) -> Statement:
    """Find the predicate of an English claim in sentences, with the claim's subject in the same role.

    Parameters
    ----------
    claim, evidence
        The words of a claim and of sentences.
    titles
        For each sentence those of its document's title: what a pronoun or "the company" may stand for.

    Examples
    --------
    >>> from pytrace.certify.claims.tokens import tokens
    >>> evidence = [tokens("The foundry was founded by Matthias Garrow, who had cast bells for Prince Osric.")]
    >>> [find_statement(tokens(f"{name} founded the foundry."), evidence) for name in ("Matthias Garrow", "Prince Osric")]
    ['stated', 'other roles']
    >>> find_statement(tokens("Matthias Garrow set up the foundry."), evidence)
    'reworded'
    """
    keys = _Keys()
    said, answer = _parts(claim, keys)
    read = [_Sentence(*each, keys.of, said) for each in itertools.zip_longest(evidence, titles, fillvalue=())]
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
    with_answer = [sentence for sentence in read if answer <= sentence.known]
    if main is None:
        return "stated" if _names_together(said, with_answer) else "not stated"
    if main.verb in said.clauses.links:
        found = _best(_find_complement(said, main, sentence) for sentence in with_answer)
    else:
        found = _find_verb(said, main, with_answer, read)
    if found == "reworded" and (answer or not _may_be_reworded(said, main, read)):
        return "not stated"
    others = [_find_verb(said, clause, read, read, named_only=True) for clause in clauses if clause is not main]
    return "other roles" if "other roles" in others else found


def _may_be_reworded(said: _Sentence, clause: Clause, read: Iterable[_Sentence]) -> bool:
    """Say whether a sentence has what a claim's main clause relates, and may do so in other words.

    Not if the claim describes one of the two by a relative clause: then words of that clause alone would tell that the sentence is about it.
    """
    # A word without an offset is the subject of a claim before: "which" after it begins the claim.
    if any(word.form in _DESCRIBING and before.start >= 0 for before, word in itertools.pairwise(said.words)):
        return False
    related = [said.names(phrase) or said.keys_of(phrase) for phrase in (clause.agent, clause.patient) if phrase]
    return any(all(_are_among(keys, sentence.known) for keys in related) for sentence in read)


def _best(found: Iterable[Statement]) -> Statement:
    """Return the strongest of what sentences have of a predicate."""
    having = {*found}
    return "stated" if "stated" in having else "other roles" if "other roles" in having else "reworded"


def _parts(claim: Sequence[Token], keys: _Keys) -> tuple[_Sentence, frozenset[Key]]:
    """Return a claim up to its last colon, and what must be said together with it: what follows the colon without a verb.

    A short label before a colon and a clause is left out.
    """
    colon = max((at for at, word in enumerate(claim) if at and word.mark == ":"), default=len(claim))
    before, after = _Sentence(claim[:colon], (), keys.of_claim), _Sentence(claim[colon:], (), keys.of_claim)
    if not after.clauses.clauses:
        return before, after.has
    # "Reason: it was sold", where "Dam and Lake: A History" is part of a name.
    return (after if colon <= _MAX_LABEL else _Sentence(claim, (), keys.of_claim)), frozenset()


def is_bare(claim: Sequence[Token]) -> bool:
    """Say whether a claim names something and says nothing of it, as "Skarra Light" and "1763" do."""
    content = [word for word in claim if word.is_content]
    said = len(content) > 1 and any(word.kind == "word" for word in content)
    return not said and not Clauses(claim).clauses


def _names_together(said: _Sentence, read: Iterable[_Sentence]) -> bool:
    """Say whether a sentence has a word of a claim without a verb, and what else it names."""
    words = {key for word, key in zip(said.words, said.keys, strict=True) if word.kind == "word"}
    return any(words & sentence.has and len(said.has & sentence.known) > 1 for sentence in read)


def _find_complement(said: _Sentence, clause: Clause, sentence: _Sentence) -> Statement:
    """Find what a claim says that its subject is or has in a sentence."""
    complement = clause.patient or [at for at in range(clause.verb + 1, len(said.words)) if said.words[at].is_content]
    if not _are_among([said.keys[at] for at in complement], sentence.has):
        return "reworded"
    names = said.names(clause.agent or ())
    if not clause.agent or _are_among(names or said.keys_of(clause.agent), sentence.known):
        return "stated"
    return "other roles" if names and sentence.known.isdisjoint(names) else "reworded"


def _are_among(wanted: Sequence[Key], keys: Collection[Key]) -> bool:
    """Say whether two thirds of a phrase are among other words, or half with its last word: "Rook" stands for "Tobias Rook"."""
    shared = sum(key in keys for key in wanted)
    return bool(wanted) and (3 * shared >= 2 * len(wanted) or (2 * shared >= len(wanted) and wanted[-1] in keys))


def _find_verb(
    said: _Sentence,
    clause: Clause,
    read: Iterable[_Sentence],
    evidence: Sequence[_Sentence],
    *,
    named_only: bool = False,
) -> Statement:
    """Find the verb of a claim's clause in sentences with the same agent and patient; `named_only`: of these, names alone are compared."""
    found: Statement = "reworded"
    for sentence in read:
        if said.keys[clause.verb] not in sentence.has:
            continue
        same = _SamePhrase(said, sentence, evidence, named_only)
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
    """Says whether a phrase of a claim and one of a sentence may name the same.

    A pronoun and "the company" may stand for a title. "The company that owns the ferry" may be any name that the evidence does not hold
    apart from a company.
    """

    said: _Sentence
    sentence: _Sentence
    evidence: Sequence[_Sentence]
    named_only: bool

    def __call__(self, first: Phrase | None, second: Phrase | None) -> bool:
        names, theirs = self.said.names(first or ()), self.sentence.names(second or ())
        if self.named_only and not (names and theirs):
            return True
        if second is None:
            return not first
        if not first or not second:
            return True
        wanted, keys = names or self.said.keys_of(first), self.sentence.keys_of(second)
        if _are_among(wanted, keys) or (names and theirs and {*theirs} < {*names} and names[-1] in theirs):
            return True
        if not names and wanted[-1] in keys:
            return True
        if theirs:
            described = not names and self.said.is_described(first)
            return described and (self._may_be_called(wanted[-1], theirs) or self._is_described_as(first, theirs))
        # "The company", whatever it is called.
        return not self.sentence.title or _are_among(wanted, self.sentence.title)

    def _may_be_called(self, noun: Key, names: Sequence[Key]) -> bool:
        """Say whether no sentence has a noun, or one has it with these names."""
        having = [sentence for sentence in self.evidence if noun in sentence.known]
        return not having or any(_are_among(names, sentence.known) for sentence in having)

    def _is_described_as(self, phrase: Phrase, names: Sequence[Key]) -> bool:
        """Say whether a sentence has these names where the clause that describes a phrase has the phrase: "owned by Brackwater Ferries"."""
        said = self.said
        for at, clause in said.clauses.clauses.items():
            if clause.is_main or at in said.clauses.links or phrase not in (clause.agent, clause.patient):
                continue
            for sentence in self.evidence:
                for verb in sentence.clauses.verbs:
                    there = sentence.clauses.clauses[verb]
                    pairs = (clause.agent, there.agent), (clause.patient, there.patient)
                    (_, named), (other, found) = pairs if clause.agent == phrase else pairs[::-1]
                    if sentence.keys[verb] != said.keys[at] or not (named and other and found):
                        continue
                    rest = said.names(other) or said.keys_of(other)
                    if _are_among(names, sentence.keys_of(named)) and _are_among(rest, sentence.keys_of(found)):
                        return True
        return False
