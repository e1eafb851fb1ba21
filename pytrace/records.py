"""The frozen records that cross from one module to the next.

Documents become triples, triples candidates, candidates chains, chains evidence, and evidence an answer. Every record
keeps where it came from, so that an answer can be followed back to a sentence of a document.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, NamedTuple

import msgspec

from pytrace.errors import InputError


class Sentence(msgspec.Struct, frozen=True):
    """One sentence of a document, with the document's title where it is known; `index` counts from 0 within it."""

    document_id: str
    index: int
    text: str
    title: str = ""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a passage stands: its document's id and title, the headings above it, and the page or slide on which it begins.

    `start` and `end` are characters of the text that was read, `sentences` where each sentence begins there, `pages` the page of
    each where they are on several. `metadata` is what the document says of itself: author, date and the like. `titled` is false
    where the document names no title and that of its file stands in. `names` are what else the passage tells of, by name.
    """

    document: str
    title: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    start: int = 0
    end: int = 0
    sentences: tuple[int, ...] = ()
    pages: tuple[int, ...] = ()
    metadata: dict[str, Any] = {}
    titled: bool = True
    names: tuple[str, ...] = ()


class Document(msgspec.Struct, frozen=True):
    """A titled text, already split into sentences: a whole document, or a passage of one, which has an `origin`.

    `source` says where it was read (file or ``file:line``). Raises InputError for one text in place of its sentences.
    """

    id: str
    title: str
    sentences: tuple[str, ...]
    source: str = ""
    origin: Origin | None = None

    def __post_init__(self) -> None:
        """Refuse a text, each character of which would be a sentence."""
        sentences: object = self.sentences
        if isinstance(sentences, str):
            raise InputError(
                f"the sentences of document {self.id!r} are one text; give a tuple of them, as "
                "pytrace.documents.split_sentences makes it"
            )

    @property
    def text(self) -> str:
        """The sentences joined by single spaces."""
        return " ".join(self.sentences)

    @property
    def is_passage(self) -> bool:
        """Whether it is a part of a document, and not all of one."""
        return self.origin is not None and self.origin.document != self.id

    def location(self, sentence: int = -1) -> str:
        """Return file, page and headings of the document, or of a sentence of it, as far as they are known."""
        origin = self.origin
        if origin is None:
            return self.source
        pages = origin.pages or (origin.page,)
        if 0 <= sentence < len(origin.sentences):
            pages = origin.pages[sentence : sentence + 1] or pages
        page = (
            "" if pages[0] is None else f", p. {pages[0]}" if pages[0] == pages[-1] else f", pp. {pages[0]}-{pages[-1]}"
        )
        headings = f", {' > '.join(origin.headings)}" if origin.headings else ""
        untitled = "" if origin.titled else " (untitled)"
        return f"{self.source}{untitled}{page}{headings}"

    def characters(self, sentence: int = -1) -> tuple[int, int] | None:
        """Return start and end of the document, or of a sentence of it, in the text that was read; None if they are not known."""
        origin = self.origin
        if origin is None:
            return None
        if 0 <= sentence < len(origin.sentences):
            start = origin.sentences[sentence]
            return start, start + len(self.sentences[sentence])
        return origin.start, origin.end

    def citation(self, sentence: int = -1) -> str:
        """Return `location` and `characters` in words."""
        place = self.characters(sentence)
        return (
            self.location(sentence) if place is None else f"{self.location(sentence)}, characters {place[0]}-{place[1]}"
        )

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
    """A fact: a head, a relation and a tail.

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
        """`<head; relation; tail>`, as prompts show it."""
        return f"<{self.head}; {self.relation}; {self.tail}>"


# A tuple, because JSON then tells it from a `Triple` without a tag in each.
class TextUnit(NamedTuple):
    """A sentence of a document, or all of it (`sentence` is -1), where evidence is made of text in place of triples."""

    title: str
    body: str
    document_id: str = ""
    sentence: int = -1

    @property
    def text(self) -> str:
        """`[title] body`, as prompts show it."""
        return f"[{self.title}] {self.body}"


Unit = Triple | TextUnit
"""What chains are made of."""


class Candidate(msgspec.Struct, frozen=True):
    """A unit that the ranker offers for the next step: its index among the question's units and its score."""

    unit: Unit
    index: int
    score: float


