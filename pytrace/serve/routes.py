"""What the service is asked over HTTP: a row a route, from which both the application and its OpenAPI document are made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytrace.errors import InputError
from pytrace.serve.guard import ROUTE
from pytrace.serve.service import Service

Handler = Callable[[Service, Request], Awaitable[Response]]
_Body = TypeVar("_Body", bound=msgspec.Struct)

# Bytes from which a body is decoded beside the event loop, which others wait for.
_LARGE = 1 << 18
# What a body may have of objects, lists, fields and texts, as far as their marks tell, of which a text may have some, too. They are
# decoded at some million a second, in which nothing else is done: bounds of lists are looked at when the list has been decoded.
_MOST_VALUES = 300_000
_MARKS = (b"{", b"[", b'":', b'",')


class Parameter(NamedTuple):
    """A parameter of an address: its type, what it is for, and the value that it has where none is given; None: it must be."""

    name: str
    kind: type[str | int]
    help: str
    default: str | int | None = None
    least: int = 0
    most: int = 1_000_000
    repeated: bool = False


class RouteRow(NamedTuple):
    """All that is known of a route.

    `body` and `answer` are the structs of its JSON, or `answer` the media type of what is no JSON; `example` is a body, `streams` says that
    it may answer with server-sent events.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    tag: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | str = "application/json"
    parameters: tuple[Parameter, ...] = ()
    example: dict[str, Any] | None = None
    streams: bool = False
    raw: str = ""


def make_routes(rows: tuple[RouteRow, ...], service: Service) -> list[Route]:
    """Return Starlette's routes; several rows of one path have a method each."""
    routes = []
    for path in dict.fromkeys(row.path for row in rows):
        handlers = {row.method: row.handler for row in rows if row.path == path}
        routes.append(Route(path, _endpoint(path, handlers, service), methods=[*handlers]))
    return routes


def _endpoint(path: str, handlers: dict[str, Handler], service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def call(request: Request) -> Response:
        request.scope[ROUTE] = path
        method = "GET" if request.method == "HEAD" else request.method
        return await handlers[method](service, request)

    return call


async def read_body(request: Request, kind: type[_Body]) -> _Body:
    """Read a body as a struct; what it lacks or has too much of is told by its place in it."""
    content = await request.body()
    if not content:
        raise InputError(f"the body is empty; send JSON, as /openapi.json shows it for {request.url.path}")
    if len(content) < _LARGE:
        return decode_body(content, kind)
    return await asyncio.to_thread(decode_body, content, kind)


def decode_body(content: bytes, kind: type[_Body]) -> _Body:
    """Read JSON as a struct; `InputError` says what is wrong with it."""
    if len(content) > _MOST_VALUES and (values := sum(map(content.count, _MARKS))) > _MOST_VALUES:
        raise InputError(
            f"the body has some {values:,} objects, lists, fields and texts, and {_MOST_VALUES:,} are taken at once; send it in parts"
        )
    try:
        body = msgspec.json.decode(content, type=kind)
    except UnicodeDecodeError:
        raise InputError("the body is not valid UTF-8; send JSON in UTF-8") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"the body cannot be used: {error}; see /openapi.json") from None
    check_text(body)
    return body


def check_text(value: Any) -> None:
    """Refuse texts with characters that no text has: lone surrogates, which nothing stores or shows, and NUL."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if "\x00" in item or not (item.isascii() or _is_text(item)):
                raise InputError(
                    "a text has characters that are no text (NUL, or half of a surrogate pair); leave them out"
                )
        elif isinstance(item, msgspec.Struct):
            stack.extend(getattr(item, name) for name in item.__struct_fields__)
        elif isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_parameters(request: Request, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Read the parameters of an address; `InputError` names one that is missing or wrong."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        given = request.query_params.getlist(parameter.name)
        if not given and parameter.default is None:
            raise InputError(f"the parameter {parameter.name} is missing: {parameter.help}")
        if not given:
            values[parameter.name] = parameter.default
        elif parameter.kind is int:
            text = given[-1]
            number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else -1
            if not parameter.least <= number <= parameter.most:
                raise InputError(
                    f"the parameter {parameter.name} is {text[:40]!a}; give a whole number from {parameter.least:,} to {parameter.most:,}"
                )
            values[parameter.name] = number
        else:
            check_text(given)
            if parameter.repeated and len(given) > parameter.most:
                raise InputError(f"{len(given):,} times {parameter.name} were given; give {parameter.most:,} at most")
            values[parameter.name] = given if parameter.repeated else given[-1]
    if unknown := sorted(set(request.query_params) - {parameter.name for parameter in parameters}):
        raise InputError(f"there is no parameter {unknown[0][:60]!r} here; see /openapi.json")
    return values


def json_response(message: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a message as an answer."""
    try:
        content = msgspec.json.encode(message)
    except UnicodeEncodeError:  # a lone surrogate from a document that was indexed before
        content = json.dumps(msgspec.to_builtins(message)).encode()
    return Response(content, status, headers, "application/json")
