"""What `hops` reads of what a search across hops found."""

from __future__ import annotations

from pytrace.methods.hops import Hops, HopsSettings
from pytrace.models.scripted import ScriptedModel
from pytrace.records import Document
from pytrace.retrieval.hops.search import PassageRanking
from pytrace.retrieval.searching import Found


def read(
    *scores: float, question: str = "Where is Holm?", same: tuple[int, ...] = (), most: int | None = None
) -> list[str]:
    """Return the ids, by their places, of the passages that are read; those of `same` have one text."""
    rows = tuple(range(len(scores)))
    documents = {
        row: Document(str(row), "Oster", ("All the same." if row in same else f"Text {row}.",)) for row in rows
    }
    ranking = PassageRanking(rows, scores, (), 0.5)
    method = Hops(
        ScriptedModel(),
        HopsSettings(reading="span", passages=most),
        hops=lambda questions, _: [Found(ranking, documents)] * len(questions),
    )
    (evidence,) = method.select([question], [()])
    assert len(evidence.context) == len(evidence.document_ids)
    assert list(evidence.relevance) == [scores[int(name)] for name in evidence.document_ids]
    return list(evidence.document_ids)


def test_two_passages_are_read_where_the_third_is_much_less_likely() -> None:
    assert read(0.5, 0.4, 0.03, 0.03, 0.02, 0.02) == ["0", "1"]
    assert read(0.5, 0.3, 0.1, 0.05, 0.03, 0.02) == ["0", "1", "2", "3", "4"]
    assert read(0.9, 0.05, 0.03, 0.02) == ["0", "1", "2", "3"]
    assert read(0.5, 0.3, 0.1, 0.1, most=1) == ["0"]
    assert read(0.5) == ["0"]


def test_as_many_passages_are_read_as_are_set() -> None:
    assert read(0.5, 0.4, 0.03, 0.03, 0.02, 0.02, most=4) == ["0", "1", "2", "3"]
    assert read(0.5, 0.4, 0.03, 0.03, 0.02, 0.02, most=9) == ["0", "1", "2", "3", "4", "5"]


def test_what_compares_two_through_a_third_party_is_read_with_five_passages() -> None:
    scores = (0.5, 0.4, 0.03, 0.03, 0.02, 0.02)
    for question, count in (
        ("Which film has the director who was born first, Quill or Moth?", 5),
        ("Were the directors of Quill and Moth born in the same country?", 5),
        ("Who was born first, Ada Foah or Bo Lind?", 2),
        ("Who is the director of Quill?", 2),
    ):
        assert len(read(*scores, question=question)) == count


def test_what_is_there_twice_is_read_once_and_counts_for_nothing() -> None:
    assert read(0.4, 0.3, 0.2, 0.01, same=(0, 1)) == ["0", "2"]
    assert read(0.4, 0.3, 0.2, 0.1, same=(0, 1), most=3) == ["0", "2", "3"]
