"""Files that are broken at random cost one message each: no crash, no hang, nothing else than `DataError`.

`make fuzz-documents` tries 10,000 a format.
"""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.foreign import SUFFIXES, ForeignReader
from pytrace.errors import DataError
from tests.documents.test_books_and_mail import MAIL, write_epub
from tests.documents.test_formats import WRITERS, sections

TRIES = int(os.environ.get("PYTRACE_MUTATED_FILES", "60"))
SECONDS = 20.0  # none of these small files takes one

MARKDOWN = b"---\ntitle: Ships\ntags: [a, b]\n---\n# Ships\n\n| Ship | Built |\n|---|---|\n| Tern | 1998 |\n\n- One\n\n```\ncode\n```\n"
CSV = b'title,text,year\nAda Foah,"It is a town, in ""Ghana"".",1783\nTern,It sails.,1998\n'
ROWS = b'{"title": "Ada Foah", "text": "It is a town.", "metadata": {"year": 1783}}\n{"title": "B", "sentences": ["One.", "Two."]}\n'


def by_writer(suffix: str) -> Callable[[Path], None]:
    return lambda path: WRITERS[suffix](path, sections()[:4])


SEEDS: dict[str, Callable[[Path], object]] = {
    **{suffix: by_writer(suffix) for suffix in ("pdf", "docx", "pptx", "html", "txt")},
    "epub": write_epub,
    "eml": lambda path: path.write_bytes(MAIL),
    "md": lambda path: path.write_bytes(MARKDOWN),
    "csv": lambda path: path.write_bytes(CSV),
    "jsonl": lambda path: path.write_bytes(ROWS),
}


def mutated(data: bytes, random: random.Random) -> bytes:
    """Change a file in one to six places: bytes flipped, cut out, doubled, put elsewhere, or the end gone."""
    content = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 6))):
        if not content:
            break
        start = random.randrange(len(content))
        length = min(random.choice((1, 2, 8, 64, 1024)), len(content) - start)
        kind = random.randrange(6)
        if kind == 0:
            content[start] ^= 1 << random.randrange(8)
        elif kind == 1:
            content[start : start + length] = random.randbytes(length)
        elif kind == 2:
            del content[start : start + length]
        elif kind == 3:
            content[start:start] = content[start : start + length] * random.choice((1, 2, 100))
        elif kind == 4:
            target = random.randrange(len(content))
            content[target : target + length] = content[start : start + length]
        else:
            number = random.choice((b"0", b"-1", b"99999999999", b"4294967295", b"1e999"))
            content[start : start + len(number)] = number
    if not random.randrange(10):
        del content[random.randrange(len(content) + 1) :]
    return bytes(content)


def mutated_archive(data: bytes, random: random.Random) -> bytes:
    """Change what one entry of an archive holds, so that it still unpacks."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as after:
        # The large ones hold the text.
        names = before.namelist()
        chosen = random.choices(names, [before.getinfo(name).file_size + 1 for name in names])[0]
        for name in names:
            entry = before.read(name)
            after.writestr(name, mutated(entry, random) if name == chosen else entry)
    return written.getvalue()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("suffix", SEEDS)
def test_a_mutated_file_is_read_or_told(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("reportlab", reason="reportlab writes the PDF files that are broken here")
    seed, path = tmp_path / f"seed.{suffix}", tmp_path / f"mutated.{suffix}"
    SEEDS[suffix](seed)
    original = seed.read_bytes()
    archive = original.startswith(b"PK")
    outcomes: Counter[str] = Counter()
    bad = []
    with ForeignReader(seconds=SECONDS) as reader:
        for number in range(TRIES):
            chance = random.Random(f"{suffix}{number}")
            change = mutated_archive if archive and number % 4 else mutated
            path.write_bytes(change(original, chance))
            try:
                if f".{suffix}" in SUFFIXES:
                    reader.read(path, SUFFIXES[f".{suffix}"])
                else:
                    list(read_documents(path, report=ReadReport()))
                outcomes["read"] += 1
            except DataError as error:
                outcomes["told"] += 1
                if any(words in str(error) for words in ("ended the process", "took more than", "nonsense")):
                    bad.append(f"{number}: {error}")
    assert not bad
    print(f"{suffix}: {dict(outcomes)}")
    assert outcomes["read"]
