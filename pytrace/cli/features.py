"""What ``pytrace doctor`` says of each feature: whether this installation has what it takes, and the command that would add it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pytrace.bundle import DISTRIBUTION, requirements
from pytrace.errors import MissingDependencyError
from pytrace.models.registry.known_models import Role

_ONNX = ("onnxruntime", "onnxruntime-gpu")
_LLAMA = ("llama-cpp-python",)
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
    """What a feature takes: an extra's packages, or one of each of some groups of packages; models in a role."""

    name: str
    extra: str = ""
    one_of: Sequence[Sequence[str]] = ()
    roles: Sequence[Role] = ()
    note: str = ""


_NEEDS = (
    _Need("search, without a language model", "onnx", (_ONNX,), ("encoder",)),
    _Need("ask, with a model in this process", "cpu", (_LLAMA, _ONNX), ("encoder", "language-model"), _COMPILER),
    _Need("ask, with a model on a server", "remote"),
    _Need("certify against texts, by words"),
    _Need("certify against a graph", "onnx", (_ONNX,), ("encoder",)),
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
    try:
        extras = requirements()
    except MissingDependencyError:
        extras = {}
    for need in _NEEDS:
        # As an extra asks for them; pytrace itself is among them where an extra takes in another.
        names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in extras.get(need.extra, ())]
        missing = [name for name in names if name not in installed and name != DISTRIBUTION]
        if need.one_of:
            missing = [group[0] for group in need.one_of if not any(package in installed for package in group)]
        lacks, remedies = [], []
        if need.extra and not need.one_of and not extras:
            lacks.append(f"what it takes is not known, since {DISTRIBUTION} is not installed")
            remedies.append(f"pip install '{DISTRIBUTION}[{need.extra}]'")
        if missing:
            note = need.note if _LLAMA[0] in missing else ""
            lacks.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed{note}")
            remedies.append(f"pip install '{DISTRIBUTION}[{need.extra}]'")
        unfilled = [role for role in need.roles if role not in roles]
        if unfilled:
            lacks.append(f"no {' and no '.join(role.replace('-', ' ') for role in unfilled)} is here")
            remedies.append(_PULL)
        yield Feature(need.name, not lacks, "; ".join(lacks), " && ".join(remedies))
