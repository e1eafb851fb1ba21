"""Claims and their false twins: who did what, negation and "only", neighboring numbers and dates.

    python -m benches.claim_twins --data DIR [--model DIR] [--count 300] [--seed 0] [--show N]

Makes pairs by rule from the pages of the open corpora: a claim that its page supports, and a twin that differs in one thing and that the
page refutes. For half of each kind, the rules are those by which the small model is trained (on other pages, `amounts` nearly so); for the
other half they are made here alone (but numbers in words are other wordings of training claims). No page is one of DATA/train. Prints how many twins are refuted and how many true claims are supported, by the words
and, with --model, by the small model and by both together, as `pytrace certify` checks.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.entailment_edge import EdgeEntailment
from pytrace.documents.sentences import split_sentences
from pytrace.models.edge.edge_model import EdgeModel
from pytrace.models.edge.reading import LABELS
from pytrace.records import Document
from pytrace.training.edge.made_questions import DATE, TitleFact, bare_title, facts_of
from pytrace.training.edge.made_statements import DIRECTED, FORMS, near_date, negated

OPEN = ("2wiki", "hotpotqa-train", "musique-train")
NAME = r"(?:[A-Z][\w'’-]+)(?: (?:(?:of|de|van|von|the) )?[A-Z][\w'’-]+)*"


class Pair(NamedTuple):
    """A supported claim and a refuted one about one page."""

    kind: str
    seen: bool
    true: str
    false: str
    page: Document


Made = Iterator[tuple[str, str]]


def active_and_passive(sentence: str) -> Made:
    """Yield "B was defeated by A" of "A defeated B", and with both in the other's place."""
    verbs = "defeated|succeeded|acquired|bought|replaced|discovered|invented|published|taught|killed|appointed|beat"
    participle = {"beat": "beaten"}
    for match in re.finditer(
        rf"(?<!\w)({NAME}) ({verbs}) ({NAME})(?=[.,;]| (?:in|on|at|to|by|for|with|and)\b)", sentence
    ):
        first, verb, second = match.groups()
        if first not in second and second not in first:
            verb = participle.get(verb, verb)
            yield f"{second} was {verb} by {first}.", f"{first} was {verb} by {second}."


def by_agents(sentence: str) -> Made:
    """Yield "A defeated B" of "B was defeated by A", and with both in the other's place."""
    verbs = "defeated|succeeded|acquired|bought|replaced|discovered|invented|published|taught|killed|appointed|owned"
    for match in re.finditer(rf"(?<!\w)({NAME}) (?:is|was) ({verbs}) (?:in \d{{4}} )?by ({NAME})", sentence):
        first, verb, second = match.groups()
        if first not in second and second not in first:
            yield f"{second} {verb} {first}.", f"{first} {verb} {second}."


def kin(sentence: str) -> Made:
    """Yield the other way round what one is of another: "B has A as a subsidiary", and in the other's place."""
    words = "son|daughter|brother|sister|wife|husband|student|member|part|subsidiary|division|suburb|tributary"
    for match in re.finditer(
        rf"(?<!\w)({NAME}) (?:is|was) (?:an?|the) (?:\w+ )?({words}) of ({NAME})(?=[.,;]| (?:and|in)\b)", sentence
    ):
        first, word, second = match.groups()
        if first not in second and second not in first and word not in ("brother", "sister"):
            yield f"{second} has {first} as a {word}.", f"{first} has {second} as a {word}."


def neighbors_of(sentence: str) -> Made:
    """Yield what lies where of what: "B lies to the south of A" of "A lies north of B", and in the other's place."""
    other = {"north": "south", "south": "north", "east": "west", "west": "east"}
    for match in re.finditer(
        rf"(?<!\w)({NAME})[^.;]{{0,40}}? (north|south|east|west) of ({NAME})(?=[.,;]| and\b)", sentence
    ):
        first, side, second = match.groups()
        if first not in second and second not in first:
            yield f"{second} is {other[side]} of {first}.", f"{second} is {side} of {first}."


def never(sentence: str) -> Made:
    """Yield a sentence, and the same with "never" or "no longer" before its verb."""
    if re.search(r"\b(?:not|no|never|only|without)\b|n't|[;:\"“]", sentence) or len(sentence) > 160:
        return
    verb = re.search(
        r"(?<!was )(?<!were )(?<!earlier )(?<!eventually )(?<= )(won|played|served|worked|moved|lived|wrote|became|joined|married|received|studied|appeared)(?= )",
        sentence,
    )
    base = {"won": "win", "wrote": "write", "became": "become", "studied": "study", "married": "marry"}
    if verb and sentence.count(",") <= 1:
        word = verb[0]
        plain = base.get(word) or (word[:-1] if word in ("moved", "lived", "served", "received") else word[:-2])
        yield sentence, f"{sentence[: verb.start()]}never {word}{sentence[verb.end() :]}"
        yield sentence, f"{sentence[: verb.start()]}failed to {plain}{sentence[verb.end() :]}"


