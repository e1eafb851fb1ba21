"""Discriminative evaluation: how well a model tells valid reasoning paths from invalid ones of each kind."""

# Source: section 3.1 and Table 6 of the paper.

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar

import msgspec

from pytrace.certify.corruption import (
    Corruption,
    GoldPath,
    InvalidPath,
    Refusal,
    corrupt_at_random,
    read_gold,
    replace_entity,
    shuffle_triples,
    take_other_path,
)
from pytrace.certify.gold_paths import first_of_each_path
from pytrace.certify.validity import MODES, Mode, PathDiscriminator, PathItem, PathJudgement, PathKind
from pytrace.certify.wording import named_path
from pytrace.check_records import GoldQuestion
from pytrace.errors import DataError, InputError, StoreError
from pytrace.evaluation.scores.significance import share_with_interval
from pytrace.kg import KnowledgeBase
from pytrace.models.language_model import LanguageModel
from pytrace.records import Usage
from pytrace.storage.files import atomic_output
from pytrace.storage.foreign_json import decode_json
from pytrace.storage.text import dump_json
from pytrace.triples.graph.exchange import input_errors, read_lines

KINDS: tuple[PathKind, ...] = ("valid", "factual", "incoherent", "misguided")

_Line = TypeVar("_Line", bound=msgspec.Struct)


class PathSet(msgspec.Struct, frozen=True):
    """Paths to judge, and why some questions have no path of a kind; `questions` counts those looked at."""

    questions: int
    items: tuple[PathItem, ...]
    refusals: tuple[Refusal, ...]


class JudgedPath(msgspec.Struct, frozen=True):
    """One path, what the model said of it in one mode, and whether that is right."""

    mode: Mode
    right: bool
    item: PathItem
    judgement: PathJudgement


class ModeRun(msgspec.Struct, frozen=True):
    """All judgements of one mode, and what they cost."""

    mode: Mode
    usage: Usage
    rows: tuple[JudgedPath, ...]


class Accuracy(msgspec.Struct, frozen=True):
    """How many of some paths were judged rightly, with the ends of the 95 % interval; None where there are no paths."""

    kind: PathKind | Literal["all"]
    paths: int
    right: int
    undecided: int  # not right either
    accuracy: float | None
    low: float | None
    high: float | None


class ModeReport(msgspec.Struct, frozen=True):
    """What came of one mode; shares are None where there are no such paths."""

    mode: Mode
    kinds: tuple[Accuracy, ...]
    overall: Accuracy
    balanced_accuracy: float | None  # the mean on valid and on invalid paths: 0.5 for a model that always says the same
    yes: float | None  # the share of paths that were called valid
    usage: Usage


class DiscriminativeReport(msgspec.Struct, frozen=True):
    """A discriminative evaluation: what was judged, what could not be made and why, figures by mode, and all judgements."""

    model: str
    seed: int
    calibrated: bool
    questions: int
    paths: int
    refused: dict[str, int]  # refusals by kind; where it is "valid" the question has no path at all
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
    corruption: Corruption = "strict",
) -> PathSet:
    """Make a valid path and one invalid path of each kind for every question."""
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; ask about 1 question or more")
    everything = list(questions)
    repeated = [id for id, count in Counter(question.id for question in everything).items() if count > 1]
    if repeated:
        raise InputError(
            f"{len(repeated)} ids are of several questions, for instance {repeated[0]!r}; give each an id of its own"
        )
    chosen = (first_of_each_path(everything) if distinct else everything)[:limit]
    read = {question.id: read_gold(base, question) for question in everything}
    # Misguided paths come from all questions, so that a limit changes none of the paths that it leaves.
    others = [gold for gold in read.values() if isinstance(gold, GoldPath)]
    items: list[PathItem] = []
    refusals: list[Refusal] = []
    for question in chosen:
        gold = read[question.id]
        if isinstance(gold, Refusal):
            refusals.append(gold)
            continue
        items.append(PathItem(question.id, "valid", question.question, gold.answer, named_path(base, gold.path)))
        made: Sequence[InvalidPath | Refusal] = (
            corrupt_at_random(base, gold, others, seed=seed)
            if corruption == "random"
            else (
                replace_entity(base, gold, seed=seed),
                shuffle_triples(gold, seed=seed),
                take_other_path(gold, others, seed=seed),
            )
        )
        for invalid in made:
            if isinstance(invalid, Refusal):
                refusals.append(invalid)
                continue
            steps = named_path(base, invalid.path)
            items.append(PathItem(question.id, invalid.kind, question.question, gold.answer, steps, invalid))
    return PathSet(len(chosen), tuple(items), tuple(refusals))


