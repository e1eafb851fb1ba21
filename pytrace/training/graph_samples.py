"""Examples sampled from a knowledge graph: paths of its triples, asked about in the words of templates that fit any graph.

A template is a text with fields. What is asked for is told by a phrase, ``{of}`` ("capital of Ghana") or ``{possessive}``
("Ghana's capital"), or by the names themselves. ``{wh}`` is the question word that goes with a relation's name.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Literal

import msgspec

from pytrace.errors import InputError
from pytrace.kg.names import entity_name, normal_form, relation_name
from pytrace.kg.queries import Query, QueryForm, SparqlQuery, TripletQuery, parse_query, sparql_form
from pytrace.kg.queries.notation import write_name
from pytrace.kg.queries.query_records import SOUGHT
from pytrace.records import Triple
from pytrace.training.examples import QueryExample, path_query
from pytrace.training.query_text import mention_texts

Shape = Literal["tail", "head", "relation", "path", "count", "ask"]
"""What is asked for: one of a triple's three parts, the end of a path of two steps or more, how many tails, yes or no."""


def _data(name: str) -> dict[str, tuple[str, ...]]:
    return msgspec.json.decode((resources.files(__package__) / name).read_bytes(), type=dict[str, tuple[str, ...]])


WORDINGS = _data("wordings.json")
"""At least twelve wordings of each shape."""

_FIELD = re.compile(r"\{(\w*)\}")
# The last word of a relation's name tells what it leads to; what no list holds is asked for by "what".
_QUESTION_WORDS = {name: word for word, names in _data("question_words.json").items() for name in names}

# A question with more answers than this is none that anybody reads; and no walk looks at more triples.
_MOST_ANSWERS = 1_000
_MOST_STEPS = 10_000
# So many draws an example, before the graph is held to have no more.
_DRAWS = 30


def sample_examples(
    triples: Iterable[Triple],
    count: int,
    *,
    seed: int = 0,
    form: QueryForm = "sparql",
    hops: Sequence[int] = (1, 2),
    names: Mapping[str, str] | None = None,
) -> list[QueryExample]:
    """Sample questions about a knowledge graph, with their queries and all answers."""
    # Relations are drawn evenly, so that rare ones are asked about too. Of one step, each part of a triple is asked
    # for, how many tails there are, and whether a triple is there; of more steps, what lies at the end of a path, which
    # never comes back to where it was. A question with more than 1,000 answers, or whose answers more than 10,000
    # triples would have to be looked at for, is passed over, so that hubs cost no more than others.
    if form == "triplet":
        hops = (1,)
    sampler = _Sampler(_Graph(triples, names or {}), random.Random(seed), form)
    examples: dict[str, QueryExample] = {}
    for _ in range(_DRAWS * count + _DRAWS):
        if len(examples) >= count:
            break
        example = sampler.draw(hops, f"sample-{seed}:{len(examples) + 1}")
        if example is not None:
            examples.setdefault(example.question, example)
    return list(examples.values())


