"""`ClaimChecker`: each sentence of a response beside the sentences of documents that have most of its words."""

# A fast check in the place of a model's: alignment of words, values of numbers, negations, and roles by order.

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.certify.claims.claim_writing import ClaimWriter
from pytrace.certify.claims.entailment import EntailmentModel, checked_judgements
from pytrace.certify.claims.features import FEATURES, Compared, Floats, compare
from pytrace.certify.claims.predicates import Statement, is_bare
from pytrace.certify.claims.splitting import claim_places, subjects
from pytrace.certify.claims.standalone import standalone
from pytrace.certify.claims.text_tokens import TextTokens, key_of
from pytrace.certify.claims.tokens import Token, tokens
from pytrace.certify.claims.weights import ClaimWeights
from pytrace.check_records import CheckedClaim, ClaimEvidence, ClaimLabel, OtherVerdict
from pytrace.reader.response_places import blanked
from pytrace.records import Document

MIN_SUPPORTED = 0.8
"""The probability from which a claim is supported."""
REFUSED: frozenset[Statement] = frozenset(("other roles", "not stated"))
"""What keeps a claim below `MIN_SUPPORTED`: its predicate is said of something else, or it has none. Other words for it do not."""

# Documents besides those of the evidence that each claim is compared with.
_OTHERS = 2
# What keeps log-odds finite.
_LEAST = 1e-4


class CheckedResponse(msgspec.Struct, frozen=True):
    """A response with its claims. `score` is the share of them that is supported, and 0 where it has none."""

    text: str
    claims: tuple[CheckedClaim, ...]

    @property
    def score(self) -> float:
        """The share of claims that are supported, from 0 to 1."""
        return sum(claim.label == "supported" for claim in self.claims) / len(self.claims) if self.claims else 0.0


