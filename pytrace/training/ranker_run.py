"""A ranker's training from beginning to end: sets, hops with hard negatives, training, export, and recall on sets never seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import pytrace
from pytrace.errors import InputError
from pytrace.models import registry
from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.processes import useful_threads
from pytrace.storage.files import replace_file
from pytrace.storage.question_hashes import save_question_hashes
from pytrace.training.bert import Base, cross_encoder, open_base
from pytrace.training.network import check_device, train_package
from pytrace.training.ranker_data import (
    QuestionSet,
    Searched,
    check_apart,
    fewer_passages,
    hops_hash,
    read_set,
    shared_passages,
    split_questions,
    without_titles,
)
from pytrace.training.ranker_export import write_ranker
from pytrace.training.ranker_lessons import CrossEncoderLesson, EncoderLesson, PairFiles
from pytrace.training.ranker_scores import SetScores, compare
from pytrace.training.trainer import Progress, checkpoints, learn
from pytrace.training.training_settings import Length, RankerKind, RankerSettings

MODEL = "model"
REPORT = "report.json"
CHECKPOINTS = "checkpoints"
_POINTS = 200


class RankerRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """All that decided a ranker's weights."""

    kind: RankerKind
    base: str
    fingerprint: str  # of the base
    sets: tuple[str, ...]
    data: str  # SHA-256 of all hops
    pytrace: str
    settings: dict[str, Any]


class RankerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a training did, and recall of supporting documents before and after."""

    recipe: RankerRecipe
    questions: int
    hops: int
    held_out: int  # hops
    steps: int
    epochs: float
    tokens: int
    seconds: float
    parameters: int
    trained: int
    loss: float
    losses: tuple[tuple[int, float], ...]  # a step and its loss, evenly spaced
    judged: tuple[tuple[int, float], ...]  # a step and the loss on held-out hops
    threads: int
    device: str
    bytes: int  # of the graph
    scores: tuple[SetScores, ...]


def train_ranker(
    data: Sequence[Path],
    out: Path,
    settings: RankerSettings,
    length: Length,
    *,
    kind: RankerKind = "encoder",
    base: str = "minilm-l6-int8",
    score: Sequence[Path] = (),
    passages: int | None = None,
    hold_out: float = 0.1,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    say: Callable[[str], None] | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> RankerReport:
    """Train a ranker and write all of it into a directory."""
    say = say or (lambda _: None)
    check_device(device)
    train_package("onnxscript")  # which the export needs, at the end
    if checkpoints(out / CHECKPOINTS) and not resume:
        raise InputError(f"{out} holds a training; go on with --resume, or name another --out")
    sets = [read_set(path) for path in data]
    scored = [read_set(path) for path in score]
    check_apart(sets, scored)
    if all(len(question.rows) == len(each.passages) for each in sets for question in each.questions):
        raise InputError("all passages support an answer, so that there is nothing to tell apart; give more passages")
    start = open_base(registry.resolve(base, "encoder"), threads=threads)
    say(f"searching {sum(len(each.passages) for each in sets):,} passages for hard negatives")
    searched = [Searched(each, start.encoder) for each in sets]
    hops = [hop for number, each in enumerate(searched) for hop in each.hops(number, mined=settings.mined)]
    held = [split_questions(each, held_out=hold_out, seed=settings.seed) for each in sets]
    kept = [hop for hop in hops if held[hop.set][hop.question]]
    hops = [hop for hop in hops if not held[hop.set][hop.question]]
    if not hops:
        raise InputError(f"all {len(kept)} hops were held out; give more data or a smaller --hold-out")
    network, lesson = _lesson(start, kind, searched, hops, kept, settings)
    recipe = RankerRecipe(
        kind=kind,
        base=base,
        fingerprint=start.encoder.fingerprint,
        sets=tuple(each.name for each in sets),
        data=hops_hash(searched, hops),
        pytrace=pytrace.__version__,
        settings=msgspec.to_builtins(settings),
    )
    say(f"training on {len(hops):,} hops, {len(kept):,} held out")
    done = learn(
        network,
        lesson,
        settings,
        length,
        device=device,
        threads=threads,
        directory=out / CHECKPOINTS,
        resume=resume,
        recipe={"base": recipe.fingerprint, "kind": kind},
        tell=tell,
    )
    say("writing the model")
    write_ranker(out / MODEL, network.cpu(), start.files, kind)
    save_question_hashes(
        out / MODEL / "onnx" / "model.onnx",
        (question.text for each in sets for question in each.questions),
        made_by="pytrace train ranker",
    )
    scores = _scores(scored, sets, start, kind, out / MODEL, passages, settings.seed, threads, say)
    stride = max(len(done.losses) // _POINTS, 1)
    report = RankerReport(
        recipe=recipe,
        questions=sum(len(each.questions) for each in sets),
        hops=len(hops),
        held_out=len(kept),
        **{
            name: getattr(done, name)
            for name in ("steps", "epochs", "tokens", "seconds", "parameters", "trained", "loss", "judged")
        },
        losses=tuple((step + 1, done.losses[step]) for step in range(0, done.steps, stride)),
        threads=useful_threads(threads),
        device=device,
        bytes=(out / MODEL / "onnx" / "model.onnx").stat().st_size,
        scores=tuple(scores),
    )
    replace_file(out / REPORT, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return report


def _lesson(
    start: Base, kind: RankerKind, sets: list[Searched], hops: list[Any], held_out: list[Any], settings: RankerSettings
) -> tuple[Any, Any]:
    """Return the network that is trained, and what it learns."""
    network = start.network if kind == "encoder" else cross_encoder(start.network, seed=settings.seed)
    # The words of a small training are few of all, and must not drift apart from the others.
    embeddings = network.embeddings if kind == "encoder" else network.bert.embeddings
    for weight in embeddings.parameters():
        weight.requires_grad_(False)
    if kind == "encoder":
        return network, EncoderLesson(network, sets, hops, held_out, settings, files=start.files)
    return network, CrossEncoderLesson(network, sets, hops, held_out, settings, files=PairFiles(start.files.directory))


def _scores(
    scored: Sequence[QuestionSet],
    trained: Sequence[QuestionSet],
    start: Base,
    kind: RankerKind,
    model: Path,
    passages: int | None,
    seed: int,
    threads: int | None,
    say: Callable[[str], None],
) -> list[SetScores]:
    """Score the model on sets that it never saw, with their titles and without."""
    ranker = OnnxEncoder(model, threads=threads) if kind == "encoder" else OnnxCrossEncoder(model, threads=threads)
    rows = []
    for given in scored:
        shared = shared_passages(trained, given)
        part = given if passages is None else fewer_passages(given, passages, seed=seed)
        say(f"scoring on {given.name}: {len(part.questions):,} questions, {len(part.passages):,} passages")
        rows += compare(part, "kept", shared, start.encoder, ranker)
        rows += compare(without_titles(part), "gone", shared, start.encoder, ranker)
    return rows
