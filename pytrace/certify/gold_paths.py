"""Questions with gold reasoning paths: read from files, found by SPARQL, and compared with a knowledge base."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import msgspec
import numpy as np

from pytrace.certify.freebase_rows import freebase_row
from pytrace.certify.wording import entities_named, name_of
from pytrace.check_records import GoldQuestion, Path, gold_row
from pytrace.documents.gold_fields import gold_fields
from pytrace.documents.json_rows import json_rows, looks_like_rows
from pytrace.documents.path_questions import read_path_questions
from pytrace.documents.text_files import Place
from pytrace.errors import DataError, InputError
from pytrace.kg.columns import compile_triples
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.knowledge_base import KnowledgeBase
from pytrace.kg.local_store import LocalStore
from pytrace.kg.names import normal_form
from pytrace.kg.paths import find_paths, list_paths
from pytrace.kg.sparql import rewrite
from pytrace.records import Triple

_QUESTION = ("question", "corrected_question")
_SPARQL = ("sparql", "sparql_query")
_IDS = ("id", "_id")
# So few triples have no more than some ten thousand paths of four; where there are more, a search that can stop is used.
_FEW = 12
_MOST_SOLUTIONS = 100_000


class GoldRow(msgspec.Struct, frozen=True):
    """A question as a file has it: `sparql` is empty where the row has no query, `place` says where it stands."""

    question: GoldQuestion
    sparql: str
    place: Place


class GoldPaths(msgspec.Struct, frozen=True):
    """The gold paths of a question: `reason` says why there are none, `stopped` which limit ended the search early."""

    paths: tuple[Path, ...]
    reason: str
    stopped: str


class AbsentTriple(msgspec.Struct, frozen=True):
    """A triple of a gold path that is no fact of a knowledge base: path and step of it, counted from 0."""

    question_id: str
    path: int
    step: int
    triple: Triple
    reversed: bool  # the knowledge base has it with head and tail exchanged


def read_questions(path: str | os.PathLike[str], *, limit: int | None = None) -> list[GoldQuestion]:
    """Read questions with their answers and, as far as there are, gold paths and topics."""
    return [row.question for row in read_rows(path, limit=limit)]


def of_hops(
    questions: Sequence[GoldQuestion], least: int | None = None, most: int | None = None
) -> Sequence[GoldQuestion]:
    """Return the questions whose shortest gold path has at least or at most so many triples; the paper leaves out those of one.

    Raises
    ------
    InputError
        There is none.
    """
    if least is None and most is None:
        return questions
    hops = [min(map(len, question.paths), default=0) for question in questions]
    chosen = [
        question
        for question, count in zip(questions, hops, strict=True)
        if count and (least or 1) <= count <= (most or count)
    ]
    if not chosen:
        counts = ", ".join(f"{count} of {length}" for length, count in sorted(Counter(hops).items()))
        raise InputError(f"no question has a gold path of so many hops (there are {counts}); ask for others")
    return chosen


def first_of_each_path(questions: Iterable[GoldQuestion]) -> list[GoldQuestion]:
    """Return of questions with the same gold paths only the first; those without paths all stay."""
    seen: set[tuple[Path, ...]] = set()
    chosen = []
    for question in questions:
        if question.paths not in seen:
            chosen.append(question)
        if question.paths:
            seen.add(question.paths)
    return chosen


def read_rows(path: str | os.PathLike[str], *, limit: int | None = None) -> list[GoldRow]:
    """Read questions with the SPARQL queries that some data sets have instead of paths."""
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; ask for at least 1 question, or for all with None")
    path = FilePath(path)
    rows: list[GoldRow] = []
    places: dict[str, Place] = {}
    for row in itertools.islice(_rows_of(path), limit):
        if row.question.id in places:
            raise row.place.error(
                f"the id {row.question.id[:80]!a} stands at {places[row.question.id]} too; give each row its own"
            )
        places[row.question.id] = row.place
        rows.append(row)
    if not rows:
        raise DataError("there is no question in it; give a file with at least one row", path=path)
    return rows


def question_line(question: GoldQuestion) -> bytes:
    """Write a question as a line that `read_questions` reads."""
    try:
        return msgspec.json.encode({"id": question.id, "question": question.question, **gold_row(question)}) + b"\n"
    except UnicodeEncodeError:
        raise InputError(
            f"question {question.id!a} has half a character (a lone surrogate), which JSON cannot hold; repair it"
        ) from None


def gold_paths_from_sparql(
    store: LocalStore,
    query: str,
    *,
    topics: Sequence[str] = (),
    answers: Sequence[str] = (),
    max_hops: int = 4,
    limit: int = 1000,
    seconds: float = 10.0,
) -> GoldPaths:
    """Find the paths from a question's topics to its answers in what its query matches."""
    # The query's graph is looked at solution by solution, so that no path goes through two that have nothing to do with
    # each other but, say, a class. Paths are simple, but where an answer is itself a topic, those that come back to it
    # count too.
    # Nguyen et al., "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs" (2024),
    # appendix A.
    if limit < 1 or max_hops < 1:
        raise InputError(f"limit is {limit} and max_hops {max_hops}; both must be at least 1")
    rewritten = rewrite(query)
    deadline = time.monotonic() + seconds
    [found] = store.solutions([rewritten], QueryLimits(rows=_MOST_SOLUTIONS, seconds=seconds))
    if isinstance(found, Exception):
        raise found
    # What the store calls an entity is looked up once: solutions have most of their entities in common.
    keys = {key for solution in found.solutions for triple in solution.triples for key in (triple.head, triple.tail)}
    names = dict(zip(keys, store.all_names(list(keys)), strict=True)) if topics or answers else {}
    forms = functools.cache(lambda key: frozenset(map(normal_form, names[key])))
    is_topic, is_answer = _called_one_of(topics, forms), _called_one_of(answers, forms)
    paths: dict[Path, None] = {}
    stopped = found.stopped
    topics_met = answers_met = False
    for solution in found.solutions:
        triples, values = solution.triples, solution.values
        entities = list(dict.fromkeys(key for triple in triples for key in (triple.head, triple.tail)))
        constants = {values[name] for name in rewritten.constants if name in values}
        asked = {values[name] for name in rewritten.answers if name in values}
        sources = [key for key in entities if (is_topic(key) if topics else key in constants)]
        targets = [key for key in entities if (is_answer(key) if answers else key in asked)]
        topics_met, answers_met = topics_met or bool(sources), answers_met or bool(targets)
        if sources and targets:
            paths.update(dict.fromkeys(_paths_within(triples, sources, targets, max_hops, limit)))
        if len(paths) > limit or time.monotonic() > deadline:
            stopped = f"more than {limit} paths" if len(paths) > limit else f"more than {seconds:g} seconds"
            break
    ordered = sorted(paths, key=lambda path: (len(path), [(step.head, step.relation, step.tail) for step in path]))
    reason = ""
    if not ordered:
        reason = _why_none(bool(found.solutions), topics_met, answers_met, max_hops)
        reason += f" (property paths left out: {', '.join(rewritten.left_out)})" if rewritten.left_out else ""
    return GoldPaths(tuple(ordered[:limit]), reason, stopped)


