"""Paths that are wrong on purpose: each guarantee against a naive twin over random graphs, refusals, seeds and wordings."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from pathlib import Path as FilePath

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytrace.certify.corruption import (
    GoldPath,
    InvalidPath,
    Refusal,
    corrupt_at_random,
    read_gold,
    readings,
    replace_entity,
    shuffle_triples,
    take_other_path,
)
from pytrace.certify.response_parsing import parse_response
from pytrace.certify.wording import TEMPLATES, named_path, word_response, word_step, word_steps
from pytrace.check_records import GoldQuestion, Path
from pytrace.errors import DataError, InputError
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.models.scripted import HashEncoder
from pytrace.reader.prompts.reasoning import PathDemonstration
from pytrace.records import Triple

ENCODER = HashEncoder(dimension=8)
# Some keys have the same words, so that names and not keys must be compared.
KEYS = [f"town_{number}" for number in range(7)] + ["Town_0", "TOWN_1", "town-2"]


def base_of(triples: Iterable[Triple]) -> KnowledgeBase:
    return KnowledgeBase.in_memory(triples, ENCODER)


def gold(base: KnowledgeBase, path: Path, *, topics: tuple[str, ...] = (), answers: tuple[str, ...] = ()) -> GoldPath:
    found = read_gold(base, GoldQuestion("q", "Where?", answers, (path,), topics))
    assert isinstance(found, GoldPath)
    return found


# A naive twin of the readings, from the keys: every choice of a direction for every triple is tried.


def form(key: str) -> str:
    return normal_form(key)


def naive_ends(path: Path, starts: Iterable[str]) -> set[str]:
    ends = set()
    for start in starts:
        for choice in range(2 ** len(path)):
            at = form(start)
            for place, triple in enumerate(path):
                premise, end = form(triple.head), form(triple.tail)
                if choice >> place & 1:
                    premise, end = end, premise
                if premise != at:
                    break
                at = end
            else:
                ends.add(at)
    return ends


triples = st.builds(Triple, st.sampled_from(KEYS), st.sampled_from(["road", "river"]), st.sampled_from(KEYS))
graphs = st.lists(triples, min_size=2, max_size=25, unique=True)


@st.composite
def walks(draw: st.DrawFn) -> tuple[list[Triple], GoldQuestion]:
    """Draw a graph and a question whose gold path walks in it, in either direction, from its topic."""
    facts = draw(graphs)
    length = draw(st.integers(1, 4))
    path = [draw(st.sampled_from(facts))]
    topic, at = draw(st.sampled_from([(path[0].head, path[0].tail), (path[0].tail, path[0].head)]))
    while len(path) < length:
        onward = [one for one in facts if at in (one.head, one.tail) and one not in path]
        if not onward:
            break
        step = draw(st.sampled_from(onward))
        at = step.head if step.tail == at else step.tail
        path.append(step)
    return facts, GoldQuestion("q", "Where?", (at.replace("_", " "),), (tuple(path),), (topic,))


@given(walks(), st.integers(-5, 5))
def test_no_changed_triple_is_joined_by_any_fact_in_any_direction_or_under_another_name(
    drawn: tuple[list[Triple], GoldQuestion], seed: int
) -> None:
    facts, question = drawn
    base = base_of(facts)
    found = read_gold(base, question)
    assert isinstance(found, GoldPath)
    made = replace_entity(base, found, seed=seed)
    joined = {frozenset((form(fact.head), form(fact.tail))) for fact in facts}
    path = question.paths[0]
    entities = {form(end) for triple in path for end in (triple.head, triple.tail)}
    if isinstance(made, Refusal):
        # Refused only if really nothing fits: every other entity would make some changed triple a fact.
        for old in {end for triple in path for end in (triple.head, triple.tail)}:
            for new in {end for fact in facts for end in (fact.head, fact.tail)}:
                if form(new) not in entities:
                    pairs = [
                        {form(new if end == old else end) for end in (triple.head, triple.tail)}
                        for triple in path
                        if old in (triple.head, triple.tail)
                    ]
                    assert any(frozenset(pair) in joined for pair in pairs)
        return
    assert made.replaced is not None
    old, new = made.replaced
    assert form(new) not in entities
    assert made.path == tuple(
        Triple(new if one.head == old else one.head, one.relation, new if one.tail == old else one.tail) for one in path
    )
    assert made.changed
    assert made.changed == tuple(place for place, one in enumerate(path) if old in (one.head, one.tail))
    for place in made.changed:
        assert frozenset((form(made.path[place].head), form(made.path[place].tail))) not in joined


@given(walks(), st.integers(0, 5))
def test_a_shuffled_path_has_the_same_facts_and_no_reading_at_all(
    drawn: tuple[list[Triple], GoldQuestion], seed: int
) -> None:
    facts, question = drawn
    found = read_gold(base_of(facts), question)
    assert isinstance(found, GoldPath)
    made = shuffle_triples(found, seed=seed)
    if isinstance(made, Refusal):
        return
    path = question.paths[0]
    assert sorted(made.path, key=str) == sorted(path, key=str)
    assert made.path != path
    assert naive_ends(made.path, question.topics) == set()
    assert made.changed == tuple(place for place in range(len(path)) if made.path[place] != path[place])


@given(st.lists(walks(), min_size=2, max_size=4), st.integers(0, 5))
def test_a_misguided_path_is_true_coherent_and_apart_from_the_question(
    drawn: list[tuple[list[Triple], GoldQuestion]], seed: int
) -> None:
    facts = [fact for some, _ in drawn for fact in some]
    base = base_of(facts)
    asked = [
        GoldQuestion(str(number), one.question, one.answers, one.paths, one.topics)
        for number, (_, one) in enumerate(drawn)
    ]
    read = [one for one in (read_gold(base, question) for question in asked) if isinstance(one, GoldPath)]
    assert len(read) == len(asked)
    made = take_other_path(read[0], read, seed=seed)
    if isinstance(made, Refusal):
        return
    source = asked[int(made.source)]
    assert made.source != "0"
    assert made.path == source.paths[0]
    assert set(made.path) <= set(facts)
    assert naive_ends(made.path, source.topics)
    assert naive_ends(made.path, asked[0].topics) == set()
    topic, answer = form(asked[0].topics[0]), form(asked[0].answers[0])
    assert topic not in {form(end) for triple in made.path for end in (triple.head, triple.tail)}
    assert answer not in naive_ends(made.path, source.topics)


@given(st.lists(triples, min_size=1, max_size=4), st.sampled_from(KEYS))
def test_readings_are_those_of_the_naive_twin_where_no_two_neighbours_join_the_same_two(
    path: list[Triple], start: str
) -> None:
    pairs = [(form(triple.head), form(triple.tail)) for triple in path]
    assume(all(set(one) != set(two) for one, two in itertools.pairwise(pairs)))
    assert readings(pairs, frozenset({form(start)})) == naive_ends(tuple(path), [start])


def test_a_triple_between_the_same_two_entities_may_lead_back_or_say_the_same_again() -> None:
    assert readings([("a", "b"), ("b", "a")], frozenset("a")) == {"a", "b"}
    assert readings([], frozenset("a")) == frozenset()


# Chosen graphs

SPOUSE = Triple("frieda", "spouse", "ernst")
NATION = Triple("ernst", "nationality", "britain")
FACTS = [
    SPOUSE, NATION, Triple("anna", "spouse", "karl"), Triple("karl", "nationality", "spain"),
    Triple("corfu", "country", "greece"), Triple("greece", "language", "greek"),
]  # fmt: skip


def test_the_new_entity_is_of_the_old_ones_type_while_there_is_one() -> None:
    base = base_of(FACTS)
    same = {"frieda": {"anna"}, "ernst": {"karl"}, "britain": {"spain"}}
    seen = set()
    for seed in range(30):
        made = replace_entity(base, gold(base, (SPOUSE, NATION)), seed=seed)
        assert isinstance(made, InvalidPath)
        assert made.replaced is not None
        old, new = made.replaced
        assert new in same[old]
        seen.add(old)
    assert seen == set(same)
    # Without one of the type, any other entity does.
    alone = base_of([SPOUSE, NATION, Triple("corfu", "country", "greece")])
    made = replace_entity(alone, gold(alone, (SPOUSE, NATION)), seed=0)
    assert isinstance(made, InvalidPath)
    assert made.replaced is not None
    assert made.replaced[1] in {"corfu", "greece"}


def test_an_entity_at_one_of_the_places_comes_before_one_of_another_type() -> None:
    # Nobody else stands at both of ernst's places; karl stands at one.
    base = base_of([SPOUSE, NATION, Triple("anna", "spouse", "karl"), Triple("corfu", "country", "greece")])
    for seed in range(20):
        made = replace_entity(base, gold(base, (SPOUSE, NATION)), seed=seed)
        assert isinstance(made, InvalidPath)
        assert made.replaced in {("ernst", "karl"), ("frieda", "anna")}


def test_the_inverse_relation_does_not_make_a_corruption_true() -> None:
    # otto is frieda's spouse only in the other direction and in other words, so he cannot stand for ernst.
    facts = [SPOUSE, Triple("otto", "wife", "frieda"), Triple("anna", "spouse", "otto")]
    base = base_of(facts)
    for seed in range(30):
        made = replace_entity(base, gold(base, (SPOUSE,)), seed=seed)
        assert isinstance(made, InvalidPath)
        assert made.replaced != ("ernst", "otto")


def test_a_graph_whose_entities_are_all_joined_has_no_corruption_and_says_so() -> None:
    keys = ["a", "b", "c", "d"]
    base = base_of(Triple(one, "road", two) for one in keys for two in keys if one < two)
    made = replace_entity(base, gold(base, (Triple("a", "road", "b"), Triple("b", "road", "c"))), seed=0)
    assert isinstance(made, Refusal)
    assert (made.question_id, made.kind) == ("q", "factual")
    assert "joined to the path" in made.reason


def test_an_entity_joined_to_itself_is_not_replaced_by_another_such_one() -> None:
    loops = [Triple(key, "likes", key) for key in "abc"]
    base = base_of([*loops, Triple("d", "likes", "e")])
    for seed in range(20):
        made = replace_entity(base, gold(base, (loops[0],)), seed=seed)
        assert isinstance(made, InvalidPath)
        assert made.replaced in {("a", "d"), ("a", "e")}
        assert made.path[0].head == made.path[0].tail


def test_a_swapped_path_of_two_triples_is_incoherent_unless_it_starts_at_the_question_again() -> None:
    base = base_of([*FACTS, Triple("ernst", "child", "frieda")])
    made = shuffle_triples(gold(base, (SPOUSE, NATION)), seed=3)
    assert isinstance(made, InvalidPath)
    assert made.path == (NATION, SPOUSE)
    assert made.changed == (0, 1)
    back = (SPOUSE, Triple("ernst", "child", "frieda"))
    refused = shuffle_triples(gold(base, back), seed=3)
    assert isinstance(refused, Refusal)
    assert "in other orders, too" in refused.reason


def test_one_triple_cannot_be_shuffled_and_a_long_path_can() -> None:
    path = tuple(Triple(f"e{number}", "next", f"e{number + 1}") for number in range(40))
    base = base_of(path)
    refused = shuffle_triples(gold(base, path[:1]), seed=0)
    assert isinstance(refused, Refusal)
    assert refused.reason == "a path of one triple has no other order"
    made = shuffle_triples(gold(base, path), seed=0)
    assert isinstance(made, InvalidPath)
    assert stuck(made.path, "e0")


def stuck(path: Path, start: str) -> bool:
    """Say whether a long path without branches cannot be walked from an entity."""
    at = start
    for triple in path:
        if at not in (triple.head, triple.tail):
            return True
        at = triple.tail if triple.head == at else triple.head
    return False


def test_a_path_that_holds_the_topic_or_ends_in_the_answer_is_not_taken_from_another_question() -> None:
    facts = [
        SPOUSE, NATION, Triple("anna", "spouse", "karl"), Triple("karl", "nationality", "britain"),
        Triple("karl", "friend", "frieda"), Triple("frieda", "nationality", "spain"),
    ]  # fmt: skip
    base = base_of(facts)

    def read(name: str, *path: Triple) -> GoldPath:
        found = read_gold(base, GoldQuestion(name, "?", (), (path,)))
        assert isinstance(found, GoldPath)
        return found

    own = gold(base, (SPOUSE, NATION), answers=("Great Britain",))
    same_end = read("1", facts[2], facts[3])
    through_topic = read("2", facts[4], facts[5])
    refused = take_other_path(own, [own, same_end, through_topic], seed=0)
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith("each of 3 gold paths holds an entity of the question")
    # Where no answers are known, the end of the question's own path stands for them.
    assert isinstance(take_other_path(gold(base, (SPOUSE, NATION)), [same_end], seed=0), Refusal)
    good = read("3", facts[2])
    taken = take_other_path(own, [own, same_end, good, through_topic], seed=0)
    assert isinstance(taken, InvalidPath)
    assert (taken.source, taken.path, taken.changed) == ("3", good.path, (0, 1))


def test_the_seed_and_the_question_decide_and_nothing_else() -> None:
    base = base_of([Triple(f"a{one}", "road", f"b{one}") for one in range(50)])
    path = (Triple("a0", "road", "b0"),)

    def drawn(seed: int, name: str) -> InvalidPath | Refusal:
        found = read_gold(base, GoldQuestion(name, "?", (), (path,)))
        assert isinstance(found, GoldPath)
        return replace_entity(base, found, seed=seed)

    assert drawn(1, "q") == drawn(1, "q")
    assert len({repr(drawn(seed, "q")) for seed in range(8)}) > 4
    assert len({str(drawn(1, str(number))).replace(f"question_id='{number}'", "") for number in range(8)}) > 4
    assert isinstance(drawn(-3, "\ud800"), InvalidPath)


# Gold paths that do not hold


@pytest.mark.parametrize(
    ("paths", "answers", "topics", "reason"),
    [
        ((), (), (), "there is no gold path"),
        (((),), (), (), "a gold path is empty"),
        (((Triple("britain", "nationality", "ernst"),),), (), (), "which is no fact of the graph"),
        (((Triple("nobody", "spouse", "ernst"),),), (), (), "<nobody; spouse; ernst>, which is no fact of the graph"),
        (((SPOUSE, FACTS[3]),), (), (), "no reading of a gold path leads on from the question's entities"),
        (((SPOUSE, NATION),), (), ("anna",), "no reading of a gold path leads on"),
        (((SPOUSE, NATION),), ("Spain",), (), "a gold path ends in britain, which is none of the answers"),
    ],
)
def test_a_question_without_a_sound_gold_path_is_refused_with_the_reason(
    paths: tuple[Path, ...], answers: tuple[str, ...], topics: tuple[str, ...], reason: str
) -> None:
    refused = read_gold(base_of(FACTS), GoldQuestion("7", "?", answers, paths, topics))
    assert isinstance(refused, Refusal)
    assert (refused.question_id, refused.kind) == ("7", "valid")
    assert reason in refused.reason


def test_the_first_sound_gold_path_is_taken_and_its_start_is_what_the_second_triple_does_not_share() -> None:
    base = base_of(FACTS)
    found = read_gold(base, GoldQuestion("1", "?", ("Britain",), ((FACTS[2],), (SPOUSE, NATION))))
    assert isinstance(found, GoldPath)
    assert (found.path, found.starts, found.answer) == ((SPOUSE, NATION), frozenset({"frieda"}), "britain")
    other_way = gold(base_of([Triple("moby", "hero", "ahab"), Triple("moby", "author", "melville")]),
                     (Triple("moby", "hero", "ahab"), Triple("moby", "author", "melville")))  # fmt: skip
    assert (other_way.starts, other_way.ends) == (frozenset({"ahab"}), frozenset({"melville"}))


# Words


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_says_all_three_parts_once_on_one_line(template: str) -> None:
    said = word_step(Triple("{tail}", "re\nlation", "T\\1 {head}"), template)
    assert said.count("{tail}") == 1
    assert said.count("re lation") == 1
    assert said.count("T\\1 {head}") == 1
    assert said.endswith(".")
    assert "\n" not in said


def test_templates_differ_in_order_and_one_without_a_part_is_refused() -> None:
    assert len(set(TEMPLATES)) >= 6
    orders = {tuple(sorted(("{head}", "{relation}", "{tail}"), key=template.index)) for template in TEMPLATES}
    assert len(orders) >= 4
    with pytest.raises(InputError, match=r"has no \{relation\}"):
        word_step(SPOUSE, "{head} and {tail}")


def test_a_worded_response_is_read_back_as_its_steps_and_answer() -> None:
    steps = word_steps([SPOUSE, NATION], seed=4)
    assert steps == word_steps([SPOUSE, NATION], seed=4)
    assert len({word_steps([SPOUSE, NATION], seed=seed) for seed in range(20)}) > 10
    parsed = parse_response(word_response(steps, "Great Britain (UK)"))
    assert (parsed.form, parsed.steps, parsed.answer) == ("structured", steps, "Great Britain (UK)")


def test_names_come_from_the_graph_and_else_from_the_key() -> None:
    base = KnowledgeBase.in_memory([Triple("Q1", "P1", "Q2")], ENCODER, names={"Q1": "Corfu", "P1": "country"})
    (named,) = named_path(base, (Triple("Q1", "P1", "New_Zealand"),))
    assert (named.head, named.relation, named.tail) == ("Corfu", "country", "New Zealand")
    (unknown,) = named_path(base, (Triple("\ud800", "birthPlace", "Q2"),))
    assert (unknown.head, unknown.relation, unknown.tail) == ("\ud800", "birth place", "Q2")


# Labelled paths


def test_the_labelled_paths_are_half_valid_and_show_every_kind() -> None:
    shown = PathDemonstration.load()
    kinds = [one.kind for one in shown]
    assert kinds.count("valid") * 2 == len(kinds)
    assert set(kinds) == {"valid", "factual", "incoherent", "misguided"}
    assert len({one.question for one in shown}) == len(shown)
    # The last sentence of a check tells what the kind is about, so that thought and verdict agree.
    assert all(("false" in " ".join(one.check)) == (one.kind == "factual") for one in shown)


GOOD = (
    '{"kind": "KIND", "question": "Where is Corfu?", "answer": "Greece", '
    '"path": [["Corfu", "country", "TAIL"]], "check": ["It is."]}'
)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            GOOD.replace("KIND", "valid").replace("TAIL", "Italy"),
            "does not lead from an entity that the question names",
        ),
        (GOOD.replace("KIND", "misguided").replace("TAIL", "Greece"), "said to be misguided, but leads from"),
        (GOOD.replace("KIND", "wrong").replace("TAIL", "Greece"), "not a demonstration"),
        (GOOD.replace("KIND", "valid").replace("TAIL", ""), "the tail is empty"),
        (GOOD.replace("KIND", "valid").replace('"It is."', ""), "the check is empty"),
        (GOOD.replace("KIND", "valid").replace('["Corfu", "country", "TAIL"]', ""), "the path is empty"),
        ("{", "not a demonstration"),
    ],
)
def test_a_labelled_path_that_contradicts_itself_is_refused_with_its_line(
    tmp_path: FilePath, line: str, words: str
) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(f"{GOOD.replace('KIND', 'valid').replace('TAIL', 'Greece')}\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=words) as caught:
        PathDemonstration.load(path=file)
    assert caught.value.line == 2


@pytest.mark.data
def test_on_path_question_all_kinds_hold_and_what_cannot_be_made_is_named(shared_data: FilePath) -> None:
    folder = shared_data / "pathquestion"
    facts = []
    for line in (folder / "2H-kb.txt").read_text(encoding="utf-8").splitlines():
        head, relation, tail = line.split("\t")
        facts.append(Triple(head, relation, tail))
    base = base_of(facts)
    pairs = {frozenset((fact.head, fact.tail)) for fact in facts}
    read = []
    lines = (folder / "PQ-2H.txt").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(random.Random(0).sample(lines, 200)):
        text, _, path = line.split("\t")
        one, first, two, second, three = path.split("#")[:5]
        question = GoldQuestion(str(number), text, (three,), ((Triple(one, first, two), Triple(two, second, three)),))
        found = read_gold(base, question)
        assert isinstance(found, GoldPath)
        read.append(found)
    refused = 0
    for found in read:
        wrong = replace_entity(base, found, seed=5)
        assert isinstance(wrong, InvalidPath)
        assert all(frozenset((wrong.path[at].head, wrong.path[at].tail)) not in pairs for at in wrong.changed)
        other = take_other_path(found, read, seed=5)
        assert isinstance(other, InvalidPath)
        assert other.path[-1].tail != found.path[-1].tail
        shuffled = shuffle_triples(found, seed=5)
        if isinstance(shuffled, Refusal):
            # Both triples join the same two, so the question's entity starts both.
            assert {found.path[0].head, found.path[0].tail} == {found.path[1].head, found.path[1].tail}
            refused += 1
        else:
            assert shuffled.path == found.path[::-1]
    assert 0 < refused < 40


@given(walks(), st.integers(0, 5))
def test_random_corruptions_change_a_path_as_the_paper_does(
    drawn: tuple[list[Triple], GoldQuestion], seed: int
) -> None:
    facts, question = drawn
    base = base_of(facts)
    found = read_gold(base, question)
    assume(isinstance(found, GoldPath))
    assert isinstance(found, GoldPath)
    other = msgspec.structs.replace(found, question=msgspec.structs.replace(question, id="other"))
    made = {one.kind: one for one in corrupt_at_random(base, found, [found, other], seed=seed)}
    assert made == {one.kind: one for one in corrupt_at_random(base, found, [found, other], seed=seed)}
    assert made["misguided"].source == "other"
    if len(base.columns.entity_keys) > 1:
        assert made["factual"].replaced is not None
        old, new = made["factual"].replaced
        assert old != new
        back = [tuple(old if key == new else key for key in (one.head, one.tail)) for one in made["factual"].path]
        gone = [tuple(old if key == new else key for key in (one.head, one.tail)) for one in found.path]
        assert back == gone
    if len(found.path) > 1:
        assert sorted(made["incoherent"].path, key=str) == sorted(found.path, key=str)
    else:
        assert "incoherent" not in made
