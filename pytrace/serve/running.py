"""The service as a process: one address, a graceful end, and a second signal that ends it at once."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from pytrace.errors import InputError
from pytrace.serve.app import make_app
from pytrace.serve.protocol import guarded_protocol
from pytrace.serve.service import Service
from pytrace.serve.settings import ServeSettings

# Bytes of a request's head; h11 refuses more.
_MOST_HEAD = 32 << 10


class _Server(uvicorn.Server):
    """Uvicorn's server, which leaves signals to the event loop."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], object]) -> None:
        super().__init__(config)
        self._stop = stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal: what is under way is finished, nothing more is taken in; a second one ends the process."""
        # The event loop's handlers also take the place of those that end a command within half a second.
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self._received, number)
        try:
            yield
        finally:
            for number in numbers:
                with suppress(ValueError, RuntimeError):
                    loop.remove_signal_handler(number)

    def _received(self, number: int) -> None:
        self._stop()
        if self.should_exit:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.should_exit = True


def bind(settings: ServeSettings) -> socket.socket:
    """Take the address of a service before anything is loaded; `InputError` where it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        # With its protocol named, asyncio sets TCP_NODELAY: without, a head waits 40 ms for its body on kept connections.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((settings.host, settings.port))
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        raise InputError(
            f"{settings.host}:{settings.port} cannot be served at ({error}); choose another --port or --host"
        ) from None
    listening.set_inheritable(True)
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the address at which a bound socket is asked."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(service: Service, listening: socket.socket, *, started: Callable[[], Any] = lambda: None) -> None:
    """Serve until a signal comes, then finish what is under way.

    Parameters
    ----------
    service
        What is served; it is closed at the end.
    listening
        Of `bind`.
    started
        Is called when requests are taken in.
    """
    settings = service.settings
    # Connections, and two indexes while one takes the other's place: what the system allows, for its habit is 1,024.
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    app = make_app(service)
    config = uvicorn.Config(
        app,
        http=guarded_protocol(patience=settings.patience, connections=settings.connections),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=int(settings.patience),
        timeout_graceful_shutdown=int(settings.grace),
        h11_max_incomplete_event_size=_MOST_HEAD,
        backlog=min(settings.connections, 1024),
    )
    server = _Server(config, service.stop)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        serving = loop.create_task(server.serve(sockets=[listening]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        if server.started:
            # What is there now stays: looking through it for garbage would hold up a request by some 70 ms now and then.
            gc.collect()
            gc.freeze()
            started()
        await serving

    asyncio.run(serve())
