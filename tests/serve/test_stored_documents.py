"""What comes over the network is kept beside the index, so that a sync reads it again, and nothing that was answered is ever lost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.errors import InputError, StoreError
from pytrace.retrieval.passages import Changes
from pytrace.serve.failures import NotFoundError
from pytrace.serve.messages import GivenDocument
from pytrace.serve.served_index import ServedIndex
from pytrace.serve.stored_documents import StoredDocuments, safe_name
from tests.serve import hashed
from tests.serve.hashed import elsewhere

KETA = "Keta is a town on a lagoon. It has a fort."
ROWS = (
    '{"id": "one", "title": "One", "text": "One is a number."}',
    '{"id": "two", "title": "Two", "text": "Two is a number, too."}',
)


class Kept:
    """An index of a folder, with what is added to it over the network."""

    def __init__(self, folder: Path) -> None:
        self.docs = folder / "docs"
        self.docs.mkdir()
        (self.docs / "ada.md").write_text("# Ada Foah\n\nAda Foah is a town on the Volta.\n", encoding="utf-8")
        (self.docs / "rows.jsonl").write_text(
            '{"id": "ho", "title": "Ho", "text": "Ho lies inland."}\n', encoding="utf-8"
        )
        self.directory = hashed.build_of(folder / "index", self.docs)
        self.before = hashed.ids(self.directory)
        self.index = ServedIndex(self.directory, hashed.engine())
        self.documents = StoredDocuments(self.directory)

    def send(self, name: str, content: str) -> tuple[Changes, list[str]]:
        """Add a file."""
        with self.documents.staging() as folder:
            (folder / name).write_text(content, encoding="utf-8")
            given = self.documents.read_file(folder / name, name, {})
            return self.index.submit(self.documents.addition(given))(), given.ids

    def rows(self, *rows: dict[str, Any]) -> tuple[Changes, list[str]]:
        """Add rows."""
        with self.documents.staging() as folder:
            given = self.documents.read_rows(folder, [msgspec.convert(row, GivenDocument) for row in rows], {})
            return self.index.submit(self.documents.addition(given))(), given.ids

    def remove(self, *ids: str) -> Changes:
        """Remove documents."""
        return self.index.submit(self.documents.removal(ids))()

    def sync(self) -> None:
        """Do what 'pytrace index sync' does, which must change nothing of what was added."""
        before = self.ids
        texts = {name: self.text(name) for name in before}
        hashed.sync(self.directory)
        assert self.ids == before
        assert {name: self.text(name) for name in before} == texts
        self.index.refresh()

    @property
    def ids(self) -> set[str]:
        """The ids of all documents."""
        return hashed.ids(self.directory)

    @property
    def files(self) -> set[str]:
        """The names of the files that are kept."""
        return {path.name for path in self.documents.folder.iterdir() if not path.name.startswith(".")}

    def text(self, name: str) -> str:
        """Return the text of a document."""
        return hashed.text_of(self.directory, name)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.index.close()


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report (2).pdf", "report (2).pdf"),
        ("../../etc/passwd.txt", "passwd.txt"),
        ("..\\..\\boot.md", "boot.md"),
        (".hidden.md", "hidden.md"),
        ("a\nb\x00c.txt", "a_b_c.txt"),
        ("Übersicht – März.DOCX", "Übersicht _ März.DOCX"),
        ("表.csv", "表.csv"),
        ("rows.jsonl.gz", "rows.jsonl.gz"),
        ("x" * 400 + ".txt", "x" * 146 + ".txt"),
        ("é" * 200 + ".md", "é" * 73 + ".md"),
        ("half \ud800.txt", "half _.txt"),
    ],
)
def test_names_are_of_files_and_nothing_else(name: str, safe: str) -> None:
    assert safe_name(name) == safe
    assert safe_name(safe) == safe


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/..", "\x00", "  ", "...", "__"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no name of a file"):
        safe_name(name)


@pytest.mark.parametrize(
    ("name", "remedy"), [("note", "one of .jsonl"), ("tool.exe", "one of .jsonl"), ("old.doc", "docx")]
)
def test_what_a_sync_would_pass_over_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(InputError, match=f"none of the formats that are read; save it as .*{remedy}"):
        safe_name(name)


def test_a_file_takes_the_place_of_the_one_with_its_name(kept: Kept) -> None:
    changes, (first,) = kept.send("keta.md", f"# Keta\n\n{KETA}\n")
    assert changes == Changes(added=1, encoded=1)
    kept.sync()
    changes, (second,) = kept.send("keta.md", f"# Keta\n\n{KETA} It is old.\n")
    assert (changes.added, changes.removed) == (1, 1)
    assert kept.ids == kept.before | {second}
    assert first != second
    assert kept.files == {"keta.md"}
    assert kept.send("keta.md", f"# Keta\n\n{KETA} It is old.\n")[0] == Changes(unchanged=1)
    kept.sync()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", "\n".join(ROWS)),
        ("rows.json", f"[{', '.join(ROWS)}]"),
        ("rows.csv", "id,text\none,One is one.\ntwo,Two is two.\n"),
    ],
)
def test_rows_of_a_file_that_are_gone_from_it_are_gone(kept: Kept, name: str, content: str) -> None:
    assert kept.send(name, content)[1] == ["one", "two"]
    kept.sync()
    shorter = {"rows.jsonl": ROWS[1], "rows.json": f"[{ROWS[1]}]", "rows.csv": "id,text\ntwo,Two is two.\n"}[name]
    changes, _ = kept.send(name, shorter)
    assert changes.removed == 1
    assert kept.ids == kept.before | {"two"}
    kept.sync()


def test_rows_are_files_of_their_own_by_their_ids(kept: Kept) -> None:
    changes, ids = kept.rows(
        {"id": "keta", "title": "Keta", "text": KETA}, {"text": "Wa lies in the north.", "metadata": {"year": 1998}}
    )
    assert changes.added == 2
    assert ids[0] == "keta"
    assert len(kept.files) == 2
    kept.sync()
    # Under another title, too, an id is the same document, and no second file has it.
    changes, _ = kept.rows({"id": "keta", "title": "Keta, Ghana", "text": "Keta is old."})
    assert changes == Changes(replaced=1, encoded=1)
    assert len(kept.files) == 2
    assert kept.text("keta") == "Keta is old."
    kept.sync()
    with pytest.raises(InputError, match="two of the documents have the id 'wa'"):
        kept.rows({"id": "wa", "text": "Wa."}, {"id": "wa", "text": "Wa is a town."})
    with pytest.raises(InputError, match=r"^documents\[1\] has no text"):
        kept.rows({"id": "x", "text": "X."}, {"id": "wa", "text": " \n"})
    assert kept.ids == {*kept.before, *ids}


def test_ids_of_any_letters_stay_apart(kept: Kept) -> None:
    names = ["a/b", "a\\b", "a b", "A B", "../x", "ключ", "x" * 900, "x" * 901, "#1", "con"]
    kept.rows(*({"id": name, "text": f"Text of number {number}."} for number, name in enumerate(names)))
    assert kept.ids == {*kept.before, *names}
    assert len(kept.files) == len(names)
    kept.sync()
    kept.remove(*names)
    assert kept.files == set()


def test_removing_takes_the_text_out_of_the_files(kept: Kept) -> None:
    kept.send("rows.jsonl", "\n".join(ROWS))
    kept.rows({"id": "keta", "text": KETA})
    assert kept.remove("keta").removed == 1
    assert kept.files == {"rows.jsonl"}
    assert kept.remove("one").removed == 1  # of several in its file
    assert "One is" not in (kept.documents.folder / "rows.jsonl").read_text(encoding="utf-8")
    assert kept.ids == kept.before | {"two"}
    kept.sync()
    kept.remove("two")
    assert kept.files == set()
    kept.sync()
    with pytest.raises(NotFoundError, match="no document 'one' in the index, and nothing was removed"):
        kept.remove("ho", "one")
    assert "ho" in kept.ids


def test_a_document_that_cannot_be_taken_out_of_its_file_is_told(kept: Kept) -> None:
    kept.send("rows.csv", "id,text\none,One is one.\ntwo,Two is two.\n")
    with pytest.raises(InputError, match=r"rows\.csv has 1 documents besides; send it anew"):
        kept.remove("one")
    assert kept.remove("one", "two").removed == 2
    assert kept.files == set()


def test_an_id_is_in_one_file_alone(kept: Kept) -> None:
    kept.send("rows.jsonl", "\n".join(ROWS))
    with pytest.raises(InputError, match=r"rows\.jsonl has one of these documents, and 'two' besides"):
        kept.rows({"id": "one", "text": "One is odd."})
    kept.sync()
    # A file that has all of another's takes its place.
    kept.send("better.jsonl", "\n".join((*ROWS, '{"id": "three", "title": "Three", "text": "Three is a number."}')))
    assert kept.files == {"better.jsonl"}
    kept.sync()


def test_a_document_of_the_folder_is_changed_there(kept: Kept) -> None:
    with pytest.raises(
        InputError, match=r"'ho' was read from rows\.jsonl, where every sync of the index reads it again"
    ):
        kept.rows({"id": "ho", "text": "Ho is elsewhere."})
    assert kept.text("ho") == "Ho lies inland."
    kept.rows({"id": "ho", "title": "Ho", "text": "Ho lies inland."})  # the same words are the same document
    kept.sync()


def test_a_sync_keeps_what_was_added_and_follows_the_folder(kept: Kept) -> None:
    kept.send("keta.md", f"# Keta\n\n{KETA}\n")
    kept.rows({"id": "wa", "text": "Wa lies in the north."})
    added = kept.ids - kept.before
    (kept.docs / "ada.md").unlink()
    (kept.docs / "rows.jsonl").write_text('{"id": "ho", "title": "Ho", "text": "Ho has hills."}\n', encoding="utf-8")
    hashed.sync(kept.directory)
    assert kept.ids == {"ho", *added}
    assert kept.text("ho") == "Ho has hills."
    assert kept.index.refresh()
    assert kept.rows({"id": "ada", "text": "Ada Foah is back."})[0].added == 1
    kept.sync()


def test_an_index_without_a_folder_takes_documents_too(tmp_path: Path) -> None:
    directory = hashed.build(tmp_path / "index", [hashed.document("ada")])
    documents = StoredDocuments(directory)
    with ServedIndex(directory, hashed.engine()) as index, documents.staging() as folder:
        given = documents.read_rows(folder, [GivenDocument(id="ada", text="Ada is elsewhere.")], {})
        assert index.submit(documents.addition(given))().replaced == 1
    assert hashed.text_of(directory, "ada") == "Ada is elsewhere."


def test_a_file_that_cannot_be_read_changes_nothing(kept: Kept) -> None:
    for name, content, told in (
        ("bad.jsonl", '{"id": 1', r"^bad\.jsonl:1: not JSON"),
        ("bad.pdf", "no pdf", r"^bad\.pdf: is named \.pdf"),
        ("empty.txt", " \n", r"^empty\.txt: no document was found"),
    ):
        with pytest.raises(InputError, match=told):
            kept.send(name, content)
    assert kept.ids == kept.before
    assert kept.files == set()
    assert not list((kept.documents.folder / ".incoming").iterdir())


def test_where_nothing_can_be_kept_is_told(kept: Kept) -> None:
    kept.documents.folder.write_bytes(b"")
    with pytest.raises(StoreError, match="documents cannot be kept"):
        kept.rows({"text": "Wa lies in the north."})
    kept.documents.folder.unlink()


def test_what_a_killed_service_left_goes_when_it_is_old(kept: Kept) -> None:
    incoming = kept.documents.folder / ".incoming"
    for name, age in (("old", 2 * 86_400), ("new", 60)):
        (incoming / name).mkdir(parents=True)
        os.utime(incoming / name, (time.time() - age, time.time() - age))
    kept.rows({"text": "Wa lies in the north."})
    assert [path.name for path in incoming.iterdir()] == ["new"]
    kept.sync()  # which does not read what is there


def test_a_killed_service_has_lost_nothing_that_was_answered(kept: Kept) -> None:
    kept.index.close()
    code = "from tests.serve.test_stored_documents import keep_adding\nkeep_adding(Path(sys.argv[1]))"
    answered: set[str] = set()
    random = Random(7)
    for round in range(3):
        with elsewhere(code, kept.directory) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{round}\n")
            process.stdin.close()
            answered.add(process.stdout.readline().strip())
            time.sleep(random.uniform(0.05, 0.4))
            process.kill()
            # The last line may have been cut off.
            answered.update(line.strip() for line in process.stdout if line.endswith("\n"))
        assert answered <= hashed.ids(kept.directory)
    assert len(answered) > 3
    hashed.sync(kept.directory)
    assert answered <= hashed.ids(kept.directory)
    assert all("of a town" in hashed.text_of(kept.directory, name) for name in answered)


def keep_adding(directory: Path) -> None:
    """Add documents until the process is killed, and say of which it was answered."""
    round = input()
    documents = StoredDocuments(directory)
    with ServedIndex(directory, hashed.engine()) as index:
        for number in range(10_000):
            name = f"{round}-{number}"
            with documents.staging() as folder:
                text = f"The name of a town is {name}."
                if number % 2:
                    given = documents.read_rows(folder, [GivenDocument(id=name, text=text)], {})
                else:
                    (folder / f"{name}.jsonl").write_text(
                        json.dumps({"id": name, "title": name, "text": text}), encoding="utf-8"
                    )
                    given = documents.read_file(folder / f"{name}.jsonl", f"{name}.jsonl", {})
                index.submit(documents.addition(given))()
            print(name, flush=True)
