"""A model's texts become candidate queries: the likeliest and some samples, read, each kept once, in order."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from pytrace.errors import InputError
from pytrace.kg.queries.grammar import query_grammar
from pytrace.kg.queries.notation import parse_query
from pytrace.kg.queries.query_records import GeneratedQuery, Grammar, Query, QueryForm, SparqlQuery
from pytrace.kg.queries.relations import NearestRelations
from pytrace.models.language_model import Completion, LanguageModel, Prompt

# Samples are often alike, so more are drawn than are wanted.
_SAMPLES_A_CANDIDATE = 2
_KEYWORD = r"\b(?:select|ask)\b"
_BEGINNING = re.compile(rf"(?i){_KEYWORD}(?:(?!{_KEYWORD})[^{{]){{0,200}}\{{")
_NAMES_AND_BRACES = re.compile(r"(?:entity|relation):/(?:\\.|[^/\\])*/|[{}]")


class QueryGenerator(ABC):
    """Turns questions into queries that a language model writes, all in one batch; how it is asked, subclasses say."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        name: str,
        form: QueryForm,
        relations: NearestRelations | None,
        grammar: Grammar,
        stop: Sequence[str],
        temperature: float,
        seed: int,
    ) -> None:
        check_sampling(temperature, 1)
        self.model = model
        self.name = name
        self.form = form
        self._relations = relations
        self._grammar = grammar
        self._stop = stop
        self._temperature = temperature
        self._seed = seed

    def generate(self, questions: Sequence[str], *, candidates: int = 1) -> list[list[GeneratedQuery]]:
        """Write at most so many queries for every question or claim.

        Returns one list a question, the likeliest first, none twice; at least one entry, which may be a fault.
        """
        check_sampling(self._temperature, candidates)
        near = [()] * len(questions) if self._relations is None else self._relations.find(questions)
        rows: list[list[GeneratedQuery] | None] = []
        prompts, most_tokens, grammars = [], [], []
        for question, relations in zip(questions, near, strict=True):
            request = self._request(question, relations)
            if isinstance(request, str):
                rows.append([GeneratedQuery("", None, 0.0, request)])
                continue
            rows.append(None)
            prompts.append(request[0])
            most_tokens.append(request[1])
            if self._grammar != "none":
                grammars.append(query_grammar(question, relations, form=self.form, spans=self._grammar == "words"))
        written = iter(
            sample_queries(
                self.model,
                prompts,
                candidates=candidates,
                max_tokens=most_tokens,
                stop=self._stop,
                temperature=self._temperature,
                seed=self._seed,
                grammars=grammars or None,
            )
        )
        return [next(written) if row is None else row for row in rows]

    @abstractmethod
    def _request(self, question: str, relations: Sequence[str]) -> tuple[Prompt | str, int] | str:
        """Return the prompt of a question and how many tokens its query may have, or why it can have none."""


def check_sampling(temperature: float, candidates: int) -> None:
    """Refuse settings that nothing can be sampled with."""
    if not 0.0 <= temperature < math.inf:
        raise InputError(f"the temperature is {temperature}; give 0 or a number above it")
    if candidates < 1:
        raise InputError(f"{candidates} candidates were asked for; ask for at least 1")


def sample_queries(
    model: LanguageModel,
    prompts: Sequence[Prompt | str],
    *,
    candidates: int,
    max_tokens: Sequence[int],
    stop: Sequence[str],
    temperature: float,
    seed: int,
    grammars: Sequence[str] | None = None,
) -> list[list[GeneratedQuery]]:
    """Write queries after every prompt, all prompts at once: the likeliest one, and samples where more are wanted."""
    if not prompts:
        return []
    rows = model.generate(prompts, max_tokens=max_tokens, stop=stop, grammar=grammars)
    if candidates > 1 and temperature > 0.0:
        samples = model.generate(
            prompts,
            max_tokens=max_tokens,
            stop=stop,
            temperature=temperature,
            n=_SAMPLES_A_CANDIDATE * (candidates - 1),
            seed=seed,
            grammar=grammars,
        )
        rows = [[*first, *others] for first, others in zip(rows, samples, strict=True)]
    return [_best([read_query(completion) for completion in row], candidates) for row in rows]


def read_query(completion: Completion) -> GeneratedQuery:
    """Read what a model wrote, and repair what a model without a grammar gets wrong."""
    # Repaired are text, code fences and quotes around the query, line breaks in it, and brackets that are not closed. A
    # query that was cut off is none, even if its beginning can be read.
    written = completion.text.strip()
    # A server that tells no probabilities must not upset the order.
    probability = completion.log_probability if math.isfinite(completion.log_probability) else -math.inf
    if completion.finish in {"length", "repetition"}:
        reason = "is cut off" if completion.finish == "length" else "repeats itself and is broken off"
        fault = f"the query {reason} after {completion.tokens} tokens; allow more"
        return GeneratedQuery(written, None, probability, fault)
    fault = "the model wrote nothing; give it more demonstrations or hold it to a grammar"
    try:
        query = parse_query(repaired(written)) if written else None
    except InputError as error:
        fault = str(error)
    else:
        if isinstance(query, SparqlQuery) and "{" not in query.text:
            fault = f"the query {written[:80]!a} has no pattern in braces; write it as select ?x where {{ ... }} or ask {{ ... }}"
        elif query is not None:
            return GeneratedQuery(written, query, probability)
    return GeneratedQuery(written, None, probability, fault)


def repaired(text: str) -> str:
    """Return the query within a text, its brackets closed; the text itself if there seems to be none."""
    line = re.sub(r"\s*[\r\n]\s*", " ", text.strip())
    if line.startswith("<") and line.endswith(">") and line.count(";") == 2:
        return line
    begin_match = _BEGINNING.search(line)
    if begin_match:
        # Names, which may have brackets in them, are passed over.
        depth = 0
        for match in _NAMES_AND_BRACES.finditer(line, begin_match.start()):
            depth += {"{": 1, "}": -1}.get(match.group(), 0)
            if depth == 0 and match.group() == "}":
                return line[begin_match.start() : match.end()]
        return f"{line[begin_match.start() :].strip()} {'} ' * depth}".strip()
    begin = line.find("<")
    if begin < 0 or line.count(";", begin) < 2:
        return line
    end = line.find(">", begin)
    if end >= 0:
        return line[begin : end + 1]
    head, relation, tail = line[begin:].split(";", 2)
    # After a ? that nothing closes, a model goes on to talk.
    tail = "?" if tail.strip().startswith("?") else tail.strip()
    return f"{head};{relation}; {tail}>"


def _best(candidates: Sequence[GeneratedQuery], most: int) -> list[GeneratedQuery]:
    """Keep the likeliest of equal candidates, and of all rather those that are queries, the likeliest first."""
    likeliest: dict[Query | str, GeneratedQuery] = {}
    for candidate in candidates:
        key = candidate.query or candidate.written
        if key not in likeliest or likeliest[key].log_probability < candidate.log_probability:
            likeliest[key] = candidate
    by_probability = sorted(likeliest.values(), key=lambda candidate: -candidate.log_probability)
    chosen = sorted(by_probability, key=lambda candidate: candidate.query is None)[:most]
    return [candidate for candidate in by_probability if candidate in chosen]
