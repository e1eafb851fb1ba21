"""Claims made of sentences by rule: as they stand, in part, and with one thing changed; a checker learns them before people's own."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytrace.check_records import ClaimLabel
from pytrace.errors import InputError
from pytrace.records import Document

KINDS: dict[str, ClaimLabel] = {
    "whole": "supported",
    "cut": "supported",
    "negated": "contradicted",
    "number": "contradicted",
    "name": "contradicted",
    "borrowed": "contradicted",
    "swapped": "contradicted",
    "subject": "not there",
    "clause": "not there",
    "predicate": "not there",
    "elsewhere": "not there",
}
"""What is done to a sentence, and what its text says of the claim that becomes of it."""

_NAME = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*")
# A name that does something, and one at the end of a clause that it is done to.
_SUBJECT = re.compile(
    r"(?!(?:The|It|He|She|They|This|That|These|His|Her|Its|In|On|At|From|As|For|After|Before|During|A|An)\b)"
    r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*(?= (?:is|was|has|had|are|were|[a-z]+ed|[a-z]+s)\b)"
)
_OBJECT = re.compile(r"(?<= [a-z][a-z]) ([A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*)(?=[.,;]| [a-z])")
_NUMBER = re.compile(r"\b\d{1,4}\b")
_PREDICATE = re.compile(
    r"\b(is|was|were|are) ((?:an?|the) [^,.;()]{3,60}?)(?=[,.;]| (?:of|in|from|by|who|which|that|and)\b)"
)
_VERB = re.compile(r"\b(is|was|are|were|has|had|can|will)\b(?! not\b)")
_LEAST_WORDS = 5  # of a sentence that claims are made of


class MadeClaim(NamedTuple):
    """A claim, the document that it is made to be checked against, its label and what was done."""

    claim: str
    document: Document
    label: ClaimLabel
    kind: str


def make_claims(documents: Sequence[Document], count: int, *, seed: int = 0) -> list[MadeClaim]:
    """Make about so many claims, half of them supported, and of the others as many of each kind as there are.

    Parameters
    ----------
    documents
        Two or more, in English: what is changed is found by capitals and by verbs. Names and clauses are borrowed from one for another.
    count
        Claims; fewer where the documents have too few sentences.
    seed
        Of what is drawn.

    Raises
    ------
    InputError
        There are fewer than two documents with a sentence of five words.

    Examples
    --------
    >>> lakes = [Document("1", "Lake Volta", ("Lake Volta was made in 1965 by the Akosombo Dam.",)),
    ...          Document("2", "Lake Oster", ("Lake Oster lies in the north, where Holm is the largest town.",))]
    >>> made = make_claims(lakes, 20)
    >>> sorted({one.label for one in made})
    ['contradicted', 'not there', 'supported']
    """
    rng = random.Random(seed)
    texts = [(document, _sentences(document)) for document in documents]
    usable = [(document, sentences) for document, sentences in texts if sentences]
    if len(usable) < 2:
        raise InputError(
            f"claims are made of two or more documents with a sentence of {_LEAST_WORDS} words, and {len(usable)} of the "
            f"{len(documents)} given have one; give more"
        )
    rng.shuffle(usable)
    by_kind: dict[str, list[MadeClaim]] = {kind: [] for kind in KINDS}
    # Each time that all have been drawn from, other sentences of them are.
    for number in range(max(count, len(usable))):
        document, sentences = usable[number % len(usable)]
        other, elsewhere = usable[(number - 1) % len(usable)]
        sentence = rng.choice(sentences)
        for claim, kind in changed(sentence, rng.choice(elsewhere), document.sentences, document.title, rng):
            by_kind[kind].append(MadeClaim(claim, document, KINDS[kind], kind))
        by_kind["elsewhere"].append(MadeClaim(sentence, other, KINDS["elsewhere"], "elsewhere"))
        if number >= len(usable) and _enough(by_kind, count):
            break
    shares = _shares(count)
    chosen = [
        one
        for kind, made in by_kind.items()
        for one in rng.sample(_distinct(made), min(shares[kind], len(_distinct(made))))
    ]
    rng.shuffle(chosen)
    return chosen


def _sentences(document: Document) -> list[str]:
    return [sentence for sentence in document.sentences if len(sentence.split()) >= _LEAST_WORDS]


def _shares(count: int) -> dict[str, int]:
    """Return how many claims there should be of each kind: supported ones as many as others."""
    supported = sum(label == "supported" for label in KINDS.values())
    return {
        kind: -(-count // (2 * (supported if label == "supported" else len(KINDS) - supported)))
        for kind, label in KINDS.items()
    }


def _enough(by_kind: dict[str, list[MadeClaim]], count: int) -> bool:
    return all(len(by_kind[kind]) >= share for kind, share in _shares(count).items())


def _distinct(made: Sequence[MadeClaim]) -> list[MadeClaim]:
    return list({(one.claim, one.document.id): one for one in made}.values())


def changed(
    sentence: str, other: str, passage: Sequence[str], title: str, rng: random.Random
) -> Iterator[tuple[str, str]]:
    """Give what becomes of a sentence, each with its kind.

    Parameters
    ----------
    sentence, passage, title
        A sentence, all of its document, and what that is called.
    other
        A sentence of another document.
    """
    yield sentence, "whole"
    words = sentence.split()
    if len(words) > 12 and ", " in sentence:
        yield sentence.rsplit(", ", 1)[0] + ".", "cut"
    if _VERB.search(sentence):
        yield _VERB.sub(r"\1 not", sentence, count=1), "negated"
    numbers = list(_NUMBER.finditer(sentence))
    if numbers:
        found = rng.choice(numbers)
        value = int(found[0])
        wrong = max(1, value + rng.choice((-7, -3, -1, 1, 2, 5, 12)))
        if wrong != value:
            yield f"{sentence[: found.start()]}{wrong}{sentence[found.end() :]}", "number"
    names = list(_NAME.finditer(sentence))
    theirs = [found[0] for found in _NAME.finditer(other) if found[0] not in sentence]
    if names and theirs:
        found = rng.choice(names)
        yield f"{sentence[: found.start()]}{rng.choice(theirs)}{sentence[found.end() :]}", "name"
    near = [found[0] for each in passage for found in _NAME.finditer(each) if found[0] not in sentence]
    if names and near:
        found = rng.choice(names)
        yield f"{sentence[: found.start()]}{rng.choice(near)}{sentence[found.end() :]}", "borrowed"
    subject = _SUBJECT.match(sentence)
    objects = [found for found in _OBJECT.finditer(sentence) if subject and found.start(1) > subject.end()]
    if subject and objects and not {*subject[0].split()} & {*objects[-1][1].split()}:
        begin, end = objects[-1].span(1)
        yield f"{sentence[begin:end]}{sentence[subject.end() : begin]}{subject[0]}{sentence[end:]}", "swapped"
    if names and title and not {*re.findall(r"\w+", title)} & {*re.findall(r"\w+", theirs[0] if theirs else title)}:
        pronoun = re.match(r"(?:It|He|She|They) ", sentence)
        if pronoun:
            yield f"{theirs[0]} {sentence[pronoun.end() :]}", "subject"
    predicate = _PREDICATE.search(other)
    if predicate and title and predicate[2].lower() not in " ".join(passage).lower():
        yield f"{title} {predicate[1]} {predicate[2]}.", "predicate"
    clause = " ".join(other.rstrip(".").split()[:9])
    if clause:
        yield f"{sentence.rstrip('.')}, and {clause[0].lower()}{clause[1:]}.", "clause"
