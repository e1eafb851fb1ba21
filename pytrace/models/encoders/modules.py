"""The steps of a model in the layout of sentence-transformers: what follows the graph, from tokens' vectors to a text's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.errors import ModelFileError
from pytrace.models.encoders import heads
from pytrace.models.encoders.pooling import MODES

# The pooling that each key of versions before 5.4 stands for.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

TOKENS = "token_embeddings"
"""What `gives` is for models that keep a vector for each token."""


class Module(NamedTuple):
    """One step: what it is, where its files are, and its settings."""

    kind: str
    folder: str
    config: dict[str, Any]


class Modules:
    """What ``modules.json`` and the files that it names say of the way behind the graph.

    `read` reads a JSON file of the model's directory, None if it is not there; `gives` is what the last step makes; `others` are
    kinds of steps that whoever asks knows what to do with (`settings`).
    """

    def __init__(
        self,
        directory: Path,
        read: Callable[..., Any],
        *,
        gives: str = "sentence_embedding",
        others: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._read = read
        self._gives = gives
        self._others = others
        self._modules = self._read_modules()
        self.pooling, self.include_prompt = self._read_pooling()
        """How one vector is made of a text's tokens', by no name if no file says so; and whether a prompt's tokens count."""

    @property
    def normalize(self) -> bool:
        """Whether vectors are brought to length 1 at the end."""
        return bool(self._modules) and self._modules[-1].kind == "Normalize"

    @property
    def layers(self) -> list[Module]:
        """The steps between pooling and the last normalisation."""
        after = self._modules[1 : -1 if self.normalize else None]
        return [module for module in after if module.kind in {"Dense", "LayerNorm", "Normalize"}]

    @property
    def weights(self) -> list[Path]:
        """The files of the layers' weights."""
        return [self._directory / module.folder / heads.WEIGHTS for module in self.layers if module.kind != "Normalize"]

    @property
    def complete(self) -> bool:
        """Whether pooling is known and the weights of all layers are there."""
        return bool(self.pooling) and all(file.is_file() for file in self.weights)

    def settings(self, kind: str) -> dict[str, Any] | None:
        """Return the settings of the first step of a kind, None if there is none."""
        return next((module.config for module in self._modules if module.kind == kind), None)

    def read_heads(self) -> list[heads.Head]:
        """Read the layers."""
        found: list[heads.Head] = []
        for number, (kind, folder, config) in enumerate(self.layers):
            place = self._directory / folder
            if kind != "Normalize" and not (place / heads.WEIGHTS).is_file():
                raise ModelFileError(
                    f"{self._directory} has a {kind} layer outside its graph, but {place} has no {heads.WEIGHTS}; save the model "
                    f"with safetensors, or export it as a whole, so that the graph gives {self._gives!r}"
                )
            if kind == "Dense" and self._gives == TOKENS:
                # PyLate's own module says nothing of names: it works on tokens alone.
                found.append(heads.dense(place, {"module_input_name": TOKENS, **config}, into=TOKENS, out=TOKENS))
            elif kind == "Dense":
                last = self._gives if number == len(self.layers) - 1 else "sentence_embedding"
                found.append(heads.dense(place, config, into="sentence_embedding", out=last))
            else:
                found.append(heads.normalized if kind == "Normalize" else heads.layer_norm(place))
        return found

    def _read_modules(self) -> list[Module]:
        modules = []
        path = self._directory / "modules.json"
        for item in self._read("modules.json", list[dict[str, Any]]) or []:
            folder = str(item.get("path") or "")
            kind = str(item.get("type", "")).rpartition(".")[2]
            if Path(folder).is_absolute() or ".." in Path(folder).parts:
                raise ModelFileError(f"{path} has the path {folder!r}, which leaves the model's folder; fetch it again")
            config = self._read(f"{folder}/config.json", dict[str, Any]) if folder else None
            modules.append(Module(kind, folder, config or {}))
        # The first stands for the graph, under whatever name.
        for kind, _, _ in modules[1:]:
            if kind not in {"Pooling", "Dense", "LayerNorm", "Normalize", "Dropout", *self._others}:
                raise ModelFileError(
                    f"{path} has the module {kind!r}, which is not supported behind a graph; export the model as a whole, so "
                    f"that the graph gives {self._gives!r}, and leave modules.json out"
                )
        return modules

    def _read_pooling(self) -> tuple[tuple[str, ...], bool]:
        module = next((module for module in self._modules if module.kind == "Pooling"), None)
        folder = "1_Pooling" if module is None else module.folder
        name = f"{folder}/config.json" if folder else "config.json"
        config = self._read(name, dict[str, Any])
        if config is None:
            return (), True
        stated = config.get("pooling_mode")
        if stated is None:
            asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
            # Whatever their order in the file, vectors stand one behind the other in this one.
            stated = [mode for key, mode in _POOLING_KEYS.items() if key in asked]
            stated += [key for key in asked if key not in _POOLING_KEYS]
        modes = stated if isinstance(stated, list) else [stated]
        if not modes or not all(mode in MODES for mode in modes):
            raise ModelFileError(
                f"{self._directory / name} asks for the pooling {', '.join(map(str, modes)) or 'none'}, which is not supported; "
                f"{', '.join(MODES)} are"
            )
        return tuple(modes), config.get("include_prompt", True) is not False
