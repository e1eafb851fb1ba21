"""The sentences of a text as claims are compared with them, and the few that speak for a claim."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from pytrace.certify.claims.tokens import IRREGULAR_FORMS, NUMBERS, WEIGHTS, Token, tokens, without_accents
from pytrace.certify.claims.word_forms import PREFIX, are_one_word, form_prefix, lemma
from pytrace.documents.languages import detect_language

OTHER_FORM = 0.9
"""What a word counts that the evidence has in another form."""
_SENTENCES = 3  # that a claim may rest on
_CANDIDATES = 10  # of which they are chosen
_LOOKUPS = 128  # of words in a text; then all of its words are noted
_LEAST_GAIN = 0.9  # of weight, for one more sentence
_NEAR_GAIN = 1.0  # for a sentence of a document that the claims before spoke of
_SHARE_ELSEWHERE = 0.5  # of the content of the best sentence
_LANGUAGE_SENTENCES = 10  # first sentences of a document, which tell its language
_PRONOUNS = frozenset(("he", "she", "it", "they", "his", "her", "its", "their"))
_OPENING = 8  # words before a pronoun that stands for a title, as "In the storm of 1953 she"
_SECTION = " > "  # between the headings of a title: a pronoun below may stand for what its section is about


class TextTokens:
    """The sentences of a text as claims are compared with them, read once for all claims.

    Parameters
    ----------
    sentences
        The text's sentences.
    titles
        For each sentence the title that it stands under, or "": what it is about, often without saying so.
    documents
        For each sentence the number of its document; by default all are of one.
    """

    def __init__(self, sentences: Sequence[str], titles: Sequence[str] = (), documents: Sequence[int] = ()) -> None:
        self._sentences = sentences
        self._documents = documents or [0] * len(sentences)
        self._titles = titles or [""] * len(sentences)
        self._title_tokens: dict[str, list[Token]] = {}
        self._title_of: dict[tuple[str, bool], _Words] = {}
        self._first = {document: row for row, document in reversed([*enumerate(self._documents)])}
        self._english: dict[int, bool] = {}  # by document
        self._tokens: dict[int, list[Token]] = {}
        self._read: dict[int, _Words] = {}
        lowered = [_lowered(f"{title} {sentence}") for title, sentence in zip(self._titles, sentences, strict=True)]
        self._starts = [0, *itertools.accumulate(len(text) + 1 for text in lowered)]
        self._text = "\n".join(lowered) + "\n"
        # Which sentences have a word that begins so, looked for when it is asked for: words are read in full only where that speaks for them.
        self._where: dict[str, list[int]] = {}
        self._indexed = False

    def sentence(self, row: int) -> list[Token]:
        """Return the words of a sentence."""
        self._of(row)
        return self._tokens[row]

    def title(self, row: int) -> list[Token]:
        """Return the content words of the title that a sentence stands under."""
        title = self._titles[row]
        if title not in self._title_tokens:
            self._title_tokens[title] = [token for token in tokens(title) if token.is_content]
        return self._title_tokens[title]

    def is_english(self, row: int) -> bool:
        """Return whether the document of a sentence is in English."""
        document = self._documents[row]
        if document not in self._english:
            first = self._first[document]
            text = " ".join(itertools.islice(self._sentences, first, first + _LANGUAGE_SENTENCES))
            self._english[document] = detect_language(text) == "en"
        return self._english[document]

    def _title_words(self, row: int) -> _Words:
        key = self._titles[row], self.is_english(row)
        if key not in self._title_of:
            self._title_of[key] = _Words(self.title(row), english=key[1])
        return self._title_of[key]

    def _of(self, row: int) -> _Words:
        if row not in self._read:
            read = tokens(self._sentences[row])
            title = self._titles[row]
            place = _pronoun(read)
            if place is not None and title and _SECTION not in title:
                # What the sentence says, it says of its title.
                read[place : place + 1] = self.title(row)
            self._tokens[row] = read
            self._read[row] = _Words((token for token in read if token.is_content), english=self.is_english(row))
        return self._read[row]

    def choose(self, claim: Sequence[Token], near: Sequence[int] = ()) -> list[int]:
        """Return the sentences that have most of a claim's content between them, at most three, the best first.

        Those of the documents of the rows `near`, which the claims before rest on, come before others that have as much, and the last of these
        rows is looked at in any case. Further sentences are of the first one's document, or of one whose title is named by the claim or by
        the sentences before.
        """
        content = [token for token in claim if token.is_content]
        keys = [key_of(token) for token in content]
        documents = {self._documents[row] for row in near}
        shares = self._shares(keys, sorted({*self._candidates(content), *near[-1:]}))
        weights = [WEIGHTS[token.kind] for token in content]
        chosen: list[int] = []
        have = [0.0] * len(content)
        while len(chosen) < _SENTENCES:
            best, most = -1, _LEAST_GAIN if chosen else 0.0
            named = {token.form for row in chosen for token in self.sentence(row)} | {token.form for token in claim}
            for row, of_row in shares.items():
                if row in chosen or (chosen and not self._linked(row, chosen[0], named)):
                    continue
                gain = sum(
                    weight * (share - had)
                    for weight, share, had in zip(weights, of_row, have, strict=True)
                    if share > had
                )
                if not chosen:
                    gain += _NEAR_GAIN * (self._documents[row] in documents)
                    gain /= 1 + 0.01 * len(self.sentence(row))  # of those that have as much, the shortest
                if gain > most:
                    best, most = row, gain
            if best < 0:
                break
            chosen.append(best)
            have = [max(pair) for pair in zip(have, shares[best], strict=True)]
        return chosen

    def elsewhere(self, claim: Sequence[Token], chosen: Sequence[int]) -> list[int]:
        """Return the nearest sentence of each document that no chosen one is of, the best first.

        It has all names of the claim that the first chosen one has, and half as much of the claim's content.
        """
        if not chosen:
            return []
        content = [token for token in claim if token.is_content]
        keys = [key_of(token) for token in content]
        documents = {self._documents[row] for row in chosen}
        shares = self._shares(keys, [chosen[0], *self._candidates(content)])
        weights = np.array([WEIGHTS[token.kind] for token in content])
        of_first = np.array(shares.pop(chosen[0], [0.0] * len(content)))
        needed = of_first * [token.kind == "name" for token in content] > 0
        nearest: dict[int, tuple[float, int]] = {}
        for row, of_row in shares.items():
            document, score = self._documents[row], float(weights @ of_row)
            least = max(_SHARE_ELSEWHERE * float(weights @ of_first), nearest.get(document, (0.0, 0))[0])
            if document not in documents and score > least and all(np.array(of_row)[needed]):
                nearest[document] = score, row
        return [row for _, row in sorted(nearest.values(), key=lambda found: (-found[0], found[1]))]

    def _shares(self, keys: Sequence[str | float], rows: Iterable[int]) -> dict[int, list[float]]:
        """Return how much of each word the rows have that have any, by row."""
        shares: dict[int, list[float]] = {}
        for row in rows:
            own = self._of(row).shares(keys)
            if any(own):  # a heading has its title's words alone, and says nothing
                shares[row] = list(map(max, own, self._title_words(row).shares(keys))) if self._titles[row] else own
        return shares

    def _linked(self, row: int, first: int, named: Collection[str]) -> bool:
        """Say whether a sentence may go with a first one: of one document, or of one that is named."""
        if self._documents[row] == self._documents[first] or not self._titles[row]:
            return True
        title = self.title(row)
        return 2 * sum(token.form in named for token in title) >= len(title)

    def _candidates(self, content: Sequence[Token]) -> list[int]:
        """Return the rows with most words that begin as the claim's do, in their order."""
        scores = np.zeros(len(self._sentences))
        for token in content:
            found: set[int] = set()
            for stem in _token_stems(token):
                found.update(self._rows(stem))
            scores[[*found]] += WEIGHTS[token.kind]
        scores /= 1 + 0.002 * np.diff(self._starts)
        least = 0.0 if len(scores) <= _CANDIDATES else np.partition(scores, -_CANDIDATES)[-_CANDIDATES]
        rows = np.flatnonzero((scores >= least) & (scores > 0))
        best = rows[np.argsort(-scores[rows], kind="stable")[:_CANDIDATES]]
        return sorted(best.tolist())

    def _rows(self, stem: str) -> Sequence[int]:
        """Return the rows with a word that begins so."""
        rows = self._where.get(stem)
        if rows is None and not self._indexed:
            if len(self._where) < _LOOKUPS:
                rows = self._where[stem] = self._search(stem)
            else:
                self._index()
                rows = self._where.get(stem)
        return rows or ()

    def _search(self, stem: str) -> list[int]:
        text, size, row = self._text, len(stem), -1
        rows: list[int] = []
        at = text.find(stem)
        while at >= 0:
            end = at + size
            if (at == 0 or not text[at - 1].isalnum()) and (size == PREFIX or not text[end].isalnum()):
                row = bisect_right(self._starts, at, lo=row + 1) - 1
                rows.append(row)
                end = self._starts[row + 1]
            at = text.find(stem, end)
        return rows

    def _index(self) -> None:
        """Note the rows of all words at once: many claims would search the text too often."""
        self._where = {}
        for row, (begin, end) in enumerate(itertools.pairwise(self._starts)):
            for stem in set(_STEM.findall(self._text, begin, end)):
                self._where.setdefault(stem, []).append(row)
        self._indexed = True


