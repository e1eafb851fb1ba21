"""EPUB books and e-mail: chapters in their order, messages by subject, what is locked or missing told."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pytrace.documents import ReadReport, read_documents
from pytrace.errors import DataError

pytest.importorskip("lxml", reason="lxml reads books and e-mail in HTML; it comes with the extra docs")

MAIL = b"""From: Isaura Venn <isaura@example.org>
Subject: =?utf-8?b?VGhlIGNhZsOpIG9uIHRoZSBxdWF5?=
Date: Tue, 3 Mar 2020 10:11:12 +0100
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/html; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

<h2>Opening</h2><p>The H=F6rn opens on <b>Monday</b>.</p><div><table><tr><th>Day<th>Hours<tr><td>Mon<td>9-5</table></div>
--b
Content-Type: application/pdf; name=plan.pdf
Content-Disposition: attachment; filename=plan.pdf

--b--
"""


def test_a_message_has_its_subject_as_title(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(MAIL)
    report = ReadReport()
    (document,) = read_documents(tmp_path, report=report)
    assert document.title == "The café on the quay"
    assert document.sentences == ("Opening", "The Hörn opens on Monday.", "Day: Mon; Hours: 9-5")
    assert document.origin is not None
    assert document.origin.metadata == {
        "author": "Isaura Venn <isaura@example.org>",
        "date": "2020-03-03T10:11:12+01:00",
        "attachments": ["plan.pdf"],
    }
    assert report.warnings == [f"{tmp_path}/a.eml: its attachments are not read: plan.pdf"]
    plain = (
        b"Subject: Tides\nContent-Type: text/plain; charset=unheard-of\n\nThe tide\nis high.\n\nK\xc3\xb6ln is far.\n"
    )
    (tmp_path / "b.eml").write_bytes(plain)
    assert [document.sentences for document in read_documents(tmp_path / "b.eml")] == [
        ("The tide is high.", "Köln is far.")
    ]


def test_long_headers_of_a_message_are_cut(tmp_path: Path) -> None:
    # The library alone does not come to the end of these while a test waits.
    path = tmp_path / "a.eml"
    path.write_bytes(b"To: " + b'"' * 60_000 + b"\nSubject: Tides" + b" tides" * 30_000 + b"\n\nThe tide is high.\n")
    report = ReadReport()
    (document,) = read_documents(path, report=report)
    assert report.warnings == [f"{path}: 10,000 characters are read of its headers To, Subject"]
    assert document.title.startswith("Tides tides")
    assert len(document.title) <= 10_000


def write_epub(path: Path, locked: str = "") -> None:
    chapters = {"ch 1": "One", "ch2": "Two"}
    items = "".join(f'<item id="{name[2:]}" href="{name.replace(" ", "%20")}.xhtml"/>' for name in chapters)
    order = "".join(f'<itemref idref="{name}"/>' for name in (" 1", "2", "none"))
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("META-INF/container.xml", '<a xmlns="u"><rootfile full-path="OEBPS/c.opf"/></a>')
        about = "<title>Harbour tales</title><creator>I. Venn</creator>"
        book.writestr("OEBPS/c.opf", f'<p xmlns="o">{about}<manifest>{items}</manifest><spine>{order}</spine></p>')
        for name, number in chapters.items():
            body = f"<h1>Chapter {number}</h1><p>Die Brücke of <i>chapter {number}</i> is long.</p><pre>a\nb</pre>"
            declared = ' encoding="utf-8"' if number == "One" else ""  # which is what it is without being said
            text = f'<?xml version="1.0"{declared}?><html xmlns="x"><body>{body}</body></html>'
            book.writestr(f"OEBPS/{name}.xhtml", text)
        if locked:
            book.writestr("META-INF/encryption.xml", f'<e xmlns="c"><CipherReference URI="{locked}"/></e>')


def test_a_book_is_read_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    write_epub(path)
    report = ReadReport()
    passages = list(read_documents(path, words=10, report=report))
    assert [(passage.title, passage.sentences) for passage in passages] == [
        (f"Harbour tales > Chapter {number}", (f"Die Brücke of chapter {number} is long.", "a", "b"))
        for number in ("One", "Two")
    ]
    assert passages[0].origin is not None
    assert passages[0].origin.metadata == {"author": "I. Venn"}
    assert "parts that it names are missing: OEBPS" in report.warnings[0]
    write_epub(path, locked="OEBPS/ch2.xhtml")
    with pytest.raises(DataError, match="is locked"):
        list(read_documents(path))


def test_an_error_of_several_lines_is_said_in_one(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("META-INF/container.xml", "<a>\x00</a>")
    with pytest.raises(DataError, match=r"is no EPUB that can be read \(.*\); save it anew$"):
        list(read_documents(path))
