"""Labelled demonstrations for the prompts: a data file each, a class whose instances are its rows, and one loader of them all.

`Demonstration.load` reads any of them; the classes here are TRACE's own, those of `pytrace.reader.prompts.reasoning` show how to
think, verify, query and judge. A file of the caller's own in the same shape is checked as strictly as ours: a demonstration that
contradicts itself (a tail that its text does not contain, a right answer that is not among the candidates) teaches the
model to make things up, so it is refused and not repaired.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeVar, get_args, get_type_hints

import msgspec

from pytrace.errors import DataError, InputError
from pytrace.records import Triple
from pytrace.storage.foreign_json import decode_json, read_bounded

__all__ = [
    "ChainDemonstration",
    "ChainStep",
    "Demonstration",
    "OpenTripleDemonstration",
    "ReaderDemonstration",
    "TripleDemonstration",
]

ChainKind = Literal["bridge", "comparison", "compositional", "yes-no", "date"]
ReaderKind = Literal["triples", "documents", "mixed"]

_CONTEXT_FAULTS: dict[ReaderKind, str] = {
    "triples": "no triple; write it as <head; relation; tail>",
    "documents": "no document; write it as [title] text",
    "mixed": "neither <head; relation; tail> nor [title] sentence; write it as one of them",
}
# Option A ends the chain, so the letters B to Z are left for candidates.
_MOST_CANDIDATES = 25

_Row = TypeVar("_Row", bound="Demonstration")


# A misspelt key is an error: ignoring it would drop what it was meant to say.
class Demonstration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a file of demonstrations, with the file of ours and the shape of a row as messages show it.

    Where a row writes triples as bare lists, the field holds these (``path_row``) and a property makes the triples (`path`).
    """

    FILE: ClassVar[str]
    SHAPE: ClassVar[str]
    # Characters that may not stand in a field, as they separate what a model writes.
    FORBIDDEN: ClassVar[dict[str, str]] = {}

    @classmethod
    def load(cls, *, path: str | os.PathLike[str] | None = None) -> tuple[Self, ...]:
        """Read the demonstrations of this class.

        Parameters
        ----------
        path
            A JSONL file of your own, a row of this class's `SHAPE` a line; ours if None.

        Returns
        -------
        tuple of Demonstration
            In the order of the file.

        Raises
        ------
        DataError
            The file cannot be read, holds no row, or a row is malformed or contradicts itself; the message names file and line.

        Examples
        --------
        >>> from pytrace.reader.prompts import ChainDemonstration
        >>> demonstration = ChainDemonstration.load()[0]
        >>> demonstration.steps[0].letter, demonstration.chain[0].text
        ('D', '<The Magic Flute; composer; Wolfgang Amadeus Mozart>')
        """
        if path is None:
            return _ours(cls)
        try:
            data = read_bounded(Path(path))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DataError(
                f"cannot read the demonstrations ({reason}); give a readable JSONL file", path=path
            ) from error
        demonstrations = []
        # Lines end at "\n" alone: a text may hold U+2028 and its like, at which `splitlines` would cut it.
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                row = decode_json(line, cls)
            except ValueError as error:
                message = f"not a demonstration ({error}); each line must be {cls.SHAPE}"
                raise DataError(message, path=path, line=number) from error
            try:
                demonstrations.append(row._validated())
            except ValueError as error:
                raise DataError(str(error), path=path, line=number) from error
        if not demonstrations:
            raise DataError(f"holds no demonstration; give at least one line of {cls.SHAPE}", path=path)
        return tuple(demonstrations)

    @classmethod
    def last(cls, count: int, labelled: Sequence[Self] | None = None) -> tuple[Self, ...]:
        """Return the last of some demonstrations, of ours if None."""
        # The last, so that the one next to the question stays whatever their number.
        if count < 0:
            raise ValueError(f"demonstrations must be 0 or more, not {count}")
        rows = cls.load() if labelled is None else tuple(labelled)
        return rows[max(len(rows) - count, 0) :]

    @classmethod
    def load_with(cls, field: str, value: str, *, path: str | os.PathLike[str] | None = None) -> tuple[Self, ...]:
        """Read the demonstrations that have a value in a field; the other rows of the file are checked, too."""
        *others, last = (f'"{choice}"' for choice in get_args(get_type_hints(cls)[field]))
        if f'"{value}"' not in (*others, last):
            raise InputError(f"the {field} must be {', '.join(others)} or {last}, not {value!r}")
        rows = cls.load(path=path)
        chosen = tuple(row for row in rows if getattr(row, field) == value)
        if not chosen:
            message = f'has no demonstration of {field} "{value}" among its {len(rows)}; add at least one'
            raise DataError(message, path=path)
        return chosen

    def _validated(self) -> Self:
        """Return the row, or raise `ValueError` if it contradicts itself."""
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, str):
                name = field.removesuffix("_text").replace("_", " ")
                require_text(name, value, forbidden=self.FORBIDDEN.get(field, ""))
        self._validate()
        return self

    def _validate(self) -> None:
        """Check what goes beyond single texts."""
        raise NotImplementedError


