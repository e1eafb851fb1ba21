"""What a search may change: for each method the settings that matter most, with values worth trying.

The order is the search's: what decides on the evidence comes before what depends on it, and how the answer is read comes
last. The values are those that the papers ablate or tune, and those that small models need.
"""

from __future__ import annotations

from pytrace.errors import InputError
from pytrace.methods.base import READER_CHOICE, Choice, Option, choice
from pytrace.methods.catalog import MethodName, method_row, method_settings

__all__ = ["Choice", "Option", "default_space", "parse_choice"]


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
    if space := method_row(method).space:
        return space
    fields = method_settings(MethodName(method), llm).__struct_fields__
    choices = (choice("top", 1, 2, 3, 5), choice("sentences", 1, 2, 3, 4, 5), READER_CHOICE)
    # Retrieval baselines have no space of their own, and differ in which of these they know.
    usable = tuple(choice for choice in choices if choice.name in fields)
    if not usable:
        raise InputError(f"{method} has no space of its own; name what to try: --try NAME=VALUE,VALUE")
    return usable


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
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    options: list[Option] = []
    for value in values.split(","):
        parts = [part.strip() for part in value.split("+")]
        # The first part may leave the name out, since it stands before the list.
        if "=" not in parts[0]:
            parts[0] = f"{name}={parts[0]}"
        options.append(tuple(parts))
    if not equals or not name or not values.strip():
        raise InputError(f"{text!r} does not say what to try; write NAME=VALUE,VALUE")
    for option in options:
        method_settings(MethodName(method.name), llm, option)
    return Choice(name, tuple(dict.fromkeys(options)))
