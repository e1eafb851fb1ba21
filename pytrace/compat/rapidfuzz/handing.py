"""What is handed to RapidFuzz itself."""

from __future__ import annotations

import importlib
from typing import Any


def rapidfuzz(module: str, why: Exception | None = None) -> Any:
    """Import a module of RapidFuzz, ``"process"`` say; `why` is what the kernels said of what they were given.

    Raises
    ------
    ImportError
        If RapidFuzz is not installed.
    """
    try:
        return importlib.import_module(f"rapidfuzz.{module}")
    except ImportError as error:
        said = "" if why is None else f" ({why})"
        raise ImportError(
            f"pytrace has no kernel for this{said}; RapidFuzz itself is asked where it is installed: pip install rapidfuzz"
        ) from error
