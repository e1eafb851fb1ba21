"""What a service tells whoever runs it: a line of JSON a request on stderr, and metrics; no text of a request, unless it is asked for."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from pytrace.records import Usage

_LOG = "pytrace.serve"
_LIBRARIES = ("uvicorn.error", "mcp", "asyncio", "concurrent.futures")
# Seconds: a search takes ten milliseconds, an answer seconds.
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128)


class _Lines(logging.Formatter):
    """A record as a line of JSON, in ASCII, so that no text of a request steers a terminal."""

    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}",
            "level": record.levelname.lower(),
            "event": self._event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = described(record.exc_info[1], texts=self._texts)
        return json.dumps(line, default=str, separators=(",", ":")).replace("\x7f", "\\u007f")

    def _event(self, record: logging.LogRecord) -> str:
        """Return what happened; what libraries say may have words of a request, so that only where they say it is told."""
        library = record.name.partition(".")[0]
        if self._texts or library == "uvicorn" or record.name == _LOG:
            return record.getMessage().strip()
        return f"{library} has trouble ({record.filename}:{record.lineno})"


def described(error: BaseException, *, texts: bool) -> dict[str, Any]:
    """Describe an error that nobody expected: its type and where it came from; its message may have words of a request."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    described: dict[str, Any] = {"type": type(error).__name__, "frames": frames[-12:]}
    if texts:
        described["message"] = str(error)
    return described


def _unexpected(record: logging.LogRecord) -> bool:
    """Say whether a record is more than of an answer that was broken off, which has a line of its own."""
    return not (record.exc_info and isinstance(record.exc_info[1], ConnectionResetError))


def make_log(*, texts: bool = False, stream: Any = None) -> logging.Logger:
    """Return the service's log, which writes to stderr; errors of the libraries that it stands on go there, too."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(texts=texts))
    for name in (_LOG, *_LIBRARIES):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.setLevel(logging.INFO if name == _LOG else logging.ERROR)
        log.propagate = False
    logging.getLogger("uvicorn.error").filters[:] = [_unexpected]
    if not (root := logging.getLogger()).handlers:  # else the tools' library gives it one that prints tracebacks
        root.addHandler(handler)
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