class ClaimChecker:
    """Checks claims against documents by their words, without a model, in milliseconds.

    It sees which names, numbers, months and other words of a claim stand in up to three sentences of the documents, in which
    order, with which negations, and what stands there in their place. It does not know that different words mean the same, and
    reads a pronoun that begins a claim as the subject of the claim before. Its lists of words are English.

    Parameters
    ----------
    weights
        What the features count; by default those that are shipped.
    entailment
        A model that judges each claim by the sentences that were chosen for it, in the place of these features, or beside them if it was
        trained for that.
    writer
        A language model that writes the claims of a response as single facts, which are checked in their place.

    Examples
    --------
    >>> from pytrace.records import Document
    >>> lake = Document("1", "Lake Volta", ("Lake Volta was made in 1965 by the Akosombo Dam.", "It lies in Ghana."))
    >>> checked = ClaimChecker().check("Lake Volta lies in Ghana. The Akosombo Dam was made by Lake Volta in 1965.", [lake])
    >>> [claim.label for claim in checked.claims], checked.score
    (['supported', 'contradicted'], 0.5)
    """

    def __init__(
        self,
        weights: ClaimWeights | None = None,
        *,
        entailment: EntailmentModel | None = None,
        writer: ClaimWriter | None = None,
    ) -> None:
        self._weights = weights or ClaimWeights.shipped()
        self._entailment = entailment
        self._writer = writer

    def check(self, response: str, documents: Sequence[Document]) -> CheckedResponse:
        """Check each claim of a response."""
        return self.check_all([response], documents)[0]

    def check_all(self, responses: Sequence[str], documents: Sequence[Document]) -> list[CheckedResponse]:
        """Check the claims of responses against the same documents, which are read once."""
        placed = [_Placed(*each) for number, text in enumerate(responses) for each in _claims_of(number, text)]
        if self._writer is not None:
            facts = self._writer.write([one.text for one in placed], [one.subject for one in placed])
            placed = [
                each
                for one, written in zip(placed, facts, strict=True)
                for each in ([one._replace(text=fact, subject="", written=True) for fact in written] or [one])
            ]
        of_responses = [one.response for one in placed]
        first = [before != one for before, one in zip([-1, *of_responses], of_responses, strict=False)]
        checked = self._check([one.text for one in placed], [one.subject for one in placed], first, documents)
        found: list[list[CheckedClaim]] = [[] for _ in responses]
        for one, claim in zip(placed, checked, strict=True):
            text = claim.text if one.written else responses[one.response][one.start : one.end]
            found[one.response].append(
                msgspec.structs.replace(claim, text=text, start=one.start, end=one.end, written=one.written)
            )
        return [
            CheckedResponse(response, tuple(_with_repeated(claims)))
            for response, claims in zip(responses, found, strict=True)
        ]

    def check_claims(self, claims: Sequence[str], documents: Sequence[Document]) -> list[CheckedClaim]:
        """Check claims, each by itself, against the same documents.

        Parameters
        ----------
        claims
            One sentence each.
        documents
            Whatever they may rest on.

        Returns
        -------
        list[CheckedClaim]
            One a claim, in their order.
        """
        return self._check(claims, [""] * len(claims), [True] * len(claims), documents)

    def _check(
        self, claims: Sequence[str], subjects: Sequence[str], first: Sequence[bool], documents: Sequence[Document]
    ) -> list[CheckedClaim]:
        """Check claims; `first` are those that begin a response."""
        if not claims:
            return []
        rows = [_Row(document, number) for document in documents for number in range(len(document.sentences))]
        numbers = {id(document): number for number, document in enumerate(documents)}
        of_row = [numbers[id(row.document)] for row in rows]
        text = TextTokens(
            [row.document.sentences[row.number] for row in rows], [row.document.title for row in rows], of_row
        )
        read = [
            [*(token._replace(start=-1, end=-1) for token in tokens(subject)), *tokens(claim)]
            if subject
            else tokens(claim)
            for claim, subject in zip(claims, subjects, strict=True)
        ]
        chosen: list[list[int]] = []
        near: list[int] = []
        for claim, begins in zip(read, first, strict=True):
            near = [] if begins else near
            chosen.append(text.choose(claim, near))
            near += chosen[-1][:1]
        compared = [
            compare(
                claim,
                [text.sentence(row) for row in found],
                [text.title(row) for row in found],
                english=not found or text.is_english(found[0]),
            )
            for claim, found in zip(read, chosen, strict=True)
        ]
        supported, contradicted = self._probabilities(compared)
        others = self._others(read, chosen, rows, text) if len(documents) > 1 else [()] * len(claims)
        checked = [
            _checked(claim, subject, each, [rows[row] for row in found], yes, no, other)
            for claim, subject, each, found, yes, no, other in zip(
                claims, subjects, compared, chosen, supported, contradicted, others, strict=True
            )
        ]
        if self._entailment is None:
            return checked
        return judge_claims(checked, self._entailment, [documents] * len(checked))

    def _probabilities(self, compared: Sequence[Compared]) -> tuple[list[float], list[float]]:
        """Return how likely each claim is supported, and contradicted."""
        features = np.array([each.features for each in compared])
        refused = np.array([each.statement in REFUSED for each in compared])
        supported = limited(self._weights.supported.probabilities(features), refused)
        contradicted = (1 - supported) * self._weights.contradicted.probabilities(features)
        return supported.tolist(), contradicted.tolist()

    def _others(
        self, claims: Sequence[Sequence[Token]], chosen: Sequence[Sequence[int]], rows: Sequence[_Row], text: TextTokens
    ) -> list[tuple[OtherVerdict, ...]]:
        """Return what other documents than those of the chosen sentences say of each claim."""
        found = []
        for number, (claim, mine) in enumerate(zip(claims, chosen, strict=True)):
            own = {_whole(rows[row].document) for row in mine}
            nearest: dict[str, int] = {}
            for row in text.elsewhere(claim, mine):
                nearest.setdefault(_whole(rows[row].document), row)
            found += [(number, row) for whole, row in nearest.items() if whole not in own][:_OTHERS]
        others: list[tuple[OtherVerdict, ...]] = [()] * len(claims)
        if found:
            compared = [
                compare(claims[number], [text.sentence(row)], [text.title(row)], english=text.is_english(row))
                for number, row in found
            ]
            for (number, row), yes, no in zip(found, *self._probabilities(compared), strict=True):
                others[number] += (OtherVerdict(_evidence(rows[row]), _label(yes, no), yes, no),)
        return others


class _Placed(NamedTuple):
    """A claim of a response: which response, where it stands there, its plain text, and what its pronoun stands for."""

    response: int
    start: int
    end: int
    text: str
    subject: str
    written: bool = False


def _claims_of(number: int, response: str) -> Iterator[tuple[int, int, int, str, str]]:
    plain = blanked(response)
    places = claim_places(response)
    texts = [plain[start:end] for start, end in places]
    for (start, end), text, subject in zip(places, texts, subjects(texts), strict=True):
        yield number, start, end, text, subject


class _Row(NamedTuple):
    document: Document
    number: int


