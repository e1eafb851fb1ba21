"""Our own interface: search, answers by stages, certificates, documents and their neighbours."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from pytrace import results
from pytrace.errors import InputError, StoreError
from pytrace.models.request_context import RequestContext
from pytrace.serve import messages
from pytrace.serve.guard import DEADLINE, ON_DISK, TELL
from pytrace.serve.routes import Parameter, RouteRow, json_response, read_body, read_parameters
from pytrace.serve.service import Service
from pytrace.serve.stored_documents import safe_name

_Value = TypeVar("_Value")

# Seconds after which a stream says that it is still there: proxies close what is silent.
_KEEP_ALIVE = 10.0
# Documents are encoded: a second for some twenty passages.
_CHANGE_SECONDS = 3600.0

_OFFSET = Parameter("offset", int, "How many documents to pass over.", 0, most=1_000_000_000)
_LIMIT = Parameter("limit", int, "How many to give, at most.", 100, least=1, most=1000)
_FILTER = Parameter("query", str, "Only documents whose title, id or source has this.", "")
_ID = Parameter("id", str, "The id of a document, or of a passage of it.")
_PAGE = Parameter("page", int, "Which page, from 1.", least=1, most=100_000)
_IDS = Parameter("id", str, "The id of a document; may be repeated.", repeated=True, most=1000)
_PASSAGE = Parameter("passage", str, "The id of a passage, or of a document for its first one.")
_NEIGHBOURS = Parameter("limit", int, "How many to give, at most.", 20, least=1, most=200)
_FILENAME = Parameter("filename", str, "Of a file that is sent as it is: its name, whose suffix tells the format.", "")


async def wait_for(future: Future[_Value]) -> _Value:
    """Wait for a future; if this is cancelled, so is that, where it has not begun."""
    return await asyncio.wrap_future(future)


async def in_turn(futures: Iterator[Future[_Value]]) -> list[_Value]:
    """Wait for futures that begin as they are asked for, two at a time: one is done while the next one waits."""
    values: list[_Value] = []
    waiting: deque[asyncio.Future[_Value]] = deque()
    try:
        for future in futures:
            waiting.append(asyncio.wrap_future(future))
            if len(waiting) > 1:
                values.append(await waiting.popleft())
        while waiting:
            values.append(await waiting.popleft())
    finally:
        for left in waiting:
            left.cancel()
    return values


async def search(service: Service, request: Request) -> Response:
    """Search for a question."""
    body = await read_body(request, messages.SearchRequest)
    request.scope["pytrace.text"] = body.question
    return json_response(await result_of(service, messages.request_of(body)))


async def ask(service: Service, request: Request) -> Response:
    """Answer a question, whole or as a stream of results so far."""
    body = await read_body(request, messages.AskRequest)
    request.scope["pytrace.text"] = body.question
    asked = messages.request_of(body)
    if not (body.stream or "text/event-stream" in request.headers.get("accept", "")):
        return json_response(await result_of(service, asked))
    stages = Stages(service, asked, request.scope[TELL])
    return StreamingResponse(stages.events(), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def result_of(service: Service, asked: results.Request) -> results.Result:
    """Have a request answered; cancelling this ends the work in the models, too."""
    context = RequestContext()
    future = service.run(asked, context)
    return await cancelling(wait_for(future), context, future)


async def cancelling(waiting: Awaitable[_Value], context: RequestContext, future: Future[Any]) -> _Value:
    """Wait for a request, which is cancelled if this is."""
    try:
        return await waiting
    except BaseException:
        context.cancel()
        future.cancel()
        raise


class Stages:
    """The stages of an answer as they come. Making this asks, so that errors of the request itself come before any stage.

    `tell` says to the client what an error is.
    """

    def __init__(
        self, service: Service, asked: results.Request, tell: Callable[[Exception], messages.ErrorDetail]
    ) -> None:
        self._context = RequestContext()
        self.tell = tell
        self._queue: asyncio.Queue[tuple[str, results.Result]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(stage: str, result: results.Result) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, (stage, result))

        self._future = service.run(asked, self._context, emit)
        self._answer = asyncio.wrap_future(self._future)

    async def each(self) -> AsyncIterator[tuple[str, results.Result] | None]:
        """Iterate over stages, each with the result so far; None says that nothing has come for a while."""
        taking: asyncio.Future[tuple[str, results.Result]] | None = None
        try:
            while True:
                taking = asyncio.ensure_future(self._queue.get())
                both: set[asyncio.Future[Any]] = {taking, self._answer}
                done, _ = await asyncio.wait(both, timeout=_KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
                if taking in done:
                    yield taking.result()
                    continue
                taking.cancel()
                if self._answer in done:
                    while not self._queue.empty():
                        yield self._queue.get_nowait()
                    self._answer.result()
                    return
                yield None
        finally:
            if taking is not None:
                taking.cancel()
            # If the client left, no code awaits the future, and asyncio would log its exception.
            self._answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            if not self._answer.done():
                self._context.cancel()
                self._future.cancel()

    async def events(self) -> AsyncIterator[bytes]:
        """Iterate over the stages as server-sent events; an error is the last one."""
        try:
            async for stage in self.each():
                yield b": still there\n\n" if stage is None else event(*stage)
        except Exception as error:  # noqa: BLE001  # the client sees no text of other exceptions than pytrace's
            yield event("error", self.tell(error))


def event(name: str, message: Any) -> bytes:
    """Return a server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json_response(message).body)


async def certify(service: Service, request: Request) -> Response:
    """Certify responses."""
    body = await read_body(request, messages.CertifyRequest)
    context = RequestContext()
    future = service.certify(body, context)
    certificates = await cancelling(wait_for(future), context, future)
    return json_response(messages.CertifyResponse(certificates=certificates))