def only(sentence: str) -> Made:
    """Yield of "… by A and B" that A was not alone, and that it was A only."""
    pattern = rf"\b(written|directed|produced|founded|composed|created|developed|owned|performed) by ({NAME})(?:,? and) ({NAME})(?=[.,;]| (?:in|for|of)\b)"
    subject = re.match(rf"((?:The )?(?:{NAME}))(?: \([^)]*\))? (?:is|was)\b", sentence)
    for match in re.finditer(pattern, sentence):
        if subject:
            verb, first, second = match.groups()
            yield (
                f"{subject[1]} was {verb} by {first} together with {second}.",
                f"{subject[1]} was {verb} by {first} alone.",
            )
            yield (
                f"Both {first} and {second} {verb.replace('written', 'wrote')} {subject[1]}.",
                f"Only {second} {verb.replace('written', 'wrote')} {subject[1]}.",
            )


_OPPOSITES = {
    "largest": "smallest", "smallest": "largest", "oldest": "newest", "highest": "lowest", "longest": "shortest", "northern": "southern",
    "southern": "northern", "eastern": "western", "western": "eastern", "before": "after", "after": "before", "older": "younger",
    "younger": "older", "upper": "lower", "public": "private", "private": "public", "former": "current", "winning": "losing",
    "increased": "decreased", "elder": "younger", "last": "first", "male": "female", "female": "male", "won": "lost", "early": "late", "late": "early",
}  # fmt: skip


def opposite(sentence: str) -> Made:
    """Yield a short sentence, and the same with one word's opposite."""
    if len(sentence) > 170 or re.search(r"\b(?:not|never)\b|n't", sentence):
        return
    for word, other in _OPPOSITES.items():
        if len(re.findall(rf"\b{word}\b", sentence)) == 1 and other not in sentence:
            yield sentence, re.sub(rf"\b{word}\b", other, sentence)


