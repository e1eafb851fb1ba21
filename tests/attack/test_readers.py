"""No reader of foreign text and bytes is without a target, and each target reads what it is said to read well."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import pytrace
from pytrace.documents.foreign import SUFFIXES
from tests.attack._reader_targets import TARGETS
from tests.attack.readers import Readers, mutated

# What reads foreign bytes imports one of these.
_READS = re.compile(
    r"import .*\b(?:decode_json|read_json|read_bounded|json_rows|read_text|open_file|decode_text|lines_of|read_lines|open_rdf)\b"
    r"|Tokenizer\.from|InferenceSession|GGUFReader|torch\.load|\byaml\b|tomllib"
)
_WITHOUT = {
    "kg/building.py": "the record of a build of one's own; what cannot be read is begun anew",
    "kg/queries/trained.py": "the recipe in a GGUF that was trained here",
    "retrieval/index_files.py": "a store of one's own: the stores' attack flips its bits",
    "storage/mapped_arrays.py": "manifests of stores of one's own",
    "training/examples.py": "rows that json_rows has read, for training",
    "training/export.py": "the recipe in a GGUF that was trained here",
    "training/network.py": "a base for training, read by transformers",
    "triples/extraction.py": "lines of documents that were read before",
    "training/ranker_export.py": "the tokenizer of an encoder that was opened before",
}


def test_every_reader_has_a_target(tmp_path: Path) -> None:
    pytest.importorskip("reportlab", reason="reportlab writes the PDF file that is read here")
    root = Path(pytrace.__file__).parent
    readers = {
        str(path.relative_to(root))
        for path in root.glob("**/*.py")
        if _READS.search(path.read_text(encoding="utf-8"))
        and not {"formats", "servers"} & {*path.parts}  # read in a process of their own; attacked by servers
    }
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_filename)

    for name, target in TARGETS.items():
        folder = tmp_path / name.replace(" ", "-")
        path = target.place(folder, "seed")
        seeds = target.seeds(folder)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(seeds[0])
        sys.setprofile(note)
        try:
            target.read(path)
        finally:
            sys.setprofile(None)
    reached = {str(Path(file).relative_to(root)) for file in called if Path(file).is_relative_to(root)}
    assert readers - reached == set(_WITHOUT)
    assert {f"documents {suffix.removeprefix('.')}" for suffix in SUFFIXES} - {
        "documents htm",
        "documents xhtml",
    } <= set(TARGETS)


def test_what_ends_its_process_is_told_and_others_go_on(tmp_path: Path) -> None:
    readers = Readers(tmp_path)
    try:
        assert readers.attack("filters", seed=0, trials=3, seconds=30) is None
        assert readers.tried == 3
        assert readers._process is not None
        readers._process.kill()
        assert "ended its process" in str(readers.attack("filters", seed=0, trials=3, seconds=30))
        assert readers.attack("filters", seed=0, trials=3, seconds=30) is None
    finally:
        readers.close()


def test_mutations_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    import random

    made = [mutated([b'{"a": 1, "b": "c"}'], random.Random(number)) for number in range(200)]
    assert made == [mutated([b'{"a": 1, "b": "c"}'], random.Random(number)) for number in range(200)]
    assert len(set(made)) > 150
