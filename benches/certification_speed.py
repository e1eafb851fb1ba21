"""Certification in one batch beside the plain pipeline, step by step. Bar: 20 times, with equal verdicts.

    python -m benches.certification_speed [--triples 100000] [--responses 10000] [--plain 10000] [--vector-cache DIR] [--json]

10,000 responses of three steps each are checked against 100,000 triples: paths through a graph of made-up people, places and
works, worded in sentences of eight forms; a half as they are, the others with a wrong entity, in a wrong order, or another
question's. The plain pipeline is what one writes from the paper with the usual libraries, and what its authors' program does:
for each step one search in a flat faiss index, RapidFuzz for head and tail of each of the ten triples found, the rules of
Algorithm 2, and RapidFuzz for the edit distance to the gold path. "Batched faiss" is the same but for a search of all steps
at once. Both are given the steps taken apart and the normal forms of all texts; vectors of steps are made before the clock
starts for everybody, and ours takes the responses as they are. `--plain N` measures the plain pipeline on the first N
responses and compares rates. The strict rule, which no peer has, is measured beside it.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.bench import machine
from pytrace.certify.certifier import Certifier, path_end
from pytrace.certify.grounding import GroundingSettings
from pytrace.certify.response_parsing import parse_response
from pytrace.certify.wording import named_path, word_response, word_steps
from pytrace.check_records import Certificate, Path, Response
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.records import Triple

BAR = 20.0
TOP, THRESHOLD = 10, 0.7
FIRST = [
    "Ada",
    "Bela",
    "Cira",
    "Dorian",
    "Edda",
    "Falk",
    "Gero",
    "Hanna",
    "Ilse",
    "Jonas",
    "Kira",
    "Lorin",
    "Mara",
    "Nils",
    "Odo",
    "Petra",
    "Quirin",
    "Runa",
    "Silas",
    "Tova",
]
MIDDLE = [
    "Ash",
    "Brook",
    "Cliff",
    "Dale",
    "Elm",
    "Frost",
    "Grove",
    "Hill",
    "Isle",
    "Jade",
    "Kiln",
    "Lake",
    "Moss",
    "North",
    "Oak",
    "Pine",
    "Quay",
    "Reed",
    "Stone",
    "Thorn",
]
LAST = [
    "Abend",
    "Brant",
    "Corvin",
    "Dusk",
    "Ebers",
    "Farrow",
    "Gant",
    "Holm",
    "Ivers",
    "Jost",
    "Kern",
    "Lund",
    "Marsh",
    "Nord",
    "Olsen",
    "Pryce",
    "Quist",
    "Rask",
    "Stahl",
    "Thal",
]
RELATIONS = (
    "place of birth", "place of death", "spouse", "child", "parent", "employer", "profession", "member of", "country",
    "capital", "author", "composer", "founder", "owner", "publisher", "genre", "award received", "student of", "located in",
    "named after", "headquarters", "architect", "director", "language", "religion", "position held", "influenced by",
    "subsidiary", "sponsor", "neighbour of",
)  # fmt: skip

Vectors = NDArray[np.float32]


class Table:
    """An encoder that looks up vectors made before, so that nothing but the certification is measured."""

    def __init__(self, encoder: OnnxEncoder) -> None:
        self.name, self.fingerprint, self.dimension = encoder.name, encoder.fingerprint, encoder.dimension
        self._encoder = encoder
        self._rows: dict[str, Vectors] = {}

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> Vectors:
        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if missing:
            self._rows.update(zip(missing, self._encoder.encode(missing, kind=kind), strict=True))
        return np.array([self._rows[text] for text in texts])


def make_triples(count: int, drawn: random.Random) -> list[Triple]:
    """Make a graph in which every entity has about eight triples."""
    names = [f"{a} {b}{c}" for a in FIRST for b in MIDDLE for c in (" " + one for one in LAST)]
    names += [
        f"{a}{b.lower()} {c}" for a in MIDDLE for b in LAST for c in ("Hall", "House", "Review", "Valley", "Works")
    ]
    names += [f"{name} {number}" for number in ("II", "III", "IV") for name in names[:8000]]
    drawn.shuffle(names)
    entities = names[: max(count // 4, 8)]
    made: dict[Triple, None] = {}
    while len(made) < count:
        head, tail = drawn.sample(entities, 2)
        made[Triple(head, drawn.choice(RELATIONS), tail)] = None
    return list(made)


def walk(base: KnowledgeBase, drawn: random.Random, steps: int) -> Path | None:
    """Walk along triples, each in its own direction, without coming to an entity twice."""
    entity = drawn.randrange(len(base.columns.entity_keys))
    seen, path = {entity}, []
    for _ in range(steps):
        options = [number for number in base.with_head(entity).tolist() if base.columns.triples[number, 2] not in seen]
        if not options:
            return None
        number = drawn.choice(options)
        entity = int(base.columns.triples[number, 2])
        seen.add(entity)
        path.append(base.triple(number))
    return tuple(path)


def make_responses(base: KnowledgeBase, count: int, drawn: random.Random) -> Iterator[Response]:
    """Write responses with their gold paths: half are right, the others wrong in one of three ways."""
    previous: Path = ()
    made = 0
    while made < count:
        gold = walk(base, drawn, 3)
        if gold is None:
            continue
        told: Sequence[Triple] = gold
        kind = made % 6
        if kind == 3:
            wrong = base.columns.entity_keys[drawn.randrange(len(base.columns.entity_keys))]
            told = (Triple(gold[0].head, gold[0].relation, wrong), *gold[1:])
        elif kind == 4:
            told = (gold[1], gold[0], gold[2])
        elif kind == 5 and previous:
            told = previous
        previous = gold
        steps = word_steps(named_path(base, tuple(told)), seed=drawn.randrange(2**32))
        answer = told[-1].tail
        question = f"Where do the three steps from {gold[0].head} lead?"
        yield Response(str(made), question, word_response(steps, answer), (gold[-1].tail,), (gold,), (gold[0].head,))
        made += 1


class Verdict(NamedTuple):
    """What both must agree on."""

    error: str | None
    triples: tuple[int, ...]
    edit_distance: int


class Plain:
    """The paper's algorithms 1 to 3 with faiss and RapidFuzz, a step at a time."""

    def __init__(self, base: KnowledgeBase, encoder: Table) -> None:
        import faiss
        from rapidfuzz import fuzz
        from rapidfuzz.distance import Indel

        self._edit_distance = Indel.distance
        self._partial_ratio = fuzz.partial_ratio
        self._encoder = encoder
        self._index = faiss.IndexFlatIP(encoder.dimension)
        self._index.add(base.vectors(np.arange(len(base))))
        self._triples = [base.triple(number) for number in range(len(base))]
        self._forms = {name: normal_form(name) for triple in self._triples for name in (triple.head, triple.tail)}

    def certify(self, responses: Sequence[Response], steps: Sequence[Sequence[str]], *, batched: bool) -> list[Verdict]:
        """Judge responses whose steps are taken apart."""
        if batched:
            scores, numbers = self._index.search(self._encoder.encode([step for own in steps for step in own]), TOP)
            found = iter(zip(scores, numbers, strict=True))
        verdicts = []
        for response, own in zip(responses, steps, strict=True):
            best = []
            for step in own:
                if batched:
                    cosines, candidates = next(found)
                else:
                    rows = self._index.search(self._encoder.encode([step]), TOP)
                    cosines, candidates = rows[0][0], rows[1][0]
                best.append(self._ground(step, cosines, candidates))
            verdicts.append(self._judge(response, best))
        return verdicts

    def _ground(self, step: str, cosines: Vectors, candidates: NDArray[np.int64]) -> tuple[float, int]:
        form = normal_form(step)
        best = (-9.0, -1)
        for cosine, number in zip(cosines.tolist(), candidates.tolist(), strict=True):
            triple = self._triples[number]
            head, tail = self._forms[triple.head], self._forms[triple.tail]
            head_ratio = self._partial_ratio(head, form) / 100 * min(1.0, len(form) / len(head))
            tail_ratio = self._partial_ratio(tail, form) / 100 * min(1.0, len(form) / len(tail))
            score = (cosine + head_ratio + tail_ratio) / 3
            if score > best[0]:
                best = (score, number)
        return best

    def _judge(self, response: Response, best: Sequence[tuple[float, int]]) -> Verdict:
        facts = [self._triples[number] if score >= THRESHOLD else None for score, number in best]
        predicted = [
            str(place) if fact is None else " ".join(sorted((fact.head, fact.relation, fact.tail)))
            for place, fact in enumerate(facts)
        ]
        distance = 0
        for path in response.paths:
            gold = [" ".join(sorted((one.head, one.relation, one.tail))) for one in path]
            distance = self._edit_distance(predicted, gold)
        return Verdict(self._error(response, facts), tuple(number for _, number in best), distance)

    def _error(self, response: Response, facts: Sequence[Triple | None]) -> str | None:
        chain = [(fact.head, fact.tail) for fact in facts if fact is not None]
        if len(chain) < len(facts):
            return "factual"
        touched = any(topic in ends for topic in response.topics for ends in chain)
        reached = set(response.topics) if touched else set(chain[0])
        for place, (head, tail) in enumerate(chain):
            if place and {head, tail} == set(chain[place - 1]):
                reached |= {head, tail}
                continue
            onward = ({tail} if head in reached else set()) | ({head} if tail in reached else set())
            if not onward:
                return "incoherent"
            reached = onward
        right = {normal_form(answer) for answer in (*response.answers, *map(path_end, response.paths))}
        return None if touched and right & {normal_form(name) for name in reached} else "answer"


