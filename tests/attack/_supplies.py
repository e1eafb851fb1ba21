"""What commands need to begin: a folder with documents, questions, graphs, an index, a run, of which each attack gets a copy."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attack.frame import command

DOCUMENTS = {
    "tern.md": "---\ntitle: Marigold Tern\n---\nThe Marigold Tern is a ferry. It belongs to Brackwater Ferries.\n",
    "ferries.txt": "Brackwater Ferries was founded by Tobias Rook. Its head office is in Quillhaven.\n",
    "rows.jsonl": '{"title": "Quillhaven", "text": "Quillhaven is a town of 9,400 people.", "metadata": {"year": 1902}}\n',
}
TRIPLES = "Marigold Tern\tbelongs to\tBrackwater Ferries\nBrackwater Ferries\tfounded by\tTobias Rook\n"
QUESTION = "Who founded the company that owns the Marigold Tern?"
_PATH = [["Marigold Tern", "belongs to", "Brackwater Ferries"], ["Brackwater Ferries", "founded by", "Tobias Rook"]]
_SENTENCES = {
    "Marigold Tern": ["The Marigold Tern is a ferry.", "It belongs to Brackwater Ferries."],
    "Brackwater Ferries": ["Brackwater Ferries was founded by Tobias Rook."],
}
_ROW = {
    "question": QUESTION,
    "answers": ["Tobias Rook"],
    "documents": [{"title": title, "sentences": sentences} for title, sentences in _SENTENCES.items()],
    "supporting": list(_SENTENCES),
    "gold_paths": [_PATH],
    "response": "1. Marigold Tern belongs to Brackwater Ferries.\n2. Brackwater Ferries was founded by Tobias Rook.\nSo the answer is (Tobias Rook).",
    "query": 'SELECT ?x WHERE { "Marigold Tern" "belongs to" ?y }',
}

_CLAIMS = [
    {"claim": "The Marigold Tern is a ferry.", "evidence": _SENTENCES["Marigold Tern"], "label": "supported"},
    {"claim": "The Marigold Tern is a lighthouse.", "evidence": _SENTENCES["Marigold Tern"], "label": "contradicted"},
    {"claim": "Tobias Rook lives in Quillhaven.", "evidence": _SENTENCES["Brackwater Ferries"], "label": "not there"},
]

# What each command is given so that it runs to its end, or as far as it gets without much work.
BEGINNINGS: dict[str, tuple[str, ...]] = {
    "index build": ("new.index", "--docs", "docs"),
    "index add": ("index", "--docs", "docs"),
    "index learn": ("index", "--data", "questions.jsonl"),
    "index merge": ("new.index", "index"),
    "index remove": ("index", "no-such-id"),
    "index show": ("index",),
    "index sync": ("index", "--docs", "docs"),
    "index verify": ("index",),
    "search": (QUESTION, "--index", "index"),
    "ask": (QUESTION, "--docs", "docs", "--method", "bm25"),
    "eval-claims": ("claims.jsonl",),
    "eval": ("bm25", "--data", "questions.jsonl", "--limit", "1"),
    "report": ("run",),
    "tune": ("bm25", "--data", "questions.jsonl", "--out", "tuned"),
    "certify": ("--kg", "kg.tsv", "--responses", "questions.jsonl"),
    "certify paths": ("--kg", "kg.tsv", "--data", "questions.jsonl", "--out", "paths.jsonl"),
    "certify discriminate": ("--kg", "kg.tsv", "--data", "questions.jsonl", "--limit", "1", "--mode", "zero-shot"),
    "certify generate": ("--kg", "kg.tsv", "--data", "questions.jsonl", "--limit", "1", "--prompting", "cot"),
    "certify table": ("judged.jsonl",),
    # The default noises include misinformation, which a language model writes for a minute.
    "perturb": ("--data", "questions.jsonl", "--out", "broken.jsonl", "--noise", "irrelevant"),
    "kg build": ("--docs", "docs", "--out", "new.kg"),
    "kg edit": ("kg", "no-such-document", "--triples", "kg.tsv"),
    "kg export": ("kg",),
    "kg import": ("kg.tsv", "--out", "new.kg"),
    "kg index": ("kg.tsv", "--out", "new.kb"),
    "kg remove": ("kg", "no-such-document"),
    "kg show": ("kg",),
    "kg verify": ("kb",),
    "docs show": ("docs",),
    "train evaluate": ("--generator", "noise", "--data", "questions.jsonl"),
    "train checker": ("--data", "claims.jsonl", "--out", "trained", "--base", "tiny", "--steps", "2"),
    "train edge": ("--data", "docs", "--out", "trained", "--steps", "2"),
    "train query-generator": ("--data", "questions.jsonl", "--out", "trained", "--steps", "2"),
    "train ranker": ("--data", "questions.jsonl", "--out", "trained", "--steps", "2"),
    "models fastest": ("no-such-model",),
    "models list": (),
    "models path": ("tiny",),
    "models pull": ("tiny",),
    "models verify": ("tiny",),
    "mcp": ("--index", "index", "--threads", "1"),
    # It ends where the last of all is looked at, once models and index are there.
    "serve": ("--index", "index", "--port", "0", "--threads", "1", "--facts", "noise"),
    # Nothing is fetched and nothing compiled: what pip is given is no wheel.
    "bundle": ("--out", "new.bundle", "--no-models", "--find-links", "folder", "--source", "noise"),
    "bench": ("beam", "--scale", "0.01", "--repetitions", "1"),
    "doctor": (),
}  # fmt: skip


def make(folder: Path) -> Path:
    """Put the supplies into a folder; what the commands themselves make of them is made once, for all parts of the attack."""
    return Path(shutil.copytree(_made(), folder, symlinks=True))


@functools.cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pytrace-supplies-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "docs").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    (folder / "kg.tsv").write_text(TRIPLES, encoding="utf-8")
    (folder / "questions.jsonl").write_text(json.dumps(_ROW) + "\n", encoding="utf-8")
    (folder / "claims.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _CLAIMS), encoding="utf-8")
    (folder / "noise").write_bytes(bytes(range(256)) * 64)
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    for line in (
        ("index", "build", "index", "--docs", "docs", "--threads", "1"),
        ("kg", "import", "kg.tsv", "--out", "kg"),
        ("kg", "index", "kg.tsv", "--out", "kb", "--threads", "1"),
        ("eval", "bm25", "--data", "questions.jsonl", "--limit", "1", "--out", "run", "--threads", "1"),
        (
            "certify",
            "discriminate",
            "--kg",
            "kg.tsv",
            "--data",
            "questions.jsonl",
            "--mode",
            "zero-shot",
            "--out",
            "judged.jsonl",
            "--threads",
            "1",
        ),
    ):
        if wrong := command(line, cwd=folder, codes=(0,), seconds=300):
            raise AssertionError(f"{line}: {wrong}")
    return folder


@contextmanager
def copied(supplies: Path) -> Iterator[Path]:
    """Give a copy of the supplies that goes with the block."""
    with tempfile.TemporaryDirectory(dir=supplies.parent) as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(supplies, copy, symlinks=True)
        yield copy
