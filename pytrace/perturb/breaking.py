"""Chains of evidence broken on purpose, until a discriminator says that they are none any more.

Every question's course is a generator that offers its pieces and gets a verdict; the courses of all questions run side by side,
so that each round of verdicts is one call of the judge.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 4.2 (SenP, WordP) and appendix A (ERP, IntentP).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Literal

import msgspec

from pytrace.chain_of_evidence.discriminator import Discriminator, Verdict
from pytrace.chain_of_evidence.features import Features
from pytrace.documents.mentions import holds, holds_any, mentions, rng_of, surface
from pytrace.models.language_model import LanguageModel
from pytrace.perturb.model_rewriting import Job, Rewriting
from pytrace.perturb.pieces import Pieces, Sample, put
from pytrace.perturb.rewriting import Rewritten, blanked, broader, clauses_cut, joined, named, without
from pytrace.records import Feature

Kind = Literal["coe", "senp", "wordp", "erp", "intentp"]
KINDS: tuple[Kind, ...] = ("coe", "senp", "wordp", "erp", "intentp")

# Bounds on what a judge and a model are asked about one question: relations to remove, and sentences that may hold one.
_MOST_RELATIONS = 3
_MOST_SENTENCES = 4
# Of the ways to rewrite a sentence so many are tried before the last one, which leaves nothing but the nodes.
_MILDER = 2


class Broken(msgspec.Struct, frozen=True):
    """Pieces that are no chain of evidence any more, and what was done to them: see `records.Perturbation`."""

    pieces: Pieces
    removed: tuple[str, ...] = ()
    replaced: tuple[tuple[str, str, str], ...] = ()
    kept: tuple[str, ...] = ()
    missing: tuple[Feature, ...] = ()


# What came of a sample: the broken chain, or why it could not be broken.
Outcome = Broken | str
_Course = Generator[Pieces, Verdict, Outcome]


def break_chains(
    kind: Kind,
    samples: Sequence[Sample],
    discriminator: Discriminator,
    *,
    model: LanguageModel | None = None,
    seed: int = 0,
    tries: int = 8,
    threshold: float = 85.0,
    settled: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Break the chain of every sample in one way; what the discriminator is asked, it is asked about all of them at once."""
    if kind == "coe":
        for _ in samples:
            settled()
        return [Broken(sample.pieces) for sample in samples]
    if kind == "senp":
        courses = [_remove(sample, seed, tries, threshold) for sample in samples]
    elif kind == "wordp":
        nodes = list(dict.fromkeys(node for sample in samples for node in sample.surfaces))
        expressions = dict(zip(nodes, broader(nodes, model, seed=seed), strict=True))
        courses = [_replace(sample, expressions, seed, tries) for sample in samples]
    else:
        courses = _rewriting(kind, samples, discriminator, model, seed, tries)
    outcomes: dict[int, Outcome] = {}
    offered: dict[int, Pieces] = {}

    def proceed(at: int, verdict: Verdict | None) -> None:
        try:
            # A generator that has not begun takes no verdict but None.
            offered[at] = courses[at].send(verdict)  # type: ignore[arg-type]
        except StopIteration as stop:
            outcomes[at] = stop.value
            settled()

    for at in range(len(courses)):
        proceed(at, None)
    while offered:
        waiting, offered = offered, {}
        verdicts = discriminator.discriminate([samples[at].inquiry(pieces) for at, pieces in waiting.items()])
        for at, (verdict,) in zip(waiting, verdicts, strict=True):
            proceed(at, verdict)
    return [outcomes[at] for at in range(len(courses))]


def _remove(sample: Sample, seed: int, tries: int, threshold: float) -> _Course:
    nodes = [node for node in sample.features.nodes if not _is_answer(node, sample.stated)]
    candidates = [
        piece for piece in sample.pieces if any(mentions(piece.text, node, threshold=threshold) for node in nodes)
    ]
    if not candidates:
        return f"none of {len(sample.pieces)} sentences mentions one of {len(nodes)} evidence nodes"
    rng_of(seed, sample.question.id, "senp").shuffle(candidates)
    # Without the answer no reader can be right, so that a chain should rather break elsewhere.
    candidates.sort(key=lambda piece: holds_any(piece.shown, sample.stated))
    left = sample.pieces
    removed: list[str] = []
    for candidate in candidates[:tries]:
        if len(left) == 1:
            break
        left = tuple(piece for piece in left if piece is not candidate)
        removed.append(candidate.text)
        verdict = yield left
        # The same sentence may stand in two documents; as long as one is left nothing is removed.
        remains = any(sentence.casefold() in piece.shown.casefold() for sentence in removed for piece in left)
        if verdict.complete is False and not remains:
            return Broken(left, removed=tuple(removed), missing=verdict.missing)
    return f"still a chain of evidence after {len(removed)} of {len(sample.pieces)} sentences were removed"


