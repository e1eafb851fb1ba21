"""A training from beginning to end: data, split, texts, network, training, export, and the report on held-out questions."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import pytrace
from pytrace.errors import InputError
from pytrace.kg.fact_store import FactStore
from pytrace.kg.graph_sources import read_source
from pytrace.kg.linking import EntityLinker
from pytrace.kg.names import normal_form
from pytrace.kg.queries import QueryForm, query_names
from pytrace.kg.queries.query_records import Grammar
from pytrace.kg.queries.running import QueryRunner
from pytrace.kg.queries.trained import TEMPLATE_VERSION, TrainedGenerator
from pytrace.storage.files import replace_file
from pytrace.storage.question_hashes import save_question_hashes
from pytrace.training.encoding import ByteTokenizer, TrainingText, encode_texts, training_text
from pytrace.training.examples import ExampleFormat, QueryExample, read_examples, write_questions
from pytrace.training.export import Recipe, write_gguf
from pytrace.training.graph_samples import sample_examples
from pytrace.training.network import add_adapters, check_device, merged, new_base, open_base
from pytrace.training.query_text import query_entities
from pytrace.training.scoring import ScoreReport, score_generator
from pytrace.training.trainer import Progress, checkpoints, train
from pytrace.training.training_settings import Length, TrainingSettings
from pytrace.training.variation import vary_names, vary_writing
from pytrace.training.wrong_queries import wrong_queries

MODEL = "query-generator.gguf"
HELD_OUT = "held-out.jsonl"
REPORT = "report.json"
RECIPE = "recipe.json"
TOKENIZER = "tokenizer.json"
CHECKPOINTS = "checkpoints"
# So many points tell a curve of losses.
_POINTS = 200


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where examples come from: files of a format, and so many sampled from a knowledge base."""

    data: tuple[Path, ...] = ()
    format: ExampleFormat = "auto"
    kb: Path | None = None
    kb_format: str | None = None
    sample: int = 0
    form: QueryForm = "sparql"
    wrong: bool = True  # whether wrong queries stand behind the correct one
    hold_out: float = 0.2  # the share of examples that is never trained on


class Prepared(msgspec.Struct, frozen=True):
    """Examples on both sides of the split, and the texts that are learned; `copies` of them have other names."""

    trained: tuple[QueryExample, ...]
    held_out: tuple[QueryExample, ...]
    texts: tuple[TrainingText, ...]
    copies: int


class DataReport(msgspec.Struct, frozen=True):
    """What was learned from: examples, texts with their tokens, those the loss counts, and texts that did not fit."""

    examples: int
    held_out: int
    copies: int
    texts: int
    tokens: int
    learned: int
    too_long: int


class TrainingReport(msgspec.Struct, frozen=True):
    """What a training did, and how well its model does on held-out questions (None: there are none)."""

    recipe: Recipe
    data: DataReport
    steps: int
    epochs: float
    tokens: int
    seconds: float
    parameters: int
    trained: int
    loss: float
    losses: tuple[tuple[int, float], ...]  # a step and its loss, evenly spaced
    threads: int  # that were asked for or found
    device: str
    bytes: int
    scores: ScoreReport | None  # of what it writes freely
    held_scores: ScoreReport | None  # under a grammar of the knowledge base (None: there is none)


def prepare(source: Source, settings: TrainingSettings) -> Prepared:
    """Read and sample examples, hold some out, and write the texts that are learned."""
    examples = [
        example for path in source.data for example in read_examples(path, format=source.format, form=source.form)
    ]
    if source.sample:
        if source.kb is None:
            raise InputError(f"--sample {source.sample} needs a knowledge base to sample from; give --kb FILE")
        facts = read_source(source.kb, format=source.kb_format)
        examples += sample_examples(
            facts.triples, source.sample, seed=settings.seed, form=source.form, names=facts.names
        )
    if not examples:
        raise InputError("there is nothing to learn from; give --data FILE, or --kb FILE with --sample N")
    trained, held_out = split_by_group(examples, held_out=source.hold_out, seed=settings.seed)
    if not trained:
        raise InputError(f"all {len(held_out)} examples were held out; give more data or a smaller --hold-out")
    # The names of held-out questions must not be learned, not even as names of somebody else.
    excluded = {name for example in held_out for name in query_entities(example.query)}
    copies = vary_names(trained, settings.variations * len(trained), seed=settings.seed, excluded=excluded)
    copies = vary_writing(copies, seed=settings.seed)
    texts = _texts([*trained, *copies], wrong=source.wrong, seed=settings.seed)
    return Prepared(tuple(trained), tuple(held_out), tuple(texts), len(copies))


