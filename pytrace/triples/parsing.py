"""What a language model writes becomes triples: the grammar it is held to, the lines it wrote, the sentences behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from pytrace.documents.passages import TITLE_SEPARATOR
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.models.grammars import escaped
from pytrace.records import Document, Triple


def locate(
    document: Document, triples: Sequence[Triple], indices: Sequence[int] | None = None, *, heading: str | None = None
) -> list[Triple]:
    """Give every triple the sentence that supports its tail best (partial ratio; the relation decides ties).

    With a `heading`, which may be empty, heads are phrases of the text, too: they decide ties first, and support is how well
    the tail or, if that is less, the text below its heading says the head.
    """
    numbers = range(len(document.sentences)) if indices is None else indices
    sentences = [(number, text) for number, text in zip(numbers, document.sentences, strict=True) if text.strip()]
    if not triples or not sentences:
        return list(triples)
    texts = [text.casefold() for _, text in sentences]
    queries = [triple.tail.casefold() for triple in triples] + [triple.relation.casefold() for triple in triples]
    # One call for tails and relations: each sentence is made ready once.
    scores = cdist(queries, texts, scorer=partial_ratio)
    tails, relations = scores[: len(triples)], scores[len(triples) :]
    # Scores are 0 to 100, so a relation adds 0.1 at most: it decides between equal tails alone.
    ranked = tails + relations * 1e-3
    heads = [triple.head.casefold() for triple in triples]
    if heading is not None:
        ranked += cdist(heads, texts, scorer=partial_ratio) * 1e-2
    best = ranked.argmax(axis=1)
    supports = tails[np.arange(len(triples)), best]
    if heading is not None:
        whole = " ".join([heading.casefold(), *texts])
        supports = np.minimum(supports, cdist(heads, [whole], scorer=partial_ratio)[:, 0])
    return [
        Triple(triple.head, triple.relation, triple.tail, triple.document_id, sentences[column][0], round(support, 1))
        for triple, column, support in zip(triples, best.tolist(), supports.tolist(), strict=True)
    ]


class ParsedTriples(msgspec.Struct):
    """The (head, relation, tail) of a model's output, how many lines it had and how many could not be read."""

    triples: list[tuple[str, str, str]]
    lines: int = 0
    malformed: int = 0


_WORDS = re.compile(r"(\w+(?:['’.,-]\w+)*)")


def span_grammar(title: str, sentences: Sequence[str], *, open_heads: bool = False) -> str:
    """Return a GBNF grammar of `relation; tail>` lines for a title whose tails are spans of whole words of a sentence.

    Open heads are such spans, too, or headings of the title; the lines are then `head; relation; tail>`.
    """
    # The text that it accepts follows `<title;`, or `<`. A relation is free text of at most 48 characters.
    if open_heads:  # a head with a semicolon could not be told from its relation
        sentences = [piece for sentence in sentences for piece in sentence.split(";")]
    rules: list[str] = []
    for sentence in sentences:
        # Between words at even places, words at odd ones; only the former may hold what must be escaped.
        pieces = _WORDS.split(sentence)
        if len(pieces) == 1:
            continue
        if _TO_ESCAPE.search(sentence):
            pieces[::2] = map(escaped, pieces[::2])
        numbers = range(len(rules), len(rules) + len(pieces) // 2 - 1)
        rules += [
            f'w{number} ::= "{word}" ("{between}" w{number + 1})?'
            for number, word, between in zip(numbers, pieces[1::2], pieces[2::2], strict=False)
        ]
        rules.append(f'w{len(rules)} ::= "{pieces[-2]}"')
    tails = " | ".join([f"w{number}" for number in range(len(rules))]) or '""'
    fact = 'relation "; " tail ">"'
    line = f'" " {fact} ("\\n<{escaped(title)}; " {fact})* "\\n\\n"?'
    if open_heads:
        line = f'head "; " {fact} ("\\n<" head "; " {fact})* "\\n\\n"?'
        headings = [f'"{escaped(name)}"' for name in title.split(TITLE_SEPARATOR) if name and ";" not in name]
        rules.append(f"head ::= {' | '.join(['tail', *headings])}")
    return "\n".join([f"root ::= {line}", "relation ::= [a-zA-Z] [a-zA-Z0-9 ',-]{0,47}", f"tail ::= {tails}", *rules])


_TO_ESCAPE = re.compile(r'[\\"\n\r]')


_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\d{1,3}[.)]\s+)")
_BETWEEN = re.compile(r">\s*(?:[,;.]\s*)?(?=<)")


def parse_triples(text: str, title: str, *, complete: bool = True) -> ParsedTriples:
    """Read `<head; relation; tail>` lines leniently."""
    # A missing bracket is added, several triples on a line are taken apart, a semicolon too many belongs to the tail
    # (or to the title, if the title has it), and a triple of two parts gets the title as its head. What has no relation
    # or no tail is malformed, and so is the last triple of a text that is not `complete` unless its bracket closes: it
    # may be half a fact.
    lines = [line for line in text.splitlines() if line.strip()]
    pieces = [piece for line in lines for piece in _BETWEEN.split(_BULLET.sub("", line).strip())]
    result = ParsedTriples([], lines=len(pieces))
    for number, piece in enumerate(pieces, 1):
        cut_off = number == len(pieces) and not complete and _without_closing(text) == text
        triple = None if cut_off else _parse_piece(piece.strip(), title)
        if triple is None:
            result.malformed += 1
        else:
            result.triples.append(triple)
    return result


def _without_closing(text: str) -> str:
    """Return a text without the bracket that closes it, if one does, and what stands behind that."""
    end = len(text)
    while end and (text[end - 1] in ">,;." or text[end - 1].isspace()):
        end -= 1
    start = text.find(">", end)
    return text if start < 0 else text[:start]


def _parse_piece(piece: str, title: str) -> tuple[str, str, str] | None:
    closed = _without_closing(piece)
    inner = closed.removeprefix("<") if closed != piece else piece.removeprefix("<").rstrip(",.")
    # The title is told by its words and not by semicolons, of which it may have some of its own.
    named, rest = inner.strip()[: len(title)], inner.strip()[len(title) :].lstrip()
    if title and named.casefold() == title.casefold() and rest.startswith(";"):
        head, parts = title, [part.strip() for part in rest[1:].split(";")]
    else:
        first, *parts = [part.strip() for part in inner.lstrip("<").split(";")]
        if len(parts) == 1:
            head, parts = title, [first, *parts]
        else:
            head = first
    if len(parts) < 2 or not (head and parts[0] and parts[1]):
        return None
    return head, parts[0], "; ".join(part for part in parts[1:] if part)
