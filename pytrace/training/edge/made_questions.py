"""Questions made by rule from what passages say: chains of two facts, comparisons of dates, and yes or no.

Facts are read from first sentences as encyclopedias write them ("X (born 3 May 1950) is a French film director"). Every answer has its
place in a passage, so that a reader learns where an answer begins and ends: "born when" takes the whole date, "what year" the year alone.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from pytrace.training.edge.edge_examples import ReadingExample, Span

SOURCE = "made"

_MAX_DRAWS = 20  # per question that is wanted

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
MONTHS = {name: number for number, name in enumerate(_MONTH[3:-1].split("|"), 1)}
DATE = rf"(?:\d{{1,2}} {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}, \d{{4}}|{_MONTH} \d{{4}}|\d{{4}})"
_CAPITAL = r"(?:(?:[A-Z]\.)+|[A-Z][\w'’-]*)"
_PROPER = rf"{_CAPITAL}(?: (?:{_CAPITAL}|de|van|von|der|da|di|la|le|of|bin|al))*"
_PLACE_NAME = r"(?:St\. )?[A-Z][\w'’-]+(?:[ -][A-Z][\w'’-]+)*"
_PLACE = rf"{_PLACE_NAME}(?:, {_PLACE_NAME})*"
_WORK = r"(?:film|movie|album|song|single|novel|book|play|opera|series|television series|video game)"
_PATTERNS = {
    "birth": rf"\(\s*(?:[^()]{{0,60}}?[;,] )?(?:born:?|b\.) ?(?:on )?({DATE})|\(\s*(?:[^()]{{0,60}}?[;,] )?({DATE})(?:,? (?:in )?{_PLACE})? ?[–-] ?(?:c\. ?)?{DATE}",
    "death": rf"\(\s*(?:[^()]{{0,60}}?[;,] )?{DATE}(?:,? (?:in )?{_PLACE})? ?[–-] ?({DATE})|\bdied:? (?:on )?({DATE})",
    "birthplace": rf"\b(?:was )?born (?:on {DATE} |{DATE} )?in ({_PLACE})",
    "deathplace": rf"\b[Dd]ied (?:on {DATE} |{DATE} )?(?:in|at) ({_PLACE})",
    "nationality": r"\b(?:is|was) an? (?:\d{4} )?((?:[A-Z][a-z]+)(?:[ -][A-Z][a-z]+)?) [a-z]",
    "occupation": r"\b(?:is|was) an? (?:[A-Z][a-z]+(?:[ -][A-Z][a-z]+)? )([a-z][a-z -]{3,40}?)(?=[.,;(]| (?:who|from|of|in|and|best|known|at|for|with|born)\b)",
    "released": rf"\b(?:is|was) an? (\d{{4}}) [^.]{{0,60}}?{_WORK}\b|\breleased (?:on |in )?({DATE})",
    "director": rf"\bdirected by ({_PROPER})",
    "writer": rf"\bwritten by ({_PROPER})",
    "performer": rf"\b(?:song|album|single) (?:recorded )?by (?:the )?(?:[a-zA-Z-]+ ){{0,5}}?({_PROPER})(?=[.,;(]| from| released| in\b)",
    "composer": rf"\b(?:composed|music) by ({_PROPER})",
    "producer": rf"\bproduced by ({_PROPER})",
    "author": rf"\b(?:novel|book|play) by (?:[a-zA-Z-]+ ){{0,4}}?({_PROPER})",
    "father": rf"\b(?:son|daughter) of (?:King |Count |Duke |Sir |Lord |Emperor |Prince )?({_PROPER})",
    "spouse": rf"\b(?:married(?: to)?|wife of|husband of) (?:King |Count |Duke |Sir |Lord |the |Prince )?({_PROPER})",
    "founder": rf"\bfounded (?:in \d{{4}} )?by ({_PROPER})",
    "founded": rf"\b(?:founded|established|formed|opened) (?:in|on) ({DATE})",
    "located": rf"\b(?:located|situated|based|headquartered|village|town|city|municipality|commune) (?:in|at) (?:the )?({_PLACE})",
    "school": rf"\b(?:educated at|graduated from|attended|studied at) (?:the )?({_PROPER})",
    "label": rf"\b(?:released|issued) (?:\w+ ){{0,3}}?(?:by|on|through) (?:the )?(?!{_MONTH}|\w+day\b)({_PROPER})",
    "star": rf"\bstarring ({_PROPER})",
}
_NAMES = frozenset({"performer", "label", "star", "producer", "composer", "writer"})
_FACTS = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}

# What leads from one passage to the next, as the questions word it.
_LINKS = {
    "director": ("the director of {}", "the director of the film {}", "the person who directed {}", "{}'s director"),
    "writer": ("the writer of {}", "the person who wrote {}", "the author of {}"),
    "author": ("the author of {}", "the writer of {}", "the person who wrote {}"),
    "performer": ("the performer of {}", "the performer of the song {}", "the artist who recorded {}", "the singer of {}"),
    "composer": ("the composer of {}", "the person who wrote the music of {}", "the composer of the film {}"),
    "producer": ("the producer of {}", "the person who produced {}"),
    "father": ("the father of {}", "{}'s father"),
    "spouse": ("the spouse of {}", "{}'s husband or wife", "the person whom {} married"),
    "founder": ("the founder of {}", "the person who founded {}"),
    "birthplace": ("the place where {} was born", "the birthplace of {}", "the city of {}'s birth"),
    "deathplace": ("the place where {} died", "the city where {} died"),
    "located": ("the place where {} is located", "the place where {} lies", "the location of {}"),
    "school": ("the school that {} attended", "the university of {}", "the place where {} studied"),
    "label": ("the label that released {}", "the record label of {}"),
    "star": ("the star of {}", "the actor who stars in {}", "the lead actor of {}"),
}  # fmt: skip
# What is asked at the end. "{}" is the subject.
_ASKED = {
    "birth": ("When was {} born?", "What is the date of birth of {}?", "When is the birthday of {}?", "On what date was {} born?"),
    "death": ("When did {} die?", "What is the date of death of {}?", "On what date did {} die?"),
    "birthplace": ("Where was {} born?", "What is the place of birth of {}?", "In what city was {} born?"),
    "deathplace": ("Where did {} die?", "What is the place of death of {}?", "In what place did {} die?"),
    "nationality": ("What nationality is {}?", "What is the nationality of {}?"),
    "occupation": ("What does {} do for a living?", "What is the occupation of {}?", "What was the profession of {}?"),
    "released": ("When was {} released?", "What is the release date of {}?", "When did {} come out?"),
    "director": ("Who directed {}?", "Who is the director of {}?"),
    "writer": ("Who wrote {}?", "Who is the writer of {}?"),
    "author": ("Who wrote {}?", "Who is the author of {}?"),
    "performer": ("Who performed {}?", "Which artist recorded {}?"),
    "composer": ("Who composed {}?", "Who wrote the music for {}?"),
    "producer": ("Who produced {}?", "Who is the producer of {}?"),
    "father": ("Who is the father of {}?", "Whose child is {}?"),
    "spouse": ("Who is the spouse of {}?", "Whom did {} marry?", "Who was {} married to?"),
    "founder": ("Who founded {}?", "Who is the founder of {}?", "By whom was {} founded?"),
    "founded": ("When was {} founded?", "When was {} established?", "When was {} formed?"),
    "located": ("Where is {} located?", "In what place is {}?", "Where can {} be found?"),
    "school": ("Where did {} study?", "Where was {} educated?", "What school did {} attend?"),
    "label": ("Which label released {}?", "Who released {}?"),
    "star": ("Who stars in {}?", "Which actor stars in {}?"),
}  # fmt: skip
# Questions that ask for the year alone.
_YEARS = {
    "birth": ("In what year was {} born?", "What year was {} born?"),
    "death": ("In what year did {} die?", "What year did {} die?"),
    "released": ("In what year was {} released?", "What year did {} come out?"),
    "founded": ("In what year was {} founded?", "What year was {} established?"),
}
# Which of two comes first (0) or last (1).
_COMPARED = {
    "birth": (
        ("Who was born first, {} or {}?", "Who was born earlier, {} or {}?", "Who is older, {} or {}?", "Which of the two is older, {} or {}?"),
        ("Who was born later, {} or {}?", "Who is younger, {} or {}?", "Which of them is younger, {} or {}?"),
    ),
    "death": (
        ("Who died first, {} or {}?", "Who died earlier, {} or {}?"),
        ("Who died later, {} or {}?", "Who lived until a later year, {} or {}?"),
    ),
    "released": (
        ("Which came out first, {} or {}?", "Which film was released first, {} or {}?", "Which was released earlier, {} or {}?"),
        ("Which film was released more recently, {} or {}?", "Which came out later, {} or {}?"),
    ),
    "founded": (
        ("Which was founded first, {} or {}?", "Which was established earlier, {} or {}?", "Which is older, {} or {}?"),
        ("Which was founded later, {} or {}?", "Which was established more recently, {} or {}?"),
    ),
}  # fmt: skip
_FILM_PAIRS = {
    "birth": (
        ("Which film has the director born first, {} or {}?", "Which film has the director who is older, {} or {}?"),
        ("Which film has the director born later, {} or {}?", "Which film whose director is younger, {} or {}?"),
    ),
    "death": (
        ("Which film has the director who died first, {} or {}?", "Which film has the director who died earlier, {} or {}?"),
        ("Which film has the director who died later, {} or {}?",),
    ),
}  # fmt: skip
_ALIKE = {
    "nationality": ("Are {} and {} of the same nationality?", "Do {} and {} have the same nationality?", "Are both {} and {} from the same country?"),
    "occupation": ("Do {} and {} have the same occupation?", "Did {} and {} have the same profession?"),
    "located": ("Are {} and {} located in the same place?",),
    "director": ("Were {} and {} directed by the same person?", "Do {} and {} have the same director?"),
}  # fmt: skip
_IS = ("Are both {} and {} {}?", "Were {} and {} both {}?")


class TitleFact(NamedTuple):
    """What a passage says of its title: a relation, and the place of its value."""

    passage: str
    title: str
    relation: str
    start: int
    end: int

    @property
    def value(self) -> str:
        """The value as the passage writes it."""
        return self.passage[self.start : self.end]


Chain = TypeVar("Chain", bound=tuple[TitleFact, ...])


def facts_of(passage: str) -> Iterator[TitleFact]:
    """Yield the facts of a passage that begins with its title in brackets."""
    if not passage.startswith("[") or "] " not in passage:
        return
    title = passage[1 : passage.index("] ")]
    begin = len(title) + 3
    for relation, pattern in _FACTS.items():
        match = pattern.search(passage, begin, begin + 700)
        if match is None:
            continue
        group = next(number for number, found in enumerate(match.groups(), 1) if found is not None)
        start, end = match.span(group)
        value = passage[start:end].rstrip(" ,")
        if value.endswith(".") and not re.search(r"(?:\b[A-Z]|\b[JS]r)\.$", value):
            value = value[:-1]
        for tail in (" of", " the", " de", " la", " and"):
            value = value.removesuffix(tail)
        # "the Fall" is a band, and "Fall" is none.
        bare = relation in _NAMES and " " not in value and passage[:start].endswith((" the ", " The "))
        if value and value != title and not bare:
            yield TitleFact(passage, title, relation, start, start + len(value))


def fact_chains(passages: Iterable[str]) -> tuple[dict[str, list[TitleFact]], list[tuple[TitleFact, TitleFact]]]:
    """Return the facts of each title, and all pairs of a fact whose value is a title and a fact of that title."""
    by_title: dict[str, list[TitleFact]] = defaultdict(list)
    for passage in dict.fromkeys(passages):
        for fact in facts_of(passage):
            by_title[fact.title].append(fact)
    bare = {bare_title(title): title for title in by_title}
    chains = [
        (fact, last)
        for found in by_title.values()
        for fact in found
        if fact.relation in _LINKS and fact.value in bare and fact.title != bare[fact.value]
        for last in by_title[bare[fact.value]]
        if last.passage != fact.passage
    ]
    return by_title, chains


def longer_chains(
    chains: Iterable[tuple[TitleFact, TitleFact]],
) -> list[tuple[TitleFact, TitleFact, TitleFact]]:
    """Return all chains of three facts of three passages that two chains make."""
    following: dict[TitleFact, list[TitleFact]] = defaultdict(list)
    pairs = list(chains)
    for first, last in pairs:
        following[first].append(last)
    return [
        (first, middle, last)
        for first, middle in pairs
        for last in following[middle]
        if last.passage not in (first.passage, middle.passage)
    ]


def chain_question(facts: Sequence[TitleFact], rng: random.Random) -> tuple[str, bool]:
    """Return a question for the value of a chain's last fact, and whether it asks for the year alone."""
    *links, last = facts
    link = _shown(links[0].title, rng)
    for fact in links:
        link = rng.choice(_LINKS[fact.relation]).format(link)
    years = _YEARS.get(last.relation, ()) if rng.random() < 0.4 else ()
    return rng.choice(years or _ASKED[last.relation]).format(link), bool(years)