def split_by_group(
    examples: Sequence[QueryExample], *, held_out: float, seed: int = 0
) -> tuple[list[QueryExample], list[QueryExample]]:
    """Split examples into training and held-out ones that share neither a group nor an entity."""
    # Examples that share either, directly or through others, stay together; such sets go to the held-out side in random
    # order, each where it still fits. So that side has at most the share asked for, and less where one set is large.
    if not 0 <= held_out < 1:  # NaN is in no range
        raise InputError(f"the share to hold out is {held_out}; choose it from 0 to below 1")
    if not examples:
        return [], []
    wanted = round(held_out * len(examples))
    sets = _linked(examples)
    order = list(range(len(sets)))
    random.Random(seed).shuffle(order)
    chosen: set[int] = set()
    for number in order:
        if len(chosen) + len(sets[number]) <= wanted:
            chosen.update(sets[number])
    if held_out and not chosen:
        smallest = min(map(len, sets))
        raise InputError(
            f"of {len(examples):,} examples {wanted:,} are to be held out, but the fewest that share no entity or group with "
            f"others are {smallest:,}; give more examples or another share"
        )
    sides: tuple[list[QueryExample], list[QueryExample]] = ([], [])
    for index, example in enumerate(examples):
        sides[index in chosen].append(example)
    return sides


