"""The encoder beside sentence-transformers on torch: the same float32 weights, texts and threads; bar 1.5 times its speed.

    python -m benches.encoder --threads 2 [--data FILE ...] [--model tiny] [--repetitions 7] [--quick] [--json]

FILES are questions with paragraphs as HotpotQA, 2WikiMultiHopQA or MuSiQue have them: their titles, questions, sentences
and paragraphs are the texts. Without them, texts of the same kinds are generated from the model's own words. Vectors of
both sides are compared before anything is timed (1e-3 in cosine), and sentence-transformers may choose the batch size that
suits it best.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytrace.bench import bench_report as report
from pytrace.bench import machine
from pytrace.bench.context import Bench, require
from pytrace.bench.measurements import Comparison, Kernel, Settings
from pytrace.bench.peers import Peers, limited_threads, version
from pytrace.evaluation.data.datasets import read_questions
from pytrace.models import registry

if TYPE_CHECKING:
    from pytrace.models.encoders.encoder import OnnxEncoder

BAR = 1.5
TOLERANCE = 1e-3
BATCH_SIZES = (8, 16, 32, 64)
PACKAGES = ("onnxruntime", "torch", "sentence-transformers", "transformers", "tokenizers", "numpy")

Kinds = dict[str, list[str]]


def read_texts(paths: Sequence[Path]) -> Kinds:
    kinds: dict[str, dict[str, None]] = {"titles": {}, "questions": {}, "sentences": {}, "paragraphs": {}}
    for path in paths:
        for question in read_questions(path):
            kinds["questions"][question.question] = None
            for document in question.documents:
                kinds["titles"][document.title] = None
                kinds["paragraphs"][document.text] = None
                kinds["sentences"].update(dict.fromkeys(document.sentences))
    return {kind: sorted(texts) for kind, texts in kinds.items()}


def made_texts(model: Path, chance: random.Random) -> Kinds:
    """Make texts of the lengths that titles, questions, sentences and paragraphs have, of words from the tokenizer."""
    vocabulary = msgspec.json.decode((model / "tokenizer.json").read_bytes())["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isalpha() and word.isascii())
    lengths = {"titles": (1, 5), "questions": (8, 25), "sentences": (5, 45), "paragraphs": (40, 170)}
    return {
        kind: [" ".join(chance.choices(words, k=chance.randint(*length))) for _ in range(1000)]
        for kind, length in lengths.items()
    }


def mixed(kinds: Kinds, size: int, chance: random.Random) -> list[str]:
    """Draw texts of all kinds as a build of a graph or an index meets them: a sentence is likelier than a paragraph."""
    shares = {"titles": 0.2, "questions": 0.2, "sentences": 0.5, "paragraphs": 0.1}
    texts = [
        text
        for kind, share in shares.items()
        for text in chance.sample(kinds[kind], min(round(size * share), len(kinds[kind])))
    ]
    chance.shuffle(texts)
    return texts


def run(bench: Bench, directory: Path, kinds: Kinds, place: Path) -> Iterator[Comparison]:
    from benches.bert_weights import write_both
    from pytrace.models.encoders.encoder import OnnxEncoder

    settings = bench.settings
    chance = random.Random(settings.seed)
    stored = OnnxEncoder(directory, threads=settings.threads, cache_bytes=0)
    same, peer = write_both(directory, stored._files.graph, place)
    ours = OnnxEncoder(same, threads=settings.threads, cache_bytes=0)
    size = 100 if settings.quick else 400

    texts = mixed(kinds, size, chance)
    verify(ours, stored, peer, texts)
    fastest = min(BATCH_SIZES, key=lambda batch: timed(lambda: theirs(peer, texts, batch)))
    sizes = sorted({fastest, 32})
    note = f"sentence-transformers with its own batch size of 32, and with {fastest}, the fastest of {BATCH_SIZES}"

    def beside(texts: list[str]) -> dict[str, Callable[[], Any]]:
        return {f"sentence-transformers, {batch} a batch": lambda b=batch: theirs(peer, texts, b) for batch in sizes}

    def compare(
        case: str, texts: list[str], encoder: OnnxEncoder, *, bar: float | None = None, note: str = ""
    ) -> Comparison:
        row = bench.compare(case, lambda: encoder.encode(texts), beside(texts), bar=bar, note=note)
        return rates(row, texts, ours)

    yield compare(f"{len(texts)} mixed texts, float32", texts, ours, bar=BAR, note=note)
    yield compare(f"the same, {directory.name} as stored", texts, stored)
    repeated = (
        chance.choices(texts[: round(len(texts) * 0.7)], k=round(len(texts) * 0.3)) + texts[: round(len(texts) * 0.7)]
    )
    chance.shuffle(repeated)
    yield compare(f"{len(texts)} mixed texts, 30% of them repeated", repeated, ours)
    for kind, found in kinds.items():
        some = chance.sample(found, min(len(found), size // (16 if kind == "paragraphs" else 4)))
        yield compare(f"{len(some)} {kind}", some, ours)
    yield compare("1 question", kinds["questions"][:1], ours)
    yield from on_disk(bench, same, texts, place)


def on_disk(bench: Bench, model: Path, texts: list[str], place: Path) -> Iterator[Comparison]:
    """Time the cache on disk: what writing it costs, and what reading it saves."""
    from pytrace.models.encoders.encoder import OnnxEncoder

    threads = bench.settings.threads
    plain = OnnxEncoder(model, threads=threads, cache_bytes=0)
    encoder = OnnxEncoder(model, threads=threads, cache_bytes=0, cache_directory=place / "cache")
    cache = encoder._texts.disk
    require(cache is not None, "the encoder has no cache on disk")
    expected = plain.encode(texts)
    for state in ("cold", "warm"):
        require((encoder.encode(texts) == expected).all(), f"vectors from a {state} cache differ")

    def cold() -> None:
        cache.clear()
        encoder.encode(texts)

    yield rates(
        bench.compare("the same, cold cache on disk", cold, {"no cache": lambda: plain.encode(texts)}), texts, plain
    )
    require(len(cache) == len(set(texts)), f"{len(cache)} of {len(set(texts))} vectors were kept")
    warm = bench.compare(
        "the same, warm cache on disk", lambda: encoder.encode(texts), {"no cache": lambda: plain.encode(texts)}
    )
    yield rates(warm, texts, plain)


def theirs(peer: Any, texts: list[str], batch: int) -> Any:
    return peer.encode(texts, batch_size=batch, show_progress_bar=False)


def verify(ours: OnnxEncoder, stored: OnnxEncoder, peer: Any, texts: list[str]) -> None:
    expected = theirs(peer, texts, 32)
    for encoder in (ours, stored):
        worst = float((encoder.encode(texts) * expected).sum(axis=1).min())
        require(
            worst >= 1 - TOLERANCE,
            f"a vector of {encoder.name} is {1 - worst:.2g} in cosine from sentence-transformers'",
        )
        print(f"{encoder.name}: at most {1 - worst:.1g} in cosine from sentence-transformers", file=sys.stderr)


def rates(row: Comparison, texts: list[str], encoder: OnnxEncoder) -> Comparison:
    """Add what each side does in a second; a token is one of the text or a special one, never padding."""
    tokens = sum(len(ids) for ids in encoder._tokenize(texts, encoder._rules["passage"]))
    extra = {
        "tokens": tokens,
        "texts a second": len(texts) / row.ours.median,
        "tokens a second": tokens / row.ours.median,
    }
    for name, timing in row.peers.items():
        extra[f"tokens a second, {name}"] = tokens / timing.median
    return msgspec.structs.replace(row, extra=extra)


def timed(call: Callable[[], Any]) -> float:
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


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
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    torch.set_num_threads(arguments.threads)
    settings = Settings(
        threads=arguments.threads, repetitions=arguments.repetitions, seed=arguments.seed, quick=arguments.quick
    )
    directory = Path(registry.resolve(arguments.model, "encoder"))
    kinds = read_texts(arguments.data) if arguments.data else made_texts(directory, random.Random(settings.seed))
    bench = Bench(settings, Peers(()), None, lambda case: print(case, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="pytrace-bench-") as place, limited_threads(settings.threads, bench.peers):
        rows = list(run(bench, directory, kinds, Path(place)))
    show("encoder", rows, settings, PACKAGES, as_json=arguments.json)
    return 0


def show(title: str, rows: list[Comparison], settings: Settings, packages: Sequence[str], *, as_json: bool) -> None:
    """Print what was measured, with machine and versions."""
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return
    facts = machine.facts(settings.threads)
    print(f"{facts['processor']}, {facts['cores']} cores, load {machine.load()}, {settings}")
    print(", ".join(f"{package} {version(package)}" for package in packages))
    for table in report.tables(title, Kernel(rows=rows)):
        for cells in (table.columns, *table.rows):
            print("  ".join(f"{cell:<44}" for cell in cells[:7]))
        print(*table.notes, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
