"""What speaks for a stretch of the evidence being the answer: its form, the words around it, and the question's words near it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from pytrace.reader.answers import normalise_answer
from pytrace.reader.spans.candidates import Sentence, Span, are_english, read_entries, spans_of
from pytrace.reader.spans.comparison import Entry, earlier_or_later, merge_articles, names_of
from pytrace.reader.spans.focus import FocusView
from pytrace.reader.spans.question import Asked, read_question
from pytrace.reader.spans.words import MONTHS, Word
from pytrace.reader.spans.yes_no import is_denied, yes_features

Features = dict[str, float]

_NEAR = 5  # words before and behind a span that are looked at
_LEAST_RELEVANCE = 1e-3  # of the best, so that its logarithm stays finite
_LITERALS = frozenset(("none", "null", "true", "false"))  # code, but not names
_YEAR = re.compile(r"1\d{3}|20\d{2}")
_ORIGIN = re.compile(r"[A-Z][a-z]+(?:an|ish|ese|ch|i|ek)")


class Scored(NamedTuple):
    """A text of the evidence that may be the answer, its features, and where it stands, the likeliest place first."""

    text: str
    features: Features
    spans: tuple[tuple[int, int, int], ...]
    """Each as entry, first character, and the character behind the last."""


class EntryFacts(NamedTuple):
    """What a search says of an entry of the evidence.

    `relevance` is the search's score divided by the best one's, `role` is the place in the likeliest chain ("last",
    "in" it, or "out"), and `hops` how likely the question takes several passages.
    """

    relevance: float
    role: str
    hops: float

    @property
    def features(self) -> Features:
        """The facts as features of every candidate in the entry."""
        return {
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
    if not sentences:
        return []
    if asked.kind == "yes-no":
        entries_read = _titled(sentences)
        # A title says whom its sentences speak of: "He never worked on clocks."
        denied = is_denied(question, [f"{entry.title}. {said}" for entry in entries_read for said in entry.sentences])
        yes = Scored("yes", yes_features(question, merge_articles(entries_read)), ())
        return [yes, Scored("no", {"denied": 1.0} if denied else {}, ())]
    forms = [normalise_answer(sentence.text) for sentence in sentences]
    view = _View(question, asked, sentences, forms)
    if asked.identifier:
        near = None
    found: dict[str, tuple[str, Features, list[tuple[int, int, int]]]] = {}
    for span, form in _spans(entries, sentences, forms, near, view.decided):
        entry = sentences[span.sentence].entry
        text = entries[entry][span.start : span.end]
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


def _spans(
    entries: Sequence[str],
    sentences: Sequence[Sentence],
    forms: Sequence[str],
    near: Sequence[tuple[int, int, int]] | None,
    decided: set[str],
) -> Iterator[tuple[Span, str]]:
    """Yield spans with their normal forms: those that overlap `near`, and others with the same form or a decided one; without `near`, all.

    `forms` are the sentences' normal forms. A sentence that contains none of the forms looked for is skipped.
    """
    english = are_english(sentences)

    @cache
    def spans(number: int) -> list[tuple[Span, str]]:
        sentence = sentences[number]
        found = []
        for span in spans_of(number, sentence, english=english):
            form = normalise_answer(entries[sentence.entry][span.start : span.end])
            if form:
                found.append((span, form))
        return found

    if near is None:
        for number in range(len(sentences)):
            yield from spans(number)
        return
    touched = _touching(near)
    first = [
        number
        for number, sentence in enumerate(sentences)
        if touched(sentence.entry, sentence.start, sentence.start + len(sentence.text))
    ]
    kept = decided | {
        form
        for number in first
        for span, form in spans(number)
        if touched(sentences[number].entry, span.start, span.end)
    }
    for number, form_of_all in enumerate(forms):
        if number in first or any(form in form_of_all for form in kept):
            yield from ((span, form) for span, form in spans(number) if form in kept)


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

    def __init__(self, question: str, asked: Asked, sentences: Sequence[Sentence], forms: Sequence[str]) -> None:
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
        self._linked, self._leads = _links(self._titles, sentences, forms)
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
        features: Features = {
            f"{asked.kind}: {shape}": 1,
            f"before {before}": 1,
            f"behind {behind}": 1,
            f"repeats the question {repeated}, choice {asked.choice}": 1,
            f"about a title asked for {self._asked_about[entry]}, any {any(self._asked_about)}": 1,
            "words of the question": 0.0 if repeated else sum(shared[span.first : span.last]) / max(len(inside), 1),
            f"repeats in part {not repeated and 2 * sum(shared[span.first : span.last]) >= len(inside)}, {shape}": 1,
        }
        features[f"linked {self._linked[entry]}, asked for {self._asked_about[entry]}"] = 1
        if any(form in names for names in self._articles):
            features["a title"] = 1
            features[f"a title, repeats the question {repeated}"] = 1
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
            if sentence.heading:
                features["rare shares"] = max((self._rare[below] for below in self._below.get(entry, ())), default=0.0)
            features.update(self._focus.title_features(self._below.get(entry, ())))
            return features
        features.update(self._focus.features(span.sentence, span.first, span.last))
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


def _links(
    titles: Sequence[Sequence[str]], sentences: Sequence[Sentence], forms: Sequence[str]
) -> tuple[list[bool], list[bool]]:
    """Tell which entries are named in others, and which sentences name other entries."""
    linked = [False] * len(titles)
    leads = []
    for sentence, form in zip(sentences, forms, strict=True):
        text = f" {form} "
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
