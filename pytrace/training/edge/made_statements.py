"""Claims made by rule: facts in the active and the passive, with one thing changed, and answers of questions, right and wrong.

What a small checker overlooks is its food here: who did what, negation, neighboring numbers and dates, and what a text leaves open.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pytrace.certify.claims.answer_claims import answer_statement
from pytrace.documents.sentences import split_sentences
from pytrace.models.edge.reading import LABELS
from pytrace.training.edge.edge_examples import CheckingExample, Distractors, ReadingExample
from pytrace.training.edge.made_contrasts import contrasts
from pytrace.training.edge.made_questions import DATE, MONTHS, TitleFact, bare_title, facts_of
from pytrace.training.edge.rewording import reworded

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
_REWORDED = 0.6  # of the claims that are made
_LONGEST_CLAIM = 200
_APART = 25  # characters between an answer and another that is wrong
_SHORTEST_STATED = 5  # words of a question that becomes a statement
_NUMBER = re.compile(r"(?<![\w.,–-])\d+(?:[.,]\d+)*(?![\w–-])")
_PRONOUN = re.compile(r"^(?:He|She|It)(?= (?:[a-z]+ed|is|was)\b)")
_NAME = re.compile(r"(?<![\w'’-])[A-Z][\w'’-]+(?: (?:(?:of|de|van|von) )?[A-Z][\w'’-]+)*")
_NAMES = rf"((?:The )?{_NAME.pattern})"
_OPENINGS = frozenset(
    {
        "The", "It", "He", "She", "They", "This", "That", "These", "His", "Her", "Its", "Their", "In", "On", "At", "From", "As", "For",
        "After", "Before", "During", "A", "An", "When", "While", "And", "But", "However",
    }
)  # fmt: skip
_NOT_FIRST = rf"(?!(?:{'|'.join(sorted(_OPENINGS - {'The'}))})\b)"
# Verbs that `benches.claim_twins` turns are not among those that a training sees.
_UNSEEN = "(?!(?:defeated|succeeded|acquired|replaced|discovered|invented|published|killed|appointed|owned|named|born|located|based|called)\\b)"
_ACTIVE = re.compile(rf"{_NOT_FIRST}{_NAMES} {_UNSEEN}([a-z]+ed) {_NAMES}(?=[.,;]| (?:in|on|at|to|by|for|with|and)\b)")
_PASSIVE = re.compile(rf"{_NOT_FIRST}{_NAMES} (?:is|was) {_UNSEEN}([a-z]+ed) (?:in \d{{4}} )?by {_NAMES}")
# What one is of another, told from the other side.
_THE_OTHER = {
    "capital": "The capital of {1} is {0}.", "son": "{1} is a parent of {0}.", "daughter": "{1} is a parent of {0}.",
    "father": "{1} is a child of {0}.", "mother": "{1} is a child of {0}.", "author": "{1} was written by {0}.",
    "founder": "{1} was founded by {0}.", "predecessor": "{1} came after {0}.", "successor": "{1} came before {0}.",
    "leader": "{1} is led by {0}.", "president": "{1} has {0} as its president.", "captain": "The captain of {1} is {0}.",
    "owner": "{1} belongs to {0}.", "teacher": "{1} learned from {0}.", "district": "{1} contains {0}.",
    "province": "{1} contains {0}.", "county": "{1} contains {0}.", "sequel": "{1} came before {0}.",
    "adaptation": "{0} is based on {1}.", "species": "{1} includes {0}.", "genus": "{1} includes {0}.",
}  # fmt: skip
_OF = re.compile(
    rf"{_NOT_FIRST}{_NAMES} (?:is|was) (?:an?|the) (?:\w+ )?({'|'.join(_THE_OTHER)}) of {_NAMES}(?=[.,;]| (?:and|in)\b)"
)
_ORDERS = {
    "birth": ("{0} was born before {1}.", "{0} was born after {1}."),
    "death": ("{0} died before {1}.", "{0} died later than {1}."),
    "released": ("{0} came out before {1}.", "{0} was released later than {1}."),
    "founded": ("{0} is older than {1}.", "{0} was founded after {1}."),
}


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
    """Make about so many claims, most in pairs about one text: a supported one and a false one that differs in one thing.

    Pairs are of who did what to whom, of what came first, of negation, other values and numbers; single claims are of what the text leaves open.
    """
    rng = random.Random(seed)
    said = _Said(passages)
    if not said.facts:
        return []
    made: dict[tuple[str, str], CheckingExample] = {}
    names = list(_MAKERS)
    weights = [_MAKERS[name] for name in names]
    for _ in range(3 * count):
        if len(made) >= count:
            break
        drawn = rng.choices(names, weights)[0](said, rng)
        # Both of a pair, so that another wording tells nothing.
        other_words = rng.random() < _REWORDED
        for plain, label, evidence in drawn:
            claim = reworded(plain, rng) if other_words else plain
            made[claim, evidence] = CheckingExample(claim, evidence, label, SOURCE)
    return list(made.values())


class _Said:
    """What passages say: facts by relation and by passage, and sentences of which claims can be made, by the way they are."""

    def __init__(self, passages: Iterable[str]) -> None:
        self.by_relation: dict[str, list[TitleFact]] = defaultdict(list)
        self.by_passage: dict[str, list[TitleFact]] = {}
        self.turned: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        self.contrasted: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        self.counted: list[tuple[str, str]] = []
        rng = random.Random(0)
        for passage in dict.fromkeys(passages):
            self.by_passage[passage] = list(facts_of(passage))
            for fact in self.by_passage[passage]:
                self.by_relation[fact.relation].append(fact)
            title, _, text = passage.partition("] ")
            for sentence in split_sentences(text):
                claim = _PRONOUN.sub(bare_title(title.removeprefix("[")), sentence)
                if len(claim) > _LONGEST_CLAIM:
                    continue
                for kind, right, wrong in contrasts(claim, text, rng):
                    evidence = sentence if rng.random() < 0.5 else text[:_EVIDENCE_CHARACTERS]
                    self.contrasted[kind].append((right, wrong, f"{title}] {evidence}"))
                if _NUMBER.search(claim):
                    self.counted.append(
                        (claim, f"{title}] {sentence if len(self.counted) % 2 else text[:_EVIDENCE_CHARACTERS]}")
                    )
                for way, right, wrong in turned(claim):
                    self.turned[way].append((right, wrong, f"{title}] {sentence}"))
        self.facts = [fact for found in self.by_relation.values() for fact in found]
        self.relations = sorted(self.by_relation)

    def fact(self, rng: random.Random, among: Iterable[str] = ()) -> TitleFact | None:
        """Draw a fact, of one of some relations if there are any; rare relations come more often than their share."""
        wanted = {*among} or {*self.relations}
        names = [name for name in self.relations if name in wanted]
        if not names:
            return None
        name = rng.choices(names, [len(self.by_relation[name]) ** 0.5 for name in names])[0]
        return rng.choice(self.by_relation[name])

    def other_value(self, fact: TitleFact, rng: random.Random) -> str | None:
        """Draw a value that the passage does not have: a near date, or that of another title."""
        if re.fullmatch(DATE, fact.value) and rng.random() < 0.7:
            near = near_date(fact.value, rng)
            return None if near in fact.passage else near
        theirs = rng.sample(self.by_relation[fact.relation], min(8, len(self.by_relation[fact.relation])))
        return next((one.value for one in theirs if one.value not in fact.passage), None)


Claims = list[tuple[str, str, str]]
"""Claims with label and evidence."""


def turned(sentence: str) -> Iterator[tuple[str, str, str]]:
    """Yield, for who did what to whom in a sentence: the kind of wording, the same the other way round, and the false turn.

    Examples
    --------
    >>> next(turned("Ivo Brandt restored Holm Abbey in 1903."))
    ('active', 'Holm Abbey was restored by Ivo Brandt.', 'Ivo Brandt was restored by Holm Abbey.')
    """
    for match in _ACTIVE.finditer(sentence):
        first, verb, second = match.groups()
        if _are_apart(first, second):
            yield "active", f"{second} was {verb} by {first}.", f"{first} was {verb} by {second}."
    for match in _PASSIVE.finditer(sentence):
        first, verb, second = match.groups()
        if _are_apart(first, second):
            yield "passive", f"{second} {verb} {first}.", f"{first} {verb} {second}."
    for match in _OF.finditer(sentence):
        first, word, second = match.groups()
        if _are_apart(first, second):
            wording = _THE_OTHER[word]
            yield word, wording.format(first, second), wording.format(second, first)
    names = [match for match in _NAME.finditer(sentence) if match[0].split()[0] not in _OPENINGS]
    for one, other in itertools.pairwise(names):
        between = sentence[one.end() : other.start()]
        # Of what is enumerated, either may come first.
        if (
            _are_apart(one[0], other[0])
            and re.search(r"[a-z]{3}", between)
            and not re.search(r"\b(?:and|or)\b|[,;/&]", between)
        ):
            changed = f"{sentence[: one.start()]}{other[0]}{between}{one[0]}{sentence[other.end() :]}"
            yield "exchanged", sentence, changed


def _are_apart(first: str, second: str) -> bool:
    return not {*first.split()} & {*second.split()}


def _evidence(passage: str, value: str, rng: random.Random) -> str:
    """Return a passage, or its title and the sentence that has a value; one in five has no title."""
    title, _, text = passage.partition("] ")
    if rng.random() < 0.5:
        text = next((sentence for sentence in split_sentences(text) if value in sentence), text)
    else:
        text = text[:_EVIDENCE_CHARACTERS]
    named = bare_title(title.removeprefix("["))
    return text if rng.random() < 0.2 and named in text else f"{title}] {text}"


def _turned_fact(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of a fact and the same with title and value in each other's place."""
    fact = said.fact(rng, DIRECTED)
    if fact is None or re.fullmatch(DATE, fact.value):
        return []
    title = bare_title(fact.title)
    if title in fact.value or fact.value in title:
        return []
    evidence = _evidence(fact.passage, fact.value, rng)
    right, wrong = (rng.choice(FORMS[fact.relation]) for _ in range(2))
    return [
        (right.format(title, fact.value), "supported", evidence),
        (wrong.format(fact.value, title), "refuted", evidence),
    ]


