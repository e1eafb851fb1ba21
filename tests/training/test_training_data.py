"""What a query generator learns from: reading, splitting, sampling and varying examples, and the texts they become."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from urllib.parse import quote

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import DataError, InputError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.kg.names import entity_name, normal_form, relation_name
from pytrace.kg.queries import SparqlQuery, TripletQuery, parse_query, query_names, replace_names, write_query
from pytrace.records import Triple
from pytrace.training.encoding import training_text
from pytrace.training.examples import QueryExample, path_query, read_examples, write_questions
from pytrace.training.graph_samples import WORDINGS, question_word, sample_examples, word_question
from pytrace.training.query_text import find_clauses, find_mentions, one_line, query_entities, query_shape, split_query
from pytrace.training.run import split_by_group
from pytrace.training.variation import NameMaker, vary_names, vary_writing
from pytrace.training.wrong_queries import WrongQuery
from tests.query_entities import seen_share

PATHS = """\
who rules ada_foah 's land ?\tmary(mary/)\tada_foah#lies_in#ghana#ruler#mary#<end>#mary
the river of kumasi ?\tsubin(subin/oda/)\tkumasi#river#subin#<end>#subin
what is the mouth of kumasi 's land 's river ?\tblue_gulf(blue_gulf/)\tkumasi#lies_in#ghana#river#volta#mouth#blue_gulf#<end>#blue_gulf
"""

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=20).filter(str.strip)


def example(question: str, query: str, *, id: str = "1", group: str = "g") -> QueryExample:
    return QueryExample(id, question, parse_query(query), group)


@pytest.fixture
def paths(tmp_path: Path) -> Path:
    path = tmp_path / "towns.txt"
    path.write_text(PATHS)
    return path


def test_paths_of_any_length_become_queries_whose_last_variable_is_x(paths: Path) -> None:
    left_out: list[str] = []
    found = read_examples(paths, left_out=left_out)
    assert [write_query(each.query) for each in found] == [
        "select distinct ?x where { entity:/ada foah/ relation:/lies in/ ?y . ?y relation:/ruler/ ?x }",
        "select distinct ?x where { entity:/kumasi/ relation:/river/ ?x }",
        "select distinct ?x where { entity:/kumasi/ relation:/lies in/ ?y . ?y relation:/river/ ?z . ?z relation:/mouth/ ?x }",
    ]
    assert [each.group for each in found] == ["ada_foah", "kumasi", "kumasi"]
    assert [each.answers for each in found] == [("mary",), ("subin", "oda"), ("blue gulf",)]
    assert found[0].question == "who rules ada foah's land?"
    assert found[0].mentions == ("ada foah",)
    assert left_out == []
    assert [query_shape(each.query) for each in found] == ["select 2", "select 1", "select 3"]


def test_only_paths_of_one_step_become_triplets(paths: Path) -> None:
    left_out: list[str] = []
    [found] = read_examples(paths, form="triplet", left_out=left_out)
    assert found.query == TripletQuery("kumasi", "river", "?")
    assert len(left_out) == 2
    assert f"{paths}:1" in left_out[0]


def test_a_file_without_a_triplet_is_an_error_that_says_why(tmp_path: Path) -> None:
    path = tmp_path / "towns.txt"
    path.write_text(PATHS.splitlines()[0])
    with pytest.raises(
        DataError, match=r"towns\.txt: holds no example of the form triplet, for 1 rows .* use the form sparql"
    ):
        read_examples(path, form="triplet")


def test_rows_of_ones_own_are_told_by_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [
        {"question": " capital of\nGhana? ", "query": "<Ghana; capital; ?>", "answers": "Accra"},
        {"question": "rivers?", "query": "select ?x # all\nwhere { ?x a entity:/River/ }", "id": "r", "group": "water"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_examples(path)
    assert first == QueryExample(
        "own:1",
        "capital of Ghana?",
        SparqlQuery("select distinct ?x where { entity:/Ghana/ relation:/capital/ ?x }"),
        "Ghana",
        ("Accra",),
        ("Ghana",),
    )
    assert (second.id, second.group, second.query.text) == ("r", "water", "select ?x where { ?x a entity:/River/ }")
    [triplet] = read_examples(path, form="triplet")
    assert triplet.query == TripletQuery("Ghana", "capital", "?")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "a?", "query": "drop all"}, "neither a triplet"),
        ({"question": "a?", "query": "select ?x where { entity:/a/ "}, "close what it opens"),
        ({"question": "a?", "query": "select ?x where { service <urn:s> { ?x ?p ?y } }"}, "SERVICE"),
        ({"question": "a?", "query": "select ?x where { entity:/ / relation:/b/ ?x }"}, "blank"),
        ({"question": "a?", "query": "<a; b; c>"}, r"must have a \?"),
        ({"question": " \x00 ", "query": "<a; b; ?>"}, "no words"),
        ({"question": "a?", "query": 3}, "`query`"),
        ({"question": "a?", "query": " "}, "empty"),
        ({"question": None, "query": "<a; b; ?>"}, "`question`"),
        ({"question": "a?", "query": "<a; b; ?>", "answers": [1]}, "answers"),
        ({"question": "a?", "query": "<a; b; ?>", "group": 1}, "`group`"),
        ({"text": "a"}, "fields: text"),
    ],
)
def test_a_bad_row_is_an_error_with_its_line(tmp_path: Path, row: dict[str, object], said: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"question": "b?", "query": "<b; c; ?>"}) + "\n" + json.dumps(row))
    if "text" in row:
        path.write_text("\n" + json.dumps(row))
    with pytest.raises(DataError, match=rf"(?s)own\.jsonl:2: .*{said}"):
        read_examples(path)


def test_two_rows_with_one_id_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"id":"1","question":"a?","query":"<a; b; ?>"}\n' * 2)
    with pytest.raises(DataError, match=r":2: the id '1' also stands at .*:1;"):
        read_examples(path)


@pytest.mark.parametrize(("option", "value"), [("format", "csv"), ("form", "sql")])
def test_an_unknown_format_or_form_is_an_error(paths: Path, option: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{option} '{value}' is unknown; choose one of"):
        read_examples(paths, **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]", b'{"question": "a?"', b"\xff\xfe", b"a\tb\n", b"\x00"])
def test_broken_files_are_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.jsonl"):
        read_examples(path)


@pytest.mark.parametrize(
    ("relations", "form"), [([], "sparql"), (["a", "b"], "triplet"), ([" "], "sparql"), ([" "], "triplet")]
)
def test_paths_that_are_no_query_are_refused(relations: list[str], form: str) -> None:
    with pytest.raises(InputError):
        path_query("ada", relations, form=form)  # type: ignore[arg-type]


@given(names, st.lists(names, min_size=1, max_size=5))
def test_any_names_survive_in_the_query_of_a_path(subject: str, relations: list[str]) -> None:
    query = path_query(subject, relations)
    assert query_names(parse_query(write_query(query))) == (
        (subject.strip(),),
        tuple(dict.fromkeys(name.strip() for name in relations)),
    )


@pytest.mark.parametrize(
    ("question", "name", "mention"),
    [
        ("the mouth of ada foah's river?", "Ada Foah", "ada foah"),
        ("who wrote The  Dark-Tower?", "The Dark Tower", "The  Dark-Tower"),
        ("a book by Anna Berg (officer)?", "Anna Berg (officer)", "Anna Berg (officer)"),
        ("a book by Anna Berg", "Anna Berg (officer)", "Anna Berg"),
        ("who governs ada foah?", "Ada Foah, Ghana", "ada foah"),
        ("which river flows into blackvolta?", "Black Volta", "blackvolta"),
        ("what did Karolin Steinholm's wife play?", "Karoline Steinholm", "Karolin Steinholm"),
        ("what did karoln steinholm's wife play?", "Karoline Steinholm", "karoln steinholm"),
        ("加纳的首都是什么?", "加纳", "加纳"),
        ("is canada old?", "Ada", None),
        ("where?", "Ada Foah", None),
        ("where?", "?!", None),
        ("", "Ada", None),
        ("İİİİ where is ada foa?", "Ada Foah", None),
    ],
)
def test_a_name_is_found_where_the_question_writes_it(question: str, name: str, mention: str | None) -> None:
    [spans] = find_mentions(question, [name])
    assert [question[start:end] for start, end in spans] == ([] if mention is None else [mention])


def test_a_name_within_a_longer_one_is_not_found_there() -> None:
    question = "is Ada Foah nearer to Ada?"
    places = find_mentions(question, ["Ada", "Ada Foah"])
    assert [[tuple(span) for span in spans] for spans in places] == [[(22, 25)], [(3, 11)]]


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=4))
def test_mentions_lie_within_the_question_and_apart(question: str, wanted: list[str]) -> None:
    spans = [span for places in find_mentions(question, wanted) for span in places]
    assert all(0 <= start < end <= len(question) for start, end in spans)
    spans.sort()
    assert all(first.end <= second.start for first, second in itertools.pairwise(spans))


@given(st.text(max_size=80))
def test_any_text_is_split_without_losing_a_sign(text: str) -> None:
    tokens = split_query(text)
    assert all(text[token.start : token.end] == token.text for token in tokens)
    between = [
        text[a:b] for a, b in zip([0, *(t.end for t in tokens)], [*(t.start for t in tokens), len(text)], strict=True)
    ]
    assert all(not gap.strip() or "#" in gap for gap in between)
    find_clauses(tokens)


def test_names_with_brackets_points_and_slashes_are_single_tokens() -> None:
    text = "ask { entity:/A. {B}\\/C?/ relation:/is a/ 'x . y' . ?z a <urn:a.b> }"
    tokens = split_query(text)
    assert tokens[2].name == "A. {B}/C?"
    assert [tuple(tokens[at].text for at in clause) for clause in find_clauses(tokens)] == [
        ("entity:/A. {B}\\/C?/", "relation:/is a/", "'x . y'"),
        ("?z", "a", "<urn:a.b>"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "ask { ?x relation:/a/ ?y ; relation:/b/ ?z }",
        "ask { ?x relation:/a/+ ?y }",
        "ask { ?x relation:/a/ [] }",
        "ask { filter(?x = 3) }",
    ],
)
def test_what_is_no_plain_triple_pattern_is_passed_over(text: str) -> None:
    assert find_clauses(split_query(text)) == []


def test_entities_are_without_classes_and_shapes_tell_of_them() -> None:
    query = parse_query("select ?x where { ?x relation:/Instance of/ entity:/Town/ . ?x relation:/in/ entity:/Ghana/ }")
    assert query_entities(query) == ("Ghana",)
    assert query_shape(query) == "select 1 of a class"
    assert query_shape(parse_query("ASK { entity:/a/ relation:/b/ entity:/c/ }")) == "ask 1"
    assert query_shape(parse_query("select ?c where { entity:/Accra/ a ?c }")) == "select 1"
    assert query_shape(TripletQuery("a", "?", "b")) == "triplet relation"


def test_comments_end_with_their_line() -> None:
    assert one_line("ask { # entity:/a/ }\n ?x ?p 'b # c' }") == "ask { ?x ?p 'b # c' }"


def test_queries_are_learned_with_their_space_and_line_break_and_nothing_else_is() -> None:
    wrong = [WrongQuery("<?; capital; Ghana>", "swapped-arguments"), WrongQuery("<Ghana;\n ?>", "dropped-clause")]
    text = training_text(example("capital of\nGhana?", "<Ghana; capital; ?>"), wrong)
    assert text.text == (
        "Question: capital of Ghana?\nCorrect query: <Ghana; capital; ?>\n"
        "Incorrect query 1: <?; capital; Ghana>\nIncorrect query 2: <Ghana; ?>\n"
    )
    learned = [piece.text for piece in text.pieces if piece.learned]
    assert learned == [" <Ghana; capital; ?>\n", " <?; capital; Ghana>\n", " <Ghana; ?>\n"]


def many(count: int, entities: int) -> list[QueryExample]:
    chance = random.Random(4)
    return [
        example(f"q{n}?", f"<e{(at := chance.randrange(entities))}; r; ?>", id=str(n), group=f"e{at}")
        for n in range(count)
    ]


@given(st.integers(0, 60), st.integers(1, 20), st.floats(0, 0.99), st.integers(0, 9))
def test_no_entity_or_group_is_on_both_sides(count: int, entities: int, share: float, seed: int) -> None:
    examples = many(count, entities)
    try:
        training, held_out = split_by_group(examples, held_out=share, seed=seed)
    except InputError:
        assert round(share * count) < max(sum(e.group == f for e in examples) for f in {e.group for e in examples})
        return
    assert sorted(map(id, training + held_out)) == sorted(map(id, examples))
    assert not {e.group for e in training} & {e.group for e in held_out}
    assert seen_share(training, held_out) == 0.0
    assert len(held_out) <= round(share * count)


def test_examples_tied_through_a_third_stay_together_but_classes_tie_nothing() -> None:
    of_town = "relation:/type/ entity:/Town/"
    examples = [
        example("1?", f"ask {{ entity:/A/ relation:/r/ entity:/B/ . ?x {of_town} }}", id="1", group="1"),
        example("2?", f"ask {{ entity:/b/ relation:/r/ entity:/C/ . ?x {of_town} }}", id="2", group="2"),
        example("3?", f"ask {{ ?x relation:/r/ entity:/c/ . ?x {of_town} }}", id="3", group="3"),
        example("4?", f"ask {{ ?x relation:/r/ entity:/D/ . ?x {of_town} }}", id="4", group="4"),
    ]
    training, held_out = split_by_group(examples, held_out=0.5, seed=0)
    assert ([e.id for e in training], [e.id for e in held_out]) == (["1", "2", "3"], ["4"])
    assert seen_share(examples[:1], examples[1:2]) == 0.5


def test_one_group_stays_together_whatever_its_entities() -> None:
    examples = [example("q?", f"<{name}; r; ?>", id=name, group=f"g{at % 2}") for at, name in enumerate("abcdefghij")]
    training, held_out = split_by_group(examples, held_out=0.5, seed=0)
    assert {"".join(e.id for e in side) for side in (training, held_out)} == {"acegi", "bdfhj"}


def test_the_seed_decides_who_is_held_out() -> None:
    examples = many(100, 30)
    first = split_by_group(examples, held_out=0.3, seed=1)
    assert first == split_by_group(examples, held_out=0.3, seed=1)
    assert first != split_by_group(examples, held_out=0.3, seed=2)
    assert 25 <= len(first[1]) <= 30


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_out_of_range_is_an_error(share: float) -> None:
    with pytest.raises(InputError, match="choose it from 0 to below 1"):
        split_by_group(many(5, 5), held_out=share)


def test_what_cannot_be_held_out_is_an_error_with_numbers() -> None:
    with pytest.raises(InputError, match=r"of 10 examples 2 are to be held out, but the fewest .* are 10"):
        split_by_group(many(10, 1), held_out=0.2)
    assert split_by_group([], held_out=0.5) == ([], [])
    assert split_by_group(many(3, 1), held_out=0.0)[1] == []


def test_written_questions_are_read_by_both_readers(tmp_path: Path, paths: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    examples = read_examples(paths)
    write_questions(path, examples)
    assert read_examples(path) == examples
    questions = list(read_questions(path))
    assert [(q.id, q.question, q.answers) for q in questions] == [(e.id, e.question, e.answers) for e in examples]


def test_what_no_file_can_hold_is_escaped_and_nothing_is_left_half_written(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    write_questions(path, [QueryExample("\ud800", "\udfff?", TripletQuery("a", "b", "?"), "g", ("\ud800",))])
    assert json.loads(path.read_text()) == {
        "id": "\\ud800", "question": "\\udfff?", "answers": ["\\ud800"], "query": "<a; b; ?>", "group": "g",
    }  # fmt: skip
    before = path.read_bytes()

    def broken() -> list[QueryExample]:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_questions(path, (each for _ in range(2) for each in broken()))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_copy_has_another_name_at_the_same_places_and_is_otherwise_the_same() -> None:
    told = example(
        "is Ada's river (ada is a town) the Volta?",
        "ask { entity:/Ada/ relation:/river/ entity:/Volta/ . ?x relation:/type/ entity:/town/ . ?x relation:/in/ entity:/Mali/ }",
    )
    for copy in vary_names([told], 200, seed=5):
        ada, volta, mali = query_entities(copy.query)
        assert mali == "Mali"  # the question does not write it
        assert copy.question == f"is {ada}'s river ({ada} is a town) the {volta}?"
        assert (
            copy.query.text
            == (
                f"ask {{ entity:/{ada}/ relation:/river/ entity:/{volta}/ . ?x relation:/type/ entity:/town/ . "
                "?x relation:/in/ entity:/Mali/ }"
            )
            or "/" in ada + volta
        )
        assert {normal_form(ada), normal_form(volta)}.isdisjoint({"ada", "volta"})
        assert (copy.group, copy.answers, copy.mentions) == ("g", (), (ada, volta))


def test_copies_take_examples_in_turn_and_pass_over_those_without_a_mention() -> None:
    examples = [
        QueryExample("a", "where is ada?", TripletQuery("ada", "in", "?"), "ada", ("ghana",), ("ada",)),
        example("where?", "<mali; in; ?>", id="m"),
        example("who is bo?", "<bo; kind; ?>", id="b"),
    ]
    assert [copy.id for copy in vary_names(examples, 5)] == ["a~1", "b~1", "a~2", "b~2", "a~3"]
    assert {copy.answers for copy in vary_names(examples, 5)} == {()}
    assert vary_names(examples[1:2], 5) == []
    assert vary_names([], 5) == vary_names(examples, 0) == []


def test_copies_are_the_same_for_the_same_seed_only() -> None:
    examples = [example("where is ada foah?", "<ada foah; in; ?>")]
    assert vary_names(examples, 20, seed=1) == vary_names(examples, 20, seed=1) != vary_names(examples, 20, seed=2)


def test_no_held_out_name_is_ever_made() -> None:
    known = [f"{first} {last}" for first in ("Anna", "Karl", "Maria") for last in ("Berg", "Stein", "Holm")]
    examples = [example(f"where is {name}?", f"<{name}; in; ?>") for name in known]
    free = {copy.mentions[0] for copy in vary_names(examples, 3_000)}
    excluded = [name.upper().replace(" ", "-") for name in known[::2]]
    made = {copy.mentions[0] for copy in vary_names(examples, 3_000, excluded=excluded)}
    forms = set(map(normal_form, excluded))
    assert set(map(normal_form, free)) & forms  # so that the next line can fail
    assert not set(map(normal_form, made)) & forms


def test_names_are_made_even_where_almost_all_are_excluded() -> None:
    class All(list[str]):
        def __iter__(self) -> object:  # type: ignore[override]
            return iter(["a", "b"])

    maker = NameMaker(["a b"], All(), random.Random(1))
    assert {maker.make("a") for _ in range(50)}.isdisjoint({"a", "b"})


def test_hardly_any_name_is_made_twice_and_cases_are_kept() -> None:
    examples = [
        example("where is ada foah?", "<ada foah; in; ?>", id="l"), example("is Ada there?", "<Ada; in; ?>", id="u"),
    ]  # fmt: skip
    made = [copy.mentions[0] for copy in vary_names(examples, 2_000, seed=3)]
    assert len(set(made)) > 1_900
    assert all(name == name.lower() for name in made[::2])
    assert sum(name != name.lower() for name in made[1::2]) > 900


@given(names.map("{}a".format), st.lists(st.text(max_size=12), max_size=5))
def test_copies_can_always_be_read_and_written(name: str, others: list[str]) -> None:
    query = path_query(name, ["r"])
    told = QueryExample("1", f"what is {name}?", query, "g")
    silent = [QueryExample("2", "", TripletQuery(other, "r", "?"), "g") for other in others]  # lend their names alone
    for copy in vary_names([told, *silent], 3):
        assert parse_query(write_query(copy.query)) == copy.query
        assert query_entities(copy.query)[0] in copy.question


def graph(count: int, *, seed: int = 0) -> list[Triple]:
    chance = random.Random(seed)
    return [
        Triple(f"node_{chance.randrange(30)}", f"kind_{'abc'[chance.randrange(3)]}", f"node_{chance.randrange(30)}")
        for _ in range(count)
    ]


def answers_of(query: str, triples: list[Triple]) -> set[str]:
    """Run a query with pyoxigraph over the triples by name."""
    iri = {False: lambda name: f"urn:e:{quote(name)}", True: lambda name: f"urn:r:{quote(name)}"}
    store = ox.Store()
    for triple in triples:
        parts = (entity_name(triple.head), relation_name(triple.relation), entity_name(triple.tail))
        store.add(ox.Quad(*(ox.NamedNode(iri[at == 1](part)) for at, part in enumerate(parts))))
    text = replace_names(
        parse_query(query), entity=lambda name: f"<{iri[False](name)}>", relation=lambda name: f"<{iri[True](name)}>"
    )
    result = store.query(text)
    if isinstance(result, ox.QueryBoolean):
        return {"true" if result else "false"}
    assert isinstance(result, ox.QuerySolutions)
    found = [solution[0] for solution in result]
    return {str(each.value).rpartition(":")[2].replace("%20", " ") for each in found if each is not None}


@pytest.mark.parametrize("form", ["sparql", "triplet"])
def test_sampled_answers_are_those_of_the_query(form: str) -> None:
    triples = graph(120)
    examples = sample_examples(triples, 150, seed=1, form=form, hops=[1, 2, 3])  # type: ignore[arg-type]
    assert len(examples) == 150
    for each in examples:
        assert set(each.answers) == answers_of(write_query(each.query), triples), each
        assert len(each.mentions) == len(query_entities(each.query)), each
        assert each.group in {triple.head for triple in triples} | {triple.tail for triple in triples}
    shapes = {query_shape(each.query) for each in examples}
    assert shapes == (
        {"select 1", "select 2", "select 3", "count 1", "ask 1"}
        if form == "sparql"
        else {"triplet head", "triplet relation", "triplet tail"}
    )
    assert len({each.id for each in examples}) == len({each.question for each in examples}) == 150


def test_whether_questions_are_answered_both_ways() -> None:
    answers = [each.answers for each in sample_examples(graph(120), 200) if query_shape(each.query) == "ask 1"]
    assert 0.2 < answers.count(("true",)) / len(answers) < 0.9


def test_no_path_comes_back_to_where_it_was() -> None:
    circle = [Triple("a", "next", "b"), Triple("b", "next", "a"), Triple("c", "next", "c")]
    assert sample_examples(circle, 10, hops=[2]) == []
    begun = {each.group for each in sample_examples(circle, 40, hops=[1]) if query_shape(each.query) != "ask 1"}
    assert begun == {"a", "b"}


def test_samples_are_the_same_for_the_same_seed_only() -> None:
    triples = graph(80)
    assert sample_examples(iter(triples), 30, seed=1) == sample_examples(triples, 30, seed=1)
    assert sample_examples(triples, 30, seed=1) != sample_examples(triples, 30, seed=2)


def test_rare_relations_are_asked_about_as_often_as_frequent_ones() -> None:
    triples = [Triple(f"n{i}", "common", f"m{i}") for i in range(900)]
    triples += [Triple(f"n{i}", "rare", f"k{i}") for i in range(100)]
    named = [query_names(each.query)[1] for each in sample_examples(triples, 600, hops=[1])]
    rare, common = named.count(("rare",)), named.count(("common",))
    assert 0.6 < rare / common < 1.6


def test_hubs_are_passed_over_in_bounded_work() -> None:
    triples = [Triple("hub", "has", f"n{i}") for i in range(3_000)] + [Triple("n1", "has", "leaf")]
    examples = sample_examples(triples, 60, hops=[1, 2])
    assert examples
    assert all(len(each.answers) <= 1_000 for each in examples)
    assert not any("entity:/hub/ relation:/has/ ?x" in each.query.text for each in examples)


def test_entities_that_share_a_name_are_not_asked_about_and_of_relations_the_frequent_one_is() -> None:
    triples = [
        Triple("x:a/1", "r:in/1", "b"), Triple("x:a/2", "r:in/1", "c"), Triple("d", "r:in/2", "e"),
    ]  # fmt: skip
    shared = {"x:a/1": "Springfield", "x:a/2": "springfield", "r:in/1": "lies in", "r:in/2": "Lies In"}
    examples = sample_examples(triples, 50, names=shared, hops=[1])
    assert examples
    assert all("pringfield" not in each.query.text and "entity:/d/" not in each.query.text for each in examples)
    assert any(set(each.answers) == {"Springfield"} for each in examples)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"triples": []}, "none of the 0 triples"),
        ({"triples": [Triple("a", "\ud800", "b")]}, "none of the 1 triples"),
    ],
)
def test_what_cannot_be_sampled_is_an_error(options: dict[str, object], said: str) -> None:
    given_ = {"triples": [Triple("a", "b", "c")], "count": 1, **options}
    with pytest.raises(InputError, match=said):
        sample_examples(given_.pop("triples"), given_.pop("count"), **given_)  # type: ignore[arg-type]


@given(st.lists(st.builds(Triple, *[st.text(max_size=6)] * 3), max_size=12), st.sampled_from(["sparql", "triplet"]))
def test_any_triples_give_questions_that_can_be_read_or_a_clear_error(triples: list[Triple], form: str) -> None:
    try:
        examples = sample_examples(triples, 5, form=form)  # type: ignore[arg-type]
    except InputError:
        return
    for each in examples:
        assert parse_query(write_query(each.query)) == each.query
        assert each.answers


def test_every_shape_has_twelve_wordings_that_differ() -> None:
    for shape, wordings in WORDINGS.items():
        told = {word_question(each, entity="E", relations=["r", "s"], other="O") for each in wordings}
        assert len(told) == len(wordings) >= 12, shape
        assert all("{" not in each for each in told)


def test_questions_are_worded_by_the_order_of_the_path() -> None:
    told = {
        field: word_question(f"{{{field}}}", entity="E", relations=["r", "s", "t"])
        for field in ("of", "possessive", "mixed")
    }
    assert told == {"of": "t of the s of the r of E", "possessive": "E's r's s's t", "mixed": "t of s of E's r"}


@pytest.mark.parametrize(
    ("name", "word"), [("Birth Place", "where"), ("year of birth", "when"), ("", "what"), ("of", "what")]
)
def test_the_question_word_is_told_by_the_relation_alone(name: str, word: str) -> None:
    assert question_word(name) == word


@pytest.mark.data
def test_all_of_pathquestion_is_read_and_split_without_a_shared_subject(shared_data: Path, tmp_path: Path) -> None:
    left_out: list[str] = []
    examples = read_examples(shared_data / "pathquestion" / "PQ-2H.txt", left_out=left_out)
    assert (len(examples), left_out) == (1_908, [])
    assert {query_shape(each.query) for each in examples} == {"select 2"}
    assert all(each.mentions == query_entities(each.query) for each in examples)
    training, held_out = split_by_group(examples, held_out=0.2, seed=0)
    assert 0.19 < len(held_out) / len(examples) <= 0.2
    assert seen_share(training, held_out) == 0.0
    excluded = {name for each in held_out for name in query_entities(each.query)}
    copies = vary_names(training, 5_000, excluded=excluded)
    assert len(copies) == 5_000
    assert seen_share(copies, held_out) == 0.0
    write_questions(tmp_path / "held-out.jsonl", held_out)
    assert len(list(read_questions(tmp_path / "held-out.jsonl"))) == len(held_out)


def test_other_writing_changes_capitals_and_marks_in_question_and_query_alike() -> None:
    told = QueryExample(
        "1",
        "what is the sex of anna of saxony's child?",
        path_query("anna of saxony", ["children", "gender"]),
        "anna",
        mentions=("anna of saxony",),
    )
    copies = vary_writing([told] * 400, seed=2)
    assert copies == vary_writing([told] * 400, seed=2) != vary_writing([told] * 400, seed=3)
    for copy in copies:
        name = "Anna Of Saxony" if "Anna" in copy.question else "anna of saxony"
        assert name in copy.question
        assert copy.mentions == (name,)
        assert copy.query == path_query(name, ["children", "gender"])
        assert copy.question.lower().rstrip("?") == told.question.rstrip("?")
    for sign, least in (
        (lambda text: text.startswith("What"), 100),
        (lambda text: "Anna" in text, 70),
        (lambda text: text[-1] != "?", 30),
    ):
        assert least < sum(sign(copy.question) for copy in copies) < 250


def test_a_name_at_the_beginning_is_written_in_question_and_query_alike() -> None:
    told = QueryExample("1", "anna's child?", path_query("anna", ["children"]), "anna")
    for copy in vary_writing([told] * 100):
        assert copy.query == path_query("Anna" if copy.question.startswith("Anna") else "anna", ["children"])


def test_writing_of_nothing_is_nothing() -> None:
    strange = QueryExample("1", "?", TripletQuery("a", "b", "?"), "a")
    assert vary_writing([]) == []
    assert {copy.question for copy in vary_writing([strange] * 50)} == {"?"}
