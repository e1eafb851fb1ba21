"""The OpenAPI document holds together, names every route, and its examples work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.serve.app import ROWS
from pytrace.serve.openapi import openapi
from pytrace.serve.routes import RouteRow
from tests.serve.service_process import ServiceProcess, served

WITH_BODY = [row for row in ROWS if row.body is not None]


def inside(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over all objects in a document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from inside(each)
    elif isinstance(value, list):
        for each in value:
            yield from inside(each)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(msgspec.json.encode(openapi(ROWS, with_key=True)))  # type: ignore[no-any-return]


def test_every_route_stands_in_it_once(document: dict[str, Any]) -> None:
    named = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    assert named == {(row.method, row.path) for row in ROWS}
    assert len(ROWS) == len(named)
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"].endswith(".")
        assert operation["tags"]
        assert {"200", "400", "401", "413", "429", "504"} <= {*operation["responses"]}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    references = {each["$ref"] for each in inside(document) if "$ref" in each}
    assert {reference.removeprefix("#/components/schemas/") for reference in references} <= {*schemas}
    assert "#/components/schemas/ErrorResponse" in references
    assert document["openapi"].startswith("3.1")
    assert document["security"] == [{"key": []}]
    assert "key" in document["components"]["securitySchemes"]
    assert "security" not in openapi(ROWS, with_key=False)


def test_it_is_what_json_schema_and_openapi_allow(document: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        for parameter in operation["parameters"]:
            assert {"name", "in", "required", "schema", "description"} <= {*parameter}
            jsonschema.Draft202012Validator.check_schema(parameter["schema"])
        for response in operation["responses"].values():
            assert response["description"]


@pytest.mark.parametrize("row", WITH_BODY, ids=lambda row: row.path)
def test_every_example_is_what_its_schema_says(row: RouteRow, document: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    assert row.body is not None
    assert row.example is not None
    msgspec.convert(row.example, row.body)
    schema = {**document["components"]["schemas"][row.body.__name__], "components": document["components"]}
    jsonschema.validate(row.example, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.models
def test_every_example_works_and_every_answer_is_what_its_schema_says(
    examples_index: Path, tmp_path: Path, document: dict[str, Any]
) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    given = {"/v1/documents/text": "id=skarra-wren", "/v1/neighbours": "passage=skarra-wren", "DELETE": "id=ada-foah"}
    index = shutil.copytree(examples_index, tmp_path / "index")
    with served(index, log=tmp_path / "log") as service:
        assert service.get("/openapi.json") == {key: value for key, value in document.items() if key != "security"}
        for row in ROWS:
            if row.path == "/v1/documents/page":
                continue  # of a PDF, which the examples have not as a document; see the tests of pages
            query = given.get("DELETE" if row.method == "DELETE" else row.path, "")
            answer = _ask(service, row, query)
            if isinstance(row.answer, type):
                schema = {
                    **document["components"]["schemas"][row.answer.__name__],
                    "components": document["components"],
                }
                jsonschema.validate(answer, schema, cls=jsonschema.Draft202012Validator)
                msgspec.convert(answer, row.answer)


def _ask(service: ServiceProcess, row: RouteRow, query: str) -> Any:
    body = row.example
    if row.path in {"/v1/ask", "/v1/chat/completions"}:
        assert body is not None
        body = (
            {**body, "model": "pytrace/standard"} if "chat" in row.path else {**body, "method": "standard"}
        )  # a second
    status, answer, _ = service.request(row.method, f"{row.path}?{query}" if query else row.path, body)
    assert status == 200, (row.path, answer)
    return answer
