"""The type and form of an answer, and wrong answers of the same type and form.

A wrong answer that is to stand where the right one stood must read as well there: a date in the same format, a number with as
many digits and the same unit, a person for a person.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 6.1 and appendix I. The paper asks a model for everything; here rules do what rules can, so that the same seed gives the
same answer and each one can be checked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from pytrace.documents.sentences import clean_text
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.perturb import answer_values
from pytrace.perturb.answer_forms import (
    INITIAL,
    LONGEST,
    PLACES,
    SEPARATOR,
    AnswerType,
    Parsed,
    alike,
    case_of,
    is_capital,
    items_of,
    parse,
    split_article,
)
from pytrace.perturb.common_names import (
    CITIES,
    COUNTRIES,
    COUNTRIES_WITH_ARTICLE,
    MEN,
    NATIONALITIES,
    PARTICLES,
    PROPER,
    STATES,
    SUFFIXES,
    SURNAMES,
    TITLE_WORDS,
    TITLES,
    TOWNS_WITHIN,
    WOMEN,
)
from pytrace.perturb.rewriting_demonstrations import demonstrations
from pytrace.reader.answers import normalise_answer

__all__ = ["AnswerType", "By", "Swap", "classify", "same_type", "swap", "swap_all", "variants"]

By = Literal["rule", "pool", "names", "model"]

INSTRUCTION = "Write another phrase of the same kind and length, which means something else. Write only the phrase."

_TRIES = 60
_ROUNDS = 2
_SAMPLES = 4


class Swap(msgspec.Struct, frozen=True):
    """A wrong answer, the type it shares with the right one, and where it comes from.

    `by` is "rule" (computed), "pool" (another answer of the data set), "names" (our lists) or "model".
    """

    text: str
    type: AnswerType
    by: By


def classify(text: str) -> AnswerType:
    """Tell the type of an answer by rules."""
    # Source: section 6.1, which lets GPT-4 tell the types.
    return parse(clean_text(text)).type


def same_type(first: str, second: str) -> bool:
    """Tell whether two answers have the same type and form."""
    # The form is all that a reader sees of an answer before its meaning: the format of a date, the digits, commas,
    # decimals and unit of a number, a name's title, article and kind of place, a list's separators. Names and phrases
    # may differ by one word.
    # Source: section 6.1, "match the original in both type and format".
    return alike(parse(clean_text(first)), parse(clean_text(second)))


def swap(text: str, rng: random.Random, *, pool: Sequence[str] = (), model: LanguageModel | None = None) -> Swap | None:
    """Find a wrong answer of the same type and form."""
    # Values (yes and no, years, dates, numbers) are computed. Places, persons and names come from the pool, then from
    # short lists of our own. Common phrases come from the model, which is asked a bounded number of times, then from
    # the pool.
    # Source: section 6.1 and appendix I.
    return swap_all([text], [rng], pool=pool, model=model)[0]


def swap_all(
    texts: Sequence[str],
    rngs: Sequence[random.Random],
    *,
    pool: Sequence[str] = (),
    model: LanguageModel | None = None,
) -> list[Swap | None]:
    """Find a wrong answer for each of several: see `swap`; the model is asked about all of them in one call."""
    cleaned = [clean_text(text) for text in texts]
    known = sorted({one for one in map(clean_text, pool) if one})
    parsed = {one: parse(one) for one in known}
    open_phrases = dict.fromkeys(
        part for text in cleaned for part in (items_of(text) or (text,)) if part and parse(part).type == "phrase"
    )
    proposals = {} if model is None else _propose(list(open_phrases), model)
    return [_swap(text, rng, parsed, proposals) for text, rng in zip(cleaned, rngs, strict=True)]


def variants(right: str, wrong: str) -> list[tuple[str, str]]:
    """Return the ways in which a right answer may stand in a text, each with the wrong one written likewise."""
    pairs = dict.fromkeys([(right, wrong)])
    pairs.update(dict.fromkeys(zip(answer_values.renderings(right), answer_values.renderings(wrong), strict=False)))
    return list(pairs)


def _swap(
    text: str, rng: random.Random, pool: Mapping[str, Parsed], proposals: Mapping[str, Sequence[str]]
) -> Swap | None:
    if not text or len(text) > LONGEST:
        return None
    parsed = parse(text)
    for by, candidates in _candidates(text, parsed, rng, pool, proposals):
        for candidate in candidates:
            if _is_swap(text, candidate):
                return Swap(candidate, parsed.type, by)
    return None


def _is_swap(text: str, candidate: str) -> bool:
    right, wrong = normalise_answer(text), normalise_answer(candidate)
    readable = any(map(str.isalnum, right)) and any(map(str.isalnum, wrong))
    return readable and right not in wrong and wrong not in right and same_type(text, candidate)


def _candidates(
    text: str,
    parsed: Parsed,
    rng: random.Random,
    pool: Mapping[str, Parsed],
    proposals: Mapping[str, Sequence[str]],
) -> Iterable[tuple[By, Iterable[str]]]:
    """Name the sources of wrong answers for a type, the best first."""
    if parsed.type in {"yes-no", "year", "date", "number"}:
        return [("rule", (answer_values.another(text, rng) for _ in range(_TRIES)))]
    if parsed.type == "list":
        return _list_candidates(text, rng, pool, proposals)
    others = [one for one, other in pool.items() if alike(parsed, other)]
    rng.shuffle(others)
    # The likest first: the same sort of place, as many words.
    others.sort(key=lambda one: (_sort_of(one) != _sort_of(text), pool[one].words != parsed.words))
    made = (_from_names(text, parsed, rng) for _ in range(_TRIES))
    if parsed.type != "phrase":
        return [("pool", others), ("names", made)]
    return [("model", proposals.get(text, ())), ("names", made), ("pool", others)]


def _list_candidates(
    text: str, rng: random.Random, pool: Mapping[str, Parsed], proposals: Mapping[str, Sequence[str]]
) -> Iterable[tuple[By, Iterable[str]]]:
    parts = SEPARATOR.split(text)
    for _ in range(_TRIES):
        swaps = [_swap(part, rng, pool, proposals) for part in parts[::2]]
        if not all(swaps):
            return
        chosen = [one for one in swaps if one is not None]
        if len({one.text for one in chosen}) < len(chosen):
            continue
        written = [*parts]
        written[::2] = [one.text for one in chosen]
        by: By = next((one for one in ("model", "pool", "names") if one in {swap.by for swap in chosen}), "rule")
        yield by, ["".join(written)]


def _sort_of(text: str) -> str:
    return PLACES.get(split_article(text)[1].casefold(), "")


def _from_names(text: str, parsed: Parsed, rng: random.Random) -> str:
    """Make a name of the same form from our lists; it is checked by the caller."""
    article, rest = split_article(text)
    beginning = text[: len(text) - len(rest)]
    if parsed.type == "nationality":
        return beginning + _in_case(rng.choice(NATIONALITIES), case_of(rest))
    if parsed.type == "person":
        return _another_person(text, rng)
    if parsed.type == "place" and "," in rest:
        parts = rest.split(", ")
        town = rng.choice(TOWNS_WITHIN)
        return beginning + ", ".join([*(rng.choice(PROPER) for _ in parts[2:]), *town])
    if parsed.type == "place" and not parsed.form[1]:
        sort = _sort_of(text)
        if article:
            return beginning + rng.choice(COUNTRIES_WITH_ARTICLE)
        return beginning + rng.choice({"country": COUNTRIES, "state": STATES}.get(sort, CITIES))
    if parsed.type == "name" and parsed.form[1] == "acronym":
        return beginning + "".join(rng.choice("BCDFGHKLMNPRSTVW") for _ in rest)
    kept = set(str(parsed.form[1]).split())
    words = TITLE_WORDS if parsed.type == "name" and not kept and len(rest.split()) > 1 else PROPER
    return beginning + " ".join(
        rng.choice(words) if is_capital(word) and word not in kept else word for word in rest.split()
    )


def _another_person(text: str, rng: random.Random) -> str:
    words = text.split()
    last = max(
        (place for place, word in enumerate(words) if word.strip(",") not in SUFFIXES and not INITIAL.match(word)),
        default=0,
    )
    first_names = next((names for names in (WOMEN, MEN) if any(word in names for word in words)), MEN)
    written = []
    for place, word in enumerate(words):
        comma = "," if word.endswith(",") else ""
        if (place == 0 and word in TITLES) or word.strip(",") in SUFFIXES or word in PARTICLES:
            written.append(word)
        elif INITIAL.match(word):
            written.append(re.sub(r"[^\W\d_]", lambda _: rng.choice("ABCDEFGHJKLMNPRSTW"), word))
        else:
            written.append(rng.choice(SURNAMES if place == last else first_names) + comma)
    return " ".join(written)


def _in_case(text: str, case: str) -> str:
    return {"upper": text.upper(), "lower": text.lower()}.get(case, text)


def _propose(phrases: Sequence[str], model: LanguageModel) -> dict[str, list[str]]:
    """Let the model write other phrases, again for those that got nothing of the same type and form."""
    shown = tuple((f"Phrase: {one.input}\nAnother:", one.output) for one in demonstrations("another"))
    proposals: dict[str, list[str]] = {phrase: [] for phrase in phrases}
    for number in range(_ROUNDS):
        waiting = [phrase for phrase in phrases if not proposals[phrase] and len(phrase) <= LONGEST]
        if not waiting:
            break
        completions = model.generate(
            [Prompt(INSTRUCTION, shown, f"Phrase: {phrase}\nAnother:") for phrase in waiting],
            max_tokens=24, stop=("\n",), temperature=0.8, n=_SAMPLES, seed=number,
        )  # fmt: skip
        for phrase, written in zip(waiting, completions, strict=True):
            texts = dict.fromkeys(clean_text(one.text).strip("\"' .") for one in written)
            proposals[phrase] = [text for text in texts if _is_swap(phrase, text)]
    return proposals
