"""Measures what a language model can do, on a few dozen labeled steps and documents of our own (`self_test.json`).

Two tests, of two minutes at most together: whether a model chooses the next triple by its letter and ends chains that answer their question,
and no others; and whether the triples that it writes about a text are sound. Each ability is decided by a sequential test between two
shares of right answers, that of chance and that of a useful model, as soon as one is likely enough.

Source: Wald, "Sequential Tests of Statistical Hypotheses" (1945), section 3.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources

import msgspec
import numpy as np

from pytrace.documents import split_sentences
from pytrace.errors import CancelledRequestError
from pytrace.kernels.fuzzy import partial_ratio
from pytrace.methods.trace.selector import BlackBoxSelector, Demonstrations, LetterSelector, Selector, Step
from pytrace.models.language_model import LanguageModel
from pytrace.models.request_context import RequestContext, request_context
from pytrace.reader.prompts import ChainDemonstration, TripleDemonstration
from pytrace.records import Candidate, Document, Triple
from pytrace.triples.kg_generator import LanguageModelExtractor

VERSION = 1
"""Of the questions and the rules; a verdict of another version is measured again."""
CHOICES_SECONDS, TRIPLES_SECONDS = 75.0, 45.0
"""Time limits of the two tests: together two minutes."""

# An ability is granted wrongly in 1 % of the tests, and denied wrongly in 5 %, if they run to a decision.
_GRANTED = math.log((1 - 0.05) / 0.01)
_DENIED = math.log(0.05 / (1 - 0.01))
# Where steps or time run out first, what is presumed needs odds of three to one against it.
_PRESUMED = math.log(3)
# Shares of right answers of a useful model. Chance chooses one in five candidates; SmolLM2-135M writes three in ten facts of a text.
_RIGHT_LETTERS = 0.5
_RIGHT_ENDS = 0.75
_FEW_FACTS, _MANY_FACTS = 0.3, 0.7
_OPTIONS = 5
# A tail as a text has it, and not half the sentence around it.
_SAME_TAIL, _LONGER_TAIL = 80.0, 20


class AbilityVerdict(msgspec.Struct, frozen=True):
    """Whether a model has an ability, how many of its answers were right, and the seconds that the whole test took.

    `decided` is false where steps or time ran out first.
    """

    able: bool
    right: int
    of: int
    decided: bool
    seconds: float


class ChainCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, the chain of triples that answers it, and other triples that do not belong there."""

    question: str
    chain: tuple[tuple[str, str, str], ...]
    others: tuple[tuple[str, str, str], ...]

    def step(self, *, finished: bool, place: int) -> tuple[Step, int]:
        """Return the step at which the chain is complete, or the one before with the right triple at a place among others."""
        chain = [Triple(*row) for row in self.chain]
        offered = [Triple(*row) for row in self.others[: _OPTIONS if finished else _OPTIONS - 1]]
        right = -1
        if not finished:
            right = place % _OPTIONS
            offered.insert(right, chain.pop())
        candidates = tuple(Candidate(triple, number, 0.0) for number, triple in enumerate(offered))
        return Step(self.question, tuple(chain), candidates), right


class FactCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fact of a text: its tail, and beginnings of words of which its relation has one."""

    relation: tuple[str, ...]
    tail: str


class DocumentCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A short text with all of its facts."""

    title: str
    text: str
    facts: tuple[FactCase, ...]


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a model is tested on."""

    questions: tuple[ChainCase, ...]
    documents: tuple[DocumentCase, ...]

    def pairs(self) -> Iterator[list[tuple[Step, int]]]:
        """Give pairs of steps behind chains of one length: a finished chain, and one that lacks its last triple."""
        # What is shown of a length has an ending and a choice, so that neither the length nor the examples tell the answer. One length
        # after the other, since all prompts of a length begin alike: a slow model reads that beginning once.
        by_length = [[row for row in self.questions if len(row.chain) == length] for length in (1, 2, 3)]
        for finished, unfinished in itertools.pairwise(by_length):
            for number, (whole, part) in enumerate(zip(finished, unfinished, strict=True)):
                yield [whole.step(finished=True, place=0), part.step(finished=False, place=number)]


@functools.cache
def cases() -> Cases:
    """Read the questions and documents that models are tested on."""
    return msgspec.json.decode((resources.files(__package__) / "self_test.json").read_bytes(), type=Cases)


class _Evidence:
    """What speaks for an ability so far: a sum of log-likelihood ratios."""

    def __init__(self) -> None:
        self.log_odds = 0.0
        self.right = self.of = 0

    def add(self, right: bool, chance: float, useful: float) -> None:
        """Count an answer that is right with one probability by chance, and with another if the model is useful."""
        if self.decided:  # what comes later has no part in a sequential test
            return
        self.right += right
        self.of += 1
        self.log_odds += math.log(useful / chance) if right else math.log((1 - useful) / (1 - chance))

    @property
    def decided(self) -> bool:
        return not _DENIED < self.log_odds < _GRANTED

    def verdict(self, started: float, *, presumed: bool) -> AbilityVerdict:
        able = self.log_odds > (-_PRESUMED if presumed else _PRESUMED)
        return AbilityVerdict(able, self.right, self.of, self.decided, round(time.monotonic() - started, 1))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End the calls of models inside when the time is over; what they were asked last is lost."""
    request = RequestContext()
    timer = threading.Timer(seconds, request.cancel)
    timer.daemon = True
    timer.start()
    try:
        with suppress(CancelledRequestError), request_context(request):
            yield
    finally:
        timer.cancel()