class _Graph:
    """Triples by number: the names of nodes and relations, and who follows whom."""

    def __init__(self, triples: Iterable[Triple], names: Mapping[str, str]) -> None:
        nodes: dict[str, int] = {}
        relations: dict[str, int] = {}
        stated: dict[tuple[int, int, int], None] = {}
        for triple in triples:
            head, tail = (nodes.setdefault(key, len(nodes)) for key in (triple.head, triple.tail))
            stated[head, relations.setdefault(triple.relation, len(relations)), tail] = None
        self.keys = list(nodes)
        self.entities = [names.get(key) or entity_name(key) for key in nodes]
        self.relations = [names.get(key) or relation_name(key) for key in relations]
        # A store cannot tell which of the entities of one name is meant, so that none of them is asked about.
        shared = Counter(map(normal_form, self.entities))
        self.known = [shared[normal_form(name)] == 1 and _writable("entity", name) for name in self.entities]
        usable = self._usable(Counter(relation for _, relation, _ in stated))
        self.triples = [triple for triple in stated if triple[1] in usable]
        if not self.triples:
            raise InputError(
                f"none of the {len(stated):,} triples has a relation whose name can stand in a query; give others"
            )
        self.of_relation: dict[int, list[int]] = {}
        self.after: dict[int, dict[int, list[int]]] = {}
        self.before: dict[int, dict[int, list[int]]] = {}
        for index, (head, relation, tail) in enumerate(self.triples):
            self.of_relation.setdefault(relation, []).append(index)
            self.after.setdefault(head, {}).setdefault(relation, []).append(tail)
            self.before.setdefault(tail, {}).setdefault(relation, []).append(head)
        self.drawn = list(self.of_relation)

    def _usable(self, counts: Counter[int]) -> set[int]:
        """Return of relations with the same name the most frequent one, as a store finds it by name."""
        best: dict[str, int] = {}
        for relation, name in enumerate(self.relations):
            form = normal_form(name)
            if _writable("relation", name) and counts[relation] > counts[best.get(form, -1)]:
                best[form] = relation
        return set(best.values())

    def walk(self, start: int, relations: Sequence[int], *, backwards: bool = False) -> list[int] | None:
        """Return all nodes at the end of a path, in order of first arrival; None if there are too many on the way."""
        steps = self.before if backwards else self.after
        there = {start: None}
        looked = 0
        for relation in relations:
            reached: dict[int, None] = {}
            for node in there:
                following = steps.get(node, {}).get(relation, [])
                looked += len(following)
                if looked > _MOST_STEPS:
                    return None
                reached.update(dict.fromkeys(following))
            there = reached
        return list(there) if len(there) <= _MOST_ANSWERS else None


def _writable(kind: str, name: str) -> bool:
    try:
        parse_query(TripletQuery(name, "r", "?").text)
        write_name(kind, name)
    except InputError:
        return False
    return ";" not in name


