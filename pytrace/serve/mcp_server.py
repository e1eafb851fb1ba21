"""The service's tools for assistants, by the Model Context Protocol: over HTTP beside the rest, or over standard input and output."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import wraps
from typing import Annotated, Any

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pytrace import __version__
from pytrace.errors import PytraceError
from pytrace.models.request_context import RequestContext
from pytrace.serve import found as says
from pytrace.serve import messages
from pytrace.serve.failures import NotFoundError
from pytrace.serve.guard import DEADLINE, ROUTE
from pytrace.serve.own_api import cancelling, wait_for
from pytrace.serve.service import Service

_PATH = "/mcp"
_INSTRUCTIONS = (
    "Evidence from an index of the user's own documents. search_evidence finds the passages that answer a question together, with "
    "the sentence that leads from one to the next; quote these and say where they stand. ask also reads an answer with a small "
    "local model, which you should check against the evidence. neighbours follows the names in a passage to others."
)
# Bytes of a message: facts and a response to certify are the longest.
_MOST_BODY = 4 << 20
# Seconds that a stream of the protocol may stay open.
_OPEN = 3600.0

_QUESTION = Annotated[str, Field(description="A question in plain words.", min_length=1, max_length=8192)]
_WHERE = Annotated[
    list[str] | None,
    Field(description="Only documents that say so of themselves, such as 'date>=2020'.", max_length=16),
]


def make_server(service: Service) -> MCPServer[Any]:
    """Return the tools and resources of a service."""
    server: MCPServer[Any] = MCPServer("pytrace", version=__version__, instructions=_INSTRUCTIONS)

    async def search_evidence(
        question: _QUESTION,
        chains: Annotated[int, Field(ge=1, le=20)] = 3,
        passages: Annotated[int, Field(ge=1, le=100)] = 5,
        where: _WHERE = None,
    ) -> dict[str, Any]:
        """Find the passages that answer a question, one alone or several that lead from one to the next; no language model is used.

        A chain's steps are in the order of the hops: each has the sentence that leads on or answers, and where it stands.
        """
        body = _checked(messages.SearchRequest, question=question, chains=chains, passages=passages, where=where or [])
        found = await wait_for(service.search(body))
        listed = says.chains(question, found, chains, passages)
        return {"read_as": found.ranking.question or question, **_plain(listed)}

    async def ask(
        question: _QUESTION,
        method: Annotated[
            str, Field(description="How: trace, trace-doc, rag, ks-llm, scope-coe, cot and others.", max_length=500)
        ] = "",
        where: _WHERE = None,
    ) -> dict[str, Any]:
        """Answer a question with the local language model, and give the evidence that it read."""
        body = _checked(
            messages.AskRequest, question=question, method=method or service.method.label, where=where or []
        )
        context = RequestContext()
        future = service.ask(body, lambda *_: None, context)
        answer = await cancelling(wait_for(future), context, future)
        evidence = _plain(answer.evidence)
        return {
            "answer": answer.answer,
            "probability": answer.probability,
            "places": [_plain(place) for place in answer.places],
            "method": answer.method,
            "notes": answer.notes,
            "evidence": evidence,
        }

    async def certify(
        question: _QUESTION,
        response: Annotated[
            str, Field(description="The chain of thought to check, a step a line.", max_length=200_000)
        ],
        facts: Annotated[
            list[tuple[str, str, str]] | None,
            Field(
                description="Triples (head, relation, tail) to check against; the service's graph if left out.",
                max_length=5000,
            ),
        ] = None,
    ) -> dict[str, Any]:
        """Check a chain of thought step by step against facts: which steps are supported, and whether they lead to the answer."""
        given = {"question": question, "text": response}
        body = _checked(messages.CertifyRequest, responses=[given], facts=facts)
        return _plain((await wait_for(service.certify(body)))[0])

    async def neighbours(
        passage: Annotated[str, Field(description="The id of a passage, as search_evidence gives it.", min_length=1)],
        limit: Annotated[int, Field(ge=1, le=200)] = 10,
    ) -> dict[str, Any]:
        """Give the passages that a passage is linked with, and the name that makes each link."""
        return _plain(await wait_for(service.library.neighbours(passage, limit)))

    async def list_documents(
        query: Annotated[
            str, Field(description="Only documents whose title, id or source has this.", max_length=500)
        ] = "",
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=1000)] = 50,
    ) -> dict[str, Any]:
        """List the documents of the index."""
        return _plain(await wait_for(service.library.list_documents(offset, limit, query)))

    for tool in (search_evidence, ask, certify, neighbours, list_documents):
        server.tool(description=inspect.getdoc(tool))(_told(tool))

    async def passage(id: str) -> str:
        """Give a document of the index, or one passage of it, as text."""
        try:
            document = await wait_for(service.library.document(id))
        except NotFoundError as error:
            raise ResourceNotFoundError(str(error)) from None
        wanted = [each for each in document.text if each.id == id] or document.text
        return "\n\n".join(f"{each.title} ({each.where})\n{' '.join(each.sentences)}" for each in wanted)

    server.resource(
        "passage://{+id}", name="passage", title="Passage", description=passage.__doc__, mime_type="text/plain"
    )(passage)
    return server


def mounted(service: Service, stack: AsyncExitStack) -> tuple[Route, Callable[[], Coroutine[Any, Any, Any]]]:
    """Return the route of the tools over HTTP, and what starts them; they are ended by the stack."""
    server = make_server(service)
    app = server.streamable_http_app(
        streamable_http_path=_PATH,
        stateless_http=True,  # replicas share no sessions
        json_response=True,
        max_request_body_size=min(service.settings.max_body, _MOST_BODY),
        # Who may ask is the guard's to say.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    inner = next(route.endpoint for route in app.routes if isinstance(route, Route) and route.path == _PATH)

    class Tools:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            scope[ROUTE] = _PATH
            scope[DEADLINE] += _OPEN
            await inner(scope, receive, send)

    async def start() -> None:
        await stack.enter_async_context(server.session_manager.run())

    return Route(_PATH, Tools(), methods=None), start


def serve_streams(service: Service) -> None:
    """Serve the tools over standard input and output, until the input ends."""
    asyncio.run(make_server(service).run_stdio_async())


def _told(
    tool: Callable[..., Coroutine[Any, Any, dict[str, Any]]],
) -> Callable[..., Coroutine[Any, Any, dict[str, Any]]]:
    """Return a tool that tells an assistant what was wrong, where it was written for somebody to read."""

    @wraps(tool)
    async def call(*args: Any, **given: Any) -> dict[str, Any]:
        try:
            return await tool(*args, **given)
        except PytraceError as error:
            raise ToolError(str(error)) from error

    return call


def _checked(kind: Any, **fields: Any) -> Any:
    """Make a request with the bounds that it has over HTTP."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ToolError(f"this cannot be used: {error}") from None


def _plain(message: Any) -> dict[str, Any]:
    plain: Mapping[str, Any] = msgspec.to_builtins(message)
    return dict(plain)
