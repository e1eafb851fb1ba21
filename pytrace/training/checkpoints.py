"""What a killed training goes on from: files that are whole or not there."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytrace.errors import InputError, StoreError
from pytrace.storage.files import replace_file
from pytrace.training.network import torch_module

_NAME = re.compile(r"step-(\d+)\.pt")
# The one before stays until the next is on the disk, and then for one turn more, in case a disk loses what it promised.
_KEPT = 2


def save_checkpoint(directory: Path, step: int, state: Mapping[str, Any]) -> None:
    """Keep the state of a training, and drop all but the last two."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:08d}.pt"
    # In memory first: PyTorch's archive writer hides the reason why a file cannot be written.
    archive = io.BytesIO()
    torch_module().save(dict(state), archive)
    try:
        replace_file(path, archive.getvalue())
    except BaseException:
        path.with_name(f"{path.name}.new").unlink(missing_ok=True)
        raise
    for _, old in checkpoints(directory)[:-_KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()


def checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a directory by step, the last one last."""
    if not directory.is_dir():
        return []
    found = [(int(match[1]), path) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found)


def load_checkpoint(directory: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Read the last checkpoint that is whole."""
    found = checkpoints(directory)
    if not found:
        raise InputError(f"{directory} holds no checkpoint to go on from; leave --resume out to begin anew")
    reason = ""
    for _, path in reversed(found):
        try:
            # Only tensors and plain values are read: a checkpoint runs no code.
            state = torch_module().load(path, map_location="cpu", weights_only=True)
            before = state["recipe"]
        except Exception as error:  # noqa: BLE001 - a damaged archive raises whatever its reader stumbles over
            reason = reason or f"{path}: {type(error).__name__}"
            continue
        _check_recipe(path, before, recipe)
        return dict(state)
    raise StoreError(f"no checkpoint in {directory} can be read ({reason}); remove the directory and begin anew")


def _check_recipe(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if differing:
        # A setting says more than the hashes that changed with it.
        differing.sort(key=lambda name: len(repr(before.get(name))))
        name = differing[0]
        others = f" and {', '.join(differing[1:])} differ too" if differing[1:] else ""
        raise InputError(
            f"{path} is of a training with {name} {before.get(name)!r}, not {now.get(name)!r}{others}; go on with the same "
            "data and settings, or name another --out"
        )
