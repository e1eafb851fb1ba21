"""``pytrace search``: evidence for a question from an index, without a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytrace.cli import common
from pytrace.cli.commands import Command, Result, argument, option
from pytrace.cli.shared_options import ENCODER
from pytrace.engine.loading import Engine
from pytrace.errors import InputError
from pytrace.records import Document, Evidence, TextUnit

if TYPE_CHECKING:
    from pytrace.retrieval.hops import PassageChain


class Search(Command):
    """Find the passages that answer QUESTION, one alone or several that lead from one to the next, without a language model."""

    question: str = argument()
    index: Path = option("An index that 'pytrace index build' made.", metavar="DIR")
    chains: int = option("Chains of passages to show, at most.", ge=1, default=3)
    passages: int = option("Passages to rank, at most.", ge=1, default=10)
    where: tuple[str, ...] = option(
        "Only documents that say so of themselves, such as author=Venn or date>=2020. May be repeated.",
        metavar="FILTER",
    )
    models: Engine = ENCODER

    def check(self) -> None:
        if not self.question.strip():
            raise InputError("the question is empty; ask something")

    def run(self) -> Result:
        from pytrace.engine.corpus import Corpus
        from pytrace.retrieval.hops import chain_evidence

        corpus = Corpus.open(self.index)
        (ranking,) = corpus.rank([self.question], self.models, max(self.passages, self.chains), where=self.where)
        found = corpus.index.passages(ranking.rows[: self.passages])
        scores = ranking.scores[: self.passages]
        chains = [(chain, corpus.index.passages(chain.rows)) for chain in ranking.chains[: self.chains]]
        evidence = [chain_evidence(self.question, chain, passages) for chain, passages in chains]
        document = {
            "question": self.question,
            "read_as": ranking.question,
            "hops": ranking.hops,
            "chains": [
                {"probability": chain.probability, "units": _units(each, chain, passages)}
                for (chain, passages), each in zip(chains, evidence, strict=True)
            ],
            "passages": [
                {
                    "score": score,
                    "id": passage.id,
                    "title": passage.title,
                    "where": passage.citation(),
                    "text": passage.text,
                }
                for passage, score in zip(found, scores, strict=True)
            ],
        }

        def show() -> None:
            if ranking.question != self.question:
                common.print_styled(common.printable(f"Read as: {ranking.question}"), "dim")
            for number, ((chain, passages), each) in enumerate(zip(chains, evidence, strict=True), 1):
                _print_chain(number, each, chain, passages)
            common.print_styled("\nPassages")
            for passage, score in zip(found, scores, strict=True):
                common.print_text(common.printable(f"  {score:.3f}  {passage.title}"))
                common.print_styled(common.printable(f"         {passage.citation()}"), "dim")

        return Result(document, show)


def _units(evidence: Evidence, chain: PassageChain, passages: Sequence[Document]) -> list[dict[str, Any]]:
    """Describe the passages of a chain; `from` is the unit that led to each, from 1, 0 for the question."""
    return [
        {
            "id": passage.id,
            "title": passage.title,
            "sentence": unit.body,
            "where": passage.citation(unit.sentence),
            "from": step.place + 1,
            "name": step.name,
        }
        for unit, step, passage in zip(evidence.chains[0].units, chain.steps, passages, strict=True)
        if isinstance(unit, TextUnit)
    ]


def _print_chain(number: int, evidence: Evidence, chain: PassageChain, passages: Sequence[Document]) -> None:
    common.print_styled(f"{chr(10) if number > 1 else ''}Chain {number} (probability {chain.probability:.3f})")
    for place, unit in enumerate(_units(evidence, chain, passages), 1):
        # What leads on stands just before, unless two branches of a question are compared.
        how = [f"from {unit['from']}"] if 0 < unit["from"] < place - 1 else []
        how += [f"by the name {unit['name']!r}"] if unit["name"] else []
        led = f" ({' '.join(how)})" if how else ""
        common.print_text(common.printable(f'  {place}. {unit["title"]}{led}: "{unit["sentence"]}"'))
        common.print_styled(common.printable(f"     from {unit['where']}"), "dim")
