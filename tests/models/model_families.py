"""Tiny models with random weights, of each family of encoders, saved by sentence-transformers with a graph by torch's exporter beside them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WIDTH = 32
LENGTH = 48
TEXTS = [
    "The red house by the river.",
    "Ada wrote 3 of them in 1843, didn't she?",
    "",
    "  spaced   out \n text ",
    "naïve Ärger über 中文 😀",
    "word " * 80,
    "It is Green.",
    "The red house by the river.",
]

Tokenizing = transformers.PreTrainedTokenizerFast


class Shape(NamedTuple):
    """How large a transformer is."""

    width: int = WIDTH
    layers: int = 2
    heads: int = 4
    length: int = LENGTH

    @property
    def settings(self) -> dict[str, int]:
        """What all configurations call it; the feed-forward layer is wider, as everywhere."""
        return {
            "hidden_size": self.width, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.width,
        }  # fmt: skip

    @property
    def decoder(self) -> dict[str, int]:
        """What decoders' say besides."""
        return {**self.settings, "num_key_value_heads": self.heads // 2, "head_dim": self.width // self.heads}


TINY = Shape()


@dataclass(frozen=True)
class Family:
    """A family: its tokenizer, its transformer, and what follows it."""

    tokenizer: Callable[[int], Tokenizing]  # of the most tokens of a text
    config: Callable[[int, Shape], Any]  # of a vocabulary's size
    pooling: str | tuple[str, ...] = "mean"
    include_prompt: bool = True
    heads: Callable[[int], list[torch.nn.Module]] = lambda _: []
    prompts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    traced: bool = True


# Vocabularies are made here and not by trainers, whose choice differs between processes, and every vector with it.
_WORDS = sorted({word for text in TEXTS for word in re.findall(r"\w+|[^\w\s]", text)})


def _letters(words: Iterable[str]) -> list[str]:
    return sorted({letter for word in words for letter in word})


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


def _wordpiece(**settings: Any) -> Tokenizing:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*_WORDS, *(word.lower() for word in _WORDS)]
    letters = _letters(words)
    vocabulary = _numbered([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=settings.pop("lowercase", True))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return Tokenizing(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", **settings,
    )  # fmt: skip


def _bytes(**settings: Any) -> Tokenizing:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Two letters that stand in many words are one piece.
    merges = [("t", "h"), ("th", "e"), ("r", "e"), ("o", "r"), ("i", "n")]
    vocabulary = _numbered(["<end>", "<pad>", *alphabet, *("".join(pair) for pair in merges)])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <end>", pair="$A $B:1 <end>:1", special_tokens=[("<end>", 0)]
    )
    return Tokenizing(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", padding_side="left", **settings)


def _pieces(**settings: Any) -> Tokenizing:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = _numbered([*special, "▁", *_letters(_WORDS), *(f"▁{word}" for word in _WORDS), *_WORDS])
    # The longer a piece, the likelier than its letters one by one.
    scores = [(piece, 0.0 if piece in special else -10.0 + min(len(piece), 5)) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return Tokenizing(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        cls_token="<s>", sep_token="</s>", **settings,
    )  # fmt: skip


def _special(pad: int, begin: int, end: int) -> dict[str, int]:
    return {"pad_token_id": pad, "bos_token_id": begin, "eos_token_id": end}


# Together they have every pooling, every layer behind it, and every setting that sentence-transformers writes.
FAMILIES: dict[str, Family] = {
    "BERT": Family(
        lambda length: _wordpiece(model_max_length=length),
        lambda size, shape: transformers.BertConfig(vocab_size=size, max_position_embeddings=shape.length + 16, **shape.settings),
        prompts={"query": "find: ", "document": "text: "},
        heads=lambda _: [Normalize()],
    ),
    "MPNet": Family(
        lambda length: _wordpiece(model_max_length=length),
        lambda size, shape: transformers.MPNetConfig(
            vocab_size=size, max_position_embeddings=shape.length + 2, pad_token_id=0, **shape.settings
        ),
        pooling="cls",
        settings={"similarity_fn_name": "dot"},
    ),
    "ModernBERT": Family(
        lambda _: _wordpiece(lowercase=False, truncation_side="left"),
        lambda size, shape: transformers.ModernBertConfig(
            vocab_size=size, max_position_embeddings=shape.length, local_attention=16, global_attn_every_n_layers=2,
            cls_token_id=2, sep_token_id=3, **_special(0, 2, 3), **shape.settings,
        ),
        pooling=("weightedmean", "max", "cls"),
        include_prompt=False,
        prompts={"query": "The red", "document": ""},
    ),
    "XLM-R": Family(
        lambda length: _pieces(model_max_length=length),
        lambda size, shape: transformers.XLMRobertaConfig(
            vocab_size=size, max_position_embeddings=shape.length + 2, type_vocab_size=1, **_special(1, 0, 2), **shape.settings
        ),
        heads=lambda width: [
            Dense(width, width, activation_function=torch.nn.GELU(), use_residual=True), LayerNorm(width)
        ],
        settings={"do_lower_case": True},
    ),
    "Qwen3": Family(
        lambda length: _bytes(model_max_length=length),
        lambda size, shape: transformers.Qwen3Config(
            vocab_size=size, max_position_embeddings=shape.length + 16, **_special(1, 0, 0), **shape.decoder
        ),
        pooling="lasttoken",
        prompts={"query": "Instruct: find what answers\nQuery:", "document": ""},
        heads=lambda _: [Normalize()],
        settings={"truncate_dim": 24},
    ),
    "Gemma": Family(
        lambda _: _pieces(),
        lambda size, shape: transformers.Gemma3TextConfig(
            vocab_size=size, max_position_embeddings=shape.length, use_bidirectional_attention=True, sliding_window=16,
            **_special(1, 0, 2), **shape.decoder,
        ),
        prompts={"query": "task: search | query: ", "document": "title: none | text: "},
        pooling="mean_sqrt_len_tokens",
        traced=False,
        heads=lambda width: [
            Dense(width, 64, bias=False, activation_function=torch.nn.Identity()),
            Dense(64, width, activation_function=torch.nn.Tanh()),
            Normalize(),
        ],
    ),
}  # fmt: skip


def build(name: str, place: Path, shape: Shape = TINY) -> SentenceTransformer:
    """Make the model of a family, save it with its graph in a directory, and return it."""
    family = FAMILIES[name]
    torch.manual_seed(1)
    source = _saved(family.config, family.tokenizer(shape.length), transformers.AutoModel, place, shape)
    settings = dict(family.settings)
    lower = settings.pop("do_lower_case", False)
    transformer = Transformer(str(source), model_kwargs={"attn_implementation": "eager"}, do_lower_case=lower)
    pooling = Pooling(shape.width, family.pooling, include_prompt=family.include_prompt)
    heads = family.heads(shape.width)
    _shake(torch.nn.ModuleList(heads))
    built = SentenceTransformer(
        modules=[transformer, pooling, *heads], prompts=dict(family.prompts), device="cpu", **settings
    )
    built.save(str(place), create_model_card=False)
    write_graph(transformer.model, place / "onnx" / "model.onnx", traced=family.traced)
    return SentenceTransformer(str(place), device="cpu", model_kwargs={"attn_implementation": "eager"})


def build_reranker(place: Path, shape: Shape = TINY) -> CrossEncoder:
    """Make a reranker whose layers stand outside its graph, as ettin's do: pooling, Dense, LayerNorm, Dense to one score."""
    family = FAMILIES["ModernBERT"]
    torch.manual_seed(2)
    tokenizer = _wordpiece(model_max_length=shape.length)
    source = _saved(family.config, tokenizer, transformers.AutoModel, place, shape)
    transformer = Transformer(str(source), model_kwargs={"attn_implementation": "eager"})
    layers = [
        Pooling(shape.width, "cls"),
        Dense(shape.width, shape.width, bias=False, activation_function=torch.nn.GELU()),
        LayerNorm(shape.width),
        Dense(shape.width, 1, activation_function=torch.nn.Identity(), module_output_name="scores"),
    ]
    _shake(torch.nn.ModuleList(layers))
    built = CrossEncoder(modules=[transformer, *layers], device="cpu")
    built.save_pretrained(str(place), create_model_card=False)
    write_graph(transformer.model, place / "onnx" / "model.onnx")
    return built


def build_late_interaction(place: Path, shape: Shape = TINY) -> MultiVectorEncoder:
    """Make a BERT that gives a vector of half its width for every token, as ColBERT does, with questions filled up."""
    torch.manual_seed(4)
    tokenizer = _wordpiece(model_max_length=shape.length)
    source = _saved(FAMILIES["BERT"].config, tokenizer, transformers.AutoModel, place, shape)
    expansion = {"strategy": "fixed", "length": 32, "attend": False}
    settings = {"query_expansion": expansion, "document_length": shape.length}
    transformer = Transformer(str(source), model_kwargs={"attn_implementation": "eager"}, **settings)
    tokens = {"module_input_name": "token_embeddings"}
    dense = Dense(shape.width, shape.width // 2, bias=False, activation_function=torch.nn.Identity(), **tokens)
    _shake(dense)
    modules = [transformer, dense, MultiVectorMask([".", "?"], skiplist_tasks=["document"]), Normalize(**tokens)]
    built = MultiVectorEncoder(modules=modules, device="cpu")
    built.save(str(place), create_model_card=False)
    write_graph(transformer.model, place / "onnx" / "model.onnx")
    return built


def build_classifier(place: Path, labels: dict[int, str], shape: Shape = TINY) -> CrossEncoder:
    """Make a model that classifies pairs of texts, with its head in its graph."""
    torch.manual_seed(8)
    tokenizer = _pieces(model_max_length=shape.length)
    config = FAMILIES["XLM-R"].config

    def labelled(size: int, shape: Shape) -> Any:
        made = config(size, shape)
        made.id2label, made.label2id = labels, {name: number for number, name in labels.items()}
        return made

    source = _saved(labelled, tokenizer, transformers.AutoModelForSequenceClassification, place, shape)
    built = CrossEncoder(str(source), device="cpu", model_kwargs={"attn_implementation": "eager"})
    built.save_pretrained(str(place), create_model_card=False)
    write_graph(built[0].model, place / "model.onnx", "logits")
    return built


def _saved(config: Callable[[int, Shape], Any], tokenizer: Tokenizing, kind: Any, place: Path, shape: Shape) -> Path:
    """Save a transformer with random weights and its tokenizer beside a place."""
    model = kind.from_config(config(len(tokenizer), shape), attn_implementation="eager").eval()
    _shake(model)
    source = place.with_name(f"{place.name}-transformer")
    model.save_pretrained(source)
    tokenizer.save_pretrained(source)
    return source


def _shake(model: torch.nn.Module) -> None:
    """Make weights so large that no two texts are alike."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                # In proportion to what is summed, so that wide models stay within float32's precision too.
                weights.normal_(0, 0.3 * (WIDTH / weights.shape[-1]) ** 0.5)


class _Output(torch.nn.Module):
    def __init__(self, model: Any, output: str) -> None:
        super().__init__()
        self.model = model
        self.output = output

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[self.output]


def write_graph(model: Any, path: Path, output: str = "last_hidden_state", *, traced: bool = True) -> None:
    """Export a transformer by torch: traced, which takes half a second, or where that fails by its newer exporter, which takes ten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids, mask = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    names = ["input_ids", "attention_mask"]
    free: dict[str, Any] = {"dynamic_axes": {name: [0, 1] for name in (*names, output)}}
    if not traced:
        free = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},) * 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Output(model, output).eval(), (ids, mask), str(path), input_names=names, output_names=[output], dynamo=not traced,
            verbose=False, **free,
        )  # fmt: skip


def cosines(first: Any, second: Any) -> Any:
    """Return float64 [n], the cosine of each row of one matrix with that of another; 1 for two rows of zeros."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.divide((first * second).sum(axis=1), lengths, out=np.ones(len(first)), where=lengths > 0)
