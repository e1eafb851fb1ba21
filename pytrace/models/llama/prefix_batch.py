"""Plans one decode of many sequences: what is in memory already is shared, what several share is decoded once.

The sequences of a round are sorted by their tokens, so that those with a common prefix stand together. A token of a
common prefix goes into the batch once and belongs to all of its sequences; llama.cpp then keeps one cell for it. What
an earlier sequence left in memory is taken over by a copy of cell references, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytrace.models.llama.prefix_trie import Tokens, common_prefix


def sort_key(tokens: Tokens) -> bytes:
    """Bytes whose order is the tokens' order (big-endian, so that bytes compare as numbers do)."""
    return tokens.astype(">u4").tobytes()


# Equal tokens do not make two sequences one: each is itself alone.
@dataclass(slots=True, eq=False)
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
    """What a round decodes: for every work the sequence to take over and how far, then the segments in order."""

    sources: list[tuple[int, int]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)


def plan_round(works: Sequence[Work], sources: Sequence[tuple[int, int]]) -> Plan:
    """Plan the decode of sorted works."""
    # `sources` has for each the sequence in memory whose prefix it may take over (-1: none) and how many tokens of
    # it.
    sources = list(sources)
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
