"""Examples with other names and in other writing: a query generator learns to copy names from them, and not to know them.

Invented names are made of the words of real names, put together anew, or of syllables, digits, initials and numerals; hardly
any stands in many copies, so that only copying helps. Every draw moves the random stream: their order is part of what a
seed means, and stored trainings depend on it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from pytrace.kg.names import normal_form
from pytrace.kg.queries import Query, SparqlQuery, TripletQuery, parse_query, replace_names
from pytrace.kg.queries.notation import write_name
from pytrace.training.examples import QueryExample
from pytrace.training.query_text import Span, find_mentions, query_entities

# The shares of copies that are written in another way; most stay as the data has them.
_TITLED, _CAPITAL, _UNMARKED = 0.3, 0.4, 0.15

_parts = str.split
# Single letters stand several times, so that they are drawn more often.
_ONSETS = [*"bcdfghjklmnprstvwyz" * 3, "", *_parts("bl br ch cl dr fr gl gr kh kr ph pr qu sch sh st th tr ts x")]
_VOWELS = [*"aeiou" * 4, *_parts("aa ae ai au ea ee ei ia ie io oo ou oe y á é í ö ü å ã")]
_CODAS = [""] * 20 + [*"bdfgklmnprstxz", *_parts("ck ll mb ng nn rd rt ss st th tz")]
_NUMERALS = _parts("i ii iii iv v vi vii viii ix x xi xii xiv 1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th 12th 15th jr sr")
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

Mentions = Mapping[str, tuple[Span, ...]]
"""The entities of a query that its question writes, and where."""


class NameMaker:
    """Makes names of nobody that look like given ones."""

    def __init__(self, names: Iterable[str], excluded: Iterable[str], chance: random.Random) -> None:
        self._chance = chance
        self._excluded = {normal_form(name) for name in excluded}
        patterns = [_UNUSED.sub(" ", name).split() for name in dict.fromkeys(names)]
        self._patterns = [words for words in patterns if 0 < len(words) <= 10]
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
            for index in range(2, len(letters)):
                self._following.setdefault(letters[index - 2 : index], []).append(letters[index])

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
        chance = self._chance
        if self._patterns and chance.random() < 0.55:
            words = [self._in_place_of(word) for word in chance.choice(self._patterns)]
        else:
            words = [_capital(self._word()) for _ in range(chance.choice((1, 1, 2, 2, 2, 3, 3, 4, 5, 6)))]
            # A word that holds names together, or a numeral, stands between the others now and then.
            if self._frame and len(words) > 1 and chance.random() < 0.4:
                words.insert(chance.randrange(1, len(words)), chance.choice(self._frame))
            if chance.random() < 0.15:
                words.insert(chance.randrange(1, len(words) + 1), chance.choice(_NUMERALS))
        kind = chance.random()
        if kind < 0.03:
            words.append(chance.choice(words))
        elif kind < 0.06 and len(words) > 1:
            index = chance.randrange(len(words) - 1)
            words[index] = words[index].rstrip(",") + ","
        elif kind < 0.08:
            chance.shuffle(words)
        name = " ".join(words)[:_LONGEST].strip(" ,")
        return name.lower() if like == like.lower() else name

    def _in_place_of(self, word: str) -> str:
        if word in self._frame and self._chance.random() < 0.8:
            return word
        if self._chance.random() < self._real_share:
            return self._chance.choice(self._words)
        return _capital(self._word())

    def _word(self) -> str:
        chance = self._chance
        kind = chance.random()
        if kind < self._real_share:
            return self._likely_letters()
        if kind < 0.75:
            return self._syllables(chance.choice((1, 2, 2, 2, 3, 3, 4)))
        if kind < 0.82:  # no pattern at all: what is learned is to copy letters, not to know words
            return "".join(chance.choices(_LETTERS, k=chance.randint(2, 8)))
        if kind < 0.87:
            return str(chance.randrange(10 ** chance.randint(1, 4)))
        if kind < 0.92:
            return f"{self._syllables(2)}-{self._syllables(chance.choice((1, 2)))}"
        if kind < 0.96:
            return chance.choice(_LETTERS) + chance.choice(("", "."))
        return f"{chance.choice(('o', 'd', 'l'))}'{self._syllables(2)}"

    def _likely_letters(self) -> str:
        word = "  "
        while len(word) < _LONGEST_WORD + 2 and (letter := self._chance.choice(self._following[word[-2:]])) != " ":
            word += letter
        return word.strip()

    def _syllables(self, count: int) -> str:
        return "".join(self._chance.choice(part) for _ in range(count) for part in (_ONSETS, _VOWELS, _CODAS))


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def vary_names(
    examples: Sequence[QueryExample],
    count: int,
    *,
    seed: int = 0,
    excluded: Collection[str] = (),
) -> list[QueryExample]:
    """Make copies of examples in which each entity that the question writes has another name, in question and query alike."""
    # Classes and relations stay: they belong to the knowledge base, and the generator has to know them.
    written = [(example, mentions) for example in examples if (mentions := _mentions(example))]
    if not written:
        return []
    known = [name for example in examples for name in query_entities(example.query)]
    maker = NameMaker(known, excluded, random.Random(seed))
    return [_varied(*written[number % len(written)], number // len(written) + 1, maker) for number in range(count)]


def vary_writing(examples: Sequence[QueryExample], *, seed: int = 0) -> list[QueryExample]:
    """Write some examples as other people would."""
    # Names have capitals, in question and query alike; a question begins with one, or ends without its mark. Data sets
    # are often in lower case throughout, and a model that has seen nothing else writes nonsense after one capital.
    chance = random.Random(seed)
    return [
        _rewritten(example, *(chance.random() < share for share in (_TITLED, _CAPITAL, _UNMARKED)))
        for example in examples
    ]


def with_capitals(examples: Sequence[QueryExample]) -> list[QueryExample]:
    """Write examples as people write them: names and the beginnings of questions have capitals."""
    return [_rewritten(example, titled=True, capital=True, unmarked=False) for example in examples]


def _mentions(example: QueryExample) -> Mentions:
    entities = query_entities(example.query)
    spans = find_mentions(example.question, entities)
    return {name: written for name, written in zip(entities, spans, strict=True) if written}


def _rewritten(example: QueryExample, titled: bool, capital: bool, unmarked: bool) -> QueryExample:
    mentions = _mentions(example)
    begins_with_name = any(span.start == 0 for spans in mentions.values() for span in spans)
    if titled and mentions:
        renamed = {name: " ".join(map(_capital, name.split(" "))) for name in mentions}
        texts = tuple(renamed.get(mention, mention) for mention in example.mentions)
        example = msgspec.structs.replace(_renamed(example, mentions, renamed), mentions=texts)
    question = example.question
    # A name at the beginning stays as the query writes it.
    if capital and not begins_with_name:
        question = _capital(question)
    if unmarked:
        question = question.rstrip(" ?") or question
    return msgspec.structs.replace(example, question=question)


def _varied(example: QueryExample, mentions: Mentions, number: int, maker: NameMaker) -> QueryExample:
    renamed: dict[str, str] = {}
    taken = set(map(normal_form, query_entities(example.query)))
    for mention in mentions:
        name = maker.make(mention)
        while normal_form(name) in taken:
            name = maker.make(mention)
        taken.add(normal_form(name))
        renamed[mention] = name
    # The gold answers are not those of the invented names.
    return msgspec.structs.replace(
        _renamed(example, mentions, renamed),
        id=f"{example.id}~{number}",
        answers=(),
        mentions=tuple(renamed.values()),
    )


def _renamed(example: QueryExample, mentions: Mentions, names: Mapping[str, str]) -> QueryExample:
    """Return an example with other names in question and query."""
    question, query = example.question, example.query
    # From the end on, so that the spans before keep their offsets.
    for span, name in sorted(((span, name) for name, spans in mentions.items() for span in spans), reverse=True):
        question = question[: span.start] + names[name] + question[span.end :]
    if isinstance(query, TripletQuery):
        head, tail = (names.get(part, part) for part in (query.head, query.tail))
        renamed: Query = parse_query(TripletQuery(head, query.relation, tail).text)
    else:
        renamed = SparqlQuery(
            replace_names(
                query,
                entity=lambda name: write_name("entity", names.get(name, name)),
                relation=lambda name: write_name("relation", name),
            )
        )
    return msgspec.structs.replace(example, question=question, query=renamed)
