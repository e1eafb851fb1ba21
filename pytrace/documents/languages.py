"""Which language a text is in: by its script, and in Latin script by its function words."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import resources

from pytrace.errors import InputError
from pytrace.records import Document

_DATA = json.loads((resources.files(__package__) / "languages.json").read_text("utf-8"))
CODES = frozenset(_DATA["codes"].split())
"""The codes of ISO 639-1."""

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""The characters of scripts that put no space between words, for a class of a regular expression."""

# The beginning tells: some 300 words.
_SAMPLE = 2_000
_WORD = re.compile(r"[^\W\d_]+")
_LATIN_LETTER = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_OTHER_LETTER = re.compile("[\u0370-\u1dff\u1f00-\u1fff\u3040-\ud7ff\uf900-\ufeff]")
_SCRIPTS = {code: re.compile(f"[{ranges}]") for code, ranges in _DATA["scripts"].items()}
_FUNCTION_WORDS: dict[str, list[str]] = {}
for _code, _words in _DATA["function_words"].items():
    for _word in _words.split():
        _FUNCTION_WORDS.setdefault(_word, []).append(_code)
# So many different function words tell a language.
_LEAST = 3
ABBREVIATIONS = {code: frozenset(words.split()) for code, words in _DATA["abbreviations"].items()}
"""By language, abbreviations that end no sentence and that `sentencex` does not know; without the full stop."""
_UNSPACED_LETTER = re.compile(f"([{UNSPACED}])")
# Letters that a language has beside those of the one that its script is named after.
_OWN_LETTERS = {"ru": {"uk": re.compile("[іїєґ]")}, "ar": {"ur": re.compile("[ٹڈڑںے]"), "fa": re.compile("[پچژگ]")}}


def check_language(code: str | None) -> None:
    """Raise `InputError` if a language is given that ISO 639-1 has no code for."""
    if code is not None and code not in CODES:
        raise InputError(
            f"{code!a} is no language code of ISO 639-1; give two small letters, such as de, fr, ja or zh, or leave the "
            "language out to have it detected"
        )


def detect_language(text: str) -> str:
    """Tell the language of a text by its first 2,000 characters.

    The script with the most letters decides between Chinese, Japanese, Korean, Russian, Arabic and others; in Latin script the
    language with the most function words does, of 18. Where neither tells, as in a few words or a list of names, it is English.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    str
        An ISO 639-1 code.

    Examples
    --------
    >>> detect_language("Der Zug nach Köln fährt um acht."), detect_language("東京は日本の首都です。"), detect_language("Köln")
    ('de', 'ja', 'en')
    """
    sample = text[:_SAMPLE]
    return script_of(sample) or _by_function_words(sample)


def language_of(document: Document) -> str:
    """Return the language that a document was read in, if its origin names it, else the one detected."""
    known = document.origin.metadata.get("language") if document.origin is not None else None
    return known if isinstance(known, str) and known in CODES else detect_language(document.text)


def letters_apart(text: str) -> str:
    """Put spaces around each character of a script that has none between words."""
    return text if text.isascii() else _UNSPACED_LETTER.sub(r" \1 ", text)


def script_of(text: str) -> str | None:
    """Return the code of the language that most letters of a text point to by their script; None: they are Latin."""
    others = 0 if text.isascii() else len(_OTHER_LETTER.findall(text))
    if not others or others <= len(_LATIN_LETTER.findall(text)):  # not counted where there is nothing to compare with
        return None
    counts = {code: len(letters.findall(text)) for code, letters in _SCRIPTS.items()}
    code = max(counts, key=lambda code: counts[code])
    if not counts[code]:
        return None
    if code == "zh" and 10 * counts["ja"] > counts["zh"]:
        return "ja"
    return next((other for other, letters in _OWN_LETTERS.get(code, {}).items() if letters.search(text)), code)


def _by_function_words(text: str) -> str:
    # Distinct words, and none that names have in English texts, too (de, del, von).
    counts = Counter(code for word in set(_WORD.findall(text.lower())) for code in _FUNCTION_WORDS.get(word, ()))
    # Of two that tie the first by the alphabet.
    code, count = max(sorted(counts.items()), key=lambda item: item[1], default=("en", 0))
    return code if count >= _LEAST and count > 2 * counts["en"] else "en"