class Timing(msgspec.Struct, frozen=True):
    """Seconds of each repetition, and responses a second at their median."""

    name: str
    responses: int
    seconds: list[float]
    rate: float


class Result(msgspec.Struct, frozen=True):
    """What was measured, and whether the bar was met."""

    triples: int
    steps: int
    timings: list[Timing]
    ratio: float
    ratio_batched: float
    bar: float
    equal: int
    compared: int
    errors: dict[str, int]
    machine: dict[str, Any]


def clocked(name: str, responses: int, repetitions: int, call: Callable[[], Any]) -> tuple[Timing, Any]:
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        value = call()
        seconds.append(time.perf_counter() - start)
    return Timing(name, responses, seconds, responses / statistics.median(seconds)), value


def verdict(one: Certificate) -> Verdict:
    assert one.edit_distance is not None
    return Verdict(one.error, tuple(step.match.number for step in one.steps if step.match), one.edit_distance)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", type=int, default=100_000)
    parser.add_argument("--responses", type=int, default=10_000)
    parser.add_argument("--plain", type=int, default=10_000, help="responses that the plain pipeline is given")
    parser.add_argument("--repetitions", type=int, default=3, help="of ours and of batched faiss; plain runs once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--vector-cache")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    drawn = random.Random(arguments.seed)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    encoder = Table(
        OnnxEncoder(registry.resolve(arguments.encoder, "encoder"), cache_directory=arguments.vector_cache or None)
    )
    tell(f"encoding {arguments.triples:,} triples")
    base = KnowledgeBase.in_memory(make_triples(arguments.triples, drawn), encoder)
    responses = list(make_responses(base, arguments.responses, drawn))
    steps = [parse_response(one.text).steps for one in responses]
    tell(f"encoding {sum(map(len, steps)):,} steps")
    encoder.encode([step for own in steps for step in own], kind="query")
    paper, strict = GroundingSettings(rule="paper"), GroundingSettings()
    list(Certifier(base, encoder, strict).certify(responses))  # type: ignore[arg-type]  # masked steps are encoded here
    tell("ours")
    ours, certificates = clocked(
        "ours, the paper's rule",
        len(responses),
        arguments.repetitions,
        lambda: list(Certifier(base, encoder, paper).certify(responses)),  # type: ignore[arg-type]
    )
    ours_strict, _ = clocked(
        "ours, strict",
        len(responses),
        arguments.repetitions,
        lambda: list(Certifier(base, encoder, strict).certify(responses)),  # type: ignore[arg-type]
    )
    plain = Plain(base, encoder)
    tell("batched faiss")
    batched, judged = clocked(
        "batched faiss, then a loop",
        len(responses),
        arguments.repetitions,
        lambda: plain.certify(responses, steps, batched=True),
    )
    few = min(arguments.plain, len(responses))
    tell(f"plain pipeline, {few:,} responses")
    single, singly = clocked(
        "plain pipeline", few, 1, lambda: plain.certify(responses[:few], steps[:few], batched=False)
    )
    own = [verdict(one) for one in certificates]
    equal = sum(one == two for one, two in zip(own, judged, strict=True))
    equal_plain = sum(one == two for one, two in zip(own[:few], singly, strict=True))
    errors: dict[str, int] = {}
    for one in own:
        errors[one.error or "none"] = errors.get(one.error or "none", 0) + 1
    result = Result(
        triples=len(base),
        steps=sum(map(len, steps)),
        timings=[ours, ours_strict, batched, single],
        ratio=ours.rate / single.rate,
        ratio_batched=ours.rate / batched.rate,
        bar=BAR,
        equal=equal + equal_plain,
        compared=len(own) + few,
        errors=errors,
        machine={**machine.facts(_core.num_threads()), "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "")},
    )
    if arguments.json:
        print(msgspec.json.encode(result).decode())
    else:
        print(
            f"{result.triples:,} triples, {len(responses):,} responses, {result.steps:,} steps, {_core.num_threads()} threads"
        )
        for one in result.timings:
            spread = ", ".join(f"{value:.2f}" for value in one.seconds)
            print(f"{one.name:28} {one.responses:>7,} responses in {spread} s: {one.rate:,.0f} a second")
        print(
            f"ours beside the plain pipeline: {result.ratio:.1f} (bar {BAR:.0f}); beside batched faiss: {result.ratio_batched:.2f}"
        )
        print(f"equal verdicts, triples and edit distances: {result.equal:,} of {result.compared:,}; errors: {errors}")
    return 0 if result.ratio >= BAR and result.equal == result.compared else 1


if __name__ == "__main__":
    sys.exit(main())
