"""Which families of encoders and cross-encoders load, how near they are to their own library, and how fast they are here.

    python -m benches.model_families [--threads 2] [--layers 6] [--width 384] [--texts 256] [--repetitions 5]

Models have random weights and the shape of all-MiniLM-L6-v2, and are saved by sentence-transformers with a graph by torch's
exporter; both sides run in this process on the same texts and threads, in turns. GGUF files are tiny and only compared, with
transformers' model of the same weights.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytrace.bench import machine
from pytrace.bench.peers import version

PACKAGES = ("onnxruntime", "torch", "sentence-transformers", "transformers", "llama-cpp-python", "model2vec")
COSINE, DIFFERENCE = 0.99999, 1e-3


class Row(NamedTuple):
    """A family: what loads, the worst agreement with its own library, and tokens a second on both sides, if measured."""

    family: str
    loads: str
    parity: str
    within: bool
    ours: float | None = None
    theirs: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    warnings.simplefilter("ignore")
    print(f"{machine.facts(arguments.threads)['processor']}, {arguments.threads} threads, load {machine.load()}")
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES))
    print("\n| family | loads | parity | tokens a second | its own library's | ratio |\n|---|---|---|---|---|---|")
    within = True
    with tempfile.TemporaryDirectory(prefix="pytrace-bench-") as place:
        for row in rows(arguments, Path(place)):
            within &= row.within
            speeds = "| | |"
            if row.ours is not None and row.theirs is not None:
                speeds = f"{row.ours:,.0f} | {row.theirs:,.0f} | {row.ours / row.theirs:.2f} |"
            print(f"| {row.family} | {row.loads} | {row.parity} | {speeds}", flush=True)
    return 0 if within else 1


def rows(arguments: argparse.Namespace, place: Path) -> Iterator[Row]:
    import torch

    from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.encoders.late_interaction import OnnxLateInteraction
    from pytrace.models.encoders.static_encoder import StaticEncoder
    from tests.models.model_families import (
        FAMILIES,
        Shape,
        build,
        build_classifier,
        build_late_interaction,
        build_reranker,
    )  # fmt: skip
    from tests.models.test_static_encoder import saved, wordpiece

    torch.set_num_threads(arguments.threads)
    shape = Shape(arguments.width, arguments.layers, 12, 256)
    texts = made_texts(arguments.texts)
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    runs = {"threads": arguments.threads, "cache_bytes": 0}
    for name, family in FAMILIES.items():
        reference, encoder = build(name, place / name, shape), OnnxEncoder(place / name, **runs)
        worst = min(
            cosines(encoder.encode(texts, kind="query"), reference.encode_query(texts)),
            cosines(encoder.encode(texts), reference.encode_document(texts)),
        )
        modules = [kind for kind, _, _ in encoder._files.modules.layers] + ["Normalize"] * encoder._files.normalize
        pooling = family.pooling if isinstance(family.pooling, str) else " + ".join(family.pooling)
        rules = encoder._rules["passage"]
        tokens = sum(map(len, encoder._tokenize([rules.prompt + text for text in texts], rules)))
        ours, theirs = in_turns(
            arguments, tokens, lambda e=encoder: e.encode(texts), lambda r=reference: r.encode_document(texts)
        )
        yield Row(f"{name}, ONNX", ", ".join([pooling, *modules]), f"cosine {worst:.7f}", worst >= COSINE, ours, theirs)
    reference = build_reranker(place / "reranker", shape)
    reranker = OnnxCrossEncoder(place / "reranker", threads=arguments.threads)
    names = {0: "contradiction", 1: "entailment", 2: "neutral"}
    other = build_classifier(place / "entailment", names, shape)
    entailment = OnnxCrossEncoder(place / "entailment", threads=arguments.threads)
    # Pairs that fit: where one has to be cut, the two cut it differently.
    for label, loads, ours_of, theirs_of, model in (
        (
            "ModernBERT reranker, ONNX", "one score; pooling, Dense, LayerNorm, Dense outside the graph",
            lambda: reranker.score(pairs), lambda: reference.predict(pairs, activation_fn=torch.nn.Identity()), reranker,
        ),
        (
            "XLM-R entailment, ONNX", "three labels", lambda: entailment.probabilities(pairs),
            lambda: other.predict(pairs, apply_softmax=True), entailment,
        ),
    ):  # fmt: skip
        worst = float(np.abs(ours_of() - theirs_of()).max())
        tokens = sum(len(ids) for ids, _ in model._files.pairs(pairs, model._limit))
        ours, theirs = in_turns(arguments, tokens, ours_of, theirs_of)
        yield Row(label, loads, f"difference {worst:.1e}", worst <= DIFFERENCE, ours, theirs)
    many = build_late_interaction(place / "late", shape)
    late = OnnxLateInteraction(place / "late", threads=arguments.threads)
    each = many.encode_document(texts)
    found = late.encode(texts)
    worst = cosines(found.vectors, np.concatenate([np.asarray(vectors) for vectors in each]))
    tokens = sum(map(len, late._files.token_ids(texts, late._rules["passage"])))
    ours, theirs = in_turns(arguments, tokens, lambda: late.encode(texts), lambda: many.encode_document(texts))
    yield Row(
        "BERT late interaction, ONNX",
        "Dense for each token, mask, MaxSim",
        f"cosine {worst:.7f}",
        worst >= COSINE,
        ours,
        theirs,
    )
    table = saved(place / "static", wordpiece())
    static = StaticEncoder(place / "static", threads=arguments.threads, cache_bytes=0)
    # As long as the table's own rows, where the model does not normalise.
    worst = cosines(static.encode(texts), table.encode(texts))
    tokens = sum(map(len, static._files.token_ids(texts)))
    ours, theirs = in_turns(arguments, tokens, lambda: static.encode(texts), lambda: table.encode(texts))
    yield Row("static (model2vec)", "table, mean", f"cosine {worst:.7f}", worst >= COSINE, ours, theirs)
    yield from gguf_rows(place)


def gguf_rows(place: Path) -> Iterator[Row]:
    from pytrace.models.llama.gguf_encoder import GgufEncoder
    from tests import embedding_gguf as tiny

    texts = ["red house", "Who wrote it? The blue river bank of 1843.", "zebra quark", "the river in the house " * 8]
    for name, make, pooling in (
        ("BERT", tiny.bert, tiny.MEAN),
        ("nomic-bert", tiny.nomic_bert, tiny.MEAN),
        ("ModernBERT", tiny.modern_bert, tiny.CLS),
        ("Qwen3", tiny.qwen3, tiny.LAST),
        ("Gemma", tiny.gemma, tiny.MEAN),
    ):
        model = make()
        with GgufEncoder(tiny.write(model, place / f"{name}.gguf", pooling=pooling)) as encoder:
            expected = np.stack([tiny.vector(model, text, pooling, limit=encoder.max_tokens) for text in texts])
            worst = cosines(encoder.encode(texts), expected)
        yield Row(f"{name}, GGUF", "pooled by llama.cpp", f"cosine {worst:.7f}", worst >= COSINE)


def made_texts(count: int) -> list[str]:
    """Make texts of 5 to 40 of the words that the tiny tokenizers were trained on."""
    from tests.models.model_families import TEXTS

    words = sorted({word for text in TEXTS for word in text.split()})
    chance = random.Random(1)
    return [" ".join(chance.choices(words, k=chance.randint(5, 15))) for _ in range(count)]


def cosines(first: Any, second: Any) -> float:
    from tests.models.model_families import cosines as of_each

    return float(of_each(first, second).min())


def in_turns(
    arguments: argparse.Namespace, tokens: int, ours: Callable[[], Any], theirs: Callable[[], Any]
) -> tuple[float, float]:
    """Return tokens a second of both sides, by the medians of runs in turns."""
    taken: tuple[list[float], list[float]] = [], []
    for _ in range(arguments.repetitions):
        for call, times in zip((ours, theirs), taken, strict=True):
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
    return tokens / float(np.median(taken[0])), tokens / float(np.median(taken[1]))


if __name__ == "__main__":
    sys.exit(main())
