"""Whatever a grammar of queries accepts can be read and run, and names are taken from the question and nowhere else."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.gold_paths import read_questions
from pytrace.errors import InputError
from pytrace.kg.names import entity_name
from pytrace.kg.queries import SparqlQuery, TripletQuery, parse_query, query_names, replace_names
from pytrace.kg.queries.grammar import query_grammar, writable_relations
from pytrace.kg.sparql import rewrite
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.runtime import LlamaRuntime
from tests.gbnf import as_regex

Form = Literal["triplet", "sparql"]
FORMS: tuple[Form, ...] = ("triplet", "sparql")
QUESTION = "Who owns AC/DC's inn at Ada Foah, Ghana?"
RELATIONS = ["country", "owner of", 'the "best"', "back\\slash", "in/out", "größe", "a?", "<b>"]


def accepts(grammar: str, text: str) -> bool:
    return re.fullmatch(as_regex(grammar), text) is not None


def names_of(question: str, form: Form = "triplet") -> re.Pattern[str]:
    """Return a pattern of the names that may stand in a query for a question."""
    rules = query_grammar(question, ["r"], form=form).split("\n")
    names = rules[next(place for place, rule in enumerate(rules) if rule.startswith("name ::=")) :]
    return re.compile(as_regex("\n".join(["root ::= name", *names])))


# Walks


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spans", [True, False])
@given(st.data())
def test_every_walk_through_a_grammar_is_a_query_of_its_form_that_can_be_run(
    form: Form, spans: bool, data: st.DataObject
) -> None:
    question = data.draw(st.sampled_from([QUESTION, "ada foah 's king", "", "¿Who? \\ 'Z' & Y", "\ud800 x; y <z>"]))
    pattern = as_regex(query_grammar(question, RELATIONS, form=form, spans=spans))
    written = data.draw(st.from_regex(pattern, fullmatch=True))
    query = parse_query(written)
    assert isinstance(query, TripletQuery if form == "triplet" else SparqlQuery)
    entities, relations = query_names(query)
    assert set(relations) <= set(RELATIONS)
    if spans and question == QUESTION:
        assert all(name in question for name in entities)
    run = rewrite(replace_names(query, entity=lambda _: "<urn:e>", relation=lambda _: "<urn:r>"))
    assert run.patterns
    if query_is_select(written):
        # What is asked for is bound by a pattern, so that an answer is never empty by the query's own making.
        assert any("x" in pattern for pattern in run.patterns)


def query_is_select(written: str) -> bool:
    return "select" in written


@pytest.mark.parametrize("form", FORMS)
def test_a_random_model_at_a_high_temperature_writes_nothing_but_queries(form: Form, random_gguf: Path) -> None:
    grammar = query_grammar("Is Ada Foah in Ghana?", ["in", "is"], form=form)
    with LlamaCppModel(random_gguf, threads=1, context=512) as model:
        (row,) = model.generate(["x"], max_tokens=400, stop=["\n"], temperature=2.0, n=24, seed=3, grammar=grammar)
    assert {one.finish for one in row} <= {"end", "stop"}
    assert len({one.text for one in row}) >= 6
    for one in row:
        assert accepts(grammar, one.text)
        parse_query(one.text)


@pytest.mark.parametrize("form", FORMS)
def test_llama_cpp_compiles_the_grammars_of_hostile_questions_and_relations(form: Form, random_gguf: Path) -> None:
    runtime = LlamaRuntime(random_gguf, cells=64, sequences=2, batch=8, threads=1)
    hostile = ['a "b" \\ c\td', "x" * 9_000, "\x00\x1b", "\ud83d", "?", "今天谁是加纳的总统", "a/b\\c 'd e", "\u2028 z"]
    for question in hostile:
        for spans in (True, False):
            runtime.grammar(query_grammar(question, [*hostile, "r"], form=form, spans=spans))
    runtime.close()


def test_triplets_ask_for_any_one_of_the_three_places() -> None:
    grammar = query_grammar("Where is Ada Foah?", ["country"], form="triplet")
    for text in ("<Ada Foah; country; ?>", " <?; country; Foah>\n", "<Ada; ?; Foah>"):
        assert accepts(grammar, text)
    for text in (
        "<?; country; ?>",
        "<Ada; country; Foah>",
        "<Ada Foah; river; ?>",
        "<Accra; country; ?>",
        "<Ada;country;?>",
    ):
        assert not accepts(grammar, text)


def test_sparql_has_up_to_three_patterns_of_which_one_has_what_is_asked_for() -> None:
    grammar = query_grammar("Where is Ada Foah?", ["in", "on"], form="sparql")
    e, r = "entity:/Ada Foah/", "relation:/in/"
    assert accepts(grammar, f"select distinct ?x where {{ {e} {r} ?y . ?y relation:/on/ ?z . ?z {r} ?x }}")
    assert accepts(grammar, f"select distinct ?x where {{ {e} {r} ?y . ?x {r} ?y }}")
    assert accepts(grammar, f"select (count(distinct ?x) as ?count) where {{ ?x {r} {e} }}")
    assert accepts(grammar, f"ask {{ {e} {r} {e} . {e} {r} ?y }}")
    for body in (f"{e} {r} ?y", f"?x {r} ?x", f"?x {r} ?y . ?x {r} ?y . ?x {r} ?y . ?x {r} ?y", f"{e} {e} ?x", ""):
        assert not accepts(grammar, f"select distinct ?x where {{ {body} }}")


# Names


@pytest.mark.parametrize(
    ("question", "accepted", "refused"),
    [
        (
            "Who was the mayor of Ada Foah's sister town?",
            ["Ada Foah", "Foah", "mayor of Ada Foah", "Ada Foah's sister town", "mayor"],
            ["Who", "the", "the mayor", "mayor of", "Ada Foah's", "Ada Foah'", "s sister", "town?", "of Ada Foah", "Accra"],
        ),
        ("what is ada foah 's king", ["ada foah", "king", "ada foah 's king"], ["ada foah 's", "s king", "what is ada"]),
        ("The Who wrote Who Are You in The Hague.", ["The Who", "Who Are You", "The Hague"], ["Who", "in The Hague", "The"]),
        ("Who wrote Emma or Ada\u200bFoah?", ["Emma", "Ada", "wrote Emma"], ["Who wrote Emma", "Ada\u200bFoah"]),
        ("When did the WHO leave the US?", ["WHO", "US"], ["the US", "When"]),
        ("Is AC/DC, a band, in St. Ives?", ["AC/DC", "AC", "St. Ives"], ["AC/DC,", "AC/DC, a", "Ives?"]),
        ('Who made "Moon; Sea" (2001)?', ["Moon", "Sea", "2001"], ["Moon; Sea", "Sea (2001", 'Moon"']),
        ("Is Levi's bag Levis' bag?", ["Levi", "Levi's bag", "Levis", "Levis' bag"], ["Levi's", "Levis'"]),
        ("Is O'Neill 3.5 or 1,000 years-old?", ["O'Neill", "3.5", "1,000 years-old"], ["O", "Neill", "or", "old"]),
    ],
)  # fmt: skip
def test_names_are_words_in_a_row_without_what_is_no_part_of_a_name(
    question: str, accepted: list[str], refused: list[str]
) -> None:
    names = names_of(question)
    assert [name for name in accepted if not names.fullmatch(name)] == []
    assert [name for name in refused if names.fullmatch(name)] == []


def test_a_name_has_at_most_eight_words() -> None:
    question = " ".join(f"W{number}" for number in range(12))
    names = names_of(question)
    assert names.fullmatch(" ".join(question.split()[3:11]))
    assert not names.fullmatch(" ".join(question.split()[3:12]))


def test_slashes_and_backslashes_of_names_are_escaped_in_sparql() -> None:
    grammar = query_grammar("Who is in AC/DC?", ["in/out"], form="sparql")
    text = r"select distinct ?x where { ?x relation:/in\/out/ entity:/AC\/DC/ }"
    assert accepts(grammar, text)
    assert query_names(parse_query(text)) == (("AC/DC",), ("in/out",))


@pytest.mark.parametrize("question", ["", "  \n", "Who is it?", "?!", "今天谁是加纳的总统", "w" * 500])
def test_where_a_question_has_no_words_for_names_any_short_name_may_stand(question: str) -> None:
    for form in FORMS:
        grammar = query_grammar(question, ["r"], form=form)
        assert grammar == query_grammar("Ada", ["r"], form=form, spans=False)
    assert accepts(query_grammar(question, ["r"], form="triplet"), "<加纳; r; ?>")


def test_the_grammar_of_a_very_long_question_stays_small() -> None:
    question = " ".join(f"Word{number}" for number in range(100_000))
    begun = time.perf_counter()
    grammar = query_grammar(question, ["r"], form="sparql")
    assert time.perf_counter() - begun < 5
    assert len(grammar) < 100_000
    ordinary = query_grammar(
        " ".join(question.split()[:40]), [f"relation {number}" for number in range(40)], form="sparql"
    )
    assert len(ordinary) < 16_000


# Relations


def test_relations_that_cannot_be_written_in_a_form_are_left_out() -> None:
    names = ["a;b", " capital ", "capital", "", "?", "\n", "a\nb", "x" * 101, "\ud800", "a/b", "<c>"]
    assert writable_relations(names, form="triplet") == ("capital", "a/b", "<c>")
    assert writable_relations(names, form="sparql") == ("a;b", "capital", "a/b", "<c>")


def test_a_store_without_a_relation_that_can_be_written_is_refused() -> None:
    with pytest.raises(InputError, match="none of 2 relations can stand in a query"):
        query_grammar("Who?", ["", "a;b"], form="triplet")


# Real questions


@pytest.mark.data
def test_nearly_all_of_pathquestion_s_entities_may_be_named(shared_data: Path) -> None:
    rows = read_questions(shared_data / "pathquestion" / "PQ-2H.txt")
    missed = [row for row in rows if not names_of(row.question).fullmatch(entity_name(row.topics[0]))]
    assert len(rows) == 1908
    assert len(missed) <= 3
