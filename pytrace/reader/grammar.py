"""The reader whose model writes freely, but only what stands in the evidence: a beam over the words of it.

The grammar is the trie of the evidence's words: an answer begins at any of them and goes on as the sentence does there. The model scores
every first word, then all that the likeliest of these may go on to, each with the line's end behind it: the beam is narrow behind the first
word only, and each of the two steps is one batch of all questions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from pytrace.models.language_model import ContinuationScore, Prompt
from pytrace.reader.certainty import certainty
from pytrace.reader.choosing import ChoosingReader, Chosen, Place, as_answers, is_plain
from pytrace.reader.spans.candidates import MOST_WORDS, Sentence, read_entries
from pytrace.reader.spans.weights import shipped_weights

WIDTH = 8
"""First words that are gone on from."""
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
    best = beam[0]
    share = float(1 / np.exp([one.score - best.score for one in beam]).sum())
    return certainty(question, entries, share, best.log_probability)


def _openings(sentences: Sequence[Sentence]) -> list[str]:
    """Return the words that an answer may begin with."""
    found = (word.text for sentence in sentences for word in sentence.words if word.kind != "mark")
    return list(dict.fromkeys([*_YES_NO, *found]))


def _texts(sentences: Sequence[Sentence], openings: Collection[str]) -> dict[str, list[Place]]:
    """Return every text that begins with one of some words, in their order, with its places; yes and no among them."""
    texts: dict[str, list[Place]] = {word: [] for word in _YES_NO}
    for sentence in sentences:
        for first, opening in enumerate(sentence.words):
            if opening.text not in openings:
                continue
            for word in sentence.words[first : first + MOST_WORDS]:
                if word.kind != "mark":
                    text = sentence.text[opening.start : word.end]
                    place = (sentence.entry, sentence.start + opening.start, sentence.start + word.end)
                    texts.setdefault(text, []).append(place)
    return texts
