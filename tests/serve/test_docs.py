"""What docs/service.md shows is run: each curl command against a real service, and answers have what is shown of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.serve.service_process import build_index, served

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
ADDRESS = "http://127.0.0.1:8765"
KEY = "0123456789abcdef-of-the-page"


class Example(NamedTuple):
    line: int
    commands: str
    shown: Any  # None: nothing is shown of the answer


def examples() -> list[Example]:
    text = PAGE.read_text(encoding="utf-8")
    blocks = [
        (text.count("\n", 0, match.start()) + 1, match[1], match[2], match.end())
        for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    found = []
    for number, (line, kind, content, end) in enumerate(blocks):
        if kind != "sh" or "curl" not in content:
            continue
        after = blocks[number + 1] if number + 1 < len(blocks) else None
        # What is shown stands at once below; words between the two begin something else.
        follows = after is not None and after[1] == "json" and not text[end : text.find("```json", end)].strip()
        found.append(Example(line, content, json.loads(after[2]) if after is not None and follows else None))
    return found


def lacking(shown: Any, answer: Any, place: str = "$") -> Iterator[str]:
    """Iterate over what an answer lacks of what is shown; of lists the first item stands for all."""
    if isinstance(shown, dict):
        if not isinstance(answer, dict):
            yield f"{place} is no object"
            return
        for key, value in shown.items():
            if key in answer:
                yield from lacking(value, answer[key], f"{place}.{key}")
            else:
                yield f"{place}.{key} is missing"
    elif isinstance(shown, list):
        if not isinstance(answer, list):
            yield f"{place} is no list"
        elif shown and not answer:
            yield f"{place} is empty"
        elif shown:
            yield from lacking(shown[0], answer[0], f"{place}[0]")
    elif isinstance(shown, str) != isinstance(answer, str):
        yield f"{place} is {answer!r}, and {shown!r} is shown"


def test_examples_are_found_with_what_they_show() -> None:
    found = examples()
    assert len(found) >= 16
    assert sum(example.shown is not None for example in found) >= 12
    assert list(lacking({"a": [{"b": "x"}]}, {"a": [{"c": 1}]})) == ["$.a[0].b is missing"]


def test_every_route_is_shown() -> None:
    pytest.importorskip("starlette")
    from pytrace.serve.app import ROWS

    commands = " ".join(example.commands for example in examples())
    for row in ROWS:
        assert re.search(rf"{re.escape(ADDRESS + row.path)}(?![\w/])", commands), row.path
        if row.method == "DELETE":
            assert "-X DELETE" in commands


@pytest.mark.models
def test_the_page_in_its_order_does_what_it_says(tiny_models: object, tmp_path: Path) -> None:
    del tiny_models
    if shutil.which("curl") is None:
        pytest.skip("curl is not here, whose commands the page shows")
    pytest.importorskip("starlette")
    index = build_index(tmp_path / "papers.index")
    work = tmp_path / "work"
    work.mkdir()
    environment = {**os.environ, "PYTRACE_API_KEY": KEY}
    # The page is of a service without a key, which takes one all the same.
    patient = ("--request-timeout", "600")  # on a machine that does other things, too
    with served(index, *patient, log=tmp_path / "log", environment={"PYTRACE_API_KEY": ""}) as service:
        for example in examples():
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", example.commands.replace(ADDRESS, service.url)],
                capture_output=True,
                cwd=work,
                env=environment,
                timeout=300,
                check=False,
            )
            at = f"{PAGE.name}:{example.line}"
            assert done.returncode == 0, (at, done.stderr.decode())
            if example.shown is None:
                assert done.stdout or any(work.iterdir()), at
                continue
            # Of several commands the last one's answer is shown.
            answer = json.loads(done.stdout[_start_of_last(done.stdout) :])
            assert list(lacking(example.shown, answer)) == [], at
    assert (work / "page-1.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((work / "openapi.json").read_bytes())["openapi"].startswith("3.")


def _start_of_last(output: bytes) -> int:
    """Return where the last of several JSON documents begins, which stand one behind another."""
    decoder = json.JSONDecoder()
    text = output.decode()
    start = last = 0
    while start < len(text):
        last = start
        try:
            _, start = decoder.raw_decode(text, start)
        except json.JSONDecodeError:  # a picture was before
            start = len(text)
    return len(text[:last].encode())
