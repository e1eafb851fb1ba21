"""Claims made by rule: facts in the active and the passive, with one thing changed, and answers of questions, right and wrong.

What a small checker overlooks is its food here: who did what, negation, neighboring numbers and dates, and what a text leaves open.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from pytrace.models.edge.reading import LABELS
from pytrace.training.edge.edge_examples import CheckingExample, Distractors, ReadingExample
from pytrace.training.edge.made_questions import DATE, MONTHS, TitleFact, bare_title, facts_of

SOURCE = "made statements"
ANSWERS = "made answers"

# Each relation in the active and the passive, or in other words: "{0}" is the title, "{1}" the value. A negated form comes by rule.
FORMS = {
    "birth": ("{0} was born on {1}.", "{1} is the date of birth of {0}."),
    "death": ("{0} died on {1}.", "{1} is the date of death of {0}."),
    "birthplace": ("{0} was born in {1}.", "{1} is the birthplace of {0}."),
    "deathplace": ("{0} died in {1}.", "{1} is the place where {0} died."),
    "nationality": ("{0} is {1}.", "The nationality of {0} is {1}."),
    "occupation": ("{0} was a {1}.", "{0} worked as a {1}."),
    "released": ("{0} was released in {1}.", "{0} came out in {1}."),
    "director": ("{0} was directed by {1}.", "{1} directed {0}.", "{1} is the director of {0}."),
    "writer": ("{0} was written by {1}.", "{1} wrote {0}."),
    "author": ("{0} was written by {1}.", "{1} wrote {0}.", "{1} is the author of {0}."),
    "performer": ("{0} was recorded by {1}.", "{1} recorded {0}."),
    "composer": ("{0} was composed by {1}.", "{1} composed {0}."),
    "producer": ("{0} was produced by {1}.", "{1} produced {0}."),
    "father": ("{0} is a child of {1}.", "{1} is the parent of {0}."),
    "spouse": ("{0} was married to {1}.", "{1} married {0}."),
    "founder": ("{0} was founded by {1}.", "{1} founded {0}.", "{1} is the founder of {0}."),
    "founded": ("{0} was founded in {1}.", "{1} is the year in which {0} was founded."),
    "located": ("{0} is located in {1}.", "{1} is where {0} lies."),
    "school": ("{0} studied at {1}.", "{1} was attended by {0}."),
    "label": ("{0} was released by {1}.", "{1} released {0}."),
    "star": ("{0} stars {1}.", "{1} stars in {0}."),
}
# Relations that say something else when title and value change places.
DIRECTED = frozenset(FORMS) - {"spouse", "nationality", "occupation"}
_NEGATIONS = (
    (re.compile(r"\b(is|was)\b"), r"\1 not"),
    (
        re.compile(
            r"\b(directed|wrote|recorded|composed|produced|founded|released|studied|married|died|worked|came)\b"
        ),
        None,
    ),
    (re.compile(r"\bstars\b"), "does not star"),
)
_BASE = {
    "directed": "direct", "wrote": "write", "recorded": "record", "composed": "compose", "produced": "produce", "founded": "found",
    "released": "release", "studied": "study", "married": "marry", "died": "die", "worked": "work", "came": "come",
}  # fmt: skip
_SHAPES = (
    re.compile(rf"(?<!\w)(?:{DATE})(?!\w)"),
    re.compile(r"(?<![\w.,])\d[\d,.]*\d|\b\d\b"),
    re.compile(r"(?<![\w'’-])[A-Z][\w'’-]+(?: (?:(?:of|de|van|von|the|and) )?[A-Z][\w'’-]+)*"),
)
_BEGINNING = re.compile(r"(?:^|[.!?:\]]\s)$")
_EVIDENCE_CHARACTERS = 1_200


def negated(claim: str) -> str | None:
    """Deny a claim; None if it has no verb that is known.

    Examples
    --------
    >>> negated("Ann Hay directed Film A."), negated("Film A was directed by Ann Hay.")
    ('Ann Hay did not direct Film A.', 'Film A was not directed by Ann Hay.')
    """
    for pattern, wording in _NEGATIONS:
        if wording is None:
            changed = pattern.sub(lambda match: f"did not {_BASE[match[0]]}", claim, count=1)
        else:
            changed = pattern.sub(wording, claim, count=1)
        if changed != claim:
            return changed
    return None


def near_date(date: str, rng: random.Random) -> str:
    """Return another date or number near one: a day, a month or a year apart."""
    month = next((name for name in MONTHS if name in date), None)
    day = re.search(r"\b\d{1,2}\b(?!\d)", date) if month else None
    draw = rng.random()
    if day and draw < 0.35:
        other = rng.choice([value for value in range(1, 29) if value != int(day[0])])
        return f"{date[: day.start()]}{other}{date[day.end() :]}"
    if month and draw < 0.6:
        return date.replace(month, rng.choice([name for name in MONTHS if name != month]))
    year = re.search(r"\d{3,4}", date)
    if year is None:
        return f"{rng.randint(2, 40)}"
    value = int(year[0]) + rng.choice((-30, -10, -5, -2, -1, 1, 2, 5, 10, 20))
    return f"{date[: year.start()]}{value}{date[year.end() :]}"


def made_statements(passages: Iterable[str], count: int, *, seed: int) -> list[CheckingExample]:
    """Make about so many claims of facts: as they are, denied, with another value, turned round, or of what the passage leaves open."""
    rng = random.Random(seed)
    by_relation: dict[str, list[TitleFact]] = defaultdict(list)
    by_passage: dict[str, list[TitleFact]] = {}
    for passage in dict.fromkeys(passages):
        by_passage[passage] = list(facts_of(passage))
        for fact in by_passage[passage]:
            by_relation[fact.relation].append(fact)
    facts = [fact for found in by_relation.values() for fact in found]
    if not facts:
        return []
    names = sorted(by_relation)
    weights = [len(by_relation[name]) ** 0.5 for name in names]
    made: dict[tuple[str, str], CheckingExample] = {}
    for _ in range(3 * count):
        if len(made) >= count:
            break
        relation = rng.choices(names, weights)[0]
        fact = rng.choice(by_relation[relation])
        claim, label, passage = _changed(fact, by_relation, by_passage, rng)
        if claim and (claim, passage) not in made:
            made[claim, passage] = CheckingExample(claim, passage[:_EVIDENCE_CHARACTERS], label, SOURCE)
    return list(made.values())


def _changed(
    fact: TitleFact, by_relation: dict[str, list[TitleFact]], by_passage: dict[str, list[TitleFact]], rng: random.Random
) -> tuple[str, str, str]:
    """Return a claim, its label and its passage; an empty claim where nothing fits."""
    form = rng.choice(FORMS[fact.relation])
    title = bare_title(fact.title)
    right = form.format(title, fact.value)
    others = rng.sample(by_relation[fact.relation], min(8, len(by_relation[fact.relation])))
    wrong = next(
        (other.value for other in others if other.value not in fact.passage and other.value != fact.value), None
    )
    if re.fullmatch(DATE, fact.value) and rng.random() < 0.7:
        wrong = near_date(fact.value, rng)
        wrong = wrong if wrong not in fact.passage else None
    draw = rng.random()
    if draw < 0.38:
        return right, "supported", fact.passage
    if draw < 0.5:
        return negated(right) or "", "refuted", fact.passage
    if draw < 0.7 and wrong:
        return form.format(title, wrong), "refuted", fact.passage
    if draw < 0.76 and wrong:
        return negated(form.format(title, wrong)) or "", "supported", fact.passage
    if draw < 0.86 and fact.relation in DIRECTED:
        return form.format(fact.value, title), "refuted", fact.passage
    # A fact of another title, or of this title in a relation that the passage does not state.
    said = {one.relation for one in by_passage[fact.passage]}
    open_facts = [one for name in by_relation if name not in said for one in by_relation[name][:50]]
    if open_facts and rng.random() < 0.6:
        other = rng.choice(open_facts)
        if other.value in fact.passage or other.relation in ("nationality", "occupation"):
            return "", "", ""
        return rng.choice(FORMS[other.relation]).format(title, other.value), "not_enough_info", fact.passage
    elsewhere = rng.choice(others)
    if elsewhere.passage == fact.passage or title in elsewhere.passage:
        return "", "", ""
    return right, "not_enough_info", elsewhere.passage


def made_answers(
    examples: Sequence[ReadingExample], count: int, distractors: Distractors, *, seed: int
) -> list[CheckingExample]:
    """Make claims of questions and their answers: right ones, others of the same shape, and with a near passage that does not answer."""
    rng = random.Random(seed)
    wanted = dict(zip(LABELS, (2 * count // 5, 2 * count // 5, count // 5), strict=True))
    usable = [row for row in examples if row.kind == "span" and sum(map(len, row.passages)) <= 2 * _EVIDENCE_CHARACTERS]
    made = []
    for row in rng.sample(usable, len(usable)):
        label = rng.choice([label for label, left in wanted.items() if left > 0] or [""])
        answer, evidence = rng.choice(row.answers), " ".join(row.passages)
        if label == "refuted":
            answer = _alike(answer, row, rng) or ""
        elif label == "not_enough_info":
            evidence = " ".join(distractors.draw(row, 1, rng))
        elif not label:
            break
        if answer and evidence:
            wanted[label] -= 1
            made.append(CheckingExample(f"{row.question} {answer}", evidence, label, ANSWERS))
    return made


def _alike(answer: str, row: ReadingExample, rng: random.Random) -> str | None:
    """Return another text of the passages that has the shape of the answer: a date, a number or a name."""
    shape = next((pattern for pattern in _SHAPES if pattern.fullmatch(answer)), None)
    if shape is None:
        return None
    found = {
        match[0]
        for text in row.passages
        for match in shape.finditer(text)
        if match[0] not in row.question and match[0] not in answer and answer not in match[0]
        # A capital at the beginning of a sentence does not make a name.
        if " " in match[0] or match[0][0].isdigit() or not _BEGINNING.search(text[: match.start()])
    }
    return rng.choice(sorted(found)) if found else None
