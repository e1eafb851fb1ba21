"""What speaks for a stretch of the evidence being the answer: its form, the words around it, and the question's words near it."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytrace.reader.answers import normalise_answer
from pytrace.reader.spans.candidates import Sentence, Span, find_spans, read_entries
from pytrace.reader.spans.comparison import Entry, earlier_or_later, life, life_event_asked, merge_articles, names_of
from pytrace.reader.spans.focus import FocusView
from pytrace.reader.spans.question import Asked, read_question
from pytrace.reader.spans.words import MONTHS, Word
from pytrace.reader.spans.yes_no import is_denied, yes_features

Features = dict[str, float]

_NEAR = 5  # words before and behind a span that are looked at
_BEFORE, _BEHIND = 3, 6  # words around a span in which what it is may be told
_FAR = 30
_LAST = 4  # sentence of an entry; those behind it are like it
_LEAST_RELEVANCE = 1e-3  # of the best, so that its logarithm stays finite
_LITERALS = frozenset(("none", "null", "true", "false"))  # code, but not names
_DATES = frozenset(("date", "day", "month", "year"))
_DASHES = frozenset("–—-−")
_MAX_BRACKET_WORDS = 12
_YEAR = re.compile(r"1\d{3}|20\d{2}")
_ORIGIN = re.compile(r"[A-Z][a-z]+(?:an|ish|ese|ch|i|ek)")
_EDGES_BEFORE = frozenset(("start", "article", "of", "preposition", "auxiliary", "and", "(", '"', ","))
_EDGES_BEHIND = frozenset(("end", "preposition", "auxiliary", "verb", "and", "(", ")", '"', ",", "."))
_TOLD = frozenset(("article", "auxiliary", "preposition", "of", "and"))


class Scored(NamedTuple):
    """A text of the evidence that may be the answer, its features, and where it stands, the likeliest place first."""

    text: str
    features: Features
    spans: tuple[tuple[int, int, int], ...]
    """Each as entry, first character, and the character behind the last."""


class EntryFacts(NamedTuple):
    """What a search says of an entry of the evidence.

    `rank` counts from 0, `relevance` is the search's score divided by the best one's, `role` is the place in the likeliest chain ("last",
    "in" it, or "out"), and `hops` how likely the question takes several passages.
    """

    rank: int
    relevance: float
    role: str
    hops: float

    @property
    def features(self) -> Features:
        """The facts as features of every candidate in the entry."""
        return {
            f"rank {min(self.rank, _LAST)}": 1.0,
            "relevance": math.log(max(self.relevance, _LEAST_RELEVANCE)),
            f"chain {self.role}": 1.0,
            f"chain {self.role}, hops": self.hops,
        }


def candidates(
    question: str,
    entries: Sequence[str],
    facts: Sequence[EntryFacts] = (),
    near: Sequence[tuple[int, int, int]] | None = None,
) -> list[Scored]:
    """Return every text that may be the answer, spans of one normal form as one; yes and no where these are asked for.

    Parameters
    ----------
    question, entries
        What was asked, and the evidence.
    facts
        What a search says of each entry; none if no search ranked them.
    near
        Places, each as entry, first character, and the character behind the last: only what shares characters with one of them is returned,
        and what rules decide for. None: everything.
    """
    of_entries = [one.features for one in facts] or [{"unranked": 1.0}] * len(entries)
    asked = read_question(question)
    sentences = read_entries(entries)
    if asked.kind == "yes-no":
        entries_read = _titled(sentences)
        # A title says whom its sentences speak of: "He never worked on clocks."
        denied = is_denied(question, [f"{entry.title}. {said}" for entry in entries_read for said in entry.sentences])
        yes = Scored("yes", yes_features(question, merge_articles(entries_read)), ())
        return [yes, Scored("no", {"denied": 1.0} if denied else {}, ())]
    view = _View(question, asked, sentences)
    spans = []
    for span in find_spans(sentences):
        entry = sentences[span.sentence].entry
        text = entries[entry][span.start : span.end]
        form = normalise_answer(text)
        if form:
            spans.append((span, entry, text, form))
    if near is not None and not asked.identifier:
        touched = _touching(near)
        kept = {form for span, entry, _, form in spans if touched(entry, span.start, span.end)} | view.decided
        spans = [one for one in spans if one[3] in kept]
    found: dict[str, tuple[str, Features, list[tuple[int, int, int]]]] = {}
    for span, entry, text, form in spans:
        features = {**view.features(span, form), **of_entries[entry]}
        place = (entry, span.start, span.end)
        if form in found:
            known = found[form]
            for name, value in features.items():
                known[1][name] = max(value, known[1].get(name, 0.0))
            known[1]["again"] = known[1].get("again", 0.0) + 1
            known[2].append(place)
        else:
            found[form] = (text, features, [place])
    for _, features, _ in found.values():
        features["again"] = math.log1p(features.get("again", 0.0))
    return [Scored(text, features, tuple(places)) for text, features, places in found.values()]


def _touching(places: Sequence[tuple[int, int, int]]) -> Callable[[int, int, int], bool]:
    """Return what tells whether a place shares characters with one of some places."""
    by_entry: dict[int, list[tuple[int, int]]] = {}
    for entry, start, end in places:
        by_entry.setdefault(entry, []).append((start, end))

    def touched(entry: int, start: int, end: int) -> bool:
        return any(first < end and start < last for first, last in by_entry.get(entry, ()))

    return touched


class _View:
    """A question beside its evidence: what every span of it is looked at with."""

    def __init__(self, question: str, asked: Asked, sentences: Sequence[Sentence]) -> None:
        self._asked = asked
        self._question = f" {normalise_answer(question)} "
        self._sentences = sentences
        self._shared = [
            [word.kind != "mark" and word.stem in asked.stems for word in sentence.words] for sentence in sentences
        ]
        entries = _titled(sentences)
        self._titles = [names_of(entry.title) for entry in entries]
        self._headed = {sentence.entry for sentence in sentences if sentence.heading}
        self._articles = [names for number, names in enumerate(self._titles) if number not in self._headed]
        self._asked_about = [any(f" {name} " in self._question for name in names) for names in self._titles]
        self._texts = [f" {normalise_answer(text)} " for text in _texts(sentences)]
        self._best_shared = [0] * len(entries)
        for sentence, shared in zip(sentences, self._shared, strict=True):
            if not sentence.is_title:
                self._best_shared[sentence.entry] = max(self._best_shared[sentence.entry], sum(shared))
        self._lives = {
            name: life(" ".join(entry.sentences))[0] is not None
            for entry, names in zip(entries, self._titles, strict=True)
            for name in names
        }
        self._linked, self._leads = _links(self._titles, sentences)
        self._place = _places_within(sentences)
        counts = Counter(stem for sentence in sentences for stem in {word.stem for word in sentence.words})
        self._focus = FocusView(question, [sentence.words for sentence in sentences])
        self._below: dict[int, list[int]] = {}
        for number, sentence in enumerate(sentences):
            if not sentence.is_title:
                self._below.setdefault(sentence.entry, []).append(number)
        self._rare = [
            sum(
                1 / counts[stem]
                for stem in {word.stem for word, is_shared in zip(sentence.words, row, strict=True) if is_shared}
            )
            for sentence, row in zip(sentences, self._shared, strict=True)
        ]
        compared = merge_articles(entries)
        chosen = earlier_or_later(question, compared)
        self._chosen = [] if chosen is None else names_of(compared[chosen].title)
        self._compared = chosen is not None
        self._asked_life = life_event_asked(question)
        self._lower = {word.text for sentence in sentences for word in sentence.words if word.text.islower()}
        self._counts = counts

    @property
    def decided(self) -> set[str]:
        """The normal forms of what a rule decides for."""
        return {*self._chosen} if self._compared and self._asked.choice else set()

    def features(self, span: Span, form: str) -> Features:
        """Return the features of a span by name."""
        asked, sentence = self._asked, self._sentences[span.sentence]
        found, shared = sentence.words, self._shared[span.sentence]
        inside = found[span.first : span.last]
        before = _edge(found[span.first - 1]) if span.first else "start"
        behind = _edge(found[span.last]) if span.last < len(found) else "end"
        shape = shape_of(inside)
        repeated = f" {form} " in self._question
        entry = sentence.entry
        told = found[span.first - 1].text.lower() if span.first and found[span.first - 1].kind in _TOLD else before
        features: Features = {
            f"words {min(len(inside), 7)}": 1,
            f"shape {shape}": 1,
            f"{asked.kind}: {shape}": 1,
            f"before {before}": 1,
            f"behind {behind}": 1,
            f"{asked.kind}: before {told}": 1,
            f"bounded {before in _EDGES_BEFORE} {behind in _EDGES_BEHIND}": 1,
            f"repeats the question {repeated}, choice {asked.choice}": 1,
            f"about a title asked for {self._asked_about[entry]}, any {any(self._asked_about)}": 1,
            "words of the question": 0.0 if repeated else sum(shared[span.first : span.last]) / max(len(inside), 1),
            f"repeats in part {not repeated and 2 * sum(shared[span.first : span.last]) >= len(inside)}, {shape}": 1,
            "entries with it": sum(f" {form} " in text for text in self._texts) / len(self._texts),
        }
        features[f"asks for several {asked.several}, lists several {any(word.kind == 'and' for word in inside)}"] = 1
        features[f"linked {self._linked[entry]}, asked for {self._asked_about[entry]}"] = 1
        if any(form in names for names in self._articles):
            features["a title"] = 1
            features[f"{asked.kind}: has a life {self._lives[form]}"] = 1
            features[f"a title, repeats the question {repeated}"] = 1
        if len(inside) == 1 and inside[0].text[:1].isupper() and inside[0].text.lower() in self._lower:
            features["also a common word"] = 1
        if self._compared and asked.choice:
            features["the one of two"] = form in self._chosen
        code = sum(word.kind == "code" or word.span > 0 for word in inside)
        if code:
            features["is code" if code == len(inside) else "holds code"] = 1
            features[f"{asked.kind}: is code {code == len(inside)}"] = 1
        if asked.identifier and not repeated and form not in _LITERALS:
            # A one-word heading, such as "httpx-ws", can be a name without code marks. In short pages, headings are lines of the passage.
            heading = sentence.heading == 1 or not (sentence.is_title or entry in self._headed)
            alone = len(inside) == len(found) == 1 and heading
            features["an identifier"] = alone or code == len(inside)
        if sentence.is_title:
            features["at a title"] = 1
            features[f"{asked.kind}: at a title"] = 1
            features["sentence shares"] = math.log1p(self._best_shared[entry])
            if sentence.heading:
                features["rare shares"] = max((self._rare[below] for below in self._below.get(entry, ())), default=0.0)
            features.update(self._focus.title_features(self._below.get(entry, ())))
            return features
        if not span.first:
            features[f"begins the sentence, {shape}"] = 1
        if shape in _DATES and (side := _lifespan_side(found, span.first, span.last)):
            features[f"{side} of a life, asked for {self._asked_life}"] = 1
        features.update(self._focus.features(span.sentence, span.first, span.last, asked.kind))
        features["sentence shares"] = math.log1p(sum(shared))
        features[f"sentence {min(self._place[span.sentence], _LAST)}"] = 1
        features["rare shares"] = self._rare[span.sentence]
        features[f"leads on {self._leads[span.sentence]}, asked for {self._asked_about[entry]}"] = 1
        near = [
            place
            for place in (
                *range(max(0, span.first - _NEAR), span.first),
                *range(span.last, min(span.last + _NEAR, len(found))),
            )
            if shared[place]
        ]
        features["near shares"] = math.log1p(len(near))
        features["near rare shares"] = sum(1 / self._counts[stem] for stem in {found[place].stem for place in near})
        distances = [
            abs(place - span.first)
            for place, is_shared in enumerate(shared)
            if is_shared and not span.first <= place < span.last
        ]
        features["distance"] = math.log1p(min(distances, default=_FAR))
        if asked.head:
            heads = [word.stem == asked.head for word in found]
            features["head before"] = any(heads[max(0, span.first - _BEFORE) : span.first])
            features["head within"] = any(heads[span.first : span.last])
            features["head behind"] = any(heads[span.last : span.last + _BEHIND])
            features["head in the sentence"] = any(heads)
        return features


def _titled(sentences: Sequence[Sentence]) -> list[Entry]:
    """Return entries with their titles apart; of headings the one that the text stands below is the title."""
    entries = [Entry("", [])] * (max((sentence.entry for sentence in sentences), default=-1) + 1)
    for sentence in sentences:
        if sentence.heading > 1:
            continue
        title, said = entries[sentence.entry]
        entries[sentence.entry] = (
            Entry(sentence.text, said) if sentence.is_title and not title else Entry(title, [*said, sentence.text])
        )
    return entries


def _texts(sentences: Sequence[Sentence]) -> list[str]:
    """Return what each entry says, its title and headings included."""
    texts: dict[int, list[str]] = {
        number: [] for number in range(max((each.entry for each in sentences), default=-1) + 1)
    }
    for sentence in sentences:
        texts[sentence.entry].append(sentence.text)
    return [" ".join(said) for said in texts.values()]


def _links(titles: Sequence[Sequence[str]], sentences: Sequence[Sentence]) -> tuple[list[bool], list[bool]]:
    """Tell which entries are named in others, and which sentences name other entries."""
    linked = [False] * len(titles)
    leads = []
    for sentence in sentences:
        text = f" {normalise_answer(sentence.text)} "
        named = [
            number
            for number, names in enumerate(titles)
            if number != sentence.entry and any(f" {name} " in text for name in names)
        ]
        leads.append(bool(named))
        if not sentence.is_title:
            for number in named:
                linked[number] = True
    return linked, leads


def _places_within(sentences: Sequence[Sentence]) -> list[int]:
    """Return the number of each sentence within its entry; titles do not count."""
    counts: Counter[int] = Counter()
    places = []
    for sentence in sentences:
        places.append(counts[sentence.entry])
        counts[sentence.entry] += not sentence.is_title
    return places


def _lifespan_side(found: Sequence[Word], first: int, last: int) -> str:
    """Return the side of the dash in brackets that a span is on, such as "beginning" for 1851 in "(1851–1926)"; "" if there is no dash."""
    behind_a_dash, depth = False, 0
    for place in range(first - 1, max(first - _MAX_BRACKET_WORDS, 0) - 1, -1):
        text = found[place].text
        behind_a_dash |= text in _DASHES and not depth
        depth += (text == ")") - (text == "(")
        if depth < 0:
            break
    if depth >= 0:
        return ""
    if behind_a_dash:
        return "end"
    inside = itertools.takewhile(lambda word: word.text != ")", found[last : last + _MAX_BRACKET_WORDS])
    return "beginning" if any(word.text in _DASHES for word in inside) else ""


def _edge(word: Word) -> str:
    """Return what kind of border a word is; of a mark itself."""
    return word.text if word.kind == "mark" and word.text in '(),."' else word.kind


def shape_of(found: Sequence[Word]) -> str:
    """Return what a span looks like: a date, a day or a month of one, a year, a number, a name, where it comes from, or words."""
    texts = [word.text for word in found]
    if not texts:
        return "part"
    digits = [text[0].isdigit() for text in texts]
    capitals = [text[0].isupper() for text in texts]
    if any(digits) and any(text.lower().rstrip(".") in MONTHS and text[0].isupper() for text in texts):
        dated = any(_YEAR.fullmatch(text) for text in texts)
        return "day" if not dated else "date" if sum(digits) > 1 else "month"
    if len(texts) == 1 and _YEAR.fullmatch(texts[0]):
        return "year"
    if digits[0]:
        return "number" if len(texts) == 1 else "quantity"
    if len(texts) == 1 and capitals[0]:
        return "origin" if _ORIGIN.fullmatch(texts[0]) else "name of one word"
    if capitals[0] and capitals[-1]:
        return "name of two words" if len(texts) == 2 else "name"
    if capitals[0] or capitals[-1]:
        return "partly a name"
    return "words with a name" if any(capitals) or any(digits) else "words"
