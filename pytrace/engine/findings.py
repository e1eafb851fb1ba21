"""The result of a method's answer: what was found and read, as sources and chains that end at the sentence of the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pytrace.documents.languages import UNSPACED
from pytrace.reader.answers import normalise_answer
from pytrace.reader.evidence import supporting_sentence
from pytrace.reader.spans.words import content_stems, words
from pytrace.records import Answer, AnswerPlace, Chain, ChainSearch, Document, TextUnit, Triple, Unit, Usage
from pytrace.results import EvidenceChain, Findings, Result, Source, Step, certainty_of
from pytrace.retrieval.hops import PassageChain, chain_evidence
from pytrace.retrieval.passages.names import normal_form, passage_names
from pytrace.retrieval.passages.segment import document_id
from pytrace.retrieval.searching import Found

# A free answer is looked for in this many sentences at most.
_MAX_SENTENCES = 2000
# A letter or digit of a script that has spaces between words, in a class of characters.
_SPACED = re.compile(rf"[^\W{UNSPACED}]")


class _Sources:
    """Lists the passages of a result, each once."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        self._known: dict[str, Source] = {}

    def add(self, passage_id: str, **fields: object) -> int:
        """Return the index of a passage, listing it if it is new; -1 if it is not known."""
        if passage_id not in self._known:
            document = self._documents.get(passage_id)
            if document is None:
                return -1
            self._known[passage_id] = source_of(document)
        if fields:
            self._known[passage_id] = msgspec.structs.replace(self._known[passage_id], **fields)
        return list(self._known).index(passage_id)

    def listed(self) -> tuple[Source, ...]:
        return tuple(self._known.values())


def source_of(document: Document, relevance: float | None = None) -> Source:
    """Return a passage as a source."""
    return Source(
        id=document.id,
        document=document_id(document),
        title=document.title,
        text=document.text,
        location=document.location(),
        characters=document.characters(),
        page=None if document.origin is None else document.origin.page,
        relevance=relevance,
    )


def search_findings(question: str, found: Found, *, chains: int, passages: int) -> Findings:
    """Return the likeliest chains of a search, and its passages, best first.

    Parameters
    ----------
    question
        What was searched for.
    found
        What was found.
    chains, passages
        Maximum number of each.
    """
    documents = {document.id: document for document in found.passages.values()}
    sources = _Sources(documents)
    ranking = found.ranking
    rows = ranking.rows[:passages]
    for row, score in zip(rows, ranking.scores, strict=False):
        sources.add(found.passages[row].id, relevance=score)
    shown = [
        EvidenceChain(steps=_steps(question, _units_of(question, chain, found), documents, sources))
        for chain in ranking.chains[:chains]
    ]
    return Findings(kind="passages", chains=tuple(shown), sources=sources.listed())


def answer_result(answer: Answer, documents: Mapping[str, Document], found: Found | None = None) -> Result:
    """Return the result of a method's answer, however confident it is; the parameters are those of `answer_findings`."""
    return Result(
        question=answer.question,
        read_as=answer.question if found is None else found.ranking.question or answer.question,
        answer=answer.text,
        confidence=answer.probability,
        certainty=certainty_of(answer.probability),
        method=answer.method,
        evidence=answer_findings(answer, documents, found),
        notes=answer.notes,
        usage={stage: usage for stage, usage in answer.usage.items() if usage != Usage()},
        seconds=answer.seconds,
        context_tokens=answer.context_tokens,
        deterministic=answer.deterministic,
    )


def answer_findings(answer: Answer, documents: Mapping[str, Document], found: Found | None = None) -> Findings:
    """Return what an answer was read from, its first chain ending at the sentence that holds the answer.

    Parameters
    ----------
    answer
        The answer of a method.
    documents
        All passages that were given or found, by id.
    found
        What a search across hops found for the question, if there was one.
    """
    evidence = answer.evidence
    sources = _Sources(documents)
    scored = len(evidence.relevance) == len(evidence.document_ids)
    relevance = dict(zip(evidence.document_ids, evidence.relevance, strict=True)) if scored else {}
    for name in evidence.document_ids:
        votes = _votes(evidence.votes, name)
        sources.add(name, read=evidence.kind != "triples", relevance=relevance.get(name), **votes)
    chains = [
        EvidenceChain(
            steps=_steps(answer.question, chain.units, documents, sources, tuple(map(math.exp, chain.steps))),
            rank=rank,
            score=chain.score,
            ended=chain.finished,
        )
        for rank, chain in enumerate(evidence.chains, 1)
    ]
    first = _first_chain(answer, documents, found, sources)
    if first is not None:
        chains = _with_first(first, chains)
    derivation = evidence.derivation
    findings = Findings(
        kind=evidence.kind,
        chains=tuple(chains),
        sources=sources.listed(),
        details=None if isinstance(derivation, ChainSearch) else derivation,
        graph=derivation.graph if isinstance(derivation, ChainSearch) else None,
    )
    # The texts of the sources are stored once.
    if findings.read_texts == evidence.context:
        return findings
    return msgspec.structs.replace(findings, context=evidence.context)