class TripleDemonstration(Demonstration, frozen=True):
    """A labelled document for the KG generator: the title is every triple's head, a verbatim span of the text its tail."""

    # TRACE, section 3.2 and appendix B.1.

    FILE = "triples.jsonl"
    SHAPE = '{"title": text, "text": text, "triples": [[relation, tail], ...]}'
    FORBIDDEN: ClassVar = {"title": ";\n\r"}
    title: str
    text: str
    triple_rows: tuple[tuple[str, str], ...] = msgspec.field(name="triples")

    @property
    def triples(self) -> tuple[Triple, ...]:
        """The triples of the text."""
        return tuple(Triple(self.title, *row) for row in self.triple_rows)

    def _validate(self) -> None:
        require(self.triples, f"the document {self.title!r} has no triple; label at least one")
        require_triples("triples", self.triples)
        for triple in self.triples:
            _require_span("tail", triple.tail, self.text)


class OpenTripleDemonstration(Demonstration, frozen=True):
    """A labelled text that is not about one thing: heads and tails are verbatim spans of it, heads also of its title or headings."""

    # Ours, in the shape of TRACE's.

    FILE = "open_triples.jsonl"
    SHAPE = '{"title": text (may be left out), "text": text, "triples": [[head, relation, tail], ...]}'
    FORBIDDEN: ClassVar = {"title": "\n\r"}
    text: str
    triple_rows: tuple[tuple[str, str, str], ...] = msgspec.field(name="triples")
    title: str | None = None

    @property
    def triples(self) -> tuple[Triple, ...]:
        """The triples of the text."""
        return triples_of(self.triple_rows)

    @property
    def about_title(self) -> bool:
        """Whether every head is the title."""
        return all(triple.head == self.title for triple in self.triples)

    def _validate(self) -> None:
        require(self.triples, f"the text {_shortened(self.text)!r} has no triple; label at least one")
        require_triples("triples", self.triples)
        for triple in self.triples:
            _require_span("tail", triple.tail, self.text)
            if triple.head not in (self.title or ""):
                _require_span("head", triple.head, self.text)


def _require_span(name: str, phrase: str, text: str) -> None:
    require(phrase in text, f"the {name} {phrase!r} is no span of the text; copy it from there letter by letter")


def _shortened(text: str, width: int = 40) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


class ChainStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One choice of the selector: the candidates, and the index of the right one (-1: the chain is complete)."""

    candidate_rows: tuple[tuple[str, str, str], ...] = msgspec.field(name="candidates")
    answer: int

    @property
    def candidates(self) -> tuple[Triple, ...]:
        """The triples that are offered."""
        return triples_of(self.candidate_rows)

    @property
    def letter(self) -> str:
        """The right option's letter: A ends the chain, B is the first candidate."""
        return chr(ord("B") + self.answer)


class ChainDemonstration(Demonstration, frozen=True):
    """A labelled question for the triple selector: its chain, a step for each triple of it, and the step that ends it.

    At step ``i`` the triples ``chain[:i]`` are already chosen.
    """

    # TRACE, section 3.3 and appendix B.2.

    FILE = "chains.jsonl"
    SHAPE = (
        '{"question": text, "kind": text, "chain": [[head, relation, tail], ...], "answer": text, '
        '"steps": [{"candidates": [[head, relation, tail], ...], "answer": index}, ...]}'
    )
    question: str
    kind: ChainKind
    chain_row: tuple[tuple[str, str, str], ...] = msgspec.field(name="chain")
    answer: str
    steps: tuple[ChainStep, ...]

    @property
    def chain(self) -> tuple[Triple, ...]:
        """The triples that lead to the answer, in order."""
        return triples_of(self.chain_row)

    def _validate(self) -> None:
        chain = self.chain
        require(chain, "the chain is empty; give the triples that answer the question in order")
        require_triples("chain", chain)
        require(
            len(self.steps) == len(chain) + 1,
            f"{len(self.steps)} steps for a chain of {len(chain)} triples; "
            f"give {len(chain) + 1}, one a triple and the one that ends it",
        )
        for index, step in enumerate(self.steps):
            _validate_step(index, step, chain)


