"""Plans one decode of many sequences: what is in memory already is shared, what several share is decoded once.

The sequences of a round are sorted by their tokens, so that those with a common beginning stand together. A token of a
common beginning goes into the batch once and belongs to all of its sequences; llama.cpp then keeps one cell for it. What
an earlier sequence left in memory is taken over by a copy of cell references, which costs nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


def sort_key(tokens: Tokens) -> bytes:
    """Bytes whose order is the tokens' order (big-endian, so that bytes compare as numbers do)."""
    return tokens.astype(">u4").tobytes()


def common_prefix(first: Tokens, second: Tokens) -> int:
    """Return how many tokens two sequences share from the beginning."""
    size = min(len(first), len(second))
    different = np.flatnonzero(first[:size] != second[:size])
    return int(different[0]) if len(different) else size


@dataclass(slots=True)
class Resident:
    """A sequence whose keys and values are in memory; `used` orders residents by last use."""

    sequence: int
    tokens: Tokens
    used: int = 0
    key: bytes = b""

    def __post_init__(self) -> None:
        """Make the sort key once."""
        self.key = sort_key(self.tokens)


@dataclass(slots=True)
class Work:
    """A sequence to evaluate: `tokens`, with logits wanted from position `first_wanted` to the last one.

    `room` is how many generated tokens may follow, `keep` how many tokens are worth keeping in memory afterwards.
    """

    tokens: Tokens
    first_wanted: int
    room: int = 0
    keep: int = 0
    sequence: int = -1
    key: bytes = b""

    def __post_init__(self) -> None:
        """Make the sort key once."""
        self.key = sort_key(self.tokens)


@dataclass(slots=True)
class Segment:
    """Tokens `start` to `end` of `works[owner]`, which belong to all of `members` (indices into the round's works)."""

    owner: int
    start: int
    end: int
    members: list[int]


@dataclass(slots=True)
class Plan:
    """What a round decodes: for every work the resident to take over and how far, then the segments in order."""

    sources: list[tuple[int, int]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that will be evaluated."""
        return sum(segment.end - segment.start for segment in self.segments)


def match_residents(works: list[Work], residents: list[Resident]) -> list[tuple[int, int]]:
    """Find for every work the resident with the longest common beginning: (its sequence or -1, tokens shared).

    `works` are sorted. In the sorted union the best resident stands next to the work on one side, so two passes do. The
    token whose logits are wanted first is never taken over: its logits must be computed again.
    """
    entries: list[tuple[bytes, int, int, Tokens]] = [
        (work.key, 1, index, work.tokens) for index, work in enumerate(works)
    ]
    entries += [(resident.key, 0, resident.sequence, resident.tokens) for resident in residents]
    entries.sort(key=lambda entry: entry[:3])
    shared = [0] + [common_prefix(entries[i - 1][3], entries[i][3]) for i in range(1, len(entries))]
    best = [(-1, 0)] * len(works)
    for order in (range(len(entries)), range(len(entries) - 1, -1, -1)):
        sequence, run, previous = -1, 0, -1
        for i in order:
            if previous >= 0:
                run = min(run, shared[max(i, previous)])
            previous = i
            _, is_work, index, tokens = entries[i]
            if not is_work:
                sequence, run = index, len(tokens)
            elif sequence >= 0 and run > best[index][1]:
                best[index] = (sequence, run)
    return [
        (sequence, size) if (size := min(run, work.first_wanted)) > 0 else (-1, 0)
        for work, (sequence, run) in zip(works, best, strict=True)
    ]


def plan_round(works: list[Work], residents: list[Resident]) -> Plan:
    """Plan the decode of sorted works beside what is in memory."""
    sources = match_residents(works, residents)
    shared = [0] + [common_prefix(works[i - 1].tokens, works[i].tokens) for i in range(1, len(works))]
    # llama.cpp decodes a token for several sequences only if they are equally long so far; where two works share more
    # than is taken over for one of them, both take over as much as the lesser.
    for order in (range(1, len(works)), range(len(works) - 1, 0, -1)):
        for i in order:
            least = min(sources[i - 1][1], sources[i][1])
            if least < shared[i]:
                for j in (i - 1, i):
                    sources[j] = (sources[j][0], least) if least else (-1, 0)
    plan = Plan(sources=sources)
    for i, work in enumerate(works):
        start = max(shared[i], sources[i][1]) if i else sources[i][1]
        # followers[k]: how far work i + 1 + k shares work i's tokens, never increasing
        followers: list[int] = []
        run = len(work.tokens)
        for j in range(i + 1, len(works)):
            run = min(run, shared[j])
            if run <= start:
                break
            followers.append(run)
        while start < len(work.tokens):
            while followers and followers[-1] <= start:
                followers.pop()
            end = followers[-1] if followers else len(work.tokens)
            plan.segments.append(Segment(i, start, end, [i, *range(i + 1, i + 1 + len(followers))]))
            start = end
    return plan


def cells_used(residents: list[Resident]) -> int:
    """Count the cells that residents hold, a shared beginning counted once."""
    ordered = sorted(residents, key=lambda resident: resident.key)
    total = sum(len(resident.tokens) for resident in ordered)
    return total - sum(common_prefix(before.tokens, after.tokens) for before, after in itertools.pairwise(ordered))
