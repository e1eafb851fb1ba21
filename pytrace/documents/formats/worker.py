"""The process that reads foreign files: a hostile or broken one may end it, and nothing else.

A request is a kind, a path and, for scanned pages, a command that recognises text. The answer is messages in JSON, since whoever
takes over this process must not have the caller run what it sends: some with blocks, and at last one with title, level, metadata
and warnings, or with the error that says why there are none.
"""

from __future__ import annotations

import importlib
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from pytrace.documents.passages import Block, Extracted
from pytrace.errors import DataError

_BLOCKS_AT_ONCE = 500


class Message(msgspec.Struct, omit_defaults=True):
    """A piece of an answer: blocks, or at its end the rest; `error` says why there is no text, `missing` names a package."""

    last: bool = False
    blocks: list[Block] = []
    title: str = ""
    level: int = 0
    metadata: dict[str, Any] = {}
    warnings: list[str] = []
    error: str = ""
    missing: str = ""


def serve(descriptor: int, megabytes: int) -> None:
    """Read what is asked for until the other end hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    caller = Connection(descriptor)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = min(megabytes << 20, sys.maxsize if hard == resource.RLIM_INFINITY else hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        while True:
            kind, path, ocr = caller.recv()
            _answer(caller, kind, Path(path), ocr)
    except (EOFError, OSError):
        return


def _answer(caller: Connection, kind: str, path: Path, ocr: str) -> None:
    try:
        module = importlib.import_module(f"pytrace.documents.formats.{kind}")
        options = {"ocr": ocr} if ocr and kind == "pdf" else {}
        extracted: Extracted = getattr(module, f"read_{kind}")(path, **options)
        blocks = [block for block in extracted.blocks if block.text]
        for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
            _send(caller, Message(blocks=blocks[start : start + _BLOCKS_AT_ONCE]))
        end = Message(
            last=True,
            title=extracted.title,
            level=extracted.level,
            metadata=dict(extracted.metadata),
            warnings=list(extracted.warnings),
        )
    except DataError as error:
        # Some libraries say what is wrong in several lines.
        end = Message(last=True, error=" ".join(str(error).removeprefix(f"{path}: ").split()))
    except ImportError as error:
        end = Message(last=True, missing=error.name or str(error))
    except MemoryError:
        end = Message(last=True, error="needs more memory than a file is given; split it")
    except Exception as error:  # noqa: BLE001 - what a broken file makes a library raise, nobody can list
        message = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        end = Message(last=True, error=f"cannot be read ({message}); save it anew")
    _send(caller, end)


def _send(caller: Connection, message: Message) -> None:
    caller.send_bytes(msgspec.json.encode(message))
