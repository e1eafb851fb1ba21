"""The options of a knowledge base that methods may ask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from pytrace.engine.knowledge import FEW_SHOT, GRAMMARS, KnowledgeOptions

_F = TypeVar("_F", bound=Callable[..., Any])


def knowledge_options(function: _F) -> _F:
    """Give a command the options of a knowledge base, passed to it as one `KnowledgeOptions` named `knowledge`."""
    # What they open is closed when the command ends.
    from pytrace.triples.graph.exchange import FORMATS

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        knowledge = KnowledgeOptions(**{option.name: kwargs.pop(option.name) for option in fields(KnowledgeOptions)})
        click.get_current_context().call_on_close(knowledge.close)
        return function(*args, knowledge=knowledge, **kwargs)

    file = click.Path(path_type=Path)
    options = (
        click.option(
            "--kb",
            metavar="FILE|URL",
            help="For cok: the knowledge base to ask: TSV, JSONL, N-Triples, Turtle, the directory that 'kg build' or 'kg index' "
            "made, or the address of a SPARQL endpoint.",
        ),
        click.option(
            "--kb-format", type=click.Choice(FORMATS), help="Of the knowledge base, if the suffix does not tell it."
        ),
        click.option("--kb-labels", type=file, metavar="FILE", help="More names of entities: key TAB name a line."),
        click.option(
            "--kb-predicates",
            type=file,
            metavar="FILE",
            help="The relations to use: key TAB name a line; for large endpoints.",
        ),
        click.option("--kb-cache", type=file, metavar="DIR", help="Keep an endpoint's answers there for later runs."),
        click.option(
            "--user-agent",
            metavar="TEXT",
            help="What an endpoint is told of you, such as an address; some ask for one.",
        ),
        click.option(
            "--query-generator",
            metavar=f"{FEW_SHOT}|DIR|FILE.gguf",
            help="Who writes queries: the language model, or one that 'pytrace train' made.  [default: few-shot]",
        ),
        click.option(
            "--query-grammar",
            type=click.Choice(GRAMMARS),
            help="What queries are held to: the knowledge base's relations and the question's words, the relations alone, or "
            "nothing.  [default: words for few-shot, for a trained model what did best after its training]",
        ),
    )
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
