"""Where TRACE loses what it loses: each part in turn is replaced by one that knows the gold.

A rung replaces one more part than the rung above it, from the last decision to the first: when a chain ends, which candidate comes
next, which candidates are offered, and what the reader says. So the difference between two rungs is what the part loses. The rows
below the ladder begin at other places: gold documents, gold sentences, and how often the answer's words stand in the context at all.

    python -m benches.loss_ladder --data ../shared/data/multihop/advhotpot10-dev.jsonl --method trace-doc

``--title-words 3`` replaces every title by the first three words of its text. The misleading paragraphs of that data set have such
titles and the others real ones, so that what rests on titles does better there than it should; this says by how much.

Where triples are units, a second command with ``--set unit=sentence`` shows what their extraction loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.engine import load
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.scores.metrics import exact_match, f1_score, mean_of, support_score
from pytrace.methods.catalog import method_settings
from pytrace.methods.trace.beam_search import SearchSettings, build_chains
from pytrace.methods.trace.ranker import Ranker, TripleIndex
from pytrace.methods.trace.selector import Selector, Step
from pytrace.methods.trace.trace import TraceSettings, make_selector
from pytrace.methods.trace.triple_method import make_extractor
from pytrace.reader.answers import normalise_answer
from pytrace.reader.evidence import all_documents, document_evidence, triple_evidence
from pytrace.reader.readers import make_reader
from pytrace.records import Chain, Document, Evidence, Question
from pytrace.triples.extraction import build_graph
from pytrace.triples.graph import TripleStore

# Far from every score that a selector gives, and far from the overflow of a softmax.
SURE = 1e4


class GoldEnding:
    """Ends a chain when it has a unit of every supporting document, and not before."""

    def __init__(self, selector: Selector, gold: Mapping[str, frozenset[str]]) -> None:
        self._selector = selector
        self._gold = gold

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return the selector's scores with that of ending set."""
        scores = [row.copy() for row in self._selector.select(steps)]
        for step, row in zip(steps, scores, strict=True):
            have = {triple.document_id for triple in step.chain}
            row[0] = SURE if self._gold[step.question] <= have else -np.inf
        return scores


