"""Responses are read from files of any model, and those of a run are kept line by line."""

import json

import pytest

from pytrace.certify.response_files import ResponseFile, read_responses
from pytrace.check_records import Response
from pytrace.errors import DataError, InputError, StoreError
from pytrace.records import Triple

PATHS = [[["corfu", "part of", "greece"], ["greece", "language", "greek"]]]


def write(tmp_path, *rows, name="responses.jsonl"):
    path = tmp_path / name
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    return path


def test_a_row_gives_its_response_with_all_that_is_gold(tmp_path):
    row = {"id": 7, "question": "q", "response": "r", "answers": ["a", "b"], "gold_paths": PATHS, "topics": ["corfu"]}
    [found] = read_responses(write(tmp_path, row))
    path = (Triple("corfu", "part of", "greece"), Triple("greece", "language", "greek"))
    assert found == Response("7", "q", "r", ("a", "b"), (path,), ("corfu",))


def test_other_programs_names_are_known(tmp_path):
    rows = [
        {"question": "q", "prediction": "r", "golden_answers": ["a"]},
        {"question": "q", "reasoning_ans": ["r", "s"], "answer": "a", "ground_truth_paths": PATHS},
        {"question": "q", "output": "r"},
    ]
    found = list(read_responses(write(tmp_path, *rows)))
    assert [(one.id, one.text, one.sample, one.answers) for one in found] == [
        ("1", "r", 0, ("a",)),
        ("2", "r", 0, ("a",)),
        ("2", "s", 1, ("a",)),
        ("3", "r", 0, ()),
    ]
    assert len(found[1].paths[0]) == 2


def test_steps_and_answer_may_stand_apart(tmp_path):
    text = "1. Corfu is in Greece.\n2. Greece speaks Greek.\nSo the answer is (Greek)."
    listed, told = ["Corfu is in Greece.", "Greece speaks Greek."], "Corfu is in Greece. Greece speaks Greek."
    rows = [
        {"question": "q", "steps": listed, "answer": "Greek", "answers": ["g"]},
        {"question": "q", "reasoning": told, "answer": ["Greek"]},
        {"question": "q", "rationale": listed, "prediction": "Greek", "answer": "g"},
        {"question": "q", "steps": listed, "response": "**Answer:** Greek", "answer": "g"},
        {"question": "q", "steps": ["no"], "response": text, "answer": "g"},
    ]
    found = list(read_responses(write(tmp_path, *rows)))
    assert [one.text for one in found] == [text] * 5
    assert [one.answers for one in found] == [("g",), (), ("g",), ("g",), ("g",)]


def test_limit_counts_rows(tmp_path):
    path = write(tmp_path, *[{"question": "q", "response": ["r", "s"]}] * 3)
    assert len(list(read_responses(path, limit=2))) == 4
    with pytest.raises(InputError, match="limit is 0"):
        read_responses(path, limit=0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"response": "r"}, "`question` must be a string, not None"),
        ({"question": "q"}, "the row has no response"),
        ({"question": "q", "steps": ["a"]}, "the row has no response"),
        ({"question": "q", "steps": 7, "answer": "a"}, "`steps` must be"),
        ({"question": "q", "steps": ["a"], "answer": 7}, "`answer` must be a string or a list"),
        ({"question": "q", "response": 3}, "`response` must be a string or a list of strings, not 3"),
        ({"question": "q", "response": []}, "`response` must be"),
        ({"question": "q", "response": ["r", None]}, "`response` must be"),
        ({"question": "q", "response": "r", "answers": 3}, "`answers` must be"),
        ({"question": "q", "response": "r", "gold_paths": [["a", "b", "c"]]}, r"`gold_paths\[0\]\[0\]` must be \[head"),
        ({"question": "q", "response": "r", "gold_paths": [[["a", "", "c"]]]}, r"`gold_paths\[0\]\[0\]` must be"),
        ({"question": "q", "response": "r", "topics": {}}, "`topics` must be"),
        (b"{", "JSON"),
        (b"\xff", "not JSON"),
        ([1], "object"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(tmp_path, row, message):
    path = write(tmp_path, {"question": "q", "response": "r"}, row)
    with pytest.raises(DataError, match=message) as error:
        list(read_responses(path))
    assert f"{path}:2:" in str(error.value)


def test_a_file_without_responses_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no response"):
        list(read_responses(write(tmp_path)))
    with pytest.raises(DataError):
        list(read_responses(tmp_path / "missing.jsonl"))


def test_a_run_goes_on_with_what_it_lacks(tmp_path):
    path = tmp_path / "runs" / "responses.jsonl"
    first = [Response("q1", "a?", "one", ("x",), (), ("t",)), Response("q1", "a?", "two", ("x",), (), ("t",), sample=1)]
    with ResponseFile(path, {"seed": 0}) as file:
        assert file.known == set()
        file.add(first)
        file.add([])
    with path.open("ab") as stream:
        stream.write(b'{"id": "q2", "question": "cut o')  # as a kill leaves it
    with ResponseFile(path, {"seed": 0}) as file:
        assert file.known == {"q1"}
        file.add([Response("q2", "b?", "three \ud800")])
    assert [one.text for one in read_responses(path)] == ["one", "two", "three \ufffd"]
    assert list(read_responses(path))[:2] == first


def test_a_file_of_another_run_is_refused(tmp_path):
    path = tmp_path / "responses.jsonl"
    ResponseFile(path, {"seed": 0}).__exit__(None, None, None)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="other settings"):
        ResponseFile(path, {"seed": 1})
    other = write(tmp_path, {"question": "mine"}, name="mine.jsonl")
    with other.open("ab") as stream:
        stream.write(b"\n")
    kept = other.read_bytes()
    with pytest.raises(StoreError, match="other settings"):
        ResponseFile(other, {"seed": 0})
    assert (path.read_bytes(), other.read_bytes()) == (before, kept)


def test_two_processes_do_not_write_one_file(tmp_path):
    path = tmp_path / "responses.jsonl"
    with ResponseFile(path, {}), pytest.raises(StoreError, match="another process"):
        ResponseFile(path, {})


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "responses.jsonl"
    ResponseFile(path, {}).__exit__(None, None, None)
    with path.open("ab") as stream:
        stream.write(b"[]\n")
    with pytest.raises(StoreError, match="damaged"):
        ResponseFile(path, {})


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        ResponseFile(tmp_path / "file" / "responses.jsonl", {})