def _is_answer(node: str, answers: Sequence[str]) -> bool:
    return any(holds(node, answer) and len(node) <= 1.5 * len(answer) for answer in answers) or any(
        node.casefold() == answer.casefold() for answer in answers
    )


def _replace(sample: Sample, expressions: dict[str, list[Rewritten]], seed: int, tries: int) -> _Course:
    nodes = list(sample.surfaces)
    if not nodes:
        return f"none of {len(sample.features.nodes)} evidence nodes stands in the sentences literally"
    rng_of(seed, sample.question.id, "wordp").shuffle(nodes)
    pieces = sample.pieces
    replaced: list[tuple[str, str, str]] = []
    for node in nodes[:tries]:
        gone = [node, *(before for before, _, _ in replaced)]
        for expression in expressions[node]:
            changed = put(pieces, [(node, expression.text)])
            # The node must be gone everywhere, and no expression may bring back one that was replaced before.
            if not any(holds(piece.shown, one) for piece in changed for one in gone) and _same_answers(sample, changed):
                break
        else:
            continue
        pieces = changed
        replaced.append((node, expression.text, expression.by))
        verdict = yield pieces
        if verdict.complete is False:
            standing = tuple(other for other in sample.surfaces if any(holds(piece.shown, other) for piece in pieces))
            return Broken(
                pieces, tuple(before for before, _, _ in replaced), tuple(replaced), standing, verdict.missing
            )
    return f"still a chain of evidence after {len(replaced)} of {len(nodes)} nodes were replaced"


def _same_answers(sample: Sample, pieces: Pieces) -> bool:
    """Whether the answers that the chain held stand as often in the changed pieces, none lost and none brought in."""

    def held(some: Pieces) -> list[list[bool]]:
        return [[holds(piece.shown, answer) for answer in sample.stated] for piece in some]

    return held(sample.pieces) == held(pieces)


# A feature to remove, and for each of the pieces that hold it the texts to try, by its place.
_Attempt = tuple[Feature, dict[int, list[Rewritten]]]


def _rewriting(
    kind: Kind,
    samples: Sequence[Sample],
    discriminator: Discriminator,
    model: LanguageModel | None,
    seed: int,
    tries: int,
) -> list[_Course]:
    """Find the sentences that hold each feature, and let the model rewrite all of them in one call."""
    job: Job = "unrelated" if kind == "erp" else "unintended"
    wanted = [_wanted(kind, sample) for sample in samples]
    verdicts = discriminator.discriminate(
        [
            (sample.question.question, features, [piece.shown for piece in sample.pieces])
            for sample, features in zip(samples, wanted, strict=True)
        ]
    )
    orders: dict[tuple[int, Feature], dict[int, Rewriting]] = {}
    by_model: dict[tuple[int, Feature, int], Rewriting] = {}
    for at, sample in enumerate(samples):
        for number, feature in enumerate(wanted[at].all):
            probabilities = [verdict.probabilities[number] or 0.0 for verdict in verdicts[at]]
            likely = sorted(range(len(probabilities)), key=probabilities.__getitem__, reverse=True)
            surely = _holding(sample, feature) or likely[:1]
            rewritings = orders[at, feature] = {}
            # Where the feature is still found, the sentence is next that held it most probably of the others.
            for index in [*surely, *(index for index in likely if index not in surely)][:_MOST_SENTENCES]:
                text = sample.pieces[index].text
                must_stay = [*sample.surfaces, *(sample.stated if kind == "erp" else ())]
                keep = tuple(dict.fromkeys(phrase for phrase in must_stay if holds(text, phrase)))
                rewritings[index] = Rewriting(job, text, keep, feature.statement)
                if index in surely:
                    by_model[at, feature, index] = rewritings[index]
    written = dict(zip(by_model, without(job, list(by_model.values()), model, seed=seed), strict=True))
    what = "relation between two nodes that the sentences hold" if kind == "erp" else "intent"
    courses = []
    for at, sample in enumerate(samples):
        attempts: list[_Attempt] = []
        for feature in wanted[at].all:
            texts = {
                index: [*written.get((at, feature, index), ()), *_by_rule(sample, feature, order)]
                for index, order in orders[at, feature].items()
            }
            attempts.append((feature, {index: ways for index, ways in texts.items() if ways}))
        attempts = [attempt for attempt in attempts if attempt[1]]
        courses.append(_rewrite(sample, attempts, tries, what))
    return courses