class Chain(msgspec.Struct, frozen=True):
    """A reasoning chain: its units in order, the log-probability of each step, and their sum.

    `finished` is true if the selector chose to end it; then `steps` has one entry more than `units`.
    """

    # Stored runs have called them so since before sentences and documents had a type of their own.
    units: tuple[Unit, ...] = msgspec.field(name="triples")
    steps: tuple[float, ...]
    score: float
    finished: bool


class Feature(msgspec.Struct, frozen=True):
    """What a question's evidence must hold: its intent, an evidence node, or a relation between two nodes.

    `text` is the intent or node as written, or the relation's description; `nodes` the two nodes of a relation, else empty.
    Source: "What External Knowledge is Preferred by LLMs?", section 3.1.
    """

    kind: Literal["intent", "relation", "node"]
    text: str
    nodes: tuple[str, ...] = ()

    @property
    def statement(self) -> str:
        """The feature in words: a relation between its nodes, anything else as it is."""
        return f"{self.nodes[0]} {self.text} {self.nodes[1]}" if len(self.nodes) == 2 else self.text


class Coverage(msgspec.Struct, frozen=True):
    """Which snippets of a pool hold a feature: places in the pool, with each snippet's probability (None: undecided).

    `covered_by` are those judged to hold it; `chosen` those of them that the reader sees, none if nobody covers it.
    """

    feature: Feature
    probabilities: tuple[float | None, ...]
    covered_by: tuple[int, ...]
    chosen: tuple[int, ...]


class Fact(msgspec.Struct, frozen=True):
    """A triple that a knowledge base gave, by its keys, and the sentence that it is worded as."""

    triple: Triple
    text: str


