"""Which questions of a run the weights in use were learned from, and scores on the others: only those are held out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytrace.evaluation.scores.metrics import Mean
from pytrace.evaluation.scores.readers_in_use import ReaderInUse
from pytrace.reader.spans.weights import learned_questions as extractor_questions
from pytrace.retrieval.hops.weights import learned_questions as search_questions
from pytrace.storage.question_hashes import load_question_hashes

EXTRACTOR, SEARCH, ENCODER, CROSS_ENCODER = "answer extractor", "search", "encoder", "cross-encoder"
GENERATOR = "query generator"
_EXTRACTING = ("span", "grammar", "agreement")
# Methods that search across hops whether or not their questions are asked of an index.
_SEARCHING = ("hops",)
# Methods that write queries to a knowledge base.
_QUERYING = ("cok",)

Lists = Mapping[str, Collection[str] | None]
"""Hashes of the questions that weights were learned from, by the weights' name; None where they are not listed."""


class LearnedWeights(msgspec.Struct, frozen=True):
    """Weights that methods use, and how many of the run's questions they were learned from; None if that is not known."""

    name: str
    methods: tuple[str, ...]
    seen: int | None


class UnseenScores(msgspec.Struct, frozen=True):
    """A method's scores on the `n` questions that no weights in use in its run were learned from; see `MethodSummary`."""

    n: int
    exact_match: float | None
    f1: float | None
    exact_match_interval: tuple[float, float] | None
    f1_interval: tuple[float, float] | None
    supporting_precision: Mean
    supporting_recall: Mean
    supporting_error_rate: Mean


def question_lists(index: Path | None = None, models: Mapping[str, Path] | None = None) -> dict[str, list[str] | None]:
    """Read the lists of all weights that a run may use.

    Parameters
    ----------
    index
        Directory of the index that questions are asked of, which may have weights of its own.
    models
        Files of models by the weights' name; only those that ``pytrace train`` wrote have lists.

    Returns
    -------
    dict
        Sorted hashes by the weights' name; None where weights have no list.

    Raises
    ------
    DataError
        A list is malformed or is that of other weights.
    """
    lists: dict[str, frozenset[str] | None] = {EXTRACTOR: extractor_questions(), SEARCH: search_questions(index)}
    for name, path in (models or {}).items():
        if (hashes := model_questions(path)) is not None:
            lists[name] = hashes
    return {name: None if hashes is None else sorted(hashes) for name, hashes in lists.items()}


def graph_path(model: str) -> Path:
    """Return where ``pytrace train`` has written the graph of a model that is named by its directory."""
    return Path(model) / "onnx" / "model.onnx"


def model_questions(path: Path) -> frozenset[str] | None:
    """Return the hashes of the questions or claims that a model was trained on; None if it has no list."""
    return load_question_hashes(path, remedy="train the model again")


def learned_weights(
    readers: Mapping[str, ReaderInUse | None],
    settings: Mapping[str, Any],
    lists: Lists,
    hashes: Collection[str],
) -> tuple[LearnedWeights, ...]:
    """Return the weights that methods use.

    Parameters
    ----------
    readers
        By the methods' labels.
    settings
        Settings of the run.
    lists
        As `question_lists` returns them; weights that are absent are not listed.
    hashes
        Hashes of the run's questions, one per question.
    """
    found = []
    for name in dict.fromkeys((EXTRACTOR, SEARCH, *lists)):
        users = tuple(label for label, reader in readers.items() if _uses(name, label, reader, settings))
        if users:
            listed = lists.get(name)
            seen = None if listed is None else sum(one in listed for one in hashes)
            found.append(LearnedWeights(name, users, seen))
    return tuple(found)


def _uses(name: str, label: str, reader: ReaderInUse | None, settings: Mapping[str, Any]) -> bool:
    if name == EXTRACTOR:
        return reader is not None and reader.reading in _EXTRACTING
    if name == SEARCH:
        return settings.get("index") is not None or label.partition(":")[0] in _SEARCHING
    if name == GENERATOR:
        return label.partition(":")[0] in _QUERYING
    return True  # an encoder or cross-encoder that was named for the run


def unseen_questions(learned: Sequence[LearnedWeights], lists: Lists, hashes: Mapping[str, str]) -> set[str] | None:
    """Return the ids of the questions that no weights in use were learned from, by the hash of each; None if that is not known."""
    if any(weights.seen is None for weights in learned):
        return None
    seen = {one for weights in learned for one in lists[weights.name] or ()}
    return {question for question, one in hashes.items() if one not in seen}


def seen_notice(
    learned: Sequence[LearnedWeights], *, methods: int, questions: int, unseen: int | None, noun: str = "questions"
) -> str:
    """Say in one line how many of a run's questions which weights were learned from; empty if none are in use."""
    parts = []
    for weights in learned:
        of = f" ({', '.join(weights.methods)})" if len(weights.methods) < methods else ""
        if weights.seen is None:
            parts.append(f"it is not known which {noun} were used to train the {weights.name}'s weights{of}")
        elif weights.seen:
            parts.append(
                f"{weights.seen:,} of {questions:,} {noun} were used to train the {weights.name}'s weights{of}"
            )
    if learned and not parts:
        return (
            f"none of the {questions:,} {noun} was used to train the weights of the "
            f"{' and the '.join(weights.name for weights in learned)}"
        )
    if unseen == 0:
        parts.append("no held-out figure exists")
    elif unseen is not None and unseen < questions:
        others = noun.removesuffix("s") if unseen == 1 else noun
        parts.append(f"figures of the {unseen:,} unseen {others} are shown next to those of all")
    return "; ".join(parts)