def _called_one_of(wanted: Sequence[str], forms_of: Callable[[str], frozenset[str]]) -> Callable[[str], bool]:
    """Return a test of whether an entity, by its key, is among some that are given by key or name."""
    keys, forms = frozenset(wanted), frozenset(map(normal_form, wanted)) - {""}
    return lambda key: key in keys or not forms.isdisjoint(forms_of(key))


def find_gold_paths(
    base: KnowledgeBase, topics: Sequence[str], answers: Sequence[str], *, max_hops: int = 4, limit: int = 1000
) -> GoldPaths:
    """Find the shortest paths from a question's topics to its answers in a whole knowledge base."""
    # Longer ones say ever less of the question, so only those of the least length are taken.
    sources, targets = entities_called(base, topics), entities_called(base, answers)
    if not sources or not targets:
        return GoldPaths((), _why_none(True, bool(sources), bool(targets), max_hops), "")
    for hops in range(1, max_hops + 1):
        found = find_paths(base, sources, targets, max_hops=hops, limit=limit)
        if found.paths:
            return GoldPaths(found.paths, "", "" if found.complete else f"more than {limit} paths")
    return GoldPaths((), _why_none(True, True, True, max_hops), "" if found.complete else "too many walks")


def entities_called(base: KnowledgeBase, names: Iterable[str]) -> list[int]:
    """Return the numbers of the entities with some keys, or else with names of the same normal form."""
    called: dict[int, None] = {}
    for name in names:
        number = base.entity(name)
        called.update(dict.fromkeys(entities_named(base, name) if number is None else [number]))
    return list(called)