async def info(service: Service, request: Request) -> Response:
    """Say what the service has."""
    del request
    return json_response(await asyncio.to_thread(service.info))


async def list_documents(service: Service, request: Request) -> Response:
    """List documents."""
    given = read_parameters(request, (_OFFSET, _LIMIT, _FILTER))
    return json_response(
        await wait_for(service.library.list_documents(given["offset"], given["limit"], given["query"]))
    )


async def add_documents(service: Service, request: Request) -> Response:
    """Add documents: rows as JSON, or a file as it is."""
    service.library.check_writable()
    given = read_parameters(request, (_FILENAME,))
    request.scope[DEADLINE] += _CHANGE_SECONDS
    if not given["filename"]:
        rows = await read_body(request, messages.AddRequest)
        return json_response(await wait_for(service.library.add_rows(rows.documents)))
    name = safe_name(given["filename"])
    request.scope[ON_DISK] = True
    with ExitStack() as stack:
        folder = stack.enter_context(service.library.stored.staging())
        await _receive(request, folder / name)
        # From here on the folder is its reader's, who goes on where the client leaves.
        future = service.library.add_file(folder, name, stack.pop_all())
    return json_response(await wait_for(future))


async def _receive(request: Request, path: Path) -> None:
    """Write a body to a file as it comes."""
    size = 0
    try:
        with path.open("xb") as stream:
            async for piece in request.stream():
                size += len(piece)
                await asyncio.to_thread(stream.write, piece)
    except ClientDisconnect:
        raise InputError("the client left before the file was whole") from None
    except OSError as error:
        raise StoreError(f"the file cannot be kept ({error.strerror}); make room or correct permissions") from None
    if not size:
        raise InputError("the body is empty; send the file's content")


async def remove_documents(service: Service, request: Request) -> Response:
    """Remove documents."""
    given = read_parameters(request, (_IDS,))
    request.scope[DEADLINE] += _CHANGE_SECONDS
    return json_response(await wait_for(service.library.remove(given["id"])))


async def read_document(service: Service, request: Request) -> Response:
    """Give a document to be read."""
    given = read_parameters(request, (_ID,))
    return json_response(await wait_for(service.library.document(given["id"])))


async def read_page(service: Service, request: Request) -> Response:
    """Give a page of a document as a picture."""
    given = read_parameters(request, (_ID, _PAGE))
    picture = await wait_for(service.library.page(given["id"], given["page"]))
    return Response(picture, media_type="image/png", headers={"cache-control": "private, max-age=600"})


async def neighbours(service: Service, request: Request) -> Response:
    """Give the passages that one is linked with."""
    given = read_parameters(request, (_PASSAGE, _NEIGHBOURS))
    return json_response(await wait_for(service.library.neighbours(given["passage"], given["limit"])))


_QUESTION = "Who founded the company that owns the Marigold Tern?"

ROWS = (
    RouteRow(
        "POST", "/v1/search", "Find evidence across hops, without a language model.", search, "search",
        messages.SearchRequest, results.Result, example={"question": _QUESTION, "chains": 2, "passages": 5},
    ),
    RouteRow(
        "POST", "/v1/ask", "Answer a question, with the chain of sentences that leads to the answer.", ask, "search",
        messages.AskRequest, results.Result, example={"question": _QUESTION}, streams=True,
    ),
    RouteRow(
        "GET", "/v1/neighbours", "Give the passages that one is linked with, by the names that they share.", neighbours,
        "search", answer=messages.NeighboursResponse, parameters=(_PASSAGE, _NEIGHBOURS),
    ),
    RouteRow(
        "POST", "/v1/certify", "Check chains of thought against triples, step by step.", certify, "certify",
        messages.CertifyRequest, messages.CertifyResponse,
        example={
            "responses": [
                {
                    "question": "In which country is Ada Foah?",
                    "text": "1. Ada Foah is in the country Ghana. So the answer is (Ghana).",
                    "answers": ["Ghana"],
                }
            ],
            "facts": [["Ada Foah", "country", "Ghana"]],
        },
    ),
    RouteRow(
        "GET", "/v1/documents", "List the documents.", list_documents, "documents", answer=messages.DocumentsResponse,
        parameters=(_OFFSET, _LIMIT, _FILTER),
    ),
    RouteRow(
        "POST", "/v1/documents", "Add documents, or replace those with the same ids; they can be searched when this answers.",
        add_documents, "documents", messages.AddRequest, messages.ChangeResponse, (_FILENAME,),
        example={
            "documents": [
                {"id": "ada-foah", "title": "Ada Foah", "text": "Ada Foah is a town in Ghana. It lies on the Volta."}
            ]
        },
        raw="A file of any format that `formats` of /v1/info names, where `filename` is given.",
    ),
    RouteRow(
        "DELETE", "/v1/documents", "Remove documents; nothing of their text stays.", remove_documents, "documents",
        answer=messages.ChangeResponse, parameters=(_IDS,),
    ),
    RouteRow(
        "GET", "/v1/documents/text", "Give a document to be read: its passages in order.", read_document, "documents",
        answer=messages.DocumentResponse, parameters=(_ID,),
    ),
    RouteRow(
        "GET", "/v1/documents/page", "Give a page of a PDF document as a picture.", read_page, "documents",
        answer="image/png", parameters=(_ID, _PAGE),
    ),
    RouteRow("GET", "/v1/info", "Say what the service has.", info, "service", answer=messages.InfoResponse),
)  # fmt: skip
"""The routes of our own interface."""
