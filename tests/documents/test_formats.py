"""Foreign formats: what real programs' libraries write is read, what is broken or hostile costs one message."""

from __future__ import annotations

import functools
import json
import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytrace
from pytrace.documents import ReadReport, foreign, read_documents
from pytrace.documents.foreign import ForeignReader
from pytrace.errors import DataError
from pytrace.records import Document

docx = pytest.importorskip("docx", reason="python-docx reads Word files; it comes with the extra docs")
pptx = pytest.importorskip("pptx", reason="python-pptx reads slides; it comes with the extra docs")
pytest.importorskip("pypdfium2", reason="pypdfium2 reads PDF; it comes with the extra docs")
pytest.importorskip("trafilatura", reason="trafilatura reads HTML; it comes with the extra docs")
reportlab = pytest.importorskip("reportlab.platypus", reason="reportlab writes the PDF files that are read here")

EXAMPLES = Path(__file__).parents[2] / "examples" / "docs"
QUESTIONS = EXAMPLES.parent / "questions.jsonl"
FORMATS = ("txt", "pdf", "docx", "html", "pptx")
Section = tuple[str, str]


def sections() -> list[Section]:
    """Return the twelve example documents that are files of their own beside the folders."""
    paths = sorted([*EXAMPLES.glob("*.md"), *EXAMPLES.glob("*.txt")])
    return [(document.title, document.text) for document in read_documents(paths)]


def write_txt(path: Path, parts: list[Section]) -> None:
    path.write_text("\n\n".join(f"{title}\n\n{text}" for title, text in parts), encoding="utf-8")


def write_docx(path: Path, parts: list[Section]) -> None:
    document = docx.Document()
    for title, text in parts:
        document.add_heading(title, 1)
        document.add_paragraph(text)
    document.save(str(path))


