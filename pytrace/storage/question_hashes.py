"""Hashes of the questions that a file of weights was learned from, in a file next to it.

The list of ``weights.json`` is ``weights.questions.json``: the sorted hashes, the command that made them, and a checksum of these and the
weights, so that a list is never taken for that of other weights. An evaluation counts with it how many of its questions the weights have seen. Questions themselves are not stored.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from pytrace.errors import DataError
from pytrace.storage.files import atomic_output
from pytrace.storage.foreign_json import read_json

HASH_DIGITS = 16
"""Hexadecimal digits of a hash, 64 bits: two of 100,000 other questions and 1,000 listed ones collide with probability 5e-12."""

_Hash = Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{HASH_DIGITS}}}$")]


class QuestionHashes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a list: SHA-256 of the weights' file and of all else, the command that made the list, and sorted hashes."""

    sha256: str
    made_by: str
    hashes: tuple[_Hash, ...]


def question_hash(question: str) -> str:
    r"""Return the hash of a question: 16 hexadecimal digits, the same for any case, white space and Unicode form.

    Examples
    --------
    >>> question_hash("Where is Ada Foah?") == question_hash("  where is ADA\nFOAH? ")
    True
    """
    # Case folding may undo the normal form, so it is taken again. Of all characters only ı differs from its capital then.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", question).casefold())
    return hashlib.sha256(" ".join(folded.split()).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def hashes_path(weights: Path) -> Path:
    """Return where the list of a file of weights is."""
    return weights.with_suffix(".questions.json")


def save_question_hashes(
    weights: Path, questions: Iterable[str], *, made_by: str, earlier: Collection[str] = ()
) -> Path:
    """Write the list of a file of weights, which must be on the disk already, and return its path.

    Parameters
    ----------
    weights
        The file of weights.
    questions
        Texts of the questions or claims, in any order.
    made_by
        The command that learned the weights.
    earlier
        Hashes of the list of the weights that the learning started from.

    Raises
    ------
    StoreError
        The list cannot be written; one of before is then unchanged.
    """
    hashes = sorted({*map(question_hash, questions), *earlier})
    listed = QuestionHashes(_digest(weights, made_by, hashes), made_by, tuple(hashes))
    path = hashes_path(weights)
    with atomic_output(path) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(listed), indent=1) + b"\n")
    return path


def load_question_hashes(weights: Path, *, remedy: str = "learn the weights again") -> frozenset[str] | None:
    """Read the list of a file of weights.

    Parameters
    ----------
    weights
        The file of weights.
    remedy
        Advice for the error message.

    Returns
    -------
    frozenset of str or None
        The hashes; None if there is no list, as next to weights of earlier versions.

    Raises
    ------
    DataError
        The list is malformed, or is that of other weights.
    """
    path = hashes_path(weights)
    try:
        listed = read_json(path, QuestionHashes)
        digest = _digest(weights, listed.made_by, listed.hashes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"is not a list of question hashes ({error}); {remedy}", path=path) from None
    if listed.sha256 != digest:
        raise DataError(
            f"is damaged or the list of other weights than {weights.name}: its SHA-256 is {digest:.16}…, not {listed.sha256:.16}…; {remedy}",
            path=path,
        )
    return frozenset(listed.hashes)


def _digest(weights: Path, made_by: str, hashes: Sequence[str]) -> str:
    with weights.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    digest.update("\n".join([made_by, *hashes]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
