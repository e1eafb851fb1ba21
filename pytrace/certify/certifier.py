"""`Certifier`: responses in, certificates out, all steps of all responses in one batch."""

# Source: section 3.2 and Algorithms 1 to 3 of the paper.

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from pytrace.certify.grounding import Grounder, Grounding, GroundingSettings
from pytrace.certify.response_parsing import ParsedResponse, StepForm, answers_match, parse_response
from pytrace.certify.verdicts import Walk, walk
from pytrace.check_records import (
    Certificate,
    CertifiedStep,
    ErrorKind,
    Match,
    Path,
    Response,
    ResponseKind,
)
from pytrace.kernels.alignment import align_batch
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.models.encoders.encoder import Encoder
from pytrace.reader.thinking import is_all_thinking
from pytrace.records import Triple

# Responses whose steps are encoded and compared together: enough to fill the kernels, few enough to hold.
_AT_ONCE = 4096
# Choices among entities of the same names that are walked along for one response.
_MOST_WAYS = 256


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
        What counts as a step of a response: see `pytrace.certify.response_parsing.parse_response`. By the paper's rule, "auto" is
        "numbered".

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
        steps: StepForm = "auto",
    ) -> None:
        self.settings = settings or GroundingSettings()
        self._strict = self.settings.rule == "strict"
        self._base = base
        self._grounder = Grounder(base, encoder, self.settings)
        # The paper's responses have numbered steps (appendix C.5).
        self._form: StepForm = "numbered" if steps == "auto" and not self._strict else steps

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
            return _Judgement(parsed.form, None, _why_not(response, parsed), grounded, walk([]), "")
        topics = self._topics(response)
        compared = self._compared(response, topics) if self._strict else ()
        grounded, walked = self._walk(grounded, topics, compared)
        gold = self._gold_forms(response)
        names = self._names(walked.ends | walked.starts)
        # Of several entities that the walk can end at, the one that is wanted.
        wanted = gold or {normal_form(parsed.answer)}
        reached = next((name for name in names if normal_form(name) in wanted), names[0] if names else "")
        judged = grounded, walked, reached
        numbered = list(enumerate(grounded, 1))
        # The paper knows no step that a graph cannot decide: each below the threshold is an error (Algorithm 2).
        wrong_statuses = {"unsupported"} if self._strict else {"unsupported", "undecided"}
        failed = [number for number, grounding in numbered if grounding.status in wrong_statuses]
        if failed:
            reason = f"{_steps(failed)} of {len(grounded)}: no fact of the graph says so"
            return _Judgement("unfaithful", "factual", reason, *judged)
        open_steps = [number for number, grounding in numbered if grounding.status == "undecided"]
        facts = "all steps are facts" if not open_steps else "no step is against the graph"
        if not walked.coherent:
            number = walked.follows.index(False) + 1
            before = f"where step {number - 1} ended" if number > 1 else "an entity of the question"
            reason = f"{facts}, but step {number} does not go on from {before}"
            return _Judgement("unfaithful", "incoherent", reason, *judged)
        if open_steps:
            reason = f"{_steps(open_steps)} of {len(grounded)}: the graph cannot tell; it says nothing against the rest"
            return _Judgement("undecided", None, reason, *judged)
        if walked.starts:
            return _Judgement(*self._compare(parsed, gold, walked, names), *judged)
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

    def _compare(
        self, parsed: ParsedResponse, gold: set[str], walked: Walk[int], names: Sequence[str]
    ) -> tuple[ResponseKind, ErrorKind | None, str]:
        """Judge a response whose steps, all of them facts, lead from several entities of the question."""
        chains = f"all {len(walked.follows)} steps are facts of the graph, in chains from {' and '.join(self._names(walked.starts)[:4])}"
        if gold and not answers_match(parsed.answer, tuple(gold)):
            return "unfaithful", "answer", f"{chains}, but {parsed.answer!r} is no gold answer"
        # Which of the two is older, or whether they are alike, no fact says.
        if not gold and not answers_match(parsed.answer, tuple(names)):
            return "undecided", None, f"{chains}; whether {parsed.answer!r} follows from them, the graph cannot tell"
        return "faithful", None, f"{chains}; that its answer follows from their comparison is not checked"

    def _compared(self, response: Response, topics: set[int]) -> set[int]:
        """Return the entities of the question, where it names several: a chain may begin at each."""
        named = self._base.columns.mentions.find([response.question])[0]
        entities = topics | {entity for mention in named for entity in mention.entities}
        return entities if len(topics) > 1 or len(named) > 1 else set()

    def _walk(
        self, grounded: list[Grounding], topics: Collection[int], compared: Collection[int]
    ) -> tuple[list[Grounding], Walk[int]]:
        """Walk along the triples of steps: of entities of one name, along those that hang together, if any do."""
        ways = itertools.islice(itertools.product(*(grounding.alike or (None,) for grounding in grounded)), _MOST_WAYS)
        chosen: tuple[list[Grounding], Walk[int]] | None = None
        for numbers in ways:
            way = [self._with_number(*each) for each in zip(grounded, numbers, strict=True)]
            ends = [self._ends(grounding) for grounding in way]
            walked = walk([each for row in ends for each in row], topics, compared=compared)
            # A step that states several facts goes on if each of them does.
            left = iter(walked.follows)
            follows = tuple(all(list(islice(left, len(row)))) for row in ends)
            if chosen is None or (walked.coherent and not walked.strays):
                chosen = way, msgspec.structs.replace(walked, follows=follows)
            if walked.coherent and not walked.strays:
                break
        assert chosen is not None  # there is always the way of the best triples
        return chosen

    def _with_number(self, grounding: Grounding, number: int | None) -> Grounding:
        if number is None or grounding.match is None or grounding.match.number == number:
            return grounding
        match = msgspec.structs.replace(grounding.match, number=number, triple=self._base.named(number))
        return grounding._replace(match=match)

    def _ends(self, grounding: Grounding) -> list[tuple[int, int] | None]:
        """Return head and tail of each triple that a step states, None where it states none."""
        if grounding.status != "supported" or grounding.match is None:
            return [None]
        rows = self._base.columns.triples[[match.number for match in (grounding.match, *grounding.also)]]
        return [(head, tail) for head, _, tail in rows.tolist()]

    def _topics(self, response: Response) -> set[int]:
        """Return the entities that the question starts from: as the data tell, else those that it names."""
        keys = list(response.topics) or [start for path in response.paths if (start := path_start(path))]
        if keys:
            return {number for key in keys if (number := self._base.entity(key)) is not None}
        return {
            entity
            for mention in self._base.columns.mentions.find([response.question])[0]
            for entity in mention.entities
        }

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

    def _edits(self, gold: Sequence[Sequence[Path]], grounded: Sequence[Sequence[Grounding]]) -> list[_Edit | None]:
        """Align each path of steps with its gold paths: Algorithm 3, for all responses in one call."""
        chosen = [number for number, steps in enumerate(grounded) if steps and any(gold[number])]
        edits: list[_Edit | None] = [None] * len(gold)
        if not chosen:
            return edits
        candidates = [
            [symbol for place, step in enumerate(grounded[number]) for symbol in self._symbols(step, place)]
            for number in chosen
        ]
        references = [[path for path in gold[number] if path] for number in chosen]
        paths = [path for group in references for path in group]
        symbols = [[_undirected(triple) for triple in path] for path in paths]
        groups = [0, *itertools.accumulate(map(len, references))]
        # No credit for a match and 1 off for each edit: the score is the edit distance of Algorithm 3, negated. The paper (appendix C.3)
        # has steps added and removed, so that one in the place of another is two edits.
        aligned = align_batch(candidates, symbols, groups, match=0, mismatch=-1 if self._strict else -2, gap=-1)
        for number, best, score, identity in zip(
            chosen, aligned.best.tolist(), aligned.scores.tolist(), aligned.identity.tolist(), strict=True
        ):
            edits[number] = _Edit(-round(score), 1 - identity, paths[best])
        return edits

    def _symbols(self, grounding: Grounding, place: int) -> list[Hashable]:
        """Return what stands for a step in an alignment: its triples whatever their directions, or something like no other."""
        if grounding.status != "supported" or grounding.match is None:
            return [place]
        return [_undirected(self._base.triple(match.number)) for match in (grounding.match, *grounding.also)]

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
        fact = " and ".join(
            f"{each.triple.head} – {each.triple.relation} – {each.triple.tail}" for each in (match, *grounding.also)
        )
        if grounding.status == "supported":
            gap = "" if follows else ", but does not go on from where the step before ended"
            return f"says the fact {fact} (score {match.score:.2f}){gap}"
        lacks = _lacks(match, self.settings)
        known = [self._base.columns.entity_names[number] for number in grounding.mentioned]
        if grounding.status == "undecided":
            about = (
                f"it knows {', '.join(known[:4])}, but nothing of what the step says of them"
                if len(known) > 1
                else f"of the graph's entities the step names word for word only {known[0]}"
                if known
                else "the step names no entity of the graph word for word"
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


def _steps(numbers: Sequence[int]) -> str:
    return f"step {numbers[0]}" if len(numbers) == 1 else f"steps {', '.join(map(str, numbers))}"


def _why_not(response: Response, parsed: ParsedResponse) -> str:
    """Say why a response is not structured."""
    if parsed.form == "abstained":
        return "the response declines to answer"
    if is_all_thinking(response.text):
        return "the response ends before its thinking does"
    if parsed.steps:
        return 'the response has no conclusion that names an answer, such as "So the answer is …" or "Answer: …"'
    return "the response has no steps that lead to an answer"


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
    if match.objection:
        parts.append(match.objection)
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
