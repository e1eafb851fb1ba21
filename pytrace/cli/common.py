"""What all commands share: one way to fail, one way to print JSON, text and tables."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from pytrace import processes
from pytrace.errors import PytraceError
from pytrace.storage import text as texts

if TYPE_CHECKING:
    from pytrace.documents import ReadReport
    from pytrace.documents.read_report import Skipped

_R = TypeVar("_R")

FAILED = 1
WRONG_INPUT = 2
INTERRUPTED = 130  # as shells say of SIGINT
SOME_BAD = 3

printable = texts.printable
# What lays text out in lines; all else that is no character of a text is escaped where it is printed.
_LAYOUT = "\t\n"
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")

# Seconds between two lines of progress where there is no terminal to draw on.
PLAIN_INTERVAL = 10.0
# Seconds between two new rates on a terminal, between two samples of the pace, and that it looks back.
_REDRAW = 0.5
_SAMPLE = 1.0
_WINDOW = 60.0
# Items from which the time left is told, or else a window's time.
_LEAST_SAMPLE = 10


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a click command; turn whatever it raises into one sentence on stderr and an exit status."""
    if not _open_streams():
        remark("standard output is closed, so that no result could get out; give it a file, or /dev/null")
        return FAILED
    for stream in (sys.stdout, sys.stderr):
        # A lone surrogate from broken input, or a terminal in an old locale, must not be what kills the program.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = command.main(
                # Not standalone: click would leave the process by its own rules.
                args=None if arguments is None else list(arguments),
                prog_name="pytrace",
                standalone_mode=False,
            )
        sys.stdout.flush()  # here, where a full disk is still reported
    except BaseException as error:  # noqa: BLE001 - the last line of defence; nothing may end in a traceback
        if number := processes.received():  # whatever became of its exception on the way; `processes.leave` says it
            return 128 + number
        return _failed(error)
    return status if isinstance(status, int) else 0


