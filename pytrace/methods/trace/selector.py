"""Which triple comes next: the triple selector, with three scorings behind one interface, and one without logits.

Source: TRACE, section 3.3 and Appendix B.2 (letters). Likelihood and pointwise mutual information (PMI) score the triples'
texts instead of letters, which small models judge far better; fusion adds the ranker's score.

A selector turns (question, chain, candidates) into log-probabilities over [stop, candidate 1, …, candidate K]; option 0 is
the paper's option A, "no need for additional knowledge triples".
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import LogitsUnavailableError
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import OPTION_LABELS, LanguageModel, Prompt, option_labels
from pytrace.reader.prompts import ChainDemonstration
from pytrace.records import Candidate, Unit

Scoring = Literal["letters", "likelihood", "pmi", "ranker"]
Layout = Literal["paper", "shared"]

LETTER_INSTRUCTION = (
    "Choose the knowledge triple that comes next in a reasoning path which answers the question. "
    "Answer with its letter only; answer A if the triples chosen so far are enough."
)
STOP_OPTION = "no need for additional knowledge triples"
STOP_TEXT = "\n\nQuestion:"
# The least log-probability that ending a chain counts with where others are compared with it.
_UNLIKELY = -100.0
# PMI's scores of texts without a question that are kept for later steps and questions: about 10 MB.
KNOWN_TEXTS = 65_536
# A letter by itself: "B", "(B)", "B." and "**B**", but not the first letter of "Because".
_WRITTEN_LETTER = re.compile(r"[\W_]*([A-Za-z])(?![^\W_])")


class Step(msgspec.Struct, frozen=True):
    """One choice to make: a question, the triples chosen so far, and the candidates for the next one."""

    question: str
    chain: tuple[Unit, ...]
    candidates: tuple[Candidate, ...]


class Selector(Protocol):
    """Scores the options of many steps at once."""

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return for every step float64 [1 + n_candidates]: logits of stopping and of each candidate."""
        ...


class Demonstrations:
    """Chooses labelled questions for a prompt: the nearest to the question, or the same ones for all."""

    def __init__(
        self, count: int = 3, *, encoder: Encoder | None = None, labelled: Sequence[ChainDemonstration] | None = None
    ) -> None:
        self._labelled = tuple(ChainDemonstration.load() if labelled is None else labelled)
        self._count = min(max(count, 0), len(self._labelled))
        self._encoder = encoder
        self._vectors: NDArray[np.float32] | None = None

    def choose(self, questions: Sequence[str]) -> list[tuple[ChainDemonstration, ...]]:
        """Return the demonstrations for each question, the nearest last."""
        if self._encoder is None or not self._count or not questions:
            return [self._labelled[: self._count]] * len(questions)
        if self._vectors is None:
            self._vectors = self._encoder.encode([row.question for row in self._labelled], kind="query")
        _, rows = top_k(self._encoder.encode(list(questions), kind="query"), self._vectors, self._count)
        return [tuple(self._labelled[i] for i in row[::-1].tolist()) for row in rows]


def _with_logits(model: LanguageModel) -> LanguageModel:
    if not model.gives_logits:
        raise LogitsUnavailableError(
            f"{model.name} gives no log-probabilities; use the black-box selector (scoring='black-box')"
        )
    return model


class LetterSelector:
    """Multiple choice by letter: the paper's selector, equation 5."""

    def __init__(
        self,
        model: LanguageModel,
        demonstrations: Demonstrations,
        *,
        layout: Layout = "paper",
        calibrated: bool = False,
    ) -> None:
        self._model = _with_logits(model)
        self._demonstrations = demonstrations
        self._layout = layout
        self._calibrated = calibrated

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return the letters' log-probabilities, A first."""
        shown = self._demonstrations.choose([step.question for step in steps])
        offers = offered(steps, self._layout)
        choices = list(zip(steps, shown, offers, strict=True))
        prompts = [letter_prompt(step, some, self._layout, offer) for step, some, offer in choices]
        if self._calibrated:
            prompts += [
                letter_prompt(msgspec.structs.replace(step, question="N/A"), some, self._layout, offer)
                for step, some, offer in choices
            ]
        positions = [_places(step, offer) for step, offer in zip(steps, offers, strict=True)]
        letters = [option_labels(len(offer) + 1) for offer in offers]
        labels = [
            [names[position] for position in some if position >= 0]
            for names, some in zip(letters, positions, strict=True)
        ]
        scores = self._model.score_options(prompts, labels * (2 if self._calibrated else 1))
        logits = []
        for index, some in enumerate(positions):
            values = scores[index].log_probabilities
            if self._calibrated:
                values = values - scores[index + len(steps)].log_probabilities
            row = np.full(len(some), -np.inf)
            row[np.asarray(some) >= 0] = values
            logits.append(row)
        return logits


