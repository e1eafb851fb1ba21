"""Global alignment of two sequences, or of many candidate paths with all of their reference paths in one call.

Symbols are any hashable objects or integers; steps may also be compared by a matrix of scores (embedding similarity,
for instance) or by a C function. Gaps are linear or affine. Everything runs in the compiled core without the GIL.
"""

from __future__ import annotations

import ctypes
from _ctypes import CFuncPtr
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytrace import _core
from pytrace.kernels import devices
from pytrace.kernels.devices import thread_limit

# Bytes of scores that one traceback keeps; a larger table is read back by divide and conquer in linear memory.
TRACE_BYTES = 64 * 2**20

Symbols: TypeAlias = Sequence[Hashable] | NDArray[Any]
Score: TypeAlias = ArrayLike | Any
"""A matrix, or a compiled function with a C address: `numba.cfunc` makes them, and so does ctypes."""


class Alignment(msgspec.Struct, frozen=True, eq=False):
    """A global alignment: `a` and `b` with blanks put in, so that both have the same length.

    `a_indices` and `b_indices` (int64) say which symbol stands in each column, -1 for a blank. `matches` counts the
    columns of two equal symbols and `identity` is their share of all columns (1.0 for two empty sequences).
    """

    score: float
    a: list[Any]
    b: list[Any]
    identity: float
    matches: int
    a_indices: NDArray[np.int64]
    b_indices: NDArray[np.int64]


class Ragged(NamedTuple):
    """Many sequences in one array: sequence i is `values[offsets[i]:offsets[i + 1]]`."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]


class CandidateAlignment(NamedTuple):
    """One candidate's part of a `BatchAlignment`, whose fields it has; steps are None unless they were asked for."""

    best: int
    score: float
    matches: int
    length: int
    identity: float
    candidate_steps: NDArray[np.int64] | None
    reference_steps: NDArray[np.int64] | None


class BatchAlignment(msgspec.Struct, frozen=True, eq=False):
    """The best alignment of every candidate; each array has one value a candidate.

    It has a length and is iterated candidate by candidate, as `CandidateAlignment`.

    `best` (int64) is the reference it scored best with, as an index into all references, -1 without any; `scores`
    (float64, -inf without any), `matches` and `lengths` (int64: equal pairs, columns) describe that alignment.
    If asked for, the columns of candidate i are `candidate_steps[offsets[i]:offsets[i + 1]]` beside the same slice of
    `reference_steps`: positions within the candidate and within its best reference, -1 for a blank.
    """

    best: NDArray[np.int64]
    scores: NDArray[np.float64]
    matches: NDArray[np.int64]
    lengths: NDArray[np.int64]
    candidate_steps: NDArray[np.int64] | None = None
    reference_steps: NDArray[np.int64] | None = None
    offsets: NDArray[np.int64] | None = None

    @property
    def identity(self) -> NDArray[np.float64]:
        """Share of columns with equal symbols: 1.0 where two empty paths meet, 0.0 without references."""
        # Two empty paths agree in all of their no columns, and without a reference there is nothing to agree with.
        empty = np.where(self.best < 0, 0.0, 1.0)
        return np.divide(self.matches, self.lengths, out=empty, where=self.lengths > 0)

    def __len__(self) -> int:
        """Return how many candidates there are."""
        return len(self.best)

    def __iter__(self) -> Iterator[CandidateAlignment]:
        """Go through the candidates; arrays on a card are brought to the host."""
        given = [getattr(self, field) for field in self.__struct_fields__]
        arrays: list[Any] = [None if array is None else devices.to_host(array) for array in given]
        host = BatchAlignment(*arrays)
        steps: list[tuple[Any, ...]] = [(None, None)] * len(host)
        if host.candidate_steps is not None and host.reference_steps is not None and host.offsets is not None:
            pieces = (np.split(side, host.offsets[1:-1]) for side in (host.candidate_steps, host.reference_steps))
            steps = list(zip(*pieces, strict=True))[: len(host)]
        columns = (host.best, host.scores, host.matches, host.lengths, host.identity)
        for *values, step in zip(*(column.tolist() for column in columns), steps, strict=True):
            yield CandidateAlignment(*values, *step)


