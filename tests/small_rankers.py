"""A tiny BERT with random weights, and questions of two hops over passages about people and towns, for the tests of rankers."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from pytrace.training import ranker_export
from pytrace.training.network import train_package
from pytrace.training.ranker_export import float_graph

torch, transformers = train_package("torch"), train_package("transformers")

PEOPLE = ("Ada", "Kofi", "Zeynep", "Ilse", "Goran", "Mbali", "Tarek", "Yuki", "Sven", "Lena", "Omar", "Rosa")
TOWNS = ("Quill", "Brack", "Tern", "Marl", "Oster", "Penn", "Rook", "Vale", "Wick", "Yarrow", "Zell", "Holm")
RIVERS = ("Aure", "Bove", "Cale", "Dorn", "Esk", "Fal", "Gade", "Hull", "Itchen", "Jed", "Kent", "Lune")


def rows(part: slice = slice(None)) -> list[dict[str, Any]]:
    """Return questions whose two documents stand beside one of another question."""
    made = []
    for number, (person, town, river) in list(enumerate(zip(PEOPLE, TOWNS, RIVERS, strict=True)))[part]:
        other = PEOPLE[number - 1]
        made.append(
            {
                "id": f"q{number}",
                "question": f"Which river flows through the town where {person} was born?",
                "answers": [river],
                "documents": [
                    {"title": person, "text": f"{person} was born in {town}.", "supporting": True},
                    {"title": town, "text": f"{town} lies on the river {river}.", "supporting": True},
                    {"title": f"{other}'s trade", "text": f"{other} was a baker by the river."},
                ],
            }
        )
    return made


def write_rows(path: Path, part: slice = slice(None)) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(part)), encoding="utf-8")
    return path


class Tiny(NamedTuple):
    """An encoder of one layer: its directory, its network, and its graph before weights became int8."""

    path: Path
    network: Any
    graph: Any


def tiny_encoder(place: Path) -> Tiny:
    """Write a tiny encoder with random weights, whose vectors tell texts apart."""
    texts = [row["question"] + " " + " ".join(each["text"] for each in row["documents"]) for row in rows()]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = sorted({letter for word in words for letter in word})
    # Not by a trainer, whose choice differs between processes, and what is learned with it.
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=40)  # which must not be taken over
    place.mkdir(parents=True)
    tokenizer.save(str(place / "tokenizer.json"))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = transformers.BertConfig(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=64,
        )  # fmt: skip
        network = transformers.BertModel(config, add_pooling_layer=False).eval()
        with torch.no_grad():
            # No two alike: of equal ones the exporter keeps one, under one name.
            for weights in network.parameters():
                weights.add_(0.2 * torch.randn(weights.shape))
    files: Any = SimpleNamespace(
        tokenizer=place / "tokenizer.json", max_tokens=48, lower_case=False, prompts={"query": "find: "}
    )
    graphs = []

    def exported(*arguments: Any) -> Any:
        graphs.append(float_graph(*arguments))
        return deepcopy(graphs[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranker_export, "float_graph", exported)  # an export takes seconds
        ranker_export.write_ranker(place / "model", network, files, "encoder")
    return Tiny(place / "model", network, graphs[0])
