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
from pytrace.storage.files import atomic_output
from pytrace.storage.text import dump_json
from pytrace.triples.graph.exchange import input_errors, read_lines

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
    """Return all that judgements depend on but the mode: two parts of one run must have the same."""
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
    """Write finished modes; the file changes in one step."""
    with input_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    header = _Header(1, dict(settings), {mode: run.usage for mode, run in runs.items()})
    with atomic_output(path) as stream:
        stream.write(dump_json(header).encode() + b"\n")
        for run in runs.values():
            for row in run.rows:
                stream.write(dump_json(row).encode() + b"\n")


def load_runs(path: FilePath, settings: Mapping[str, Any], *, resume: bool) -> dict[Mode, ModeRun]:
    """Read the modes that a file holds."""
    if not path.exists():
        return {}
    if not path.is_file():
        raise StoreError(
            f"{path} is {'a directory' if path.is_dir() else 'no regular file'}; name a file for the judgements"
        )
    if not resume:
        raise StoreError(f"{path} is there already; resume it (--resume), or name another file")
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
                raise DataError(
                    f"a judgement of {row.mode}, which the first line does not name; judge into another file",
                    path=path,
                    line=number,
                )
            rows[row.mode].append(row)
    if header is None:
        raise DataError("is empty, so there is nothing to go on with; remove it, or name another file", path=path)
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
        raise StoreError(
            f"{path} holds a run with other settings ({different[0]}); set them back, or name another file"
        )
    for mode, judged in rows.items():
        if len(judged) != settings["paths"]:
            raise StoreError(
                f"{path} has {len(judged)} judgements of {mode} where {settings['paths']} are wanted; it was cut off or "
                "changed: remove it, or name another file"
            )


def _parse(text: str, kind: type[_Line], path: FilePath, line: int) -> _Line:
    try:
        # The standard library takes escaped lone surrogates, which msgspec does not.
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"no line of a run of 'pytrace certify discriminate' ({error}); name another file", path=path, line=line
        ) from None
