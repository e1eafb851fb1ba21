r"""A model of its own as query generator: a GGUF that ``pytrace train query-generator`` made, run by the engine.

It is trained on ``Question: …\nCorrect query: …\n``, the contrastive one with ``Incorrect query 1: …\n`` and so on after it.
In use it is given all up to `QUERY_LABEL` and continues to the end of the line; a space stands between a label and its text.

Source: Li et al., "Chain of Knowledge" (2023), section 4.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from pytrace.errors import InputError, ModelFileError
from pytrace.kg.fact_store import Relation
from pytrace.kg.queries.query_records import Grammar, QueryForm
from pytrace.kg.queries.relations import NearestRelations
from pytrace.kg.queries.sampling import QueryGenerator
from pytrace.models import registry
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.storage.foreign_json import decode_json

QUESTION_LABEL = "Question:"
QUERY_LABEL = "Correct query:"
"""What stands before the query that answers the question."""

METADATA_KEY = "pytrace.query_generator"
"""Where the model's file says, as a JSON object, that it is a query generator, and how it was trained."""

SHA256 = ".sha256"
"""Ends the name of the file beside a model that has its hash, as sha256sum writes it; models of older versions have none."""

TEMPLATE_VERSION = 1
"""Changes whenever the texts do, so that no model is given a prompt that it was not trained on."""


def question_prompt(question: str) -> str:
    """Return what a trained generator is given for a question; its continuation is a space, the query and a line break."""
    return f"{QUESTION_LABEL} {' '.join(question.split())}\n{QUERY_LABEL}"


def wrong_label(number: int) -> str:
    """Return the label of a wrong query, which the contrastive training text has after the correct one."""
    if number < 1:
        raise InputError(f"the wrong query's number is {number}; count from 1")
    return f"Incorrect query {number}:"


# A query of three patterns is about as long; what is longer does not end.
_MOST_TOKENS = 256
# Hardly any query is shorter, so that a question which leaves less room has none.
_LEAST_TOKENS = 16


class _Recipe(msgspec.Struct, frozen=True):
    """What must be known of how a model was trained in order to use it."""

    form: QueryForm
    template: int
    grammar: Grammar = "none"


class TrainedGenerator(QueryGenerator):
    """Lets a model write queries that was trained to do nothing else, all questions in one batch."""

    # Chain of Knowledge, section 4.

    def __init__(
        self,
        model: LanguageModel,
        *,
        name: str | None = None,
        form: QueryForm = "sparql",
        relations: Sequence[Relation] = (),
        encoder: Encoder | None = None,
        allowed_relations: int = 200,
        grammar: Grammar = "none",
        temperature: float = 0.7,
        seed: int = 0,
    ) -> None:
        near = None
        if grammar != "none":
            near = NearestRelations(relations, form=form, most=allowed_relations, encoder=encoder)
        super().__init__(
            model,
            name=name or model.name,
            form=form,
            relations=near,
            grammar=grammar,
            stop=("\n",),
            temperature=temperature,
            seed=seed,
        )
        self._loaded: LlamaCppModel | None = None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        relations: Sequence[Relation] = (),
        encoder: Encoder | None = None,
        allowed_relations: int = 200,
        grammar: Grammar | None = None,
        temperature: float = 0.7,
        seed: int = 0,
        threads: int | None = None,
        deterministic: bool = False,
    ) -> Self:
        """Load a GGUF that ``pytrace train query-generator`` made; the file says which form it writes."""
        path = Path(path)
        _check_hash(path)
        model = LlamaCppModel(path, name=name, style="plain", threads=threads, deterministic=deterministic)
        try:
            recipe = _recipe(model, path)
            generator = cls(
                model,
                form=recipe.form,
                relations=relations,
                encoder=encoder,
                allowed_relations=allowed_relations,
                grammar=grammar or (recipe.grammar if relations else "none"),
                temperature=temperature,
                seed=seed,
            )
        except BaseException:
            model.close()
            raise
        generator._loaded = model
        return generator

    def close(self) -> None:
        """Free the model, if `load` loaded it."""
        if self._loaded is not None:
            self._loaded.close()

    def _request(self, question: str, relations: Sequence[str]) -> tuple[str, int] | str:  # noqa: ARG002
        prompt = question_prompt(question)
        tokens = self.model.count_tokens(prompt)
        room = self.model.context_tokens - tokens - 1  # one more token may begin the sequence
        if room >= _LEAST_TOKENS:
            return prompt, min(room, _MOST_TOKENS)
        return (
            f"the question has {tokens:,} tokens and leaves no room for a query in the {self.model.context_tokens:,} of "
            f"{self.name}; shorten it"
        )


def _check_hash(path: Path) -> None:
    """Refuse a model that has changed since it was trained."""
    known = path.with_name(path.name + SHA256)
    try:
        sha256 = known.read_text(encoding="ascii", errors="replace").split(" ")[0]
    except FileNotFoundError:
        return
    except OSError as error:
        raise ModelFileError(f"{known} cannot be read ({error.strerror}); correct its permissions") from None
    registry.check_content(path, sha256, "train it again")


def _recipe(model: LlamaCppModel, path: Path) -> _Recipe:
    text = model.metadata(METADATA_KEY)
    if text is None:
        raise ModelFileError(
            f"{path}: this model is no query generator; give a GGUF that 'pytrace train query-generator' made"
        )
    try:
        recipe = decode_json(text.encode("utf-8", "replace"), _Recipe)
    except ValueError as error:
        raise ModelFileError(
            f"{path}: what the model says of its training cannot be read ({error}); train it again"
        ) from error
    if recipe.template != TEMPLATE_VERSION:
        raise ModelFileError(
            f"{path}: the model was trained on version {recipe.template} of the prompt, and this is version {TEMPLATE_VERSION}; "
            "train it again"
        )
    return recipe
