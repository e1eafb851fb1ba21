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
from pytrace.documents.mentions import holds, holds_any, mentions, replace, rng_of, surface
from pytrace.models.language_model import LanguageModel
from pytrace.perturb.pieces import Piece, Pieces, Sample, knowledge
from pytrace.perturb.rewriting import Order, Rewritten, blanked, broader, clauses_cut, joined, named, without
from pytrace.records import Feature

Kind = Literal["coe", "senp", "wordp", "erp", "intentp"]
KINDS: tuple[Kind, ...] = ("coe", "senp", "wordp", "erp", "intentp")

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
    courses: list[_Course]
    if kind == "coe":
        outcomes: list[Outcome] = [Broken(sample.pieces) for sample in samples]
        for _ in outcomes:
            settled()
        return outcomes
    if kind == "senp":
        courses = [_remove(sample, seed, tries, threshold) for sample in samples]
    elif kind == "wordp":
        courses = _replacing(samples, model, seed, tries)
    else:
        courses = _rewriting(kind, samples, discriminator, model, seed, tries)
    return _run(courses, samples, discriminator, settled)


def _run(
    courses: Sequence[_Course], samples: Sequence[Sample], discriminator: Discriminator, settled: Callable[[], None]
) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    offered: dict[int, Pieces] = {}

    def continue_thoughts(place: int, verdict: Verdict | None) -> None:
        course = courses[place]
        try:
            offered[place] = next(course) if verdict is None else course.send(verdict)
        except StopIteration as stop:
            outcomes[place] = stop.value
            settled()

    for place in range(len(courses)):
        continue_thoughts(place, None)
    while offered:
        waiting, offered = offered, {}
        verdicts = discriminator.discriminate(
            [
                (samples[at].question.question, samples[at].features, [knowledge(pieces)])
                for at, pieces in waiting.items()
            ]
        )
        for at, (verdict,) in zip(waiting, verdicts, strict=True):
            continue_thoughts(at, verdict)
    return [outcomes[place] for place in range(len(courses))]


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
    rest = sample.pieces
    removed: list[str] = []
    for piece in candidates[:tries]:
        if len(rest) == 1:
            break
        rest = tuple(one for one in rest if one is not piece)
        removed.append(piece.text)
        verdict = yield rest
        # The same sentence may stand in two documents; as long as one is left nothing is removed.
        left = any(gone.casefold() in one.shown.casefold() for gone in removed for one in rest)
        if verdict.complete is False and not left:
            return Broken(rest, removed=tuple(removed), missing=verdict.missing)
    return f"still a chain of evidence after {len(removed)} of {len(sample.pieces)} sentences were removed"


def _is_answer(node: str, answers: Sequence[str]) -> bool:
    return any(holds(node, answer) and len(node) <= 1.5 * len(answer) for answer in answers) or any(
        node.casefold() == answer.casefold() for answer in answers
    )


def _replacing(samples: Sequence[Sample], model: LanguageModel | None, seed: int, tries: int) -> list[_Course]:
    nodes = list(dict.fromkeys(node for sample in samples for node in sample.surfaces))
    expressions = dict(zip(nodes, broader(nodes, model, seed=seed), strict=True))
    return [_replace(sample, {node: expressions[node] for node in sample.surfaces}, seed, tries) for sample in samples]


def _replace(sample: Sample, expressions: dict[str, list[Rewritten]], seed: int, tries: int) -> _Course:
    nodes = list(sample.surfaces)
    if not nodes:
        return f"none of {len(sample.features.nodes)} evidence nodes stands in the sentences literally"
    rng_of(seed, sample.question.id, "wordp").shuffle(nodes)
    pieces = sample.pieces
    replaced: list[tuple[str, str, str]] = []
    for node in nodes[:tries]:
        fitting = next((made for one in expressions[node] if (made := _put(sample, pieces, node, one, replaced))), None)
        if fitting is None:
            continue
        pieces, one = fitting
        replaced.append((node, one.text, one.by))
        verdict = yield pieces
        if verdict.complete is False:
            gone = tuple(node for node, _, _ in replaced)
            kept = tuple(one for one in sample.surfaces if any(holds(piece.shown, one) for piece in pieces))
            return Broken(pieces, gone, tuple(replaced), kept, verdict.missing)
    return f"still a chain of evidence after {len(replaced)} of {len(nodes)} nodes were replaced"


