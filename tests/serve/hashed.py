"""An index whose encoder counts words, for tests of what surrounds it: no model is loaded, and vectors come at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pytrace.cli.index import Sync
from pytrace.documents import read_documents
from pytrace.engine.loading import Engine
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document
from pytrace.retrieval.passages import IndexWriter, PassageIndex

ROOT = Path(__file__).parents[2]


def engine() -> Engine:
    """Return an engine of stand-ins."""
    engine = Engine(threads=1)
    vars(engine).update(encoder=HashEncoder(dimension=64), model=ScriptedModel(["Tobias Rook"]))
    return engine


def document(name: str, text: str = "") -> Document:
    """Return a document of one sentence."""
    return Document(name, name.title(), (text or f"{name.title()} is a town on the Volta.",))


def build(directory: Path, documents: Iterable[Document]) -> Path:
    """Make an index of documents."""
    with IndexWriter(directory, engine().encoder, create=True) as writer:
        writer.add(documents)
        writer.commit()
    return directory


def build_of(directory: Path, docs: Path) -> Path:
    """Make an index of a folder, which syncs read again."""
    with IndexWriter(directory, engine().encoder, create=True, reading={"docs": [str(docs.resolve())]}) as writer:
        writer.add(read_documents(docs))
        writer.commit()
    return directory


def sync(directory: Path) -> None:
    """Do what 'pytrace index sync' does."""
    command = Sync()
    command.directory, command.docs, command.skip_bad, command.models = directory, (), False, engine()
    command.run()


def ids(directory: Path) -> set[str]:
    """Return the ids of an index's documents."""
    with PassageIndex(directory) as index:
        return {entry.id for entry in index.entries()}


def text_of(directory: Path, name: str) -> str:
    """Return the text of a document; empty where there is none."""
    with PassageIndex(directory) as index:
        return " ".join(passage.text for passage in index.passages(index.rows_of(name)))


def elsewhere(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run Python in a process of its own, with this module's names."""
    program = f"import sys, time\nfrom pathlib import Path\nfrom tests.serve.hashed import *\n{code}"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