def topics_in(base: KnowledgeBase, question: GoldQuestion) -> tuple[str, ...]:
    """Return the keys of the entities that a question names word for word, but for its answers: what it may start from."""
    answers = set(map(normal_form, question.answers))
    keys = [
        base.columns.entity_keys[n]
        for mention in base.columns.mentions.find([question.question])[0]
        for n in mention.entities
    ]
    return tuple(
        key
        for key in dict.fromkeys(keys)
        if normal_form(key) not in answers and normal_form(name_of(base, key)) not in answers
    )


def check_paths(base: KnowledgeBase, questions: Iterable[GoldQuestion]) -> tuple[AbsentTriple, ...]:
    """Tell which triples of gold paths are no facts of a knowledge base."""
    absent = []
    for question in questions:
        for number, path in enumerate(question.paths):
            for step, triple in enumerate(path):
                if base.number(triple) is None:
                    turned = base.number(Triple(triple.tail, triple.relation, triple.head)) is not None
                    absent.append(AbsentTriple(question.id, number, step, triple, turned))
    return tuple(absent)


def _paths_within(
    triples: Sequence[Triple], sources: Sequence[str], targets: Sequence[str], max_hops: int, limit: int
) -> list[Path]:
    if len(triples) > _FEW:
        columns = compile_triples(triples)
        base = KnowledgeBase(columns, np.zeros((len(triples), 0), dtype=np.float32))
        starts, ends = (
            [number for key in keys if (number := base.entity(key)) is not None] for keys in (sources, targets)
        )
        return list(find_paths(base, starts, ends, max_hops=max_hops, limit=limit).paths)
    numbers: dict[str, int] = {}
    edges = [
        (index, numbers.setdefault(triple.head, len(numbers)), numbers.setdefault(triple.tail, len(numbers)))
        for index, triple in enumerate(triples)
    ]
    starts, ends = [numbers[key] for key in sources], [numbers[key] for key in targets]
    found = list_paths(edges, starts, ends, max_hops=max_hops)
    for entity in set(starts).intersection(ends):
        # The way back to where it began is a path to a second entity that has the same triples.
        back = [(index, head if tail == entity else tail, -1) for index, head, tail in edges if entity in (head, tail)]
        round_ = list_paths([*edges, *back], [entity], [-1], max_hops=max_hops)
        found += [path for path in round_ if len(set(path)) == len(path)]
    return [tuple(triples[index] for index in path) for path in found]


def _why_none(solutions: bool, topics: bool, answers: bool, max_hops: int) -> str:
    if not solutions:
        return "the query matches nothing in the knowledge graph"
    if not topics or not answers:
        missing = " and ".join(name for name, met in (("topic", topics), ("answer", answers)) if not met)
        return f"no {missing} of the question was found there"
    return f"no path of up to {max_hops} triples leads from a topic to an answer"


def _rows_of(path: FilePath) -> Iterator[GoldRow]:
    if looks_like_rows(path):
        for place, row in json_rows(path):
            yield _json_row(row, place)
        return
    for place, found in read_path_questions(path):
        # PathQuestion's paths begin at the entity that the question names.
        topics = (found.path[0].head,)
        yield GoldRow(GoldQuestion(found.id, found.question, found.answers, (found.path,), topics), "", place)


def _json_row(row: dict[str, Any], place: Place) -> GoldRow:
    row = freebase_row(row, place) or row
    question = _field(row, _QUESTION)
    if not isinstance(question, str) or not question.strip():
        raise place.error('it has no question; give it a field "question" with a text')
    identity = _field(row, _IDS)
    if identity is None:
        identity = f"{place.path.stem}:{place.item if place.line is None else place.line}"
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise place.error(f"its id is a {type(identity).__name__}; write a text or a number")
    sparql = _field(row, _SPARQL)
    if not isinstance(sparql, str | None):
        raise place.error(f"its SPARQL query is a {type(sparql).__name__}; write a text")
    gold = gold_fields(row, place)
    answers, paths = tuple(dict.fromkeys(gold.answers)), tuple(dict.fromkeys(gold.paths))
    found = GoldQuestion(str(identity), question, answers, paths, tuple(dict.fromkeys(gold.topics)))
    return GoldRow(found, (sparql or "").strip(), place)


def _field(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)
