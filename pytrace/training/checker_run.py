"""A checker's training from beginning to end: labelled claims, a cross-encoder of three labels, export, and agreement with labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import pytrace
from pytrace.certify.claims.checker import ClaimChecker
from pytrace.certify.claims.entailment import EntailmentModel
from pytrace.certify.claims.entailment_labels import LABELS, SUPPORTED
from pytrace.certify.claims.entailment_onnx import PairEntailment
from pytrace.certify.claims.evaluation import Agreement, LabelledText, agreement, judge
from pytrace.certify.claims.marked_claims import MARKS, mark_missing
from pytrace.documents import read_documents
from pytrace.errors import InputError
from pytrace.models import registry
from pytrace.processes import useful_threads
from pytrace.storage.files import replace_file
from pytrace.storage.question_hashes import save_question_hashes
from pytrace.training.bert import cross_encoder, open_base, padded_inputs
from pytrace.training.checker_data import (
    CheckerRow,
    apart,
    check_labels,
    made_rows,
    read_claims,
    rows_hash,
    shared_texts,
)
from pytrace.training.network import check_device, train_package
from pytrace.training.ranker_export import write_ranker
from pytrace.training.ranker_lessons import PairFiles
from pytrace.training.trainer import Progress, checkpoints, learn
from pytrace.training.training_settings import CheckerSettings, Length

MODEL = "model"
REPORT = "report.json"
CHECKPOINTS = "checkpoints"
MADE_CHECKPOINTS = "checkpoints-made"
# What models of natural language inference call `LABELS`, so that others' programs know them.
_NAMES = ("entailment", "contradiction", "neutral")
# So many batches' claims are sorted by length.
_SORTED = 8


class CheckerScores(msgspec.Struct, frozen=True, kw_only=True):
    """How well verdicts agree with labels that were not learned from: those of the model, and those by words alone.

    `shared` of the claims have a text in common with those that were learned from.
    """

    name: str
    shared: int
    model: Agreement
    words: Agreement
    claims_a_second: float


class CheckerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a training did."""

    base: str
    fingerprint: str  # of the base
    data: dict[str, int]  # files, and the claims of each
    sha256: str  # of all claims that were learned from
    pytrace: str
    settings: dict[str, Any]
    labels: dict[str, int]  # of those that were learned from
    without_evidence: int
    held_out: int
    made: int = 0  # claims that were made of documents, and learned first
    made_seconds: float = 0.0
    steps: int
    epochs: float
    tokens: int
    seconds: float
    parameters: int
    trained: int
    loss: float
    judged: tuple[tuple[int, float], ...]  # a step and the loss on held-out claims
    threads: int
    device: str
    bytes: int  # of the graph
    scores: tuple[CheckerScores, ...]


