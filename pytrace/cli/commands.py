"""A command is a class: its attributes are its options, its docstring is what ``--help`` says, and `run` does it."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import click

from pytrace.cli import common
from pytrace.cli.configuration import ConfiguredCommand, ConfiguredGroup, ConfiguredOption

if TYPE_CHECKING:
    from pytrace.documents.read_report import Skipped

# Types that commands name but that only their rooms can import, too slowly for `--help`; such attributes say `type=`.
_UNLOADED = {"MethodName": object}
# Of every number that is given: what follows it (C integers, seconds of timers) holds no more.
_MOST = (1 << 31) - 1


class Output(NamedTuple):
    """What a command found: the document that ``--json`` prints, its text, or what prints it, and files that it could not read.

    `status` is the exit status where no file was bad.
    """

    document: object
    text: str | Callable[[], object]
    bad: Sequence[Skipped] = ()
    status: int = 0

    def show(self, *, as_json: bool) -> None:
        """Print the document or the text on stdout."""
        if as_json:
            common.print_json(self.document)
        elif callable(self.text):
            self.text()
        else:
            common.print_text(self.text)


class Command:
    """A command, made for one call of it: a subclass declares each option as an attribute with its type.

    Every command has ``--json`` besides; one that needs to know of it declares ``as_json: bool``.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)
        self.check()

    def check(self) -> None:
        """Refuse options that do not belong together."""

    def run(self) -> Output | int | None:
        """Do what the command is for; return what it found, an exit status, or nothing."""
        raise NotImplementedError


def option(help: str, flag: str = "", **details: Any) -> Any:
    """Declare an option; `flag` is its name where it is not the attribute's.

    The attribute's type says what is parsed: a `Literal` gives choices, a tuple an option that may be repeated, `bool` a flag;
    one that is none of the last two, not optional and without `default` is required. `details` are bounds by the names of
    `msgspec.Meta` (`ge`, `gt`, `le`, `lt`), `choices`, and whatever `click.Option` takes.
    """
    return {"help": help, "flag": flag, **details}


def argument(metavar: str | None = None, **details: Any) -> Any:
    """Declare an argument; the type of one that takes all that follow is a tuple."""
    return {"argument": True, "metavar": metavar, **details}


def group(make: Callable[..., Any], record: type[Any], options: Mapping[str, Any]) -> Any:
    """Declare what `make` builds of several options: fields of `record`, a class, by name, in the order of ``--help``."""
    return {"make": make, "record": record, "options": options}


def click_command(command: type[Command]) -> click.Command:
    """Return click's form of a command, by the name of its class."""
    return ConfiguredCommand(_name(command), **_settings(command))


def click_group(help: str | type[Command], *commands: type[Command]) -> click.Group:
    """Return a group of commands: with a help text, or a command that is run where none of the others is named."""
    members = {_name(command): click_command(command) for command in commands}
    if isinstance(help, str):
        return ConfiguredGroup(commands=members, help=inspect.cleandoc(help))
    return ConfiguredGroup(_name(help), commands=members, invoke_without_command=True, **_settings(help))


def _name(command: type[Command]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", command.__name__).lower()


def _settings(command: type[Command]) -> dict[str, Any]:
    def call(*, as_json: bool, **values: Any) -> int | None:
        result = _made(command, {**values, "as_json": as_json}).run()
        if not isinstance(result, Output):
            return result
        result.show(as_json=as_json)  # on stdout alone; remarks and progress are on stderr
        return common.bad_status(result.bad) or result.status

    as_json = ConfiguredOption(["--json", "as_json"], is_flag=True, help="Print one JSON document on stdout.")
    return {"callback": call, "params": [*_parameters(command), as_json], "help": inspect.getdoc(command)}


def _made(command: type[Command], values: Mapping[str, Any]) -> Command:
    chosen = {}
    for name in get_type_hints(command, localns=_UNLOADED):
        declared = vars(command).get(name, {})
        if "make" in declared:
            chosen[name] = declared["make"](**{option: values[option] for option in declared["options"]})
        else:
            chosen[name] = values[name]
    return command(**chosen)


def _parameters(command: type[Command]) -> Iterator[click.Parameter]:
    for name, hint in get_type_hints(command, localns=_UNLOADED).items():
        declared = vars(command).get(name, {})
        if "make" in declared:
            record, options = declared["record"], declared["options"]
            # Defaults are the record's own, so that the library and the command line agree.
            hints = get_type_hints(record)
            defaults = {
                field.name: {"default": field.default}
                for field in (fields(record) if is_dataclass(record) else ())
                if field.default is not MISSING
            }
            for option, details in options.items():
                yield _parameter(option, hints[option], **{**defaults.get(option, {}), **details})
        elif declared:  # `as_json` has no declaration
            yield _parameter(name, hint, **declared)


def _parameter(name: str, hint: Any, *, flag: str = "", argument: bool = False, **details: Any) -> click.Parameter:
    """Return click's form of an option or argument of this type."""
    bounds: dict[str, float] = {bound: details.pop(bound) for bound in ("ge", "gt", "le", "lt") if bound in details}
    optional = get_origin(hint) in {Union, types.UnionType}  # `int | None` may be left out
    if optional:
        (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
    repeated = get_origin(hint) is tuple
    kind = get_args(hint)[0] if repeated else hint
    if kind in (int, float):
        details["callback"] = _within_bounds
    if kind is not bool:
        details.setdefault("type", _click_type(kind, bounds, details.pop("choices", None)))
    if argument:
        return click.Argument([name], nargs=-1 if repeated else 1, **details)
    if kind is not bool:
        default = details.get("default")
        details.setdefault("required", "default" not in details and not (optional or repeated))
        # Where the help text words the default, there is none here.
        details.setdefault("show_default", default is not None)
        details["multiple"] = repeated
    elif "/" not in flag:  # click knows `--rows/--no-rows` by its slash
        details["is_flag"] = True
    return ConfiguredOption([flag or f"--{name.replace('_', '-')}", name], **details)


def _within_bounds(_: click.Context, __: click.Parameter, value: Any) -> Any:
    for number in value if isinstance(value, tuple) else () if value is None else (value,):
        if number != number:  # noqa: PLR0124 - NaN alone differs from itself
            raise click.BadParameter("nan is not a number.")
        if abs(number) > _MOST:
            raise click.BadParameter(f"{number} is not within {_MOST:,}.")
    return value


def _click_type(kind: Any, bounds: Mapping[str, float], choices: tuple[str, ...] | None) -> Any:
    if choices is not None or get_origin(kind) is Literal:
        return click.Choice(choices or get_args(kind))
    if kind is Path:
        return click.Path(path_type=Path)
    if not bounds:  # click knows int, float and str by themselves
        return kind
    lowest, highest = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    limits: dict[str, Any] = {"min": lowest, "max": highest, "min_open": "gt" in bounds, "max_open": "lt" in bounds}
    return click.IntRange(**limits) if kind is int else click.FloatRange(**limits)
