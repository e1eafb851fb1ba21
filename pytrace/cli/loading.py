"""Options that several commands share, and the models and methods they load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from pytrace.engine.loading import EncoderLoader, Engine, profile_encoder
from pytrace.errors import DataError, InputError

if TYPE_CHECKING:
    from pytrace.methods.catalog import MethodName

_F = TypeVar("_F", bound=Callable[..., Any])


_ENCODER_OPTIONS = (
    click.option("--encoder", "encoder_name", default="tiny", show_default=True, metavar="NAME|DIR", help="Encoder."),
    click.option(
        "--device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="Where models run and kept vectors are searched; fails if it is not there.",
    ),
    click.option("--threads", type=click.IntRange(min=1), help="Threads of the models."),
    click.option(
        "--vector-cache",
        metavar="DIR",
        envvar="PYTRACE_VECTOR_CACHE",
        show_envvar=True,
        help="Keep the encoder's vectors there for later runs; several may share it.",
    ),
)
_MODEL_OPTIONS = (
    click.option("--llm", default="tiny", show_default=True, metavar="NAME|FILE|URL", help="Language model."),
    click.option(
        "--encoder",
        "encoder_name",
        metavar="NAME|DIR",
        help="Encoder.  [default: that of the profile in --llm, else tiny]",
    ),
    _ENCODER_OPTIONS[1],
    click.option("--gpu-layers", type=int, help="Layers of the language model on the GPU (-1: all)."),
    _ENCODER_OPTIONS[2],
    click.option("--context", type=click.IntRange(min=64), help="Longest prompt and answer together, in tokens."),
    click.option(
        "--llm-style",
        type=click.Choice(["auto", "chat", "plain"]),
        help="Prompts by the model's chat template, or without; what suits the model if not given.",
    ),
    click.option("--llm-model", metavar="NAME", help="Which model of a server that has several."),
    click.option(
        "--api-key-env",
        default="PYTRACE_API_KEY",
        show_default=True,
        metavar="VARIABLE",
        help="The environment variable that holds a server's API key.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        help="Requests to a server at once.",
    ),
    _ENCODER_OPTIONS[3],
    click.option(
        "--deterministic",
        is_flag=True,
        help="Fix the shape and order of batches, so that the same call repeats bit for bit; slower.",
    ),
    click.option(
        "--cross-encoder",
        "cross_encoder_directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="For the method cross-encoder: the ONNX export of a model that ranks passages.",
    ),
    click.option("--reader-llm", metavar="NAME|FILE|URL", help="Read answers with another language model than --llm."),
)


def encoder_options(function: _F) -> _F:
    """Give a command the options that choose an encoder, passed to it as one `EncoderLoader` named `models`."""
    return _with_options(function, _ENCODER_OPTIONS, EncoderLoader)


def model_options(function: _F) -> _F:
    """Give a command the options that choose models, passed to it as one `Engine` named `models`."""
    return _with_options(function, _MODEL_OPTIONS, Engine)


def _with_options(function: _F, options: Sequence[Callable[[Any], Any]], record: type[EncoderLoader | Engine]) -> _F:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = {option.name: kwargs.pop(option.name) for option in fields(record)}
        if chosen["encoder_name"] is None:
            chosen["encoder_name"] = profile_encoder(chosen["llm"])
        models = record(**chosen)
        models.check_device()
        return function(*args, models=models, **kwargs)

    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def graph_option(*, required: bool) -> Callable[[_F], _F]:
    """Give a command the options ``--kg`` and ``--kg-format``, passed to it as `kg` and `kg_format`."""
    from pytrace.triples.graph.exchange import FORMATS

    graph = click.option(
        "--kg",
        type=click.Path(path_type=Path),
        required=required,
        metavar="KB",
        help="The graph: TSV, JSONL, N-Triples, Turtle, or the directory that 'kg build' or 'kg index' made.",
    )
    form = click.option(
        "--kg-format", type=click.Choice(FORMATS), help="Of the graph, if the suffix of its file does not tell it."
    )
    return lambda function: graph(form(function))


class _SettingsFile(msgspec.Struct):
    settings: tuple[str, ...]


class MethodType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A method, with settings of its own behind a colon: ``ks-llm:sentences=3``."""

    name = "method"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MethodName:
        """Read a method's name."""
        from pytrace.methods.catalog import MethodName, parse_method

        if isinstance(value, MethodName):
            return value
        try:
            return parse_method(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def settings_option(function: _F) -> _F:
    """Give a command the repeatable option ``--set NAME=VALUE``, passed to it as `settings`."""
    # ``--set @FILE`` stands for the settings in a file that 'pytrace tune' wrote.
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE|@FILE",
        help="Change a setting of the method, for instance chains=3 or top=10, or all that 'tune' found. May be repeated.",
        callback=lambda _, __, values: tuple(one for value in values for one in _settings_of(value)),
    )(function)


def _settings_of(value: str) -> Sequence[str]:
    """Return a setting, or those in a file."""
    if not value.startswith("@"):
        return [value]
    path = Path(value[1:])
    try:
        return msgspec.json.decode(path.read_bytes(), type=_SettingsFile).settings
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"no settings can be read ({error}); give the settings.json that 'pytrace tune' wrote", path=path
        ) from None
