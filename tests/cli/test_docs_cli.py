"""`pytrace docs show`: what is read, with headings and characters, and what was passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytrace.cli import common, program


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = common.run(program, [str(argument) for argument in ("docs", "show", *arguments)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "report.md").write_text("# Report\n\nAll is well.\n\n## Ships\n\nThe Tern sails. The Gull rests.\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    return tmp_path


def test_passages_are_shown_with_where_they_stand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, shown, errors = run(capsys, folder, "--passage-words", 4)
    lines = shown.splitlines()
    assert status == 0
    assert lines[0].endswith("#1: Report")
    assert lines[1] == f"  {folder}/report.md, characters 0-12"
    assert lines[3].endswith("#2: Report > Ships")
    assert lines[4] == f"  {folder}/report.md, Ships, characters 21-36"
    assert lines[5] == "    The Tern sails."
    assert lines[-1] == "1 documents, 3 passages"
    assert "skipped" in errors
    assert "picture.png" in errors


def test_what_has_no_title_but_the_name_of_its_file_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "note 1.txt").write_text("The Tern sails.\n")
    lines = run(capsys, tmp_path)[1].splitlines()
    assert lines[0].endswith(": note 1")
    assert lines[1] == f"  {tmp_path}/note 1.txt (untitled), characters 0-15"
    told = json.loads(run(capsys, tmp_path, "--json")[1])
    assert told["passages"][0]["origin"]["titled"] is False


def test_json_has_every_passage_and_what_was_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(run(capsys, folder, "--passage-words", 4, "--limit", 1, "--json")[1])
    assert [passage["title"] for passage in told["passages"]] == ["Report", "Report > Ships", "Report > Ships"]
    assert told["passages"][1]["origin"]["headings"] == ["Ships"]
    assert (told["documents"], len(told["skipped"])) == (1, 1)
    assert run(capsys, folder, "--limit", 1, "--passage-words", 4)[1].splitlines()[-1].endswith("--limit shows more")


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, tmp_path / "none")[::2] == (
        2,
        f"pytrace: {tmp_path / 'none'}: no such file or folder; check the path\n",
    )
    assert run(capsys, tmp_path, "--passage-words", 0)[0] == 2


def test_the_language_is_detected_or_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ort.txt"
    path.write_text("Das Haus stammt aus dem 19. Jahrhundert. Es wurde nicht verkauft.", encoding="utf-8")
    _, shown, _ = run(capsys, path)
    assert shown.splitlines()[2:4] == ["  language: de", "    Das Haus stammt aus dem 19. Jahrhundert."]
    _, shown, _ = run(capsys, path, "--language", "en")
    assert shown.splitlines()[2:4] == ["  language: en", "    Das Haus stammt aus dem 19."]
    status, _, errors = run(capsys, path, "--language", "german")
    assert status == 2
    assert errors.startswith("pytrace: 'german' is no language code of ISO 639-1; give two small letters")
    assert errors.count("\n") == 1


def test_documents_are_chosen_by_what_they_say_of_themselves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "log.csv").write_text("title,text,year,crew\nTern,It sails.,1998,4\nGull,It rests.,2003,\n")
    status, shown, _ = run(capsys, folder, "--where", "year>=2000")
    assert (status, shown.splitlines()[0].partition(": ")[2], shown.splitlines()[2]) == (0, "Gull", "  year: 2003")
    assert [
        passage["title"] for passage in json.loads(run(capsys, folder, "--where", "crew=4", "--json")[1])["passages"]
    ] == ["Tern"]
    status, _, errors = run(capsys, folder, "--where", "year>=2000", "--where", "crew=4")
    assert (status, "none of 3 documents matches year>=2000, crew=4" in errors) == (2, True)
    assert "is no filter; write FIELD=VALUE" in run(capsys, folder, "--where", "year")[2]
    assert "does not say where the image goes" in run(capsys, folder, "--ocr", "tesseract")[2]
