"""``pytrace search``: passages that answer a question, without a language model."""

from __future__ import annotations

from pathlib import Path

from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, option
from pytrace.cli.result_text import print_search
from pytrace.cli.shared_options import ENCODER
from pytrace.engine.loading import Engine
from pytrace.errors import InputError


class Search(Command):
    """Find the passages that answer QUESTION, alone or linked in chains, without a language model."""

    question: str = argument()
    index: Path = option("An index that 'pytrace index build' made.", metavar="DIR")
    chains: int = option("Maximum number of chains of passages in --json.", ge=1, default=3)
    passages: int = option("Maximum number of passages.", ge=1, default=10)
    where: tuple[str, ...] = option(
        "Search only documents whose metadata matches, such as author=Venn or date>=2020. May be repeated.",
        metavar="FILTER",
    )
    models: Engine = ENCODER

    def check(self) -> None:
        if not self.question.strip():
            raise InputError("the question is empty; ask something")

    def run(self) -> Output:
        from pytrace.engine.corpus import Corpus

        with common.spinner("searching"):
            corpus = Corpus.open(self.index)
            result = self.models.search(
                self.question, corpus, chains=self.chains, passages=self.passages, where=self.where
            )
        return Output(result, lambda: print_search(result))