def needleman_wunsch(
    a: Symbols,
    b: Symbols,
    *,
    match: float = 1.0,
    mismatch: float = -1.0,
    gap: float = -1.0,
    gap_open: float | None = None,
    score: Score | None = None,
    blank: Any = None,
    trace_bytes: int = TRACE_BYTES,
) -> Alignment:
    """Align two sequences globally, with the best total score.

    Parameters
    ----------
    a, b
        Sequences of hashable symbols (list, tuple, str, …) of length n and m, or integer arrays of shape [n] and [m],
        which are copied. Two symbols are equal if they have the same hash and compare equal.
    match, mismatch
        What a column of two equal, or two different, symbols scores.
    gap
        What a blank scores.
    gap_open
        What the first blank of a run scores, if that is not `gap`: a run of L blanks scores
        ``gap_open + (L - 1) * gap``. It may not be above `gap`.
    score
        Decides what pairs score in place of `match` and `mismatch`. Either an array [n, m], where ``score[i, j]`` is
        for ``a[i]`` beside ``b[j]`` and -inf forbids the pair; or a C function of two int32 symbols that returns a
        double (a `numba.cfunc`, or a ctypes function with ``argtypes`` and ``restype`` set), called without any Python
        in the loop. It must be a pure function; its symbols must be 32-bit integers.
    blank
        What stands in `Alignment.a` and `Alignment.b` where a sequence has no symbol.
    trace_bytes
        Memory for the table of scores. A larger problem is solved in linear memory, at about twice the work, and gives
        the very same alignment.

    Returns
    -------
    Alignment
        Where several alignments score the same, the one that a traceback from the end meets first, taking a pair
        before a symbol of `a` beside a blank ("up"), and that before a symbol of `b` beside a blank ("left").

    Raises
    ------
    ValueError
        A parameter or a score is NaN, infinite or above 1e150 in size; `score` has another shape than [n, m];
        `gap_open` is above `gap`.
    TypeError
        A symbol is not hashable, or is no 32-bit integer where a C function wants one.

    Notes
    -----
    Time is O(n m). Whole-number parameters run on vectors of 16- or 32-bit integers and are exact; others in double.
    S. Needleman and C. Wunsch, "A general method applicable to the search for similarities in the amino acid sequence
    of two proteins", 1970; O. Gotoh, "An improved algorithm for matching biological sequences", 1982 (affine gaps);
    D. Powell, L. Allison and T. Dix, "A versatile divide and conquer technique for optimal string alignment", 1999.

    Examples
    --------
    >>> found = needleman_wunsch(["born in", "capital of"], ["born in", "part of", "capital of"])
    >>> found.score, found.a, found.identity
    (1.0, ['born in', None, 'capital of'], 0.6666666666666666)
    """
    opening = gap if gap_open is None else gap_open
    matrix, function = (None, 0) if score is None else _score_arguments(score)
    try:
        total, aligned_a, aligned_b, matches, a_indices, b_indices = _core.align_pair(
            a, b, match, mismatch, gap, opening, matrix, function, blank, trace_bytes
        )
    except TypeError as error:
        raise _named(error, match, mismatch, gap, opening) from None
    identity = matches / len(aligned_a) if aligned_a else 1.0  # two empty sequences are the same
    return Alignment(total, aligned_a, aligned_b, identity, matches, a_indices, b_indices)


def alignment_score(
    a: Symbols,
    b: Symbols,
    *,
    match: float = 1.0,
    mismatch: float = -1.0,
    gap: float = -1.0,
    gap_open: float | None = None,
    score: Score | None = None,
) -> float:
    """Return the score of the best global alignment alone, in memory linear in the lengths.

    Arguments, errors and the score are those of `needleman_wunsch`.

    Examples
    --------
    >>> alignment_score("paths", "path", gap=-2)
    2.0
    """
    opening = gap if gap_open is None else gap_open
    matrix, function = (None, 0) if score is None else _score_arguments(score)
    try:
        return _core.alignment_score(a, b, match, mismatch, gap, opening, matrix, function)
    except TypeError as error:
        raise _named(error, match, mismatch, gap, opening) from None


def edit_distance(a: Symbols, b: Symbols) -> int:
    """Count the insertions, deletions and substitutions that turn one sequence into the other, at least.

    This is the Levenshtein distance, between 0 and the longer length. Raises `TypeError` where a symbol is not hashable, or
    an argument is no sequence.

    Notes
    -----
    G. Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic programming", 1999, in
    blocks of 64 rows (H. Hyyrö, 2003): O(n m / 64).

    Examples
    --------
    >>> edit_distance("kitten", "sitting")
    3
    """
    return _core.edit_distance(a, b)


