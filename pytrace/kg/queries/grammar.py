r"""Grammars of queries: a model that is held to one can only write what parses and what the store can be asked.

Relations are those of the store, and entities are words in a row of the question, so that neither is made up. Grammars are
GBNF, llama.cpp's notation; a trained model may be held to the same ones as a prompted one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence

from pytrace.errors import InputError
from pytrace.kg.queries.notation import parse_query, write_name
from pytrace.kg.queries.query_records import SOUGHT, QueryForm
from pytrace.models.grammars import escaped

MOST_NAME_WORDS = 8
# Longer names are seldom meant, and with these limits three patterns of them stay below what `parse_query` reads.
_MOST_WORD_LETTERS = 40
_MOST_RELATION_LETTERS = 100
# A question that long is a text; names are looked for in its beginning.
_MOST_WORDS = 200

# The s of a possessive is a word of its own, that no name begins or ends with.
_WORD = re.compile(r"\w+(?:['’](?![sS]\b)\w+|[.,-]\w+)*")
_POSSESSIVE = re.compile(r"['’]$")
# What stands between two words of one name: a space, a comma, a hyphen. Brackets, quotes and question marks end a name.
_WITHIN_NAME = re.compile(r"[^\w;?!<>()\[\]{}\"“”„«»]{1,3}")
# These scripts put no space between words, so that words do not tell where a name may begin.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")

_ARTICLES = frozenset({"a", "an", "the"})
_FUNCTION_WORD = re.compile(
    "(?i:a|an|the|"
    "about|after|all|also|among|and|any|are|as|at|be|been|before|being|between|both|but|by|can|could|did|do|does|"
    "during|each|ever|for|from|give|had|has|have|he|her|him|his|how|if|in|into|is|it|its|list|many|me|more|most|"
    "much|name|no|not|of|on|one|or|other|our|over|same|she|should|show|so|some|such|tell|than|that|their|them|"
    "then|there|these|they|this|those|through|to|under|was|we|were|what|when|where|which|while|who|whom|whose|why|"
    "will|with|would|you|your)"
)

# A first character that is no space in any script, and then what is no control character and no separator of lines.
_FIRST = r"[a-zA-Z0-9\u00C0-\u167F\u1780-\u1FFF\u3041-\uD7FF]"
_UNREADABLE = r"\x00-\x1F\x7F-\x9F\u2028\u2029"
_ANY_NAME = {
    "triplet": _FIRST + r" [^;<>?" + _UNREADABLE + r"]{0,59}",
    "sparql": _FIRST + r" [^/\\" + _UNREADABLE + r"]{0,59}",
}
_TRIPLETS = (r'root ::= " "? "<" (name "; " relation "; ?" | "?; " relation "; " name | name "; ?; " name) ">" "\n"?',)
# What is asked for, ?x, stands in at least one pattern, and never on both sides of one.
_SPARQL = (
    r'root ::= " "? (asked | stated) "\n"?',
    'asked ::= ("select distinct ?x" | "select (count(distinct ?x) as ?count)") " where { " body " }"',
    'stated ::= "ask { " pattern (" . " pattern (" . " pattern)?)? " }"',
    'body ::= hit (" . " pattern (" . " pattern)?)? | miss " . " (hit (" . " pattern)? | miss " . " hit)',
    "pattern ::= hit | miss",
    'hit ::= "?x " relation " " place | place " " relation " ?x"',
    'miss ::= place " " relation " " place',
    'place ::= "?y" | "?z" | "entity:/" name "/"',
)


def writable_relations(names: Iterable[str], *, form: QueryForm) -> tuple[str, ...]:
    """Return the names of relations that can stand in a query, each once."""
    writable: dict[str, None] = {}
    for candidate in names:
        name = candidate.strip()
        if len(name) <= _MOST_RELATION_LETTERS and name != SOUGHT:
            try:
                parse_query(f"<{SOUGHT}; {name}; a>" if form == "triplet" else f"ask {write_name('relation', name)}")
            except InputError:
                continue
            writable[name] = None
    return tuple(writable)


def query_grammar(question: str, relations: Sequence[str], *, form: QueryForm, spans: bool = True) -> str:
    """Return a GBNF grammar of the queries that a question may become, each with or without a space before it."""
    # Triplets have a ``?`` in any one of the three places. SPARQL is SELECT DISTINCT, COUNT or ASK, with up to 3
    # patterns of triples in ``?x``, ``?y`` and ``?z``.
    # Chain of Knowledge, section 4: the two forms, with textual mentions where keys would stand.
    written = writable_relations(relations, form=form)
    if not written:
        raise InputError(
            f"none of {len(relations)} relations can stand in a query; give at least one with a name of one line"
        )
    if form == "sparql":
        written = tuple(write_name("relation", name) for name in written)
    literals = " | ".join(f'"{escaped(name)}"' for name in written)
    names = _span_rules(question, form) if spans else []
    rules = _TRIPLETS if form == "triplet" else _SPARQL
    return "\n".join([*rules, f"relation ::= {literals}", *(names or [f"name ::= {_ANY_NAME[form]}"])])


def _span_rules(question: str, form: QueryForm) -> list[str]:
    """Return the rules of names that are words of the question; none if there are no such names."""
    # Rule ``w2-7`` accepts word 2 and up to 6 more; names that share words share rules, so that n words need at most 8
    # n.
    text = " ".join(question.split())
    if _UNSPACED.search(text):
        return []
    words = list(_WORD.finditer(text))[:_MOST_WORDS]
    betweens = [text[left_word.end() : right_word.start()] for left_word, right_word in itertools.pairwise(words)]
    usable = [len(word.group()) <= _MOST_WORD_LETTERS for word in words]
    joined = [
        usable[index] and usable[index + 1] and between.isprintable() and bool(_WITHIN_NAME.fullmatch(between))
        for index, between in enumerate(betweens)
    ]
    weak = [
        bool(index and word.group() in {"s", "S"} and _POSSESSIVE.search(betweens[index - 1]))
        for index, word in enumerate(words)
    ]
    function = [_is_function_word(word.group()) for word in words]

    def begins(index: int) -> bool:
        word = words[index].group()
        # A capital makes a function word a part of a name, but every question begins with one.
        proper = word[0].isupper() and (index > 0 or word.casefold() in _ARTICLES)
        return usable[index] and not weak[index] and (proper or not function[index])

    def ends(index: int, left: int) -> bool:
        proper = words[index].group()[0].isupper() and left < MOST_NAME_WORDS
        return not weak[index] and (proper or not function[index])

    @functools.cache
    def leads_on(index: int, left: int) -> bool:
        """Say whether more words may follow, and one of them ends a name."""
        if left == 1 or index + 1 == len(words) or not joined[index]:
            return False
        return ends(index + 1, left - 1) or leads_on(index + 1, left - 1)

    starts = [
        index
        for index in range(len(words))
        if begins(index) and (ends(index, MOST_NAME_WORDS) or leads_on(index, MOST_NAME_WORDS))
    ]
    rules: dict[str, str] = {}
    for start in starts:
        for index in range(start, min(start + MOST_NAME_WORDS, len(words))):
            left = MOST_NAME_WORDS - (index - start)
            word = escaped(words[index].group())
            if not leads_on(index, left):
                rules[f"w{index}-{left}"] = f'"{word}"'
                break
            between = betweens[index]
            if form == "sparql":
                between = between.replace("\\", "\\\\").replace("/", "\\/")
            more = f'"{escaped(between)}" w{index + 1}-{left - 1}'
            rules[f"w{index}-{left}"] = f'"{word}" ({more})?' if ends(index, left) else f'"{word}" {more}'
    if not starts:
        return []
    first = " | ".join(f"w{index}-{MOST_NAME_WORDS}" for index in starts)
    return [f"name ::= {first}", *(f"{name} ::= {rule}" for name, rule in rules.items())]


def _is_function_word(word: str) -> bool:
    # In capitals throughout it is short for something: US, IT, WHO.
    return bool(_FUNCTION_WORD.fullmatch(word)) and not (len(word) > 1 and word.isupper())