def _validate_step(index: int, step: ChainStep, chain: tuple[Triple, ...]) -> None:
    """Check the step at `index` (from 0; messages count from 1) against the chain."""
    name = f"step {index + 1}"
    candidates = step.candidates
    require(
        1 <= len(candidates) <= _MOST_CANDIDATES,
        f"{name} has {len(candidates)} candidates; give 1 to {_MOST_CANDIDATES}, for the letters B to Z",
    )
    require_triples(f"candidates of {name}", candidates)
    for chosen in chain[:index]:
        require(chosen not in candidates, f"{name} offers {chosen.text}, which the chain already holds; remove it")
    if index == len(chain):
        require(
            step.answer == -1,
            f"{name} has the answer {step.answer} though the chain is complete; the last answer must be -1",
        )
        return
    last = len(candidates) - 1
    require(0 <= step.answer <= last, f"{name} has the answer {step.answer}; it must be an index from 0 to {last}")
    answer, following = candidates[step.answer], chain[index]
    require(
        answer == following,
        f"the answer of {name} is {answer.text} but the chain goes on with {following.text}; make them the same",
    )


class ReaderDemonstration(Demonstration, frozen=True):
    """A context, a question and its short answer.

    The context holds ``<head; relation; tail>`` strings if `kind` is ``"triples"``, ``[title] text`` strings if it is
    ``"documents"``, and the former before the latter if it is ``"mixed"``, as `pytrace.records.Evidence` does.
    """

    # TRACE, section 3.4 and appendix B.3; KS-LLM, section 3.3. The papers' readers are zero-shot; small models need to be
    # shown a short answer.

    FILE = "reader.jsonl"
    SHAPE = '{"kind": "triples", "documents" or "mixed", "context": [text, ...], "question": text, "answer": text}'
    kind: ReaderKind
    context: tuple[str, ...]
    question: str
    answer: str

    def _validate(self) -> None:
        require(self.context, "the context is empty; give the triples or documents that answer the question")
        triples = [item.startswith("<") and item.endswith(">") and item.count(";") >= 2 for item in self.context]
        for item, triple in zip(self.context, triples, strict=True):
            document = item.startswith("[") and bool(item.partition("] ")[2].strip())
            fits = {"triples": triple, "documents": document, "mixed": triple or document}[self.kind]
            require(fits, f"the context {item!r} is {_CONTEXT_FAULTS[self.kind]}")
        require(
            self.kind != "mixed" or (len(set(triples)) == 2 and triples == sorted(triples, reverse=True)),
            "a mixed context needs triples first and sentences after them; give at least one of each in this order",
        )


@functools.cache  # every prompt of a run shows rows of them
def _ours(kind: type[_Row]) -> tuple[_Row, ...]:
    """Read the demonstrations of our own file."""
    with resources.as_file(resources.files(__name__) / kind.FILE) as file:
        return kind.load(path=file)


def triples_of(rows: Iterable[tuple[str, str, str]]) -> tuple[Triple, ...]:
    """Make triples of rows of head, relation and tail."""
    return tuple(Triple(*row) for row in rows)


def require(holds: object, message: str) -> None:
    """Refuse a row of which something does not hold."""
    if not holds:
        raise ValueError(message)


def require_text(name: str, value: str, *, forbidden: str = "") -> None:
    """Refuse a text that is empty, has a space at an end, or holds a forbidden character."""
    require(value.strip(), f"the {name} is empty; give it a text")
    require(value == value.strip(), f"the {name} {value!r} begins or ends with a space; remove it")
    for character in forbidden:
        require(
            character not in value, f"the {name} {value!r} contains {character!r}, which separates triples; reword it"
        )


def require_triples(name: str, triples: Sequence[Triple]) -> None:
    """Refuse triples that a model's output could not be read back as, and those that are there twice."""
    # A semicolon in head or relation, or a line break anywhere, would be read back as another triple.
    for triple in triples:
        require_text("head", triple.head, forbidden=";\n\r")
        require_text("relation", triple.relation, forbidden=";\n\r")
        require_text("tail", triple.tail, forbidden="\n\r")
    for index, triple in enumerate(triples):
        require(triple not in triples[:index], f"the {name} hold {triple.text} twice; remove one")
