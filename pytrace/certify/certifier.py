"""`Certifier`: responses in, certificates out, all steps of all responses in one batch."""

# Source: section 3.2 and Algorithms 1 to 3 of the paper.

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

import msgspec

from pytrace.certify.certificate_records import (
    Certificate,
    CertifiedStep,
    ErrorKind,
    Match,
    Path,
    Response,
    ResponseKind,
)
from pytrace.certify.grounding import Grounder, Grounding, GroundingSettings
from pytrace.certify.response_parsing import ParsedResponse, StepForm, answers_match, parse_response
from pytrace.certify.verdicts import Walk, walk
from pytrace.errors import InputError
from pytrace.kernels.alignment import align_batch
from pytrace.kg import KnowledgeBase, normal_form, verbalise
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Answer, Chain, Document, TextUnit, Triple, Unit

# Responses whose steps are encoded and compared together: enough to fill the kernels, few enough to hold.
_AT_ONCE = 4096


class Certifier:
    """Checks chains of thought against a knowledge base.

    Parameters
    ----------
    base
        The knowledge base.
    encoder
        The one that made its vectors.
    settings
        When a step counts as a fact.
    steps
        What counts as a step of a response: see `pytrace.certify.response_parsing.parse_response`.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Answer, TextUnit, Triple, Unit
    >>> encoder = HashEncoder()
    >>> base = KnowledgeBase.in_memory([Triple("Corfu", "part of", "Greece"), Triple("Greece", "speaks", "Greek")], encoder)
    >>> text = "1. Corfu is part of Greece. 2. Greece speaks Greek. So the answer is (Greek)."
    >>> one, = Certifier(base, encoder).certify([Response("q1", "What do people of Corfu speak?", text, ("Greek",))])
    >>> one.kind, one.answer_correct, one.reached
    ('faithful', True, 'Greek')
    """

    def __init__(
        self,
        base: KnowledgeBase,
        encoder: Encoder,
        settings: GroundingSettings | None = None,
        *,
        steps: StepForm = "numbered",
    ) -> None:
        self.settings = settings or GroundingSettings()
        self._base = base
        self._grounder = Grounder(base, encoder, self.settings)
        self._form = steps

    def certify(self, responses: Iterable[Response]) -> Iterator[Certificate]:
        """Certify responses, some thousand at a time, so that a file of any length can be streamed.

        Parameters
        ----------
        responses
            The responses, with gold answers and paths where they are known.

        Yields
        ------
        Certificate
            One a response, in their order. Without gold answers, the steps must lead to what the response itself
            concludes.
        """
        left = iter(responses)
        while batch := list(islice(left, _AT_ONCE)):
            parsed = [parse_response(response.text, form=self._form) for response in batch]
            yield from self.certify_parsed(batch, parsed)

    def certify_parsed(self, responses: Sequence[Response], parsed: Sequence[ParsedResponse]) -> list[Certificate]:
        """Certify responses beside their parts, for instance chains that are steps already; one certificate a response."""
        if len(responses) != len(parsed):
            raise ValueError(f"there are {len(responses)} responses and {len(parsed)} parsed ones; give one for each")
        # Steps of what is not structured are not asked for: its verdict is known without them.
        asked = [parts.steps if parts.form == "structured" else () for parts in parsed]
        grounded = iter(self._grounder.ground([step for steps in asked for step in steps]))
        judged = [
            self._judge(response, parts, list(islice(grounded, len(steps))))
            for response, parts, steps in zip(responses, parsed, asked, strict=True)
        ]
        edits = self._edits([response.paths for response in responses], [verdict.grounded for verdict in judged])
        return [
            self._certificate(response, parts, verdict, edit)
            for response, parts, verdict, edit in zip(responses, parsed, judged, edits, strict=True)
        ]

    def _judge(self, response: Response, parsed: ParsedResponse, grounded: list[Grounding]) -> _Judgement:
        if parsed.form != "structured":
            return _Judgement(parsed.form, None, _WHY_NOT[parsed.form], grounded, walk([]), "")
        topics = self._topics(response)
        walked = walk([self._ends(grounding) for grounding in grounded], topics)
        gold = self._gold_forms(response)
        names = self._names(walked.ends)
        # Of several entities that the walk can end at, the one that is wanted.
        wanted = gold or {normal_form(parsed.answer)}
        reached = next((name for name in names if normal_form(name) in wanted), names[0] if names else "")
        judged = grounded, walked, reached
        failed = [number for number, grounding in enumerate(grounded, 1) if grounding.status != "supported"]
        if failed:
            steps = f"step {failed[0]}" if len(failed) == 1 else f"steps {', '.join(map(str, failed))}"
            reason = f"{steps} of {len(grounded)}: no fact of the graph says so"
            return _Judgement("unfaithful", "factual", reason, *judged)
        if not walked.coherent:
            number = walked.follows.index(False) + 1
            before = f"where step {number - 1} ended" if number > 1 else "an entity of the question"
            reason = f"all steps are facts, but step {number} does not go on from {before}"
            return _Judgement("unfaithful", "incoherent", reason, *judged)
        if not topics and gold and self._runs_backwards(response, grounded[0], walked, gold):
            reason = "all steps are facts, but they lead from the answer back to the question"
            return _Judgement("unfaithful", "incoherent", reason, *judged)
        wrong = ""
        if walked.strays:
            about = " or ".join(self._names(topics)[:3])
            wrong = f"they never speak of {about}, which the question asks about"
        elif gold and normal_form(reached) not in gold:
            wrong = f"they lead to {reached}, which is no gold answer"
        elif not gold and not answers_match(parsed.answer, (reached,)):
            wrong = f"they lead to {reached}, and the response concludes {parsed.answer!r}"
        if wrong:
            reason = f"all steps are facts and hang together, but {wrong}"
            return _Judgement("unfaithful", "answer", reason, *judged)
        reason = f"all {len(grounded)} steps are facts of the graph, hang together and lead to {reached}"
        return _Judgement("faithful", None, reason, *judged)

    def _ends(self, grounding: Grounding) -> tuple[int, int] | None:
        if grounding.status != "supported" or grounding.match is None:
            return None
        head, _, tail = self._base.columns.triples[grounding.match.number].tolist()
        return head, tail

    def _topics(self, response: Response) -> set[int]:
        """Return the entities that the question starts from, as far as the data tell."""
        keys = list(response.topics) or [start for path in response.paths if (start := path_start(path))]
        return {number for key in keys if (number := self._base.entity(key)) is not None}

    def _gold_forms(self, response: Response) -> set[str]:
        forms = set()
        for text in (*response.answers, *(path_end(path) for path in response.paths if path)):
            number = self._base.entity(text)
            forms.add(normal_form(text))
            if number is not None:
                forms.add(normal_form(self._base.columns.entity_names[number]))
        return forms - {""}

    def _names(self, entities: Iterable[int]) -> list[str]:
        return [self._base.columns.entity_names[number] for number in sorted(entities)]

    def _runs_backwards(self, response: Response, first: Grounding, walked: Walk[int], gold: set[str]) -> bool:
        """Say whether a walk whose start is not known leads from a gold answer to an entity that the question names."""
        mentions = self._base.columns.mentions.find([response.question])[0]
        named = {entity for mention in mentions for entity in mention.entities}
        starts, ends = (
            set(map(normal_form, self._names(entities))) for entities in (self._ends(first) or (), walked.ends)
        )
        return bool(starts & gold) and not ends & gold and bool(walked.ends & named)

    def _edits(self, gold: Sequence[Sequence[Path]], grounded: Sequence[Sequence[Grounding]]) -> list[_Edit | None]:
        """Align each path of steps with its gold paths: Algorithm 3, for all responses in one call."""
        chosen = [number for number, steps in enumerate(grounded) if steps and any(gold[number])]
        edits: list[_Edit | None] = [None] * len(gold)
        if not chosen:
            return edits
        candidates = [[self._symbol(step, place) for place, step in enumerate(grounded[number])] for number in chosen]
        references = [[path for path in gold[number] if path] for number in chosen]
        paths = [path for group in references for path in group]
        symbols = [[_undirected(triple) for triple in path] for path in paths]
        groups = [0, *itertools.accumulate(map(len, references))]
        # No credit for a match and 1 off for each edit: the score is the edit distance of Algorithm 3, negated.
        aligned = align_batch(candidates, symbols, groups, match=0, mismatch=-1, gap=-1)
        for number, best, score, identity in zip(
            chosen, aligned.best.tolist(), aligned.scores.tolist(), aligned.identity.tolist(), strict=True
        ):
            edits[number] = _Edit(-round(score), 1 - identity, paths[best])
        return edits

    def _symbol(self, grounding: Grounding, place: int) -> Hashable:
        """Return what stands for a step in an alignment: its triple whatever its direction, or something like no other."""
        if grounding.status != "supported" or grounding.match is None:
            return place
        return _undirected(self._base.triple(grounding.match.number))

    def _certificate(
        self, response: Response, parsed: ParsedResponse, verdict: _Judgement, edit: _Edit | None
    ) -> Certificate:
        steps = tuple(
            CertifiedStep(
                text=text,
                status=grounding.status,
                match=grounding.match,
                runner_up=grounding.runner_up,
                entities=tuple(self._base.columns.entity_names[number] for number in grounding.mentioned),
                follows=follows,
                reason=self._why(grounding, follows),
            )
            for text, grounding, follows in zip(parsed.steps, verdict.grounded, verdict.walked.follows, strict=False)
        )
        answers = response.answers
        return Certificate(
            id=response.id,
            question=response.question,
            text=response.text,
            kind=verdict.kind,
            error=verdict.error,
            steps=steps,
            answer=parsed.answer,
            answers=answers,
            answer_correct=answers_match(parsed.answer, answers) if answers and parsed.form == "structured" else None,
            reached=verdict.reached,
            edit_distance=None if edit is None else edit.distance,
            edit_rate=None if edit is None else edit.rate,
            gold_path=() if edit is None else edit.path,
            reason=verdict.reason,
            sample=response.sample,
        )

    def _why(self, grounding: Grounding, follows: bool) -> str:
        match = grounding.match
        if match is None:
            return "the graph has nothing to compare it with"
        fact = f"{match.triple.head} – {match.triple.relation} – {match.triple.tail}"
        if grounding.status == "supported":
            gap = "" if follows else ", but does not go on from where the step before ended"
            return f"says the fact {fact} (score {match.score:.2f}){gap}"
        lacks = _lacks(match, self.settings)
        known = [self._base.columns.entity_names[number] for number in grounding.mentioned]
        if grounding.status == "undecided":
            about = (
                f"of the graph's entities it names word for word only {known[0]}"
                if known
                else "it names no entity of the graph word for word"
            )
            return f"the graph cannot tell: {about}; the nearest fact is {fact}, but {lacks}"
        return f"the graph has no such fact of {', '.join(known[:4])}; the nearest is {fact}, but {lacks}"


