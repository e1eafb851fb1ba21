"""A walk over triples tells coherent paths from those that jump, run backwards or stray."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.verdicts import walk

ends = st.tuples(st.integers(0, 4), st.integers(0, 4))


def readings(triples, starts):
    """Enumerate every way to read triples in either direction, from one of some starts: the ends that they reach."""
    reached = set()
    for directions in product((False, True), repeat=len(triples)):
        read = [(t, h) if turned else (h, t) for (h, t), turned in zip(triples, directions, strict=True)]
        if starts and read[0][0] not in starts:
            continue
        if all(one[1] == two[0] for one, two in pairwise(read)):
            reached.add(read[-1][1])
    return reached


def repeats(triples):
    return any(set(one) == set(two) for one, two in pairwise(triples))


@given(st.lists(ends, min_size=1, max_size=5), st.sets(st.integers(0, 4), max_size=2))
def test_a_walk_is_coherent_if_and_only_if_some_reading_is(triples, topics):
    walked = walk(triples, topics)
    strays = bool(topics) and not any(topics & set(one) for one in triples)
    assert walked.strays == strays
    reached = readings(triples, set() if strays else topics)
    if repeats(triples):  # saying the same again is allowed besides
        assert walked.ends >= reached
        assert walked.coherent >= bool(reached)
    else:
        assert walked.coherent == bool(reached)
        if reached:
            assert walked.ends == reached


def test_a_path_told_backwards_does_not_start_at_the_question():
    assert walk([(0, 1), (1, 2)], [0]).coherent
    backwards = walk([(1, 2), (0, 1)], [0])
    assert backwards.follows == (False, True)
    assert walk([(1, 2), (0, 1)]).coherent  # where the question's entity is not known


def test_saying_a_fact_again_does_not_break_a_path():
    walked = walk([(0, 1), (1, 0), (1, 2)], [0])
    assert walked.coherent
    assert walked.ends == {2}


def test_there_and_back_is_a_path():
    assert 0 in walk([(0, 1), (1, 0)], [0]).ends


def test_one_gap_is_told_once():
    assert walk([(0, 1), (5, 6), (6, 7)], [0]).follows == (True, False, True)


def test_after_a_step_without_a_triple_anything_follows():
    walked = walk([(0, 1), None, (5, 6), (6, 7)], [0])
    assert walked.coherent
    assert walked.ends == {7}


def test_a_path_about_something_else_strays():
    assert walk([(3, 4)], [0]).strays
    assert not walk([(3, 4)]).strays


def test_nothing_leads_nowhere():
    assert walk([]).ends == frozenset()
    assert walk([]).coherent


def test_a_comparison_begins_a_chain_at_each_of_its_entities() -> None:
    chains = [(0, 1), (1, 2), (5, 6), (6, 7)]
    walked = walk(chains, [0, 5], compared=[0, 5])
    assert walked.coherent
    assert walked.ends == {2, 7}
    assert walked.starts == {0, 5}
    assert walk(chains, [0, 5]).follows == (True, True, False, True)
    # Not at an entity that no question names, nor twice at one, nor before the first chain began.
    assert walk([(0, 1), (8, 9)], [0, 5], compared=[0, 5]).follows == (True, False)
    assert walk([(0, 1), (1, 2), (0, 3)], [0, 5], compared=[0, 5]).follows == (True, True, False)
    assert walk([(3, 4), (5, 6)], [0], compared=[0, 5]).follows == (True, False)
    assert walk([(0, 1), (1, 5)], [0], compared=[0, 5]).starts == frozenset()
