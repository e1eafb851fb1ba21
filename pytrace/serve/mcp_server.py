"""The service's tools for assistants, by the Model Context Protocol: over HTTP beside the rest, or over standard input and output."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from typing import Annotated, Any

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, TextContent
from pydantic import Field
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pytrace import __version__
from pytrace.engine.running import NOT_FOUND
from pytrace.errors import PytraceError
from pytrace.results import Result, Source, confidence_words
from pytrace.serve import messages
from pytrace.serve.failures import NotFoundError
from pytrace.serve.guard import DEADLINE, ROUTE
from pytrace.serve.own_api import result_of, wait_for
from pytrace.serve.service import Service

_PATH = "/mcp"
_INSTRUCTIONS = (
    "Evidence from an index of the user's own documents. search_evidence finds the passages that together answer a question, with "
    "the sentence that leads from one to the next; quote these with their locations. ask also extracts an answer on this "
    "machine and gives its confidence; check it against the sources. neighbours follows the names in a passage to other passages."
)
# Characters of a passage that is not quoted whole.
_EXCERPT = 300
# Bytes of a message: facts and a response to certify are the longest.
_MOST_BODY = 4 << 20
# Seconds that a stream of the protocol may stay open.
_OPEN = 3600.0

_QUESTION = Annotated[str, Field(description="A question in plain words.", min_length=1, max_length=8192)]
_WHERE = Annotated[
    list[str] | None,
    Field(description="Only documents that say so of themselves, such as 'date>=2020'.", max_length=16),
]

# A tool's text, and a `pytrace.results.Result` as its structured content.
_Result = Annotated[CallToolResult, dict[str, Any]]


def make_server(service: Service) -> MCPServer[Any]:
    """Return the tools and resources of a service."""
    server: MCPServer[Any] = MCPServer("pytrace", version=__version__, instructions=_INSTRUCTIONS)

    async def search_evidence(
        question: _QUESTION,
        chains: Annotated[int, Field(ge=1, le=20)] = 3,
        passages: Annotated[int, Field(ge=1, le=100)] = 5,
        where: _WHERE = None,
    ) -> _Result:
        """Find the passages that answer a question, alone or linked in chains, without a language model.

        The steps of a chain are in the order of the hops. Each has its location and the sentence that leads on or answers.
        """
        body = _checked(messages.SearchRequest, question=question, chains=chains, passages=passages, where=where or ())
        result = await result_of(service, messages.request_of(body))
        return _given(result, _search_text(result))

    async def ask(
        question: _QUESTION,
        method: Annotated[
            str,
            Field(
                description="hops (the default, unless the service has another), trace, rag, ks-llm, scope-coe, cot and others.",
                max_length=500,
            ),
        ] = "",
        where: _WHERE = None,
        min_confidence: Annotated[
            float | None,
            Field(description="Confidence below which no answer is given. The default was measured.", ge=0, le=1),
        ] = None,
    ) -> _Result:
        """Answer a question from the documents, with its confidence and the sentences that lead to the answer."""
        body = _checked(
            messages.AskRequest, question=question, method=method, where=where or (), min_confidence=min_confidence
        )
        result = await result_of(service, messages.request_of(body))
        return _given(result, _answer_text(result))

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


def _told(tool: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a tool that reports pytrace's errors to the assistant."""

    @wraps(tool)
    async def call(*args: Any, **given: Any) -> Any:
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


# ---- results as text


def _given(result: Result, text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=_plain(result))


def _answer_text(result: Result) -> str:
    """Return an answer with its confidence and numbered sources, or the closest passages if there is none."""
    if not result.answer:
        closest = [_source_text(source, source.text[:_EXCERPT]) for source in result.evidence.sources]
        return _listed(f"{result.reason or NOT_FOUND}{' Closest passages:' if closest else ''}", closest)
    notes = [f"Note: {note}" for note in result.notes]
    head = "\n".join([f"Answer: {result.answer}", f"Confidence: {confidence_words(result)}", *notes])
    return _listed(head, _chain_texts(result))


def _search_text(result: Result) -> str:
    """Return the sentences of the likeliest chain, and the passages."""
    chain = _listed("Likeliest chain:", _chain_texts(result))
    passages = [_source_text(source, source.text) for source in result.evidence.sources]
    return f"{chain}\n\n{_listed('Passages:', passages)}" if passages else "No passage found."


def _chain_texts(result: Result) -> list[str]:
    """Return the sources of the first chain, each with its sentence; all sources if there is no chain."""
    evidence = result.evidence
    if not evidence.chains:
        return [_source_text(source, source.text[:_EXCERPT]) for source in evidence.sources]
    steps = evidence.chains[0].steps
    return [
        _source_text(evidence.sources[step.source] if step.source >= 0 else None, step.sentence, step.location)
        for step in steps
    ]


def _source_text(source: Source | None, text: str, location: str = "") -> str:
    title, location = ("", location) if source is None else (source.title, location or source.location)
    return f"{title or 'Untitled'}{f' ({location})' if location else ''}\n   {text}"


def _listed(head: str, entries: Sequence[str]) -> str:
    """Return a head and numbered entries."""
    return "\n".join([head, *(f"{number}. {entry}" for number, entry in enumerate(entries, 1))])
