"""Every method by its name, with the settings that it has by default and those that a user changes.

A method is named as ``NAME`` or ``NAME:setting=value,setting=value``, so that one command can compare a method with itself
(``ks-llm:sentences=1 ks-llm:sentences=4``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

import pytrace.methods
from pytrace.errors import InputError
from pytrace.kg.knowledge import Knowledge
from pytrace.methods.abilities import CAPABLE, ModelAbilities
from pytrace.methods.base import METHODS, TAKEN, Method, MethodRow, Parts, changed, setting_name
from pytrace.methods.systems import system_row
from pytrace.models.edge.edge_model import EdgeModel
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.readers import SMALL_MODEL_READER, ReaderSettings
from pytrace.records import Document
from pytrace.retrieval import SentenceIndex
from pytrace.retrieval.searching import HopSearcher, Search
from pytrace.triples.graph import TripleStore

__all__ = [
    "METHODS",
    "Method",
    "MethodName",
    "add_system",
    "check_overrides",
    "default_settings",
    "make_method",
    "method_row",
    "method_settings",
    "parse_method",
    "substitutions",
]

for _module in pkgutil.walk_packages(pytrace.methods.__path__, "pytrace.methods."):
    importlib.import_module(_module.name)


# The order of lists and help texts: the papers' methods, then what they are compared with; not the order of imports.
_ORDER = ("hops", "trace", "ks_llm", "scope_coe", "cok", "cot", "baselines")


def _place(row: MethodRow) -> int:
    room = row.method.__module__.removeprefix("pytrace.methods.").partition(".")[0]
    return _ORDER.index(room) if room in _ORDER else len(_ORDER)


for _name in sorted(METHODS, key=lambda name: _place(METHODS[name])):
    METHODS[_name] = METHODS.pop(_name)


def _unregistered(method: Any) -> list[str]:
    """Return the names of a class's subclasses in this room that can be made and have no row."""
    rows = {row.method for row in METHODS.values()}
    names = []
    for subclass in method.__subclasses__():
        if subclass.__module__.startswith("pytrace.methods."):
            if "answer" in dir(subclass) and not subclass.__abstractmethods__ and subclass not in rows:
                names.append(subclass.__name__)
            names += _unregistered(subclass)
    return names


_WITHOUT_ROW = {"Thoughtful", "System"}  # abstract; has a row for each system
if _forgotten := set(_unregistered(Method)) - _WITHOUT_ROW:
    raise InputError(f"{', '.join(sorted(_forgotten))} has no row; end its module with register(MethodRow(...))")

# Systems that were added, by name: never from a request or a file, since adding one imports it.
_SYSTEMS: dict[str, MethodRow] = {}


class MethodName(msgspec.Struct, frozen=True):
    """A method as a user names it: its name, and settings as text."""

    name: str
    overrides: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The method as it is named in reports."""
        return f"{self.name}:{','.join(self.overrides)}" if self.overrides else self.name


def method_row(name: str) -> MethodRow:
    """Return a method's row, or that of a system that was added."""
    if name in _SYSTEMS:
        return _SYSTEMS[name]
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name]


def parse_method(text: str) -> MethodName:
    """Read ``NAME`` or ``NAME:setting=value,setting=value``."""
    name, colon, settings = text.strip().partition(":")
    method_row(name)
    overrides = tuple(part.strip() for part in settings.split(",") if part.strip())
    if colon and (not overrides or not all("=" in override for override in overrides)):
        raise InputError(f"{text!r} does not name settings behind the colon; write {name}:setting=value,setting=value")
    return MethodName(name, overrides)


def add_system(text: str) -> MethodName:
    """Import a system, ``MODULE:CALLABLE`` or ``MODULE:CALLABLE:setting=value,…``, and know it by ``MODULE.CALLABLE`` from now on.

    Only what runs the user's own command may call this: it imports and calls what it is told.
    """
    module, _, rest = text.strip().partition(":")
    attribute, colon, settings = rest.partition(":")
    overrides = tuple(part.strip() for part in settings.split(",") if part.strip())
    if not (module and attribute.isidentifier()) or (colon and not all("=" in part for part in overrides or ("",))):
        raise InputError(f"the system {text!r} is not MODULE:CALLABLE, with settings as in my.module:search:top=3")
    row = system_row(module, attribute)
    _SYSTEMS[row.name] = row
    return MethodName(row.name, overrides)


def default_settings(method: str, abilities: ModelAbilities) -> Any:
    """Return the settings that a method has with a language model of some abilities if nobody changes them."""
    row = method_row(method)
    replaced = [change for item in row.replacements if not abilities.can(item.ability) for change in item.settings]
    if isinstance(row.settings, ReaderSettings) and not abilities.can("reads"):
        replaced += SMALL_MODEL_READER
    return changed(row.settings, replaced, what=method)