def _open_streams() -> bool:
    """Open standard streams that are closed; false if there is no stdout."""
    processes.take_stream_numbers()
    there = sys.stdout is not None
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    return there


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the place in our code that Python would name."""
    remark(str(message))


def _failed(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, BrokenPipeError):
        # The reader left (`pytrace … | head`). Python flushes stdout once more at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # its message is the help text
        _say(error.format_message())
        return WRONG_INPUT
    if os.environ.get("PYTRACE_DEBUG") == "1" and not isinstance(error, click.ClickException | click.Abort):
        _say("".join(traceback.format_exception(error)))
    status, sentence = _explain(error)
    remark(sentence)
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _explain(error: BaseException) -> tuple[int, str]:
    if isinstance(error, PytraceError):
        return error.exit_code, str(error)
    if isinstance(error, click.ClickException):
        sentence = " ".join(error.format_message().split())  # it lists choices a line each
        if not isinstance(error, click.UsageError):
            return error.exit_code, sentence
        where = error.ctx.command_path if error.ctx is not None else "pytrace"
        return WRONG_INPUT, f"{sentence.rstrip('.')} (see '{where} --help')"
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED, "interrupted"
    if isinstance(error, MemoryError):
        return FAILED, "there is not enough memory; use a smaller model, fewer threads or fewer inputs at a time"
    if isinstance(error, OSError) and error.errno is not None:
        return _explain_os(error)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return (
            FAILED,
            "no thread can be started; use fewer --threads, or raise the limit on processes or memory ('ulimit -u', '-v')",
        )
    message = " ".join(str(error).split()) or "no message"
    return FAILED, (
        f"unexpected {type(error).__name__} ({message}); this is a fault in pytrace: run again with PYTRACE_DEBUG=1 for the "
        "traceback and report it"
    )


def _explain_os(error: OSError) -> tuple[int, str]:
    path = f"{error.filename}: " if error.filename is not None else ""
    reason = (error.strerror or str(error)).lower()
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return FAILED, f"{path}{reason} while writing; free some room and run the same command again"
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return FAILED, f"{path}{reason}; raise the limit ('ulimit -n') or close other programs"
    wrong_place = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)
    if wrong_place or error.errno in {errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}:
        return WRONG_INPUT, f"{path}{reason}; correct the path or its permissions"
    return FAILED, f"{path}{reason}; run again with PYTRACE_DEBUG=1 for the traceback"


def print_json(value: object) -> None:
    """Print one JSON document on stdout: see `json_bytes`."""
    click.echo(json_bytes(value))


def json_bytes(value: object) -> bytes:
    """Encode one JSON document, indented."""
    # Records, NumPy scalars and arrays, and paths are all understood. What JSON cannot say becomes something that it
    # can: NaN and infinities become null, lone surrogates U+FFFD.
    try:
        text = msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value, enc_hook=_plain)))
    return texts.printable_json(msgspec.json.format(text, indent=2).decode()).encode()


def stream_json(head: dict[str, object], lists: dict[str, Iterable[object]]) -> None:
    """Print one JSON document on stdout whose lists may be too long to hold: `head` first, then the lists, an item a line."""
    click.echo(json_bytes(head).removesuffix(b"\n}"), nl=False)  # left open for the lists
    for name, items in lists.items():
        click.echo(f',\n  "{name}": [', nl=False)
        separator = "\n"
        for item in items:
            line = msgspec.json.format(json_bytes(item), indent=-1)
            click.echo(separator.encode() + b"    " + line, nl=False)
            separator = ",\n"
        click.echo("\n  ]", nl=False)
    click.echo("\n}")


def _plain(value: object) -> object:
    if isinstance(value, PurePath):
        return str(value)
    # NumPy's arrays and scalars, known by their method: importing NumPy would take more than a third of `pytrace --help`.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


def figure(value: float | None, form: str) -> str:
    """Word a number, and a missing one as a dash."""
    return "-" if value is None else format(value, form)


def percent(share: float | None) -> str:
    """Word a share in percent with one digit, and a missing one as a dash."""
    return "-" if share is None else f"{100 * share:.1f}"


def percent_interval(share: float | None, low: float | None, high: float | None) -> str:
    """Word a share and its interval in percent; a dash where either is missing."""
    return (
        "-" if share is None or low is None or high is None else f"{percent(share)} ({percent(low)} to {percent(high)})"
    )


def human_size(size: float | None) -> str:
    """Word a number of bytes in decimal units (as disks and downloads are sold), or ``?`` if it is not known."""
    if size is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit in {"B", "kB"} or size >= 100 else f"{size:.1f} {unit}"


def output() -> Console:
    """Return a console on stdout: colours and markup on a terminal, plain text in a pipe."""
    # In a pipe rich would take the width for 80 and break lines that a program is to read.
    return Console(soft_wrap=not sys.stdout.isatty(), highlight=False)


def messages() -> Console:
    """Return a console on stderr, for progress and remarks; stdout is for results alone."""
    return Console(stderr=True, highlight=False)


def remark(text: str) -> None:
    """Print a line on stderr that is no part of the result."""
    _say(f"pytrace: {printable(text)}")


def _say(text: str) -> None:
    """Print on stderr, without the passwords of addresses; what nobody can hear is no reason to fail."""
    with suppress(OSError):
        # While a spinner runs, rich replaces sys.stderr so that lines do not overwrite it; click.echo bypasses that.
        print(printable(_PASSWORD.sub("…@", text), kept=_LAYOUT), file=sys.stderr, flush=True)


def remark_first(lines: Sequence[str], most: int, more: str = "") -> None:
    """Print the first lines on stderr, and with `more` (its words) how many others only ``--json`` names."""
    for line in lines[:most]:
        remark(printable(line))
    if more and len(lines) > most:
        remark(f"{len(lines) - most} {more} were left out; --json names them all")


def print_skipped(report: ReadReport, most: int | None = None) -> None:
    """Name on stderr what was passed over, or not read whole, while documents were read."""
    for warning in report.warnings[:most]:
        remark(warning)
    for skipped in report.skipped[:most]:
        title = f" ({skipped.title})" if skipped.title else ""
        remark(f"skipped {skipped.source}{title}: {skipped.reason}")
    more = report.empty + report.duplicates + report.other_files - len(report.skipped[:most])
    if more > 0:
        remark(f"skipped {more} more")


def bad_status(bad: Sequence[Skipped], most: int = 20) -> int:
    """Name on stderr the files that could not be read, and return the exit status."""
    for each in bad[:most]:
        remark(f"not read: {each.source}: {each.reason}")
    if len(bad) > most:
        remark(f"not read: {len(bad) - most} more; --json names them all")
    return SOME_BAD if bad else 0


def print_text(text: str = "") -> None:
    """Print text on stdout, escaped but for tabs and line ends."""
    click.echo(printable(text, kept=_LAYOUT))


def print_styled(text: str, style: str = "bold") -> None:
    """Print text as `print_text` does, on a terminal in a style."""
    console = output()
    if console.is_terminal:
        console.print(Text(printable(text, kept=_LAYOUT), style=style))
    else:
        print_text(text)


def print_rich(console: Console, text: Text) -> None:
    """Print a line with its styles on a terminal, plain elsewhere."""
    if console.is_terminal:
        console.print(text)
    else:
        print_text(text.plain.rstrip())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
    """Print a table, its cells escaped: fitted to the width on a terminal, whole lines of aligned columns in a pipe."""
    if title:
        print_text(f"\n{title}")
    cells = [[printable(cell) for cell in row] for row in rows]
    console = output()
    if console.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(Text(printable(column)), overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        return
    # Widths of all rows: a table in a pipe is never broken or cut.
    lines = [list(columns), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        print_text("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_records(
    records: Iterable[_R], columns: Sequence[tuple[str, Callable[[_R], object]]], *, title: str = ""
) -> None:
    """Print a table of records, each column a heading and what it shows of a record."""
    rows = [[cell(record) for _, cell in columns] for record in records]
    print_table([heading for heading, _ in columns], rows, title=title)


@contextmanager
def spinner(stage: str) -> Iterator[Callable[[str], None]]:
    """Show the present stage with a spinner on stderr, if that is a terminal; yields what changes the stage."""
    console = messages()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(escape(stage)) as status:
        yield lambda text: status.update(escape(text)) if text else None


class Pace:
    """How fast things get done: over the last minute, so that a slow or quick beginning is soon forgotten."""

    def __init__(self, now: float) -> None:
        # Time, items and tokens by then.
        self._samples: deque[tuple[float, int, int]] = deque([(now, 0, 0)])

    def add(self, now: float, done: int, tokens: int) -> None:
        """Take in how much is done by now."""
        if now - self._samples[-1][0] >= _SAMPLE:
            self._samples.append((now, done, tokens))
            # One sample beyond the window stays, so that the rate is of all of it.
            while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW:
                self._samples.popleft()

    def words(self, now: float, done: int, tokens: int, total: int | None) -> str:
        """Say the rate, that of tokens if there are any, and the time left if the total is known."""
        since, before, tokens_before = self._samples[0]
        seconds = max(now - since, 1e-9)  # both may fall into one tick of the clock
        rate = (done - before) / seconds
        parts = [_rate(rate)]
        if tokens:
            parts.append(f"{_number((tokens - tokens_before) / seconds)} tokens a second")
        # The first of many may be slow to come, or quick.
        if total and rate and (done - before >= _LEAST_SAMPLE or seconds >= _WINDOW):
            parts.append(f"about {_duration((total - done) / rate)} left")
        return ", ".join(parts)


def _rate(rate: float) -> str:
    if 0 < rate < 0.1:  # as figures a second these would be mostly zeros
        return f"{_number(rate * 60)} a minute"
    return f"{rate:.2f} a second" if rate < 100 else f"{rate:.0f} a second"


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def progress(what: str, total: int | None, *, tokens: Callable[[], int] = lambda: 0) -> Iterator[Callable[..., None]]:
    """Show on stderr how far a piece of work is: a bar with rate and time left on a terminal, now and then a line else.

    Yields what to call after each item, or with the number of items. `tokens` says how many a model has written so far.
    """
    started = shown = time.monotonic()
    pace = Pace(started)
    done = 0
    console = messages()
    pace_column = TextColumn("{task.fields[pace]}")
    columns: tuple[ProgressColumn, ...] = (
        (SpinnerColumn(), TextColumn("{task.description}: {task.completed:,.0f}"), pace_column)
        if total is None  # "390/?" says less than "390"
        else (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), pace_column)
    )
    bar = Progress(*columns, console=console, transient=True) if console.is_terminal else None
    # Nothing is shown for work that has nothing to do.
    task = None if bar is None else bar.add_task(escape(printable(what)), total=total, visible=total != 0, pace="")

    def advance(count: int = 1) -> None:
        nonlocal done, shown
        done += count
        now = time.monotonic()
        if bar is not None and task is not None:
            bar.update(task, completed=done)
        if now - shown < (PLAIN_INTERVAL if bar is None else _REDRAW):
            return
        shown = now
        written = tokens()
        pace.add(now, done, written)
        words = pace.words(now, done, written, total)
        if bar is not None and task is not None:
            bar.update(task, pace=words)
        else:
            remark(f"{what}: {done}{f' of {total}' if total else ''}, {words}")

    with bar or nullcontext():
        yield advance
