"""How questions about a knowledge graph may be worded: templates in words that fit any graph.

A template is a text with fields. What is asked for is told by a phrase, ``{of}`` ("capital of Ghana") or ``{possessive}``
("Ghana's capital"), or by the names themselves. ``{wh}`` is the question word that goes with a relation's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Literal

import msgspec

from pytrace.errors import InputError

Shape = Literal["tail", "head", "relation", "path", "count", "ask"]
"""What is asked for: one of a triple's three parts, the end of a path of two steps or more, how many tails, yes or no."""

WORDINGS: Mapping[Shape, tuple[str, ...]] = msgspec.json.decode(
    (resources.files(__package__) / "wordings.json").read_bytes(), type=dict[Shape, tuple[str, ...]]
)
"""At least twelve wordings of each shape."""

_FIELDS: Mapping[Shape, frozenset[str]] = {
    "tail": frozenset({"wh", "of", "possessive", "entity", "relation"}),
    "head": frozenset({"entity", "relation"}),
    "relation": frozenset({"entity", "other"}),
    "path": frozenset({"wh", "of", "possessive", "mixed"}),
    "count": frozenset({"of", "possessive", "entity", "relation"}),
    "ask": frozenset({"of", "possessive", "entity", "relation", "other"}),
}
# Each of these sets tells all that a shape's query says.
_NEEDED: Mapping[Shape, tuple[frozenset[str], ...]] = {
    "tail": (frozenset({"of"}), frozenset({"possessive"}), frozenset({"entity", "relation"})),
    "head": (frozenset({"entity", "relation"}),),
    "relation": (frozenset({"entity", "other"}),),
    "path": (frozenset({"of"}), frozenset({"possessive"}), frozenset({"mixed"})),
    "count": (frozenset({"of"}), frozenset({"possessive"}), frozenset({"entity", "relation"})),
    "ask": (
        frozenset({"of", "other"}),
        frozenset({"possessive", "other"}),
        frozenset({"entity", "relation", "other"}),
    ),
}
_FIELD = re.compile(r"\{(\w*)\}")
# The last word of a relation's name tells what it leads to.
_ENDS = {
    "where": "address area birthplace city country county headquarters home location place region state town",
    "when": "birthday date day month time year",
    "who": (
        "actor artist author brother builder chairman child children composer creator daughter designer director editor father "
        "founder husband king leader mayor member mother owner parent parents partner player president producer queen ruler "
        "sister son spouse teacher wife writer"
    ),
}
_QUESTION_WORDS = {name: word for word, names in _ENDS.items() for name in names.split()}


def check_wordings(templates: Mapping[str, Sequence[str]]) -> dict[Shape, tuple[str, ...]]:
    """Put given templates in the place of ours."""
    wordings: dict[Shape, tuple[str, ...]] = {shape: tuple(given) for shape, given in WORDINGS.items()}
    for shape in templates:
        if shape not in wordings:
            raise InputError(f"the shape {shape!r} is unknown; give templates for {', '.join(wordings)}")
    return {
        shape: _checked(shape, templates[shape]) if shape in templates else ours for shape, ours in wordings.items()
    }


def _checked(shape: Shape, templates: Sequence[str]) -> tuple[str, ...]:
    if not templates or isinstance(templates, str):
        raise InputError(f"the shape {shape} has no list of templates; give at least 1, or leave the shape out")
    for template in templates:
        fields = set(_FIELD.findall(template))
        unknown = sorted(fields - _FIELDS[shape])
        if unknown or not any(needed <= fields for needed in _NEEDED[shape]):
            told = " or ".join(" with ".join(f"{{{name}}}" for name in sorted(needed)) for needed in _NEEDED[shape])
            wrong = f"has the unknown field {{{unknown[0]}}}" if unknown else "does not tell what is asked for"
            raise InputError(f"the template {template[:80]!a} of the shape {shape} {wrong}; use {told}")
    return tuple(templates)


def word_question(template: str, *, entity: str, relations: Sequence[str], other: str = "") -> str:
    """Fill in a template."""
    fields = {
        "entity": entity,
        "other": other,
        "relation": " ".join(relations),
        "of": " of the ".join([*reversed(relations)]) + f" of {entity}",
        "possessive": "'s ".join([entity, *relations]),
        "mixed": " of ".join([*reversed(relations[1:]), "'s ".join([entity, *relations[:1]])]),
        "wh": question_word(relations[-1]) if relations else "what",
    }
    return _FIELD.sub(lambda match: fields[match[1]], template)


def question_word(relation: str) -> str:
    """Return the word that asks for what a relation leads to, by nothing but the relation's name."""
    words = relation.lower().split()
    # "place of birth" is told by its first word, "birth place" by its last.
    head = (words[words.index("of") - 1] if "of" in words[1:] else words[-1]) if words else ""
    return _QUESTION_WORDS.get(head, "what")
