"""Sentences with one word turned into another of its kind or its opposite, with a verb denied, or with "alone" said of two: false twins.

The wordings differ from those of `benches.claim_twins`, so that its figures tell what a training has taught beyond its own words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

# Words of which a sentence says one: with another of the line it says something else. In pairs, opposites.
_KINDS = tuple(
    tuple(line.split(", "))
    for line in """
began, ended
opened, closed
joined, left
married, divorced
bought, sold
accepted, rejected
supported, opposed
allowed, prohibited
enabled, disabled
gained, declined
rose, fell
arrived, departed
attacked, defended
hired, dismissed
borrowed, lent
started, finished
included, excluded
encouraged, discouraged
confirmed, denied
passed, failed
large, small
long, short
high, low
major, minor
old, new
ancient, modern
rich, poor
strong, weak
urban, rural
domestic, foreign
local, national, international
inner, outer
hot, cold
wet, dry
fresh, salt
front, rear
left, right
top, bottom
day, night
same, different
many, few
temporary, permanent
professional, amateur
successful, unsuccessful
popular, unpopular
legal, illegal
married, unmarried
positive, negative
fictional, real
single, double
beginning, end
morning, evening
inside, outside
above, below
until, since
father, mother, brother, sister, uncle, aunt, cousin
son, daughter, nephew, niece
husband, wife, widow
king, queen, prince, duke
actor, singer, painter, politician, lawyer, physician, footballer, journalist
actress, dancer, novelist, poet
director, producer, screenwriter, composer, editor
comedy, drama, thriller, western, horror, documentary
football, basketball, baseball, hockey, tennis, cricket, rugby, golf
goalkeeper, defender, midfielder, striker
guitar, piano, violin, drums, trumpet
album, single, novel, film, play, opera
city, village, town, island, river, mountain, lake
hospital, school, church, museum, library, theatre
university, college, academy
company, charity, party, union
army, navy, police
Democratic, Republican
Catholic, Protestant, Muslim, Jewish
Asian, African, European
red, blue, green, yellow, black, white
gold, silver, bronze
spring, summer, autumn, winter
daily, weekly, monthly, annual
January, February, March, April, June, July, August, September, October, November, December
Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
genus, species, family, order
moth, beetle, fish, bird, snake, plant
American, British, French, German, Italian, Spanish, Japanese, Indian, Canadian, Australian, Russian, Chinese, Swedish
England, France, Germany, Italy, Spain, Japan, India, Canada, Australia, Russia, China, Sweden
""".strip().splitlines()
)
_OTHERS: dict[str, tuple[str, ...]] = {}
for _line in _KINDS:
    for _word in _line:
        _OTHERS[_word] = (*_OTHERS.get(_word, ()), *(other for other in _line if other != _word))
_KNOWN = re.compile(rf"(?<![\w'’-])(?:{'|'.join(sorted(_OTHERS, key=len, reverse=True))})(?![\w'’-])")
_BASE = {
    "began": "begin", "started": "start", "founded": "found", "opened": "open", "closed": "close", "graduated": "graduate",
    "directed": "direct", "produced": "produce", "recorded": "record", "returned": "return",
    "created": "create", "developed": "develop", "designed": "design", "built": "build", "led": "lead", "left": "leave",
    "attended": "attend", "taught": "teach", "signed": "sign", "made": "make",
    "held": "hold", "scored": "score", "starred": "star", "earned": "earn", "sold": "sell", "bought": "buy", "wrote": "write",
}  # fmt: skip
_VERB = re.compile(
    rf"(?:\b[A-Z][\w'’-]*|\b(?:[Hh]e|[Ss]he|[Ii]t|[Tt]hey|who|which)|\)) ({'|'.join(_BASE)})(?= (?!by\b)[\w\"])"
)
_HELPER = re.compile(r"\b(?:was|were|been|be|is|are|had|has|have|being|it|a|the|who|whom|which|that)\b \w*$")
_DENIED = re.compile(r"\b(?:not|no|never|only|without|neither|nor)\b|n't")
_DENIALS = ("did not {0}", "didn't {0}", "refused to {0}", "would not {0}", "was unable to {0}")
_NAME = r"[A-Z][\w'’-]+(?: (?:(?:of|de|van|von) )?[A-Z][\w'’-]+)*"
_TWO = re.compile(
    rf"^((?:The )?{_NAME})(?: \([^)]*\))? (?:is|was)\b[^.]*?\b([a-z]+(?:ed|ten)) by ({_NAME})(?:,? and) ({_NAME})(?=[.,;]| (?:in|for|of)\b)"
)


def contrasts(sentence: str, text: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Yield claims that a sentence supports, each with a twin that it refutes: what was done ("word", "denied", "alone"), and both.

    Parameters
    ----------
    sentence, text
        A sentence, and all of its passage, which has none of the words that come into a twin.
    rng
        Draws words.

    Examples
    --------
    >>> said = "The store opened in 1903."
    >>> next(contrasts(said, said, random.Random(0)))
    ('word', 'The store opened in 1903.', 'The store closed in 1903.')
    """
    if _DENIED.search(sentence):
        return
    words = list(_KNOWN.finditer(sentence))
    if words:
        match = rng.choice(words)
        other = rng.choice(_OTHERS[match[0]])
        # "the second album was his first single": of two of a kind, either could be meant.
        if not re.search(rf"\b{other}", text) and sum(one[0] == match[0] for one in words) == 1:
            before = sentence[: match.start()]
            if article := re.search(r"\b([Aa])n? $", before):
                before = f"{before[: article.start()]}{article[1]}{'n' if other[0] in 'AEIOaeio' else ''} "
            yield "word", sentence, f"{before}{other}{sentence[match.end() :]}"
    verb = _VERB.search(sentence)
    if verb and not _HELPER.search(sentence[: verb.start(1)]):
        yield (
            "denied",
            sentence,
            f"{sentence[: verb.start(1)]}{rng.choice(_DENIALS).format(_BASE[verb[1]])}{sentence[verb.end() :]}",
        )
    two = _TWO.search(sentence)
    if two:
        title, verb_of_two, first, second = two.groups()
        one, other = rng.choice(((first, second), (second, first)))
        active = {"written": "wrote"}.get(verb_of_two, verb_of_two)
        yield (
            "alone",
            *rng.choice((
                (f"{title} was {verb_of_two} by {one}, among others.", f"{title} was {verb_of_two} solely by {one}."),
                (f"{title} was {verb_of_two} by two.", f"{one} {active} {title} without {other}."),
                (f"{title} was {verb_of_two} by {one}, among others.", f"Nobody but {one} {active} {title}."),
                (f"{one} {active} {title} with {other}.", f"{one} {active} {title} single-handedly."),
            )),
        )  # fmt: skip
