"""Gold paths are read as data sets have them, found by SPARQL or search, checked against the graph, and written whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from pytrace.certify.gold_paths import (
    AbsentTriple,
    check_paths,
    entities_called,
    find_gold_paths,
    gold_paths_from_sparql,
    question_line,
    read_questions,
    read_rows,
    topics_in,
)
from pytrace.check_records import GoldQuestion
from pytrace.cli import common
from pytrace.cli.certify_paths import Paths
from pytrace.cli.commands import click_group
from pytrace.errors import DataError, InputError
from pytrace.kg import KnowledgeBase, compile_triples, read_source
from pytrace.kg.local_store import LocalStore
from pytrace.records import Triple

FILMS = [
    Triple("http://f/kubrick", "http://f/directed", "http://f/shining"),
    Triple("http://f/kubrick", "http://f/directed", "http://f/lolita"),
    Triple("http://f/shining", "http://f/stars", "http://f/Jack_Nicholson"),
    Triple("http://f/lolita", "http://f/stars", "http://f/james_mason"),
    Triple("http://f/shining", "http://f/kind", "http://f/film"),
    Triple("http://f/lolita", "http://f/kind", "http://f/film"),
]
STARS = (
    "SELECT ?x { <http://f/kubrick> <http://f/directed> ?f . ?f <http://f/stars> ?x ; <http://f/kind> <http://f/film> }"
)
ROW = "who ?\tb(b/c/)\ta#r#m#s#b#<end>#b\n"


def base_of(*triples: Triple) -> KnowledgeBase:
    columns = compile_triples(triples)
    return KnowledgeBase(columns, np.zeros((len(columns.triples), 0), dtype=np.float32))


def written(tmp_path: Path, content: str | bytes, name: str = "questions.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def steps(found: tuple[tuple[Triple, ...], ...]) -> list[list[str]]:
    return [[triple.tail.rpartition("/")[2] for triple in path] for path in found]


def test_rows_of_pathquestion_have_path_topic_and_all_answers_the_paths_first(tmp_path: Path) -> None:
    path = written(
        tmp_path, "who is the_a 's  c ?\tc(b/c/)\ta#r#m#s#c#<end>#c\n\nhow ?\tx/y(x/y/)\ta#r#x/y#<end>#x/y\n", "PQ.txt"
    )
    first, second = read_questions(path)
    assert first == GoldQuestion(
        "PQ:1", "who is the a's c?", ("c", "b"), ((Triple("a", "r", "m"), Triple("m", "s", "c")),), ("a",)
    )
    assert (second.id, second.answers[0], len(second.paths[0])) == ("PQ:3", "x/y", 1)
    assert read_questions(path, limit=1) == [first]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("who ?\tb(b/)", "2 columns"),
        ("who ?\tb(b/)\ta#r#b#<end>#c", "the path 'a#r#b#<end>#c'"),
        ("who ?\tb(b/)\ta#r#b", "the path"),
        ("who ?\tb(b/)\ta#r#b#s#<end>#s", "the path"),
        ("who ?\tb(b/)\ta##b#<end>#b", "the path"),
        ("who ?\tb(b/)\t#<end>#", "the path"),
        ("who ?\tc(b/)\ta#r#b#<end>#b", "the answers 'c(b/)'"),
        ("who ?\tb\ta#r#b#<end>#b", "the answers"),
        (" \tb(b/)\ta#r#b#<end>#b", "the answers"),
    ],
)
def test_malformed_rows_of_pathquestion_are_told_with_their_line(tmp_path: Path, row: str, reason: str) -> None:
    path = written(tmp_path, ROW + row + "\n", "PQ.txt")
    with pytest.raises(DataError, match=r"PQ\.txt:2: ") as caught:
        read_questions(path)
    assert reason in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_rows_of_json_have_what_they_name(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "Who?", "answer": "b", "gold_paths": [[["a", "r", "b"]]], "topics": "a", "id": 7},
        {"question": "Who?", "answers": ["b", "c", "b"], "ground_truth_paths": [], "topic_entities": ["a"]},
        {"corrected_question": "Who?", "sparql_query": " ASK { ?s ?p ?o } ", "_id": "x"},
    ]
    path = written(tmp_path, "\n".join(map(json.dumps, rows)))
    first, second, third = read_rows(path)
    assert first.question == GoldQuestion("7", "Who?", ("b",), ((Triple("a", "r", "b"),),), ("a",))
    assert second.question == GoldQuestion("questions:2", "Who?", ("b", "c"), (), ("a",))
    assert (third.question.id, third.question.answers, third.sparql) == ("x", (), "ASK { ?s ?p ?o }")
    assert (first.sparql, third.place.line) == ("", 3)
    listed = written(tmp_path, json.dumps(rows), "rows.json")
    assert [row.question.answers for row in read_rows(listed)] == [("b",), ("b", "c"), ()]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "object"),
        ({"answer": "b"}, "no question"),
        ({"question": " "}, "no question"),
        ({"question": 5}, "no question"),
        ({"question": "q", "answers": 5}, "`answers` must be a string or a list of strings"),
        ({"question": "q", "answers": ["a", None]}, "`answers` must be a string or a list of strings"),
        ({"question": "q", "topics": {"a": "b"}}, "`topics` must be a string or a list of strings"),
        ({"question": "q", "gold_paths": "a"}, "`gold_paths` must be a list of paths"),
        ({"question": "q", "gold_paths": [["a", "r", "b"]]}, "`gold_paths[0][0]` must be [head, relation, tail]"),
        (
            {"question": "q", "gold_paths": [[["a", "r", "b"]], [[]]]},
            "`gold_paths[1][0]` must be [head, relation, tail]",
        ),
        ({"question": "q", "gold_paths": [[["a", "r"]]]}, "`gold_paths[0][0]` must be [head, relation, tail]"),
        ({"question": "q", "gold_paths": [[["a", " ", "b"]]]}, "`gold_paths[0][0]` must be [head, relation, tail]"),
        ({"question": "q", "gold_paths": [[["a", "r", 5]]]}, "`gold_paths[0][0]` must be [head, relation, tail]"),
        ({"question": "q", "sparql": ["ASK"]}, "its SPARQL query is a list"),
        ({"question": "q", "id": [1]}, "its id is a list"),
        ({"question": "q", "id": True}, "its id is a bool"),
        ({"question": "q", "id": "one"}, "the id 'one' stands at"),
    ],
)
def test_malformed_rows_of_json_are_told_with_their_line(
    tmp_path: Path, row: str | dict[str, Any], reason: str
) -> None:
    text = row if isinstance(row, str) else json.dumps(row)
    path = written(tmp_path, '{"question": "q", "id": "one"}\n' + text)
    with pytest.raises(DataError, match=r"questions\.jsonl:2: ") as caught:
        read_questions(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b"who ?\xff\tb(b/)\ta#r#b#<end>#b", b"\x00" * 99])
def test_files_that_hold_no_question_are_an_error(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content, "PQ.txt")
    with pytest.raises(DataError, match=r"PQ\.txt"):
        read_questions(path)


def test_missing_files_and_limits_below_one_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none"):
        read_questions(tmp_path / "none.txt")
    with pytest.raises(DataError):
        read_questions(tmp_path)
    with pytest.raises(InputError, match="limit is 0"):
        read_questions(written(tmp_path, ROW, "PQ.txt"), limit=0)


def test_questions_are_read_as_they_were_written(tmp_path: Path) -> None:
    questions = [
        GoldQuestion("1", "Wer?\n", ("b",), ((Triple("a", "r", "m"), Triple("m", "s", "b")),), ("a",)),
        GoldQuestion("2", "東京?", (), (), ()),
    ]
    path = written(tmp_path, b"".join(map(question_line, questions)))
    assert read_questions(path) == questions
    with pytest.raises(InputError, match="lone surrogate"):
        question_line(GoldQuestion("1", "\ud800", ()))


def opened(folder: Path, triples: list[Triple]) -> LocalStore:
    path = folder / "graph.tsv"
    path.write_text("".join(f"{triple.head}\t{triple.relation}\t{triple.tail}\n" for triple in triples))
    return LocalStore.open(path)


@pytest.fixture(scope="module")
def film_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    with opened(tmp_path_factory.mktemp("films"), FILMS) as store:
        yield store


def test_paths_of_a_query_lead_from_topics_to_answers_and_mix_no_solutions(film_store: LocalStore) -> None:
    found = gold_paths_from_sparql(film_store, STARS, topics=["http://f/kubrick"], answers=["http://f/Jack_Nicholson"])
    # In the graph of all solutions there is also kubrick, lolita, film, shining, Jack Nicholson.
    assert steps(found.paths) == [["shining", "Jack_Nicholson"]]
    assert (found.reason, found.stopped) == ("", "")
    assert set(found.paths[0]) <= set(FILMS)


def test_topics_and_answers_may_be_names_or_left_out(film_store: LocalStore) -> None:
    named = gold_paths_from_sparql(film_store, STARS, topics=["Kubrick"], answers=["jack nicholson"])
    assert steps(named.paths) == [["shining", "Jack_Nicholson"]]
    free = gold_paths_from_sparql(film_store, STARS, topics=["kubrick"])
    assert steps(free.paths) == [["lolita", "james_mason"], ["shining", "Jack_Nicholson"]]
    all_constants = gold_paths_from_sparql(film_store, STARS)
    assert {path[0] for path in all_constants.paths} == {FILMS[0], FILMS[1], FILMS[4], FILMS[5]}


def test_a_path_may_come_back_to_the_topic_where_that_is_the_answer(tmp_path: Path) -> None:
    couple = [Triple("urn:a/b", "urn:spouse", "urn:a/c"), Triple("urn:a/c", "urn:spouse", "urn:a/b")]
    store = opened(tmp_path, couple)
    query = "SELECT ?x { <urn:a/b> <urn:spouse>/<urn:spouse> ?x }"
    found = gold_paths_from_sparql(store, query, topics=["urn:a/b"], answers=["urn:a/b"])
    assert tuple(couple) in found.paths
    assert all(len(set(path)) == len(path) == 2 for path in found.paths)


@pytest.mark.parametrize(
    ("query", "topics", "answers", "reason"),
    [
        ("SELECT ?x { <http://f/nobody> ?p ?x }", [], [], "matches nothing"),
        (STARS, ["Hitchcock"], [], "no topic of the question"),
        (STARS, [], ["Hitchcock"], "no answer of the question"),
        (STARS, ["Hitchcock"], ["Hitchcock"], "no topic and answer"),
        ("ASK { <http://f/kubrick> ?p ?x }", [], [], "no answer"),
        ("SELECT ?x { ?y ?p ?x . ?x (!<urn:x>)+ ?z }", [], ["nobody"], "property paths left out"),
    ],
)
def test_the_reason_is_told_where_there_is_no_path(
    film_store: LocalStore, query: str, topics: list[str], answers: list[str], reason: str
) -> None:
    found = gold_paths_from_sparql(film_store, query, topics=topics, answers=answers)
    assert found.paths == ()
    assert reason in found.reason


def test_limits_are_told_and_arguments_checked(film_store: LocalStore) -> None:
    found = gold_paths_from_sparql(film_store, STARS, topics=["kubrick"], limit=1)
    assert (len(found.paths), found.stopped) == (1, "more than 1 paths")
    assert gold_paths_from_sparql(film_store, STARS, topics=["kubrick"], max_hops=1).reason.startswith(
        "no path of up to 1"
    )
    with pytest.raises(InputError, match="limit is 0"):
        gold_paths_from_sparql(film_store, STARS, limit=0)
    with pytest.raises(InputError, match="changes data"):
        gold_paths_from_sparql(film_store, "DROP ALL")


def test_a_query_without_end_is_ended(tmp_path: Path) -> None:
    ring = [Triple(f"urn:n/{at}", "urn:r", f"urn:n/{(at * 7 + step) % 90}") for at in range(90) for step in range(9)]
    # 10^14 solutions, of which none is kept: neither the time nor the memory would suffice.
    size = " + ".join(f"STRLEN(STR(?a{at}))" for at in range(5))
    query = f"SELECT ?a0 {{ {' '.join(f'?a{at} <urn:r> ?b{at} .' for at in range(5))} FILTER({size} = 1) }}"
    with opened(tmp_path, ring) as store:
        found = gold_paths_from_sparql(store, query, topics=["urn:n/1"], answers=["urn:n/2"], seconds=0.5)
        assert found.stopped == "more than 0.5 seconds"
        # The store is there still.
        assert gold_paths_from_sparql(store, "SELECT ?x { <urn:n/1> <urn:r> ?x }").paths


def test_solutions_of_many_triples_have_the_same_paths_as_those_of_few(tmp_path: Path) -> None:
    chain = [Triple(f"urn:n/{at}", "urn:r", f"urn:n/{at + 1}") for at in range(16)]
    store = opened(tmp_path, chain)
    query = "SELECT ?v16 { " + " ".join(f"?v{at} <urn:r> ?v{at + 1} ." for at in range(16)) + " }"
    found = gold_paths_from_sparql(store, query, topics=["urn:n/13"], answers=["urn:n/16"])
    assert found.paths == (tuple(chain[13:]),)


def test_a_search_finds_the_shortest_paths_by_key_or_name() -> None:
    base = base_of(*FILMS)
    found = find_gold_paths(base, ["Kubrick"], ["http://f/Jack_Nicholson"])
    assert steps(found.paths) == [["shining", "Jack_Nicholson"]]
    assert find_gold_paths(base, ["kubrick"], ["film"], limit=1).stopped == "more than 1 paths"
    assert "no topic" in find_gold_paths(base, ["Hitchcock"], ["film"]).reason
    assert "up to 1" in find_gold_paths(base, ["kubrick"], ["film"], max_hops=1).reason


def test_entities_are_called_by_key_first_and_else_by_the_whole_name() -> None:
    base = base_of(Triple("Ada_Foah", "in", "ghana"), Triple("ada foah", "in", "ada"), Triple("!!!", "in", "x"))
    assert entities_called(base, ["ada foah"]) == [base.entity("ada foah")]
    assert entities_called(base, ["ADA FOAH"]) == [base.entity("Ada_Foah"), base.entity("ada foah")]
    assert entities_called(base, ["Ada Foah in Ghana", "", "nobody"]) == []
    assert entities_called(base, []) == []


def test_triples_that_are_no_facts_are_told_with_their_place() -> None:
    base = base_of(Triple("a", "r", "b"), Triple("b", "s", "c"))
    good, turned, wrong = Triple("a", "r", "b"), Triple("c", "s", "b"), Triple("b", "r", "c")
    questions = [GoldQuestion("1", "?", (), ((good,), (good, turned))), GoldQuestion("2", "?", (), ((wrong,),))]
    assert check_paths(base, questions) == (
        AbsentTriple("1", 1, 1, turned, reversed=True),
        AbsentTriple("2", 0, 0, wrong, reversed=False),
    )
    assert check_paths(base, []) == ()


@pytest.mark.data
def test_pathquestions_paths_are_facts_and_its_queries_find_them_again(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "pathquestion"
    questions = read_questions(folder / "PQ-2H.txt")
    assert (len(questions), {len(question.paths[0]) for question in questions}) == (1908, {2})
    source = tmp_path / "kb.tsv"
    source.write_bytes((folder / "2H-kb.txt").read_bytes())
    store = LocalStore.open(source)
    base = base_of(*read_source(source).triples)
    assert check_paths(base, questions) == ()
    for question in questions[::40]:
        [first, second] = question.paths[0]
        start = f"<urn:pytrace:entity:{quote(first.head, safe='')}>"
        relations = "/".join(f"<urn:pytrace:relation:{quote(step.relation, safe='')}>" for step in (first, second))
        found = gold_paths_from_sparql(
            store, f"SELECT ?x {{ {start} {relations} ?x }}", topics=question.topics, answers=question.answers
        )
        assert question.paths[0] in found.paths
        assert all(path[-1].tail in question.answers or path[-1].head in question.answers for path in found.paths)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process."""
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    group = click_group("Certify.", Paths)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(group, ["paths", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


@pytest.fixture
def films(tmp_path: Path) -> Path:
    lines = (f"<{one.head}> <{one.relation}> <{one.tail}> .\n" for one in FILMS)
    return written(tmp_path, "".join(lines), "films.nt")


def test_rows_are_written_with_their_paths_and_the_others_are_told(run: Run, tmp_path: Path, films: Path) -> None:
    rows = [
        {"id": "query", "question": "Who?", "answers": ["Jack Nicholson"], "topics": ["kubrick"], "sparql": STARS},
        {"id": "search", "question": "Who?", "answers": ["James Mason"], "topics": ["kubrick"]},
        {
            "id": "given",
            "question": "Who?",
            "gold_paths": [[["http://f/shining", "http://f/directed", "http://f/kubrick"]]],
        },
        {"id": "bad", "question": "Who?", "sparql": "SELECT ?x { "},
        {"id": "bare", "question": "Who?", "answers": ["film"]},
    ]
    data = written(tmp_path, "\n".join(map(json.dumps, rows)))
    out = tmp_path / "new" / "gold.jsonl"
    status, told, notes = run("--kg", films, "--data", data, "--out", out)
    assert status == 0
    assert [steps(question.paths) for question in read_questions(out)] == [
        [["shining", "Jack_Nicholson"]],
        [["lolita", "james_mason"]],
        [["kubrick"]],
        [],
        [],
    ]
    assert "3 of 5 questions have gold paths, 3 in all" in told
    assert "ends before '}'" in notes
    assert "no topics" in notes
    assert "1 triples of gold paths are no facts of the graph, for instance given" in notes
    assert "exchanged" in notes
    assert [path.name for path in out.parent.iterdir()] == ["gold.jsonl"]

    status, told, _ = run("--kg", films, "--data", data, "--out", out, "--json", "--limit", 2)
    document = json.loads(told)
    assert (status, document["questions"], document["with_paths"], document["absent"]) == (0, 2, 2, [])
    assert [(one["way"], one["paths"], one["reason"]) for one in document["outcomes"]] == [
        ("sparql", 1, ""),
        ("search", 1, ""),
    ]


@pytest.mark.parametrize(
    ("graph", "data"),
    [
        ("<urn:a> <urn:b> .", '{"question": "q", "sparql": "ASK {?s ?p ?o}"}'),
        ("", '{"question": "q"}'),
        ("<urn:a> <urn:b> <urn:c> .", '{"question": 5}'),
        ("<urn:a> <urn:b> <urn:c> .", ""),
    ],
)
def test_broken_input_writes_nothing(run: Run, tmp_path: Path, graph: str, data: str) -> None:
    kg, rows, out = written(tmp_path, graph, "kg.nt"), written(tmp_path, data), tmp_path / "out.jsonl"
    out.write_text("before", encoding="utf-8")
    status, told, notes = run("--kg", kg, "--data", rows, "--out", out)
    assert (status, told, out.read_text(encoding="utf-8")) == (2, "", "before")
    assert notes.startswith("pytrace: ")
    assert notes.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kg.nt", "out.jsonl", "questions.jsonl"]


def test_a_folder_is_no_file_for_the_rows(run: Run, tmp_path: Path, films: Path) -> None:
    data = written(tmp_path, '{"question": "q"}')
    status, _, notes = run("--kg", films, "--data", data, "--out", tmp_path)
    assert status == 2
    assert "is a folder" in notes


FREEBASE = """
@prefix : <http://rdf.freebase.com/ns/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:m.1 :film.directed :m.2 . :m.2 :film.starring :m.3 . :m.3 :film.actor.since "1950" . :m.4 :film.directed :m.5 .
:m.1 rdfs:label "Stanley Kubrick"@en . :m.3 rdfs:label "Jack Nicholson"@en .
"""
GRAILQA = {
    "qid": 2100,
    "question": "who stars in what stanley kubrick directed?",
    "answer": [{"answer_type": "Entity", "answer_argument": "m.3", "entity_name": "Jack Nicholson"}],
    "graph_query": {
        "nodes": [
            {"nid": 0, "node_type": "class", "id": "film.actor", "question_node": 1},
            {"nid": 1, "node_type": "entity", "id": "m.1", "friendly_name": "Stanley Kubrick", "question_node": 0},
        ],
        "edges": [],
    },
    "sparql_query": (
        "PREFIX : <http://rdf.freebase.com/ns/> \nSELECT (?x0 AS ?value) WHERE {\nSELECT DISTINCT ?x0  WHERE { \n"
        "VALUES ?x1 { :m.1 } \n?x1 :film.directed ?x2 . ?x2 :film.starring ?x0 . \nFILTER ( ?x0 != ?x1 )\n}\n}"
    ),
}
WEB = {
    "ID": "CWQ-1",
    "question": "who stars in what stanley kubrick directed?",
    "compositionality_type": "composition",
    "answers": [{"answer_id": "m.3", "answer": "Jack Nicholson", "aliases": ["Jack"]}],
    "sparql": (
        "PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x\nWHERE {\nFILTER (?x != ns:m.1)\nns:m.1 ns:film.directed ?y .\n"
        '?y ns:film.starring ?x .\n?x ns:film.actor.since ?s . FILTER(xsd:integer(?s) <= "1960"^^xsd:integer)\n}'
    ),
}


@pytest.mark.parametrize("row", [GRAILQA, WEB], ids=["GrailQA", "ComplexWebQuestions"])
def test_rows_of_freebase_get_their_paths(tmp_path: Path, row: dict[str, Any]) -> None:
    graph = written(tmp_path, FREEBASE, "freebase.ttl")
    [found] = read_rows(written(tmp_path, json.dumps(row) + "\n"))
    with LocalStore.open(graph) as store:
        paths = gold_paths_from_sparql(
            store, found.sparql, topics=found.question.topics, answers=found.question.answers
        ).paths
    assert steps(paths) == [["m.2", "m.3"]]
    assert "Jack Nicholson" in found.question.answers


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"graph_query": [1]}, "graph_query"),
        ({"graph_query": {"nodes": 3}}, "list of nodes"),
        ({"sparql_query": 3}, "sparql_query"),
        ({"answer": "m.3"}, "answer"),
    ],
)
def test_a_row_of_grailqa_that_is_none_is_told(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_rows(written(tmp_path, json.dumps({**GRAILQA, **change}) + "\n"))


def test_topics_are_the_entities_that_a_question_names_but_for_its_answers() -> None:
    base = base_of(Triple("Ada_Foah", "country", "Ghana"), Triple("Ghana", "capital", "Accra"))
    question = GoldQuestion("1", "Is Accra the capital of the country of Ada Foah?", ("accra",))
    assert topics_in(base, question) == ("Ada_Foah",)
