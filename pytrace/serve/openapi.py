"""The OpenAPI document of the service, made of its routes."""

from __future__ import annotations

from typing import Any

import msgspec

from pytrace import __version__
from pytrace.serve.messages import ErrorResponse
from pytrace.serve.routes import Parameter, RouteRow

# What every route may answer besides what it is for.
_FAILURES = {
    "400": "The request cannot be used; the message says why.",
    "401": "A key is needed.",
    "413": "The body is too large.",
    "429": "Too much is under way; try again after the seconds in `Retry-After`.",
    "503": "The index cannot be read or written.",
    "504": "The request took longer than it may.",
}


def openapi(rows: tuple[RouteRow, ...], *, with_key: bool) -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    structs: set[type[msgspec.Struct]] = {row.body for row in rows if row.body is not None}
    structs |= {row.answer for row in rows if not isinstance(row.answer, str)}
    ordered = sorted([*structs, ErrorResponse], key=str)
    _, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "pytrace",
            "version": __version__,
            "description": "Evidence for multi-hop questions, from an index on this machine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    if with_key:
        document["security"] = [{"key": []}]
    return document


def _operation(row: RouteRow) -> dict[str, Any]:
    if isinstance(row.answer, str):
        content: dict[str, Any] = {row.answer: {}}
    else:
        content = {"application/json": {"schema": _reference(row.answer)}}
    if row.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    operation: dict[str, Any] = {
        "summary": row.summary,
        "tags": [row.tag],
        "operationId": f"{row.method.lower()}_{row.path.strip('/').replace('/', '_')}",
        "parameters": [_parameter(parameter) for parameter in row.parameters],
        "responses": {
            "200": {"description": row.summary, "content": content},
            **{
                status: {"description": why, "content": {"application/json": {"schema": _reference(ErrorResponse)}}}
                for status, why in _FAILURES.items()
            },
        },
    }
    if row.body is not None:
        given: dict[str, Any] = {"schema": _reference(row.body)}
        if row.example is not None:
            given["example"] = row.example
        sent: dict[str, Any] = {"application/json": given}
        if row.raw:
            sent["application/octet-stream"] = {
                "schema": {"type": "string", "format": "binary", "description": row.raw}
            }
        operation["requestBody"] = {"required": True, "content": sent}
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer" if parameter.kind is int else "string"}
    if parameter.kind is int:
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.repeated:
        schema = {"type": "array", "items": schema, "maxItems": parameter.most}
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.default is None,
        "description": parameter.help,
        "schema": schema,
    }


def _reference(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}
