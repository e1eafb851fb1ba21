"""Files of foreign formats (PDF, Word, slides, pages, books, e-mail), read by a process of their own with limits of time, memory and output."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from pytrace import processes
from pytrace.documents.formats.worker import Message
from pytrace.documents.passages import Block, Extracted
from pytrace.errors import DataError, InputError, MissingDependencyError
from pytrace.storage.closing import Closing

SUFFIXES = {
    ".pdf": "pdf", ".docx": "docx", ".pptx": "pptx", ".epub": "epub", ".eml": "email",
    ".html": "html", ".htm": "html", ".xhtml": "html",
}  # fmt: skip
"""The kind of a file by its suffix."""

# A file begins so: one whose suffix says other than its content is read by its content, or not at all.
_MAGIC = {"pdf": b"%PDF", "docx": b"PK\x03\x04", "pptx": b"PK\x03\x04", "epub": b"PK\x03\x04"}
_PEEK = 1024

SECONDS, MEGABYTES, CHARACTERS = 300.0, 3_072, 50_000_000
"""What a file may take: time, the memory of the process that reads it, and characters of text."""
RECOGNISED_SECONDS = 3_600.0
"""The time for a file whose scanned pages are recognised."""

# A message holds some hundred blocks; one that is larger is none of ours.
_MOST_MESSAGE = 1 << 30

_START = (
    "import sys; sys.path[:] = sys.argv[4:]; from pytrace import processes; processes.end_with(int(sys.argv[3])); "
    "from pytrace.documents.formats.worker import serve; "
    "serve(int(sys.argv[1]), int(sys.argv[2]))"
)


class ForeignReader(Closing):
    """Reads files of foreign formats, all by one process, which is started anew where a file ended it."""

    def __init__(
        self,
        *,
        ocr: str = "",
        seconds: float | None = None,
        megabytes: int = MEGABYTES,
        characters: int = CHARACTERS,
    ) -> None:
        self._ocr = ocr
        self._seconds = (RECOGNISED_SECONDS if ocr else SECONDS) if seconds is None else seconds
        self._megabytes = megabytes
        self._characters = characters
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None

    def close(self) -> None:
        """End the process."""
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            _kill(self._process)
            self._process.wait()
        self._link = self._process = None

    def read(self, path: Path, kind: str) -> Extracted:
        """Read a file; raises `DataError` if it cannot be read, and `MissingDependencyError` if a library is not there."""
        _check_content(path, kind)
        link, process = self._started()
        # By killing, since it may also stop in the middle of a message.
        late = threading.Event()

        def stop() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(self._seconds, stop)
        timer.daemon = True
        blocks: list[Block] = []
        size = 0
        try:
            timer.start()
            link.send((kind, str(path.absolute()), self._ocr))
            while True:
                message = msgspec.json.decode(link.recv_bytes(_MOST_MESSAGE), type=Message)
                size += sum(len(block.text) for block in message.blocks)
                blocks += message.blocks
                if size > self._characters:
                    raise self._refusal(path, f"has more than {self._characters:,} characters of text")
                if message.last:
                    break
        except msgspec.MsgspecError:
            raise self._refusal(path, "made the process that read it answer nonsense") from None
        except (EOFError, OSError):
            if late.is_set():
                raise self._refusal(path, f"took more than {self._seconds:g} seconds to read") from None
            raise self._refusal(path, self._ending()) from None
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
        if late.is_set():  # just behind the last message
            self.close()
        if message.error:
            raise DataError(message.error, path=path)
        if message.missing:
            raise MissingDependencyError(
                f"to read {path.name} the package {message.missing} is needed: pip install 'pytrace-rag[docs]'"
            )
        return Extracted(message.title, blocks, message.level, message.metadata, message.warnings)

    def _started(self) -> tuple[Connection, subprocess.Popen[bytes]]:
        if self._link is not None and self._process is not None:
            return self._link, self._process
        ours, theirs = Pipe()
        command = [
            sys.executable,
            "-c",
            _START,
            str(theirs.fileno()),
            str(self._megabytes),
            str(processes.lifeline()),
            *sys.path,
        ]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), processes.lifeline()], start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        finally:
            theirs.close()
        self._link = ours
        return ours, self._process

    def _refusal(self, path: Path, reason: str) -> DataError:
        self.close()
        return DataError(f"{reason}; split it, or save it anew", path=path)

    def _ending(self) -> str:
        """Say how the process ended while it read a file."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "made the process that read it answer nonsense"
        if code < 0:
            return f"ended the process that read it (signal {-code}, {signal.strsignal(-code)})"
        return f"ended the process that read it (exit status {code})"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with the command for scanned pages that it may be waiting for."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def check_command(command: str) -> str:
    """Return a command for `ocr` as it is; raises `InputError` if it does not name the image, or cannot be split."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the command {command!r} cannot be split ({error}); is a quote not closed?") from None
    if arguments and not any("{}" in argument for argument in arguments[1:]):
        raise InputError(
            f"the command {command!r} does not say where the image goes; write {{}} there: 'tesseract {{}} -'"
        )
    return command


def kind_of(path: Path) -> str | None:
    """Return the kind of a file: by its suffix, and by its content where the suffix says nothing; None for text."""
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None and path.is_file() and not path.suffix:
        head = _head(path)
        if head.startswith(b"%PDF"):
            return "pdf"
        if re.match(rb"\s*<(?:!doctype\s+html|html)\b", head, re.IGNORECASE):
            return "html"
    return kind


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_PEEK)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None


def _check_content(path: Path, kind: str) -> None:
    magic = _MAGIC.get(kind)
    head = _head(path)
    if not head:
        raise DataError("is empty", path=path)
    if magic is not None and magic not in head:
        raise DataError(f"is named {path.suffix}, and is none: it begins with {head[:8]!r}", path=path)