def _put(
    sample: Sample, pieces: Pieces, node: str, by: Rewritten, before: Sequence[tuple[str, str, str]]
) -> tuple[Pieces, Rewritten] | None:
    """Replace a node everywhere, titles included; None if a node were still there or an answer no longer."""
    changed = tuple(
        msgspec.structs.replace(
            piece, title=replace(piece.title, node, by.text), text=replace(piece.text, node, by.text)
        )
        for piece in pieces
    )
    gone = [node, *(one for one, _, _ in before)]
    if any(holds(piece.shown, one) for piece in changed for one in gone) or not _same_answers(sample, changed):
        return None
    return changed, by


def _same_answers(sample: Sample, pieces: Pieces) -> bool:
    """Whether the answers that the chain held stand as often in the changed pieces, none lost and none brought in."""

    def held(some: Pieces) -> list[list[bool]]:
        return [[holds(piece.shown, answer) for answer in sample.stated] for piece in some]

    return held(sample.pieces) == held(pieces)


class _Attempt(msgspec.Struct, frozen=True):
    """A feature to remove, and for each of the pieces that hold it the texts to try, by its place."""

    feature: Feature
    texts: dict[int, list[Rewritten]]


def _rewriting(
    kind: Kind,
    samples: Sequence[Sample],
    discriminator: Discriminator,
    model: LanguageModel | None,
    seed: int,
    tries: int,
) -> list[_Course]:
    """Find the sentences that hold each feature, and let the model rewrite all of them in one call."""
    features = [_relations(sample) if kind == "erp" else _intent(sample) for sample in samples]
    ranked = _ranked(samples, features, discriminator)
    orders: dict[tuple[int, Feature, int], Order] = {}
    first: dict[tuple[int, Feature, int], Order] = {}
    for at, sample in enumerate(samples):
        for feature in features[at]:
            surely = _holding(sample, feature) or ranked[at, feature][:1]
            # Where the feature is still found, the sentence is next that held it most probably of the others.
            places = [*surely, *(place for place in ranked[at, feature] if place not in surely)]
            for number, place in enumerate(places[:_MOST_SENTENCES]):
                text = sample.pieces[place].text
                keep = [node for node in sample.surfaces if holds(text, node)]
                if kind == "erp":
                    keep += [answer for answer in sample.stated if holds(text, answer)]
                job: Literal["unrelated", "unintended"] = "unrelated" if kind == "erp" else "unintended"
                order = orders[at, feature, place] = Order(job, text, tuple(dict.fromkeys(keep)), feature.statement)
                if number < len(surely):
                    first[at, feature, place] = order
    written = dict(zip(first, without(list(first.values()), model, seed=seed), strict=True))
    attempts: list[list[_Attempt]] = [[] for _ in samples]
    for at, sample in enumerate(samples):
        for feature in features[at]:
            places = [place for one, other, place in orders if (one, other) == (at, feature)]
            texts = {
                place: [*written.get((at, feature, place), ()), *_by_rule(sample, feature, orders[at, feature, place])]
                for place in places
            }
            texts = {place: own for place, own in texts.items() if own}
            if texts:
                attempts[at].append(_Attempt(feature, texts))
    what = "relation between two nodes that the sentences hold" if kind == "erp" else "intent"
    return [_rewrite(sample, own, tries, what) for sample, own in zip(samples, attempts, strict=True)]


def _relations(sample: Sample) -> list[Feature]:
    texts = [piece.shown for piece in sample.pieces]
    return [one for one in sample.features.relations if all(surface(node, texts) for node in one.nodes)][
        :_MOST_RELATIONS
    ]


def _intent(sample: Sample) -> list[Feature]:
    return [Feature("intent", sample.features.intent)] if sample.features.intent else []


