"""A prompted language model as query generator: it is shown labelled questions and the store's relations.

Source: Li et al., "Chain of Knowledge" (2023), section 4, whose generators are trained; this one needs no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytrace.errors import InputError
from pytrace.kg.fact_store import Relation
from pytrace.kg.queries.notation import parse_query
from pytrace.kg.queries.query_records import Grammar, QueryForm
from pytrace.kg.queries.relations import NearestRelations
from pytrace.kg.queries.sampling import QueryGenerator
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.prompts.reasoning import QueryDemonstration

INSTRUCTIONS: dict[QueryForm, str] = {
    "triplet": (
        "Turn the question or claim into a query <head; relation; tail> to a knowledge base. One of the three is ?, where the "
        "answer is sought. Take the relation from the list, and copy names from the question."
    ),
    "sparql": (
        "Turn the question or claim into a SPARQL query. Take each relation:/name/ from the list, and copy each entity:/name/ "
        "from the question. What is sought is ?x. Use ?y and ?z for what lies between."
    ),
}
_MOST_TOKENS: dict[QueryForm, int] = {"triplet": 64, "sparql": 192}
# What a chat template adds around an instruction and an input.
_TEMPLATE_TOKENS = 64
_FREEDOM: dict[Grammar, str] = {"words": "", "relations": ", any name", "none": ", free"}
FEW = 5
"""Examples that a model is shown of ours; of the caller's own, all that fit."""
_STOP = ("\n\n", "Question:", "Relations:")


def read_examples(path: Path | None, form: QueryForm | None) -> tuple[QueryForm, tuple[QueryDemonstration, ...]]:
    """Read the labelled queries that a model is shown: those of one form.

    Parameters
    ----------
    path
        A JSONL file, ``{"form": "triplet" or "sparql", "question": …, "relations": […], "query": …}`` a line; ours if None.
    form
        The form that is wanted; if None that of the file's first row, and without a file triplets.

    Raises
    ------
    DataError
        The file cannot be read, a row contradicts itself or its query cannot be read, or none is of that form.
    """
    chosen = form or ("triplet" if path is None else QueryDemonstration.load(path=path)[0].form)
    return chosen, QueryDemonstration.load_with("form", chosen, path=path)


class FewShotGenerator(QueryGenerator):
    """Lets a language model write queries after a few labelled ones, all questions in one batch."""

    # Chain of Knowledge, section 4.1 for triplets and 4.2 for SPARQL.

    def __init__(
        self,
        model: LanguageModel,
        relations: Sequence[Relation],
        *,
        form: QueryForm = "triplet",
        encoder: Encoder | None = None,
        demonstrations: int = FEW,
        shown_relations: int = 40,
        grammar: Grammar = "words",
        temperature: float = 0.7,
        seed: int = 0,
        max_tokens: int | None = None,
        labelled: Sequence[QueryDemonstration] | None = None,
    ) -> None:
        if demonstrations < 0 or (max_tokens is not None and max_tokens < 1):
            raise InputError(
                f"demonstrations are {demonstrations} and max_tokens {max_tokens}; give at least 0 and at least 1 token"
            )
        super().__init__(
            model,
            name=f"few-shot {form}{_FREEDOM[grammar]}",
            form=form,
            relations=NearestRelations(relations, form=form, most=shown_relations, encoder=encoder),
            grammar=grammar,
            stop=_STOP if grammar == "none" else ("\n",),
            temperature=temperature,
            seed=seed,
        )
        rows = QueryDemonstration.load_with("form", form) if labelled is None else tuple(labelled)
        for row in rows:
            parse_query(row.query)
        self._shown = tuple(
            (_input(row.question, row.relations), row.query) for row in rows[max(len(rows) - demonstrations, 0) :]
        )
        self._max_tokens = max_tokens or _MOST_TOKENS[form]

    def _request(self, question: str, relations: Sequence[str]) -> tuple[Prompt, int] | str:
        """Show as many relations as fit; where the question alone does not fit, say so."""
        shown = list(relations)
        while shown:
            prompt = Prompt(INSTRUCTIONS[self.form], self._shown, _input(question, shown))
            if self._fits(msgspec.structs.replace(prompt, demonstrations=()).plain()):
                return prompt, self._max_tokens
            shown = shown[: len(shown) // 2]
        return (
            f"the question has {len(question):,} characters, more than fit the {self.model.context_tokens:,} tokens of "
            f"{self.model.name} with its query; shorten it"
        )

    def _fits(self, text: str) -> bool:
        room = self.model.context_tokens - self._max_tokens - _TEMPLATE_TOKENS
        # A token has at least one byte; counting tokens may cost a request to a server.
        return len(text.encode("utf-8", "replace")) <= room or self.model.count_tokens(text) <= room


def _input(question: str, relations: Sequence[str]) -> str:
    return f"Relations: {'; '.join(relations)}\nQuestion: {' '.join(question.split())}\nQuery:"
