"""``pytrace serve``: an index and models kept warm, for other programs and for people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytrace.cli import common
from pytrace.cli.commands import Command, option
from pytrace.cli.shared_options import MODELS
from pytrace.engine.loading import Engine
from pytrace.engine.running import DEFAULT_METHOD
from pytrace.errors import InputError, MissingDependencyError
from pytrace.storage.files import real_path

if TYPE_CHECKING:
    from pytrace.serve.service import Service
    from pytrace.serve.settings import ServeSettings

INDEX = option("An index that 'pytrace index build' made.", metavar="DIR")
FACTS = option("Graph for certify requests that have none, as for 'pytrace certify'.", metavar="KG")
METHOD = option("Method of questions that name none.", metavar="NAME[:SETTING=VALUE,…]", default=DEFAULT_METHOD)


class Serve(Command):
    """Serve an index over HTTP: search, answers, ranks and vectors through the APIs of known clients, and a page for people at /.

    Only this machine can connect, unless --host says otherwise. The environment variable PYTRACE_API_KEY must then hold the key that
    clients send, or several separated by commas. SIGTERM stops the service after the running requests.

    With --engine ray several processes serve the index, each with its own models, on one machine or a cluster. All machines must see the
    index at the same path. A process that dies loses only its own requests, and is replaced. The process that changes the index
    searches the change at once, the others within about a second.
    """

    index: Path = INDEX
    host: str = option("Address to listen on; 0.0.0.0 for all interfaces.", default="127.0.0.1")
    port: int = option("Port; 0 chooses a free one.", ge=0, le=65_535, default=8765)
    no_key: bool = option("Serve other machines without a key.")
    read_only: bool = option("Refuse to add or remove documents.")
    method: str = METHOD
    facts: Path | None = FACTS
    max_body: int = option("Maximum size of a request or uploaded file, in megabytes.", ge=1, le=4096, default=32)
    request_timeout: float = option("Request timeout, in seconds.", gt=0, le=86_400, default=120.0)
    answering: int = option("Questions that are answered at once.", ge=1, le=64, default=16)
    waiting: int = option("Questions that may wait; more are refused with status 429.", ge=0, le=10_000, default=64)
    rate: int = option(
        "Maximum requests per minute for each key, or for each address without keys; 0: no limit.", ge=0, default=0
    )
    grace: float = option("Time for running requests to finish at shutdown, in seconds.", ge=1, le=3600, default=30.0)
    log_texts: bool = option("Write questions to the log.")
    engine: Literal["local", "ray"] = option("What serves: this process, or replicas on Ray Serve.", default="local")
    replicas: int | None = option("With --engine ray: number of processes.  [default: 2]", ge=1, le=1024)
    ray_address: str | None = option("A Ray cluster, such as auto.  [default: one on this machine]", metavar="ADDRESS")
    models: Engine = MODELS

    def check(self) -> None:
        if self.engine != "ray":
            for name, value in (("--replicas", self.replicas), ("--ray-address", self.ray_address)):
                if value is not None:
                    raise InputError(f"{name} {value} is of --engine ray; give that too")
        elif self.ray_address is not None and not self.port:
            raise InputError(
                "--port 0 would be another port on each machine of --ray-address; give the one that all listen at"
            )

    def run(self) -> int:
        """Serve until a signal comes."""
        try:
            from pytrace.serve.running import address_of, bind, run
            from pytrace.serve.settings import KEY_VARIABLE, ServeSettings, keys_of
        except ImportError as error:
            raise MissingDependencyError(
                f"{error.name} is needed to serve; install it with \"pip install 'pytrace-rag[serve]'\""
            ) from error
        keys = keys_of()
        if keys and self.models.asks_servers and self.models.api_key_env == KEY_VARIABLE:
            raise InputError(
                f"{KEY_VARIABLE} holds the keys of this service, and would be sent to the model's server, too; name the "
                "variable that holds that one's key with --api-key-env"
            )
        settings = ServeSettings(
            host=self.host,
            port=self.port,
            keys=keys,
            without_key=self.no_key,
            read_only=self.read_only,
            max_body=self.max_body << 20,
            timeout=self.request_timeout,
            answering=self.answering,
            waiting=self.waiting,
            rate=self.rate,
            grace=self.grace,
            log_texts=self.log_texts,
        )
        if self.engine == "ray":
            self._run_replicas(settings)
            return 0
        listening = bind(settings)  # before models are loaded
        try:
            service = make_service(self.models, self.index, settings, facts=self.facts, method=self.method)
        except BaseException:
            listening.close()
            raise
        address = address_of(listening)

        def started() -> None:
            common.remark(f"serving {self.index} at {address} (documents, search and answers: open it in a browser)")

        run(service, listening, started=started)
        return 0

    def _run_replicas(self, settings: ServeSettings) -> None:
        from pytrace.serve.replicas import ReplicaPlan, run_replicas
        from pytrace.serve.running import address_of, bind
        from pytrace.serve.served_index import check_index

        check_index(self.index)
        count = self.replicas or 2
        if self.ray_address is None:
            # Ray's proxy binds it anew; whether it can be had, and which one, is told before anything is loaded.
            with bind(settings) as tried:
                settings = replace(settings, port=tried.getsockname()[1])
                address = address_of(tried)
        else:
            address = f"http://{settings.host}:{settings.port}, on {self.ray_address},"
        plan = ReplicaPlan(
            self.models,
            real_path(self.index),
            settings,
            facts=None if self.facts is None else real_path(self.facts),
            method=self.method,
            folder=Path.cwd(),
        )

        def started() -> None:
            common.remark(f"serving {self.index} at {address} with {count} replicas")

        run_replicas(plan, count, address=self.ray_address, started=started)


def make_service(models: Engine, index: Path, settings: ServeSettings, *, facts: Path | None, method: str) -> Service:
    """Open an index with its models."""
    from pytrace.serve.served_index import check_index
    from pytrace.serve.service import Service

    check_index(index)
    return Service(models, index, settings, facts=facts, method=method)
