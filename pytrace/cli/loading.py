"""Options that several commands share, and the models and methods they load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from pytrace.errors import DataError, InputError

if TYPE_CHECKING:
    from pytrace.methods.catalog import MethodName
    from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.language_model import LanguageModel, Style

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class EncoderOptions:
    """What the options of `encoder_options` say; the encoder is loaded when it is first asked for."""

    encoder_name: str
    device: str
    threads: int | None
    vector_cache: str | None

    def check_device(self) -> None:
        """Refuse a card that the kernels or the models cannot use, before anything is read or loaded."""
        if self.device == "cuda":
            from pytrace.kernels import devices
            from pytrace.models.encoders import onnx_graph

            devices.require("cuda")
            onnx_graph.require_device("cuda")

    @functools.cached_property
    def encoder(self) -> OnnxEncoder:
        """The encoder."""
        from pytrace.models import registry
        from pytrace.models.encoders.encoder import OnnxEncoder

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
    cross_encoder_directory: Path | None

    @property
    def _layers_on_gpu(self) -> int:
        """How many layers of a model in this process go to the GPU; -1 stands for all."""
        return self.gpu_layers if self.gpu_layers is not None else -1 if self.device == "cuda" else 0

    def check_device(self) -> None:
        """Refuse a card as `EncoderOptions.check_device` does, and where llama.cpp cannot use one either."""
        super().check_device()
        if self.device == "cuda" and not self.remote:
            from pytrace.models.llama import runtime as llama_runtime

            llama_runtime.require_offload(self._layers_on_gpu)

    @property
    def remote(self) -> bool:
        """Whether the language model runs on a server."""
        return self.llm.lower().startswith(("http://", "https://"))

    @functools.cached_property
    def cross_encoder(self) -> OnnxCrossEncoder:
        """The cross-encoder, which runs where the encoder does."""
        from pytrace.methods.catalog import NO_CROSS_ENCODER
        from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder

        if self.cross_encoder_directory is None:
            raise InputError(NO_CROSS_ENCODER)
        return OnnxCrossEncoder(
            self.cross_encoder_directory, device="cuda" if self.device == "cuda" else "cpu", threads=self.threads
        )

    @functools.cached_property
    def model(self) -> LanguageModel:
        """The language model: a server's where an address is given, else one inside this process."""
        from pytrace.methods.profiles import prompt_style
        from pytrace.models import registry
        from pytrace.models.llama.llama_cpp import LlamaCppModel
        from pytrace.models.servers.remote_model import RemoteModel

        if self.remote:
            if self.gpu_layers is not None:
                raise InputError(
                    "--gpu-layers is for models inside this process; a server has its own settings, so leave it out"
                )
            if self.deterministic:
                raise InputError(
                    "--deterministic is for models inside this process; a server batches as it likes, so leave it out"
                )
            return RemoteModel(
                self.llm,
                model=self.llm_model,
                style=self.llm_style or "auto",
                context=self.context,
                concurrency=self.concurrency,
                api_key_env=self.api_key_env,
            )
        return LlamaCppModel(
            registry.resolve(self.llm, "language-model"),
            name=self.llm,
            context=self.context,
            threads=self.threads,
            gpu_layers=self._layers_on_gpu,
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
    click.option(
        "--cross-encoder",
        "cross_encoder_directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="For the method cross-encoder: the ONNX export of a model that ranks passages.",
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
    """Give a command the repeatable option ``--set NAME=VALUE``, passed to it as `settings`.

    ``--set @FILE`` stands for the settings in a file that 'pytrace tune' wrote.
    """
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