def method_settings(method: str | MethodName, abilities: ModelAbilities, overrides: Iterable[str] = ()) -> Any:
    """Return the settings of a method for a language model of some abilities, with `name=value` overrides."""
    named = parse_method(method) if isinstance(method, str) else method
    return changed(default_settings(named.name, abilities), [*overrides, *named.overrides], what=named.name)


def substitutions(
    method: str | MethodName, abilities: ModelAbilities, overrides: Iterable[str] = ()
) -> tuple[str, ...]:
    """Say which parts of a method's paper are replaced because its language model lacks an ability.

    Parameters
    ----------
    method, abilities, overrides
        As for `method_settings`.

    Returns
    -------
    tuple of str
        A phrase per part: what is done instead of what; none where the paper's settings hold.

    Examples
    --------
    >>> from pytrace.methods.abilities import Abilities
    >>> substitutions("trace", Abilities(triples=False))
    ('units are sentences instead of written triples',)
    """
    named = parse_method(method) if isinstance(method, str) else method
    row = method_row(named.name)
    settings = method_settings(named, abilities, overrides)
    notes = [
        item.note
        for item in row.replacements
        if item.note and not abilities.can(item.ability) and settings == changed(settings, item.settings[:1], what="")
    ]
    return tuple(dict.fromkeys(notes))


def check_overrides(methods: Sequence[MethodName], overrides: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Give every method those settings that it has, and refuse what none of them has."""
    by_method: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()
    known: set[str] = set()
    for method in methods:
        fields = method_row(method.name).settings.__struct_fields__
        known |= set(fields)
        mine = tuple(override for override in overrides if setting_name(override) in fields)
        by_method[method.name] = mine
        used |= set(mine)
        method_settings(method, CAPABLE, mine)
    for override in overrides:
        if override not in used:
            raise InputError(
                f"the setting {override!r} is not name=value with a name among those of "
                f"{', '.join(dict.fromkeys(method.name for method in methods))}: {', '.join(sorted(known))}"
            )
    return by_method


def make_method(
    method: str | MethodName,
    model: LanguageModel,
    encoder: Callable[[], Encoder],
    abilities: ModelAbilities = CAPABLE,
    overrides: Iterable[str] = (),
    *,
    reader: LanguageModel | None = None,
    edge: Callable[[], EdgeModel] | None = None,
    graph: TripleStore | None = None,
    extracted: Callable[[Any], object] | None = None,
    index: SentenceIndex | None = None,
    knowledge: Callable[[], Knowledge] | None = None,
    cross_encoder: Callable[[], CrossEncoder] | None = None,
    search: Search | None = None,
    corpus: Iterable[Document] | None = None,
    hops: HopSearcher | None = None,
) -> Method:
    """Make a method by its name.

    Parameters
    ----------
    method, abilities, overrides
        As for `method_settings`.
    model
        The language model.
    encoder
        Gives the encoder; called only for a method that needs one.
    reader
        The language model that reads the answer, if another one.
    edge
        Opens the small model, which helps to take answers out of the evidence; None: rules do that alone.
    graph, extracted, index, knowledge, cross_encoder, search, corpus, hops
        What some methods take or need: see `pytrace.methods.base.Parts`.

    Returns
    -------
    Method
        Its answers have the method's label as their `method`.

    Raises
    ------
    InputError
        If there is no such method or setting, the method has no use for the index, was told another unit than the graph's, or
        needs a knowledge base or a cross-encoder and has none.
    """
    named = parse_method(method) if isinstance(method, str) else method
    parts = Parts(model, encoder, graph, extracted, index, knowledge, cross_encoder, search, corpus, hops)
    overrides = tuple(overrides)
    row = method_row(named.name)
    settings = method_settings(named, abilities, overrides)
    chosen = {setting_name(override) for override in (*overrides, *named.overrides)}
    if parts.index is not None:
        if "sentence index" not in row.takes:
            able = [other.name for other in METHODS.values() if "sentence index" in other.takes]
            raise InputError(
                f"{named.name} has no use for an index of sentences; leave it out, or use one of {', '.join(able)}"
            )
        if "titles" not in chosen:
            # Settings for small models may put titles before sentences; an index has them as they are.
            settings = msgspec.structs.replace(settings, titles=False)
    # A graph's own units are taken, so that other units that were asked for would be passed over in silence.
    graph_used = parts.graph if "graph" in row.takes and "unit" in chosen else None
    if graph_used is not None and settings.unit in {"sentence", "document"} - {graph_used.recipe.extractor}:
        raise InputError(
            f"{named.label} was told unit={settings.unit}, but with --kg the units are the graph's; leave out the setting "
            "or --kg"
        )
    if row.make is not None:
        instance = row.make(parts, settings, named.label)
    else:
        # Which arguments a class takes its row's test says, not its type.
        make: Any = row.method
        taken = {part: getattr(parts, part) for extra in row.takes for part in TAKEN[extra]}
        instance = make(model, encoder(), settings, name=named.label, **taken)
    if reader is not None:
        instance.read_with(reader)
    if edge is not None:
        instance.extract_with(edge)
    return instance
