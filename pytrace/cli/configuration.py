"""Options that are repeated: in ``pytrace.toml`` and in ``PYTRACE_*``; the command line wins, then the environment, then the file.

A table of the file is a command (``[serve]``, ``[index.build]``), a key one of its options without the dashes; ``[defaults]`` has
options that several commands share. The file is that of ``PYTRACE_CONFIG``, or else those in the current directory and in the
user's configuration folder, of which the nearer one wins, option by option. The variable of ``pytrace serve --max-body`` is
``PYTRACE_SERVE_MAX_BODY``, that of an option in ``[defaults]`` also ``PYTRACE_LLM`` and its like.

Whoever unpacks documents and works in their folder has not read every file there. So a file that was merely found in the current
directory may not have commands run or packages installed, name servers on other machines or variables with keys, or have results written
elsewhere.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from pytrace.errors import DataError, InputError

NAME = "pytrace.toml"
VARIABLE = "PYTRACE_CONFIG"
DEFAULTS = "defaults"
# Options that mean the same in all commands that have them, but for those that are named.
SHARED: Mapping[str, frozenset[str]] = {
    "api-key-env": frozenset(),
    "concurrency": frozenset(),
    "context": frozenset(),
    "cross-encoder": frozenset(),
    "cross-encoder-set": frozenset(),
    "deterministic": frozenset(),
    "device": frozenset({"bench"}),
    "encoder": frozenset(),
    "encoder-set": frozenset(),
    "gpu-layers": frozenset(),
    "index": frozenset({"eval"}),  # whose questions have documents of their own
    "language": frozenset(),
    "llm": frozenset(),
    "llm-model": frozenset(),
    "llm-style": frozenset(),
    "method": frozenset(),
    "ocr": frozenset(),
    "reader-llm": frozenset(),
    "threads": frozenset({"bench"}),
    "timeout": frozenset({"models pull"}),
    "vector-cache": frozenset(),
}
# What is left out where one of the others was given nearer to the call.
_YIELDS = {"index": ("docs", "kg", "sentence_index"), "docs": ("index",), "questions": ("question",)}
# What a file that was merely found may not say, and what it may only say of places beside it.
_TRUSTED = frozenset({"api-key-env", "find-links", "no-key", "ocr", "ray-address", "source"})  # pip runs what it builds
_WRITTEN = frozenset({"kb-cache", "out", "output", "page", "plots", "sentence-index", "vector-cache"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_SECRET = re.compile(r"(.*-)?(api-?keys?|keys?|passwords?|secrets?|tokens?)")
_LARGEST = 1 << 20


class ConfigurationFile(NamedTuple):
    """A file that was read: its tables, and whether it was merely found in the current directory."""

    path: Path
    tables: dict[str, Any]
    found: bool

    def wrong(self, table: str, key: str, what: str) -> DataError:
        """Return the error of a key."""
        return DataError(f"[{table}] {key}: {what}", path=self.path)


class _Place(NamedTuple):
    """Where a value stands."""

    file: ConfigurationFile
    table: str
    key: str


class ConfiguredOption(click.Option):
    """An option that environment variables give, too: of its command alone, or of all that have it."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return what the first variable says that is set and not empty."""
        name = self.variable(ctx)
        return None if name is None else os.environ[name]

    def variable(self, ctx: click.Context) -> str | None:
        """Return the variable that gives the option here."""
        words = _words(ctx)
        names = [_variable(*words, _key(self))] if words else []
        names += [self.envvar] if isinstance(self.envvar, str) else list(self.envvar or ())
        names += [_variable(_key(self))] if _shared(_key(self), words) else []
        return next((name for name in names if os.environ.get(name)), None)


class ConfiguredCommand(click.Command):
    """A command whose options the file may give."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and take what it leaves open from the file."""
        return _parse(ctx, args, super().parse_args)


class ConfiguredGroup(click.Group):
    """A group of commands, whose own options the file may give where none of them is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and take what it leaves open from the file."""
        if self.callback is None or not self.commands.keys().isdisjoint(args):
            return super().parse_args(ctx, args)
        return _parse(ctx, args, super().parse_args)


