"""`SparqlEndpoint`: the triples of a server that speaks SPARQL 1.1, such as Wikidata's, asked as little as possible."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from pytrace import __version__
from pytrace.errors import InputError, ServerError, ServerTimeoutError, StoreError
from pytrace.kg import endpoint_queries
from pytrace.kg.answer_cache import AnswerCache
from pytrace.kg.endpoint_queries import (
    MEDIA_TYPE,
    Row,
    Written,
    forms_of,
    key_at,
    matches_of,
    read_rows,
    solutions_of,
    statements,
)
from pytrace.kg.entities import check_search
from pytrace.kg.fact_store import EntityMatch, FactStore, QueryLimits, Relation, check_limits, read_pairs
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.sparql import GraphQuery, written_out
from pytrace.kg.sparql_store import Solutions
from pytrace.kg.terms import NAMING, VOCABULARY, named_by, node_of
from pytrace.models.servers.http_client import HttpClient
from pytrace.records import Triple

_T = TypeVar("_T")

# An answer of 1,000 solutions with 20 IRIs each takes 2 MB.
_LARGEST_ANSWER = 64 << 20
# What is remembered of answers within this process, in bytes.
_REMEMBERED = 64 << 20
_MOST_NAMESPACES = 8
_LAST_PART = re.compile(r"[^/#:]*$")
_COUNT = re.compile(r"[0-9]{1,18}")
_PROPERTY = "http://www.wikidata.org/entity/P"
# Keys, mentions and triples that one query asks for: texts of some 10 KB, which every server takes.
_KEYS, _MENTIONS, _TRIPLES = 100, 20, 100


class SparqlEndpoint(FactStore):
    r"""A `FactStore` whose triples are on a server.

    Only this server is ever asked: redirections are not followed. Busy servers (429, 502, 503, 504) are asked again after a
    pause, as long as they say. Answers are kept, in memory and, if a directory is given, on disk, so that none is asked for
    twice; nothing asks whether the server has changed since.
    """

    # SPARQL 1.1 Protocol (W3C, 2013), section 2.1.3: query via POST with URL-encoded parameters.

    def __init__(
        self,
        url: str,
        *,
        user_agent: str | None = None,
        labels: str | os.PathLike[str] | None = None,
        predicates: str | os.PathLike[str] | None = None,
        cache_directory: str | os.PathLike[str] | None = None,
        concurrency: int = 4,
        timeout: float = 60.0,
    ) -> None:
        if concurrency < 1 or not 0 < timeout < float("inf"):
            raise InputError(
                f"concurrency is {concurrency} and timeout {timeout}; give at least 1, and seconds above 0"
            )
        self._timeout = timeout
        self._labels = None if labels is None else list(read_pairs(labels, what="entity"))
        self._predicates: dict[str, str] | None = None
        if predicates is not None:
            self._predicates = {}
            for key, name in read_pairs(predicates, what="relation"):
                self._predicates.setdefault(key, name)
        self._http = HttpClient(
            url,
            concurrency=concurrency,
            timeout=timeout,
            user_agent=_user_agent(user_agent),
            kind="SPARQL endpoint",
            largest_answer=_LARGEST_ANSWER,
        )
        address = self._http.origin + self._http.parts.path
        super().__init__(address, address)  # what a server holds, nobody can tell
        self._memory_lock = threading.Lock()
        self._remembered: dict[str, bytes] = {}
        self._remembered_bytes = 0
        self._cache: AnswerCache | None = None
        if cache_directory is not None:
            try:
                self._cache = AnswerCache(cache_directory)
            except StoreError:
                self._http.close()
                raise

    @property
    def requests(self) -> int:
        """How often the server was asked."""
        return self._http.requests

    def _read_relations(self) -> tuple[Relation, ...]:
        # A relation is called by its English label; on Wikidata, by that of its property.
        if self._predicates is not None:
            return tuple(Relation(key, name) for key, name in self._predicates.items())
        rows: list[Row] = []
        for query in (endpoint_queries.COUNTED_RELATIONS, endpoint_queries.RELATIONS):
            [answer] = self._rows([query], self._timeout)
            if not isinstance(answer, Exception) and any(key_at(row, "p").startswith(VOCABULARY) for row in answer):
                # A graph that pytrace wrote, with where its triples are from.
                [answer] = self._rows([endpoint_queries.without_provenance(query)], self._timeout)
            if not isinstance(answer, Exception):
                rows = answer
                break
            if not isinstance(answer, ServerTimeoutError) and getattr(answer, "status", None) not in (
                500,
                502,
                503,
                504,
            ):
                raise answer
        else:
            raise ServerError(
                f"{self.name} neither counts nor lists its relations within {self._timeout:g} s; write those to use into a "
                "file (key, tab and name a line), and give it as predicates (--kb-predicates)"
            )
        naming = {node.value for node in NAMING}
        counts = {key: key_at(row, "n") for row in rows if (key := key_at(row, "p")).strip() and key not in naming}
        keys = [named_by(key) for key in counts]
        labels = self._labels_of([node_of(key, relation=True).value for key in keys])
        relations = [
            Relation(key, label or relation_name(key), int(count) if _COUNT.fullmatch(count) else 0)
            for (key, count), label in zip(counts.items(), labels, strict=True)
        ]
        # Of equally frequent ones a server may name any first.
        return tuple(sorted(relations, key=lambda relation: (-relation.count, relation.key)))

    def names(self, keys: Sequence[str]) -> list[str]:
        """Return what entities are called: their label, in English if they have one, or their key in words; all else as it is."""
        iris = [key for key in dict.fromkeys(keys) if node_of(key).value == key]
        labels = dict(zip(iris, self._labels_of(iris), strict=True))
        return [labels[key] or entity_name(key) if key in labels else key for key in keys]

    def _labels_of(self, iris: Sequence[str]) -> list[str]:
        """Return the first label of each IRI by the alphabet, in English if there is one; empty where there is none."""
        labels: dict[str, str] = {}
        for query in (endpoint_queries.labels_of, endpoint_queries.foreign_labels_of):
            missing = [iri for iri in dict.fromkeys(iris) if iri not in labels]
            queries = [query([f"<{iri}>" for iri in part]) for part in _parts(missing, _KEYS)]
            for row in self._all_rows(queries):
                node, label = row.get("node"), " ".join(key_at(row, "label").split())
                if node is not None and (iri := node.text) is not None and label:
                    labels[iri] = min(label, labels.get(iri, label))
        return [labels.get(iri, "") for iri in iris]

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        """Return for each entity some triples that it stands in: those that it is the head of, then others."""
        # Where a file of relations was given, the triples' relations begin as one of those does up to its last part:
        # what servers such as Wikidata's keep beside their facts says little of an entity.
        check_search(limit=limit)
        spaces = _namespaces(self._predicates or ())
        queries = {
            key: endpoint_queries.around(self.iri(key), limit, spaces) for key in keys if not key.startswith("_:")
        }
        answers = dict(zip(queries, self._rows(list(queries.values()), self._timeout), strict=True))
        around = []
        for key in keys:
            triples = []
            for row in self._checked(answers.get(key, [])):
                triple = Triple(key_at(row, "s"), key_at(row, "p"), key_at(row, "o"))
                if (
                    triple.head.strip()
                    and triple.tail.strip()
                    and node_of(triple.relation, relation=True) not in NAMING
                ):
                    triples.append(triple)
            # Servers may begin with either half.
            heads = [triple for triple in triples if triple.head == key]
            around.append(tuple(dict.fromkeys(heads + triples))[:limit])
        return around

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        """Return for each mention the entities with a label or alias like it, best first, each entity once."""
        # Without a file of labels only the same words are found, as written, with a capital first or with capitals
        # throughout. Of entities with the same score, those with the label come before those with the alias, then those
        # with the shorter key, which on Wikidata came earlier and are better known.
        check_search(limit=limit, cutoff=cutoff)
        if (labels := self._labels) is not None:
            index = self._label_index(lambda: labels)
            return [index.find(mention, limit=limit, cutoff=cutoff) for mention in mentions]
        forms = {mention: forms_of(mention) for mention in mentions}
        parts = _parts([each for each in forms.values() if each], _MENTIONS)
        queries = [endpoint_queries.entities_with([form for each in part for form in each]) for part in parts]
        by_label: dict[str, dict[str, bool]] = {}
        for row in self._all_rows(queries):
            label, node = key_at(row, "label"), row.get("node")
            # Wikidata's properties have labels as its entities have, "country" say, but nothing is asked of them.
            if node is not None and node.type == "uri" and (key := node.key) and not key.startswith(_PROPERTY):
                keys = by_label.setdefault(label, {})
                keys[key] = keys.get(key, True) and key_at(row, "alias") == "1"
        return [matches_of(mention, forms[mention], by_label, cutoff)[:limit] for mention in mentions]

    def solutions(self, queries: Sequence[GraphQuery], limits: QueryLimits) -> list[Solutions | Exception]:
        """Run queries, `concurrency` at once."""
        check_limits(limits)
        outcomes: dict[int, Solutions | Exception] = {}
        texts: dict[int, str] = {}
        for number, query in enumerate(queries):
            try:
                texts[number] = endpoint_queries.limited(written_out(query.rows), limits.rows + 1)
            except InputError as error:
                outcomes[number] = error
        tables: dict[int, list[Row]] = {}
        late = Solutions((), f"more than {limits.seconds:g} seconds")
        for number, answer in zip(texts, self._rows(list(texts.values()), limits.seconds), strict=True):
            if isinstance(answer, ServerTimeoutError):
                outcomes[number] = late
            elif isinstance(answer, Exception):
                outcomes[number] = answer
            else:
                tables[number] = answer
        # In a solution of one branch the values need not make a fact of what another branch says.
        doubtful = [number for number in tables if endpoint_queries.states_alternatives(queries[number].rows)]
        stated = {
            written
            for number in doubtful
            for row in tables[number][: limits.rows]
            for _, written in statements(row, queries[number])
            if written is not None
        }
        facts: set[Written] = set()
        try:
            facts = self._facts(sorted(stated), limits.seconds)
        except ServerTimeoutError:
            outcomes |= dict.fromkeys(doubtful, late)
        except ServerError as error:
            outcomes |= dict.fromkeys(doubtful, error)
        for number in tables.keys() - outcomes.keys():
            known = facts if number in doubtful else None
            outcomes[number] = solutions_of(tables[number], queries[number], limits.rows, known)
        return [outcomes[number] for number in range(len(queries))]

    def _facts(self, triples: Sequence[Written], seconds: float) -> set[Written]:
        """Return those of some triples that the server has; raise what went wrong."""
        parts = list(_parts(triples, _TRIPLES))
        answers = self._rows([endpoint_queries.which_are_facts(part) for part in parts], seconds)
        facts: set[Written] = set()
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            known = {key_at(row, "place") for row in answer}
            facts.update(triple for number, triple in enumerate(part) if str(number) in known)
        return facts

    def close(self) -> None:
        """Close the connections and the cache; any later call fails."""
        self._http.close()
        if self._cache is not None:
            self._cache.close()

    def _all_rows(self, queries: Sequence[str]) -> Iterator[Row]:
        for answer in self._rows(queries, self._timeout):
            yield from self._checked(answer)

    def _rows(self, queries: Sequence[str], seconds: float) -> list[list[Row] | Exception]:
        """Return the solutions of SELECT queries, each asked only if nobody asked it before."""
        answers: dict[str, list[Row] | Exception] = {}
        missing = []
        for query in dict.fromkeys(queries):
            data = self._known(query)
            if data is None:
                missing.append(query)
            else:
                answers[query] = read_rows(data, self.name)

        async def fetch(index: int) -> bytes | Exception:
            try:
                return await self._http.post_form({"query": missing[index]}, accept=MEDIA_TYPE, seconds=seconds)
            except ServerError as error:
                return error

        for index, answer in self._http.each(fetch, len(missing)):
            query = missing[index]
            if isinstance(answer, Exception):
                answers[query] = answer
                continue
            try:
                answers[query] = read_rows(answer, self.name)
            except ServerError as error:
                answers[query] = error
                continue
            self._keep(query, answer)
        return [answers[query] for query in queries]

    def _known(self, query: str) -> bytes | None:
        with self._memory_lock:
            data = self._remembered.get(query)
        if data is None and self._cache is not None:
            data = self._cache.get([self.name, query])
        return data

    def _keep(self, query: str, answer: bytes) -> None:
        if self._cache is not None:
            self._cache.put([self.name, query], answer)
        with self._memory_lock:
            self._remembered_bytes += len(answer) - len(self._remembered.pop(query, b""))
            self._remembered[query] = answer
            while self._remembered_bytes > _REMEMBERED:
                self._remembered_bytes -= len(self._remembered.pop(next(iter(self._remembered))))

    def _checked(self, answer: list[Row] | Exception) -> list[Row]:
        """Return an answer to what the store itself asked, or raise what went wrong."""
        if isinstance(answer, Exception):
            raise answer
        return answer


def _parts(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Cut a list into parts of so many at most."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _namespaces(keys: Iterable[str]) -> list[str]:
    """Return what the IRIs of relations begin with, up to their last part; nothing if that is much or cannot be told."""
    namespaces = {_LAST_PART.sub("", node_of(key, relation=True).value) for key in keys}
    return sorted(namespaces) if len(namespaces) <= _MOST_NAMESPACES else []


def _user_agent(user: str | None) -> str:
    """Return what a server is told of who asks."""
    if user is None:
        return f"pytrace/{__version__}"
    if not user.strip() or not user.isascii() or not user.isprintable():
        raise InputError(
            f"the user agent {user[:80]!a} is not some printable ASCII; give an address, such as you@example.org"
        )
    return f"pytrace/{__version__} ({user.strip()})"
