"""The process that reads foreign files: a hostile or broken one may end it, and nothing else.

A request is a kind and a path. The answer is pieces of blocks, each as ``(False, blocks)``, and at last ``(True, result)``: title,
level and metadata, or the error that says why the file cannot be read.
"""

from __future__ import annotations

import importlib
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from pytrace.errors import DataError, MissingDependencyError

# By kind: the module here, its function, and the package that it needs.
READERS = {
    "pdf": ("pdf", "read_pdf"),
    "docx": ("docx", "read_docx"),
    "pptx": ("pptx", "read_pptx"),
    "html": ("html", "read_html"),
}
_BLOCKS_AT_ONCE = 500


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
            kind, path = caller.recv()
            _answer(caller, kind, Path(path))
    except (EOFError, OSError):
        return


def _answer(caller: Connection, kind: str, path: Path) -> None:
    module, function = READERS[kind]
    try:
        read = getattr(importlib.import_module(f"pytrace.documents.formats.{module}"), function)
        extracted = read(path)
    except DataError as error:
        caller.send((True, error))
        return
    except ImportError as error:
        needed = f"to read {path.name} the package {error.name} is needed: pip install 'pytrace-rag[docs]'"
        caller.send((True, MissingDependencyError(needed)))
        return
    except MemoryError:
        caller.send((True, DataError("needs more memory than a file is given", path=path)))
        return
    except Exception as error:  # noqa: BLE001 - what a broken file makes a library raise, nobody can list
        message = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        caller.send((True, DataError(f"cannot be read ({message}); save it anew", path=path)))
        return
    blocks = [block for block in extracted.blocks if block.text]
    for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
        caller.send((False, blocks[start : start + _BLOCKS_AT_ONCE]))
    caller.send((True, (extracted.title, extracted.level, dict(extracted.metadata))))
