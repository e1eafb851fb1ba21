"""Names in a question that are spelt with one letter wrong are read as the passages spell them.

One letter costs a question more than anything else: neither words nor names find what it names, and vectors hardly do. Candidates
for a word that no passage has are all at a distance of one (a letter more, less or another one, or two that changed places). They
are looked up among the hashes of the corpus's words, so that no list of words is kept and a corpus of any size costs the same
(Norvig, "How to Write a Spelling Corrector", 2007). Only words of names are taken: another word that is missing from a small corpus
is hardly ever a mistake.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from pytrace.documents.languages import script_of
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.hops.features import Rarity
from pytrace.retrieval.passages.graph import Graph
from pytrace.retrieval.passages.names import normal_form

# A shorter word is a letter away from too many others.
_SHORTEST = 4
# Candidates grow with the square of a word's length, and longer words are not names that somebody misspelled.
MAX_WORD_LETTERS = 40
# The letters of names are counted in so many bytes of them, and so many are tried: two alphabets, or one with its accents.
_SAMPLE, _MOST_LETTERS = 1 << 18, 64
_WORD = re.compile(r"\w+")
# Words whose neighbours are kept.
_MOST_KEPT = 1024


class Respeller:
    """Reads questions with the names of a corpus.

    Parameters
    ----------
    graph
        Knows the names and the words of all passages.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rarity = Rarity(graph)
        self._of_names = np.zeros(len(graph["words"]), dtype=bool)
        ids = graph.name_words.values
        self._of_names[ids[(ids >= 0) & (ids < len(self._of_names))]] = True
        sample = Counter(graph.table.text[:_SAMPLE].tobytes().decode("utf-8", "ignore"))
        letters = [letter for letter, _ in sample.most_common() if letter.isalpha()][:_MOST_LETTERS]
        self._letters = [(letter, script_of(letter)) for letter in letters]
        # What questions ask with and no passage has ("which") comes again with each question. No `lru_cache` of a method, which would
        # hold the index open until Python looks for circles.
        self._kept: dict[str, list[str]] = {}

    def read(self, question: str) -> str:
        """Return a question with the names of the corpus in the place of what is a letter away from them.

        Of several words that a letter leads to the one is taken that makes a name with its neighbours, or if a capital says that it
        is of a name, the most frequent one.
        """
        found = [(match, words(match[0])) for match in _WORD.finditer(question)]
        # What is split further, as in scripts without spaces, is no word that somebody spelt.
        longer = [
            (match, of[0])
            for match, of in found
            if len(of) == 1 and _SHORTEST <= len(of[0]) <= MAX_WORD_LETTERS and of[0].isalpha()
        ]
        known = self._rarity.ids([word for _, word in longer]) >= 0
        unknown = [each for each, is_known in zip(longer, known.tolist(), strict=True) if not is_known]
        for match, word in reversed(unknown):
            before, behind = question[: match.start()], question[match.end() :]
            near = self._near_words(word)
            named = (each for each in near if self._is_named(before, each, behind))
            capital = match[0][0].isupper() and before.strip()
            spelt = next(named, near[0] if near and capital else None)
            if spelt is not None:
                question = before + (spelt.capitalize() if match[0][0].isupper() else spelt) + behind
        return question

    def _near_words(self, word: str) -> list[str]:
        near = self._kept.get(word)
        if near is None:
            near = self._words_near(word)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[word] = near
        return near

    def _words_near(self, word: str) -> list[str]:
        """Return the words of names at a distance of one, the most frequent first."""
        scripts = {script_of(letter) for letter in word}
        letters = [letter for letter, script in self._letters if script in scripts]
        parts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
        candidates = {before + behind[1:] for before, behind in parts if behind}
        candidates |= {before + behind[1] + behind[0] + behind[2:] for before, behind in parts if len(behind) > 1}
        candidates |= {before + letter + behind for before, behind in parts for letter in letters}
        candidates |= {before + letter + behind[1:] for before, behind in parts if behind for letter in letters}
        ordered = sorted(candidates)
        ids = self._rarity.ids(ordered)
        there = np.flatnonzero((ids >= 0) & np.append(self._of_names, False)[ids])
        order = np.argsort(-self._rarity.frequencies(ids[there]), kind="stable")
        return [ordered[place] for place in there[order].tolist()]

    def _is_named(self, before: str, word: str, behind: str) -> bool:
        """Tell whether a name stands in a text that has a certain word in it."""
        place = len(words(before))
        found = self._graph.find([normal_form(f"{before}{word}{behind}")])
        return bool(((found.starts <= place) & (place < found.ends)).any())