def files() -> list[ConfigurationFile]:
    """Read the files that are used, the nearest first.

    Raises
    ------
    DataError
        One cannot be read, is no TOML, or holds a key that gives access to something.
    """
    if named := os.environ.get(VARIABLE):
        return [_read(Path(named).expanduser().absolute(), found=False)]
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a relative path is invalid and must be ignored.
    own = Path(folder if folder.startswith("/") else os.path.expanduser("~/.config"), "pytrace", NAME)  # noqa: PTH111 - never raises
    read = [_read(Path(NAME).absolute(), found=True)] if os.path.isfile(NAME) else []  # noqa: PTH113 - false where it cannot be seen
    if os.path.isfile(own) and not (read and own.samefile(read[0].path)):  # noqa: PTH113
        read.append(_read(own, found=False))
    return read


def check(root: click.Group, file: ConfigurationFile) -> Iterator[str]:
    """Iterate over all that a file says, as ``serve.port``.

    Raises
    ------
    DataError
        It says something that no command takes.
    """
    root_context = click.Context(root, info_name="pytrace")
    _check_tables(root_context, file)
    for key in file.tables.get(DEFAULTS, {}):
        yield f"{DEFAULTS}.{key}"
    open_tables: list[tuple[click.Context, dict[str, Any]]] = [(root_context, file.tables)]
    while open_tables:
        above, table = open_tables.pop()
        for name, inner in table.items():
            command = above.command.get_command(above, name) if isinstance(above.command, click.Group) else None
            if command is None or not isinstance(inner, dict):
                continue
            ctx = click.Context(command, info_name=name, parent=above)
            values, _ = _values(ctx, [file])
            options = {option.name: key for key, option in _options(command).items()}
            yield from (".".join([*_words(ctx), options[each]]) for each in values if options[each] in inner)
            open_tables.append((ctx, inner))


def _parse(ctx: click.Context, args: list[str], parse: Callable[[click.Context, list[str]], list[str]]) -> list[str]:
    if ctx.resilient_parsing or not set(ctx.help_option_names).isdisjoint(args):
        return parse(ctx, args)  # help must not fail by a file
    ctx.default_map, places = _values(ctx, files())
    try:
        rest = parse(ctx, args)
    except click.BadParameter as error:
        option = error.param
        source = None if option is None else ctx.get_parameter_source(str(option.name))
        if isinstance(option, ConfiguredOption) and not isinstance(error, click.MissingParameter):
            reason = f"{error.message.rstrip('.')} (see '{ctx.command_path} --help')"
            if source is ParameterSource.DEFAULT_MAP:
                place = places[str(option.name)]
                raise place.file.wrong(place.table, place.key, reason) from None
            if source is ParameterSource.ENVIRONMENT:
                raise InputError(f"{option.variable(ctx)} in the environment: {reason}") from None
        raise
    ranks = {name: _rank(ctx, name, places) for name in ctx.params}
    for name, others in _YIELDS.items():
        if any(ranks.get(other, 0) > ranks.get(name, 0) > 0 for other in others):
            ctx.params[name] = None
    return rest


def _rank(ctx: click.Context, name: str, places: Mapping[str, _Place]) -> int:
    """Return how near to the call a value was given; 0: nowhere."""
    source = ctx.get_parameter_source(name)
    if source is ParameterSource.COMMANDLINE:
        return 4 if ctx.params[name] is not None else 0
    if source is ParameterSource.ENVIRONMENT:
        return 3
    if source is ParameterSource.DEFAULT_MAP:
        return 1 if places[name].table == DEFAULTS else 2
    return 0


def _read(path: Path, *, found: bool) -> ConfigurationFile:
    remedy = f"correct it, or name another file with {VARIABLE}"
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DataError(f"the configuration cannot be read ({reason.lower()}); {remedy}", path=path) from None
    if len(content) > _LARGEST:
        raise DataError(f"the configuration has more than {_LARGEST:,} bytes; {remedy}", path=path)
    try:
        tables = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # no UTF-8 is a ValueError, too
        place = re.search(r" \(at line (\d+), column \d+\)", str(error))
        line = int(place[1]) if place else None
        reason = str(error).replace(place[0], "") if place else str(error)
        raise DataError(f"this is no TOML: {reason}; {remedy}", path=path, line=line) from None
    file = ConfigurationFile(path, tables, found)
    _refuse_secrets(file)
    return file


