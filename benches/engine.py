"""The engine beside the published programs' way and llama-cpp-python's own class: triples, chains, and the whole of TRACE.

    python -m benches.engine --data PATH/multihop/advhotpot10-dev.jsonl [--questions 20] [--only WORK…] [--llm tiny] [--json]

Side A evaluates every prompt of the same algorithm alone and whole. Side B runs it on llama-cpp-python's high-level `Llama`,
whose longest-prefix match stays on. All sides run the same weights on the same threads, a group of questions at a time in
turn; a ratio is the median over groups of a side's seconds / our seconds, beside that of all groups together. Agreement is the
share of our triples, chains or answers that the side has, too: rounding differs with the shape of a batch, and a greedy text
goes another way where two tokens are nearly as likely.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benches.engine_sides import Alone, HighLevel
from pytrace.bench import machine
from pytrace.evaluation.data.datasets import read_questions
from pytrace.methods.abilities import UNABLE
from pytrace.methods.catalog import method_settings
from pytrace.methods.trace.beam_search import SearchSettings, build_chains
from pytrace.methods.trace.ranker import Ranker, TripleIndex
from pytrace.methods.trace.selector import Demonstrations, Layout, LetterSelector
from pytrace.methods.trace.trace import Trace
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.encoders.onnx_graph import OnnxGraph
from pytrace.models.language_model import LanguageModel
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.records import Document, Question, Triple, Usage
from pytrace.triples.kg_generator import LanguageModelExtractor

CONTEXT = 4096
BARS = {
    "triples": {"A": 4.0, "B": 1.5},
    "chains, paper layout": {"A": 2.5, "B": 1.2, "tokens": 0.45},
    "chains, shared layout": {"A": 5.0, "B": 2.5, "tokens": 0.20},
    "trace": {"A": 4.0, "B": 2.0},
}
WORKS = ("triples", "triples-spans", "chains-paper", "chains-shared", "trace")

Answer = Callable[[LanguageModel, Sequence[Question]], list[object]]


class Clock:
    """Seconds inside llama.cpp's decoder and onnxruntime's sessions; what is left of the wall clock is ours."""

    def __init__(self) -> None:
        self.inside = 0.0

    @contextmanager
    def over(self, owner: Any, name: str) -> Iterator[None]:
        """Count the seconds that calls of a method take."""
        method = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                self.inside += time.perf_counter() - start

        setattr(owner, name, timed)
        try:
            yield
        finally:
            if isinstance(owner, type):
                setattr(owner, name, method)
            else:
                delattr(owner, name)


def documents_of(questions: Sequence[Question]) -> list[Document]:
    """Return the questions' documents, each once."""
    return list({document.id: document for question in questions for document in question.documents}.values())


def extract(model: LanguageModel, questions: Sequence[Question], *, spans: bool = False) -> list[object]:
    """Return the triples of every document, with demonstrations fixed for the run."""
    extractor = LanguageModelExtractor(model, spans=spans)
    return [one.units for one in extractor.extract(documents_of(questions))]


def search(
    model: LanguageModel,
    questions: Sequence[Question],
    *,
    layout: Layout,
    encoder: OnnxEncoder,
    triples: dict[str, tuple[Triple, ...]],
    adaptive: bool,
    fixed: bool,
) -> list[object]:
    """Return each question's chains: L=4, R=5, b=5, K=20 by letters."""
    index = TripleIndex([[t for d in q.documents for t in triples[d.id]] for q in questions], encoder)
    selector = LetterSelector(model, Demonstrations(3, encoder=None if fixed else encoder), layout=layout)
    settings = SearchSettings(length=4, beams=5, chains=5, adaptive=adaptive)
    found = build_chains([q.question for q in questions], index, Ranker(encoder, candidates=20), selector, settings)
    return [tuple(chain.units for chain in chains) for chains in found]


