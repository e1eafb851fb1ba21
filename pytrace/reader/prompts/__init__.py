"""Labelled demonstrations for the prompts, as data files beside this module, and their loader.

====================  =============================  ====================================================
file                  loaded by                      shows
====================  =============================  ====================================================
``triples.jsonl``     `triple_demonstrations`        the KG generator a document and its triples
``chains.jsonl``      `chain_demonstrations`         the triple selector a question, its chain, each step
``reader.jsonl``      `reader_demonstrations`        the reader a context, a question and a short answer
====================  =============================  ====================================================

What methods that think show a model stands beside these, with its loaders in `pytrace.reader.prompts.thought_demonstrations`; what a model is
shown that judges reasoning paths in `pytrace.reader.prompts.path_demonstrations`, and that reasons in numbered steps in `pytrace.reader.prompts.step_demonstrations`;
that writes queries in `pytrace.reader.prompts.query_demonstrations`, and that checks claims in `pytrace.reader.prompts.claim_demonstrations`.

Every loader takes a file of the caller's own in the same shape, and checks it as strictly as ours. A demonstration that
contradicts itself (a tail that its text does not contain, a right answer that is not among the candidates) teaches the
model to make things up, so it is refused and not repaired.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from pytrace.errors import DataError
from pytrace.records import Triple

__all__ = [
    "ChainDemonstration",
    "ChainStep",
    "ReaderDemonstration",
    "TripleDemonstration",
    "chain_demonstrations",
    "reader_demonstrations",
    "triple_demonstrations",
]

ChainKind = Literal["bridge", "comparison", "compositional", "yes-no", "date"]
ReaderKind = Literal["triples", "documents", "mixed"]

# Option A ends the chain, so the letters B to Z are left for candidates.
_MOST_CANDIDATES = 25


class TripleDemonstration(msgspec.Struct, frozen=True):
    """A labelled document: every triple has the title as its head and a verbatim span of the text as its tail."""

    title: str
    text: str
    triples: tuple[Triple, ...]


class ChainStep(msgspec.Struct, frozen=True):
    """One choice of the selector: the candidates, and the index of the right one (-1: the chain is complete)."""

    candidates: tuple[Triple, ...]
    answer: int

    @property
    def letter(self) -> str:
        """The right option's letter: A ends the chain, B is the first candidate."""
        return chr(ord("B") + self.answer)


class ChainDemonstration(msgspec.Struct, frozen=True):
    """A labelled question: its chain, and one step for each triple of it plus the step that ends it.

    At step ``i`` the triples ``chain[:i]`` are already chosen.
    """

    question: str
    kind: ChainKind
    chain: tuple[Triple, ...]
    answer: str
    steps: tuple[ChainStep, ...]


class ReaderDemonstration(msgspec.Struct, frozen=True):
    """A context, a question and its short answer.

    The context holds ``<head; relation; tail>`` strings if `kind` is ``"triples"``, ``[title] text`` strings if it is
    ``"documents"``, and the former before the latter if it is ``"mixed"``, as `pytrace.records.Evidence` does.
    """

    kind: ReaderKind
    context: tuple[str, ...]
    question: str
    answer: str


def triple_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[TripleDemonstration, ...]:
    """Labelled documents for the KG generator.

    Parameters
    ----------
    path
        A JSONL file of your own, one ``{"title": …, "text": …, "triples": [[relation, tail], …]}`` a line; ours if None.

    Returns
    -------
    tuple of TripleDemonstration
        In the order of the file.

    Raises
    ------
    DataError
        The file cannot be read, holds no row, or a row is malformed, repeats a triple, or has a tail that is no span of
        its text; the message names file and line.

    Notes
    -----
    TRACE, section 3.2 and Appendix B.1.

    Examples
    --------
    >>> from pytrace.reader.prompts import triple_demonstrations
    >>> triple_demonstrations()[0].triples[0].text
    '<Toni Morrison; date of birth; February 18, 1931>'
    """
    return load_demonstrations(path, _TripleRow, _triple_demonstration, _TRIPLE_SHAPE, shipped="triples.jsonl")


def chain_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[ChainDemonstration, ...]:
    """Labelled questions for the triple selector.

    Parameters
    ----------
    path
        A JSONL file of your own, one ``{"question": …, "kind": …, "chain": [[head, relation, tail], …], "answer": …,
        "steps": [{"candidates": [[head, relation, tail], …], "answer": index}, …]}`` a line; ours if None. There is one
        step for each triple of the chain, and a last one whose answer is -1.

    Returns
    -------
    tuple of ChainDemonstration
        In the order of the file.

    Raises
    ------
    DataError
        The file cannot be read, holds no row, or a row is malformed or contradicts itself (a step's answer is not the
        chain's next triple, or a chosen triple is offered again); the message names file and line.

    Notes
    -----
    TRACE, section 3.3 and Appendix B.2.

    Examples
    --------
    >>> from pytrace.reader.prompts import chain_demonstrations
    >>> demonstration = chain_demonstrations()[0]
    >>> demonstration.steps[0].letter, demonstration.chain[0].text
    ('D', '<The Magic Flute; composer; Wolfgang Amadeus Mozart>')
    """
    return load_demonstrations(path, _ChainRow, _chain_demonstration, _CHAIN_SHAPE, shipped="chains.jsonl")


