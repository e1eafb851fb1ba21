"""Training of the small model from beginning to end: its examples, its steps, and the network that it leaves."""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

import pytrace
from pytrace.documents.sentences import split_sentences
from pytrace.errors import InputError
from pytrace.models import registry
from pytrace.models.edge.edge_model import CHECK_GRAPH, GRAPH, SHARED, TOKENIZER
from pytrace.models.edge.packing import Packer
from pytrace.models.encoders.encoder import Encoder, OnnxEncoder
from pytrace.models.registry.model_files import sha256_of
from pytrace.processes import useful_threads
from pytrace.records import Document
from pytrace.storage.files import replace_file
from pytrace.storage.locks import take_writer_lock
from pytrace.storage.question_hashes import load_question_hashes, save_question_hashes
from pytrace.training.edge.composed_questions import composed_questions
from pytrace.training.edge.edge_examples import (
    CheckingExample,
    Distractors,
    LinkingExample,
    ReadingExample,
    checking_examples,
    find_distractors,
    is_pool_source,
    passage_texts,
    reading_examples,
)
from pytrace.training.edge.edge_export import export_edge
from pytrace.training.edge.edge_network import WEIGHTS, edge_network, mix_weights, save_float
from pytrace.training.edge.edge_settings import EdgeSettings
from pytrace.training.edge.edge_task import EdgeTask, Example
from pytrace.training.edge.made_links import made_triple_links, passage_links
from pytrace.training.edge.made_questions import made_questions
from pytrace.training.edge.made_statements import claim_twins, made_answers, made_statements
from pytrace.training.made_claims import make_claims
from pytrace.training.network import train_package
from pytrace.training.trainer import LOCK, Progress, checkpoints, learn
from pytrace.training.training_settings import Length

MODEL = "model"
FLOAT = "float"
REPORT = "report.json"
CHECKPOINTS = "checkpoints"
_MADE_BY = "pytrace train edge"
_NEIGHBOR_ENCODER = "minilm-l6-int8"
_DONE = ("steps", "epochs", "tokens", "seconds", "parameters", "trained", "loss", "judged")
# Examples per pass of sources that have more than is useful; the others are read whole.
_PER_PASS = {
    "qamr": 4_000,
    "squadshifts-new_wiki": 2_500,
    "squadshifts-reddit": 500,
    "squadshifts-amazon_reviews": 500,
    "policyqa": 800,
    "covid-qa": 200,
    "lingnli": 15_000,
}
_SINGLE_SENTENCES = frozenset({"cad-nli", "lingnli"})
_PAGE_CLAIM_REPEATS = 2  # of claims about pages, which are what users have checked
_HOPS = frozenset({"2wiki", "2wiki-dev", "hotpot-dev", "ecm", "musique", "musique-dev"})
_KEPT_BACK = _HOPS | {"squad2", "qed", "squadshifts-new_wiki"}
# Held-out examples: questions over several passages, over one, and claims.
_HELD_OUT = {"hops": 150, "one": 100, "claims": 150}
_LABELS = {"supported": "supported", "contradicted": "refuted", "not there": "not_enough_info"}


class EdgeData(NamedTuple):
    """All examples: questions with how often a pass reads them, claims and links, what is held out, and distractors."""

    reading: list[tuple[ReadingExample, int]]
    others: list[CheckingExample | LinkingExample]
    held_out: list[Example]
    distractors: Distractors

    @property
    def counts(self) -> dict[str, int]:
        """Examples per pass and source."""
        counts: Counter[str] = Counter()
        for example, times in self.reading:
            counts[example.source] += times
        counts.update(example.source for example in self.others)
        return dict(sorted(counts.items()))


