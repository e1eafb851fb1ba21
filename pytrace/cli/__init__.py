"""The command line: parses and prints, and leaves the work to the library.

Exit status 0 means done, 2 wrong usage or input that cannot be used, 3 done but for files and lines that --skip-bad passed over,
130 and 143 an end by SIGINT or SIGTERM, 1 anything else. Every failure is one sentence on stderr (``PYTRACE_DEBUG=1`` adds the
traceback), but for a stdout whose reader left (``pytrace … | head``): that is 1 without a word, as in Python's own programs.
`pytrace.__main__` runs it as a program of its own, which heeds signals; called from another program, it leaves them to that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import click

from pytrace import __version__
from pytrace.cli import commands, common


class _Entry(NamedTuple):
    name: str
    module: str
    command: str  # its class there, or its click group
    summary: str


# A command's module is imported when the command is run (or its own help asked for), so that `pytrace --help` is quick
# and a broken optional package cannot take unrelated commands with it.
COMMANDS = (
    _Entry("index", "index", "index", "Index documents once: build, bring up to date, add, remove, show, verify."),
    _Entry("search", "search", "Search", "Find the passages that answer a question, without a language model."),
    _Entry("ask", "ask", "Ask", "Answer a question from documents, with the chains and sentences it rests on."),
    _Entry("serve", "serve", "Serve", "Keep an index and models warm, for other programs and a page for people."),
    _Entry("mcp", "mcp", "Mcp", "Serve an index to an assistant as tools, by the Model Context Protocol."),
    _Entry("eval", "evaluate", "Eval", "Ask methods the questions of a data set, and report scores and costs."),
    _Entry(
        "report", "report", "Report", "Make a page and tables of an evaluation that 'eval' kept, without any model."
    ),
    _Entry("tune", "tune", "Tune", "Search for the settings of a method that do best on questions of one's own."),
    _Entry("certify", "certify", "certify", "Check chains of thought against a knowledge graph, step by step."),
    _Entry("eval-claims", "evaluate_claims", "EvalClaims", "Score the checker of claims on rows that people labelled."),
    _Entry("perturb", "perturb", "Perturb", "Break the evidence of a data set's questions on purpose, for 'eval'."),
    _Entry("kg", "kg", "kg", "Build knowledge graphs of documents, look into them, exchange and change them."),
    _Entry("docs", "docs", "docs", "See what is read of documents: passages, with headings, pages and characters."),
    _Entry("train", "train", "train", "Train a model of one's own that writes the queries of a knowledge base."),
    _Entry("models", "models", "models", "List, fetch and check the models that are known by name."),
    _Entry("bundle", "bundle", "Bundle", "Collect what installs pytrace on a machine without a network."),
    _Entry("bench", "bench", "Bench", "Verify the kernels, then time them beside their peers."),
    _Entry("doctor", "doctor", "Doctor", "Say what this installation has, what it lacks and what to do about it."),
)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [entry.name for entry in COMMANDS]  # in the table's order; click would sort them

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        for entry in COMMANDS:
            if entry.name == cmd_name:
                command = getattr(importlib.import_module(f"pytrace.cli.{entry.module}"), entry.command)
                return command if isinstance(command, click.Group) else commands.click_command(command)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        # From the table: click would import every command to ask for its first sentence.
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in COMMANDS])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pytrace", message="%(prog)s %(version)s")
def program() -> None:
    """Find the evidence for multi-hop questions, and check reasoning against facts, on this machine."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit status."""
    sys.exit(common.run(program, arguments))