class _Sampler:
    """Draws a question at a time."""

    def __init__(self, graph: _Graph, chance: random.Random, form: QueryForm) -> None:
        self.graph = graph
        self.chance = chance
        self.form = form
        self.shapes: tuple[Shape, ...] = ("tail", "head", "relation")
        if form == "sparql":
            self.shapes += ("count", "ask")

    def draw(self, hops: Sequence[int], id: str) -> QueryExample | None:
        """Return an example, or None where what was drawn makes none."""
        steps = self.chance.choice(hops)
        shape: Shape = "path" if steps > 1 else self.chance.choice(self.shapes)
        relation = self.chance.choice(self.graph.drawn)
        head, _, tail = self.graph.triples[self.chance.choice(self.graph.of_relation[relation])]
        match shape:
            case "tail" | "path" | "count":
                return self._forward(shape, head, relation, tail, steps, id)
            case "head":
                return self._backward(head, relation, tail, id)
            case "relation":
                return self._between(head, tail, id)
            case "ask":
                return self._whether(head, relation, tail, id)

    def _forward(self, shape: Shape, head: int, relation: int, tail: int, steps: int, id: str) -> QueryExample | None:
        path = self._path(head, relation, tail, steps)
        answers = None if path is None or not self.graph.known[head] else self.graph.walk(head, path)
        if path is None or answers is None:
            return None
        entity, relations = self.graph.entities[head], [self.graph.relations[step] for step in path]
        if shape == "count":
            written = f"{write_name('entity', entity)} {write_name('relation', relations[0])} ?x"
            query: Query = SparqlQuery(f"select (count(distinct ?x) as ?count) where {{ {written} }}")
            return self._example(shape, id, head, relations, query, (str(len(answers)),))
        query = path_query(entity, relations, form=self.form)
        return self._example(shape, id, head, relations, query, self._names(answers))

    def _path(self, head: int, relation: int, tail: int, steps: int) -> list[int] | None:
        """Continue from a triple without coming back to a node; None where that leads nowhere."""
        visited, path, node = {head, tail}, [relation], tail
        if head == tail:
            return None
        while len(path) < steps:
            following = self.graph.after.get(node)
            if not following:
                return None
            relation = self.chance.choice(list(following))
            node = self.chance.choice(following[relation])
            if node in visited:
                return None
            visited.add(node)
            path.append(relation)
        return path

    def _backward(self, head: int, relation: int, tail: int, id: str) -> QueryExample | None:
        answers = self.graph.walk(tail, [relation], backwards=True)
        if head == tail or not self.graph.known[tail] or answers is None:
            return None
        name = self.graph.relations[relation]
        query = self._triple_query(None, name, self.graph.entities[tail])
        return self._example("head", id, tail, [name], query, self._names(answers))

    def _between(self, head: int, tail: int, id: str) -> QueryExample | None:
        if head == tail or not (self.graph.known[head] and self.graph.known[tail]):
            return None
        sides = (self.graph.after[head], tail), (self.graph.before[tail], head)
        # Either side tells; the smaller one is soon looked through.
        following, wanted = min(sides, key=lambda side: sum(map(len, side[0].values())))
        if sum(map(len, following.values())) > _MOST_STEPS:
            return None
        names = tuple(self.graph.relations[relation] for relation, nodes in following.items() if wanted in nodes)
        other = self.graph.entities[tail]
        query = self._triple_query(self.graph.entities[head], None, other)
        return self._example("relation", id, head, [], query, names, other=other)

    def _whether(self, head: int, relation: int, tail: int, id: str) -> QueryExample | None:
        """Ask whether a triple is there, half of the time with the tail of another, so that the answer may be no."""
        target = tail
        if self.chance.random() < 0.5:
            target = self.graph.triples[self.chance.choice(self.graph.of_relation[relation])][2]
        answers = self.graph.walk(head, [relation])
        if answers is None or target == head or not (self.graph.known[head] and self.graph.known[target]):
            return None
        entity, other, name = self.graph.entities[head], self.graph.entities[target], self.graph.relations[relation]
        parts = (write_name("entity", entity), write_name("relation", name), write_name("entity", other))
        query = SparqlQuery(f"ask {{ {' '.join(parts)} }}")
        return self._example("ask", id, head, [name], query, ("true" if target in answers else "false",), other=other)

    def _triple_query(self, head: str | None, relation: str | None, tail: str) -> Query:
        """Write the query for the part of a triple that is None."""
        triplet = TripletQuery(head or SOUGHT, relation or SOUGHT, tail)
        return triplet if self.form == "triplet" else sparql_form(triplet)

    def _names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.graph.entities[node] for node in nodes))

    def _example(
        self, shape: Shape, id: str, node: int, relations: Sequence[str], query: Query, answers: tuple[str, ...],
        *, other: str = "",
    ) -> QueryExample:  # fmt: skip
        template = self.chance.choice(WORDINGS[shape])
        question = word_question(template, entity=self.graph.entities[node], relations=relations, other=other)
        return QueryExample(id, question, query, self.graph.keys[node], answers, mention_texts(question, query))


def word_question(template: str, *, entity: str, relations: Sequence[str], other: str = "") -> str:
    """Fill in a template."""
    fields = {
        "entity": entity,
        "other": other,
        "relation": " ".join(relations),
        "of": " of the ".join([*reversed(relations)]) + f" of {entity}",
        "possessive": "'s ".join([entity, *relations]),
        "mixed": " of ".join([*reversed(relations[1:]), "'s ".join([entity, *relations[:1]])]),
        "wh": question_word(relations[-1]) if relations else "what",
    }
    return _FIELD.sub(lambda match: fields[match[1]], template)


def question_word(relation: str) -> str:
    """Return the word that asks for what a relation leads to, by nothing but the relation's name."""
    words = relation.lower().split()
    # "place of birth" is told by its first word, "birth place" by its last.
    head = (words[words.index("of") - 1] if "of" in words[1:] else words[-1]) if words else ""
    return _QUESTION_WORDS.get(head, "what")