def write_pptx(path: Path, parts: list[Section]) -> None:
    slides = pptx.Presentation()
    for title, text in parts:
        slide = slides.slides.add_slide(slides.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    slides.save(str(path))


def write_html(path: Path, parts: list[Section]) -> None:
    body = "".join(f"<h2>{title}</h2><p>{text}</p>" for title, text in parts)
    path.write_text(
        "<!doctype html><html><head><title>The coast</title><script>var x = 'Tobias';</script></head><body>"
        f"<nav><a href='/'>Home</a></nav><main>{body}</main><footer>All rights reserved</footer></body></html>",
        encoding="utf-8",
    )


def write_pdf(path: Path, parts: list[Section]) -> None:
    from reportlab.lib.styles import getSampleStyleSheet

    styles = getSampleStyleSheet()
    story: list[object] = []
    for number, (title, text) in enumerate(parts, start=1):
        story += [reportlab.Paragraph(title, styles["Heading1"]), reportlab.Paragraph(text, styles["BodyText"])]
        if number % 4 == 0:
            story.append(reportlab.PageBreak())

    def footer(canvas: object, document: object) -> None:
        canvas.drawString(50, 30, f"The Tamarrow Gazette, page {document.page}")  # type: ignore[attr-defined]

    reportlab.SimpleDocTemplate(str(path)).build(story, onFirstPage=footer, onLaterPages=footer)


WRITERS: dict[str, Callable[[Path, list[Section]], None]] = {
    "txt": write_txt, "pdf": write_pdf, "docx": write_docx, "html": write_html, "pptx": write_pptx,
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_the_examples_in_one_file_are_a_passage_each(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"all.{format}"
    WRITERS[format](path, sections())
    passages = list(read_documents(path))
    assert [(passage.title.rpartition(" > ")[2], passage.text) for passage in passages] == sections()
    pages = [passage.origin.page for passage in passages if passage.origin is not None]
    if format == "pptx":
        assert pages == list(range(1, 13))
    elif format == "pdf":
        assert pages == [1] * 4 + [2] * 4 + [3] * 4
    else:
        assert pages == [None] * 12


@functools.cache
def engine() -> pytrace.Engine:
    return pytrace.load(threads=1)


def questions() -> list[dict[str, Any]]:
    """Return the example questions over the twelve documents, which the demo answers."""
    return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()[:3]]


def asked(path: Path) -> list[tuple[str, list[str]]]:
    """Return the answers to these questions, each with the citations of its evidence, best first."""
    corpus = pytrace.Corpus.read(path)
    by_id = {document.id: document for document in corpus}
    answers = []
    for row in questions():
        result = engine().ask(row["question"], corpus, min_confidence=0.0)
        answers.append((result.answer, [by_id[source.id].citation() for source in result.evidence.sources]))
    return answers


@pytest.mark.models
@pytest.mark.parametrize("format", FORMATS)
def test_questions_find_their_evidence_in_one_file_as_in_the_folder(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"all.{format}"
    WRITERS[format](path, sections())
    order = [title for title, _ in sections()]
    answers = asked(path)
    # Weights of words that only one file has differ from those of twelve, so that not every answer needs to be the same.
    assert answers[1][0] == asked(EXAMPLES)[1][0] == "2,100"
    for row, (_, citations) in zip(questions(), answers, strict=True):
        for title in row["supporting"]:
            number = order.index(title)
            page = {"pptx": f", p. {number + 1}", "pdf": f", p. {number // 4 + 1}"}.get(format, "")
            untitled = " (untitled)" if format == "pptx" else ""  # its headings are those of slides
            start = f"{path}{untitled}{page}, {title}, characters "
            assert any(cited.startswith(start) for cited in citations), (start, citations)


def test_what_stands_in_a_content_control_is_read(tmp_path: Path) -> None:
    from docx.oxml import parse_xml

    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    document = docx.Document()
    document.add_paragraph("One.")
    inner = "<w:p><w:r><w:t>Two.</w:t></w:r></w:p>"
    control = f'<w:sdt xmlns:w="{word}"><w:sdtContent><w:sdt><w:sdtContent>{inner}</w:sdtContent></w:sdt></w:sdtContent></w:sdt>'
    document.element.body.insert(1, parse_xml(control))
    document.add_paragraph("Three.")
    document.save(str(tmp_path / "a.docx"))
    assert [passage.sentences for passage in read_documents(tmp_path)] == [("One.", "Two.", "Three.")]


def test_tables_keep_the_heads_of_their_columns(tmp_path: Path) -> None:
    rows = [["Ship", "Built"], ["Marigold Tern", "1998"], ["Grey Gull", "2003"]]
    document = docx.Document()
    table = document.add_table(rows=0, cols=2)
    for row in rows:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    document.save(str(tmp_path / "table.docx"))
    page = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    (tmp_path / "table.html").write_text(
        f"<html><body><main><p>The ships of the coast are these two.</p><table>{page}</table></main></body></html>"
    )
    word, html = (document.sentences for document in read_documents(tmp_path))
    assert word == ("Ship: Marigold Tern; Built: 1998", "Ship: Grey Gull; Built: 2003")
    assert html == ("The ships of the coast are these two.", *word)


BROKEN = (
    ("empty.pdf", b"", "is empty"),
    ("text.pdf", b"only text", "is named .pdf, and is none"),
    ("short.pdf", b"%PDF-1.7\n1 0 obj <<", "is no PDF that can be read"),
    ("short.docx", b"PK\x03\x04 and no more", "is damaged"),
    ("text.pptx", b"plain words", "is named .pptx, and is none"),
    ("nothing.html", b"<html><body></body></html>", "has no text that could be found"),
    ("short.epub", b"PK\x03\x04 and no more", "is damaged"),
    ("text.eml", b"\n\nonly text", "has no header of an e-mail"),
)


@pytest.mark.parametrize(("name", "content", "says"), BROKEN)
def test_a_broken_file_is_told_and_the_others_of_its_folder_are_read(
    name: str, content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        list(read_documents(path))
    write_docx(tmp_path / "good.docx", [("Ada Foah", "It is a town in Ghana.")])
    report = ReadReport()
    assert [document.title for document in read_documents(tmp_path, report=report)] == ["Ada Foah"]
    assert says in report.skipped[0].reason


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.docx"
    write_docx(path, [("A", "b")])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/zeros.bin", bytes(300 << 20))
    with pytest.raises(DataError, match="would unpack from"):
        list(read_documents(path))


def test_a_pdf_without_text_is_named_as_such(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "scan.pdf"))
    canvas.rect(100, 100, 200, 200, fill=1)
    canvas.save()
    with pytest.raises(DataError, match=r"has no text on its 1 pages \(scanned\?\)"):
        list(read_documents(tmp_path / "scan.pdf"))


def test_a_file_that_ends_or_holds_up_its_reader_costs_one_message(tmp_path: Path) -> None:
    write_docx(tmp_path / "a.docx", [("A", "One two.")])
    with ForeignReader() as reader:
        assert reader.read(tmp_path / "a.docx", "docx").title == "A"
        assert reader._process is not None
        os.kill(reader._process.pid, signal.SIGKILL)
        with pytest.raises(DataError, match=r"ended the process that read it \(signal 9"):
            reader.read(tmp_path / "a.docx", "docx")
        assert reader.read(tmp_path / "a.docx", "docx").title == "A", "another process reads the next file"
    with ForeignReader(seconds=0.0) as slow, pytest.raises(DataError, match="took more than 0 seconds"):
        slow.read(tmp_path / "a.docx", "docx")
    with ForeignReader(characters=3) as short, pytest.raises(DataError, match="more than 3 characters"):
        short.read(tmp_path / "a.docx", "docx")


def test_what_a_reader_that_was_taken_over_sends_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_docx(tmp_path / "a.docx", [("A", "One two.")])
    hostile = f"cos\nsystem\n(S'touch {tmp_path}/run'\ntR."
    code = (
        "import sys; from multiprocessing.connection import Connection; c = Connection(int(sys.argv[1])); c.recv(); "
        f"c.send_bytes({hostile.encode()!r}); c.recv()"
    )
    monkeypatch.setattr(foreign, "_START", code)
    with ForeignReader() as reader, pytest.raises(DataError, match="answer nonsense"):
        reader.read(tmp_path / "a.docx", "docx")
    assert not (tmp_path / "run").exists()


def test_what_a_document_says_of_itself_comes_with_its_passages(tmp_path: Path) -> None:
    document = docx.Document()
    document.core_properties.author = "Isaura Venn"
    document.add_heading("Tides", 1)
    document.add_paragraph("The tide is high in September.")
    document.save(str(tmp_path / "tides.docx"))
    (passage,) = read_documents(tmp_path / "tides.docx")
    assert isinstance(passage, Document)
    assert passage.origin is not None
    assert passage.origin.metadata["author"] == "Isaura Venn"


def test_a_short_page_is_read_where_no_main_text_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<title>Quay</title><p>Open on <b>Monday</b>.<br>Closed on Sunday.</p><script>var x;</script>")
    (document,) = read_documents(path)
    assert (document.title, document.sentences) == ("Quay", ("Open on Monday.", "Closed on Sunday."))


def test_a_reader_that_stops_in_the_middle_of_a_message_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_docx(tmp_path / "a.docx", [("A", "One two.")])
    begin = "import os, sys, time; from multiprocessing.connection import Connection; c = Connection(int(sys.argv[1])); c.recv(); "
    monkeypatch.setattr(foreign, "_START", begin + "os.write(c.fileno(), b'\\0\\0\\1\\0{'); time.sleep(60)")
    with ForeignReader(seconds=0.5) as reader, pytest.raises(DataError, match=r"took more than 0\.5 seconds"):
        reader.read(tmp_path / "a.docx", "docx")
    monkeypatch.setattr(foreign, "_START", begin + "os.write(c.fileno(), b'\\x7f\\xff\\xff\\xff'); time.sleep(60)")
    with ForeignReader() as reader, pytest.raises(DataError, match="answer nonsense"):
        reader.read(tmp_path / "a.docx", "docx")
