"""Options that several commands share, and the models and methods they load."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.models.encoder import OnnxEncoder
    from pytrace.models.language_model import LanguageModel, Style

_F = TypeVar("_F", bound=Callable[..., Any])


class ModelOptions:
    """What the options of `model_options` say; models are loaded when they are first asked for."""

    def __init__(
        self,
        *,
        llm: str,
        encoder: str,
        device: str,
        gpu_layers: int | None,
        threads: int | None,
        context: int | None,
        llm_style: Style | None,
        llm_model: str | None,
        api_key_env: str,
        concurrency: int,
        vector_cache: str | None = None,
        deterministic: bool = False,
    ) -> None:
        self.llm = llm
        self.encoder_name = encoder
        self._device = device
        self._gpu_layers = gpu_layers
        self._threads = threads
        self._context = context
        self._style = llm_style
        self._server_model = llm_model
        self._api_key_env = api_key_env
        self._concurrency = concurrency
        self._vector_cache = vector_cache
        self._deterministic = deterministic

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
            if self._gpu_layers is not None:
                message = (
                    "--gpu-layers is for models inside this process; a server has its own settings, so leave it out"
                )
                raise InputError(message)
            if self._deterministic:
                message = (
                    "--deterministic is for models inside this process; a server batches as it likes, so leave it out"
                )
                raise InputError(message)
            return RemoteModel(
                self.llm,
                model=self._server_model,
                style=self._style or "auto",
                context=self._context,
                concurrency=self._concurrency,
                api_key_env=self._api_key_env,
            )
        layers = self._gpu_layers if self._gpu_layers is not None else -1 if self._device == "cuda" else 0
        return LlamaCppModel(
            registry.resolve(self.llm, "language-model"),
            name=self.llm,
            context=self._context,
            threads=self._threads,
            gpu_layers=layers,
            style=self._style or prompt_style(self.llm),
            deterministic=self._deterministic,
        )

    @functools.cached_property
    def encoder(self) -> OnnxEncoder:
        """The encoder."""
        from pytrace.models import registry
        from pytrace.models.encoder import OnnxEncoder

        return OnnxEncoder(
            registry.resolve(self.encoder_name, "encoder"),
            device="cuda" if self._device == "cuda" else "cpu",
            threads=self._threads,
            cache_directory=self._vector_cache,
        )


def model_options(function: _F) -> _F:
    """Give a command the options that choose models, passed to it as one `ModelOptions` named `models`."""

    @click.option("--llm", default="tiny", show_default=True, metavar="NAME|FILE|URL", help="Language model.")
    @click.option("--encoder", default="tiny", show_default=True, metavar="NAME|DIR", help="Encoder.")
    @click.option(
        "--device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="Where models run; fails if it is not there.",
    )
    @click.option("--gpu-layers", type=int, help="Layers of the language model on the GPU (-1: all).")
    @click.option("--threads", type=click.IntRange(min=1), help="Threads of the models.")
    @click.option("--context", type=click.IntRange(min=64), help="Longest prompt and answer together, in tokens.")
    @click.option(
        "--llm-style",
        type=click.Choice(["auto", "chat", "plain"]),
        help="Prompts by the model's chat template, or without; what suits the model if not given.",
    )
    @click.option("--llm-model", metavar="NAME", help="Which model of a server that has several.")
    @click.option(
        "--api-key-env",
        default="PYTRACE_API_KEY",
        show_default=True,
        metavar="VARIABLE",
        help="The environment variable that holds a server's API key.",
    )
    @click.option(
        "--concurrency",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        help="Requests to a server at once.",
    )
    @click.option(
        "--vector-cache",
        metavar="DIR",
        envvar="PYTRACE_VECTOR_CACHE",
        show_envvar=True,
        help="Keep the encoder's vectors there for later runs; several may share it.",
    )
    @click.option(
        "--deterministic",
        is_flag=True,
        help="Fix the shape and order of batches, so that the same call repeats bit for bit; slower.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        llm: str,
        encoder: str,
        device: str,
        gpu_layers: int | None,
        threads: int | None,
        context: int | None,
        llm_style: Style | None,
        llm_model: str | None,
        api_key_env: str,
        concurrency: int,
        vector_cache: str | None,
        deterministic: bool,
        **kwargs: Any,
    ) -> Any:
        models = ModelOptions(
            llm=llm,
            encoder=encoder,
            device=device,
            gpu_layers=gpu_layers,
            threads=threads,
            context=context,
            llm_style=llm_style,
            llm_model=llm_model,
            api_key_env=api_key_env,
            concurrency=concurrency,
            vector_cache=vector_cache or None,
            deterministic=deterministic,
        )
        return function(*args, models=models, **kwargs)

    return wrapped  # type: ignore[return-value]


def settings_option(function: _F) -> _F:
    """Give a command the repeatable option ``--set NAME=VALUE``, passed to it as `settings`."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Change a setting of TRACE, for instance chains=3 or unit=sentence. May be repeated.",
    )(function)
