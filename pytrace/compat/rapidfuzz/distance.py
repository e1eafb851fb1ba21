"""``rapidfuzz.distance``: RapidFuzz's own, where it is installed. `process.cdist` runs most of its scorers on a kernel."""

from __future__ import annotations

from typing import Any

from pytrace.compat.rapidfuzz.handing import rapidfuzz

_NAMES = (
    "OSA", "DamerauLevenshtein", "Editop", "Editops", "Hamming", "Indel", "Jaro", "JaroWinkler", "LCSseq", "Levenshtein",
    "MatchingBlock", "Opcode", "Opcodes", "Postfix", "Prefix", "ScoreAlignment",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(rapidfuzz("distance"), name)


def __dir__() -> list[str]:
    return sorted(_NAMES)
