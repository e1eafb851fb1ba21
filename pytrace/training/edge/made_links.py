"""Steps of chains, right and wrong: which passage, sentence or triple goes on from what was found, and when that is enough."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from pytrace.training.edge.edge_examples import Distractors, LinkingExample, ReadingExample
from pytrace.training.edge.made_questions import TitleFact, balanced, chain_question, fact_chains

SOURCE = "made links"

_WORDINGS = {
    "birth": ("date of birth", "born", "birth date"),
    "death": ("date of death", "died"),
    "birthplace": ("place of birth", "born in", "birthplace"),
    "deathplace": ("place of death", "died in"),
    "nationality": ("nationality", "country of citizenship"),
    "occupation": ("occupation", "profession"),
    "released": ("publication date", "release year", "released"),
    "director": ("director", "directed by"),
    "writer": ("writer", "written by", "screenwriter"),
    "author": ("author", "written by"),
    "performer": ("performer", "artist", "recorded by"),
    "composer": ("composer", "music by"),
    "producer": ("producer", "produced by"),
    "father": ("father", "parent", "child of"),
    "spouse": ("spouse", "married to"),
    "founder": ("founded by", "founder"),
    "founded": ("inception", "founded", "year founded"),
    "located": ("location", "located in"),
    "school": ("educated at", "university"),
    "label": ("record label", "label"),
    "star": ("cast member", "starring", "cast"),
}
_CHARACTERS = 500  # of a passage


def triple_text(fact: TitleFact, rng: random.Random) -> str:
    """Write a fact as a triple, its relation in one of several wordings."""
    return f"<{fact.title}; {rng.choice(_WORDINGS[fact.relation])}; {fact.value}>"


def made_triple_links(passages: Iterable[str], count: int, *, seed: int) -> list[LinkingExample]:
    """Make steps of chains of two triples: half of the candidates go on, and a third of the examples ask whether it is enough."""
    rng = random.Random(seed)
    by_title, chains = fact_chains(passages)
    made: list[LinkingExample] = []
    for first, last in balanced(chains, count // 5, rng):
        question, _ = chain_question((first, last), rng)
        one, two = triple_text(first, rng), triple_text(last, rng)
        wrong = _others(first, last, by_title, rng)
        made += [
            LinkingExample(question, (), one, right=True, source=SOURCE),
            LinkingExample(question, (), wrong[0], right=False, source=SOURCE),
            LinkingExample(question, (one,), two, right=True, source=SOURCE),
            LinkingExample(question, (one,), wrong[1], right=False, source=SOURCE),
            *(
                [LinkingExample(question, (one, two), None, right=True, source=SOURCE)]
                if rng.random() < 0.6
                else [
                    LinkingExample(
                        question, rng.choice([(), (one,), (one, wrong[1])]), None, right=False, source=SOURCE
                    )
                ]
            ),
        ]
    return made


def _others(first: TitleFact, last: TitleFact, by_title: dict[str, list[TitleFact]], rng: random.Random) -> list[str]:
    """Return a wrong triple for each step: of the same title where there is one, otherwise of any."""
    titles = sorted(by_title)
    found = []
    for fact in (first, last):
        same = [other for other in by_title[fact.title] if other.relation != fact.relation]
        other = rng.choice(same) if same and rng.random() < 0.7 else rng.choice(by_title[rng.choice(titles)])
        found.append(triple_text(other, rng))
    return found


def passage_links(
    examples: Sequence[ReadingExample], count: int, distractors: Distractors, *, seed: int
) -> list[LinkingExample]:
    """Make steps of questions that take several passages: what a passage and those before it lead to, against near passages."""
    rng = random.Random(seed)
    usable = [row for row in examples if len(row.passages) > 1]
    made: list[LinkingExample] = []
    while usable and len(made) < count:
        row = rng.choice(usable)
        texts = [text[:_CHARACTERS] for text in row.passages]
        rng.shuffle(texts)
        held = rng.randrange(len(texts) + 1)
        so_far = tuple(texts[:held])
        wrong = [text[:_CHARACTERS] for text in distractors.draw(row, 1, rng)]
        if held == len(texts) or rng.random() < 0.25:
            if held < len(texts) and wrong and rng.random() < 0.5:
                so_far = (*so_far, *wrong)
            made.append(LinkingExample(row.question, so_far, None, right=held == len(texts), source=row.source))
        elif rng.random() < 0.5:
            made.append(LinkingExample(row.question, so_far, texts[held], right=True, source=row.source))
        elif wrong:
            made.append(LinkingExample(row.question, so_far, wrong[0], right=False, source=row.source))
    return made
