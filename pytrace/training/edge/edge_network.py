"""The small model as PyTorch trains it: a BERT that reads and links, and one with the same word embeddings that checks claims."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytrace.errors import ModelFileError
from pytrace.models.edge.reading import KINDS, LABELS, PAIR_WIDTH
from pytrace.storage.files import replace_file
from pytrace.training.network import train_package

WEIGHTS = "model.safetensors"
_HEADS, _TRUNK, _CHECKER = "heads.", "trunk.", "checker."
_SHARED = "checker.embeddings.word_embeddings.weight"
HEADS = {"read": 2, "pair": 2 * PAIR_WIDTH, "kind": len(KINDS), "check": len(LABELS), "link": 2}
"""The heads, and how many numbers each gives: start, end, their pairing and links for every token, the others for the first token."""


def edge_network(base: Path, *, seed: int, frozen_layers: int = 0) -> Any:
    """Return a trainable network with a base's weights: its word embeddings stay as they are, its heads are random or the base's.

    Of a base with one transformer, both begin as that.

    Parameters
    ----------
    base
        A directory with `config.json`, `model.safetensors` and `tokenizer.json` of a BERT, or of a training that goes on (`save_float`).
    seed
        Seed of the heads' weights.
    frozen_layers
        Layers, from below, that stay as they are.

    Raises
    ------
    ModelFileError
        The directory does not hold the weights of a BERT.
    """
    torch, transformers = train_package("torch"), train_package("transformers")
    try:
        config = transformers.BertConfig.from_json_file(base / "config.json")
        config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.0, 0.0
        config._attn_implementation = "sdpa"
        weights = train_package("safetensors.torch").load_file(base / WEIGHTS)
        trunks = {}
        for part in (_TRUNK, _CHECKER):
            trunks[part] = transformers.BertModel(config, add_pooling_layer=False)
            wanted = trunks[part].state_dict()
            own = {name.removeprefix(part): weight for name, weight in weights.items() if name.startswith(part)}
            # The pooler and stored positions are not used.
            trunks[part].load_state_dict(
                {name: weight.float() for name, weight in {**weights, **own}.items() if name in wanted}
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelFileError(
            f"{base} does not hold the weights of a BERT ({' '.join(str(error).split())[:200]}); give a directory with "
            "config.json and model.safetensors"
        ) from error

    class EdgeNetwork(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.config = config
            self.trunk, self.checker = trunks[_TRUNK], trunks[_CHECKER]
            self.checker.embeddings.word_embeddings = self.trunk.embeddings.word_embeddings
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.heads = torch.nn.ModuleDict(
                    {name: torch.nn.Linear(config.hidden_size, width) for name, width in HEADS.items()}
                )

        def forward(self, input_ids: Any, token_type_ids: Any) -> tuple[Any, ...]:
            """Return the outputs of `read` for unpadded inputs, then that of `check`."""
            inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids}
            return *self.read(**inputs), self.check(**inputs)

        def read(self, **inputs: Any) -> tuple[Any, ...]:
            """Return start and end logits [batch, tokens], what pairs them, logits of kinds [batch, 4], and of links [batch, tokens, 2]."""
            hidden = self.trunk(**inputs).last_hidden_state
            read, pair = self.heads["read"](hidden), self.heads["pair"](hidden)
            return read[..., 0], read[..., 1], pair, self.heads["kind"](hidden[:, 0]), self.heads["link"](hidden)

        def check(self, **inputs: Any) -> Any:
            """Return logits of labels [batch, 3]."""
            return self.heads["check"](self.checker(**inputs).last_hidden_state[:, 0])

    network = EdgeNetwork()
    heads = {name.removeprefix(_HEADS): weight for name, weight in weights.items() if name.startswith(_HEADS)}
    if heads:
        try:
            network.heads.load_state_dict(heads)
        except RuntimeError as error:
            raise ModelFileError(
                f"{base} has heads of another model ({' '.join(str(error).split())[:200]}); give the folder 'float' of a training"
            ) from error
    embeddings = network.trunk.embeddings
    for weight in embeddings.word_embeddings.parameters():
        weight.requires_grad_(False)
    for layer in (*network.trunk.encoder.layer[:frozen_layers], *network.checker.encoder.layer[:frozen_layers]):
        for weight in layer.parameters():
            weight.requires_grad_(False)
    return network


def mix_weights(network: Any, before: Mapping[str, Any], share: float) -> None:
    """Give a network the mean of its weights and earlier ones, of which the earlier ones are so large a share."""
    with train_package("torch").no_grad():
        for name, weight in network.state_dict().items():
            if weight.is_floating_point():
                weight.lerp_(before[name], share)


def save_float(network: Any, base: Path, target: Path) -> None:
    """Write a network as float32 weights that another training can begin with, with the base's configuration and tokenizer."""
    target.mkdir(parents=True, exist_ok=True)
    weights = {
        name.removeprefix(_TRUNK): weight.detach().contiguous()
        for name, weight in network.state_dict().items()
        if name != _SHARED
    }
    replace_file(target / WEIGHTS, train_package("safetensors.torch").save(weights))
    for name in ("config.json", "tokenizer.json"):
        replace_file(target / name, (base / name).read_bytes())