def evaluate_discriminative(
    base: KnowledgeBase,
    questions: Iterable[GoldQuestion],
    model: LanguageModel,
    *,
    modes: Sequence[Mode] = MODES,
    seed: int = 0,
    limit: int | None = None,
    distinct: bool = False,
    corruption: Corruption = "strict",
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
    made = make_items(base, questions, seed=seed, limit=limit, distinct=distinct, corruption=corruption)
    if not made.items:
        why = f" ({made.refusals[0].question_id}: {made.refusals[0].reason})" if made.refusals else ""
        raise InputError(
            f"none of {made.questions} questions has a gold path that the graph bears out{why}; check that both fit"
        )
    # All that judgements depend on but the mode: two parts of one run must have the same.
    settings = {
        "paths": len(made.items),
        "seed": seed,
        "limit": limit,
        "distinct": distinct,
        **({} if corruption == "strict" else {"corruption": corruption}),
        "calibrated": calibrated,
        "language model": model.fingerprint,
        "context": model.context_tokens,
        "content of the paths": hashlib.sha256(b"".join(map(_line, made.items))).hexdigest(),
    }
    runs = {} if out is None else _load_runs(out, settings, resume=resume)
    if out is not None:
        _save_runs(out, settings, runs)  # a file that cannot be written is found before the model works
    for mode in modes:
        if mode not in runs:
            before = model.usage
            rows = [
                JudgedPath(mode, judgement.verdict == ("yes" if item.kind == "valid" else "no"), item, judgement)
                for item, judgement in zip(made.items, judges[mode].judge(made.items), strict=True)
            ]
            runs[mode] = ModeRun(mode, model.usage - before, tuple(rows))
            if out is not None:
                _save_runs(out, settings, runs)
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


def report_mode(run: ModeRun) -> ModeReport:
    """Count the judgements of a mode."""
    kinds = tuple(_accuracy(kind, [row for row in run.rows if row.item.kind == kind]) for kind in KINDS)
    invalid = _accuracy("all", [row for row in run.rows if row.item.kind != "valid"])
    balanced = None
    if kinds[0].accuracy is not None and invalid.accuracy is not None:
        balanced = (kinds[0].accuracy + invalid.accuracy) / 2
    yes = sum(row.judgement.verdict == "yes" for row in run.rows) / len(run.rows) if run.rows else None
    return ModeReport(run.mode, kinds, _accuracy("all", run.rows), balanced, yes, run.usage)


def _accuracy(kind: PathKind | Literal["all"], rows: Sequence[JudgedPath]) -> Accuracy:
    right = sum(row.right for row in rows)
    undecided = sum(row.judgement.verdict == "undecided" for row in rows)
    return Accuracy(kind, len(rows), right, undecided, *share_with_interval(right, len(rows)))


class _Header(msgspec.Struct):
    """The first line of a file of judgements: what the run is, and which modes are finished, with what they cost."""

    pytrace_discriminate: Literal[1]
    settings: dict[str, Any]
    modes: dict[Mode, Usage]


def _save_runs(path: FilePath, settings: Mapping[str, Any], runs: Mapping[Mode, ModeRun]) -> None:
    # The whole file anew after each mode, for its first line names the modes: a mode counts when it is whole.
    with input_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    header = _Header(1, dict(settings), {mode: run.usage for mode, run in runs.items()})
    with atomic_output(path) as stream:
        stream.write(_line(header))
        for run in runs.values():
            stream.writelines(map(_line, run.rows))


def _load_runs(path: FilePath, settings: Mapping[str, Any], *, resume: bool) -> dict[Mode, ModeRun]:
    """Read the modes that a file holds."""
    if not path.exists():
        return {}
    if not path.is_file():
        raise StoreError(
            f"{path} is {'a directory' if path.is_dir() else 'no regular file'}; name a file for the judgements"
        )
    if not resume:
        raise StoreError(f"{path} is there already; resume it (--resume), or name another file")
    header, rows = _read_runs(path)
    held = header.settings
    # In the order of the settings, so that a seed is named before the digest of what it changes.
    different = [
        f"{name} was {held.get(name)!r} and is now {settings.get(name)!r}"
        for name in {**settings, **held}
        if held.get(name) != settings.get(name)
    ]
    if different:
        raise StoreError(
            f"{path} holds a run with other settings ({different[0]}); set them back, or name another file"
        )
    for mode, judged in rows.items():
        if len(judged) != settings["paths"]:
            raise StoreError(
                f"{path} has {len(judged)} judgements of {mode} where {settings['paths']} are wanted; it was cut off or "
                "changed: remove it, or name another file"
            )
    return {mode: ModeRun(mode, usage, tuple(rows[mode])) for mode, usage in header.modes.items()}


def read_modes(path: FilePath) -> tuple[ModeReport, ...]:
    """Read what came of each mode from a file of judgements.

    Raises
    ------
    DataError
        The file is no run of ``pytrace certify discriminate``, or is cut off.
    """
    header, rows = _read_runs(path)
    return tuple(report_mode(ModeRun(mode, usage, tuple(rows[mode]))) for mode, usage in header.modes.items())


def _read_runs(path: FilePath) -> tuple[_Header, dict[Mode, list[JudgedPath]]]:
    with input_errors(path):
        lines = read_lines(path)
        number, text = next(lines, (0, ""))
        if not number:
            raise DataError("is empty, so there is nothing to go on with; remove it, or name another file", path=path)
        header = _parse(text, _Header, path, number)
        rows: dict[Mode, list[JudgedPath]] = {mode: [] for mode in header.modes}
        for number, text in lines:
            row = _parse(text, JudgedPath, path, number)
            if row.mode not in rows:
                raise DataError(
                    f"a judgement of {row.mode}, which the first line does not name; judge into another file",
                    path=path,
                    line=number,
                )
            rows[row.mode].append(row)
    return header, rows


def _line(value: msgspec.Struct) -> bytes:
    return dump_json(value).encode() + b"\n"


def _parse(text: str, kind: type[_Line], path: FilePath, line: int) -> _Line:
    try:
        return decode_json(text, kind, surrogates=True)
    except ValueError as error:
        raise DataError(
            f"no line of a run of 'pytrace certify discriminate' ({error}); name another file", path=path, line=line
        ) from None