class BlackBoxSelector:
    """One generated letter a step, where a back end gives no logits: one chain without alternatives.

    TRACE, Limitations (3). An answer that is no option ends the chain.
    """

    def __init__(self, model: LanguageModel, demonstrations: Demonstrations, *, layout: Layout = "paper") -> None:
        self._model = model
        self._demonstrations = demonstrations
        self._layout = layout

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return 0 for the option whose letter was written and -inf for the others."""
        shown = self._demonstrations.choose([step.question for step in steps])
        prompts = [letter_prompt(step, some, self._layout) for step, some in zip(steps, shown, strict=True)]
        results = []
        for step, completion in zip(steps, self._model.generate(prompts, max_tokens=3, stop=("\n",)), strict=True):
            labels = option_labels(len(step.candidates) + 1)
            match = _WRITTEN_LETTER.match(completion[0].text)
            written = match[1] if match else ""
            logits = np.full(len(labels), -np.inf)
            logits[next((labels.index(letter) for letter in (written, written.upper()) if letter in labels), 0)] = 0.0
            results.append(logits)
        return results


class TextSelector:
    """Scores the candidates' texts as the continuation of the question and the chain."""

    # Ending the chain is scored as a text too: what follows a finished chain in the demonstrations, the next question.
    # What PMI takes away does not depend on the question; it is found once for a triple after a chain and kept for
    # later steps and questions, except with a deterministic model, whose results must not depend on what was asked
    # before.

    def __init__(
        self,
        model: LanguageModel,
        demonstrations: Demonstrations,
        *,
        scoring: Literal["likelihood", "pmi"] = "pmi",
        ranker_weight: float = 0.0,
        stop_bias: float = 0.0,
    ) -> None:
        self._model = _with_logits(model)
        self._demonstrations = demonstrations
        self._scoring = scoring
        self._ranker_weight = ranker_weight
        self._stop_bias = stop_bias
        self._known: OrderedDict[bytes, float] = OrderedDict()

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return the scores of ending and of each candidate."""
        shown = self._demonstrations.choose([step.question for step in steps])
        prompts = [text_prompt(step.question, step.chain, some) for step, some in zip(steps, shown, strict=True)]
        texts = [[STOP_TEXT, *(f" {candidate.unit.text}" for candidate in step.candidates)] for step in steps]
        without = [text_prompt("", step.chain, some) for step, some in zip(steps, shown, strict=True)]
        unknown = self._unknown(without, texts) if self._scoring == "pmi" else {}
        scored = [
            np.array([score.log_probability for score in row])
            for row in self._model.score_continuations([*prompts, *unknown], [*texts, *unknown.values()])
        ]
        for (prompt, some_texts), values in zip(unknown.items(), scored[len(steps) :], strict=True):
            self._known |= zip((_key(prompt, text) for text in some_texts), values.tolist(), strict=True)
        results = []
        for index, step in enumerate(steps):
            logits = scored[index]
            if self._scoring == "pmi":
                logits = logits - np.array([self._known[_key(without[index], text)] for text in texts[index]])
            if self._ranker_weight:
                similarity = np.array([candidate.score for candidate in step.candidates])
                logits = fuse(logits, similarity, self._ranker_weight)
            logits[0] += self._stop_bias
            results.append(logits)
        while len(self._known) > (0 if self._model.deterministic else KNOWN_TEXTS):
            self._known.popitem(last=False)
        return results

    def _unknown(self, prompts: Sequence[str], texts: Sequence[Sequence[str]]) -> dict[str, list[str]]:
        """Return the texts whose score after a prompt without a question is still to be found, by prompt."""
        unknown: dict[str, dict[str, None]] = {}
        for prompt, some in zip(prompts, texts, strict=True):
            for text in some:
                key = _key(prompt, text)
                if key in self._known:
                    self._known.move_to_end(key)
                else:
                    unknown.setdefault(prompt, {})[text] = None
        return {prompt: list(some) for prompt, some in unknown.items()}


class ChunkedSelector:
    """Lets letters choose among more candidates than there are letters, in several prompts a step.

    The candidates are divided in their order into as few prompts of about the same length as hold them all, each with option A.
    Ending the chain is the same option in all of them, so that a candidate's score is its log-odds to it: with one prompt the
    distribution is the selector's own.
    """

    # For TRACE's ablation "w/o triple ranker" (section 4.2, RQ4), where all triples of a question are candidates, about
    # 80 to 150; the paper does not say how its letters tell them apart.

    def __init__(self, selector: Selector, *, most: int = len(OPTION_LABELS) - 1) -> None:
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        self._selector = selector
        self._most = most

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return 0 for ending and each candidate's log-odds to it."""
        counts = [max(-(-len(step.candidates) // self._most), 1) for step in steps]
        parts = [
            msgspec.structs.replace(
                step, candidates=tuple(step.candidates[position] for position in positions.tolist())
            )
            for step, count in zip(steps, counts, strict=True)
            for positions in np.array_split(np.arange(len(step.candidates)), count)
        ]
        rows = iter(self._selector.select(parts))
        results = []
        for count in counts:
            # A server may leave A out of its list; what is hopeless is as good as this unlikely.
            odds = [row[1:] - max(float(row[0]), _UNLIKELY) for row in islice(rows, count)]
            results.append(np.concatenate([[0.0], *odds]))
        return results


class RankerSelector:
    """The ranker's order alone (the paper's ablation "w/o triple selector"); never ends a chain by itself."""

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return the candidates' similarities as logits, and -inf for ending."""
        return [np.array([-np.inf, *(candidate.score for candidate in step.candidates)]) for step in steps]


def fuse(logits: NDArray[np.float64], similarity: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """Put text scores and similarities on one scale: z(text) + weight * z(similarity), over the candidates.

    The score of ending (entry 0) is placed on the same scale by the candidates' mean and spread; similarity says nothing
    of it, so it gets the mean.
    """
    candidates = logits[1:]
    if not len(candidates):
        return logits
    fused: NDArray[np.float64] = (logits - candidates.mean()) / _spread(candidates)
    fused[1:] += weight * (similarity - similarity.mean()) / _spread(similarity)
    return fused


def _spread(values: NDArray[np.float64]) -> float:
    """Return the standard deviation; 1 where values differ by rounding only, which must not be blown up."""
    deviation = float(values.std())
    return deviation if deviation > 1e-9 * max(1.0, float(np.abs(values).max())) else 1.0


def offered(steps: Sequence[Step], layout: Layout) -> list[tuple[Unit, ...]]:
    """Return the triples that each step's prompt lists: its own candidates, or those of all chains of its question."""
    listed = [tuple(candidate.unit for candidate in step.candidates) for step in steps]
    if layout == "paper":
        return listed
    best: dict[str, dict[Unit, float]] = {}
    for step in steps:
        scores = best.setdefault(step.question, {})
        for candidate in step.candidates:
            scores[candidate.unit] = max(candidate.score, scores.get(candidate.unit, -np.inf))
    most = len(OPTION_LABELS) - 1
    lists = {
        question: tuple(sorted(scores, key=lambda triple: -scores[triple])[:most]) for question, scores in best.items()
    }
    return [lists[step.question] for step in steps]


def _places(step: Step, offer: Sequence[Unit]) -> list[int]:
    """Return where the options of a step stand among the letters: 0 for ending, -1 for what is not offered."""
    position_of = {triple: position for position, triple in reversed(list(enumerate(offer, 1)))}
    return [0, *(position_of.get(candidate.unit, -1) for candidate in step.candidates)]


def _key(prompt: str, text: str) -> bytes:
    digest = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(b"\0" + text.encode("utf-8", "surrogatepass"))
    return digest.digest()


def letter_prompt(
    step: Step, shown: Sequence[ChainDemonstration], layout: Layout, offer: Sequence[Unit] | None = None
) -> Prompt:
    """Build the multiple-choice prompt; each demonstration shows the step at the same position (its last one if shorter)."""
    # `offer` lists other triples than the step's own candidates.
    position = len(step.chain)
    pairs = []
    for row in shown:
        index = min(position, len(row.steps) - 1)
        example = row.steps[index]
        pairs.append((_choice(row.question, row.chain[:index], example.candidates, layout), example.letter))
    triples = [candidate.unit for candidate in step.candidates] if offer is None else offer
    return Prompt(LETTER_INSTRUCTION, tuple(pairs), _choice(step.question, step.chain, triples, layout))


def text_prompt(question: str, chain: Sequence[Unit], shown: Sequence[ChainDemonstration]) -> str:
    """Build the text whose continuation is the next triple: questions with their facts, then this one."""
    # Without a question it is the same text with the question left out: what PMI compares with.
    return "\n\n".join([*(_facts(row.question, row.chain) for row in shown), _facts(question, chain)])


def _facts(question: str, chain: Sequence[Unit]) -> str:
    return f"Question: {question}".rstrip() + "\nFacts:" + "".join(f" {triple.text}" for triple in chain)


def _choice(question: str, chain: Sequence[Unit], candidates: Sequence[Unit], layout: Layout) -> str:
    options = [STOP_OPTION, *(triple.text for triple in candidates)]
    offered = [f"{label}. {text}" for label, text in zip(option_labels(len(options)), options, strict=True)]
    chosen = "Chosen so far: " + (", ".join(triple.text for triple in chain) or "nothing")
    query = f"Question: {question}"
    parts = [chosen, query, "Options:", *offered] if layout == "paper" else [query, "Options:", *offered, chosen]
    return "\n".join([*parts, "Next:"])
