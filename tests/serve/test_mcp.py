"""An assistant's own client lists the tools and calls them, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
mcp = pytest.importorskip("mcp", reason="the extra serve is not installed")
httpx2 = pytest.importorskip("httpx2", reason="the extra remote is not installed")

from mcp.client.streamable_http import streamable_http_client

from pytrace.engine.questions import NOT_A_QUESTION
from pytrace.engine.running import NOT_FOUND
from pytrace.results import VERSION, Result
from tests.serve.conftest import KEY
from tests.serve.service_process import ServiceProcess

pytestmark = pytest.mark.models

QUESTION = "Who founded the company that owns the Marigold Tern?"
TOOLS = {"search_evidence", "ask", "certify", "neighbours", "list_documents"}

Talk = Callable[[Any], Awaitable[None]]


@pytest.fixture
def service(keyed_service: ServiceProcess) -> ServiceProcess:
    return keyed_service


@asynccontextmanager
async def connected(service: ServiceProcess, key: str = KEY) -> AsyncIterator[Any]:
    """Give a client over HTTP."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{service.url}/mcp", http_client=http)
        async with mcp.Client(transport) as assistant:
            yield assistant


def over_http(service: ServiceProcess, talk: Talk, *, key: str = KEY) -> None:
    async def run() -> None:
        async with connected(service, key) as assistant:
            await talk(assistant)

    asyncio.run(run())


def over_streams(index: Path, talk: Talk) -> None:
    async def run() -> None:
        command = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "pytrace", "mcp", "--index", str(index), "--threads", "1"]
        )
        async with mcp.Client(command) as assistant:
            await talk(assistant)

    asyncio.run(run())


