"""Dates and numbers are compared by what they are worth, and a text may say less than a graph, but not more."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.kg.values import find_values, tells, value_of


@pytest.mark.parametrize(
    ("said", "known", "expected"),
    [
        ("1908", "1908-05-01", True),
        ("May 1908", "1 May 1908", True),
        ("May 1, 1908", "1908-05-01T00:00:00Z", True),
        ("the 1st of May 1908", "1908-05-01", True),
        ("2 May 1908", "1908-05-01", False),
        ("1 May 1908", "1908", False),
        ("0.42 km", "420 m", True),
        ("420", "420 m", True),
        ("0.42", "0.42 km", True),
        ("420 kg", "420 m", False),
        ("3,200", "3,214", False),
        ("about 3,200", "3214", True),
        ("2.5 million", "2,500,000", True),
        ("about 2 km", "1e999", False),
    ],
)
def test_values_are_compared(said, known, expected):
    [value] = find_values(f"It is {said}.")
    of_graph = value_of(known)
    assert of_graph is not None
    assert tells(value, of_graph) is expected


def test_a_name_with_a_number_in_it_is_no_value():
    assert [value_of(name) for name in ("Boeing 747", "1997–98", "7th Street", "", "Ada", "v1.2")] == [None] * 6


@given(st.dates(min_value=dt.date(1000, 1, 1)), st.sampled_from(["%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%d %b %Y"]))
def test_every_way_to_write_a_date_is_the_same(date, written):
    known = value_of(date.isoformat())
    [said] = find_values(f"born on {date.strftime(written)}, it is said")
    assert known is not None
    assert tells(said, known)
    assert not tells(said._replace(date=(date.year, date.month, date.day % 31 + 1)), known)


@given(st.text(max_size=80))
def test_values_lie_in_the_text(text):
    for value in find_values(text):
        assert 0 <= value.start < value.end <= len(text)
