"""What a model that judges reasoning paths is shown: valid paths, and paths that are invalid in each of three ways.

=================  =======================  ==================================================================
file               loaded by                shows
=================  =======================  ==================================================================
``paths.jsonl``    `path_demonstrations`    a question, its answer, a path, what checking it finds, the verdict
=================  =======================  ==================================================================
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from pytrace.reader.prompts import load_demonstrations, require_text
from pytrace.records import Triple

DemonstrationKind = Literal["valid", "factual", "incoherent", "misguided"]


class PathDemonstration(msgspec.Struct, frozen=True):
    """A question with its answer and a path for it, the sentences of a check of that path, and how the path was made."""

    kind: DemonstrationKind
    question: str
    answer: str
    path: tuple[Triple, ...]
    check: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether the path leads from the question to the answer by true steps."""
        return self.kind == "valid"


def path_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[PathDemonstration, ...]:
    """Labelled reasoning paths, as many valid as invalid ones in ours, by kind."""
    # "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs", appendix F.1.
    return load_demonstrations(path, _PathRow, _path, _PATH_SHAPE, shipped="paths.jsonl")


class _PathRow(msgspec.Struct, forbid_unknown_fields=True):
    kind: DemonstrationKind
    question: str
    answer: str
    path: list[tuple[str, str, str]]
    check: list[str]


_PATH_SHAPE = (
    '{"kind": "valid", "factual", "incoherent" or "misguided", "question": text, "answer": text, '
    '"path": [[head, relation, tail], ...], "check": [text, ...]}'
)


def _path(row: _PathRow) -> PathDemonstration:
    require_text("question", row.question, forbidden="\n\r")
    require_text("answer", row.answer, forbidden="\n\r")
    for name, texts in (("path", row.path), ("check", row.check)):
        if not texts:
            raise ValueError(f"the {name} is empty; give at least one step")
    for sentence in row.check:
        require_text("check", sentence, forbidden="\n\r")
    for triple in row.path:
        for name, part in zip(("head", "relation", "tail"), triple, strict=True):
            require_text(name, part, forbidden="\n\r")
    leads = row.answer in _ends(row)
    if leads != (row.kind == "valid") and row.kind != "factual":
        raise ValueError(
            f"the path is said to be {row.kind}, but {'leads' if leads else 'does not lead'} from an entity that the question "
            f"names to the answer {row.answer!r}; correct the path or its kind"
        )
    return PathDemonstration(
        row.kind, row.question, row.answer, tuple(Triple(*triple) for triple in row.path), tuple(row.check)
    )


def _ends(row: _PathRow) -> set[str]:
    """Return where the path ends if it is read from the entities that the question names, each step in either direction."""
    reached = {entity for head, _, tail in row.path for entity in (head, tail) if entity in row.question}
    for head, _, tail in row.path:
        reached = ({tail} if head in reached else set()) | ({head} if tail in reached else set())
    return reached
