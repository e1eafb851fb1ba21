"""What a search or a method found, as messages say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytrace.engine.asking import Certified
from pytrace.reader.evidence import supporting_sentence
from pytrace.records import Answer, AnswerPlace, Document, Evidence, TextUnit
from pytrace.retrieval.hops import PassageChain, PassageRanking, chain_evidence
from pytrace.retrieval.passages.segment import document_id
from pytrace.serve import messages

_NOTHING = Certified()


class Found(NamedTuple):
    """What was found for a question, with the passages that are named in it, by their rows."""

    ranking: PassageRanking
    passages: Mapping[int, Document]

    def of(self, rows: Iterable[int]) -> list[Document]:
        """Return passages in the order of rows."""
        return [self.passages[row] for row in rows]


def rows_of(ranking: PassageRanking, chains: int, passages: int) -> list[int]:
    """Return the rows that are named in a ranking: its first passages, those of its first chains, and its seeds."""
    rows = list(ranking.rows[:passages])
    rows += [row for chain in ranking.chains[:chains] for row in chain.rows]
    rows += [row for row, _ in ranking.seeds]
    return list(dict.fromkeys(rows))


def seeds(question: str, found: Found) -> messages.Seeds:
    """Return what a question finds by itself."""
    ranking = found.ranking
    return messages.Seeds(
        question=question,
        read_as=ranking.question or question,
        hops=ranking.hops,
        seeds=[_passage(found.passages[row], score) for row, score in ranking.seeds],
    )


def chains(question: str, found: Found, count: int, passages: int) -> messages.Chains:
    """Return the likeliest chains, and the passages best first."""
    ranking = found.ranking
    rows = ranking.rows[:passages]
    return messages.Chains(
        chains=[_chain(question, chain, found.of(chain.rows)) for chain in ranking.chains[:count]],
        passages=[_passage(found.passages[row], score) for row, score in zip(rows, ranking.scores, strict=False)],
    )


def evidence(seen: Evidence, documents: Mapping[str, Document], notes: Sequence[str] = ()) -> messages.FoundEvidence:
    """Return what a reader is given, with where each piece of it stands."""
    found = []
    for chain in seen.chains:
        units = []
        for unit in chain.units:
            document = documents.get(unit.document_id)
            text = unit.body if isinstance(unit, TextUnit) else unit.text
            units.append(
                messages.EvidenceUnit(
                    text=text,
                    title=unit.title if isinstance(unit, TextUnit) else "" if document is None else document.title,
                    sentence="" if isinstance(unit, TextUnit) else supporting_sentence(unit, documents),
                    id=unit.document_id,
                    sentence_index=unit.sentence,
                    where="" if document is None else document.citation(unit.sentence),
                )
            )
        found.append(messages.EvidenceChain(score=chain.score, units=units))
    return messages.FoundEvidence(
        kind=seen.kind,
        context=list(seen.context),
        document_ids=list(seen.document_ids),
        votes=dict(seen.votes),
        chains=found,
        notes=list(notes),
    )


def answer(given: Answer, documents: Mapping[str, Document], certified: Certified = _NOTHING) -> messages.FoundAnswer:
    """Return an answer with where it stands and what it cost."""
    return messages.FoundAnswer(
        answer=given.text,
        method=given.method,
        probability=given.probability,
        places=[_place(place, documents[place.document_id]) for place in given.places],
        notes=list(given.notes),
        usage=dict(given.usage),
        seconds=dict(given.seconds),
        context_tokens=given.context_tokens,
        certificates=list(certified.certificates),
        claims=list(certified.claims),
    )


def _place(place: AnswerPlace, document: Document) -> messages.AnswerPlace:
    before, words, behind = place.cut(document)
    return messages.AnswerPlace(
        id=document.id,
        document=document_id(document),
        title=document.title,
        sentence_index=place.sentence,
        before=before,
        words=words,
        behind=behind,
        where=document.citation(place.sentence),
    )


def _passage(passage: Document, score: float) -> messages.FoundPassage:
    return messages.FoundPassage(
        id=passage.id,
        document=document_id(passage),
        title=passage.title,
        score=score,
        where=passage.citation(),
        text=passage.text,
        page=None if passage.origin is None else passage.origin.page,
    )


def _chain(question: str, chain: PassageChain, passages: Sequence[Document]) -> messages.FoundChain:
    units = chain_evidence(question, chain, passages).chains[0].units
    return messages.FoundChain(
        probability=chain.probability,
        steps=[
            messages.Step(
                id=passage.id,
                document=document_id(passage),
                title=passage.title,
                sentence=unit.body,
                sentence_index=unit.sentence,
                where=passage.citation(unit.sentence),
                source=step.place + 1,
                name=step.name,
            )
            for unit, step, passage in zip(units, chain.steps, passages, strict=True)
            if isinstance(unit, TextUnit)
        ],
    )
