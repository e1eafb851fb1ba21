"""Records of checks: questions with gold paths, responses, certificates of reasoning, and claims compared with texts."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytrace.records import Triple

Path = tuple[Triple, ...]
"""A reasoning path: triples by the keys of a knowledge base, from the question's entity to the answer."""

ResponseKind = Literal["faithful", "unfaithful", "undecided", "abstained", "unstructured"]
"""The four kinds of section 4 of the paper, and undecided: steps that the graph says nothing about, and nothing against the others."""

ErrorKind = Literal["factual", "incoherent", "answer"]
"""Why a response is unfaithful, in the order in which it is looked at (Algorithm 2)."""

StepStatus = Literal["supported", "unsupported", "undecided"]
"""Whether the graph has a step: unsupported where it says otherwise, undecided where it says nothing of the step's entities or relation."""


class GoldQuestion(msgspec.Struct, frozen=True):
    """A question with its gold answers and reasoning paths, and the entities that it starts from (keys, may be empty)."""

    id: str
    question: str
    answers: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    topics: tuple[str, ...] = ()


class Response(msgspec.Struct, frozen=True):
    """What some model answered to a question, with the gold answers and paths as far as they are known.

    `sample` numbers several responses to one question from 0; they have the same `id`.
    """

    id: str
    question: str
    text: str
    answers: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    topics: tuple[str, ...] = ()
    sample: int = 0


def gold_row(question: GoldQuestion | Response) -> dict[str, object]:
    """Return the gold part of a row, as `pytrace.documents.gold_fields` reads it."""
    paths = [[(step.head, step.relation, step.tail) for step in path] for path in question.paths]
    return {"answers": question.answers, "gold_paths": paths, "topics": question.topics}


class Match(msgspec.Struct, frozen=True):
    """A triple beside a step: cosine of their vectors and how well the step names head and tail, the latter from 0 to 1."""

    number: int  # in the knowledge base
    triple: Triple  # with names in place of keys
    score: float  # Equation 2: the mean of cosine and both ratios
    cosine: float
    head_ratio: float
    tail_ratio: float
    head_found: bool  # well enough, and not as part of another entity's name
    tail_found: bool
    relation_found: bool = True  # whether the step's cosine with it is near enough to the nearest one's
    relation_cosine: float | None = (
        None  # of step and relation, both without entities; None where head or tail is not found
    )
    nearest_relation: str = ""  # the one that the step sounds most like
    nearest_cosine: float | None = None
    objection: str = ""  # what the step says against it though it names all of it: the other way round, not so, or more


class CertifiedStep(msgspec.Struct, frozen=True):
    """One step: the triple that fits it best, the next best, whether the graph has it, and in words why (not).

    `source` says where the document stands that the step comes from, "" if it is not known.
    """

    text: str
    status: StepStatus
    match: Match | None  # None only where there was nothing to compare
    runner_up: Match | None
    entities: tuple[str, ...]  # names of the graph's entities that the step mentions word for word
    follows: bool  # false where it does not go on from where the last one ended
    reason: str
    source: str = ""


class Certificate(msgspec.Struct, frozen=True):
    """What became of one response.

    `answer` is what the response concludes, `answer_correct` whether a gold answer is in it or it in one (None: no gold
    answers known). `reached` is the name of the entity that the steps end at. `edit_distance` counts the steps to add,
    remove or replace to have the nearest gold path (by the paper's rule: to add or remove, so that a step to replace counts twice), and `edit_rate` is the share of columns of their alignment that
    differ (both None: no gold path, or no steps). `reason` says in words why the response is of its kind.
    """

    id: str
    question: str
    text: str
    kind: ResponseKind
    error: ErrorKind | None
    steps: tuple[CertifiedStep, ...]
    answer: str
    answers: tuple[str, ...]
    answer_correct: bool | None
    reached: str
    edit_distance: int | None
    edit_rate: float | None
    gold_path: tuple[Triple, ...]
    reason: str
    sample: int = 0


ClaimLabel = Literal["supported", "contradicted", "not there"]
"""What a text says of a claim."""


class ClaimEvidence(msgspec.Struct, frozen=True):
    """A sentence that a claim was compared with, where it stands, and the date that its document gives itself, "" if none."""

    document: str  # its id
    title: str
    sentence: int
    text: str
    source: str
    date: str = ""


class OtherVerdict(msgspec.Struct, frozen=True):
    """What one more document says of a claim, by its nearest sentence: a label, and the probabilities as in `CheckedClaim`."""

    evidence: ClaimEvidence
    label: ClaimLabel
    supported: float
    contradicted: float


class CheckedClaim(msgspec.Struct, frozen=True):
    """What documents say of one claim.

    Attributes
    ----------
    text
        The claim.
    label
        Whether the documents support it, contradict it, or do not say.
    supported, contradicted
        The probabilities of these two; the rest is that they do not say.
    evidence
        The sentences that it was compared with, the best first; empty if no sentence shares a word with it.
    missing
        The words of it that these lack, as ``text[start:end]``.
    start, end
        Its place in the response, ``response[start:end]``.
    reason
        Why, in words.
    subject
        What the pronoun that it begins with was read as: the last name before it that a claim was about; "" if it begins with none.
    written
        Whether a model wrote it of what stands at its place.
    others
        What at most two other documents say of it, each by itself: those with a sentence that has its names and half of its words.
    """

    text: str
    label: ClaimLabel
    supported: float
    contradicted: float
    evidence: tuple[ClaimEvidence, ...]
    missing: tuple[tuple[int, int], ...]
    start: int
    end: int
    reason: str
    subject: str = ""
    written: bool = False
    others: tuple[OtherVerdict, ...] = ()

    @property
    def disagreeing(self) -> tuple[OtherVerdict, ...]:
        """The other documents that contradict what is supported here, or support what is contradicted."""
        opposite = {"supported": "contradicted", "contradicted": "supported"}.get(self.label)
        return tuple(other for other in self.others if other.label == opposite)
