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
from pytrace.reader.choosing import ChoosingReader, Chosen, Place, as_answers, is_plain
from pytrace.reader.spans.candidates import MOST_WORDS, Sentence, read_entries
from pytrace.reader.spans.weights import shipped_weights

WIDTH = 8
"""First words that are gone on from."""
_YES_NO = ("yes", "no")


class Held(NamedTuple):
    """A text of the evidence, or yes or no: its log-probability with the line's end, its tokens, and where it stands."""

    text: str
    log_probability: float
    tokens: int
    places: tuple[Place, ...]


class GrammarReader(ChoosingReader):
    """Answers with the likeliest text of the evidence that the model may write."""

    def choose(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[Chosen]:
        """Choose the likeliest text of every question's beam."""
        weights = shipped_weights()
        chosen = []
        for question, shown, beam in zip(questions, entries, self.beams(entries, prompts), strict=True):
            share = float(1 / np.exp([one.log_probability - beam[0].log_probability for one in beam]).sum())
            probability = weights.probability("grammar", share, question, shown)
            chosen.append(Chosen(beam[0].text, probability, beam[0].places))
        return chosen

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
        held = [
            Held(
                text, score.log_probability / (1 if plain else max(score.tokens, 1)), score.tokens, tuple(places)
            )
            for (text, places), score in zip(texts.items(), scores, strict=True)
        ]
        return sorted(held, key=lambda one: -one.log_probability)


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