class _Words:
    """Words by what they are known by."""

    def __init__(self, words: Iterable[Token], *, english: bool) -> None:
        self._keys = {key_of(token) for token in words}
        self._is_english = english
        # By their first letters, once a word is looked for that is not among them.
        self._forms: dict[str, list[str]] = {}

    def shares(self, keys: Sequence[str | float]) -> list[float]:
        """Return how much of each word is among them: 1, less in another form, 0 if it is not."""
        own = self._keys
        return [
            1.0 if key in own else OTHER_FORM if isinstance(key, str) and self._has_form(key) else 0.0 for key in keys
        ]

    def _has_form(self, key: str) -> bool:
        english = self._is_english
        if not self._forms:
            for own in self._keys:
                if isinstance(own, str):
                    self._forms.setdefault(form_prefix(own, english=english), []).append(own)
        found = self._forms.get(form_prefix(key, english=english))
        return found is not None and any(are_one_word(form, key, english=english) for form in found)


def _pronoun(read: Sequence[Token]) -> int | None:
    """Return the place of a sentence's first pronoun, if no name stands before it that it may stand for."""
    for place, token in enumerate(read[:_OPENING]):
        if token.form in _PRONOUNS:
            return place
        if token.kind == "name":
            return None
    return None


_STEM = re.compile(rf"(?<![^\W_])[^\W_]{{1,{PREFIX}}}")
_SPELLED: dict[float, list[str]] = {}
for _word, _value in NUMBERS.items():
    _SPELLED.setdefault(_value, []).append(_word)
_IRREGULAR: dict[str, set[str]] = {}
for _word, _base in IRREGULAR_FORMS.items():
    _IRREGULAR.setdefault(_base, {_base}).add(_word)


def _lowered(text: str) -> str:
    """Return a text in small letters without accents, on one line; "2,100" becomes one word."""
    return without_accents(text.lower()).replace(",", "").replace("\n", " ")


def _token_stems(token: Token) -> set[str]:
    forms = {token.form, *_IRREGULAR.get(IRREGULAR_FORMS.get(token.form, token.form), ())}
    if token.kind == "word" and len(token.form) < PREFIX + len("ing") and len(base := lemma(token.form)) < PREFIX:
        # "owns" and "owned" differ within their first letters.
        forms.update(base + ending for ending in ("", "s", "ed", "ing"))
    stems = set(_STEM.findall(_lowered(" ".join(forms))))
    if token.value is not None:
        stems.update(_STEM.findall(" ".join((f"{token.value:.0f}", *_SPELLED.get(token.value, ())))))
    return stems


def key_of(token: Token) -> str | float:
    """Return what a word is known by: its form, or the value of a number."""
    return token.form if token.value is None else token.value
