"""The page of formats says what the code writes and reads."""

from __future__ import annotations

import re
from pathlib import Path

from pytrace.bench import measurements
from pytrace.evaluation.run import run_store
from pytrace.kg import answer_cache, knowledge_base_files
from pytrace.models import response_cache
from pytrace.models.encoders import vector_cache
from pytrace.retrieval import index_files
from pytrace.retrieval.passages import manifest
from pytrace.storage import array_file
from pytrace.triples.graph import database

PAGE = (Path(__file__).parents[2] / "docs" / "versions.md").read_text(encoding="utf-8")
# What is written, and all that is read.
FORMATS = {
    "index of passages": (manifest.FORMAT, {*manifest.FORMATS_BEFORE, manifest.FORMAT}),
    "index of sentences": (index_files.FORMAT, {*index_files._FORMATS}),
    "knowledge base": (knowledge_base_files.FORMAT, {*knowledge_base_files._FORMATS}),
    "graph of triples": (database.SCHEMA_VERSION, {*database._READABLE_VERSIONS}),
    "run of an evaluation": (run_store.SCHEMA_VERSION, {run_store.SCHEMA_VERSION}),
    "cache of a model's responses": (response_cache._SCHEMA_VERSION, {1, response_cache._SCHEMA_VERSION}),
    "cache of a knowledge base's answers": (answer_cache._VERSION, {answer_cache._VERSION}),
    "named arrays in one file": (array_file._FORMAT, {array_file._FORMAT}),
    "figures of `bench`": (measurements.FORMAT, {measurements.FORMAT}),
    "cache of vectors": (int(vector_cache._MAGIC.split()[-1]), {int(vector_cache._MAGIC.split()[-1])}),
}


def test_the_page_of_versions_has_each_format_with_what_is_read_too() -> None:
    rows = re.findall(r"^\| ([^|(]+?)(?: \([^|]+\))? \|[^|]*\| (\d+) \|([\d, ]*)\|[^|]*\|$", PAGE, flags=re.MULTILINE)
    told = {name: (int(written), {int(written), *map(int, re.findall(r"\d+", older))}) for name, written, older in rows}
    assert told == FORMATS
