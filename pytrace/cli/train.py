"""``pytrace train``: custom models that write queries of a knowledge base, rank passages, check claims, or read answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, click_group, option
from pytrace.cli.shared_options import KNOWLEDGE_FORMAT, LIMIT, SETTINGS
from pytrace.engine.knowledge import open_store
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.claims.evaluation import Share as AgreementShare
    from pytrace.kg.queries import QueryForm
    from pytrace.training.checker_run import CheckerReport
    from pytrace.training.edge.edge_run import EdgeReport
    from pytrace.training.ranker_run import RankerReport
    from pytrace.training.ranker_scores import SetScores
    from pytrace.training.run import TrainingReport
    from pytrace.training.scoring import Scores, Share
    from pytrace.training.trainer import Progress
    from pytrace.training.training_settings import Length

_FAILURES = 5  # on a screen
_DEFAULT_EPOCHS = 1.0
_RANKER_EPOCHS = 4.0
_LAST_WORDS = "go on from the last checkpoint with --resume"

_Format = Literal["auto", "pathquestion", "lcquad", "pytrace"]
_FORMAT = option("Of the data.", "--format", default="auto")
_KB = option("The knowledge base: held-out queries are run on it, and --sample takes its paths.", metavar="FILE")
_THREADS = option("Threads (default: those that this process may use).", ge=1, le=1024)
_OUT = option("The directory of the training.", type=click.Path(path_type=Path, file_okay=False))
_SEED = option("Of all that is drawn.", ge=0, le=(1 << 32) - 1, default=0)
_EPOCHS = "Passes over {}.  [default: {:g}]"
_STEPS = option("Steps, in place of passes.", ge=1)
_MINUTES = option("Minutes, in place of passes.", gt=0)
_RESUME = option("Go on from the last checkpoint in --out.")
_DEVICE = option("Where to train; fails if it is not there.", default="cpu")


class QueryGenerator(Command):
    """Train a small model that writes queries, and score it on questions whose entities it never saw.

    The data are PathQuestion's or LC-QuAD's files, or JSON Lines with `question` and `query`. OUT gets the model as
    query-generator.gguf, which 'pytrace ask --query-generator' takes, the held-out questions, and report.json. A training that
    was ended goes on with --resume. --set changes the model or its training: width=128, layers=4, variations=16,
    learning_rate=0.002, checkpoint_minutes=5.
    """

    data: tuple[Path, ...] = option("Questions with queries. May be repeated.", metavar="FILE")
    data_format: _Format = _FORMAT
    kb: Path | None = _KB
    kb_format: str | None = KNOWLEDGE_FORMAT
    sample: int = option("Make N questions from the paths of --kb.", ge=0, default=0, show_default=False, metavar="N")
    out: Path = _OUT
    form: Literal["sparql", "triplet"] = option("What it writes.", default="sparql")
    wrong: bool | None = option(
        "Learn four wrong queries beside each correct one (default: with --base, where the paper gained by it; not from scratch, "
        "where we did not).",
        "--wrong/--no-wrong",
        default=None,
    )
    base: str | None = option(
        "Begin with this Llama, Mistral, Qwen or Gemma 3 and train adapters.  [default: from scratch]",
        metavar="NAME|FILE.gguf|DIR",
    )
    lora_rank: int | None = option("The rank of the adapters.  [default: 16]", ge=1, le=512)
    hold_out: float = option(
        "The share of entities whose questions are not learned but asked at the end.", ge=0, lt=1, default=0.2
    )
    seed: int = _SEED
    epochs: float | None = option(_EPOCHS.format("the texts", _DEFAULT_EPOCHS), gt=0)
    steps: int | None = _STEPS
    minutes: float | None = _MINUTES
    resume: bool = _RESUME
    threads: int | None = _THREADS
    device: Literal["cpu", "cuda"] = _DEVICE
    settings: tuple[str, ...] = SETTINGS

    def check(self) -> None:
        if self.lora_rank is not None and self.base is None:
            raise InputError("--lora-rank is of the adapters of a base, and there is none; give --base too")

    def run(self) -> Output:
        from pytrace.methods.base import changed
        from pytrace.training.run import Source, train_generator
        from pytrace.training.training_settings import TrainingSettings

        # First, so that --set has the last word.
        named = [f"seed={self.seed}", *([] if self.lora_rank is None else [f"rank={self.lora_rank}"])]
        settings = changed(TrainingSettings(), [*named, *self.settings], what="train")
        source = Source(
            data=self.data,
            format=self.data_format,
            kb=self.kb,
            kb_format=self.kb_format,
            sample=self.sample,
            form=self.form,
            wrong=self.base is not None if self.wrong is None else self.wrong,
            hold_out=self.hold_out,
        )
        processes.last_words(_LAST_WORDS)
        with ExitStack() as stack:
            report = train_generator(
                source,
                self.out,
                settings,
                _length(self, _DEFAULT_EPOCHS),
                base=self.base,
                device=self.device,
                threads=self.threads,
                resume=self.resume,
                # Opened before the training, so that a file that cannot be read costs nothing.
                store=None
                if self.kb is None
                else stack.enter_context(closing(open_store(self.kb, format=self.kb_format))),
                say=common.remark,
                tell=_show_progress(),
            )
        return Output(report, lambda: _print_report(report, self.out))


class Ranker(Command):
    """Train a small encoder or cross-encoder to find the next supporting passage, and score it on sets that it never saw.

    Data are questions with documents and supporting facts (HotpotQA, 2WikiMultiHopQA, MuSiQue, …), or folders with corpus.jsonl and
    questions.jsonl. The query of a hop is the question and the passages before; wrong passages come from a search over all of a set.
    OUT gets the model, which '--encoder' or '--cross-encoder' takes, as OUT/model, and report.json with recall of supporting
    documents before and after. A training that was ended goes on with --resume. --set changes it: learning_rate=5e-5, batch=32,
    negatives=4, mined=50, temperature=0.02, patience=5.
    """

    data: tuple[Path, ...] = option("A set to learn from. May be repeated.", metavar="FILE|DIR", required=True)
    out: Path = _OUT
    kind: Literal["encoder", "cross-encoder"] = option("What is trained.", default="encoder")
    base: str = option("The encoder to begin with.", default="minilm-l6-int8", metavar="NAME|DIR")
    score: tuple[Path, ...] = option(
        "A set to score on, whose questions are not learned, with its titles and without. May be repeated.",
        metavar="FILE|DIR",
    )
    passages: int | None = option(
        "Of each set that is scored, so many passages at most: the supporting ones, and others drawn.  [default: all]",
        ge=1,
    )
    hold_out: float = option(
        "The share of questions that are not learned, but end the training where they get no better.",
        ge=0, lt=1, default=0.1,
    )  # fmt: skip
    seed: int = _SEED
    epochs: float | None = option(_EPOCHS.format("the hops", _RANKER_EPOCHS), gt=0)
    steps: int | None = _STEPS
    minutes: float | None = _MINUTES
    resume: bool = _RESUME
    threads: int | None = _THREADS
    device: Literal["cpu", "cuda"] = _DEVICE
    settings: tuple[str, ...] = SETTINGS

    def run(self) -> Output:
        from pytrace.methods.base import changed
        from pytrace.training.ranker_run import train_ranker
        from pytrace.training.training_settings import RankerSettings

        settings = changed(RankerSettings(), [f"seed={self.seed}", *self.settings], what="train")
        processes.last_words(_LAST_WORDS)
        report = train_ranker(
            self.data,
            self.out,
            settings,
            _length(self, _RANKER_EPOCHS),
            kind=self.kind,
            base=self.base,
            score=self.score,
            passages=self.passages,
            hold_out=self.hold_out,
            device=self.device,
            threads=self.threads,
            resume=self.resume,
            say=common.remark,
            tell=_show_progress(),
        )
        return Output(report, lambda: _print_ranker(report, self.out))


class Checker(Command):
    """Train a small cross-encoder that says whether evidence supports a claim, contradicts it, or does not say.

    Each line of the data has `claim`, `evidence` (sentences) and `label`, as `pytrace eval-claims` reads it. OUT gets the model, which
    'pytrace certify --checker' takes, as OUT/model, and report.json with how well its verdicts agree with labels that were not learned from.
    A training that was ended goes on with --resume. --set changes it: learning_rate=1e-4, batch=16, context=160, patience=4, made=3000.
    """

    data: tuple[Path, ...] = option("Labelled claims to learn from. May be repeated.", metavar="FILE", required=True)
    out: Path = _OUT
    docs: tuple[Path, ...] = option(
        "Documents in English of which claims are made, true ones and some with one thing changed, that are learned first. May be repeated."
    )
    base: str = option("The encoder to begin with.", default="minilm-l6-int8", metavar="NAME|DIR")
    score: tuple[Path, ...] = option("Labelled claims to score on, not to learn. May be repeated.", metavar="FILE")
    hold_out: float = option(
        "The share of claims that are not learned, but scored, and end the training where they get no better.",
        ge=0, lt=1, default=0.1,
    )  # fmt: skip
    seed: int = _SEED
    epochs: float | None = option(_EPOCHS.format("the claims", _RANKER_EPOCHS), gt=0)
    steps: int | None = _STEPS
    minutes: float | None = _MINUTES
    resume: bool = _RESUME
    threads: int | None = _THREADS
    device: Literal["cpu", "cuda"] = _DEVICE
    settings: tuple[str, ...] = SETTINGS

    def run(self) -> Output:
        from pytrace.methods.base import changed
        from pytrace.training.checker_run import train_checker
        from pytrace.training.training_settings import CheckerSettings

        settings = changed(CheckerSettings(), [f"seed={self.seed}", *self.settings], what="train")
        processes.last_words(_LAST_WORDS)
        report = train_checker(
            self.data,
            self.out,
            settings,
            _length(self, _RANKER_EPOCHS),
            docs=self.docs,
            base=self.base,
            score=self.score,
            hold_out=self.hold_out,
            device=self.device,
            threads=self.threads,
            resume=self.resume,
            say=common.remark,
            tell=_show_progress(),
        )
        return Output(report, lambda: _print_checker(report, self.out))


class Edge(Command):
    """Train the small model that reads, checks and links.

    DATA is a folder with reading.jsonl.gz, claims.jsonl.gz and passages.jsonl.gz. OUT gets the model as OUT/model and report.json. Interrupted
    trainings continue with --resume. --set changes it: learning_rate=1.5e-4, batch=4096 (tokens), cooldown=0.2,
    frozen_layers=0, kept_back=0.2, base_share=0, questions=1, leave_out=lingnli, easy=0.25, made_questions=5000, composed_questions=2000,
    made_claims=3000, made_statements=16000, made_answers=2000, made_links=2000, hop_repeats=3, judge_steps=250.
    """

    data: Path = option("Folder of the training data.", metavar="DIR")
    out: Path = _OUT
    base: str = option("Weights to begin with.", default="minilm-l6", metavar="NAME|DIR")
    seed: int = _SEED
    epochs: float | None = option(_EPOCHS.format("the examples", _DEFAULT_EPOCHS), gt=0)
    steps: int | None = _STEPS
    minutes: float | None = _MINUTES
    resume: bool = _RESUME
    threads: int | None = _THREADS
    settings: tuple[str, ...] = SETTINGS

    def run(self) -> Output:
        from pytrace.methods.base import changed
        from pytrace.training.edge.edge_run import train_edge
        from pytrace.training.edge.edge_settings import EdgeSettings

        settings = changed(EdgeSettings(), [f"seed={self.seed}", *self.settings], what="train")
        processes.last_words(_LAST_WORDS)
        report = train_edge(
            self.data,
            self.out,
            settings,
            _length(self, _DEFAULT_EPOCHS),
            base=self.base,
            threads=self.threads,
            resume=self.resume,
            on_message=common.remark,
            on_progress=_show_progress(),
        )
        return Output(report, lambda: _print_edge(report, self.out))


class Evaluate(Command):
    """Score a trained generator on questions with known queries, such as the held-out.jsonl of its training."""

    generator: Path = option("The generator.", metavar="DIR|FILE.gguf")
    data: Path = option("Questions with queries.", metavar="FILE")
    data_format: _Format = _FORMAT
    kb: Path | None = _KB
    kb_format: str | None = KNOWLEDGE_FORMAT
    query_grammar: Literal["words", "relations", "none"] | None = option(
        "Hold queries to the relations of --kb and the question's words, to the relations alone, or to nothing.  [default: what did "
        "best after the training, if there is --kb]"
    )
    limit: int | None = LIMIT
    threads: int | None = _THREADS

    def run(self) -> Output:
        from pytrace.training.examples import read_examples
        from pytrace.training.export import read_recipe
        from pytrace.training.run import MODEL, evaluate_generator

        if self.kb is None and self.query_grammar not in (None, "none"):
            raise InputError(
                f"--query-grammar {self.query_grammar} holds queries to a knowledge base, and there is none; give --kb FILE"
            )
        path = self.generator / MODEL if self.generator.is_dir() else self.generator
        # The file knows in which form it was taught to write.
        form: QueryForm = "triplet" if read_recipe(path).form == "triplet" else "sparql"
        examples = read_examples(self.data, format=self.data_format, form=form)[: self.limit]
        with ExitStack() as stack:
            store = (
                None if self.kb is None else stack.enter_context(closing(open_store(self.kb, format=self.kb_format)))
            )
            advance = stack.enter_context(common.progress("asking", len(examples)))
            shown = 0

            def done(count: int) -> None:
                nonlocal shown
                advance(count - shown)  # it is how many are done in all
                shown = count

            report = evaluate_generator(
                path,
                examples,
                threads=self.threads or len(os.sched_getaffinity(0)),
                store=store,
                grammar=self.query_grammar,
                done=done,
            )
        return Output(report, lambda: _print_scores({"all": report.overall, **report.shapes}))


def _length(command: QueryGenerator | Ranker | Checker | Edge, epochs: float) -> Length:
    """Return how long to train."""
    from pytrace.training.training_settings import Length

    # No default of click's: beside --steps or --minutes alone it would be a second length.
    given = command.epochs
    if given is None and command.steps is None and command.minutes is None:
        given = epochs
    return Length(epochs=given, steps=command.steps, minutes=command.minutes)


def _show_progress() -> Callable[[Progress], None]:
    """Return what says now and then how far the training is; it has no bar, for its length may be minutes, steps or epochs."""
    shown = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= common.PLAIN_INTERVAL:
            shown = now
            common.remark(
                f"training: {100 * progress.share:.0f} %, step {progress.step:,}, loss {progress.loss:.3f}, "
                f"{progress.rate:,.0f} tokens a second"
            )

    return show


def _print_report(report: TrainingReport, out: Path) -> None:
    from pytrace.training.run import MODEL

    common.print_text(
        f"{out / MODEL}: {report.parameters:,} parameters ({report.trained:,} trained), {common.human_size(report.bytes)}"
    )
    common.print_text(
        f"{report.steps:,} steps, {report.epochs:.2f} epochs, {report.tokens:,} tokens in {report.seconds / 60:.1f} min "
        f"({report.tokens / max(report.seconds, 1e-9):,.0f} a second, {report.threads} threads, {report.device}); "
        f"loss {report.losses[0][1]:.3f}, at the end {report.loss:.3f}"
    )
    common.print_text(
        f"learned from {report.data.examples:,} questions and {report.data.copies:,} copies with other names"
        f"{f'; {report.data.too_long:,} texts were too long' if report.data.too_long else ''}"
    )
    if report.scores is None:
        common.print_text("nothing was held out, so nothing is scored")
        return
    best = report.scores
    common.print_text()
    _print_scores({"all": best.overall, **best.shapes})
    if report.held_scores is not None:
        common.print_text("\nheld to a grammar of the knowledge base's relations and the question's words")
        _print_scores({"all": report.held_scores.overall, **report.held_scores.shapes})
        best = report.held_scores if report.recipe.grammar == "words" else best
        chosen = "so" if report.recipe.grammar == "words" else "without one"
        common.print_text(f"it will be used {chosen} unless --query-grammar says otherwise")
    # Without a knowledge base no query can be run, and the gold query's words decide.
    failures = [row for row in best.rows if not (row.exact if row.executes is None else row.executes)]
    for row in failures[:_FAILURES]:
        common.print_text(common.printable(f"wrong: {row.question} -> {row.written}"))


def _print_ranker(report: RankerReport, out: Path) -> None:
    from pytrace.training.ranker_run import MODEL
    from pytrace.training.ranker_scores import DEPTHS

    common.print_text(
        f"{out / MODEL}: {report.parameters:,} parameters ({report.trained:,} trained), {common.human_size(report.bytes)}"
    )
    common.print_text(
        f"{report.steps:,} steps, {report.epochs:.2f} epochs of {report.hops:,} hops, {report.tokens:,} tokens in "
        f"{report.seconds / 60:.1f} min ({report.tokens / max(report.seconds, 1e-9):,.0f} a second, {report.threads} threads, "
        f"{report.device}); loss {report.losses[0][1]:.3f}, at the end {report.loss:.3f}"
    )
    if report.judged:
        step, best = min(report.judged, key=lambda judged: judged[1])
        common.print_text(
            f"loss of {report.held_out:,} held-out hops {report.judged[0][1]:.3f} untrained, {best:.3f} after step {step:,}, whose "
            "weights the model has"
        )
    if not report.scores:
        common.print_text("no set was given to score it on")
        return
    common.print_text()
    common.print_records(
        report.scores,
        (
            ("SET", lambda row: common.printable(row.name)),
            ("TITLES", lambda row: row.titles),
            ("ASKED", lambda row: row.query),
            ("QUESTIONS", lambda row: row.questions),
            ("PASSAGES", lambda row: row.passages),
            *(
                (f"{when} @{depth}", partial(_recall, part=part, depth=str(depth)))
                for depth in DEPTHS
                for when, part in (("BEFORE", "before"), ("AFTER", "after"), ("GAIN", "gain"))
            ),
        ),
    )
    common.print_text(
        "recall of supporting documents in percent, of hops whether a next one is found, with 95 % bootstrap intervals over "
        "questions"
    )
    for row in report.scores:
        if row.shared and row.titles == "kept" and row.query == "question":
            common.print_text(
                common.printable(f"{row.shared:,} supporting passages of {row.name} are among those learned from")
            )


def _print_checker(report: CheckerReport, out: Path) -> None:
    from pytrace.training.checker_run import MODEL

    common.print_text(
        f"{out / MODEL}: {report.parameters:,} parameters ({report.trained:,} trained), {common.human_size(report.bytes)}"
    )
    common.print_text(
        f"{report.steps:,} steps, {report.epochs:.2f} epochs of {sum(report.labels.values()):,} claims, {report.tokens:,} tokens in "
        f"{report.seconds / 60:.1f} min ({report.tokens / max(report.seconds, 1e-9):,.0f} a second, {report.threads} threads, "
        f"{report.device}); loss {report.loss:.3f}"
    )
    if report.made:
        common.print_text(
            f"before that {report.made:,} claims made of documents, in {report.made_seconds / 60:.1f} min"
        )
    if report.without_evidence:
        common.print_text(f"{report.without_evidence:,} claims share no word with their evidence, and were left out")
    if not report.scores:
        common.print_text("nothing was held out or given to score it on")
        return
    common.print_text()
    common.print_records(
        report.scores,
        (
            ("SET", lambda row: common.printable(row.name)),
            ("CLAIMS", lambda row: row.model.n),
            ("SHARED", lambda row: row.shared),
            ("BALANCED", lambda row: _figure(row.model.balanced_accuracy, 100)),
            ("BY WORDS", lambda row: _figure(row.words.balanced_accuracy, 100)),
            ("AUROC", lambda row: _figure(row.model.auroc, 1)),
            ("BY WORDS", lambda row: _figure(row.words.auroc, 1)),
            ("A SECOND", lambda row: f"{row.claims_a_second:,.0f}"),
        ),
    )
    common.print_text(
        "balanced accuracy in percent and AUROC of supported beside others, with 95 % bootstrap intervals, and of the checker without a "
        "model; SHARED claims have a text in common with those learned from"
    )


def _print_edge(report: EdgeReport, out: Path) -> None:
    from pytrace.training.edge.edge_run import MODEL

    common.print_text(
        f"{out / MODEL}: {report.parameters:,} parameters ({report.trained:,} trained), {common.human_size(report.bytes)}"
    )
    common.print_text(
        f"{report.steps:,} steps, {report.epochs:.2f} epochs of {sum(report.data.values()):,} examples, {report.tokens:,} tokens in "
        f"{report.seconds / 60:.1f} min ({report.tokens / max(report.seconds, 1e-9):,.0f} a second, {report.threads} threads)"
    )
    for step, loss in report.judged:
        common.print_text(f"step {step:,}: loss of {report.held_out:,} held-out examples {loss:.3f}")


def _figure(share: AgreementShare | None, by: int) -> str:
    if share is None:
        return "-"
    digits = 1 if by == 100 else 3
    return f"{by * share.value:.{digits}f} ({by * share.low:.{digits}f} to {by * share.high:.{digits}f})"


def _recall(row: SetScores, *, part: str, depth: str) -> str:
    recall = getattr(row, part)[depth]
    return (
        common.percent_interval(recall.mean, recall.low, recall.high) if part == "gain" else common.percent(recall.mean)
    )


def _print_scores(scores: dict[str, Scores]) -> None:
    common.print_records(
        scores.items(),
        (
            ("QUESTIONS", lambda row: row[0]),
            ("N", lambda row: row[1].parses.of),
            ("EXECUTES", lambda row: _share(row[1].executes)),
            ("HITS", lambda row: _share(row[1].hits)),
            ("EXACT", lambda row: _share(row[1].exact)),
            ("NAMES", lambda row: _share(row[1].names)),
            ("RELATIONS", lambda row: _share(row[1].relations)),
            ("PARSES", lambda row: _share(row[1].parses)),
        ),
    )
    common.print_text(
        "percent with 95 % Wilson intervals; EXECUTES: the values are the gold answers, HITS: one of them is"
    )


def _share(part: Share) -> str:
    return common.percent_interval(part.share, part.low, part.high)


train = click_group(
    "Train custom models, and score a query generator.",
    QueryGenerator, Ranker, Checker, Edge, Evaluate,
)  # fmt: skip