def _votes(votes: Mapping[str, int], name: str) -> dict[str, object]:
    return {"votes": votes[name]} if name in votes else {}


def _with_first(first: EvidenceChain, chains: list[EvidenceChain]) -> list[EvidenceChain]:
    """Return chains with the one that ends at the answer before them; if it is one of them, that one keeps its rank and score."""
    for number, chain in enumerate(chains):
        if _sentences(chain) == _sentences(first):
            last = msgspec.structs.replace(chain.steps[-1], answer=first.steps[-1].answer)
            held = msgspec.structs.replace(chain, steps=(*chain.steps[:-1], last))
            return [held, *chains[:number], *chains[number + 1 :]]
    return [first, *chains]


def _sentences(chain: EvidenceChain) -> list[tuple[int, int, str]]:
    return [(step.source, step.sentence_index, step.sentence) for step in chain.steps]


def answer_sentence(answer: Answer, documents: Mapping[str, Document]) -> AnswerPlace | None:
    """Return the place that an answer was taken from: the one whose sentence says most of the question; None if it is nowhere.

    The places that the reader gives are preferred; an answer that was written freely is looked for in the evidence.
    """
    places = list(answer.places) or list(_occurrences(answer, documents))
    if not places:
        return None
    ranks = _chain_ranks(answer.evidence.chains)
    asked = content_stems(words(answer.question))
    form = normalise_answer(answer.text)

    def fit(place: AnswerPlace) -> tuple[bool, bool, int, bool, int]:
        document = documents[place.document_id]
        heading = place.sentence < 0
        text = document.title if heading else document.sentences[place.sentence]
        rank = ranks.get((place.document_id, place.sentence), ranks.get((place.document_id, -1), len(ranks)))
        # Some spans lack the answer's article. A heading alone says nothing about the question.
        missing = answer.text.casefold() not in text.casefold()
        elsewhere = normalise_answer(document.title) != form
        return missing, heading, -len(asked & content_stems(words(text))), elsewhere, rank

    return min(places, key=fit)


def _stating_sentence(answer: Answer, documents: Mapping[str, Document]) -> AnswerPlace | None:
    """Return the sentence that an answer "yes" or "no" rests on: the one that says most of the question."""
    if normalise_answer(answer.text) not in ("yes", "no"):
        return None
    asked = content_stems(words(answer.question))
    read = [documents[name] for name in dict.fromkeys(answer.evidence.document_ids) if name in documents]
    best = [_best_sentence(answer.question, document) for document in read if document.sentences]
    if not best:
        return None
    unit = max(best, key=lambda one: len(asked & content_stems(words(f"{one.title}. {one.body}"))))
    return AnswerPlace(unit.document_id, unit.sentence, 0, 0)


def _chain_ranks(chains: Sequence[Chain]) -> dict[tuple[str, int], int]:
    ranks: dict[tuple[str, int], int] = {}
    for number, chain in enumerate(chains):
        for unit in chain.units:
            ranks.setdefault((unit.document_id, unit.sentence), number)
            ranks.setdefault((unit.document_id, -1), number)
    return ranks


def _occurrences(answer: Answer, documents: Mapping[str, Document]) -> Iterable[AnswerPlace]:
    """Yield where an answer occurs word for word in the passages that it was read from."""
    form = normalise_answer(answer.text)
    if not form or form in ("yes", "no"):
        return
    evidence = answer.evidence
    names = dict.fromkeys(
        [*evidence.document_ids, *(unit.document_id for chain in evidence.chains for unit in chain.units)]
    )
    plain = _plain_words(answer.text)
    looked = 0
    for name in names:
        document = documents.get(name)
        if document is None:
            continue
        for number, text in enumerate((document.title, *document.sentences), -1):
            looked += 1
            if looked > _MAX_SENTENCES:
                return
            if (place := next(_whole_words(plain, text), None)) is not None:
                yield AnswerPlace(name, number, *place)
            elif f" {form} " in f" {normalise_answer(text)} ":
                yield AnswerPlace(name, number, 0, 0)


def _plain_words(text: str) -> re.Pattern[str]:
    """Return a pattern that finds a text, with any spaces between its words."""
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


