"""Progress of a pull: a bar on a terminal, one plain line a file elsewhere, and nothing for a library call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class PullProgress:
    """Where a pull reports to: a rich console, which should be on stderr, or nobody."""

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
