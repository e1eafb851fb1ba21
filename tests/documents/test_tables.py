"""CSV files: rows as documents where a column holds texts, else lines that name their columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pytrace.documents import ReadReport, read_documents, tables, text_files
from pytrace.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_row_names_its_columns(tmp_path: Path, delimiter: str) -> None:
    rows = (
        ("Ship", "Built", "Yard"),
        ("Marigold Tern", "1998", '"Bay, North; Yard | A"'),
        ("Grey Gull", "", "Halvorsen"),
    )
    path = write(tmp_path / "the_ships.csv", "\r\n".join(delimiter.join(row) for row in rows))
    (document,) = read_documents(path)
    assert document.title == "the ships"
    assert document.sentences == (
        "Ship: Marigold Tern; Built: 1998; Yard: Bay, North; Yard | A",
        "Ship: Grey Gull; Yard: Halvorsen",
    )


def test_a_number_in_the_first_row_means_that_columns_have_no_names(tmp_path: Path) -> None:
    (document,) = read_documents(write(tmp_path / "a.tsv", "Tern\t1998\nGull\t2003\n"))
    assert document.sentences == ("Tern; 1998", "Gull; 2003")


def test_rows_with_a_text_are_documents_and_other_columns_metadata(tmp_path: Path) -> None:
    text = (
        'ID,Title,Text,Year\nx,Ada Foah,"A town\nin Ghana.",1783\n,,It lies on the coast. It has a fort.,\n,Empty,,\n'
    )
    path = write(tmp_path / "a.csv", text)
    report = ReadReport()
    first, second = read_documents(path, report=report)
    assert (first.id, first.title, first.text, first.source) == ("x", "Ada Foah", "A town in Ghana.", f"{path}:2")
    assert first.origin is not None
    assert first.origin.metadata == {"Year": "1783"}
    assert (second.title, second.origin) == ("It lies on the coast. It has a fort.", None)
    assert (report.documents, report.empty) == (2, 1)
    assert [document.id for document in read_documents(path, where=["Year<=1783"])] == ["x"]


def test_long_tables_are_cut_between_rows(tmp_path: Path) -> None:
    rows = "".join(f"Ship {number},{1900 + number}\n" for number in range(100))
    passages = list(read_documents(write(tmp_path / "a.csv", f"Name,Built\n{rows}"), words=20))
    assert len(passages) == 25
    assert passages[1].sentences[0] == "Name: Ship 4; Built: 1904"


def test_bad_tables_cost_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"a\.csv:2: no row can be read here .*; is a quote not closed\?"):
        list(read_documents(write(tmp_path / "a.csv", 'Name,Text\n1,"' + "x" * 10_000_001)))
    for empty in ("", "\n\n", ",,\n"):
        with pytest.raises(DataError, match="no document was found"):
            list(read_documents(write(tmp_path / "b.csv", empty)))
    assert [document.text for document in read_documents(write(tmp_path / "f.csv", "name\n\x0e\nTern\n"))] == [
        "name: Tern"
    ]
    with pytest.raises(DataError, match="binary file"):
        list(read_documents(write(tmp_path / "c.csv", b"a,b\0")))
    monkeypatch.setattr("pytrace.documents.tables.MOST_BYTES", 100)
    with pytest.raises(DataError, match="has more than 100 characters, the most that is read of one table"):
        list(read_documents(write(tmp_path / "d.csv", "Name\n" + "word\n" * 1000)))
    texts = write(tmp_path / "e.csv", "text\n" + "".join(f"Word number {number}.\n" for number in range(1000)))
    assert len(list(read_documents(texts))) == 1000, "rows that are documents are read one at a time"


def test_an_older_encoding_is_found(tmp_path: Path) -> None:
    report = ReadReport()
    path = write(tmp_path / "a.csv", "Stadt;Fluss\nKöln;Rhein\n".encode("cp1252"))
    (document,) = read_documents(path, report=report)
    assert document.text == "Stadt: Köln; Fluss: Rhein"
    assert report.warnings[0].endswith("read as cp1252, the likeliest: save it as UTF-8 if that is wrong")


def test_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MOST_BYTES", 100)
    with pytest.raises(DataError, match="has more than 100 bytes, the most that is read of one text; split it"):
        list(read_documents(write(tmp_path / "a.txt", "word " * 30)))
    monkeypatch.setattr("pytrace.documents.json_rows.MOST_BYTES", 100)
    with pytest.raises(DataError, match=r"b\.json:1: not a JSON list \(an item has more than 100 bytes\)"):
        list(read_documents(write(tmp_path / "b.json", '[{"title": "A", "text": "B"},\n{"title": "' + "x" * 600_000)))
    with pytest.raises(DataError, match=r"b\.jsonl:2: has more than 100 bytes in a line"):
        list(read_documents(write(tmp_path / "b.jsonl", '{"title": "A", "text": "B"}\n{"title": "' + "x" * 200)))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.csv.gz"])
def test_what_is_packed_unpacks_within_bounds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MOST_BYTES", 10_000)
    row = {
        "a.txt.gz": b"A word.\n",
        "a.jsonl.gz": b'{"title": "A", "text": "A word."}\n',
        "a.csv.gz": b"text,n\nA,1\n",
    }[name]
    path = write(tmp_path / name, gzip.compress(row * 200))
    assert list(read_documents(path))
    path.write_bytes(gzip.compress(row * 30_000))
    with pytest.raises(DataError, match=r"unpacks to more than [\d,]+ bytes|has more than 10,000 bytes"):
        list(read_documents(path))


def test_a_line_of_a_table_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.documents.tables._LONGEST_LINE", 1_000)
    with pytest.raises(DataError, match=r"a\.csv:2: has more than 1,000 characters in a line"):
        list(read_documents(write(tmp_path / "a.csv", "a,b\n" + "1," * 10_000)))


def test_a_long_head_is_cleaned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "ab " * 100
    cleaned: list[str] = []
    monkeypatch.setattr(tables, "clean_text", lambda text: cleaned.append(text) or text.strip())
    (document,) = read_documents(write(tmp_path / "a.tsv", f"{head}\tx\n" + "\ty\n" * 50), words=10_000)
    assert document.sentences == ("x: y",) * 50
    assert cleaned.count(head) == 1