def made_questions(passages: Iterable[str], count: int, *, seed: int) -> list[ReadingExample]:
    """Make about so many questions: half chains of two or three facts, a third comparisons, the rest yes or no."""
    rng = random.Random(seed)
    by_title, chains = fact_chains(passages)
    facts = [fact for found in by_title.values() for fact in found]
    made: list[ReadingExample] = []
    long = balanced(longer_chains(chains), count // 8, rng)
    for chain in [*balanced(chains, count // 2 - len(long), rng), *long]:
        question, year = chain_question(chain, rng)
        example = _example(question, [fact.passage for fact in chain], [chain[-1]], rng, year=year)
        if example is not None:
            made.append(example)
    films = defaultdict(list)
    for first, last in chains:
        if first.relation == "director" and last.relation in _FILM_PAIRS:
            films[last.relation].append((first, last))
    by_relation: dict[str, list[TitleFact]] = defaultdict(list)
    for fact in facts:
        by_relation[_class(fact, by_title)].append(fact)
    for _ in range(_MAX_DRAWS * count):  # few passages may have nothing to compare
        if len(made) >= count or not by_relation:
            break
        draw = rng.random()
        example = (
            _compared(by_relation, rng)
            if draw < 0.5
            else _film_pair(films, rng)
            if draw < 0.65 and films
            else _alike(by_relation, rng)
        )
        if example is not None:
            made.append(example)
    rng.shuffle(made)
    return made


def balanced(chains: Sequence[Chain], count: int, rng: random.Random) -> list[Chain]:
    """Draw chains, their relations by the root of how many have them, so that rare ones are not lost among directors' births."""
    groups: dict[tuple[str, ...], list[Chain]] = defaultdict(list)
    for chain in chains:
        groups[tuple(fact.relation for fact in chain)].append(chain)
    if not groups:
        return []
    names = sorted(groups)
    weights = [len(groups[name]) ** 0.5 for name in names]
    drawn = dict.fromkeys(rng.choice(groups[name]) for name in rng.choices(names, weights, k=2 * count))
    return list(drawn)[:count]


def _class(fact: TitleFact, by_title: dict[str, list[TitleFact]]) -> str:
    """Return a relation, that of nationality once for people and once for works: only those are asked for together."""
    if fact.relation != "nationality":
        return fact.relation
    relations = {other.relation for other in by_title[fact.title]}
    return (
        "nationality of people"
        if "birth" in relations
        else "nationality of works"
        if "released" in relations
        else "other"
    )


def bare_title(title: str) -> str:
    """Return a title without what is in brackets at its end."""
    return re.sub(r" \([^)]*\)$", "", title)


def _shown(title: str, rng: random.Random) -> str:
    return title if rng.random() < 0.15 else bare_title(title)


def _example(
    question: str, passages: list[str], facts: Sequence[TitleFact], rng: random.Random, *, year: bool = False
) -> ReadingExample | None:
    """Return a question with its passages in any order; None if the question contains the answer."""
    rng.shuffle(passages)
    spans = []
    for fact in facts:
        start, end = fact.start, fact.end
        if year:
            found = re.search(r"\d{4}", fact.value)
            if found is None:
                return None
            start, end = start + found.start(), start + found.end()
        spans.append(Span(passages.index(fact.passage), start, end))
    if not year and facts[0].value.casefold() in question.casefold():
        return None
    return ReadingExample(question, tuple(passages), tuple(spans), "span", (), SOURCE)


def _when(date: str) -> tuple[int, int, int]:
    year = re.search(r"\d{4}", date)
    month = re.search(_MONTH, date)
    day = re.search(r"\b\d{1,2}\b", date)
    return (int(year[0]) if year else 0, MONTHS[month[0]] if month else 0, int(day[0]) if day and month else 0)


def _order(first: TitleFact, second: TitleFact) -> int | None:
    """Return which of two dates is earlier, or None where they cannot be told apart."""
    one, two = _when(first.value), _when(second.value)
    if (
        not one[0]
        or not two[0]
        or (one[0] == two[0] and (0 in (one[1], two[1]) or (one[1] == two[1] and 0 in (one[2], two[2]))))
    ):
        return None
    return None if one == two else int(one > two)


def _pair(facts: Sequence[TitleFact], rng: random.Random) -> tuple[TitleFact, TitleFact] | None:
    first, second = rng.choice(facts), rng.choice(facts)
    return None if first.title == second.title else (first, second)


def _named(question: str, winner: str, passages: list[str], rng: random.Random) -> ReadingExample | None:
    """Return a question whose answer is the title of a passage."""
    title = winner[1 : winner.index("] ")]
    name = bare_title(title)
    rng.shuffle(passages)
    index = passages.index(winner)
    spans = tuple(Span(index, found.start(), found.end()) for found in re.finditer(re.escape(name), winner))
    return ReadingExample(question, tuple(passages), spans, "span", (), SOURCE)


def _compared(by_relation: dict[str, list[TitleFact]], rng: random.Random) -> ReadingExample | None:
    relation = rng.choices(("birth", "death", "released", "founded"), (3, 2, 3, 1))[0]
    pair = _pair(by_relation[relation], rng) if by_relation[relation] else None
    earlier = _order(*pair) if pair else None
    if pair is None or earlier is None:
        return None
    last = rng.random() < 0.5
    question = rng.choice(_COMPARED[relation][last]).format(*(_shown(fact.title, rng) for fact in pair))
    winner = pair[earlier if not last else 1 - earlier]
    return _named(question, winner.passage, [fact.passage for fact in pair], rng)


def _film_pair(films: dict[str, list[tuple[TitleFact, TitleFact]]], rng: random.Random) -> ReadingExample | None:
    relation = rng.choice(sorted(films))
    one, two = rng.choice(films[relation]), rng.choice(films[relation])
    earlier = _order(one[1], two[1])
    if earlier is None or len({one[0].title, two[0].title, one[1].title, two[1].title}) < 4:
        return None
    last = rng.random() < 0.5
    question = rng.choice(_FILM_PAIRS[relation][last]).format(_shown(one[0].title, rng), _shown(two[0].title, rng))
    winner = (one, two)[earlier if not last else 1 - earlier][0]
    return _named(question, winner.passage, [fact.passage for fact in (*one, *two)], rng)


def _alike(by_relation: dict[str, list[TitleFact]], rng: random.Random) -> ReadingExample | None:
    group = rng.choices(
        ("nationality of people", "nationality of works", "occupation", "located", "director"), (3, 3, 1, 1, 1)
    )[0]
    relation = group.split(" of ")[0]
    pair = _pair(by_relation[group], rng) if by_relation[group] else None
    if pair is None:
        return None
    same = pair[0].value == pair[1].value
    if not same and rng.random() < 0.5:  # as many of each
        values = [fact for fact in by_relation[group] if fact.value == pair[0].value and fact.title != pair[0].title]
        if not values:
            return None
        pair, same = (pair[0], rng.choice(values)), True
    if (
        relation == "nationality"
        and not same
        and {"American", "British"} & {fact.value for fact in pair}
        and any(" " in fact.value or "-" in fact.value for fact in pair)
    ):
        return None  # "English" and "British", "African American" and "American" may be either
    names = [_shown(fact.title, rng) for fact in pair]
    if relation == "nationality" and rng.random() < 0.3:
        question = rng.choice(_IS).format(*names, pair[0].value)
    else:
        question = rng.choice(_ALIKE[relation]).format(*names)
    passages = [fact.passage for fact in pair]
    rng.shuffle(passages)
    return ReadingExample(question, tuple(passages), (), "yes" if same else "no", (), SOURCE)
