"""A command's options, declared once: attributes of a class that click parses, and of whose values the command is handed one."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from pytrace.cli import common

# Types that options classes name but that only their rooms can import, too slowly for `--help`; such fields say `type=`.
_UNLOADED = {"MethodName": object}


class Result(NamedTuple):
    """What a command found: the document that ``--json`` prints, and its text, or what prints it."""

    document: object
    text: str | Callable[[], object]

    def show(self, *, as_json: bool) -> None:
        """Print the document or the text on stdout."""
        if as_json:
            common.print_json(self.document)
        elif callable(self.text):
            self.text()
        else:
            common.print_text(self.text)


class Options:
    """The options of a command: a subclass declares each as an attribute with its type; as it is, for commands without any."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)
        self.check()

    def check(self) -> None:
        """Refuse options that do not belong together."""


_R = TypeVar("_R", bound=Options)


def option(help: str, flag: str = "", **details: Any) -> Any:
    """Declare an option.

    The attribute's type says what is parsed: a `Literal` gives choices, a tuple an option that may be repeated, `bool` a flag,
    and whatever is neither of the latter, not optional and without `default` is required.

    Parameters
    ----------
    help
        What ``--help`` says.
    flag
        The option's name where it is not the attribute's.
    **details
        Bounds by the names of `msgspec.Meta` (`ge`, `gt`, `le`, `lt`), `choices`, and whatever `click.option` takes.

    Returns
    -------
    Any
        The declaration, to be made the attribute's value.
    """
    return {"help": help, "flag": flag, **details}


def argument(metavar: str | None = None, **details: Any) -> Any:
    """Declare an argument; the type of one that takes all that follow is a tuple."""
    return {"argument": True, "metavar": metavar, **details}


def group(make: Callable[..., Any], record: type[Any], options: Mapping[str, Any]) -> Any:
    """Declare what `make` builds of several options: fields of the dataclass `record` by name, in the order of ``--help``."""
    return {"make": make, "record": record, "options": options}


def takes(record: type[_R]) -> Callable[[Callable[[_R], Result | int | None]], Callable[..., Any]]:
    """Give a command the options that `record` declares, passed to it as one, and ``--json``, which prints its `Result`."""

    def decorate(function: Callable[[_R], Result | int | None]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(**values: Any) -> Any:
            result = function(_built(record, values))
            if not isinstance(result, Result):
                return result
            result.show(as_json=values["as_json"])
            return None

        as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
        # click puts what is applied last first.
        for parameter in reversed([*_parameters(record), as_json]):
            command = parameter(command)
        return command

    return decorate


def _built(record: type[_R], values: Mapping[str, Any]) -> _R:
    chosen = {}
    for name in get_type_hints(record, localns=_UNLOADED):
        declared = vars(record).get(name, {})
        if "make" in declared:
            chosen[name] = declared["make"](**{each: values[each] for each in declared["options"]})
        else:
            chosen[name] = values[name]
    return record(**chosen)


def _parameters(record: type[Options]) -> Iterator[Callable[[Any], Any]]:
    for name, hint in get_type_hints(record, localns=_UNLOADED).items():
        declared = vars(record).get(name, {})
        if "make" in declared:
            yield from _grouped(declared["record"], declared["options"])
        elif declared:  # `as_json` has no declaration: all commands have it, and few need to know
            yield _parameter(name, hint, **declared)


def _grouped(record: type[Any], options: Mapping[str, Any]) -> Iterator[Callable[[Any], Any]]:
    hints = get_type_hints(record)
    defaults = {each.name: {} if each.default is MISSING else {"default": each.default} for each in fields(record)}
    for name, declared in options.items():
        yield _parameter(name, hints[name], **{**defaults[name], **declared})


def _parameter(name: str, hint: Any, *, flag: str = "", argument: bool = False, **details: Any) -> Callable[[Any], Any]:
    """Return the decorator that click has for a parameter of this type."""
    bounds: dict[str, float] = {bound: details.pop(bound) for bound in ("ge", "gt", "le", "lt") if bound in details}
    optional = get_origin(hint) in {Union, types.UnionType}
    if optional:
        (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
    repeated = get_origin(hint) is tuple
    kind = get_args(hint)[0] if repeated else hint
    if kind is not bool:
        details.setdefault("type", _click_type(kind, bounds, details.pop("choices", None)))
    if argument:
        return click.argument(name, nargs=-1 if repeated else 1, **details)
    if kind is not bool:
        default = details.get("default")
        details.setdefault("required", "default" not in details and not (optional or repeated))
        details.setdefault("show_default", default is not None)
        details["multiple"] = repeated
    elif "/" not in flag:
        details["is_flag"] = True
    return click.option(flag or f"--{name.replace('_', '-')}", name, **details)


def _click_type(kind: Any, bounds: Mapping[str, float], choices: tuple[str, ...] | None) -> Any:
    if choices is not None or get_origin(kind) is Literal:
        return click.Choice(choices or get_args(kind))
    if kind is Path:
        return click.Path(path_type=Path)
    if not bounds:
        return kind
    lowest, highest = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    limits: dict[str, Any] = {"min": lowest, "max": highest, "min_open": "gt" in bounds, "max_open": "lt" in bounds}
    return click.IntRange(**limits) if kind is int else click.FloatRange(**limits)