def _checked(
    claim: str,
    subject: str,
    compared: Compared,
    rows: Sequence[_Row],
    supported: float,
    contradicted: float,
    others: tuple[OtherVerdict, ...],
) -> CheckedClaim:
    label: ClaimLabel = _label(supported, contradicted) if rows else "not there"
    return CheckedClaim(
        text=claim,
        label=label,
        supported=supported if rows else 0.0,
        contradicted=contradicted if rows else 0.0,
        evidence=tuple(map(_evidence, rows)),
        missing=tuple((token.start, token.end) for token in compared.missing if token.start >= 0),
        start=0,
        end=len(claim),
        reason=_reason(claim, label, compared, bool(rows)),
        subject=subject,
        others=others,
    )


def _whole(document: Document) -> str:
    """Return the id of a document, or of the one that a passage is of."""
    return document.id if document.origin is None else document.origin.document


def _evidence(row: _Row) -> ClaimEvidence:
    document, number = row
    date = "" if document.origin is None else str(document.origin.metadata.get("date") or "")
    return ClaimEvidence(
        document.id, document.title, number, document.sentences[number], document.citation(number), date
    )


def limited(probabilities: Floats, refused: NDArray[np.bool_]) -> Floats:
    """Return the probabilities of claims, those whose `Statement` is one of `REFUSED` in proportion below `MIN_SUPPORTED`."""
    return np.where(refused, MIN_SUPPORTED * probabilities, probabilities)


def _with_repeated(claims: Sequence[CheckedClaim]) -> Iterator[CheckedClaim]:
    """Support a name or number that stands alone, if another claim of its response has it and is supported."""
    stated = [
        (claim, {key_of(token) for token in tokens(f"{claim.subject} {claim.text}")})
        for claim in claims
        if claim.label == "supported"
    ]
    for claim in claims:
        read = tokens(claim.text)
        content = {key_of(token) for token in read if token.is_content}
        repeated = next((other for other, keys in stated if content <= keys), None)
        if claim.label == "supported" or repeated is None or not is_bare(read):
            yield claim
        else:
            yield msgspec.structs.replace(
                claim,
                label="supported",
                supported=repeated.supported,
                contradicted=repeated.contradicted,
                evidence=repeated.evidence,
                others=repeated.others,
                reason=f"a supported claim says it: {repeated.text}",
            )


def _label(supported: float, contradicted: float) -> ClaimLabel:
    if supported >= MIN_SUPPORTED:
        return "supported"
    return "contradicted" if contradicted >= max(supported, (1 - supported) / 2) else "not there"


def judge_claims(
    checked: Sequence[CheckedClaim], model: EntailmentModel, documents: Sequence[Sequence[Document]]
) -> list[CheckedClaim]:
    """Let a model decide about claims that were checked by their words, all at once; those without evidence stay as they are.

    Parameters
    ----------
    checked
        Claims that were checked by their words.
    model
        What decides.
    documents
        What each claim was checked against.

    Raises
    ------
    ModelError
        The model gives no probabilities, or broken ones.
    """
    found = list(checked)
    rows = [row for row, claim in enumerate(checked) if claim.evidence]
    named = [standalone(blanked(checked[row].text), checked[row].subject) for row in rows]
    # Most claims are checked against the same documents.
    lists = {id(given): given for given in documents} if model.around else {}
    known = {number: {document.id: document for document in given} for number, given in lists.items()}
    pairs = [
        (text, evidence_text(evidence, known.get(id(documents[row]), {}), around=model.around))
        for row, (text, _) in zip(rows, named, strict=True)
        for evidence in (checked[row].evidence, *((other.evidence,) for other in checked[row].others))
    ]
    judged = checked_judgements(model, pairs)
    number = 0
    for row, (_, longer) in zip(rows, named, strict=True):
        words, said = checked[row], judged.probabilities[number].tolist()
        supported, contradicted = _together(said, words, judged.share)
        label = _label(supported, contradicted)
        sure = {"supported": supported, "contradicted": contradicted}.get(label, 1 - supported - contradicted)
        reason = f"judged by {model.name}, with a probability of {sure:.2f}"
        if judged.share < 1:
            reason = f"{words.reason}; {model.name} says: {_label_of(said)}"
        missing = words.missing
        if judged.spans is not None:
            spans = ((max(start - longer, 0), end - longer) for start, end in judged.spans[number])
            missing = tuple(span for span in spans if span[1] > 0)
        others = []
        for place, other in enumerate(words.others, number + 1):
            yes, no = _together(judged.probabilities[place].tolist(), other, judged.share)
            label_of_both = _label(yes, no)
            # A false alarm costs more than a disagreement that is overlooked, so words and model must agree.
            agreed = label_of_both if label_of_both == other.label or judged.share == 1 else "not there"
            others.append(OtherVerdict(other.evidence, agreed, yes, no))
        found[row] = msgspec.structs.replace(
            words, label=label, supported=supported, contradicted=contradicted, missing=missing, reason=reason, others=tuple(others)
        )  # fmt: skip
        number += 1 + len(others)
    return found


