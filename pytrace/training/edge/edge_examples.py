"""Examples for the small model: questions with the passages that answer them, and claims with their evidence."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import DataError
from pytrace.kernels import top_k
from pytrace.models.encoders.encoder import Encoder
from pytrace.storage.files import replace_file

# Sources whose passages are too unlike a document collection to be drawn as distractors: single sentences and forum posts.
_NO_POOL = frozenset({"qamr", "squadshifts-amazon_reviews", "squadshifts-reddit", "covid-qa", "policyqa"})
_NEIGHBORS = 12
_Row = TypeVar("_Row", bound=msgspec.Struct)


class Span(NamedTuple):
    """An answer in a passage: the passage's index, and character offsets."""

    passage: int
    start: int
    end: int


class ReadingExample(NamedTuple):
    """A question with the passages that answer it; `others` mislead. `hops` is true where several passages are needed."""

    question: str
    passages: tuple[str, ...]
    spans: tuple[Span, ...]
    kind: str
    others: tuple[str, ...]
    source: str

    @property
    def answers(self) -> tuple[str, ...]:
        """The answer strings, each once."""
        if self.kind != "span":
            return () if self.kind == "none" else (self.kind,)
        return tuple(dict.fromkeys(self.passages[span.passage][span.start : span.end] for span in self.spans))


class CheckingExample(NamedTuple):
    """A claim, the text that it is checked against, and a label of `LABELS`.

    `others` are sentences of the same page that neither support nor refute the claim. `question` is the question that the claim was
    made from; "" if there is none.
    """

    claim: str
    evidence: str
    label: str
    source: str
    others: tuple[str, ...] = ()
    question: str = ""


class LinkingExample(NamedTuple):
    """What was found for a question so far, and a candidate that goes on from it or not; without a candidate: whether it is enough."""

    question: str
    so_far: tuple[str, ...]
    candidate: str | None
    right: bool
    source: str


class _Question(msgspec.Struct):
    question: str
    passages: tuple[str, ...]
    spans: tuple[Span, ...]
    kind: Literal["span", "yes", "no", "none"]
    source: str
    other_passages: tuple[str, ...]


class _Claim(msgspec.Struct):
    claim: str
    evidence: tuple[str, ...]
    label: Literal["supported", "refuted", "not_enough_info"]
    source: str
    other: tuple[str, ...] = ()


class _Passage(msgspec.Struct):
    title: str
    text: str


def reading_examples(path: Path) -> list[ReadingExample]:
    """Read questions with `question`, `passages`, `spans`, `kind`, `other_passages` and `source`.

    Raises
    ------
    DataError
        A row lacks a field or has one of another type, or a span lies outside its passage.
    """
    found = []
    for number, row in enumerate(_rows(path, _Question), 1):
        if any(
            not (
                0 <= span.passage < len(row.passages) and 0 <= span.start < span.end <= len(row.passages[span.passage])
            )
            for span in row.spans
        ):
            raise DataError("spans must lie in their passages", path=path, line=number)
        found.append(ReadingExample(row.question, row.passages, row.spans, row.kind, row.other_passages, row.source))
    return found


def checking_examples(path: Path) -> list[CheckingExample]:
    """Read claims with `claim`, `evidence` (sentences), `label` and `source`, and maybe `other` sentences of the page."""
    return [
        CheckingExample(
            row.claim,
            evidence_text(row.evidence),
            row.label,
            row.source,
            tuple(other for other in row.other if other not in row.evidence),
        )
        for row in _rows(path, _Claim)
    ]


def passage_texts(path: Path) -> list[str]:
    """Read passages with `title` and `text`, as texts with the title in brackets."""
    return [f"[{row.title}] {row.text}" for row in _rows(path, _Passage)]


def _rows(path: Path, kind: type[_Row]) -> Iterator[_Row]:
    """Yield the rows of a JSON Lines file, plain or gzipped; raise `DataError` at the first one that is not of the kind."""
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield msgspec.convert(
                        json.loads(line), kind
                    )  # msgspec's own reader refuses half of a surrogate pair
                except ValueError as error:
                    raise DataError(
                        f"row is not a valid {kind.__name__[1:].lower()} ({error})", path=path, line=number
                    ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the file is cut off or damaged ({error}); copy it again", path=path, line=number + 1
        ) from error


def evidence_text(sentences: Sequence[str]) -> str:
    """Join evidence sentences; a title before a tab is written once, in brackets, before its first sentence."""
    parts, last = [], None
    for sentence in sentences:
        title, tab, text = sentence.rpartition("\t")
        if tab and title != last:
            parts.append(f"[{title}]")
            last = title
        parts.append(text)
    return " ".join(parts)


def is_pool_source(source: str) -> bool:
    """Return whether passages of a source may be distractors for other questions."""
    return source not in _NO_POOL


class Distractors:
    """Passages near a passage or a question, to be read next to the right ones."""

    def __init__(self, pool: Sequence[str], near: Mapping[str, NDArray[np.int32]]) -> None:
        self.pool = pool
        self.near = near

    def draw(self, example: ReadingExample, count: int, rng: random.Random) -> list[str]:
        """Draw passages that do not hold the answer: the row's own wrong passages, and neighbors of question and passages."""
        if not count:
            return []
        answers = [answer.casefold() for answer in example.answers if example.kind == "span"]
        found: dict[str, None] = dict.fromkeys(example.others)
        for text in (example.question, *example.passages):
            found.update(dict.fromkeys(self.pool[index] for index in self.near.get(key_of(text), ())))
        usable = [
            text
            for text in found
            if text not in example.passages and not any(answer in text.casefold() for answer in answers)
        ]
        # The nearest come first; half of the draws are among the first four.
        drawn: list[str] = []
        while usable and len(drawn) < count:
            among = usable[:4] if rng.random() < 0.5 else usable
            drawn.append(rng.choice(among))
            usable.remove(drawn[-1])
        return drawn


def key_of(text: str) -> str:
    """Return a short name for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def find_distractors(pool: Iterable[str], questions: Iterable[str], encoder: Encoder, cache: Path) -> Distractors:
    """Find the passages of a pool that are nearest to each question and to each other, by vectors, and keep them in a file.

    The file is used again if the texts and the encoder are the same.
    """
    passages, asked = sorted({*pool}), sorted({*questions})
    digest = hashlib.sha256(
        "\0".join([encoder.fingerprint, *passages, "", *asked]).encode("utf-8", "replace")
    ).hexdigest()
    near = _stored(cache, digest)
    if near is None:
        rows = encoder.encode(passages, kind="passage")
        queries = np.concatenate([rows, encoder.encode(asked, kind="query")])
        near = top_k(queries, rows, min(_NEIGHBORS, len(passages)))[1].astype(np.int32)
        archive = io.BytesIO()
        np.savez(archive, digest=digest, near=near)
        cache.parent.mkdir(parents=True, exist_ok=True)
        replace_file(cache, archive.getvalue())
    return Distractors(passages, dict(zip(map(key_of, (*passages, *asked)), near, strict=True)))


def _stored(cache: Path, digest: str) -> NDArray[np.int32] | None:
    if not cache.exists():
        return None
    with np.load(cache) as stored:
        near: NDArray[np.int32] = stored["near"]
        return near if str(stored["digest"]) == digest else None
