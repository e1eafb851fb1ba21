"""Names of nobody: made of syllables, or of the words of real names put together anew."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable

from pytrace.kg.names import normal_form


def _words(text: str) -> list[str]:
    return text.split()


# Single letters stand several times, so that they are drawn more often.
_ONSETS = [*"bcdfghjklmnprstvwyz" * 3, "", *_words("bl br ch cl dr fr gl gr kh kr ph pr qu sch sh st th tr ts x")]
_VOWELS = [*"aeiou" * 4, *_words("aa ae ai au ea ee ei ia ie io oo ou oe y á é í ö ü å ã")]
_CODAS = [""] * 20 + [*"bdfgklmnprstxz", *_words("ck ll mb ng nn rd rt ss st th tz")]
_NUMERALS = _words("i ii iii iv v vi vii viii ix x xi xii xiv 1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th 12th 15th jr sr")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# A word that stands in so many of the names holds them together, as "of" does, and is mostly left where it is.
_FRAME_SHARE = 0.02
_MANY_WORDS = 200
_LONGEST = 80
# Half a pair of brackets is no part of a name, and no notation could hold the other signs.
_UNUSED = re.compile(r"[()\[\]{}<>;?\"\x00-\x1f\x7f\ud800-\udfff]")
# A word of letters as they follow each other in real names soon ends by itself; where none does, this ends it.
_LONGEST_WORD = 14
# Nine of ten names are new after the first attempt or the second.
_ATTEMPTS = 50


class NameMaker:
    """Makes names that look like given ones."""

    def __init__(self, names: Iterable[str], excluded: Iterable[str], chance: random.Random) -> None:
        self._chance = chance
        self._excluded = {normal_form(name) for name in excluded}
        self._patterns = [
            words for name in dict.fromkeys(names) if 0 < len(words := _UNUSED.sub(" ", name).split()) <= 10
        ]
        counts = Counter(word for words in self._patterns for word in dict.fromkeys(words))
        least = max(_FRAME_SHARE * len(self._patterns), 2)
        self._frame = [word for word, count in counts.items() if count >= least]
        self._words = [word for word, count in counts.items() if count < least]
        # Few words are soon known by heart, so that the fewer there are the more seldom names are made of them or their letters.
        self._real_share = 0.5 * min(1.0, len(self._words) / _MANY_WORDS)
        # Which letters follow two others in real words; two spaces begin a word, and one ends it.
        self._following: dict[str, list[str]] = {}
        for word in self._words:
            letters = f"  {word} "
            for at in range(2, len(letters)):
                self._following.setdefault(letters[at - 2 : at], []).append(letters[at])

    def make(self, like: str) -> str:
        """Return a name in the case of another, and never that one itself."""
        for _ in range(_ATTEMPTS):
            name = self._draw(like)
            if self._fits(name, like):
                return name
        # Where almost everything is excluded, length makes what nobody has.
        name = self._syllables(4)
        while not self._fits(name, like):
            name += self._syllables(2)
        return name

    def _fits(self, name: str, like: str) -> bool:
        form = normal_form(name)
        return bool(form) and form != normal_form(like) and form not in self._excluded

    def _draw(self, like: str) -> str:
        if self._patterns and self._chance.random() < 0.55:
            words = [self._in_place_of(word) for word in self._chance.choice(self._patterns)]
        else:
            words = [_capital(self._word()) for _ in range(self._chance.choice((1, 1, 2, 2, 2, 3, 3, 4, 5, 6)))]
            self._bind(words)
        kind = self._chance.random()
        if kind < 0.03:
            words.append(self._chance.choice(words))
        elif kind < 0.06 and len(words) > 1:
            at = self._chance.randrange(len(words) - 1)
            words[at] = words[at].rstrip(",") + ","
        elif kind < 0.08:
            self._chance.shuffle(words)
        name = " ".join(words)[:_LONGEST].strip(" ,")
        return name.lower() if like == like.lower() else name

    def _in_place_of(self, word: str) -> str:
        if word in self._frame and self._chance.random() < 0.8:
            return word
        if self._chance.random() < self._real_share:
            return self._chance.choice(self._words)
        return _capital(self._word())

    def _bind(self, words: list[str]) -> None:
        """Put a word that holds names together, or a numeral, between the others now and then."""
        if self._frame and len(words) > 1 and self._chance.random() < 0.4:
            words.insert(self._chance.randrange(1, len(words)), self._chance.choice(self._frame))
        if self._chance.random() < 0.15:
            words.insert(self._chance.randrange(1, len(words) + 1), self._chance.choice(_NUMERALS))

    def _word(self) -> str:
        kind = self._chance.random()
        if kind < self._real_share:
            return self._likely_letters()
        if kind < 0.75:
            return self._syllables(self._chance.choice((1, 2, 2, 2, 3, 3, 4)))
        if kind < 0.82:  # no pattern at all: what is learned is to copy letters, not to know words
            return "".join(self._chance.choices(_LETTERS, k=self._chance.randint(2, 8)))
        if kind < 0.87:
            return str(self._chance.randrange(10 ** self._chance.randint(1, 4)))
        if kind < 0.92:
            return f"{self._syllables(2)}-{self._syllables(self._chance.choice((1, 2)))}"
        if kind < 0.96:
            return self._chance.choice(_LETTERS) + self._chance.choice(("", "."))
        return f"{self._chance.choice(('o', 'd', 'l'))}'{self._syllables(2)}"

    def _likely_letters(self) -> str:
        word = "  "
        while len(word) < _LONGEST_WORD + 2 and (letter := self._chance.choice(self._following[word[-2:]])) != " ":
            word += letter
        return word.strip()

    def _syllables(self, count: int) -> str:
        return "".join(
            self._chance.choice(_ONSETS) + self._chance.choice(_VOWELS) + self._chance.choice(_CODAS)
            for _ in range(count)
        )


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]
