"""The service as replicas on Ray Serve: on this machine, or on all machines of a Ray cluster.

Each replica is a process with models of its own that opens the index anew, so all machines must see the index at the same path.
Ray's proxies take connections and give each request to the less busy of two replicas; within a replica, requests share batches as
ever.

What is consistent: a change is whole or not there, and whoever is told that it is done finds it in the index. One replica at a time
writes (the index has a lock; the others wait for it). The replica that wrote searches the change at once, the others within about a
second, so a search that follows a change may still be answered without it. What a replica counts is its own: metrics, the questions
that it answers at once, and the pace of clients, whose limit is divided among the replicas.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytrace.engine.loading import Engine
from pytrace.engine.running import DEFAULT_METHOD
from pytrace.errors import InputError, MissingDependencyError, WorkerError
from pytrace.evaluation.run.ray_cluster import import_ray, ray_cluster
from pytrace.processes import check_count
from pytrace.results import Request
from pytrace.serve.app import make_app
from pytrace.serve.failures import BusyError
from pytrace.serve.service import Service
from pytrace.serve.settings import ServeSettings
from pytrace.serve.telemetry import make_log

APP = "pytrace"
"""The application's name within Ray Serve."""
REPLICA_HEADER = b"x-replica"
"""In every answer: the id of the replica that gave it."""

# Seconds between two checks of a replica, and that a check may take: it searches, which a loaded replica does late.
_CHECKED_EVERY, _CHECK_SECONDS = 2.0, 30.0
# Seconds beyond the others' that a change of the index may take, as the routes have it.
_CHANGE_SECONDS = 3600.0
# Seconds between two looks whether requests are still under way in a replica that is to end.
_LOOK = 0.2
# Of what Ray says of a replica that could not start, the sentence that pytrace raised.
_RAISED = re.compile(r"^pytrace\.errors\.\w+: (.+)$", re.MULTILINE)
# Of the folder of the pipe that takes the log.
_PREFIX = "pytrace-log-"


@dataclass(frozen=True)
class ReplicaPlan:
    """What each replica serves, as it is sent to its process."""

    engine: Engine
    index: Path
    settings: ServeSettings
    facts: Path | None = None
    method: str = DEFAULT_METHOD
    # Where relative paths of models start, and a pipe that takes the log (None: stderr, which Ray keeps in a file).
    folder: Path = Path()
    log: Path | None = None

    def open(self) -> Service:
        """Load what the method needs, so that requests find a replica warm."""
        from pytrace import _core

        if self.folder.is_dir():
            os.chdir(self.folder)
        if self.engine.threads:
            _core.set_num_threads(self.engine.threads)
        service = Service(replace(self.engine), self.index, self.settings, facts=self.facts, method=self.method)
        try:
            service.warm()
        except BaseException:
            service.close()
            raise
        return service