def reader_demonstrations(
    kind: ReaderKind, *, path: str | os.PathLike[str] | None = None
) -> tuple[ReaderDemonstration, ...]:
    """Short answers for the reader, over triples (TRACE-Triple), documents (TRACE-Doc), or triples and sentences (KS-LLM).

    Parameters
    ----------
    kind
        ``"triples"``, ``"documents"`` or ``"mixed"``: which rows of the file to return.
    path
        A JSONL file of your own, one ``{"kind": …, "context": [string, …], "question": …, "answer": …}`` a line; ours if
        None. It may hold rows of all kinds; all of them are checked.

    Returns
    -------
    tuple of ReaderDemonstration
        Those of that kind, in the order of the file.

    Raises
    ------
    ValueError
        `kind` is none of the three.
    DataError
        The file cannot be read, holds no row of that kind, or a row is malformed; the message names file and line.

    Notes
    -----
    TRACE, section 3.4 and Appendix B.3; KS-LLM, section 3.3. The papers' readers are zero-shot; small models need to be
    shown a short answer.

    Examples
    --------
    >>> from pytrace.reader.prompts import reader_demonstrations
    >>> [demonstration.answer for demonstration in reader_demonstrations("documents")]
    ['88', 'no', 'Giles Gilbert Scott', 'Antananarivo']
    """
    if kind not in get_args(ReaderKind):
        raise ValueError(f'kind must be "triples", "documents" or "mixed", not {kind!r}')
    rows = load_demonstrations(path, _ReaderRow, _reader_demonstration, _READER_SHAPE, shipped="reader.jsonl")
    chosen = tuple(row for row in rows if row.kind == kind)
    if not chosen:
        raise DataError(f'has no demonstration of kind "{kind}" among its {len(rows)}; add at least one', path=path)
    return chosen


# The rows as they stand in the files. A misspelt key is an error: ignoring it would drop what it was meant to say.