class GoldChoice:
    """Chooses a unit of a supporting document that the chain has none of, if one is offered, by the selector's scores."""

    def __init__(self, selector: Selector, gold: Mapping[str, frozenset[str]]) -> None:
        self._selector = selector
        self._gold = gold

    def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
        """Return the selector's scores, those of the right candidates beyond all others."""
        scores = [row.copy() for row in self._selector.select(steps)]
        for step, row in zip(steps, scores, strict=True):
            wanted = self._gold[step.question] - {triple.document_id for triple in step.chain}
            right = [candidate.unit.document_id in wanted for candidate in step.candidates]
            row[1:][np.array(right, dtype=bool)] += SURE / 2
        return scores


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--limit", type=click.IntRange(min=1))
@click.option("--method", type=click.Choice(["trace", "trace-doc"]), default="trace-doc", show_default=True)
@click.option(
    "--title-words", type=click.IntRange(min=1), help="Give every document the first words of its text as title."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting of the method.")
@click.option("--llm", default="tiny", show_default=True)
@click.option("--encoder", help="[default: that of the profile in --llm, else tiny]")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--threads", type=click.IntRange(min=1))
def main(
    *,
    data: Path,
    limit: int | None,
    method: str,
    title_words: int | None,
    settings: tuple[str, ...],
    llm: str,
    encoder: str | None,
    device: str,
    threads: int | None,
) -> None:
    """Print the ladder of a TRACE method as a table in Markdown."""
    models = load(llm, encoder=encoder, device=device, threads=threads)
    questions = list(read_questions(data, limit=limit))
    if title_words is not None:
        questions = [retitled(one, title_words) for one in questions]
    chosen = method_settings(method, models.abilities, settings)
    gold = {one.question: frozenset(one.supporting_documents) for one in questions}
    extractor = make_extractor(models.model, models.encoder, chosen)
    graph = TripleStore(recipe=extractor.recipe)
    build_graph(graph, extractor, [document for one in questions for document in one.documents])
    selector = make_selector(models.model, models.encoder, chosen)
    click.echo(
        "| | EM | F1 | support R | error rate | answer in context | context | contexts |\n|---|---|---|---|---|---|---|---|"
    )

    def rung(name: str, selector: Selector, *, ranked: bool = True, length: int | None = None) -> None:
        show(name, [search(one, selector, ranked=ranked, length=length) for one in questions])

    def search(one: Question, selector: Selector, *, ranked: bool, length: int | None) -> Evidence:
        documents = [item for item in one.documents if ranked or item.id in gold[one.question]]
        index = TripleIndex([graph.triples(documents)], models.encoder)
        ranker = Ranker(
            models.encoder,
            candidates=chosen.candidates,
            link_weight=chosen.link_weight,
            new_documents=chosen.new_documents,
        )
        searching = SearchSettings(
            length or chosen.length,
            chosen.beams,
            chosen.chains,
            width=chosen.width,
            adaptive=bool(length) or chosen.adaptive,
        )
        (chains,) = build_chains([one.question], index, ranker, selector, searching)
        return evidence_of(chosen, chains, one)

    def show(name: str, evidence: Sequence[Evidence]) -> None:
        readings = []
        reader = make_reader(models.model, chosen)
        for start in range(0, len(questions), 8):
            part = slice(start, start + 8)
            readings += reader.read([one.question for one in questions[part]], evidence[part])
        support = [
            support_score(one.document_ids, own.supporting_documents)
            for one, own in zip(evidence, questions, strict=True)
        ]
        cells = (
            percent(exact_match(found.text, own.answers) for found, own in zip(readings, questions, strict=True)),
            percent(f1_score(found.text, own.answers).f1 for found, own in zip(readings, questions, strict=True)),
            percent(one.recall for one in support),
            percent(one.error_rate for one in support),
            percent(float(holds(one, own)) for one, own in zip(evidence, questions, strict=True)),
            f"{np.mean([one.context_tokens for one in readings]):.0f}",
            f"{np.mean([len(one.context) for one in evidence]):.1f}",
        )
        click.echo(f"| {name} | {' | '.join(cells)} |")

    most = max(len(one.supporting_documents) for one in questions)
    rung("as it is", selector)
    rung("ends when it has all", GoldEnding(selector, gold), length=most + 1)
    rung("and chooses what is right, if offered", GoldEnding(GoldChoice(selector, gold), gold), length=most + 1)
    rung(
        "and is offered gold documents only",
        GoldEnding(GoldChoice(selector, gold), gold),
        length=most + 1,
        ranked=False,
    )
    show("gold documents", [all_documents(kept(one, gold[one.question])) for one in questions])
    show("all documents", [all_documents(one.documents) for one in questions])


def retitled(question: Question, words: int) -> Question:
    """Return a question whose documents are titled by the first words of their texts."""
    documents = tuple(
        msgspec.structs.replace(document, title=" ".join(document.text.split()[:words]))
        for document in question.documents
    )
    return msgspec.structs.replace(question, documents=documents)


def kept(question: Question, wanted: frozenset[str]) -> list[Document]:
    """Return a question's documents of some ids."""
    return [document for document in question.documents if document.id in wanted]


def evidence_of(settings: TraceSettings, chains: Sequence[Chain], question: Question) -> Evidence:
    """Make what the reader sees."""
    if settings.reader == "triple":
        return triple_evidence(chains)
    documents = {document.id: document for document in question.documents}
    return document_evidence(chains, documents, most=settings.reader_documents)


def holds(evidence: Evidence, question: Question) -> bool:
    """Tell whether the words of an answer stand in the context: a reader that copies rightly would have it."""
    context = f" {normalise_answer(' '.join(evidence.context))} "
    return any(f" {normalise_answer(answer)} " in context for answer in question.answers)


def percent(values: Iterable[float | None]) -> str:
    """Return a mean of what is defined as a percentage."""
    mean = mean_of(values).mean
    return "-" if mean is None else f"{100 * mean:.1f}"


if __name__ == "__main__":
    main()
