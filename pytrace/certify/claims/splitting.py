"""The claims of a response: its sentences, cut where a clause says one more thing, without what only speaks to the reader."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from pytrace.certify.claims.tokens import tokens
from pytrace.documents.phrases import is_pronoun, sentence_subject
from pytrace.documents.sentences import split_sentences
from pytrace.reader.response_places import blanked

Place = tuple[int, int]

# Where a sentence says one more thing; each part is a claim of its own if it has so many content words.
_CLAUSE = re.compile(r";\s+|,\s+(?=(?:and|but|while|whereas|which|who|whose|where)\s)")
_LEAST = 2
_CONJUNCTION = re.compile(r"^(?:and|but|while|whereas)\s+", re.IGNORECASE)
_RELATIVE = re.compile(r"^(?:which|who|whose|where)\s", re.IGNORECASE)
_ITEM = re.compile(r"^[ \t]*(?:[-*+•|]|\d{1,3}[.)])[ \t]+", re.MULTILINE)
# A line that ends a statement, or before which another begins.
_BREAK = re.compile(r"\n(?=[ \t]*(?:[-*+•|#]|\d{1,3}[.)])[ \t]*)|(?<=[:|])[ \t]*\n|\n[ \t]*\n")

_SOURCES = r"(?:documents?|contexts?|passages?|texts?|sources?|information|evidence|materials?|articles?|excerpts?|files?|notes?|records?)"
_GIVEN = rf"(?:(?:the|your|these|this|those|my|all|given|provided|available|above|supplied|retrieved)\s+)+{_SOURCES}"
# What leads in to a claim without being part of it.
_LEAD = re.compile(
    rf"(?:(?:according\s+to|based\s+on|judging\s+by|going\s+by|from|per|in|as\s+\w+\s+in)\s+{_GIVEN}(?:\s+(?:provided|given|above|available|(?:I|you|we)\s+[^,.:;]{{1,30}}))?[,:]"
    rf"|(?:if|as\s+far\s+as|from\s+what|from\s+all)\s+I\s+[^,.;]{{1,60}},"
    rf"|{_GIVEN}\s+(?:\w+ly\s+)?(?:says?|states?|tells?\s+us|shows?|indicates?|mentions?|notes?|reports?|confirms?|explains?)\s+(?:only\s+)?that\b"
    r"|(?:I'?m|I\s+am)\s+sorry,\s+(?:but\s+)?"
    r"|(?:so|thus|therefore|hence|overall|yes|no|sure|certainly|indeed|well|in\s+(?:short|summary|conclusion|brief|fact)|to\s+sum\s+up"
    r"|of\s+course|(?:final\s+|short\s+)?answer|conclusion|summary|explanation|step\s+\d+)[*_]*\s*[,:]"
    r"|(?:so|therefore)?,?\s*the\s+(?:final\s+|correct\s+)?answer(?:\s+to\s+(?:the|your)\s+question)?\s*(?:is|:)\s*:?)\s*",
    re.IGNORECASE,
)  # fmt: skip
# A sentence that speaks to the reader, and of nothing else.
_CHAT = re.compile(
    r"(?:(?:that's\s+an?\s+|what\s+an?\s+)?(?:great|good|excellent|interesting|nice|fair)\s+(?:question|one)\b|(?:I\s+)?hope\s+(?:this|that)\s+help"
    r"|(?:please\s+)?let\s+me\s+know\b|feel\s+free\b|(?:sure|certainly|of\s+course|happy\s+to\s+help|you're\s+welcome|thanks?(?:\s+you)?)\W*$"
    r"|step\s+\d+\W*$|(?:I'?m|I\s+am)\s+sorry\W*$|sorry\W*$|here(?:'s|\s+is|\s+are)\b[^.]*:\W*$|is\s+there\s+anything\s+else\b|if\s+you\s+(?:have|need|want|would)\b)",
    re.IGNORECASE,
)
# One that says that the texts do not say: it claims nothing of their subject.
_SILENT = re.compile(
    rf"{_GIVEN}[^.;]{{0,30}}?\b(?:(?:do|does|did)\s*(?:not|n't)|never|nowhere|fails?\s+to)\s+(?:\w+\s+)?(?:say|mention|state|specify|tell|contain|provide"
    r"|include|indicate|give|disclose|address|record|name|answer|cover|report)\b"
    rf"|{_GIVEN}\s+(?:says?\s+nothing|gives?\s+no|contains?\s+no|has\s+no|have\s+no|lacks?|(?:is|are)\s+silent)\b"
    rf"|\b(?:nothing|none|no\s+one)\s+(?:in|of)\s+{_GIVEN}"
    r"|\bthere\s+(?:is|are)\s*(?:no|n't\s+any)\s+(?:information|mention|statement|details?|records?|answer)\b"
    r"|\bI\s+(?:do\s*(?:not|n't)|can\s*(?:not|n't|'t)|could\s*(?:not|n't)|have\s+no)\b"
    r"|\bI(?:'m|\s+am)\s+(?:not\s+(?:sure|certain|able)|unable)\b"
    rf"|(?:\bnot|n't)\s+(?:stated|mentioned|specified|given|said|known|recorded|named|answered|covered)\s+(?:in|by)\s+{_GIVEN}"
    r"|(?:\bnot|n't)\s+(?:stated|mentioned|specified|given|known)\W*$"
    r"|^\W*(?:\w+\W+){0,3}(?:unknown|unclear|n/a|no\s+answer|not\s+enough\s+information|insufficient\s+information)\W*$",
    re.IGNORECASE,
)  # fmt: skip


def claim_places(response: str) -> list[Place]:
    """Return where the claims of a response stand, ``response[start:end]``, in their order.

    What has no name, number or other content word claims nothing; nor does a sentence that greets, asks, or says that the texts do not say.
    """
    places: list[Place] = []
    response = blanked(response).replace("’", "'")
    for begin, stop in _lines(response):
        for start, end in _sentences(response, begin, stop):
            first, last = _without_leads(response, start, end)
            is_chat = any(_CHAT.match(response, begins, end) for begins in (start, first))
            if not is_chat and not response[first:last].rstrip("*_ \"'”)").endswith("?"):
                places += _clauses(response, first, last)
    return places


def _lines(text: str) -> Iterator[Place]:
    """Cut a text at items of lists, rows of tables and empty lines, without their marks."""
    ends = [found.span() for found in _BREAK.finditer(text)]
    for (_, begin), (end, _) in itertools.pairwise([(0, 0), *ends, (len(text), len(text))]):
        mark = _ITEM.match(text, begin, end)
        yield (begin if mark is None else mark.end()), end


def _sentences(text: str, begin: int, end: int) -> Iterator[Place]:
    last = begin
    for sentence in split_sentences(text[begin:end]):
        found = re.compile(r"\s+".join(map(re.escape, sentence.split()))).search(text, last, end)
        if found is not None:
            last = found.end()
            yield found.span()


def _without_leads(text: str, start: int, end: int) -> Place:
    for _ in range(3):
        opens = re.compile(r"[\s*_>#\"'“]*").match(text, start, end)
        found = _LEAD.match(text, opens.end() if opens else start, end)
        if found is None or not re.search(r"\w", text[found.end() : end]):
            break
        start = found.end()
    return start, end


def _clauses(text: str, start: int, end: int) -> list[Place]:
    """Cut a sentence, ``text[start:end]``."""

    def content(first: int, last: int) -> int:
        return sum(token.is_content for token in tokens(text[first:last]))

    places: list[Place] = []
    begin = start
    for found in _CLAUSE.finditer(text, start, end):
        if content(begin, found.start()) >= _LEAST and content(found.end(), end) >= _LEAST:
            places.append((begin, found.start()))
            begin = found.end()
    if content(begin, end) or not places:
        places.append((begin, end))
    return [place for place in places if content(*place) and not _SILENT.search(text[slice(*place)])]


def subjects(claims: Sequence[str]) -> list[str]:
    """Return what the claims of one response are about where they do not say so, "" where they do.

    A pronoun, and a verb without a subject behind "and", stand for what the claim before is about; "which", "who" and "where" for the
    last name of the claim before.
    """
    found = []
    last = name = ""
    for claim in claims:
        opening = _CONJUNCTION.sub("", claim.strip("*_ \"'“"))
        own = _subject(claim)
        if _RELATIVE.match(opening):
            found.append(name or last)
        elif is_pronoun(opening.split(maxsplit=1)[0] if opening else "") or (
            not own and opening[:1].islower() and claim[:1] != opening[:1]
        ):
            found.append(last)
        else:
            found.append("")
            last = own or last
        name = _last_name(claim) or name
    return found


def _subject(claim: str) -> str:
    """Return what a claim is about: the phrase before its verb, or the name that it begins with; "" where there is none."""
    span = sentence_subject(claim)
    if span is not None and any(token.is_content for token in tokens(claim[slice(*span)])):
        return claim[slice(*span)]
    name = list(itertools.takewhile(lambda token: token.kind == "name", tokens(claim)))
    return claim[name[0].start : name[-1].end] if name else ""


def _last_name(claim: str) -> str:
    read = tokens(claim)
    ends = [number for number, token in enumerate(read) if token.kind == "name"]
    if not ends:
        return ""
    first = last = ends[-1]
    while first and (
        read[first - 1].kind == "name"
        or (read[first - 1].form in ("of", "the") and first > 1 and read[first - 2].kind == "name")
    ):
        first -= 1
    return claim[read[first].start : read[last].end]
