"""The schema of results is the golden file's: the same for `--json`, HTTP, stored runs and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytrace.results import VERSION, Result

GOLDEN = Path(__file__).parent / "golden" / "result.schema.json"
CHANGED = (
    "pytrace/results.py has changed: raise VERSION if a field was removed, renamed or means something else, say so in CHANGELOG.md, "
    "and write the file: python -m tests.test_result_schema"
)


def without_words(schema: Any) -> Any:
    """Return a schema as JSON without descriptions, which are docstrings."""
    if isinstance(schema, dict):
        return {
            key: without_words(value)
            for key, value in schema.items()
            if key != "description" or not isinstance(value, str)
        }
    return [without_words(each) for each in schema] if isinstance(schema, list | tuple) else schema


def test_the_schema_is_the_golden_files() -> None:
    golden = json.loads(GOLDEN.read_bytes())
    assert golden == without_words(msgspec.json.schema(Result)), CHANGED
    assert golden["$defs"]["Result"]["properties"]["version"]["default"] == VERSION


def test_the_service_has_the_same_schema() -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from pytrace.serve.app import ROWS
    from pytrace.serve.openapi import openapi

    components = without_words(openapi(ROWS, with_key=False)["components"]["schemas"])
    served = json.loads(json.dumps(components).replace("#/components/schemas/", "#/$defs/"))
    for name, schema in json.loads(GOLDEN.read_bytes())["$defs"].items():
        assert served[name] == schema
    assert {row.path for row in ROWS if row.answer is Result} == {"/v1/search", "/v1/ask"}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(without_words(msgspec.json.schema(Result)), indent=2) + "\n", encoding="utf-8")
