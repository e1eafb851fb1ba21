"""Pages of a PDF that are images alone: named as such, or recognised by a command of the user's."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.foreign import ForeignReader
from pytrace.errors import DataError, InputError

pytest.importorskip("pypdfium2", reason="pypdfium2 reads PDF; it comes with the extra docs")
pytest.importorskip("PIL", reason="Pillow writes the images of pages; it comes with the extra docs")
pytest.importorskip("reportlab", reason="reportlab writes the PDF files that are read here")


def write_scan(path: Path) -> None:
    import pypdfium2
    from reportlab.pdfgen.canvas import Canvas

    def text_page(canvas: Canvas, text: str) -> None:
        canvas.setFont("Helvetica", 18)
        canvas.drawString(60, 700, text)
        canvas.showPage()

    canvas = Canvas(str(path))
    text_page(canvas, "The lighthouse was built in 1887.")
    canvas.save()
    page = pypdfium2.PdfDocument(path)[0].render(scale=2).to_pil()
    page.save(path.with_suffix(".png"))
    canvas = Canvas(str(path))
    text_page(canvas, "The first page has text.")
    canvas.drawImage(str(path.with_suffix(".png")), 0, 0, 595, 842)
    canvas.showPage()
    text_page(canvas, "The third page has text.")
    canvas.save()


def test_scanned_pages_are_read_by_a_command(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    write_scan(path)
    report = ReadReport()
    first, third = "The first page has text.", "The third page has text."
    assert [document.sentences for document in read_documents(path, report=report)] == [(first, third)]
    assert "1 of its 3 pages have no text (scanned?)" in report.warnings[0]
    command = (
        f'{sys.executable} -c \'import sys; print(open(sys.argv[1], "rb").read(4)[1:4].decode(), "was seen.")\' {{}}'
    )
    (document,) = read_documents(path, ocr=command)
    assert document.sentences == (first, "PNG was seen.", third)
    for command, says in (
        ("false {}", "false ended with status 1 on page 2"),
        ("ls /none {}", r"status 2 on page 2 \(ls: .*/none"),
        ("no-such-program {}", "no-such-program cannot be run"),
    ):
        with pytest.raises(DataError, match=says):
            list(read_documents(path, ocr=command))
    for command in ("tesseract", "tesseract 'x {}"):
        with pytest.raises(InputError, match="the command"):
            read_documents(path, ocr=command)


def test_a_command_that_hangs_is_ended_with_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    write_scan(path)
    script = tmp_path / "hang.py"
    script.write_text(f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(100)")
    reader = ForeignReader(ocr=f"{sys.executable} {script} {{}}", seconds=5.0)
    with reader, pytest.raises(DataError, match="took more than 5 seconds to read"):
        reader.read(path, "pdf")
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    ends = time.monotonic() + 10
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < ends, "the command goes on without its reader"
        time.sleep(0.05)


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract, which recognises text, is not installed")
def test_tesseract_recognises_a_page(tmp_path: Path) -> None:
    write_scan(tmp_path / "scan.pdf")
    (document,) = read_documents(tmp_path / "scan.pdf", ocr="tesseract {} -")
    assert document.sentences[1] == "The lighthouse was built in 1887."
