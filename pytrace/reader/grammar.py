"""The reader whose model writes freely, but only what stands in the evidence: a beam over the words of it.

The grammar is the trie of the evidence's words: an answer begins at any of them and goes on as the sentence does there. The model scores
every first word, then what the likeliest of these may go on to, each with the line's end behind it: the beam is narrow behind the first
word only, and each of the two steps is one batch of all questions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pytrace.models.language_model import ContinuationScore, Prompt
from pytrace.reader.certainty import certainty
from pytrace.reader.choosing import ChoosingReader, Chosen, Place, as_answers, is_plain
from pytrace.reader.spans.candidates import MOST_WORDS, SPACELESS, Sentence, read_entries, with_marks
from pytrace.reader.spans.weights import shipped_weights

WIDTH = 8
"""First words that are gone on from."""
MOST_PLACES = 8
"""Of the evidence at which one of these is gone on from: the first."""
_YES_NO = ("yes", "no")


class Held(NamedTuple):
    """A text of the evidence, or yes or no: its score, its log-probability a token, and where it stands."""

    text: str
    score: float
    log_probability: float
    places: tuple[Place, ...]


class GrammarReader(ChoosingReader):
    """Answers with the likeliest text of the evidence that the model may write."""

    def choose(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[Chosen]:
        """Choose the likeliest text of every question's beam."""
        weights = shipped_weights()
        beams = self.beams(entries, prompts)
        return [
            Chosen(beam[0].text, weights.probability("grammar", certainty_of(question, shown, beam)), beam[0].places)
            for question, shown, beam in zip(questions, entries, beams, strict=True)
        ]

    def beams(self, entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]) -> list[list[Held]]:
        """Return the beam of every question, the likeliest text first."""
        sentences = [read_entries(shown) for shown in entries]
        openings = [_openings(found) for found in sentences]
        spaced = " " if is_plain(self.model) else ""
        scores = self.model.score_continuations(prompts, [[spaced + word for word in words] for words in openings])
        kept = []
        for words, row in zip(openings, scores, strict=True):
            order = sorted(range(len(words)), key=lambda place: -row[place].log_probability)
            kept.append({words[place] for place in order[:WIDTH]})
        texts = [_texts(found, words) for found, words in zip(sentences, kept, strict=True)]
        scores = self.model.score_continuations(prompts, [as_answers(self.model, list(one)) for one in texts])
        return [self._ranked(one, row) for one, row in zip(texts, scores, strict=True)]

    def _ranked(self, texts: dict[str, list[Place]], scores: Sequence[ContinuationScore]) -> list[Held]:
        # Without the end of an answer, which a chat has no text for, a sum would favour the shortest.
        plain = is_plain(self.model)
        held = []
        for (text, places), score in zip(texts.items(), scores, strict=True):
            mean = score.log_probability / max(score.tokens, 1)
            held.append(Held(text, score.log_probability if plain else mean, mean, tuple(places)))
        return sorted(held, key=lambda one: -one.score)


def certainty_of(question: str, entries: Sequence[str], beam: Sequence[Held]) -> dict[str, float]:
    """Return what tells how likely the best of a beam is right."""
    return certainty(question, entries, [one.score for one in beam], beam[0].log_probability)


def _openings(sentences: Sequence[Sentence]) -> list[str]:
    """Return the words that an answer may begin with."""
    found = (
        sentence.text[start:end] for sentence in sentences for start, end, is_mark in _parts(sentence) if not is_mark
    )
    return list(dict.fromkeys([*_YES_NO, *found]))


def _texts(sentences: Sequence[Sentence], openings: Collection[str]) -> dict[str, list[Place]]:
    """Return every text that begins with one of some words, in their order, with its places; yes and no among them."""
    texts: dict[str, list[Place]] = {word: [] for word in _YES_NO}
    left = dict.fromkeys(openings, MOST_PLACES)
    for sentence in sentences:
        parts = _parts(sentence)
        for first, (start, stop, _) in enumerate(parts):
            opening = sentence.text[start:stop]
            if not left.get(opening):
                continue
            left[opening] -= 1
            for _, end, is_mark in parts[first : first + MOST_WORDS]:
                if not is_mark:
                    begin, behind = with_marks(sentence.text, start, end)
                    place = (sentence.entry, sentence.start + begin, sentence.start + behind)
                    texts.setdefault(sentence.text[begin:behind], []).append(place)
    return texts


def _parts(sentence: Sentence) -> list[tuple[int, int, bool]]:
    """Return where a sentence's words and marks begin and end; a code span is one, and so is each character of a script without spaces."""
    parts: list[tuple[int, int, bool]] = []
    span = 0
    for word in sentence.words:
        if 0 < word.span == span:
            parts[-1] = (parts[-1][0], word.end, False)
        elif word.span:
            parts.append((word.start, word.end, False))
        elif SPACELESS.match(word.text):
            parts += ((place, place + 1, False) for place in range(word.start, word.end))
        else:
            parts.append((word.start, word.end, word.kind == "mark"))
        span = word.span
    return parts