def measure_choices(
    model: LanguageModel, *, presumed: bool, seconds: float = CHOICES_SECONDS
) -> dict[str, AbilityVerdict]:
    """Measure whether a model chooses triples by letters, and whether it ends chains.

    Parameters
    ----------
    model
        The language model; without log-probabilities it writes its letters.
    presumed
        What holds if the answers that a model gives within the time speak neither for an ability nor against it.
    seconds
        Time limit.

    Returns
    -------
    dict of str to AbilityVerdict
        By the abilities ``"letters"`` and ``"ends"``.
    """
    shown = Demonstrations(2, labelled=_shown())
    selector: Selector = LetterSelector(model, shown) if model.gives_logits else BlackBoxSelector(model, shown)
    letters, ends = _Evidence(), _Evidence()
    started = time.monotonic()
    with _limited(seconds):
        for steps in cases().pairs():
            for (_, right), scores in zip(steps, selector.select([step for step, _ in steps]), strict=True):
                ends.add((int(scores.argmax()) == 0) == (right < 0), 0.5, _RIGHT_ENDS)
                if right >= 0:
                    among = scores[1:]
                    chosen = bool(np.isfinite(among).any()) and int(among.argmax()) == right
                    letters.add(chosen, 1 / _OPTIONS, _RIGHT_LETTERS)
            # Chains are ended by a letter, so that a model without letters ends none.
            if letters.decided and (ends.decided or letters.log_odds < 0):
                break
    verdict = letters.verdict(started, presumed=presumed)
    ended = ends.verdict(started, presumed=presumed)
    return {"letters": verdict, "ends": msgspec.structs.replace(ended, able=ended.able and verdict.able)}


def measure_triples(
    model: LanguageModel, *, presumed: bool, seconds: float = TRIPLES_SECONDS
) -> dict[str, AbilityVerdict]:
    """Measure whether a model writes the facts of short texts as triples; see `measure_choices`.

    Right is a fact that one of its triples states. Wrong are a fact that none does, a line that is no triple or says what the text
    does not, and a triple whose relation belongs to another tail.

    Returns
    -------
    dict of str to AbilityVerdict
        By the ability ``"triples"``.
    """
    shortest = sorted(TripleDemonstration.load(), key=lambda row: len(row.text))[:2]
    extractor = LanguageModelExtractor(model, demonstrations=2, labelled=shortest, heads="title")
    evidence = _Evidence()
    started = time.monotonic()
    with _limited(seconds):
        for number, row in enumerate(cases().documents):
            document = Document(str(number), row.title, tuple(split_sentences(row.text)))
            (extraction,) = extractor.extract([document])
            triples = [unit for unit in extraction.units if isinstance(unit, Triple)]
            for right in _marks(row, triples, extraction.statistics.dropped):
                evidence.add(right, _FEW_FACTS, _MANY_FACTS)
            if evidence.decided:
                break
    return {"triples": evidence.verdict(started, presumed=presumed)}


def _shown() -> list[ChainDemonstration]:
    """Return two labeled questions, the first with a chain of one triple and the second with one of three."""
    rows = ChainDemonstration.load()
    return [next(row for row in rows if len(row.chain) == length) for length in (1, 3)]


def _marks(row: DocumentCase, triples: list[Triple], dropped: int) -> Iterator[bool]:
    """Mark each fact of a text, and what a model wrote that is none of them."""
    left = list(triples)
    for fact in row.facts:
        stated = [triple for triple in left if _states(triple, fact)]
        if stated:
            left.remove(stated[0])
        yield bool(stated)
    # A fact that was labeled otherwise is neither right nor wrong.
    yield from itertools.repeat(False, dropped + sum(any(_ends_in(one, fact) for fact in row.facts) for one in left))


def _states(triple: Triple, fact: FactCase) -> bool:
    return _ends_in(triple, fact) and any(word in triple.relation.casefold() for word in fact.relation)


def _ends_in(triple: Triple, fact: FactCase) -> bool:
    tail, due = triple.tail.casefold(), fact.tail.casefold()
    return len(tail) <= len(due) + _LONGER_TAIL and partial_ratio(tail, due) >= _SAME_TAIL
