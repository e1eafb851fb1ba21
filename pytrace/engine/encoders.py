"""Encoders and cross-encoders by name, directory, file or address, whatever runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytrace.errors import InputError
from pytrace.methods.base import changed, setting_name

if TYPE_CHECKING:
    from pytrace.models.encoders.cross_encoder import CrossEncoder
    from pytrace.models.encoders.encoder import Encoder
    from pytrace.models.registry.known_models import Model, Role


class EncoderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be said of an encoder that its own files say otherwise, or not at all."""

    # What goes before texts: a text, or the name of one of the model's own prompts.
    query_prompt: str | None = None
    passage_prompt: str | None = None
    # One way or several, with commas between them.
    pooling: str | None = None
    normalize: bool | None = None
    # Numbers of a vector that are kept, for models that were trained so.
    truncate_dim: int | None = None
    # Which of several graphs: float32, float16, int8, or what stands behind "model_" in a file's name.
    dtype: str | None = None
    # Which of a graph's outputs.
    output: str | None = None
    # Which model of a server that has several.
    model: str | None = None


class CrossEncoderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be said of a cross-encoder that its own files say otherwise, or not at all."""

    dtype: str | None = None
    # The number of the label that speaks for a pair.
    positive: int | None = None
    # What Qwen3-Reranker is told a passage has to do.
    instruction: str | None = None
    model: str | None = None


def load_encoder(
    name: str,
    settings: Sequence[str] = (),
    *,
    device: str = "cpu",
    threads: int | None = None,
    gpu_layers: int | None = None,
    cache_directory: str | None = None,
    server: Mapping[str, Any] | None = None,
) -> Encoder:
    """Load an encoder.

    Parameters
    ----------
    name
        A name of the registry, a directory (ONNX, or a static encoder), a file (ONNX, GGUF), or the address of a server.
    settings
        `name=value` of `EncoderSettings`.
    device, threads, gpu_layers, cache_directory
        As for the encoders themselves.
    server
        What `RemoteEncoder` takes beside: `api_key_env`, `timeout`, `concurrency`.

    Returns
    -------
    Encoder
        What runs it.

    Raises
    ------
    InputError
        There is no such model, or it has no use for a setting.
    """
    chosen = _chosen(changed(EncoderSettings(), settings, what="the encoder"))
    # As they were written: most end with a space.
    written = {setting_name(setting): setting.partition("=")[2] for setting in settings}
    names = {kind: f"{kind}_prompt" for kind in ("query", "passage")}
    prompts = {kind: written[name] for kind, name in names.items() if chosen.pop(name, None) is not None}
    if prompts:
        chosen["prompts"] = prompts
    if "pooling" in chosen:
        chosen["pooling"] = tuple(chosen["pooling"].split(","))
    cache: dict[str, Any] = {"cache_directory": cache_directory}
    if is_address(name):
        from pytrace.models.servers.remote_encoder import RemoteEncoder

        _check(chosen, name, {"prompts", "normalize", "truncate_dim", "model"})
        return RemoteEncoder(name, **chosen, **cache, **(server or {}))
    path, suffix = _resolve(name, "encoder")
    runs: dict[str, Any] = {"device": "cuda" if device == "cuda" else "cpu", "threads": threads}
    if suffix == ".gguf":
        from pytrace.models.llama.gguf_encoder import GgufEncoder

        _check(chosen, name, {"prompts", "normalize", "truncate_dim", "pooling"})
        if len(pooling := chosen.pop("pooling", ())) > 1:
            raise InputError(f"{name} pools in one way, not by {', '.join(pooling)}; name one")
        one = {"pooling": pooling[0]} if pooling else {}
        if (model := _known(name)) is not None and model.settings is not None:
            # A GGUF file has no prompts of its own.
            chosen["prompts"] = {**model.settings.prompts, **chosen.get("prompts", {})}
        return GgufEncoder(path, **chosen, **one, **cache, **runs, gpu_layers=gpu_layers)
    from pytrace.models.encoders.static_encoder import StaticEncoder, is_static

    if is_static(path):
        _check(chosen, name, {"prompts", "normalize", "truncate_dim"})
        return StaticEncoder(path, **chosen, **cache, threads=threads)
    from pytrace.models.encoders.encoder import OnnxEncoder

    _check(chosen, name, {"prompts", "normalize", "truncate_dim", "pooling", "dtype", "output"})
    return OnnxEncoder(path, **chosen, **cache, **runs)


def load_cross_encoder(
    name: str,
    settings: Sequence[str] = (),
    *,
    device: str = "cpu",
    threads: int | None = None,
    gpu_layers: int | None = None,
    server: Mapping[str, Any] | None = None,
) -> CrossEncoder:
    """Load a model that reads two texts together: a reranker, a model of late interaction, or one of entailment.

    Parameters
    ----------
    name
        A name of the registry, a directory (ONNX), a file (ONNX, GGUF), or the address of a server that reranks.
    settings
        `name=value` of `CrossEncoderSettings`.
    device, threads, gpu_layers, server
        As for `load_encoder`.

    Returns
    -------
    CrossEncoder
        What runs it.

    Raises
    ------
    InputError
        There is no such model, or it has no use for a setting.
    """
    chosen = _chosen(changed(CrossEncoderSettings(), settings, what="the cross-encoder"))
    if is_address(name):
        from pytrace.models.servers.remote_reranker import RemoteReranker

        _check(chosen, name, {"model"})
        return RemoteReranker(name, **chosen, **(server or {}))
    path, suffix = _resolve(name, "reranker", "entailment")
    runs: dict[str, Any] = {"device": "cuda" if device == "cuda" else "cpu", "threads": threads}
    if suffix == ".gguf":
        from pytrace.models.llama.gguf_reranker import GgufReranker

        _check(chosen, name, {"positive", "instruction"})
        return GgufReranker(path, **chosen, **runs, gpu_layers=gpu_layers)
    from pytrace.models.encoders.late_interaction_files import is_late_interaction

    if is_late_interaction(path):
        from pytrace.models.encoders.late_interaction import OnnxLateInteraction

        _check(chosen, name, {"dtype"})
        return OnnxLateInteraction(path, **chosen, **runs)
    from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder

    _check(chosen, name, {"dtype", "positive"})
    return OnnxCrossEncoder(path, **chosen, **runs)


def is_address(name: str) -> bool:
    """Say whether a model's name is the address of a server."""
    # A scheme may be written in capitals (RFC 3986, section 3.1).
    return name.lower().startswith(("http://", "https://"))


def _resolve(name: str, *roles: Role) -> tuple[Path, str]:
    """Return what to load for a name or a path, and its suffix if it is a file."""
    from pytrace.models import registry

    model = _known(name)
    path = registry.resolve(name, model.role if model is not None and model.role in roles else roles[0])
    if path.is_dir() and not [*path.glob("*.onnx"), *path.glob("onnx/*.onnx")]:
        files = list(path.glob("*.gguf"))
        path = files[0] if len(files) == 1 else path
    return path, "" if path.is_dir() else path.suffix.lower()


def _known(name: str) -> Model | None:
    from pytrace.models import registry

    return registry.catalog().model(name)


def _chosen(settings: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if value is not None}


def _check(chosen: Mapping[str, Any], name: str, known: set[str]) -> None:
    if others := set(chosen) - known:
        raise InputError(f"{name} takes no setting {min(others)!r}, but {', '.join(sorted(known))}; leave it out")