def edge_data(data: Path, work: Path, encoder: Encoder, settings: EdgeSettings) -> EdgeData:
    """Read and make the examples.

    Parameters
    ----------
    data
        A folder with `reading.jsonl.gz`, `claims.jsonl.gz` and `passages.jsonl.gz`.
    work
        A folder where neighbors are kept, since finding them takes minutes.
    encoder
        Embedding model that finds neighbors.
    settings
        How many examples are made, and the seed.

    Raises
    ------
    DataError
        A file cannot be read.
    """
    rng = random.Random(settings.seed)
    rows = reading_examples(data / "reading.jsonl.gz")
    left_out = {*settings.leave_out.split(",")}
    rng.shuffle(rows)
    held_out: list[Example] = []
    kept_back: list[ReadingExample] = []
    reading: list[tuple[ReadingExample, int]] = []
    taken: Counter[str] = Counter()
    for row in rows:
        group = "hops" if row.source in _HOPS else "one" if row.source in {"squad2", "qed"} else ""
        if group and taken[group] < _HELD_OUT[group]:
            taken[group] += 1
            held_out.append(row)
        elif is_kept_back(row.source, row.question, settings.kept_back):
            kept_back.append(row)
        elif row.source not in left_out and taken[row.source] < _PER_PASS.get(row.source, len(rows)):
            taken[row.source] += 1
            reading.append((row, settings.hop_repeats if group == "hops" else 1))
    pool = [text for row in rows if is_pool_source(row.source) for text in (*row.passages, *row.others)]
    pool += passage_texts(data / "passages.jsonl.gz")
    asked = [row.question for row in rows if is_pool_source(row.source)]
    distractors = find_distractors(pool, asked, encoder, work / "neighbors.npz")
    # Passages of held-out questions make no questions and no claims.
    closed = {text for row in (*held_out, *kept_back) if isinstance(row, ReadingExample) for text in row.passages}
    usable = [text for text in dict.fromkeys(pool) if text not in closed and text.startswith("[") and "] " in text]
    reading += [(row, 1) for row in made_questions(usable, settings.made_questions, seed=settings.seed)]
    reading += [
        (row, 1)
        for row in composed_questions([row for row, _ in reading], settings.composed_questions, seed=settings.seed)
    ]
    claims = [row for row in checking_examples(data / "claims.jsonl.gz") if row.source not in left_out]
    # Claims about one text stay on one side.
    by_text: dict[str, list[CheckingExample]] = defaultdict(list)
    for claim in claims:
        by_text[claim.evidence].append(claim)
    texts = sorted(by_text)
    rng.shuffle(texts)
    others: list[CheckingExample | LinkingExample] = []
    for text in texts:
        if by_text[text][0].source not in _SINGLE_SENTENCES and taken["claims"] < _HELD_OUT["claims"]:
            taken["claims"] += len(by_text[text])
            held_out += by_text[text]
        elif taken[source := by_text[text][0].source] < _PER_PASS.get(source, len(claims)):
            taken[source] += len(by_text[text])
            others += by_text[text] * (1 if source in _SINGLE_SENTENCES else _PAGE_CLAIM_REPEATS)
    others += claim_twins([row for row in others if isinstance(row, CheckingExample)], seed=settings.seed)
    others += _made_claims(usable, settings)
    others += made_statements(usable, settings.made_statements, seed=settings.seed)
    others += made_answers([row for row, _ in reading], settings.made_answers, distractors, seed=settings.seed)
    others += made_triple_links(usable, settings.made_links // 2, seed=settings.seed)
    others += passage_links(
        [row for row, _ in reading if row.source in _HOPS], settings.made_links // 2, distractors, seed=settings.seed
    )
    return EdgeData(reading, others, held_out, distractors)


def is_kept_back(source: str, question: str, share: float) -> bool:
    """Return whether a question is of the share that no training reads."""
    return source in _KEPT_BACK and crc32(question.encode("utf-8", "replace")) % 100 < 100 * share


def _made_claims(passages: Sequence[str], settings: EdgeSettings) -> list[CheckingExample]:
    documents = []
    for number, passage in enumerate(passages):
        title, _, text = passage[1:].partition("] ")
        documents.append(Document(str(number), title, tuple(split_sentences(text))))
    if not settings.made_claims:
        return []
    return [
        CheckingExample(
            one.claim, f"[{one.document.title}] {' '.join(one.document.sentences[:6])}", _LABELS[one.label], "made"
        )
        for one in make_claims(documents, settings.made_claims, seed=settings.seed)
    ]


class EdgeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a training did; `judged` pairs a step with the mean loss of what is held out."""

    base: str
    data: dict[str, int]  # examples per pass, by source
    fingerprint: str  # of all examples
    held_out: int
    pytrace: str
    settings: dict[str, Any]
    steps: int
    epochs: float
    tokens: int
    seconds: float
    parameters: int
    trained: int
    loss: float
    judged: tuple[tuple[int, float], ...]
    threads: int
    bytes: int  # of graphs and embeddings
    sha256: dict[str, str]  # of the model's files


def train_edge(
    data: Path,
    out: Path,
    settings: EdgeSettings,
    length: Length,
    *,
    base: str = "minilm-l6",
    threads: int | None = None,
    resume: bool = False,
    on_message: Callable[[str], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> EdgeReport:
    """Train the small model, and write it into a folder.

    Parameters
    ----------
    data
        A folder with `reading.jsonl.gz`, `claims.jsonl.gz` and `passages.jsonl.gz`.
    out
        The folder: the model as ``model``, its float32 weights as ``float``, checkpoints, neighbors of passages, ``report.json``.
    settings, length
        How, and for how long.
    base
        Float32 weights of a BERT to begin with, or of an earlier training: a name of the registry, or a directory.
    threads
        Threads; by default those that this process may use.
    resume
        Continue from the last checkpoint.
    on_message, on_progress
        Are called with what is done next, and after each step.

    Raises
    ------
    InputError
        The folder holds another training.
    DataError
        A file of the data cannot be read.
    LockedError
        Another process is training in the folder.
    """
    report = on_message or (lambda _: None)
    out.mkdir(parents=True, exist_ok=True)
    with take_writer_lock(out / LOCK, str(out)):
        train_package("onnxscript")  # the export needs it, at the end
        trained = bool(checkpoints(out / CHECKPOINTS))
        if trained and not resume:
            raise InputError(f"{out} holds a training; continue with --resume, or name another --out")
        if (out / MODEL).exists() and not trained and not (out / REPORT).is_file():
            raise InputError(f"{out / MODEL} was not written by a training and would be replaced; name another --out")
        start = registry.resolve(base, "base")
        report("finding neighbors of passages")
        encoder = OnnxEncoder(registry.resolve(_NEIGHBOR_ENCODER, "encoder"), threads=threads)
        examples = edge_data(data, out, encoder, settings)
        network = edge_network(start, seed=settings.seed, frozen_layers=settings.frozen_layers)
        task = EdgeTask(
            network,
            Packer(start / TOKENIZER),
            examples.reading,
            examples.others,
            examples.held_out,
            examples.distractors,
            settings,
        )
        before = {name: weight.clone() for name, weight in network.state_dict().items()}
        report(f"training on {sum(examples.counts.values()):,} examples per pass, {len(examples.held_out):,} held out")
        done = learn(
            network, task, settings, length, threads=threads, directory=out / CHECKPOINTS, resume=resume,
            recipe={"base": sha256_of(start / WEIGHTS)}, tell=on_progress,
        )  # fmt: skip
        mix_weights(network, before, settings.base_share)
        report("writing the model")
        save_float(network, start, out / FLOAT)
        # Export into a temporary folder and rename it last, so that an interrupted run never mixes files of two models.
        new, old = out / f"{MODEL}.new", out / f"{MODEL}.old"
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        export_edge(network, start / TOKENIZER, new)
        # Those that were read, by the training that it goes on from, too: a training may be shorter than a pass.
        earlier = load_question_hashes(start / WEIGHTS, remedy="train the base again") or ()
        read = task.questions(done.steps)
        for path in (out / FLOAT / WEIGHTS, new / GRAPH):
            save_question_hashes(path, read, made_by=_MADE_BY, earlier=earlier)
        if (out / MODEL).exists():
            (out / MODEL).rename(old)
        new.rename(out / MODEL)
        shutil.rmtree(old, ignore_errors=True)
        result = EdgeReport(
            base=base,
            data=examples.counts,
            fingerprint=task.fingerprint,
            held_out=len(examples.held_out),
            pytrace=pytrace.__version__,
            settings=msgspec.to_builtins(settings),
            **{name: getattr(done, name) for name in _DONE},
            threads=useful_threads(threads),
            bytes=sum((out / MODEL / name).stat().st_size for name in (GRAPH, CHECK_GRAPH, SHARED)),
            sha256={name: sha256_of(out / MODEL / name) for name in (GRAPH, CHECK_GRAPH, SHARED, TOKENIZER)},
        )
        replace_file(out / REPORT, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        return result