def _linked(examples: Sequence[QueryExample]) -> list[list[int]]:
    """Return the examples' numbers in sets that share no group and no entity, by union-find."""
    parent = list(range(len(examples)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[tuple[str, str], int] = {}
    for index, example in enumerate(examples):
        entities = (("entity", normal_form(name)) for name in query_entities(example.query))
        for key in (("group", example.group), *entities):
            parent[root(index)] = root(first.setdefault(key, index))
    sets: dict[int, list[int]] = {}
    for index in range(len(examples)):
        sets.setdefault(root(index), []).append(index)
    return list(sets.values())


def _texts(examples: Sequence[QueryExample], *, wrong: bool, seed: int) -> list[TrainingText]:
    if not wrong:
        return [training_text(example) for example in examples]
    relations: dict[str, None] = {}
    names: set[str] = set()
    classes: dict[str, None] = {}
    for example in examples:
        named, named_relations = query_names(example.query)
        entities = query_entities(example.query)
        names.update(entities)
        relations.update(dict.fromkeys(named_relations))
        classes.update(dict.fromkeys(name for name in named if name not in entities))
    draw = partial(wrong_queries, seed=seed, relations=tuple(relations), names=names, classes=tuple(classes))
    return [training_text(example, draw(example)) for example in examples]


def train_generator(
    source: Source,
    out: Path,
    settings: TrainingSettings,
    length: Length,
    *,
    base: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    store: FactStore | None = None,
    say: Callable[[str], None] | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> TrainingReport:
    """Train a query generator and write all of it into a directory."""
    say = say or (lambda _: None)
    check_device(device)
    if checkpoints(out / CHECKPOINTS) and not resume:
        raise InputError(f"{out} holds a training; go on with --resume, or name another --out")
    say("preparing texts")
    prepared = prepare(source, settings)
    total, held = len(prepared.trained) + len(prepared.held_out), len(prepared.held_out)
    if held < source.hold_out * total / 2:
        say(
            f"only {held} of {total} questions can be held out, for the others are linked by the entities that they name; give "
            "questions about other entities to score it"
        )
    out.mkdir(parents=True, exist_ok=True)
    start = new_base(prepared.texts, settings) if base is None else open_base(base)
    context = min(settings.context, start.network.config.max_position_embeddings)
    encoded = encode_texts(prepared.texts, start.tokenizer, context=context)
    network = start.network if base is None else add_adapters(start.network, settings)
    data = _data_hash(prepared.trained)
    say(
        f"training on {len(encoded.texts):,} texts of {encoded.tokens:,} tokens, {encoded.too_long:,} left out as too long"
    )
    done = train(
        network,
        encoded,
        settings,
        length,
        device=device,
        threads=threads,
        directory=out / CHECKPOINTS,
        resume=resume,
        recipe={"base": start.fingerprint, "data": data, "form": source.form, "wrong": source.wrong},
        tell=tell,
    )
    recipe = Recipe(
        form=source.form,
        template=TEMPLATE_VERSION,
        wrong=source.wrong,
        data=data,
        seed=settings.seed,
        base=start.name,
        parameters=done.parameters,
        pytrace=pytrace.__version__,
        settings=msgspec.to_builtins(settings),
    )
    # Only now, so that a training which must not go on changes nothing.
    if isinstance(start.tokenizer, ByteTokenizer) and base is None:
        start.tokenizer.save(out / TOKENIZER)
    write_questions(out / HELD_OUT, prepared.held_out)
    finished = merged(network).cpu()
    number = threads or len(os.sched_getaffinity(0))

    def save(recipe: Recipe) -> None:
        write_gguf(out / MODEL, finished, start.keys, recipe, weights=settings.weights)
        save_question_hashes(
            out / MODEL, (example.question for example in prepared.trained), made_by="pytrace train query-generator"
        )
        _write(out / RECIPE, recipe)

    def score(grammar: Grammar) -> ScoreReport:
        return evaluate_generator(out / MODEL, prepared.held_out, threads=number, store=store, grammar=grammar)

    save(recipe)
    scores = held_scores = None
    if prepared.held_out:
        say("asking held-out questions")
        scores = score("none")
        if store is not None:
            say("asking them again, held to a grammar of the knowledge base")
            held_scores = score("words")
            # What does better, of equals the grammar, is how the model is used unless somebody chooses. The recipe stands in
            # the model, so that it is written again.
            if _right(held_scores) >= _right(scores):
                recipe = msgspec.structs.replace(recipe, grammar="words")
                save(recipe)
    stride = max(len(done.losses) // _POINTS, 1)
    report = TrainingReport(
        recipe=recipe,
        data=DataReport(
            examples=len(prepared.trained),
            held_out=len(prepared.held_out),
            copies=prepared.copies,
            texts=len(encoded.texts),
            tokens=encoded.tokens,
            learned=encoded.learned,
            too_long=encoded.too_long,
        ),
        **{
            name: getattr(done, name)
            for name in ("steps", "epochs", "tokens", "seconds", "parameters", "trained", "loss")
        },
        losses=tuple((step + 1, done.losses[step]) for step in range(0, done.steps, stride)),
        threads=number,
        device=device,
        bytes=(out / MODEL).stat().st_size,
        scores=scores,
        held_scores=held_scores,
    )
    _write(out / REPORT, report)
    return report


def evaluate_generator(
    path: Path,
    examples: Sequence[QueryExample],
    *,
    threads: int | None = None,
    store: FactStore | None = None,
    grammar: Grammar | None = None,
    done: Callable[[int], None] | None = None,
) -> ScoreReport:
    """Score a trained generator on questions with known queries."""
    generator = TrainedGenerator.load(
        path / MODEL if path.is_dir() else path,
        threads=threads,
        relations=() if store is None else store.relations(),
        grammar=grammar,
    )
    runner = None if store is None else QueryRunner(store, EntityLinker(store, None))
    try:
        return score_generator(examples, generator, runner=runner, done=done)
    finally:
        generator.close()


def _right(report: ScoreReport) -> int:
    """Return how many queries bring the gold answers and how many are the gold query, together."""
    return report.overall.executes.right + report.overall.exact.right


def _data_hash(examples: Sequence[QueryExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        for part in (example.question, example.query.text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def _write(path: Path, value: Any) -> None:
    replace_file(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