async def call(assistant: Any, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, which must succeed, and return its data."""
    return (await call_for_text(assistant, name, **arguments))[0]


async def call_for_text(assistant: Any, name: str, **arguments: Any) -> tuple[dict[str, Any], str]:
    """Call a tool, which must succeed, and return its data and its text."""
    result = await assistant.call_tool(name, arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    assert result.content[0].text
    return result.structured_content, result.content[0].text


async def refused(assistant: Any, name: str, **arguments: Any) -> str:
    """Call a tool in vain, and return what it says."""
    result = await assistant.call_tool(name, arguments)
    assert result.is_error
    told: str = result.content[0].text
    assert "Traceback" not in told
    return told


def ranked(result: dict[str, Any]) -> int:
    """Count the passages that a search has ranked; chains may have others."""
    return sum("relevance" in source for source in result["evidence"]["sources"])


async def use_everything(assistant: Any) -> None:
    """Do what an assistant would, but for asking the language model."""
    assert assistant.server_info.name == "pytrace"
    assert "search_evidence" in assistant.instructions
    listed = {tool.name: tool for tool in (await assistant.list_tools()).tools}
    assert {*listed} == TOOLS
    for tool in listed.values():
        assert tool.description
        assert tool.input_schema["type"] == "object"
    properties = listed["search_evidence"].input_schema["properties"]
    assert listed["search_evidence"].input_schema["required"] == ["question"]
    assert (properties["chains"]["minimum"], properties["chains"]["maximum"]) == (1, 20)

    found, text = await call_for_text(assistant, "search_evidence", question=QUESTION)
    assert msgspec.convert(found, Result).version == VERSION
    sources, steps = found["evidence"]["sources"], found["evidence"]["chains"][1]["steps"]
    tern, builders = (sources[step["source"]] for step in steps)
    assert (tern["title"], builders["title"]) == ("Marigold Tern", "Hobb and Lasker")
    assert steps[1]["sentence"]
    assert ranked(found) == 5
    assert text.startswith("Likeliest chain:\n1. Marigold Tern (")
    assert all(source["text"] in text for source in sources)

    linked = await call(assistant, "neighbours", passage=tern["id"], limit=3)
    assert 0 < len(linked["neighbours"]) <= 3

    documents = await call(assistant, "list_documents", query="marigold", limit=2)
    assert documents["total"] >= 1
    assert documents["documents"][0]["title"] == "Marigold Tern"

    certified = await call(
        assistant,
        "certify",
        question="In which country is Ada Foah?",
        response="1. Ada Foah is in the country Ghana. So the answer is (Ghana).",
        facts=[["Ada Foah", "country", "Ghana"]],
    )
    assert certified["answer"] == "Ghana"

    assert "no document or passage 'nothing'" in await refused(assistant, "neighbours", passage="nothing")
    assert "give facts" in await refused(assistant, "certify", question="x", response="y")
    assert "nonsense" in await refused(assistant, "search_evidence", question=QUESTION, where=["nonsense"])
    assert "the question is empty" in await refused(assistant, "search_evidence", question="  ")
    assert "nonsense" in await refused(assistant, "ask", question=QUESTION, method="nonsense")
    assert "chains" in await refused(assistant, "search_evidence", question=QUESTION, chains=0)
    assert "question" in await refused(assistant, "search_evidence")

    (template,) = (await assistant.list_resource_templates()).resource_templates
    assert template.uri_template == "passage://{+id}"
    assert template.mime_type == "text/plain"
    (read,) = (await assistant.read_resource(f"passage://{builders['id']}")).contents
    assert read.text.startswith("Hobb and Lasker")
    assert steps[1]["sentence"] in read.text
    with pytest.raises(mcp.MCPError, match="no document or passage 'nothing'"):
        await assistant.read_resource("passage://nothing")


def test_all_tools_and_passages_over_http(service: ServiceProcess) -> None:
    over_http(service, use_everything)
    # What was called stands in the log as any request.
    assert any(line.get("route") == "/mcp" and line["status"] == 200 for line in service.log())


def test_all_tools_and_passages_over_standard_streams(service: ServiceProcess, examples_index: Path) -> None:
    del service  # so that its start is not waited for here
    over_streams(examples_index, use_everything)


def test_an_assistant_asks(service: ServiceProcess) -> None:
    async def talk(assistant: Any) -> None:
        result, text = await call_for_text(assistant, "ask", question=QUESTION, method="hops", min_confidence=0)
        assert msgspec.convert(result, Result).version == VERSION
        assert result["method"] == "hops"
        last = result["evidence"]["chains"][0]["steps"][-1]
        title = result["evidence"]["sources"][last["source"]]["title"]
        assert text.startswith(f"Answer: {result['answer']}\nConfidence: {result['certainty']} (")
        number = len(result["evidence"]["chains"][0]["steps"])
        assert text.endswith(f"{number}. {title} ({last['location']})\n   {last['sentence']}")
        # Nothing is certain enough, so that the closest passages come instead.
        result, text = await call_for_text(assistant, "ask", question=QUESTION, method="hops", min_confidence=1)
        assert (result["answer"], result["abstained"]) == ("", True)
        titles = [source["title"] for source in result["evidence"]["sources"]]
        assert text.startswith(f"{NOT_FOUND} Closest passages:\n1. {titles[0]} (")
        _, text = await call_for_text(assistant, "ask", question="Thanks!")
        assert text == NOT_A_QUESTION

    over_http(service, talk)


def test_an_assistant_needs_the_key(service: ServiceProcess) -> None:
    async def talk(assistant: Any) -> None:
        await assistant.list_tools()

    for key in ("", "another-key-than-ours"):
        with pytest.raises(BaseExceptionGroup):  # of the tasks that the client runs in
            over_http(service, talk, key=key)
    status, told, _ = service.request("POST", "/mcp", {})
    assert status == 401
    assert "a key is needed" in told["error"]["message"]


def test_several_assistants_at_once(service: ServiceProcess) -> None:
    async def talk() -> None:
        async with connected(service) as assistant:
            calls = [call(assistant, "search_evidence", question=QUESTION, passages=count) for count in range(1, 9)]
            for count, found in enumerate(await asyncio.gather(*calls), 1):
                assert ranked(found) == count

    async def all_of_them() -> None:
        await asyncio.gather(talk(), talk(), talk())

    asyncio.run(all_of_them())