def _ranked(
    samples: Sequence[Sample], features: Sequence[Sequence[Feature]], discriminator: Discriminator
) -> dict[tuple[int, Feature], list[int]]:
    """Return the places of the sentences by how probably each holds a feature, the most probable first."""
    asked = [
        (sample.question.question, _only(own), [piece.shown for piece in sample.pieces])
        for sample, own in zip(samples, features, strict=True)
    ]
    found: dict[tuple[int, Feature], list[int]] = {}
    for at, verdicts in enumerate(discriminator.discriminate(asked)):
        for number, feature in enumerate(_only(features[at]).all):
            likely = [verdict.probabilities[number] or 0.0 for verdict in verdicts]
            found[at, feature] = sorted(range(len(likely)), key=lambda place, of=likely: -of[place])  # type: ignore[misc]
    return found


def _only(features: Sequence[Feature]) -> Features:
    intent = next((one.text for one in features if one.kind == "intent"), "")
    return Features(intent, (), tuple(one for one in features if one.kind == "relation"))


def _holding(sample: Sample, feature: Feature) -> list[int]:
    """Return the places of the sentences that a rule knows to hold a feature: both nodes, or the answer."""
    if feature.kind == "intent":
        return [place for place, piece in enumerate(sample.pieces) if holds_any(piece.text, sample.stated)]
    both = [
        place for place, piece in enumerate(sample.pieces) if all(surface(node, [piece.text]) for node in feature.nodes)
    ]
    # Where the title stands for one of the nodes, the sentence says the relation all the same.
    return both or [
        place
        for place, piece in enumerate(sample.pieces)
        if all(surface(node, [piece.shown]) for node in feature.nodes)
    ]


def _by_rule(sample: Sample, feature: Feature, order: Order) -> list[Rewritten]:
    text = order.sentence
    if feature.kind == "relation":
        ends = [surface(node, [text]) for node in feature.nodes]
        made = [joined(text, *ends)] if all(ends) else []
    else:
        made = [blanked(text, sample.stated)]
    made += [*clauses_cut(text, order.keep), *named(order.keep)]
    fitting = [
        one for one in dict.fromkeys(made) if one and one != text and all(holds(one, node) for node in order.keep)
    ]
    return [Rewritten(one, "rule") for one in fitting]


def _rewrite(sample: Sample, attempts: Sequence[_Attempt], tries: int, what: str) -> _Course:
    """Rewrite one sentence after the other until the feature is gone, each first in milder ways and then in the last one."""
    asked = 0
    for attempt in attempts:
        pieces = sample.pieces
        done: dict[int, Rewritten] = {}
        for place, texts in attempt.texts.items():
            for text in dict.fromkeys([*texts[:_MILDER], texts[-1]]):
                if asked == tries:
                    break
                changed = _with_text(pieces, place, text.text)
                if not _sound(sample, changed, {*done, place}):
                    continue
                asked += 1
                verdict = yield changed
                if attempt.feature in verdict.missing:
                    done[place] = text
                    replaced = tuple((sample.pieces[at].text, one.text, one.by) for at, one in sorted(done.items()))
                    return Broken(changed, (attempt.feature.statement,), replaced, sample.surfaces, verdict.missing)
            last = texts[-1]
            if _sound(sample, _with_text(pieces, place, last.text), {*done, place}):
                pieces, done[place] = _with_text(pieces, place, last.text), last
    if not attempts:
        return f"no {what} could be removed from {len(sample.pieces)} sentences"
    return f"the {what} was still found after {asked} rewritings"


def _with_text(pieces: Pieces, place: int, text: str) -> Pieces:
    return tuple(msgspec.structs.replace(piece, text=text) if at == place else piece for at, piece in enumerate(pieces))


def _sound(sample: Sample, pieces: Sequence[Piece], chosen: Iterable[int]) -> bool:
    """Whether every node still stands somewhere, and no sentence is left as it was."""
    gone = {sample.pieces[place].text for place in chosen}
    return not any(piece.text in gone for piece in pieces) and all(
        any(holds(piece.shown, node) for piece in pieces) for node in sample.surfaces
    )
