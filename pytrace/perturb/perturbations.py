"""The data of the study: questions whose chains of evidence are broken, beside irrelevant text or misinformation.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
sections 4 to 7 and appendix A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pytrace.chain_of_evidence.discriminator import Discriminator
from pytrace.chain_of_evidence.feature_extraction import FeatureExtractor
from pytrace.documents.mentions import holds_any, rng_of
from pytrace.errors import InputError
from pytrace.models.language_model import LanguageModel
from pytrace.perturb.answer_types import Swap, swap_all
from pytrace.perturb.breaking import KINDS, Broken, Kind, break_chains
from pytrace.perturb.noise import Retrieve, fill, irrelevant, misinformation, swapped
from pytrace.perturb.perturbed_rows import NOISES, Noise, check_row, make_row
from pytrace.perturb.pieces import Piece, Sample, characters, make_sample, supporting_ids
from pytrace.perturb.rewriting import misstated
from pytrace.records import Feature, Perturbation, Question

__all__ = ["KINDS", "NOISES", "RATIOS", "Kind", "Noise", "PerturbReport", "Refusal", "Settings", "check_row", "perturb"]

RATIOS = (0.0, 0.25, 0.5, 0.75)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is made of each question: one row for every kind, noise and ratio.

    `tries` bounds how often a judge is asked about one chain, and `threshold` is the partial ratio (0 to 100) from which on a
    sentence mentions a node.
    """

    kinds: tuple[Kind, ...] = KINDS
    noises: tuple[Noise, ...] = NOISES
    ratios: tuple[float, ...] = RATIOS
    seed: int = 0
    tries: int = 8
    threshold: float = 85.0


class Refusal(msgspec.Struct, frozen=True):
    """Rows that were not made, and why; `kind` and `noise` are empty where it holds for all of them."""

    question_id: str
    reason: str
    kind: str = ""
    noise: str = ""


class PerturbReport(msgspec.Struct):
    """What `perturb` met on its way; it grows while rows are made.

    `chains` counts the questions whose supporting sentences are a chain of evidence, `unsound` the rows that did not keep what
    they claim and were not given out, with what was wrong in `faults`.
    """

    questions: int = 0
    chains: int = 0
    rows: int = 0
    unsound: int = 0
    refusals: list[Refusal] = []
    faults: list[str] = []


def perturb(
    questions: Sequence[Question],
    *,
    extractor: FeatureExtractor,
    discriminator: Discriminator,
    retrieve: Retrieve,
    model: LanguageModel | None = None,
    settings: Settings | None = None,
    pool: Sequence[str] | None = None,
    report: PerturbReport | None = None,
    settled: Callable[[], None] = lambda: None,
) -> Iterator[Question]:
    """Make the rows of the study of some questions."""
    # Only questions whose supporting sentences are a chain of evidence to the discriminator are used. Each chain is
    # broken in every wanted way, and noise is injected at every ratio. A row that cannot be made is refused with a
    # reason, and one that does not keep what it claims is not given out.
    chosen, counts = settings or Settings(), report if report is not None else PerturbReport()
    _check(chosen, questions)
    counts.questions += len(questions)
    study = _Study(extractor, discriminator, retrieve, model, chosen, counts, settled)
    return study.rows(questions, [answer for one in questions for answer in one.answers] if pool is None else pool)


def _check(settings: Settings, questions: Sequence[Question]) -> None:
    ids = Counter(question.id for question in questions)
    kinds, noises, ratios = map(len, (settings.kinds, settings.noises, settings.ratios))
    faults = [
        f"question id {name!r} occurs {count} times; give each question an id of its own"
        for name, count in ids.items()
        if count > 1
    ]
    faults += [
        f"ratio is {ratio}; the injected share of the characters lies from 0 to below 1, for instance 0.5"
        for ratio in settings.ratios
        if not 0 <= ratio < 1
    ]
    if settings.tries < 1:
        faults.append(f"tries is {settings.tries}; a judge has to be asked at least once")
    if not (kinds and noises and ratios):
        faults.append(f"{kinds} kinds, {noises} noises and {ratios} ratios were given; a row needs one of each")
    if faults:
        raise InputError(faults[0])


