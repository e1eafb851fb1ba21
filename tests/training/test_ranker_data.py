"""The hops that rankers learn, and the recall that they are judged by."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from pytrace.errors import DataError, InputError
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document
from pytrace.training.ranker_data import (
    Asked,
    QuestionSet,
    Searched,
    batches_of,
    check_apart,
    fewer_passages,
    read_set,
    shared_passages,
    split_questions,
    without_titles,
)
from pytrace.training.ranker_scores import recalls
from tests.small_rankers import PEOPLE, TOWNS, rows, write_rows


@pytest.fixture
def town(tmp_path: Path) -> QuestionSet:
    return read_set(write_rows(tmp_path / "town.jsonl"))


def test_the_documents_of_all_questions_are_one_corpus(town: QuestionSet) -> None:
    assert town.name == "town"
    assert len(town.passages) == 3 * len(PEOPLE)
    assert [len(question.supporting) for question in town.questions] == [2] * len(PEOPLE)
    for question, person, place in zip(town.questions, PEOPLE, TOWNS, strict=True):
        assert {town.passages[row].title for row in question.rows} == {person, place}


def test_a_folder_has_passages_and_the_ids_of_those_that_support(town: QuestionSet, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    passages = {each["title"]: each["text"] for row in rows() for each in row["documents"]}
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"id": name, "title": name, "text": text}) + "\n" for name, text in passages.items())
    )
    asked = [
        {"id": row["id"], "question": row["question"], "gold": [d["title"] for d in row["documents"][:2]]}
        for row in rows()
    ]
    asked.append({"id": "none", "question": "Who?", "gold": ["not there"]})
    (folder / "questions.jsonl").write_text("".join(json.dumps({"answers": [], **row}) + "\n" for row in asked))
    given = read_set(folder)
    assert given.name == "folder"
    assert given.missing == 1
    assert [q.text for q in given.questions] == [q.text for q in town.questions]
    for question, same in zip(given.questions, town.questions, strict=True):
        assert {given.passages[row].text for row in question.rows} == {town.passages[row].text for row in same.rows}


def test_no_hard_negative_supports_its_question(town: QuestionSet) -> None:
    # The same words under another title support as well.
    double = Document("double", "Another title", town.passages[0].sentences)
    given = town._replace(passages=(*town.passages, double), owners=(*town.owners, "double"))
    hops = Searched(given, HashEncoder()).hops(3, mined=5)
    assert len(hops) == 2 * len(PEOPLE)
    for hop in hops:
        texts = {given.passages[row].text for row in hop.supporting}
        assert hop.negatives
        assert not texts & {given.passages[row].text for row in hop.negatives}
        assert hop.positive in hop.supporting
        assert len(hop.negatives) == len(set(hop.negatives)) <= 10
        assert hop.set == 3


def test_a_hops_query_is_the_question_and_the_passages_before(town: QuestionSet) -> None:
    searched = Searched(town, HashEncoder())
    for question, (first, second) in zip(town.questions, searched.walk(), strict=True):
        assert first[0] == question.text
        assert second[0] == f"{question.text} {searched.texts[first[1]]}"
        assert {first[1], second[1]} == question.rows
        near = searched.encoder.encode([question.text], kind="query")[0] @ searched.vectors[sorted(question.rows)].T
        assert searched.vectors[first[1]] @ searched.encoder.encode([question.text])[0] == max(near)
    assert [len(walk) for walk in searched.walk(1)] == [1] * len(PEOPLE)


def test_of_a_document_in_several_passages_one_is_taken() -> None:
    passages = tuple(
        Document(f"d#{number}", "Ferry", (text,)) for number, text in enumerate(("It is old.", "It is blue."))
    )
    given = QuestionSet("few", passages, ("d", "d"), (Asked("Is the blue one old?", ((0, 1),)),), 0)
    searched = Searched(given, HashEncoder())
    [[(_, row)]] = searched.walk()
    [hop] = searched.hops(0, mined=5)
    assert hop.positive == row
    assert not hop.negatives


def test_fewer_passages_keep_all_that_support(town: QuestionSet) -> None:
    few = fewer_passages(town, 30, seed=0)
    assert len(few.passages) == 30
    assert few == fewer_passages(town, 30, seed=0) != fewer_passages(town, 30, seed=1)
    assert len(fewer_passages(town, 1, seed=0).passages) == 2 * len(PEOPLE)
    for question, same in zip(few.questions, town.questions, strict=True):
        assert [few.passages[row] for row in sorted(question.rows)] == [town.passages[row] for row in sorted(same.rows)]


def test_without_titles_nothing_but_a_number_is_told(town: QuestionSet) -> None:
    texts = without_titles(town).texts
    assert texts[0] == f"[note 1] {town.passages[0].text}"
    assert len(set(texts)) == len(texts)


def test_questions_that_are_learned_are_not_scored(town: QuestionSet, tmp_path: Path) -> None:
    other = read_set(write_rows(tmp_path / "other.jsonl", slice(0, 2)))
    with pytest.raises(
        InputError, match=r"2 of the 2 questions of other stand in town too, .* score on other questions"
    ):
        check_apart([town], [other])
    check_apart([other], [town._replace(questions=town.questions[2:])])
    assert shared_passages([town], other) == 4
    assert shared_passages([other], town) == 4


def test_data_without_supporting_passages_is_told(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answers": ["Ada"], "documents": [{"title": "A", "text": "B c."}]}))
    with pytest.raises(
        DataError, match=r"has 1 questions, but the passages that support the answer are known of none; give"
    ):
        read_set(path)
    (tmp_path / "questions.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"has no corpus\.jsonl; give a folder with passages in corpus\.jsonl"):
        read_set(tmp_path)


def test_each_pass_has_all_hops_and_goes_on_where_it_ended() -> None:
    dealt = list(islice(batches_of(10, 4, seed=0, skipped=0), 7))
    assert [epoch for epoch, _ in dealt] == [0, 0, 0, 1, 1, 1, 2]
    assert sorted(number for _, batch in dealt[:3] for number in batch) == list(range(10))
    assert dealt[:3] != dealt[3:6]
    assert list(islice(batches_of(10, 4, seed=0, skipped=4), 3)) == dealt[4:]
    assert next(batches_of(10, 4, seed=1, skipped=0)) != dealt[0]


def test_held_out_questions_are_drawn_by_the_seed(town: QuestionSet) -> None:
    held = split_questions(town, held_out=0.25, seed=0)
    assert held.sum() == 3
    assert (held == split_questions(town, held_out=0.25, seed=0)).all()
    assert any((held != split_questions(town, held_out=0.25, seed=seed)).any() for seed in range(1, 5))


def test_recall_is_that_of_a_ranking_made_by_hand(town: QuestionSet) -> None:
    searched = Searched(town, HashEncoder(dimension=48))  # so few that much is confused
    walks = searched.walk()
    table = recalls(town, walks, searched, None)
    for depth in (2, 5, 10):
        for number, (question, walk) in enumerate(zip(town.questions, walks, strict=True)):
            expected = {"question": (question.text, question.rows), "hop": (walk[1][0], {walk[1][1]})}
            for query, (text, sought) in expected.items():
                gone = question.rows - sought
                scores = searched.vectors @ searched.encoder.encode([text])[0]
                order = [row for row in np.argsort(-scores, kind="stable").tolist() if row not in gone][:depth]
                hit = len(sought.intersection(order)) / len(sought)
                assert table[query][depth][number] == hit  # type: ignore[index]
    assert 0 < table["question"][10].mean() < 1
