"""What the language model at hand can do: known beforehand by its file's hash, remembered, or measured once (`self_test`)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import resources
from typing import Literal

import msgspec

from pytrace.engine.encoders import is_address
from pytrace.engine.self_test import (
    CHOICES_SECONDS,
    TRIPLES_SECONDS,
    VERSION,
    AbilityVerdict,
    measure_choices,
    measure_triples,
)
from pytrace.errors import ModelFileError
from pytrace.methods.abilities import LARGE, Abilities, Ability
from pytrace.models import registry
from pytrace.models.language_model import LanguageModel
from pytrace.models.llama.gguf_header import count_parameters, read_header

FILE = "abilities.json"
"""Where verdicts are remembered, in `PYTRACE_HOME`."""
MEASURED: dict[Ability, str] = {
    "letters": "chooses by letters",
    "ends": "ends chains",
    "triples": "writes triples",
}
"""The abilities that take a test, in words."""

_Verdicts = dict[str, AbilityVerdict]


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model of the catalog as it was found: its parameters, and its verdicts where it could be tried."""

    name: str
    parameters: int
    verdicts: _Verdicts = {}


@functools.cache
def known_models() -> dict[str, KnownModel]:
    """Return the models whose abilities come with the package, by the SHA-256 of their files."""
    data = (resources.files(__package__) / "known_abilities.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, KnownModel])


class MeasuredAbilities:
    """The abilities of a language model, each found out when it is first asked for.

    Parameters
    ----------
    llm
        The model's name, file, folder or address.
    model
        Gives the model, if it must be tested.
    reader
        The model that reads answers, if another one.
    """

    def __init__(self, llm: str, model: Callable[[], LanguageModel], *, reader: str | None = None) -> None:
        self._llm = llm
        self._model = model
        self._reader = reader or llm
        self._found: dict[Ability, bool] = {}

    def can(self, ability: Ability) -> bool:
        """Return whether the model has an ability; its first test takes up to two minutes, and is remembered."""
        if ability not in self._found:
            self._found[ability] = self._find(ability)
        return self._found[ability]

    def known(self) -> Abilities:
        """Return all abilities without a test: what neither this nor an earlier process has measured is presumed."""
        found = {"reads": is_large(self._reader), **self._found}
        if not is_address(self._llm):
            for ability in MEASURED:
                if ability not in found and (verdicts := _recalled(self._content, ability)) is not None:
                    found[ability] = verdicts[ability].able
        return Abilities(**found)

    def _find(self, ability: Ability) -> bool:
        if ability == "reads":
            return is_large(self._reader)
        if ability == "logits":
            return not is_address(self._llm) or self._model().gives_logits
        verdicts = _recalled(self._content, ability) or registry.remembered(
            FILE, _key(self._content, ability), dict[str, _Verdicts], lambda: self._measure(ability)
        )
        # A record that lacks the verdict is damaged, and no worse than none.
        return (verdicts if ability in verdicts else self._measure(ability))[ability].able

    @functools.cached_property
    def _content(self) -> str:
        """What verdicts are kept by: the file's hash, or a server's address and what it says of its model."""
        if not is_address(self._llm):
            return _sha256(self._llm)
        model = self._model()
        return f"{self._llm}-{model.name}-{model.fingerprint}"

    def _measure(self, ability: Ability) -> _Verdicts:
        """Return the verdicts of the test that measures an ability."""
        if _test_of(ability) == "triples":
            what, measure, seconds = "writes triples", measure_triples, TRIPLES_SECONDS
        else:
            what, measure, seconds = "chooses steps of chains", measure_choices, CHOICES_SECONDS
        warnings.warn(
            f"testing how well {self._llm} {what}, once, in at most {seconds:.0f} seconds; the result decides the method's settings",
            UserWarning,
            stacklevel=2,
        )
        return measure(self._model(), presumed=is_large(self._llm))


def describe(llm: str) -> str:
    """Say in words what is known of a named model or a file, without a test."""
    count = parameters(llm)
    said = [] if count is None else [f"{count / 1e6:,.0f} million parameters"]
    for ability, words in MEASURED.items():
        verdict = (_recalled(_sha256(llm), ability) or {}).get(ability)
        known = (
            "not tested" if verdict is None else f"{'yes' if verdict.able else 'no'}, {verdict.right} of {verdict.of}"
        )
        said.append(f"{words}: {known}")
    return "; ".join(said)


def _test_of(ability: Ability) -> Literal["choices", "triples"]:
    return "triples" if ability == "triples" else "choices"


def _key(content: str, ability: Ability) -> str:
    return f"{VERSION}-{content}-{_test_of(ability)}"


def _recalled(content: str, ability: Ability) -> _Verdicts | None:
    """Return verdicts that come with the package, or that an earlier test left."""
    known = known_models().get(content)
    if known is not None and ability in known.verdicts:
        return known.verdicts
    return registry.recall(FILE, _key(content, ability), dict[str, _Verdicts])


def is_large(llm: str) -> bool:
    """Return whether a model has a billion parameters; one that does not say, such as one on a server, is taken to have them."""
    count = parameters(llm)
    return count is None or count >= LARGE


def prompt_style(llm: str) -> Literal["plain", "auto"]:
    """Return how prompts are written for a model: the smallest answer plain text far better than their chat template."""
    return "auto" if is_large(llm) else "plain"


def parameters(llm: str) -> int | None:
    """Return how many parameters a model has, by the header of its file; None of one on a server, or without a readable file."""
    if is_address(llm):
        return None
    try:
        known = known_models().get(_known_sha256(llm) or "")
        if known is not None:
            return known.parameters
        return count_parameters(read_header(registry.resolve_original(llm).path))
    except (ModelFileError, OSError):
        return None  # what is wrong is told where the model is loaded


def _sha256(llm: str) -> str:
    """Return the SHA-256 of a model's own file, whether or not another weight format is in use for it."""
    return _known_sha256(llm) or registry.content_sha256(registry.resolve_original(llm).path)


def _known_sha256(llm: str) -> str | None:
    """Return the SHA-256 that the catalog pins for a name, or for the model that a file or folder turns out to be."""
    known = registry.catalog()
    profile = known.profile(llm)
    model = known.model(llm if profile is None else profile.language_model or "")
    if profile is None and model is None:
        name = registry.identify(registry.resolve_original(llm).path)
        model = None if name is None else known.model(name)
    return None if model is None else model.files[0].sha256
