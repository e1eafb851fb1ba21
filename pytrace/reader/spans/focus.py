"""What a question asks about its answer, and how near to a span that is said: "founded" in "Who founded the company that owns X?".

The focus are the words of the main clause that are no names. Words of relative clauses say which thing is meant, and a sentence that has
them is more often a step on the way than the one that holds the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytrace.reader.spans.words import Word, words

_RELATIVE = frozenset(("that", "which", "who", "whom", "whose", "where", "when"))
_CONTENT = frozenset(("word", "verb", "number"))
# Not said near an answer, though a question has them.
_ASKING = frozenset(
    [
        "what",
        "which",
        "who",
        "whom",
        "whose",
        "where",
        "when",
        "why",
        "how",
        "many",
        "much",
        "long",
        "old",
        "name",
        "did",
        "does",
        "do",
        "the",
        "in",
        "on",
        "of",
        "is",
        "are",
        "was",
        "were",
    ]
)
_FAR = 30  # words between a focus word and a span where there is none
# Words of a sentence that say what its entry's title does or is.
_BEGINNING = 8


def focus_stems(question: str) -> frozenset[str]:
    """Return the stems of a question's focus.

    Examples
    --------
    >>> sorted(focus_stems("Who founded the company that owns the Marigold Tern?"))
    ['company', 'found']
    >>> sorted(focus_stems("Where was the founder of the press that published Small Wings born?"))
    ['bear', 'found', 'pres']
    """
    found = [word for word in words(question) if word.kind != "mark"]
    end = len(found)
    for place, word in enumerate(found):
        is_relative = place > 1 and word.text.lower() in _RELATIVE and found[place - 1].kind in ("word", "name")
        behind_preposition = (
            place > 2 and word.text.lower() in _RELATIVE and found[place - 1].kind in ("preposition", "of")
        )
        if is_relative or behind_preposition:
            end = place
            break
    main = found[:end]
    if end < len(found) and found[-1].kind in ("verb", "word"):
        main.append(found[-1])
    return frozenset(word.stem for word in main if word.kind in _CONTENT and word.text.lower() not in _ASKING)


class FocusView:
    """A question's focus compared with the sentences of its evidence."""

    def __init__(self, question: str, sentences: Sequence[Sequence[Word]]) -> None:
        self._focus = focus_stems(question)
        self._places = [
            [place for place, word in enumerate(sentence) if word.kind != "mark" and word.stem in self._focus]
            for sentence in sentences
        ]
        self._shares = [
            len({sentence[place].stem for place in places}) / max(len(self._focus), 1)
            for sentence, places in zip(sentences, self._places, strict=True)
        ]

    def features(self, number: int, first: int, last: int) -> dict[str, float]:
        """Return how the focus is said around the words `first` up to before `last` of a sentence."""
        places = self._places[number]
        features = {"focus share": self._shares[number]}
        outside = [place for place in places if not first <= place < last]
        if len(outside) < len(places):
            features["focus within"] = 1.0
        if not outside:
            features["focus distance"] = math.log1p(_FAR)
            return features
        between = (first - place - 1 if place < first else place - last for place in outside)
        features["focus distance"] = math.log1p(min(between))
        return features

    def title_features(self, numbers: Sequence[int]) -> dict[str, float]:
        """Return how the focus is said of a title, by the sentences below it."""
        begins = any(place < _BEGINNING for number in numbers for place in self._places[number])
        return {
            "title focus": max((self._shares[number] for number in numbers), default=0.0),
            f"title does {begins}": 1.0,
        }


__all__ = ["FocusView", "focus_stems"]
