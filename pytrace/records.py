"""The frozen records that cross from one module to the next.

Documents become triples, triples candidates, candidates chains, chains evidence, and evidence an answer. Every record
keeps where it came from, so that an answer can be followed back to a sentence of a document.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec


class Sentence(msgspec.Struct, frozen=True):
    """One sentence of a document; `index` counts from 0 within it."""

    document_id: str
    index: int
    text: str


class Document(msgspec.Struct, frozen=True):
    """A titled text, already split into sentences; `source` says where it was read (file or file:line)."""

    id: str
    title: str
    sentences: tuple[str, ...]
    source: str = ""

    @property
    def text(self) -> str:
        """The sentences joined by single spaces."""
        return " ".join(self.sentences)

    @property
    def content_hash(self) -> str:
        """SHA-256 of title and sentences, in hexadecimal: two documents with the same words have the same hash."""
        digest = hashlib.sha256()
        for part in (self.title, *self.sentences):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()


class Triple(msgspec.Struct, frozen=True):
    """One unit of knowledge: a triple, or a sentence or a document in the shape of one (`relation` empty).

    `sentence` is the index of the sentence that supports it in document `document_id` (-1: the whole document), and
    `support` how well that sentence matches the tail (partial ratio, 0 to 100).
    """

    head: str
    relation: str
    tail: str
    document_id: str = ""
    sentence: int = -1
    support: float = 0.0

    @property
    def text(self) -> str:
        """`<head; relation; tail>`, or `[head] tail` for a sentence or document unit."""
        return f"<{self.head}; {self.relation}; {self.tail}>" if self.relation else f"[{self.head}] {self.tail}"


class Candidate(msgspec.Struct, frozen=True):
    """A triple that the ranker offers for the next step: its index among the question's triples and its score."""

    triple: Triple
    index: int
    score: float


class Chain(msgspec.Struct, frozen=True):
    """A reasoning chain: its triples in order, the log-probability of each step, and their sum.

    `finished` is true if the selector chose to end it; then `steps` has one entry more than `triples`.
    """

    triples: tuple[Triple, ...]
    steps: tuple[float, ...]
    score: float
    finished: bool


class Evidence(msgspec.Struct, frozen=True):
    """What the reader sees: the context, the documents it rests on with their votes, and the chains behind it."""

    kind: Literal["triples", "documents"]
    context: tuple[str, ...]
    document_ids: tuple[str, ...]
    votes: dict[str, int] = {}
    chains: tuple[Chain, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """What a model was asked and what it cost.

    `prompt_tokens` counts the tokens of all prompts as if each were evaluated alone and whole; `evaluated_tokens` those
    that really went through the network, generated ones fed back included; `generated_tokens` those that came out.
    `calls` counts prompts (one sequence each), `batches` the calls of the decoder, `seconds` the time in the model.
    """

    calls: int = 0
    prompt_tokens: int = 0
    evaluated_tokens: int = 0
    generated_tokens: int = 0
    batches: int = 0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Add the counts of two pieces of work."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def __sub__(self, other: Usage) -> Usage:
        """Return what was spent since `other` was read from the same model."""
        return Usage(*(getattr(self, name) - getattr(other, name) for name in self.__struct_fields__))

    def scaled(self, share: float) -> Usage:
        """Return a share of it, counts rounded."""
        return Usage(
            calls=round(self.calls * share),
            prompt_tokens=round(self.prompt_tokens * share),
            evaluated_tokens=round(self.evaluated_tokens * share),
            generated_tokens=round(self.generated_tokens * share),
            batches=round(self.batches * share),
            seconds=self.seconds * share,
        )


class Answer(msgspec.Struct, frozen=True):
    """An answer with its evidence, the stages' model usage and wall-clock seconds, and notes worth telling.

    `context_tokens` counts the tokens of the evidence that the reader saw. `deterministic` tells how the model ran: true if
    the same call gives the same numbers to the last bit.
    """

    question: str
    text: str
    method: str
    evidence: Evidence
    usage: dict[str, Usage] = {}
    seconds: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    context_tokens: int = 0
    deterministic: bool = False


class Question(msgspec.Struct, frozen=True):
    """A question to measure with: its documents, gold answers (aliases included) and gold supporting documents.

    `supporting_facts` are (document id, sentence index) pairs; `triples` gold evidence where the data set has it.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    documents: tuple[Document, ...] = ()
    supporting_documents: tuple[str, ...] = ()
    supporting_facts: tuple[tuple[str, int], ...] = ()
    triples: tuple[Triple, ...] = ()
    kind: str = ""
