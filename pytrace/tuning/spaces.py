"""What a search may change: for each method the settings that matter most, with values worth trying.

The order is the search's: what decides on the evidence comes before what depends on it, and how the answer is read comes
last. The values are those that the papers ablate or tune, and those that small models need.
"""

from __future__ import annotations

import msgspec

from pytrace.errors import InputError
from pytrace.methods.catalog import METHODS, MethodName, method_settings

Option = tuple[str, ...]
"""Settings that change together, as text: ``("unit=triple", "extraction=phrases")``."""


class Choice(msgspec.Struct, frozen=True):
    """One decision of a search: its name, and what may be decided, the first of equals first."""

    name: str
    options: tuple[Option, ...]


def _choice(name: str, *values: object) -> Choice:
    return Choice(name, tuple((f"{name}={value}",) for value in values))


_READER = _choice("reader_demonstrations", 0, 1, 2, 3, 4)
_TRACE = (
    # A selector that the ranker has no part in is worth little where the model is small; letters are the paper's.
    Choice(
        "scoring",
        (
            ("scoring=ranker", "ranker_weight=0"),
            ("scoring=pmi", "ranker_weight=0"),
            ("scoring=pmi", "ranker_weight=1"),
            ("scoring=likelihood", "ranker_weight=1"),
            ("scoring=letters", "ranker_weight=0", "layout=paper"),
            ("scoring=letters", "ranker_weight=0", "layout=shared"),
        ),
    ),
    Choice(
        "unit",
        (
            ("unit=sentence",),
            ("unit=document",),
            ("unit=triple", "extraction=phrases"),
            ("unit=triple", "extraction=written"),
        ),
    ),
    _choice("link_weight", 0, 0.25, 0.5, 1),
    _choice("new_documents", "true", "false"),
    _choice("width", "none", 4, 8),
    _choice("chains", 1, 2, 3, 5),
    _choice("length", 1, 2, 3, 4),
    _choice("beams", 2, 4, 8),
    _choice("candidates", 4, 8, 16),
    _choice("adaptive", "true", "false"),
    _choice("demonstrations", 0, 1, 2, 3),
    _choice("adaptive_demonstrations", "true", "false"),
)
_SPACES: dict[str, tuple[Choice, ...]] = {
    "trace": (*_TRACE, _READER),
    "trace-doc": (*_TRACE, _choice("reader_documents", 1, 2, 3, "none"), _READER),
    "ks-llm": (
        _choice("titles", "true", "false"),
        _choice("sentences", 1, 2, 3, 4, 5),
        _choice("triple_demonstrations", 0, 1, 3),
        _choice("triples", 1, 3, 5),
        _READER,
    ),
    "scope-coe": (
        _choice("judge", "text", "model", "fused"),
        _choice("snippet", "document", "sentence"),
        _choice("retriever", "dense", "bm25", "rrf"),
        _choice("pool", 2, 3, 4, 5, 10),
        _choice("cover", "greedy", "exact"),
        _choice("threshold", 0.3, 0.5, 0.7),
        _choice("feature_demonstrations", 1, 3, 5),
        _choice("top", 1, 2, 3),
        _READER,
    ),
}


def default_space(method: str, llm: str) -> tuple[Choice, ...]:
    """Return what the search for a method's settings tries if nobody says.

    Parameters
    ----------
    method
        The method's name.
    llm
        The language model as the user named it.

    Returns
    -------
    tuple of Choice
        For a method without a space of its own, the numbers of shown answers and of documents, where it has them.

    Raises
    ------
    InputError
        There is no such method, or nothing about it can be chosen.

    Examples
    --------
    >>> [choice.name for choice in default_space("dense", "tiny")]
    ['top', 'reader_demonstrations']
    """
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    if method in _SPACES:
        return _SPACES[method]
    fields = method_settings(MethodName(method), llm).__struct_fields__
    choices = (_choice("top", 1, 2, 3, 5), _choice("sentences", 1, 2, 3, 4, 5), _READER)
    found = tuple(choice for choice in choices if choice.name in fields)
    if not found:
        raise InputError(f"{method} has no space of its own; name what to try: --try NAME=VALUE,VALUE")
    return found


def parse_choice(text: str, method: MethodName, llm: str) -> Choice:
    """Read ``NAME=VALUE,VALUE,…``, or ``NAME=VALUE+NAME=VALUE,…`` where settings must change together.

    Raises
    ------
    InputError
        It is no such list, or the method has no such setting, or a value cannot be one.

    Examples
    --------
    >>> parse_choice("chains=1,2", MethodName("trace"), "tiny")
    Choice(name='chains', options=(('chains=1',), ('chains=2',)))
    >>> parse_choice("unit=sentence,unit=triple+extraction=phrases", MethodName("trace"), "tiny").options[1]
    ('unit=triple', 'extraction=phrases')
    """
    name, equals, rest = text.partition("=")
    name = name.strip().replace("-", "_")
    options: list[Option] = []
    for value in rest.split(","):
        parts = [part.strip() for part in value.split("+")]
        if "=" not in parts[0]:
            parts[0] = f"{name}={parts[0]}"
        options.append(tuple(parts))
    if not equals or not name or not rest.strip():
        raise InputError(f"{text!r} does not say what to try; write NAME=VALUE,VALUE")
    for option in options:
        method_settings(MethodName(method.name), llm, option)
    return Choice(name, tuple(dict.fromkeys(options)))
