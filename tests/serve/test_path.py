"""Few functions are between a route and its result: those that CONTRIBUTING.md lists, and no others."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from starlette.requests import Request

from pytrace.serve import own_api
from pytrace.serve.service import Service
from pytrace.serve.settings import ServeSettings
from tests.serve import hashed

ROOT = Path(__file__).parents[2]
BAR = 15
# Functions that begin the work of a stage. What they call is how the stage works, and not on the path.
STAGES = {
    "pytrace.serve.shared_search._SharedCorpus.search": "search",
    "pytrace.engine.findings.search_findings": "findings",
    "pytrace.methods.base.Method.answer": "method",
    "pytrace.engine.findings.answer_result": "findings",
    "pytrace.certify.claims.answer_claims.check_answer": "check",
}
# Here the request changes to another thread.
HANDED_OVER = "pytrace.serve.service._Workers.submit"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    documents = [hashed.document(name) for name in ("keta", "ada", "tema")]
    directory = hashed.build(tmp_path / "index", documents)
    with Service(hashed.engine(), directory, ServeSettings(read_only=True), method="rag") as service:
        yield service


def path_of(route: Callable[..., Any], service: Service, body: dict[str, Any]) -> tuple[list[str], set[str], Any]:
    """Call a route; return the functions on the stack wherever a stage begins, in order, the stages, and the answer.

    Comprehensions and lambdas belong to the function that has them.
    """
    path: dict[str, None] = {}
    begun: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        name = name_of(frame)
        if event != "call" or (name not in STAGES and name != HANDED_OVER):
            return
        begun.add(STAGES.get(name, "thread"))
        stack = [] if name in STAGES else [name]
        above = frame.f_back
        while above is not None:
            if (caller := name_of(above)).startswith("pytrace.") and "<" not in caller:
                stack.append(caller)
            above = above.f_back
        # A stage within a stage, as a method that searches, is that stage's own.
        if not STAGES.keys() & stack:
            path.update(dict.fromkeys(reversed(stack)))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
    threading.setprofile(watch)  # threads of the service start with their first request
    sys.setprofile(watch)
    try:
        response = asyncio.run(route(service, Request(scope, receive)))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(path), begun, json.loads(response.body)


def name_of(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


def listed(route: str) -> list[str]:
    """Return the functions that CONTRIBUTING.md lists for a route, in their order."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [names] = re.findall(rf"^    {re.escape(route)} +(.+(?:\n {{10,}}.+)*)$", text, re.MULTILINE)
    return [f"pytrace.{name}" for name in re.split(r"\s*→\s*", names)]


def test_an_answer_takes_the_functions_that_are_listed(service: Service) -> None:
    body = {"question": "Where is Tema?", "check": True}
    path, stages, answer = path_of(own_api.ask, service, body)
    assert answer["answer"] or answer["withheld"]
    assert stages == {"thread", "search", "findings", "method", "check"}
    assert path == listed("/v1/ask")
    assert len(path) <= BAR


def test_a_search_takes_the_functions_that_are_listed(service: Service) -> None:
    path, stages, answer = path_of(own_api.search, service, {"question": "Where is Tema?"})
    assert answer["evidence"]["sources"]
    assert stages == {"thread", "search", "findings"}
    assert path == listed("/v1/search")
    assert len(path) <= BAR
