"""Readers of documents: every format, every bad input with its place, and sentence splitting of hostile text."""

from __future__ import annotations

import gzip
import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import (
    DocumentChunk,
    ReadReport,
    clean_text,
    read_documents,
    split_document,
    split_sentences,
)
from pytrace.documents import (
    json_rows as files,
)
from pytrace.documents.markdown import read_markdown
from pytrace.errors import DataError, InputError
from pytrace.records import Document, Origin

ADA = {"title": "Ada Foah", "text": "Ada Foah is a town in Ghana. It lies on the coast."}


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read(path: Path) -> list[Document]:
    return list(read_documents(path))


def error_of(path: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return caught.value


def documents_or_error(path: Path) -> tuple[list[Document], str]:
    try:
        return read(path), ""
    except DataError as error:
        return [], str(error)


class TestJson:
    def test_lines_with_text_are_split_and_know_their_line(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", lines(ADA, {"title": "Two", "text": "One."}))
        first, second = read(path)
        assert first.sentences == ("Ada Foah is a town in Ghana.", "It lies on the coast.")
        assert (first.source, second.source) == (f"{path}:1", f"{path}:2")

    def test_given_sentences_stay_as_they_are_and_empty_ones_go(self, tmp_path: Path) -> None:
        row = {"title": "T", "sentences": [" No. 1 is it. And so on.", "", "  ", "End"]}
        [document] = read(write(tmp_path / "a.jsonl", lines(row)))
        assert document.sentences == ("No. 1 is it. And so on.", "End")

    @pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt2", "a"])
    def test_a_list_reads_as_lines_do(self, tmp_path: Path, name: str) -> None:
        listed = read(write(tmp_path / name, json.dumps([ADA, {"title": "Two", "text": "One."}], indent=2)))
        by_line = read(write(tmp_path / "b.jsonl", lines(ADA, {"title": "Two", "text": "One."})))
        assert [(d.id, d.title, d.sentences) for d in listed] == [(d.id, d.title, d.sentences) for d in by_line]
        assert listed[1].source == f"{tmp_path / name}[2]"

    def test_one_object_over_many_lines_is_read(self, tmp_path: Path) -> None:
        assert read(write(tmp_path / "a.json", json.dumps(ADA, indent=2)))[0].title == "Ada Foah"

    def test_mark_crlf_blank_lines_and_no_last_newline_do_not_matter(self, tmp_path: Path) -> None:
        body = (
            b"\xef\xbb\xbf\r\n"
            + lines(ADA).strip().encode()
            + b"\r\n\r\n"
            + lines({"title": "é", "text": "x"}).encode()
        )
        first, second = read(write(tmp_path / "a.jsonl", body.rstrip(b"\n")))
        assert (first.title, second.title) == ("Ada Foah", "é")
        assert second.source.endswith(":4")

    def test_gzip_is_unpacked(self, tmp_path: Path) -> None:
        assert read(write(tmp_path / "a.jsonl.gz", gzip.compress(lines(ADA).encode())))[0].title == "Ada Foah"
        [document] = read(write(tmp_path / "Ada_Foah.md.gz", gzip.compress(b"Text *here*.")))
        assert (document.title, document.sentences) == ("Ada Foah", ("Text here.",))

    def test_data_sets_give_their_paragraphs(self, tmp_path: Path) -> None:
        hotpot = {"question": "?", "context": [["A", ["One. ", " Two."]], ["B", ["Three."]]]}
        columns = {"question": "?", "context": {"title": ["C"], "sentences": [["Four."]]}}
        musique = {"paragraphs": [{"idx": 0, "title": "D", "paragraph_text": "Five. Six.", "is_supporting": True}]}
        ours = {"question": "?", "documents": [{"title": "E", "text": "Seven."}]}
        found = read(write(tmp_path / "a.jsonl", lines(hotpot, columns, musique, ours)))
        assert [(d.title, d.sentences) for d in found] == [
            ("A", ("One.", "Two.")),
            ("B", ("Three.",)),
            ("C", ("Four.",)),
            ("D", ("Five.", "Six.")),
            ("E", ("Seven.",)),
        ]

    @pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
    def test_beir_documents_have_their_ids_and_a_title_even_where_theirs_is_empty(
        self, tmp_path: Path, name: str
    ) -> None:
        long = "Ada Foah lies where the Volta flows into the sea, and its beaches are known for their turtles."
        content = lines(
            {"_id": "MED-1", "title": "Ada Foah", "text": "A town. It lies on the coast.", "metadata": {"url": "x"}},
            {"_id": "2", "title": "", "text": long, "metadata": {}},
            {"_id": "3", "title": None, "text": "x" * 90},
            {"_id": 4, "id": "four", "title": " ", "text": "Short."},
            {"_id": "5", "title": "", "text": ""},
        ).encode()
        report = ReadReport()
        path = write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
        found = list(read_documents(path, report=report))
        assert [(one.id, one.title) for one in found] == [
            ("MED-1", "Ada Foah"),
            ("2", "Ada Foah lies where the Volta flows into the sea, and its"),
            ("3", "x" * 60),
            ("four", "Short."),
        ]
        assert found[0].sentences == ("A town.", "It lies on the coast.")
        assert found[1].sentences == (long,)
        assert [(one.title, one.reason) for one in report.skipped] == [("5", "it has no text")]

    @pytest.mark.parametrize(
        ("row", "says"),
        [
            ("{not json", "not JSON"),
            ('{"_id": "1", "text": "a question", "metadata": {}}', "no `title`"),
            ('{"_id": "1", "title": 5, "text": "x"}', "`title` must be a string, not 5"),
            ('{"_id": [], "title": "", "text": "x"}', "`_id` must be a string or a whole number"),
            ('{"title": "T", "text": "cut off', "not JSON"),
            ('{"title": "T", "text": "\\ud800"}', "not JSON"),
            ("[" * 100_000, "not JSON"),
            ('"words"', "holds a JSON string"),
            ("17", "holds a JSON number"),
            ("null", "holds a JSON null"),
            ("{}", "no `text` (the object is empty)"),
            ('{"title": "T"}', 'needs "title" and "text"'),
            ('{"title": "T", "text": null}', "no `text`"),
            ('{"text": "x"}', "no `title`"),
            ('{"title": "", "sentences": ["x"]}', "`title` is empty"),
            ('{"title": 5, "text": "x"}', "`title` must be a string, not 5"),
            ('{"title": "T", "text": 5}', "`text` must be a string, not 5"),
            ('{"title": "T", "sentences": "x"}', "`sentences` must be a list of strings"),
            ('{"title": "T", "sentences": ["x", {}]}', "`sentences[1]` must be a string, not {}"),
            ('{"title": "T", "text": "x", "id": [1]}', "`id` must be a string or a whole number"),
            ('{"title": "T", "text": "x", "id": true}', "`id` must be a string or a whole number"),
            ('{"title": "T", "text": "x", "id": " "}', "`id` is empty"),
            ('{"context": 5}', "`context` must be a list"),
            ('{"context": [["T"]]}', "`context[0]` must be a pair"),
            ('{"context": [[1, ["x"]]]}', "`context[0][0]` must be the title"),
            ('{"context": [["T", "x"]]}', "`context[0][1]` must be a list of strings"),
            ('{"context": {"title": ["T"], "sentences": []}}', "lists of one length"),
            ('{"paragraphs": 5}', "`paragraphs` must be a list of objects"),
            ('{"paragraphs": [5]}', "`paragraphs[0]` must be an object, not 5"),
            ('{"paragraphs": [{"title": "T"}]}', "`paragraph_text` must be a string, not None"),
            ('{"documents": [{"title": "T"}]}', "no `text`"),
        ],
    )
    def test_a_bad_row_is_told_with_its_line(self, tmp_path: Path, row: str, says: str) -> None:
        good = lines(*({"title": f"T{i}", "text": "x"} for i in range(16)))
        error = error_of(write(tmp_path / "a.jsonl", good + row + "\n"))
        assert str(error).startswith(f"{tmp_path / 'a.jsonl'}:17: ")
        assert says in str(error)
        assert (error.path, error.line) == (tmp_path / "a.jsonl", 17)

    def test_a_bad_item_of_a_list_is_told_with_its_number(self, tmp_path: Path) -> None:
        assert "item 2 of the list: no `text`" in str(
            error_of(write(tmp_path / "a.json", '[{"title":"A","text":"x"},{}]'))
        )

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ('[{"title": "A", "text": "x"},\n\n oops]', 3),
            ('[{"title": "A", "text": "x"},\n\n]', 3),
            ('[\n{"title": "A", "text": "x"}\n,, {}]', 3),
            ('[{"title": "A", "text": "x"}\n', 2),
            ('[{"title": "A", "text": "x"},\n{"title": "B", "text": "x\n\n', 4),
            ('[{"title": "A", "text": "x"}]\n\n{"title": "A"}', 3),
            ('[{"title": "A", "text": "x"}\n}', 2),
            ('[{"title": "A",\n "text": "x"]}\n]', 2),
            ("[" * 100_000 + "]" * 100_000, 1),
        ],
    )
    def test_a_broken_list_is_told_with_its_line(self, tmp_path: Path, text: str, line: int) -> None:
        error = error_of(write(tmp_path / "a.json", text))
        assert error.line == line
        assert "not a JSON list" in str(error)

    @given(
        st.lists(
            st.dictionaries(
                st.text(max_size=4),
                st.text(alphabet='ab"\\[]{},: \n\x00é😀', max_size=30)
                | st.lists(st.integers(-(1 << 63), (1 << 63) - 1)),
            ),
            max_size=6,
        ),
        st.sampled_from([None, 0, 2]),
        st.integers(1, 9),
    )
    def test_lists_are_cut_into_their_items_wherever_a_read_ends(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], indent: int | None, chunk: int
    ) -> None:
        text = json.dumps(rows, indent=indent, ensure_ascii=False)
        path = write(tmp_path_factory.getbasetemp() / "list.json", f" \n{text} \n ")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "_CHUNK", chunk + 4)
            assert [row for _, row in files.json_rows(path)] == rows

    def test_bytes_that_are_no_utf8_are_told_with_their_line(self, tmp_path: Path) -> None:
        error = error_of(write(tmp_path / "a.jsonl", lines(ADA).encode() + b'{"title": "\xe9", "text": "x"}'))
        assert error.line == 2
        assert "not UTF-8 (byte 0xe9)" in str(error)

    @pytest.mark.parametrize(
        ("suffix", "distinct", "most"), [("jsonl", True, 600), ("jsonl", False, 20), ("json", False, 20)]
    )
    def test_memory_does_not_grow_with_the_file(self, tmp_path: Path, suffix: str, distinct: bool, most: int) -> None:
        def peak(rows: int) -> int:
            path = tmp_path / f"{rows}.{suffix}"
            texts = [json.dumps({"title": f"T{i}", "sentences": ["x" * 2_000]}) for i in range(rows)]
            path.write_text("\n".join(texts) if suffix == "jsonl" else f"[{','.join(texts)}]")
            del texts
            tracemalloc.start()
            assert sum(1 for _ in read_documents(path, distinct=distinct)) == rows
            highest = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return highest

        peak(10)
        assert (peak(3_000) - peak(500)) / 2_500 < most, "bytes held for each document read"

    def test_whoever_tells_documents_apart_gets_all_of_them(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", lines(ADA, {"title": "B", "text": "x"}, ADA))
        report = ReadReport()
        assert [d.title for d in read_documents(path, report=report, distinct=False)] == ["Ada Foah", "B", "Ada Foah"]
        assert (report.documents, report.duplicates) == (3, 0)

    @given(st.binary(max_size=300))
    def test_any_bytes_give_documents_or_one_sentence(
        self, tmp_path_factory: pytest.TempPathFactory, data: bytes
    ) -> None:
        for name in ("a.jsonl", "a.json", "a.txt", "a.md", "a.bin", "a.jsonl.gz"):
            path = write(tmp_path_factory.getbasetemp() / "bytes" / name, data)
            documents, told = documents_or_error(path)
            assert documents or str(path) in told
            assert all(d.sentences and all(d.sentences) and d.id and d.title for d in documents)

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["title", "text", "sentences", "id", "context", "paragraphs", "documents", "paragraph_text"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_any_json_gives_documents_or_one_sentence(
        self, tmp_path_factory: pytest.TempPathFactory, row: object
    ) -> None:
        path = write(tmp_path_factory.getbasetemp() / "json.jsonl", json.dumps(row))
        documents, told = documents_or_error(path)
        assert documents or str(path) in told


class TestIdentity:
    def test_made_ids_rest_on_title_and_content_alone(self, tmp_path: Path) -> None:
        [a] = read(write(tmp_path / "a.jsonl", lines(ADA)))
        [b] = read(write(tmp_path / "b" / "c.json", json.dumps([{**ADA, "extra": 1}])))
        assert a.id == b.id
        assert a.id.startswith("ada-foah-")

    def test_the_same_document_is_given_once_and_reported(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", lines(ADA, {"title": "B", "text": "x"}, ADA))
        report = ReadReport()
        assert [d.title for d in read_documents(path, report=report)] == ["Ada Foah", "B"]
        assert (report.documents, report.duplicates) == (2, 1)
        assert report.skipped[0].source == f"{path}:3"
        assert report.skipped[0].reason == f"the same document as {path}:1"

    def test_given_ids_are_kept_and_numbers_allowed(self, tmp_path: Path) -> None:
        assert [d.id for d in read(write(tmp_path / "a.jsonl", lines({**ADA, "id": 7}, {**ADA, "id": "x"})))] == [
            "7",
            "x",
        ]

    def test_one_id_for_other_words_names_both_places(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", lines({**ADA, "id": 7}, {"id": 7, "title": "B", "text": "x"}))
        error = error_of(path)
        assert error.line == 2
        assert f"{path}:1" in str(error)

    def test_titles_in_any_script_make_ids(self, tmp_path: Path) -> None:
        rows = [{"title": t, "text": "x"} for t in ("สิงห์", "東京", "!!!", "a" * 500, "../../etc")]
        ids = [d.id for d in read(write(tmp_path / "a.jsonl", lines(*rows)))]
        assert len(set(ids)) == 5
        assert all(0 < len(i) <= 60 and "/" not in i for i in ids)
        assert ids[1].startswith("東京-")


class TestFiles:
    def test_a_text_file_is_one_document_named_by_the_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "Fort_Kongenstein.txt", "\ufeffBuilt in\r\n1783.\r\n\r\nIt is No. 1 of\nmany. Yes")
        id = read(path)[0].id
        sentences = ("Built in 1783.", "It is No. 1 of many.", "Yes")
        origin = Origin(id, "Fort Kongenstein", start=0, end=40, sentences=(0, 16, 37), titled=False)
        assert read(path) == [Document(id, "Fort Kongenstein", sentences, str(path), origin)]

    def test_folders_are_read_in_order_without_hidden_and_other_files(self, tmp_path: Path) -> None:
        for name in ("b.txt", "a/z.md", "a/.git/c.md", ".hidden.txt", "c.jsonl", "A.markdown"):
            write(tmp_path / name, lines({"title": "J", "text": "j"}) if name.endswith("jsonl") else f"Text of {name}.")
        write(tmp_path / "picture.png", b"\x89PNG\0")
        write(tmp_path / "empty.txt", "  \n")
        report = ReadReport()
        assert [d.title for d in read_documents(tmp_path, report=report)] == ["A", "z", "b", "J"]
        assert (report.other_files, report.empty) == (1, 1)
        assert [(Path(s.source).name, s.reason) for s in report.skipped] == [
            ("empty.txt", "it has no text"),
            ("picture.png", "none of the formats that are read"),
        ]

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_of_a_beir_folder_the_corpus_is_read_and_the_rest_named(self, tmp_path: Path, suffix: str) -> None:
        def put(name: str, content: str) -> None:
            data = content.encode()
            write(tmp_path / "beir" / name, gzip.compress(data) if name.endswith(".gz") else data)

        put(f"corpus.jsonl{suffix}", lines({"_id": "1", "title": "", "text": "One.", "metadata": {}}))
        put(f"queries.jsonl{suffix}", lines({"_id": "q", "text": "Which?", "metadata": {}}))
        put("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\t1\t1\n")
        put("qrels/dev.txt", "q 0 1 1\n")
        report = ReadReport()
        for folder in (tmp_path / "beir", tmp_path):
            report = ReadReport()
            assert [one.id for one in read_documents(folder, report=report)] == ["1"]
        assert report.other_files == 3
        assert [(Path(one.source).name, one.reason) for one in report.skipped] == [
            ("dev.txt", "relevance judgements of a BEIR corpus, no documents"),
            ("test.tsv", "relevance judgements of a BEIR corpus, no documents"),
            (f"queries.jsonl{suffix}", "the questions of a BEIR corpus, no documents"),
        ]

    def test_files_of_such_names_elsewhere_are_read(self, tmp_path: Path) -> None:
        write(tmp_path / "queries.jsonl", lines(ADA))
        write(tmp_path / "qrels" / "notes.txt", "Text.")
        assert [one.title for one in read(tmp_path)] == ["notes", "Ada Foah"]

    def test_empty_documents_are_named_and_the_rest_goes_on(self, tmp_path: Path) -> None:
        report = ReadReport()
        rows = lines(
            {"title": "E", "text": " \n"}, {"title": "F", "sentences": []}, ADA, {"title": "G", "text": "\u0000"}
        )
        assert len(list(read_documents(write(tmp_path / "a.jsonl", rows), report=report))) == 1
        assert [(s.title, s.source[-2:]) for s in report.skipped] == [("E", ":1"), ("F", ":2"), ("G", ":4")]
        assert report.empty == 3

    def test_loops_of_links_end_and_pipes_are_not_opened(self, tmp_path: Path) -> None:
        write(tmp_path / "a" / "x.txt", "Text.")
        (tmp_path / "a" / "up").symlink_to(tmp_path)
        (tmp_path / "a" / "self").symlink_to(tmp_path / "a")
        (tmp_path / "broken.txt").symlink_to(tmp_path / "nowhere")
        (tmp_path / "round.txt").symlink_to(tmp_path / "round.txt")
        os.mkfifo(tmp_path / "pipe.txt")
        report = ReadReport()
        assert [d.title for d in read_documents(tmp_path, report=report)] == ["x"]
        assert {Path(s.source).name for s in report.skipped} == {"broken.txt", "pipe.txt", "round.txt"}

    def test_files_of_other_formats_are_told_what_to_save_them_as(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "Ada Foah.")
        for name in ("b.doc", "c.png"):
            write(tmp_path / name, b"x")
        report = ReadReport()
        assert len(list(read_documents(tmp_path, report=report))) == 1
        reasons = ["none of the formats that are read; save it as .docx", "none of the formats that are read"]
        assert [skipped.reason for skipped in report.skipped] == reasons

    def test_a_broken_text_costs_one_message_in_a_folder_and_wrong_rows_an_error(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", b"text\0more")
        write(tmp_path / "b.csv", b"name\0\n")
        write(tmp_path / "c.md", "Ada Foah.")
        report = ReadReport()
        assert [document.text for document in read_documents(tmp_path, report=report)] == ["Ada Foah."]
        assert ["binary file" in skipped.reason for skipped in report.skipped] == [True, True]
        write(tmp_path / "d.jsonl", '{"title": 1}')
        with pytest.raises(DataError, match=r"d\.jsonl:1"):
            list(read_documents(tmp_path))

    def test_several_paths_are_one_collection(self, tmp_path: Path) -> None:
        a, b = (
            write(tmp_path / "a.jsonl", lines(ADA)),
            write(tmp_path / "b.jsonl", lines(ADA, {"title": "B", "text": "x"})),
        )
        assert [d.title for d in read_documents([a, str(b)])] == ["Ada Foah", "B"]

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("a.txt", b"text\0more", "binary file"),
            ("a.jsonl", "{}".encode("utf-16"), "UTF-16"),
            ("a.pdf", b"%PDF-1.7 ...", "PDF"),
            ("a.docx", b"PK\x03\x04...", "is damaged"),
            ("a.txt", b"PK\x03\x04...", "zip archive"),
            ("a.doc", b"\xd0\xcf\x11\xe0...", "an old office document; save it as .docx"),
            ("a.txt", b"{\\rtf1 Ada Foah}", "rich text; save it as .docx"),
            (
                "a.jsonl",
                gzip.compress(b"{}", mtime=0),
                "gzip-compressed",
            ),  # without the time, which would be part of the name
            ("a.jsonl.gz", b"plain", "broken gzip"),
            ("a.jsonl.gz", gzip.compress(b"x" * 1000, mtime=0)[:-9], "broken gzip"),
            ("a.txt", b"ok\x01\x02\x03", "binary file (byte 1 at position 2)"),
            ("a.jsonl", b"", "no document was found"),
            ("a.json", b"[]", "no document was found"),
            ("a.jsonl", b'{"title": "T", "text": ""}', "1 had no text"),
        ],
    )
    def test_an_unusable_file_is_told(self, tmp_path: Path, name: str, content: bytes, says: str) -> None:
        assert says in str(error_of(write(tmp_path / name, content)))

    def test_bytes_of_a_text_that_are_no_utf8_are_one_warning(self, tmp_path: Path) -> None:
        report = ReadReport()
        path = write(tmp_path / "a.txt", b"\xef\xbb\xbfok\nfine\n\xff and \xfe")
        (document,) = read_documents(path, report=report)
        assert document.text == "ok fine \ufffd and \ufffd"
        assert report.warnings == [f"{path}: not UTF-8 (byte 0xff on line 3); 2 such bytes were replaced by \ufffd"]

    @pytest.mark.parametrize(
        ("encoding", "text"),
        [
            ("utf-16", "Café"),
            ("utf-32", "Café"),
            ("cp1252", "Café"),
            ("cp1252", "Die Straße führt über die Brücke nach Köln. Größere Fahrzeuge dürfen nicht."),
            ("cp1250", "Zażółć gęślą jaźń. Książka leży na półce w łódzkim domu."),
            ("cp1251", "Москва является столицей России. Город расположен на реке Москве."),
            ("koi8-r", "Москва является столицей России. Город расположен на реке Москве."),
            ("shift_jis", "東京は日本の首都です。人口は約千四百万人である。"),
            ("gb18030", "北京是中华人民共和国的首都。它位于华北平原的北部。"),
            ("cp1256", "القاهرة هي عاصمة مصر. تقع على نهر النيل."),
        ],
    )
    def test_the_encoding_of_a_text_is_found(self, tmp_path: Path, encoding: str, text: str) -> None:
        report = ReadReport()
        path = write(tmp_path / "a.txt", text.encode(encoding))
        (document,) = read_documents(path, report=report)
        assert "".join(document.text.split()) == "".join(text.split())
        assert [warning.partition("; ")[2][:7] for warning in report.warnings] == ["read as"] * (encoding[:3] != "utf")

    def test_a_file_whose_bytes_are_mostly_utf8_is_read_as_such(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "Größe, Höhe und Maße in Köln".encode() + b" \xe9")
        assert [document.text for document in read_documents(path)] == ["Größe, Höhe und Maße in Köln \ufffd"]

    def test_missing_files_are_told_at_the_call(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert "is a pipe" in str(error_of(tmp_path / "pipe"))
        for path in (tmp_path / "no.jsonl", tmp_path / "bad\0name"):
            with pytest.raises(DataError, match="check the path"):
                read_documents(path)
        with pytest.raises(DataError, match="no file or folder"):
            read_documents([])

    def test_a_folder_without_documents_is_told(self, tmp_path: Path) -> None:
        assert "no document was found" in str(error_of(tmp_path))

    def test_a_file_that_may_not_be_read_is_told(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "x")
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read every file, whatever its mode")
        assert "permission denied" in str(error_of(path))


class TestMarkdown:
    def test_readable_text_of_every_construct(self) -> None:
        text = """---
layout: x
title: "Fort: Kongenstein"
---
# A **fort** [in](http://x.y/z_(a)) Ghana #

Built <b>in</b> _1783_ by ![the Danes](d.png), see [docs][ref], `a_b*c` and snake_case_name &amp; 2 * 3.[^1]
Second line\\
broken.  <!-- gone -->

Setext
------

- one
  goes on
- [x] two
  1. nested

> quoted *words*
> more

```python
x = 1

y = "*z*"
```

| Name | Built |
|:-----|------:|
| Fort K. | 1783 |
| | 1784 |

<div><p>html text</p><script>var gone;</script><td>a</td><td>b</td></div>

***
[^1]: a note

[ref]: http://x.y "t"
"""
        title, blocks, *_ = read_markdown(text)
        assert title == "Fort: Kongenstein"
        assert [block.text for block in blocks] == [
            "A fort in Ghana",
            "Built in 1783 by the Danes, see docs, `a_b*c` and snake_case_name & 2 * 3. Second line broken.",
            "Setext",
            "one goes on",
            "two",
            "nested",
            "quoted words more",
            "x = 1",
            'y = "*z*"',
            "Name: Fort K.; Built: 1783",
            "Built: 1784",
            "html text",
            "a",
            "b",
            "a note",
        ]

    def test_the_title_is_the_front_matters_else_the_first_headings_else_the_files(self, tmp_path: Path) -> None:
        cases = {
            "+++\ntitle = 'Toml'\n+++\n# Head\ntext": "Toml",
            "---\nauthor: x\n---\ntext\n## Head\nmore": "Head",
            "---\ntext that is no front matter": "a name",
            "text only": "a name",
            "---\nprose between two rulers\n---\nmore": "prose between two rulers",
            "---\ntitle:   Spaced  \r\n---\nmore": "Spaced",
        }
        for source, title in cases.items():
            assert read(write(tmp_path / "a_name.md", source))[0].title == title

    def test_a_sentence_never_crosses_a_block(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.md", "# T\n\nNo full stop\n\n- item one\n- item two. And more\n\n## Head No. 1\n")
        assert read(path)[0].sentences == ("No full stop", "item one", "item two.", "And more", "Head No. 1")

    @given(st.text(alphabet="ab *_`[]()<>!#|-\n\t>&;:\\~=+.1^{}\"'é", max_size=120))
    def test_any_markdown_gives_clean_blocks(self, source: str) -> None:
        title, blocks, *_ = read_markdown(source)
        assert title == clean_text(title)
        assert all(block.text and block.text == clean_text(block.text) for block in blocks)

    @pytest.mark.parametrize(
        "piece", ["[", "*a ", "> ", "<!-- ", "<div ", "`a", "[a](b", "<div>\n<a b='", "x <a b='", "![a", "&"]
    )
    def test_hostile_repetition_takes_no_quadratic_time(self, piece: str) -> None:
        start = time.perf_counter()
        read_markdown(piece * 20_000)
        assert time.perf_counter() - start < 10


class TestSentences:
    @pytest.mark.parametrize(
        ("text", "sentences"),
        [
            ("Dr. Smith met J. K. Rowling in Washington, D.C. on Jan. 5. He left.",
             ["Dr. Smith met J. K. Rowling in Washington, D.C. on Jan. 5.", "He left."]),
            ("It cost $3.5 million. \"Is it?\" he asked. Yes!", ["It cost $3.5 million.", '"Is it?" he asked.', "Yes!"]),
            ("Unfinished Music No. 1: Two Virgins is an album.", ["Unfinished Music No. 1: Two Virgins is an album."]),
            ("no stop\n\nnext", ["no stop", "next"]),
            ("one\r\nline. Two", ["one line.", "Two"]),
            ("東京は首都です。人口は多い。", ["東京は首都です。", "人口は多い。"]),
            ("", []),
            (" \n\t\u2028 ", []),
        ],
    )  # fmt: skip
    def test_known_cases(self, text: str, sentences: list[str]) -> None:
        assert split_sentences(text) == sentences

    def test_a_text_that_panics_the_compiled_splitter_is_split(self) -> None:
        # An initial before an ideographic space lands inside a character of the splitter's byte string.
        assert split_sentences("U.S.!...U.S.A\u3000.\x00\r []\r 1. ...\x00")

    def test_a_panic_falls_back_to_a_plain_rule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class PanicException(BaseException):
            pass

        def panic(language: str, text: str) -> list[str]:
            raise PanicException(language, text)

        monkeypatch.setattr("sentencex.segment", panic)
        assert split_sentences("One two. Three! Four") == ["One two.", "Three!", "Four"]

    @given(st.text(st.characters() | st.sampled_from(".?! \n\u3000\"'()AB"), max_size=200))
    def test_no_word_is_lost_in_any_text(self, text: str) -> None:
        sentences = split_sentences(text)
        assert all(sentence and sentence == clean_text(sentence) for sentence in sentences)
        assert "".join("".join(sentences).split()) == "".join(clean_text(text).split())

    @pytest.mark.parametrize("size", [4_090, 4_096, 4_100, 9_000])
    def test_windows_leave_no_trace(self, size: int) -> None:
        sentence = "Dr. Smith met Mr. Jones in the U.S. today."
        count = size // len(sentence) + 3
        assert split_sentences(" ".join([sentence] * count)) == [sentence] * count
        long = "word " * size + "end."
        assert split_sentences(f"Short one. {long} Short two.") == ["Short one.", long, "Short two."]

    @pytest.mark.parametrize("piece", ["Dr. Smith met him. ", "a", "a.", '"a b! ', "東京。", "(a. "])
    def test_time_grows_as_a_line_does(self, piece: str) -> None:
        def seconds(characters: int) -> float:
            start = time.process_time()
            split_sentences(piece * (characters // len(piece)))
            return time.process_time() - start

        # Eight times the text; 64 times the time if every sentence looked at the whole line.
        assert seconds(1_000_000) < 24 * min(seconds(125_000) for _ in range(3))

    def test_lone_surrogates_and_control_characters_become_harmless(self) -> None:
        assert split_sentences("a\ud800b\x00c\x1b[0m. D") == ["a\ufffdb c [0m.", "D"]


def words(text: str) -> int:
    return len(text.split())


def characters(text: str) -> int:
    return len(text) + 2


def joined(parts: list[DocumentChunk]) -> str:
    return "".join("".join(sentence.split()) for part in parts for sentence in part.document.sentences)


class TestParts:
    def test_a_document_that_fits_is_itself(self) -> None:
        document = Document("a", "A", ("One two.", "Three."), "f:1")
        assert split_document(document, 3, words) == [DocumentChunk(document, (0, 1))]

    def test_parts_break_between_sentences_and_keep_their_indices(self) -> None:
        document = Document("a", "A", ("One two.", "Three.", "Four five six.", "Seven."), "f:1")
        parts = split_document(document, 3, words)
        assert [(p.document.id, p.document.sentences, p.indices, p.cut) for p in parts] == [
            ("a#1", ("One two.", "Three."), (0, 1), ()),
            ("a#2", ("Four five six.",), (2,), ()),
            ("a#3", ("Seven.",), (3,), ()),
        ]
        assert all(p.document.title == "A" and p.document.source == "f:1" for p in parts)

    def test_a_sentence_too_long_is_cut_at_clauses_then_words_and_named(self) -> None:
        document = Document("a", "A", ("Hi.", "one two three, four five; six seven eight nine ten eleven."))
        parts = split_document(document, 4, words)
        assert [p.document.sentences for p in parts] == [
            ("Hi.", "one two three,"),
            ("four five;",),
            ("six seven eight nine",),
            ("ten eleven.",),
        ]
        assert [p.indices for p in parts] == [(0, 1), (1,), (1,), (1,)]
        assert [p.cut for p in parts] == [(1,)] * 4

    def test_numbers_are_not_cut_at_their_commas(self) -> None:
        parts = split_document(Document("a", "A", ("about 1,000,000 people",)), 12, characters)
        assert [p.document.sentences for p in parts] == [("about",), ("1,000,000",), ("people",)]

    def test_text_without_spaces_is_cut_between_characters(self) -> None:
        parts = split_document(Document("a", "A", ("x" * 25,)), 12, characters)
        assert [p.document.sentences for p in parts] == [("x" * 10,), ("x" * 10,), ("x" * 5,)]

    def test_the_joined_text_decides_and_not_the_sum_of_its_sentences(self) -> None:
        parts = split_document(Document("a", "A", ("One.", "Two.", "Three.")), 4, lambda text: len(text.split()) ** 2)
        assert [p.document.sentences for p in parts] == [("One.", "Two."), ("Three.",)]

    def test_limits_without_room_are_refused(self) -> None:
        document = Document("a", "A", ("word",))
        with pytest.raises(InputError, match="at least 1 token"):
            split_document(document, 0, words)
        with pytest.raises(InputError, match="one character 'w' already has 3 tokens"):
            split_document(document, 2, characters)

    def test_a_huge_sentence_is_never_counted_whole_for_each_piece(self) -> None:
        counted = 0

        def count(text: str) -> int:
            nonlocal counted
            counted += len(text)
            return len(text) // 4 + 1

        parts = split_document(Document("a", "A", ("word, " * 100_000,)), 512, count)
        assert len(parts) > 200
        assert counted < 40 * 600_000

    @given(
        st.lists(
            st.text(alphabet="ab ,;。、-\u3000é", min_size=1, max_size=40).map(clean_text).filter(bool), max_size=8
        ),
        st.integers(3, 30),
        st.sampled_from([words, characters, lambda text: (len(text.encode()) + 2) // 3 + 1]),
    )
    def test_every_part_fits_and_nothing_is_lost(self, sentences: list[str], limit: int, count) -> None:
        document = Document("a", "A", tuple(sentences))
        parts = split_document(document, limit, count)
        assert all(count(part.document.text) <= limit for part in parts)
        assert joined(parts) == "".join("".join(sentence.split()) for sentence in sentences)
        order = [index for part in parts for index in part.indices]
        assert order == sorted(order)
        assert set(order) == set(range(len(sentences)))
        cut = {index for part in parts for index in part.cut}
        assert cut == {index for index in order if order.count(index) > 1}
        assert all(count(sentences[index]) > limit for index in cut)
        assert all(len(part.indices) == len(part.document.sentences) for part in parts)


@pytest.mark.data
def test_real_files_give_documents_with_unique_ids(shared_data: Path) -> None:
    for path in sorted((shared_data / "multihop").glob("*.jsonl")):
        report = ReadReport()
        documents = list(read_documents(path, report=report))
        assert len({d.id for d in documents}) == len(documents)
        wholes = {d.id if d.origin is None else d.origin.document for d in documents}
        assert len(wholes) == report.documents > 50
        assert report.empty == 0


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 40])
def test_parts_are_together_all_there_is(tmp_path: Path, parts: int) -> None:
    for number in range(5):
        (tmp_path / f"{number}.md").write_text(f"# Town {number}\n\nTown {number} has a ferry.")
    rows = [json.dumps({"id": f"row {number}", "title": "", "text": f"Row {number} is short."}) for number in range(7)]
    (tmp_path / "2 rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "3 table.csv").write_text("title,text\n" + "".join(f"ship {n},Ship {n} sails.\n" for n in range(6)))
    (tmp_path / "4 prices.csv").write_text("place,price\nPellisk,3\nQuillhaven,4\n")
    (tmp_path / "5 broken.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "6 other.exe").write_bytes(b"MZ")
    whole = ReadReport()
    expected = list(read_documents(tmp_path, report=whole))
    reports = [ReadReport() for _ in range(parts)]
    dealt = [
        list(read_documents(tmp_path, part=(number, parts), report=report)) for number, report in enumerate(reports, 1)
    ]
    assert sorted((each for part in dealt for each in part), key=lambda each: each.id) == sorted(
        expected, key=lambda each: each.id
    )
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 5
    assert sum(report.documents for report in reports) == whole.documents
    assert sum(report.other_files for report in reports) == whole.other_files


def test_there_is_no_part_beyond_the_last(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ada Foah is a town.")
    for part in ((0, 2), (3, 2), (-1, 2)):
        with pytest.raises(InputError, match="there is no part"):
            read_documents(tmp_path, part=part)
    assert list(read_documents(tmp_path, part=(2, 2))) == []


@pytest.mark.parametrize("text", ["One [^1] two.", "[^1] One  two. [^2]", "- [x] [^1] One [^1] two."])
def test_a_footnote_mark_between_words_leaves_one_space(text: str, tmp_path: Path) -> None:
    [document] = read_documents(write(tmp_path / "a.md", text))
    assert document.sentences == ("One two.",)
