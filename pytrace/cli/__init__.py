"""The command line: parses and prints, and leaves the work to the library.

Exit status 0 means done, 2 wrong usage or input that cannot be used, 1 anything else. Every failure is one sentence on
stderr; ``PYTRACE_DEBUG=1`` adds the traceback.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import click

from pytrace import __version__
from pytrace.cli import common


class _Command(NamedTuple):
    name: str
    module: str
    summary: str
    function: str = ""


# A command's module is imported when the command is run (or its own help asked for), so that `pytrace --help` is quick
# and a broken optional package cannot take unrelated commands with it. Each module has a click command of that name, or
# of the name given last.
COMMANDS = (
    _Command("ask", "pytrace.cli.ask", "Answer a question from documents, with the chains and sentences it rests on."),
    _Command(
        "eval",
        "pytrace.cli.evaluate",
        "Ask methods the questions of a data set, and report scores and costs.",
        "evaluate",
    ),
    _Command(
        "report", "pytrace.cli.report", "Make a page and tables of an evaluation that 'eval' kept, without any model."
    ),
    _Command("tune", "pytrace.cli.tune", "Search for the settings of a method that do best on questions of one's own."),
    _Command("certify", "pytrace.cli.certify", "Check chains of thought against a knowledge graph, step by step."),
    _Command("perturb", "pytrace.cli.perturb", "Break the evidence of a data set's questions on purpose, for 'eval'."),
    _Command("kg", "pytrace.cli.kg", "Build knowledge graphs of documents, look into them, exchange and change them."),
    _Command("train", "pytrace.cli.train", "Train a model of one's own that writes the queries of a knowledge base."),
    _Command("models", "pytrace.cli.models", "List, fetch and check the models that are known by name."),
    _Command("bench", "pytrace.cli.bench", "Verify the kernels, then time them beside their peers."),
    _Command("doctor", "pytrace.cli.doctor", "Say what this installation has, what it lacks and what to do about it."),
)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        for command in COMMANDS:
            if command.name == cmd_name:
                found = getattr(importlib.import_module(command.module), command.function or cmd_name)
                assert isinstance(found, click.Command)
                return found
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.summary) for command in COMMANDS])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pytrace", message="%(prog)s %(version)s")
def program() -> None:
    """Find the evidence for multi-hop questions, and check reasoning against facts, on this machine."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit status."""
    sys.exit(common.run(program, arguments))
