"""What a passage is about, by name: its title and heading, and what its first sentence tells of, with the names it goes by."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from pytrace.documents.passages import TITLE_SEPARATOR
from pytrace.documents.phrases import sentence_subject
from pytrace.records import Document
from pytrace.retrieval.bm25 import words

LONGEST = 16
"""A longer name, in words, is a sentence that nobody repeats."""

_BRACKETS = re.compile(r"[\[(][^()\[\]]*[\])]")
_ARTICLES = frozenset(("a", "an", "the"))
# English, as `sentence_subject` is: "Onika Maraj, known professionally as Nicki Minaj", "née Hanna".
_ALSO = re.compile(
    r"""(?:\b(?:known|credited|referred\ to)\b(?:\ \w+){0,4}?\ as|\b(?:n[ée]e|nicknamed|called|titled))\ ["“'‘]?
    ((?:[^\W\d_a-zß-öø-ÿ][\w.'’-]*(?:\ (?:of|the|de|von|van|al))*[ ]?){1,5})""",
    re.VERBOSE,
)
# What the pattern looks for: where a text has none of it, no name of this kind is there.
_ALSO_SIGNS = ("known", "credited", "referred to", "née", "nee", "nicknamed", "called", "titled")
# Other names stand near the beginning of a passage.
_BEGINNING = 400


def normal_form(text: str) -> str:
    """Return a text's words, single spaces between them, as names are compared."""
    return " ".join(words(text))


def passage_names(passage: Document) -> tuple[list[str], list[str]]:
    """Return the names that a passage's author gave it, and those that its text gives, in normal form.

    The first are its document's title and its last heading, without what stands in brackets, and its document's `aliases` in the
    metadata, a text or a list; a title that is only the file's name is none. The second, of an English text, are the subject of its
    first sentence, the same without middle names, and what it is "known as"; of any text those that its origin names, and all these
    without the marks of Latin letters, as keyboards leave them out: "Sao Paulo".
    """
    titles = [passage.title] if passage.origin is None else []
    if passage.origin is not None:
        if passage.origin.titled:
            titles.append(passage.origin.title)
        titles += passage.title.split(TITLE_SEPARATOR)[1:][-1:]
        aliases = passage.origin.metadata.get("aliases", ())
        titles += [str(alias) for alias in (aliases if isinstance(aliases, list | tuple) else [aliases])]
    given = _distinct(normal_form(_BRACKETS.sub(" ", title)) for title in titles)
    told = [] if _language(passage) != "en" else _distinct(_told(passage))
    if passage.origin is not None:
        told += _distinct(normal_form(name) for name in passage.origin.names)
    told += [_plain(name) for name in (*given, *told)]
    return given, [name for name in dict.fromkeys(told) if name not in given]


def _plain(name: str) -> str:
    """Return a name with the letters of A to Z in the place of those that have marks."""
    if name.isascii():
        return name
    parts = (unicodedata.normalize("NFKD", letter) for letter in name)
    return "".join(part[0] if "a" <= part[0] <= "z" else unicodedata.normalize("NFKC", part) for part in parts)


def _language(passage: Document) -> str:
    return "en" if passage.origin is None else passage.origin.metadata.get("language", "en")


def _told(passage: Document) -> Iterator[str]:
    """Iterate over the names that a passage's beginning gives to what it is about."""
    sentence = passage.sentences[0] if passage.sentences else ""
    subject = sentence_subject(sentence[:_BEGINNING])
    # A subject without a capital is a thing of the sentence alone: "most of the inhabitants".
    if subject is not None and sentence[slice(*subject)] != sentence[slice(*subject)].lower():
        name = normal_form(sentence[slice(*subject)])
        yield name
        parts = name.split()
        if 3 <= len(parts) <= 4 and name.replace(" ", "").isalpha() and not _ARTICLES & {*parts}:
            yield f"{parts[0]} {parts[-1]}"
    beginning = passage.text[:_BEGINNING]
    if any(sign in beginning for sign in _ALSO_SIGNS):
        for match in _ALSO.finditer(beginning):
            yield normal_form(match[1])


def _distinct(names: Iterator[str]) -> list[str]:
    kept: dict[str, None] = {}
    for name in names:
        parts = name.split()
        while len(parts) > 1 and parts[0] in _ARTICLES:
            parts = parts[1:]
        if parts and len(parts) <= LONGEST and len(" ".join(parts)) > 1:
            kept[" ".join(parts)] = None
    return list(kept)
