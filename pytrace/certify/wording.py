"""Paths in words: each triple as a sentence of one of several forms, and a path as a response with numbered steps.

What is written so is known to be right or wrong, and that is what certification is measured with.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from pytrace.check_records import Path
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase, entity_name, normal_form, relation_name
from pytrace.records import Triple

TEMPLATES = (
    "The {relation} of {head} is {tail}.",
    "{head}'s {relation} is {tail}.",
    "{tail} is the {relation} of {head}.",
    "{head} has the {relation} {tail}.",
    "For {head}, the {relation} is {tail}.",
    "{tail} is what {head} has as its {relation}.",
    "As its {relation}, {head} has {tail}.",
    "What is called the {relation} of {head} is {tail}.",
)
"""Sentences for a triple of any relation that is worded as a noun: head first or tail first, of different forms."""

_PLACE = re.compile(r"\{(head|relation|tail)\}")


def word_step(triple: Triple, template: str = TEMPLATES[0]) -> str:
    """Put a triple into a sentence."""
    missing = {"head", "relation", "tail"} - set(_PLACE.findall(template))
    if missing:
        raise InputError(
            f"the template {template!r} has no {{{min(missing)}}}; give it {{head}}, {{relation}} and {{tail}}"
        )
    # In one pass, so that a name with braces of its own stays as it is.
    return " ".join(_PLACE.sub(lambda found: str(getattr(triple, found[1])), template).split())


def word_steps(path: Sequence[Triple], *, seed: int) -> tuple[str, ...]:
    """Put each triple of a path into a sentence of a form drawn for it."""
    drawn = random.Random(seed)
    return tuple(word_step(triple, drawn.choice(TEMPLATES)) for triple in path)


def word_response(steps: Sequence[str], answer: str) -> str:
    """Write steps and an answer in the form that models are asked for: numbered lines and a conclusion."""
    # The form of the paper's appendix F.2.
    lines = [f"{number}. {' '.join(step.split())}" for number, step in enumerate(steps, 1)]
    return "\n".join([*lines, f"So the answer is ({' '.join(answer.split())})."])


def named_path(base: KnowledgeBase, path: Path) -> tuple[Triple, ...]:
    """Give the triples of a path the names that a knowledge base has for their keys."""
    return tuple(
        Triple(name_of(base, triple.head), relation_name_of(base, triple.relation), name_of(base, triple.tail))
        for triple in path
    )


def name_of(base: KnowledgeBase, key: str) -> str:
    """Return the name of an entity by its key, also of one that the base does not know."""
    number = base.entity(key)
    return entity_name(key) if number is None else base.columns.entity_names[number]


def relation_name_of(base: KnowledgeBase, key: str) -> str:
    """Return the name of a relation by its key, also of one that the base does not know."""
    number = base.relation(key)
    return relation_name(key) if number is None else base.columns.relation_names[number]


def entities_named(base: KnowledgeBase, name: str) -> tuple[int, ...]:
    """Return the numbers of the entities whose names have the normal form of a name."""
    # The index of mentions knows names by their normal forms: the mention that is all of the name is an entity's.
    length = len(normal_form(name))
    mentions = base.columns.mentions.find([name])[0]
    return next((mention.entities for mention in mentions if mention.end - mention.start == length), ())
