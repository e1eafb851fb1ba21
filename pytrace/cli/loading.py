"""Options that several commands share, and the models and methods they load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.methods.catalog import MethodName
    from pytrace.models.encoder import OnnxEncoder
    from pytrace.models.language_model import LanguageModel, Style

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class EncoderOptions:
    """What the options of `encoder_options` say; the encoder is loaded when it is first asked for."""

    encoder_name: str
    device: str
    threads: int | None
    vector_cache: str | None

    @functools.cached_property
    def encoder(self) -> OnnxEncoder:
        """The encoder."""
        from pytrace.models import registry
        from pytrace.models.encoder import OnnxEncoder

        return OnnxEncoder(
            registry.resolve(self.encoder_name, "encoder"),
            device="cuda" if self.device == "cuda" else "cpu",
            threads=self.threads,
            cache_directory=self.vector_cache or None,
        )


@dataclass
class ModelOptions(EncoderOptions):
    """What the options of `model_options` say; models are loaded when they are first asked for."""

    llm: str
    gpu_layers: int | None
    context: int | None
    llm_style: Style | None
    llm_model: str | None
    api_key_env: str
    concurrency: int
    deterministic: bool

    @property
    def remote(self) -> bool:
        """Whether the language model runs on a server."""
        return self.llm.lower().startswith(("http://", "https://"))

    @functools.cached_property
    def model(self) -> LanguageModel:
        """The language model: a server's where an address is given, else one inside this process."""
        from pytrace.methods.profiles import prompt_style
        from pytrace.models import registry
        from pytrace.models.llama_cpp import LlamaCppModel
        from pytrace.models.openai_api import RemoteModel

        if self.remote:
            if self.gpu_layers is not None:
                message = (
                    "--gpu-layers is for models inside this process; a server has its own settings, so leave it out"
                )
                raise InputError(message)
            if self.deterministic:
                message = (
                    "--deterministic is for models inside this process; a server batches as it likes, so leave it out"
                )
                raise InputError(message)
            return RemoteModel(
                self.llm,
                model=self.llm_model,
                style=self.llm_style or "auto",
                context=self.context,
                concurrency=self.concurrency,
                api_key_env=self.api_key_env,
            )
        layers = self.gpu_layers if self.gpu_layers is not None else -1 if self.device == "cuda" else 0
        return LlamaCppModel(
            registry.resolve(self.llm, "language-model"),
            name=self.llm,
            context=self.context,
            threads=self.threads,
            gpu_layers=layers,
            style=self.llm_style or prompt_style(self.llm),
            deterministic=self.deterministic,
        )


_ENCODER_OPTIONS = (
    click.option("--encoder", "encoder_name", default="tiny", show_default=True, metavar="NAME|DIR", help="Encoder."),
    click.option(
        "--device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="Where models run; fails if it is not there.",
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
    *_ENCODER_OPTIONS[:2],
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
)


def encoder_options(function: _F) -> _F:
    """Give a command the options that choose an encoder, passed to it as one `EncoderOptions` named `models`."""
    return _with_options(function, _ENCODER_OPTIONS, EncoderOptions)


def model_options(function: _F) -> _F:
    """Give a command the options that choose models, passed to it as one `ModelOptions` named `models`."""
    return _with_options(function, _MODEL_OPTIONS, ModelOptions)


def _with_options(
    function: _F, options: Sequence[Callable[[Any], Any]], record: type[EncoderOptions | ModelOptions]
) -> _F:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        models = record(**{option.name: kwargs.pop(option.name) for option in fields(record)})
        return function(*args, models=models, **kwargs)

    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def graph_option(*, required: bool) -> Callable[[_F], _F]:
    """Give a command the options ``--kg`` and ``--kg-format``, passed to it as `kg` and `kg_format`."""
    from pytrace.graph.exchange import FORMATS

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
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Change a setting of the method, for instance chains=3 or top=10. May be repeated.",
    )(function)
