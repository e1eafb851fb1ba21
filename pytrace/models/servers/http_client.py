"""Requests to one language model server: many at once, retried with care, and to no other host.

A thread of its own runs the connections, so that a caller waits for plain results, may stop waiting at any moment (Ctrl-C, or
the request that it works for is cancelled), and hears of each result in its own thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import math
import os
import queue
import random
import ssl
import threading
import urllib.request
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit

from pytrace.errors import InputError, MissingDependencyError, PytraceError, ServerError, ServerTimeoutError
from pytrace.models.request_context import current_request
from pytrace.models.servers.http_messages import decoded, encoded, events, excerpt, retry_after

T = TypeVar("T")

# What a server says when it is busy or just starting; anything else would be refused again.
RETRIED = frozenset({429, 502, 503, 504})
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_RETRY_AFTER = 0.5, 30.0, 120.0
_JSON = {"content-type": "application/json"}
# The largest answer that is asked for lists a whole vocabulary: some 20 MB.
LARGEST_ANSWER = 256 * 2**20
# Seconds for one answer, with all tries and pauses: a long text on a slow server takes minutes.
TIMEOUT = 600.0
# What stands for a key in a message; keys shorter than this are words such as "EMPTY", and no secrets.
_HIDDEN, _SHORTEST_KEY = "[API key]", 6


class HttpClient:
    """JSON requests to one server."""

    def __init__(
        self,
        url: str,
        *,
        api_key_env: str = "",
        concurrency: int = 8,
        connect_timeout: float = 10.0,
        timeout: float = TIMEOUT,
        attempts: int = 5,
        user_agent: str = "pytrace",
        kind: str = "model server",
        largest_answer: int | None = None,
    ) -> None:
        self.parts = _checked(url)
        self.origin = f"{self.parts.scheme}://{self.parts.netloc}"
        self._base = self.origin + self.parts.path.rstrip("/").removesuffix("/v1")
        self._api_key_env = api_key_env
        self.concurrency = concurrency
        self._attempts = attempts
        self._timeout = timeout
        self._kind = kind
        self._remedy = (
            "--timeout, or ask for fewer requests at once (--concurrency)"
            if kind == "model server"
            else "--kb-timeout, or ask a server that is less busy"
        )
        self._largest_answer = LARGEST_ANSWER if largest_answer is None else largest_answer
        self._http = httpx = _library()
        headers = {"accept-encoding": "identity", "user-agent": user_agent}
        self._hide_key, self.without_key = _hiders("")
        if key := os.environ.get(api_key_env):
            key = _checked_key(key, api_key_env)
            self._hide_key, self.without_key = _hiders(key)
            headers["authorization"] = f"Bearer {key}"
            if self.parts.scheme == "http" and not _is_local(self.parts):
                warnings.warn(
                    f"the key in {api_key_env} goes to {self.origin} unencrypted, for all on the way to read; use https, "
                    "or an encrypted tunnel",
                    UserWarning,
                    stacklevel=3,
                )
        self._client = httpx.AsyncClient(
            headers=headers,
            # No .netrc, no proxy, no certificate that the environment names behind the caller's back; see _proxy.
            trust_env=False,
            proxy=_proxy(self.parts),
            verify=ssl.create_default_context() if self.parts.scheme == "https" else False,
            # Each byte would begin such a time-out anew; `_sent` limits the whole.
            timeout=httpx.Timeout(None, connect=connect_timeout),
            limits=httpx.Limits(
                max_connections=concurrency,
                max_keepalive_connections=concurrency,
                # Servers hang up after 5 s of silence, llama-server and uvicorn both.
                keepalive_expiry=4.0,
            ),
            follow_redirects=False,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pytrace-http", daemon=True)
        self._thread.start()
        self._close = weakref.finalize(self, _shut_down, self._client, self._loop, self._thread)
        self._slots = asyncio.Semaphore(concurrency)
        self.requests = 0

    def close(self) -> None:
        """Close all connections; any later call fails."""
        self._close()

    @contextlib.contextmanager
    def _running(self, work: Coroutine[Any, Any, T]) -> Iterator[concurrent.futures.Future[T]]:
        """Begin a piece of work in the connections' thread; what ends the block before it is done cancels it."""
        closed = f"the connection to {self.origin} was closed; open it anew"
        if not self._close.alive:
            work.close()
            raise ServerError(closed)
        request = current_request()
        if request is not None and request.cancelled:
            # Cancelled only once it runs, it might already have asked the server.
            work.close()
            request.check()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            with contextlib.nullcontext() if request is None else request.on_cancel(future.cancel):
                yield future
        except concurrent.futures.CancelledError as error:
            if request is not None:
                request.check()
            raise ServerError(closed) from error
        except PytraceError as error:
            self._hide_key(error)
            raise
        finally:
            future.cancel()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for one piece of work; what interrupts the waiting cancels the work."""
        with self._running(work) as future:
            return future.result()

    def each(self, work: Callable[[int], Awaitable[T]], count: int) -> Iterator[tuple[int, T]]:
        """Do `work(0)` to `work(count - 1)`, as many at once as requests may be, and yield each as soon as it is done."""
        # The first failure ends all; so does the caller who asks for no more.
        results: queue.SimpleQueue[tuple[int, T] | None] = queue.SimpleQueue()

        async def worker(indices: Iterator[int]) -> None:
            for index in indices:
                results.put((index, await work(index)))

        async def everything() -> None:
            indices = iter(range(count))
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self.concurrency, count)):
                        group.create_task(worker(indices))
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None

        with self._running(everything()) as future:
            future.add_done_callback(lambda _: results.put(None))
            while (result := results.get()) is not None:
                yield result
            future.result()

    async def get(self, path: str, *, patient: bool = True) -> Any:
        """Return what the server answers to GET, decoded, or None where it has nothing there (404, 405, 501)."""
        return await self._sent("GET", self._base + path, self._whole, missing=True, patient=patient)

    async def post(
        self, path: str, body: Mapping[str, Any], *, missing: bool = False, largest: int | None = None
    ) -> Any:
        """Return what the server answers to POST, decoded; None where it has nothing there, if `missing` is expected."""

        async def read(response: Any) -> Any:
            return await self._whole(response, largest)

        return await self._sent("POST", self._base + path, read, encoded(body), missing=missing)

    async def post_form(self, fields: Mapping[str, str], *, accept: str, seconds: float) -> bytes:
        """Return what the server answers to a form that is sent to the very address that was given."""
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": accept}
        content = urlencode(fields, errors="replace").encode()
        url = self.origin + self.parts.path
        result: bytes = await self._sent("POST", url, self._data, content, headers, seconds=seconds)
        return result

    async def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[AsyncIterator[dict[str, Any]]], Awaitable[T]],
        *,
        largest: int | None = None,
    ) -> T:
        """POST and return what `read` makes of the answer's events; an `EOFError` of it counts as a broken connection."""
        where = self.origin + path
        result: T = await self._sent(
            "POST",
            self._base + path,
            lambda response: read(events(self._pieces(response, largest), where)),
            encoded(body),
        )
        return result

    async def _sent(
        self,
        method: str,
        url: str,
        read: Callable[[Any], Awaitable[Any]],
        content: bytes | None = None,
        headers: Mapping[str, str] = _JSON,
        *,
        missing: bool = False,
        patient: bool = True,
        seconds: float | None = None,
    ) -> Any:
        """Send a request until it is answered, and return what `read` makes of the answer; `seconds` limit one try."""
        clock = asyncio.get_running_loop().time
        seconds = seconds or self._timeout
        longest_wait = left = max(seconds, self._timeout)
        for attempt in range(1, self._attempts + 1):
            pause: float | None = None
            response = None
            try:
                async with self._slots:
                    began = clock()
                    try:
                        async with (
                            asyncio.timeout(min(left, seconds)),
                            self._client.stream(
                                method, url, content=content, headers=headers if content else None
                            ) as response,
                        ):
                            self.requests += 1
                            if response.status_code == 200:
                                return await read(response)
                            if missing and response.status_code in {404, 405, 501}:
                                return None
                            failure = await self._refusal(method, url, response)
                            if response.status_code not in RETRIED:
                                raise failure
                            pause = retry_after(response.headers.get("retry-after"))
                    finally:
                        left -= clock() - began
            except TimeoutError as error:
                received = "nothing" if response is None else f"{response.num_bytes_downloaded:,} bytes of its body"
                raise ServerTimeoutError(
                    f"{method} {url}: no whole answer within {seconds:g} s, but {received}; raise {self._remedy}"
                ) from error
            except (self._http.ConnectError, self._http.ConnectTimeout) as error:
                failure = ServerError(
                    f"no server answers at {self.origin} ({_reason(error)}); start it, or check the address"
                )
                if not patient:
                    raise failure from error
            except (self._http.TransportError, EOFError) as error:
                failure = ServerError(
                    f"{method} {url}: the connection broke ({_reason(error)}); look at the server's log"
                )
            if attempt == self._attempts:
                raise ServerError(f"{failure}; tried {attempt} times") if attempt > 1 else failure
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))
            # Half of the pause is drawn, so that requests refused together do not come back together.
            drawn = longest * (0.5 + 0.5 * random.random())
            wait = max(drawn, pause or 0.0)
            if wait > min(left, LONGEST_RETRY_AFTER if pause else math.inf):
                asked = f"it asks to wait {pause:g} s" if pause else f"tried {attempt} times"
                most = min(longest_wait, LONGEST_RETRY_AFTER) if pause else longest_wait
                raise ServerError(f"{failure}; {asked}, and no more than {most:g} s are waited for")
            await asyncio.sleep(wait)
            left -= wait
        raise AssertionError

    async def _pieces(self, response: Any, largest: int | None = None) -> AsyncIterator[bytes]:
        """Yield an answer's bytes, and refuse to go on where they are too many, or compressed, which none were asked to be."""
        largest = min(largest or self._largest_answer, self._largest_answer)
        if (coding := response.headers.get("content-encoding", "identity").strip().lower()) not in {"", "identity"}:
            raise ServerError(
                f"{self.origin}: an answer is compressed ({coding[:40]!a}), which was not asked for; is this a {self._kind}?"
            )
        size = 0
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > largest:
                raise ServerError(
                    f"{self.origin}{response.url.path}: an answer is longer than {largest:,} bytes, more than it can "
                    f"have; is this a {self._kind}?"
                )
            yield piece

    async def _whole(self, response: Any, largest: int | None = None) -> Any:
        return decoded(await self._data(response, largest), f"{self.origin}{response.url.path}", self._kind)

    async def _data(self, response: Any, largest: int | None = None) -> bytes:
        data = bytearray()  # a list would take fifty times as much of answers that come byte by byte
        async for piece in self._pieces(response, largest):
            data += piece
        return bytes(data)

    async def _refusal(self, method: str, url: str, response: Any) -> ServerError:
        """Return one sentence about an answer that is no success: status, a piece of the body, remedy."""
        status = response.status_code
        if 300 <= status < 400:
            target = "another path"
            with contextlib.suppress(ValueError):
                target = urlsplit(response.headers.get("location", "")).hostname or target
            message = (
                f"{method} {url}: the server redirects to {target[:80]}, which is not followed; give the address meant"
            )
            return ServerError(message, status=status)
        data = bytearray()
        with contextlib.suppress(self._http.TransportError):
            async for piece in response.aiter_raw():
                data += piece
                if len(data) > 65536:
                    break
        remedy = "look at the server's log"
        if status in {401, 403}:
            key = f"put its key into the environment variable {self._api_key_env}"
            remedy = key if self._api_key_env else "name a server that answers everybody"
        elif status in {404, 405}:
            remedy = "check the address" + (" and the model's name" if self._kind == "model server" else "")
        elif status in RETRIED:
            remedy = "wait until it is ready, or ask for fewer requests at once (concurrency)"
        message = f"{method} {url}: the server answers {status}: {excerpt(bytes(data))}; {remedy}"
        return ServerError(message, status=status)


