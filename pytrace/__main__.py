"""The program ``pytrace``."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from pytrace import processes


def main() -> NoReturn:
    """Run the command line as this process's own program, which ends within half a second of SIGINT or SIGTERM."""
    processes.end_at_once_on_signals()
    processes.take_stream_numbers()
    status = 0
    with suppress(SystemExit):  # a signal's, between the last lines of the command line
        from pytrace.cli import common, program

        processes.unwind_on_signals()
        status = common.run(program)
    processes.leave(status)


if __name__ == "__main__":
    main()
