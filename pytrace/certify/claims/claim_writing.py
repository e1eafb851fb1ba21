"""A language model that writes a sentence as single facts, each of which can be checked by itself."""

# Source: Min et al., "FActScore: Fine-grained Atomic Evaluation of Factual Precision in Long Form Text Generation" (2023), section 3.1;
# the prompt and the check of what is written are our own.

from __future__ import annotations

import re
from collections.abc import Sequence

from pytrace.certify.claims.text_tokens import key_of
from pytrace.certify.claims.tokens import Token, tokens
from pytrace.certify.claims.word_forms import are_one_word
from pytrace.documents.languages import detect_language
from pytrace.models.language_model import LanguageModel, Prompt

_INSTRUCTION = (
    "Write each fact of the sentence as a short sentence of its own. Keep names and numbers as they are. Add nothing."
)
_SHOWN = (
    (
        ("The ferry to Holm leaves at nine and takes two hours.", ""),
        ("The ferry to Holm leaves at nine.", "The ferry to Holm takes two hours."),
    ),
    (
        ("She sold the old mill, which her father had built in 1931, to Tarek Voss.", "Ilse Marl"),
        (
            "Ilse Marl sold the old mill to Tarek Voss.",
            "The old mill was built by Ilse Marl's father.",
            "The old mill was built in 1931.",
        ),
    ),
    (("Lake Oster is deeper than Lake Penn.", ""), ("Lake Oster is deeper than Lake Penn.",)),
)
_MOST_FACTS = 8
# A fact repeats the subject; all of them together are some three times as long as their sentence.
_TOKENS_FOR_EACH, _MOST_TOKENS = 4, 256
_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])?\s*")


class ClaimWriter:
    """Writes sentences as single facts, and leaves alone those of which what was written is not all, or more than they say.

    Parameters
    ----------
    model
        Any that follows an example: the tiny one seldom does, and then nearly all sentences stay as they are.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._demonstrations = tuple((_asked(*asked), _listed(facts)) for asked, facts in _SHOWN)

    def write(self, sentences: Sequence[str], subjects: Sequence[str]) -> list[list[str]]:
        """Write sentences as facts, all in one batch.

        Parameters
        ----------
        sentences
            As they stand in a response.
        subjects
            For each what its pronoun stands for, or "".

        Returns
        -------
        list of list of str
            For each sentence its facts; none where it is better checked as it stands: where a fact has a content word that the sentence has
            not, or the facts lack a name, a number or a negation that it has.
        """
        if not sentences:
            return []
        asked = [
            _asked(" ".join(sentence.split()), subject) for sentence, subject in zip(sentences, subjects, strict=True)
        ]
        prompts = [Prompt(_INSTRUCTION, self._demonstrations, text, "Facts:\n-", lasting=True) for text in asked]
        room = [min(_MOST_TOKENS, 32 + _TOKENS_FOR_EACH * self._model.count_tokens(text)) for text in asked]
        written = self._model.generate(prompts, max_tokens=room, stop=("\n\n", "\nSentence:"))
        return [
            _facts(completions[0].text, sentence, subject)
            for completions, sentence, subject in zip(written, sentences, subjects, strict=True)
        ]


def _asked(sentence: str, subject: str) -> str:
    about = f"\nAbout: {subject}" if subject else ""
    return f"Sentence: {sentence}{about}"


def _listed(facts: Sequence[str]) -> str:
    return "Facts:\n" + "\n".join(f"- {fact}" for fact in facts)


def _facts(written: str, sentence: str, subject: str) -> list[str]:
    lines = [_MARK.sub("", line).strip() for line in written.split("\n")]
    facts = list(dict.fromkeys(line for line in lines if line))
    if not 1 < len(facts) <= _MOST_FACTS:
        return []
    read = tokens(sentence)
    known = [token for token in (*tokens(subject), *read) if token.is_content or token.kind == "negation"]
    said = [token for fact in facts for token in tokens(fact) if token.is_content or token.kind == "negation"]
    # A model that follows no example writes of a house where the sentence has a boat; and what it leaves out would go unchecked.
    english = detect_language(sentence) == "en"
    added = any(not _has(known, token, english=english) for token in said)
    lost = any(
        not _has(said, token, english=english)
        for token in read
        if token.kind in ("name", "number", "month", "negation")
    )
    bare = any(not any(token.is_content for token in tokens(fact)) for fact in facts)
    return [] if added or lost or bare else facts


def _has(words: Sequence[Token], token: Token, *, english: bool) -> bool:
    """Say whether a word is among others, perhaps in another form."""
    key = key_of(token)
    return any(
        key == (other := key_of(word))
        or (isinstance(key, str) and isinstance(other, str) and are_one_word(key, other, english=english))
        for word in words
    )
