"""Every option and argument of every command, given what no user would mean.

The others are what the command needs to begin, so that the value is looked at and not the lack of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from random import Random

import click

from pytrace.cli import program
from tests.attack import _supplies
from tests.attack.frame import Attack
from tests.attack.frame import command as run

_NUMBERS = ("", "-1", "0", "nan", "-inf", "1e400", "99999", "99999999999999999999", "0x10", "1_000", "٣", "3; ls")
_WORDS = (
    "", " ", "-", "nan", "a" * 100_000, "../../..", "\x1b[31mred\x1b[0m", "\u202etxt.exe", b"\xff\xfe\x80", "%s%n{0}", "=1+1", "é\n\rb",
    "x=" + "[" * 2000, "link_weight=inf", "depth=99999999999999999999", "top=nan", "http://[", "file:///etc/passwd", "bm25:top=0",
)  # fmt: skip
_PATHS = (
    "",
    "no/such/place",
    "a" * 5000,
    b"\xff\xfe",
    "/dev/null",
    "/dev/zero",
    "/proc/self/mem",
    "folder",
    "loop",
    "empty",
    "noise",
    "docs/tern.md/x",
)


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    supplies = _supplies.make(workplace / "supplies")
    tried = [
        (name, parameter, value)
        for name, parameter in _parameters()
        for value in random.sample(_values(parameter), 2)
    ]  # fmt: skip
    for name, parameter, value in random.sample(tried, 5) if short else tried:
        shown = repr(value if len(value) < 40 else value[:40])
        yield Attack(f"{name} {parameter.opts[0]} {shown}", partial(_try, supplies, name, parameter, value))


def _try(supplies: Path, name: str, parameter: click.Parameter, value: str | bytes) -> str | None:
    memory = (6 if parameter.name == "context" else 4) << 30  # a long context is what is asked for there
    with _supplies.copied(supplies) as folder:
        return run([*name.split(), *_arguments(name, parameter, value)], cwd=folder, seconds=60, memory=memory)


def _arguments(name: str, parameter: click.Parameter, value: str | bytes) -> list[str | bytes]:
    arguments: list[str | bytes] = list(_supplies.BEGINNINGS[name])
    if isinstance(parameter, click.Argument):
        place = [each.name for each in _commands()[name].params if isinstance(each, click.Argument)].index(
            parameter.name
        )
        arguments[place : place + 1] = [value]
    elif (option := parameter.opts[0]) in arguments:
        arguments[arguments.index(option) + 1] = value
    else:
        arguments += [option, value]
    return arguments


def _values(parameter: click.Parameter) -> tuple[str | bytes, ...]:
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
        return _NUMBERS
    return _PATHS if isinstance(parameter.type, click.Path) else _WORDS


def _parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name, found in _commands().items():
        for parameter in found.params:
            if not (isinstance(parameter, click.Option) and parameter.is_flag):
                yield name, parameter


@cache
def _commands() -> dict[str, click.Command]:
    """Return all commands by their names, those of groups as "group command"."""
    found = {}

    def look(command: click.Command, name: str) -> None:
        if not isinstance(command, click.Group) or command.invoke_without_command:
            found[name] = command
        if isinstance(command, click.Group):
            for child in command.list_commands(click.Context(command)):
                if member := command.get_command(click.Context(command), child):
                    look(member, f"{name} {child}".strip())

    look(program, "")
    return found
