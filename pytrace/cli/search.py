"""``pytrace search``: evidence for a question from an index, without a language model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytrace.cli import common
from pytrace.cli.commands import Command, Result, argument, option
from pytrace.cli.shared_options import ENCODER
from pytrace.engine.loading import Engine
from pytrace.errors import InputError
from pytrace.records import Document, Evidence, TextUnit


class Search(Command):
    """Find the passages that answer QUESTION, one alone or two that lead from one to the other, without a language model."""

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
            "hops": ranking.hops,
            "chains": [
                {"probability": chain.probability, "name": chain.name, "units": _units(each, passages)}
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
            for number, ((chain, passages), each) in enumerate(zip(chains, evidence, strict=True), 1):
                _print_chain(number, each, passages, chain.name)
            common.print_styled("\nPassages")
            for passage, score in zip(found, scores, strict=True):
                common.print_text(common.printable(f"  {score:.3f}  {passage.title}"))
                common.print_styled(common.printable(f"         {passage.citation()}"), "dim")

        return Result(document, show)


def _units(evidence: Evidence, passages: Sequence[Document]) -> list[dict[str, Any]]:
    return [
        {"id": passage.id, "title": passage.title, "sentence": unit.body, "where": passage.citation(unit.sentence)}
        for unit, passage in zip(evidence.chains[0].units, passages, strict=True)
        if isinstance(unit, TextUnit)
    ]


def _print_chain(number: int, evidence: Evidence, passages: Sequence[Document], name: str) -> None:
    (chain,) = evidence.chains
    common.print_styled(f"{chr(10) if number > 1 else ''}Chain {number} (probability {math.exp(chain.score):.3f})")
    for place, (unit, passage) in enumerate(zip(_units(evidence, passages), passages, strict=True), 1):
        led = f" (by the name {name!r})" if place == 2 and name else ""
        common.print_text(common.printable(f'  {place}. {passage.title}{led}: "{unit["sentence"]}"'))
        common.print_styled(common.printable(f"     from {unit['where']}"), "dim")
