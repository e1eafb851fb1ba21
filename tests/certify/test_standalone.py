"""Claims as models read them name their subjects, and numbers in digits keep their values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.claims.standalone import in_digits, standalone
from pytrace.certify.claims.tokens import tokens


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("She was broken up in 1929.", "Ann Hay was broken up in 1929."),
        ("and it serves Togo.", "Ann Hay serves Togo."),
        ("and accepted it twice.", "Ann Hay accepted it twice."),
        ("Her crew counts birds.", "Ann Hay's crew counts birds."),
        ("which is the memoir of a pilot.", "Ann Hay is the memoir of a pilot."),
        ("which Bo Lind had built.", "Bo Lind had built."),
        ("where volunteers guard them.", "In Ann Hay, volunteers guard them."),
        ("Both were renewed.", "Ann Hay were renewed."),
        ("and later she led the choir.", "Later Ann Hay led the choir."),
        ("It was Bo Lind who advised it.", "Bo Lind advised it."),
        # These have subjects of their own.
        ("So the ferry was sold.", "The ferry was sold."),
        ("That company was founded in 1902.", "That company was founded in 1902."),
        ("and the clerk remains nameless.", "The clerk remains nameless."),
        ("and nowadays people walk there.", "Nowadays people walk there."),
    ],
)
def test_a_claim_names_what_it_is_about(claim, expected):
    text, longer = standalone(claim, "Ann Hay")
    assert (text, longer) == (expected, len(expected) - len(claim))


def test_a_claim_that_names_its_subject_loses_its_conjunction_alone():
    assert standalone("but Togo won.", "") == ("Togo won.", -4)
    assert standalone("Togo won.", "") == ("Togo won.", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thirty-five minutes, a dozen men", "35 minutes, a dozen men"),
        ("Seven of 1,200,000 sank in 1912.", "7 of 1200000 sank in 1912."),
        ("One of the twentieth century's two-thirds", "One of the twentieth century's 2-thirds"),
        ("two thousand three hundred; nineteen eighty-four", "two thousand three hundred; nineteen eighty-four"),
        ("Three Mile Island on 3 May 1912 at 7.45", "Three Mile Island on 3 May 1912 at 7.45"),
        ("6.5 million", "6.5 million"),
        ("", ""),
    ],
)
def test_numbers_are_written_in_digits(text, expected):
    assert in_digits(text) == expected


@given(st.text(st.sampled_from("two thirty-5, 1000.And x\n"), max_size=40), st.text(max_size=10))
def test_any_text_is_read(text, subject):
    assert in_digits(in_digits(text)) == in_digits(text)
    named, longer = standalone(text, subject)
    assert len(named) == len(text) + longer


def test_values_stay():
    text = "Forty-two geese, six hundred herons and 1,100 terns met two owls."
    assert [token.value for token in tokens(in_digits(text)) if token.value] == [42, 600, 1100, 2]
