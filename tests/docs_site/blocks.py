"""The blocks of code in the pages: README.md and docs/*.md."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from pytrace.cli import program

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Those whose file only says where the page stands are not among them.
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.glob("*.md") if "```" in path.read_text(encoding="utf-8"))]

_MARK = re.compile(r"<!-- not run: *(.*?) *-->")
_FENCE = re.compile(r"```(\S*)$")


class Block(NamedTuple):
    """A block of code: where it stands, what it holds, and why it is not run (empty: it is)."""

    page: Path
    line: int
    language: str
    text: str
    reason: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Iterate over a page's blocks; whatever is no fenced block in a known form is an error."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start, opened, reason = 0, "", ""
    for number, line in enumerate(lines, 1):
        if start:
            if line == "```":
                yield Block(page, start, opened, "\n".join(lines[start : number - 1]) + "\n", reason)
                start, reason = 0, ""
            continue
        place = f"{page.name}:{number}"
        if reason:
            assert line.startswith("```"), (
                f"{place}: a block must stand directly below the comment that says why it is not run"
            )
        if line.startswith("```"):
            fence = _FENCE.match(line)
            assert fence, f"{place}: {line!r} is more than a language"
            start, opened = number, fence[1]
        elif line.startswith("<!--"):
            mark = _MARK.fullmatch(line)
            assert mark, f"{place}: write <!-- not run: why -->"
            assert mark[1], f"{place}: it does not say why the block is not run"
            reason = mark[1]
        else:
            # Four spaces behind an empty line begin a block without a language.
            indented = line.startswith("    ") and not lines[number - 2].strip()
            assert not indented, f"{place}: a block must be fenced, with its language"


def commands(block: Block) -> Iterator[list[str]]:
    """Iterate over the commands of a shell block as words, with the prompts and comments taken away and braces expanded."""
    text = re.sub(r"\\\n", " ", block.text)
    if block.language == "console":
        text = re.sub(r"^\$ ", "", text, flags=re.MULTILINE)
    lexer = shlex.shlex(text.replace("\n", "\n;"), posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if not set(word) <= set("&|;"):
            words += expanded(word)
        elif words:
            yield words
            words = []


def expanded(word: str) -> list[str]:
    """Return what a shell makes of a word with one list in braces."""
    braces = re.fullmatch(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", word)
    return [braces[1] + part + braces[3] for part in braces[2].split(",")] if braces else [word]


def call_of_program(words: list[str]) -> list[str] | None:
    """Return the arguments of the `pytrace` that a command calls, perhaps by another program, or nothing."""
    known = program.list_commands(click.Context(program))
    for place, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] == "pytrace" and words[place + 1] in known:
            return words[place + 1 :]
    return None


def parse(arguments: list[str]) -> None:
    """Let the program parse a call as it would, without running anything; what it refuses raises click's error."""
    command: click.Command = program
    name, context = "pytrace", None
    while isinstance(command, click.Group) and arguments:
        context = click.Context(command, info_name=name, parent=context)
        inner = command.get_command(context, arguments[0])
        if inner is None:
            break
        (name, *arguments), command = arguments, inner
    if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        raise click.UsageError(f"there is no command {arguments[0]!r}")
    command.make_context(name, arguments, parent=context)