def _turned_sentence(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of who did what to whom, of a sentence."""
    return _drawn(said.turned, 0.3, rng)


def _contrast(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of a sentence and its contrast."""
    return _drawn(said.contrasted, 0.4, rng)


def _drawn(pairs: Mapping[str, Sequence[tuple[str, str, str]]], power: float, rng: random.Random) -> Claims:
    """Draw a pair; rare kinds come more often than their share."""
    kinds = sorted(pairs)
    if not kinds:
        return []
    kind = rng.choices(kinds, [len(pairs[one]) ** power for one in kinds])[0]
    right, wrong, evidence = rng.choice(pairs[kind])
    return [(right, "supported", evidence), (wrong, "refuted", evidence)]


def _another_number(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of a sentence and the same with another number."""
    if not said.counted:
        return []
    sentence, evidence = rng.choice(said.counted)
    match = rng.choice(list(_NUMBER.finditer(sentence)))
    near = _near_number(match[0], rng)
    if near in evidence:
        return []
    wrong = f"{sentence[: match.start()]}{near}{sentence[match.end() :]}"
    return [(sentence, "supported", evidence), (wrong, "refuted", evidence)]


def _near_number(number: str, rng: random.Random) -> str:
    """Return a number of the same form with one digit changed: "1,204" for "1,203"."""
    place = rng.choice([place for place, one in enumerate(number) if one.isdigit()])
    least = "1" if place == 0 else "0"
    return f"{number[:place]}{rng.choice([one for one in '0123456789' if one != number[place] and one >= least])}{number[place + 1 :]}"


def _order(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of which of two came first."""
    relation = rng.choice(sorted(_ORDERS))
    facts = [said.fact(rng, (relation,)) for _ in range(2)]
    years = [int(found[0]) if fact and (found := re.search(r"\d{4}", fact.value)) else 0 for fact in facts]
    if not all(years) or years[0] == years[1] or not facts[0] or not facts[1]:
        return []
    titles = [bare_title(fact.title) for fact in facts if fact]
    if not _are_apart(*titles):
        return []
    earlier, later = _ORDERS[relation]
    texts = [_evidence(fact.passage, fact.value, rng)[: _EVIDENCE_CHARACTERS // 2] for fact in facts if fact]
    evidence = " ".join(texts)
    label = "supported" if years[0] < years[1] else "refuted"
    other = "refuted" if label == "supported" else "supported"
    wording = rng.choice((earlier, later))
    label, other = (label, other) if wording == earlier else (other, label)
    return [(wording.format(*titles), label, evidence), (wording.format(*titles[::-1]), other, evidence)]


def _denied(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of a claim and its denial, or of a wrong claim and its denial, which is right."""
    fact = said.fact(rng)
    assert fact is not None
    form, title = rng.choice(FORMS[fact.relation]), bare_title(fact.title)
    evidence = _evidence(fact.passage, fact.value, rng)
    right, value = form.format(title, fact.value), said.other_value(fact, rng)
    if value and rng.random() < 0.4:
        wrong = form.format(title, value)
        denial = negated(wrong)
        return [(denial, "supported", evidence), (wrong, "refuted", evidence)] if denial else []
    denial = negated(right)
    return [(right, "supported", evidence), (denial, "refuted", evidence)] if denial else []


def _another_value(said: _Said, rng: random.Random) -> Claims:
    """Make a pair of a fact and the same with another value."""
    fact = said.fact(rng)
    assert fact is not None
    form, title = rng.choice(FORMS[fact.relation]), bare_title(fact.title)
    value = said.other_value(fact, rng)
    if not value:
        return []
    evidence = _evidence(fact.passage, fact.value, rng)
    return [
        (form.format(title, fact.value), "supported", evidence),
        (form.format(title, value), "refuted", evidence),
    ]


def _left_open(said: _Said, rng: random.Random) -> Claims:
    """Make a claim that its text neither supports nor refutes: in a relation that it does not state, or of another title."""
    fact = said.fact(rng)
    assert fact is not None
    title = bare_title(fact.title)
    stated = {one.relation for one in said.by_passage[fact.passage]}
    if rng.random() < 0.6:
        other = said.fact(rng, {*FORMS} - stated - {"nationality", "occupation"})
        if other is None or other.value in fact.passage:
            return []
        claim = rng.choice(FORMS[other.relation]).format(title, other.value)
        return [(claim, "not_enough_info", fact.passage[:_EVIDENCE_CHARACTERS])]
    elsewhere = rng.choice(said.by_relation[fact.relation])
    if elsewhere.passage == fact.passage or title in elsewhere.passage:
        return []
    claim = rng.choice(FORMS[fact.relation]).format(title, fact.value)
    return [(claim, "not_enough_info", _evidence(elsewhere.passage, elsewhere.value, rng))]


_MAKERS: dict[Callable[[_Said, random.Random], Claims], float] = {
    _turned_fact: 0.3, _turned_sentence: 0.22, _order: 0.08, _denied: 0.12, _another_value: 0.18, _another_number: 0.1, _contrast: 0.3, _left_open: 0.25,
}  # fmt: skip
"""What makes claims, with how often each is drawn."""


def claim_twins(claims: Iterable[CheckingExample], *, seed: int) -> list[CheckingExample]:
    """Make false twins of supported claims: another number, two names exchanged, another word or a denial."""
    rng = random.Random(seed)
    made: dict[tuple[str, str], CheckingExample] = {}
    for row in claims:
        if row.label != "supported" or len(row.claim) > _LONGEST_CLAIM:
            continue
        wrong = [twin for _, right, twin in contrasts(row.claim, row.evidence, rng) if right == row.claim]
        wrong += [twin for way, _, twin in turned(row.claim) if way == "exchanged"]
        numbers = list(_NUMBER.finditer(row.claim))
        if numbers:
            match = rng.choice(numbers)
            near = _near_number(match[0], rng)
            if near not in row.evidence:
                wrong.append(f"{row.claim[: match.start()]}{near}{row.claim[match.end() :]}")
        if wrong:
            twin = rng.choice(wrong)
            made[twin, row.evidence] = CheckingExample(twin, row.evidence, "refuted", SOURCE, row.others)
    return list(made.values())


def made_answers(
    examples: Sequence[ReadingExample], count: int, distractors: Distractors, *, seed: int
) -> list[CheckingExample]:
    """Make claims of questions and their answers: right ones, others of the same shape, and with a near passage that does not answer.

    A question whose first words ask for its subject becomes a statement; of the others, the answer follows the question.
    """
    rng = random.Random(seed)
    wanted = dict(zip(LABELS, (2 * count // 5, 3 * count // 10, 3 * count // 10), strict=True))
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
            made.append(
                CheckingExample(_answered(row.question, answer), evidence, label, ANSWERS, question=row.question)
            )
    return made


def _answered(question: str, answer: str) -> str:
    """Return a question and its answer as a statement, or one after the other where they make none."""
    statement = answer_statement(question, answer) if len(question.split()) >= _SHORTEST_STATED else ""
    if not statement.startswith(answer):
        return f"{question} {answer}"
    return f"{statement[0].upper()}{statement[1:]}"


def _alike(answer: str, row: ReadingExample, rng: random.Random) -> str | None:
    """Return another text of the passages that has the shape of the answer: a date, a number or a name."""
    shape = next((pattern for pattern in _SHAPES if pattern.fullmatch(answer)), None)
    if shape is None:
        return None
    found = {
        match[0]
        for text in row.passages
        for match in shape.finditer(text)
        if match[0] not in row.question
        and match[0] not in answer
        and answer not in match[0]
        # "the president, Ann Hay": what stands next to the answer may be another name of it.
        and answer not in text[max(match.start() - _APART - len(answer), 0) : match.end() + len(answer) + _APART]
        # A capital at the beginning of a sentence does not make a name.
        if " " in match[0] or match[0][0].isdigit() or not _BEGINNING.search(text[: match.start()])
    }
    return rng.choice(sorted(found)) if found else None
