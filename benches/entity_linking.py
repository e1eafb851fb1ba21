"""Mentions linked among 10^6 labels: how often the entity meant is found, and the time a mention, the encoder's included.

Names are made as in `benches.entity_index`, from the words of a knowledge base. A quarter of the entities of that knowledge
base with two triples and more share a made name with others, two to five of them one name, and have no other. Every other entity
is made up, with three triples whose relations are the knowledge base's. Mentions are

- names of made entities with one or two typos, from a context that says nothing of them;
- names that several share, from a question that names any one triple of the entity meant, of which the store shows a few;
- the same from PathQuestion's questions, which name no more of the entity than its relations.

Recall is the share of mentions whose entity is linked first, or linked at all. Beside it stands what letters alone give. Each
mention is linked alone, and then all together, which must give the same. That is timed with an encoder that remembers no text,
and alone once more with one that, as it does by default, knows the texts that it met before: what the store says of the
entities, but not the contexts. There the goal is less than 20 ms a mention in the median.

    python -m benches.entity_linking --kg 2H-kb.tsv --questions PQ-2H.txt
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benches.entity_index import made_names, with_typos
from pytrace import _core
from pytrace.bench.machine import facts
from pytrace.certify.gold_paths import read_questions
from pytrace.errors import VerificationError
from pytrace.kg.fact_store import EntityMatch, LabelIndex, Relation
from pytrace.kg.graph_sources import read_source
from pytrace.kg.linking import EntityLinker, Link
from pytrace.kg.names import entity_name, relation_name
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.records import Triple

GOAL_MS = 20.0
# Where embeddings and letters tie, the order in which mentions come together with others may decide.
SAME = 1e-3


class Mention(NamedTuple):
    """A mention, the text it is from, and the entity meant."""

    mention: str
    context: str
    key: str


class MadeStore:
    """A store of which only the names of entities are held; the triples of made ones are made when they are asked for."""

    def __init__(self, names: Sequence[str], real: dict[str, list[Triple]], labels: dict[str, str]) -> None:
        self._names = names
        self._real = real
        self._labels = labels
        self._relations = sorted({triple.relation for triples in real.values() for triple in triples})
        self.index = LabelIndex.of(self._pairs())

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield from self._labels.items()
        yield from ((f"#{number}", name) for number, name in enumerate(self._names))

    def relations(self) -> tuple[Relation, ...]:
        return tuple(Relation(key, relation_name(key)) for key in self._relations)

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        return [self.index.find(mention, limit=limit, cutoff=cutoff) for mention in mentions]

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        return [tuple(self._real[key] if key in self._real else self._made(key))[:limit] for key in keys]

    def _made(self, key: str) -> list[Triple]:
        draw = random.Random(key)
        return [Triple(key, draw.choice(self._relations), f"#{draw.randrange(len(self._names))}") for _ in range(3)]

    def names(self, keys: Sequence[str]) -> list[str]:
        return [
            self._labels.get(key) or (self._names[int(key[1:])] if key.startswith("#") else entity_name(key))
            for key in keys
        ]


def shared_labels(real: dict[str, list[Triple]], names: Iterator[str], draw: random.Random) -> dict[str, str]:
    """Give every fourth entity that has two triples and more a name that two to five of them share."""
    some = sorted(key for key, triples in real.items() if len(triples) > 1)
    chosen = draw.sample(some, len(some) // 4)
    labels: dict[str, str] = {}
    while len(chosen) > 1:
        size = min(draw.randint(2, 5), len(chosen))
        name = next(names)
        labels.update((chosen.pop(), name) for _ in range(size))
    return labels


def asked_by_a_triple(
    real: dict[str, list[Triple]], labels: dict[str, str], draw: random.Random, count: int
) -> list[Mention]:
    mentions = []
    for key in draw.sample(sorted(labels), min(count, len(labels))):
        triple = draw.choice(real[key])
        relation, mention = relation_name(triple.relation), labels[key]
        head, tail = (labels.get(each) or entity_name(each) for each in (triple.head, triple.tail))
        question = (
            f"which {mention} has the {relation} {tail} ?"
            if triple.head == key
            else f"which {mention} is the {relation} of {head} ?"
        )
        mentions.append(Mention(mention, question, key))
    return mentions


def asked_by_questions(path: Path, labels: dict[str, str], draw: random.Random, count: int) -> list[Mention]:
    mentions = []
    for question in read_questions(path):
        for topic in question.topics:
            name = entity_name(topic)
            if topic in labels and name in question.question:
                mentions.append(Mention(labels[topic], question.question.replace(name, labels[topic]), topic))
    return draw.sample(mentions, min(count, len(mentions)))


def verify(alone: Sequence[list[Link]], together: Sequence[list[Link]]) -> None:
    """Check that a mention means the same alone and among others.

    Raises
    ------
    VerificationError
        It does not.
    """
    for one, other in zip(alone, together, strict=True):
        scores, others = ({link.key: link.score for link in links} for links in (one, other))
        if any(abs(scores[key] - others[key]) > SAME for key in scores.keys() & others.keys()):
            raise VerificationError(f"alone {one} was found, but {other} among other mentions")


def one_by_one(linker: EntityLinker, mentions: Sequence[Mention]) -> tuple[list[list[Link]], list[float]]:
    found, seconds = [], []
    for one in mentions:
        start = time.perf_counter()
        found += linker.link([one.mention], [one.context])
        seconds.append(time.perf_counter() - start)
    return found, seconds


def measure(
    linker: EntityLinker, remembering: EntityLinker, letters: EntityLinker, mentions: Sequence[Mention]
) -> dict[str, float]:
    alone, seconds = one_by_one(linker, mentions)
    remembering.link([one.mention for one in mentions], [f"{one.context} so ?" for one in mentions])
    again, seconds_again = one_by_one(remembering, mentions)
    verify(alone, again)
    start = time.perf_counter()
    together = linker.link([one.mention for one in mentions], [one.context for one in mentions])
    whole = time.perf_counter() - start
    verify(alone, together)
    start = time.perf_counter()
    by_letters = letters.link([one.mention for one in mentions], [one.context for one in mentions])
    looked_up = time.perf_counter() - start

    def share(found: Sequence[list[Link]], first: int) -> float:
        meant = zip(mentions, found, strict=True)
        return sum(one.key in [link.key for link in links[:first]] for one, links in meant) / len(mentions)

    return {
        "mentions": len(mentions),
        "first": share(alone, 1),
        "at all": share(alone, 5),
        "letters alone first": share(by_letters, 1),
        "letters alone at all": share(by_letters, 5),
        "encoded": sum(any(link.context is not None for link in links) for links in alone) / len(mentions),
        "alternatives": statistics.mean(map(len, alone)),
        "ms": statistics.median(seconds_again) * 1e3,
        "worst ms": max(seconds_again) * 1e3,
        "ms of the first time": statistics.median(seconds) * 1e3,
        "worst ms of the first time": max(seconds) * 1e3,
        "ms together": whole / len(mentions) * 1e3,
        "ms of letters": looked_up / len(mentions) * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kg", type=Path, required=True, help="a knowledge graph whose names lend their words")
    parser.add_argument("--questions", type=Path, help="PathQuestion's questions about it")
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--mentions", type=int, default=200, help="of each kind")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--context-weight", type=float, default=0.3)
    parser.add_argument("--near", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    real: dict[str, list[Triple]] = defaultdict(list)
    for triple in read_source(arguments.kg).triples:
        for key in {triple.head, triple.tail}:
            real[key].append(triple)
    names = made_names(arguments.kg, arguments.labels, draw)
    labels = shared_labels(real, iter(names.pop, None), draw)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    store = MadeStore(names, real, labels)
    built = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    directory = registry.resolve(arguments.encoder, "encoder")

    def linker(encoder: OnnxEncoder) -> EntityLinker:
        encoder.encode(["warm up"])
        return EntityLinker(store, encoder, context_weight=arguments.context_weight, near=arguments.near)

    made = draw.sample([number for number, name in enumerate(names) if len(name) >= 5], 2 * arguments.mentions)
    kinds = {
        f"{typos} typos": [
            Mention(with_typos(names[number], typos, draw), f"which one is meant by question {number} ?", f"#{number}")
            for number in made[typos - 1 :: 2]
        ]
        for typos in (1, 2)
    }
    kinds["a shared name beside a triple"] = asked_by_a_triple(real, labels, draw, arguments.mentions)
    if arguments.questions is not None:
        asked = asked_by_questions(arguments.questions, labels, draw, arguments.mentions)
        kinds["a shared name in PathQuestion's questions"] = asked
    linkers = (
        linker(OnnxEncoder(directory, threads=_core.num_threads(), cache_bytes=0)),
        linker(OnnxEncoder(directory, threads=_core.num_threads())),
        EntityLinker(store, None),
    )
    results = {kind: measure(*linkers, mentions) for kind, mentions in kinds.items()}
    told = {
        "labels": len(store.index.labels),
        "keys": len(store.index.keys),
        "seconds to build": built,
        "MiB": index_bytes(store.index) / 2**20,
        "MiB more at the peak of building": grown / 2**10,
        "threads": _core.num_threads(),
        "seed": arguments.seed,
        "command": f"python -m benches.entity_linking {' '.join(sys.argv[1:])}",
        "machine": facts(_core.num_threads()),
        "kinds": results,
    }
    if arguments.json:
        print(msgspec.json.encode(told).decode())
    else:
        for key, value in told.items():
            if key != "kinds":
                print(f"{key}: {value}")
        for kind, row in results.items():
            print(kind, *(f"{key} {value:.3g}" for key, value in row.items()), sep="  ")
    met = all(row["ms"] < GOAL_MS for row in results.values())
    print(f"goal met: {met}", file=sys.stderr)
    return 0 if met else 1


def index_bytes(labels: LabelIndex) -> int:
    """Count the bytes of all arrays of an index."""
    inner = labels.index
    tables = sum(table.data.nbytes + table.ends.nbytes for table in (labels.labels, labels.keys, inner.forms))
    numbers = sum(
        array.nbytes for array in (labels.ends, labels.owners, inner.rows, inner.ends, inner.entities, inner.sizes)
    )
    return tables + numbers + inner.hashes.nbytes


if __name__ == "__main__":
    sys.exit(main())
