"""What a service tells whoever runs it: a line of JSON a request on stderr, and metrics; no text of a request, unless it is asked for."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from pytrace.records import Usage

_LOG = "pytrace.serve"
# Seconds: a search takes ten milliseconds, an answer seconds.
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128)


class _Lines(logging.Formatter):
    """A record as a line of JSON."""

    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = described(record.exc_info[1], texts=self._texts)
        return msgspec.json.encode(line).decode()


def described(error: BaseException, *, texts: bool) -> dict[str, Any]:
    """Describe an error that nobody expected: its type and where it came from; its message may have words of a request."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    described: dict[str, Any] = {"type": type(error).__name__, "frames": frames[-12:]}
    if texts:
        described["message"] = str(error)
    return described


def make_log(*, texts: bool = False, stream: Any = None) -> logging.Logger:
    """Return the service's log, which writes to stderr; what uvicorn warns of goes there, too."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(texts=texts))
    for name, level in ((_LOG, logging.INFO), ("uvicorn.error", logging.ERROR), ("mcp", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.setLevel(level)
        log.propagate = False
    # What a request asked for stands in its line already.
    logging.getLogger("uvicorn.access").handlers[:] = []
    logging.getLogger("uvicorn.access").propagate = False
    return logging.getLogger(_LOG)


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def labelled(kind: Any, name: str, help: str, *labels: str, **options: Any) -> Any:
            return kind(f"pytrace_{name}", help, labels, registry=self.registry, **options)

        self.requests = labelled(Counter, "requests", "Requests by route and status.", "route", "status")
        self.seconds = labelled(Histogram, "request_seconds", "Seconds a request.", "route", buckets=_SECONDS)
        self.under_way = labelled(Gauge, "requests_under_way", "Requests that are under way.")
        self.batch_items = labelled(
            Histogram, "batch_items", "Requests, or pieces of them, that went together.", "work", buckets=_ITEMS
        )
        self.batch_seconds = labelled(Histogram, "batch_seconds", "Seconds a batch.", "work", buckets=_SECONDS)
        self.waiting = labelled(Gauge, "waiting", "What waits: tokens to encode, questions, changes.", "work")
        self.passages = labelled(Gauge, "index_passages", "Passages of the index that is served.")
        self.reloads = labelled(Gauge, "index_reloads", "How often the index was opened anew.")
        self.tokens = labelled(Counter, "model_tokens", "Tokens of the language model.", "kind")

    def observe_batch(self, work: str, items: int, seconds: float) -> None:
        """Count a batch."""
        self.batch_items.labels(work).observe(items)
        self.batch_seconds.labels(work).observe(seconds)

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def observe_usage(self, usage: Usage) -> None:
        """Count what a request has spent of the language model."""
        for kind in ("prompt", "evaluated", "generated"):
            self.tokens.labels(kind).inc(getattr(usage, f"{kind}_tokens"))

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