def _whole_words(plain: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield where a pattern occurs, not inside a longer word where words have spaces between them."""
    at = 0
    while at <= len(text) and (match := plain.search(text, at)):
        start, end = match.span()
        cut_before = start > 0 and _SPACED.match(text, start - 1) and _SPACED.match(text, start)
        if not (cut_before or (end > start and _SPACED.match(text, end - 1) and _SPACED.match(text, end))):
            yield start, end
            at = max(end, start + 1)
        else:
            at = start + 1


def _first_chain(
    answer: Answer, documents: Mapping[str, Document], found: Found | None, sources: _Sources
) -> EvidenceChain | None:
    """Return the chain that ends at the answer's sentence; None if the answer is in no sentence and a method made chains."""
    place = answer_sentence(answer, documents) or _stating_sentence(answer, documents)
    units = _chain_units(answer, place, documents, found)
    if place is None:
        # Words of the model's own: what was read leads there, as far as anything does.
        return None if answer.evidence.chains or not units else _plain_chain(answer, units, documents, sources)
    document = documents[place.document_id]
    before = [unit for unit in units if unit.document_id != place.document_id]
    heading = place.sentence < 0
    if heading and document.sentences:
        before.append(_best_sentence(answer.question, document))
    text = document.title if heading else document.sentences[place.sentence]
    last = TextUnit(document.title, text, document.id, place.sentence)
    if _are_compared(answer, document):
        others = [documents[unit.document_id] for unit in before if unit.document_id in documents]
        rest = answer.question.replace(answer.text, "")
        before = [_best_sentence(rest, other) for other in others if other.sentences]
    elif not any(_held(_text(unit, documents), _names(document)) for unit in before):
        before = [_naming(answer.question, unit, document, documents) for unit in before]
    steps = _steps(answer.question, [*before, last], documents, sources)
    held = _answer_span(answer.text, text, place) if place.end > place.start else None
    triple = next(
        (
            (unit.head, unit.relation, unit.tail)
            for unit in units
            if isinstance(unit, Triple) and (unit.document_id, unit.sentence) == (place.document_id, place.sentence)
        ),
        None,
    )
    named = [
        unit.document_id in documents and bool(_held(answer.question, _names(documents[unit.document_id])))
        for unit in before
    ]
    return EvidenceChain(
        steps=_leading((*steps[:-1], msgspec.structs.replace(steps[-1], answer=held, triple=triple)), named)
    )


def _answer_span(answer: str, text: str, place: AnswerPlace) -> tuple[int, int]:
    """Return the answer's characters in a sentence, with an article that the reader's span lacks."""
    matches = _whole_words(_plain_words(answer), text)
    whole = (place.start, place.end)
    return next(((start, end) for start, end in matches if start <= whole[0] and whole[1] <= end), whole)


def _leading(steps: tuple[Step, ...], named: Sequence[bool]) -> tuple[Step, ...]:
    """Return the steps that lead to the last one; if none does, those of passages that the question names."""
    kept = (
        set()
        if steps[-1].after
        else {
            number
            for number, (step, is_named) in enumerate(zip(steps, named, strict=False), 1)
            if is_named and not step.after
        }
    )
    number = len(steps)
    while number:
        kept.add(number)
        number = steps[number - 1].after
    numbers = {0: 0} | {number: new for new, number in enumerate(sorted(kept), 1)}
    return tuple(msgspec.structs.replace(steps[n - 1], after=numbers[steps[n - 1].after]) for n in sorted(kept))


def _plain_chain(
    answer: Answer, units: Sequence[Unit], documents: Mapping[str, Document], sources: _Sources
) -> EvidenceChain:
    return EvidenceChain(steps=_steps(answer.question, units, documents, sources))


def _chain_units(
    answer: Answer, place: AnswerPlace | None, documents: Mapping[str, Document], found: Found | None
) -> Sequence[Unit]:
    """Return the units of the likeliest chain with the answer's passage: the method's, or else the search's."""
    chains: list[Sequence[Unit]] = [chain.units for chain in answer.evidence.chains]
    if not chains and found is not None:
        read = {*answer.evidence.document_ids}
        for chain in found.ranking.chains:
            if all(passage.id in read for passage in found.of(chain.rows)):
                chains.append(_units_of(answer.question, chain, found))
    if place is not None:
        for units in chains:
            if any(unit.document_id == place.document_id for unit in units):
                return units
        # No chain has it: what of the likeliest chain names it leads there.
        named = {*_names(documents[place.document_id])}
        return [
            unit
            for unit in (chains[0] if chains else ())
            if not named.isdisjoint(_held(supporting_sentence(unit, documents) or unit.text, named))
        ]
    if chains:
        return chains[0]
    if not answer.text:
        return []
    return [
        _best_sentence(answer.question, documents[name])
        for name in answer.evidence.document_ids[:2]
        if name in documents and documents[name].sentences
    ]


def _units_of(question: str, chain: PassageChain, found: Found) -> Sequence[Unit]:
    return chain_evidence(question, chain, found.of(chain.rows)).chains[0].units


def _best_sentence(question: str, document: Document) -> TextUnit:
    """Return the sentence of a passage that says most of a question."""
    return _best_of(question, document, range(len(document.sentences)))


def _best_of(question: str, document: Document, indices: Iterable[int]) -> TextUnit:
    # The title's words are said of all sentences.
    asked = content_stems(words(question)) - content_stems(words(document.title))
    best = max(indices, key=lambda index: (len(asked & content_stems(words(document.sentences[index]))), -index))
    return TextUnit(document.title, document.sentences[best], document.id, best)


def _are_compared(answer: Answer, document: Document) -> bool:
    """Return whether an answer is one of those that the question names, such as the older of two."""
    form = normalise_answer(answer.text)
    return (
        bool(form)
        and form == normalise_answer(document.title)
        and f" {form} " in f" {normalise_answer(answer.question)} "
    )


def _naming(question: str, unit: Unit, named: Document, documents: Mapping[str, Document]) -> Unit:
    """Return the sentence of a unit's passage that names another passage, or the unit if none does."""
    document = documents.get(unit.document_id)
    if document is None or not isinstance(unit, TextUnit):
        return unit
    names = _names(named)
    indices = [index for index, sentence in enumerate(document.sentences) if _held(sentence, names)]
    return _best_of(question, document, indices) if indices else unit


def _steps(
    question: str,
    units: Sequence[Unit],
    documents: Mapping[str, Document],
    sources: _Sources,
    probabilities: Sequence[float] = (),
) -> tuple[Step, ...]:
    """Return units as steps, each with the name or words that link it to an earlier one."""
    steps: list[Step] = []
    for number, unit in enumerate(units):
        document = documents.get(unit.document_id)
        sentence = unit.body if isinstance(unit, TextUnit) else supporting_sentence(unit, documents)
        after, link = _link(units, number, documents, question)
        steps.append(
            Step(
                source=sources.add(unit.document_id),
                sentence=sentence,
                sentence_index=unit.sentence,
                location="" if document is None else document.location(unit.sentence),
                characters=None if document is None else document.characters(unit.sentence),
                after=after,
                link=link,
                triple=(unit.head, unit.relation, unit.tail) if isinstance(unit, Triple) else None,
                probability=probabilities[number] if number < len(probabilities) else None,
            )
        )
    return tuple(steps)


def _link(units: Sequence[Unit], number: int, documents: Mapping[str, Document], question: str) -> tuple[int, str]:
    """Return which earlier step leads to a step (from 1; 0: the question), and by which name or words."""
    if number == 0:
        return 0, ""
    unit = units[number]
    here = documents.get(unit.document_id)
    text = _text(unit, documents)
    for place in range(number - 1, -1, -1):
        earlier = units[place]
        if earlier.document_id == unit.document_id and earlier.document_id:
            return place + 1, "" if here is None else here.title
        there = documents.get(earlier.document_id)
        named = _held(_text(earlier, documents), _names(here) if here is not None else ())
        named = named or _held(text, _names(there) if there is not None else ())
        if named:
            return place + 1, named[0]
    asked = content_stems(words(question))
    for place in range(number - 1, -1, -1):
        shared = _shared_words(_text(units[place], documents), text, asked)
        if shared:
            return place + 1, shared
    return 0, ""


def _text(unit: Unit, documents: Mapping[str, Document]) -> str:
    """Return what a unit says, under its title."""
    if isinstance(unit, TextUnit):
        return f"{unit.title}. {unit.body}"
    return f"{unit.head} {unit.relation} {unit.tail}. {supporting_sentence(unit, documents)}"


def _names(document: Document) -> list[str]:
    """Return the names of a passage in normal form, the longest first."""
    given, told = passage_names(document)
    return sorted([*given, *told], key=len, reverse=True)


def _held(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that a text holds, as the text spells the first letter of each word where it does."""
    form = f" {normal_form(text)} "
    return [_spelled(name, text) for name in names if f" {name} " in form]


def _spelled(name: str, text: str) -> str:
    start = text.casefold().find(name)
    spelled = text[start : start + len(name)]
    return spelled if start >= 0 and spelled.casefold() == name else name


def _shared_words(first: str, second: str, asked: frozenset[str]) -> str:
    """Return the rarest kind of word that two texts share and the question does not have: names and numbers before others."""
    stems = content_stems(words(second)) - asked
    shared = [word for word in words(first) if word.stem in stems and word.kind in ("name", "number", "word")]
    if not shared:
        return ""
    return max(shared, key=lambda word: (word.kind == "name", word.kind == "number", len(word.text))).text


__all__ = ["answer_findings", "answer_result", "answer_sentence", "search_findings", "source_of"]