def _refuse_secrets(file: ConfigurationFile) -> None:
    """Refuse keys that give access: files are copied, shown and committed."""
    stack: list[tuple[str, Mapping[str, Any]]] = [("", file.tables)]
    while stack:
        table, values = stack.pop()
        for key, value in values.items():
            if isinstance(value, dict):
                stack.append((f"{table}.{key}".lstrip("."), value))
            elif _SECRET.fullmatch(key.casefold().replace("_", "-")) and key != "no-key":
                raise file.wrong(
                    table, key, "keys do not belong in this file; set the environment variable PYTRACE_API_KEY"
                )


def _values(ctx: click.Context, read: Sequence[ConfigurationFile]) -> tuple[dict[str, Any], dict[str, _Place]]:
    """Return what files give to a command, by the names of its parameters, and where each stands."""
    words = _words(ctx)
    options = _options(ctx.command)
    values: dict[str, Any] = {}
    places: dict[str, _Place] = {}
    for file in reversed(read):
        _check_tables(ctx.find_root(), file)
        own = _table(ctx, file)
        given = [(DEFAULTS, key, value) for key, value in file.tables.get(DEFAULTS, {}).items()]
        given = [each for each in given if each[1] in options and _shared(each[1], words)]
        for table, key, value in [*given, *((".".join(words), key, value) for key, value in own.items())]:
            if key not in options:
                raise file.wrong(table, key, f"there is no such option{_meant(key, options)}")
            place = _Place(file, table, key)
            name = str(options[key].name)
            values[name], places[name] = _value(options[key], value, place), place
    return values, places


def _check_tables(root: click.Context, file: ConfigurationFile) -> None:
    """Refuse tables that are no commands, and defaults that are not shared."""
    if not isinstance(root.command, click.Group):
        return
    names = [*root.command.list_commands(root), DEFAULTS]
    for name, table in file.tables.items():
        if not isinstance(table, dict):
            if name in SHARED:
                raise DataError(f"{name}: this stands outside of a table; put it below [{DEFAULTS}]", path=file.path)
            raise DataError(f"{name}: this stands outside of a table; put it below that of its command", path=file.path)
        if name not in names:
            raise DataError(f"[{name}]: there is no such command{_meant(name, names)}", path=file.path)
    for key in file.tables.get(DEFAULTS, {}):
        if key not in SHARED:
            raise file.wrong(
                DEFAULTS, key, f"this is no option that commands share{_meant(key, SHARED)}; put it below its command"
            )


def _table(ctx: click.Context, file: ConfigurationFile) -> dict[str, Any]:
    """Return a command's table, without those of its own commands."""
    table: dict[str, Any] = file.tables
    above: list[click.Context] = []
    here: click.Context | None = ctx
    while here is not None and here.parent is not None:
        above.insert(0, here)
        here = here.parent
    for each in above:
        table = table.get(str(each.info_name), {})
        name = ".".join(_words(each))
        if not isinstance(table, dict):
            raise file.wrong(".".join(_words(each)[:-1]), str(each.info_name), "this is a command; make it a table")
        group = each.command
        if not isinstance(group, click.Group):
            continue
        for key, value in table.items():
            if key in group.commands or key in _options(group):
                continue
            if isinstance(value, dict):
                raise DataError(
                    f"[{name}.{key}]: there is no such command{_meant(key, group.commands)}", path=file.path
                )
            if group.callback is None:
                raise file.wrong(
                    name, key, f"options belong to one of its commands, as below [{name}.{next(iter(group.commands))}]"
                )
    subcommands = ctx.command.commands if isinstance(ctx.command, click.Group) else {}
    return {key: value for key, value in table.items() if key not in subcommands}


