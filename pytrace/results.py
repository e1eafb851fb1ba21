"""`Request` and `Result`: what a question asks for, and the only schema of an answer.

`pytrace ask --json`, `pytrace search --json`, `/v1/ask`, `/v1/search`, the MCP tools, stored runs and reports all use `Result`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pytrace.check_records import Certificate, CheckedClaim
from pytrace.records import Document, FeatureCover, GraphCounts, Reasoning, Usage, WrittenTriples

VERSION = 1
"""Version of the schema. It grows when a field is removed, renamed or changes its meaning."""

Task = Literal["answer", "search", "judge"]
Certainty = Literal["high", "medium", "low", "unknown"]

HIGH, MEDIUM = 0.75, 0.5
"""Confidence from which an answer is called "high", and from which "medium"."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question or claim, and how to answer it.

    Attributes
    ----------
    question
        The question, or the claim to judge.
    task
        "answer" reads an answer, "search" finds evidence only, "judge" decides whether a claim holds.
    method
        Method name, with settings after a colon; "" is the task's default.
    settings
        `name=value` settings of the method.
    where
        Filters on document metadata, such as ``date>=2020``.
    documents
        Documents for this question only; None: the corpus of the call.
    passages
        Number of passages to give to the method, or to list for a search.
    chains
        Maximum number of chains in the result of a search.
    check
        Check the answer against its evidence.
    min_confidence
        Confidence below which no answer is given, from 0 to 1; None: the engine's `min_confidence`.
    """

    question: str
    task: Task = "answer"
    method: str = ""
    settings: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    documents: tuple[Document, ...] | None = None
    passages: int = 20
    chains: int = 3
    check: bool = False
    min_confidence: float | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A passage or document of the evidence.

    `title` is the heading path and `location` names file, page and headings. `characters` are start and end in the document's text,
    `relevance` is the search score, and `votes` is the number of chain steps from this source. `read` says whether the method read it.
    """

    id: str
    document: str
    title: str
    text: str
    location: str = ""
    characters: tuple[int, int] | None = None
    page: int | None = None
    relevance: float | None = None
    votes: int = 0
    read: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a chain: a sentence, or a triple and the sentence that supports it.

    Attributes
    ----------
    source
        Index of the passage in `Evidence.sources`; -1 if it is not known.
    sentence
        The sentence, or a heading.
    sentence_index
        Index of the sentence in its passage, from 0; -1 for the heading or the whole passage.
    location
        File, page and headings of the sentence.
    characters
        Start and end of the sentence in the text of its document.
    after
        Number of the step that led to this one, from 1; 0: the question.
    link
        Name or words that link this step to the one that it comes after.
    answer
        Start and end of the answer in `sentence`, in characters.
    triple
        Head, relation and tail, if the step is a triple.
    probability
        Probability of this step in the method's search, for `--explain`.
    """

    source: int
    sentence: str
    sentence_index: int = -1
    location: str = ""
    characters: tuple[int, int] | None = None
    after: int = 0
    link: str = ""
    answer: tuple[int, int] | None = None
    triple: tuple[str, str, str] | None = None
    probability: float | None = None


class EvidenceChain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Steps that lead to the answer.

    `rank` is the chain's rank in the method's search, from 1; 0 means that the chain was made for the answer. `score` is its log-probability in
    the search, for `--explain`.
    """

    steps: tuple[Step, ...]
    rank: int = 0
    score: float | None = None
    ended: bool = True


class Findings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The evidence of a result.

    The last step of the first chain holds the answer, if the answer is in the evidence. `context` is what the method read, if that is
    not the text of the sources. `details` are the method's features, triples, thoughts or queries, if it has any.
    """

    kind: str
    chains: tuple[EvidenceChain, ...] = ()
    sources: tuple[Source, ...] = ()
    context: tuple[str, ...] = ()
    details: FeatureCover | WrittenTriples | Reasoning | None = None
    graph: GraphCounts | None = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """Ids of the documents that were read, whole or as triples, best first."""
        return tuple(source.id for source in self.sources if source.read or source.votes)

    @property
    def read_texts(self) -> tuple[str, ...]:
        """The texts that the answer was read from."""
        return self.context or tuple(f"[{source.title}] {source.text}" for source in self.sources if source.read)

    @property
    def method_chains(self) -> tuple[EvidenceChain, ...]:
        """The chains of the method's own search, by rank."""
        return tuple(sorted((chain for chain in self.chains if chain.rank), key=lambda chain: chain.rank))


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of checking an answer: certificates of its reasoning, and verdicts on its claims."""

    certificates: tuple[Certificate, ...] = ()
    claims: tuple[CheckedClaim, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `Request`, with its evidence.

    Attributes
    ----------
    version
        Version of this schema.
    question
        The question as it was asked.
    read_as
        The question that was searched for, with misspelled names corrected.
    answer
        The answer; "" if there is none.
    confidence
        Calibrated probability that the answer is right, from 0 to 1; None if the method has no estimate.
    certainty
        `confidence` as a word.
    abstained
        Whether no answer is given; `reason` says why, and `withheld` is the answer that was not likely enough.
    method
        Method and settings.
    evidence
        What was found and read. After an abstention, `sources` are the closest passages.
    check
        Outcome of the check, if the request has `check`.
    notes
        Remarks about how the answer was reached.
    usage, seconds
        Language model tokens and wall-clock seconds, by stage.
    context_tokens
        Tokens of the evidence that was read; 0 if no language model counted them.
    deterministic
        Whether the same call gives bit-identical numbers.
    """

    version: int = VERSION
    question: str
    read_as: str = ""
    answer: str = ""
    confidence: float | None = None
    certainty: Certainty = "unknown"
    abstained: bool = False
    reason: str = ""
    withheld: str = ""
    method: str = ""
    evidence: Findings
    check: Check | None = None
    notes: tuple[str, ...] = ()
    usage: dict[str, Usage] = {}
    seconds: dict[str, float] = {}
    context_tokens: int = 0
    deterministic: bool = False


def certainty_of(confidence: float | None) -> Certainty:
    """Return a confidence as a word.

    Examples
    --------
    >>> certainty_of(0.83), certainty_of(0.6), certainty_of(0.2), certainty_of(None)
    ('high', 'medium', 'low', 'unknown')
    """
    if confidence is None:
        return "unknown"
    return "high" if confidence >= HIGH else "medium" if confidence >= MEDIUM else "low"


def confidence_words(result: Result) -> str:
    """Return the confidence of a result as a word and a percentage; "unknown" if there is none.

    Examples
    --------
    >>> confidence_words(Result(question="?", confidence=0.512, certainty="medium", evidence=Findings(kind="none")))
    'medium (51 %)'
    """
    return result.certainty if result.confidence is None else f"{result.certainty} ({100 * result.confidence:.0f} %)"