def _wanted(kind: Kind, sample: Sample) -> Features:
    """Return the features to remove: relations of which both nodes stand in the sentences, or the intent."""
    if kind == "intentp":
        return Features(sample.features.intent)
    texts = [piece.shown for piece in sample.pieces]
    held = [one for one in sample.features.relations if all(surface(node, texts) for node in one.nodes)]
    return Features(relations=tuple(held[:_MOST_RELATIONS]))


def _holding(sample: Sample, feature: Feature) -> list[int]:
    """Return the places of the sentences that a rule knows to hold a feature: both nodes, or the answer."""
    texts = [piece.text for piece in sample.pieces]
    if feature.kind == "intent":
        return [index for index, text in enumerate(texts) if holds_any(text, sample.stated)]

    def both(some: Sequence[str]) -> list[int]:
        return [index for index, text in enumerate(some) if all(surface(node, [text]) for node in feature.nodes)]

    # Where the title stands for one of the nodes, the sentence says the relation all the same.
    return both(texts) or both([piece.shown for piece in sample.pieces])


def _by_rule(sample: Sample, feature: Feature, order: Rewriting) -> list[Rewritten]:
    text = order.input
    if feature.kind == "relation":
        ends = [surface(node, [text]) for node in feature.nodes]
        ways = [joined(text, *ends)] if all(ends) else []
    else:
        ways = [blanked(text, sample.stated)]
    ways += [*clauses_cut(text, order.keep), *named(order.keep)]
    return [
        Rewritten(way, "rule")
        for way in dict.fromkeys(ways)
        if way and way != text and all(holds(way, phrase) for phrase in order.keep)
    ]


def _rewrite(sample: Sample, attempts: Sequence[_Attempt], tries: int, what: str) -> _Course:
    """Rewrite one sentence after the other until the feature is gone, each first in milder ways and then in the last one."""
    tried = 0
    for feature, texts in attempts:
        pieces = sample.pieces
        done: dict[int, Rewritten] = {}
        for index, ways in texts.items():
            # What is rewritten in vain stays rewritten in the last way, so that sentences that say the same fall one by one.
            for way in dict.fromkeys([*ways[:_MILDER], ways[-1]]):
                if tried == tries:
                    break
                changed = _with_text(pieces, index, way.text)
                if not _sound(sample, changed, {*done, index}):
                    continue
                tried += 1
                verdict = yield changed
                if feature in verdict.missing:
                    done[index] = way
                    replaced = tuple((sample.pieces[at].text, one.text, one.by) for at, one in sorted(done.items()))
                    return Broken(changed, (feature.statement,), replaced, sample.surfaces, verdict.missing)
            changed = _with_text(pieces, index, ways[-1].text)
            if _sound(sample, changed, {*done, index}):
                pieces, done[index] = changed, ways[-1]
    if not attempts:
        return f"no {what} could be removed from {len(sample.pieces)} sentences"
    return f"the {what} was still found after {tried} rewritings"


def _with_text(pieces: Pieces, index: int, text: str) -> Pieces:
    return (*pieces[:index], msgspec.structs.replace(pieces[index], text=text), *pieces[index + 1 :])


def _sound(sample: Sample, pieces: Pieces, chosen: Iterable[int]) -> bool:
    """Whether every node still stands somewhere, and no sentence is left as it was."""
    gone = {sample.pieces[index].text for index in chosen}
    return not any(piece.text in gone for piece in pieces) and all(
        any(holds(piece.shown, node) for piece in pieces) for node in sample.surfaces
    )
