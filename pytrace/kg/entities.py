"""Entities by roughly what they are called: a name with typos, missing words or another order finds those meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kernels.fuzzy import cdist, ratio
from pytrace.kg.names import normal_form
from pytrace.kg.text_table import TextTable, text_hash

# Words and trigrams are hashed to some times as many buckets as there are names, up to more than the trigrams of any
# alphabet in use, so that few share one; those that do only make more to compare.
_BUCKETS_A_NAME = 8
_LEAST_BITS, _MOST_BITS = 8, 20
# What a longer name shares with others is told by its beginning.
_READ = 256
# Places of the inverted index that a look-up reads, rarest features first, and names that it then scores. Among 10^6 names
# more of either finds no more (benches/entity_index.py); half as many lose one entity of two hundred.
_READ_PLACES = 500_000
_SCORED = 512
# What a score is worth that the names reach only with their words in another order.
_REORDERED = 0.95
# What a word's hash differs by from a trigram's of the same characters.
_WORD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_POWER = np.uint64(0x100000001B3)
_BLANK = 32


class EntityIndex(msgspec.Struct, frozen=True, eq=False):
    """Names in an inverted index of their words and trigrams of characters.

    `forms` are the names' normal forms; `hashes` uint64 [n] ascending are the forms', and `rows` int32 [n] the entities'
    numbers beside them. The names with a feature in bucket b are ``entities[ends[b - 1]:ends[b]]`` (int32, ascending; the
    ends int64, a power of two of them), and `sizes` int32 [n] counts the features of each name.
    """

    forms: TextTable
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int32]
    ends: NDArray[np.int64]
    entities: NDArray[np.int32]
    sizes: NDArray[np.int32]

    @classmethod
    def of(cls, names: Iterable[str]) -> EntityIndex:
        """Index names; entity i has the i-th."""
        forms = [normal_form(name) for name in names]
        hashes = np.fromiter(map(text_hash, forms), dtype=np.uint64, count=len(forms))
        order = np.argsort(hashes, kind="stable")
        bits = min(max((_BUCKETS_A_NAME * len(forms)).bit_length(), _LEAST_BITS), _MOST_BITS)
        buckets, owners = _features(forms, bits)
        # One integer a place sorts several times as fast as two arrays.
        pairs = (buckets.astype(np.uint64) << np.uint64(32)) | owners.astype(np.uint64)
        pairs.sort()
        pairs = pairs[np.diff(pairs, prepend=~pairs[:1]) != 0]
        members = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int32)
        buckets = (pairs >> np.uint64(32)).astype(np.int64)
        return cls(
            forms=TextTable.of(forms),
            hashes=hashes[order],
            rows=order.astype(np.int32),
            ends=np.cumsum(np.bincount(buckets, minlength=1 << bits), dtype=np.int64),
            entities=members,
            sizes=np.bincount(members, minlength=len(forms)).astype(np.int32),
        )

    def find(self, name: str, *, limit: int = 5, cutoff: float = 60.0) -> list[tuple[int, float]]:
        """Find the entities that a name most likely means, each with a score of at least `cutoff`, from 0 to 100, best first.

        Those with the same normal form come first and score 100. Of the others, the ones that share the most and rarest
        words and trigrams are scored by `score`, which bears typos, missing words and another order. Equal ones come by number.
        """
        check_search(limit=limit, cutoff=cutoff)
        form = normal_form(name)
        if not form or not len(self.hashes):
            return []
        matches = [(entity, 100.0) for entity in self._same(form, limit)]
        if len(matches) < limit:
            matches += self._alike(form, limit - len(matches), cutoff)
        return matches

    def _same(self, form: str, limit: int) -> list[int]:
        wanted = np.uint64(text_hash(form))
        first = int(np.searchsorted(self.hashes, wanted))
        last = int(np.searchsorted(self.hashes, wanted, side="right"))
        same = (int(entity) for entity in self.rows[first:last] if self.forms[int(entity)] == form)
        return [entity for entity, _ in zip(same, range(limit), strict=False)]

    def _alike(self, form: str, limit: int, cutoff: float) -> list[tuple[int, float]]:
        near = self._candidates(form)
        if not len(near):
            return []
        forms = [self.forms[entity] for entity in near.tolist()]
        scores = score(form, forms)
        order = np.lexsort((near, -scores))
        return [
            (int(near[row]), float(scores[row]))
            for row in order.tolist()
            if scores[row] >= cutoff and forms[row] != form
        ][:limit]

    def _candidates(self, form: str) -> NDArray[np.int64]:
        """Return the names that share the most with a normal form, rare features counting more."""
        buckets = np.unique(_features([form], len(self.ends).bit_length() - 1)[0])
        starts = np.where(buckets > 0, self.ends[np.maximum(buckets, 1) - 1], 0)
        sizes = self.ends[buckets] - starts
        known = np.flatnonzero(sizes > 0)
        if not len(known):
            return np.empty(0, dtype=np.int64)
        known = known[np.argsort(sizes[known], kind="stable")]
        fits = int(np.searchsorted(np.cumsum(sizes[known]), _READ_PLACES, side="right"))
        known = known[: max(fits, 1)]
        weights = np.log1p(len(self.sizes) / sizes[known])
        read = [self.entities[starts[bucket] : starts[bucket] + sizes[bucket]] for bucket in known.tolist()]
        shared = np.bincount(np.concatenate(read), weights=np.repeat(weights, sizes[known]))
        some = np.flatnonzero(shared >= shared.max() / 4)
        # Of names that share as much, the one with less of its own is closer.
        likeness = shared[some] / (len(buckets) + self.sizes[some])
        if len(some) > _SCORED:
            some = some[np.argpartition(-likeness, _SCORED - 1)[:_SCORED]]
        return some


def check_search(*, limit: int, cutoff: float = 0.0) -> None:
    """Refuse to look for nothing."""
    if limit < 1:
        raise InputError(f"limit is {limit}; ask for at least 1")
    if not 0 <= cutoff <= 100:
        raise InputError(f"cutoff is {cutoff}; give a score from 0 to 100")


def score(form: str, forms: Sequence[str]) -> NDArray[np.float64]:
    """Score a normal form beside others: the better of `ratio` and 95 % of the `ratio` of the words in sorted order."""
    # `token_set_ratio` would not do: every name that is a part of another scores as high as that name itself, and a
    # mention with a typo finds its untouched words before it finds its entity.
    in_order = cdist([form], forms, scorer=ratio, dtype=np.float64)[0]
    words = [" ".join(sorted(other.split())) for other in forms]
    sorted_words = cdist([" ".join(sorted(form.split()))], words, scorer=ratio, dtype=np.float64)[0]
    scores: NDArray[np.float64] = np.maximum(in_order, sorted_words * _REORDERED)
    return scores


def _features(forms: Sequence[str], bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the buckets, of 2^bits, of all words and trigrams of normal forms, and whose each is."""
    # A trigram may reach over the edge of a word, but not on into the next one, so that the order of words does not
    # matter.
    padded = [f" {form[:_READ]} " for form in forms]
    text = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    middle = np.flatnonzero(text != _BLANK)  # never at an edge, for there are blanks
    if not len(middle):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    owners = np.repeat(np.arange(len(padded)), [len(form) for form in padded])[middle]
    trigrams = ((text[middle - 1] * _MIX + text[middle]) * _MIX + text[middle + 1]) * _MIX
    begins = np.flatnonzero(text[middle - 1] == _BLANK)
    sizes = np.diff(np.append(begins, len(middle)))
    powers = np.full(int(sizes.max()), _POWER, dtype=np.uint64).cumprod(dtype=np.uint64)
    words = np.add.reduceat(text[middle] * powers[np.arange(len(middle)) - np.repeat(begins, sizes)], begins)
    hashes = np.concatenate([trigrams, (words ^ _WORD) * _MIX])
    return (hashes >> np.uint64(64 - bits)).astype(np.int64), np.concatenate([owners, owners[begins]])