class Replica:
    """The service in a process of Ray's; `ray.serve.ingress` makes it a deployment."""

    def __init__(self, plan: ReplicaPlan) -> None:
        self._plan = plan
        self._service = plan.open()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application, whose lifespan closes the service; Ray calls this when the constructor is through."""
        from ray import serve

        settings = self._plan.settings
        stream = None if self._plan.log is None else self._plan.log.open("w", encoding="utf-8")
        app = make_app(self._service, log=make_log(texts=settings.log_texts, stream=stream))
        return _signed(app, serve.get_replica_context().replica_id.unique_id.encode())

    async def check_health(self) -> None:
        """Raise where the service does not search any more; Ray then ends the process and starts another one."""
        with suppress(BusyError):
            found = self._service.run(Request(question="What is there?", task="search", chains=1, passages=1))
            # Not `wait_for`, which may swallow a cancellation before Python 3.12.
            async with asyncio.timeout(_CHECK_SECONDS):
                await asyncio.wrap_future(found)


def _signed(app: ASGIApp, name: bytes) -> ASGIApp:
    """Return an application as Ray's proxy needs it: answers say who gave them, and that has put the id of the request in already."""

    async def signed(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_on() -> Message:
            try:
                return await receive()
            except Exception:  # noqa: BLE001 - Ray's, where the client or the proxy has gone
                return {"type": "http.disconnect"}

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [each for each in message["headers"] if each[0] != b"x-request-id"]
                message = {**message, "headers": [*kept, (REPLICA_HEADER, name)]}
            await send(message)

        await app(scope, receive_on, send_on)

    return signed


def run_replicas(
    plan: ReplicaPlan, replicas: int, *, address: str | None = None, started: Callable[[], Any] = lambda: None
) -> None:
    """Serve with replicas until a signal comes, then finish what is under way and end all that was started.

    Parameters
    ----------
    plan
        What is served. Its engine must not have loaded any model.
    replicas
        How many processes answer.
    address
        A Ray cluster, such as ``auto``; None: one on this machine, for this call.
    started
        Is called when all replicas take requests in.

    Raises
    ------
    InputError, MissingDependencyError
        There is no Ray there, it has too few processors, or Ray Serve runs there already; Ray Serve is not installed.
    WorkerError
        The replicas cannot start, or Ray cannot go on.
    """
    ray = import_ray()
    try:
        from ray import serve
    except ImportError as error:
        raise MissingDependencyError(
            f"the engine ray needs Ray Serve ({error}); pip install 'pytrace-rag[serve-ray]'"
        ) from error
    # Of its own accord it says on stderr what it starts.
    logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
    if address is None:
        check_count(replicas)
    here = len(os.sched_getaffinity(0))
    threads = plan.engine.threads or max(1, here // replicas)
    with ExitStack() as stack:
        ending = stack.enter_context(_until_signal())
        stack.enter_context(ray_cluster(replicas * threads, address))
        if address is None:
            plan = replace(plan, log=stack.enter_context(_log_pipe()))
        resources = ray.cluster_resources()
        if resources.get("CPU", 0) < replicas * threads:
            raise InputError(
                f"Ray has {int(resources.get('CPU', 0))} processors, and {replicas} replicas of {threads} threads need "
                f"{replicas * threads}; ask for fewer"
            )
        gpus = float(resources.get("GPU", 0)) if plan.engine.device == "cuda" else 0.0
        settings = plan.settings
        # Every replica counts for itself, and gets an equal share of a client's requests.
        shared = replace(settings, rate=-(-settings.rate // replicas))
        plan = replace(plan, engine=replace(plan.engine, threads=threads), settings=shared)
        deployment = serve.deployment(
            name="replica",
            num_replicas=replicas,
            # What waits in a replica is what it makes batches of; its own limits tell clients to come again.
            max_ongoing_requests=settings.connections,
            max_queued_requests=settings.connections,
            ray_actor_options={"num_cpus": threads, "num_gpus": min(1.0, gpus / replicas)},
            health_check_period_s=_CHECKED_EVERY,
            health_check_timeout_s=_CHECK_SECONDS + _CHECKED_EVERY,
            graceful_shutdown_timeout_s=settings.grace,
            graceful_shutdown_wait_loop_s=_LOOK,
            max_constructor_retry_count=max(2, replicas),
        )(serve.ingress()(Replica))
        try:
            _start(serve, settings, address)
            stack.callback(_end, serve, settings.grace)
            serve.run(deployment.bind(plan), name=APP, route_prefix="/", logging_config={"enable_access_log": False})
        except RuntimeError as error:
            raise WorkerError(f"the replicas cannot start: {_failure(serve) or _reason(str(error))}") from error
        except ray.exceptions.RayError as error:
            raise WorkerError(f"Ray cannot go on ({type(error).__name__}: {_reason(str(error))})") from error
        started()
        while not ending:
            time.sleep(1.0)  # which a signal ends


def _start(serve: Any, settings: ServeSettings, address: str | None) -> None:
    """Start Ray Serve, whose proxies listen at the service's address on each machine that has a replica, or on this one alone."""
    status = serve.status()
    if status.proxies or status.applications:
        raise InputError(
            f"Ray Serve runs at {address} already, with an address of its own; end it there ('serve shutdown'), or name another "
            "cluster"
        )
    from ray.serve.config import HTTPOptions, ProxyLocation

    serve.start(
        proxy_location=ProxyLocation.HeadOnly if settings.loopback else ProxyLocation.EveryNode,
        http_options=HTTPOptions(
            host=settings.host,
            port=settings.port,
            keep_alive_timeout_s=int(settings.patience),
            # Replicas keep the time of their requests; this is for those that no replica takes.
            request_timeout_s=settings.timeout + _CHANGE_SECONDS,
        ),
        logging_config={"enable_access_log": False},
    )


def _end(serve: Any, grace: float) -> None:
    """Let replicas finish what is under way, end them, and end Ray Serve."""
    with suppress(Exception):  # nothing more can be done where Ray itself is gone
        serve.delete(APP, _blocking=False)
        end = time.monotonic() + grace + 5.0
        while APP in serve.status().applications and time.monotonic() < end:
            time.sleep(_LOOK)
        serve.shutdown()


def _failure(serve: Any) -> str:
    """Return what Ray Serve says of replicas that did not start."""
    application = serve.status().applications.get(APP)
    deployments = application.deployments.values() if application is not None else ()
    return " ".join(_reason(each.message) for each in deployments if each.message)


def _reason(text: str) -> str:
    """Return what pytrace said in a replica, or the last line of what Ray says."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).strip()
    raised = _RAISED.findall(text)
    return str(raised[-1] if raised else text.splitlines()[-1] if text else "no message")


class _EndError(BaseException):
    """A signal asks this process to end."""


@contextmanager
def _until_signal() -> Iterator[list[int]]:
    """Leave the block at SIGTERM or SIGINT, whose number is in the list then; a second one ends the process at once."""
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        received.append(number)
        raise _EndError

    # Whatever is under way may take longer than the half second that other commands have.
    wakeup = signal.set_wakeup_fd(-1)
    before = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    except _EndError:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)


@contextmanager
def _log_pipe() -> Iterator[Path]:
    """Give a pipe whose lines go to stderr of this process: Ray keeps what its processes say to itself."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/log"):
        try:
            os.close(os.open(left, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads it: its process was killed
                shutil.rmtree(left.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        begun = Path(folder) / "begun"
        os.mkfifo(begun, 0o600)
        reading = os.open(begun, os.O_RDONLY | os.O_NONBLOCK)
        path = begun.rename(begun.with_name("log"))  # others see it with its reader, or not at all
        writing = os.open(path, os.O_WRONLY)  # so that there is no end while no replica has it
        os.set_blocking(reading, True)

        def copy() -> None:
            with os.fdopen(reading, "rb") as lines:
                for line in lines:
                    with suppress(OSError, ValueError):  # where nobody reads stderr, replicas must not wait for it
                        sys.stderr.buffer.write(line)
                        sys.stderr.buffer.flush()

        copying = threading.Thread(target=copy, name="log of the replicas", daemon=True)
        copying.start()
        try:
            yield path
        finally:
            os.close(writing)
            copying.join(1.0)
