"""What ``pytrace doctor`` says of each feature: whether this installation has what it takes, and the command that would add it."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pytrace.bundle import DISTRIBUTION
from pytrace.models.registry.known_models import Role

_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*;.*\bextra == ["']([\w-]+)["']""")
_ONNX = ("onnxruntime", "onnxruntime-gpu")
_PULL = "pytrace models pull tiny"
# llama.cpp's binding comes as source.
_COMPILER = ", which takes a C++ compiler; 'pytrace bundle' on a machine that has one makes a wheel of it"


class Feature(msgspec.Struct, frozen=True):
    """Something that pytrace does: `ready`, or else what is lacking and the command that adds it."""

    name: str
    ready: bool
    lacks: str = ""
    remedy: str = ""


class _Need(NamedTuple):
    """What a feature takes: an extra's packages, or one of some packages; models in a role."""

    name: str
    extra: str = ""
    one_of: Sequence[str] = ()
    roles: Sequence[Role] = ()
    note: str = ""


_NEEDS = (
    _Need("search, without a language model", "onnx", _ONNX, ("encoder",)),
    _Need("ask, with a model in this process", "cpu", ("llama-cpp-python",), ("encoder", "language-model"), _COMPILER),
    _Need("ask, with a model on a server", "remote"),
    _Need("certify against texts, by words"),
    _Need("certify against a graph", "onnx", _ONNX, ("encoder",)),
    _Need("read PDF, Word, slides, web pages, e-mail", "docs"),
    _Need("serve and mcp", "serve"),
    _Need("eval: word search, plots, significance", "eval"),
    _Need("approximate search in 50,000 sentences and more", "index"),
    _Need("train", "train"),
    _Need("several machines, by Ray", "ray"),
    _Need("encoders of static vectors", "static"),
    _Need("pull models from Hugging Face", "hf"),
)


def features(installed: Collection[str], roles: Collection[Role]) -> Iterator[Feature]:
    """Yield a verdict for each feature, given the distributions that are installed and the roles that pulled models fill."""
    extras = _extras()
    for need in _NEEDS:
        missing = [package for package in extras.get(need.extra, ()) if package not in installed]
        if need.one_of:
            missing = [] if any(package in installed for package in need.one_of) else [need.one_of[0]]
        lacks, remedies = [], []
        if missing:
            lacks.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed{need.note}")
            remedies.append(f"pip install '{DISTRIBUTION}[{need.extra}]'")
        unfilled = [role for role in need.roles if role not in roles]
        if unfilled:
            lacks.append(f"no {' and no '.join(role.replace('-', ' ') for role in unfilled)} is here")
            remedies.append(_PULL)
        yield Feature(need.name, not lacks, "; ".join(lacks), " && ".join(remedies))


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra, as this distribution's own metadata has them."""
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # imported from a folder that pip does not know
        requirements = []
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and match[1] != DISTRIBUTION:
            extras.setdefault(match[2], []).append(match[1])
    return extras