class _Noises(NamedTuple):
    """What may stand beside a question's chain: irrelevant sentences, a wrong answer, a model's statements of it."""

    sentences: list[Piece]
    wrong: Swap | None
    statements: list[str]


@dataclass(frozen=True)
class _Study:
    """Holds what all parts of making the rows need."""

    extractor: FeatureExtractor
    discriminator: Discriminator
    retrieve: Retrieve
    model: LanguageModel | None
    settings: Settings
    report: PerturbReport
    settled: Callable[[], None]

    def rows(self, questions: Sequence[Question], pool: Sequence[str]) -> Iterator[Question]:
        samples = self.samples(questions)
        if not samples:
            return
        outcomes = {
            kind: break_chains(
                kind, samples, self.discriminator, model=self.model, seed=self.settings.seed, tries=self.settings.tries,
                threshold=self.settings.threshold, settled=self.settled,
            )
            for kind in dict.fromkeys(self.settings.kinds)
        }  # fmt: skip
        noises = self.noises(samples, pool)
        for index, sample in enumerate(samples):
            for kind, broken in ((kind, by_sample[index]) for kind, by_sample in outcomes.items()):
                if isinstance(broken, str):
                    self.report.refusals.append(Refusal(sample.question.id, broken, kind))
                    continue
                for row in self.rows_of(sample, kind, broken, noises[index]):
                    faults = check_row(row)
                    if faults:
                        self.report.unsound += 1
                        self.report.faults += [f"{row.id}: {fault}" for fault in faults]
                        continue
                    self.report.rows += 1
                    yield row

    def samples(self, questions: Sequence[Question]) -> list[Sample]:
        """Return the questions whose supporting sentences are a chain of evidence."""
        extractions = self.extractor.extract([question.question for question in questions])
        samples = [
            make_sample(question, extraction.features)
            for question, extraction in zip(questions, extractions, strict=True)
        ]
        able = [sample for sample in samples if sample.question.answers and sample.pieces and sample.features.all]
        verdicts = self.discriminator.discriminate([sample.inquiry(sample.pieces) for sample in able])
        missing = {sample.question.id: verdict.missing for sample, (verdict,) in zip(able, verdicts, strict=True)}
        chains = []
        for sample in samples:
            reason = _unfit(sample, missing.get(sample.question.id, ()))
            if not reason:
                chains.append(sample)
                continue
            self.report.refusals.append(Refusal(sample.question.id, reason))
            for _ in dict.fromkeys(self.settings.kinds):
                self.settled()
        self.report.chains += len(chains)
        return chains

    def noises(self, samples: Sequence[Sample], pool: Sequence[str]) -> list[_Noises]:
        """Find what may stand beside each chain: one call of the retriever and few of the model for all of them."""
        wanted, seed = set(self.settings.noises), self.settings.seed
        largest = max(self.settings.ratios)
        nothing: list[list[Piece]] = [[] for _ in samples]
        needed = [round(characters(sample.pieces) * largest / (1 - largest)) for sample in samples]
        beside = bool(wanted & {"irrelevant", "swapped"}) and largest > 0
        sentences = irrelevant(samples, self.retrieve, needed=needed) if beside else nothing
        wrong: list[Swap | None] = [None] * len(samples)
        if wanted & {"misinformation", "swapped"}:
            answers = [sample.question.answers[0] for sample in samples]
            rngs = [rng_of(seed, sample.question.id, "wrong") for sample in samples]
            wrong = [
                # An alias of the right answer would be no wrong one.
                None if one is None or _meet(one.text, sample.question.answers) else one
                for one, sample in zip(swap_all(answers, rngs, pool=pool, model=self.model), samples, strict=True)
            ]
        inquiries = {
            at: (samples[at].question.question, one.text, samples[at].question.answers)
            for at, one in enumerate(wrong)
            if one is not None and "misinformation" in wanted and largest > 0
        }
        statements = dict(zip(inquiries, misstated(list(inquiries.values()), self.model, seed=seed), strict=True))
        return [_Noises(sentences[at], wrong[at], statements.get(at, [])) for at in range(len(samples))]

    def rows_of(self, sample: Sample, kind: Kind, broken: Broken, noises: _Noises) -> Iterator[Question]:
        for noise in dict.fromkeys(self.settings.noises):
            beside = self.beside(sample, kind, broken, noise, noises)
            if isinstance(beside, str):
                self.report.refusals.append(Refusal(sample.question.id, beside, kind, noise))
                continue
            chain, others = beside
            wrong = noises.wrong if noise != "irrelevant" else None
            claims = Perturbation(
                source=sample.question.id,
                kind=kind,
                noise=noise,
                ratio=0.0,
                measured=0.0,  # of what is injected, which is known when the row is made
                seed=self.settings.seed,
                hops=len(supporting_ids(sample.question)),
                features=sample.features.all,
                missing=chain.missing,
                removed=chain.removed,
                replaced=chain.replaced,
                kept=chain.kept,
                wrong_answer="" if wrong is None else wrong.text,
                wrong_answer_by="" if wrong is None else wrong.by,
            )
            holding = claims.wrong_answer if noise == "misinformation" else ""
            for ratio in dict.fromkeys(self.settings.ratios):
                injected = fill(characters(chain.pieces), others, ratio, holding=holding)
                if injected is None:
                    reason = (
                        f"{len(others)} texts to inject, with {characters(others):,} characters, give no share of "
                        f"{100 * ratio:g} % (within 2 points) beside the {characters(chain.pieces):,} characters of the chain"
                    )
                    self.report.refusals.append(Refusal(sample.question.id, reason, kind, noise))
                    continue
                yield make_row(sample.question, chain.pieces, injected, msgspec.structs.replace(claims, ratio=ratio))

    def beside(
        self, sample: Sample, kind: Kind, broken: Broken, noise: Noise, noises: _Noises
    ) -> tuple[Broken, list[Piece]] | str:
        """Return the chain as this noise wants it, and what may be injected; or why there can be no such row."""
        others = [
            piece
            for piece in noises.sentences
            if not (kind == "senp" and any(one.casefold() in piece.shown.casefold() for one in broken.removed))
        ]
        if noise == "irrelevant":
            return broken, others
        if noises.wrong is None:
            return f"no wrong answer of the type and form of {sample.question.answers[0]!r} was found"
        wrong = noises.wrong.text
        if noise == "misinformation":
            rng = rng_of(self.settings.seed, sample.question.id, kind, "templates")
            return broken, misinformation(broken.pieces, sample, wrong, noises.statements, rng)
        if not any(holds_any(piece.shown, sample.stated) for piece in sample.pieces):
            return f"the answer {sample.question.answers[0]!r} stands in none of {len(sample.pieces)} sentences, so it cannot be swapped"
        return _swap_chain(sample, broken, wrong), [piece for piece in others if not holds_any(piece.shown, [wrong])]


def _unfit(sample: Sample, missing: Sequence[Feature]) -> str:
    """Say why a question's supporting sentences are no chain of evidence; "" if they are one."""
    if not sample.question.answers:
        return "it has no answer"
    if not sample.pieces:
        return f"none of {len(sample.question.documents)} documents supports it"
    if not sample.features.all:
        return "no feature was found in it"
    if not missing:
        return ""
    shown = "; ".join(feature.statement for feature in missing)
    return f"its {len(sample.pieces)} sentences are no chain of evidence: {len(missing)} features lack ({shown})"


def _meet(text: str, answers: Sequence[str]) -> bool:
    return any(holds_any(text, [answer]) or holds_any(answer, [text]) for answer in answers)


def _swap_chain(sample: Sample, broken: Broken, wrong: str) -> Broken:
    """Swap the answer in a broken chain, and in what is told of its rewritten sentences."""
    rewritten = swapped([Piece("", after, "") for _, after, _ in broken.replaced], sample.stated, wrong)
    return msgspec.structs.replace(
        broken,
        pieces=swapped(broken.pieces, sample.stated, wrong),
        replaced=tuple(
            (before, piece.text, by) for (before, _, by), piece in zip(broken.replaced, rewritten, strict=True)
        ),
    )
