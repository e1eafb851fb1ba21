"""A chain of thoughts while it is verified: what is asked of each thought, what was found, and how the chain reads then."""

from __future__ import annotations

import msgspec

from pytrace.methods.cot.rationales import Thought
from pytrace.records import KnowledgeQuery, TextUnit

WHOLE = -1
"""The index of the question itself beside those of its thoughts."""


class Step(msgspec.Struct):
    """A thought of a chain, or the question itself: what is asked about it, what was found, and how it reads then."""

    index: int
    sentence: str
    question: str
    found: KnowledgeQuery | None = None
    # Sentences of documents, where these are a source.
    read: tuple[TextUnit, ...] = ()
    edited: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        """What was found, in words: what a query computed, the facts that it rests on, sentences of documents."""
        texts = [unit.text for unit in self.read]
        if self.found is not None:
            texts = [self.found.statement, *(fact.text for fact in self.found.facts), *texts]
        return tuple(filter(None, texts))


class Chain(msgspec.Struct):
    """A question that is verified: its index among all, the thought that it began with, and its steps."""

    index: int
    thought: Thought
    steps: list[Step] = []
    # Whether a query named entities that the knowledge base has.
    known: bool = False
    # The sentences as they are thought now; each may follow from those before it as they were edited.
    sentences: list[str] = []

    def __post_init__(self) -> None:
        """Begin with the thought's own sentences."""
        self.sentences = list(self.thought.sentences)

    @property
    def queries(self) -> tuple[KnowledgeQuery, ...]:
        """The queries of all steps."""
        return tuple(step.found for step in self.steps if step.found is not None)

    @property
    def read(self) -> tuple[TextUnit, ...]:
        """The sentences of documents that steps were verified by, each once."""
        return tuple(dict.fromkeys(unit for step in self.steps for unit in step.read))

    def facts(self, most: int) -> tuple[str, ...]:
        """Return the facts of all steps, each once."""
        return tuple(dict.fromkeys(fact for step in self.steps for fact in step.facts))[:most]

    def before(self, number: int) -> tuple[str, ...]:
        """Return the sentences before one as they read now."""
        edited = {step.index: step.edited for step in self.steps}
        return tuple(edited.get(index) or sentence for index, sentence in enumerate(self.sentences[:number]))

    def rationale(self, unverified: str) -> tuple[str, ...]:
        """Return the facts of the question itself and the sentences of the chain, as far as they are to be kept."""
        direct = [fact for step in self.steps[:1] if step.index == WHOLE for fact in step.facts]
        edited = {step.index: step.edited for step in self.steps if step.index != WHOLE}
        some = bool(self.facts(1))
        sentences = [
            edited.get(number) or sentence
            for number, sentence in enumerate(self.sentences)
            if edited.get(number) or unverified == "keep" or not some
        ]
        return tuple(dict.fromkeys([*direct, *sentences]))
