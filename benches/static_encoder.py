"""A static encoder beside MiniLM and model2vec: the same texts, tokenizer and threads; bar 50 times MiniLM's speed.

    python -m benches.static_encoder --threads 2 [--data FILE ...] [--model tiny] [--repetitions 7] [--quick] [--json]

Texts are those of benches/encoder.py. The static model has MiniLM's tokenizer and a table of random vectors, of as many
dimensions as model2vec's models have; its vectors are compared with model2vec's before anything is timed (1e-6). The
tokenizer by itself shows what there is to gain.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from benches.encoder import Kinds, made_texts, mixed, read_texts, show
from pytrace.bench import machine
from pytrace.bench.context import Bench, require_close
from pytrace.bench.measurements import Comparison, Settings
from pytrace.bench.peers import Peers, limited_threads
from pytrace.models import registry

BAR = 50.0
DIM = 256
PACKAGES = ("model2vec", "onnxruntime", "tokenizers", "numpy")


def write_model(source: Path, place: Path, seed: int) -> None:
    """Write a random model in model2vec's layout with the tokenizer of another."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    table = np.random.default_rng(seed).standard_normal((tokenizer.get_vocab_size(), DIM), dtype=np.float32)
    StaticModel(table, tokenizer, normalize=True).save_pretrained(place)


def run(bench: Bench, minilm: Path, kinds: Kinds, place: Path) -> Iterator[Comparison]:
    from model2vec import StaticModel

    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.encoders.static_encoder import StaticEncoder

    settings = bench.settings
    write_model(minilm, place, settings.seed)
    ours = StaticEncoder(place, threads=settings.threads, cache_bytes=0)
    theirs = StaticModel.from_pretrained(place)
    network = OnnxEncoder(minilm, threads=settings.threads, cache_bytes=0)
    chance = random.Random(settings.seed)
    texts = mixed(kinds, 100 if settings.quick else 400, chance)
    some = {f"{len(texts)} mixed texts": texts, "1 question": kinds["questions"][:1]}
    for case, batch in some.items():
        require_close(ours.encode(batch), theirs.encode(batch), 1e-6, case)
        row = bench.compare(
            case,
            lambda batch=batch: ours.encode(batch),
            {
                f"{minilm.name} on onnxruntime": lambda batch=batch: network.encode(batch),
                "model2vec": lambda batch=batch: theirs.encode(batch),
                "the tokenizer alone": lambda batch=batch: ours._files.token_ids(batch),
            },
            bar=BAR if len(batch) > 1 else None,
            bar_peers=[f"{minilm.name} on onnxruntime"],
        )
        rates = {"texts a second": len(batch) / row.ours.median}
        rates |= {f"texts a second, {name}": len(batch) / timing.median for name, timing in row.peers.items()}
        yield msgspec.structs.replace(row, extra=rates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--model", default="tiny", metavar="NAME|DIR")
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="fewer texts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # Read when the tokenizers of either side first run; both run in this process.
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    settings = Settings(
        threads=arguments.threads, repetitions=arguments.repetitions, seed=arguments.seed, quick=arguments.quick
    )
    minilm = Path(registry.resolve(arguments.model, "encoder"))
    kinds = read_texts(arguments.data) if arguments.data else made_texts(minilm, random.Random(arguments.seed))
    bench = Bench(settings, Peers(()), None, lambda case: print(case, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="pytrace-bench-") as place, limited_threads(settings.threads, bench.peers):
        rows = list(run(bench, minilm, kinds, Path(place)))
    show("static encoder", rows, settings, PACKAGES, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