class _TripleRow(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    text: str
    triples: list[tuple[str, str]]


class _StepRow(msgspec.Struct, forbid_unknown_fields=True):
    candidates: list[tuple[str, str, str]]
    answer: int


class _ChainRow(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    kind: ChainKind
    chain: list[tuple[str, str, str]]
    answer: str
    steps: list[_StepRow]


class _ReaderRow(msgspec.Struct, forbid_unknown_fields=True):
    kind: ReaderKind
    context: list[str]
    question: str
    answer: str


_TRIPLE_SHAPE = '{"title": text, "text": text, "triples": [[relation, tail], ...]}'
_CHAIN_SHAPE = (
    '{"question": text, "kind": text, "chain": [[head, relation, tail], ...], "answer": text, '
    '"steps": [{"candidates": [[head, relation, tail], ...], "answer": index}, ...]}'
)
_READER_SHAPE = '{"kind": "triples", "documents" or "mixed", "context": [text, ...], "question": text, "answer": text}'


_Row = TypeVar("_Row")
_Demonstration = TypeVar("_Demonstration")


def load_demonstrations(
    path: str | os.PathLike[str] | None,
    row_type: type[_Row],
    build: Callable[[_Row], _Demonstration],
    shape: str,
    *,
    shipped: str,
) -> tuple[_Demonstration, ...]:
    """Read a JSONL file and build one demonstration a line; blank lines and a byte order mark are passed over."""
    # Without a path it is the file of the name `shipped` in this folder, which is read once.
    if path is not None:
        return _load(path, row_type, build, shape)
    key: Any = row_type  # a class can be hashed, though its type does not say so
    return _shipped(shipped, key, build, shape)


@functools.cache
def _shipped(name: str, row_type: type[Any], build: Callable[[Any], Any], shape: str) -> tuple[Any, ...]:
    with resources.as_file(resources.files(__name__) / name) as path:
        return _load(path, row_type, build, shape)


def _load(
    path: str | os.PathLike[str], row_type: type[_Row], build: Callable[[_Row], _Demonstration], shape: str
) -> tuple[_Demonstration, ...]:
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot read the demonstrations ({reason}); give a readable JSONL file", path=path) from error
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row_type)
    demonstrations = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except ValueError as error:
            raise DataError(
                f"not a demonstration ({error}); each line must be {shape}", path=path, line=number
            ) from error
        try:
            demonstrations.append(build(row))
        except ValueError as error:
            raise DataError(str(error), path=path, line=number) from error
    if not demonstrations:
        raise DataError(f"holds no demonstration; give at least one line of {shape}", path=path)
    return tuple(demonstrations)


def _triple_demonstration(row: _TripleRow) -> TripleDemonstration:
    require_text("title", row.title, forbidden=";\n\r")
    require_text("text", row.text)
    if not row.triples:
        raise ValueError(f"the document {row.title!r} has no triple; label at least one")
    triples = tuple(_triple(row.title, relation, tail) for relation, tail in row.triples)
    _require_distinct("triples", triples)
    for triple in triples:
        if triple.tail not in row.text:
            raise ValueError(f"the tail {triple.tail!r} is no span of the text; copy it from there letter by letter")
    return TripleDemonstration(title=row.title, text=row.text, triples=triples)


def _chain_demonstration(row: _ChainRow) -> ChainDemonstration:
    require_text("question", row.question)
    require_text("answer", row.answer)
    if not row.chain:
        raise ValueError("the chain is empty; give the triples that answer the question in order")
    chain = tuple(_triple(*triple) for triple in row.chain)
    _require_distinct("chain", chain)
    if len(row.steps) != len(chain) + 1:
        raise ValueError(
            f"{len(row.steps)} steps for a chain of {len(chain)} triples; "
            f"give {len(chain) + 1}, one a triple and the one that ends it"
        )
    steps = tuple(_chain_step(index, step, chain) for index, step in enumerate(row.steps))
    return ChainDemonstration(question=row.question, kind=row.kind, chain=chain, answer=row.answer, steps=steps)


def _chain_step(index: int, row: _StepRow, chain: tuple[Triple, ...]) -> ChainStep:
    """Check the step at `index` (from 0; messages count from 1) against the chain."""
    place = f"step {index + 1}"
    candidates = tuple(_triple(*triple) for triple in row.candidates)
    if not 1 <= len(candidates) <= _MOST_CANDIDATES:
        raise ValueError(
            f"{place} has {len(candidates)} candidates; give 1 to {_MOST_CANDIDATES}, for the letters B to Z"
        )
    _require_distinct(f"candidates of {place}", candidates)
    for chosen in chain[:index]:
        if chosen in candidates:
            raise ValueError(f"{place} offers {chosen.text}, which the chain already holds; remove it")
    if index == len(chain):
        if row.answer != -1:
            raise ValueError(
                f"{place} has the answer {row.answer} though the chain is complete; the last answer must be -1"
            )
    elif not 0 <= row.answer < len(candidates):
        raise ValueError(f"{place} has the answer {row.answer}; it must be an index from 0 to {len(candidates) - 1}")
    elif candidates[row.answer] != chain[index]:
        raise ValueError(
            f"the answer of {place} is {candidates[row.answer].text} but the chain goes on with {chain[index].text}; "
            "make them the same"
        )
    return ChainStep(candidates=candidates, answer=row.answer)


def _reader_demonstration(row: _ReaderRow) -> ReaderDemonstration:
    require_text("question", row.question)
    require_text("answer", row.answer)
    if not row.context:
        raise ValueError("the context is empty; give the triples or documents that answer the question")
    triples = [item.startswith("<") and item.endswith(">") and item.count(";") >= 2 for item in row.context]
    for item, triple in zip(row.context, triples, strict=True):
        document = item.startswith("[") and bool(item.partition("] ")[2].strip())
        if row.kind == "triples" and not triple:
            raise ValueError(f"the context {item!r} is no triple; write it as <head; relation; tail>")
        if row.kind == "documents" and not document:
            raise ValueError(f"the context {item!r} is no document; write it as [title] text")
        if row.kind == "mixed" and not (triple or document):
            raise ValueError(
                f"the context {item!r} is neither <head; relation; tail> nor [title] sentence; write it as one of them"
            )
    if row.kind == "mixed" and (len(set(triples)) < 2 or triples != sorted(triples, reverse=True)):
        raise ValueError(
            "a mixed context needs triples first and sentences after them; give at least one of each in this order"
        )
    return ReaderDemonstration(kind=row.kind, context=tuple(row.context), question=row.question, answer=row.answer)


def _triple(head: str, relation: str, tail: str) -> Triple:
    # A semicolon in head or relation, or a line break anywhere, would be read back as another triple.
    require_text("head", head, forbidden=";\n\r")
    require_text("relation", relation, forbidden=";\n\r")
    require_text("tail", tail, forbidden="\n\r")
    return Triple(head=head, relation=relation, tail=tail)


def require_text(name: str, value: str, *, forbidden: str = "") -> None:
    if not value.strip():
        raise ValueError(f"the {name} is empty; give it a text")
    if value != value.strip():
        raise ValueError(f"the {name} {value!r} begins or ends with a space; remove it")
    for character in forbidden:
        if character in value:
            raise ValueError(f"the {name} {value!r} contains {character!r}, which separates triples; reword it")


def _require_distinct(name: str, triples: tuple[Triple, ...]) -> None:
    for index, triple in enumerate(triples):
        if triple in triples[:index]:
            raise ValueError(f"the {name} hold {triple.text} twice; remove one")