def align_batch(
    candidates: Ragged | Sequence[Symbols],
    references: Ragged | Sequence[Symbols],
    groups: ArrayLike | None = None,
    *,
    match: float = 1.0,
    mismatch: float = -1.0,
    gap: float = -1.0,
    gap_open: float | None = None,
    score: Score | None = None,
    steps: bool = False,
    threads: int | None = None,
    device: str | None = None,
) -> BatchAlignment:
    """Align every candidate path with all of its reference paths and keep the best, in one call.

    Parameters
    ----------
    candidates, references
        Either `Ragged` integer arrays, which are copied, or sequences of sequences of hashable symbols. Integers
        outside 32 bits are renumbered.
    groups
        int64 [n + 1] for n candidates: candidate i has the references ``groups[i]`` up to ``groups[i + 1]``. Left out,
        there is one reference a candidate.
    match, mismatch, gap, gap_open
        As in `needleman_wunsch`.
    score
        Either an array where ``score[x, y]`` is for symbol x of a candidate beside symbol y of a reference (number
        the steps from 0 and give their similarities), or a C function as in `needleman_wunsch`, which must be safe to
        call from several threads. Both need integer symbols.
    steps
        Whether to return the columns of the best alignments too.
    threads
        Threads to use; by default `pytrace._core.num_threads()`. The result does not depend on it.
    device
        Where to compute: see `pytrace.kernels.devices`. On a card symbols must be int32; offsets, and with `score` the
        symbols and the matrix, are brought to the host and checked there. The result is the very same.

    Returns
    -------
    BatchAlignment
        Where references tie, the first is kept. Its arrays are on a card if the values or `score` are there.

    Raises
    ------
    ValueError
        Offsets that do not start at 0, go back or end elsewhere than the values; groups that do not fit the
        candidates; a symbol outside `score`; `threads` below 1; or as in `needleman_wunsch`.
    TypeError
        Values that are no integers; symbols that are not hashable; a C function as `score` on a card.

    Notes
    -----
    This is Algorithm 3 (fine-grained path evaluation) of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning
    with Knowledge Graphs", appendix C.3, for a whole file of responses. With ``match=0, mismatch=-1, gap=-1`` a score is
    minus the edit distance.

    Examples
    --------
    >>> paths = [["born in", "capital of"], ["wrote"]]
    >>> gold = [["born in", "part of", "capital of"], ["born in"], ["directed"]]
    >>> found = align_batch(paths, gold, [0, 2, 3], match=0)
    >>> found.best.tolist(), found.scores.tolist()
    ([0, 2], [-1.0, -1.0])
    >>> [(path.best, path.score, path.identity) for path in found]
    [(0, -1.0, 0.6666666666666666), (2, -1.0, 0.0)]
    """
    inputs = (*(paths.values for paths in (candidates, references) if isinstance(paths, Ragged)), score)
    # Offsets do not say where a batch runs: they are brought to the host in any case.
    card = devices.card_of(device, *inputs)
    matrix, function = (None, 0) if score is None else _score_arguments(score)
    if card is not None and function:
        raise TypeError("score is a C function, which a card cannot call; compute a matrix of its values first")
    # Checked on a card, too, where it changes nothing.
    workers = thread_limit(threads)
    first, second = _as_ragged(candidates, references, keep_values=score is not None)
    group_offsets = np.arange(len(first.offsets), dtype=np.int64) if groups is None else _offsets(groups, "groups")
    if groups is None and len(second.offsets) != len(first.offsets):
        raise ValueError(
            f"there are {len(first.offsets) - 1} candidates and {len(second.offsets) - 1} references; "
            "give groups to say which references each candidate has"
        )
    paths = (first.values, first.offsets, second.values, second.offsets, group_offsets)
    costs = (match, mismatch, gap, gap if gap_open is None else gap_open)
    try:
        if card is None:
            return BatchAlignment(*_core.align_batch(*paths, *costs, matrix, function, workers, steps))
        arrays = devices.cuda_module().align_batch(*paths, *costs, matrix, steps, card)
    except TypeError as error:
        raise _named(error, *costs) from None
    return BatchAlignment(*(devices.results(array, *inputs) for array in arrays))


def _named(error: TypeError, *costs: object) -> TypeError:
    """Name the cost that is no number, which the binding's own message does not."""
    # Only after a failure: to look at four costs before every call would be felt in a pair of short paths.
    for name, value in zip(("match", "mismatch", "gap", "gap_open"), costs, strict=True):
        if not isinstance(value, float | int | np.number):
            return TypeError(f"{name} must be a number, not {value!r}")
    return error


