"""Queries to a knowledge base: written with names, by a model or a rule, and run only when they are known to be harmless."""

from pytrace.kg.queries.notation import parse_query, parse_triplet, query_names, replace_names, sparql_form, write_query
from pytrace.kg.queries.query_records import GeneratedQuery, Query, QueryForm, SparqlQuery, TripletQuery
from pytrace.kg.queries.sampling import QueryGenerator

__all__ = [
    "GeneratedQuery",
    "Query",
    "QueryForm",
    "QueryGenerator",
    "SparqlQuery",
    "TripletQuery",
    "parse_query",
    "parse_triplet",
    "query_names",
    "replace_names",
    "sparql_form",
    "write_query",
]
