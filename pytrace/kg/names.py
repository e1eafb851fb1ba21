"""How a knowledge base words what it knows: keys as sources write them become names, and names a normal form."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

from pytrace.documents.languages import UNSPACED

# Each character of a script that puts no space between words is a token of its own.
_TOKEN = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s/#:]*[/#:]\S*")
_DOTTED = re.compile(r"[^\s.]+(?:\.[^\s.]+)+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def entity_name(key: str) -> str:
    """Word an entity's key: the last part of an IRI, with spaces for underscores."""
    return " ".join(_local(key).replace("_", " ").split()) or key


def relation_name(key: str) -> str:
    """Word a relation's key: the last part of an IRI or of a dotted name, its words apart and in lower case."""
    local = _local(key)
    if _DOTTED.fullmatch(local):
        local = local.rpartition(".")[2]
    words = _CAMEL.sub(" ", local.replace("_", " ")) if " " not in local else local
    return " ".join(words.split()).lower() or key


def verbalise(head: str, relation: str, tail: str) -> str:
    """Put a triple's names into one sentence, as section 3.2.1 of the paper on evaluating chain-of-thought does."""
    return f"{head} {relation} {tail}."


def tokens(text: str) -> list[str]:
    """Return the words of a text in one case and one Unicode form; a text of none is one word as it is."""
    # ASCII is its own normal form, and most texts are.
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return _TOKEN.findall(folded) or folded.split()


def normal_form(text: str) -> str:
    """Return the words of a text with single spaces: what names and steps are compared by."""
    return " ".join(tokens(text))


def _local(key: str) -> str:
    """Return the last part of an IRI, decoded; any other key as it is."""
    if not _IRI.fullmatch(key):
        return key
    local = re.split(r"[/#:]", key.rstrip("/#:"))[-1]
    return unquote(local, errors="replace") or key
