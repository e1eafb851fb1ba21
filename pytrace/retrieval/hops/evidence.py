"""Chains of passages as evidence: the passages, and the sentence of each that leads on or answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pytrace.reader.evidence import document_text
from pytrace.records import Chain, ChainSearch, Document, Evidence, TextUnit
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.hops.search import PassageChain


def chain_evidence(question: str, chain: PassageChain, passages: Sequence[Document]) -> Evidence:
    """Return a chain as evidence.

    Parameters
    ----------
    question
        What the chain was found for.
    chain, passages
        The chain, and its passages in its order.

    Returns
    -------
    Evidence
        The passages as context. Its one chain has a unit for each passage: the sentence that names what led on to a later one,
        or a later one by its title, else the one with most of those words of the question that no earlier unit has.
    """
    # What a question wants stands near its beginning, as a rule, and what it is of behind that.
    asked = {word: 1 + 1 / (1 + place) for place, word in reversed([*enumerate(words(question))])}
    units: list[TextUnit] = []
    for number, passage in enumerate(passages):
        named = next((step.name for step in chain.steps if step.place == number and step.name), "")
        named = named or _named_title(passage, passages[number + 1 :])
        place, asked = _leading(passage, asked, named)
        units.append(TextUnit(passage.title, passage.sentences[place], passage.id, place))
    score = math.log(max(chain.probability, 1e-12))
    found = Chain(tuple(units), (score, *(0.0 for _ in units[1:])), score, finished=True)
    context = tuple(map(document_text, passages))
    return Evidence("documents", context, tuple(passage.id for passage in passages), derivation=ChainSearch((found,)))


def _named_title(passage: Document, later: Sequence[Document]) -> str:
    """Return the normalized title of the last later passage that a sentence names; "" if none is named."""
    said = [f" {' '.join(words(sentence))} " for sentence in passage.sentences]
    titles = (" ".join(words(one.title)) for one in reversed(later) if one.title != passage.title)
    return next((title for title in titles if title and any(f" {title} " in sentence for sentence in said)), "")


def _leading(passage: Document, asked: dict[str, float], name: str) -> tuple[int, dict[str, float]]:
    """Return the sentence that leads on, and the words with their weights that it leaves."""
    split = [words(sentence) for sentence in passage.sentences]
    shared = [sorted(asked.keys() & {*sentence}) for sentence in split]
    frequent = Counter(word for some in shared for word in some)
    parts = name.split()
    best, most = 0, -1.0
    for place, (sentence, some) in enumerate(zip(split, shared, strict=True)):
        # Words that all sentences of a passage have tell none of them.
        score = sum(asked[word] / frequent[word] for word in some)
        holds = bool(parts) and any(sentence[at : at + len(parts)] == parts for at in range(len(sentence)))
        score += 2 * len(asked) * holds
        if score > most:
            best, most = place, score
    held = set(split[best]) if split else set()
    return best, {word: weight for word, weight in asked.items() if word not in held}
