"""The knowledge base that methods may ask, by its path or address, opened when it is first asked."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.engine.loading import Engine
    from pytrace.kg.endpoint import SparqlEndpoint
    from pytrace.kg.fact_store import FactStore
    from pytrace.kg.knowledge import Knowledge
    from pytrace.kg.local_store import LocalStore
    from pytrace.kg.queries.sampling import QueryGenerator
    from pytrace.methods.catalog import MethodName

FEW_SHOT = "few-shot"
# What 'pytrace train query-generator' calls the model in its directory.
TRAINED = "query-generator.gguf"
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)


@dataclass
class KnowledgeOptions:
    """Which knowledge base methods may ask, and how; store, generator and linker are made when they are first asked for."""

    kb: str | None
    kb_format: str | None
    kb_labels: Path | None
    kb_predicates: Path | None
    kb_cache: Path | None
    kb_timeout: float | None
    user_agent: str | None
    query_generator: str | None
    query_grammar: Literal["words", "relations", "none"] | None
    query_form: Literal["triplet", "sparql"] | None = None
    query_examples: Path | None = None

    def check(self, methods: Sequence[MethodName]) -> None:
        """Refuse options that do not belong together, and methods that lack a knowledge base or have no use for one."""
        from pytrace.methods.catalog import METHODS

        able = [row.name for row in METHODS.values() if "knowledge base" in row.needs]
        asking = [method.name for method in methods if method.name in able]
        if self.kb is None:
            for option in fields(self):
                if getattr(self, option.name) is not None:
                    flag = f"--{option.name.replace('_', '-')}"
                    raise InputError(f"{flag} is of a knowledge base, and there is none; give --kb FILE|URL")
            if asking:
                raise InputError(f"{asking[0]} asks a knowledge base, and there is none; give --kb FILE|URL")
        elif not asking:  # an option that changes nothing would look as if it had been tried
            raise InputError(
                f"{', '.join(dict.fromkeys(method.name for method in methods))} asks no knowledge base; leave --kb out, or use "
                f"{' or '.join(sorted(able))}"
            )
        elif self.query_generator not in (None, FEW_SHOT):
            for flag, given in (("--query-form", self.query_form), ("--query-examples", self.query_examples)):
                if given is not None:
                    raise InputError(
                        f"{flag} is for a model that is shown examples, and {self.query_generator} was trained; leave out either"
                    )
        elif self.query_examples is not None:
            from pytrace.kg.queries.few_shot import read_examples

            read_examples(self.query_examples, self.query_form)  # before models are loaded

    @functools.cached_property
    def store(self) -> FactStore:
        """The knowledge base: a file's triples, or a server's."""
        if self.kb is None:
            raise InputError("there is no knowledge base; give --kb FILE|URL")
        return open_store(
            self.kb,
            format=self.kb_format,
            labels=self.kb_labels,
            predicates=self.kb_predicates,
            cache_directory=self.kb_cache,
            timeout=self.kb_timeout,
            user_agent=self.user_agent,
        )

    def _generator(self, models: Engine) -> QueryGenerator:
        """Return who writes queries: the language model by a few examples, or a model trained for it."""
        if self.query_generator is None or self.query_generator == FEW_SHOT:
            from pytrace.kg.queries.few_shot import FEW, FewShotGenerator, read_examples

            form, examples = read_examples(self.query_examples, self.query_form)
            return FewShotGenerator(
                models.model,
                self.store.relations(),
                encoder=models.encoder,
                grammar=self.query_grammar or "words",
                form=form,
                labelled=examples,
                demonstrations=FEW if self.query_examples is None else len(examples),
            )
        from pytrace.kg.queries.trained import TrainedGenerator

        path = Path(self.query_generator)
        return TrainedGenerator.load(
            path / TRAINED if path.is_dir() else path,  # the directory of a training, or its model
            relations=self.store.relations(),
            encoder=models.encoder,
            grammar=self.query_grammar,
            threads=models.threads,
            deterministic=models.deterministic,
        )

    def opener(self, models: Engine) -> Callable[[], Knowledge] | None:
        """Return what opens all of it when it is first called; None if there is no knowledge base."""
        if self.kb is None:
            return None

        # Methods share it, and those that agree with themselves never open it.
        @functools.cache
        def opened() -> Knowledge:
            from pytrace.kg.knowledge import Knowledge
            from pytrace.kg.linking import EntityLinker

            return Knowledge(self.store, EntityLinker(self.store, models.encoder), self._generator(models))

        return opened

    def settings(self, knowledge: Knowledge) -> dict[str, Any]:
        """Return what answers depend on, so that a run is not gone on with beside another knowledge base or generator."""
        from pytrace.evaluation.run.run_store import file_settings

        return {
            "store": knowledge.store.fingerprint,
            "generator": knowledge.generator.name,
            "generator's model": knowledge.generator.model.fingerprint,
            "grammar": self.query_grammar,
            # By what is in the files, which may be edited under their names.
            "labels": None if self.kb_labels is None else file_settings(self.kb_labels),
            "predicates": None if self.kb_predicates is None else file_settings(self.kb_predicates),
            **({} if self.query_examples is None else {"examples": file_settings(self.query_examples)}),
        }

    def close(self) -> None:
        """Close the knowledge base, if it was opened."""
        # Not `self.store`, which would open it.
        store = self.__dict__.pop("store", None)
        if store is not None:
            store.close()


def open_store(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    predicates: str | os.PathLike[str] | None = None,
    cache_directory: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    user_agent: str | None = None,
) -> LocalStore | SparqlEndpoint:
    """Open a file or directory of triples, or connect to a SPARQL endpoint."""
    from pytrace.kg.endpoint import SparqlEndpoint
    from pytrace.kg.local_store import LocalStore

    address = os.fspath(source)
    if _ADDRESS.match(address):
        if format is not None:
            raise InputError(f"an endpoint has no format {format!r}; leave the format out")
        return SparqlEndpoint(
            address,
            labels=labels,
            predicates=predicates,
            cache_directory=cache_directory,
            timeout=60.0 if timeout is None else timeout,
            user_agent=user_agent,
        )
    for what, given in (("a cache", cache_directory), ("a time-out", timeout), ("a user agent", user_agent)):
        if given is not None:
            raise InputError(f"{address} is a path, and {what} is for endpoints only; leave it out")
    return LocalStore.open(source, format=format, labels=labels, predicates=predicates)
