"""Discriminative evaluation: how well a model tells valid reasoning paths from invalid ones of each kind.

Source: section 3.1 and Table 6 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path as FilePath
from typing import Literal

import msgspec

from pytrace.certify.certificate_records import GoldQuestion
from pytrace.certify.corruption import (
    GoldPath,
    InvalidPath,
    Refusal,
    read_gold,
    replace_entity,
    shuffle_triples,
    take_other_path,
)
from pytrace.certify.discriminative_rows import JudgedPath, ModeRun, load_runs, run_settings, save_runs
from pytrace.certify.gold_paths import first_of_each_path
from pytrace.certify.validity import MODES, Mode, PathDiscriminator, PathItem, PathKind
from pytrace.certify.wording import named_path
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase
from pytrace.models.language_model import LanguageModel
from pytrace.records import Usage

KINDS: tuple[PathKind, ...] = ("valid", "factual", "incoherent", "misguided")

# The normal distribution lies within so many standard deviations with probability 0.95.
_Z = 1.959963984540054


class PathSet(msgspec.Struct, frozen=True):
    """Paths to judge, and why some questions have no path of a kind; `questions` counts those looked at."""

    questions: int
    items: tuple[PathItem, ...]
    refusals: tuple[Refusal, ...]


class Accuracy(msgspec.Struct, frozen=True):
    """How many of some paths were judged rightly; `low` and `high` are the ends of the 95 % interval (None: no paths).

    An undecided judgement is not right.
    """

    kind: PathKind | Literal["all"]
    paths: int
    right: int
    undecided: int
    accuracy: float | None
    low: float | None
    high: float | None


class ModeReport(msgspec.Struct, frozen=True):
    """What came of one mode.

    `balanced_accuracy` is the mean of the accuracy on valid and on invalid paths: 0.5 for a model that always says the
    same. `yes` is the share of paths that were called valid. Both are None where there are no such paths.
    """

    mode: Mode
    kinds: tuple[Accuracy, ...]
    overall: Accuracy
    balanced_accuracy: float | None
    yes: float | None
    usage: Usage


class DiscriminativeReport(msgspec.Struct, frozen=True):
    """A discriminative evaluation: what was judged, what could not be made and why, figures by mode, and all judgements.

    `refused` counts the refusals by kind; where it is "valid" the question has no path at all.
    """

    model: str
    seed: int
    calibrated: bool
    questions: int
    paths: int
    refused: dict[str, int]
    refusals: tuple[Refusal, ...]
    modes: tuple[ModeReport, ...]
    rows: tuple[JudgedPath, ...]


def make_items(
    base: KnowledgeBase,
    questions: Iterable[GoldQuestion],
    *,
    seed: int = 0,
    limit: int | None = None,
    distinct: bool = False,
) -> PathSet:
    """Make a valid path and one invalid path of each kind for every question."""
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; ask about 1 question or more")
    everything = _checked(questions)
    chosen = (first_of_each_path(everything) if distinct else everything)[:limit]
    read = {one.id: read_gold(base, one) for one in everything}
    others = [found for found in read.values() if isinstance(found, GoldPath)]
    items: list[PathItem] = []
    refusals: list[Refusal] = []
    for question in chosen:
        gold = read[question.id]
        if isinstance(gold, Refusal):
            refusals.append(gold)
            continue
        made = (
            replace_entity(base, gold, seed=seed),
            shuffle_triples(gold, seed=seed),
            take_other_path(gold, others, seed=seed),
        )
        items.append(_item(base, gold, None))
        items += [_item(base, gold, one) for one in made if isinstance(one, InvalidPath)]
        refusals += [one for one in made if isinstance(one, Refusal)]
    return PathSet(len(chosen), tuple(items), tuple(refusals))


def _checked(questions: Iterable[GoldQuestion]) -> list[GoldQuestion]:
    everything = list(questions)
    again = [name for name, count in Counter(one.id for one in everything).items() if count > 1]
    if again:
        raise InputError(
            f"{len(again)} ids are of several questions, for instance {again[0]!r}; give each an id of its own"
        )
    return everything


def _item(base: KnowledgeBase, gold: GoldPath, made: InvalidPath | None) -> PathItem:
    return PathItem(
        gold.question.id,
        "valid" if made is None else made.kind,
        gold.question.question,
        gold.answer,
        named_path(base, gold.path if made is None else made.path),
        made,
    )


def evaluate_discriminative(
    base: KnowledgeBase,
    questions: Iterable[GoldQuestion],
    model: LanguageModel,
    *,
    modes: Sequence[Mode] = MODES,
    seed: int = 0,
    limit: int | None = None,
    distinct: bool = False,
    calibrated: bool = False,
    out: FilePath | None = None,
    resume: bool = False,
    done: Callable[[Mode], None] | None = None,
) -> DiscriminativeReport:
    """Let a model judge valid and invalid paths, and count how often it is right."""
    # Section 3.1 of the paper; decoding is greedy, where the paper samples.
    modes = tuple(dict.fromkeys(modes))
    if not modes:
        raise InputError(f"no mode is asked for; name at least one of {', '.join(MODES)}")
    judges = {mode: PathDiscriminator(model, mode=mode, calibrated=calibrated) for mode in modes}
    made = make_items(base, questions, seed=seed, limit=limit, distinct=distinct)
    if not made.items:
        why = f" ({made.refusals[0].question_id}: {made.refusals[0].reason})" if made.refusals else ""
        raise InputError(
            f"none of {made.questions} questions has a gold path that the graph bears out{why}; check that both fit"
        )
    settings = run_settings(made.items, model, seed=seed, limit=limit, distinct=distinct, calibrated=calibrated)
    runs = {} if out is None else load_runs(out, settings, resume=resume)
    if out is not None:
        save_runs(out, settings, runs)  # a file that cannot be written is found before the model works
    for mode in modes:
        if mode not in runs:
            runs[mode] = _ask(judges[mode], mode, made.items, model)
            if out is not None:
                save_runs(out, settings, runs)
        if done is not None:
            done(mode)
    return DiscriminativeReport(
        model=model.name,
        seed=seed,
        calibrated=calibrated,
        questions=made.questions,
        paths=len(made.items),
        refused=dict(Counter(one.kind for one in made.refusals)),
        refusals=made.refusals,
        modes=tuple(report_mode(runs[mode]) for mode in modes),
        rows=tuple(row for mode in modes for row in runs[mode].rows),
    )


def _ask(judge: PathDiscriminator, mode: Mode, items: Sequence[PathItem], model: LanguageModel) -> ModeRun:
    before = model.usage
    rows = []
    for item, judgement in zip(items, judge.judge(items), strict=True):
        right = judgement.verdict == ("yes" if item.kind == "valid" else "no")
        rows.append(JudgedPath(mode, right, item, judgement))
    return ModeRun(mode, model.usage - before, tuple(rows))


def report_mode(run: ModeRun) -> ModeReport:
    """Count the judgements of a mode."""
    kinds = tuple(_accuracy(kind, [row for row in run.rows if row.item.kind == kind]) for kind in KINDS)
    invalid = _accuracy("all", [row for row in run.rows if row.item.kind != "valid"])
    valid = kinds[0]
    balanced = None
    if valid.accuracy is not None and invalid.accuracy is not None:
        balanced = (valid.accuracy + invalid.accuracy) / 2
    said = sum(row.judgement.verdict == "yes" for row in run.rows)
    yes = said / len(run.rows) if run.rows else None
    return ModeReport(run.mode, kinds, _accuracy("all", run.rows), balanced, yes, run.usage)


def _accuracy(kind: PathKind | Literal["all"], rows: Sequence[JudgedPath]) -> Accuracy:
    right = sum(row.right for row in rows)
    undecided = sum(row.judgement.verdict == "undecided" for row in rows)
    if not rows:
        return Accuracy(kind, 0, 0, 0, None, None, None)
    return Accuracy(kind, len(rows), right, undecided, right / len(rows), *wilson_interval(right, len(rows)))


def wilson_interval(right: int, of: int) -> tuple[float, float]:
    """Return where a share lies with a confidence of 95 %."""
    # Wilson, "Probable inference, the law of succession, and statistical inference" (JASA 1927): unlike the usual
    # interval it holds for few trials and for shares of 0 and 1.
    share = right / of
    middle = share + _Z * _Z / (2 * of)
    width = _Z * math.sqrt((share * (1 - share) + _Z * _Z / (4 * of)) / of)
    scale = 1 + _Z * _Z / of
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)