def _together(said: Sequence[float], words: CheckedClaim | OtherVerdict, share: float) -> tuple[float, float]:
    """Return the probabilities of supported and of contradicted by a model, which counts `share`, and by the words."""
    supported, contradicted, not_there = said
    if share == 1:
        return supported, contradicted
    otherwise = contradicted / max(contradicted + not_there, _LEAST)
    of_words = words.contradicted / max(1 - words.supported, _LEAST)
    supported = _between(supported, words.supported, share)
    return supported, (1 - supported) * _between(otherwise, of_words, share)


def _label_of(probabilities: Sequence[float]) -> ClaimLabel:
    labels: tuple[ClaimLabel, ...] = ("supported", "contradicted", "not there")
    return labels[int(np.argmax(probabilities))]


def _between(model: float, words: float, share: float) -> float:
    """Return the probability whose log-odds are between those of a model and of the words."""
    ours, theirs = (math.log((p + _LEAST) / (1 - p + _LEAST)) for p in (words, model))
    return 1 / (1 + math.exp(-(share * theirs + (1 - share) * ours)))


def judge_responses(
    checked: Sequence[CheckedResponse], model: EntailmentModel, documents: Sequence[Sequence[Document]]
) -> list[CheckedResponse]:
    """Let a model decide about the claims of all responses at once, as `judge_claims` does; `documents` are those of each response."""
    claims = [claim for response in checked for claim in response.claims]
    theirs = [mine for response, mine in zip(checked, documents, strict=True) for _ in response.claims]
    judged = iter(judge_claims(claims, model, theirs))
    return [CheckedResponse(each.text, tuple(next(judged) for _ in each.claims)) for each in checked]


def evidence_text(
    evidence: Sequence[ClaimEvidence], documents: Mapping[str, Document] | None = None, *, around: int = 0
) -> str:
    """Return sentences as one text: document by document, in their order there, each document's title in brackets before them.

    Parameters
    ----------
    evidence
        The sentences.
    documents
        Those that they stand in, by id.
    around
        How many sentences of the documents before and after each are taken, too.
    """
    chosen: dict[tuple[str, str], dict[int, str]] = {}
    for sentence in evidence:
        texts_of = chosen.setdefault((sentence.document, sentence.title), {})
        texts_of[sentence.sentence] = sentence.text
        whole = (documents or {}).get(sentence.document)
        # Of two documents with one id, it may be the other.
        if whole is not None and whole.sentences[sentence.sentence : sentence.sentence + 1] == (sentence.text,):
            first, last = max(sentence.sentence - around, 0), sentence.sentence + around + 1
            texts_of |= dict(enumerate(whole.sentences[first:last], first))
    texts = []
    for (_, title), texts_of in chosen.items():
        text = " ".join(texts_of[number] for number in sorted(texts_of))
        texts.append(f"[{title}] {text}" if title else text)
    return " ".join(texts)


def _reason(claim: str, label: ClaimLabel, compared: Compared, any_evidence: bool) -> str:
    if not any_evidence:
        return "no sentence shares a word with it"
    lacking = [claim[token.start : token.end] if token.start >= 0 else token.form for token in compared.missing[:6]]
    missing = ", ".join(dict.fromkeys(lacking))
    if label == "supported":
        return f"the evidence has its words but for {missing}" if missing else "the evidence has all its words"
    value = dict(zip(FEATURES, compared.features.tolist(), strict=True))
    why = [
        words
        for name, words in (
            ("swapped", "its names or words stand the other way round"),
            ("negated", "one of the two is negated"),
            ("refused", "it says that something was not done"),
            ("opposite", "the evidence has an opposite word"),
            ("other_number", "the evidence has another number there"),
            ("other_numbers", "the evidence has another number"),
            ("other_name", "the evidence has another name there"),
            ("exactly_replaced", "a sentence says the same with another name or number"),
            ("exactly_other", "the nearest sentence has another name or number there"),
        )
        if value[name] > 0.3
    ][:1]
    if not why and compared.statement == "other roles":
        why.append("the evidence says it of something else")
    elif not why and not missing and compared.statement in ("reworded", "not stated"):
        why.append("the evidence does not state its predicate")
    if missing:
        why.append(f"the evidence lacks {missing}")
    return "; ".join(why) or "its words are there, but may say something else"
