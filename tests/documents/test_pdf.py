"""PDF: reading order, headings, words parted at a line's end, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.documents import read_documents

pytest.importorskip("pypdfium2", reason="pypdfium2 reads PDF; it comes with the extra docs")
pytest.importorskip("reportlab", reason="reportlab writes the PDF files that are read here")


def two_columns(path: Path) -> tuple[list[str], list[str]]:
    from reportlab.pdfgen.canvas import Canvas

    left = [f"Left line {number} of the first column goes on here" for number in range(12)]
    right = [f"Right line {number} of the second column goes on too" for number in range(12)]
    canvas = Canvas(str(path))
    # Row by row, as some programs write.
    for number, (first, second) in enumerate(zip(left, right, strict=True)):
        canvas.drawString(60, 700 - 14 * number, first)
        canvas.drawString(330, 700 - 14 * number, second)
    canvas.save()
    return left, right


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    left, right = two_columns(tmp_path / "columns.pdf")
    (document,) = read_documents(tmp_path / "columns.pdf", words=1000)
    assert document.text == " ".join([*left, *right])


def test_hyphens_at_a_line_s_end_are_joined_and_what_pages_repeat_goes(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    for page in range(4):
        canvas.drawString(60, 800, f"Annual report 2023, {page + 1}")
        canvas.drawString(60, 600, f"Page number {page} tells of the observa-")
        canvas.drawString(60, 586, "tory on the cape.")
        canvas.showPage()
    canvas.save()
    (document,) = read_documents(tmp_path / "a.pdf")
    assert document.sentences == tuple(f"Page number {page} tells of the observatory on the cape." for page in range(4))
    assert document.origin is not None
    assert document.origin.page == 1


def test_a_bullet_goes_with_its_item_and_page_numbers_go(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    for page in range(12):
        canvas.drawString(60, 800, f"Chapter {page // 3}: the coast {page}")
        canvas.drawString(80, 600, "•")
        canvas.drawString(110, 600, f"Item number {page} of the list.")
        canvas.drawString(300, 40, f"{page}")
        canvas.showPage()
    canvas.save()
    sentences = [sentence for passage in read_documents(tmp_path / "a.pdf") for sentence in passage.sentences]
    assert sentences == [f"• Item number {page} of the list." for page in range(12)]


def write_lines(path: Path, *lines: tuple[str, str, int]) -> Path:
    """Write a page of lines, each with its font and the points below the one before."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path))
    height = 800
    for text, font, below in lines:
        height -= below
        name, _, size = font.partition(" ")
        canvas.setFont(name, int(size or 10))
        canvas.drawString(60, height, text)
    canvas.save()
    return path


def test_a_hyphen_stays_where_the_word_has_it_elsewhere(tmp_path: Path) -> None:
    lines = [
        ("The well-known keeper wrote of the well-", "Helvetica", 20),
        ("known light, and of the obser-", "Helvetica", 12),
        ("vatory on the cape, and of the co-", "Helvetica", 12),
        ("operation of both.", "Helvetica", 12),
    ]
    (document,) = read_documents(write_lines(tmp_path / "a.pdf", *lines))
    assert document.text == (
        "The well-known keeper wrote of the well-known light, and of the observatory on the cape, and of the cooperation of both."
    )


def test_a_long_word_at_a_line_s_end_takes_no_quadratic_time(tmp_path: Path) -> None:
    lines = [("It begins " + "_" * 200_000, "Helvetica", 20), ("and goes on.", "Helvetica", 12)]
    (document,) = read_documents(write_lines(tmp_path / "a.pdf", *lines), words=10_000)
    assert document.text.endswith("_ and goes on.")


def test_a_bold_line_by_itself_is_a_heading(tmp_path: Path) -> None:
    lines = [
        ("The coast", "Helvetica-Bold 20", 20),
        ("It is long and cold.", "Helvetica", 30),
        ("Ships and boats", "Helvetica-Bold", 30),
        ("The Tern is a ship. She sails to", "Helvetica", 14),
        ("Pellisk", "Helvetica-Bold", 12),
        ("on each Monday.", "Helvetica", 12),
    ]
    passages = list(read_documents(write_lines(tmp_path / "a.pdf", *lines), words=10))
    assert [(passage.title, passage.text) for passage in passages] == [
        ("The coast", "It is long and cold."),
        ("The coast > Ships and boats", "The Tern is a ship."),
        ("The coast > Ships and boats", "She sails to Pellisk on each Monday."),
    ]


def test_the_entries_of_a_table_of_contents_are_left_out(tmp_path: Path) -> None:
    lines = [
        ("1 Ships . . . . . . . . . . . . . . . . 3", "Helvetica", 20),
        ("2 Boats ................ 12, 14", "Helvetica", 14),
        ("Wait... There are 3.", "Helvetica", 40),
        ("And so on ....", "Helvetica", 40),
    ]
    (document,) = read_documents(write_lines(tmp_path / "a.pdf", *lines))
    assert document.text == "Wait... There are 3. And so on ...."


def test_letters_that_overlap_are_read_once(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Helvetica", 12)
    left = 60.0
    # As programs that kern write: each letter by itself, some over the one before.
    for letter, kerned in zip(
        "The fort invites all.", (0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0), strict=True
    ):
        left -= kerned
        canvas.drawString(left, 700, letter)
        left += canvas.stringWidth(letter)
    canvas.save()
    (document,) = read_documents(tmp_path / "a.pdf")
    assert document.text == "The fort invites all."


def test_rows_of_a_table_name_the_heads_of_their_columns(tmp_path: Path) -> None:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

    style = getSampleStyleSheet()["BodyText"]
    long = Paragraph("In the northern yard of Halvorsen and his sons at Pellisk", style)
    rows = [
        ["Ship", "Built", "Yard"],
        ["Marigold Tern", "1998", long],
        ["Grey Gull", "2003", "Bay"],
        ["Old Seal", "", "Cape"],
    ]
    styles = [("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold"), ("VALIGN", (0, 0), (-1, -1), "TOP")]
    table = Table(rows, colWidths=[120, 80, 150], style=styles)
    text = [Paragraph("The ships of the coast are these.", style), table, Paragraph("There is no other.", style)]
    SimpleDocTemplate(str(tmp_path / "a.pdf")).build(text)
    (document,) = read_documents(tmp_path / "a.pdf")
    assert document.sentences == (
        "The ships of the coast are these.",
        "Ship: Marigold Tern; Built: 1998; Yard: In the northern yard of Halvorsen and his sons at Pellisk",
        "Ship: Grey Gull; Built: 2003; Yard: Bay",
        "Ship: Old Seal; Yard: Cape",
        "There is no other.",
    )
    # Without heads that are told by their letters, rows are only rows.
    SimpleDocTemplate(str(tmp_path / "b.pdf")).build([Table(rows[2:], colWidths=[120, 80, 150])])
    (document,) = read_documents(tmp_path / "b.pdf")
    assert document.text == "Grey Gull; 2003; Bay Old Seal; Cape"