class _Judgement(NamedTuple):
    kind: ResponseKind
    error: ErrorKind | None
    reason: str
    grounded: list[Grounding]
    walked: Walk[int]
    reached: str


class _Edit(NamedTuple):
    distance: int
    rate: float
    path: Path


_WHY_NOT = {
    "abstained": "the response declines to answer",
    "unstructured": "the response has no numbered steps that end in an answer",
}


def _lacks(match: Match, settings: GroundingSettings) -> str:
    """Say what is missing for a triple to be what a step says."""
    parts = [
        f"the step does not name {name} (ratio {ratio:.2f}, needed {settings.least_ratio:.2f})"
        if ratio < settings.least_ratio
        else f"where the step seems to name {name} (ratio {ratio:.2f}) it names something else"
        for name, ratio, found in (
            (match.triple.head, match.head_ratio, match.head_found),
            (match.triple.tail, match.tail_ratio, match.tail_found),
        )
        if not found
    ]
    if match.score < settings.threshold:
        # Rounded down, so that what is too little never looks enough.
        score = math.floor(100 * match.score) / 100
        parts.append(f"its score is {score:.2f} (cosine {match.cosine:.2f}), needed {settings.threshold:.2f}")
    if not match.relation_found and match.relation_cosine is not None and match.nearest_cosine is not None:
        parts.append(
            f"the step sounds more like {match.nearest_relation!r} (cosine {match.nearest_cosine:.2f}) than like "
            f"{match.triple.relation!r} ({match.relation_cosine:.2f}, at most {settings.relation_margin:.2f} less is needed)"
        )
    return " and ".join(parts)


