"""The service as an ASGI application: its routes behind its guard."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import resources
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from pytrace.serve import others_api, own_api
from pytrace.serve.guard import ROUTE, Guard
from pytrace.serve.openapi import openapi
from pytrace.serve.routes import RouteRow, json_response, make_routes
from pytrace.serve.service import Service
from pytrace.serve.telemetry import make_log

_EXPLORER = "explorer"
# A page that is being worked on must not be an old one.
_FRESH = {"cache-control": "no-cache"}


async def health(service: Service, request: Request) -> Response:
    """Say that the process answers."""
    del service, request
    return json_response({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """Say whether questions are taken in."""
    del request
    if service.ready:
        return json_response({"status": "ready"})
    return json_response({"status": "not ready"}, status=503, headers={"retry-after": "1"})


async def metrics(service: Service, request: Request) -> Response:
    """Give metrics in Prometheus's text format."""
    del request
    await asyncio.to_thread(service.refresh_metrics)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


SERVICE_ROWS = (
    RouteRow("GET", "/health", "Say that the process answers.", health, "service"),
    RouteRow(
        "GET", "/ready", "Say whether questions are taken in (200), or not yet or no more (503).", ready, "service"
    ),
    RouteRow("GET", "/metrics", "Give metrics in Prometheus's text format.", metrics, "service", answer="text/plain"),
)
ROWS = (*own_api.ROWS, *others_api.ROWS, *SERVICE_ROWS)
"""All routes that the OpenAPI document names."""


def make_app(service: Service, *, log: logging.Logger | None = None, tools: bool = True) -> Guard:
    """Return a service as an ASGI application.

    Parameters
    ----------
    service
        What is served; it is closed when the application's lifespan ends.
    log
        Where a line a request goes; stderr if not given.
    tools
        Whether the Model Context Protocol is served at ``/mcp``.

    Returns
    -------
    Guard
        The application, which any ASGI server runs.
    """
    settings = service.settings
    document = json_response(openapi(ROWS, with_key=bool(settings.keys))).body

    async def schema(request: Request) -> Response:
        request.scope[ROUTE] = "/openapi.json"
        return Response(document, media_type="application/json")

    routes: list[Any] = make_routes(ROWS, service)
    routes += [
        Route("/openapi.json", schema),
        Route("/", _page("index.html", "/")),
        Route("/favicon.ico", _page("favicon.svg", "/favicon.ico")),
        Route("/explorer/{name:path}", _explorer),
    ]
    log = log or make_log(texts=settings.log_texts)
    service.on_trouble = lambda what, error: log.warning(what, extra={"fields": {"error": str(error)}})
    stack = AsyncExitStack()
    starts = []
    if tools:
        from pytrace.serve.mcp_server import mounted

        route, start = mounted(service, stack)
        routes.append(route)
        starts.append(start)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with stack:
            for start in starts:
                await start()
            warming = asyncio.create_task(asyncio.to_thread(service.warm))
            try:
                yield
            finally:
                warming.cancel()
                await asyncio.to_thread(service.close)

    return Guard(
        Router(routes, redirect_slashes=False, lifespan=lifespan),
        settings,
        service.metrics,
        log,
        stopping=lambda: service.stopping,
    )


def _page(name: str, route: str) -> Callable[[Request], Awaitable[Response]]:
    async def give(request: Request) -> Response:
        request.scope[ROUTE] = route
        return _file(name)

    return give


async def _explorer(request: Request) -> Response:
    request.scope[ROUTE] = "/explorer"
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    """Return a file of the explorer; what is no plain name of one is not there."""
    folder = resources.files(__package__) / _EXPLORER
    parts = name.split("/")
    if (
        not all(part and part.strip(".") and "\\" not in part and "\x00" not in part for part in parts)
        or len(parts) > 2
    ):
        raise HTTPException(404)
    try:
        content = folder.joinpath(*parts).read_bytes()
    except OSError:
        raise HTTPException(404) from None
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, media_type=f"{kind}; charset=utf-8" if kind.startswith("text/") else kind, headers=_FRESH)
