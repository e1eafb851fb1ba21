"""Queries run on a knowledge base to be scored."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.knowledge_base.linking import EntityLinker
from pytrace.knowledge_base.triple_store import QueryLimits, TripleStore
from pytrace.queries import GeneratedQuery
from pytrace.queries.running import Asked, QueryRunner
from pytrace.records import KnowledgeQuery


class StoreRunner:
    """Runs candidates as they would be for an answer: names become entities, relations those that there are.

    Parameters
    ----------
    store
        What is asked.
    linker
        Who finds the entities that queries mention.
    limits
        What one query may use.
    """

    def __init__(self, store: TripleStore, linker: EntityLinker, *, limits: QueryLimits | None = None) -> None:
        self._runner = QueryRunner(store, linker, limits=limits or QueryLimits())

    def run_candidates(
        self, questions: Sequence[str], candidates: Sequence[Sequence[GeneratedQuery]]
    ) -> list[KnowledgeQuery]:
        """Run the first candidate of each question that can be run.

        Parameters
        ----------
        questions
            What was asked; linking may look at it.
        candidates
            As many lists, the likeliest query first.

        Returns
        -------
        list of KnowledgeQuery
            One a question, in their order; a refused query says why.
        """
        return self._runner.run(
            [Asked(-1, question, tuple(given)) for question, given in zip(questions, candidates, strict=True)]
        )