def _undirected(triple: Triple) -> Hashable:
    return (triple.relation, *sorted((triple.head, triple.tail)))


def path_start(path: Path) -> str:
    """Return the key of the entity that a path starts from: its first head, unless only that goes on to the second triple."""
    return _free_end(path[0].head, path[0].tail, path[1:2]) if path else ""


def path_end(path: Path) -> str:
    """Return the key of the entity that a path ends at: its last tail, unless only that is in the triple before."""
    return _free_end(path[-1].tail, path[-1].head, path[-2:-1]) if path else ""


def _free_end(usual: str, other: str, neighbour: Path) -> str:
    shared = {key for triple in neighbour for key in (triple.head, triple.tail)}
    return other if usual in shared and other not in shared else usual


def certify_answer(
    base: KnowledgeBase,
    encoder: Encoder,
    answer: Answer,
    settings: GroundingSettings | None = None,
    *,
    answers: Sequence[str] = (),
    documents: Sequence[Document] = (),
) -> list[Certificate]:
    """Certify what an answer rests on: the chains that it was found along, or the thoughts of a method that thinks.

    Of `documents` the steps of a chain say where they stand.
    """
    # A triple becomes the step "head relation tail.", a sentence or a document of a chain the step "title: sentence",
    # so that its "it" and "the company" are named.
    evidence = answer.evidence
    if evidence.chains:
        paths = [tuple(map(_step, chain.units)) for chain in evidence.chains]
        names = [f"chain {number}" for number in range(1, len(paths) + 1)]
    elif evidence.reasoning.rationale:
        paths, names = [evidence.reasoning.rationale], ["thoughts"]
    else:
        raise InputError(
            f"{answer.method} answers from no chain and without thoughts, so there is nothing to certify; use trace, "
            "trace-doc, cot, cot-sc or verify-and-edit"
        )
    responses = [
        Response(name, answer.question, "\n".join(path), tuple(answers))
        for name, path in zip(names, paths, strict=True)
    ]
    parsed = [ParsedResponse("structured" if path else "unstructured", path, answer.text) for path in paths]
    certificates = Certifier(base, encoder, settings).certify_parsed(responses, parsed)
    by_id = {document.id: document for document in documents}
    return [
        _with_sources(certificate, chain, by_id) for certificate, chain in zip_longest(certificates, evidence.chains)
    ]


def _with_sources(certificate: Certificate, chain: Chain | None, documents: Mapping[str, Document]) -> Certificate:
    if chain is None or len(chain.units) != len(certificate.steps):
        return certificate
    steps = [
        msgspec.structs.replace(step, source=documents[unit.document_id].citation(unit.sentence))
        if unit.document_id in documents
        else step
        for step, unit in zip(certificate.steps, chain.units, strict=True)
    ]
    return msgspec.structs.replace(certificate, steps=tuple(steps))


def _step(unit: Unit) -> str:
    if isinstance(unit, TextUnit):
        return f"{unit.title}: {unit.body}"
    return verbalise(unit.head, unit.relation, unit.tail)
