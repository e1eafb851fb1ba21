"""Claims made of sentences are what their kinds say."""

from collections import Counter

import pytest

from pytrace.errors import InputError
from pytrace.records import Document
from pytrace.training.made_claims import KINDS, make_claims

LAKES = [
    Document("1", "Lake Oster", ("Lake Oster was made in 1931 by the Holm Dam.", "It lies in Norland, and is deeper than Lake Penn.")),
    Document("2", "Ilse Marl", ("The engineer Ilse Marl was born in Quillhaven.", "She built the Holm Dam with Tarek Voss in 1929.")),
    Document("3", "Quillhaven", ("The town of Quillhaven has 9,400 people.", "Quillhaven is the seat of the Voss Works.", "Short.")),
]  # fmt: skip


def test_half_of_the_claims_are_supported_and_the_kinds_are_as_many_as_there_are():
    made = make_claims(LAKES, 40, seed=1)
    assert {one.label for one in made} == {"supported", "contradicted", "not there"}
    kinds = Counter(one.kind for one in made)
    assert max(kinds["elsewhere"], kinds["negated"]) <= 3
    assert all(one.label == KINDS[one.kind] for one in made)
    assert len({(one.claim, one.document.id) for one in made}) == len(made)
    assert make_claims(LAKES, 40, seed=1) == made
    assert make_claims(LAKES, 40, seed=2) != made


def test_each_claim_is_changed_as_its_kind_says():
    for one in make_claims(LAKES, 200):
        text = " ".join(one.document.sentences)
        if one.kind == "whole":
            assert one.claim in text
        elif one.kind == "negated":
            assert one.claim not in text
            assert one.claim.replace(" not", "", 1) in text
        elif one.kind in ("number", "name", "borrowed", "swapped", "clause", "predicate", "elsewhere", "subject"):
            assert one.claim not in text
        assert "Short." not in one.claim


@pytest.mark.parametrize("documents", [[], LAKES[:1], [Document("4", "", ("Too short.",)), LAKES[0]]])
def test_one_document_lends_nothing_to_itself(documents):
    with pytest.raises(InputError, match="made of two or more documents"):
        make_claims(documents, 10)