def alike(ours: object, theirs: object) -> float:
    """Return the share of our triples or chains that the other side has, too; of answers, whether they are equal."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return len(set(ours) & set(theirs)) / len(set(ours)) if ours else float(not theirs)
    return float(ours == theirs)


def compare(
    work: str,
    answer: Answer,
    sides: dict[str, LanguageModel],
    groups: Sequence[Sequence[Question]],
    items: Callable[[Sequence[Question]], int],
) -> dict[str, Any]:
    """Run every side on every group in turn, another side first each time, and put the figures together."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    usage = {name: Usage() for name in sides}
    equal = dict.fromkeys(sides, 0.0)
    total = 0
    order = list(sides)
    for group in groups:
        results = {}
        for name in order:
            before, start = sides[name].usage, time.perf_counter()
            results[name] = answer(sides[name], group)
            seconds[name].append(time.perf_counter() - start)
            usage[name] += sides[name].usage - before
            print(f"{work}: {name} {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
        total += len(results["ours"])
        for name in sides:
            equal[name] += sum(map(alike, results["ours"], results[name]))
        order.append(order.pop(0))
    if "A" in sides and usage["A"].evaluated_tokens < usage["A"].prompt_tokens:
        raise AssertionError("side A has shared tokens between prompts")
    count = sum(map(items, groups))
    ours = usage["ours"]
    row: dict[str, Any] = {"work": work, "items": count, "bars": BARS.get(work, {})}
    for name in sides:
        spent = usage[name]
        row[name] = {
            "seconds": sum(seconds[name]),
            "a second": count / sum(seconds[name]),
            "tokens asked for": spent.prompt_tokens,
            "tokens evaluated": spent.evaluated_tokens,
            "tokens generated": spent.generated_tokens,
            "prompts": spent.calls,
            "decodes": spent.batches,
            "agreement": equal[name] / max(total, 1),
        }
    for name in sides:
        if name != "ours":
            row[f"ratio {name}"] = statistics.median(
                theirs / mine for theirs, mine in zip(seconds[name], seconds["ours"], strict=True)
            )
            row[f"ratio {name}, all"] = sum(seconds[name]) / sum(seconds["ours"])
    # Of a text that is written, every token but the last is evaluated, too; the share is that of prompts.
    written = max(ours.generated_tokens - ours.calls, 0) if ours.generated_tokens else 0
    row["tokens evaluated / asked for"] = (ours.evaluated_tokens - written) / max(ours.prompt_tokens, 1)
    return row


def outside(method: Trace, model: LlamaCppModel, questions: Sequence[Question]) -> float:
    """Return the share of the time of `trace` that is spent outside llama.cpp and onnxruntime."""
    clock = Clock()
    start = time.perf_counter()
    with clock.over(model._runtime, "decode"), clock.over(OnnxGraph, "run"):
        method.answer([q.question for q in questions], [q.documents for q in questions])
    return 1.0 - clock.inside / (time.perf_counter() - start)


def print_row(row: dict[str, Any], sides: Sequence[str]) -> None:
    bars = row["bars"]
    print(f"{row['work']} ({row['items']} items)")
    for name in sides:
        side = row[name]
        ratio = (
            f"; ratio {row[f'ratio {name}']:.2f} (all {row[f'ratio {name}, all']:.2f}, bar {bars.get(name, '-')})"
            if name != "ours"
            else ""
        )
        print(
            f"  {name}: {side['a second']:.3f} a second, {side['prompts']} prompts, {side['tokens asked for']} tokens asked for, "
            f"{side['tokens evaluated']} evaluated, {side['tokens generated']} generated, {side['decodes']} decodes, "
            f"agreement {side['agreement']:.3f}{ratio}"
        )
    print(
        f"  tokens evaluated / asked for: {row['tokens evaluated / asked for']:.3f} (bar {bars.get('tokens', '-')})",
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--group", type=int, default=5, help="questions in one reading of each side")
    parser.add_argument("--only", nargs="*", default=[], choices=WORKS)
    parser.add_argument("--sides", nargs="*", default=["A", "B"], choices=["A", "B"], help="peers; none: ours alone")
    parser.add_argument("--llm", default="tiny")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parallel", type=int, default=None, help="our max_parallel")
    parser.add_argument("--reuse", type=int, default=None, help="our reuse_tokens")
    parser.add_argument("--flash", action=argparse.BooleanOptionalAction, default=None, help="our flash_attention")
    parser.add_argument("--peers-flash", action="store_true", help="flash attention for the peers, too")
    parser.add_argument("--adaptive-demonstrations", action="store_true", help="for chains: chosen by question")
    parser.add_argument("--ends", action="store_true", help="for chains: let option A end them")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


# The tiny profile leaves the model out of the selection; here it is the selection that is timed.
SELECTING = (
    "unit=sentence", "scoring=pmi", "link_weight=0", "new_documents=false", "candidates=8", "length=2", "beams=2", "chains=2",
    "width=none", "demonstrations=2", "adaptive_demonstrations=false", "reader_demonstrations=4", "reading=free",
)  # fmt: skip


class Works:
    """The works of one run, and the rows that came of them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.questions = list(read_questions(arguments.data, limit=arguments.questions))
        size = arguments.group
        self.groups = [self.questions[at : at + size] for at in range(0, len(self.questions), size)]
        self.path = registry.resolve(arguments.llm, "language-model")
        self.encoder = OnnxEncoder(registry.resolve(arguments.encoder, "encoder"), threads=arguments.threads)
        self.rows: list[dict[str, Any]] = []
        self.share_outside: float | None = None

    def ours(self) -> LlamaCppModel:
        given = {
            "max_parallel": self.arguments.parallel,
            "reuse_tokens": self.arguments.reuse,
            "flash_attention": self.arguments.flash,
        }
        options = {name: value for name, value in given.items() if value is not None}
        return LlamaCppModel(
            self.path, name="ours", style="plain", context=CONTEXT, threads=self.arguments.threads, **options
        )

    def sides(self) -> dict[str, LanguageModel]:
        made: dict[str, LanguageModel] = {"ours": self.ours()}
        for name in self.arguments.sides:
            kind = Alone if name == "A" else HighLevel
            made[name] = kind(
                self.path, name, context=CONTEXT, threads=self.arguments.threads, flash=self.arguments.peers_flash
            )
        return made

    def add(self, work: str, answer: Answer, items: Callable[[Sequence[Question]], int] = len) -> None:
        self.rows.append(compare(work, answer, self.sides(), self.groups, items))
        if not self.arguments.json:
            print_row(self.rows[-1], ["ours", *self.arguments.sides])

    def triples(self, name: str, *, spans: bool) -> None:
        self.add(name, lambda model, some: extract(model, some, spans=spans), lambda some: len(documents_of(some)))

    def chains(self, layouts: Sequence[Layout]) -> None:
        documents = documents_of(self.questions)
        extracted = LanguageModelExtractor(self.ours()).extract(documents)
        triples = {document.id: one.units for document, one in zip(documents, extracted, strict=True)}
        for layout in layouts:
            answer = functools.partial(
                search,
                layout=layout,
                encoder=self.encoder,
                triples=triples,
                adaptive=self.arguments.ends,
                fixed=not self.arguments.adaptive_demonstrations,
            )
            self.add(f"chains, {layout} layout", answer)

    def trace(self) -> None:
        settings = method_settings("trace", UNABLE, SELECTING)
        methods: dict[int, Trace] = {}

        def answer(model: LanguageModel, some: Sequence[Question]) -> list[object]:
            method = methods.setdefault(id(model), Trace(model, self.encoder, settings))
            return [one.text for one in method.answer([q.question for q in some], [q.documents for q in some])]

        self.add("trace", answer)
        model = self.ours()
        self.share_outside = outside(Trace(model, self.encoder, settings), model, self.groups[0])
        if not self.arguments.json:
            print(f"share of trace's time outside llama.cpp and onnxruntime: {self.share_outside:.3f} (bar 0.03)")


def main() -> int:
    arguments = parse()
    works = Works(arguments)
    wanted = arguments.only or WORKS
    if "triples" in wanted:
        works.triples("triples", spans=False)
    if "triples-spans" in wanted:
        works.triples("triples, tails of the text", spans=True)
    layouts: list[Layout] = [layout for layout in ("paper", "shared") if f"chains-{layout}" in wanted]
    if layouts:
        works.chains(layouts)
    if "trace" in wanted:
        works.trace()
    if arguments.json:
        document = {
            "command": sys.argv,
            "machine": machine.facts(arguments.threads),
            "model": works.path.name,
            "rows": works.rows,
            "share outside": works.share_outside,
        }
        print(json.dumps(document, indent=2, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
