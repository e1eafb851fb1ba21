"""JSON that others wrote, decoded under limits: whatever is wrong with it is a `ValueError` of one line, and its caller says where it stands."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

MOST_DEPTH = 100
"""Lists and objects within each other; what real data has is below ten, and code that walks a value recurses."""
MOST_BYTES = 100_000_000
"""Of a file that is read as a whole."""
# What SQLite and NumPy hold.
_LEAST_INTEGER, _MOST_INTEGER = -(1 << 63), (1 << 63) - 1
_SURROGATE = re.compile("[\ud800-\udfff]|" + r"\\u[dD][89a-fA-F]")
_MOST_REASON = 300


def decode_json(data: bytes | str, kind: type[T], *, surrogates: bool = False) -> T:
    """Decode JSON of a kind, with lone surrogates only where they are asked for; of a field that stands twice, the last counts.

    Raises `ValueError` for what is no JSON, of another kind, deeper than `MOST_DEPTH`, or has a number beyond 64 bits.
    """
    try:
        value = _decode(data, kind, surrogates=surrogates)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte 0x{error.object[error.start]:02x})") from None
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is no character") from None
    except ValueError as error:
        # Values that it quotes are as long, and on as many lines, as they like.
        reason = " ".join(str(error).removeprefix("JSON is malformed: ").rstrip(".").split())
        raise ValueError(reason if len(reason) <= _MOST_REASON else reason[:_MOST_REASON] + "…") from None
    check_value(value)
    return value


def _decode(data: bytes | str, kind: type[T], *, surrogates: bool) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except ValueError:
        text = data if isinstance(data, str) else data.decode()
        if not (surrogates and _SURROGATE.search(text)):
            raise
    # By the standard library: msgspec refuses lone surrogates, and their escapes, which `dump_json` writes.
    return msgspec.convert(json.loads(text, parse_constant=_no_number), kind)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def read_json(path: Path, kind: type[T]) -> T:
    """Decode a file: `OSError` if it cannot be read, `ValueError` as `decode_json`."""
    return decode_json(read_bounded(path), kind)


def read_bounded(path: Path) -> bytes:
    """Read a file of at most `MOST_BYTES`; `ValueError` if it has more."""
    with path.open("rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES:,} bytes")
    return data


def check_value(value: object) -> None:
    """Refuse a decoded value, of JSON or its like, that is nested too deeply or has a number beyond 64 bits or none."""
    level: list[Any] = [value]
    depth = 0
    while level:
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                continue
            if kind in (dict, list, tuple):
                if depth == MOST_DEPTH:
                    raise _too_deep()
                below += each.values() if kind is dict else each
            elif kind is int:
                if not _LEAST_INTEGER <= each <= _MOST_INTEGER:
                    raise ValueError("an integer is beyond 64 bits")
            elif kind is float:
                if not math.isfinite(each):
                    raise ValueError(f"a number is {each}")
            elif isinstance(each, msgspec.Struct):
                below += msgspec.structs.astuple(each)
        level = below
        depth += 1


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {MOST_DEPTH} levels")