def amounts(sentence: str) -> Made:
    """Yield a sentence with a number that is no date, and the same with one near it."""
    for match in re.finditer(
        r"(?<![\w.,–-])(\d{1,3}(?:,\d{3})+|\d+\.\d+|\d{2,3})(?= (?:[a-z]+s|km|m|feet|people|years|percent|inhabitants|miles|acres)\b)",
        sentence,
    ):
        if len(sentence) > 170:
            continue
        number = match[1]
        digits = [place for place, one in enumerate(number) if one.isdigit()]
        place = digits[len(digits) // 2]
        near = f"{number[:place]}{(int(number[place]) + 1) % 10}{number[place + 1 :]}"
        yield sentence, f"{sentence[: match.start()]}{near}{sentence[match.end() :]}"


_ORDER = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_COUNT = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def in_words(sentence: str) -> Made:
    """Yield a sentence with a number in words, and the same with the next one."""
    if len(sentence) > 170:
        return
    for names in (_ORDER[1:], _COUNT):
        for word, other in itertools.pairwise(names):
            if len(re.findall(rf"\b{word}\b", sentence)) == 1 and other not in sentence:
                yield sentence, re.sub(rf"\b{word}\b", other, sentence)


def decades(sentence: str) -> Made:
    """Yield a sentence with a decade, and the same with a near one."""
    if len(sentence) > 170:
        return
    for match in re.finditer(r"\b(\d{2})(\d)0s\b", sentence):
        yield sentence, sentence.replace(match[0], f"{match[1]}{(int(match[2]) + 1) % 10}0s")


UNSEEN: dict[str, tuple[Callable[[str], Made], ...]] = {
    "roles": (active_and_passive, by_agents, kin, neighbors_of),
    "negation": (never, only, opposite),
    "numbers": (in_words, decades),
}


def seen_pair(kind: str, fact: TitleFact, rng: random.Random) -> tuple[str, str] | None:
    """Return a claim of a fact and its twin, by the rules of the small model's training."""
    form = rng.choice(FORMS[fact.relation])
    title = bare_title(fact.title)
    right = form.format(title, fact.value)
    dated = re.fullmatch(DATE, fact.value) is not None
    if kind == "numbers" and dated:
        other = near_date(fact.value, rng)
        return None if other in fact.passage else (right, form.format(title, other))
    if kind == "negation" and not dated and (denied := negated(right)):
        return right, denied
    if (
        kind == "roles"
        and not dated
        and fact.relation in DIRECTED
        and fact.value not in title
        and title not in fact.value
    ):
        return right, form.format(fact.value, title)
    return None


def pages(data: Path) -> list[Document]:
    """Return the pages of the open corpora that are not among those of training."""
    with gzip.open(data / "train" / "passages.jsonl.gz", "rt", encoding="utf-8") as lines:
        known = {json.loads(line)["title"] for line in lines}
    found: dict[str, Document] = {}
    for name in OPEN:
        for line in (data / "open" / name / "corpus.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            if row["title"] not in known:
                found.setdefault(
                    row["title"], Document(row["title"], row["title"], tuple(split_sentences(row["text"])))
                )
    return list(found.values())


def make(documents: Iterable[Document], count: int, seed: int) -> list[Pair]:
    """Make `count` pairs of each kind, half of them by rules that no training has seen, each rule as often as it can be."""
    rng = random.Random(seed)
    made: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for page in documents:
        for fact in facts_of(f"[{page.title}] {page.text}"):
            for kind in UNSEEN:
                if pair := seen_pair(kind, fact, rng):
                    made[kind, fact.relation].append(Pair(kind, True, *pair, page))
        for said in page.sentences:
            # A claim names what it is about.
            sentence = re.sub(
                r"^(?:He|She|It)(?= (?:[a-z]+ed|is|was|has|had|won|wrote)\b)", bare_title(page.title), said
            )
            if re.search(r"\b(?:He|She|It|They)\b", sentence):
                continue
            made["numbers", "amounts"] += [Pair("numbers", True, *pair, page) for pair in amounts(sentence)]
            for kind, rules in UNSEEN.items():
                for rule in rules:
                    made[kind, rule.__name__] += [Pair(kind, False, *pair, page) for pair in rule(sentence)]
    pairs = []
    for kind in UNSEEN:
        for seen in (True, False):
            groups = [found for (of, _), found in made.items() if of == kind and found[:1] and found[0].seen == seen]
            for group in groups:
                rng.shuffle(group)
            # One of each rule in turn, until there are enough.
            turns = [
                group[turn] for turn in range(max(map(len, groups), default=0)) for group in groups if turn < len(group)
            ]
            pairs += turns[: count // 2]
    return pairs


Shares = dict[tuple[str, bool], tuple[float, float]]
"""For each kind, and whether a training sees its rules: how many false twins are refuted and true ones supported, in percent."""


def show(name: str, pairs: Sequence[Pair], labels: Sequence[tuple[str, str]], shown: int = 0) -> Shares:
    """Print and return how many false twins are refuted and true ones supported, for each kind."""
    shares: Shares = {}
    for kind in UNSEEN:
        for seen in (True, False):
            mine = [found for pair, found in zip(pairs, labels, strict=True) if (pair.kind, pair.seen) == (kind, seen)]
            refuted = sum(false == "refuted" for _, false in mine)
            believed = sum(false == "supported" for _, false in mine)
            supported = sum(true == "supported" for true, _ in mine)
            shares[kind, seen] = 100 * refuted / len(mine), 100 * supported / len(mine)
            print(
                f"{name:10} {kind:9} rules {'seen' if seen else 'unseen':6} {len(mine):4} pairs: refuted {100 * refuted / len(mine):5.1f} % "
                f"(supported {100 * believed / len(mine):4.1f} %), true twin supported {100 * supported / len(mine):5.1f} %"
            )
    wrong = [(pair, found) for pair, found in zip(pairs, labels, strict=True) if found != ("supported", "refuted")]
    for pair, found in wrong[:shown]:
        print(f"   {found[0]}: {pair.true}\n   {found[1]}: {pair.false}")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="as 'pytrace train edge' writes it: OUT/model")
    parser.add_argument("--count", type=int, default=300, help="pairs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="wrong pairs that are shown")
    options = parser.parse_args()
    pairs = make(pages(options.data), options.count, options.seed)
    print(f"{len(pairs)} pairs: {dict(Counter((pair.kind, 'seen' if pair.seen else 'unseen') for pair in pairs))}")
    show("words", pairs, verdicts(ClaimChecker(), pairs), options.show)
    if options.model:
        model = EdgeModel(options.model)
        texts = [f"[{pair.page.title}] {pair.page.text}" for pair in pairs]
        found = [
            [LABELS[int(row.argmax())] for row in model.check(claims, texts)]
            for claims in ([pair.true for pair in pairs], [pair.false for pair in pairs])
        ]
        show("model", pairs, list(zip(*found, strict=True)), options.show)
        show("together", pairs, verdicts(ClaimChecker(entailment=EdgeEntailment(model)), pairs), options.show)


def verdicts(checker: ClaimChecker, pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Return the labels of each true claim and its twin, checked against their page."""
    named = {"contradicted": "refuted", "supported": "supported"}
    labels = []
    for pair in pairs:
        true, false = (checker.check_claims([claim], [pair.page])[0].label for claim in (pair.true, pair.false))
        labels.append((named.get(true, ""), named.get(false, "")))
    return labels


if __name__ == "__main__":
    main()
