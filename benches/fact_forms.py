"""Is a fact certified in the words of a response, and rejected when it is told wrongly? Bars in the table.

    python -m benches.fact_forms --graph pathquestion/2H-kb.txt --format tsv [--facts 300] [--json]
    python -m benches.fact_forms --graph facts.tsv
    python -m benches.fact_forms --labels labels/triples-hotpotqa.jsonl

Each fact whose relation is worded as a noun is told in sentences of eight forms (`pytrace.certify.wording.TEMPLATES`), one step each, and then wrongly: head and tail
swapped (where the graph does not hold the relation both ways round), negated, with an invented clause behind it, with another
number, or with another date. Facts of relations in `TOLD` are also told in people's own words, 100 paraphrases, and those
swapped and negated. "Right" is the share that is supported, or, of wrong ones, that is not. `--labels` makes the graph of the triples
that people wrote for documents (those with short names). `--held-out` takes clauses that no rule was looked at with.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pytrace.certify.grounding import Grounder, GroundingSettings
from pytrace.certify.step_reading import RelationWords
from pytrace.certify.wording import TEMPLATES, named_path, word_step
from pytrace.kg import KnowledgeBase
from pytrace.kg.relation_pairs import relation_pairs
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.records import Triple
from pytrace.triples.parsing import parse_triples

BARS = {"gold": 0.97, "swapped": 0.95, "negated": 0.98, "invented clause": 0.90, "own words": 0.85}

# Paraphrases of relations that many graphs have, by the words of their names: ten or so each, none in the words of a template.
TOLD = {
    "parents": (
        "{head} was born to {tail}.", "{head} is a child of {tail}.", "{tail} was the father or mother of {head}.",
        "{head} descends from {tail}.", "{tail} raised {head} as their own child.", "{head} is the offspring of {tail}.",
        "{tail} gave birth to {head} or fathered {head}.", "{head} came into the world as a child of {tail}.",
    ),
    "children": (
        "{head} is a parent of {tail}.", "{head} had a child named {tail}.", "{tail} is a son or daughter of {head}.",
        "{head} became the father or mother of {tail}.", "{tail} was born to {head}.", "{head} raised {tail}.",
        "{head} has a son or daughter called {tail}.", "{tail} is the offspring of {head}.",
    ),
    "spouse": (
        "{head} was married to {tail}.", "{head} is the husband or wife of {tail}.", "{head} and {tail} were married.",
        "{head} wed {tail}.", "{tail} became the wife or husband of {head}.", "{head} took {tail} in marriage.",
        "{head} and {tail} were a married couple.", "{head} tied the knot with {tail}.",
    ),
    "gender": (
        "{head} is of the gender {tail}.", "{head} is {tail}.", "{head} is a {tail} person.", "The sex of {head} is {tail}.",
        "{head} was born {tail}.", "{head} identifies as {tail}.", "As for sex, {head} is {tail}.",
        "{head} is recorded as {tail}.",
    ),
    "nationality": (
        "{head} comes from {tail}.", "{head} is a citizen of {tail}.", "{head} was a national of {tail}.",
        "{head} holds the citizenship of {tail}.", "{tail} is the country that {head} comes from.", "{head} hails from {tail}.",
        "The home country of {head} is {tail}.", "{head} had a passport of {tail}.",
    ),
    "profession": (
        "{head} worked as a {tail}.", "{head} made a living as {tail}.", "{head} was a {tail} by trade.",
        "{head} earned money as {tail}.", "The job of {head} was {tail}.", "{head} was employed as {tail}.",
        "{head} had a career as {tail}.", "{head}'s occupation was {tail}.",
    ),
    "cause of death": (
        "{head} died of {tail}.", "{head} was killed by {tail}.", "{tail} killed {head}.", "{head} died because of {tail}.",
        "What {head} died of was {tail}.", "{head} succumbed to {tail}.", "{tail} caused the death of {head}.",
        "{head} lost their life to {tail}.",
    ),
    "religion": (
        "{head} believed in {tail}.", "{head} adhered to {tail}.", "{head} was a follower of {tail}.",
        "{head}'s faith was {tail}.", "{head} practised {tail}.", "{head} belonged to the faith called {tail}.",
        "{tail} was the faith of {head}.", "{head} worshipped according to {tail}.",
    ),
    "place of death": (
        "{head} died in {tail}.", "{head} passed away in {tail}.", "{tail} is where {head} died.",
        "{head} spent the last days of life in {tail}.", "{head} met death in {tail}.", "{tail} is the town that {head} died in.",
        "{head}'s life ended in {tail}.",
    ),
    "institution": (
        "{head} studied at {tail}.", "{head} was educated at {tail}.", "{head} went to school at {tail}.",
        "{head} was a student of {tail}.", "{tail} is where {head} studied.", "{head} attended {tail}.",
        "{head} is a graduate of {tail}.",
    ),
    "place of birth": (
        "{head} was born in {tail}.", "{head} is a native of {tail}.", "{tail} is where {head} was born.",
        "{head}'s birthplace is {tail}.", "{head} came into the world in {tail}.", "{tail} is the town that {head} was born in.",
        "{head} first saw the light of day in {tail}.",
    ),
    "location": (
        "{head} lived in {tail}.", "{head} resided in {tail}.", "{head} was based in {tail}.", "{head} had a home in {tail}.",
        "{tail} is where {head} lived.", "{head} dwelt in {tail}.", "{head} could be found in {tail}.",
    ),
    "ethnicity": (
        "{head} belongs to the people called {tail}.", "{head} is ethnically {tail}.", "{head} is of {tail} descent.",
        "{head} has {tail} roots.", "{head} is of {tail} origin.", "{head}'s ethnic group is {tail}.",
        "{head} has {tail} ancestry.", "The ethnic background of {head} is {tail}.",
    ),
}  # fmt: skip
# What is said behind a fact that no graph knows: {text} is the sentence without its full stop.
CLAUSES = (
    "{text}, who kept forty sheep.", "{text}, which was sold in 1921.", "{text} and won the Nobel Prize.",
    "{text}, and died of hunger.", "{text}, a famous painter.", "{text}, after three years in prison.",
    "{text}; both lived in Peru.", "{text}. They later moved to Chile.", "{text} (a friend of the king).",
    "{text}, where a large bridge was built.", "{text} but later became a monk.", "{text}, having sailed around the world.",
)  # fmt: skip
HELD_OUT = (
    "{text}, who invented the telephone.", "{text} and had eleven brothers.", "{text}, which lies in Brazil.",
    "{text}, while the war was still going on.", "{text}, the richest man of his time.", "{text}, known for a novel about whales.",
    "{text} because the harvest had failed.", "{text}. The two never met again.", "{text}, as well as the owner of a mine.",
    "{text} – a town of 30,000 people.", "{text} until a fire destroyed everything.", "{text}, whose ship sank off Norway.",
)  # fmt: skip
_NUMBER = re.compile(r"\d+")
_DATED = re.compile(r"\b(?:1\d{3}|20\d\d)\b")
_BE = re.compile(r"\b(is|was|were|are|has|have|had)\b")
_VERB = re.compile(r"(?<=} )(?!and )(\w+)")


class Row(msgspec.Struct, frozen=True):
    """How one kind of sentences was judged: their number, and the share judged rightly by rule and by form of sentence."""

    kind: str
    n: int
    right: float
    bar: float | None
    forms: dict[str, float]


def negated(template: str) -> str:
    """Deny what a template says: "is not", "does not have", "never worked"."""

    def deny(found: re.Match[str]) -> str:
        return {"has": "does not have", "have": "do not have", "had": "never had"}.get(found[0], f"{found[0]} not")

    changed, count = _BE.subn(deny, template, count=1)
    return changed if count else _VERB.sub(r"never \1", template, count=1)


def other_number(name: str, drawn: random.Random, pattern: re.Pattern[str]) -> str | None:
    """Put another number of as many digits for one of a name."""
    found = list(pattern.finditer(name))
    if not found:
        return None
    place = drawn.choice(found)
    size = len(place[0])
    low = 10 ** (size - 1) if size > 1 else 0
    value = int(place[0])
    other = drawn.choice([v for v in range(max(low, value - 30), min(10**size, value + 30)) if v != value])
    return name[: place.start()] + str(other) + name[place.end() :]


Sentences = list[tuple[str, str]]  # the form that a sentence is of, and the sentence


def kinds(
    base: KnowledgeBase, facts: Sequence[Triple], clauses: Sequence[str], seed: int
) -> dict[str, tuple[bool, Sentences]]:
    """Return the sentences of each kind, and whether they are true."""
    named = [named_path(base, [fact])[0] for fact in facts]
    symmetric = relation_pairs(base.columns).symmetric
    one_way = [
        name
        for fact, name in zip(facts, named, strict=True)
        if base.relation(fact.relation) not in symmetric
        and base.number(Triple(fact.tail, fact.relation, fact.head)) is None
        and name.head != name.tail
    ]

    def told(names: Sequence[Triple], change: Callable[[str], str] = str) -> Sentences:
        return [(form, word_step(name, change(form))) for name in names for form in TEMPLATES]

    def own(names: Sequence[Triple], change: Callable[[str], str] = str) -> Sentences:
        drawn = random.Random(f"{seed} own")
        sentences: Sentences = []
        for relation, forms in TOLD.items():
            having = [name for name in names if name.relation == relation]
            sentences += [
                (relation, change(form).format(head=name.head, tail=name.tail))
                for form in forms
                for name in drawn.sample(having, min(3, len(having)))
            ]
        return sentences

    def changed(pattern: re.Pattern[str], *, dates: bool) -> Sentences:
        drawn = random.Random(f"{seed} {pattern.pattern}")
        sentences: Sentences = []
        for name in named:
            if bool(_DATED.search(name.tail)) == dates and (tail := other_number(name.tail, drawn, pattern)):
                sentences += told([Triple(name.head, name.relation, tail)])
        return sentences

    drawn = random.Random(f"{seed} clauses")
    swapped = [Triple(name.tail, name.relation, name.head) for name in one_way]
    return {
        "gold": (True, told(named)),
        "swapped": (False, told(swapped)),
        "negated": (False, told(named, negated)),
        "invented clause": (
            False, [(clause, clause.format(text=text[:-1])) for _, text in told(named) for clause in [drawn.choice(clauses)]],
        ),
        "own words": (True, own(named)),
        "own words, swapped": (False, own(swapped)),
        "own words, negated": (False, own(named, negated)),
        "wrong number": (False, changed(_NUMBER, dates=False)),
        "wrong date": (False, changed(_DATED, dates=True)),
    }  # fmt: skip


def measure(
    grounder: Grounder, sentences: Sentences, *, true: bool
) -> tuple[float, dict[str, float], list[tuple[str, bool]]]:
    """Return the share of sentences judged rightly, together and by form, and each with its judgement."""
    grounded = grounder.ground([sentence for _, sentence in sentences])
    rights = [(found.status == "supported") == true for found in grounded]
    forms: dict[str, list[bool]] = {}
    for (form, _), right in zip(sentences, rights, strict=True):
        forms.setdefault(form, []).append(right)
    judged = [(sentence, right) for (_, sentence), right in zip(sentences, rights, strict=True)]
    return sum(rights) / len(rights), {form: sum(each) / len(each) for form, each in forms.items()}, judged


def labelled(path: Path) -> list[Triple]:
    """Read the triples that people wrote for documents, those with names of up to eight words and relations of up to four."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    triples = [Triple(*parts) for row in rows for parts in parse_triples(row["triples"], row["title"]).triples]
    short = [each for each in triples if max(len(each.head.split()), len(each.tail.split())) <= 8]
    return [each for each in short if len(each.relation.split()) <= 4]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--graph", type=Path)
    source.add_argument("--labels", type=Path)
    parser.add_argument("--format", help="of the graph, if its suffix does not tell")
    parser.add_argument("--facts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--rule", choices=("strict", "paper"), default="strict")
    parser.add_argument("--held-out", action="store_true", help="clauses that no rule was looked at with")
    parser.add_argument(
        "--wrong", type=int, default=0, help="print so many sentences of each kind that are judged wrongly"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    encoder = OnnxEncoder(registry.resolve(arguments.encoder, "encoder"))
    if arguments.labels:
        base = KnowledgeBase.in_memory(labelled(arguments.labels), encoder)
    else:
        base = KnowledgeBase.load(arguments.graph, encoder, format=arguments.format)
    nouns = [RelationWords(name).kind == "tail noun" for name in base.columns.relation_names]
    facts = [base.triple(n) for n, row in enumerate(base.columns.triples.tolist()) if nouns[row[1]]]
    random.Random(arguments.seed).shuffle(facts)
    clauses = HELD_OUT if arguments.held_out else CLAUSES
    grounder = Grounder(base, encoder, GroundingSettings(rule=arguments.rule))
    rows = []
    for kind, (true, sentences) in kinds(base, facts[: arguments.facts], clauses, arguments.seed).items():
        if sentences:
            share, forms, judged = measure(grounder, sentences, true=true)
            rows.append(Row(kind, len(sentences), share, BARS.get(kind), forms))
            wrong = [text for text, right in judged if not right]
            for text in random.Random(0).sample(wrong, min(arguments.wrong, len(wrong))):
                print(f"  {kind}: {text}", file=sys.stderr)
    if arguments.json:
        print(msgspec.json.encode(rows).decode())
        return 0
    print(
        f"{min(len(facts), arguments.facts)} of {len(facts)} facts, {arguments.rule} rule, encoder {encoder.name}, seed {arguments.seed}"
    )
    for row in rows:
        bar = "" if row.bar is None else f"bar {100 * row.bar:.0f}"
        worst = min(row.forms, key=lambda form: row.forms[form])
        print(
            f"{row.kind:20} {100 * row.right:5.1f} % {bar:7} of {row.n:5}; least {100 * row.forms[worst]:.1f} ({worst})"
        )
    return 0 if all(row.bar is None or row.right >= row.bar for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
