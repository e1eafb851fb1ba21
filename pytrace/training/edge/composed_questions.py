"""Questions over two passages, composed of two questions over one: a name in one question becomes what another question asks for.

"Who published Small Wings?" (Dunlin Press) and "When was Dunlin Press founded?" make "When was the one that published Small Wings founded?".
Source of the idea: Trivedi et al., "MuSiQue: Multihop Questions via Single-hop Question Composition" (TACL 2022), section 3.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pytrace.training.edge.edge_examples import ReadingExample, Span

SOURCE = "composed"

_NAME = re.compile(r"[A-Z][\w'’-]+(?: (?:(?:of|de|van|von|the|and|der|la|du) )?[A-Z][\w'’.-]+)*")
_AUXILIARY = "is|was|are|were|has|had|have|did|does|do|can|could|will|would"
# How a question is turned into words for its answer. Verbs with "did" keep their stem, so that those questions are not turned.
_TURNS = (
    (re.compile(r"(?i)who(?:m)? (?:is|was|are|were) the ([\w' -]+ (?:of|for|in|on|at) .+)"), "the {0}"),
    (re.compile(r"(?i)what (?:is|was) the (?:name of the )?([\w' -]+ (?:of|for|in|on|at) .+)"), "the {0}"),
    (re.compile(rf"(?i)who ((?!(?:{_AUXILIARY})\b)\w+ .+)"), "the one who {0}"),
    (re.compile(r"(?i)who ((?:is|was|has|had) \w+(?:ed|en|wn) .+)"), "the one who {0}"),
    (re.compile(rf"(?i)(?:what|which) ((?!(?:{_AUXILIARY})\b)[a-z]+(?: [a-z]+)?) ((?:is|was|has|had) (?!(?:the|he|she|it|they|not)\b)\w+(?:ed|en|wn|t) .+)"), "the {0} that {1}"),
    (re.compile(rf"(?i)(?:what|which) ((?!(?:{_AUXILIARY})\b)[a-z]+) (\w+(?:ed|ns|ts|ds) .+)"), "the {0} that {1}"),
    (re.compile(r"(?i)where (?:is|was) (.+?) (located|born|held|built|founded|situated|buried)"), "the place where {0} was {1}"),
    (re.compile(r"(?i)in (?:what|which) (city|country|town|state|county|place|year|region) (?:is|was) (.+?) (located|born|held|built|founded)"), "the {0} where {1} was {2}"),
)  # fmt: skip
# A name next to these is part of a longer one.
_BOUND_BEFORE = re.compile(r"(?:[A-Z\d][\w.-]*|\d\w*|[-'’]|\b(?:of|[Ff]rench|Mr\.|Dr\.)) ?$")
_BOUND_AFTER = re.compile(r"-|\w| (?:of|the|and|or|[A-Z\d])|, ")
_MIN_NAME = 5  # letters of a name that is replaced
_MAX_WORDS = 16  # words of what replaces it


def described(question: str) -> str | None:
    """Return words for what a question asks for; None if it is of no form that is known.

    Examples
    --------
    >>> described("Who published Small Wings?"), described("Which river flows through Oster?")
    ('the one who published Small Wings', None)
    >>> described("What is the capital of Marl?"), described("Where was Ada Foah born?")
    ('the capital of Marl', 'the place where Ada Foah was born')
    """
    asked = question.strip().rstrip("?").strip()
    for pattern, form in _TURNS:
        match = pattern.fullmatch(asked)
        if match:
            words = form.format(*match.groups())
            # Without a name in it, it could be of anything.
            told = _NAME.search(words) and len(words.split()) <= _MAX_WORDS
            return words if told else None
    return None


def composed_questions(examples: Sequence[ReadingExample], count: int, *, seed: int) -> list[ReadingExample]:
    """Compose about so many questions of pairs of questions over one passage each."""
    rng = random.Random(seed)
    first_by_answer: dict[str, list[ReadingExample]] = defaultdict(list)
    for row in examples:
        if row.kind == "span" and len(row.passages) == 1:
            for answer in row.answers:
                if len(answer) >= _MIN_NAME and _NAME.fullmatch(answer) and described(row.question):
                    first_by_answer[answer].append(row)
    pairs = list(_pairs(examples, first_by_answer))
    rng.shuffle(pairs)
    made: dict[str, ReadingExample] = {}
    uses: dict[str, int] = defaultdict(int)
    for name, second in pairs:
        if len(made) >= count:
            break
        first = rng.choice(first_by_answer[name])
        words = described(first.question)
        answer = second.answers[0]
        # A name may not be asked for too often, nor may a passage answer both.
        if (
            words is None
            or uses[name] >= 20
            or first.passages == second.passages
            or name in words
            or answer in first.question
        ):
            continue
        match = re.search(rf"\b(?:[Tt]he )?{re.escape(name)}", second.question)
        if match is None:
            continue
        question = f"{second.question[: match.start()]}{words}{second.question[match.end() :]}"
        question = question[0].upper() + question[1:]
        passages = [*first.passages, *second.passages]
        order = rng.sample(range(2), 2)
        spans = tuple(Span(order.index(1), span.start, span.end) for span in second.spans)
        made[question] = ReadingExample(question, tuple(passages[index] for index in order), spans, "span", (), SOURCE)
        uses[name] += 1
    return list(made.values())


def _pairs(
    examples: Sequence[ReadingExample], known: dict[str, list[ReadingExample]]
) -> Iterator[tuple[str, ReadingExample]]:
    """Yield the names of questions that are the answer of another question."""
    for row in examples:
        if row.kind != "span" or len(row.passages) != 1:
            continue
        for match in _NAME.finditer(row.question):
            before, after = row.question[: match.start()], row.question[match.end() :]
            if before and match[0] in known and not _BOUND_BEFORE.search(before) and not _BOUND_AFTER.match(after):
                yield match[0], row
