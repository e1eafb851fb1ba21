"""`Certifier`: responses in, certificates out, all steps of all responses in one batch.

Source: section 3.2 and Algorithms 1 to 3 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge
Graphs".
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

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
from pytrace.kernels.alignment import align_batch
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.models.encoders.encoder import Encoder

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
    >>> from pytrace.records import Triple
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
        """Certify responses that have been taken apart, for instance chains that are steps already.

        Parameters
        ----------
        responses, parsed
            The responses and their parts, beside each other.

        Returns
        -------
        list of Certificate
            One a response.

        Raises
        ------
        ValueError
            There are more of one than of the other.
        """
        if len(responses) != len(parsed):
            raise ValueError(f"there are {len(responses)} responses and {len(parsed)} parsed ones; give one for each")
        steps = [step for one in parsed if one.form == "structured" for step in one.steps]
        grounded = iter(self._grounder.ground(steps))
        judged = []
        for response, one in zip(responses, parsed, strict=True):
            own = list(islice(grounded, len(one.steps))) if one.form == "structured" else []
            judged.append(self._judge(response, one, own))
        edits = self._edits([response.paths for response in responses], [one.grounded for one in judged])
        return [
            self._certificate(response, one, verdict, edit)
            for response, one, verdict, edit in zip(responses, parsed, judged, edits, strict=True)
        ]

    # ---------------------------------------------------------------------------------------------- verdicts

    def _judge(self, response: Response, parsed: ParsedResponse, grounded: list[Grounding]) -> _Judgement:
        if parsed.form != "structured":
            return _Judgement(parsed.form, None, _WHY_NOT[parsed.form], grounded, walk([]), "")
        topics = self._topics(response)
        walked = walk([self._ends(one) for one in grounded], topics)
        gold = self._gold_forms(response)
        reached = self._reached(walked, gold or {normal_form(parsed.answer)})
        failed = [number for number, one in enumerate(grounded, 1) if one.status != "supported"]
        if failed:
            named = f"step {failed[0]}" if len(failed) == 1 else f"steps {', '.join(map(str, failed))}"
            reason = f"{named} of {len(grounded)}: no fact of the graph says so"
            return _Judgement("unfaithful", "factual", reason, grounded, walked, reached)
        if not walked.coherent:
            number = walked.follows.index(False) + 1
            before = f"where step {number - 1} ended" if number > 1 else "an entity of the question"
            reason = f"all steps are facts, but step {number} does not go on from {before}"
            return _Judgement("unfaithful", "incoherent", reason, grounded, walked, reached)
        if self._runs_backwards(response, grounded, walked, gold, topics):
            reason = "all steps are facts, but they lead from the answer back to the question"
            return _Judgement("unfaithful", "incoherent", reason, grounded, walked, reached)
        wrong = self._wrong_end(parsed, walked, gold, topics, reached)
        if wrong:
            return _Judgement(
                "unfaithful", "answer", f"all steps are facts and hang together, but {wrong}", grounded, walked, reached
            )
        reason = f"all {len(grounded)} steps are facts of the graph, hang together and lead to {reached}"
        return _Judgement("faithful", None, reason, grounded, walked, reached)

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

    def _reached(self, walked: Walk, wanted: set[str]) -> str:
        """Return the name of the entity at the end of the walk; of several the one that is wanted."""
        names = [self._base.columns.entity_names[number] for number in sorted(walked.ends)]
        return next((name for name in names if normal_form(name) in wanted), names[0] if names else "")

    def _runs_backwards(
        self, response: Response, grounded: Sequence[Grounding], walked: Walk, gold: set[str], topics: set[int]
    ) -> bool:
        """Say whether a walk whose start is not known leads from a gold answer to an entity that the question names."""
        first = self._ends(grounded[0])
        if topics or not gold or first is None:
            return False
        named = {
            entity
            for mention in self._base.columns.mentions.find([response.question])[0]
            for entity in mention.entities
        }
        names = {normal_form(self._base.columns.entity_names[number]) for number in first}
        ends = {normal_form(self._base.columns.entity_names[number]) for number in walked.ends}
        return bool(names & gold) and not ends & gold and bool(walked.ends & named)

    def _wrong_end(self, parsed: ParsedResponse, walked: Walk, gold: set[str], topics: set[int], reached: str) -> str:
        """Say what is wrong with where the steps lead, or nothing."""
        if walked.strays:
            about = " or ".join(self._base.columns.entity_names[number] for number in sorted(topics)[:3])
            return f"they never speak of {about}, which the question asks about"
        if gold:
            return "" if normal_form(reached) in gold else f"they lead to {reached}, which is no gold answer"
        if answers_match(parsed.answer, (reached,)):
            return ""
        return f"they lead to {reached}, and the response concludes {parsed.answer!r}"

    # ---------------------------------------------------------------------------------------------- edit distance

    def _edits(self, gold: Sequence[Sequence[Path]], grounded: Sequence[Sequence[Grounding]]) -> list[_Edit | None]:
        """Align each path of steps with its gold paths: Algorithm 3, for all responses in one call."""
        chosen = [place for place, own in enumerate(grounded) if own and any(gold[place])]
        candidates = [[self._symbol(one, place) for place, one in enumerate(grounded[number])] for number in chosen]
        references: list[Path] = []
        groups = [0]
        for number in chosen:
            references += [path for path in gold[number] if path]
            groups.append(len(references))
        found: list[_Edit | None] = [None] * len(gold)
        if not chosen:
            return found
        symbols = [[_undirected(triple.head, triple.relation, triple.tail) for triple in path] for path in references]
        aligned = align_batch(candidates, symbols, groups, match=0, mismatch=-1, gap=-1)
        for place, best, score, identity in zip(
            chosen, aligned.best.tolist(), aligned.scores.tolist(), aligned.identity.tolist(), strict=True
        ):
            found[place] = _Edit(-round(score), 1 - identity, references[best])
        return found

    def _symbol(self, grounding: Grounding, place: int) -> Hashable:
        """Return what stands for a step in an alignment: its triple whatever its direction, or something like no other."""
        if grounding.status != "supported" or grounding.match is None:
            return place
        triple = self._base.triple(grounding.match.number)
        return _undirected(triple.head, triple.relation, triple.tail)

    # ---------------------------------------------------------------------------------------------- in words

    def _certificate(
        self, response: Response, parsed: ParsedResponse, verdict: _Judgement, edit: _Edit | None
    ) -> Certificate:
        steps = tuple(
            CertifiedStep(
                text=text,
                status=one.status,
                match=one.match,
                runner_up=one.runner_up,
                entities=tuple(self._base.columns.entity_names[number] for number in one.mentioned),
                follows=follows,
                reason=self._why(one, follows),
            )
            for text, one, follows in zip(parsed.steps, verdict.grounded, verdict.walked.follows, strict=False)
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
    walked: Walk
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


def _undirected(head: str, relation: str, tail: str) -> Hashable:
    return (relation, *sorted((head, tail)))


def path_start(path: Path) -> str:
    """Return the key of the entity that a path starts from: its first head, unless only that goes on to the second triple."""
    if not path:
        return ""
    head, tail = path[0].head, path[0].tail
    following = (path[1].head, path[1].tail) if len(path) > 1 else ()
    return tail if head in following and tail not in following else head


def path_end(path: Path) -> str:
    """Return the key of the entity that a path ends at: its last tail, unless only that is in the triple before."""
    if not path:
        return ""
    head, tail = path[-1].head, path[-1].tail
    before = (path[-2].head, path[-2].tail) if len(path) > 1 else ()
    return head if tail in before and head not in before else tail