class KnowledgeQuery(msgspec.Struct, frozen=True):
    """One question to a knowledge base: what was asked, how it was written as a query, what it became and what came back.

    `place` is the thought's place in its chain, from 0, that `question` verifies (-1: the question to be answered itself).
    `written` is the generator's text, `sparql` what was run of it on `store`, with entities in the place of `links`: (mention,
    key, score from 0 to 1). `refused` are queries tried before, each with the reason. `values` are what the query asked for, by
    name; `outcome` says how it ended, and `reason` why it gave nothing or not all. `statement` is a sentence for what no triple
    states: the number of a COUNT, the yes or no of an ASK.
    Source: Chain of Knowledge, section 3.
    """

    place: int
    question: str
    store: str
    written: str = ""
    sparql: str = ""
    links: tuple[tuple[str, str, float], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    outcome: Literal["answered", "empty", "stopped", "refused"] = "refused"
    reason: str = ""
    statement: str = ""


class GraphCounts(msgspec.Struct, frozen=True):
    """The knowledge graph that a question's chains were searched in: entities, triples, and the share of possible edges.

    Source: TRACE, Appendix C.3, Table 5.
    """

    entities: int
    triples: int
    density: float


class ChainSearch(msgspec.Struct, frozen=True, tag="chains"):
    """Evidence found along chains, best first, with the counts of the graph that they were searched in (TRACE)."""

    chains: tuple[Chain, ...]
    graph: GraphCounts | None = None


class FeatureCover(msgspec.Struct, frozen=True, tag="features"):
    """Evidence that covers the question's features (ScopeCoE).

    `pool` are the retrieved snippets by rank, as (document id, index of the sentence; -1: all of the document).
    """

    coverage: tuple[Coverage, ...]
    pool: tuple[tuple[str, int], ...]


class WrittenTriples(msgspec.Struct, frozen=True, tag="triples"):
    """Evidence nearest to triples that a model wrote from the question, and these triples (KS-LLM)."""

    triples: tuple[Triple, ...]


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """The thoughts that led to evidence or answer, and what a knowledge base was asked about them, with the facts it gave."""

    rationale: tuple[str, ...] = ()
    queries: tuple[KnowledgeQuery, ...] = ()


class Evidence(msgspec.Struct, frozen=True):
    """What the reader sees: the context, the documents it rests on with their votes, and how it was found.

    `kind` tells what the context's entries are ("mixed": triples, then sentences; "facts": those of a knowledge base, in
    words; "none": there is no context). `derivation` is None where documents are read as they are. `relevance` is the score that a
    search gave each entry of the context, and `signals` what it says of the evidence as a whole, by name; empty if there was none.
    """

    kind: Literal["triples", "documents", "sentences", "mixed", "none", "facts"]
    context: tuple[str, ...]
    document_ids: tuple[str, ...]
    votes: dict[str, int] = {}
    derivation: ChainSearch | FeatureCover | WrittenTriples | Reasoning | None = None
    relevance: tuple[float, ...] = ()
    signals: dict[str, float] = {}

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The chains that it was found along; none if it was found otherwise."""
        return self.derivation.chains if isinstance(self.derivation, ChainSearch) else ()

    @property
    def reasoning(self) -> Reasoning:
        """The thoughts and queries that led to it; empty if there are none."""
        return self.derivation if isinstance(self.derivation, Reasoning) else Reasoning()


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


class AnswerPlace(msgspec.Struct, frozen=True):
    """Where an answer stands: in a sentence of a document (-1: in its title), from character `start` of that up to before `end`."""

    document_id: str
    sentence: int
    start: int
    end: int

    def cut(self, document: Document) -> tuple[str, str, str]:
        """Return what stands before the answer in its sentence, the answer as it stands there, and what is behind it."""
        said = document.title if self.sentence < 0 else document.sentences[self.sentence]
        return said[: self.start], said[self.start : self.end], said[self.end :]


class Answer(msgspec.Struct, frozen=True):
    """An answer with its evidence, the stages' model usage and wall-clock seconds, and notes worth telling.

    `context_tokens` counts the tokens of the evidence that the reader saw. `deterministic` tells how the model ran: true if
    the same call gives the same numbers to the last bit. `places` tells where an answer stands that was taken out of the evidence, and
    `probability` how likely it is right; a reader that writes freely knows neither.
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
    places: tuple[AnswerPlace, ...] = ()
    probability: float | None = None


class Perturbation(msgspec.Struct, frozen=True):
    """What was done to a question's evidence, so that each of its claims can be checked.

    `source` is the question's id before. `kind` says how its chain of evidence was broken ("coe": not at all; "senp": a
    sentence removed; "wordp": nodes replaced; "erp" and "intentp": sentences rewritten without a relation or the intent), and
    `noise` what stands beside it: "irrelevant" text, "misinformation", or ("swapped") irrelevant text while the chain itself
    gives the wrong answer. `ratio` is the claimed share of injected characters, `measured` the real one.

    `features` are the question's, `missing` those that the judge no longer found, `hops` its supporting documents. `removed`
    names the sentences, nodes, relation or intent that went, `replaced` (before, after, "rule" or "model") what stands instead,
    `kept` the nodes that must still be there. `pieces` and `injected` say where each document of the context came from, by its
    id: "chain:<document>#<sentence>", "retrieved:…", "swapped:…", "model" or "template".
    Source: "What External Knowledge is Preferred by LLMs?", sections 4 to 7.
    """

    source: str
    kind: Literal["coe", "senp", "wordp", "erp", "intentp"]
    noise: Literal["irrelevant", "misinformation", "swapped"]
    ratio: float
    measured: float
    seed: int
    hops: int = 1
    features: tuple[Feature, ...] = ()
    missing: tuple[Feature, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[tuple[str, str, str], ...] = ()
    kept: tuple[str, ...] = ()
    wrong_answer: str = ""
    wrong_answer_by: str = ""
    pieces: dict[str, str] = {}
    injected: dict[str, str] = {}


class Question(msgspec.Struct, frozen=True):
    """A question to measure with: its documents, gold answers (aliases included) and gold supporting documents.

    `supporting_facts` are (document id, sentence index) pairs; `triples` gold evidence where the data set has it;
    `perturbation` what was done to the documents on purpose. `grades` are (document id, how relevant) pairs of the supporting
    documents where the data set grades them. Of a corpus, supporting documents may be missing from
    `documents`. A question without answers measures which documents are chosen, and no more.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    documents: tuple[Document, ...] = ()
    supporting_documents: tuple[str, ...] = ()
    supporting_facts: tuple[tuple[str, int], ...] = ()
    triples: tuple[Triple, ...] = ()
    kind: str = ""
    perturbation: Perturbation | None = None
    grades: tuple[tuple[str, int], ...] = ()
