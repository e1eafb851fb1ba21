"""Plots as files, drawn by matplotlib without a display."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

from pytrace.errors import MissingDependencyError, StoreError
from pytrace.storage.files import atomic_output

FORMATS = ("png", "svg")


def new_figure(what: str, size: tuple[float, float], columns: int = 1, *, extra: str = "eval") -> tuple[Any, Any]:
    """Return a figure of so many inches and its axes; `what` says in an error what cannot be drawn without matplotlib."""
    try:
        # Not pyplot: it would choose a back end that may want a display.
        matplotlib: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingDependencyError(f"drawing {what} needs matplotlib: pip install 'pytrace-rag[{extra}]'") from error
    figure = matplotlib.Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(1, columns)


def save_figure(figure: Any, directory: Path, name: str, *, dpi: int) -> list[Path]:
    """Write a figure as PNG and SVG, each in one step, into a folder that is made if need be."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the folder {directory}: {error.strerror or error}; name another one for the plots"
        ) from error
    paths = [directory / f"{name}.{extension}" for extension in FORMATS]
    for path, extension in zip(paths, FORMATS, strict=True):
        with atomic_output(path) as stream, warnings.catch_warnings():
            # A title in a script that the font lacks is drawn as boxes, which anyone sees.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(stream, dpi=dpi, format=extension)
    return paths
