"""Rows of GrailQA and ComplexWebQuestions: their topics, and their queries as a Freebase in RDF is asked them."""

from __future__ import annotations

import re

from pytrace.documents.rows import Row, wrong_type
from pytrace.documents.text_files import Place
from pytrace.evaluation.data.dataset_adapters import SHAPES

_FREEBASE = "http://rdf.freebase.com/ns/"
# GrailQA's queries are one within another that only renames its variable, so that what is between is not to be seen.
_WRAPPED = re.compile(
    r"^(?P<head>.*?)SELECT\s*\(\?x0 AS \?value\) WHERE \{\s*(?P<query>SELECT .*)\}\s*$", re.DOTALL | re.IGNORECASE
)
# What Virtuoso, for which both were written, declares by itself.
_PREFIXES = {
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
}


def freebase_row(row: Row, place: Place) -> Row | None:
    """Bring a row of GrailQA or ComplexWebQuestions into the shape of ours; None for other rows.

    GrailQA's topics are the entities of its `graph_query`, by IRI and by id. Answers are names; where GrailQA gives the id of an
    entity, its IRI is an answer, too.
    """
    grail, web = SHAPES["grailqa"], SHAPES["complexwebquestions"]
    if grail.known_by(row) and grail.rewrite is not None:
        found = grail.rewrite(row, place)
        ids = [
            one["answer_argument"]
            for one in row["answer"]
            if isinstance(one, dict) and one.get("answer_type") == "Entity"
        ]
        found["answers"] = [*found["answers"], *(f"{_FREEBASE}{name}" for name in ids if isinstance(name, str))]
        found["topics"] = _topics(row, place)
    elif web.known_by(row) and web.rewrite is not None:
        found = web.rewrite(row, place)
    else:
        return None
    query = next((row[name] for name in ("sparql_query", "sparql") if row.get(name) is not None), "")
    if not isinstance(query, str):
        raise place.error(wrong_type("sparql_query" if "sparql_query" in row else "sparql", query, "a string"))
    return {**found, "sparql": plain_query(query)}


def plain_query(query: str) -> str:
    """Take GrailQA's outer query away, and declare the prefixes that are used without it."""
    wrapped = _WRAPPED.match(query)
    if wrapped is not None:
        query = wrapped["head"] + wrapped["query"]
    lacking = [
        f"PREFIX {name}: <{iri}>\n"
        for name, iri in _PREFIXES.items()
        if re.search(rf"(?<![\w:?]){name}:", query) and not re.search(rf"PREFIX\s+{name}:", query, re.IGNORECASE)
    ]
    return "".join(lacking) + query


def _topics(row: Row, place: Place) -> list[str]:
    graph = row.get("graph_query") or {}
    nodes = graph.get("nodes", []) if isinstance(graph, dict) else None
    if not isinstance(nodes, list):
        raise place.error(wrong_type("graph_query", graph, "an object with a list of nodes"))
    names = [
        node["id"]
        for node in nodes
        if isinstance(node, dict) and node.get("node_type") == "entity" and isinstance(node.get("id"), str)
    ]
    return [key for name in names for key in (f"{_FREEBASE}{name}", name)]