def _library() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise MissingDependencyError(
            "httpx2 is not installed; install pytrace's extra for servers: pip install 'pytrace-rag[remote]'"
        ) from error
    return httpx2


def _shut_down(client: Any, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    async def end() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.aclose()

    if thread is threading.current_thread() or not thread.is_alive():
        return
    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(end(), loop).result(timeout=5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)
    if not thread.is_alive():
        loop.close()


def _checked(url: str) -> SplitResult:
    """Take an address apart."""
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        shown = url.rpartition("@")[2]  # what stands before may be a password
        raise InputError(f"{shown[:200]!r} is no server's address; write it as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.hostname}"
        raise InputError(
            f"the address of {shown} carries a name, a password or parameters; leave them out, and put a key into an "
            "environment variable, where no report or process list shows it"
        )
    return parts


def _checked_key(key: str, variable: str) -> str:
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            f"the environment variable {variable} holds no usable key: one word of printable ASCII is needed"
        )
    return key


def _hiders(key: str) -> tuple[Callable[[BaseException], None], Callable[[str], str]]:
    """Return what takes a key out of a message and of those that led to it, and out of a text: a server may repeat what it was sent."""

    # The key is in here, so that no attribute shows it.
    def hide(error: BaseException) -> None:
        # Its beginnings too, the longest first, for excerpts end anywhere.
        for length in range(len(key), _SHORTEST_KEY - 1, -1):
            each: BaseException | None = error
            while each is not None:
                said = (one.replace(key[:length], _HIDDEN) if isinstance(one, str) else one for one in each.args)
                each.args = tuple(said)
                each = each.__cause__ or each.__context__

    def text_without(text: str) -> str:
        # A key that is a word, such as "ollama", is no secret, and may be an answer.
        return text if len(key) < _SHORTEST_KEY or key.isalpha() else text.replace(key, _HIDDEN)

    return hide, text_without


def _is_local(parts: SplitResult) -> bool:
    """Whether an address is of this machine itself."""
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _proxy(parts: SplitResult) -> str | None:
    """Return the proxy that the environment names for a host; none for this machine itself."""
    if _is_local(parts) or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
