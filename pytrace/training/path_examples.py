"""Examples from questions whose gold path through a knowledge graph is known, such as PathQuestion's."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.documents.path_questions import PathQuestion
from pytrace.errors import InputError
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.queries import Query, QueryForm, SparqlQuery, TripletQuery, parse_query, write_query
from pytrace.kg.queries.notation import write_name
from pytrace.training.query_mentions import mention_texts
from pytrace.training.training_records import QueryExample


def path_query(subject: str, relations: Sequence[str], *, form: QueryForm = "sparql") -> Query:
    """Write the query for what lies at the end of a path."""
    if not relations or (form == "triplet" and len(relations) > 1):
        most = "exactly 1" if form == "triplet" else "at least 1"
        raise InputError(f"a path of {len(relations)} relations is no query of the form {form}; give {most}")
    if form == "triplet":
        triplet = parse_query(write_query(TripletQuery(subject, relations[0], "?")))
        assert isinstance(triplet, TripletQuery)
        return triplet
    nodes = [write_name("entity", subject), *map(variable, range(1, len(relations))), "?x"]
    steps = zip(nodes, relations, nodes[1:], strict=False)
    clauses = (f"{head} {write_name('relation', relation)} {tail}" for head, relation, tail in steps)
    return SparqlQuery(f"select distinct ?x where {{ {' . '.join(clauses)} }}")


def variable(number: int) -> str:
    """Return the variable of a query by its number: 0 is what is asked for."""
    return f"?{'xyz'[number]}" if number < 3 else f"?v{number}"


def path_example(row: PathQuestion, *, form: QueryForm = "sparql") -> QueryExample:
    """Make an example of a question and its gold path."""
    subject = entity_name(row.path[0].head)
    query = path_query(subject, [relation_name(triple.relation) for triple in row.path], form=form)
    answers = tuple(dict.fromkeys(map(entity_name, row.answers)))
    return QueryExample(row.id, row.question, query, row.path[0].head, answers, mention_texts(row.question, query))