def _value(option: click.Option, value: Any, place: _Place) -> Any:
    """Return a value as click takes it."""
    if option.multiple:
        return [_single(option, each, place) for each in (value if isinstance(value, list) else [value])]
    return _single(option, value, place)


def _single(option: click.Option, value: Any, place: _Place) -> Any:
    kinds: dict[type, tuple[tuple[type, ...], str]] = {
        click.types.BoolParamType: ((bool,), "true or false"),
        click.types.IntParamType: ((int,), "a whole number"),
        click.types.FloatParamType: ((int, float), "a number"),
    }
    taken, words = next((kinds[kind] for kind in kinds if isinstance(option.type, kind)), ((str,), "a text in quotes"))
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in taken):
        shown = repr(value)
        raise place.file.wrong(place.table, place.key, f"{shown[:60]} is not {words}; write {words}")
    if not isinstance(value, str):
        if value is True:
            _check_trust(place, "")
        return value
    if "\x00" in value:
        raise place.file.wrong(place.table, place.key, "the text has a NUL character; leave it out")
    return _text(option, value, place)


def _text(option: click.Option, value: str, place: _Place) -> str:
    """Return a text; relative paths are of the file's folder, as far as they are paths."""
    folder = place.file.path.parent
    kinds = (option.metavar or "").split("|")
    if isinstance(option.type, click.Path):
        kinds = ["FILE"]
    if "@FILE" in kinds and value.startswith("@"):
        return f"@{folder / Path(value[1:])}"
    files_only = all(kind.startswith(("FILE", "DIR")) for kind in kinds)
    address = "://" in value and not files_only
    # A name of a model has no slash, and is none of a file that is there.
    named = "/" not in value and not os.path.isfile(folder / value)  # noqa: PTH113 - false of a name that is too long, too
    mixed = any(kind.startswith(("FILE", "DIR")) for kind in kinds) and ("NAME" not in kinds or not named)
    if not address and value and (files_only or (mixed and value != "few-shot")):
        value = str(folder / os.path.expanduser(value))  # noqa: PTH111 - `~nobody` stays as it is
        _check_trust(place, value, path=True)
    else:
        _check_trust(place, value, address=address)
    return value


def _check_trust(place: _Place, value: str, *, path: bool = False, address: bool = False) -> None:
    """Refuse what leads out of the folder of a file that was merely found."""
    if not place.file.found:
        return
    if place.key in _TRUSTED:
        what = "this is for files that you have named"
    elif address and not _on_this_machine(value):
        what = "the address is of another machine"
    elif path and place.key in _WRITTEN and not Path(value).resolve().is_relative_to(place.file.path.parent.resolve()):
        what = "the place that is written to is outside of its folder"
    else:
        return
    raise place.file.wrong(
        place.table,
        place.key,
        f"{what}, and this file was only found in the current directory; if you trust it, set {VARIABLE} to its path",
    )


def _on_this_machine(address: str) -> bool:
    try:
        return urlsplit(address).hostname in _LOOPBACK
    except ValueError:
        return False


def _options(command: click.Command) -> dict[str, ConfiguredOption]:
    """Return the options of a command by their keys."""
    return {_key(each): each for each in command.params if isinstance(each, ConfiguredOption)}


def _key(option: click.Option) -> str:
    return option.opts[0].lstrip("-")


def _shared(key: str, words: Sequence[str]) -> bool:
    return key in SHARED and " ".join(words) not in SHARED[key]


def _variable(*words: str) -> str:
    return "_".join(["PYTRACE", *words]).upper().replace("-", "_")


def _words(ctx: click.Context) -> list[str]:
    """Return a command's name as it is typed, without the program's."""
    words: list[str] = []
    here: click.Context | None = ctx
    while here is not None and here.parent is not None:
        words.insert(0, str(here.info_name))
        here = here.parent
    return words


def _meant(name: str, known: Mapping[str, object] | Sequence[str]) -> str:
    near = difflib.get_close_matches(name.replace("_", "-"), list(known), 1)
    return f"; did you mean {near[0]}" if near else ""
