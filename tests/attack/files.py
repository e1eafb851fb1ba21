"""Hostile files in every place where a command reads one."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.attack import _supplies
from tests.attack.frame import Attack, command

_SIZE = 1_000_000
_ROW = '{"question": "Q", "text": "T", "title": "T", "answers": ["A"], "response": "1. A b C.", "head": "A", "relation": "b", "tail": "C"'
_ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\x00\x08"


def _zip(name: str, content: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr(name, content)
    return archive.getvalue()


def _gzip_bomb() -> bytes:
    # Members one after the other are one stream: 4 GB in 4 MB, made in no time.
    return gzip.compress(bytes(10_000_000)) * 400


CONTENTS: dict[str, Callable[[Random], bytes | str]] = {
    "empty": lambda _: b"",
    "a newline": lambda _: b"\n",
    "zeros": lambda _: bytes(_SIZE),
    "noise": lambda random: random.randbytes(100_000),
    "broken UTF-8": lambda _: b'{"question": "K\xf6ln", "text": "\xff\xfe\xed\xa0\x80"}\nA\tb\xc3\tC\n',
    "UTF-16": lambda _: "Marigold Tern\tbelongs to\tBrackwater Ferries\n".encode("utf-16"),
    "a byte order mark": lambda _: b"\xef\xbb\xbf",
    "escapes": lambda _: f"{_ESCAPES}\t{_ESCAPES}\t{_ESCAPES}\n{_ESCAPES}, {_ESCAPES}.\n",
    "escapes in JSON": lambda _: _ROW.replace('"T"', '"\\u001b[31m\\u202e\\u0000\\ud800"') + "}\n",
    "one long word": lambda _: b"a" * (5 * _SIZE),
    "one long line": lambda _: b"word " * _SIZE,
    "full stops": lambda _: b"." * _SIZE,
    "quotes": lambda _: b'"' * _SIZE,
    "brackets": lambda _: b"[" * _SIZE,
    "backslashes": lambda _: b"\\" * _SIZE,
    "spaces": lambda _: b" " * _SIZE + b"x",
    "angle brackets": lambda _: b"<" * _SIZE,
    "hashes": lambda _: b"#" * _SIZE,
    "newlines": lambda _: b"\n" * _SIZE,
    "tabs": lambda _: b"a\tb\tc\td\t" * 100_000,
    "combining marks": lambda _: "e" + "\u0301" * 300_000,
    "deep lists": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "deep objects": lambda _: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a deep field": lambda _: _ROW + ', "metadata": ' + '{"a": [' * 50_000 + "]}" * 50_000 + "}\n",
    "a long number": lambda _: _ROW + ', "year": 1' + "0" * 10_000 + ', "top": 1e999, "x": NaN}\n',
    "a list for a row": lambda _: b"[1, 2, 3]\nnull\n7\n",
    "wrong types": lambda _: b'{"question": 1, "text": {}, "title": [], "answers": "x", "response": 7, "head": null, "documents": 3}\n',
    "null fields": lambda _: b'{"question": null, "text": null, "answers": null, "documents": null, "response": null}\n',
    "a cut row": lambda _: _ROW + ', "sup',
    "equal fields": lambda _: _ROW + ', "question": "other", "question": {}}\n',
    "nested quoted triples": lambda _: "<<( " * 20_000 + "<a:a> <a:b> <a:c>" + " )>>" * 20_000 + " .\n",
    "nested blank nodes": lambda _: "<a:a> <a:b> " + "[ <a:b> " * 20_000 + "<a:c>" + " ]" * 20_000 + " .\n",
    "nested collections": lambda _: "<a:a> <a:b> " + "( " * 20_000 + ") " * 20_000 + ".\n",
    "nested markup": lambda _: "<html><body>" + "<div><b>" * 50_000 + "text",
    "nested quotations": lambda _: "> " * 50_000 + "text\n",
    "nested lists of Markdown": lambda _: "\n".join("  " * depth + "- a" for depth in range(2_000)),
    "front matter that grows": lambda _: "---\na: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)) + "---\ntext\n",
    "entities that grow": lambda _: '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{("&" + chr(97 + n) + ";") * 10}">' for n in range(9)) + "]><x>&j;</x>",
    "an entity of a file": lambda _: '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    "a bomb of gzip": lambda _: _gzip_bomb(),
    "a cut gzip": lambda _: gzip.compress(b"Marigold Tern\tis\ta ferry\n" * 1000)[:60],
    "a bomb of zip": lambda _: _zip("word/document.xml", bytes(300 * _SIZE)),
    "a zip that climbs": lambda _: _zip("../../../../tmp/climbed", b"x"),
    "half a database": lambda random: b"SQLite format 3\x00" + random.randbytes(8_176),
    "half a model": lambda random: b"GGUF\x03\x00\x00\x00" + b"\xff" * 16 + random.randbytes(1000),
    "half a PDF": lambda random: b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 1 0 R >>\n" + random.randbytes(5000),
    "a program": lambda _: b"\x7fELF\x02\x01\x01" + bytes(5000),
    "many columns": lambda _: b"title,text," + b"x," * 100_000 + b"\n" + b"1," * 100_000,
    "an open quote": lambda _: b'title,text\n"a,b\n' + b" \n" * 100_000,
}  # fmt: skip
KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "an endless file": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}

_QUESTION = _supplies.QUESTION
_GRAPHS = ("tsv", "jsonl", "nt", "ttl", "tsv.gz", "nt.gz")
_TEXTS = ("txt", "md", "jsonl", "json", "csv", "tsv", "html", "pdf", "docx", "pptx", "epub", "eml", "jsonl.gz", "")
# The command, with {} for the file, and the endings of its name; behind " > " where the file lies, * for any file of a store.
PLACES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("docs show {}", _TEXTS),
    ("docs show docs --json > docs/{}", _TEXTS),
    ("index build new.index --threads 1 --docs {}", _TEXTS),
    ("index sync index --threads 1 --docs docs > docs/{}", _TEXTS),
    ("kg build --docs {} --out new.kg --threads 1", ("md", "jsonl", "csv")),
    ("kg build --docs docs --out new.kg --threads 1 --demonstrations {}", ("jsonl", "json")),
    ("ask --questions {} --docs docs --method bm25 --threads 1", ("txt", "jsonl")),
    ("ask Q --docs docs --threads 1 --method cok --kb {}", _GRAPHS),
    ("ask Q --docs docs --threads 1 --method cok --kb kg.tsv --kb-labels {}", ("tsv", "jsonl")),
    ("ask Q --docs docs --threads 1 --method cok --kb kg.tsv --kb-predicates {}", ("tsv", "jsonl", "txt")),
    ("eval bm25 --threads 1 --data {}", ("jsonl", "json", "txt", "jsonl.gz")),
    ("eval bm25 --threads 1 --data {} --format hotpotqa", ("jsonl", "json")),
    ("tune bm25 --threads 1 --out tuned --data {}", ("jsonl", "json")),
    ("perturb --out broken.jsonl --threads 1 --data {}", ("jsonl", "json")),
    ("index learn index --threads 1 --data {}", ("jsonl",)),
    ("certify --kg {} --responses questions.jsonl", _GRAPHS),
    ("certify --kg kg.tsv --responses {}", ("jsonl", "json", "txt")),
    ("certify paths --kg {} --data questions.jsonl --out paths.jsonl", _GRAPHS),
    ("certify paths --kg kg.tsv --data {} --out paths.jsonl", ("jsonl", "txt")),
    ("certify discriminate --kg kg.tsv --mode zero-shot --threads 1 --data {}", ("jsonl", "txt")),
    ("kg import {} --out new.kg", _GRAPHS),
    ("kg index {} --out new.kb --threads 1", _GRAPHS),
    ("kg edit kg doc --triples {}", ("tsv", "jsonl")),
    ("train query-generator --threads 1 --steps 2 --out trained --data {}", ("jsonl", "json", "txt")),
    ("train ranker --threads 1 --steps 2 --out trained --data {}", ("jsonl", "json")),
    ("train evaluate --threads 1 --data questions.jsonl --generator {}", ("gguf",)),
    ("ask Q --docs docs --threads 1 --llm {}", ("gguf",)),
    ("search Q --index index --threads 1 --encoder {}", ("onnx",)),
    ("models fastest {} --threads 1", ("gguf",)),
    ("report run > run/*", ("",)),
    ("index show index > index/*", ("",)),
    ("search Q --index index --threads 1 > index/*", ("",)),
    ("kg show kg > kg/*", ("",)),
    ("certify --kg kb --responses questions.jsonl > kb/*", ("",)),
)  # fmt: skip


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    supplies = _supplies.make(workplace / "supplies")
    tried = [
        (words, ending, content)
        for words, endings in PLACES
        for ending in endings
        for content in random.sample([*CONTENTS, *KINDS], 6)
        if content != "a pipe"
        or " > " in words  # a pipe that is named may be meant; who names one waits for its writer
    ]
    for words, ending, content in random.sample(tried, 5) if short else tried:
        seed = random.randrange(1 << 32)
        yield Attack(f"{words} {ending}: {content}", partial(_try, supplies, words, ending, content, seed))


def _try(supplies: Path, words: str, ending: str, content: str, seed: int) -> str | None:
    with _supplies.copied(supplies) as folder:
        line, _, place = words.partition(" > ")
        name = f"hostile.{ending}" if ending else "hostile"
        if place.endswith("*"):
            target = Random(seed).choice(sorted((folder / place).parent.glob("*")))
            target.unlink()
        else:
            target = folder / place.format(name) if place else folder / name
        if content in KINDS:
            KINDS[content](target)
        else:
            made = CONTENTS[content](Random(seed))
            target.write_bytes(made.encode("utf-8", "surrogatepass") if isinstance(made, str) else made)
        wrong = command(line.format(name).split(), cwd=folder, seconds=90, memory=3 << 30)
        return f"{wrong} ({target.relative_to(folder)})" if wrong else None
