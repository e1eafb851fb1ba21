"""A Ray of this machine alone, or the cluster at an address."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pytrace.errors import InputError, MissingDependencyError

# What goes between processes is small, and /dev/shm of a container often has 64 MB; Ray takes no less than 75 MiB, and a folder
# on disk where /dev/shm has not as much.
_OBJECT_STORE_BYTES = 100_000_000
# The path of a socket has at most 107 bytes, and Ray's below its folder some 70.
_LONGEST_FOLDER = 15
# Ray's folder, and the file in it that is locked as long as its process lives.
_PREFIX, _OWNER = "pytrace-ray-", "owner.lock"
# Nobody is told who uses Ray. What Ray says by itself goes nowhere; of processes that ended it would speak on stdout.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}


def import_ray() -> Any:
    """Import Ray and its data sets."""
    os.environ.update(_ENVIRONMENT)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingDependencyError(
            f"the engine ray needs Ray Data ({error}); pip install 'pytrace-rag[ray]'"
        ) from error
    return ray


@contextmanager
def ray_cluster(processors: int, address: str | None) -> Iterator[None]:
    """Start Ray with so many processors, or connect to the one at the address, unless this process has done so already."""
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    silent = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    with ray_folder() as folder:
        before = signal.getsignal(signal.SIGTERM)
        try:
            if address is None:
                machine = {"num_cpus": processors, "object_store_memory": _OBJECT_STORE_BYTES}
                ray.init(address="local", include_dashboard=False, _temp_dir=folder, **machine, **silent)
            else:
                ray.init(address=address, **silent)
        except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
            where = "on this machine" if address is None else f"at {address}"
            raise InputError(
                f"there is no Ray {where} ({error}); correct --ray-address, or use --engine local"
            ) from error
        # Ray puts a handler of its own in the place of the program's.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def ray_folder() -> Iterator[str]:
    """Make a folder for Ray's files, and remove those that killed processes left."""
    place = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_FOLDER else "/tmp")
    for left in place.glob(f"{_PREFIX}*"):
        # Ray lets everybody write to its folder, so no link in it is followed.
        with suppress(OSError), _opened(left / _OWNER, os.O_RDONLY | os.O_NOFOLLOW) as owner:
            if left.lstat().st_uid == os.getuid():
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error while the owner lives
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True) as folder:
        path = Path(folder) / _OWNER
        begun = path.with_suffix(".new")
        with _opened(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL) as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            begun.rename(path)  # others see it locked, or not at all
            yield folder


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def quiet(data: Any) -> None:
    """Let a data set work without a word, and as long as it takes."""
    data.context.enable_progress_bars = False
    data.context.print_on_execution_start = False
    data.context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
