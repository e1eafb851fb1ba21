"""Judgements of paths on disk: a JSON lines file that a run writes anew after each mode, and goes on from.

The first line says what the run is and which modes are finished, with what they cost; every other line is one judgement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar

import msgspec

from pytrace.certify.validity import Mode, PathItem, PathJudgement
from pytrace.errors import DataError, StoreError
from pytrace.models.language_model import LanguageModel
from pytrace.records import Usage
from pytrace.triples.graph.database import dump_json
from pytrace.triples.graph.exchange import atomic_output, input_errors, read_lines

_Line = TypeVar("_Line", bound=msgspec.Struct)


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


class _Header(msgspec.Struct):
    pytrace_discriminate: Literal[1]
    settings: dict[str, Any]
    modes: dict[Mode, Usage]


def run_settings(
    items: Sequence[PathItem],
    model: LanguageModel,
    *,
    seed: int,
    limit: int | None,
    distinct: bool,
    calibrated: bool,
) -> dict[str, Any]:
    """Return all that judgements depend on but the mode: two parts of one run must have the same.

    Parameters
    ----------
    items
        The paths, which stand for the graph and the questions that they were made of.
    model
        The language model.
    seed, limit, distinct, calibrated
        As for `pytrace.certify.discriminative.evaluate_discriminative`.

    Returns
    -------
    dict
        JSON values.
    """
    digest = hashlib.sha256()
    for item in items:
        digest.update(dump_json(item).encode() + b"\n")
    return {
        "paths": len(items),
        "seed": seed,
        "limit": limit,
        "distinct": distinct,
        "calibrated": calibrated,
        "language model": model.fingerprint,
        "context": model.context_tokens,
        "content of the paths": digest.hexdigest(),
    }


def save_runs(path: FilePath, settings: Mapping[str, Any], runs: Mapping[Mode, ModeRun]) -> None:
    """Write finished modes; the file changes in one step.

    Parameters
    ----------
    path
        The file.
    settings
        What `run_settings` returned.
    runs
        All modes that are finished.

    Raises
    ------
    StoreError
        The file cannot be written.
    """
    with input_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    header = _Header(1, dict(settings), {mode: run.usage for mode, run in runs.items()})
    with atomic_output(path) as stream:
        stream.write(dump_json(header).encode() + b"\n")
        for run in runs.values():
            for row in run.rows:
                stream.write(dump_json(row).encode() + b"\n")


def load_runs(path: FilePath, settings: Mapping[str, Any], *, resume: bool) -> dict[Mode, ModeRun]:
    """Read the modes that a file holds.

    Parameters
    ----------
    path
        The file; it need not be there.
    settings
        Those of the run that wants to go on.
    resume
        Whether to go on with what is there.

    Returns
    -------
    dict
        The finished modes; empty if there is no file.

    Raises
    ------
    StoreError
        There is a file and `resume` is false, or it is of a run with other settings, or the path is no file's.
    DataError
        The file cannot be read, or a line of it is none of a run's.
    """
    if not path.exists():
        return {}
    if not path.is_file():
        message = f"{path} is {'a directory' if path.is_dir() else 'no regular file'}; name a file for the judgements"
        raise StoreError(message)
    if not resume:
        message = f"{path} is there already; resume it (--resume), or name another file"
        raise StoreError(message)
    header: _Header | None = None
    rows: dict[Mode, list[JudgedPath]] = {}
    with input_errors(path):
        for number, text in read_lines(path):
            if header is None:
                header = _parse(text, _Header, path, number)
                rows = {mode: [] for mode in header.modes}
                continue
            row = _parse(text, JudgedPath, path, number)
            if row.mode not in rows:
                message = f"a judgement of {row.mode}, which the first line does not name; judge into another file"
                raise DataError(message, path=path, line=number)
            rows[row.mode].append(row)
    if header is None:
        message = "is empty, so there is nothing to go on with; remove it, or name another file"
        raise DataError(message, path=path)
    _check(path, header.settings, settings, rows)
    return {mode: ModeRun(mode, usage, tuple(rows[mode])) for mode, usage in header.modes.items()}


def _check(
    path: FilePath, held: Mapping[str, Any], settings: Mapping[str, Any], rows: Mapping[Mode, Sequence[JudgedPath]]
) -> None:
    different = [
        f"{name} was {held.get(name)!r} and is now {settings.get(name)!r}"
        for name in {**settings, **held}
        if held.get(name) != settings.get(name)
    ]
    if different:
        message = f"{path} holds a run with other settings ({different[0]}); set them back, or name another file"
        raise StoreError(message)
    for mode, judged in rows.items():
        if len(judged) != settings["paths"]:
            message = (
                f"{path} has {len(judged)} judgements of {mode} where {settings['paths']} are wanted; it was cut off or "
                "changed: remove it, or name another file"
            )
            raise StoreError(message)


def _parse(text: str, kind: type[_Line], path: FilePath, line: int) -> _Line:
    try:
        # The standard library takes escaped lone surrogates, which msgspec does not.
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        message = f"no line of a run of 'pytrace certify discriminate' ({error}); name another file"
        raise DataError(message, path=path, line=line) from None