class CheckerLesson:
    """Of a claim beside its evidence, which of three labels it has; supported claims weigh as much as all others."""

    def __init__(
        self, network: Any, rows: Sequence[CheckerRow], held_out: Sequence[CheckerRow], settings: CheckerSettings,
        files: PairFiles,
    ) -> None:  # fmt: skip
        self.torch = train_package("torch")
        self.network = network
        self.settings = settings
        self.pad_id = files.pad_id
        limit = min(settings.context, files.max_tokens)
        self.tokens, self.held_tokens = (
            files.pairs([(row.evidence, mark_missing(row.claim, row.evidence)) for row in some], limit) if some else []
            for some in (rows, held_out)
        )
        self.labels, self.held_labels = ([row.label for row in some] for some in (rows, held_out))
        self.weights = label_weights(self.labels)
        self.fingerprint = rows_hash([*rows, *held_out])
        self.epoch_steps = -(-len(rows) // settings.batch)
        self.judge_steps = settings.judge_steps if held_out else 0
        self.patience = settings.patience
        self._batches: Any = None

    def loss(self, step: int, share: float) -> tuple[Any, int]:  # noqa: ARG002 - what is learned is the same throughout
        """Return the loss of a step, and the tokens that went through the network."""
        if self._batches is None:
            lengths = [len(ids) for ids, _ in self.tokens]
            self._batches = batches_by_length(lengths, self.settings.batch, seed=self.settings.seed, skipped=step)
        numbers = next(self._batches)
        tokens = [self.tokens[number] for number in numbers]
        return self._loss(tokens, [self.labels[number] for number in numbers]), sum(len(ids) for ids, _ in tokens)

    def judge(self) -> float:
        """Return the loss on what is held out."""
        total, size = 0.0, self.settings.batch
        for start in range(0, len(self.held_labels), size):
            labels = self.held_labels[start : start + size]
            total += self._loss(self.held_tokens[start : start + size], labels).item() * len(labels)
        return total / len(self.held_labels)

    def state(self) -> dict[str, int]:
        """Return nothing: batches follow from seed and step."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""

    def _loss(self, tokens: list[Any], labels: list[int]) -> Any:
        torch = self.torch
        device = self.network.device
        logits = self.network(**padded_inputs(tokens, self.pad_id, device)).logits
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(labels, device=device), reduction="none")
        return (losses * torch.tensor([self.weights[label] for label in labels], device=device)).mean()


def label_weights(labels: Sequence[int]) -> list[float]:
    """Return what a claim of each label counts: supported ones together as much as all others together; 1 on average."""
    counts = [labels.count(label) for label in range(len(LABELS))]
    others = sum(counts) - counts[SUPPORTED]
    return [
        len(labels) / (2 * (counts[SUPPORTED] if label == SUPPORTED else others)) if count else 0.0
        for label, count in enumerate(counts)
    ]


def batches_by_length(lengths: Sequence[int], size: int, *, seed: int, skipped: int) -> Iterator[list[int]]:
    """Yield batches of the numbers of texts, pass after pass without end, but the first `skipped` ones.

    Some batches' texts, drawn anew for each pass, are sorted by their length, so that little of a batch is padding.
    """
    a_pass = -(-len(lengths) // size)
    for epoch in itertools.count(skipped // a_pass):
        rng = np.random.default_rng([seed, epoch])
        drawn = rng.permutation(len(lengths)).tolist()
        order = [
            number
            for start in range(0, len(drawn), _SORTED * size)
            for number in sorted(drawn[start : start + _SORTED * size], key=lengths.__getitem__)
        ]
        batches = rng.permutation(a_pass).tolist()
        for batch in batches[skipped % a_pass if epoch == skipped // a_pass else 0 :]:
            yield order[batch * size : (batch + 1) * size]


def train_checker(
    data: Sequence[Path],
    out: Path,
    settings: CheckerSettings,
    length: Length,
    *,
    docs: Sequence[Path] = (),
    base: str = "minilm-l6-int8",
    score: Sequence[Path] = (),
    hold_out: float = 0.1,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    say: Callable[[str], None] | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> CheckerReport:
    """Train a model of entailment on labelled claims, and write all of it into a directory.

    Parameters
    ----------
    data, score
        Files of labelled claims (`read_labelled`) to learn from, and others to score on.
    out
        The directory: the model as ``model``, checkpoints, ``report.json``.
    settings, length
        How, and for how long.
    docs
        Documents of which claims are made, that are learned in one pass before those of `data`.
    base
        The encoder to begin with: a name of the registry, or a directory.
    hold_out
        The share of claims that are not learned but end the training where they get no better, and are scored.
    device, threads, resume
        As for `train_ranker`.
    say, tell
        Are told what is done, and how far the training is.

    Raises
    ------
    InputError
        The data cannot be read or have one label alone, or the directory holds another training.
    """
    say = say or (lambda _: None)
    check_device(device)
    train_package("onnxscript")  # which the export needs, at the end
    if (checkpoints(out / CHECKPOINTS) or checkpoints(out / MADE_CHECKPOINTS)) and not resume:
        raise InputError(f"{out} holds a training; go on with --resume, or name another --out")
    sets, scored = [read_claims(path) for path in data], [read_claims(path) for path in score]
    every = [row for each in sets for row in each.rows]
    texts = [each.labelled[number] for each in sets for number in each.numbers]
    held = apart(every, held_out=hold_out, seed=settings.seed)
    rows = [row for row, out_of_it in zip(every, held, strict=True) if not out_of_it]
    kept = [row for row, out_of_it in zip(every, held, strict=True) if out_of_it]
    check_labels(rows)
    documents = [document for path in docs for document in read_documents(path)]
    made = made_rows(documents, settings.made, seed=settings.seed) if documents else []
    start = open_base(registry.resolve(base, "encoder"), threads=threads)
    network = cross_encoder(start.network, seed=settings.seed, labels=_NAMES)
    setattr(network.config, MARKS, True)
    # The words of a small training are few of all, and what the lower layers make of them is good for any task.
    for part in (network.bert.embeddings, *network.bert.encoder.layer[: settings.frozen]):
        for weight in part.parameters():
            weight.requires_grad_(False)
        for module in part.modules():
            if isinstance(module, train_package("torch").nn.Dropout):
                module.p = 0.0  # which would be noise that nothing learns from
    files = PairFiles(start.files.directory)
    recipe = {"base": start.encoder.fingerprint}
    made_seconds = 0.0
    # A checkpoint of what follows holds what was learned of them, too.
    if made and not checkpoints(out / CHECKPOINTS):
        say(f"training on {len(made):,} claims made of {len(documents):,} documents")
        first = learn(
            network, CheckerLesson(network, made, [], settings, files), settings, Length(epochs=1), device=device, threads=threads,
            directory=out / MADE_CHECKPOINTS, resume=resume and bool(checkpoints(out / MADE_CHECKPOINTS)), recipe=recipe, tell=tell,
        )  # fmt: skip
        made_seconds = first.seconds
    if made:
        recipe["made of documents"] = rows_hash(made)
    say(f"training on {len(rows):,} claims, {len(kept):,} held out")
    resumed = resume and (not made or bool(checkpoints(out / CHECKPOINTS)))
    done = learn(
        network, CheckerLesson(network, rows, kept, settings, files), settings, length, device=device, threads=threads,
        directory=out / CHECKPOINTS, resume=resumed, recipe=recipe, tell=tell,
    )  # fmt: skip
    say("writing the model")
    start.files.max_tokens = min(files.max_tokens, settings.context)
    write_ranker(out / MODEL, network.cpu(), start.files, "cross-encoder")
    save_question_hashes(
        out / MODEL / "onnx" / "model.onnx", (row.claim for row in every), made_by="pytrace train checker"
    )
    model = PairEntailment(out / MODEL, threads=threads)
    judged = [("held out", 0, [text for text, out_of_it in zip(texts, held, strict=True) if out_of_it])]
    judged += [(each.name, shared_texts(each.rows, rows), each.labelled) for each in scored]
    report = CheckerReport(
        base=base,
        fingerprint=start.encoder.fingerprint,
        data={each.name: len(each.labelled) for each in sets},
        sha256=rows_hash(rows),
        pytrace=pytrace.__version__,
        settings=msgspec.to_builtins(settings),
        labels={name: sum(row.label == number for row in rows) for number, name in enumerate(LABELS)},
        without_evidence=sum(len(each.labelled) - len(each.rows) for each in sets),
        held_out=len(kept),
        made=len(made),
        made_seconds=made_seconds,
        **{
            name: getattr(done, name)
            for name in ("steps", "epochs", "tokens", "seconds", "parameters", "trained", "loss", "judged")
        },
        threads=useful_threads(threads),
        device=device,
        bytes=(out / MODEL / "onnx" / "model.onnx").stat().st_size,
        scores=tuple(_scores(name, shared, some, model) for name, shared, some in judged if some),
    )
    replace_file(out / REPORT, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return report


def _scores(name: str, shared: int, rows: Sequence[LabelledText], model: EntailmentModel) -> CheckerScores:
    words = judge(rows, ClaimChecker(), ())
    found = judge(rows, ClaimChecker(), (), entailment=model)
    return CheckerScores(
        name=name,
        shared=shared,
        model=agreement(found.verdicts),
        words=agreement(words.verdicts),
        claims_a_second=found.claims_a_second,
    )