def _score_arguments(score: Score) -> tuple[NDArray[np.float64] | None, int]:
    """Tell a matrix from a C function, which the kernel calls without Python: return (matrix, 0) or (None, address)."""
    if devices.on_card(score):
        return cast("NDArray[np.float64]", score), 0
    # A Python function would need the GIL for every cell of the table, so only compiled ones are taken.
    # numba.cfunc keeps its ctypes function, with its types, under this name; so does a NumPy array, as something else.
    foreign = score if isinstance(score, CFuncPtr) else getattr(score, "ctypes", None)
    if isinstance(foreign, CFuncPtr):
        if foreign.restype is not ctypes.c_double or tuple(foreign.argtypes or ()) != (ctypes.c_int32,) * 2:
            raise TypeError("a score function must take two int32 and return a double; set its argtypes and restype so")
        address = ctypes.cast(foreign, ctypes.c_void_p).value or 0
    elif hasattr(score, "address"):
        address = score.address
    elif callable(score):
        raise TypeError(
            "score must be a matrix or a compiled C function (numba.cfunc, ctypes), not a Python function; "
            "compute a matrix with it first"
        )
    else:
        matrix = np.asarray(score)
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"score must be an array of numbers, not of {matrix.dtype}")
        return np.ascontiguousarray(matrix, dtype=np.float64), 0
    # The kernel would jump there: a wrong address ends the process, without any message.
    if not isinstance(address, int) or address <= 0:
        raise ValueError(f"the score function's address is {address!r}, which is no function")
    return None, address


def _as_ragged(
    candidates: Ragged | Sequence[Symbols], references: Ragged | Sequence[Symbols], *, keep_values: bool
) -> tuple[Ragged, Ragged]:
    if isinstance(candidates, Ragged) and isinstance(references, Ragged):
        return _narrowed(candidates, references, keep_values=keep_values)
    if isinstance(candidates, Ragged) or isinstance(references, Ragged):
        raise TypeError("candidates and references must both be Ragged arrays, or neither")
    if keep_values:
        raise TypeError("with score, candidates and references must be Ragged integer arrays")
    # Both sides in one call, so that equal symbols get equal numbers.
    first, second = _core.intern_paths(candidates, references)
    return Ragged(*first), Ragged(*second)


def _narrowed(candidates: Ragged, references: Ragged, *, keep_values: bool) -> tuple[Ragged, Ragged]:
    """Return both sides with 32-bit symbols, which the core compares in vectors; larger ones are renumbered."""
    sides = {"candidates": candidates, "references": references}
    hint = "; give lists of symbols to have them numbered"
    arrays = [_integers(paths.values, f"{name}' values", hint) for name, paths in sides.items()]
    wide = [name for name, array in zip(sides, arrays, strict=True) if not _fits_int32(array)]
    if wide and any(map(devices.on_card, arrays)):
        raise ValueError(
            f"{wide[0]}' values must fit in 32 bits where the others lie on a card; number the symbols first"
        )
    if wide and keep_values:
        raise ValueError("symbols that score reads must fit in 32 bits; number them from 0")
    if wide:
        if arrays[0].dtype.kind != arrays[1].dtype.kind:  # NumPy would join int64 and uint64 as float64
            arrays = [array.astype(object) for array in arrays]
        _, numbers = np.unique(np.concatenate(arrays), return_inverse=True)
        arrays = np.split(numbers, [len(arrays[0])])
    first, second = (
        Ragged(
            array if devices.on_card(array) else np.ascontiguousarray(array, dtype=np.int32),
            _offsets(paths.offsets, f"{name}' offsets"),
        )
        for (name, paths), array in zip(sides.items(), arrays, strict=True)
    )
    return first, second


def _integers(values: ArrayLike, name: str, hint: str = "") -> NDArray[Any]:
    """Return an integer array of one dimension; one on a card is left there, and checked by the binding."""
    if devices.on_card(values):
        return cast("NDArray[Any]", values)
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} have {array.ndim} dimensions, not 1")
    if array.dtype.kind not in "iu" and not (hint and array.size == 0):  # NumPy takes an empty list for floats
        raise TypeError(f"{name} must be integers, not {array.dtype}{hint}")
    return array


def _fits_int32(values: NDArray[Any]) -> bool:
    # A card's values stay there, unseen; the binding takes int32 alone and says so.
    if devices.on_card(values) or values.dtype == np.int32 or values.size == 0:
        return True
    limits = np.iinfo(np.int32)
    return bool(values.min() >= limits.min and values.max() <= limits.max)


def _offsets(offsets: ArrayLike, name: str) -> NDArray[np.int64]:
    array = _integers(offsets, name)
    return array if devices.on_card(array) else np.ascontiguousarray(array, dtype=np.int64)
