"""Questions whose queries are known: from PathQuestion, from LC-QuAD, or from rows in the format of `write_questions`.

Such a row is a JSON object ``{"question", "query", "answers"?, "group"?, "id"?}``. LC-QuAD's queries are SPARQL over DBpedia,
whose IRIs become names.

Sources: Zhou et al., "An Interpretable Reasoning Network for Multi-Relation Question Answering" (COLING 2018), PathQuestion;
Trivedi et al., "LC-QuAD: A Corpus for Complex Question Answering over Knowledge Graphs" (ISWC 2017).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

import msgspec

from pytrace.documents.json_rows import json_rows
from pytrace.documents.path_questions import PathQuestion, looks_like_path_questions, read_path_questions
from pytrace.documents.rows import id_of, strings, wrong_type
from pytrace.documents.sentences import clean_text
from pytrace.documents.text_files import Place
from pytrace.errors import DataError, InputError
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.queries import Query, QueryForm, SparqlQuery, TripletQuery, parse_query, sparql_form, write_query
from pytrace.kg.queries.notation import write_name
from pytrace.kg.sparql_tokens import Token, tokens_of
from pytrace.storage.files import atomic_output
from pytrace.storage.text import storable
from pytrace.training.query_text import check_query, mention_texts, one_line, query_entities, triplet_form

ExampleFormat = Literal["auto", "pathquestion", "lcquad", "pytrace"]
"""What `read_examples` reads."""

_LEFT_OUT = ": left out: "
_RESOURCE = "http://dbpedia.org/resource/"
_CLASSES = "http://dbpedia.org/ontology/"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
# LC-QuAD counts as no standard allows; SPARQL 1.1 wants brackets and a variable for the number.
_COUNTS = (
    ("distinct count ( ?x )", "(count(distinct ?x) as ?count)"),
    ("count ( distinct ?x )", "(count(distinct ?x) as ?count)"),
    ("count ( ?x )", "(count(?x) as ?count)"),
)


class QueryExample(msgspec.Struct, frozen=True):
    """A question and the query that answers it."""

    id: str
    question: str
    query: Query
    group: str  # what must not stand on both sides of a split, such as the entity that the question is about
    answers: tuple[str, ...] = ()  # by name; empty where they are not known
    mentions: tuple[str, ...] = ()  # the names in the query as the question writes them


def read_examples(
    source: str | os.PathLike[str],
    *,
    format: ExampleFormat = "auto",
    form: QueryForm = "sparql",
    left_out: list[str] | None = None,
) -> list[QueryExample]:
    """Read the questions of a file with their queries.

    `left_out` takes a note for each row that makes no example, since its query could not be run or does not fit the form.
    """
    # Chain of Knowledge, section 4.2, trains on LC-QuAD and KQA Pro.
    for name, value, choices in (("format", format, get_args(ExampleFormat)), ("form", form, get_args(QueryForm))):
        if value not in choices:
            raise InputError(f"{name} {value!r} is unknown; choose one of {', '.join(choices)}")
    path = Path(source)
    notes = [] if left_out is None else left_out
    examples: dict[str, tuple[Place, QueryExample]] = {}
    for place, make in _rows(path, format, form):
        try:
            example = make()
        except DataError:  # the row itself is broken, and not only of no use
            raise
        except InputError as error:
            notes.append(f"{place}{_LEFT_OUT}{error}")
            continue
        first_place, _ = examples.setdefault(example.id, (place, example))
        if first_place is not place:
            raise place.error(
                f"the id {example.id[:80]!a} also stands at {first_place}; give each question an id of its own"
            )
    if not examples:
        # Without its remedy, for this error has its own.
        first = notes[0].partition(_LEFT_OUT)[2].rpartition(";")[0] if notes else ""
        reason = f", for {len(notes):,} rows were left out, the first because {first}" if first else ""
        remedy = "use the form sparql" if form == "triplet" and first else "give rows with questions and queries"
        raise DataError(f"holds no example of the form {form}{reason}; {remedy}", path=path)
    return [example for _, example in examples.values()]


def write_questions(path: str | os.PathLike[str], examples: Iterable[QueryExample]) -> None:
    """Write examples as rows, in one step, so that `read_examples` and `pytrace eval` read them."""
    with atomic_output(Path(path)) as stream:
        for example in examples:
            row: dict[str, object] = {"id": storable(example.id), "question": storable(example.question)}
            if example.answers:
                row["answers"] = [storable(answer) for answer in example.answers]
            row["query"] = storable(write_query(example.query))
            row["group"] = storable(example.group)
            stream.write(msgspec.json.encode(row) + b"\n")


def _rows(path: Path, format: ExampleFormat, form: QueryForm) -> Iterator[tuple[Place, Callable[[], QueryExample]]]:
    """Yield where each row stands, and what makes an example of it."""
    if format == "pathquestion" or (format == "auto" and looks_like_path_questions(path)):
        for place, path_row in read_path_questions(path):
            yield place, partial(path_example, path_row, form=form)
        return
    for place, row in json_rows(path):
        if format == "auto":
            format = _format_of(row, place)
        yield place, partial(lcquad_example if format == "lcquad" else _query_row_example, row, place, form=form)


def _format_of(row: dict[str, Any], place: Place) -> ExampleFormat:
    if "sparql_query" in row:
        return "lcquad"
    if "query" in row:
        return "pytrace"
    fields = ", ".join(clean_text(name)[:20] for name in list(row)[:6]) or "none"
    raise place.error(
        f"the format of this file is not known (fields: {fields}); a row has `question` and `query`, or LC-QuAD's "
        "`corrected_question` and `sparql_query`"
    )


def path_example(row: PathQuestion, *, form: QueryForm = "sparql") -> QueryExample:
    """Make an example of a question and its gold path."""
    query = path_query(entity_name(row.path[0].head), [relation_name(step.relation) for step in row.path], form=form)
    answers = tuple(dict.fromkeys(map(entity_name, row.answers)))
    return QueryExample(row.id, row.question, query, row.path[0].head, answers, mention_texts(row.question, query))


def lcquad_example(row: dict[str, Any], place: Place, *, form: QueryForm = "sparql") -> QueryExample:
    """Make an example of a row of LC-QuAD."""
    question, sparql = (_text(row, field, place) for field in ("corrected_question", "sparql_query"))
    question = clean_text(question)
    # Data of others may hold rows that nobody can learn from: they are counted, and no error.
    if not question:
        raise InputError("the question has no words; correct it, or remove the row")
    query: Query = named_query(sparql)
    if form == "triplet":
        query = triplet_form(query)
    check_query(query)
    return _row_example(id_of(row, place, "_id", "id"), question, query, place)


def _query_row_example(row: dict[str, Any], place: Place, *, form: QueryForm) -> QueryExample:
    """Make an example of a row in the format of `write_questions`, which its owner can mend: what is wrong is an error."""
    question, text, group = (_text(row, field, place) for field in ("question", "query", "group"))
    for field, value in (("question", question), ("query", text)):
        if not value.strip():
            raise place.error(f"`{field}` is empty; give it words, or remove the row")
    question = clean_text(question)
    if not question:
        raise place.error("`question` has no words; give it some, or remove the row")
    try:
        query = parse_query(one_line(text))
        check_query(query)
    except InputError as error:
        raise place.error(str(error)) from None
    query = triplet_form(query) if form == "triplet" else sparql_form(query)
    gold = row.get("answers")
    answers = [] if gold is None else [gold] if isinstance(gold, str) else strings(gold, "answers", place)
    return _row_example(
        id_of(row, place, "id", "_id"), question, query, place, group, dict.fromkeys(map(clean_text, answers))
    )


def _row_example(
    id: str, question: str, query: Query, place: Place, group: str = "", answers: Iterable[str] = ()
) -> QueryExample:
    return QueryExample(
        id or f"{place.path.stem}:{place.line or place.item or 0}",
        question,
        query,
        group or " | ".join(sorted(query_entities(query))) or question,
        tuple(filter(None, answers)),
        mention_texts(question, query),
    )


def _text(row: dict[str, Any], field: str, place: Place) -> str:
    value = row.get(field, "" if field == "group" else None)
    if not isinstance(value, str):
        raise place.error(wrong_type(field, value, "a string"))
    return value


def path_query(subject: str, relations: Sequence[str], *, form: QueryForm = "sparql") -> Query:
    """Write the query for what lies at the end of a path."""
    if not relations or (form == "triplet" and len(relations) > 1):
        most = "exactly 1" if form == "triplet" else "at least 1"
        raise InputError(f"a path of {len(relations)} relations is no query of the form {form}; give {most}")
    if form == "triplet":
        return parse_query(TripletQuery(subject, relations[0], "?").text)
    nodes = [write_name("entity", subject), *map(variable, range(1, len(relations))), "?x"]
    steps = zip(nodes, relations, nodes[1:], strict=False)
    clauses = (f"{head} {write_name('relation', relation)} {tail}" for head, relation, tail in steps)
    return SparqlQuery(f"select distinct ?x where {{ {' . '.join(clauses)} }}")


def variable(number: int) -> str:
    """Return the variable of a query by its number: 0 is what is asked for."""
    return f"?{'xyz'[number]}" if number < 3 else f"?v{number}"


def named_query(sparql: str) -> SparqlQuery:
    """Write a query over DBpedia with names."""
    tokens = tokens_of(sparql)
    variables = dict.fromkeys(token.text for token in tokens if token.kind == "variable")
    renamed = {text: variable(number) for number, text in enumerate(variables)}
    written: list[str] = []
    # An IRI within braces is a relation where it is the second term of its triple; a semicolon keeps the first.
    depth = terms = 0
    for index, token in enumerate(tokens):
        if token.kind == "mark":
            depth += (token.text == "{") - (token.text == "}")
            terms = 0 if token.text in {"{", "}", "."} else 1 if token.text == ";" else terms
            if token.text != "." or index + 1 == len(tokens) or tokens[index + 1].text != "}":
                written.append(token.text)
            continue
        terms += token.kind != "word" or token.text == "a"
        match token.kind:
            case "iri":
                written.append(_iri_name(token, is_relation=depth > 0 and terms == 2))
            case "variable":
                written.append(renamed[token.text])
            case "word":
                written.append(token.text.lower())
            case _:
                written.append(token.text)
    query = " ".join(written)
    for words, count in _COUNTS:
        query = query.replace(words, count, 1) if query.startswith(f"select {words} where") else query
    return SparqlQuery(query.replace("ask where", "ask", 1) if query.startswith("ask where") else query)


def _iri_name(token: Token, *, is_relation: bool) -> str:
    iri = token.text[1:-1]
    if is_relation:
        return write_name("relation", "type" if iri == _TYPE else relation_name(iri))
    # A slash or a colon within what follows is a part of the name, as in AC/DC.
    if iri.startswith(_RESOURCE):
        name = " ".join(unquote(iri.removeprefix(_RESOURCE), errors="replace").replace("_", " ").split())
    else:  # classes are written as relations are: TelevisionShow
        name = relation_name(iri) if iri.startswith(_CLASSES) else entity_name(iri)
    return write_name("entity", name)
