"""Examples from LC-QuAD: questions with SPARQL over DBpedia, whose IRIs become names.

Source: Trivedi et al., "LC-QuAD: A Corpus for Complex Question Answering over Knowledge Graphs" (ISWC 2017).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from pytrace.documents.json_rows import Place
from pytrace.documents.rows import id_of, wrong_type
from pytrace.documents.sentences import clean_text
from pytrace.errors import InputError
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.queries import Query, QueryForm, SparqlQuery, TripletQuery
from pytrace.kg.queries.notation import write_name
from pytrace.kg.sparql_tokens import Token, tokens_of
from pytrace.training.clauses import find_clauses, query_entities, split_query
from pytrace.training.path_examples import variable
from pytrace.training.query_checks import check_query
from pytrace.training.query_mentions import mention_texts
from pytrace.training.training_records import QueryExample

_RESOURCE = "http://dbpedia.org/resource/"
_CLASSES = "http://dbpedia.org/ontology/"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_COUNT = "?count"


def lcquad_example(row: dict[str, Any], place: Place, *, form: QueryForm = "sparql") -> QueryExample:
    """Make an example of a row of LC-QuAD."""
    texts: dict[str, str] = {}
    for field in ("corrected_question", "sparql_query"):
        value = row.get(field)
        if not isinstance(value, str):
            raise place.error(wrong_type(field, value, "a string"))
        texts[field] = value
    question = clean_text(texts["corrected_question"])
    if not question:
        raise InputError("the question has no words; correct it, or remove the row")
    query: Query = named_query(texts["sparql_query"])
    if form == "triplet":
        query = triplet_form(query)
    check_query(query)
    entities = query_entities(query)
    return QueryExample(
        id_of(row, place, "_id", "id") or f"{place.path.stem}:{place.line or place.item or 0}",
        question,
        query,
        " | ".join(sorted(entities)) or question,
        (),
        mention_texts(question, query),
    )


def named_query(sparql: str) -> SparqlQuery:
    """Write a query over DBpedia with names."""
    tokens = tokens_of(sparql)
    names = {token.text: "" for token in tokens if token.kind == "variable"}
    for number, text in enumerate(names):
        names[text] = variable(number)
    written: list[str] = []
    depth = terms = 0
    for at, token in enumerate(tokens):
        following = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.kind == "mark":
            depth += (token.text == "{") - (token.text == "}")
            terms = 0 if token.text in {"{", "}", "."} else 1 if token.text == ";" else terms
            if token.text == "." and following == "}":
                continue
            written.append(token.text)
        elif token.kind == "iri":
            terms += 1
            written.append(_name(token, is_relation=depth > 0 and terms == 2))
        elif token.kind == "variable":
            terms += 1
            written.append(names[token.text])
        else:
            terms += token.kind != "word" or token.text == "a"
            written.append(token.text.lower() if token.kind == "word" else token.text)
    return SparqlQuery(_standard(" ".join(written)))


def _standard(query: str) -> str:
    """Put a count into the words of SPARQL 1.1, and leave out the `where` that ASK needs not."""
    for words, counted in (("distinct count ( ?x )", "distinct ?x"), ("count ( distinct ?x )", "distinct ?x"), ("count ( ?x )", "?x")):  # fmt: skip
        if query.startswith(f"select {words} where"):
            return query.replace(words, f"(count({counted}) as {_COUNT})", 1)
    return query.replace("ask where", "ask", 1) if query.startswith("ask where") else query


def _name(token: Token, *, is_relation: bool) -> str:
    iri = token.text[1:-1]
    if is_relation:
        return write_name("relation", "type" if iri == _TYPE else relation_name(iri))
    # A slash or a colon within what follows is a part of the name, as in AC/DC.
    if iri.startswith(_RESOURCE):
        name = " ".join(unquote(iri.removeprefix(_RESOURCE), errors="replace").replace("_", " ").split())
    else:  # classes are written as relations are: TelevisionShow
        name = relation_name(iri) if iri.startswith(_CLASSES) else entity_name(iri)
    return write_name("entity", name)


def triplet_form(query: Query) -> TripletQuery:
    """Write a query as a triplet, where it is a single triple pattern of which one part is asked for."""
    if isinstance(query, TripletQuery):
        return query
    tokens = split_query(query.text)
    clauses = find_clauses(tokens)
    words = [
        token.text.lower()
        for token in tokens
        if token.kind == "word" and token.text.lower() not in {"distinct", "where"}
    ]
    if len(clauses) != 1 or words != ["select"] or sum(token.text == "{" for token in tokens) != 1:
        raise InputError(
            f"the query {query.text[:80]!a} asks for more than one part of one triple; use the form sparql"
        )
    parts = ["?" if tokens[at].kind == "variable" else tokens[at].name for at in clauses[0]]
    if parts.count("?") != 1 or not all(parts) or any(";" in part for part in parts):
        raise InputError(
            f"the query {query.text[:80]!a} does not ask for one part of a triple of names; use the form sparql"
        )
    return TripletQuery(*parts)
